/* The planner on more workers than can be searched exhaustively, some of which are of no use: it finds the mesh that whoever knows the cluster would ask for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_search.h"
#include "tests/unit/plan_cases.h"

static double step_s(const struct plan_case *c, const struct mesh *mesh)
{
	struct plan_search_settings settings = { .seed = 1 };
	struct plan_result *result;
	if (mesh != NULL)
		settings.only.mesh = *mesh;
	assert_int_equal(plan_search(&c->in, &settings, &result, NULL), TR_OK);
	double s = result->best.times.step_s;
	plan_search_destroy(result);
	return s;
}

static void slow(struct plan_case *c, uint32_t from)
{
	for (uint32_t i = from; i < c->cluster.worker_count; i++)
		c->cluster.workers[i].speed = 0.05;
}

static void far(struct plan_case *c, uint32_t from)
{
	for (uint32_t a = 0; a < c->cluster.node_count; a++)
		for (uint32_t b = from > a + 1 ? from : a + 1; b < c->cluster.node_count; b++)
			case_pair(c, a, b, 30e-3, 20 * MBIT);
}

/* Searched for whole, it may be no worse than where the mesh of the good ones is given. */
static void finds(uint32_t nodes, uint32_t good, uint32_t batch,
    void (*spoil)(struct plan_case *c, uint32_t from))
{
	struct plan_case c;
	const struct mesh mesh = { { good, 1, 1 } };
	case_init(&c, "large", nodes, 1);
	c.in.runnable = true;
	c.in.batch = batch;
	spoil(&c, good);
	assert_int_equal(plan_cluster_good(&c.cluster), good);
	double found = step_s(&c, NULL), given = step_s(&c, &mesh);
	if (found > 1.001 * given)
		fail_msg("%u nodes, %u of them good: %.3f s, with dp %u %.3f s", nodes, good, found,
		    good, given);
	plan_cluster_finish(&c.cluster);
}

static void some_are_slow(void **state)
{
	(void)state;
	finds(20, 12, 48, slow);
	finds(24, 18, 72, slow);
}

static void some_are_far(void **state)
{
	(void)state;
	finds(24, 18, 72, far);
}

/* More than those for which every dp is tried. */
static void of_eighty_fifty_are_good(void **state)
{
	(void)state;
	finds(80, 50, 200, slow);
}

static void nodes_of_one_host_have_no_card(void **state)
{
	struct plan_case c;
	(void)state;
	case_init(&c, "one host", 2, 3);
	c.cluster.nodes[1].host = 0;
	c.cluster.workers[4].speed = 0.4;
	assert_int_equal(plan_cluster_good(&c.cluster), 5);
	plan_cluster_finish(&c.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(some_are_slow),
		cmocka_unit_test(some_are_far),
		cmocka_unit_test(of_eighty_fifty_are_good),
		cmocka_unit_test(nodes_of_one_host_have_no_card),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
