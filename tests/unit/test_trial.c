/* A replica more that made steps longer is taken back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/plan/trial.h"

#define MS 1000000ull

static void steps(struct pace *pace, unsigned count, uint64_t ns)
{
	for (unsigned i = 0; i < count; i++)
		pace_step(pace, ns);
}

/* dp of two workers each, of so many workers. */
static struct ranks table_of(uint32_t dp, uint64_t workers)
{
	const struct mesh mesh = { { dp, 1, 2 } };
	struct ranks none, now;
	uint64_t peers[TR_GROUP_PEERS_MAX];
	for (uint64_t i = 0; i < workers; i++)
		peers[i] = 1 + i;
	ranks_init(&mesh, &none);
	ranks_next(&none, peers, workers, &now);
	return now;
}

/* Two replicas took 100 ms a step; three are seen in so many steps of so long. Returns whether they are taken back. */
static bool tried(unsigned count, uint64_t ns)
{
	struct ranks before = table_of(3, 4);
	struct pace pace = { 0 };
	struct trial trial = { 0 };
	steps(&pace, 12, 100 * MS);
	trial_begin(&trial, &pace, &before);
	pace_restart(&pace, 2);
	trial_note(&trial, &pace, TRIAL_STEPS);
	assert_false(trial_failed(&trial));
	steps(&pace, PACE_LEFT_OUT, 900 * MS); /* memory is touched for the first time */
	steps(&pace, count, ns);
	trial_note(&trial, &pace, TRIAL_STEPS);
	bool over = trial.before_ns == 0;
	assert_true(over == (count >= TRIAL_STEPS && !trial_failed(&trial)));
	if (trial_failed(&trial)) {
		assert_int_equal(trial.before_ns, 100 * MS);
		assert_int_equal(trial.longer_ns, ns);
		assert_int_equal(trial.places[0], 3);
	}
	return trial_failed(&trial);
}

static void longer_steps_fail(void **state)
{
	(void)state;
	assert_false(tried(TRIAL_STEPS, 60 * MS));
	assert_false(tried(TRIAL_STEPS, 100 * MS));
	assert_false(tried(TRIAL_STEPS, 110 * MS)); /* one look differs so much from the next */
	assert_true(tried(TRIAL_STEPS, 112 * MS));
	assert_true(tried(TRIAL_STEPS + 1, 500 * MS));
	assert_false(tried(TRIAL_STEPS - 1, 500 * MS)); /* not yet */
	assert_true(tried(TRIAL_STEPS, UINT64_MAX / 100));
}

static void nothing_is_tried_without_a_step_before(void **state)
{
	(void)state;
	struct ranks before = table_of(3, 4);
	struct pace pace = { 0 };
	struct trial trial = { 0 };
	const struct trial none = { 0 };
	trial_begin(&trial, &pace, &before);
	steps(&pace, 40, 900 * MS);
	trial_note(&trial, &pace, TRIAL_STEPS);
	assert_memory_equal(&trial, &none, sizeof(none));
}

/* Who was lost was there again before a step of those left was seen: what is known is of as many as are to be tried. */
static void steps_of_other_replicas_say_nothing(void **state)
{
	(void)state;
	struct ranks before = table_of(3, 4);
	struct pace pace = { 0 };
	struct trial trial = { 0 };
	steps(&pace, 12, 100 * MS);
	pace_restart(&pace, 3);
	pace_restart(&pace, 2); /* none was seen */
	trial_begin(&trial, &pace, &before);
	steps(&pace, 40, 900 * MS);
	trial_note(&trial, &pace, TRIAL_STEPS);
	assert_false(trial_failed(&trial));
	assert_int_equal(trial.before_ns, 0);
}

/* The second comes before a step with the first was seen: both are held against what there was before them. If one was seen, the second is held against that. */
static void one_after_the_other(void **state)
{
	(void)state;
	for (unsigned seen = 0; seen < 2; seen++) {
		struct ranks two = table_of(4, 4), three = table_of(4, 6);
		struct pace pace = { 0 };
		struct trial trial = { 0 };
		steps(&pace, 12, 100 * MS);
		trial_begin(&trial, &pace, &two);
		pace_restart(&pace, 2);
		steps(&pace, PACE_LEFT_OUT + seen, 90 * MS);
		trial_note(&trial, &pace, TRIAL_STEPS);
		trial_begin(&trial, &pace, &three);
		pace_restart(&pace, 2);
		steps(&pace, PACE_LEFT_OUT + TRIAL_STEPS, 105 * MS);
		trial_note(&trial, &pace, TRIAL_STEPS);
		assert_true(trial_failed(&trial) == (seen == 1));
		assert_int_equal(trial.places[0], seen == 1 ? 7 : 0);
	}
}

static void an_end_forgets(void **state)
{
	(void)state;
	struct ranks before = table_of(3, 4);
	struct pace pace = { 0 };
	struct trial trial = { 0 };
	const struct trial none = { 0 };
	steps(&pace, 12, 100 * MS);
	trial_begin(&trial, &pace, &before);
	pace_restart(&pace, 2);
	steps(&pace, 12, 300 * MS);
	trial_note(&trial, &pace, TRIAL_STEPS);
	assert_true(trial_failed(&trial));
	trial_note(&trial, &pace, TRIAL_STEPS);
	assert_true(trial_failed(&trial)); /* it stays so */
	trial_end(&trial);
	assert_memory_equal(&trial, &none, sizeof(none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(longer_steps_fail),
		cmocka_unit_test(nothing_is_tried_without_a_step_before),
		cmocka_unit_test(steps_of_other_replicas_say_nothing),
		cmocka_unit_test(one_after_the_other),
		cmocka_unit_test(an_end_forgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
