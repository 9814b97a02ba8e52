/* Shares of a batch, and what another mesh can have of a dealing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/dealing.h"

static struct dealing over(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct dealing){ .mesh = {
		                     .size = { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } } };
}

static void assert_share(const struct dealing *d, const uint32_t *there, uint32_t count,
    uint32_t index, uint64_t expected_first, uint64_t expected_last)
{
	uint64_t first, last;

	dealing_share(d, there, count, index, 16, &first, &last);
	assert_int_equal(first, expected_first);
	assert_int_equal(last, expected_last);
}

static void shares_are_in_proportion(void **state)
{
	struct dealing d = over(3, 1, 1);
	const uint32_t all[] = { 0, 1, 2 }, some[] = { 0, 2 }, one[] = { 1 };

	(void)state;
	assert_true(dealing_is_even(&d));
	assert_share(&d, all, 3, 0, 0, 5);
	assert_share(&d, all, 3, 2, 10, 16);
	d.shares[0] = 4;
	d.shares[1] = 1;
	d.shares[2] = 3;
	assert_false(dealing_is_even(&d));
	assert_share(&d, all, 3, 0, 0, 8);
	assert_share(&d, all, 3, 1, 8, 10);
	assert_share(&d, all, 3, 2, 10, 16);
	/* whoever is missing, the batch is whole */
	assert_share(&d, some, 2, 0, 0, 9);
	assert_share(&d, some, 2, 1, 9, 16);
	assert_share(&d, one, 1, 0, 0, 16);
	assert_int_equal(dealing_least(&d, 16), 2);
	assert_int_equal(dealing_least(&d, 7), 0);
}

/* Parts are the batch, one behind the other, and none is less than dealing_least says. */
static void parts_are_the_whole(void **state)
{
	const struct rng_key key = rng_key(1, 2, 3);
	uint64_t draws = 0;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct dealing d = over(1 + (uint32_t)rng_below(key, 0, draws++, 12), 1, 1);
		uint64_t batch = 1 + rng_below(key, 0, draws++, 1000), at = 0, first, last;
		uint32_t there[TR_GROUP_PEERS_MAX], count = 0;
		for (uint32_t k = 0; k < d.mesh.size[MESH_DP]; k++) {
			d.shares[k] = 1 + (uint32_t)rng_below(key, 0, draws++, DEALING_SHARE_MAX);
			if (rng_below(key, 0, draws++, 3) > 0)
				there[count++] = k;
		}
		for (uint32_t k = 0; k < count; k++) {
			dealing_share(&d, there, count, k, batch, &first, &last);
			assert_int_equal(first, at);
			assert_true(last - first >= dealing_least(&d, batch));
			at = last;
		}
		assert_true(count == 0 || at == batch);
	}
}

static void another_mesh_keeps_what_it_can(void **state)
{
	struct dealing d = over(2, 2, 2), other;
	const struct mesh smaller = over(2, 1, 2).mesh, fewer = over(1, 2, 1).mesh;

	(void)state;
	assert_null(dealing_layers(&d));
	d.shares[0] = d.layers[1] = 3;
	d.shares[1] = d.layers[0] = 1;
	assert_int_equal(dealing_layers(&d)[1], 3);
	dealing_on(&d, &d.mesh, &other);
	assert_true(dealing_equal(&d, &other));
	dealing_on(&d, &smaller, &other);
	assert_true(other.shares[0] == 3 && other.shares[1] == 1 && dealing_layers(&other) == NULL);
	assert_false(dealing_equal(&d, &other));
	dealing_on(&d, &fewer, &other);
	assert_true(other.shares[0] == 0 && dealing_layers(&other)[0] == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_are_in_proportion),
		cmocka_unit_test(parts_are_the_whole),
		cmocka_unit_test(another_mesh_keeps_what_it_can),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
