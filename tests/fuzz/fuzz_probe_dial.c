/* What a daemon that is measured can answer to the one that measures the way to it (probe_dial.c): nearly right answers, too early, in parts, twice or
 * never; blocks without end; refusals; half a connection; and with TLS all that fuzz_tls's input can do, here as the end that was dialled.
 * First byte: bit 0: TLS; bits 1-2: whose certificate; bits 3-5: how long a look at the clock takes; bit 6: whether it goes on rightly behind its script.
 *
 * Whatever it does, the measuring ends in its time, with figures that are some or with words, and the next one of an honest daemon succeeds.
 */
#include <math.h>

#include "collectives/transport/probe.h"
#include "common/limits.h"
#include "proto/probe.h"
#include "tests/fuzz/live.h"
#include "tests/fuzz/port.h"
#include "tests/fuzz/tls_end.h"
#include "tests/fuzz/waits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX 1500
#define GREETING   8
#define BLOCKS_MAX 6 /* that an honest one gives */
#define READ_BYTES (64u << 10)
#define SLACK_NS   UINT64_C(1000000000)

static const uint64_t token[2] = { 1, 2 };
static atomic_bool stop;
static int port = -1;
static char address[PORT_ADDRESS_BYTES];

/* The daemon that is measured: as far as it has heard. */
static struct {
	struct tls_end end;
	struct script script;
	bool uses_tls, goes_on, dead;
	bool opened, ended_trips,
	    ahead; /* ahead: it has answered a round trip that was not begun */
	enum tls_end_who who;
	size_t skip; /* of what comes, before the next message: the greeting, or a block's rest */
	size_t have;
	uint8_t head[PROBE_MESSAGE_BYTES];
	unsigned blocks; /* that it owes */
} other;

static void say_bytes(const void *bytes, size_t count)
{
	tls_end_say(&other.end, &other.script, bytes, count);
}

static void hang_up(void)
{
	tls_end_close(&other.end);
	other.dead = true;
}

/* A message, of which a byte decides whether anything of it is wrong. */
static void say(enum probe_kind kind, uint64_t first, uint64_t second, size_t bytes)
{
	static uint8_t out[PROBE_BLOCK_BYTES];
	struct script *script = &other.script;
	struct probe_message message = { kind, { first, second } };
	uint8_t how = script_byte(script);
	if (how >= 128 && how < 192) {
		message.kind = (enum probe_kind)script_about(script, kind);
		message.value[0] = script_about(script, first);
		message.value[1] = script_about(script, second);
	} else if (how >= 192 && how < 208) {
		message.kind = (enum probe_kind)(how % 16);
	}
	probe_message_put(&message, out);
	if (how >= 208 && how < 216) {
		size_t at = script_byte(script) % PROBE_MESSAGE_BYTES;
		out[at] = script_byte(script);
	}
	if (how >= 248)
		hang_up();
	else if (how >= 240)
		return;
	else if (how >= 232)
		(void)shutdown(other.end.fd, how % 2 == 0 ? SHUT_WR : SHUT_RD);
	else if (how >= 224)
		say_bytes(out, bytes);
	say_bytes(out, how >= 216 && how < 224 ? script_about(script, 7) % bytes : bytes);
}

static void answer(const struct probe_message *asked)
{
	switch (asked->kind) {
	case PROBE_OPEN:
		other.opened = true;
		say(PROBE_OPENED, 0, 0, PROBE_MESSAGE_BYTES);
		break;
	case PROBE_ECHO:
		say(PROBE_ECHO, asked->value[0], asked->value[1], PROBE_MESSAGE_BYTES);
		break;
	case PROBE_TAKE:
		other.ended_trips = true;
		break;
	case PROBE_GIVE:
		other.blocks = BLOCKS_MAX;
		break;
	case PROBE_BLOCK:
	case PROBE_LAST:
		other.skip = PROBE_BLOCK_BYTES - PROBE_MESSAGE_BYTES;
		if (asked->kind == PROBE_LAST)
			say(PROBE_TOOK, 1000000, 0, PROBE_MESSAGE_BYTES);
		break;
	default:
		break;
	}
}

static void hear(const uint8_t *at, size_t count)
{
	struct probe_message asked;
	while (count > 0) {
		if (other.skip > 0) {
			size_t skips = other.skip < count ? other.skip : count;
			other.skip -= skips;
			at += skips;
			count -= skips;
			continue;
		}
		other.head[other.have++] = *at++;
		count--;
		if (other.have < sizeof(other.head))
			continue;
		other.have = 0;
		if (probe_message_get(other.head, &asked, NULL) != TR_OK)
			live_die("it says what is no message");
		answer(&asked);
	}
}

static bool meet(void)
{
	if (other.end.fd >= 0 || other.dead)
		return other.end.fd >= 0;
	int fd = port_dialled(port);
	if (fd < 0)
		return false;
	if (other.uses_tls)
		tls_end_open(&other.end, fd, true, other.who);
	other.end.fd = fd;
	return true;
}

/* false: nothing has come. */
static bool serve(void)
{
	static uint8_t bytes[READ_BYTES];
	size_t heard = tls_end_turn(&other.end, &other.script, bytes, sizeof(bytes));
	hear(bytes, heard);
	if (other.blocks > 0) {
		other.blocks--;
		say(other.blocks == 0 ? PROBE_LAST : PROBE_BLOCK, 0, 0, PROBE_BLOCK_BYTES);
		return true;
	}
	return heard > 0;
}

/* What nobody asked for. */
static void says_more(uint8_t which)
{
	struct script *script = &other.script;
	uint8_t bytes[5 + 255];
	switch (which % 8) {
	case 0:
		if (which / 8 % 9 == PROBE_ECHO - 1 && other.opened && !other.ended_trips)
			other.ahead |= script->left == 0 || script->at[0] < 128;
		say((enum probe_kind)(1 + which / 8 % 9), 0, 0, PROBE_MESSAGE_BYTES);
		break;
	case 1:
		say((enum probe_kind)(PROBE_BLOCK + which / 8 % 2), 0, 0, PROBE_BLOCK_BYTES);
		break;
	case 2:
		tls_end_put(&other.end, bytes, tls_end_record(script, bytes));
		break;
	case 3:
		tls_end_new_keys(&other.end, script);
		break;
	case 4:
		tls_end_farewell(&other.end, script);
		break;
	case 5:
		waits.now_ns += script_byte(script) * UINT64_C(10000000);
		break;
	case 6:
		if (which >= 240)
			hang_up();
		break;
	default:
		if (which >= 240)
			atomic_store(&stop, true);
	}
}

static bool turn(void)
{
	struct script *script = &other.script;
	bool more = true;
	if (!meet())
		return false;
	if (script->left == 0 && !other.goes_on) {
		hang_up();
		return false;
	}
	uint8_t which = script_byte(script);
	if (which >= 160)
		says_more(which);
	else
		more = serve();
	return more || script->left > 0;
}

static tr_status measure(uint64_t look_us, struct probe_figures *figures, struct tr_error *error)
{
	const struct probe_target target = { address, other.uses_tls ? tls_end_victims : NULL,
		{ token[0], token[1] } };
	other.end.fd = -1;
	other.skip = GREETING;
	atomic_store(&stop, false);
	uint64_t from_ns = waits.now_ns;
	waits_begin(turn, look_us);
	tr_status st = probe_dial(&target, &stop, figures, error);
	waits_end();
	/* A jump of the clock by the script may come on top. */
	if (waits.now_ns - from_ns >
	    UINT64_C(1000000) * TR_PROBE_MS + UINT64_C(2560000000) + SLACK_NS)
		live_die("measuring takes longer than it may");
	hang_up();
	for (int fd; (fd = accept4(port, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
		(void)close(fd);
	return st;
}

static void check(tr_status st, const struct probe_figures *figures, const struct tr_error *error)
{
	if (st != TR_OK) {
		if (st != error->status || error->text[0] == '\0' ||
		    strcmp(tr_status_name(st), "TR_EUNKNOWN") == 0)
			live_die("it fails without a word");
		return;
	}
	if (!isfinite(figures->round_trip_s) || figures->round_trip_s < 0 ||
	    !isfinite(figures->there_bytes_per_s) || !(figures->there_bytes_per_s > 0) ||
	    !isfinite(figures->back_bytes_per_s) || !(figures->back_bytes_per_s > 0))
		live_die("it measures what cannot be");
}

static void honest(bool uses_tls)
{
	struct tr_error error = { 0 };
	struct probe_figures figures = { 0 };
	memset(&other, 0, sizeof(other));
	other.goes_on = true;
	other.uses_tls = uses_tls;
	waits.patience_ns = 1000000;
	live_need(measure(4000, &figures, &error), &error, "an honest daemon is measured");
	waits.patience_ns = 50000;
	check(TR_OK, &figures, &error);
}

static void start(void)
{
	log_configure(LOG_ERROR, false);
	tls_end_start();
	port = port_open(address);
	honest(false);
	honest(true);
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tr_error error = { 0 };
	struct probe_figures figures = { 0 };
	if (port < 0)
		start();
	growth_begin();
	memset(&other, 0, sizeof(other));
	other.script = (struct script){ data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	uint8_t how = script_byte(&other.script);
	other.uses_tls = how & 1;
	other.who = (enum tls_end_who)(how >> 1 & 3);
	other.goes_on = (how & 64) == 0;
	tr_status st = measure(UINT64_C(500) << (how >> 3 & 7), &figures, &error);
	check(st, &figures, &error);
	if (st == TR_OK && other.ahead)
		live_die("a round trip is measured whose end was said before its beginning");
	if (live_inputs % 4 == 1)
		honest(live_inputs % 8 == 1);
	growth_check();
	return 0;
}
