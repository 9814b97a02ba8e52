/* The best plan of each synthetic cluster (plan_cases.h) by trying all: every choice, every placement, every way to give out layers and
 * microbatches, timed as the planner times them. What is left out cannot be better: a rank that computes for longer than the best step so far, and
 * placements that differ only in which of two equal workers of a node has which rank. Of plans that jobs run (runnable) those alone: a rank's layers dealt over its chunks, shares that are equal or feed
 * all stages. */
#ifndef TR_TESTS_PLAN_EXHAUSTIVE_H
#define TR_TESTS_PLAN_EXHAUSTIVE_H

#include "daemon/plan/plan_dealing.h"
#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_place.h"
#include "tests/unit/plan_cases.h"

/* No dp and no chunks are asked for. */
static const struct plan_choice any_choice = { .chunks = 0 };

struct exhaustive {
	struct plan_layout *l;
	struct plan plan;
	double best_s;
	struct plan best;
	uint32_t used;
	bool taken[PLAN_WORKERS_MAX];
	uint64_t placements, timed;
	struct plan_front *
	    front; /* NULL: the fastest is looked for, else all that nothing beats in time and memory */
};

/* No shorter step than what a rank computes. */
static double busy_s(const struct exhaustive *e)
{
	const struct plan_layout *l = e->l;
	double most = 0;

	for (uint32_t i = 0; i < l->dp * l->pp; i++) {
		double busy = 0;
		for (uint32_t stage = i % l->pp; stage < l->stages; stage += l->pp)
			busy += l->stage_s[i / l->pp * l->stages + stage].forward_s +
			    l->stage_s[i / l->pp * l->stages + stage].backward_s;
		most = fmax(most, busy * e->plan.microbatches_of[i / l->pp]);
	}
	return most;
}

static void try_plan(struct exhaustive *e)
{
	const struct plan *p = &e->plan;
	struct plan_layout *l = e->l;

	if (e->front == NULL && busy_s(e) >= e->best_s)
		return;
	plan_measure_memory(l, &e->plan, NULL);
	if (e->plan.memory_part > 1 && p->choice.chunks == 1)
		return;
	if (e->front != NULL && p->choice.chunks == 1 &&
	    plan_front_distance(e->front, busy_s(e), e->plan.memory_bytes) > 1)
		return;
	struct tr_error error;
	if (plan_predict(l, &e->plan, &error) != TR_OK)
		abort();
	e->timed++;
	if (e->plan.memory_part <= 1 && e->plan.times.step_s < e->best_s) {
		e->best_s = e->plan.times.step_s;
		e->best = e->plan;
	}
}

static void try_microbatches(struct exhaustive *e, uint32_t replica, uint32_t left)
{
	uint32_t dp = e->plan.choice.mesh.size[MESH_DP],
	         least = e->plan.choice.kind == SCHEDULE_INTERLEAVED
	    ? e->plan.choice.mesh.size[MESH_PP]
	    : 1;

	if (replica + 1 == dp) {
		e->plan.microbatches_of[replica] = left;
		if (left >= least && (!e->l->in->runnable || plan_dealing_feeds(e->l->in, &e->plan)))
			try_plan(e);
		return;
	}
	for (uint32_t here = least; here + (dp - replica - 1) * least <= left; here++) {
		e->plan.microbatches_of[replica] = here;
		try_microbatches(e, replica + 1, left - here);
	}
}

static void try_shares(struct exhaustive *e)
{
	const struct plan_input *in = e->l->in;
	const struct plan_choice *choice = &e->plan.choice;
	const struct dealing even = { .mesh = choice->mesh };

	plan_layout_times(e->l, &e->plan);
	for (uint32_t d = 0; in->runnable && d < choice->mesh.size[MESH_DP]; d++)
		e->plan.microbatches_of[d] = plan_dealing_microbatches(in, choice, &even, d);
	if (in->runnable)
		try_plan(e);
	try_microbatches(e, 0, (in->batch + choice->sequences - 1) / choice->sequences);
}

/* A place is a stage; of what jobs run, a rank. */
static void give_layers(struct exhaustive *e, uint32_t place, uint32_t layers)
{
	if (e->l->in->runnable)
		plan_layout_deal(place, layers, &e->plan);
	else
		e->plan.layers_of[place] = (uint16_t)layers;
}

static void try_layers(struct exhaustive *e, uint32_t place, uint32_t left)
{
	bool runnable = e->l->in->runnable;
	uint32_t chunks = e->plan.choice.chunks, least = runnable ? chunks : 1,
	         places = e->plan.choice.mesh.size[MESH_PP] * (runnable ? 1 : chunks);

	if (place + 1 == places) {
		give_layers(e, place, left);
		try_shares(e);
		return;
	}
	for (uint32_t here = least; here + (places - place - 1) * least <= left; here++) {
		give_layers(e, place, here);
		try_layers(e, place + 1, left - here);
	}
}

static bool equal_workers(const struct plan_worker *a, const struct plan_worker *b)
{
	return a->node == b->node && a->speed == b->speed && a->memory_bytes == b->memory_bytes;
}

static void try_placements(struct exhaustive *e, uint32_t rank)
{
	const struct plan_cluster *c = e->l->in->cluster;

	if (rank == e->used && !plan_place_spreads(e->l->in, &e->plan))
		return;
	if (rank == e->used) {
		e->placements++;
		plan_layout_place(e->l, &e->plan);
		try_layers(e, 0, e->l->in->model->layers);
		return;
	}
	for (uint32_t w = 0; w < c->worker_count; w++) {
		bool twin = false;
		for (uint32_t other = 0; other < w && !twin; other++)
			twin = !e->taken[other] &&
			    equal_workers(&c->workers[other], &c->workers[w]);
		if (e->taken[w] || twin)
			continue;
		e->taken[w] = true;
		e->plan.worker_of[rank] = (uint16_t)w;
		try_placements(e, rank + 1);
		e->taken[w] = false;
	}
}

/* `known_s`: a step that was found already, or INFINITY. e->best_s is it if nothing is better. */
static inline void exhaustive_search(const struct plan_input *in, double known_s,
    struct exhaustive *e)
{
	struct plan_choice choice = { 0 };

	*e = (struct exhaustive){ .best_s = known_s };
	e->l = plan_layout_create(in, NULL);
	if (e->l == NULL)
		abort();
	while (plan_choice_next(e->l, &any_choice, &choice)) {
		e->plan.choice = choice;
		e->used = mesh_workers(&choice.mesh);
		if (plan_bound_s(e->l, &choice) < e->best_s)
			try_placements(e, 0);
	}
	plan_layout_destroy(e->l);
}

/* Into `front`, which may have some already. */
static inline void exhaustive_front(const struct plan_input *in, struct plan_front *front,
    struct exhaustive *e)
{
	struct plan_choice choice = { 0 };

	*e = (struct exhaustive){ .best_s = INFINITY, .front = front };
	e->l = plan_layout_create(in, NULL);
	if (e->l == NULL)
		abort();
	e->l->front = front;
	while (plan_choice_next(e->l, &any_choice, &choice)) {
		e->plan.choice = choice;
		e->used = mesh_workers(&choice.mesh);
		try_placements(e, 0);
	}
	plan_layout_destroy(e->l);
}

#endif
