/* proto/frame.c: round trips, limits, and every single-bit error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/limits.h"
#include "proto/bytes.h"
#include "proto/frame.h"

static void round_trip(void **state)
{
	(void)state;
	static const struct frame_header cases[] = {
		{ 0, FRAME_TO_MEMBER },
		{ TR_FRAME_CONTROL_MAX, FRAME_TO_NODE },
		{ 1, FRAME_PEER },
		{ TR_FRAME_DATA_MAX, FRAME_SEGMENT },
		{ 24, FRAME_STATE },
		{ TR_FRAME_DATA_MAX, FRAME_PACKED },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t bytes[FRAME_HEADER_BYTES];
		struct frame_header got;
		frame_header_put(&cases[i], bytes);
		assert_int_equal(frame_header_get(bytes, &got, NULL), TR_OK);
		assert_int_equal(got.length, cases[i].length);
		assert_int_equal(got.type, cases[i].type);
	}
}

static void layout(void **state)
{
	(void)state;
	uint8_t bytes[FRAME_HEADER_BYTES];
	frame_header_put(&(struct frame_header){ 0x010203, FRAME_SEGMENT }, bytes);
	static const uint8_t want[] = { 3, 2, 1, 0, FRAME_SEGMENT, 0 };
	assert_memory_equal(bytes, want, sizeof(want));
}

static void over_the_limit(void **state)
{
	(void)state;
	static const struct frame_header cases[] = {
		{ TR_FRAME_CONTROL_MAX + 1, FRAME_TO_MEMBER },
		{ TR_FRAME_DATA_MAX + 1, FRAME_SEGMENT },
		{ UINT32_MAX, FRAME_STATE },
		{ 0, 0 },
		{ 0, FRAME_PACKED + 1 },
		{ 0, UINT16_MAX },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t bytes[FRAME_HEADER_BYTES];
		struct frame_header got;
		struct tr_error error;
		frame_header_put(&cases[i], bytes);
		assert_int_equal(frame_header_get(bytes, &got, &error), TR_EPROTO);
		assert_int_equal(error.status, TR_EPROTO);
	}
}

static void every_flipped_bit_is_noticed(void **state)
{
	(void)state;
	struct frame_header header = { 4096, FRAME_SEGMENT }, got;
	for (unsigned bit = 0; bit < FRAME_HEADER_BYTES * 8; bit++) {
		uint8_t bytes[FRAME_HEADER_BYTES];
		frame_header_put(&header, bytes);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(frame_header_get(bytes, &got, NULL), TR_EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(layout),
		cmocka_unit_test(over_the_limit),
		cmocka_unit_test(every_flipped_bit_is_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
