/* What a choice and a placement leave open, and a step's time by formula. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/plan_dealing.h"
#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_predict.h"
#include "daemon/plan/plan_shared.h"

#define UNEVEN_GAIN 0.01

/* Of a replica: m microbatches take fill + m x cycle. */
struct pace {
	double fill_s, cycle_s;
};

static double both(struct plan_section_time time)
{
	return time.forward_s + time.backward_s;
}

static struct schedule_shape shape_of(const struct plan_layout *l, const struct plan *plan,
    uint32_t microbatches)
{
	return (
	    struct schedule_shape){ plan->choice.kind, l->pp, microbatches, plan->choice.chunks };
}

/* Microbatches that the first rank may have under way, if there are enough of them. */
static double in_flight(const struct plan_layout *l, const struct plan *plan)
{
	uint32_t each = l->in->batch / plan->choice.sequences / l->dp /
	    plan_input_runs(l->in, l->dp);
	struct schedule_shape shape = shape_of(l, plan, TR_SCHEDULE_MICROBATCHES_MAX);

	if (plan->choice.kind == SCHEDULE_GPIPE)
		return INFINITY;
	/* Its groups follow from how many there are; about as many as the others. */
	if (plan->choice.kind == SCHEDULE_INTERLEAVED)
		shape.microbatches = each > l->pp ? each : l->pp;
	/* Of v chunks the first is away for the whole way, the last for a v-th of it. */
	return 2.0 * schedule_in_flight(&shape, 0) / (plan->choice.chunks + 1);
}

/* The slowest rank's forward and backward, and those of all ranks together. */
struct work {
	double forward_s, backward_s, both_s, sum_s;
};

static struct work work_of(const struct plan_layout *l, uint32_t replica)
{
	const struct plan_section_time *stages = &l->stage_s[replica * l->stages];
	struct work work = { 0 };

	for (uint32_t rank = 0; rank < l->pp; rank++) {
		struct plan_section_time busy = { 0 };
		for (uint32_t stage = rank; stage < l->stages; stage += l->pp) {
			busy.forward_s += stages[stage].forward_s;
			busy.backward_s += stages[stage].backward_s;
		}
		work.forward_s = fmax(work.forward_s, busy.forward_s);
		work.backward_s = fmax(work.backward_s, busy.backward_s);
		work.both_s = fmax(work.both_s, both(busy));
		work.sum_s += both(busy);
	}
	return work;
}

/* What one microbatch's boundaries take on their way, and how long the busiest link, card or cable of each direction carries them: of both, where they are sent at the same time. */
struct way {
	double sum_s, forward_s, backward_s;
};

/* The most that a link, a card or a cable carries of all boundaries that go one way, or of all. */
static double carried_s(struct plan_layout *l, uint32_t replica, bool forward, bool backward)
{
	double boundary = l->of_tp->boundary_bytes * l->cost->sequences, most = 0;
	const struct plan_edge *to = &l->forward[replica * l->pp],
	                       *back = &l->backward[replica * l->pp];

	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t stage = 0; stage + 1 < l->stages && l->pp > 1; stage++) {
			const struct plan_part *there = to[stage % l->pp].parts,
			                       *here = back[(stage + 1) % l->pp].parts;
			for (uint32_t k = 0; k < PLAN_PARTS; k++) {
				double *sums[] = { &l->uses[there[k].link], &l->uses[here[k].link] };
				*sums[0] = pass == 0 ? 0
				                     : *sums[0] +
				        (forward ? plan_layout_part_s(l, &there[k], boundary) : 0);
				*sums[1] = pass == 0 ? 0
				                     : *sums[1] +
				        (backward ? plan_layout_part_s(l, &here[k], boundary) : 0);
				most = fmax(most, fmax(*sums[0], *sums[1]));
			}
		}
	}
	return most;
}

static struct way way_of(struct plan_layout *l, const struct plan *plan, uint32_t replica)
{
	double boundary = l->of_tp->boundary_bytes * l->cost->sequences;
	const struct plan_edge *to = &l->forward[replica * l->pp],
	                       *back = &l->backward[replica * l->pp];
	struct way way = { 0 };

	if (l->pp <= 1)
		return way;
	for (uint32_t stage = 0; stage + 1 < l->stages; stage++) {
		const struct plan_edge *there = &to[stage % l->pp],
		                       *here = &back[(stage + 1) % l->pp];
		way.sum_s += plan_layout_edge_s(l, there, boundary) +
		    l->links[there->parts[0].link].latency_s +
		    plan_layout_edge_s(l, here, boundary) + l->links[here->parts[0].link].latency_s;
	}
	/* GPipe sends one way, then the other. */
	bool turns = plan->choice.kind == SCHEDULE_GPIPE;
	way.forward_s = carried_s(l, replica, true, !turns);
	way.backward_s = turns ? carried_s(l, replica, false, true) : way.forward_s;
	return way;
}

static struct pace pace_of(struct plan_layout *l, const struct plan *plan, uint32_t replica)
{
	struct work work = work_of(l, replica);
	struct way way = way_of(l, plan, replica);
	double chunks = plan->choice.chunks, cycle;

	/* GPipe has its forwards behind one another, then its backwards; the others take turns. */
	if (plan->choice.kind == SCHEDULE_GPIPE)
		cycle = fmax(work.forward_s, way.forward_s) + fmax(work.backward_s, way.backward_s);
	else
		cycle = fmax(work.both_s, fmax(way.forward_s, way.backward_s));
	cycle = fmax(cycle, (work.sum_s + way.sum_s) / in_flight(l, plan));
	return (struct pace){ (work.sum_s - work.both_s + way.sum_s) / chunks, cycle };
}

static uint32_t least_microbatches(const struct plan_layout *l, const struct plan *plan)
{
	return plan->choice.kind == SCHEDULE_INTERLEAVED ? l->pp : 1;
}

static uint32_t done_by(const struct pace *pace, double end_s, uint32_t least)
{
	double count = floor((end_s - pace->fill_s) / pace->cycle_s);

	return count <= least ? least : count > 1e9 ? 1000000000u : (uint32_t)count;
}

static void share_as(const struct plan_layout *l, const struct dealing *dealing, struct plan *plan)
{
	struct dealing there;

	dealing_on(dealing, &plan->choice.mesh, &there);
	for (uint32_t d = 0; d < l->dp; d++)
		plan->microbatches_of[d] = plan_dealing_microbatches(l->in, &plan->choice, &there,
		    d);
}

/* So that the last replica ends as early as can be. */
static void share_microbatches(struct plan_layout *l, struct plan *plan)
{
	uint32_t sequences = plan->choice.sequences, least = least_microbatches(l, plan),
	         all = (l->in->batch + sequences - 1) / sequences;
	struct pace paces[PLAN_WORKERS_MAX];
	double low = 0, high = 0;

	for (uint32_t d = 0; d < l->dp; d++) {
		paces[d] = pace_of(l, plan, d);
		high = fmax(high, paces[d].fill_s + paces[d].cycle_s * all);
	}
	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;
		uint64_t done = 0;
		for (uint32_t d = 0; d < l->dp; d++)
			done += done_by(&paces[d], middle, least);
		if (done > all)
			high = middle;
		else
			low = middle;
	}
	uint32_t given = 0;
	for (uint32_t d = 0; d < l->dp; d++)
		given += plan->microbatches_of[d] = done_by(&paces[d], low, least);
	while (given < all) {
		uint32_t best = 0;
		double ends = INFINITY;
		for (uint32_t d = 0; d < l->dp; d++) {
			double end = paces[d].fill_s +
			    paces[d].cycle_s * (plan->microbatches_of[d] + 1);
			if (end < ends) {
				ends = end;
				best = d;
			}
		}
		plan->microbatches_of[best]++;
		given++;
	}
}

/* When the last replica ends. */
static double pipeline_s(struct plan_layout *l, const struct plan *plan)
{
	double last = 0;

	for (uint32_t d = 0; d < l->dp; d++) {
		struct pace pace = pace_of(l, plan, d);
		last = fmax(last,
		    pace.fill_s * plan_input_runs(l->in, l->dp) +
		        pace.cycle_s * plan->microbatches_of[d]);
	}
	return last;
}

/* Equal shares are cut by sequences, unequal ones by microbatches: these have to be worth it. */
static void share_by_speed(struct plan_layout *l, struct plan *plan)
{
	const struct dealing even = { .mesh = plan->choice.mesh };

	share_as(l, &even, plan);
	if (plan_input_is_unranked(l->in, &plan->choice.mesh))
		return;
	double equal_s = pipeline_s(l, plan);
	share_microbatches(l, plan);
	if (!plan_dealing_feeds(l->in, plan) || !(pipeline_s(l, plan) < (1 - UNEVEN_GAIN) * equal_s))
		share_as(l, &even, plan);
}

/* A strict job's replicas have equally many parts, each cut by itself. */
static void share_parts(const struct plan_layout *l, struct plan *plan)
{
	uint32_t part = l->in->batch / l->in->batch_parts, sequences = plan->choice.sequences;

	for (uint32_t d = 0; d < l->dp; d++)
		plan->microbatches_of[d] = plan_input_runs(l->in, l->dp) *
		    ((part + sequences - 1) / sequences);
}

void plan_fill(struct plan_layout *layout, struct plan *plan)
{
	uint32_t most[PLAN_STAGES_MAX];

	plan_layout_place(layout, plan);
	plan_layers_most(layout, plan, least_microbatches(layout, plan), most);
	if (!plan_layout_split(layout, plan, most))
		(void)plan_layout_split(layout, plan, NULL);
	plan_layout_times(layout, plan);
	if (layout->in->batch_parts > 0)
		share_parts(layout, plan);
	else if (layout->in->dealt != NULL)
		share_as(layout, layout->in->dealt, plan);
	else if (layout->in->runnable)
		share_by_speed(layout, plan);
	else
		share_microbatches(layout, plan);
}

void plan_refill(struct plan_layout *layout, const struct plan *plan)
{
	plan_layout_place(layout, plan);
	plan_layout_times(layout, plan);
}

/* Of gradients, behind the last backward: buckets go while it runs, and other ranks end later. Ranks that end after this one put theirs on the same link. */
static double reduction_s(struct plan_layout *l, const struct plan *plan)
{
	double worst = 0, earlier = 0;

	for (uint32_t rank = 0; rank < l->pp; rank++)
		l->uses[l->rings[rank].shared.link] = 0;
	for (uint32_t rank = 0; rank < l->pp && plan_apart_summed(l) > 1; rank++) {
		const struct plan_crossing *shared = &l->rings[rank].shared;
		double backward = l->stage_s[rank].backward_s,
		       alone = plan_layout_reduce_s(l, plan, rank);
		double buckets = plan->layers_of[rank], *of_all = &l->uses[shared->link];
		*of_all += plan_layout_reduce_bytes(l, plan, rank) * shared->times /
		    plan_layout_bandwidth(l, shared->link);
		double left = l->in->cluster->busy || l->in->batch_parts > 0
		    ? fmax(alone, *of_all)
		    : fmax(alone / buckets, fmax(alone, *of_all) - backward * (1 - 1 / buckets));
		worst = fmax(worst, left - earlier);
		earlier += backward;
	}
	return worst;
}

double plan_update_s(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint32_t runs = plan_input_runs(l->in, l->dp);
	double parameters = (double)plan_layout_parameters(l, plan, rank);
	/* Of each part's gradients but the last one: put aside, and added. */
	double added = l->in->batch_parts > 0 ? 2.0 * (runs - 1) * parameters : 0;

	return plan_layout_updated(l, plan, rank) * l->in->costs->update_s +
	    added * l->in->costs->add_s;
}

/* New parameters to who does not own their moments. */
static double pieces_s(const struct plan_layout *l, const struct plan *plan)
{
	if (plan->choice.owners == 0 || plan->choice.owners >= l->dp)
		return 0;
	memset(l->uses, 0, l->link_count * sizeof(*l->uses));
	plan_layout_add_pieces(l, plan, l->uses);
	return plan_layout_busiest_s(l, l->uses) + 2 * l->farthest_s;
}

double plan_after_reduction_s(const struct plan_layout *l, const struct plan *plan)
{
	/* The commit of a round, where replicas train apart a merge's (plan_apart.c). */
	double commit = l->in->apart.on ? plan_apart_norm_s(l)
	                                : 2 * l->farthest_s + l->in->costs->round_s;
	return plan_table_s(l, plan) + pieces_s(l, plan) + plan_shared_s(l, plan) + commit;
}

double plan_estimate_s(struct plan_layout *l, const struct plan *plan)
{
	double update = 0;

	for (uint32_t d = 0; d < l->dp; d++)
		for (uint32_t rank = 0; rank < l->pp; rank++)
			update = fmax(update,
			    plan_update_s(l, plan, rank) / l->groups[d * l->pp + rank].speed);
	double step_s = pipeline_s(l, plan) + reduction_s(l, plan) + update +
	    plan_after_reduction_s(l, plan);
	return step_s + plan_apart_merge_s(l, plan, step_s);
}

static int slower(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? 1 : left > right ? -1 : 0;
}

double plan_bound_s(const struct plan_layout *l, const struct plan_choice *choice)
{
	const struct plan_derived *of = NULL;
	const struct plan_cost *cost = plan_layout_cost(l, choice, &of);
	uint32_t groups = choice->mesh.size[MESH_DP] * choice->mesh.size[MESH_PP],
	         tp = choice->mesh.size[MESH_TP];
	double speeds[PLAN_WORKERS_MAX], speed = 0;
	double layer = both(cost->time[SECTION_LAYER]) +
	    (choice->recompute ? of->again_share * cost->time[SECTION_LAYER].forward_s : 0);
	double once = layer * l->in->model->layers + both(cost->time[SECTION_EMBEDDING]) +
	    both(cost->time[SECTION_HEAD]);

	for (uint32_t i = 0; i < l->in->cluster->worker_count; i++)
		speeds[i] = l->in->cluster->workers[i].speed;
	qsort(speeds, l->in->cluster->worker_count, sizeof(*speeds), slower);
	for (uint32_t i = 0; i < groups; i++)
		speed += speeds[i * tp + tp - 1];
	return fmax(once * l->in->batch / choice->sequences / speed, once / speeds[0]);
}
