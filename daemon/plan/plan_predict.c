#include "daemon/plan/plan_predict.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_shared.h"
#include "daemon/plan/timeline.h"

/* A worker hands over gradients in pieces of at least so much (daemon/worker/buckets.h). */
#define BUCKET_BYTES (1u << 20)

/* Ways of a pipeline's edges, there and back, and of rings. */
#define WAYS  (3 * PLAN_WORKERS_MAX)
#define LINKS (PLAN_PARTS * WAYS)

/* What timeline_run is given for one replica. */
struct replica {
	struct timeline_stage stages[PLAN_STAGES_MAX];
	struct timeline_rank ranks[PLAN_WORKERS_MAX];
	struct flow_link links[LINKS];
	uint32_t physical[LINKS]; /* of the layout's links */
	uint32_t link_count;
	struct flow_way ways[WAYS];
	uint32_t way_count;
	uint32_t link_of[]; /* [pp * pp] */
};

/* The replica's own part of a link. */
static uint32_t add_link(struct replica *r, const struct plan_layout *l, uint32_t physical,
    double share)
{
	for (uint32_t i = 0; i < r->link_count; i++)
		if (r->physical[i] == physical)
			return i;
	r->links[r->link_count] = l->links[physical];
	r->links[r->link_count].bandwidth_bytes_per_s *= share;
	r->physical[r->link_count] = physical;
	return r->link_count++;
}

/* Bytes of it are those of one stream. */
static uint32_t add_edge(struct replica *r, const struct plan_layout *l,
    const struct plan_edge *edge)
{
	struct flow_way way = { 0 };

	for (uint32_t k = 0; k < PLAN_PARTS; k++) {
		const struct plan_part *part = &edge->parts[k];
		if (part->streams <= 0)
			continue;
		way.links[way.count] = add_link(r, l, part->link, part->share);
		way.parts[way.count++] = part->streams;
	}
	r->ways[r->way_count] = way;
	return r->way_count++;
}

static void add_edges(struct replica *r, const struct plan_layout *l, uint32_t replica)
{
	for (uint32_t i = 0; i < l->pp * l->pp; i++)
		r->link_of[i] = TIMELINE_NO_LINK;
	for (uint32_t rank = 0; rank < l->pp && l->pp > 1; rank++) {
		uint32_t next = (rank + 1) % l->pp;
		if (next == 0 && l->stages == l->pp)
			continue;
		/* A ring of two has one neighbour twice. */
		r->link_of[rank * l->pp + next] = add_edge(r, l,
		    &l->forward[replica * l->pp + rank]);
		r->link_of[next * l->pp + rank] = add_edge(r, l,
		    &l->backward[replica * l->pp + next]);
	}
}

/* Bytes of it are those of one worker. The cluster's link is one for all replicas, this one's is a part of it. */
static uint32_t add_ring(struct replica *r, const struct plan_layout *l,
    const struct plan_ring *ring)
{
	const struct plan_crossing *crossings[] = { &ring->alone, &ring->shared };
	struct flow_way way = { 0 };

	for (uint32_t k = 0; k < 2; k++) {
		uint32_t physical = crossings[k]->link, link = add_link(r, l, physical, 1);
		double part = r->links[link].bandwidth_bytes_per_s /
		    plan_layout_bandwidth(l, physical);
		if (k == 1 && link == way.links[0])
			continue;
		way.links[way.count] = link;
		way.parts[way.count++] = crossings[k]->times *
		    (isinf(r->links[link].bandwidth_bytes_per_s) ? 1 : part);
	}
	r->ways[r->way_count] = way;
	return r->way_count++;
}

/* The gradients of a rank's stages, over the links of its ring that rule. */
static void add_reduction(struct replica *r, const struct plan_layout *l, const struct plan *plan,
    uint32_t rank)
{
	const struct plan_ring *ring = &l->rings[rank];
	uint64_t apart = plan_table_summed_apart(l, rank);
	double all = (double)(plan_layout_parameters(l, plan, rank) - apart),
	       bytes = plan_layout_reduce_bytes(l, plan, rank);

	r->ranks[rank].reduce_link = add_ring(r, l, ring);
	for (uint32_t stage = rank; stage < l->stages; stage += l->pp) {
		double own = (double)(plan->layers_of[stage] * l->of_tp->parameters[SECTION_LAYER]);
		if (stage == 0)
			own += (double)(l->of_tp->parameters[SECTION_EMBEDDING] - apart);
		if (stage + 1 == l->stages)
			own += (double)(l->of_tp->parameters[SECTION_HEAD] -
			    (rank == 0 ? l->of_tp->table : apart));
		double buckets = floor(own * 4 / BUCKET_BYTES);
		struct timeline_stage *to = &r->stages[stage];
		to->reduce_bytes = bytes * own / all;
		to->reduce_latency_s = 2 * ring->latency_s * plan_layout_levels(l);
		to->buckets = l->in->batch_parts > 0
		    ? 1
		    : (uint32_t)fmax(1, fmin(buckets, plan->layers_of[stage]));
	}
}

static void describe(struct replica *r, const struct plan_layout *l, const struct plan *plan,
    uint32_t replica)
{
	double boundary = l->of_tp->boundary_bytes * l->cost->sequences;

	assert(l->pp > 0);
	r->link_count = r->way_count = 0;
	add_edges(r, l, replica);
	for (uint32_t stage = 0; stage < l->stages; stage++) {
		const struct plan_section_time *time = &l->stage_s[replica * l->stages + stage];
		r->stages[stage] = (struct timeline_stage){ .forward_s = time->forward_s,
			.backward_s = time->backward_s,
			.boundary_bytes = l->pp > 1 ? boundary : 0 };
	}
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		double slowest = INFINITY;
		for (uint32_t d = 0; d < l->dp; d++)
			slowest = fmin(slowest, l->groups[d * l->pp + rank].speed);
		r->ranks[rank] = (struct timeline_rank){ .reduce_link = TIMELINE_NO_LINK,
			.optimizer_s = plan_update_s(l, plan, rank) / slowest };
		if (plan_apart_summed(l) > 1)
			add_reduction(r, l, plan, rank);
	}
}

/* Whether a replica before it takes the same time to the bit. */
static bool seen(const struct plan_layout *l, const struct plan *plan, uint32_t replica)
{
	for (uint32_t d = 0; d < replica; d++) {
		if (plan->microbatches_of[d] == plan->microbatches_of[replica] &&
		    memcmp(&l->stage_s[d * l->stages], &l->stage_s[replica * l->stages],
		        l->stages * sizeof(*l->stage_s)) == 0 &&
		    (l->pp == 1 ||
		        (memcmp(&l->forward[d * l->pp], &l->forward[replica * l->pp],
		             l->pp * sizeof(*l->forward)) == 0 &&
		            memcmp(&l->backward[d * l->pp], &l->backward[replica * l->pp],
		                l->pp * sizeof(*l->backward)) == 0)))
			return true;
	}
	return false;
}

/* The rank that works longest says where the time goes. What was run is one part of a strict job's batch: the others before it end as it does, without reduction. */
static struct plan_times times_of(const struct plan_layout *l, const struct plan *plan,
    uint32_t replica, const struct timeline_result *result)
{
	uint32_t busiest = 0;
	double exchanged = 0;

	for (uint32_t rank = 1; rank < l->pp; rank++)
		if (result->ranks[rank].busy_s > result->ranks[busiest].busy_s)
			busiest = rank;
	for (uint32_t stage = busiest; stage < l->stages; stage += l->pp)
		exchanged += l->stage_exchange_s[replica * l->stages + stage];
	exchanged *= plan->microbatches_of[replica];
	double runs = plan_input_runs(l->in, l->dp), busy = runs * result->ranks[busiest].busy_s;
	return (struct plan_times){ .step_s = result->step_s + (runs - 1) * result->pipeline_s,
		.compute_s = busy - exchanged,
		.exchange_s = exchanged,
		.idle_s = runs * result->pipeline_s - busy,
		.reduce_s = result->reduced_s - result->pipeline_s,
		.update_s = result->step_s - result->reduced_s };
}

static tr_status run_replica(struct plan_layout *l, struct plan *plan, uint32_t replica,
    struct replica *r, struct tr_error *error)
{
	struct schedule schedule = { 0 };
	struct timeline_result result = { 0 };
	uint32_t runs = plan_input_runs(l->in, l->dp);
	struct schedule_shape shape = { plan->choice.kind, l->pp,
		plan->microbatches_of[replica] / runs, plan->choice.chunks };
	bool hides = !l->in->cluster->busy;
	tr_status st = schedule_create(&shape, &schedule, error);

	if (st != TR_OK)
		return st;
	describe(r, l, plan, replica);
	st = timeline_run(&(struct timeline_input){ &schedule, r->stages, r->ranks, r->links,
	                      r->link_count, r->link_of, hides, hides && l->in->batch_parts == 0,
	                      r->ways, r->way_count },
	    &result, error);
	if (st == TR_OK && result.step_s + (runs - 1) * result.pipeline_s > plan->times.step_s)
		plan->times = times_of(l, plan, replica, &result);
	if (st == TR_OK) {
		struct plan copy = *plan;
		plan_measure_memory(l, &copy, &schedule);
		if (copy.memory_part > plan->memory_part) {
			plan->memory_part = copy.memory_part;
			plan->fullest = copy.fullest;
			plan->writer_fullest = copy.writer_fullest;
		}
		if (copy.memory_bytes > plan->memory_bytes)
			plan->memory_bytes = copy.memory_bytes;
		if (copy.writer_bytes > plan->writer_bytes)
			plan->writer_bytes = copy.writer_bytes;
	}
	timeline_finish(&result);
	schedule_finish(&schedule);
	return st;
}

tr_status plan_predict(struct plan_layout *l, struct plan *plan, struct tr_error *error)
{
	struct replica *replica;
	tr_status st = TR_OK;

	plan_refill(l, plan); /* whichever plan it was laid out for last */
	replica = calloc(1, sizeof(*replica) + (size_t)l->pp * l->pp * sizeof(uint32_t));
	if (replica == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to predict a step");
	plan->times = (struct plan_times){ 0 };
	plan->memory_bytes = 0;
	plan->writer_bytes = 0;
	plan->memory_part = 0;
	for (uint32_t d = 0; d < l->dp && st == TR_OK; d++)
		if (!seen(l, plan, d))
			st = run_replica(l, plan, d, replica, error);
	double more = plan_after_reduction_s(l, plan);
	plan->times.update_s += more;
	plan->times.step_s += more;
	double merges = plan_apart_merge_s(l, plan, plan->times.step_s);
	plan->times.reduce_s += merges;
	plan->times.step_s += merges;
	free(replica);
	if (st == TR_OK && l->front != NULL && plan_front_offer(l->front, plan) != TR_OK)
		st = tr_error_set(error, TR_ENOMEM, "no memory for the plans that are timed");
	return st;
}
