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

#include "collectives/transport/listener.h"
#include "common/log.h"
#include "tests/fuzz/memberd_link.h"
#include "tests/fuzz/held.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX   2000
#define COUNT        40
#define STATE_BYTES  256
#define ROUNDS_MAX   12
#define DEADLINE_MS  200
#define LATE_MS      3000 /* a call is not to be later than that */
#define SWEEPS_MAX   100000
#define HONEST_TURNS 24

static struct {
	struct engine *engine;
	uv_loop_t net;
	struct listener *listener;
	struct live_worker worker;
	unsigned next; /* what its caller does */
	bool here;
} beside;

static unsigned long committed, together; /* rounds; with the other member */
static unsigned beside_handles;

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

static bool speak(void)
{
	beside_turn();
	return memberd_turn();
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
	committed += st == TR_OK;
	together += st == TR_OK && round.contributors == 2;
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
	memberd_close();
	engine_remove(beside.engine, WORDS_GROUP, WORDS_ME + 1, "the input is over");
	channel_worker_close(beside.worker.channel);
	for (unsigned turns = 0; turns == 0 || handles() != beside_handles; turns++) {
		(void)one_turn();
		one.now_ns += ONE_IDLE_NS;
		if (beside_handles == 0 && turns > 100)
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
	one_begin(speak, held_look);
	caller(how);
	memberd.script.left = 0;
	beside.here = false;
	sweep();
	one_end();
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

/* Welcome, admitted, and then the first view for both. */
static void play_honest(uint8_t how)
{
	static const uint8_t welcome[] = { 0, 0, 0, 0, 0 }, joined[] = { 1, 0, 0, 0, 0 };
	uint8_t text[200] = { 0 };
	unsigned long before = how & 1 ? committed : together;
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
	if ((how & 1 ? committed : together) == before)
		live_die("with an honest memberd no round was committed");
}

static void start(void)
{
	static const struct engine_callbacks callbacks = { 0 };
	struct tr_error error = { 0 };
	memberd_start();
	memberd.tell_others = tell_beside;
	live_need(engine_create(&callbacks, NULL, &beside.engine, &error), &error, "an engine");
	live_need(engine_set_links(beside.engine, &(struct engine_links){ .sockets = 1 }, &error),
	    &error, "links");
	if (uv_loop_init(&beside.net) != 0)
		live_die("no loop");
	one_turns(&beside.net);
	live_need(listener_start(&beside.net, "127.0.0.1:0", false, NULL, on_accepted, NULL,
	              &beside.listener, &error),
	    &error, "a port");
	one.ports[1] = (uint16_t)atoi(strrchr(listener_address(beside.listener), ':') + 1);
	growth_begin();
	for (uint8_t how = 0; how < 6; how++)
		if ((how & 2) == 0) {
			play_honest(how);
			beside_handles = handles();
			log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
		}
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	if (memberd.port == 0)
		start();
	growth_begin();
	uint8_t how = script_byte(&script);
	play(how, script);
	growth_check();
	return 0;
}
