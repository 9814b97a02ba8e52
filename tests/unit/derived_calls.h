/* What the trainer's model has to call of its tensor-parallel group, derived: the log that propagate() makes of the placements (daemon/plan/propagate.h), read as calls of model_tensor
 * (daemon/worker/model.h). Nothing here knows how many there are. For test_model_tensor.c and pipeline_ranks.h. */
#ifndef TR_TESTS_DERIVED_CALLS_H
#define TR_TESTS_DERIVED_CALLS_H

#include <string.h>

#include "daemon/plan/propagate.h"
#include "tests/unit/meetings.h"

/* Of one microbatch, at one rank. */
struct derived_work {
	const struct model_config *config;
	uint32_t tp, rows; /* sequences x positions */
	uint32_t layers;   /* at this rank */
	bool embeds, heads;
	bool splits, recompute, loss_only;
};

struct derived {
	struct derived_work work;
	struct model_config config, shape;
	struct strategy strategy;
	struct collective_log log;
};

/* Kept until another one is asked for. Rows are all that the stream's size depends on, so they are one sequence here: the last microbatch of a pipeline need not have whole positions for
 * each member. */
static inline const struct derived *derived_log(const struct derived_work *work)
{
	static struct derived last;
	struct mesh mesh = { { [MESH_DP] = 1, [MESH_PP] = 1, [MESH_TP] = work->tp } };
	struct tr_error error;

	if (last.log.count > 0 && memcmp(&last.config, work->config, sizeof(last.config)) == 0 &&
	    last.work.tp == work->tp && last.work.rows == work->rows &&
	    last.work.splits == work->splits)
		return &last;
	last.work = *work;
	last.config = last.shape = *work->config;
	if (last.shape.context < work->rows)
		last.shape.context = work->rows;
	last.shape.vocab = strategy_padded_vocab(last.shape.vocab, work->tp);
	model_config_fill(&last.shape);
	strategy_megatron(&last.shape, &mesh, &last.strategy);
	last.strategy.sequence_length = work->rows;
	last.strategy.sequence_parallel = work->splits;
	if (propagate(&last.shape, &last.strategy, &last.log, NULL, &error) != TR_OK)
		fail_msg("%s", error.text);
	return &last;
}

static inline enum meeting derived_kind(const struct collective_entry *entry)
{
	switch (entry->collective) {
	case COLLECTIVE_ALL_REDUCE:
		return entry->from.op == PARTIAL_MAX ? MAXIMUM : SUM;
	case COLLECTIVE_REDUCE_SCATTER:
		return SCATTER;
	case COLLECTIVE_ALL_GATHER:
		return GATHER;
	default:
		fail_msg("%s has no call", collective_name(entry->collective));
		return SUM;
	}
}

/* `again`: only what the backward pass needs once more, which is without the section's result. */
static inline void derive_section(const struct collective_log *log, enum graph_section_kind section,
    enum propagate_phase phase, bool again, struct meeting_calls *calls)
{
	const struct collective_entry *kept = NULL;

	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		if (entry->section != section || entry->phase != phase || entry->axis != MESH_TP ||
		    entry->collective == COLLECTIVE_LOCAL_SLICE)
			continue;
		if (kept != NULL)
			meeting_called(calls, derived_kind(kept), kept->bytes / 4);
		kept = entry;
	}
	if (kept != NULL && !again)
		meeting_called(calls, derived_kind(kept), kept->bytes / 4);
}

/* Appends the calls of the microbatch, in their order. */
static inline void derive_calls(const struct derived_work *work, struct meeting_calls *calls)
{
	const struct collective_log *log = &derived_log(work)->log;

	if (work->embeds)
		derive_section(log, SECTION_EMBEDDING, PHASE_FORWARD, false, calls);
	for (uint32_t i = 0; i < work->layers; i++)
		derive_section(log, SECTION_LAYER, PHASE_FORWARD, false, calls);
	if (work->heads)
		derive_section(log, SECTION_HEAD, PHASE_FORWARD, false, calls);
	if (work->loss_only)
		return;
	if (work->heads)
		derive_section(log, SECTION_HEAD, PHASE_BACKWARD, false, calls);
	for (uint32_t i = 0; i < work->layers; i++) {
		if (work->recompute)
			derive_section(log, SECTION_LAYER, PHASE_FORWARD, true, calls);
		derive_section(log, SECTION_LAYER, PHASE_BACKWARD, false, calls);
	}
	if (work->embeds)
		derive_section(log, SECTION_EMBEDDING, PHASE_BACKWARD, false, calls);
}

/* Numbers of gradients that members of the group sum up once a step, as each has those of its rows alone. */
static inline uint64_t derived_step_numbers(const struct derived_work *work)
{
	const struct collective_log *log = &derived_log(work)->log;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		if (entry->phase != PHASE_STEP || entry->axis != MESH_TP)
			continue;
		/* Where a member has whole positions of all sequences, the learned ones' gradient would be gathered; the trainer cuts rows anywhere, and sums it. */
		assert_true(entry->collective == COLLECTIVE_ALL_REDUCE ||
		    entry->section == SECTION_EMBEDDING);
		if (entry->section == SECTION_LAYER ||
		    (entry->section == SECTION_EMBEDDING && work->embeds) ||
		    (entry->section == SECTION_HEAD && work->heads))
			bytes += entry->bytes *
			    (entry->section == SECTION_LAYER ? work->layers : 1);
	}
	return bytes / 4;
}

/* Of a message between stages, at one worker. */
static inline uint64_t derived_message_numbers(const struct derived_work *work)
{
	const struct derived *derived = derived_log(work);

	return strategy_boundary_bytes(&derived->shape, &derived->strategy) / 4;
}

static inline void assert_same_calls(const struct meeting_calls *made,
    const struct meeting_calls *derived)
{
	for (size_t i = 0; i < made->count && i < derived->count; i++)
		if (made->at[i].kind != derived->at[i].kind ||
		    made->at[i].numbers != derived->at[i].numbers)
			fail_msg("call %zu: %d of %zu numbers, derived %d of %zu", i,
			    made->at[i].kind, made->at[i].numbers, derived->at[i].kind,
			    derived->at[i].numbers);
	assert_int_equal(made->count, derived->count);
}

#endif
