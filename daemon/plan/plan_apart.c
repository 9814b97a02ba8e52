#include "daemon/plan/plan_apart.h"

#include <math.h>
#include <stddef.h>

#include "collectives/kernels/codec_format.h"
#include "daemon/plan/plan_layout.h"

#define ARRAY_BYTES 4 /* of a parameter: one f32 array */

static double wire_bytes(enum tr_codec codec)
{
	return codec == TR_CODEC_NONE ? ARRAY_BYTES
	                              : (double)codec_block_bytes(codec, CODEC_BLOCK) / CODEC_BLOCK;
}

void plan_apart_of(const struct tr_sync_options *o, struct plan_apart *apart)
{
	bool eager = o->mode == TR_SYNC_EAGER, by_time = o->inner_seconds > 0;
	bool behind = o->mode == TR_SYNC_STREAMING || eager || o->overlap > 0;
	bool feeds_back = o->codec != TR_CODEC_NONE && o->feedback > 0;
	double fragments = o->fragments > 0 ? o->fragments : 1;
	/* Outer momentum, what coding lost and will have lost, what an eager step goes from, and its two parts of it. */
	double arrays = (o->outer_momentum > 0) + 2 * feeds_back + 3 * eager;

	*apart = (struct plan_apart){ .on = true,
		.steps = by_time ? 0 : (double)o->inner_steps,
		.seconds = by_time ? o->inner_seconds : 0,
		.behind = behind,
		.wire_bytes = wire_bytes(o->codec),
		/* Outer parameters and a fragment's movement, with its sum if that is not made where gradients are. */
		.held_whole = ARRAY_BYTES * (arrays + 1 + (1 + behind) / fragments),
		/* What steps are taken in, and a fragment's movement and sum. */
		.held_split = ARRAY_BYTES * (arrays + 1 + 2 * behind / fragments),
		.written = ARRAY_BYTES * (o->outer_momentum > 0) };
}

uint32_t plan_apart_summed(const struct plan_layout *l)
{
	return l->in->apart.on ? 1 : l->dp;
}

double plan_apart_merges(const struct plan_layout *l, double step_s)
{
	const struct plan_apart *apart = &l->in->apart;

	if (!apart->on)
		return 0;
	return apart->steps > 0 ? 1 / apart->steps : fmin(1, step_s / apart->seconds);
}

/* One, of all parameters: of the rank that takes longest, or of all that share a link. */
static double all_s(const struct plan_layout *l, const struct plan *plan)
{
	double most = 0;

	for (uint32_t rank = 0; rank < l->pp; rank++)
		l->uses[l->rings[rank].shared.link] = 0;
	for (uint32_t rank = 0; rank < l->pp && l->dp > 1; rank++) {
		const struct plan_crossing *shared = &l->rings[rank].shared;
		double *of_all = &l->uses[shared->link];
		*of_all += plan_layout_reduce_bytes(l, plan, rank) * shared->times /
		    plan_layout_bandwidth(l, shared->link);
		most = fmax(most, fmax(*of_all, plan_layout_reduce_s(l, plan, rank)));
	}
	return most + 2 * l->farthest_s + l->in->costs->round_s;
}

double plan_apart_norm_s(const struct plan_layout *l)
{
	double farthest = 0;

	for (uint32_t i = 0; i < l->dp * l->pp; i++) {
		farthest = fmax(farthest, l->tp > 1 ? l->groups[i].latency_s : 0);
		if (l->pp > 1)
			farthest = fmax(farthest, l->links[l->forward[i].parts[0].link].latency_s);
	}
	return 2 * farthest;
}

double plan_apart_merge_s(const struct plan_layout *l, const struct plan *plan, double step_s)
{
	double merges = plan_apart_merges(l, step_s);

	if (merges == 0)
		return 0;
	double takes = merges * all_s(l, plan);
	return l->in->apart.behind ? fmax(0, takes - step_s) : takes;
}
