/* proto/segment.c: round trips, the layout, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/coll.h"
#include "proto/bytes.h"
#include "proto/segment.h"

static struct segment_header sample(void)
{
	struct segment_header header = {
		.view = 0x1122334455667788,
		.round = 9,
		.attempt = 7,
		.tag = 3,
		.segment = 2,
		.signature = { .count = 5000,
		    .dtype = TR_F32,
		    .reduce = TR_AVG,
		    .codec = 2,
		    .collective = TR_BROADCAST,
		    .root = 3,
		    .algorithm = TR_DIRECT },
		.kind = SEGMENT_SEALED,
		.encoding = SEGMENT_ENCODED,
		.elements = 10,
		.bytes = 40,
	};
	header.contributors[0] = 0x07;
	header.contributors[31] = 0x80;
	return header;
}

static void round_trip(void **state)
{
	(void)state;
	struct segment_header header = sample(), got;
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	memset(bytes, 0xff, sizeof(bytes));
	segment_header_put(&header, bytes);
	assert_int_equal(segment_header_get(bytes, sizeof(bytes) + 40, &got, NULL), TR_OK);
	assert_int_equal(got.view, header.view);
	assert_int_equal(got.round, header.round);
	assert_int_equal(got.attempt, header.attempt);
	assert_int_equal(got.tag, header.tag);
	assert_int_equal(got.segment, header.segment);
	assert_int_equal(got.signature.count, header.signature.count);
	assert_int_equal(got.signature.dtype, header.signature.dtype);
	assert_int_equal(got.signature.reduce, header.signature.reduce);
	assert_int_equal(got.signature.codec, header.signature.codec);
	assert_int_equal(got.signature.collective, header.signature.collective);
	assert_int_equal(got.signature.root, header.signature.root);
	assert_int_equal(got.signature.algorithm, header.signature.algorithm);
	assert_int_equal(got.kind, header.kind);
	assert_int_equal(got.encoding, header.encoding);
	assert_int_equal(got.bytes, header.bytes);
	assert_int_equal(got.elements, header.elements);
	assert_memory_equal(got.contributors, header.contributors, sizeof(got.contributors));
	uint8_t again[SEGMENT_HEADER_BYTES];
	segment_header_put(&got, again);
	assert_memory_equal(again, bytes, sizeof(bytes));
}

static void layout(void **state)
{
	(void)state;
	struct segment_header header = sample();
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	segment_header_put(&header, bytes);
	assert_int_equal(bytes_get_u64(bytes), header.view);
	assert_int_equal(bytes_get_u64(bytes + 8), 9);
	assert_int_equal(bytes_get_u64(bytes + 16), 7);
	assert_int_equal(bytes_get_u32(bytes + 24), 3);
	assert_int_equal(bytes_get_u32(bytes + 28), 2);
	assert_int_equal(bytes_get_u64(bytes + 32), 5000);
	assert_int_equal(bytes[40], TR_F32);
	assert_int_equal(bytes[41], TR_AVG);
	assert_int_equal(bytes[42], 2);
	assert_int_equal(bytes[43], TR_BROADCAST);
	assert_int_equal(bytes_get_u32(bytes + 44), 3);
	assert_int_equal(bytes[48], TR_DIRECT);
	assert_int_equal(bytes[49], SEGMENT_SEALED);
	assert_int_equal(bytes[50], SEGMENT_ENCODED);
	assert_int_equal(bytes_get_u32(bytes + 52), 10);
	assert_int_equal(bytes_get_u32(bytes + 56), 40);
	assert_int_equal(bytes[64], 7);
	assert_int_equal(bytes[95], 0x80);
}

static void holds_what_it_says(void **state)
{
	(void)state;
	struct segment_header header = sample(), got;
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	segment_header_put(&header, bytes);
	size_t right = sizeof(bytes) + header.bytes;
	assert_int_equal(segment_header_get(bytes, right, &got, NULL), TR_OK);
	assert_int_equal(segment_header_get(bytes, right - 1, &got, NULL), TR_EPROTO);
	assert_int_equal(segment_header_get(bytes, right + 1, &got, NULL), TR_EPROTO);
}

static void refused(void **state)
{
	(void)state;
	struct segment_header header = sample(), got;
	uint8_t good[SEGMENT_HEADER_BYTES], bytes[SEGMENT_HEADER_BYTES];
	segment_header_put(&header, good);
	static const struct {
		size_t at;
		uint8_t value;
	} bad[] = {
		{ 31, 1 },
		{ 40, 0 },
		{ 40, 8 },
		{ 41, 0 },
		{ 41, 6 },
		{ 42, 6 },
		{ 43, 7 },
		{ 45, 1 },
		{ 48, 6 },
		{ 49, 0 },
		{ 49, 5 },
		{ 50, 3 },
		{ 54, 1 },
		{ 56, 41 },
		{ 60, 1 }, /* which of nobody */
		{ 61, 1 },
		{ 62, 1 },
		{ 63, 1 },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memcpy(bytes, good, sizeof(bytes));
		bytes[bad[i].at] = bad[i].value;
		assert_int_equal(segment_header_get(bytes, sizeof(bytes) + 40, &got, NULL),
		    TR_EPROTO);
	}
	for (size_t frame = 0; frame < SEGMENT_HEADER_BYTES; frame++)
		assert_int_equal(segment_header_get(good, frame, &got, NULL), TR_EPROTO);
	assert_int_equal(segment_header_get(good, TR_FRAME_DATA_MAX + 1, &got, NULL), TR_EPROTO);
	assert_int_equal(segment_header_get(good, SIZE_MAX, &got, NULL), TR_EPROTO);
}

static void scopes(void **state)
{
	(void)state;
	static const struct op_scope good[] = { { 0, 0 }, { 1, 0 }, { 255, 0xfedc } };
	struct segment_header header = { .view = 1,
		.round = 1,
		.attempt = 1,
		.signature = { .dtype = 1, .reduce = 1 },
		.kind = SEGMENT_PARTIAL },
	                      got;
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		header.signature.scope = good[i];
		segment_header_put(&header, bytes);
		assert_int_equal(segment_header_get(bytes, sizeof(bytes), &got, NULL), TR_OK);
		assert_int_equal(got.signature.scope.count, good[i].count);
		assert_int_equal(got.signature.scope.digest, good[i].digest);
	}
	header.signature.scope = (struct op_scope){ 0, 1 };
	segment_header_put(&header, bytes);
	assert_int_equal(segment_header_get(bytes, sizeof(bytes), &got, NULL), TR_EPROTO);
}

static void state_headers(void **state)
{
	(void)state;
	struct state_header header = { .round = 4, .offset = 1 << 20, .tensor = 2, .bytes = 100 },
	                    got;
	uint8_t bytes[STATE_HEADER_BYTES];
	state_header_put(&header, bytes);
	assert_int_equal(state_header_get(bytes, sizeof(bytes) + 100, &got, NULL), TR_OK);
	assert_int_equal(got.round, 4);
	assert_int_equal(got.offset, 1 << 20);
	assert_int_equal(got.tensor, 2);
	assert_int_equal(got.bytes, 100);
	assert_int_equal(state_header_get(bytes, sizeof(bytes) + 99, &got, NULL), TR_EPROTO);
	assert_int_equal(state_header_get(bytes, sizeof(bytes) - 1, &got, NULL), TR_EPROTO);
	header.offset = UINT64_MAX;
	state_header_put(&header, bytes);
	assert_int_equal(state_header_get(bytes, sizeof(bytes) + 100, &got, NULL), TR_EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(layout),
		cmocka_unit_test(holds_what_it_says),
		cmocka_unit_test(refused),
		cmocka_unit_test(scopes),
		cmocka_unit_test(state_headers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
