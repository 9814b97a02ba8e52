/* When low-communication training talks: over thousands of drawn settings each fragment is taken once a period and at the end, rounds do not
 * overlap, and what the options allow is what the schedule can keep. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/sync_internal.h"
#include "common/rng.h"
#include "tests/unit/sync_refused.h"

static struct sync_schedule drawn(uint64_t number)
{
	struct rng_key key = rng_key(7, 0, 0);
	struct sync_schedule s = { .fragments = 1 + (unsigned)rng_below(key, 1, number, 8) };

	s.period = s.fragments + rng_below(key, 2, number, 40);
	s.overlap = rng_below(key, 3, number, s.period / s.fragments + 1);
	s.steps = 1 + rng_below(key, 4, number, 300);
	return s;
}

static void rounds_do_not_overlap_and_cover_all_work(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 20000; number++) {
		struct sync_schedule s = drawn(number);
		struct sync_slot slot, before = { .merge = 0 };
		uint64_t taken[8] = { 0 }, rounds = sync_schedule_rounds(&s);
		for (uint64_t round = 1; round <= rounds; round++) {
			assert_true(sync_schedule_slot(&s, round, &slot));
			assert_true(slot.take >= before.merge && slot.merge >= slot.take);
			assert_true(slot.merge <= s.steps && slot.merge - slot.take <= s.overlap);
			assert_true(slot.merge - slot.take == s.overlap || slot.merge == s.steps);
			/* Nothing is taken twice, and no fragment waits longer than a period. */
			assert_true(slot.take > taken[slot.fragment]);
			assert_true(slot.take - taken[slot.fragment] <= s.period);
			taken[slot.fragment] = slot.take;
			before = slot;
		}
		assert_false(sync_schedule_slot(&s, rounds + 1, &slot));
		for (unsigned f = 0; f < s.fragments; f++)
			assert_int_equal(taken[f], s.steps);
	}
}

static void without_end_it_is_the_same_until_the_end(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 2000; number++) {
		struct sync_schedule s = drawn(number), endless = s;
		struct sync_slot slot, other;
		endless.steps = 0;
		assert_true(sync_schedule_rounds(&endless) == UINT64_MAX);
		for (uint64_t round = 1;
		     sync_schedule_slot(&s, round, &slot) && slot.merge < s.steps; round++) {
			assert_true(sync_schedule_slot(&endless, round, &other));
			assert_true(slot.fragment == other.fragment && slot.take == other.take &&
			    slot.merge == other.merge);
		}
	}
}

static void diloco_takes_and_merges_at_multiples_of_h(void **state)
{
	(void)state;
	struct sync_schedule s = { .steps = 25, .period = 10, .fragments = 1 };
	const uint64_t at[] = { 10, 20, 25 };
	struct sync_slot slot;

	assert_int_equal(sync_schedule_rounds(&s), 3);
	for (uint64_t round = 1; round <= 3; round++) {
		assert_true(sync_schedule_slot(&s, round, &slot));
		assert_true(slot.take == at[round - 1] && slot.merge == at[round - 1]);
	}
}

static void rounds_are_numbered_from_where_training_went_on(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 200; number++) {
		struct sync_schedule s = drawn(number), later = s;
		struct sync_slot slot, other;
		uint64_t rounds = sync_schedule_rounds(&s);
		later.before = 1 + number * number * number;
		assert_true(sync_schedule_rounds(&later) == rounds);
		assert_false(sync_schedule_slot(&later, later.before, &other));
		assert_false(sync_schedule_slot(&later, 0, &other));
		assert_false(sync_schedule_slot(&later, later.before + rounds + 1, &other));
		for (uint64_t round = 1; round <= rounds; round++) {
			assert_true(sync_schedule_slot(&s, round, &slot));
			assert_true(sync_schedule_slot(&later, later.before + round, &other));
			assert_true(slot.fragment == other.fragment && slot.take == other.take &&
			    slot.merge == other.merge);
		}
	}
}

static struct tr_sync_options mode(enum tr_sync_mode which)
{
	struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;

	o.mode = which;
	return o;
}

/* arXiv 2311.08105, 2501.18512, 2502.12996. */
static void defaults_are_the_papers(void **state)
{
	(void)state;
	struct tr_sync_options o = mode(TR_SYNC_DILOCO);
	struct tr_error error;

	assert_int_equal(tr_sync_complete(&o, 12, &error), TR_OK);
	assert_true(o.inner_steps == 500 && o.outer_lr == 0.7 && o.outer_momentum == 0.9);
	assert_true(o.fragments == 1 && o.overlap == 0 && o.alpha == 0);
	o = mode(TR_SYNC_STREAMING);
	assert_int_equal(tr_sync_complete(&o, 3, &error), TR_OK);
	assert_true(o.inner_steps == 100 && o.outer_lr == 0.4 && o.fragments == 3);
	assert_true(o.overlap == 1 && o.alpha == 0.5);
	o = mode(TR_SYNC_EAGER);
	assert_int_equal(tr_sync_complete(&o, 12, &error), TR_OK);
	assert_true(o.overlap == 500 && o.fragments == 1);
	o = mode(TR_SYNC_LOCAL_SGD);
	o.codec = TR_CODEC_INT2;
	assert_int_equal(tr_sync_complete(&o, 12, &error), TR_OK);
	assert_true(o.outer_lr == 1 && o.outer_momentum == 0 && o.feedback == 0.95);
}

static void options_that_cannot_be_are_named(void **state)
{
	(void)state;
	struct tr_sync_options base = mode(TR_SYNC_EAGER);
	SYNC_REFUSED(base, overlap, 3, "overlap: found 3, allowed: inner_steps in eager mode");
	SYNC_REFUSED(base, fragments, 2,
	    "fragments: found 2, allowed: 1 unless the mode is streaming");
	SYNC_REFUSED(base, mode, (enum tr_sync_mode)9, "mode: found 9");
	SYNC_REFUSED(base, codec, (enum tr_codec)17, "codec: found 17");
	SYNC_REFUSED(base, outer_momentum, 1, "outer_momentum: found 1, allowed: 0 to less than 1");
	SYNC_REFUSED(base, alpha, 1.5, "alpha: found 1.5");
	SYNC_REFUSED(base, feedback, 2, "feedback: found 2");
	SYNC_REFUSED(base, outer_lr, -1, "outer_lr: found -1");
	base = mode(TR_SYNC_DILOCO);
	SYNC_REFUSED(base, overlap, 501, "overlap: found 501, allowed: 0 to 500");
}

/* (Divided by zero, added up beyond 64 bits without end, took the paper's.) */
static void numbers_that_are_none_are_refused(void **state)
{
	(void)state;
	struct tr_sync_options base = mode(TR_SYNC_STREAMING), hdet = mode(TR_SYNC_HDET),
	                       coded = base;
	struct tr_error error = { 0 };

	assert_int_equal(tr_sync_complete(&base, 0, &error), TR_EINVAL);
	assert_string_equal(error.text, "sync.layers: found 0, allowed: at least 1");
	base.steps = 10;
	SYNC_REFUSED(base, inner_steps, UINT64_C(1) << 63, "inner_steps: found 9.22337e+18");
	SYNC_REFUSED(base, steps, UINT64_C(1) << 63, "allowed: 0 (without end) to 2^53");
	SYNC_REFUSED(base, steps, TR_SYNC_ALL_DONE - (UINT64_C(1) << 53) - 1, "steps: found 1.84");
	SYNC_REFUSED(base, outer_momentum, (double)NAN, "outer_momentum: found nan");
	SYNC_REFUSED(base, alpha, (double)NAN, "alpha: found nan");
	coded.codec = TR_CODEC_INT2;
	SYNC_REFUSED(coded, feedback, (double)NAN, "feedback: found nan");
	SYNC_REFUSED(hdet, lr_momentum, (double)NAN, "lr_momentum: found nan");
	SYNC_REFUSED(hdet, lr_step, (double)NAN, "lr_step: found nan");
	base.inner_steps = UINT64_C(1) << 53;
	assert_int_equal(tr_sync_complete(&base, 4, &error), TR_OK);
	assert_int_equal(tr_sync_merges(&base), 4);
}

/* Settings that would do nothing, and a program built with an earlier header, whose struct ends after peers_most. */
static void what_does_nothing_is_refused(void **state)
{
	(void)state;
	struct tr_sync_options base = mode(TR_SYNC_EAGER);
	SYNC_REFUSED(base, alpha, 0.5, "alpha: found 0.5, allowed: nothing in eager mode");
	base = mode(TR_SYNC_DILOCO);
	SYNC_REFUSED(base, feedback, 0.5, "feedback: found 0.5, allowed: nothing without a codec");
	assert_true(offsetof(struct tr_sync_options, lr_probe) >=
	    ((offsetof(struct tr_sync_options, peers_most) + sizeof(base.peers_most) + 7) & ~7u));
	assert_true(
	    offsetof(struct tr_sync_options, carry) > offsetof(struct tr_sync_options, lr_probe));
}

static void carry_wants_an_overlap_and_no_alpha(void **state)
{
	(void)state;
	struct tr_sync_options base = mode(TR_SYNC_EAGER);
	SYNC_REFUSED(base, carry, true, "carry: found 1, allowed: 0 (false) in eager mode");
	base = mode(TR_SYNC_DILOCO);
	SYNC_REFUSED(base, carry, true, "carry: found 1, allowed: 0 (false) without an overlap");
	base = mode(TR_SYNC_STREAMING);
	base.carry = true;
	SYNC_REFUSED(base, alpha, 0.5, "alpha: found 0.5, allowed: nothing beside carry");
	assert_int_equal(tr_sync_complete(&base, 3, &(struct tr_error){ 0 }), TR_OK);
	assert_true(base.alpha == 0);
}

/* (Both read, and the first wrote, behind what an older program has.) */
static void an_older_programs_options_are_as_long_as_it_says(void **state)
{
	(void)state;
	unsigned char memory[2 * sizeof(struct tr_sync_options)];
	struct tr_sync_options *older = (struct tr_sync_options *)(void *)memory, known;
	const struct tr_sync_options given = mode(TR_SYNC_DILOCO);
	struct tr_error error;

	memset(memory, 0xff, sizeof(memory));
	memcpy(memory, &given, SYNC_OPTIONS_LEAST);
	older->size_of = SYNC_OPTIONS_LEAST;
	older->steps = 1000;
	assert_int_equal(tr_sync_complete(older, 12, &error), TR_OK);
	assert_int_equal(older->size_of, SYNC_OPTIONS_LEAST);
	assert_true(older->inner_steps == 500 && older->outer_lr == 0.7);
	for (size_t i = SYNC_OPTIONS_LEAST; i < sizeof(memory); i++)
		assert_int_equal(memory[i], 0xff);
	assert_int_equal(tr_sync_merges(older), 2);
	/* What cannot be leaves all as it was. */
	older->mode = (enum tr_sync_mode)77;
	memcpy(&known, older, SYNC_OPTIONS_LEAST);
	assert_int_equal(tr_sync_complete(older, 12, &error), TR_EINVAL);
	assert_memory_equal(&known, older, SYNC_OPTIONS_LEAST);
	older->size_of = 8;
	assert_int_equal(tr_sync_complete(older, 12, &error), TR_EINVAL);
	assert_int_equal(tr_sync_merges(older), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_do_not_overlap_and_cover_all_work),
		cmocka_unit_test(without_end_it_is_the_same_until_the_end),
		cmocka_unit_test(diloco_takes_and_merges_at_multiples_of_h),
		cmocka_unit_test(rounds_are_numbered_from_where_training_went_on),
		cmocka_unit_test(defaults_are_the_papers),
		cmocka_unit_test(options_that_cannot_be_are_named),
		cmocka_unit_test(numbers_that_are_none_are_refused),
		cmocka_unit_test(an_older_programs_options_are_as_long_as_it_says),
		cmocka_unit_test(what_does_nothing_is_refused),
		cmocka_unit_test(carry_wants_an_overlap_and_no_alpha),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
