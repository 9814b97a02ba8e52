/* Samples that replicas claim in a round (daemon/worker/sharded_claims.h), beside a list of all numbers in plain arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/rng.h"
#include "daemon/worker/sharded_claims.h"

#define ROUNDS  400
#define SAMPLES (ROUNDS * 96)

struct check {
	struct lease_account account;
	unsigned char used[SAMPLES];
	uint64_t counted;
};

static void use(struct check *c, const struct claim *claim)
{
	for (uint64_t i = 0; i < claim->count; i++) {
		uint64_t sample = claims_sample(&c->account, claim->first + i);
		assert_in_range(sample, 0, SAMPLES - 1);
		assert_int_equal(c->used[sample]++, 0);
	}
	c->counted += claim->count;
}

/* What no list before has given out comes last, in order; what is free lies below the cursor and was not used. */
static void check_account(const struct check *c)
{
	uint64_t before = 0;
	assert_true(lease_valid(&c->account));
	assert_int_equal(lease_counted(&c->account), c->counted);
	for (size_t i = 0; i < c->account.free_count; i++) {
		const struct lease_range *r = &c->account.free[i];
		assert_true(i == 0 || r->from > before);
		assert_true(r->from < r->to && r->to <= c->account.cursor);
		for (uint64_t k = r->from; k < r->to; k++)
			assert_int_equal(c->used[k], 0);
		before = r->to;
	}
}

static void test_rounds_of_which_replicas_are_lost(void **state)
{
	(void)state;
	struct check *c = calloc(1, sizeof(*c));
	struct rng_key key = rng_key(7, 0, 0);
	assert_non_null(c);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		struct claim claims[4];
		size_t count = 0;
		uint64_t replicas = 1 + rng_below(key, round, 0, 4),
		         each = 1 + rng_below(key, round, 1, 24);
		for (uint64_t i = replicas; i-- > 0;) /* in any order */
			if (rng_below(key, round, 2 + i, 4) != 0)
				claims[count++] = (struct claim){ i * each, each };
		for (size_t i = 0; i < count; i++)
			use(c, &claims[i]);
		claims_count(&c->account, claims, count, round);
		assert_int_equal(c->account.round, round);
		check_account(c);
	}
	assert_true(c->counted > ROUNDS);
	/* A last round as long as what is left: nothing is. */
	uint64_t left = c->account.cursor - c->counted;
	use(c, &(struct claim){ 0, left });
	claims_count(&c->account, &(struct claim){ 0, left }, left > 0, ROUNDS + 1);
	assert_int_equal(c->account.free_count, 0);
	assert_int_equal(c->counted, c->account.cursor);
	free(c);
}

static void test_the_first_of_two_is_lost(void **state)
{
	(void)state;
	struct lease_account account = { .cursor = 100 };
	claims_count(&account, &(struct claim){ 8, 8 }, 1, 5);
	assert_int_equal(account.cursor, 116);
	assert_int_equal(account.free_count, 1);
	assert_int_equal(account.free[0].from, 100);
	assert_int_equal(account.free[0].to, 108);
	assert_int_equal(claims_sample(&account, 7), 107);
	assert_int_equal(claims_sample(&account, 8), 116);
}

/* Samples that lie between pieces for which there is no room are dropped, and said to be. */
static void test_too_many_pieces(void **state)
{
	(void)state;
	struct lease_account *account = calloc(1, sizeof(*account));
	struct claim claims[TR_GROUP_PEERS_MAX];
	assert_non_null(account);
	for (size_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		claims[i] = (struct claim){ (LEASE_FREE_MAX - 8) * UINT64_C(2) + 2 * i + 1, 1 };
	account->cursor = 4 * LEASE_FREE_MAX;
	for (size_t i = 0; i < LEASE_FREE_MAX - 8; i++)
		account->free[account->free_count++] = (struct lease_range){ 4 * i, 4 * i + 2 };
	claims_count(account, claims, TR_GROUP_PEERS_MAX, 1);
	assert_int_equal(account->free_count, LEASE_FREE_MAX);
	assert_true(account->dropped_count > 0);
	assert_int_equal(account->dropped[0].cause, LEASE_NO_ROOM);
	assert_true(lease_valid(account));
	free(account);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rounds_of_which_replicas_are_lost),
		cmocka_unit_test(test_the_first_of_two_is_lost),
		cmocka_unit_test(test_too_many_pieces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
