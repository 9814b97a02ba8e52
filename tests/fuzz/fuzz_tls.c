/* What a peer can say to a live engine (live.h) whose connections are all TLS, on those that it dials and on those that the engine dials to it: another
 * thing than a handshake; a handshake that is spoilt somewhere, with a certificate of the cluster, of another CA, or with none; records that are cut,
 * garbled, repeated or forged; frames that are nearly right inside a session that is (attack.h), new keys again and again, farewells in the midst of it.
 * First byte: as fuzz_engine's.
 *
 * The honest group speaks TLS too; after each input somebody of the cluster who dials anew is let in.
 */

#include "tests/fuzz/attack.h"
#include "tests/fuzz/port.h"
#include "tests/fuzz/tls_end.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONNECTIONS 6
#define SHAKE_TURNS 8
#define HELD_MAX    ((size_t)24 << 20) /* while an input goes on, its own side included */

static int port = -1; /* to which the engine dials for all others */
static char address[PORT_ADDRESS_BYTES];
static struct tls_end ends[CONNECTIONS];
static struct script no_script;

static void sweep(void)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		tls_end_close(&ends[i]);
	for (int fd = port_dialled(port); fd >= 0; fd = port_dialled(port))
		(void)close(fd);
}

static void turn(const struct tls_end *end, struct script *script)
{
	static uint8_t sink[16 << 10];
	(void)tls_end_turn(end, script, sink, sizeof(sink));
	live_turn();
}

static void shake(const struct tls_end *end, struct script *script)
{
	for (unsigned i = 0; i < SHAKE_TURNS && end->ssl != NULL; i++)
		turn(end, script);
}

/* ---- frames */

static void say(struct script *script, const struct tls_end *end, const struct attack_frame *frame)
{
	uint8_t whole[FRAME_HEADER_BYTES + ATTACK_FRAME_MAX];
	struct frame_header header = { .length = (uint32_t)script_about(script, frame->bytes),
		.type = (uint16_t)script_about(script, frame->type) };
	frame_header_put(&header, whole);
	memcpy(whole + FRAME_HEADER_BYTES, frame->payload, frame->bytes);
	size_t all = FRAME_HEADER_BYTES + frame->bytes, part = script_byte(script);
	/* So often that it is more than one read of ours takes. */
	for (size_t again = 0; part >= 192 && part < 224 && again < (part - 191) * 16; again++)
		tls_end_say(end, script, whole, all);
	if (part < 224) {
		tls_end_say(end, script, whole, all);
		return;
	}
	part = all * (part - 224) / 32; /* in two records, or the second never */
	tls_end_say(end, script, whole, part);
	live_turn();
	if (script_byte(script) < 192)
		tls_end_say(end, script, whole + part, all - part);
}

/* Bytes of its own: into the socket, as a record that is none, or inside the session. */
static void raw(struct script *script, const struct tls_end *end)
{
	uint8_t how = script_byte(script), record[5 + 255];
	if (how < 96) {
		tls_end_put(end, record, tls_end_record(script, record));
		return;
	}
	size_t bytes = script_byte(script);
	bytes = bytes < script->left ? bytes : script->left;
	const uint8_t *from = script->at;
	script->at += bytes;
	script->left -= bytes;
	if (how < 160)
		tls_end_put(end, from, bytes);
	else
		tls_end_say(end, script, from, bytes);
}

/* ---- connections */

static void close_somehow(struct script *script, struct tls_end *end)
{
	uint8_t how = script_byte(script) % 8;
	if (how == 0)
		(void)shutdown(end->fd, SHUT_WR);
	else if (how == 1)
		tls_end_farewell(end, script);
	else if (how == 2)
		tls_end_new_keys(end, script);
	else if (how < 6)
		turn(end, script);
	else
		tls_end_close(end);
}

static enum tls_end_who who(uint8_t how)
{
	return how < 192 ? TLS_END_OURS : (enum tls_end_who)((how - 192) / 8 % TLS_END_WHOS);
}

static void connect_or_close(struct script *script, struct tls_end *end)
{
	struct attack_frame frame = { 0 };
	if (end->fd >= 0) {
		close_somehow(script, end);
		return;
	}
	uint8_t how = script_byte(script);
	bool accepts = how % 4 == 3;
	int fd = accepts ? port_dialled(port) : port_dial(listener_address(live.victim_port));
	if (fd < 0)
		return;
	end->fd = fd;
	if (how >= 240) /* the script does all of it */
		return;
	tls_end_open(end, fd, accepts, who(how));
	shake(end, script);
	if (how >= 224)
		return;
	if (!accepts)
		tls_end_say(end, script, FRAME_GREETING, FRAME_GREETING_BYTES);
	live_turns();
	attack_hello(script, &frame);
	say(script, end, &frame);
}

static void event(struct script *script)
{
	unsigned which = script_byte(script);
	struct tls_end *end = &ends[(which >> 4) % CONNECTIONS];
	struct attack_frame frame = { 0 };
	which &= 15;
	if (which < 3)
		connect_or_close(script, end);
	else if (attack_says(script, which, &frame))
		say(script, end, &frame);
	else if (which == 11)
		raw(script, end);
	else if (which == 12)
		tls_end_new_keys(end, script);
	else if (which == 13)
		attack_ours(script);
	else
		turn(end, script);
	if (__sanitizer_get_current_allocated_bytes() > growth.heap_before + HELD_MAX)
		live_die("it holds too much for who speaks to it");
}

/* Who belongs to the cluster and dials now gets an answer: the listener took its greeting, for its handshake was over. */
static void good_one_dials(void)
{
	uint64_t until = uv_hrtime() + LIVE_PATIENCE_S * UINT64_C(1000000000);
	struct tls_end end = { .fd = -1 };
	int fd = port_dial(listener_address(live.victim_port));
	if (fd < 0)
		return;
	tls_end_open(&end, fd, false, TLS_END_OURS);
	while (!SSL_is_init_finished(end.ssl)) {
		turn(&end, &no_script);
		if (uv_hrtime() > until)
			live_die("who is of the cluster is not let in");
	}
	tls_end_close(&end);
}

static void start(void)
{
	log_configure(LOG_ERROR, false);
	tls_end_start();
	live_tls = tls_end_victims;
	port = port_open(address);
	live_start(false);
	attack.address = address;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		ends[i].fd = -1;
	good_one_dials();
	live_turns();
	growth.descriptors = growth_descriptors(false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < ATTACK_SCRIPT_MAX ? size : ATTACK_SCRIPT_MAX };
	if (port < 0)
		start();
	if (attack_knows(data, size))
		return 0;
	growth_begin();
	attack_begin(script_byte(&script));
	while (script.left > 0)
		event(&script);
	live_turns();
	good_one_dials();
	live_end(&attack.worker, sweep);
	growth_check();
	return 0;
}
