/* What the members of a domain can say to each other (domain_link.h): to a live leader by all of its members, or to a live member by its leader. What is
 * due, or nearly, in any order; messages of any length, with descriptors attached; silence, ends and comings back. All in one thread, with a clock of
 * ours (waits.h). First byte: bit 0: a member is attacked, not the leader; bit 1: the backend cannot be built anew; bits 2-3: looks until what was
 * started inside is done; bit 4: each op at once (keep); bit 5: the input goes on rightly behind its script, else it ends.
 *
 * Whatever is said, each call ends in its time with a result or with words; the backend is called within its contract and never with memory that the
 * caller has taken back; nothing is left, and the next domain, of honest members, does three rounds.
 */
#include <sys/un.h>

#include "tests/fuzz/fake_backend.h"
#include "tests/fuzz/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX  1500
#define WAYS        4 /* the input's; members are 1 and 2 of 3 */
#define ROUNDS      3
#define OPS         2
#define ELEMENTS    16
#define DEADLINE_MS 40
#define WAIT_MS     100
#define CALLS       (OPS + 1) /* of the backend, in a round */
/* A call may wait for each member in turn, and build some communicators. */
#define CALL_MS_MAX 300000
#define FLOOD_MAX   1000 /* messages in a row, without a look at others or at the clock */

static char address[64];

static struct {
	struct script script;
	bool member_attacked, goes_on, fixed;
	int listener;
	bool floods; /* until its next turn: whenever something was read, on `way` the same comes again */
	unsigned way, flood;
	struct domain_message last; /* said */
	struct {
		int fd; /* -1: none */
		unsigned number;
		uint32_t view, calls;
		bool said_hello;
	} ways[WAYS];
} input = { .listener = -1 };

/* ---- the input's side: what is due */

static void forget(unsigned way)
{
	if (input.ways[way].fd >= 0)
		(void)close(input.ways[way].fd);
	input.ways[way].fd = -1;
	input.ways[way].said_hello = false;
}

static void say_bytes(unsigned way, const void *bytes, size_t count, int attached)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec piece = { (void *)(uintptr_t)bytes, count };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	if (attached >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &attached, sizeof(attached));
	}
	if (input.ways[way].fd >= 0)
		(void)sendmsg(input.ways[way].fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One that is right, of which a byte decides whether anything is wrong. */
static void say(unsigned way, struct domain_message message)
{
	struct script *script = &input.script;
	uint8_t how = script_byte(script);
	size_t bytes = offsetof(struct domain_message, text) + strlen(message.text) + 1;
	if (how >= 128 && how < 192) {
		message.kind = (uint32_t)script_about(script, message.kind);
		message.status = (int32_t)script_about(script, (uint64_t)message.status);
		message.view = (uint32_t)script_about(script, message.view);
		message.rank = (uint32_t)script_about(script, message.rank);
		message.size = (uint32_t)script_about(script, message.size);
		message.index = (uint32_t)script_about(script, message.index);
		message.call.tag = (uint32_t)script_about(script, message.call.tag);
		message.call.count = script_about(script, message.call.count);
	} else if (how >= 192 && how < 200) {
		size_t at = script_about(script, 0) % sizeof(message);
		((uint8_t *)&message)[at] = script_byte(script);
	} else if (how >= 200 && how < 208) {
		memset(message.text, 'x', sizeof(message.text)); /* no end */
		bytes = sizeof(message);
	} else if (how >= 208 && how < 216) {
		bytes = script_about(script, bytes - 1) % sizeof(message);
	} else if (how >= 216 && how < 224) {
		say_bytes(way, &message, bytes, STDERR_FILENO);
	} else if (how >= 240) {
		return;
	}
	say_bytes(way, &message, bytes, -1);
	input.last = message;
	input.way = way;
}

/* The code under test hears. */
ssize_t recv(int fd, void *bytes, size_t count, int flags)
{
	ssize_t n = syscall(SYS_recvfrom, fd, bytes, count, flags, NULL, NULL);
	if (!waits.ours || !input.floods || n <= 0)
		return n;
	if (++input.flood > FLOOD_MAX)
		live_die("it hears but one, for ever");
	say_bytes(input.way, &input.last, offsetof(struct domain_message, text) + 1, -1);
	return n;
}

static struct domain_call call_of(unsigned i)
{
	return (struct domain_call){ .collective = TR_ALL_REDUCE,
		.tag = i < OPS ? i : 0,
		.dtype = TR_F32,
		.reduce = TR_SUM,
		.count = ELEMENTS };
}

static void hello(unsigned way)
{
	input.ways[way].said_hello = true;
	input.ways[way].number = 1 + way % (MEMBERS - 1);
	say(way,
	    (struct domain_message){ .kind = DOMAIN_HELLO,
	        .view = 1,
	        .rank = input.ways[way].number });
}

/* A member's answers. */
static void obey(unsigned way, const struct domain_message *word)
{
	uint32_t view = input.ways[way].view, *calls = &input.ways[way].calls;
	switch (word->kind) {
	case DOMAIN_BUILD:
		input.ways[way].view = word->view;
		*calls = 0;
		say(way, (struct domain_message){ .kind = DOMAIN_BUILT, .view = word->view });
		break;
	case DOMAIN_READY:
	case DOMAIN_DONE:
		say(way, (struct domain_message){ .kind = DOMAIN_AT_BEGIN, .view = view });
		break;
	case DOMAIN_BEGIN:
		for (unsigned i = 0; i < CALLS; i++)
			say(way,
			    (struct domain_message){ .kind = DOMAIN_OP,
			        .view = view,
			        .index = (*calls)++,
			        .call = call_of(i) });
		say(way,
		    (struct domain_message){ .kind = DOMAIN_AT_COMMIT,
		        .view = view,
		        .index = *calls });
		break;
	case DOMAIN_DECIDED:
	case DOMAIN_SHARE:
		say(way,
		    (struct domain_message){ .kind = word->status == TR_OK ? DOMAIN_SHARED
		                                                           : DOMAIN_AT_BEGIN,
		        .view = view });
		break;
	default:
		break;
	}
}

/* A leader's words. */
static void lead(unsigned way, const struct domain_message *said)
{
	const struct tr_round round = { .round = 1, .view = 1, .contributors = 1, .peers = 1 };
	switch (said->kind) {
	case DOMAIN_HELLO:
		say(way,
		    (struct domain_message){ .kind = DOMAIN_BUILD,
		        .view = ++input.ways[way].view,
		        .rank = 1,
		        .size = MEMBERS });
		break;
	case DOMAIN_BUILT:
		say(way, (struct domain_message){ .kind = DOMAIN_READY });
		break;
	case DOMAIN_AT_BEGIN:
		say(way, (struct domain_message){ .kind = DOMAIN_BEGIN, .round = round });
		break;
	case DOMAIN_AT_COMMIT:
		say(way, (struct domain_message){ .kind = DOMAIN_DECIDED, .round = round });
		break;
	case DOMAIN_SHARED:
		say(way, (struct domain_message){ .kind = DOMAIN_DONE });
		break;
	default:
		break;
	}
}

/* ---- the input's side: in turns */

static void hear(unsigned way)
{
	struct domain_message heard = { 0 };
	if (input.ways[way].fd < 0 ||
	    recv(input.ways[way].fd, &heard, sizeof(heard), MSG_DONTWAIT) <= 0)
		return;
	if (heard.kind == 0 || heard.kind >= DOMAIN_KINDS ||
	    memchr(heard.text, '\0', sizeof(heard.text)) == NULL)
		live_die("it says what is no message");
	if (input.member_attacked)
		lead(way, &heard);
	else
		obey(way, &heard);
}

static void meet(unsigned way)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	size_t length = strlen(address);
	if (input.member_attacked) {
		input.ways[way].fd = accept4(input.listener, NULL, NULL, SOCK_CLOEXEC);
		return;
	}
	memcpy(at.sun_path + 1, address + 1, length - 1);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 &&
	    connect(fd, (struct sockaddr *)&at,
	        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) != 0) {
		(void)close(fd);
		fd = -1;
	}
	input.ways[way].fd = fd;
}

/* What nobody waits for. */
static void says_more(unsigned way, uint8_t which)
{
	struct script *script = &input.script;
	uint8_t raw[64];
	size_t bytes;
	switch (which & 7) {
	case 0:
	case 1:
	case 2:
		say(way,
		    (struct domain_message){ .kind = 1 + which / 8 % (DOMAIN_KINDS - 1),
		        .view = input.ways[way].view,
		        .rank = 1,
		        .size = MEMBERS,
		        .index = input.ways[way].calls,
		        .call = call_of(0) });
		break;
	case 3:
		bytes = script_byte(script) % sizeof(raw);
		for (size_t i = 0; i < bytes; i++)
			raw[i] = script_byte(script);
		say_bytes(way, raw, bytes, which >= 128 ? STDERR_FILENO : -1);
		break;
	case 4:
		forget(way);
		break;
	case 5:
		if (input.ways[way].fd >= 0)
			(void)shutdown(input.ways[way].fd, which % 16 < 8 ? SHUT_WR : SHUT_RD);
		break;
	case 6:
		waits.now_ns += script_byte(script) * UINT64_C(1000000);
		break;
	default:
		if (which >= 128)
			input.floods = true;
		else
			hear(way);
	}
}

static void rightly(void)
{
	unsigned most = input.member_attacked ? 1 : MEMBERS - 1;
	for (unsigned way = 0; way < most; way++) {
		if (input.ways[way].fd < 0)
			meet(way);
		if (!input.member_attacked && !input.ways[way].said_hello)
			hello(way);
		hear(way);
	}
}

static bool turn(void)
{
	input.floods = false;
	input.flood = 0;
	if (input.script.left == 0 && !input.goes_on) {
		for (unsigned way = 0; way < WAYS; way++)
			forget(way);
		return false;
	}
	uint8_t which = script_byte(&input.script);
	if (which < 128)
		rightly();
	else
		says_more(which % WAYS, script_byte(&input.script));
	return input.script.left > 0;
}

/* ---- the caller */

static struct tr_error words;

static void live_die_of(const char *what, tr_status st)
{
	(void)fprintf(stderr, "live: status %d, words of %d: '%s'\n", (int)st, (int)words.status,
	    words.text);
	live_die(what);
}

/* What came of a call: it goes on, or the domain is over. */
static bool goes_on(tr_status st, uint64_t from_ns)
{
	if (waits.now_ns - from_ns > UINT64_C(1000000) * CALL_MS_MAX)
		live_die("a call waits longer than it may");
	if (st == TR_OK)
		return true;
	if (words.status != st || words.text[0] == '\0' || st > 0 ||
	    strcmp(tr_status_name(st), "TR_EUNKNOWN") == 0)
		live_die_of("a call fails without a word", st);
	return st == TR_ERESTART;
}

static bool one_round(tr_domain *d)
{
	struct tr_round round = { 0 };
	float *data[OPS + 1];
	uint64_t from_ns = waits.now_ns;
	tr_status st = tr_domain_round_begin(d, &round, &words);
	bool on = goes_on(st, from_ns);
	if (st != TR_OK)
		return on;
	/* A caller looks at what it is told. */
	if (round.receive_state && round.partial && round.peers == 7)
		words.status = TR_OK;
	for (unsigned i = 0; i <= OPS; i++)
		data[i] = calloc(ELEMENTS, sizeof(float));
	for (unsigned i = 0; i < OPS && on; i++)
		on = goes_on(tr_domain_allreduce(d, i, data[i], ELEMENTS, TR_F32, TR_SUM, &words),
		    waits.now_ns);
	from_ns = waits.now_ns;
	if (on)
		on = goes_on(tr_domain_inside(d,
		                 &(struct tr_domain_op){ .size_of = sizeof(struct tr_domain_op),
		                     .collective = TR_ALL_REDUCE,
		                     .dtype = TR_F32,
		                     .reduce = TR_SUM,
		                     .in = data[OPS],
		                     .out = data[OPS],
		                     .count = ELEMENTS },
		                 &words),
		    from_ns);
	from_ns = waits.now_ns;
	if (on)
		on = goes_on(tr_domain_commit(d, &(struct tr_commit){ .samples = 1 }, &round,
		                 &words),
		    from_ns);
	/* (After an error that ends it nothing is borrowed any more.) */
	for (unsigned i = 0; i <= OPS; i++)
		free(data[i]);
	return on;
}

/* How many rounds it came to. */
static unsigned play(void)
{
	struct tr_domain_options options = { .size_of = sizeof(options),
		.backend = "fake",
		.address = address,
		.rank = input.member_attacked,
		.size = MEMBERS,
		.policy = input.fixed ? TR_REPLAY : TR_KEEP,
		.deadline_ms = DEADLINE_MS,
		.wait_ms = WAIT_MS };
	tr_domain *d = NULL;
	unsigned rounds = 0;
	uint64_t from_ns = waits.now_ns;
	group = (struct tr_group){ 0 };
	waits_begin(turn, 10);
	bool on = goes_on(tr_domain_open(&options, &d, &words), from_ns) && d != NULL;
	if (on && !input.member_attacked)
		(void)tr_domain_lead(d, &group, &words);
	while (on && rounds < ROUNDS && (on = one_round(d)))
		rounds++;
	tr_domain_close(d);
	waits_end();
	for (unsigned i = 0; i < group.count; i++)
		free(group.memory[i]);
	for (unsigned way = 0; way < WAYS; way++)
		forget(way);
	if (comms != 0)
		live_die("a communicator is left");
	return rounds;
}

static void listen_for_members(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	size_t length = strlen(address);
	memcpy(at.sun_path + 1, address + 1, length - 1);
	input.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (input.listener < 0 ||
	    bind(input.listener, (struct sockaddr *)&at,
	        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) != 0 ||
	    listen(input.listener, WAYS) != 0)
		live_die("no socket to be dialled at");
}

static unsigned run(uint8_t how, struct script script)
{
	memset(&input, 0, sizeof(input));
	input.script = script;
	input.listener = -1;
	input.member_attacked = fake_is_member = how & 1;
	input.fixed = (how & 16) == 0;
	input.goes_on = (how & 32) == 0;
	looks_each = how >> 2 & 3;
	backend.rebuilds = (how & 2) == 0;
	for (unsigned way = 0; way < WAYS; way++)
		input.ways[way].fd = -1;
	if (input.member_attacked)
		listen_for_members();
	unsigned rounds = play();
	if (input.listener >= 0)
		(void)close(input.listener);
	return rounds;
}

static void honest(uint8_t how)
{
	unsigned rounds = run(how, (struct script){ 0 });
	if (rounds != ROUNDS) {
		(void)fprintf(stderr, "live: %u rounds; %s\n", rounds, words.text);
		live_die("an honest domain does not do its rounds");
	}
}

static void start(void)
{
	log_configure(LOG_ERROR, false);
	(void)snprintf(address, sizeof(address), "@fuzz-domain-%d", (int)getpid());
	waits.patience_ns = 0; /* what is sent to a UNIX socket is there at once */
	honest(0);
	honest(1);
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	if (live_inputs == 0)
		start();
	growth_begin();
	uint8_t how = script_byte(&script);
	(void)run(how, script);
	honest(how & 1);
	growth_check();
	return 0;
}
