/* What comes to the port of a daemon, plainly and over TLS, but for frames and HTTP/2 (those are fuzz_engine's, fuzz_tls's and fuzz_api's): the ends that a
 * relay joins, and who measures the way to it. The real listener, relay, and what a node serves to probes (daemon/node/probing.h: a thread for each, four
 * at a time; baton.h), all in turns. The input connects, shakes hands rightly or not, says a greeting and messages that are nearly right, raw bytes, records
 * that are spoilt, new keys, farewells, in any pieces; of grants and of time the script decides too, and of how it is accepted (accepts.h).
 * First byte: bit 0: the relay and who serves probes end when the input is over; bit 1: who comes rightly afterwards comes over TLS; bits 2 to 7: the way.
 *
 * Whatever it says: no more is held than HELD_MAX; then two ends of the cluster are joined and hear each other, the way is measured, and all is as before.
 */
#include "collectives/transport/probe.h"
#include "collectives/transport/relay_internal.h"
#include "collectives/transport/tcp_path.h"
#include "daemon/node/probing.h"
#include "proto/frame.h"
#include "proto/probe.h"
#include "tests/fuzz/accepts.h"
#include "tests/fuzz/baton.h"
#include "tests/fuzz/held.h"
#include "tests/fuzz/port_end.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX 1500
#define GREETING   8 /* bytes of each */
#define GROUP      2
#define FROM       10
#define TO         11
#define GIVE_BYTES (64u << 10)
#define LATE_MS    1000 /* by which a deadline may be missed */

static const uint64_t token[2] = { 7, 8 };
static const struct relay_grant grants[] = {
	{ GROUP, FROM, TO, { 7, 8 } },
	{ GROUP, TO, FROM, { 7, 8 } },
};
static struct relay *relay;
static struct probing probing;
static uint8_t way;

/* ---- the daemon's side */

/* What the kernel would say of a TCP connection, by the first byte: how much comes through between two looks, how long a round trip is, whether it mends
 * a loss. */
bool tcp_path_get(int fd, struct tcp_path *path)
{
	static uint64_t acked;
	(void)fd;
	acked += (way >> 2 & 3) * UINT64_C(10000);
	*path = (struct tcp_path){ .rtt_us = 1u << (way >> 4 & 7) * 2,
		.acked_bytes = 1 + acked,
		.mends_loss = way >> 7 != 0 };
	return way >> 2 != 0;
}

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	(void)early;
	(void)early_bytes;
	if (protocol == LISTENER_RELAY)
		relay_accept(relay, stream);
	else if (protocol == LISTENER_PROBE)
		probing_accept(&probing, stream);
	else
		stream_close(&stream);
}

static void on_measured(void *arg, const Traind__Peer__ToMember *message)
{
	(void)arg;
	(void)message;
	live_die("it has measured what nobody asked for");
}

static void serve_probes(void)
{
	struct tr_error error = { 0 };
	probing = (struct probing){ .report = on_measured };
	live_need(probing_start(&probing, &port.net, tls_end_victims, false, &error), &error,
	    "probes");
	memcpy(probing.token, token, sizeof(token)); /* not a chance one */
}

static void end_probes(void)
{
	unsigned before = port_handles();
	uint64_t from_ns = one.now_ns;
	probing_close(&probing);
	if (one.now_ns - from_ns > LATE_MS * UINT64_C(1000000))
		live_die("who serves probes does not end in its time");
	if (probing.tasks != NULL || probing.served != 0)
		live_die("a probe is served by who has ended");
	for (unsigned turns = 0; port_handles() >= before; turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == PORT_TURNS_MAX)
			live_die("its mailbox does not close");
	}
	serve_probes();
}

static void grant(size_t count)
{
	struct tr_error error = { 0 };
	live_need(relay_grant(relay, grants, count, &error), &error, "grants");
}

static void start_relay(void)
{
	struct tr_error error = { 0 };
	live_need(relay_create(TR_RELAY_JOINED_MAX, &relay, &error), &error, "a relay");
	grant(2);
}

/* ---- the input's side */

static void connect_somehow(struct port_end *end)
{
	static const char *const greetings[] = { RELAY_GREETING, PROBE_GREETING, RELAY_GREETING,
		PROBE_GREETING, FRAME_GREETING, "GET / HTTP/1.1\r\n\r\n", "PRI * ", "TPROBE2\n" };
	uint8_t how = script_byte(&port.script);
	const char *greeting = greetings[how % 8];
	enum tls_end_who who = how < 208 ? TLS_END_OURS
	                                 : (enum tls_end_who)((how - 208) / 8 % TLS_END_WHOS);
	port_connect(end, port_way(how, how / 8 % 4 != 3 || how >= 208), who,
	    how < 160 ? &port.none : &port.script);
	end->piece = how / 32 % 2 == 1 ? 1u + script_byte(&port.script) : 0;
	end->reads = how / 64 % 2 == 0;
	port_say(end, greeting, strlen(greeting));
}

static void say_relay(struct port_end *end)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES], odd = script_byte(&port.script);
	struct script *script = odd < 192 ? &port.none : &port.script;
	struct relay_message message = { .kind = (enum relay_kind)script_about(script, 1 + odd % 2),
		.cause = (enum relay_cause)script_about(script, 0),
		.group = script_about(script, GROUP),
		.from = script_about(script, odd / 2 % 2 == 0 ? FROM : TO),
		.to = script_about(script, odd / 2 % 2 == 0 ? TO : FROM),
		.token = { script_about(script, token[0]), script_about(script, token[1]) } };
	relay_message_put(&message, bytes);
	port_say(end, bytes, sizeof(bytes));
}

static void say_probe(struct port_end *end)
{
	static uint8_t block[PROBE_BLOCK_BYTES];
	uint8_t odd = script_byte(&port.script), kind = 1 + odd % 9;
	struct script *script = odd < 192 ? &port.none : &port.script;
	bool opens = kind == PROBE_OPEN, whole = kind == PROBE_BLOCK || kind == PROBE_LAST;
	struct probe_message message = { .kind = (enum probe_kind)script_about(script, kind),
		.value = { script_about(script, opens ? token[0] : 30000),
		    script_about(script, opens ? token[1] : GIVE_BYTES) } };
	probe_message_put(&message, block);
	port_say(end, block, whole ? sizeof(block) : PROBE_MESSAGE_BYTES);
}

/* Behind TLS' end a relayed end speaks plainly. */
static void say_much(struct port_end *end)
{
	static uint8_t much[64 << 10];
	uint8_t how = script_byte(&port.script);
	size_t count = (how % 128 + 1u) * 512;
	if (how < 128)
		tls_end_put(&end->tls, much, count);
	else
		port_put(end, &port.none, much, count);
}

static bool speak(void)
{
	baton_turn();
	if (port.script.left == 0) {
		port_read();
		return false;
	}
	unsigned which = script_byte(&port.script);
	struct port_end *end = &port.ends[(which >> 4) % PORT_ENDS];
	which &= 15;
	if (which == 13)
		grant(1 + script_byte(&port.script) % 2);
	else if (which == 14)
		port_time_passes();
	else if (which == 15)
		accepts_act(&port.script);
	else if (!port_is_open(end) && which < 12)
		connect_somehow(end);
	else if (!port_is_open(end))
		;
	else if (which < 3)
		say_relay(end);
	else if (which < 7)
		say_probe(end);
	else if (which == 7)
		say_much(end);
	else if (which == 8)
		port_raw(end);
	else if (which < 11)
		port_leave(end);
	else if (which == 11)
		(void)port_turn(end, &port.script, NULL, 0);
	else if (which == 12)
		end->reads = !end->reads;
	port_read();
	return true;
}

static void look(void)
{
	uint64_t now_ms = uv_now(&relay->loop);
	held_look();
	accepts_look();
	if (probing.served > TR_PROBES_SERVED_MAX)
		live_die("it serves more probes than it may");
	for (const struct relay_end *end = relay->ends; end != NULL; end = end->next)
		if (end->state != END_WAITS &&
		    (end->deadline_ms > now_ms + TR_RELAY_CALL_MS ||
		        end->deadline_ms + LATE_MS < now_ms))
			live_die("who has nobody to meet is kept for too long");
	for (const struct relay_joint *joint = relay->joints; joint != NULL; joint = joint->next)
		for (unsigned i = 0; i < 2; i++)
			if (joint->ends[i]->held_end - joint->ends[i]->held_begin >
			    TR_RELAY_BUFFER_BYTES)
				live_die("it holds more of a direction than it may");
}

/* ---- who comes rightly */

/* So many bytes, through TLS or none. */
static void expect(struct port_end *end, uint8_t *bytes, size_t count, const char *what)
{
	size_t got = 0;
	for (unsigned turns = 0;; turns++) {
		got += port_turn(end, &port.none, bytes + got, count - got);
		if (got == count)
			return;
		one_wait(ONE_TURN_NS);
		if (turns == PORT_TURNS_MAX)
			live_die(what);
	}
}

static void greet(struct port_end *end, bool secure, const char *greeting)
{
	port_connect(end, secure ? PORT_SECURE : PORT_PLAIN, TLS_END_OURS, &port.none);
	if (secure && !SSL_is_init_finished(end->tls.ssl))
		live_die("who is of the cluster is not let in");
	port_put(end, &port.none, greeting, strlen(greeting));
}

static void good_end(struct port_end *end, bool secure, enum relay_kind kind)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	struct relay_message message = { .kind = kind,
		.group = GROUP,
		.from = FROM,
		.to = TO,
		.token = { token[0], token[1] } };
	relay_message_put(&message, bytes);
	greet(end, secure, RELAY_GREETING);
	port_put(end, &port.none, bytes, sizeof(bytes));
	one_wait(ONE_TURN_NS);
}

/* What follows RELAY_JOINED is theirs, without the relay's TLS. */
static void hear_joined(struct port_end *end)
{
	uint8_t answer[RELAY_MESSAGE_BYTES];
	struct relay_message said;
	expect(end, answer, sizeof(answer), "the relay does not answer who is of the cluster");
	if (relay_message_get(answer, &said, NULL) != TR_OK || said.kind != RELAY_JOINED)
		live_die("two of the cluster are not joined");
	SSL_free(end->tls.ssl);
	end->tls.ssl = NULL;
}

static void good_ones_meet(bool secure)
{
	struct port_end waits, calls;
	uint8_t heard[9];
	good_end(&waits, secure, RELAY_WAIT);
	good_end(&calls, secure, RELAY_CALL);
	hear_joined(&calls);
	hear_joined(&waits);
	port_put(&calls, &port.none, "there", 5);
	port_put(&waits, &port.none, "and back", 8);
	expect(&waits, heard, 5, "what one end says does not come to the other");
	expect(&calls, heard, 8, "what the other says does not come back");
	port_close(&waits);
	port_close(&calls);
}

static void ask(struct port_end *end, enum probe_kind kind, enum probe_kind answer)
{
	static uint8_t block[PROBE_BLOCK_BYTES];
	bool opens = kind == PROBE_OPEN, whole = kind == PROBE_LAST;
	struct probe_message message = { kind,
		{ opens ? token[0] : 1000, opens ? token[1] : PROBE_BLOCK_BYTES } };
	probe_message_put(&message, block);
	port_put(end, &port.none, block, whole ? sizeof(block) : PROBE_MESSAGE_BYTES);
	if (answer == 0)
		return;
	expect(end, block, answer == PROBE_LAST ? sizeof(block) : PROBE_MESSAGE_BYTES,
	    "who measures the way is not answered");
	if (probe_message_get(block, &message, NULL) != TR_OK || message.kind != answer)
		live_die("who measures the way is answered wrongly");
}

static void good_one_measures(bool secure)
{
	struct port_end end;
	way = 0;
	greet(&end, secure, PROBE_GREETING);
	ask(&end, PROBE_OPEN, PROBE_OPENED);
	ask(&end, PROBE_ECHO, PROBE_ECHO);
	ask(&end, PROBE_TAKE, 0);
	ask(&end, PROBE_LAST, PROBE_TOOK);
	ask(&end, PROBE_GIVE, PROBE_LAST);
	port_close(&end);
}

/* ---- one input */

static bool all_gone(void)
{
	return probing.tasks == NULL && probing.served == 0 && relay->ends == NULL &&
	    relay->joints == NULL && relay->strangers == 0 &&
	    relay->waiting + relay->calling + relay->joined == 0;
}

static void start(void)
{
	port_start(on_accepted);
	accepts_start(on_accepted);
	baton_start();
	start_relay();
	serve_probes();
	one_begin(speak, NULL);
	accepts_end();
	for (unsigned i = 0; i < 4; i++) {
		good_ones_meet(i % 2 == 0);
		good_one_measures(i % 2 == 0);
		for (unsigned turns = 0; turns < 100; turns++)
			one_wait(ONE_IDLE_NS);
		port.handles = port_handles();
	}
	one_end();
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (relay == NULL)
		start();
	port_begin(data, size, SCRIPT_MAX);
	uint8_t how = script_byte(&port.script);
	way = how;
	port.dials = NULL;
	one_begin(speak, look);
	port_play();
	accepts_end();
	if ((how & 1) != 0) {
		end_probes();
		relay_destroy(relay);
		start_relay();
	}
	port_close_all();
	grant(2);
	port_until_gone(all_gone);
	good_ones_meet((how & 2) != 0);
	good_one_measures((how & 2) != 0);
	port_until_gone(all_gone);
	port_finish();
	return 0;
}
