/* When shares follow measured speeds, and which they become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/balance.h"

#define MS 1000000ull

static const struct balance_rules two = { .replicas = 2,
	.batch = 32,
	.least = 1,
	.steps_left = 1000 };

/* Steps until there are other shares; 0: not within 100. */
static unsigned steps_until(struct balance *r, const struct balance_rules *rules,
    const uint64_t *each, const uint64_t *sequences, uint32_t *next)
{
	uint64_t takes[TR_GROUP_PEERS_MAX], found[TR_GROUP_PEERS_MAX];

	for (uint32_t i = 0; i < rules->replicas; i++)
		takes[i] = each[i] * sequences[i];
	for (unsigned step = 1; step <= 100; step++)
		if (balance_note(r, rules, takes, sequences, next, found))
			return step;
	return 0;
}

static void a_slow_replica_gets_less(void **state)
{
	struct balance r = { 0 };
	const uint64_t each[] = { 1 * MS, 3 * MS }, sequences[] = { 16, 16 };
	uint32_t next[2];

	(void)state;
	assert_int_equal(steps_until(&r, &two, each, sequences, next), 3 * BALANCE_STEPS);
	assert_true(next[0] == 24 && next[1] == 8);
	/* these are right: they stay */
	assert_int_equal(steps_until(&r, &two, each, (const uint64_t[]){ 24, 8 }, next), 0);
	/* it is as fast as the other again */
	assert_true(steps_until(&r, &two, (const uint64_t[]){ MS, MS }, (const uint64_t[]){ 24, 8 },
	                next) > 0);
	assert_true(next[0] == 16 && next[1] == 16);
}

static void what_is_not_worth_it(void **state)
{
	struct balance r = { 0 };
	const uint64_t sequences[] = { 16, 16 };
	struct balance_rules rules = two;
	uint32_t next[2];

	(void)state;
	assert_int_equal(steps_until(&r, &rules, (const uint64_t[]){ 100, 115 }, sequences, next),
	    0);
	assert_true(steps_until(&r, &rules, (const uint64_t[]){ 100, 150 }, sequences, next) > 0);
	rules.steps_left = BALANCE_STEPS - 1;
	balance_restart(&r);
	assert_int_equal(steps_until(&r, &rules, (const uint64_t[]){ 100, 300 }, sequences, next),
	    0);
	/* no replica gets less than it can have: 20 and 12, not 24 and 8 */
	rules = two;
	rules.least = 12;
	assert_true(steps_until(&r, &rules, (const uint64_t[]){ 100, 300 }, sequences, next) > 0);
	assert_true(next[0] == 20 && next[1] == 12);
	rules.least = 17;
	assert_int_equal(steps_until(&r, &rules, (const uint64_t[]){ 100, 300 }, sequences, next),
	    0);
}

/* One look alone, of a machine that had other work for a moment. */
static void noise_changes_nothing(void **state)
{
	struct balance r = { 0 };
	const uint64_t sequences[] = { 16, 16 }, calm[] = { 16 * MS, 16 * MS },
	               busy[] = { 16 * MS, 90 * MS };
	uint32_t next[2];
	uint64_t each[2];

	(void)state;
	for (unsigned step = 0; step < 400; step++)
		assert_false(balance_note(&r, &two, step / BALANCE_STEPS % 2 == 1 ? busy : calm,
		    sequences, next, each));
	/* who had nothing to do says nothing of its speed */
	for (unsigned step = 0; step < 100; step++)
		assert_false(balance_note(&r, &two, busy, (const uint64_t[]){ 32, 0 }, next, each));
}

/* No other shares are better: all of up to 12 sequences and three replicas are tried. */
static void the_best_of_all(void **state)
{
	const struct rng_key key = rng_key(7, 7, 7);
	uint64_t draws = 0;
	unsigned changed = 0;

	(void)state;
	for (int i = 0; i < 300; i++) {
		struct balance r = { 0 };
		struct balance_rules rules = { 3, 6 + rng_below(key, 0, draws++, 7), 1, 1000 };
		uint64_t each[3], sequences[3] = { rules.batch - 4, 2, 2 }, best = UINT64_MAX;
		uint32_t next[3];
		for (int k = 0; k < 3; k++)
			each[k] = 1 + rng_below(key, 0, draws++, 20);
		if (steps_until(&r, &rules, each, sequences, next) == 0)
			continue;
		changed++;
		assert_int_equal(next[0] + next[1] + next[2], rules.batch);
		for (uint32_t a = 1; a + 2 <= rules.batch; a++)
			for (uint32_t b = 1; a + b + 1 <= rules.batch; b++) {
				const uint32_t other[] = { a, b, (uint32_t)rules.batch - a - b };
				uint64_t takes = balance_longest(each, other, 3);
				best = takes < best ? takes : best;
			}
		assert_int_equal(balance_longest(each, next, 3), best);
	}
	assert_true(changed > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_replica_gets_less),
		cmocka_unit_test(what_is_not_worth_it),
		cmocka_unit_test(noise_changes_nothing),
		cmocka_unit_test(the_best_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
