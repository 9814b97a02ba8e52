/* Whether who would join a job is worth its start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/plan/joining.h"

#define MS 1000000ull

/* Three instead of two, steps of 10 ms, a second to start. */
static struct joining third(uint64_t done)
{
	return (struct joining){ .step_ns = 10 * MS,
		.workers = 2,
		.next_workers = 3,
		.done = done,
		.steps = 1000,
		.round_steps = 1,
		.start_ns = 1000 * MS };
}

static void who_comes_too_late(void **state)
{
	(void)state;
	struct joining j = third(1000 - 103);
	assert_int_equal(joining_worth(&j).steps_left, 1);
	assert_true(joining_pays(&j));
	j = third(1000 - 102); /* it would begin with the step after the last */
	assert_int_equal(joining_worth(&j).steps_left, 0);
	assert_false(joining_pays(&j));
	j = third(1000);
	assert_false(joining_pays(&j));
	j = third(2000);
	assert_false(joining_pays(&j));
	j = third(0);
	j.start_ns = UINT64_MAX;
	assert_false(joining_pays(&j));
	j.step_ns = UINT64_MAX;
	j.steps = UINT64_MAX;
	assert_true(joining_pays(&j));
}

/* At best a third of each step is saved; what of the state a step does not cover the others wait for. */
static void whose_state_costs_more(void **state)
{
	(void)state;
	struct joining j = third(1000 - 102 - 60); /* 60 steps of its own save 200 ms */
	j.state_ns = 209 * MS;
	assert_true(joining_pays(&j));
	assert_int_equal(joining_worth(&j).cost_ns, 199 * MS);
	j.state_ns = 211 * MS;
	assert_false(joining_pays(&j));
	j.state_ns = 10 * MS;
	assert_int_equal(joining_worth(&j).cost_ns, 0);
	j.state_ns = UINT64_MAX;
	assert_false(joining_pays(&j));
	/* One of very many saves a tenth, as nobody knows better. */
	j = third(1000 - 102 - 60);
	j.workers = 100;
	j.next_workers = 101;
	j.state_ns = 69 * MS;
	assert_true(joining_pays(&j));
	j.state_ns = 71 * MS;
	assert_false(joining_pays(&j));
}

/* Who trains apart enters in the middle of a round, takes part in the next one and trains from the merge behind that on. */
static void of_merges_one_has_to_be_left(void **state)
{
	(void)state;
	struct joining j = third(0);
	j.round_steps = 100;
	for (uint64_t done = 0; done < 1000; done++) {
		j.done = done;
		uint64_t enters = done + 100, trains_from = (enters / 100 + 2) * 100;
		assert_int_equal(joining_worth(&j).steps_left,
		    trains_from < 1000 ? 1000 - trains_from : 0);
		assert_int_equal(joining_pays(&j), done < 700);
	}
	/* A shard that comes within a round costs nobody anything. */
	j.done = 600;
	j.state_ns = 1000 * MS;
	assert_int_equal(joining_worth(&j).cost_ns, 0);
	j.state_ns = 1001 * MS;
	assert_int_equal(joining_worth(&j).cost_ns, MS);
	j.round_steps = 600; /* the last merge is of what is left */
	j.steps = 1700;
	j.done = 0;
	assert_int_equal(joining_worth(&j).steps_left, 500);
	j.done = 500;
	assert_int_equal(joining_worth(&j).steps_left, 0);
}

static void what_nobody_knows_is_no_reason(void **state)
{
	(void)state;
	struct joining late = third(990), j = late;
	assert_false(joining_pays(&late));
	j.step_ns = 0;
	assert_true(joining_pays(&j));
	j = late;
	j.start_ns = 0;
	assert_true(joining_pays(&j));
	j = late;
	j.steps = 0;
	assert_true(joining_pays(&j));
}

static void asked_again_when_more_is_left(void **state)
{
	(void)state;
	struct joining j = third(900); /* a second */
	struct joining_refused refused = { j.workers, joining_left_ns(&j), j.state_ns };
	assert_int_equal(refused.left_ns, 1000 * MS);
	for (uint64_t done = 875; done <= 1000; done++) { /* less, or hardly more */
		j.done = done;
		assert_false(joining_asks_again(&refused, &j));
	}
	j.done = 874; /* training went back */
	assert_true(joining_asks_again(&refused, &j));
	j = third(900);
	j.step_ns = 12500 * MS / 1000;
	assert_false(joining_asks_again(&refused, &j));
	j.step_ns++;
	assert_true(joining_asks_again(&refused, &j)); /* steps are longer */
	j = third(950);
	j.workers = 1;
	assert_true(joining_asks_again(&refused, &j));
	j = third(0);
	j.steps = j.step_ns = UINT64_MAX;
	assert_int_equal(joining_left_ns(&j), UINT64_MAX);
	assert_true(joining_asks_again(&refused, &j));
}

static void asked_again_when_who_comes_has_its_state_sooner(void **state)
{
	(void)state;
	struct joining j = third(900);
	j.state_ns = 2000 * MS;
	struct joining_refused refused = { j.workers, joining_left_ns(&j), j.state_ns };
	for (j.state_ns = 1500 * MS; j.state_ns <= 4000 * MS; j.state_ns += MS)
		assert_false(joining_asks_again(&refused, &j));
	j.state_ns = 1500 * MS - 1;
	assert_true(joining_asks_again(&refused, &j));
}

static void words(void **state)
{
	(void)state;
	char text[JOINING_TEXT];
	struct joining j = third(988);
	j.step_ns = 33 * MS;
	j.start_ns = 2100 * MS;
	assert_string_equal(joining_words(&j, text),
	    "12 steps are left, 0.396 s, and a worker needs 2.1 s to start and get its state");
	j.round_steps = 8;
	j.state_ns = 100 * MS;
	assert_string_equal(joining_words(&j, text),
	    "12 steps are left, 0.396 s, and a worker needs 2.2 s to start and get its state; it "
	    "trains from the second merge after that on");
	j = third(1000 - 102 - 60);
	j.state_ns = 1010 * MS;
	assert_string_equal(joining_words(&j, text),
	    "when it works 60 steps are left, each 3.33 ms shorter: 0.2 s, for a change of 1 s");
	j.state_ns = 0; /* it pays */
	assert_string_equal(joining_words(&j, text),
	    "162 steps are left, 1.62 s, and a worker needs 1 s to start and get its state");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_comes_too_late),
		cmocka_unit_test(whose_state_costs_more),
		cmocka_unit_test(of_merges_one_has_to_be_left),
		cmocka_unit_test(what_nobody_knows_is_no_reason),
		cmocka_unit_test(asked_again_when_more_is_left),
		cmocka_unit_test(asked_again_when_who_comes_has_its_state_sooner),
		cmocka_unit_test(words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
