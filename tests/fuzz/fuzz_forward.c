/* traind's API: the real port, grpc_server, forward.h and grpc_client between clients that the input speaks for, as in fuzz_api, and memberd: the real Trainer
 * service over a cluster that is played, or one that says what is nearly right, stops, breaks, is absent and comes back (forward_memberd.h).
 * First byte: bit 0: traind ends with the input, its connections open and calls under way; bit 1: who asks rightly does so over TLS; bit 2: traind speaks TLS to
 * memberd; bit 3: who asks rightly finds memberd gone, then one that breaks, before it is back; bits 4, 5: how memberd's address is written; 6, 7: how it is
 * found at first.
 *
 * Whatever they say: each call of a client's has one to memberd that is told of its end, reads no faster than the client and waits no longer than it has to;
 * what is held stays within limits. Afterwards who asks through traind gets what memberd says, or that it is not reachable, and all is as before. And one
 * input does the same each time.
 */
#include "collectives/transport/address.h"
#include "daemon/api/health_service.h"
#include "tests/fuzz/api_good.h"
#include "tests/fuzz/forward_memberd.h"

/* So few that more come. */
#undef TR_GRPC_CLIENT_CALLS_MAX
#undef TR_GRPC_CLIENT_LINKS_MAX
#define TR_GRPC_CLIENT_CALLS_MAX 300
#define TR_GRPC_CLIENT_LINKS_MAX 3
#include "daemon/api/forward.c"
#include "daemon/api/grpc_client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX   3000
#define HELD_MAX     (2 * SERVED_HELD_MAX + ((size_t)32 << 20))
#define LATE_MS      1000       /* by which a deadline may be missed */
#define UNSENT_SMALL (1u << 20) /* of what traind says by itself */
#define LATE_TURNS   100
#define NAMED        "127.0.0.1:7070"
#define UNREACHABLE  "memberd at %s is not reachable; training goes on; try again"
#define ALWAYS_TWICE 256 /* inputs that are played twice; of those that follow every so many'th */
#define TWICE        32

static struct grpc_server *server; /* traind's */
static struct forward *forward;
static const char *address;
static uint8_t nodes[256]; /* what memberd says to ListNodes */
static size_t nodes_bytes;

/* ---- traind's side */

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	served_accept(server, protocol, stream, early, early_bytes);
}

static void serve(void)
{
	struct tr_error error = { 0 };
	struct grpc_server_options options = { .methods = forward_methods(),
		.fallback = forward_call };
	live_need(forward_create(&port.net, address, memberd.tls, &forward, &error), &error,
	    "a way to memberd");
	options.arg = forward;
	live_need(grpc_server_create(&port.net, &options, &server), &error, "a server");
}

/* As daemon/node does. */
static void on_server_closed(void *arg)
{
	(void)arg;
	server = NULL;
	forward_destroy(forward);
	forward = NULL;
}

static void until_ended(void)
{
	for (unsigned turns = 0; server != NULL; turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == PORT_TURNS_MAX)
			live_die("traind does not end");
	}
}

/* ---- the input's side */

static void connect_somehow(struct port_end *end)
{
	uint8_t how = script_byte(&port.script);
	port_connect(end, port_way(how, how % 4 == 3), TLS_END_OURS, &port.none);
	end->reads = how / 4 % 4 != 3;
	end->piece = how / 16 % 4 == 3 ? 1u + script_byte(&port.script) : 0;
	words_greet(end, how / 64 % 2 == 0);
}

static void say(struct port_end *end, unsigned which)
{
	const struct words_method *method = words_method(0);
	if (which <= 4)
		method = words_method(script_byte(&port.script));
	if (which < 3) {
		words_say_call(end, method);
	} else if (which == 3) {
		words_say_headers(end, method, script_byte(&port.script) < 192 ? 0 : WORDS_END);
	} else if (which == 4) {
		words_say_body(end, method);
	} else if (which == 5) {
		words_say_long(end);
	} else if (which == 6) {
		words_say_calls(end);
	} else if (which == 7) {
		words_say_frame(end);
	} else if (which == 8) {
		port_raw(end);
	} else if (which == 9) {
		port_leave(end);
	} else if (which == 10) {
		end->reads = !end->reads;
	}
}

static bool speak(void)
{
	memberd_turn();
	if (port.script.left == 0) {
		port_read();
		return false;
	}
	uint8_t which = script_byte(&port.script);
	struct port_end *end = &port.ends[(which >> 4) % PORT_ENDS];
	unsigned what = which & 15;
	if (what == 12)
		memberd_acts();
	else if (what == 13)
		memberd_speaks(which >> 4);
	else if (what == 14 && api.service != NULL)
		api_acts(&port.script);
	else if (what == 15)
		port_time_passes();
	else if (what == 11 && which >> 4 == 15 && server != NULL)
		grpc_server_close(server, on_server_closed, NULL);
	else if (port_is_open(end))
		say(end, what);
	else if (what < 9)
		connect_somehow(end);
	port_read();
	return true;
}

/* ---- what holds at any time */

/* A call of a client's and the one to memberd that it became. */
static void look_at_pair(const struct grpc_client_call *out, uint64_t now_ms)
{
	const struct forwarded *pair = out->arg;
	if (pair->out != out)
		live_die("a call to memberd is another's");
	if (!out->decided && out->deadline_ms != GRPC_NO_DEADLINE &&
	    out->deadline_ms + LATE_MS < now_ms)
		live_die("a call to memberd goes on after its deadline");
	if (out->stream.in.length >
	    GRPC_FRAME_PREFIX_BYTES + TR_GRPC_MESSAGE_MAX + (size_t)TR_GRPC_WINDOW_BYTES)
		live_die("more is received of memberd than the window of a call lets in");
	const struct grpc_call *in = pair->in;
	struct grpc_frame frame;
	if (in == NULL) {
		if (!out->decided)
			live_die("a call goes on at memberd whose client is gone");
		return;
	}
	bool told = in->ended && in->abandoned; /* from the next step */
	if (in->cancelled_arg != pair || (in->ended && !told))
		live_die("who forwards a call does not hear of its end");
	if (in->deadline_ms == GRPC_NO_DEADLINE ? out->deadline_ms != GRPC_NO_DEADLINE
	                                        : out->deadline_ms < in->deadline_ms ||
	            out->deadline_ms > in->deadline_ms + LATE_MS)
		live_die("memberd is not told by when a client wants its answer");
	if (out->decided || told)
		return;
	if (out->started && !out->stream.closed &&
	    nghttp2_session_get_stream_effective_recv_data_length(out->stream.session->http2,
	        out->stream.id) > (int32_t)(out->stream.in.length + TR_GRPC_WINDOW_BYTES / 2 + 1))
		live_die("memberd is not let go on");
	if (!out->paused && !out->stream.touched &&
	    grpc_inbox_look(&out->stream.in, TR_GRPC_MESSAGE_MAX, &frame) == GRPC_FRAME_WHOLE)
		live_die("a message waits whose client reads");
	if (out->paused && !in->stream.slow && !in->stream.drained)
		live_die("a call waits for a client who reads");
	if (!out->paused && in->stream.slow)
		live_die("a call does not wait for a client who does not read");
}

/* Calls wait for room, or for a connection that is under way. */
static void look_at_waiting(const struct grpc_client *client)
{
	bool soon = uv_is_active((const uv_handle_t *)&client->timer) &&
	    uv_timer_get_due_in(&client->timer) == 0;
	if (client_next_waiting(client) == NULL || client->dial != NULL || soon)
		return;
	if (client_open_link(client) != NULL)
		live_die("a call waits beside a connection that has room");
	if (client->link_count < TR_GRPC_CLIENT_LINKS_MAX)
		live_die("a call waits, and memberd is not dialled");
}

/* Whether it waits for an answer to a ping, as it should no more. */
static bool look_at_link(const struct grpc_session *session, uint64_t now_ms)
{
	size_t unsent = 0;
	unsigned count = 0;
	for (const struct grpc_stream *s = session->streams; s != NULL; s = s->next, count++)
		unsent += s->out.unsent;
	if (count != session->stream_count || unsent != session->unsent)
		live_die("the accounts of a connection to memberd are wrong");
	return session->pinged && count > 0 &&
	    session->pinged_ms + TR_GRPC_KEEPALIVE_GRACE_MS + LATE_MS < now_ms;
}

static void look_at_client(const struct grpc_client *client)
{
	uint64_t now_ms = uv_now(client->loop);
	static unsigned
	    late; /* turns in which something is: an old connection may just have got a call */
	unsigned calls = 0, links = 0;
	bool waits = false;
	for (const struct grpc_client_call *c = client->calls; c != NULL; c = c->next, calls++)
		look_at_pair(c, now_ms);
	for (const struct grpc_client_link *l = client->links; l != NULL; l = l->next, links++)
		waits = (!l->session->lost && look_at_link(l->session, now_ms)) || waits;
	late = waits ? late + 1 : 0;
	if (late > LATE_TURNS)
		live_die("memberd is silent and waited for");
	if (calls != client->call_count || calls > TR_GRPC_CLIENT_CALLS_MAX ||
	    links != client->link_count || links > TR_GRPC_CLIENT_LINKS_MAX)
		live_die("more calls or connections to memberd than are counted, or than may be");
	if (client_unsent(client) >
	    TR_GRPC_UNSENT_BYTES_MAX + (size_t)calls * GRPC_FRAME_PREFIX_BYTES)
		live_die("more of requests waits for memberd than may");
	look_at_waiting(client);
}

/* However much memberd answers at once. */
static void look_at_unsent(void)
{
	for (const struct grpc_server_connection *c = server != NULL ? server->connections : NULL;
	     c != NULL; c = c->next)
		if (c->session->unsent >
		    TR_GRPC_UNSENT_BYTES_MAX + TR_GRPC_MESSAGE_MAX + UNSENT_SMALL)
			live_die("more answers wait for a client than may");
}

static void look(void)
{
	look_at_unsent();
	served_look(server);
	served_look(memberd.server);
	if (forward != NULL)
		look_at_client(forward->client);
	if (__sanitizer_get_current_allocated_bytes() > growth.heap_before + HELD_MAX)
		live_die("it holds too much for who speaks to it");
}

/* ---- who asks rightly */

static bool is_named(void)
{
	return strncmp(address, "nowhere", 7) != 0;
}

static void good_one_asks(bool secure)
{
	char unreachable[128];
	(void)snprintf(unreachable, sizeof(unreachable), UNREACHABLE, address);
	const struct good_call there[] = {
		{ .path = "/traind.v1.Trainer/ListNodes",
		    .messages = 1,
		    .message = nodes,
		    .message_bytes = nodes_bytes },
		{ .path = "/traind.v1.Trainer/GetJob",
		    .request = { 8, 99 },
		    .bytes = 2,
		    .status = GRPC_NOT_FOUND },
		{ .path = "/traind.v1.Trainer/Nothing",
		    .status = GRPC_UNIMPLEMENTED,
		    .text = "no such method; proto/ has those that there are" },
		{ .path = "/traind.v1.Trainer/MeasureLinks",
		    .request = { 0x1a, 0 },
		    .bytes = 2,
		    .within_ms = 50,
		    .status = GRPC_DEADLINE_EXCEEDED },
		{ .path = HEALTH_CHECK_PATH, .messages = 1 },
	};
	const struct good_call gone[] = {
		{ .path = "/traind.v1.Trainer/ListNodes",
		    .status = GRPC_UNAVAILABLE,
		    .text = unreachable },
		{ .path = HEALTH_CHECK_PATH, .messages = 1 },
	};
	bool serves = is_named() && memberd.is == MEMBERD_SERVES && memberd.lasts == SIZE_MAX;
	good_asks(secure, serves ? there : gone, serves ? 5 : 2);
}

static void know_nodes(void)
{
	Traind__V1__ListNodesResponse *list = api_nodes(NULL);
	nodes_bytes = traind__v1__list_nodes_response__get_packed_size(list);
	if (nodes_bytes > sizeof(nodes))
		live_die("more nodes than were thought of");
	(void)traind__v1__list_nodes_response__pack(list, nodes);
	traind__v1__list_nodes_response__free_unpacked(list, NULL);
}

static void some_turns(void)
{
	for (unsigned i = 0; i < PORT_LAST_TURNS; i++)
		one_wait(ONE_TURN_NS);
}

/* ---- one input */

static void start(void)
{
	one.connects = memberd_dialled;
	port_start(on_accepted);
	memberd_start();
	address = NAMED;
	for (unsigned i = 0; i < 4; i++) {
		memberd_begin(MEMBERD_SERVES, i % 2 == 0 ? tls_end_victims : NULL);
		know_nodes();
		serve();
		one_begin(speak, NULL);
		good_one_asks(i / 2 == 0);
		grpc_server_close(server, on_server_closed, NULL);
		until_ended();
		memberd_goes(MEMBERD_ABSENT, 0);
		one_end();
		for (unsigned turns = 0; turns < 100; turns++)
			one_wait(ONE_IDLE_NS);
		port.handles = port_handles();
	}
	growth_start();
}

static bool no_calls(void)
{
	return forward->client->calls == NULL && memberd_is_calm();
}

/* Whoever is left is answered; and none of what the others asked stays at memberd. */
static void afterwards(uint8_t how)
{
	bool secure = (how & 2) != 0;
	memberd_mends();
	api_begin();
	if (server == NULL || server->closing) {
		until_ended();
		serve();
	}
	served_make_room();
	if (forward->client->call_count + GOOD_CALLS_MAX > TR_GRPC_CLIENT_CALLS_MAX ||
	    client_unsent(forward->client) > TR_GRPC_UNSENT_BYTES_MAX / 2)
		port_close_all(); /* else it would be refused */
	some_turns();
	if ((how & 8) != 0) {
		memberd_goes(MEMBERD_ABSENT, 0);
		some_turns();
		good_one_asks(secure);
		memberd_goes(MEMBERD_SERVES, 100);
		good_one_asks(secure);
		memberd_goes(MEMBERD_SERVES, SIZE_MAX);
		some_turns();
	}
	good_one_asks(secure);
	if ((how & 1) == 0) {
		port_close_all();
		for (unsigned turns = 0; !no_calls(); turns++) {
			one_wait(ONE_IDLE_NS);
			if (turns == PORT_TURNS_MAX)
				live_die("calls go on that nobody wants");
		}
	}
}

static bool nothing_more(void)
{
	return server == NULL;
}

/* A digest of what was said. */
static uint64_t play(const uint8_t *data, size_t size)
{
	static const char *const addresses[] = { NAMED, "localhost:7070", "unix:/fuzz/memberd",
		"nowhere.fuzz:7070" };
	port_begin(data, size, SCRIPT_MAX);
	one.now_ns = (one.now_ns / 1000000000 + 1) * 1000000000; /* the same to the last ns */
	uint8_t how = script_byte(&port.script);
	address = addresses[how / 16 % 4];
	bool is_unix = address == addresses[2];
	memberd_begin(how / 64, (how & 4) != 0 && !is_unix ? tls_end_victims : NULL);
	one_begin(speak, look);
	serve();
	port_play();
	afterwards(how);
	grpc_server_close(server, on_server_closed, NULL);
	until_ended();
	memberd_goes(MEMBERD_ABSENT, 0);
	port_close_all();
	port_until_gone(nothing_more);
	uint64_t heard = port.heard;
	port_finish();
	return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (address == NULL)
		start();
	uint64_t heard = play(data, size);
	if ((live_inputs < ALWAYS_TWICE || live_inputs % TWICE == 0) && play(data, size) != heard)
		live_die("one input does not do the same twice");
	return 0;
}
