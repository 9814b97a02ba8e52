/* What goes from one site to another goes through the cables of both, whichever hosts and links it takes: what rings, stages and bytes take that share one, and what plan is best then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/plan_exhaustive.h"

#define assert_near(a, b, part) assert_true(fabs((a) - (b)) <= (part)*fabs(b))

/* 2 sites of 2 nodes, with cables of so much; links of 10 Gbit/s. */
static void two_sites(struct plan_case *c, double out, double in)
{
	case_init(c, "", 4, 1);
	case_site(c, 1, 0, 0, 0);
	case_site(c, 3, 2, 0, 0);
	case_site(c, 0, 0, out, in);
}

static struct plan_layout *laid_out(struct plan_case *c, struct plan *plan)
{
	struct plan_layout *layout = plan_layout_create(&c->in, NULL);

	assert_non_null(layout);
	case_predict(layout, plan);
	return layout;
}

static void what_can_be_none(void **state)
{
	struct plan_case c;
	struct tr_error error;

	(void)state;
	two_sites(&c, 0, 100 * MBIT);
	assert_true(isinf(plan_cluster_cable_out(&c.cluster, 0)));
	assert_near(plan_cluster_cable_in(&c.cluster, 0), 100 * MBIT, 1e-12);
	assert_true(isinf(plan_cluster_cable_in(&c.cluster, 2)));
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_OK);
	c.cluster.nodes[3].site = 1; /* which is no first one */
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_EINVAL);
	c.cluster.nodes[3].host = 2; /* its own site is none, then */
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_OK);
	assert_int_equal(plan_cluster_site(&c.cluster, 3), 2);
	c.cluster.nodes[2].cable_in_bytes_per_s = -1;
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_EINVAL);
	plan_cluster_finish(&c.cluster);
}

/* A group at each site takes no cable; two groups that reach over have half of one each, of each direction the slower cable. */
static void groups_share_a_cable(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 2);
	const uint16_t across[] = { 0, 2, 1, 3 };

	(void)state;
	two_sites(&c, GBIT, GBIT / 4);
	struct plan_layout *l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 0.1 / GBIT, 1e-12);
	plan_layout_destroy(l);
	memcpy(plan.worker_of, across, sizeof(across));
	l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 8 / GBIT, 1e-12); /* in: two of a quarter */
	assert_near(l->groups[1].seconds_a_byte, 8 / GBIT, 1e-12);
	plan_layout_destroy(l);
	case_site(&c, 2, 2, 0, GBIT / 10); /* what comes in there leaves the other one */
	l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 20 / GBIT, 1e-12);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* Two stages' rings over dp, each over the cable, behind the last backward. */
static void rings_share_a_cable(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 2, 1);
	const uint16_t across[] = { 0, 2, 1, 3 };

	(void)state;
	two_sites(&c, 100 * MBIT, 100 * MBIT);
	c.cluster.busy = true;
	memcpy(plan.worker_of, across, sizeof(across));
	struct plan_layout *l = laid_out(&c, &plan);
	double first_s = plan_layout_reduce_s(l, &plan, 0),
	       last_s = plan_layout_reduce_s(l, &plan, 1);
	assert_true(first_s > 10 && last_s > 10); /* a backward takes far less */
	assert_near(plan.times.reduce_s, first_s + last_s, 0.03);
	assert_near(plan_estimate_s(l, &plan), plan.times.step_s, 0.03);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* Two pipelines from one site to the other, whose microbatches cross at the same time: as over links that are half as fast. */
static void stages_share_a_cable(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 2, 1), slow = plan;

	(void)state;
	two_sites(&c, 10 * MBIT, 10 * MBIT);
	struct plan_layout *l = laid_out(&c, &plan);
	assert_near(plan_estimate_s(l, &plan), plan.times.step_s, 0.1);
	plan_layout_destroy(l);
	case_site(&c, 0, 0, 0, 0);
	for (uint32_t i = 0; i < 4; i++)
		case_pair(&c, i % 2, 2 + i / 2, 50e-6, 5 * MBIT);
	l = laid_out(&c, &slow);
	assert_near(plan.times.idle_s, slow.times.idle_s, 1e-3);
	assert_true(slow.times.idle_s > slow.times.compute_s); /* it is the links that count */
	/* The tied table's one ring goes over once each way, and has the cable to itself. */
	assert_true(plan.times.step_s < 0.7 * slow.times.step_s);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* Bytes of a step over a cable are those of all links between its site and others. */
static void bytes_of_cables(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 2, 1);

	(void)state;
	two_sites(&c, GBIT, GBIT);
	struct plan_layout *l = laid_out(&c, &plan);
	double out = 0, in = 0;
	for (uint32_t i = 0; i < 4; i++) {
		out += l->bytes[i / 2 * 4 + 2 + i % 2];
		in += l->bytes[(2 + i % 2) * 4 + i / 2];
	}
	assert_true(out > 0 && in > 0);
	assert_near(l->bytes[plan_layout_cable(l, 0, false)], out, 1e-12);
	assert_near(l->bytes[plan_layout_cable(l, 0, true)], in, 1e-12);
	assert_near(l->bytes[plan_layout_cable(l, 2, false)], in, 1e-12);
	assert_true(l->bytes[plan_layout_cable(l, 1, false)] == 0);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* A few workers behind a slow cable are far, two halves of all are not. */
static void who_is_far(void **state)
{
	struct plan_case c;

	(void)state;
	two_sites(&c, 100 * MBIT, 100 * MBIT);
	case_site(&c, 2, 2, 100 * MBIT, 100 * MBIT);
	assert_int_equal(plan_cluster_good(&c.cluster), 4);
	case_site(&c, 2, 0, 0, 0);
	assert_int_equal(plan_cluster_good(&c.cluster), 4);
	c.cluster.nodes[3] = (struct plan_node){ .host = 3,
		.site = 3,
		.cable_in_bytes_per_s = 100 * MBIT };
	assert_int_equal(plan_cluster_good(&c.cluster), 3);
	plan_cluster_finish(&c.cluster);
}

/* The last of the synthetic clusters: what is best if links share no cable takes far longer where they do, than what is found then, which no plan beats. */
static void another_plan_is_best(void **state)
{
	struct plan_case c;
	struct plan found[2];
	struct exhaustive *e = malloc(sizeof(*e));

	(void)state;
	assert_non_null(e);
	case_make(&c, PLAN_CASES - 1);
	double cable = c.cluster.nodes[0].cable_out_bytes_per_s;
	for (unsigned known = 0; known < 2; known++) {
		struct plan_result *result;
		for (uint32_t i = 0; i < 4; i += 2)
			case_site(&c, i, i, known * cable, known * cable);
		assert_int_equal(plan_search(&c.in, &(struct plan_search_settings){ .seed = 1 },
		                     &result, NULL),
		    TR_OK);
		found[known] = result->best;
		plan_search_destroy(result);
	}
	struct plan_layout *l = plan_layout_create(&c.in, NULL);
	assert_non_null(l);
	double believed_s = found[0].times.step_s;
	plan_refill(l, &found[0]);
	assert_int_equal(plan_predict(l, &found[0], NULL), TR_OK);
	plan_layout_destroy(l);
	print_message("best without the cable %.3f s, believed %.3f s; with it %.3f s\n",
	    found[0].times.step_s, believed_s, found[1].times.step_s);
	assert_true(found[0].times.step_s > 1.4 * found[1].times.step_s);
	exhaustive_search(&c.in, found[1].times.step_s, e);
	assert_true(found[1].times.step_s <= 1.001 * e->best_s);
	free(e);
	plan_cluster_finish(&c.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_can_be_none),
		cmocka_unit_test(groups_share_a_cable),
		cmocka_unit_test(rings_share_a_cable),
		cmocka_unit_test(stages_share_a_cable),
		cmocka_unit_test(bytes_of_cables),
		cmocka_unit_test(who_is_far),
		cmocka_unit_test(another_plan_is_best),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
