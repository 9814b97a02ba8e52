/* What a peer can say over TCP to a live engine (live.h): on connections that it dials and on those that the engine dials
 * to it, in an interleaving that the input decides. Segments, votes, commits, state, lanes and pulses with fields near the
 * truth; half frames, lengths that lie, raw bytes; while our caller runs a round of two ops and memberd changes the view.
 * First byte: bit 0: we are a joiner that awaits state; bit 1: a peer is one, and we are its donor; bits 2-3: algorithm;
 * bits 4-5: hub.
 */
#include <assert.h>
#include <sys/socket.h>

#include "tests/fuzz/attack.h"
#include "tests/fuzz/port.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONNECTIONS       6
#define STORED_HEAD_BYTES 5

static int port = -1; /* to which the engine dials for all others */
static char address[PORT_ADDRESS_BYTES];
static int fds[CONNECTIONS];

/* ---- connections */

static void drop(int *fd)
{
	struct linger now = { .l_onoff = 1 }; /* none is left in TIME_WAIT */
	if (*fd < 0)
		return;
	(void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	(void)close(*fd);
	*fd = -1;
}

static void sweep(void)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		drop(&fds[i]);
	for (int fd = port_dialled(port); fd >= 0; fd = port_dialled(port))
		drop(&fd);
}

/* Writes what goes; the rest is lost, as if the sender had died there. */
static void put(int fd, const void *bytes, size_t count)
{
	if (fd >= 0 && count > 0)
		(void)send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void drain(int fd)
{
	uint8_t sink[4096];
	while (fd >= 0 && recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
}

/* ---- frames */

static void say(struct script *script, int fd, const struct attack_frame *frame)
{
	uint8_t whole[FRAME_HEADER_BYTES + ATTACK_FRAME_MAX];
	struct frame_header header = { .length = (uint32_t)script_about(script, frame->bytes),
		.type = (uint16_t)script_about(script, frame->type) };
	frame_header_put(&header, whole);
	memcpy(whole + FRAME_HEADER_BYTES, frame->payload, frame->bytes);
	size_t all = FRAME_HEADER_BYTES + frame->bytes, part = script_byte(script);
	if (part < 224) {
		put(fd, whole, all);
		return;
	}
	part = all * (part - 224) /
	    32; /* in two pieces, with something between them or nothing behind */
	put(fd, whole, part);
	live_turn();
	if (script_byte(script) < 192)
		put(fd, whole + part, all - part);
}

/* A segment as one that was packed: its body in one stored block (RFC 1951, 3.2.4), or as whatever it is in that format. */
static void pack(struct script *script, struct attack_frame *frame)
{
	uint8_t *body = frame->payload + SEGMENT_HEADER_BYTES;
	size_t bytes = frame->bytes - SEGMENT_HEADER_BYTES;
	frame->type = FRAME_PACKED;
	if (script_byte(script) >= 192)
		return;
	memmove(body + STORED_HEAD_BYTES, body, bytes);
	body[0] = 1; /* the last block, stored */
	body[1] = (uint8_t)bytes;
	body[2] = (uint8_t)(bytes >> 8);
	body[3] = (uint8_t)~body[1];
	body[4] = (uint8_t)~body[2];
	frame->bytes += STORED_HEAD_BYTES;
}

static void raw(struct script *script, int fd)
{
	size_t bytes = script_byte(script);
	bytes = bytes < script->left ? bytes : script->left;
	put(fd, script->at, bytes);
	script->at += bytes;
	script->left -= bytes;
}

/* ---- connections, as the script wants them */

static void connect_or_close(struct script *script, unsigned which)
{
	int *fd = &fds[which];
	uint8_t how = script_byte(script);
	if (*fd >= 0) {
		if (how % 4 == 0)
			(void)shutdown(*fd, SHUT_WR);
		else if (how % 4 == 1)
			drain(*fd);
		else
			drop(fd);
		return;
	}
	if (how % 4 == 3) {
		*fd = port_dialled(port);
		return;
	}
	*fd = port_dial(listener_address(live.victim_port));
	put(*fd, FRAME_GREETING, FRAME_GREETING_BYTES);
	live_turns();
	if (how >= 240)
		return;
	struct attack_frame frame = { 0 };
	attack_hello(script, &frame);
	say(script, *fd, &frame);
}

static void event(struct script *script)
{
	unsigned which = script_byte(script), connection = (which >> 4) % CONNECTIONS;
	struct attack_frame frame = { 0 };
	which &= 15;
	if (which < 3)
		connect_or_close(script, connection);
	else if (attack_says(script, which, &frame)) {
		if (which == 5)
			pack(script, &frame);
		say(script, fds[connection], &frame);
	} else if (which == 11)
		raw(script, fds[connection]);
	else if (which == 12 || which == 13)
		attack_ours(script);
	else
		live_turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < ATTACK_SCRIPT_MAX ? size : ATTACK_SCRIPT_MAX };
	if (port < 0) {
		port = port_open(address);
		live_start(false);
		attack.address = address;
	}
	if (attack_knows(data, size))
		return 0;
	growth_begin();
	for (unsigned i = 0; i < CONNECTIONS; i++)
		fds[i] = -1;
	attack_begin(script_byte(&script));
	while (script.left > 0)
		event(&script);
	live_turns();
	live_end(&attack.worker, sweep);
	growth_check();
	return 0;
}
