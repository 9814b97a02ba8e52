/* What one stream carries directly and through a relay, in turns, over loopback: frames of 1 MiB from one thread to another, the relay on its own
 * thread between them, all in this process. Prints a JSON object for each turn: bytes a second, and CPU seconds for each 10^9 bytes
 * of the sender, the receiver and the relay (docs/benchmarks.md, "Relays").
 *
 *	relaybench [MIB [TURNS [TLS-FOLDER]]]
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/transport/conn.h"
#include "collectives/transport/listener.h"
#include "collectives/transport/relay.h"
#include "collectives/transport/relay_waits.h"
#include "common/log.h"

#define FRAME_BYTES  ((size_t)1 << 20)
#define UNSENT_BYTES (8 * FRAME_BYTES) /* that the sender keeps ahead */

/* The receiver's thread, which has the relay's port, too: nothing comes there once the two are joined. */
struct target {
	uv_loop_t loop;
	uv_async_t end;
	struct relay *relay;
	struct relay_waits *waits;
	struct listener *port, *relay_port;
	struct conn *conn;
	uint64_t wanted, got;
	pthread_t thread;
};

struct clocks {
	double wall, sender, receiver, whole;
};

struct caller {
	uv_loop_t loop;
	struct target *target;
	uint8_t *frame;
	struct conn *conn;
	uint64_t left;
	struct clocks began, took;
	bool done;
};

static void die(const char *what, const char *why)
{
	(void)fprintf(stderr, "relaybench: %s: %s\n", what, why);
	exit(1);
}

static void need(tr_status st, const char *what, const struct tr_error *error)
{
	if (st != TR_OK)
		die(what,
		    error != NULL && error->text[0] != '\0' ? error->text : tr_status_text(st));
}

/* ---- the receiver ---- */

static tr_status on_bytes(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct target *target = arg;
	(void)type;
	(void)payload;
	(void)error;
	target->got += bytes;
	if (target->got < target->wanted)
		return TR_OK;
	target->got = 0;
	return conn_send_copy(conn, FRAME_PEER, "all", 3);
}

static void on_gone(void *arg, struct conn *conn, const char *reason)
{
	struct target *target = arg;
	(void)conn;
	(void)reason;
	target->conn = NULL;
}

static void at_target(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	static const struct conn_callbacks callbacks = { .frame = on_bytes, .closed = on_gone };
	struct target *target = arg;
	struct tr_error error = { 0 };
	if (protocol != LISTENER_FRAMES)
		die("the receiver", "found something else than frames");
	need(conn_adopt(&target->loop, stream, early, early_bytes, &callbacks, target,
	         &target->conn, &error),
	    "the receiver", &error);
}

static void at_relay(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct target *target = arg;
	(void)protocol;
	(void)early;
	(void)early_bytes;
	relay_accept(target->relay, stream);
}

static void on_end(uv_async_t *end)
{
	struct target *target = end->data;
	conn_close(target->conn, "the end");
	relay_waits_close(target->waits);
	listener_stop(target->port);
	listener_stop(target->relay_port);
	uv_close((uv_handle_t *)end, NULL);
}

static void *run_target(void *arg)
{
	struct target *target = arg;
	(void)uv_run(&target->loop, UV_RUN_DEFAULT);
	return NULL;
}

static void target_start(struct target *target, struct tls_context *tls, struct conn_relay *way)
{
	const struct relay_grant pair = { 1, 2, 3, { 4, 5 } };
	struct tr_error error = { 0 };
	*way = (struct conn_relay){ .say = { .kind = RELAY_CALL,
		                        .group = pair.group,
		                        .from = pair.from,
		                        .to = pair.to,
		                        .token = { pair.token[0], pair.token[1] } } };
	(void)uv_loop_init(&target->loop);
	(void)uv_async_init(&target->loop, &target->end, on_end);
	target->end.data = target;
	need(relay_create(TR_RELAY_JOINED_MAX, &target->relay, &error), "the relay", &error);
	need(relay_grant(target->relay, &pair, 1, &error), "the relay", &error);
	need(listener_start(&target->loop, "127.0.0.1:0", false, tls, at_target, target,
	         &target->port, &error),
	    "the receiver", &error);
	need(listener_start(&target->loop, "127.0.0.1:0", false, tls, at_relay, target,
	         &target->relay_port, &error),
	    "the relay", &error);
	(void)snprintf(way->address, sizeof(way->address), "%s",
	    listener_address(target->relay_port));
	need(relay_waits_create(&target->loop, tls, target->port, &target->waits, &error),
	    "the receiver", &error);
	need(relay_waits_set(target->waits, way, 1, &error), "the receiver", &error);
	if (pthread_create(&target->thread, NULL, run_target, target) != 0)
		die("the receiver", "no thread");
}

static void target_stop(struct target *target)
{
	(void)uv_async_send(&target->end);
	(void)pthread_join(target->thread, NULL);
	relay_destroy(target->relay);
	(void)uv_loop_close(&target->loop);
}

/* ---- the sender ---- */

static double seconds(clockid_t clock)
{
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct clocks look(const struct caller *caller)
{
	clockid_t receiver;
	if (pthread_getcpuclockid(caller->target->thread, &receiver) != 0)
		die("the receiver", "no clock");
	return (struct clocks){ seconds(CLOCK_MONOTONIC), seconds(CLOCK_THREAD_CPUTIME_ID),
		seconds(receiver), seconds(CLOCK_PROCESS_CPUTIME_ID) };
}

static void feed(void *arg, struct conn *conn)
{
	struct caller *caller = arg;
	while (caller->left > 0 && conn_unsent(conn) < UNSENT_BYTES) {
		need(conn_send_borrow(conn, FRAME_PEER, NULL, 0, caller->frame, FRAME_BYTES, NULL,
		         NULL),
		    "the sender", NULL);
		caller->left -= FRAME_BYTES;
	}
	if (caller->left > 0)
		conn_watch_unsent(conn, UNSENT_BYTES / 2);
}

static void on_connected(void *arg, struct conn *conn)
{
	struct caller *caller = arg;
	caller->began = look(caller);
	feed(caller, conn);
}

static tr_status on_answer(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct caller *caller = arg;
	struct clocks now = look(caller);
	(void)type;
	(void)payload;
	(void)bytes;
	(void)error;
	caller->took = (struct clocks){ now.wall - caller->began.wall,
		now.sender - caller->began.sender, now.receiver - caller->began.receiver,
		now.whole - caller->began.whole };
	caller->done = true;
	conn_finish(conn, "all is there");
	return TR_OK;
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	const struct caller *caller = arg;
	(void)conn;
	if (!caller->done)
		die("the sender", reason);
}

/* `way` NULL: directly. */
static void turn(struct caller *caller, const struct conn_relay *way, struct tls_context *tls)
{
	static const struct conn_callbacks callbacks = { .connected = on_connected,
		.drained = feed,
		.frame = on_answer,
		.closed = on_closed };
	const char *address = listener_address(caller->target->port);
	struct tr_error error = { 0 };
	caller->left = caller->target->wanted;
	caller->done = false;
	need(way == NULL
	        ? conn_dial(&caller->loop, address, tls, &callbacks, caller, &caller->conn, &error)
	        : conn_dial_through(&caller->loop, address, way, tls, &callbacks, caller,
	              &caller->conn, &error),
	    "the sender", &error);
	(void)uv_run(&caller->loop, UV_RUN_DEFAULT);
	const struct clocks *took = &caller->took;
	double giga = (double)caller->target->wanted / 1e9;
	(void)printf("{\"way\": \"%s\", \"tls\": %s, \"bytes\": %" PRIu64
	             ", \"bytes_per_s\": %.4g, \"cpu_s_per_gb\": {\"sender\": %.3f, \"receiver\": "
	             "%.3f, \"relay\": %.3f, \"all\": %.3f}}\n",
	    way == NULL ? "direct" : "relayed", tls == NULL ? "false" : "true",
	    caller->target->wanted, 1e9 * giga / took->wall, took->sender / giga,
	    took->receiver / giga, (took->whole - took->sender - took->receiver) / giga,
	    took->whole / giga);
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct target target;
	struct caller caller = { .target = &target };
	struct conn_relay way;
	struct tls_context *tls = NULL;
	struct tr_error error = { 0 };
	uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
	uint64_t turns = argc > 2 ? strtoull(argv[2], NULL, 10) : 5;
	if (argc > 4 || mib == 0 || mib > (1u << 20) || turns == 0 || turns > 1000)
		die("usage", "relaybench [MIB [TURNS [TLS-FOLDER]]]");
	log_configure(LOG_WARN, false);
	if (argc > 3)
		need(tls_context_load(argv[3], &tls, &error), "TLS", &error);
	caller.frame = malloc(FRAME_BYTES);
	if (caller.frame == NULL)
		die("the sender", "no memory");
	for (size_t i = 0; i < FRAME_BYTES; i++)
		caller.frame[i] = (uint8_t)(i * 7);
	target.wanted = mib << 20;
	(void)uv_loop_init(&caller.loop);
	target_start(&target, tls, &way);
	for (uint64_t i = 0; i < 2 * turns; i++)
		turn(&caller, i % 2 == 0 ? NULL : &way, tls);
	target_stop(&target);
	(void)uv_loop_close(&caller.loop);
	tls_context_release(tls);
	free(caller.frame);
	return 0;
}
