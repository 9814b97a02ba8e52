/* Plans as a job asks for them: on so many nodes, of as many workers as a job may have, of this mesh and no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/plan/plan_dealing.h"
#include "tests/unit/plan_exhaustive.h"

static const struct plan_search_settings any = { .seed = 1 };

static struct plan_result *search(const struct plan_case *c,
    const struct plan_search_settings *settings)
{
	struct plan_result *result = NULL;
	struct tr_error error;

	if (plan_search(&c->in, settings, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	return result;
}

static void give_all(struct plan_case *c, uint64_t bytes)
{
	for (uint32_t i = 0; i < c->cluster.worker_count; i++)
		c->cluster.workers[i].memory_bytes = bytes;
}

static uint32_t nodes_of(const struct plan_case *c, const struct plan *plan)
{
	bool used[PLAN_WORKERS_MAX] = { false };
	uint32_t nodes = 0;

	for (uint32_t i = 0; i < mesh_workers(&plan->choice.mesh); i++) {
		uint32_t node = c->cluster.workers[plan->worker_of[i]].node;
		nodes += !used[node];
		used[node] = true;
	}
	return nodes;
}

static void on_at_least_so_many_nodes(void **state)
{
	unsigned step = getenv("NIGHTLY") != NULL ? 4 : 8; /* each takes seconds */
	(void)state;
	for (unsigned which = 2; which < PLAN_CASES; which += step) {
		struct plan_case c;
		case_make(&c, which);
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t least = i == 0 ? 2 : c.cluster.node_count;
			c.in.min_nodes = least;
			struct plan_result *result = search(&c, &any);
			assert_true(nodes_of(&c, &result->best) >= least);
			for (uint32_t k = 0; k < result->loser_count; k++)
				assert_true(nodes_of(&c, &result->losers[k].plan) >= least);
			plan_search_destroy(result);
		}
		plan_cluster_finish(&c.cluster);
	}
}

/* Two nodes with four workers each, and a slow link between them: the best plan is on one, but for who wants both. */
static void as_near_as_it_can(void **state)
{
	struct plan_case c;

	(void)state;
	case_init(&c, "2 nodes of 4, 5 Mbit/s between", 2, 4);
	case_links(&c, 2e-3, 5 * MBIT);
	struct plan_result *result = search(&c, &any);
	double best_s = result->best.times.step_s;
	assert_int_equal(nodes_of(&c, &result->best), 1);
	plan_search_destroy(result);
	c.in.min_nodes = 2;
	result = search(&c, &any);
	assert_int_equal(nodes_of(&c, &result->best), 2);
	/* between stages, whose messages and table take some 80 s: all gradients would take 500 */
	assert_true(result->best.times.step_s > best_s && result->best.times.step_s < 120);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

/* No better placement of all there are. */
static void near_the_best_of_all(void **state)
{
	struct exhaustive *e = malloc(sizeof(*e));
	struct plan_case c;

	(void)state;
	assert_non_null(e);
	case_make(&c, 9);
	c.in.min_nodes = 2;
	struct plan_result *result = search(&c, &any);
	exhaustive_search(&c.in, result->best.times.step_s, e);
	assert_true(e->placements > 20);
	assert_true(result->best.times.step_s <= 1.05 * e->best_s);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
	free(e);
}

static void nodes_that_cannot_be(void **state)
{
	struct plan_result *result = NULL;
	struct plan_case c;
	struct tr_error error;

	(void)state;
	case_make(&c, 9);
	c.in.min_nodes = 3;
	assert_int_equal(plan_search(&c.in, &any, &result, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "there is no such plan: it is to be on at least 3 nodes (mesh.min_nodes), there are 2");
	/* one sequence of one layer is nobody else's work */
	c.in.min_nodes = 2;
	c.in.batch = 1;
	c.model.layers = 1;
	c.all.count = 3; /* tp 1 */
	assert_int_equal(plan_search(&c.in, &any, &result, &error), TR_EINVAL);
	assert_non_null(strstr(error.text,
	    "no mesh of at most 4 workers, and at least 2 for mesh.min_nodes, has a microbatch"));
	/* the second node has no memory to speak of */
	plan_cluster_finish(&c.cluster);
	case_make(&c, 9);
	c.in.min_nodes = 2;
	c.cluster.workers[2].memory_bytes = c.cluster.workers[3].memory_bytes = 1 << 20;
	assert_int_equal(plan_search(&c.in, &any, &result, &error), TR_ELIMIT);
	assert_non_null(strstr(error.text,
	    "no plan on at least 2 nodes (mesh.min_nodes) fits into memory: the one that needs"));
	plan_cluster_finish(&c.cluster);
}

/* Workers that have ranks are one less than a group has peers (job_mesh.c): as many as that hold the whole model, and have equal shares. */
static void as_many_workers_as_a_job_may_have(void **state)
{
	const struct plan_search_settings all = { .seed = 1,
		.only = { .mesh = { { TR_GROUP_PEERS_MAX, 1, 1 } } } };
	struct plan_choice choice = { 0 };
	struct dealing dealing;
	struct plan_case c;
	uint32_t most = 0, ranked = 0;

	(void)state;
	case_init(&c, "4 nodes of 64", 4, TR_GROUP_PEERS_MAX / 4);
	for (uint32_t i = 0; i < c.cluster.worker_count; i++)
		c.cluster.workers[i].speed = i % 2 == 0 ? 1 : 0.5;
	c.in.runnable = true;
	c.in.batch = 4 * TR_GROUP_PEERS_MAX;
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	while (plan_choice_next(layout, &any_choice, &choice)) {
		const uint32_t *size = choice.mesh.size;
		uint32_t workers = mesh_workers(&choice.mesh);
		bool has_ranks = size[MESH_PP] > 1 || size[MESH_TP] > 1 || choice.owners > 0;
		most = workers > most ? workers : most;
		if (has_ranks)
			ranked = workers > ranked ? workers : ranked;
	}
	assert_int_equal(most, TR_GROUP_PEERS_MAX);
	assert_true(ranked < TR_GROUP_PEERS_MAX && ranked > TR_GROUP_PEERS_MAX - 8);
	plan_layout_destroy(layout);
	struct plan_result *result = search(&c, &all);
	plan_dealing(&c.in, &result->best, &dealing);
	assert_int_equal(dealing.shares[0], 0);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

/* A job as it is, on a cluster where a search would not try its mesh by itself. */
static void what_a_search_would_not_try(void **state)
{
	struct plan_search_settings as_is = { .seed = 1,
		.exact = true,
		.only = { .mesh = { { 6, 1, 1 } },
		    .kind = SCHEDULE_1F1B,
		    .chunks = 1,
		    .sequences = 1 } };
	struct plan_case c;
	struct plan_result *result;

	(void)state;
	for (uint32_t nodes = 6; nodes <= 20; nodes += 14) {
		case_init(&c, "more than 16", nodes, 1);
		c.in.runnable = true;
		c.in.batch = 36;
		result = search(&c, &as_is);
		assert_int_equal(result->choices, 1);
		assert_int_equal(result->best.choice.mesh.size[MESH_DP], 6);
		plan_search_destroy(result);
		plan_cluster_finish(&c.cluster);
	}
	const uint32_t chunks[] = { 8, 9, TR_SCHEDULE_CHUNKS_MAX };
	as_is.only.mesh = (struct mesh){ { [MESH_DP] = 1, [MESH_PP] = 2, [MESH_TP] = 1 } };
	as_is.only.kind = SCHEDULE_INTERLEAVED;
	for (unsigned i = 0; i < 3; i++) {
		case_init(&c, "2 nodes", 2, 1);
		c.in.runnable = true;
		c.model.layers = 2 * chunks[i];
		give_all(&c, 64 * GIB);
		as_is.only.chunks = chunks[i];
		result = search(&c, &as_is);
		assert_int_equal(result->choices, 1);
		assert_int_equal(result->best.choice.chunks, chunks[i]);
		for (uint32_t stage = 0; stage < 2 * chunks[i]; stage++)
			assert_int_equal(result->best.layers_of[stage], 1);
		plan_search_destroy(result);
		plan_cluster_finish(&c.cluster);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_at_least_so_many_nodes),
		cmocka_unit_test(as_near_as_it_can),
		cmocka_unit_test(near_the_best_of_all),
		cmocka_unit_test(nodes_that_cannot_be),
		cmocka_unit_test(as_many_workers_as_a_job_may_have),
		cmocka_unit_test(what_a_search_would_not_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
