/* The speed that a job is said to have follows its newest rounds, each by its time. */
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_watch.h"
#include "daemon/worker/speed.h"

#define TOKENS 512.0

static void rounds(struct speed *speed, unsigned count, double seconds)
{
	for (unsigned i = 0; i < count; i++)
		speed_add(speed, TOKENS, seconds);
}

static double step_s(const struct speed *speed)
{
	return TOKENS / speed_tokens_per_s(speed);
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-9 * b;
}

static void of_the_rounds_there_were(void **state)
{
	struct speed speed = { .count = 0 };

	(void)state;
	assert_true(speed_tokens_per_s(&speed) <= 0);
	rounds(&speed, 1, 0.5);
	assert_true(near(step_s(&speed), 0.5));
	rounds(&speed, 1, 1.5);
	assert_true(near(step_s(&speed), 1));
	speed_add(&speed, 4 * TOKENS, 1); /* a merge of more steps */
	assert_true(near(step_s(&speed), 0.5));
}

/* A cable becomes slow: 14 ms, then 1.4 s. And quick again. */
static void it_follows_within_so_many_rounds(void **state)
{
	struct speed speed = { .count = 0 };

	(void)state;
	rounds(&speed, 500, 0.014);
	assert_true(near(step_s(&speed), 0.014));
	rounds(&speed, SPEED_ROUNDS / 2, 1.4);
	assert_true(step_s(&speed) > 0.5 && step_s(&speed) < 1.4);
	rounds(&speed, SPEED_ROUNDS / 2, 1.4);
	assert_true(near(step_s(&speed), 1.4));
	rounds(&speed, SPEED_ROUNDS, 0.014);
	assert_true(near(step_s(&speed), 0.014));
}

/* Two looks after a change steps are said to take longer; a single round of any length is not one. */
static void what_is_looked_at(void **state)
{
	const unsigned long_rounds[] = { 1, 31, 140 };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		unsigned slow = long_rounds[i];
		struct speed speed = { .count = 0 };
		struct plan_watch watch = { .next_step = 0 };
		unsigned said = 0;
		for (uint64_t step = 1; step <= 200; step++) {
			bool is_slow = step >= 60 && step < 60 + slow;
			rounds(&speed, 1, is_slow ? 1.4 : 0.014);
			if (plan_watch_look(&watch, step, step_s(&speed), 0.014) && said++ == 0)
				assert_true(step <= 60 + 2 * PLAN_WATCH_STEPS);
		}
		assert_true((said > 0) == (slow > 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_the_rounds_there_were),
		cmocka_unit_test(it_follows_within_so_many_rounds),
		cmocka_unit_test(what_is_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
