/* What a client says in HTTP/2, near the truth: calls, parts of calls, frames of every kind, alone or in masses. Each says so in a few bytes of the script;
 * bytes that are 0 are right. Static.
 */
#ifndef TR_TESTS_FUZZ_API_WORDS_H
#define TR_TESTS_FUZZ_API_WORDS_H

#include "common/limits.h"
#include "tests/fuzz/port_end.h"

#define WORDS_PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define WORDS_HEAD_BYTES  9
#define WORDS_FRAME_BYTES 16384 /* the most that a frame may have */
#define WORDS_BLOCK_BYTES (96u << 10)

enum words_kind {
	WORDS_DATA,
	WORDS_HEADERS,
	WORDS_PRIORITY,
	WORDS_RESET,
	WORDS_SETTINGS,
	WORDS_PUSH,
	WORDS_PING,
	WORDS_GOAWAY,
	WORDS_WINDOW,
	WORDS_CONTINUATION,
};
#define WORDS_END      1 /* flags */
#define WORDS_COMPLETE 4
#define WORDS_PADDED   8

struct words_frame {
	uint8_t kind, flags;
	uint32_t stream;
	size_t bytes;
	const uint8_t *payload;
};

struct words_method {
	const char *path;
	size_t bytes;
	uint8_t request[16]; /* a good one */
};

static const struct words_method words_methods[] = {
	{ "/traind.v1.Trainer/ListNodes", 0, { 0 } },
	{ "/traind.v1.Trainer/GetJob", 2, { 0x08, 1 } },
	{ "/traind.v1.Trainer/ListJobs", 0, { 0 } },
	{ "/traind.v1.Trainer/SubmitJob", 13,
	    { 0x0a, 1, 'r', 0x12, 8, 0x0a, 1, 'a', 0x1a, 3, 0x0a, 1, 'x' } },
	{ "/traind.v1.Trainer/CancelJob", 5, { 0x08, 1, 0x12, 1, 'w' } },
	{ "/traind.v1.Trainer/WatchJob", 2, { 0x08, 2 } },
	{ "/traind.v1.Trainer/StreamLogs", 4, { 0x08, 1, 0x10, 1 } },
	{ "/traind.v1.Trainer/StreamLogs", 2, { 0x08, 3 } },
	{ "/traind.v1.Trainer/GetSamples", 2, { 0x08, 1 } },
	{ "/traind.v1.Trainer/MeasureLinks", 2, { 0x1a, 0 } },
	{ "/traind.v1.Trainer/ListLinks", 0, { 0 } },
	{ "/grpc.health.v1.Health/Check", 0, { 0 } },
	{ "/grpc.health.v1.Health/Watch", 3, { 0x0a, 1, 'x' } },
	{ "/grpc.health.v1.Health/Watch", 0, { 0 } },
	{ "/traind.v1.Trainer/Nothing", 3, { 0xff, 0xff, 0xff } },
	{ "x", 1, { 0x08 } },
};
#define WORDS_METHODS (sizeof(words_methods) / sizeof(words_methods[0]))

/* ---- frames */

static void words_head(const struct words_frame *frame, uint8_t head[WORDS_HEAD_BYTES])
{
	head[0] = (uint8_t)(frame->bytes >> 16);
	head[1] = (uint8_t)(frame->bytes >> 8);
	head[2] = (uint8_t)frame->bytes;
	head[3] = frame->kind;
	head[4] = frame->flags;
	for (unsigned i = 0; i < 4; i++)
		head[5 + i] = (uint8_t)(frame->stream >> (24 - 8 * i));
}

/* A byte decides which field of it is wrong, if one is. */
static void words_put(struct port_end *end, struct words_frame frame)
{
	static uint8_t whole[WORDS_HEAD_BYTES + WORDS_FRAME_BYTES];
	struct script *script = &port.script;
	uint8_t odd = script_byte(script);
	size_t bytes = frame.bytes;
	if (bytes > 0)
		memcpy(whole + WORDS_HEAD_BYTES, frame.payload, bytes);
	if (odd >= 224) {
		uint64_t value = script_about(script, odd % 4 == 0 ? frame.bytes : frame.stream);
		if (odd % 4 == 0)
			frame.bytes = value & 0xffffff;
		else if (odd % 4 == 1)
			frame.stream = (uint32_t)value;
		else if (odd % 4 == 2)
			frame.kind = script_byte(script);
		else
			frame.flags = script_byte(script);
	} else if (odd >= 208 && bytes > 0) {
		whole[WORDS_HEAD_BYTES + script_byte(script) % bytes] = script_byte(script);
	}
	words_head(&frame, whole);
	port_say(end, whole, WORDS_HEAD_BYTES + bytes);
}

/* ---- headers (RFC 7541): literals without indexing */

static struct {
	size_t bytes;
	uint8_t at[WORDS_BLOCK_BYTES];
} words_block;

static void words_string(const char *text, size_t length)
{
	uint8_t *at = words_block.at + words_block.bytes;
	size_t rest = length;
	if (length + 8 > sizeof(words_block.at) - words_block.bytes)
		return;
	if (rest < 127) {
		*at++ = (uint8_t)rest;
	} else {
		*at++ = 127;
		for (rest -= 127; rest >= 128; rest >>= 7)
			*at++ = (uint8_t)(rest | 128);
		*at++ = (uint8_t)rest;
	}
	memcpy(at, text, length);
	words_block.bytes = (size_t)(at - words_block.at) + length;
}

static void words_field(const char *name, const char *value)
{
	words_block.at[words_block.bytes++] = 0;
	words_string(name, strlen(name));
	words_string(value, strlen(value));
}

/* Many, or a few that are large. */
static void words_more_fields(struct script *script)
{
	static char text[16384];
	unsigned count = 1 + script_byte(script) % 64;
	size_t length = (script_byte(script) + 1u) * 16;
	memset(text, 'v', length);
	for (unsigned i = 0; i < count && words_block.bytes + length + 64 < sizeof(words_block.at);
	     i++) {
		words_block.at[words_block.bytes++] = script->left % 2 == 0 ? 0 : 0x40; /* kept */
		words_string("x-more", 6);
		words_string(text, length - 1);
	}
}

static void words_head_of(struct script *script, const char *path)
{
	static const char *const timeouts[] = { "0n", "1m", "50m", "2S", "99999999H", "x",
		"123456789m", "" };
	static const char *const types[] = { "application/grpc+proto", "application/grpc+json",
		"application/grpc;x", "text/html" };
	uint8_t odd = script_byte(script);
	unsigned which = odd < 128 ? 0 : odd % 16;
	words_block.bytes = 0;
	words_field(":method", which == 1 ? "GET" : "POST");
	if (which != 2)
		words_field(":scheme", "http");
	if (which != 3)
		words_field(":path", path);
	words_field(":authority", "fuzz");
	if (which != 4)
		words_field("te", which == 5 ? "gzip" : "trailers");
	if (which != 6)
		words_field("content-type",
		    which == 7 ? types[script_byte(script) % 4] : "application/grpc");
	if (which == 8)
		words_field("grpc-encoding", odd % 32 < 16 ? "gzip" : "identity");
	if (which >= 9 && which <= 11)
		words_field("grpc-timeout", timeouts[script_byte(script) % 8]);
	if (which == 12)
		words_more_fields(script);
	if (which == 13)
		words_field("Bad Name", "\x01");
	if (which == 14)
		words_field(":path", "/twice");
	if (which == 15)
		words_field("connection", "close");
}

/* In one frame, or cut into as many as a byte says. */
static void words_say_block(struct port_end *end, uint32_t stream, uint8_t flags)
{
	uint8_t how = script_byte(&port.script);
	size_t piece = how < 192 ? WORDS_FRAME_BYTES : (how - 191u) * 8;
	const uint8_t *at = words_block.at;
	size_t left = words_block.bytes;
	for (bool first = true; first || left > 0; first = false) {
		size_t now = left < piece ? left : piece;
		uint8_t complete = now == left ? WORDS_COMPLETE : 0;
		words_put(end,
		    (struct words_frame){ .kind = first ? WORDS_HEADERS : WORDS_CONTINUATION,
		        .flags = (uint8_t)(complete | (first ? flags : 0)),
		        .stream = stream,
		        .bytes = now,
		        .payload = at });
		at += now;
		left -= now;
		port_run();
	}
}

static const struct words_method *words_method(uint8_t which)
{
	return &words_methods[which % WORDS_METHODS];
}

/* A new stream, or one that is there. */
static uint32_t words_stream(struct port_end *end, bool opens)
{
	uint64_t right = end->last;
	if (opens) {
		right = end->next;
		end->next += 2;
	}
	end->last = (uint32_t)script_about(&port.script, right);
	return end->last;
}

static void words_say_headers(struct port_end *end, const struct words_method *method, uint8_t flags)
{
	char path[512] = { 0 }; /* longer than is allowed, if a byte says so */
	memset(path, '.', script_byte(&port.script) < 240 ? 0 : TR_GRPC_PATH_MAX + 20);
	memcpy(path, method->path, strlen(method->path));
	words_head_of(&port.script, path);
	words_say_block(end, words_stream(end, true), flags);
}

/* ---- messages */

/* So many bytes behind a prefix that says so, or something near that. */
static void words_say_message(struct port_end *end, const uint8_t *message, size_t bytes,
    uint8_t flags)
{
	static uint8_t whole[5 + 1024];
	struct script *script = &port.script;
	uint64_t says = script_about(script, bytes);
	uint8_t odd = script_byte(script);
	whole[0] = odd < 224 ? 0 : odd % 4;
	for (unsigned i = 0; i < 4; i++)
		whole[1 + i] = (uint8_t)(says >> (24 - 8 * i));
	if (bytes > 0)
		memcpy(whole + 5, message, bytes);
	words_put(end, (struct words_frame){ WORDS_DATA, flags, end->last, 5 + bytes, whole });
}

static void words_say_body(struct port_end *end, const struct words_method *method)
{
	struct script *script = &port.script;
	uint8_t how = script_byte(script), other[256];
	size_t bytes = how % 64;
	uint8_t flags = how >= 248 ? 0 : WORDS_END;
	if (how < 128) {
		words_say_message(end, method->request, method->bytes, flags);
		return;
	}
	for (size_t i = 0; i < bytes; i++)
		other[i] = script_byte(script);
	words_say_message(end, other, bytes, flags);
}

/* A long one, as fast as the windows open, or faster. */
static void words_say_long(struct port_end *end)
{
	static uint8_t piece[WORDS_FRAME_BYTES];
	struct script *script = &port.script;
	size_t left = (script_byte(script) + 1u) * (size_t)18000; /* up to more than is allowed */
	size_t frame = (script_byte(script) + 1u) * 64;
	uint8_t head[WORDS_HEAD_BYTES];
	uint64_t says = script_about(script, left);
	piece[0] = 0;
	for (unsigned i = 0; i < 4; i++)
		piece[1 + i] = (uint8_t)(says >> (24 - 8 * i));
	left += 5;
	while (left > 0 && port_is_open(end) && port_works(1)) {
		size_t now = left < frame ? left : frame;
		words_head(&(struct words_frame){ WORDS_DATA, now == left ? WORDS_END : 0,
		               end->last, now, NULL },
		    head);
		port_put(end, &port.none, head, sizeof(head));
		port_put(end, &port.none, piece, now);
		memset(piece, 0, 5);
		left -= now;
		port_run();
		if (end->reads)
			(void)port_turn(end, &port.none, NULL, 0);
	}
}

static void words_say_call(struct port_end *end, const struct words_method *method)
{
	words_say_headers(end, method, 0);
	words_say_body(end, method);
}

/* As many good ones at once as a byte says; what a byte more says happens to each. */
static void words_say_calls(struct port_end *end)
{
	struct script *script = &port.script;
	struct script quiet = { NULL, 0 };
	const struct words_method *method = words_method(script_byte(script));
	unsigned count = 1 + script_byte(script);
	uint8_t then = script_byte(script) % 8, code[4] = { 0, 0, 0, 8 };
	struct script kept = *script;
	*script = quiet;
	for (unsigned i = 0; i < count && port_is_open(end) && port_works(16); i++) {
		words_say_headers(end, method, then == 1 ? WORDS_END : 0);
		if (then != 1 && then != 2)
			words_say_body(end, method);
		if (then == 3)
			words_put(end, (struct words_frame){ WORDS_RESET, 0, end->last, 4, code });
		if (i % 8 == 7) {
			port_run();
			if (end->reads)
				(void)port_turn(end, &port.none, NULL, 0);
		}
	}
	*script = kept;
}

/* ---- everything else */

static void words_number(uint8_t out[4], uint64_t number)
{
	for (unsigned i = 0; i < 4; i++)
		out[i] = (uint8_t)(number >> (24 - 8 * i));
}

static size_t words_settings(struct script *script, uint8_t out[6 * 8])
{
	unsigned count = script_byte(script) % 8;
	for (unsigned i = 0; i < count; i++) {
		uint8_t which = script_byte(script);
		static const uint32_t values[] = { 0, 1, 65535, 0x7fffffff, 0x80000000, 16384, 100,
			4096 };
		out[6 * i] = 0;
		out[6 * i + 1] = which % 8;
		words_number(out + 6 * i + 2, values[which / 8 % 8]);
	}
	return 6 * (size_t)count;
}

/* What a client begins with, settings as the script has them; `wide`: without any of its own it lets much come, as most do. */
static void words_greet(struct port_end *end, bool wide)
{
	static const char windows[] = "\0\0\6\4\0\0\0\0\0\0\4\x7f\xff\xff\xff" /* of each call */
	                              "\0\0\4\x8\0\0\0\0\0\x7f\xff\0\0";       /* of all */
	uint8_t settings[6 * 8];
	port_put(end, &port.none, WORDS_PREFACE, strlen(WORDS_PREFACE));
	size_t bytes = words_settings(&port.script, settings);
	words_put(end, (struct words_frame){ WORDS_SETTINGS, 0, 0, bytes, settings });
	if (bytes == 0 && wide)
		port_put(end, &port.none, windows, sizeof(windows) - 1);
}

/* One of any kind, as often as a byte says. */
static void words_say_frame(struct port_end *end)
{
	static const uint8_t bytes[] = { 0, 0, 5, 4, 0, 4, 8, 8, 4, 1, 3 };
	struct script *script = &port.script;
	uint8_t kind = script_byte(script) % 11, payload[64] = { 0 };
	struct words_frame frame = { .kind = kind, .bytes = bytes[kind], .payload = payload };
	unsigned count = 1;
	if (kind == WORDS_SETTINGS)
		frame.bytes = words_settings(script, payload);
	else if (kind == WORDS_WINDOW)
		words_number(payload, script_about(script, 65535));
	else if (frame.bytes >= 4)
		words_number(payload,
		    script_about(script, kind == WORDS_RESET ? 8 : kind != WORDS_GOAWAY));
	if (kind < WORDS_SETTINGS || kind == WORDS_CONTINUATION ||
	    (kind == WORDS_WINDOW && script_byte(script) % 2 != 0))
		frame.stream = words_stream(end, false);
	count += script_byte(script);
	for (unsigned i = 0; i < count * count / 64 + 1 && port_is_open(end) && port_works(1); i++) {
		words_put(end, frame);
		if (i % 32 == 31)
			port_run();
	}
}

#endif
