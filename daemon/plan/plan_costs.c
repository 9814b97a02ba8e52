#include "daemon/plan/plan_costs.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "common/limits.h"
#include "daemon/plan/memory.h"

#define SECONDS_MOST   1e6
#define BYTES_MOST     ((uint64_t)1 << 50) /* of one size: sums of them are exact */
#define PARAMETER_MOST 1024

const char *plan_costs_of(const struct model_config *model, const char *dtype, unsigned threads,
    bool strict, bool dropout, char text[PLAN_COSTS_OF_MAX])
{
	(void)snprintf(text, PLAN_COSTS_OF_MAX,
	    "%s%s width %u heads %u/%u of %u hidden %u context %u vocab %u %s threads %u%s%s",
	    model_architecture(model->preset)->name, model->untied ? " untied" : "", model->width,
	    model->heads, model->kv_heads, model->head_width, model->hidden, model->context,
	    model->vocab, dtype[0] != '\0' ? dtype : "f32", threads, strict ? " strict" : "",
	    dropout ? " dropout" : "");
	return text;
}

static bool is_time(double value)
{
	return value >= 0 && value <= SECONDS_MOST;
}

/* A search finds its place among them by tp and sequences. */
static tr_status check_single(const struct plan_costs *costs, struct tr_error *error)
{
	for (uint32_t i = 0; i < costs->count; i++)
		for (uint32_t k = 0; k < i; k++)
			if (costs->at[k].tp == costs->at[i].tp &&
			    costs->at[k].sequences == costs->at[i].sequences)
				return tr_error_set(error, TR_EINVAL,
				    "there are two costs of tp %u and %u sequences, allowed: one; "
				    "remove the other",
				    costs->at[i].tp, costs->at[i].sequences);
	return TR_OK;
}

static bool is_cost(const struct plan_cost *cost)
{
	bool good = cost->tp > 0 && cost->tp <= TR_GROUP_PEERS_MAX && cost->sequences > 0 &&
	    cost->working_bytes < BYTES_MOST && cost->time[SECTION_LAYER].forward_s > 0;

	for (int section = 0; section < SECTIONS; section++)
		good = good && is_time(cost->time[section].forward_s) &&
		    is_time(cost->time[section].backward_s) &&
		    cost->kept_bytes[section] < BYTES_MOST;
	return good;
}

static tr_status check(const struct plan_costs *costs, struct tr_error *error)
{
	if (costs->count > PLAN_COSTS_MAX)
		return tr_error_set(error, TR_ELIMIT, "costs of %u splits, at most %d are allowed",
		    costs->count, PLAN_COSTS_MAX);
	for (uint32_t i = 0; i < costs->count; i++) {
		const struct plan_cost *cost = &costs->at[i];
		if (!is_cost(cost))
			return tr_error_set(error, TR_EINVAL,
			    "the cost of tp %u and %u sequences is none: allowed are times up to "
			    "1e6 s (a layer takes some) and sizes below 2^50 bytes",
			    cost->tp, cost->sequences);
	}
	return is_time(costs->update_s) && is_time(costs->add_s) && is_time(costs->round_s) &&
	        is_time(costs->sum_s) && is_time(costs->sum_byte_s) &&
	        costs->process_bytes < BYTES_MOST && costs->parameter_bytes < PARAMETER_MOST
	    ? check_single(costs, error)
	    : tr_error_set(error, TR_EINVAL,
	          "the cost of an update, a sum, a round, a process or a parameter is none");
}

static bool is_exchanged(const struct collective_entry *entry, enum graph_section_kind section,
    enum propagate_phase phase)
{
	return entry->section == section && entry->phase == phase && entry->axis == MESH_TP &&
	    entry->collective != COLLECTIVE_LOCAL_SLICE;
}

/* Of collectives/engine/coll_turn.c. All-reduce: one's input to its seat, the others' from theirs; reduce-scatter: all but one's own block, and that block of the others'; all-gather: one's block, and the others'. */
static double touched_bytes(enum collective collective, double bytes, uint32_t tp)
{
	if (collective == COLLECTIVE_REDUCE_SCATTER)
		return 2 * bytes * (tp - 1) / tp;
	return collective == COLLECTIVE_ALL_GATHER ? bytes : bytes * tp;
}

static struct plan_exchange exchange_of(const struct collective_entry *entry,
    const struct strategy *strategy)
{
	uint32_t tp = strategy->mesh.size[MESH_TP];
	double bytes = (double)entry->bytes;

	return (struct plan_exchange){ entry->collective == COLLECTIVE_ALL_REDUCE ? 2 : 1,
		collective_bytes_sent(entry->collective, bytes, tp), 1,
		touched_bytes(entry->collective, bytes, tp), bytes };
}

/* `but_last`: a layer computed again stops before what makes its result, the last that its members exchange (tests/unit/derived_calls.h holds the trainer to it). */
static struct plan_exchange exchange_in(const struct collective_log *log,
    const struct strategy *strategy, enum graph_section_kind section, enum propagate_phase phase,
    bool but_last)
{
	struct plan_exchange all = { 0 }, last = { 0 };

	for (uint32_t i = 0; i < log->count; i++) {
		if (!is_exchanged(&log->entries[i], section, phase))
			continue;
		last = exchange_of(&log->entries[i], strategy);
		all.latencies += last.latencies;
		all.bytes += last.bytes;
		all.ops += last.ops;
		all.touched += last.touched;
		all.largest = fmax(all.largest, last.largest);
	}
	if (!but_last)
		return all;
	return (struct plan_exchange){ all.latencies - last.latencies, all.bytes - last.bytes,
		all.ops - last.ops, all.touched - last.touched, all.largest };
}

/* What is multiplied for a token in a layer, forward. */
struct products {
	double qkv, attention, projection, up, down;
};

/* With parameters, and with the keys and values before it, half of the sequence in the mean. */
static struct products products_of(const struct model_config *model, uint32_t sequence_length)
{
	double width = model->width, queries = (double)model_queries(model);

	return (struct products){ width * (double)model_qkv(model), queries * sequence_length,
		queries * width, width * (double)model_up(model), (double)model->hidden * width };
}

static double again_share(struct products p)
{
	return 1 - p.down / (p.qkv + p.attention + p.projection + p.up + p.down);
}

/* Backward there are two products for one with parameters, of which one makes their gradients, and five for two of attention (Dao 2023, 2307.08691). */
static void put_behind(const struct collective_log *log, const struct strategy *strategy,
    struct products p, struct plan_behind behind[PLAN_BEHIND])
{
	double attention = p.qkv + p.projection, mlp = p.up + p.down,
	       backward = 2 * (attention + mlp) + 2.5 * p.attention;
	unsigned sums = 0;

	behind[0] = (struct plan_behind){ .share = mlp / backward };
	behind[1] = (struct plan_behind){ .share = attention / backward };
	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		if (!is_exchanged(entry, SECTION_LAYER, PHASE_BACKWARD) ||
		    entry->collective == COLLECTIVE_ALL_GATHER)
			continue;
		assert(sums < PLAN_BEHIND);
		behind[sums++].sum = exchange_of(entry, strategy);
	}
}

static tr_status derive(const struct model_config *model, uint32_t sequence_length, uint32_t tp,
    bool sequence_parallel, struct plan_derived *made, struct tr_error *error)
{
	struct mesh mesh = { { [MESH_DP] = 1, [MESH_PP] = 1, [MESH_TP] = tp } };
	struct model_config padded = *model;
	struct strategy strategy;
	struct collective_log log;

	assert(tp > 0); /* is_cost */
	padded.vocab = strategy_padded_vocab(model->vocab, tp);
	strategy_megatron(&padded, &mesh, &strategy);
	strategy.sequences = 1;
	strategy.sequence_length = sequence_length;
	strategy.sequence_parallel = sequence_parallel && tp > 1;
	tr_status st = propagate(&padded, &strategy, &log, NULL, error);
	if (st != TR_OK)
		return st;
	made->boundary_bytes = (double)strategy_boundary_bytes(&padded, &strategy);
	for (unsigned section = 0; section < SECTIONS; section++)
		made->kept_bytes[section] = (double)log.kept_bytes[section];
	made->head_bytes = (double)log.kept_bytes[SECTION_HEAD] - made->boundary_bytes;
	made->table = model->untied ? 0 : (uint64_t)padded.vocab / tp * model->width;
	for (unsigned section = 0; section < SECTIONS; section++) {
		enum graph_section_kind kind = (enum graph_section_kind)section;
		made->parameters[section] = memory_section_parameters(&padded, &strategy, kind,
		    false);
		made->shared[section] = memory_section_shared(&padded, &strategy, kind);
		for (unsigned phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++)
			made->exchange[section][phase] = exchange_in(&log, &strategy, kind,
			    (enum propagate_phase)phase, false);
	}
	struct products products = products_of(model, sequence_length);
	made->again_share = again_share(products);
	put_behind(&log, &strategy, products, made->behind);
	made->again = exchange_in(&log, &strategy, SECTION_LAYER, PHASE_FORWARD, true);
	made->possible = true;
	return TR_OK;
}

static uint64_t less(uint64_t from, double what)
{
	return (double)from > what ? from - (uint64_t)what : 0;
}

tr_status plan_costs_derive(const struct model_config *model, uint32_t sequence_length,
    const struct plan_costs *costs, struct plan_derived *derived, struct tr_error *error)
{
	tr_status st = check(costs, error);
	bool any = false;

	if (st != TR_OK)
		return st;
	for (uint32_t i = 0; i < costs->count; i++) {
		uint32_t same = 0;
		while (costs->at[same].tp != costs->at[i].tp)
			same++;
		derived[i] = (struct plan_derived){ 0 };
		if (same < i)
			derived[i] = derived[same];
		else
			st = derive(model, sequence_length, costs->at[i].tp,
			    costs->sequence_parallel, &derived[i], error);
		any = any || derived[i].possible;
	}
	if (any)
		return TR_OK;
	return costs->count == 0 ? tr_error_set(error, TR_EINVAL, "no split of the model has costs")
	                         : st;
}

void plan_costs_split_rows(const struct model_config *model, uint32_t sequence_length,
    const struct plan_costs *costs, const struct plan_derived *derived, struct plan_cost *split,
    struct plan_derived *own)
{
	for (uint32_t i = 0; i < costs->count; i++) {
		const struct plan_derived *all = &derived[i];
		struct plan_cost *made = &split[i];
		double sequences = costs->at[i].sequences;
		*made = costs->at[i];
		own[i] = (struct plan_derived){ 0 };
		if (made->tp == 1 || !all->possible ||
		    derive(model, sequence_length, made->tp, true, &own[i], NULL) != TR_OK)
			continue;
		double stream = sequences * (all->boundary_bytes - own[i].boundary_bytes);
		double layer = sequences *
		    (all->kept_bytes[SECTION_LAYER] - own[i].kept_bytes[SECTION_LAYER]);
		made->kept_bytes[SECTION_LAYER] = less(made->kept_bytes[SECTION_LAYER], layer);
		made->kept_bytes[SECTION_HEAD] = less(made->kept_bytes[SECTION_HEAD], stream);
		/* Gradients of the stream before, in and behind the layer in work; with dropout also of what is added to it. */
		made->working_bytes = less(made->working_bytes, (costs->dropout ? 5 : 3) * stream);
	}
}
