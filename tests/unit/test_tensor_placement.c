/* Placements: each pair's conversion (carried out: test_placement_ops.c); the mesh's ranks and groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/plan/mesh.h"
#include "daemon/plan/tensor_placement.h"

#define KINDS 6

/* In the order B, S(0), S(1), S(2), P(sum), P(max). */
static struct tensor_placement placement(int i)
{
	return i == 0 ? tensor_placement_broadcast()
	    : i < 4   ? tensor_placement_split((unsigned)i - 1)
	              : tensor_placement_partial(i == 4 ? PARTIAL_SUM : PARTIAL_MAX);
}

static void each_pair_has_its_conversion(void **state)
{
	enum { NO = -1, NONE, SLICE, GATHER, REDUCE, SCATTER, ALL_TO_ALL };
	static const int wanted[KINDS][KINDS] = {
		{ NONE, SLICE, SLICE, SLICE, NO, NO },
		{ GATHER, NONE, ALL_TO_ALL, ALL_TO_ALL, NO, NO },
		{ GATHER, ALL_TO_ALL, NONE, ALL_TO_ALL, NO, NO },
		{ GATHER, ALL_TO_ALL, ALL_TO_ALL, NONE, NO, NO },
		{ REDUCE, SCATTER, SCATTER, SCATTER, NONE, NO },
		{ REDUCE, SCATTER, SCATTER, SCATTER, NO, NONE },
	};

	(void)state;
	for (int from = 0; from < KINDS; from++)
		for (int to = 0; to < KINDS; to++) {
			struct tr_error error = { 0 };
			enum collective how = COLLECTIVES;
			tr_status st = tensor_placement_convert(placement(from), placement(to),
			    &how, &error);
			if (wanted[from][to] == NO) {
				assert_int_equal(st, TR_EINVAL);
				assert_int_equal(how, COLLECTIVES);
				assert_non_null(
				    strstr(error.text, "partial tensor comes from an op only"));
				continue;
			}
			assert_int_equal(st, TR_OK);
			assert_int_equal(how, wanted[from][to]);
		}
}

static void a_gradient_lies_as_its_tensor(void **state)
{
	(void)state;
	for (int i = 0; i < KINDS; i++) {
		struct tensor_placement gradient = tensor_placement_of_gradient(placement(i));
		assert_true(tensor_placement_equal(gradient, placement(i < 4 ? i : 0)));
	}
}

static void bytes_are_those_of_the_best_algorithms(void **state)
{
	(void)state;
	assert_true(collective_bytes_sent(COLLECTIVE_ALL_REDUCE, 1000, 4) == 1500);
	assert_true(collective_bytes_sent(COLLECTIVE_ALL_GATHER, 1000, 4) == 750);
	assert_true(collective_bytes_sent(COLLECTIVE_REDUCE_SCATTER, 1000, 4) == 750);
	assert_true(collective_bytes_sent(COLLECTIVE_ALL_TO_ALL, 1000, 4) == 187.5);
	assert_true(collective_bytes_sent(COLLECTIVE_LOCAL_SLICE, 1000, 4) == 0);
	assert_true(collective_bytes_sent(COLLECTIVE_ALL_REDUCE, 1000, 1) == 0);
}

static void texts(void **state)
{
	char text[TENSOR_PLACEMENT_TEXT_MAX];

	(void)state;
	assert_string_equal(tensor_placement_text(placement(0), text), "B");
	assert_string_equal(tensor_placement_text(placement(2), text), "S(1)");
	assert_string_equal(tensor_placement_text(placement(4), text), "P(sum)");
	assert_string_equal(tensor_placement_text(placement(5), text), "P(max)");
	assert_string_equal(collective_name(COLLECTIVE_REDUCE_SCATTER), "reduce-scatter");
	assert_string_equal(collective_name(COLLECTIVE_ALL_TO_ALL), "all-to-all");
}

static void ranks_and_their_places(void **state)
{
	(void)state;
	for (uint32_t dp = 1; dp <= 4; dp++)
		for (uint32_t pp = 1; pp <= 4; pp++)
			for (uint32_t tp = 1; tp <= 4; tp++) {
				struct mesh mesh = {
					{ [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp }
				};
				assert_int_equal(mesh_check(&mesh, NULL), TR_OK);
				assert_int_equal(mesh_workers(&mesh), dp * pp * tp);
				for (uint32_t rank = 0; rank < mesh_workers(&mesh); rank++) {
					struct mesh_at at = mesh_at(&mesh, rank);
					assert_int_equal(mesh_rank(&mesh, at), rank);
					assert_int_equal(rank,
					    (at.at[MESH_PP] * dp + at.at[MESH_DP]) * tp +
					        at.at[MESH_TP]);
				}
			}
}

static void groups_of_an_axis(void **state)
{
	struct mesh mesh = { { [MESH_DP] = 2, [MESH_PP] = 2, [MESH_TP] = 2 } };
	uint32_t ranks[2];

	(void)state;
	mesh_group(&mesh, MESH_TP, 5, ranks);
	assert_int_equal(ranks[0], 4);
	assert_int_equal(ranks[1], 5);
	mesh_group(&mesh, MESH_DP, 5, ranks);
	assert_int_equal(ranks[0], 5);
	assert_int_equal(ranks[1], 7);
	mesh_group(&mesh, MESH_PP, 5, ranks);
	assert_int_equal(ranks[0], 1);
	assert_int_equal(ranks[1], 5);
}

static void whole_replicas_in_a_row(void **state)
{
	struct mesh mesh = { { [MESH_DP] = 2, [MESH_PP] = 2, [MESH_TP] = 2 } };
	static const uint32_t ranks[] = { 0, 1, 4, 5, 2, 3, 6, 7 };

	(void)state;
	for (uint32_t place = 0; place < 8; place++) {
		assert_int_equal(mesh_rank_by_replica(&mesh, place), ranks[place]);
		assert_int_equal(mesh_at(&mesh, ranks[place]).at[MESH_DP], place / 4);
	}
	mesh.size[MESH_PP] = 1; /* then as ranks count */
	for (uint32_t place = 0; place < 4; place++)
		assert_int_equal(mesh_rank_by_replica(&mesh, place), place);
}

static void a_mesh_that_cannot_be(void **state)
{
	struct mesh none = { { 2, 0, 2 } }, large = { { 17, 4, 4 } },
	            huge = { { 1u << 31, 1u << 31, 4 } };
	struct tr_error error;

	(void)state;
	assert_int_equal(mesh_check(&none, &error), TR_EINVAL);
	assert_string_equal(error.text, "mesh: pp is 0; it is at least 1");
	assert_int_equal(mesh_check(&large, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "272 workers; at most 256"));
	assert_int_equal(mesh_check(&huge, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "mesh: dp is 2147483648; at most 256"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pair_has_its_conversion),
		cmocka_unit_test(a_gradient_lies_as_its_tensor),
		cmocka_unit_test(bytes_are_those_of_the_best_algorithms),
		cmocka_unit_test(texts),
		cmocka_unit_test(ranks_and_their_places),
		cmocka_unit_test(groups_of_an_axis),
		cmocka_unit_test(whole_replicas_in_a_row),
		cmocka_unit_test(a_mesh_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
