/* memberd, played: the port that a member or a node dials, one connection of it, and what a script says there (memberd_words.h). Static. */
#ifndef TR_TESTS_FUZZ_MEMBERD_LINK_H
#define TR_TESTS_FUZZ_MEMBERD_LINK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/host.h"
#include "proto/frame.h"
#include "tests/fuzz/memberd_words.h"
#include "tests/fuzz/one_thread.h"
#include "tests/fuzz/port.h"

#define OUT_MAX ((size_t)8 << 20)
#define IN_MAX  ((size_t)256 << 10)

static struct {
	int port, link; /* link: the process' connection */
	char address[PORT_ADDRESS_BYTES];
	struct script script;
	uint8_t *out, *in;
	size_t out_from, out_bytes, in_bytes;
	void (*tell_others)(void); /* what the script's event 14 does; may be NULL */
	bool told;                 /* what the process is called */
	char me[TR_ADDRESS_MAX], local[TR_ADDRESS_MAX], host[HOST_IDENTITY_MAX];
	unsigned long heard[32]; /* kinds of messages */
} memberd = { .link = -1 };

/* ---- memberd's connection */

static void hang_up(bool now)
{
	struct linger at_once = { .l_onoff = 1 };
	if (memberd.link < 0)
		return;
	if (now)
		(void)setsockopt(memberd.link, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	(void)close(memberd.link);
	memberd.link = -1;
	memberd.told = false;
	memberd.out_from = memberd.out_bytes = memberd.in_bytes = 0;
}

static void flush(void)
{
	while (memberd.link >= 0 && memberd.out_from < memberd.out_bytes) {
		ssize_t n = send(memberd.link, memberd.out + memberd.out_from,
		    memberd.out_bytes - memberd.out_from, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			return;
		memberd.out_from += (size_t)n;
	}
	memberd.out_from = memberd.out_bytes = 0;
}

static void put(const void *bytes, size_t count)
{
	if (memberd.link < 0 || count > OUT_MAX - memberd.out_bytes)
		return;
	memcpy(memberd.out + memberd.out_bytes, bytes, count);
	memberd.out_bytes += count;
	flush();
}

/* ---- what the process says */

static void take_hello(const Traind__Peer__NodeHello *hello)
{
	memberd.told = true;
	(void)snprintf(memberd.me, sizeof(memberd.me), "%s", hello->address);
	(void)snprintf(memberd.local, sizeof(memberd.local), "%s", hello->local_address);
	(void)snprintf(memberd.host, sizeof(memberd.host), "%s", hello->host);
	one.ports[2] = (uint16_t)atoi(strrchr(hello->address, ':') + 1);
}

static void hear(const uint8_t *payload, size_t bytes)
{
	Traind__Peer__ToMember *said = traind__peer__to_member__unpack(NULL, bytes, payload);
	if (said == NULL)
		live_die("it says what is no message");
	memberd.heard[said->body_case % 32]++;
	if (said->body_case == TRAIND__PEER__TO_MEMBER__BODY_HELLO)
		take_hello(said->hello);
	if (said->body_case == TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS)
		for (size_t i = 0; i < said->round_commits->n_rounds; i++)
			if (said->round_commits->rounds[i]->round > truth.round)
				truth.round = said->round_commits->rounds[i]->round;
	bool leaves = said->body_case == TRAIND__PEER__TO_MEMBER__BODY_NODE_LEAVE;
	traind__peer__to_member__free_unpacked(said, NULL);
	if (leaves)
		hang_up(false);
}

/* All of what it says is right, whatever it was told. */
static void listen_to_it(void)
{
	if (memberd.link < 0)
		return;
	ssize_t n = recv(memberd.link, memberd.in + memberd.in_bytes, IN_MAX - memberd.in_bytes,
	    MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
		hang_up(true);
		return;
	}
	memberd.in_bytes += n > 0 ? (size_t)n : 0;
	size_t at = memberd.told ? 0 : FRAME_GREETING_BYTES;
	if (memberd.in_bytes >= at && memcmp(memberd.in, FRAME_GREETING, at) != 0) {
		hang_up(true); /* it takes us for a relay */
		return;
	}
	struct frame_header header;
	while (memberd.in_bytes >= at + FRAME_HEADER_BYTES) {
		if (frame_header_get(memberd.in + at, &header, NULL) != TR_OK)
			live_die("it says what is no frame");
		if (memberd.in_bytes < at + FRAME_HEADER_BYTES + header.length)
			break;
		hear(memberd.in + at + FRAME_HEADER_BYTES, header.length);
		if (memberd.link < 0)
			return;
		at += FRAME_HEADER_BYTES + header.length;
	}
	if (!memberd.told)
		return; /* the greeting is not whole */
	memmove(memberd.in, memberd.in + at, memberd.in_bytes - at);
	memberd.in_bytes -= at;
	if (memberd.in_bytes == IN_MAX)
		hang_up(true); /* more than memberd would take */
}

/* ---- what memberd says */

/* In a frame, mostly; changed in places or lied about as the script wants it. */
static void say(struct script *script, uint8_t *word, size_t bytes)
{
	struct frame_header header = { .length = (uint32_t)bytes, .type = FRAME_TO_NODE };
	uint8_t *payload = word + FRAME_HEADER_BYTES, how = script_byte(script);
	size_t whole = FRAME_HEADER_BYTES + bytes, times = 1;
	if (how >= 128 && how < 176 && bytes > 0)
		payload[script_about(script, how - 128) % bytes] ^= (uint8_t)(1 +
		    script_byte(script));
	else if (how >= 176 && how < 192)
		header.length = (uint32_t)(bytes = bytes * (how - 176) / 16);
	else if (how >= 192 && how < 208)
		header.length = (uint32_t)script_about(script, bytes + how - 191);
	else if (how >= 208 && how < 216)
		header.type = (uint16_t)(how - 208);
	else if (how >= 216 && how < 232)
		whole = whole * (how - 216) / 16;
	else if (how >= 232)
		times = (size_t)1 << (how - 232) % 16;
	frame_header_put(&header, word);
	if (how >= 176 && how < 192)
		whole = FRAME_HEADER_BYTES + bytes;
	for (size_t i = 0; i < times; i++)
		put(word, whole);
}

static void raw(struct script *script, bool framed)
{
	uint8_t word[FRAME_HEADER_BYTES + 255];
	size_t bytes = script_byte(script);
	bytes = bytes < script->left ? bytes : script->left;
	memcpy(word + FRAME_HEADER_BYTES, script->at, bytes);
	script->at += bytes;
	script->left -= bytes;
	if (framed)
		say(script, word, bytes);
	else
		put(word + FRAME_HEADER_BYTES, bytes);
}

static void word(struct script *script, unsigned which)
{
	static uint8_t bytes[FRAME_HEADER_BYTES + WORDS_MAX];
	static size_t (*const kinds[])(struct script *, uint8_t *) = { words_welcome, words_joined,
		words_install, words_propose, words_recorded, words_duties, words_end, words_node };
	size_t count = kinds[which](script, bytes + FRAME_HEADER_BYTES);
	say(script, bytes, count);
}

static void event(struct script *script)
{
	uint8_t what = script_byte(script);
	switch (what & 15) {
	case 8:
		truth.view++;
		break;
	case 9:
		raw(script, true);
		break;
	case 10:
		raw(script, false);
		break;
	case 11:
		hang_up(what & 16);
		break;
	case 12:
		if (memberd.link >= 0)
			(void)shutdown(memberd.link, SHUT_WR);
		break;
	case 13:
		if (what & 128)
			one.still = 16;
		else
			one.now_ns += (uint64_t)(what >> 4) * 40000000;
		break;
	case 14:
		if (memberd.tell_others != NULL)
			memberd.tell_others();
		break;
	case 15:
		break; /* a turn in which it is silent */
	default:
		word(script, what & 7);
	}
}

/* ---- its turn */

static void memberd_start(void)
{
	memberd.out = malloc(OUT_MAX);
	memberd.in = malloc(IN_MAX);
	if (memberd.out == NULL || memberd.in == NULL)
		live_die("no memory");
	memberd.port = port_open(memberd.address);
	one.ports[0] = (uint16_t)atoi(strrchr(memberd.address, ':') + 1);
}

/* false: the script is over, or waits for a hello. */
static bool memberd_turn(void)
{
	listen_to_it();
	int dialled = port_dialled(memberd.port);
	if (memberd.link < 0)
		memberd.link = dialled;
	else if (dialled >= 0)
		(void)close(dialled); /* a relay is asked for here, or waited at */
	flush();
	if (memberd.script.left == 0 || !memberd.told)
		return false;
	event(&memberd.script);
	return true;
}

static void memberd_close(void)
{
	memberd.script.left = 0;
	hang_up(true);
	for (int fd = port_dialled(memberd.port); fd >= 0; fd = port_dialled(memberd.port))
		(void)close(fd);
}

#endif
