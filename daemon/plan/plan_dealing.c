#include "daemon/plan/plan_dealing.h"

#include <assert.h>

#include "daemon/plan/job_mesh.h"

uint32_t plan_dealing_microbatches(const struct plan_input *in, const struct plan_choice *choice,
    const struct dealing *dealing, uint32_t number)
{
	uint32_t replicas[PLAN_WORKERS_MAX];
	uint64_t first, last;

	for (uint32_t d = 0; d < choice->mesh.size[MESH_DP]; d++)
		replicas[d] = d;
	dealing_share(dealing, replicas, choice->mesh.size[MESH_DP], number, in->batch, &first,
	    &last);
	return (uint32_t)((last - first + choice->sequences - 1) / choice->sequences);
}

static bool has_equal_shares(const struct plan_input *in, const struct plan *plan)
{
	const struct dealing even = { .mesh = plan->choice.mesh };

	for (uint32_t d = 0; d < plan->choice.mesh.size[MESH_DP]; d++)
		if (plan->microbatches_of[d] !=
		    plan_dealing_microbatches(in, &plan->choice, &even, d))
			return false;
	return true;
}

static bool has_usual_layers(const struct plan_input *in, const struct plan *plan)
{
	uint32_t layers[PLAN_STAGES_MAX], pp = plan->choice.mesh.size[MESH_PP],
	                                  chunks = plan->choice.chunks;

	if (job_mesh_stages(in->model, pp, chunks, NULL, layers, NULL) != TR_OK)
		return false;
	for (uint32_t stage = 0; stage < pp * chunks; stage++)
		if (plan->layers_of[stage] != layers[stage])
			return false;
	return true;
}

void plan_dealing(const struct plan_input *in, const struct plan *plan, struct dealing *dealing)
{
	const uint32_t *size = plan->choice.mesh.size;
	struct dealing made = { .mesh = plan->choice.mesh };

	for (uint32_t d = 0;
	     d < size[MESH_DP] && in->batch_parts == 0 && !has_equal_shares(in, plan); d++)
		made.shares[d] = plan->microbatches_of[d];
	if (!has_usual_layers(in, plan))
		for (uint32_t stage = 0; stage < size[MESH_PP] * plan->choice.chunks; stage++)
			made.layers[stage % size[MESH_PP]] += plan->layers_of[stage];
	*dealing = made;
}

bool plan_dealing_feeds(const struct plan_input *in, const struct plan *plan)
{
	uint64_t least = UINT64_MAX, all = 0, sequences = plan->choice.sequences;

	if (plan->choice.chunks == 1)
		return true;
	for (uint32_t d = 0; d < plan->choice.mesh.size[MESH_DP]; d++) {
		least = plan->microbatches_of[d] < least ? plan->microbatches_of[d] : least;
		all += plan->microbatches_of[d];
	}
	assert(all > 0 && sequences > 0);
	return (in->batch * least / all + sequences - 1) / sequences >=
	    plan->choice.mesh.size[MESH_PP];
}
