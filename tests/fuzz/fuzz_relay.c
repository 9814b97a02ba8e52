/* What can be said to a relay, and by one. A live relay (relay.h), behind a listener, carries for a pair of peers that is not the input's; the input
 * dials it, greets, speaks for another pair of which it has the token, or nearly, sends, reads, shuts down and goes away in any order, while grants
 * come and go and deadlines pass. At the same time it is the relay that a connection of ours calls or waits at (conn_relay.c).
 *
 * Whatever it does, the honest pair's bytes go both ways, of a socket that is handed on nothing was read, and after it nothing is left: ends, joints,
 * handles, descriptors, memory.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "collectives/transport/conn.h"
#include "collectives/transport/relay_internal.h"
#include "tests/fuzz/live.h"
#include "tests/fuzz/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WAYS       8
#define JOINED_MAX 4 /* the honest pair's, and three */
#define SCRIPT_MAX 2000
#define SEND_MAX   (96u << 10) /* at once: more than the relay holds */

static const struct relay_grant grants[] = {
	{ LIVE_HONEST, 5, 6, LIVE_HONEST_TOKEN },
	{ LIVE_ATTACKED, 5, 6, LIVE_ATTACKED_TOKEN },
	{ LIVE_ATTACKED, 6, 5, LIVE_ATTACKED_TOKEN },
};

static struct relay *relay;
static struct listener *listener;
static struct sockaddr_un port; /* its */
static int ways[WAYS];          /* -1: none */
static int honest[2];           /* caller and waiter */
static uint8_t zeros[SEND_MAX];

/* Ours, at the input's relay. */
static struct {
	int port, fd; /* fd: the relay's end; -1: none */
	char address[TR_ADDRESS_MAX];
	struct conn *conn;
	size_t said; /* by the relay, on fd */
	unsigned handed, closed;
} caller = { .port = -1, .fd = -1 };

static void turn(void)
{
	(void)uv_run(&live.net, UV_RUN_NOWAIT);
	(void)uv_run(&relay->loop, UV_RUN_NOWAIT);
}

static void shut(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* How much of it went out. */
static size_t give(int fd, const void *bytes, size_t count)
{
	ssize_t n = fd < 0 ? -1 : send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n > 0 ? (size_t)n : 0;
}

/* ---- the relay */

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	(void)early;
	if (protocol == LISTENER_RELAY && early_bytes == 0)
		relay_accept(relay, stream);
	else
		stream_close(&stream);
}

/* -1: more come at once than the port takes. */
static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&port, sizeof(port)) != 0)
		shut(&fd);
	return fd;
}

static int dial_and_greet(void)
{
	int fd = dial();
	(void)give(fd, RELAY_GREETING, strlen(RELAY_GREETING));
	return fd;
}

static void grant(size_t count)
{
	struct tr_error error = { 0 };
	live_need(relay_grant(relay, grants, count, &error), &error, "grants");
}

static void say_right(int fd, enum relay_kind kind)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	const struct relay_message message = { .kind = kind,
		.group = grants[0].group,
		.from = grants[0].from,
		.to = grants[0].to,
		.token = { grants[0].token[0], grants[0].token[1] } };
	relay_message_put(&message, bytes);
	if (give(fd, bytes, sizeof(bytes)) != sizeof(bytes))
		live_die("the relay takes no message");
}

static void expect(int fd, const void *bytes, size_t count, const char *what)
{
	uint8_t got[RELAY_MESSAGE_BYTES];
	uint64_t until = uv_hrtime() + LIVE_PATIENCE_S * UINT64_C(1000000000);
	size_t have = 0;
	while (have < count) {
		ssize_t n = recv(fd, got + have, count - have, MSG_DONTWAIT);
		if (n > 0)
			have += (size_t)n;
		if (n == 0 || uv_hrtime() > until)
			live_die(what);
		turn();
	}
	if (memcmp(got, bytes, count) != 0)
		live_die(what);
}

static void honest_begin(void)
{
	uint8_t joined[RELAY_MESSAGE_BYTES];
	relay_message_put(&(struct relay_message){ .kind = RELAY_JOINED,
	                      .group = grants[0].group,
	                      .from = grants[0].from,
	                      .to = grants[0].to },
	    joined);
	for (unsigned i = 0; i < 2; i++) {
		honest[i] = dial_and_greet();
		say_right(honest[i], i == 0 ? RELAY_CALL : RELAY_WAIT);
	}
	for (unsigned i = 0; i < 2; i++)
		expect(honest[i], joined, sizeof(joined), "the honest pair is not joined");
}

static void honest_end(void)
{
	static const char there[] = "there", back[] = "and back";
	(void)give(honest[0], there, sizeof(there));
	(void)give(honest[1], back, sizeof(back));
	expect(honest[1], there, sizeof(there), "the honest pair's bytes do not come");
	expect(honest[0], back, sizeof(back), "the honest pair's bytes do not come back");
	shut(&honest[0]);
	shut(&honest[1]);
}

/* ---- messages, nearly right */

static void say(struct script *script, uint8_t bytes[RELAY_MESSAGE_BYTES], enum relay_kind first,
    bool answer)
{
	uint8_t which = script_byte(script);
	const struct relay_grant *pair = &grants[1 + which / 2 % 2];
	struct relay_message message;
	message.kind = (enum relay_kind)script_about(script, first + which % 2);
	message.cause = (enum relay_cause)script_about(script,
	    message.kind == RELAY_REFUSED ? 1 + which / 4 % 3 : 0);
	message.group = script_about(script, which >= 240 ? LIVE_HONEST : pair->group);
	message.from = script_about(script, pair->from);
	message.to = script_about(script, pair->to);
	for (unsigned i = 0; i < 2; i++)
		message.token[i] = script_about(script, answer ? 0 : pair->token[i]);
	relay_message_put(&message, bytes);
	bytes[RELAY_MESSAGE_BYTES - 1] = (uint8_t)script_about(script, 0);
}

/* Whole, or a part of it: the rest comes with another. */
static size_t cut(struct script *script)
{
	return script_about(script, RELAY_MESSAGE_BYTES) % (RELAY_MESSAGE_BYTES + 1);
}

static size_t raw(struct script *script, uint8_t bytes[64])
{
	size_t count = script_byte(script) % 64;
	for (size_t i = 0; i < count; i++)
		bytes[i] = script_byte(script);
	return count;
}

static void hear(int fd, size_t most)
{
	static uint8_t bytes[64 << 10];
	if (fd >= 0)
		(void)recv(fd, bytes, most, MSG_DONTWAIT);
}

/* ---- a connection of ours, through the input's relay */

static void on_handed(void *arg, int fd)
{
	int unread = 0;
	(void)arg;
	if (caller.handed++ > 0 || caller.said < RELAY_MESSAGE_BYTES)
		live_die("a socket is handed on that nobody joined");
	if (ioctl(fd, FIONREAD, &unread) != 0 || (size_t)unread + RELAY_MESSAGE_BYTES != caller.said)
		live_die("a socket is handed on of which something was read");
	(void)close(fd);
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	(void)arg;
	if (conn != caller.conn || reason[0] == '\0' || caller.closed++ > 0)
		live_die("a connection closes that is none");
	caller.conn = NULL;
}

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	(void)arg;
	(void)conn;
	(void)type;
	(void)payload;
	(void)bytes;
	(void)error;
	return TR_OK;
}

static void begin_ours(bool waits)
{
	static const struct conn_callbacks callbacks = { .frame = on_frame, .closed = on_closed };
	struct conn_relay row = { .say = { .kind = waits ? RELAY_WAIT : RELAY_CALL,
		                      .group = LIVE_HONEST,
		                      .from = 5,
		                      .to = 6 } };
	struct tr_error error = { 0 };
	if (caller.conn != NULL)
		return;
	(void)snprintf(row.address, sizeof(row.address), "%s", caller.address);
	shut(&caller.fd);
	caller.handed = caller.closed = 0;
	live_need(waits ? conn_wait_at(&live.net, &row, NULL, on_handed, &callbacks, NULL,
	                      &caller.conn, &error)
	                : conn_dial_through(&live.net, "127.0.0.1:9", &row, NULL, &callbacks, NULL,
	                      &caller.conn, &error),
	    &error, "a connection through a relay");
	for (unsigned i = 0; caller.fd < 0 && i < 4; i++) {
		turn();
		caller.fd = accept4(caller.port, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	caller.said = 0;
}

static void end_ours(void)
{
	if (caller.conn != NULL)
		conn_close(caller.conn, "the input is over");
	shut(&caller.fd);
	for (int fd; (fd = accept4(caller.port, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
		(void)close(fd);
}

/* ---- */

static void time_passes(void)
{
	for (struct relay_end *end = relay->ends; end != NULL; end = end->next)
		if (end->deadline_ms != UINT64_MAX)
			end->deadline_ms = 0;
	relay_ends_look(relay);
}

static void go(struct script *script, int *fd)
{
	uint8_t how = script_byte(script) % 4;
	if (*fd < 0)
		return;
	if (how == 0)
		shut(fd);
	else if (how == 1)
		(void)shutdown(*fd, SHUT_WR);
	else if (how == 2)
		(void)shutdown(*fd, SHUT_RD);
	else
		hear(*fd, script_byte(script) * 256u);
}

static void event(struct script *script)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES], which = script_byte(script);
	int *way = &ways[(which >> 4) % WAYS];
	switch (which & 15) {
	case 0:
		if (*way < 0)
			*way = script_byte(script) < 224 ? dial_and_greet() : dial();
		else
			go(script, way);
		break;
	case 1:
		say(script, bytes, RELAY_CALL, false);
		(void)give(*way, bytes, cut(script));
		break;
	case 2:
		(void)give(*way, bytes, raw(script, bytes));
		break;
	case 3:
		(void)give(*way, zeros, (script_byte(script) + 1u) * (SEND_MAX / 256));
		break;
	case 4:
		grant(1 + script_byte(script) % 3);
		break;
	case 5:
		time_passes();
		break;
	case 6:
		begin_ours(script_byte(script) % 2 == 0);
		break;
	case 7:
		say(script, bytes, RELAY_JOINED, true);
		caller.said += give(caller.fd, bytes, cut(script));
		break;
	case 8:
		caller.said += give(caller.fd, bytes, raw(script, bytes));
		break;
	case 9:
		go(script, &caller.fd);
		break;
	case 10:
		if (caller.conn != NULL)
			conn_close(caller.conn, "its owner ends");
		break;
	default:
		turn();
	}
}

static unsigned handles(void)
{
	unsigned count = 0;
	uv_walk(&live.net, count_handle, &count);
	uv_walk(&relay->loop, count_handle, &count);
	return count;
}

/* Of a socket in the file system, which loses its name: a fuzzer may end at any time. */
static int keep(const char *path)
{
	int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0 || unlink(path) != 0)
		live_die("no socket to be dialled at");
	return fd;
}

static void listen_here(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char address[TR_ADDRESS_MAX];
	struct tr_error error = { 0 };
	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "/tmp/fuzz-relay-%d", (int)getpid());
	(void)snprintf(address, sizeof(address), "unix:%s", sa.sun_path);
	(void)unlink(sa.sun_path);
	live_need(listener_start(&live.net, address, false, NULL, on_accepted, NULL, &listener,
	              &error),
	    &error, "a port");
	port.sun_family = AF_UNIX;
	(void)snprintf(port.sun_path, sizeof(port.sun_path), "/proc/self/fd/%d", keep(sa.sun_path));
	caller.port = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (caller.port < 0 || bind(caller.port, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(caller.port, 16) != 0)
		live_die("no socket to be dialled at");
	(void)snprintf(caller.address, sizeof(caller.address), "unix:/proc/self/fd/%d",
	    keep(sa.sun_path));
}

static void start(void)
{
	struct tr_error error = { 0 };
	log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
	if (uv_loop_init(&live.net) != 0)
		live_die("no loop");
	live_need(relay_create(JOINED_MAX, &relay, &error), &error, "a relay");
	live_no_thread = true;
	grant(3);
	live_no_thread = false;
	listen_here();
	for (unsigned i = 0; i < WAYS; i++)
		ways[i] = -1;
	turn();
	live.handles = handles();
	growth_start();
}

static bool all_gone(void)
{
	return relay->ends == NULL && relay->joints == NULL && relay->strangers == 0 &&
	    relay->waiting + relay->calling + relay->joined == 0 && caller.conn == NULL &&
	    handles() == live.handles;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	if (relay == NULL)
		start();
	growth_begin();
	honest_begin();
	while (script.left > 0)
		event(&script);
	honest_end();
	for (unsigned i = 0; i < WAYS; i++)
		shut(&ways[i]);
	uint64_t until = uv_hrtime() + LIVE_PATIENCE_S * UINT64_C(1000000000);
	do {
		end_ours();
		grant(3);
		turn();
		if (uv_hrtime() > until)
			live_die("the relay holds on to what closed connections left");
	} while (!all_gone());
	growth_check();
	return 0;
}
