/* What comes over TLS to the port of a daemon, but for frames (those are fuzz_tls's): to the relay, to who answers probes, and HTTP/2 to the server of the
 * API. The real listener, relay, probe_serve and grpc_server, in one thread (one_thread.h); the input dials, shakes hands rightly or not (tls_end.h), says
 * its greeting, and then messages near the truth, raw bytes, records that are spoilt, new keys, farewells; on several connections at a time.
 *
 * Whatever it says: nothing is held for long or beyond SEEN_HELD_MAX, and after each input two ends of the cluster are still joined by the relay.
 */
#include "collectives/transport/listener.h"
#include "collectives/transport/probe.h"
#include "collectives/transport/relay.h"
#include "common/log.h"
#include "daemon/api/grpc_server.h"
#include "proto/frame.h"
#include "proto/probe.h"
#include "proto/relay.h"
#include "tests/fuzz/one_thread.h"
#include "tests/fuzz/port.h"
#include "tests/fuzz/seen.h"
#include "tests/fuzz/tls_end.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX  2000
#define ENDS        4
#define SHAKE_TURNS 8
#define TURNS_MAX   20000
#define GREETING    8 /* bytes of each */
#define PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define GROUP       2
#define FROM        10
#define TO          11

static const uint64_t token[2] = { 7, 8 };
static uv_loop_t net;
static struct listener *listener;
static struct relay *relay;
static struct grpc_server *server;
static struct stream probed = { -1, NULL }; /* waits to be served */
static atomic_bool stop;
static struct tls_end ends[ENDS];
static struct script script, no_script;
static unsigned handles_before;

/* ---- the daemon's side */

static void on_request(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	static uint8_t large[100000];
	unsigned sum = 0;
	(void)arg;
	for (size_t i = 0; i < bytes; i++)
		sum += request[i];
	(void)grpc_call_send(call, large, sum * 1000u % sizeof(large));
	grpc_call_end(call, (enum grpc_status)(sum % 17), grpc_call_path(call));
}

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	if (protocol == LISTENER_RELAY)
		relay_accept(relay, stream);
	else if (protocol == LISTENER_HTTP2)
		grpc_server_accept(server, stream, early, early_bytes);
	else if (protocol == LISTENER_PROBE && probed.fd < 0)
		probed = stream;
	else
		stream_close(&stream);
}

static void serve(void)
{
	struct tr_error error = { 0 };
	struct stream stream = probed;
	tr_status st = probe_serve(stream, token, &stop, &error);
	probed = (struct stream){ -1, NULL };
	if (st != TR_OK && error.text[0] == '\0')
		live_die("a probe is refused without a word");
}

/* ---- the input's side */

static size_t turn(const struct tls_end *end, struct script *spoils, uint8_t *out, size_t room)
{
	static uint8_t sink[64 << 10];
	return tls_end_turn(end, spoils, out != NULL ? out : sink,
	    out != NULL ? room : sizeof(sink));
}

static void say(const struct tls_end *end, const void *bytes, size_t count)
{
	size_t part = script_byte(&script);
	if (part >= 224) { /* in two records, or the second never */
		part = count * (part - 224) / 32;
		tls_end_say(end, &script, bytes, part);
		if (script_byte(&script) >= 192)
			return;
		bytes = (const uint8_t *)bytes + part;
		count -= part;
	}
	tls_end_say(end, &script, bytes, count);
}

static void say_relay(const struct tls_end *end)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	struct relay_message message = { .kind = (enum relay_kind)script_about(&script,
		                             1 + script_byte(&script) % 2),
		.cause = (enum relay_cause)script_about(&script, 0),
		.group = script_about(&script, GROUP),
		.from = script_about(&script, FROM),
		.to = script_about(&script, TO),
		.token = { script_about(&script, token[0]), script_about(&script, token[1]) } };
	relay_message_put(&message, bytes);
	say(end, bytes, sizeof(bytes));
}

static void say_probe(const struct tls_end *end)
{
	static uint8_t block[PROBE_BLOCK_BYTES];
	uint8_t kind = 1 + script_byte(&script) % 7;
	bool opens = kind == PROBE_OPEN, whole = kind == PROBE_BLOCK || kind == PROBE_LAST;
	struct probe_message message = { .kind = (enum probe_kind)script_about(&script, kind),
		.value = { script_about(&script, opens ? token[0] : 1000),
		    script_about(&script, opens ? token[1] : 64 << 10) } };
	probe_message_put(&message, block);
	say(end, block, whole ? sizeof(block) : PROBE_MESSAGE_BYTES);
}

static void say_http2(const struct tls_end *end)
{
	static const uint8_t headers[] = "\x83\x87\x04\x02/x\x0f\x10\x10"
	                                 "application/grpc"
	                                 "\x00\x02te\x08trailers";
	static const uint8_t kinds[] = { 4, 1, 0, 6, 8, 3, 7, 9, 2 };
	uint8_t frame[9 + 64] = { 0 }, kind = kinds[script_byte(&script) % sizeof(kinds)];
	size_t bytes = kind == 1 ? sizeof(headers) - 1 : kind == 0 ? 12 : kind == 4 ? 0 : 8;
	if (kind == 8 || kind == 3)
		bytes = 4;
	if (kind == 1)
		memcpy(frame + 9, headers, bytes);
	else
		frame[9 + 4] = kind == 0 ? 7 : 1; /* of a request the length; of others a figure */
	uint64_t says = script_about(&script, bytes), flags = kind == 0 ? 1 : kind == 1 ? 4 : 0;
	uint64_t stream = script_about(&script, kind < 2 || kind == 3 ? 1 : 0);
	frame[1] = (uint8_t)(says >> 8);
	frame[2] = (uint8_t)says;
	frame[3] = (uint8_t)script_about(&script, kind);
	frame[4] = (uint8_t)script_about(&script, flags);
	frame[7] = (uint8_t)(stream >> 8);
	frame[8] = (uint8_t)stream;
	for (unsigned times = 1 + script_byte(&script) / 4; times > 0; times--)
		tls_end_say(end, &script, frame, 9 + bytes);
}

static void say_raw(const struct tls_end *end)
{
	uint8_t how = script_byte(&script), record[5 + 255];
	if (how < 64) {
		tls_end_put(end, record, tls_end_record(&script, record));
		return;
	}
	size_t bytes = script_byte(&script);
	bytes = bytes < script.left ? bytes : script.left;
	const uint8_t *from = script.at;
	script.at += bytes;
	script.left -= bytes;
	if (how < 128)
		tls_end_put(end, from, bytes);
	else
		say(end, from, bytes);
}

static void dial(struct tls_end *end)
{
	static const char *const greetings[] = { RELAY_GREETING, PROBE_GREETING, PREFACE,
		"GET / HTTP/1.1\r\n\r\n" };
	uint8_t how = script_byte(&script);
	const char *greeting = greetings[how % 4];
	int fd = port_dial(listener_address(listener));
	if (fd < 0)
		return;
	end->fd = fd;
	if (how >= 240) /* the script does all of it */
		return;
	tls_end_open(end, fd, false,
	    how < 192 ? TLS_END_OURS : (enum tls_end_who)((how - 192) / 8 % TLS_END_WHOS));
	for (unsigned i = 0; i < SHAKE_TURNS; i++) {
		(void)turn(end, &script, NULL, 0);
		(void)uv_run(&net, UV_RUN_NOWAIT);
	}
	if (how < 224)
		say(end, greeting, strlen(greeting));
}

static void leave(struct tls_end *end)
{
	uint8_t how = script_byte(&script) % 4;
	if (how == 0)
		(void)shutdown(end->fd, SHUT_WR);
	else if (how == 1)
		tls_end_farewell(end, &script);
	else
		tls_end_close(end);
}

static bool speak(void)
{
	if (script.left == 0)
		return false;
	unsigned which = script_byte(&script);
	struct tls_end *end = &ends[(which >> 4) % ENDS];
	which &= 15;
	if (end->fd < 0) {
		if (which < 12)
			dial(end);
		return true;
	}
	if (which < 3)
		say_relay(end);
	else if (which < 6)
		say_probe(end);
	else if (which < 9)
		say_http2(end);
	else if (which == 9)
		say_raw(end);
	else if (which == 10)
		leave(end);
	else if (which == 11)
		tls_end_new_keys(end, &script);
	else if (which < 15)
		(void)turn(end, &script, NULL, 0);
	return true;
}

/* ---- afterwards */

static void count_handle(uv_handle_t *handle, void *arg)
{
	(void)handle;
	++*(unsigned *)arg;
}

static unsigned handles(void)
{
	unsigned count = 0;
	for (unsigned i = 0; i < one.count; i++)
		uv_walk(one.loops[i].loop, count_handle, &count);
	return count;
}

static void pass(void)
{
	if (probed.fd >= 0)
		serve();
	else
		one_wait(ONE_IDLE_NS);
}

static void sweep(void)
{
	for (unsigned i = 0; i < ENDS; i++)
		tls_end_close(&ends[i]);
	for (unsigned turns = 0; probed.fd >= 0 || handles() != handles_before; turns++) {
		pass();
		if (handles_before == 0 && turns > 100)
			return; /* the first time: so many there are */
		if (turns == TURNS_MAX)
			live_die("the daemon holds on to what is closed");
	}
}

/* One that waits, or calls, as the cluster's ends do. */
static void end_at_relay(struct tls_end *end, enum relay_kind kind)
{
	uint8_t bytes[GREETING + RELAY_MESSAGE_BYTES];
	struct relay_message message = { .kind = kind,
		.group = GROUP,
		.from = FROM,
		.to = TO,
		.token = { token[0], token[1] } };
	memcpy(bytes, RELAY_GREETING, GREETING);
	relay_message_put(&message, bytes + GREETING);
	end->fd = port_dial(listener_address(listener));
	if (end->fd < 0)
		live_die("no port to dial");
	tls_end_open(end, end->fd, false, TLS_END_OURS);
	for (unsigned turns = 0; !SSL_is_init_finished(end->ssl); turns++) {
		(void)turn(end, &no_script, NULL, 0);
		one_wait(ONE_TURN_NS);
		if (turns == TURNS_MAX)
			live_die("who is of the cluster is not let in");
	}
	tls_end_say(end, &no_script, bytes, sizeof(bytes));
	one_wait(ONE_TURN_NS);
}

static void good_ones_meet(void)
{
	struct tls_end waits = { .fd = -1 }, calls = { .fd = -1 };
	uint8_t answer[RELAY_MESSAGE_BYTES];
	struct relay_message said;
	size_t got = 0;
	end_at_relay(&waits, RELAY_WAIT);
	end_at_relay(&calls, RELAY_CALL);
	for (unsigned turns = 0; got < sizeof(answer); turns++) {
		got += turn(&calls, &no_script, answer + got, sizeof(answer) - got);
		one_wait(ONE_TURN_NS);
		if (turns == TURNS_MAX)
			live_die("the relay does not answer who is of the cluster");
	}
	if (relay_message_get(answer, &said, NULL) != TR_OK || said.kind != RELAY_JOINED)
		live_die("two of the cluster are not joined");
	tls_end_close(&waits);
	tls_end_close(&calls);
	sweep();
}

static void start(void)
{
	const struct relay_grant grant = { GROUP, FROM, TO, { token[0], token[1] } };
	static const struct grpc_method none[] = { { NULL, NULL } };
	const struct grpc_server_options options = { .methods = none, .fallback = on_request };
	struct tr_error error = { 0 };
	log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
	tls_end_start();
	if (uv_loop_init(&net) != 0)
		live_die("no loop");
	one_turns(&net);
	live_need(listener_start(&net, "127.0.0.1:0", false, tls_end_victims, on_accepted, NULL,
	              &listener, &error),
	    &error, "a port");
	one.ports[0] = (uint16_t)atoi(strrchr(listener_address(listener), ':') + 1);
	live_need(relay_create(TR_RELAY_JOINED_MAX, &relay, &error), &error, "a relay");
	live_need(relay_grant(relay, &grant, 1, &error), &error, "a grant");
	live_need(grpc_server_create(&net, &options, &server), &error, "a server");
	for (unsigned i = 0; i < ENDS; i++)
		ends[i].fd = -1;
	for (unsigned i = 0; i < 4; i++) {
		good_ones_meet();
		handles_before = handles();
	}
	seen_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (listener == NULL)
		start();
	seen_begin();
	script = (struct script){ data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	one_begin(speak, seen_look);
	while (script.left > 0)
		pass();
	sweep();
	good_ones_meet();
	one_end();
	seen_check();
	return 0;
}
