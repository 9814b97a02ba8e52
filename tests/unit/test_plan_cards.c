/* What leaves a host goes through its card, whichever link it takes: what that is where nobody says, and what rings, stages and sums take that share one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/plan/plan_shared.h"
#include "tests/unit/plan_cases.h"

#define assert_near(a, b, part) assert_true(fabs((a) - (b)) <= (part)*fabs(b))

/* 3 nodes of 2 workers, with links of so much each way. */
static void three_of_two(struct plan_case *c, double bandwidth)
{
	case_init(c, "", 3, 2);
	case_links(c, 50e-6, bandwidth);
}

static void free_cards(struct plan_case *c)
{
	for (uint32_t i = 0; i < c->cluster.node_count; i++)
		case_card(c, i, 1e4 * GBIT);
}

/* Two of a node's workers, each with one of another node. */
static struct plan apart(uint32_t dp, uint32_t pp, uint32_t tp)
{
	struct plan plan = case_plan(dp, pp, tp);
	const uint16_t workers[] = { 0, 2, 1, 4, 3, 5 };

	memcpy(plan.worker_of, workers, sizeof(workers));
	return plan;
}

static struct plan_layout *laid_out(struct plan_case *c, struct plan *plan)
{
	struct plan_layout *layout = plan_layout_create(&c->in, NULL);

	assert_non_null(layout);
	case_predict(layout, plan);
	return layout;
}

static void what_nobody_gives(void **state)
{
	struct plan_case c;
	struct tr_error error;

	(void)state;
	case_init(&c, "", 4, 1);
	case_links(&c, 1e-3, 100 * MBIT);
	plan_cluster_link(&c.cluster, 0, 2)->bandwidth_bytes_per_s = 300 * MBIT;
	plan_cluster_link(&c.cluster, 1, 0)->bandwidth_bytes_per_s = 200 * MBIT;
	assert_near(plan_cluster_card_out(&c.cluster, 0), 300 * MBIT, 1e-12);
	assert_near(plan_cluster_card_in(&c.cluster, 0), 200 * MBIT, 1e-12);
	assert_near(plan_cluster_card_in(&c.cluster, 2), 300 * MBIT, 1e-12);
	assert_near(plan_cluster_card_in(&c.cluster, 3), 100 * MBIT, 1e-12);
	/* What is between nodes of a host goes through no card, and they share theirs. */
	c.cluster.nodes[1].host = 0;
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_OK);
	assert_near(plan_cluster_card_in(&c.cluster, 0), 100 * MBIT, 1e-12);
	plan_cluster_link(&c.cluster, 3, 1)->bandwidth_bytes_per_s = 150 * MBIT;
	assert_near(plan_cluster_card_in(&c.cluster, 0), 150 * MBIT, 1e-12);
	case_card(&c, 0, 40 * MBIT);
	assert_near(plan_cluster_card_out(&c.cluster, 0), 40 * MBIT, 1e-12);
	c.cluster.nodes[3].host = 1;
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_EINVAL);
	c.cluster.nodes[3].host = 3;
	c.cluster.nodes[3].card_in_bytes_per_s = -1;
	assert_int_equal(plan_cluster_check(&c.cluster, &error), TR_EINVAL);
	plan_cluster_finish(&c.cluster);
	case_init(&c, "", 1, 2);
	assert_true(isinf(plan_cluster_card_out(&c.cluster, 0)));
	plan_cluster_finish(&c.cluster);
}

/* Two groups of a node's two workers, each with another node: no link carries two rings, a card does. */
static void groups_share_a_card(void **state)
{
	struct plan_case c;
	struct plan plan = apart(2, 1, 2);

	(void)state;
	three_of_two(&c, GBIT);
	struct plan_layout *l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 2 / GBIT, 1e-12);
	assert_near(l->groups[1].seconds_a_byte, 2 / GBIT, 1e-12);
	plan_layout_destroy(l);
	/* Of a card that is slower than links one ring is slower, too. */
	case_card(&c, 0, 4 * GBIT);
	case_card(&c, 1, GBIT / 10);
	l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 10 / GBIT, 1e-12);
	assert_near(l->groups[1].seconds_a_byte, 1 / GBIT, 1e-12);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* As above, of two nodes of one host. */
static void nodes_of_a_host_share_a_card(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 2);
	const uint16_t workers[] = { 0, 2, 1, 3 };

	(void)state;
	case_init(&c, "", 4, 1);
	case_links(&c, 50e-6, GBIT);
	memcpy(plan.worker_of, workers, sizeof(workers));
	struct plan_layout *l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 1 / GBIT, 1e-12);
	plan_layout_destroy(l);
	c.cluster.nodes[1].host = 0;
	l = laid_out(&c, &plan);
	assert_near(l->groups[0].seconds_a_byte, 2 / GBIT, 1e-12);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* Two stages' rings over dp, between one node and two others, behind the last backward. */
static void check_rings(bool shared)
{
	struct plan_case c;
	struct plan plan = apart(2, 2, 1);

	three_of_two(&c, 100 * MBIT);
	c.cluster.busy = true;
	if (!shared)
		free_cards(&c);
	struct plan_layout *l = laid_out(&c, &plan);
	double first_s = plan_layout_reduce_s(l, &plan, 0),
	       last_s = plan_layout_reduce_s(l, &plan, 1),
	       all_s = shared ? first_s + last_s : fmax(first_s, last_s);
	assert_true(first_s > 10 && last_s > 10); /* a backward takes far less */
	assert_near(plan.times.reduce_s, all_s, 0.03);
	assert_near(plan_estimate_s(l, &plan), plan.times.step_s, 0.03);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

static void rings_share_a_card(void **state)
{
	(void)state;
	check_rings(false);
	check_rings(true);
}

/* The stage in the middle sends outputs on and gradients back by one card. */
static void stages_share_a_card(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(1, 3, 1), none;

	(void)state;
	case_init(&c, "", 3, 1);
	case_links(&c, 1e-4, 10 * MBIT);
	struct plan_layout *l = laid_out(&c, &plan);
	double estimated_s = plan_estimate_s(l, &plan);
	assert_near(estimated_s, plan.times.step_s, 0.2);
	plan_layout_destroy(l);
	free_cards(&c);
	none = plan;
	l = laid_out(&c, &none);
	assert_true(plan.times.step_s > 1.05 * none.times.step_s);
	assert_true(estimated_s > 1.05 * plan_estimate_s(l, &none));
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* Of a strict job: one sum of both ends' tables in each replica, at the same time. */
static void tables_share_a_card(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 2, 1);
	const uint16_t workers[] = { 0, 1, 2, 4 };

	(void)state;
	three_of_two(&c, GBIT);
	memcpy(plan.worker_of, workers, sizeof(workers));
	struct plan_layout *l = laid_out(&c, &plan);
	struct plan_input strict = c.in;
	strict.batch_parts = 4;
	l->in = &strict;
	assert_near(plan_table_s(l, &plan), 2 * 50e-6 + 2 * plan_table_bytes(l) / GBIT, 1e-9);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

/* Bytes of a step at a card are those of its host's links. */
static void bytes_of_cards(void **state)
{
	struct plan_case c;
	struct plan plan = apart(3, 2, 1);

	(void)state;
	three_of_two(&c, GBIT);
	struct plan_layout *l = laid_out(&c, &plan);
	for (uint32_t host = 0; host < 3; host++) {
		double out = 0, in = 0;
		for (uint32_t other = 0; other < 3; other++) {
			out += other == host ? 0 : l->bytes[host * 3 + other];
			in += other == host ? 0 : l->bytes[other * 3 + host];
		}
		assert_true(out > 0 && in > 0);
		assert_near(l->bytes[9 + host], out, 1e-12);
		assert_near(l->bytes[12 + host], in, 1e-12);
	}
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

static struct plan found(struct plan_case *c)
{
	struct plan_result *result;
	struct plan best;

	assert_int_equal(plan_search(&c->in, &(struct plan_search_settings){ .seed = 1 }, &result,
	                     NULL),
	    TR_OK);
	best = result->best;
	plan_search_destroy(result);
	return best;
}

/* What would be best if links shared no card is not, where they do. */
static void another_plan_is_best(void **state)
{
	struct plan_case c, without;

	(void)state;
	case_make(&c, 20);
	case_make(&without, 20);
	free_cards(&without);
	struct plan best = found(&c), other = found(&without);
	struct plan_layout *l = plan_layout_create(&c.in, NULL);
	assert_non_null(l);
	assert_int_equal(plan_predict(l, &other, NULL), TR_OK);
	assert_true(other.times.step_s > 1.02 * best.times.step_s);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
	plan_cluster_finish(&without.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_nobody_gives),
		cmocka_unit_test(groups_share_a_card),
		cmocka_unit_test(nodes_of_a_host_share_a_card),
		cmocka_unit_test(rings_share_a_card),
		cmocka_unit_test(stages_share_a_card),
		cmocka_unit_test(tables_share_a_card),
		cmocka_unit_test(bytes_of_cards),
		cmocka_unit_test(another_plan_is_best),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
