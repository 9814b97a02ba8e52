/* The port of a daemon, once plain and once with TLS, and connections of the input to it: the real listener, in the fuzzer's thread (one_thread.h). Sockets
 * are pairs that the listener takes, so what is said is there at once, and the same input gives the same result. Static.
 *
 *	port_start(on_accepted);
 *	port_connect(&end, PORT_SECURE, who, &port.script);     // shakes hands, as its bytes say
 *	port_say(&end, bytes, count);     // whole, in pieces, in part, or broken off
 */
#ifndef TR_TESTS_FUZZ_PORT_END_H
#define TR_TESTS_FUZZ_PORT_END_H

#include <fcntl.h>
#include <inttypes.h>
#include <sys/socket.h>

#include "collectives/transport/listener.h"
#include "common/log.h"
#include "tests/fuzz/chance.h"
#include "tests/fuzz/growth.h"
#include "tests/fuzz/one_thread.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/tls_end.h"

#define PORT_ENDS        6
#define PORT_SHAKE_TURNS 8
#define PORT_LAST_TURNS  16
#define PORT_PIECES_MAX  512
#define PORT_TURNS_MAX   20000 /* until something that has to happen has happened */
#define PORT_READ_BYTES  (64u << 10)
#define PORT_SHAKE_WORK  200
#define PORT_WORK_MAX    20000 /* pieces that one input may say or hear: then it is over */

/* Where to, and how it speaks there. */
enum port_way { PORT_PLAIN, PORT_SECURE, PORT_PLAIN_TO_SECURE, PORT_SECURE_TO_PLAIN };

struct port_end {
	struct tls_end tls;
	size_t piece;        /* it says so much at a time; 0: all */
	bool reads;          /* all the time; else when the script says so */
	uint32_t next, last; /* numbers that the fuzzer gives out */
};

static struct {
	uv_loop_t net;
	struct listener *plain, *secure;
	struct port_end ends[PORT_ENDS];
	struct script script, none;
	int (*dials)(bool secure); /* to the port; NULL: it takes what did not come so */
	unsigned handles;          /* when nobody is connected */
	uint64_t heard;            /* a digest of all that the daemon has said */
	size_t work;
} port;

/* false: the input has said and heard enough, and is over. */
static bool port_works(size_t pieces)
{
	port.work += pieces;
	if (port.work > PORT_WORK_MAX)
		port.script.left = 0;
	return port.work <= PORT_WORK_MAX;
}

static void port_run(void)
{
	(void)uv_run(&port.net, UV_RUN_NOWAIT);
}

static bool port_is_open(const struct port_end *end)
{
	return end->tls.fd >= 0;
}

static void port_close(struct port_end *end)
{
	tls_end_close(&end->tls);
}

static size_t port_turn(struct port_end *end, struct script *spoils, uint8_t *out, size_t room)
{
	static uint8_t sink[PORT_READ_BYTES];
	uint8_t *bytes = out != NULL ? out : sink;
	size_t got = tls_end_turn(&end->tls, spoils, bytes, out != NULL ? room : sizeof(sink));
	for (size_t i = 0; i < got; i++)
		port.heard = (port.heard ^ bytes[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
	(void)port_works(got / 4096);
	return got;
}

static int port_pair(bool secure)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
		live_die("no sockets");
	listener_take(secure ? port.secure : port.plain, ends[1]);
	return ends[0];
}

static void port_connect(struct port_end *end, enum port_way way, enum tls_end_who who,
    struct script *spoils)
{
	bool secure = way == PORT_SECURE || way == PORT_PLAIN_TO_SECURE;
	int fd = port.dials != NULL ? port.dials(secure) : port_pair(secure);
	*end = (struct port_end){ .tls = { .fd = fd }, .next = 1, .last = 1 };
	if (fd < 0 || (way != PORT_SECURE && way != PORT_SECURE_TO_PLAIN))
		return;
	(void)port_works(PORT_SHAKE_WORK);
	tls_end_open(&end->tls, fd, false, who);
	for (unsigned i = 0; i < PORT_SHAKE_TURNS; i++) {
		(void)port_turn(end, spoils, NULL, 0);
		port_run();
	}
}

/* The last sixteen of the bytes that say how somebody connects are for who is at the wrong port. */
static enum port_way port_way(uint8_t how, bool secure)
{
	if (how >= 248)
		return PORT_PLAIN_TO_SECURE;
	if (how >= 240)
		return PORT_SECURE_TO_PLAIN;
	return secure ? PORT_SECURE : PORT_PLAIN;
}

/* In pieces, with a turn of the daemon's behind each. */
static void port_put(struct port_end *end, struct script *spoils, const void *bytes, size_t count)
{
	const uint8_t *at = bytes;
	size_t piece = end->piece == 0 ? count : end->piece;
	if (piece * PORT_PIECES_MAX < count)
		piece = count / PORT_PIECES_MAX + 1;
	while (count > 0) {
		size_t now = piece < count ? piece : count;
		tls_end_say(&end->tls, spoils, at, now);
		at += now;
		count -= now;
		if (count > 0 && port_works(1))
			port_run();
	}
}

/* A byte decides: all of it, spoilt on its way, a part of it, or a part and then nothing ever. */
static void port_say(struct port_end *end, const void *bytes, size_t count)
{
	uint8_t how = script_byte(&port.script);
	size_t part = how < 224 ? count : count * script_byte(&port.script) / 256;
	port_put(end, how < 192 ? &port.none : &port.script, bytes, part);
	if (how >= 240)
		port_close(end);
}

/* Bytes of the script's: into the socket, as a record that is none, or inside the session. */
static void port_raw(struct port_end *end)
{
	uint8_t how = script_byte(&port.script), record[5 + 255];
	if (how < 48) {
		tls_end_put(&end->tls, record, tls_end_record(&port.script, record));
		return;
	}
	size_t bytes = script_byte(&port.script);
	bytes = bytes < port.script.left ? bytes : port.script.left;
	const uint8_t *from = port.script.at;
	port.script.at += bytes;
	port.script.left -= bytes;
	if (how < 96)
		tls_end_put(&end->tls, from, bytes);
	else
		port_put(end, &port.none, from, bytes);
}

static void port_leave(struct port_end *end)
{
	uint8_t how = script_byte(&port.script) % 8;
	if (how == 0)
		(void)shutdown(end->tls.fd, SHUT_WR);
	else if (how == 1)
		(void)shutdown(end->tls.fd, SHUT_RD);
	else if (how == 2)
		tls_end_farewell(&end->tls, &port.script);
	else if (how == 3 && port_works(PORT_SHAKE_WORK))
		tls_end_new_keys(&end->tls, &port.script);
	else
		port_close(end);
}

/* The daemon has hung up, and all that it said was read. */
static bool port_was_left(const struct port_end *end)
{
	uint8_t byte;
	ssize_t n = recv(end->tls.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static void port_read(void)
{
	for (unsigned i = 0; i < PORT_ENDS; i++) {
		struct port_end *end = &port.ends[i];
		if (!port_is_open(end) || !end->reads)
			continue;
		(void)port_turn(end, &port.none, NULL, 0);
		if (port_was_left(end))
			port_close(end);
	}
}

static void port_time_passes(void)
{
	uint64_t passes_ns = script_byte(&port.script) * UINT64_C(50000000);
	one.now_ns += passes_ns;
	one.until_ns += passes_ns;
}

/* ---- what is left */

static void port_count(uv_handle_t *handle, void *arg)
{
	(void)handle;
	++*(unsigned *)arg;
}

static unsigned port_handles(void)
{
	unsigned count = 0;
	for (unsigned i = 0; i < one.count; i++)
		uv_walk(one.loops[i].loop, port_count, &count);
	return count;
}

static void port_close_all(void)
{
	for (unsigned i = 0; i < PORT_ENDS; i++)
		port_close(&port.ends[i]);
}

static void port_until_gone(bool (*gone)(void))
{
	for (unsigned turns = 0; !gone() || port_handles() != port.handles; turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == PORT_TURNS_MAX)
			live_die("the daemon holds on to what is closed");
	}
}

/* ---- life */

static void port_start(listener_fn *accepted)
{
	struct tr_error error = { 0 };
	log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
	chance_start();
	tls_end_start();
	if (uv_loop_init(&port.net) != 0)
		live_die("no loop");
	one_turns(&port.net);
	live_need(listener_start(&port.net, "127.0.0.1:0", false, NULL, accepted, NULL, &port.plain,
	              &error),
	    &error, "a port");
	live_need(listener_start(&port.net, "127.0.0.1:0", false, tls_end_victims, accepted, NULL,
	              &port.secure, &error),
	    &error, "a port with TLS");
	for (unsigned i = 0; i < PORT_ENDS; i++)
		port.ends[i].tls.fd = -1;
}

static void port_begin(const uint8_t *data, size_t size, size_t most)
{
	growth_begin();
	chance_begin();
	port.script = (struct script){ data, size < most ? size : most };
	port.heard = UINT64_C(0xcbf29ce484222325);
	port.work = 0;
}

/* The script, and what comes of its end. */
static void port_play(void)
{
	while (port.script.left > 0)
		one_wait(ONE_TURN_NS);
	for (unsigned i = 0; i < PORT_LAST_TURNS; i++)
		one_wait(ONE_TURN_NS);
}

/* With LIVE_LOG two runs of one input can be compared: all that was said, each look at the clock and each random number. */
static void port_finish(void)
{
	one_end();
	growth_check();
	log_debug("fuzz", "input %lu: heard %016" PRIx64 ", at %" PRIu64 " ns, chance %016" PRIx64,
	    live_inputs, port.heard, one.now_ns, chance);
}

#endif
