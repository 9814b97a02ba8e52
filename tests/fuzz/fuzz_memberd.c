/* What a broken memberd, or who plays one, can say to a process that joined a group through coll.h: the real tr_group_join with its link, its engine and
 * its port, and a caller that goes through rounds with another member (peer_beside). The input is the script of what memberd says meanwhile: words of its
 * protocol near the truth (memberd_words.h), in any order and at any time, changed in places, cut, repeated until the socket is full; raw bytes; an
 * end of the connection. All is in one thread (one_thread.h).
 *
 * Whatever it says: no call of the caller waits for longer than its deadline, and one that fails says why; the process does not hold more than HELD_MAX
 * meanwhile, and afterwards it has no descriptor, no shared memory and no heap more than before.
 *
 * First byte: bit 0: the group is of one; bit 1: we come to a group that is there, and get its state; bit 2: over shared memory; bit 3: the state comes
 * gradually. Before the first input an honest memberd is played: if no round is committed then, the fuzzer would only see the door.
 */
#include "tests/fuzz/growth.h"
#include "tests/fuzz/one_thread.h"

#include "collectives/transport/listener.h"
#include "common/log.h"
#include "proto/frame.h"
#include "tests/fuzz/memberd_words.h"
#include "tests/fuzz/port.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX   2000
#define HELD_MAX     ((size_t)48 << 20)
#define GROWTH_MAX   (256 << 10)
#define OUT_MAX      ((size_t)8 << 20)
#define IN_MAX       ((size_t)256 << 10)
#define COUNT        40
#define STATE_BYTES  256
#define ROUNDS_MAX   12
#define DEADLINE_MS  200
#define LATE_MS      3000 /* a call is not to be later than that */
#define SWEEPS_MAX   100000
#define HONEST_TURNS 24

static struct {
	int port, link; /* link: the process' connection */
	char address[PORT_ADDRESS_BYTES];
	struct script script;
	uint8_t *out, *in;
	size_t out_from, out_bytes, in_bytes;
	bool told; /* what the process is called */
	char me[TR_ADDRESS_MAX], local[TR_ADDRESS_MAX], host[HOST_IDENTITY_MAX];
	unsigned long heard[32]; /* kinds of messages */
} memberd = { .link = -1 };

static struct {
	struct engine *engine;
	uv_loop_t net;
	struct listener *listener;
	struct live_worker worker;
	unsigned next; /* what its caller does */
	bool here;
} beside;

static struct {
	unsigned long inputs, committed, together; /* together: with the other member */
	unsigned handles, descriptors, mapped;
	size_t heap_before;
	int64_t heap_growth;
} seen;

/* ---- the end */

static void live_die(const char *what)
{
	(void)fprintf(stderr, "memberd: input %lu: %s\n", seen.inputs, what);
	abort();
}

static void live_need(tr_status st, const struct tr_error *error, const char *what)
{
	if (st == TR_OK)
		return;
	(void)fprintf(stderr, "memberd: %s: %s\n", what, error->text);
	abort();
}

/* ---- memberd's connection */

static void hang_up(bool now)
{
	struct linger at_once = { .l_onoff = 1 };
	if (memberd.link < 0)
		return;
	if (now)
		(void)setsockopt(memberd.link, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	(void)close(memberd.link);
	memberd.link = -1;
	memberd.told = false;
	memberd.out_from = memberd.out_bytes = memberd.in_bytes = 0;
}

static void flush(void)
{
	while (memberd.link >= 0 && memberd.out_from < memberd.out_bytes) {
		ssize_t n = send(memberd.link, memberd.out + memberd.out_from,
		    memberd.out_bytes - memberd.out_from, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			return;
		memberd.out_from += (size_t)n;
	}
	memberd.out_from = memberd.out_bytes = 0;
}

static void put(const void *bytes, size_t count)
{
	if (memberd.link < 0 || count > OUT_MAX - memberd.out_bytes)
		return;
	memcpy(memberd.out + memberd.out_bytes, bytes, count);
	memberd.out_bytes += count;
	flush();
}

/* ---- what the process says */

static void take_hello(const Traind__Peer__NodeHello *hello)
{
	memberd.told = true;
	(void)snprintf(memberd.me, sizeof(memberd.me), "%s", hello->address);
	(void)snprintf(memberd.local, sizeof(memberd.local), "%s", hello->local_address);
	(void)snprintf(memberd.host, sizeof(memberd.host), "%s", hello->host);
	one.ports[2] = (uint16_t)atoi(strrchr(hello->address, ':') + 1);
}

static void hear(const uint8_t *payload, size_t bytes)
{
	Traind__Peer__ToMember *said = traind__peer__to_member__unpack(NULL, bytes, payload);
	if (said == NULL)
		live_die("it says what is no message");
	memberd.heard[said->body_case % 32]++;
	if (said->body_case == TRAIND__PEER__TO_MEMBER__BODY_HELLO)
		take_hello(said->hello);
	if (said->body_case == TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS)
		for (size_t i = 0; i < said->round_commits->n_rounds; i++)
			if (said->round_commits->rounds[i]->round > truth.round)
				truth.round = said->round_commits->rounds[i]->round;
	bool leaves = said->body_case == TRAIND__PEER__TO_MEMBER__BODY_NODE_LEAVE;
	traind__peer__to_member__free_unpacked(said, NULL);
	if (leaves)
		hang_up(false);
}

/* All of what it says is right, whatever it was told. */
static void listen_to_it(void)
{
	if (memberd.link < 0)
		return;
	ssize_t n = recv(memberd.link, memberd.in + memberd.in_bytes, IN_MAX - memberd.in_bytes,
	    MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
		hang_up(true);
		return;
	}
	memberd.in_bytes += n > 0 ? (size_t)n : 0;
	size_t at = memberd.told ? 0 : FRAME_GREETING_BYTES;
	struct frame_header header;
	while (memberd.in_bytes >= at + FRAME_HEADER_BYTES) {
		if (frame_header_get(memberd.in + at, &header, NULL) != TR_OK)
			live_die("it says what is no frame");
		if (memberd.in_bytes < at + FRAME_HEADER_BYTES + header.length)
			break;
		hear(memberd.in + at + FRAME_HEADER_BYTES, header.length);
		if (memberd.link < 0)
			return;
		at += FRAME_HEADER_BYTES + header.length;
	}
	if (!memberd.told)
		return; /* the greeting is not whole */
	memmove(memberd.in, memberd.in + at, memberd.in_bytes - at);
	memberd.in_bytes -= at;
	if (memberd.in_bytes == IN_MAX)
		hang_up(true); /* more than memberd would take */
}

/* ---- what memberd says */

/* In a frame, mostly; changed in places or lied about as the script wants it. */
static void say(struct script *script, uint8_t *word, size_t bytes)
{
	struct frame_header header = { .length = (uint32_t)bytes, .type = FRAME_TO_NODE };
	uint8_t *payload = word + FRAME_HEADER_BYTES, how = script_byte(script);
	size_t whole = FRAME_HEADER_BYTES + bytes, times = 1;
	if (how >= 128 && how < 176 && bytes > 0)
		payload[script_about(script, how - 128) % bytes] ^= (uint8_t)(1 +
		    script_byte(script));
	else if (how >= 176 && how < 192)
		header.length = (uint32_t)(bytes = bytes * (how - 176) / 16);
	else if (how >= 192 && how < 208)
		header.length = (uint32_t)script_about(script, bytes + how - 191);
	else if (how >= 208 && how < 216)
		header.type = (uint16_t)(how - 208);
	else if (how >= 216 && how < 232)
		whole = whole * (how - 216) / 16;
	else if (how >= 232)
		times = (size_t)1 << (how - 232) % 16;
	frame_header_put(&header, word);
	if (how >= 176 && how < 192)
		whole = FRAME_HEADER_BYTES + bytes;
	for (size_t i = 0; i < times; i++)
		put(word, whole);
}

static void raw(struct script *script, bool framed)
{
	uint8_t word[FRAME_HEADER_BYTES + 255];
	size_t bytes = script_byte(script);
	bytes = bytes < script->left ? bytes : script->left;
	memcpy(word + FRAME_HEADER_BYTES, script->at, bytes);
	script->at += bytes;
	script->left -= bytes;
	if (framed)
		say(script, word, bytes);
	else
		put(word + FRAME_HEADER_BYTES, bytes);
}

/* The other member is told the truth. */
static void tell_beside(void)
{
	static uint8_t word[WORDS_MAX];
	static const uint8_t restarts[] = { 2 };
	struct script honest = { restarts, truth.view > 1 };
	size_t bytes = words_install(&honest, word);
	Traind__Peer__ToNode *install = traind__peer__to_node__unpack(NULL, bytes, word);
	if (beside.here && install != NULL)
		engine_to_node(beside.engine, install);
	traind__peer__to_node__free_unpacked(install, NULL);
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	recorded.group = WORDS_GROUP;
	recorded.round = recorded.frontier = truth.round;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	message.rounds_recorded = &recorded;
	engine_to_node(beside.engine, &message);
}

static void word(struct script *script, unsigned which)
{
	static uint8_t bytes[FRAME_HEADER_BYTES + WORDS_MAX];
	static size_t (*const kinds[])(struct script *, uint8_t *) = { words_welcome, words_joined,
		words_install, words_propose, words_recorded, words_duties, words_end, words_node };
	size_t count = kinds[which](script, bytes + FRAME_HEADER_BYTES);
	say(script, bytes, count);
}

static void event(struct script *script)
{
	uint8_t what = script_byte(script);
	switch (what & 15) {
	case 8:
		truth.view++;
		break;
	case 9:
		raw(script, true);
		break;
	case 10:
		raw(script, false);
		break;
	case 11:
		hang_up(what & 16);
		break;
	case 12:
		if (memberd.link >= 0)
			(void)shutdown(memberd.link, SHUT_WR);
		break;
	case 13:
		one.now_ns += (uint64_t)(what >> 4) * 40000000;
		break;
	case 14:
		tell_beside();
		break;
	case 15:
		break; /* a turn in which it is silent */
	default:
		word(script, what & 7);
	}
}

/* ---- the other member's caller, one step a turn */

static void beside_turn(void)
{
	struct live_worker *worker = &beside.worker;
	if (!beside.here || (beside.next > 0 && !live_answered(worker)))
		return;
	bool fine = beside.next == 0 || worker->answer.status == TR_OK;
	if (beside.next == 0)
		live_call(worker, (struct channel_submission){ .call = CHANNEL_READY });
	else if (beside.next % 2 == 1)
		live_call(worker, (struct channel_submission){ .call = CHANNEL_BEGIN });
	else {
		live_submit(worker,
		    (struct channel_submission){ .count = COUNT,
		        .dtype = TR_F32,
		        .reduce = TR_SUM });
		live_call(worker,
		    (struct channel_submission){ .call = CHANNEL_COMMIT, .commit.samples = 1 });
	}
	beside.next++;
	if (!fine)
		beside.here = false; /* its round is given up; it says no more */
}

static void look_at_heap(void)
{
	if (__sanitizer_get_current_allocated_bytes() > seen.heap_before + HELD_MAX)
		live_die("it holds too much for what memberd says");
}

static bool speak(void)
{
	listen_to_it();
	int dialled = port_dialled(memberd.port);
	if (memberd.link < 0)
		memberd.link = dialled;
	else if (dialled >= 0)
		(void)close(dialled); /* a relay is asked for here, or waited at */
	flush();
	beside_turn();
	if (memberd.script.left == 0 || !memberd.told)
		return false; /* over, or not before it has said hello */
	event(&memberd.script);
	return true;
}

/* ---- our caller */

/* Since when a call waits. */
static uint64_t called_ns;

static void call(void)
{
	called_ns = one.now_ns;
}

static tr_status ended(tr_status st, struct tr_error *error, uint64_t most_ms)
{
	if (one.now_ns - called_ns > (most_ms + LATE_MS) * 1000000)
		live_die("a call is late");
	if (st != TR_OK && error->text[0] == '\0')
		live_die("a call failed and did not say why");
	if (st != TR_OK && getenv("LIVE_LOG") != NULL)
		(void)fprintf(stderr, "memberd: %d: %s\n", (int)st, error->text);
	error->text[0] = '\0';
	return st;
}

static tr_status one_round(tr_group *group, float *data, float *part)
{
	struct tr_error error = { 0 };
	struct tr_round round = { 0 };
	call();
	tr_status st = ended(tr_round_begin(group, &round, &error), &error, DEADLINE_MS);
	if (st != TR_OK)
		return st;
	unsigned flags = round.index < round.contributors ? TR_CONTRIBUTE : 0;
	for (unsigned i = 0; i < COUNT; i++)
		data[i] = part[i] = (float)i;
	st = tr_allreduce(group, 0, data, COUNT, TR_F32, TR_SUM, flags, &error);
	if (ended(st, &error, DEADLINE_MS) != TR_OK)
		return st;
	call();
	if (round.receive_state)
		(void)ended(tr_state_receive(group, &error), &error, DEADLINE_MS);
	call();
	(void)ended(tr_wait_for(group, 0, DEADLINE_MS / 2, &error), &error, DEADLINE_MS);
	for (unsigned tries = 0; tries < 2; tries++) {
		call();
		st = tr_round_commit(group, &(struct tr_commit){ .samples = 1 }, &round, &error);
		if (ended(st, &error, DEADLINE_MS) != TR_ETIMEDOUT)
			break;
	}
	seen.committed += st == TR_OK;
	seen.together += st == TR_OK && round.contributors == 2;
	return st;
}

static void rounds(tr_group *group, uint8_t how)
{
	struct tr_error error = { 0 };
	float *data = tr_alloc(group, COUNT * sizeof(float)),
	      *part = tr_alloc(group, COUNT * sizeof(float));
	void *state = tr_alloc(group, STATE_BYTES);
	if (data == NULL || part == NULL || state == NULL)
		return; /* the member is over */
	if (how & 8)
		(void)tr_state_add_gradual(group, "w", state, STATE_BYTES, 0, &error);
	else if (how & 2)
		(void)tr_state_add(group, "w", state, STATE_BYTES, &error);
	call();
	tr_status st = ended(tr_state_ready(group, 0, &error), &error, DEADLINE_MS);
	for (unsigned i = 0; i < ROUNDS_MAX; i++) {
		if (st != TR_OK && st != TR_ETIMEDOUT && st != TR_ERESTART)
			break;
		if (memberd.script.left == 0 && i > 1)
			break;
		st = one_round(group, data, part);
	}
}

static void caller(uint8_t how)
{
	struct tr_error error = { 0 };
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	tr_group *group;
	options.membership = memberd.address;
	options.name = "g";
	options.size = truth.peers;
	options.op_deadline_ms = DEADLINE_MS;
	options.sockets = 1;
	options.transport = how & 4 ? TR_TRANSPORT_AUTO : TR_TRANSPORT_TCP;
	call();
	if (ended(tr_group_join(&options, &group, &error), &error, TR_JOIN_TIMEOUT_MS) != TR_OK)
		return;
	rounds(group, how);
	memberd.script.left = 0;
	call();
	tr_group_leave(group);
	(void)ended(TR_OK, &error, 2 * DEADLINE_MS);
}

/* ---- one input */

static void count_handle(uv_handle_t *handle, void *arg)
{
	(void)handle;
	++*(unsigned *)arg;
}

static unsigned handles(void)
{
	unsigned count = 0;
	uv_walk(&beside.engine->loop, count_handle, &count);
	uv_walk(&beside.net, count_handle, &count);
	return count;
}

/* Closes what the input's side has, until the other member's engine has let go of it. */
static void sweep(void)
{
	hang_up(true);
	for (int fd = port_dialled(memberd.port); fd >= 0; fd = port_dialled(memberd.port))
		(void)close(fd);
	engine_remove(beside.engine, WORDS_GROUP, WORDS_ME + 1, "the input is over");
	channel_worker_close(beside.worker.channel);
	for (unsigned turns = 0; turns == 0 || handles() != seen.handles; turns++) {
		(void)one_turn();
		one.now_ns += ONE_IDLE_NS;
		if (seen.handles == 0 && turns > 100)
			return; /* the first time: so many there are */
		if (turns == SWEEPS_MAX)
			live_die("the other member's engine holds on to what is closed");
	}
}

static void play(uint8_t how, struct script script)
{
	static const char name[] = "127.0.0.1:";
	truth = (struct words_truth){ .view = 1,
		.round = how & 2 ? 3 : 0,
		.peers = how & 1 ? 1 : 2,
		.joins = (how & 3) == 2,
		.memberd = memberd.address,
		.me = memberd.me,
		.me_local = how & 4 ? memberd.local : "",
		.other = listener_address(beside.listener),
		.other_local = how & 4 ? engine_local_address(beside.engine) : "",
		.host = how & 4 ? memberd.host : "" };
	(void)snprintf(memberd.me, sizeof(memberd.me), "%s1", name);
	memberd.script = script;
	memberd.told = false;
	beside.here = true;
	beside.next = 0;
	live_worker_start(beside.engine, WORDS_GROUP, WORDS_ME + 1, &beside.worker);
	one_begin(speak, look_at_heap);
	caller(how);
	memberd.script.left = 0;
	beside.here = false;
	sweep();
	one_end();
}

static void check(void)
{
	char text[128];
	unsigned descriptors = growth_descriptors(false);
	seen.heap_growth += (int64_t)__sanitizer_get_current_allocated_bytes() -
	    (int64_t)seen.heap_before;
	if (descriptors != seen.descriptors) {
		(void)growth_descriptors(true);
		(void)snprintf(text, sizeof(text), "%u descriptors, %u before", descriptors,
		    seen.descriptors);
		live_die(text);
	}
	if (seen.inputs % 64 <= 8 && growth_mapped() != seen.mapped)
		live_die("shared memory stays mapped");
	if (seen.heap_growth > GROWTH_MAX) {
		(void)snprintf(text, sizeof(text), "the heap grew by %ld bytes",
		    (long)seen.heap_growth);
		live_die(text);
	}
	if (one.outside > 0 && getenv("LIVE_LOG") != NULL)
		(void)fprintf(stderr, "memberd: %lu times dialled outside\n", one.outside);
}

/* ---- the start */

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	if (protocol == LISTENER_FRAMES)
		engine_accept(beside.engine, stream, early, early_bytes);
	else
		stream_close(&stream);
}

static uint16_t port_of(const char *address)
{
	return (uint16_t)atoi(strrchr(address, ':') + 1);
}

/* Welcome, admitted, and then the first view for both. */
static void play_honest(uint8_t how)
{
	static const uint8_t welcome[] = { 0, 0, 0, 0, 0 }, joined[] = { 1, 0, 0, 0, 0 };
	uint8_t text[200] = { 0 };
	unsigned long before = how & 1 ? seen.committed : seen.together;
	size_t at = 0;
	memcpy(text + at, welcome, sizeof(welcome));
	at += sizeof(welcome);
	memcpy(text + at, joined, sizeof(joined));
	at += sizeof(joined);
	memset(text + at, 15, HONEST_TURNS);
	text[at + 4] = 14;
	at += HONEST_TURNS;
	text[at] = 2; /* its fields are behind the script's end: right */
	play(how, (struct script){ text, at + 1 });
	if ((how & 1 ? seen.committed : seen.together) == before)
		live_die("with an honest memberd no round was committed");
}

static void start(void)
{
	static const struct engine_callbacks callbacks = { 0 };
	struct tr_error error = { 0 };
	memberd.out = malloc(OUT_MAX);
	memberd.in = malloc(IN_MAX);
	if (memberd.out == NULL || memberd.in == NULL)
		live_die("no memory");
	memberd.port = port_open(memberd.address);
	live_need(engine_create(&callbacks, NULL, &beside.engine, &error), &error, "an engine");
	live_need(engine_set_links(beside.engine, &(struct engine_links){ .sockets = 1 }, &error),
	    &error, "links");
	if (uv_loop_init(&beside.net) != 0)
		live_die("no loop");
	live_need(listener_start(&beside.net, "127.0.0.1:0", false, NULL, on_accepted, NULL,
	              &beside.listener, &error),
	    &error, "a port");
	one.ports[0] = port_of(memberd.address);
	one.ports[1] = port_of(listener_address(beside.listener));
	seen.heap_before = __sanitizer_get_current_allocated_bytes();
	for (uint8_t how = 0; how < 6; how++)
		if ((how & 2) == 0) {
			play_honest(how);
			seen.handles = handles();
			log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
		}
	seen.descriptors = growth_descriptors(false);
	seen.mapped = growth_mapped();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	if (memberd.port == 0)
		start();
	seen.inputs++;
	seen.heap_before = __sanitizer_get_current_allocated_bytes();
	uint8_t how = script_byte(&script);
	play(how, script);
	check();
	return 0;
}
