#include "daemon/plan/plan_refine.h"

#include <math.h>

#include "common/rng.h"
#include "daemon/plan/plan_dealing.h"
#include "daemon/plan/plan_place.h"
#include "daemon/plan/plan_predict.h"

struct refining {
	struct plan_layout *l;
	struct plan *plan;
	double score;
	uint64_t *budget;
	struct tr_error *error;
	tr_status status;
};

static uint64_t cost_of(const struct refining *r)
{
	uint64_t instructions = 0;

	for (uint32_t d = 0; d < r->plan->choice.mesh.size[MESH_DP]; d++)
		instructions += 4ull * r->plan->microbatches_of[d] *
		    r->plan->choice.mesh.size[MESH_PP] * r->plan->choice.chunks;
	return instructions + 100;
}

static bool may_go_on(const struct refining *r)
{
	return r->status == TR_OK && *r->budget > 0;
}

/* Takes `next`, whose layers and microbatches are filled in, if it is better. */
static bool take_if_better(struct refining *r, struct plan *next)
{
	uint64_t cost = cost_of(r);

	*r->budget -= cost < *r->budget ? cost : *r->budget;
	r->status = plan_predict(r->l, next, r->error);
	if (r->status != TR_OK)
		return false;
	double score = plan_place_score(next, next->times.step_s);
	if (!(score < r->score * (1 - 1e-9)))
		return false;
	r->score = score;
	*r->plan = *next;
	return true;
}

static bool alike(const struct refining *r, uint32_t a, uint32_t b)
{
	const struct plan_worker *left = &r->l->in->cluster->workers[a],
	                         *right = &r->l->in->cluster->workers[b];

	return left->node == right->node && left->speed == right->speed &&
	    left->memory_bytes == right->memory_bytes;
}

static bool swap_workers(struct refining *r)
{
	const uint32_t *size = r->plan->choice.mesh.size;
	uint32_t used = size[MESH_DP] * size[MESH_PP] * size[MESH_TP];
	bool better = false;

	for (uint32_t a = 0; a < used; a++) {
		for (uint32_t b = a + 1; b < r->l->in->cluster->worker_count; b++) {
			struct plan next = *r->plan;
			if (alike(r, next.worker_of[a], next.worker_of[b]))
				continue;
			if (!may_go_on(r))
				return better;
			next.worker_of[a] = r->plan->worker_of[b];
			next.worker_of[b] = r->plan->worker_of[a];
			if (!plan_place_spreads(r->l->in, &next))
				continue;
			plan_fill(r->l, &next);
			better = take_if_better(r, &next) || better;
		}
	}
	return better;
}

static uint32_t layers_of_rank(const struct plan *plan, uint32_t rank)
{
	uint32_t pp = plan->choice.mesh.size[MESH_PP], layers = 0;

	for (uint32_t stage = rank; stage < pp * plan->choice.chunks; stage += pp)
		layers += plan->layers_of[stage];
	return layers;
}

/* One layer, from where there are others: of a job's plan from rank to rank, else from stage to stage. */
static bool move_layer(const struct refining *r, uint32_t from, uint32_t to, struct plan *plan)
{
	if (!r->l->in->runnable) {
		plan->layers_of[to]++;
		return plan->layers_of[from]-- > 1;
	}
	uint32_t here = layers_of_rank(plan, from), there = layers_of_rank(plan, to);
	if (here <= plan->choice.chunks)
		return false;
	plan_layout_deal(from, here - 1, plan);
	plan_layout_deal(to, there + 1, plan);
	return true;
}

static bool move_layers(struct refining *r)
{
	uint32_t places = r->plan->choice.mesh.size[MESH_PP] *
	    (r->l->in->runnable ? 1 : r->plan->choice.chunks);
	bool better = false;

	for (uint32_t from = 0; from < places; from++) {
		for (uint32_t to = 0; to < places; to++) {
			struct plan next = *r->plan;
			if (to == from || !move_layer(r, from, to, &next))
				continue;
			if (!may_go_on(r))
				return better;
			better = take_if_better(r, &next) || better;
		}
	}
	return better;
}

static bool move_microbatches(struct refining *r)
{
	uint32_t dp = r->plan->choice.mesh.size[MESH_DP];
	uint32_t least = r->plan->choice.kind == SCHEDULE_INTERLEAVED
	    ? r->plan->choice.mesh.size[MESH_PP]
	    : 1;
	bool better = false;

	for (uint32_t from = 0; from < dp; from++) {
		for (uint32_t to = 0; to < dp; to++) {
			struct plan next = *r->plan;
			if (to == from || next.microbatches_of[from] <= least)
				continue;
			if (!may_go_on(r))
				return better;
			next.microbatches_of[from]--;
			next.microbatches_of[to]++;
			if (r->l->in->runnable && !plan_dealing_feeds(r->l->in, &next))
				continue;
			better = take_if_better(r, &next) || better;
		}
	}
	return better;
}

/* What is dealt stays as it is. */
static void climb(struct refining *r)
{
	const struct plan_input *in = r->l->in;
	bool better = true,
	     shares = in->dealt == NULL && in->batch_parts == 0 &&
	    !plan_input_is_unranked(in, &r->plan->choice.mesh);

	while (better && may_go_on(r)) {
		better = in->dealt == NULL && move_layers(r);
		better = (shares && move_microbatches(r)) || better;
		better = swap_workers(r) || better;
	}
}

/* Two pairs of workers, by chance, change places. */
static void shake(const struct refining *r, uint64_t times, struct plan *plan)
{
	const uint32_t *size = plan->choice.mesh.size;
	uint32_t used = size[MESH_DP] * size[MESH_PP] * size[MESH_TP],
	         all = r->l->in->cluster->worker_count;
	struct rng_key key = rng_key(times, used, all);

	for (uint64_t i = 0; i < 2; i++) {
		uint32_t a = (uint32_t)rng_below(key, 0, i, used),
		         b = (uint32_t)rng_below(key, 1, i, all);
		uint16_t taken = plan->worker_of[a];
		plan->worker_of[a] = plan->worker_of[b];
		plan->worker_of[b] = taken;
	}
}

tr_status plan_refine(struct plan_layout *layout, uint32_t shakes, uint64_t *budget,
    struct plan *plan, struct tr_error *error)
{
	struct refining r = { layout, plan, plan_place_score(plan, plan->times.step_s), budget,
		error, TR_OK };

	climb(&r);
	for (uint32_t i = 0; i < shakes && may_go_on(&r); i++) {
		struct plan best = *plan;
		double score = r.score;
		shake(&r, i, plan);
		if (!plan_place_spreads(layout->in, plan)) {
			*plan = best;
			continue;
		}
		plan_fill(layout, plan);
		r.score = INFINITY;
		struct plan next = *plan;
		(void)take_if_better(&r, &next);
		climb(&r);
		if (r.score >= score) {
			*plan = best;
			r.score = score;
		}
	}
	return r.status;
}

/* None is better than what takes no time. */
tr_status plan_refine_around(struct plan_layout *layout, uint64_t *budget, const struct plan *plan,
    struct tr_error *error)
{
	struct plan stays = *plan;
	struct refining r = { layout, &stays, 0, budget, error, TR_OK };

	climb(&r);
	return r.status;
}
