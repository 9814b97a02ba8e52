/* The planner against all plans there are, on small clusters (make plan-quality has more); what it says when none fits, and why others lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/checkpoint/bulk_file.h"
#include "daemon/plan/plan_dealing.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/plan/memory.h"
#include "tests/unit/plan_exhaustive.h"

static struct plan_result *search(const struct plan_case *c, bool pareto)
{
	struct plan_result *result = NULL;
	struct tr_error error;
	const struct plan_search_settings settings = { .seed = 1, .pareto = pareto };
	if (plan_search(&c->in, &settings, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	return result;
}

/* Of those that jobs run, where the input asks for these. */
static void check_near_the_best(const struct plan_case *c, const struct plan *plan)
{
	struct exhaustive *e = malloc(sizeof(*e));
	assert_non_null(e);
	exhaustive_search(&c->in, plan->times.step_s, e);
	assert_true(e->placements > 100);
	if (plan->times.step_s > 1.05 * e->best_s)
		fail_msg("%s: %.3f s, best of all %.3f s", c->name, plan->times.step_s, e->best_s);
	free(e);
}

static void near_the_best_of_all(void **state)
{
	struct plan_case c;
	(void)state;
	for (unsigned i = 0; i < PLAN_CASES; i++) {
		if (i % 4 == 1 && i != 1) /* plans_that_jobs_run has them */
			continue;
		case_make(&c, i);
		struct plan_result *result = search(&c, false);
		check_near_the_best(&c, &result->best);
		plan_search_destroy(result);
		plan_cluster_finish(&c.cluster);
	}
}

/* Without knowing the planner's step before: what is cut off may not be what is best. */
static void all_plans_have_no_better_one(void **state)
{
	struct exhaustive *e = malloc(sizeof(*e));
	struct plan_case c;
	(void)state;
	assert_non_null(e);
	case_make(&c, 8);
	struct plan_result *result = search(&c, false);
	exhaustive_search(&c.in, INFINITY, e);
	assert_true(fabs(e->best_s - result->best.times.step_s) <= 0.05 * e->best_s);
	assert_true(e->timed > 1000);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
	free(e);
}

static void slow_workers_get_less(void **state)
{
	struct plan_case c;
	(void)state;
	case_make(&c, 5);
	struct plan_result *result = search(&c, false);
	const struct plan *best = &result->best;
	assert_int_equal(best->choice.mesh.size[MESH_DP], 4);
	for (uint32_t a = 0; a < 4; a++)
		for (uint32_t b = 0; b < 4; b++)
			if (c.cluster.workers[best->worker_of[a]].speed >
			    1.9 * c.cluster.workers[best->worker_of[b]].speed)
				assert_true(best->microbatches_of[a] > best->microbatches_of[b]);
	plan_search_destroy(result);

	/* A worker that would only hold up the others has no rank. */
	plan_cluster_finish(&c.cluster);
	case_make(&c, 6);
	result = search(&c, false);
	for (uint32_t i = 0; i < mesh_workers(&result->best.choice.mesh); i++)
		assert_true(result->best.worker_of[i] != 1);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

static void the_same_again(void **state)
{
	struct plan_case c;
	(void)state;
	case_make(&c, 13);
	struct plan_result *first = search(&c, true), *second = search(&c, true);
	assert_memory_equal(first, second, offsetof(struct plan_result, pareto));
	assert_int_equal(first->pareto_count, second->pareto_count);
	assert_memory_equal(first->pareto, second->pareto,
	    first->pareto_count * sizeof(*first->pareto));
	assert_true(first->loser_count > 3);
	for (uint32_t i = 0; i < first->loser_count; i++) {
		assert_true(first->losers[i].plan.memory_part > 1 ||
		    first->losers[i].plan.times.step_s >= first->best.times.step_s);
		assert_true(first->losers[i].why[0] != '\0');
	}
	plan_search_destroy(first);
	plan_search_destroy(second);
	plan_cluster_finish(&c.cluster);
}

/* What jobs run: a rank's layers evenly over its chunks, a microbatch for each stage where there are several of them; of the batch and the layers nothing is left out. */
static void check_runnable(const struct plan_case *c, const struct plan *plan)
{
	const uint32_t *size = plan->choice.mesh.size;
	uint32_t layers = 0, pp = size[MESH_PP], chunks = plan->choice.chunks;
	uint32_t asked[PLAN_STAGES_MAX];
	struct dealing dealing;

	for (uint32_t stage = 0; stage < pp * chunks; stage++)
		layers += plan->layers_of[stage];
	assert_int_equal(layers, c->model.layers);
	/* With the job's keys each stage has these layers, and no replica cuts its share into more microbatches than were timed. */
	plan_dealing(&c->in, plan, &dealing);
	assert_int_equal(job_mesh_stages(&c->model, pp, chunks, dealing_layers(&dealing), asked,
	                     NULL),
	    TR_OK);
	for (uint32_t stage = 0; stage < pp * chunks; stage++)
		assert_int_equal(asked[stage], plan->layers_of[stage]);
	struct job_batch batch = { c->in.batch, plan->choice.sequences };
	assert_int_equal(job_mesh_chunks(&c->model, &dealing, chunks, &batch), chunks);
	for (uint32_t d = 0; d < size[MESH_DP]; d++)
		assert_true(plan_dealing_microbatches(&c->in, &plan->choice, &dealing, d) <=
		    plan->microbatches_of[d]);
}

/* A job as it is: whatever the speeds, layers and shares are those of its keys. */
static void check_dealt(const struct plan_case *c, const struct plan *plan)
{
	struct dealing dealing;
	const struct dealing none = { .mesh = plan->choice.mesh };

	plan_dealing(&c->in, plan, &dealing);
	assert_true(dealing_equal(&dealing, &none));
}

static void plans_that_jobs_run(void **state)
{
	unsigned gained = 0, interleaved = 0, step = getenv("NIGHTLY") != NULL ? 2 : 4;
	(void)state;
	for (unsigned i = 1; i < PLAN_CASES; i += step) {
		struct plan_case c;
		const struct dealing even = { .mesh = { { 0, 0, 0 } } };
		case_make(&c, i);
		struct plan_result *any = search(&c, false);
		c.in.runnable = true;
		struct plan_result *result = search(&c, false);
		check_runnable(&c, &result->best);
		if (c.cluster.worker_count < 6) /* others take long */
			check_near_the_best(&c, &result->best);
		for (uint32_t k = 0; k < result->loser_count; k++)
			check_runnable(&c, &result->losers[k].plan);
		assert_true(result->best.times.step_s > 0.99 * any->best.times.step_s);
		c.in.dealt = &even;
		struct plan_result *dealt = search(&c, false);
		check_dealt(&c, &dealt->best);
		assert_true(result->best.times.step_s < 1.001 * dealt->best.times.step_s);
		interleaved += result->best.choice.chunks > 1;
		gained += result->best.times.step_s < 0.95 * dealt->best.times.step_s;
		plan_search_destroy(any);
		plan_search_destroy(result);
		plan_search_destroy(dealt);
		plan_cluster_finish(&c.cluster);
	}
	assert_true(gained >= 4 / step); /* speeds 1, 1, 0.5, 0.25, and others */
	assert_true(interleaved >= 4 / step);
}

/* Two workers, one of half the speed: two thirds of the batch, and of the layers where they are stages. */
static void a_slow_worker_gets_less(void **state)
{
	struct plan_case c;
	struct plan_result *result;
	struct plan_search_settings only = { .seed = 1, .only = { .mesh = { { 2, 1, 1 } } } };
	struct dealing dealing;
	(void)state;
	case_make(&c, 0);
	c.in.runnable = true;
	c.in.batch = 12;
	c.cluster.worker_count = 2;
	c.cluster.workers[1].speed = 0.5;
	assert_int_equal(plan_search(&c.in, &only, &result, NULL), TR_OK);
	plan_dealing(&c.in, &result->best, &dealing);
	uint32_t fast = result->best.worker_of[0];
	assert_int_equal(dealing.shares[fast], 2 * dealing.shares[1 - fast]);
	plan_search_destroy(result);
	only.only.mesh = (struct mesh){ { 1, 2, 1 } };
	assert_int_equal(plan_search(&c.in, &only, &result, NULL), TR_OK);
	plan_dealing(&c.in, &result->best, &dealing);
	fast = result->best.worker_of[0];
	assert_true(dealing.layers[fast] > dealing.layers[1 - fast] && dealing.shares[0] == 0);
	/* as the job's keys say */
	struct dealing asked = { .mesh = only.only.mesh };
	asked.layers[0] = 1;
	asked.layers[1] = c.model.layers - 1;
	c.in.dealt = &asked;
	plan_search_destroy(result);
	assert_int_equal(plan_search(&c.in, &only, &result, NULL), TR_OK);
	assert_int_equal(result->best.layers_of[1], c.model.layers - 1);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

static void refusals_have_numbers(void **state)
{
	struct plan_result *result = NULL;
	struct plan_case c;
	struct tr_error error;
	const struct plan_search_settings settings = { .seed = 1 };
	(void)state;
	case_make(&c, 0);
	for (uint32_t i = 0; i < 4; i++)
		c.cluster.workers[i].memory_bytes = 250 << 20;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_ELIMIT);
	assert_null(result);
	assert_non_null(strstr(error.text, "no plan fits into memory: the one that needs least"));
	assert_non_null(strstr(error.text, "which has 250.0 MiB; it would fit with "));
	assert_non_null(strstr(error.text, ", or with "));
	assert_non_null(strstr(error.text, " workers of 250.0 MiB"));

	c.in.batch = 0;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_EINVAL);
	c.in.batch = 8;
	c.costs[0].time[SECTION_LAYER].forward_s = NAN;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_EINVAL);
	assert_non_null(
	    strstr(error.text, "the cost of tp 1 and 1 sequences is none: allowed are "));
	/* Without any time a layer would be nobody's; a size that wraps would be the least. */
	case_costs(&c);
	c.costs[2].time[SECTION_LAYER] = (struct plan_section_time){ 0, 0 };
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_EINVAL);
	assert_non_null(
	    strstr(error.text, "the cost of tp 1 and 4 sequences is none: allowed are "));
	case_costs(&c);
	c.costs[0].working_bytes = UINT64_MAX;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_EINVAL);
	case_costs(&c);
	c.costs[1] = c.costs[0]; /* it would go from the second to the first for ever */
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "there are two costs of tp 1 and 1 sequences, allowed: one; remove the other");
	case_costs(&c);
	c.cluster.links[1].bandwidth_bytes_per_s = 0;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "the link from n0 to n1 has no bandwidth, or a latency below 0");
	plan_cluster_finish(&c.cluster);
	assert_int_equal(plan_cluster_create(1, 1000, &c.cluster, &error), TR_EINVAL);
}

/* Of a cluster of so many there is a plan, of one with a worker less none. */
static void so_few_workers_would_do(void **state)
{
	const struct plan_search_settings settings = { .seed = 1 };
	bool between = false; /* one of the numbers is no doubled one */
	(void)state;
	for (uint64_t mib = 240; mib <= 280; mib += 20) {
		struct plan_result *result = NULL;
		struct plan_case c;
		struct tr_error error;
		case_make(&c, 0);
		for (uint32_t i = 0; i < 4; i++)
			c.cluster.workers[i].memory_bytes = mib << 20;
		assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_ELIMIT);
		const char *words = strstr(error.text, ", or with ");
		assert_non_null(words);
		uint32_t fewest = (uint32_t)strtoul(words + strlen(", or with "), NULL, 10);
		between = between || (fewest & (fewest - 1)) != 0;
		for (uint32_t workers = fewest - 1; workers <= fewest; workers++) {
			plan_cluster_finish(&c.cluster);
			assert_int_equal(plan_cluster_create(1, workers, &c.cluster, NULL), TR_OK);
			c.cluster.links[0] = (struct flow_link){ 5e-6, 80 * GBIT };
			for (uint32_t i = 0; i < workers; i++)
				c.cluster.workers[i] = (struct plan_worker){ 0, 1, mib << 20 };
			assert_int_equal(plan_search(&c.in, &settings, &result, &error),
			    workers == fewest ? TR_OK : TR_ELIMIT);
		}
		plan_search_destroy(result);
		plan_cluster_finish(&c.cluster);
	}
	assert_true(between);
}

/* Behind the arrays of the whole model, up to the ends of huge pages (test_plan_memory.c). */
#define FILLED (3200 << 10)

/* dp 2 on two nodes, by hand: four microbatches each of 6 layers; gradients go round a ring of two while the last backward runs. */
static void a_step_by_hand(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 1);
	(void)state;
	case_make(&c, 0);
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	plan_fill(layout, &plan);
	assert_int_equal(plan_predict(layout, &plan, NULL), TR_OK);
	assert_int_equal(plan.microbatches_of[0], 4);
	double once = 1.1 * (6 * 195e-3 + 3e-3 + 129e-3);
	assert_true(fabs(plan.times.compute_s - 4 * once) < 1e-9);
	assert_true(plan.times.exchange_s == 0 && fabs(plan.times.idle_s) < 1e-12);
	double parameters = (double)model_config_parameters(&c.model),
	       reduction = parameters * 4 / (10 * GBIT) + 2 * 50e-6;
	double backward = 1.1 * (6 * 130e-3 + 2e-3 + 86e-3);
	/* Six buckets; all but the last are under way while the backward pass goes on, if the link is fast enough. */
	assert_true(reduction < backward);
	assert_true(
	    fabs(plan.times.reduce_s - (parameters * 4 / (10 * GBIT) / 6 + 2 * 50e-6)) < 1e-9);
	assert_true(fabs(plan.times.update_s - (parameters * 0.6e-9 + 1e-3 + 2 * 50e-6)) < 1e-9);
	/* Where nothing is hidden, all buckets come behind the backward pass. */
	c.cluster.busy = true;
	double before = plan.times.step_s;
	assert_int_equal(plan_predict(layout, &plan, NULL), TR_OK);
	assert_true(plan.times.step_s > before);
	assert_true(
	    fabs(plan.times.reduce_s - (parameters * 4 / (10 * GBIT) + 6 * 2 * 50e-6)) < 1e-9);
	plan_layout_traffic(layout, &plan);
	assert_true(fabs(layout->bytes[0 * 4 + 1] - parameters * 4) < 1);
	assert_true(fabs(layout->bytes[1 * 4 + 0] - parameters * 4) < 1);
	assert_true(layout->bytes[0] == 0 && layout->bytes[2] == 0);
	uint64_t kept = 0;
	for (int i = 0; i < SECTIONS; i++)
		kept += c.costs[0].kept_bytes[i] * (i == SECTION_LAYER ? 6 : 1);
	assert_int_equal(plan.memory_bytes,
	    16 * (uint64_t)parameters + FILLED + kept + c.costs[0].working_bytes + (64 << 20));
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

/* All workers lack memory: that one of them has more does not help. And no other mesh is spoken of than what is asked for. */
static void what_would_do(void **state)
{
	struct plan_result *result = NULL;
	struct plan_case c;
	struct tr_error error;
	struct plan_search_settings settings = { .seed = 1,
		.only = { .mesh = { { [MESH_DP] = 1, [MESH_PP] = 1, [MESH_TP] = 2 } },
		    .sequences = 1 } };
	(void)state;
	case_make(&c, 0);
	for (uint32_t i = 0; i < 4; i++)
		c.cluster.workers[i].memory_bytes = 300 << 20;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_ELIMIT);
	assert_non_null(strstr(error.text, " at each of the 2 workers that lack memory"));
	assert_null(strstr(error.text, ", or with "));
	/* It does. */
	double mib = strtod(strstr(error.text, "would fit with ") + 15, NULL) + 1;
	for (uint32_t i = 0; i < 4; i++)
		c.cluster.workers[i].memory_bytes = (uint64_t)mib << 20;
	assert_int_equal(plan_search(&c.in, &settings, &result, &error), TR_OK);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

/* 12 bytes: a parameter and its moments; and the block that a file is written through. */
static void who_writes_takes_more(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 1);
	(void)state;
	case_make(&c, 0);
	uint64_t whole = model_config_parameters(&c.model), block = BULK_BLOCK_BYTES;
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	plan_fill(layout, &plan);
	assert_int_equal(plan_writer_bytes(layout, &plan, false), block);
	assert_int_equal(plan_writer_bytes(layout, &plan, true), 12 * whole + block);
	plan.choice.mesh = (struct mesh){ { [MESH_DP] = 1, [MESH_PP] = 2, [MESH_TP] = 1 } };
	plan_fill(layout, &plan);
	uint64_t others = whole - plan_layout_parameters(layout, &plan, 0);
	assert_in_range(others, whole / 3, whole);
	assert_int_equal(plan_writer_bytes(layout, &plan, false), 12 * others + 4 * whole + block);
	assert_int_equal(plan_writer_bytes(layout, &plan, true), 16 * whole + block);
	uint64_t before = plan_rank_bytes(layout, &plan, 1, NULL);
	c.in.writes = PLAN_WRITES_SHARDS; /* each has a copy of its own instead */
	assert_int_equal(plan_rank_bytes(layout, &plan, 1, NULL),
	    before + 12 * plan_layout_parameters(layout, &plan, 1) + block);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

static void lay_out(struct plan_layout *layout, struct plan *plan)
{
	plan_fill(layout, plan);
	assert_int_equal(plan_predict(layout, plan, NULL), TR_OK);
}

/* Four replicas: 16 bytes a parameter, with two owners 8 + 8 x 2/4 and a quarter of the new parameters; each sends its quarter to the two that do not own it. */
static void moments_of_two_owners(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(4, 1, 1);
	(void)state;
	case_make(&c, 0);
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	lay_out(layout, &plan);
	struct plan all = plan;
	plan.choice.owners = 2;
	lay_out(layout, &plan);
	double parameters = (double)model_config_parameters(&c.model);
	all.memory_bytes -= FILLED;
	assert_true(fabs((double)all.memory_bytes - (double)plan.memory_bytes - 3 * parameters) < 2);
	/* No link between the four carries more than one piece; by each card two leave, and two come in. */
	double updated = 0.25 * parameters * 0.6e-9;
	assert_true(fabs(plan.times.step_s - all.times.step_s + updated -
	                2 * parameters / (10 * GBIT) - 2 * 50e-6) < 1e-9);
	plan_layout_traffic(layout, &plan);
	/* A ring of sums, and a piece to each but the one before, which owns it too. */
	assert_true(fabs(layout->bytes[0 * 4 + 1] - 1.5 * parameters * 4 - parameters) < 8);
	assert_true(fabs(layout->bytes[0 * 4 + 2] - parameters) < 8);
	assert_true(layout->bytes[1 * 4 + 0] == 0);
	/* As many owners as replicas: as without. */
	plan.choice.owners = 4;
	lay_out(layout, &plan);
	assert_int_equal(plan.memory_bytes, all.memory_bytes);
	assert_true(fabs(plan.times.step_s - all.times.step_s) < 1e-12);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

/* Of tp 2: of a layer half a stream less of its input, of what is between its halves, and their like; three gradients of the stream in work. */
static void own_rows_take_less(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(1, 2, 2);
	const double stream = 512 * 1024 * 4;
	(void)state;
	case_make(&c, 9);
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	lay_out(layout, &plan);
	struct plan all = plan;
	plan_layout_traffic(layout, &all);
	double between = layout->bytes[0 * 2 + 1];
	plan.choice.own_rows = true;
	lay_out(layout, &plan);
	/* Two microbatches of three layers in flight, and messages: ten, and two outputs. */
	double saved = 2 * 3 * stream + 3 * stream / 2 + (MEMORY_MESSAGES + 2) * stream / 2;
	assert_int_equal(all.fullest, 0);
	assert_true(fabs((double)(all.memory_bytes - plan.memory_bytes) - saved) < 1e-3 * saved);
	/* Half of each message; what all of tp hold stays inside a node. */
	plan_layout_traffic(layout, &plan);
	assert_true(layout->bytes[0 * 2 + 1] < between);
	assert_true(plan.times.step_s < all.times.step_s);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

static struct plan best_of_replicas(const struct plan_case *c)
{
	const struct plan_search_settings four = { .seed = 1, .only = { .mesh = { { 4, 1, 1 } } } };
	struct plan_result *result = NULL;
	struct tr_error error;

	if (plan_search(&c->in, &four, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	struct plan best = result->best;
	plan_search_destroy(result);
	return best;
}

static void give_memory(struct plan_case *c, double gib)
{
	for (uint32_t i = 0; i < c->cluster.worker_count; i++)
		c->cluster.workers[i].memory_bytes = (uint64_t)(gib * (double)GIB);
}

/* Where all fits moments are whole; less memory, and they are not. What the job asks for is in every plan. */
static void memory_is_saved_where_it_is_lacking(void **state)
{
	struct plan_case c;
	(void)state;
	case_make(&c, 0);
	c.in.runnable = true;
	assert_int_equal(best_of_replicas(&c).choice.owners, 0);
	give_memory(&c, 1.3);
	struct plan best = best_of_replicas(&c);
	assert_true(best.choice.owners == 2 && best.memory_part <= 1);
	give_memory(&c, 16);
	c.in.owners = 3;
	assert_int_equal(best_of_replicas(&c).choice.owners, 3);
	plan_cluster_finish(&c.cluster);
}

/* Who writes has room where any plan leaves it: one worker has twice the others' memory, so that it is rank 0's. */
static void who_writes_has_room(void **state)
{
	struct plan_case c;
	struct plan_search_settings split = { .seed = 1, .only = { .mesh = { { 1, 4, 1 } } } };
	struct plan_result *result;
	struct tr_error error;
	(void)state;
	case_make(&c, 0);
	c.in.runnable = true;
	give_memory(&c, 1.5);
	c.cluster.workers[2].memory_bytes = 4 * GIB;
	c.in.writes = PLAN_WRITES_LAST;
	assert_int_equal(plan_search(&c.in, &split, &result, NULL), TR_OK);
	assert_int_equal(result->best.worker_of[0], 2);
	plan_search_destroy(result);
	give_memory(&c, 1.2);
	assert_int_equal(plan_search(&c.in, &split, &result, &error), TR_ELIMIT);
	c.in.writes = PLAN_WRITES_NOTHING;
	assert_int_equal(plan_search(&c.in, &split, &result, &error), TR_OK);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

static unsigned asked, patience;

static bool gives_up(void)
{
	return asked++ >= patience;
}

static void given_up_at_any_time(void **state)
{
	(void)state;
	struct plan_case c;
	struct plan_search_settings s = { .seed = 1, .pareto = true, .gives_up = gives_up };
	struct plan_result *result = NULL;
	case_make(&c, 0);
	for (patience = 0; plan_search(&c.in, &s, &result, NULL) != TR_OK; asked = 0) {
		assert_true(result == NULL && asked == patience + 1);
		patience = 2 * patience + 1;
	}
	assert_true(asked > 20);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_by_hand),
		cmocka_unit_test(near_the_best_of_all),
		cmocka_unit_test(all_plans_have_no_better_one),
		cmocka_unit_test(slow_workers_get_less),
		cmocka_unit_test(the_same_again),
		cmocka_unit_test(plans_that_jobs_run),
		cmocka_unit_test(a_slow_worker_gets_less),
		cmocka_unit_test(refusals_have_numbers),
		cmocka_unit_test(so_few_workers_would_do),
		cmocka_unit_test(what_would_do),
		cmocka_unit_test(who_writes_takes_more),
		cmocka_unit_test(moments_of_two_owners),
		cmocka_unit_test(own_rows_take_less),
		cmocka_unit_test(memory_is_saved_where_it_is_lacking),
		cmocka_unit_test(who_writes_has_room),
		cmocka_unit_test(given_up_at_any_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
