/* Frames that are packed for a long way: they come as they were, are dropped like others, and cannot be forged. */
#include "tests/unit/lane_tcp_fixture.h"

#include "common/rng.h"

/* Bytes as a codec makes them: of a few values most. */
static uint8_t *make_codes(void)
{
	uint8_t *codes = malloc(BODY);
	assert_non_null(codes);
	for (size_t i = 0; i < BODY; i++) {
		uint64_t random = rng_u64(rng_key(1, 0, 0), 0, i);
		codes[i] = (uint8_t)(random % 11 * (random / 11 % 23));
	}
	return codes;
}

/* Head and body, one behind the other. */
static uint8_t *make_frame(const uint8_t *body, size_t bytes)
{
	const struct segment_header header = { .view = 3,
		.kind = SEGMENT_SEALED,
		.bytes = (uint32_t)bytes };
	uint8_t *frame = malloc(SEGMENT_HEADER_BYTES + bytes);
	assert_non_null(frame);
	segment_header_put(&header, frame);
	memcpy(frame + SEGMENT_HEADER_BYTES, body, bytes);
	return frame;
}

static tr_status send_to_pack(struct fixture *f, const uint8_t *frame, size_t bytes)
{
	const struct lane_send send = { FRAME_SEGMENT, frame, SEGMENT_HEADER_BYTES,
		frame + SEGMENT_HEADER_BYTES, bytes, on_released, &f->a, .pack = &f->pace };
	return lane_send(f->a.lane, &send);
}

static void a_packed_frame_comes_as_it_was(void **state)
{
	struct fixture f;
	struct lane_counters out, before;
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	(void)state;
	start(&f, NULL);
	f.b.park = 3; /* offered again, and unpacked once */
	f.b.marks = true;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	run_until(&f, &f.b.small, 4);
	assert_true(f.b.sum == 4 * sum_of(frame, SEGMENT_HEADER_BYTES + BODY));
	assert_int_equal(f.a.released, 4);
	assert_int_equal(f.a.dropped, 0);
	assert_int_equal(f.b.places, 0);
	assert_int_equal(f.b.marked, 3);
	assert_true(f.pace.bytes > 0 && f.pace.ns > 0);
	f.b.marks = false;
	lane_counters(f.a.lane, &out);
	assert_in_range(out.bytes_out, BODY, 4 * BODY * 9 / 10);
	/* What packing would not make smaller goes as it is. */
	for (size_t i = 0; i < BODY; i++)
		frame[SEGMENT_HEADER_BYTES + i] = (uint8_t)rng_u64(rng_key(2, 0, 0), 0, i);
	before = out;
	assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	run_until(&f, &f.b.frames, 1);
	assert_int_equal(f.b.places, 1);
	lane_counters(f.a.lane, &out);
	assert_int_equal(out.bytes_out - before.bytes_out,
	    FRAME_HEADER_BYTES + SEGMENT_HEADER_BYTES + BODY);
	stop(&f);
	free(codes);
	free(frame);
}

static void packed_bodies_are_dropped_like_others(void **state)
{
	struct fixture f;
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	(void)state;
	start(&f, NULL);
	for (unsigned i = 0; i < FRAMES; i++) /* more than the kernel takes while nobody reads */
		assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	lane_drop_borrowed(f.a.lane);
	assert_int_equal(f.a.released, FRAMES);
	assert_true(f.a.dropped > 0 && f.a.dropped < FRAMES);
	run_until(&f, &f.b.small, FRAMES - f.a.dropped);
	assert_true(f.b.sum == (FRAMES - f.a.dropped) * sum_of(frame, SEGMENT_HEADER_BYTES + BODY));
	f.b.park = UINT32_MAX;
	for (unsigned i = 0; i < FRAMES; i++)
		assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	while (!f.b.parked)
		(void)uv_run(&f.loop, UV_RUN_ONCE);
	lane_close(f.a.lane, "over"); /* with some under way, and one that was not taken yet */
	f.b.parked = false;
	run_until(&f, &f.a.closed, 1);
	assert_int_equal(f.a.released, 2 * FRAMES);
	stop(&f);
	free(codes);
	free(frame);
}

static void a_frame_that_was_not_packed_so_closes_the_lane(void **state)
{
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	struct packing_packed *packed = packing_pack(codes, BODY);
	const struct {
		const char *what;
		size_t bytes;     /* of head and packed body together */
		uint32_t claimed; /* by the head */
	} cases[] = {
		{ "half a head", SEGMENT_HEADER_BYTES / 2, BODY },
		{ "a body that is cut off", SEGMENT_HEADER_BYTES + packed->count - 1, BODY },
		{ "less than it says", SEGMENT_HEADER_BYTES + packed->count, BODY + 1 },
		{ "more than it says", SEGMENT_HEADER_BYTES + packed->count, BODY - 1 },
		{ "more than a frame holds", SEGMENT_HEADER_BYTES + packed->count, UINT32_MAX },
	};
	(void)state;
	memcpy(frame + SEGMENT_HEADER_BYTES, packed->bytes, packed->count);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture f;
		const struct segment_header header = { .kind = SEGMENT_SEALED,
			.bytes = cases[i].claimed };
		segment_header_put(&header, frame);
		start(&f, NULL);
		const struct lane_send send = { FRAME_PACKED, NULL, 0, frame, cases[i].bytes, NULL,
			NULL, .pack = NULL };
		assert_int_equal(lane_send(f.a.lane, &send), TR_OK);
		run_until(&f, &f.b.closed, 1);
		if (strstr(f.b.reason, "bad packed segment: ") == NULL)
			fail_msg("%s: closed with '%s'", cases[i].what, f.b.reason);
		assert_int_equal(f.b.small + f.b.frames, 0);
		stop(&f);
	}
	free(packed);
	free(codes);
	free(frame);
}

static void a_packed_frame_of_a_stranger_is_not_unpacked(void **state)
{
	struct fixture f;
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	(void)state;
	start(&f, NULL);
	f.b.lane->known = false;
	assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	run_until(&f, &f.b.closed, 1);
	assert_non_null(strstr(f.b.reason, "before it is known who sends"));
	stop(&f);
	free(codes);
	free(frame);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packed_frame_comes_as_it_was),
		cmocka_unit_test(packed_bodies_are_dropped_like_others),
		cmocka_unit_test(a_frame_that_was_not_packed_so_closes_the_lane),
		cmocka_unit_test(a_packed_frame_of_a_stranger_is_not_unpacked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
