/* What the planner counts where replicas train apart: merges in place of sums at each step, and what workers hold for them; and that a model which no worker holds is split within nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_memory.h"
#include "tests/unit/plan_cases.h"

static struct plan_apart apart_of(enum tr_sync_mode mode, uint64_t steps, enum tr_codec codec)
{
	struct tr_sync_options options = { .mode = mode,
		.inner_steps = steps,
		.codec = codec,
		.fragments = 1,
		.outer_momentum = mode == TR_SYNC_LOCAL_SGD ? 0 : 0.9,
		.overlap = mode == TR_SYNC_EAGER ? (int64_t)steps : 0 };
	struct plan_apart apart;

	plan_apart_of(&options, &apart);
	return apart;
}

static void of_options(void **state)
{
	(void)state;
	struct plan_apart diloco = apart_of(TR_SYNC_DILOCO, 64, TR_CODEC_INT4);
	assert_true(diloco.on && !diloco.behind && diloco.steps == 64 && diloco.seconds == 0);
	/* Half a byte, and a scale of two bytes, or four, for each block. */
	assert_true(diloco.wire_bytes > 0.5 && diloco.wire_bytes < 0.57);
	/* Outer parameters, momentum and a movement; of a shard work and momentum. */
	assert_true(diloco.held_whole == 12 && diloco.held_split == 8 && diloco.written == 4);
	struct plan_apart sgd = apart_of(TR_SYNC_LOCAL_SGD, 64, TR_CODEC_NONE);
	assert_true(sgd.wire_bytes == 4 && sgd.held_whole == 8 && sgd.held_split == 4);
	assert_true(sgd.written == 0);
	struct plan_apart eager = apart_of(TR_SYNC_EAGER, 64, TR_CODEC_NONE);
	assert_true(eager.behind && eager.held_whole == 28 && eager.held_split == 28);
	struct tr_sync_options options = { .mode = TR_SYNC_STREAMING,
		.inner_seconds = 30,
		.codec = TR_CODEC_INT2,
		.feedback = 0.95,
		.fragments = 8,
		.outer_momentum = 0.9,
		.overlap = 1 };
	struct plan_apart streaming;
	plan_apart_of(&options, &streaming);
	assert_true(streaming.behind && streaming.steps == 0 && streaming.seconds == 30);
	assert_true(streaming.held_whole == 4 * (1 + 2 + 1 + 0.25) && streaming.held_split == 17);
}

/* A replica on each of two nodes: what goes between them, how long a merge is, and memory. */
static void merges_in_place_of_sums(void **state)
{
	const double steps = 50;
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 2), apart = plan;

	(void)state;
	case_make(&c, 9);
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	case_predict(layout, &plan);
	double between = layout->bytes[0 * 2 + 1], inside = layout->bytes[0];
	double parameters = (double)plan_layout_parameters(layout, &plan, 0);
	c.in.apart = apart_of(TR_SYNC_DILOCO, (uint64_t)steps, TR_CODEC_NONE);
	case_predict(layout, &apart);
	/* Two workers of each replica send their half of the model once, either way. */
	assert_true(fabs(between - 2 * 4 * parameters) < 8);
	assert_true(fabs(layout->bytes[0 * 2 + 1] - 2 * 4 * parameters / steps) < 8);
	assert_true(fabs(layout->bytes[0] - inside) < 8);
	const struct flow_link *link = &c.cluster.links[1];
	double merge = 2 * link->latency_s + 2 * 4 * parameters / link->bandwidth_bytes_per_s +
	    2 * link->latency_s + c.all.round_s;
	assert_true(fabs(apart.times.reduce_s - merge / steps) < 1e-9);
	assert_true(apart.times.compute_s == plan.times.compute_s);
	assert_true(apart.times.step_s < plan.times.step_s - merge / 2);
	assert_true(fabs((double)(apart.memory_bytes - plan.memory_bytes) - 8 * parameters) < 16);
	/* As many merges as steps. */
	c.in.apart.steps = 1;
	case_predict(layout, &apart);
	assert_true(fabs(apart.times.reduce_s - merge) < 1e-9);
	/* While they train on: what of them takes longer. */
	double alone = apart.times.step_s - apart.times.reduce_s;
	c.in.apart.behind = true;
	case_predict(layout, &apart);
	assert_true(fabs(apart.times.step_s - fmax(alone, merge)) < 1e-9);
	c.in.apart.steps = steps;
	case_predict(layout, &apart);
	assert_true(apart.times.reduce_s == 0 && fabs(apart.times.step_s - alone) < 1e-9);
	/* By time: one in so many seconds. */
	c.in.apart = (struct plan_apart){ .on = true, .seconds = 10 * alone, .wire_bytes = 4 };
	case_predict(layout, &apart);
	assert_true(fabs(apart.times.reduce_s - merge / 10) < 1e-9);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

static struct plan best_of(const struct plan_case *c)
{
	struct plan_result *result = NULL;
	struct tr_error error;

	if (plan_search(&c->in, &(struct plan_search_settings){ .seed = 1 }, &result, &error) !=
	    TR_OK)
		fail_msg("%s", error.text);
	struct plan best = result->best;
	plan_search_destroy(result);
	return best;
}

/* Two sites of two with a slow way between: whole models where they fit, else replicas that lie within a site each, which gradients at every step have no use for. */
static void replicas_within_sites(void **state)
{
	struct plan_case c;

	(void)state;
	case_init(&c, "two sites", 4, 1);
	case_links(&c, 50e-3, 20 * MBIT);
	case_pair(&c, 0, 2, 1e-4, GBIT);
	case_pair(&c, 1, 3, 1e-4, GBIT);
	struct dealing even = { .mesh = { { 1, 1, 1 } } };
	c.in.dealt = &even;
	c.in.runnable = true;
	c.in.apart = apart_of(TR_SYNC_DILOCO, 500, TR_CODEC_INT4);
	struct plan best = best_of(&c);
	assert_int_equal(best.choice.mesh.size[MESH_DP], 4);
	uint64_t whole = best.memory_bytes;
	for (unsigned i = 0; i < 4; i++)
		c.cluster.workers[i].memory_bytes = whole * 7 / 10;
	best = best_of(&c);
	assert_int_equal(best.choice.mesh.size[MESH_DP], 2);
	assert_true(best.memory_part <= 1 && best.memory_bytes < whole);
	for (uint32_t replica = 0; replica < 2; replica++) {
		uint32_t members[4], count = 0;
		for (uint32_t rank = 0; rank < 4; rank++)
			if (mesh_at(&best.choice.mesh, rank).at[MESH_DP] == replica)
				members[count++] = best.worker_of[rank];
		assert_int_equal(count, 2);
		assert_int_equal(members[0] % 2, members[1] % 2);
	}
	assert_int_equal(best.choice.owners, 0);
	plan_cluster_finish(&c.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_options),
		cmocka_unit_test(merges_in_place_of_sums),
		cmocka_unit_test(replicas_within_sites),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
