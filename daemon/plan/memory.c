#include "daemon/plan/memory.h"

#include "common/limits.h"

static tr_status check(const struct memory_input *in, uint32_t rank, struct tr_error *error)
{
	const struct schedule_shape *shape = &in->schedule->shape;
	uint64_t layers = 0;

	if (shape->ranks != in->strategy->mesh.size[MESH_PP] || rank >= shape->ranks)
		return tr_error_set(error, TR_EINVAL,
		    "memory: rank %u of a schedule of %u ranks, in a mesh with pp %u", rank,
		    shape->ranks, in->strategy->mesh.size[MESH_PP]);
	for (uint32_t stage = 0; stage < shape->ranks * shape->chunks; stage++)
		layers += in->stage_layers[stage];
	if (layers != in->shape->layers)
		return tr_error_set(error, TR_EINVAL,
		    "memory: stages have %llu layers together, the model %u",
		    (unsigned long long)layers, in->shape->layers);
	return TR_OK;
}

static uint64_t count_parameters(const struct model_config *shape, const struct strategy *strategy,
    enum graph_section_kind section, bool table_there, bool split_too)
{
	const struct graph_section *graph = layer_graph_section(shape, section);
	uint64_t count = 0;

	for (uint8_t i = 0; i < graph->tensor_count; i++) {
		const struct graph_tensor *tensor = &graph->tensors[i];
		if (tensor->role != TENSOR_PARAMETER ||
		    (table_there && tensor->parameter == PARAMETER_TABLE))
			continue;
		uint64_t whole = layer_graph_parameter_count(shape, tensor->parameter);
		if (strategy->over_tp[tensor->parameter].kind != PLACEMENT_SPLIT)
			count += whole;
		else if (split_too)
			count += whole / strategy->mesh.size[MESH_TP];
	}
	return count;
}

uint64_t memory_section_parameters(const struct model_config *shape,
    const struct strategy *strategy, enum graph_section_kind section, bool table_there)
{
	return count_parameters(shape, strategy, section, table_there, true);
}

uint64_t memory_section_shared(const struct model_config *shape, const struct strategy *strategy,
    enum graph_section_kind section)
{
	return count_parameters(shape, strategy, section, false, false);
}

static uint64_t section_count(const struct memory_input *in, enum graph_section_kind section,
    bool table_there)
{
	return memory_section_parameters(in->shape, in->strategy, section, table_there);
}

static uint64_t rank_count(const struct memory_input *in, uint32_t rank)
{
	const struct schedule_shape *shape = &in->schedule->shape;
	uint64_t count = 0;
	bool table_there = false;

	for (uint32_t chunk = 0; chunk < shape->chunks; chunk++) {
		uint32_t stage = schedule_stage(shape, rank, chunk);
		count += in->stage_layers[stage] * section_count(in, SECTION_LAYER, false);
		if (schedule_is_first(shape, rank, chunk)) {
			count += section_count(in, SECTION_EMBEDDING, false);
			table_there = !in->shape->untied;
		}
		if (schedule_is_last(shape, rank, chunk))
			count += section_count(in, SECTION_HEAD, table_there);
	}
	return count;
}

/* Of one microbatch in a chunk. */
static uint64_t chunk_bytes(const struct memory_input *in, const struct collective_log *log,
    uint32_t rank, uint32_t chunk)
{
	const struct schedule_shape *shape = &in->schedule->shape;
	uint64_t layer = in->recompute ? strategy_boundary_bytes(in->shape, in->strategy)
	                               : log->kept_bytes[SECTION_LAYER];
	uint64_t bytes = in->stage_layers[schedule_stage(shape, rank, chunk)] * layer;

	if (schedule_is_first(shape, rank, chunk))
		bytes += log->kept_bytes[SECTION_EMBEDDING];
	if (schedule_is_last(shape, rank, chunk))
		bytes += strategy_boundary_bytes(in->shape, in->strategy);
	return bytes;
}

/* Of a layer the gradients of the residual stream before, in and behind it, of queries, keys and values, and of what goes into the activation function; what is
 * kept of it, if it is computed again; of the head what is not its input. */
static uint64_t working_bytes(const struct memory_input *in, const struct collective_log *log,
    bool head)
{
	uint64_t stream = strategy_boundary_bytes(in->shape, in->strategy);
	uint64_t rows = strategy_dim(in->shape, in->strategy, DIM_BATCH) /
	    in->strategy->mesh.size[MESH_DP] * strategy_dim(in->shape, in->strategy, DIM_SEQUENCE);
	uint64_t wide = model_qkv(in->shape) + model_up(in->shape);
	uint64_t bytes = 3 * stream +
	    rows * wide / in->strategy->mesh.size[MESH_TP] * in->strategy->value_bytes;

	if (in->recompute)
		bytes += log->kept_bytes[SECTION_LAYER] - stream;
	if (head)
		bytes += log->kept_bytes[SECTION_HEAD] - stream;
	return bytes;
}

/* Outputs as long as their microbatches are in flight, and MEMORY_MESSAGES; interleaved, gradients may wait for the other end as long as outputs do. */
uint32_t memory_messages(const struct schedule_shape *shape, uint32_t rank)
{
	uint32_t flying = schedule_in_flight(shape, rank);

	if (shape->ranks == 1)
		return 0;
	if (shape->chunks > 1)
		return MEMORY_MESSAGES + 2 * flying;
	return MEMORY_MESSAGES + (rank + 1 < shape->ranks ? flying : 0);
}

/* Along the rank's list: a forward adds, the end of its backward takes away. */
static uint64_t most_in_flight(const struct memory_input *in, const struct collective_log *log,
    uint32_t rank)
{
	const struct schedule_list *list = &in->schedule->lists[rank];
	uint64_t of_chunk[TR_SCHEDULE_CHUNKS_MAX], now = 0, most = 0;

	for (uint32_t chunk = 0; chunk < in->schedule->shape.chunks; chunk++)
		of_chunk[chunk] = chunk_bytes(in, log, rank, chunk);
	for (uint32_t i = 0; i < list->count; i++) {
		if (list->at[i].op == SCHEDULE_FWD)
			now += of_chunk[list->at[i].chunk];
		if (list->at[i].op == SCHEDULE_BWD)
			now -= of_chunk[list->at[i].chunk];
		most = now > most ? now : most;
	}
	return most;
}

tr_status memory_of_rank(const struct memory_input *input, uint32_t rank,
    struct memory_bytes *bytes, struct tr_error *error)
{
	const struct strategy *strategy = input->strategy;
	struct memory_bytes made = { 0 };
	struct collective_log log;
	tr_status st = propagate(input->shape, strategy, &log, NULL, error);

	if (st == TR_OK)
		st = check(input, rank, error);
	if (st != TR_OK)
		return st;
	uint64_t count = rank_count(input, rank), dp = strategy->mesh.size[MESH_DP];
	uint32_t owners = strategy->zero_owners;
	uint64_t optimized = owners > 0 && owners < dp ? (count + dp - 1) / dp * owners : count;
	made.parameters = count * strategy->value_bytes;
	made.gradients = count * strategy->gradient_bytes;
	made.optimizer = optimized * (strategy->value_bytes == 2 ? 12 : 8);
	made.activations = most_in_flight(input, &log, rank);
	made.working = working_bytes(input, &log, rank + 1 == input->schedule->shape.ranks);
	made.messages = memory_messages(&input->schedule->shape, rank) *
	    strategy_boundary_bytes(input->shape, strategy);
	made.total = made.parameters + made.gradients + made.optimizer + made.activations +
	    made.working + made.messages;
	*bytes = made;
	return TR_OK;
}
