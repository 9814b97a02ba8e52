/* What who dials can say to a daemon that lets itself be measured (probe_serve.c): messages and blocks that are nearly right, in any order, in
 * parts, while it reads or does not, and goes away. First byte: whether it has the token, and how it goes.
 *
 * A live server in a thread, as a daemon has one. Who has not said the token first gets one refusal, or nothing at all; when the other
 * end has gone the server ends, and leaves no descriptor and no memory behind.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "collectives/transport/probe.h"
#include "proto/probe.h"
#include "tests/fuzz/live.h"
#include "tests/fuzz/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX 1000
#define WAIT_MS    20 /* for room in the socket */
#define GIVE_BYTES (256u << 10)
#define GIVE_US    1000u
#define HEARD_MAX  (1u << 20)

static const uint64_t token[2] = LIVE_HONEST_TOKEN;

static struct {
	int ends[2]; /* the input's, the server's */
	atomic_bool stop;
	tr_status status;
	struct tr_error error;
	/* What the input has sent of its first message, and what it has got. */
	uint8_t first[PROBE_MESSAGE_BYTES], answer[PROBE_MESSAGE_BYTES];
	size_t sent, got;
} probe;

static void *serve(void *arg)
{
	(void)arg;
	probe.status = probe_serve((struct stream){ probe.ends[1], NULL }, token, &probe.stop,
	    &probe.error);
	return NULL;
}

static bool opened(void)
{
	struct probe_message message;
	return probe.sent >= sizeof(probe.first) &&
	    probe_message_get(probe.first, &message, NULL) == TR_OK && message.kind == PROBE_OPEN &&
	    message.value[0] == token[0] && message.value[1] == token[1];
}

static void give(const uint8_t *bytes, size_t count)
{
	struct pollfd room = { .fd = probe.ends[0], .events = POLLOUT };
	while (count > 0 && poll(&room, 1, WAIT_MS) > 0) {
		ssize_t n = send(probe.ends[0], bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			return;
		for (ssize_t i = 0; i < n && probe.sent < sizeof(probe.first); i++)
			probe.first[probe.sent++] = bytes[i];
		bytes += n;
		count -= (size_t)n;
	}
}

static bool hear(int flags)
{
	static uint8_t bytes[64 << 10];
	ssize_t n = recv(probe.ends[0], bytes, sizeof(bytes), flags);
	for (ssize_t i = 0; i < n; i++, probe.got++)
		if (probe.got < sizeof(probe.answer))
			probe.answer[probe.got] = bytes[i];
	return n > 0;
}

static void put(struct script *script, enum probe_kind kind, uint64_t first, uint64_t second,
    uint8_t bytes[PROBE_MESSAGE_BYTES])
{
	struct probe_message message;
	message.kind = (enum probe_kind)script_about(script, kind);
	message.value[0] = script_about(script, first);
	message.value[1] = script_about(script, second);
	probe_message_put(&message, bytes);
	bytes[PROBE_MESSAGE_BYTES - 1] = (uint8_t)script_about(script, 0);
}

static void say(struct script *script, enum probe_kind kind)
{
	uint8_t bytes[PROBE_MESSAGE_BYTES];
	bool gives = kind == PROBE_GIVE;
	put(script, kind, gives ? GIVE_US : 7, gives ? GIVE_BYTES : 8, bytes);
	give(bytes, script_about(script, sizeof(bytes)) % (sizeof(bytes) + 1));
}

static void say_open(struct script *script, bool knows)
{
	uint8_t bytes[PROBE_MESSAGE_BYTES];
	put(script, PROBE_OPEN, knows ? token[0] : 1, knows ? token[1] : 2, bytes);
	give(bytes, script_about(script, sizeof(bytes)) % (sizeof(bytes) + 1));
}

static void say_block(struct script *script)
{
	static uint8_t block[PROBE_BLOCK_BYTES];
	put(script, script_byte(script) % 2 == 0 ? PROBE_BLOCK : PROBE_LAST, 0, 0, block);
	give(block, script_about(script, sizeof(block)) % (sizeof(block) + 1));
}

static void event(struct script *script)
{
	uint8_t which = script_byte(script), byte;
	switch (which & 7) {
	case 0:
		say(script, PROBE_ECHO);
		break;
	case 1:
		say(script, PROBE_TAKE);
		break;
	case 2:
		say(script, PROBE_GIVE);
		break;
	case 3:
		say_block(script);
		break;
	case 4:
		byte = script_byte(script);
		give(&byte, 1);
		break;
	case 5:
		(void)hear(MSG_DONTWAIT);
		break;
	case 6:
		if (which >= 240)
			(void)shutdown(probe.ends[0], SHUT_WR);
		else if (which >= 224)
			atomic_store(&probe.stop, true);
		break;
	default:
		say(script, (enum probe_kind)(which >> 4));
	}
}

/* Goes: at once, or when it has heard what is left. Of who was not let in all is heard. */
static void end(pthread_t thread, bool at_once)
{
	struct timespec until;
	struct probe_message answer;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIVE_PATIENCE_S;
	(void)shutdown(probe.ends[0], SHUT_WR);
	while ((!opened() || (!at_once && probe.got < HEARD_MAX)) && hear(0))
		;
	(void)close(probe.ends[0]);
	if (pthread_timedjoin_np(thread, NULL, &until) != 0)
		live_die("the server does not end");
	if (opened())
		return;
	if (probe.got != 0 &&
	    (probe.got != sizeof(probe.answer) ||
	        probe_message_get(probe.answer, &answer, NULL) != TR_OK ||
	        answer.kind != PROBE_REFUSED || probe.status != TR_EREFUSED))
		live_die("it answers who has not said the token");
}

static void start(void)
{
	log_configure(LOG_ERROR, false);
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	pthread_t thread;
	if (live_inputs == 0)
		start();
	growth_begin();
	memset(&probe, 0, sizeof(probe));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, probe.ends) != 0)
		live_die("no sockets");
	(void)fcntl(probe.ends[1], F_SETFL, O_NONBLOCK);
	if (pthread_create(&thread, NULL, serve, NULL) != 0)
		live_die("no thread");
	uint8_t how = script_byte(&script);
	say_open(&script, how % 4 != 3);
	while (script.left > 0)
		event(&script);
	end(thread, how >= 128);
	growth_check();
	return 0;
}
