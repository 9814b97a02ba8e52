#include "daemon/plan/plan_why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/plan/plan_place.h"
#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_predict.h"

#define TEXT_MAX  24
#define WORDS_MAX 100

static const char *seconds_text(double seconds, char text[TEXT_MAX])
{
	if (seconds < 1e-3)
		(void)snprintf(text, TEXT_MAX, "%.0f us", 1e6 * seconds);
	else if (seconds < 1)
		(void)snprintf(text, TEXT_MAX, "%.3g ms", 1e3 * seconds);
	else
		(void)snprintf(text, TEXT_MAX, "%.3g s", seconds);
	return text;
}

static const char *bytes_text(double bytes, char text[TEXT_MAX])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	unsigned unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	(void)snprintf(text, TEXT_MAX, bytes < 10 && unit > 0 ? "%.2f %s" : "%.1f %s", bytes,
	    units[unit]);
	return text;
}

static double memory_of_fullest(const struct plan_input *in, const struct plan *plan, double *has)
{
	const struct mesh *mesh = &plan->choice.mesh;
	uint32_t a_rank = mesh->size[MESH_DP] * mesh->size[MESH_TP];

	*has = INFINITY;
	if (plan->writer_fullest)
		*has = (double)in->cluster->workers[plan->worker_of[0]].memory_bytes;
	for (uint32_t i = 0; i < a_rank && !plan->writer_fullest; i++)
		*has = fmin(*has,
		    (double)in->cluster->workers[plan->worker_of[plan->fullest * a_rank + i]]
		        .memory_bytes);
	return plan->memory_part * *has;
}

void plan_why_lost(const struct plan_layout *layout, const struct plan *best,
    const struct plan *loser, char *why)
{
	static const char *const words[] = { "layers take", "sums over tp take",
		"the bubble and waiting for other stages take", "gradients over dp take",
		"update and commit take" };
	const double of_best[] = { best->times.compute_s, best->times.exchange_s,
		best->times.idle_s, best->times.reduce_s, best->times.update_s };
	const double of_loser[] = { loser->times.compute_s, loser->times.exchange_s,
		loser->times.idle_s, loser->times.reduce_s, loser->times.update_s };
	char a[TEXT_MAX], b[TEXT_MAX];
	unsigned most = 0;
	double has, needs = memory_of_fullest(layout->in, loser, &has);

	if (loser->memory_part > 1) {
		(void)snprintf(why, PLAN_WHY_MAX,
		    "does not fit: needs %s at a worker that has %s%s", bytes_text(needs, a),
		    bytes_text(has, b), loser->writer_fullest ? ", to write a checkpoint" : "");
		return;
	}
	for (unsigned i = 1; i < 5; i++)
		if (of_loser[i] - of_best[i] > of_loser[most] - of_best[most])
			most = i;
	if (loser->times.step_s <= best->times.step_s * (1 + 1e-6))
		(void)snprintf(why, PLAN_WHY_MAX,
		    "takes as long, and %s of memory where %s will do",
		    bytes_text((double)loser->memory_bytes, a),
		    bytes_text((double)best->memory_bytes, b));
	else
		(void)snprintf(why, PLAN_WHY_MAX, "%s %s, here %s", words[most],
		    seconds_text(of_loser[most], a), seconds_text(of_best[most], b));
}

/* So many workers like the one with the most memory, all near: how full the best of their plans is. */
static double part_with(const struct plan_input *in, const struct plan_search_settings *settings,
    uint32_t workers, uint64_t memory)
{
	struct plan_cluster cluster;
	struct plan_layout *layout;
	struct plan_input wider = *in;
	struct plan plan = { 0 };
	double least = INFINITY;

	if (plan_cluster_create(1, workers, &cluster, NULL) != TR_OK)
		return INFINITY;
	cluster.links[0] = (struct flow_link){ 0, 1e9 };
	for (uint32_t i = 0; i < workers; i++) {
		cluster.workers[i] = (struct plan_worker){ 0, 1, memory };
		plan.worker_of[i] = (uint16_t)i;
	}
	wider.cluster = &cluster;
	layout = plan_layout_create(&wider, NULL);
	while (layout != NULL && plan_choice_next(layout, &settings->only, &plan.choice)) {
		if (!plan_choice_is_wanted(settings, &plan.choice))
			continue;
		plan_fill(layout, &plan);
		plan_measure_memory(layout, &plan, NULL);
		least = fmin(least, plan.memory_part);
	}
	plan_layout_destroy(layout);
	plan_cluster_finish(&cluster);
	return least;
}

static bool fits_with(const struct plan_input *in, const struct plan_search_settings *settings,
    uint32_t workers, uint64_t memory)
{
	return part_with(in, settings, workers, memory) <= 1;
}

/* The fewest such workers for which there is a plan; 0: there is for none. With more of them there are all plans of fewer, but for some odd dp (plan_choice.c). */
static uint32_t fewest_that_fit(const struct plan_input *in,
    const struct plan_search_settings *settings, uint64_t memory)
{
	uint32_t lacking = 0, enough;

	for (uint32_t i = 0; i < in->cluster->worker_count; i++)
		lacking += in->cluster->workers[i].memory_bytes == memory; /* there are */
	enough = lacking;
	while (enough == lacking || !fits_with(in, settings, enough, memory)) {
		if (enough == PLAN_WORKERS_MAX)
			return 0;
		lacking = enough;
		enough = enough < PLAN_WORKERS_MAX / 2 ? 2 * enough : PLAN_WORKERS_MAX;
	}
	while (enough - lacking > 1) {
		uint32_t between = lacking + (enough - lacking) / 2;
		if (fits_with(in, settings, between, memory))
			enough = between;
		else
			lacking = between;
	}
	return enough;
}

/* Workers that have less than the plan needs there, and the most that one of them needs. */
static uint32_t count_lacking(struct plan_layout *l, const struct plan *plan, uint64_t *most)
{
	const struct mesh *mesh = &plan->choice.mesh;
	uint32_t a_rank = mesh->size[MESH_DP] * mesh->size[MESH_TP], lacking = 0;

	plan_refill(l, plan);
	*most = 0;
	for (uint32_t i = 0; i < mesh_workers(mesh); i++) {
		uint64_t needs = i == 0 ? plan_first_bytes(l, plan, NULL)
		                        : plan_rank_bytes(l, plan, i / a_rank, NULL);
		if (needs <= l->in->cluster->workers[plan->worker_of[i]].memory_bytes)
			continue;
		lacking++;
		*most = needs > *most ? needs : *most;
	}
	return lacking;
}

static void say_more_memory(struct plan_layout *l, const struct plan *plan, double wanted,
    char words[WORDS_MAX])
{
	char needs[TEXT_MAX];
	uint64_t most;
	uint32_t lacking = count_lacking(l, plan, &most);

	if (lacking > 1)
		(void)snprintf(words, WORDS_MAX,
		    "with %s at each of the %u workers that lack memory",
		    bytes_text((double)most, needs), lacking);
	else
		(void)snprintf(words, WORDS_MAX, "with %s there", bytes_text(wanted, needs));
}

tr_status plan_why_none_fits(struct plan_layout *layout,
    const struct plan_search_settings *settings, const struct plan *closest, struct tr_error *error)
{
	const struct plan_input *in = layout->in;
	char choice[PLAN_CHOICE_TEXT_MAX], needs[TEXT_MAX], has[TEXT_MAX], more[WORDS_MAX],
	    would[WORDS_MAX] = "", where[48] = "";
	double there, wanted = memory_of_fullest(in, closest, &there);
	uint64_t largest = 0;
	uint32_t fewest;

	for (uint32_t i = 0; i < in->cluster->worker_count; i++)
		if (in->cluster->workers[i].memory_bytes > largest)
			largest = in->cluster->workers[i].memory_bytes;
	if (in->min_nodes > 1)
		(void)snprintf(where, sizeof(where), "on at least %u nodes (mesh.min_nodes) ",
		    in->min_nodes);
	fewest = fewest_that_fit(in, settings, largest);
	if (fewest > 0)
		(void)snprintf(would, sizeof(would), ", or with %u workers of %s", fewest,
		    bytes_text((double)largest, has));
	say_more_memory(layout, closest, wanted, more);
	return tr_error_set(error, TR_ELIMIT,
	    "no plan %sfits into memory: the one that needs least (%s) takes %s%s at a worker of "
	    "node %s, which has %s; it would fit %s%s",
	    where, plan_choice_text(&closest->choice, choice), bytes_text(wanted, needs),
	    closest->writer_fullest ? ", to write a checkpoint," : "",
	    in->cluster
	        ->nodes[in->cluster
	                    ->workers[closest->worker_of[closest->fullest *
	                        closest->choice.mesh.size[MESH_DP] *
	                        closest->choice.mesh.size[MESH_TP]]]
	                    .node]
	        .name,
	    bytes_text(there, has), more, would);
}
