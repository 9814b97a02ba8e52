/* What a client can say to the API of a daemon: the real port, grpc_server and Trainer service (trainer_service.h) over a cluster that is played
 * (api_backend.h), plainly and over TLS. The input connects, speaks HTTP/2 that is nearly right, of calls that are nearly right (api_words.h), in any pieces,
 * reads or does not, and goes away at any byte; meanwhile the cluster answers, time passes, and the server may end.
 * First byte: bit 0: the server ends with the input, its connections open; bit 1: who asks rightly afterwards does so over TLS.
 *
 * Whatever it says: no more is held than the limits of its connections allow, who asks rightly beside it is answered, and afterwards all is as before.
 */
#include "daemon/api/health_service.h"
#include "tests/fuzz/api_backend.h"
#include "tests/fuzz/api_good.h"
#include "tests/fuzz/api_served.h"
#include "tests/fuzz/api_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX 3000
#define HELD_MAX   (SERVED_HELD_MAX + ((size_t)32 << 20))

static struct grpc_server *server;

/* ---- the daemon's side */

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	served_accept(server, protocol, stream, early, early_bytes);
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
	server = served_trainer();
}

/* ---- the input's side */

static void connect_somehow(struct port_end *end)
{
	uint8_t how = script_byte(&port.script);
	enum tls_end_who who = how < 208 ? TLS_END_OURS
	                                 : (enum tls_end_who)((how - 208) / 8 % TLS_END_WHOS);
	port_connect(end, port_way(how, how % 4 == 3), who, how < 192 ? &port.none : &port.script);
	end->reads = how / 4 % 4 != 3;
	end->piece = how / 16 % 4 == 3 ? 1u + script_byte(&port.script) : 0;
	if (how % 4 != 2) /* else the script says all of it */
		words_greet(end, how / 64 % 2 == 0);
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

static void look(void)
{
	served_look(server);
	if (__sanitizer_get_current_allocated_bytes() > growth.heap_before + HELD_MAX)
		live_die("it holds too much for who speaks to it");
}

/* ---- who asks rightly */

static void good_one_asks(bool secure)
{
	static const struct good_call calls[] = {
		{ .path = "/traind.v1.Trainer/ListNodes", .messages = 1 },
		{ .path = HEALTH_CHECK_PATH, .messages = 1 },
	};
	api.away = false;
	good_asks(secure, calls, 2);
}

/* ---- one input */

static bool nothing_more(void)
{
	return true;
}

static void start(void)
{
	port_start(on_accepted);
	server = served_trainer();
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
	served_make_room();
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
