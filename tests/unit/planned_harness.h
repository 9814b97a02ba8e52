/* What tests of planned jobs at memberd share. */
#ifndef TR_TESTS_UNIT_PLANNED_HARNESS_H
#define TR_TESTS_UNIT_PLANNED_HARNESS_H

#include "tests/unit/membership_harness.h"

static inline Traind__V1__JobSpec *planned_spec(const uint64_t *nodes, size_t count, uint32_t tp)
{
	Traind__V1__JobSpec *spec = native_spec(1);
	spec->mesh->auto_ = true;
	spec->mesh->tp = tp;
	spec->mesh->threads = 1;
	spec->train->optimizer->batch_tokens = 8192;
	spec->plan = malloc(sizeof(*spec->plan));
	traind__v1__job_plan__init(spec->plan);
	spec->plan->nodes = malloc(count * sizeof(*nodes));
	memcpy(spec->plan->nodes, nodes, count * sizeof(*nodes));
	spec->plan->n_nodes = count;
	spec->plan->step_s = 0.1;
	spec->plan->compute_s = 0.08;
	spec->plan->reduce_s = 0.02;
	return spec;
}

static inline void three_nodes_of(struct world *w, uint32_t slots)
{
	world_init(w);
	world_lead(w);
	for (uint64_t c = 1; c <= 3; c++)
		hello(w, c, 0, 100 + c, slots);
	skip_trace(w);
}

/* Meanwhile these connections beat. */
static inline void pass(struct world *w, uint64_t ms, const uint64_t *conns, size_t count)
{
	for (uint64_t end = w->now + ms; w->now < end;) {
		for (size_t i = 0; i < count; i++)
			heartbeat(w, conns[i]);
		world_tick(w, 250);
	}
}

#endif
