/* What a client can say to the API of a daemon: the real port, grpc_server and Trainer service (trainer_service.h) over a cluster that is played
 * (api_backend.h), plainly and over TLS. The input connects, speaks HTTP/2 that is nearly right, of calls that are nearly right (api_words.h), in any pieces,
 * reads or does not, and goes away at any byte; meanwhile the cluster answers, time passes, and the server may end.
 * First byte: bit 0: the server ends with the input, its connections open; bit 1: who asks rightly afterwards does so over TLS.
 *
 * Whatever it says: no more is held than the limits of its connections allow, who asks rightly beside it is answered, and afterwards all is as before.
 */
#include "common/limits.h"
#include "daemon/api/grpc_call.h"
#include "daemon/api/grpc_client_session.h"
#include "daemon/api/health_service.h"
#include "tests/fuzz/api_backend.h"
#include "tests/fuzz/api_words.h"

/* Its connections, whose accounts are looked at; and so few of them that more come. */
#undef TR_GRPC_CONNECTIONS_MAX
#define TR_GRPC_CONNECTIONS_MAX (PORT_ENDS - 2)
#include "daemon/api/grpc_server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX 3000
/* What all connections together may have unsent, half received, and besides. */
#define HELD_MAX                                                                                \
	(TR_GRPC_CONNECTIONS_MAX *                                                              \
	        (TR_GRPC_UNSENT_BYTES_MAX + TR_GRPC_MESSAGE_MAX + TR_GRPC_REQUESTS_BYTES_MAX) + \
	    ((size_t)32 << 20))

static struct grpc_server *server;
/* ---- the daemon's side */

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	bool http = protocol == LISTENER_HTTP2 || protocol == LISTENER_HTTP1;
	(void)arg;
	if (http && server != NULL)
		grpc_server_accept(server, stream, early, early_bytes);
	else
		stream_close(&stream);
}

static void serve(void)
{
	struct tr_error error = { 0 };
	live_need(trainer_service_create(&port.net, &api_backend, NULL, &api.service), &error,
	    "a service");
	const struct grpc_server_options options = { .methods = trainer_service_methods(),
		.arg = api.service };
	live_need(grpc_server_create(&port.net, &options, &server), &error, "a server");
}

static void on_server_closed(void *arg)
{
	(void)arg;
	server = NULL;
}

/* Once it was told to. */
static void serve_again(void)
{
	for (unsigned turns = 0; server != NULL; turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == PORT_TURNS_MAX)
			live_die("the server does not end");
	}
	trainer_service_destroy(api.service);
	serve();
}

/* ---- the input's side */

static void connect_somehow(struct port_end *end)
{
	static const char wide[] = "\0\0\6\4\0\0\0\0\0\0\4\x7f\xff\xff\xff" /* of each call */
	                           "\0\0\4\x8\0\0\0\0\0\x7f\xff\0\0";       /* of all */
	uint8_t how = script_byte(&port.script), settings[6 * 8];
	enum tls_end_who who = how < 208 ? TLS_END_OURS
	                                 : (enum tls_end_who)((how - 208) / 8 % TLS_END_WHOS);
	port_connect(end, port_way(how, how % 4 == 3), who, how < 192 ? &port.none : &port.script);
	end->reads = how / 4 % 4 != 3;
	end->piece = how / 16 % 4 == 3 ? 1u + script_byte(&port.script) : 0;
	if (how % 4 == 2) /* the script says all of it */
		return;
	port_put(end, &port.none, WORDS_PREFACE, strlen(WORDS_PREFACE));
	size_t bytes = words_settings(&port.script, settings);
	words_put(end, (struct words_frame){ WORDS_SETTINGS, 0, 0, bytes, settings });
	if (bytes == 0 && how / 64 % 2 == 0) /* most clients let much come */
		port_put(end, &port.none, wide, sizeof(wide) - 1);
}

static bool speak(void)
{
	if (port.script.left == 0) {
		port_read();
		return false;
	}
	uint8_t which = script_byte(&port.script);
	struct port_end *end = &port.ends[(which >> 4) % PORT_ENDS];
	const struct words_method *method;
	which &= 15;
	if (which == 14 && server != NULL) {
		api_acts(&port.script);
	} else if (which == 15) {
		port_time_passes();
	} else if (!port_is_open(end)) {
		if (which < 10)
			connect_somehow(end);
	} else if (which < 3) {
		words_say_call(end, words_method(script_byte(&port.script)));
	} else if (which == 3) {
		method = words_method(script_byte(&port.script));
		words_say_headers(end, method, script_byte(&port.script) < 192 ? 0 : WORDS_END);
	} else if (which == 4) {
		words_say_body(end, words_method(script_byte(&port.script)));
	} else if (which == 5) {
		words_say_long(end);
	} else if (which == 6) {
		words_say_calls(end);
	} else if (which < 9) {
		words_say_frame(end);
	} else if (which == 9) {
		port_raw(end);
	} else if (which == 10) {
		port_leave(end);
	} else if (which == 11) {
		end->reads = !end->reads;
	} else if (which == 12 && server != NULL) {
		grpc_server_close(server, on_server_closed, NULL);
	}
	port_read();
	return true;
}

/* What a connection keeps accounts of is what its calls have. */
static void look_at(const struct grpc_session *session)
{
	const struct grpc_server_session *is = (const struct grpc_server_session *)session;
	size_t received = 0, unsent = 0, reserved = 0;
	unsigned count = 0, waiting = 0;
	for (const struct grpc_stream *s = session->streams; s != NULL; s = s->next, count++) {
		const struct grpc_call *call = (const struct grpc_call *)s;
		received += s->in.length;
		unsent += s->out.unsent;
		reserved += call->reserved;
		waiting += call->waits;
	}
	if (count != session->stream_count || count > TR_GRPC_STREAMS_MAX + 1)
		live_die("more calls than are counted, or than may be");
	if (unsent != session->unsent || reserved != is->reserved || waiting != is->waiting)
		live_die("a connection's accounts are wrong");
	if (received > TR_GRPC_REQUESTS_BYTES_MAX + (size_t)count * TR_GRPC_WINDOW_BYTES)
		live_die("more is received than its window lets in");
}

static void look(void)
{
	for (const struct grpc_server_connection *c = server != NULL ? server->connections : NULL;
	     c != NULL; c = c->next)
		look_at(c->session);
	if (__sanitizer_get_current_allocated_bytes() > growth.heap_before + HELD_MAX)
		live_die("it holds too much for who speaks to it");
}

/* ---- who asks rightly */

struct good {
	unsigned open, answered;
};

static void on_good_message(void *arg, const uint8_t *message, size_t bytes)
{
	(void)message;
	(void)bytes;
	((struct good *)arg)->answered++;
}

static void on_good_over(void *arg, struct grpc_client_call *call)
{
	struct good *good = arg;
	if (call->status != GRPC_OK)
		live_die(call->text);
	good->open--;
	grpc_outbox_finish(&call->request);
	free(call);
}

/* Else it would be sent away, where all others have calls. */
static void make_room(void)
{
	for (unsigned i = TR_GRPC_CONNECTIONS_MAX - 1; i < PORT_ENDS; i++)
		port_close(&port.ends[i]);
	for (unsigned i = 0; i < PORT_LAST_TURNS; i++)
		one_wait(ONE_TURN_NS);
}

static void good_call(struct grpc_session *session, struct good *good, char *path)
{
	struct grpc_client_call *call = calloc(1, sizeof(*call));
	if (call == NULL)
		live_die("no memory for a call");
	call->path = path;
	call->callbacks.message = on_good_message;
	call->arg = good;
	call->deadline_ms = GRPC_NO_DEADLINE;
	if (grpc_outbox_add(&call->request, "", 0) != TR_OK ||
	    grpc_client_session_start(session, call) != TR_OK)
		live_die("no call can be made");
	good->open++;
}

static void good_turn(struct port_end *end, struct grpc_session *session)
{
	static uint8_t bytes[PORT_READ_BYTES];
	struct tr_error error = { 0 };
	for (ssize_t n; (n = grpc_session_send(session, 0, bytes, sizeof(bytes))) > 0;)
		port_put(end, &port.none, bytes, (size_t)n);
	one_wait(ONE_TURN_NS);
	size_t got = port_turn(end, &port.none, bytes, sizeof(bytes));
	if (got > 0)
		live_need(grpc_session_receive(session, 0, bytes, got, &error), &error,
		    "what the server says");
}

static void good_one_asks(bool secure)
{
	static const struct grpc_client_session_callbacks callbacks = { on_good_over };
	static char nodes[] = "/traind.v1.Trainer/ListNodes", health[] = HEALTH_CHECK_PATH;
	struct good good = { 0 };
	struct port_end end;
	port_connect(&end, secure ? PORT_SECURE : PORT_PLAIN, TLS_END_OURS, &port.none);
	struct grpc_session *session = grpc_client_session_create("fuzz:1", &callbacks, &good, 0);
	if (session == NULL)
		live_die("no memory for a session");
	api.away = false;
	good_call(session, &good, nodes);
	good_call(session, &good, health);
	for (unsigned turns = 0; good.open > 0; turns++) {
		good_turn(&end, session);
		if (turns == PORT_TURNS_MAX)
			live_die("who asks rightly is not answered");
	}
	if (good.answered != 2)
		live_die("an answer without a message");
	grpc_session_lose(session, "all is said");
	grpc_session_destroy(session);
	port_close(&end);
}

/* ---- one input */

static bool nothing_more(void)
{
	return true;
}

static void start(void)
{
	port_start(on_accepted);
	serve();
	for (unsigned i = 0; i < 4; i++) {
		api_begin();
		good_one_asks(i % 2 == 0);
		for (unsigned turns = 0; turns < 100; turns++)
			one_wait(ONE_IDLE_NS);
		port.handles = port_handles();
	}
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (server == NULL)
		start();
	port_begin(data, size, SCRIPT_MAX);
	uint8_t how = script_byte(&port.script);
	one_begin(speak, look);
	api_begin();
	port_play();
	if (server == NULL || server->closing)
		serve_again();
	make_room();
	good_one_asks((how & 2) != 0);
	if ((how & 1) != 0) {
		grpc_server_close(server, on_server_closed, NULL);
		serve_again();
	}
	port_close_all();
	port_until_gone(nothing_more);
	port_finish();
	return 0;
}
