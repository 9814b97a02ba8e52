/* Collectives that follow from placements: how many of which kind, over which axis, of how many bytes; and what is refused, in which
 * words. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/plan/propagate.h"

static const struct model_config gpt2 = { .preset = MODEL_GPT2,
	.layers = 12,
	.width = 768,
	.heads = 12,
	.kv_heads = 12,
	.head_width = 64,
	.hidden = 3072,
	.context = 1024,
	.vocab = 50304 };
static const struct model_config llama = { .preset = MODEL_LLAMA,
	.layers = 32,
	.width = 4096,
	.heads = 32,
	.kv_heads = 8,
	.head_width = 128,
	.hidden = 14336,
	.context = 8192,
	.vocab = 128256,
	.untied = true };
static const struct model_config llama_tied = { .preset = MODEL_LLAMA,
	.layers = 16,
	.width = 2048,
	.heads = 32,
	.kv_heads = 8,
	.head_width = 64,
	.hidden = 8192,
	.context = 2048,
	.vocab = 128256 };
static const struct model_config *const presets[] = { &gpt2, &llama, &llama_tied };

static struct strategy strategy_of(const struct model_config *shape, uint32_t dp, uint32_t pp,
    uint32_t tp)
{
	struct mesh mesh = { { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } };
	struct strategy strategy;

	strategy_megatron(shape, &mesh, &strategy);
	strategy.sequences = 8 * dp;
	strategy.sequence_length = 1024;
	return strategy;
}

static struct collective_log log_of(const struct model_config *shape,
    const struct strategy *strategy)
{
	struct collective_log log;
	struct tr_error error = { 0 };

	if (propagate(shape, strategy, &log, NULL, &error) != TR_OK)
		fail_msg("%s", error.text);
	return log;
}

static const struct collective_entry *entry_of(const struct collective_log *log, const char *tensor,
    bool gradient, enum propagate_phase phase, enum mesh_axis axis)
{
	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		if (strcmp(entry->tensor, tensor) == 0 && entry->gradient == gradient &&
		    entry->phase == phase && entry->axis == axis)
			return entry;
	}
	return NULL;
}

static uint32_t moved(const struct collective_log *log, enum graph_section_kind section,
    enum propagate_phase phase, enum mesh_axis axis)
{
	return collective_log_count(log, section, phase, COLLECTIVES, axis) -
	    collective_log_count(log, section, phase, COLLECTIVE_LOCAL_SLICE, axis);
}

static void one_worker_says_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct strategy strategy = strategy_of(presets[i], 1, 1, 1);
		strategy.sequence_parallel = true;
		strategy.zero_owners = 1;
		assert_int_equal(log_of(presets[i], &strategy).count, 0);
	}
}

/* Two forward, two backward, of microbatch x width each; nothing else in a layer, nothing of it at the step. */
static void tensor_parallel_layer(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct strategy strategy = strategy_of(presets[i], 1, 1, 4);
		struct collective_log log = log_of(presets[i], &strategy);
		for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
			assert_int_equal(collective_log_count(&log, SECTION_LAYER,
			                     (enum propagate_phase)phase, COLLECTIVE_ALL_REDUCE,
			                     MESH_TP),
			    2);
			assert_int_equal(collective_log_count(&log, SECTION_LAYER,
			                     (enum propagate_phase)phase, COLLECTIVES, MESH_TP),
			    2);
		}
		assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_STEP, COLLECTIVES,
		                     MESH_TP),
		    0);
		for (uint32_t k = 0; k < log.count; k++)
			if (log.entries[k].section == SECTION_LAYER)
				assert_int_equal(log.entries[k].bytes,
				    8ull * 1024 * presets[i]->width * 4);
	}
}

/* Where they are: the products of o and down; the gradients of both norms. */
static void where_they_are(void **state)
{
	struct strategy strategy = strategy_of(&llama, 2, 2, 4);
	struct collective_log log = log_of(&llama, &strategy);
	const struct collective_entry *entry = entry_of(&log, "layer.attention.o.product", false,
	    PHASE_FORWARD, MESH_TP);
	char text[200];

	(void)state;
	assert_non_null(entry);
	assert_string_equal(collective_entry_text(entry, text, sizeof(text)),
	    "layer forward: layer.attention.o.product P(sum) -> B over tp: all-reduce of 134217728 "
	    "bytes");
	assert_non_null(entry_of(&log, "layer.mlp.down.product", false, PHASE_FORWARD, MESH_TP));
	assert_non_null(entry_of(&log, "layer.norm1", true, PHASE_BACKWARD, MESH_TP));
	assert_non_null(entry_of(&log, "layer.norm2", true, PHASE_BACKWARD, MESH_TP));
	/* The trap: behind a row-parallel layer the gradient is whole already. */
	assert_null(entry_of(&log, "layer.attention.o.product", true, PHASE_BACKWARD, MESH_TP));
	assert_null(entry_of(&log, "layer.mlp.down.product", true, PHASE_BACKWARD, MESH_TP));
}

/* The op that waits for it is named, so that an executor knows when. */
static void which_op_waits_for_it(void **state)
{
	struct strategy strategy = strategy_of(&llama, 2, 2, 4);
	struct collective_log log = log_of(&llama, &strategy);
	const struct graph_section *layer = layer_graph_section(&llama, SECTION_LAYER);
	unsigned before = 0, results = 0, handed = 0;

	(void)state;
	for (uint32_t i = 0; i < log.count; i++) {
		const struct collective_entry *entry = &log.entries[i];
		const struct graph_section *section = layer_graph_section(&llama, entry->section);
		if (entry->phase == PHASE_STEP || entry->op == GRAPH_NO_OP) {
			assert_int_equal(entry->op, GRAPH_NO_OP);
			handed += entry->phase != PHASE_STEP;
			continue;
		}
		assert_true(entry->op < section->op_count);
		const struct graph_op *op = &section->ops[entry->op];
		bool reads = false;
		for (unsigned k = 0; k < op_signature(op->kind)->inputs; k++)
			reads = reads ||
			    strcmp(section->tensors[op->in[k]].name, entry->tensor) == 0;
		if (entry->phase == PHASE_FORWARD)
			assert_true(entry->on_result != reads);
		else
			assert_string_equal(section->tensors[op->out].name,
			    entry->tensor); /* gradients of what it has made */
		results += entry->on_result;
		before += entry->phase == PHASE_FORWARD && !entry->on_result;
	}
	assert_int_equal(before, 2);      /* both sums of the residual stream */
	assert_int_equal(results, 1 + 2); /* the embedding; maximum and statistics */
	assert_int_equal(handed, 0);
	const struct collective_entry *o = entry_of(&log, "layer.attention.o.product", false,
	    PHASE_FORWARD, MESH_TP);
	assert_non_null(o);
	assert_int_equal(layer->ops[o->op].kind, OP_ADD);
}

static void sequence_parallel_layer(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct strategy strategy = strategy_of(presets[i], 1, 1, 4);
		struct collective_log plain = log_of(presets[i], &strategy);
		strategy.sequence_parallel = true;
		struct collective_log log = log_of(presets[i], &strategy);
		for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
			enum propagate_phase p = (enum propagate_phase)phase;
			assert_int_equal(collective_log_count(&log, SECTION_LAYER, p,
			                     COLLECTIVE_ALL_GATHER, MESH_TP),
			    2);
			assert_int_equal(collective_log_count(&log, SECTION_LAYER, p,
			                     COLLECTIVE_REDUCE_SCATTER, MESH_TP),
			    2);
			assert_int_equal(collective_log_count(&log, SECTION_LAYER, p, COLLECTIVES,
			                     MESH_TP),
			    4);
			/* As many bytes as the all-reduces in their stead. */
			assert_true(collective_log_bytes_sent(&log, &strategy, SECTION_LAYER, p,
			                COLLECTIVES, MESH_TP, 1) ==
			    collective_log_bytes_sent(&plain, &strategy, SECTION_LAYER, p,
			        COLLECTIVES, MESH_TP, 1));
		}
		/* Norms and what is added to the split stream see a part of the sequence: summed once a step. */
		uint32_t partial = presets[i]->preset == MODEL_GPT2 ? 6 : 2;
		assert_int_equal(collective_log_count(&log, SECTION_LAYER, PHASE_STEP,
		                     COLLECTIVE_ALL_REDUCE, MESH_TP),
		    partial);
		assert_int_equal(collective_log_count(&log, SECTION_LAYER, PHASE_STEP, COLLECTIVES,
		                     MESH_TP),
		    partial);
		/* Gathered again: the inputs of the column-parallel products, for their weights' gradients. */
		strategy.gather_again = true;
		log = log_of(presets[i], &strategy);
		assert_int_equal(collective_log_count(&log, SECTION_LAYER, PHASE_BACKWARD,
		                     COLLECTIVE_ALL_GATHER, MESH_TP),
		    4);
		assert_int_equal(collective_log_count(&log, SECTION_LAYER, PHASE_BACKWARD,
		                     COLLECTIVE_REDUCE_SCATTER, MESH_TP),
		    2);
		assert_non_null(entry_of(&log, "layer.norm1", false, PHASE_BACKWARD, MESH_TP));
	}
}

static void embedding_split_by_vocabulary(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct strategy strategy = strategy_of(presets[i], 1, 1, 2);
		struct collective_log log = log_of(presets[i], &strategy);
		assert_int_equal(collective_log_count(&log, SECTION_EMBEDDING, PHASE_FORWARD,
		                     COLLECTIVE_ALL_REDUCE, MESH_TP),
		    1);
		assert_int_equal(moved(&log, SECTION_EMBEDDING, PHASE_FORWARD, MESH_TP), 1);
		assert_int_equal(moved(&log, SECTION_EMBEDDING, PHASE_BACKWARD, MESH_TP), 0);
		strategy.sequence_parallel = true;
		log = log_of(presets[i], &strategy);
		assert_int_equal(collective_log_count(&log, SECTION_EMBEDDING, PHASE_FORWARD,
		                     COLLECTIVE_REDUCE_SCATTER, MESH_TP),
		    1);
		assert_int_equal(moved(&log, SECTION_EMBEDDING, PHASE_FORWARD, MESH_TP), 1);
		assert_int_equal(collective_log_count(&log, SECTION_EMBEDDING, PHASE_BACKWARD,
		                     COLLECTIVE_ALL_GATHER, MESH_TP),
		    1);
	}
}

/* One maximum, one sum of two numbers a token, and for the norm before the head one of the stream backward. */
static void loss_split_by_vocabulary(void **state)
{
	const uint64_t tokens = 8 * 1024;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct strategy strategy = strategy_of(presets[i], 1, 1, 2);
		struct collective_log log = log_of(presets[i], &strategy);
		const struct collective_entry *maximum = entry_of(&log, "head.maximum", false,
		    PHASE_FORWARD, MESH_TP);
		const struct collective_entry *sums = entry_of(&log, "head.statistics", false,
		    PHASE_FORWARD, MESH_TP);
		assert_int_equal(moved(&log, SECTION_HEAD, PHASE_FORWARD, MESH_TP), 2);
		assert_non_null(maximum);
		assert_non_null(sums);
		assert_int_equal(maximum->from.op, PARTIAL_MAX);
		assert_int_equal(maximum->collective, COLLECTIVE_ALL_REDUCE);
		assert_int_equal(maximum->bytes, tokens * 4);
		assert_int_equal(sums->from.op, PARTIAL_SUM);
		assert_int_equal(sums->collective, COLLECTIVE_ALL_REDUCE);
		assert_int_equal(sums->bytes, 2 * tokens * 4);
		assert_int_equal(moved(&log, SECTION_HEAD, PHASE_BACKWARD, MESH_TP), 1);
		const struct collective_entry *norm = entry_of(&log, "head.norm", true,
		    PHASE_BACKWARD, MESH_TP);
		assert_non_null(norm);
		assert_int_equal(norm->collective, COLLECTIVE_ALL_REDUCE);
	}
}

static uint32_t parameters_of(const struct model_config *shape)
{
	uint32_t count = 0;

	for (int i = 0; i < MODEL_PARAMETERS; i++)
		count += layer_graph_has(shape, (enum model_parameter)i);
	return count;
}

/* Nothing each microbatch; at the step each parameter's gradient and the sum of losses, once. */
static void data_parallel(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct strategy strategy = strategy_of(presets[i], 4, 1, 1);
		struct collective_log log = log_of(presets[i], &strategy);
		uint32_t parameters = parameters_of(presets[i]);
		assert_int_equal(log.count, parameters + 1);
		assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_STEP,
		                     COLLECTIVE_ALL_REDUCE, MESH_DP),
		    parameters + 1);
		assert_non_null(entry_of(&log, "head.loss_total", false, PHASE_STEP, MESH_DP));
		assert_true(collective_log_bytes_sent(&log, &strategy, SECTIONS, PHASE_STEP,
		                COLLECTIVES, MESH_DP, presets[i]->layers) ==
		    2 * 0.75 * 4 * ((double)model_config_parameters(presets[i]) + 1));
	}
}

/* The same sums, and when all are done what is new of a piece goes from one owner to who is none: of four, with R owners, (4 - R)/4 of all parameters from each. */
static void moments_by_pieces(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (uint32_t owners = 0; owners <= 4; owners++) {
			struct strategy strategy = strategy_of(presets[i], 4, 1, 1);
			uint32_t parameters = parameters_of(presets[i]),
			         given = owners % 4 > 0 ? parameters : 0;
			strategy.zero_owners = owners;
			struct collective_log log = log_of(presets[i], &strategy);
			assert_int_equal(log.count, parameters + 1 + given);
			for (uint32_t k = 0; k < log.count; k++)
				assert_int_equal(log.entries[k].collective,
				    k < parameters + 1 ? COLLECTIVE_ALL_REDUCE
				                       : COLLECTIVE_SEND_RECEIVE);
			assert_true(collective_log_bytes_sent(&log, &strategy, SECTIONS, PHASE_STEP,
			                COLLECTIVE_SEND_RECEIVE, MESH_DP, presets[i]->layers) ==
			    (given > 0) * (4.0 - owners) *
			        (double)model_config_parameters(presets[i]));
			if (given > 0) {
				const struct collective_entry
				    *given_first = &log.entries[parameters + 1];
				char text[256];
				assert_non_null(
				    strstr(collective_entry_text(given_first, text, sizeof(text)),
				        "S(0) -> B over dp: send and receive of "));
				assert_false(given_first->gradient);
			}
		}
}

/* Over tp each worker reduces what it holds. */
static void gradients_of_a_split_model(void **state)
{
	struct strategy strategy = strategy_of(&gpt2, 2, 1, 4);
	struct collective_log log = log_of(&gpt2, &strategy);
	const struct collective_entry *q = entry_of(&log, "layer.attention.q.weight", true,
	    PHASE_STEP, MESH_DP);
	const struct collective_entry *norm = entry_of(&log, "layer.norm1.weight", true, PHASE_STEP,
	    MESH_DP);

	(void)state;
	assert_non_null(q);
	assert_int_equal(q->from.kind, PLACEMENT_PARTIAL);
	assert_int_equal(q->bytes, 768 * 768 / 4 * 4);
	assert_non_null(norm);
	assert_int_equal(norm->bytes, 768 * 4);
	assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_FORWARD, COLLECTIVES, MESH_DP),
	    0);
	assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_BACKWARD, COLLECTIVES, MESH_DP),
	    0);
}

static void a_tied_table_on_two_stages(void **state)
{
	struct strategy strategy = strategy_of(&gpt2, 1, 2, 2);
	struct collective_log log = log_of(&gpt2, &strategy);
	const struct collective_entry *table = entry_of(&log, "embedding.table", true, PHASE_STEP,
	    MESH_PP);

	(void)state;
	assert_non_null(table);
	assert_int_equal(table->collective, COLLECTIVE_ALL_REDUCE);
	assert_int_equal(table->bytes, 50304ull * 768 * 4 / 2);
	assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_STEP, COLLECTIVES, MESH_PP), 1);
	/* Of three replicas one sum over both stages of all: six. */
	strategy = strategy_of(&gpt2, 3, 2, 2);
	log = log_of(&gpt2, &strategy);
	table = entry_of(&log, "embedding.table", true, PHASE_STEP, MESH_PP);
	assert_non_null(table);
	assert_true(table->with_dp);
	assert_true(fabs(collective_entry_bytes_sent(table, &strategy) -
	                2 * 5.0 / 6 * (double)table->bytes) < 1);
	assert_null(entry_of(&log, "embedding.table", true, PHASE_STEP, MESH_DP));
	strategy = strategy_of(&llama, 1, 2, 2);
	log = log_of(&llama, &strategy);
	assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_STEP, COLLECTIVES, MESH_PP), 0);
	strategy = strategy_of(&gpt2, 1, 1, 2);
	log = log_of(&gpt2, &strategy);
	assert_int_equal(collective_log_count(&log, SECTIONS, PHASE_STEP, COLLECTIVES, MESH_PP), 0);
}

/* Another strategy, which nobody wrote down: only the feed-forward part is split. */
static void attention_whole(void **state)
{
	static const char *const names[] = { "layer.attention.q.weight", "layer.attention.k.weight",
		"layer.attention.v.weight", "layer.attention.o.weight" };
	struct strategy strategy = strategy_of(&llama, 1, 1, 4);
	struct tr_error error;

	(void)state;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(strategy_place(&llama, &strategy, names[i],
		                     tensor_placement_broadcast(), &error),
		    TR_OK);
	struct collective_log log = log_of(&llama, &strategy);
	assert_int_equal(moved(&log, SECTION_LAYER, PHASE_FORWARD, MESH_TP), 1);
	assert_int_equal(moved(&log, SECTION_LAYER, PHASE_BACKWARD, MESH_TP), 1);
}

static void refused(const struct model_config *shape, const struct strategy *strategy,
    const char *words)
{
	struct collective_log log = { .count = 12345 };
	struct tr_error error = { 0 };

	assert_int_equal(propagate(shape, strategy, &log, NULL, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
	assert_int_equal(log.count, 12345);
}

static void what_does_not_divide(void **state)
{
	struct model_config shape = llama;
	struct strategy strategy = strategy_of(&gpt2, 1, 1, 8);

	(void)state;
	refused(&gpt2, &strategy,
	    "layer.attention.q.weight: 12 heads cannot be split over tp 8; tp may be 1, 2, 3, 4, 6 "
	    "or 12");
	strategy = strategy_of(&llama, 1, 1, 16);
	refused(&llama, &strategy,
	    "layer.attention.k.weight: 8 kv heads cannot be split over tp 16; tp may be 1, 2, 4 or "
	    "8");
	shape.vocab = 50257;
	strategy = strategy_of(&shape, 1, 1, 2);
	refused(&shape, &strategy,
	    "embedding.table: 50257 rows of vocabulary cannot be split over tp 2; tp may be 1 or "
	    "29, or the vocabulary may be padded");
	shape.vocab = strategy_padded_vocab(50257, 2);
	assert_int_equal(shape.vocab, 50258);
	(void)log_of(&shape, &strategy);
	shape = llama;
	shape.hidden = 14337;
	strategy = strategy_of(&shape, 1, 1, 4);
	refused(&shape, &strategy,
	    "layer.mlp.gate.weight: 14337 hidden features cannot be split over tp 4; tp may be 1, "
	    "3, 9, 27, 59, 81, 177 or 243");
	strategy = strategy_of(&llama, 1, 1, 8);
	strategy.sequence_parallel = true;
	strategy.sequence_length = 1001;
	refused(&llama, &strategy,
	    "the residual stream: 1001 positions cannot be split over tp 8; tp may be 1, 7, 11, "
	    "13, 77, 91 or 143");
	strategy = strategy_of(&llama, 4, 1, 1);
	strategy.sequences = 6;
	refused(&llama, &strategy,
	    "a microbatch: 6 sequences cannot be split over dp 4; dp may be 1, 2, 3 or 6");
	strategy = strategy_of(&gpt2, 1, 16, 1);
	refused(&gpt2, &strategy, "12 layers cannot be split over pp 16; pp may be at most 12");
}

static void what_no_op_takes(void **state)
{
	struct strategy strategy = strategy_of(&llama, 1, 1, 4);
	struct tr_error error;

	(void)state;
	assert_int_equal(strategy_place(&llama, &strategy, "layer.norm2.weight",
	                     tensor_placement_split(0), &error),
	    TR_OK);
	refused(&llama, &strategy,
	    "layer.norm2.weight: lies as S(0) over tp, but norm in layer takes it as B only");
	assert_int_equal(strategy_place(&llama, &strategy, "layer.norm2.weight",
	                     tensor_placement_split(1), &error),
	    TR_EINVAL);
	assert_string_equal(error.text,
	    "layer.norm2.weight: cannot be placed as S(1) over tp; B or S(0) is allowed");
	assert_int_equal(strategy_place(&llama, &strategy, "layer.mlp.up.bias",
	                     tensor_placement_split(0), &error),
	    TR_EINVAL);
	assert_string_equal(error.text, "layer.mlp.up.bias: this model has no such parameter");
	assert_int_equal(strategy_place(&llama, &strategy, "head.table",
	                     tensor_placement_partial(PARTIAL_SUM), &error),
	    TR_EINVAL);
	assert_string_equal(error.text,
	    "head.table: cannot be placed as P(sum) over tp; B, S(0) or S(1) is allowed");
}

static void what_is_no_model(void **state)
{
	struct model_config shape = gpt2;
	struct strategy strategy = strategy_of(&gpt2, 1, 1, 1);

	(void)state;
	shape.heads = shape.kv_heads = 10;
	shape.head_width = 0;
	refused(&shape, &strategy,
	    "model.width: found 768, allowed: a multiple of model.heads, which is 10");
	shape = gpt2;
	shape.layers = 0;
	refused(&shape, &strategy,
	    "model.width: found 0 layers, width 768, heads 12, context 1024, vocabulary 50304, "
	    "allowed: all of them positive");
	shape = gpt2;
	shape.kv_heads = 4;
	refused(&shape, &strategy,
	    "model.kv_heads: found 4, allowed: model.heads, which is 12, since gpt2 has keys and "
	    "values for each head");
	shape = llama;
	shape.kv_heads = 5;
	refused(&shape, &strategy,
	    "model.kv_heads: found 5, allowed: a divisor of model.heads, which is 32");
	strategy.sequence_length = 1025;
	refused(&gpt2, &strategy,
	    "a microbatch of 8 sequences of 1025 positions; at least 1, of 1 to 1024");
}

/* What the graph has comes to what the model has; a tied table counts once. */
static uint64_t counted(const struct model_config *shape)
{
	uint64_t count = 0;

	for (int i = 0; i < MODEL_PARAMETERS; i++) {
		enum model_parameter parameter = (enum model_parameter)i;
		bool layer = layer_graph_parameter_section(parameter) == SECTION_LAYER;
		if (layer_graph_has(shape, parameter))
			count += layer_graph_parameter_count(shape, parameter) *
			    (layer ? shape->layers : 1);
	}
	assert_int_equal(count, model_config_parameters(shape));
	return count;
}

/* Published: GPT-2 small 124,439,808 with 50,257 tokens; Llama 3 8B 8,030,261,248. */
static void parameters_counted(void **state)
{
	struct model_config shape = gpt2;

	(void)state;
	shape.vocab = 50257;
	assert_int_equal(counted(&shape), 124439808);
	assert_int_equal(counted(&llama), 8030261248);
	(void)counted(&llama_tied);
}

static void what_stages_send(void **state)
{
	struct strategy strategy = strategy_of(&gpt2, 2, 2, 4);

	(void)state;
	assert_int_equal(strategy_boundary_bytes(&gpt2, &strategy), 8ull * 1024 * 768 * 4);
	strategy.sequence_parallel = true;
	assert_int_equal(strategy_boundary_bytes(&gpt2, &strategy), 8ull * 1024 * 768);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_worker_says_nothing),
		cmocka_unit_test(tensor_parallel_layer),
		cmocka_unit_test(where_they_are),
		cmocka_unit_test(which_op_waits_for_it),
		cmocka_unit_test(sequence_parallel_layer),
		cmocka_unit_test(embedding_split_by_vocabulary),
		cmocka_unit_test(loss_split_by_vocabulary),
		cmocka_unit_test(data_parallel),
		cmocka_unit_test(moments_by_pieces),
		cmocka_unit_test(gradients_of_a_split_model),
		cmocka_unit_test(a_tied_table_on_two_stages),
		cmocka_unit_test(attention_whole),
		cmocka_unit_test(what_does_not_divide),
		cmocka_unit_test(what_no_op_takes),
		cmocka_unit_test(what_is_no_model),
		cmocka_unit_test(parameters_counted),
		cmocka_unit_test(what_stages_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
