#include "daemon/plan/plan_memory.h"

#include <math.h>

#include "common/arena.h"
#include "common/limits.h"
#include "daemon/plan/memory.h"

#define WRITTEN_BYTES 12 /* of a parameter, with its moments */
#define MOMENT_BYTES  8
#define SAMPLE_BYTES  4
/* Of shared memory: what lies before a model's arrays. */
#define COUNTER_BYTES (UINT64_C(64) << 10)

static struct schedule_shape shape_of(const struct plan_layout *l, const struct plan *plan,
    uint32_t microbatches)
{
	return (
	    struct schedule_shape){ plan->choice.kind, l->pp, microbatches, plan->choice.chunks };
}

/* Of the residual stream, of one microbatch. */
static uint64_t stream_bytes(const struct plan_layout *l)
{
	return (uint64_t)l->of_tp->boundary_bytes * l->cost->sequences;
}

static uint64_t less(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

static uint64_t layer_kept(const struct plan_layout *l, const struct plan *plan)
{
	return plan->choice.recompute ? stream_bytes(l) : l->cost->kept_bytes[SECTION_LAYER];
}

static bool is_split(const struct plan_layout *l)
{
	return l->pp * l->tp > 1;
}

/* With gradient and moments, and where replicas train apart with what that takes. With ZeRO-1 moments are those of its own pieces, and of one there are new parameters beside the old ones. */
static double parameter_bytes(const struct plan_layout *l, const struct plan *plan)
{
	const struct plan_apart *apart = &l->in->apart;
	double whole = (l->in->costs->parameter_bytes > 0 ? l->in->costs->parameter_bytes : 16) +
	    (is_split(l) ? apart->held_split : apart->held_whole);
	uint32_t owners = plan->choice.owners;

	if (owners == 0 || owners >= l->dp)
		return whole;
	return whole - MOMENT_BYTES + (MOMENT_BYTES * (double)owners + 4) / l->dp;
}

static uint64_t state_bytes(const struct plan_layout *l, const struct plan *plan, uint64_t numbers)
{
	return (uint64_t)ceil((double)numbers * parameter_bytes(l, plan));
}

/* Parameters, gradients and both moments of a whole model lie one behind another in areas, each as large as all before it, or as an array for which that is too small; what is used of one is
 * filled up to the end of its last huge page. Returns what that is more than the arrays. (Shards lie in memory that is not filled.) */
static uint64_t filled_bytes(uint64_t array)
{
	uint64_t size = arena_bytes(0, COUNTER_BYTES), all = size, used = COUNTER_BYTES;
	uint64_t resident = 0;

	if (array < ARENA_HUGE_PAGE)
		return 0;
	for (int i = 0; i < 4; i++) {
		if (size - used < array) {
			resident += i == 0 ? used : arena_filled(used, size);
			size = arena_bytes(all, array);
			all += size;
			used = 0;
		}
		used += array;
	}
	return resident + arena_filled(used, size) - 4 * array;
}

static uint64_t filled_of(const struct plan_layout *l, const struct plan *plan)
{
	bool shards = is_split(l) || plan->choice.owners > 0 || l->in->batch_parts > 0 ||
	    l->in->ranked;

	return shards ? 0 : filled_bytes(plan_layout_parameters(l, plan, 0) * sizeof(float));
}

/* Of one microbatch in a stage. */
static uint64_t stage_kept(const struct plan_layout *l, const struct plan *plan, uint32_t stage)
{
	uint64_t bytes = plan->layers_of[stage] * layer_kept(l, plan);

	if (stage == 0)
		bytes += l->cost->kept_bytes[SECTION_EMBEDDING];
	if (stage + 1 == l->stages)
		bytes += l->cost->kept_bytes[SECTION_HEAD];
	return bytes;
}

/* At a time: of a strict job those of a part of the batch. */
static uint32_t most_microbatches(const struct plan_layout *l, const struct plan *plan)
{
	uint32_t most = 0;

	for (uint32_t d = 0; d < l->dp; d++)
		most = plan->microbatches_of[d] > most ? plan->microbatches_of[d] : most;
	return most / plan_input_runs(l->in, l->dp);
}

static uint64_t kept_by_list(const struct plan_layout *l, const struct plan *plan,
    const struct schedule_list *list, uint32_t rank)
{
	uint64_t now = 0, most = 0;

	for (uint32_t i = 0; i < list->count; i++) {
		uint64_t bytes = stage_kept(l, plan, list->at[i].chunk * l->pp + rank);
		if (list->at[i].op == SCHEDULE_FWD)
			now += bytes;
		if (list->at[i].op == SCHEDULE_BWD)
			now -= bytes;
		most = now > most ? now : most;
	}
	return most;
}

/* What is kept when a rank's warm-up is over: of its first forwards, in their order (schedule.h). */
static uint64_t kept_by_formula(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	struct schedule_shape shape = shape_of(l, plan, most_microbatches(l, plan));
	uint32_t flying = schedule_in_flight(&shape, rank), group = schedule_group(&shape);
	uint64_t bytes = 0;

	if (plan->choice.chunks == 1)
		return flying * stage_kept(l, plan, rank);
	for (uint32_t i = 0; i < flying; i++)
		bytes += stage_kept(l, plan, i / group % plan->choice.chunks * l->pp + rank);
	return bytes;
}

/* The second table of a strict job's tied model, whose two gradients are added up apart: where both ends of it are, of the worker's gradients and of each sum of parts; else in its
 * gradients at either end. Measured is a model with both ends, whose parts have parameters and gradients of it. */
static uint64_t table_bytes(const struct plan_layout *l, uint32_t rank)
{
	uint64_t arrays = 1;

	if (l->in->batch_parts == 0 || (rank > 0 && rank + 1 < l->pp))
		return 0;
	for (uint32_t parts = 1; l->pp == 1 && parts < l->in->batch_parts; parts *= 2)
		arrays++;
	return arrays * l->of_tp->table * sizeof(float);
}

static uint64_t measured_table_bytes(const struct plan_layout *l)
{
	return l->in->batch_parts > 0 && l->pp > 1 ? 2 * l->of_tp->table * sizeof(float) : 0;
}

/* What is there once, besides the process: the head's arrays where the head is; of a layer that is computed again what is not kept of it. */
static uint64_t working_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint64_t head = (uint64_t)l->of_tp->head_bytes * l->cost->sequences;

	return less(l->cost->working_bytes,
	           (rank + 1 < l->pp ? head : 0) + measured_table_bytes(l)) +
	    table_bytes(l, rank) +
	    (plan->choice.recompute ? less(l->cost->kept_bytes[SECTION_LAYER], stream_bytes(l)) : 0);
}

static uint64_t fixed_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	return l->in->costs->process_bytes + working_bytes(l, plan, rank);
}

/* Between stages. */
static uint64_t message_bytes(const struct plan_layout *l, const struct schedule_shape *shape,
    uint32_t rank)
{
	return memory_messages(shape, rank) * stream_bytes(l);
}

/* Least memory of the workers of a pipeline rank. */
static uint64_t rank_memory(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < l->dp * l->tp; i++) {
		uint64_t has = l->in->cluster->workers[plan->worker_of[rank * l->dp * l->tp + i]]
		                   .memory_bytes;
		least = has < least ? has : least;
	}
	return least;
}

enum plan_writes plan_writes_of(const Traind__V1__Checkpoint *c)
{
	if (c != NULL && c->sharded)
		return PLAN_WRITES_SHARDS;
	return c != NULL && c->every > 0 ? PLAN_WRITES_MEANWHILE : PLAN_WRITES_LAST;
}

static uint64_t written_bytes(const struct plan_layout *l)
{
	return WRITTEN_BYTES + (uint64_t)l->in->apart.written;
}

/* Of moments, those that other owners have, which come to who writes a checkpoint. */
static uint64_t lacking_bytes(const struct plan_layout *l, const struct plan *plan, uint64_t own)
{
	uint32_t owners = plan->choice.owners;

	return owners > 0 && owners < l->dp ? own * MOMENT_BYTES * (l->dp - owners) / l->dp : 0;
}

/* The largest file has moments; a small one does not fill the block. */
static uint64_t block_bytes(uint64_t numbers)
{
	uint64_t bytes = numbers * MOMENT_BYTES;
	return bytes < TR_FILE_BLOCK_BYTES ? bytes : TR_FILE_BLOCK_BYTES;
}

/* In shards each has a copy of its own, one replica's workers that is: which one may change. */
static uint64_t own_copy_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint64_t own = plan_layout_parameters(l, plan, rank);

	return l->in->writes == PLAN_WRITES_SHARDS
	    ? own * written_bytes(l) + lacking_bytes(l, plan, own) + block_bytes(own)
	    : 0;
}

void plan_rank_memory(const struct plan_layout *l, const struct plan *plan, uint32_t rank,
    const struct schedule *schedule, struct plan_rank_memory *memory)
{
	struct schedule_shape shape = schedule != NULL
	    ? schedule->shape
	    : shape_of(l, plan, most_microbatches(l, plan));

	*memory = (struct plan_rank_memory){
		.process = l->in->costs->process_bytes,
		.state = state_bytes(l, plan, plan_layout_parameters(l, plan, rank)) +
		    filled_of(l, plan),
		.activations = schedule != NULL
		    ? kept_by_list(l, plan, &schedule->lists[rank], rank)
		    : kept_by_formula(l, plan, rank),
		.working = working_bytes(l, plan, rank),
		.messages = message_bytes(l, &shape, rank),
		.copy = own_copy_bytes(l, plan, rank),
	};
}

uint64_t plan_rank_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank,
    const struct schedule *schedule)
{
	struct plan_rank_memory m;

	plan_rank_memory(l, plan, rank, schedule, &m);
	return m.process + m.state + m.activations + m.working + m.messages + m.copy;
}

uint64_t plan_writer_bytes(const struct plan_layout *l, const struct plan *plan, bool saves)
{
	uint64_t whole = model_config_parameters(l->in->model),
	         own = plan_layout_parameters(l, plan, 0), owners = plan->choice.owners;
	uint64_t others = whole > own ? whole - own : 0;
	bool parts = is_split(l) || owners > 0;
	uint64_t written = written_bytes(l), lacks = lacking_bytes(l, plan, own);

	if (l->in->writes == PLAN_WRITES_SHARDS)
		return 0;

	/* Other shards, and a copy of its own; at the end the parameters, for the sample. */
	if (parts)
		return lacks + written * (others + (saves || owners > 0 ? own : 0)) +
		    SAMPLE_BYTES * whole + block_bytes(whole);
	return lacks + (saves ? written * whole : 0) + block_bytes(whole);
}

uint64_t plan_first_bytes(const struct plan_layout *l, const struct plan *plan,
    const struct schedule *schedule)
{
	uint64_t bytes = plan_rank_bytes(l, plan, 0, schedule);

	if (l->in->writes != PLAN_WRITES_NOTHING)
		bytes += plan_writer_bytes(l, plan, l->in->writes == PLAN_WRITES_MEANWHILE);
	return bytes;
}

static void measure_writer(const struct plan_layout *l, struct plan *plan,
    const struct schedule *schedule)
{
	uint64_t bytes = plan_first_bytes(l, plan, schedule);
	double part = (double)bytes /
	    (double)l->in->cluster->workers[plan->worker_of[0]].memory_bytes;

	plan->writer_bytes = bytes;
	if (part <= plan->memory_part)
		return;
	plan->memory_part = part;
	plan->fullest = 0;
	plan->writer_fullest = true;
}

void plan_measure_memory(const struct plan_layout *l, struct plan *plan,
    const struct schedule *schedule)
{
	plan->memory_bytes = 0;
	plan->memory_part = 0;
	plan->writer_bytes = 0;
	plan->writer_fullest = false;
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		uint64_t bytes = plan_rank_bytes(l, plan, rank, schedule);
		double part = (double)bytes / (double)rank_memory(l, plan, rank);
		if (bytes > plan->memory_bytes)
			plan->memory_bytes = bytes;
		if (part > plan->memory_part) {
			plan->memory_part = part;
			plan->fullest = rank;
		}
	}
	if (l->in->writes != PLAN_WRITES_NOTHING && l->in->writes != PLAN_WRITES_SHARDS)
		measure_writer(l, plan, schedule);
}

void plan_layers_most(const struct plan_layout *l, const struct plan *plan, uint32_t least,
    uint32_t *most)
{
	uint32_t microbatches = l->in->batch / plan->choice.sequences / l->dp /
	    plan_input_runs(l->in, l->dp);
	struct schedule_shape shape = shape_of(l, plan, microbatches > least ? microbatches : least);

	for (uint32_t rank = 0; rank < l->pp; rank++) {
		uint64_t flying = schedule_in_flight(&shape, rank),
		         other = fixed_bytes(l, plan, rank) + message_bytes(l, &shape, rank);
		if (rank == 0)
			other += state_bytes(l, plan, l->of_tp->parameters[SECTION_EMBEDDING]) +
			    flying * l->cost->kept_bytes[SECTION_EMBEDDING] / plan->choice.chunks;
		if (rank + 1 == l->pp)
			other += state_bytes(l, plan, l->of_tp->parameters[SECTION_HEAD]) +
			    flying * l->cost->kept_bytes[SECTION_HEAD] / plan->choice.chunks;
		uint64_t has = rank_memory(l, plan, rank);
		uint64_t layer = state_bytes(l, plan, l->of_tp->parameters[SECTION_LAYER]) +
		    flying * layer_kept(l, plan) / plan->choice.chunks;
		uint64_t holds = has > other && layer > 0 ? (has - other) / layer : 0;
		most[rank] = holds > l->in->model->layers ? l->in->model->layers : (uint32_t)holds;
	}
}
