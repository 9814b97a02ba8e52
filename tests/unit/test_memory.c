/* Bytes of a worker: the published bytes per parameter, activations as counted by hand and by another paper's formulas, and what adds up
 * over the mesh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/plan/memory.h"

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
	.layers = 16,
	.width = 2048,
	.heads = 32,
	.kv_heads = 8,
	.head_width = 64,
	.hidden = 8192,
	.context = 2048,
	.vocab = 128256,
	.untied = true };

struct memory_case {
	struct schedule schedule;
	struct strategy strategy;
	uint32_t stage_layers[64];
	struct memory_input in;
};

static void case_init(struct memory_case *c, const struct model_config *shape,
    enum schedule_kind kind, uint32_t dp, uint32_t pp, uint32_t tp, uint32_t v)
{
	struct mesh mesh = { { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } };
	struct tr_error error;

	memset(c, 0, sizeof(*c));
	strategy_megatron(shape, &mesh, &c->strategy);
	c->strategy.sequences = 2 * dp;
	if (schedule_create(&(struct schedule_shape){ kind, pp, 8, v }, &c->schedule, &error) !=
	    TR_OK)
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < pp * v; i++)
		c->stage_layers[i] = shape->layers / (pp * v);
	c->in = (struct memory_input){ shape, &c->strategy, &c->schedule, c->stage_layers, false };
}

static struct memory_bytes of_rank(const struct memory_case *c, uint32_t rank)
{
	struct memory_bytes bytes;
	struct tr_error error;

	if (memory_of_rank(&c->in, rank, &bytes, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(bytes.total,
	    bytes.parameters + bytes.gradients + bytes.optimizer + bytes.activations +
	        bytes.working + bytes.messages);
	return bytes;
}

static uint64_t state_of(const struct memory_bytes *bytes)
{
	return bytes->parameters + bytes->gradients + bytes->optimizer;
}

static void published_bytes_per_parameter(void **state)
{
	struct memory_case c;
	struct memory_bytes bytes;
	uint64_t count = model_config_parameters(&gpt2);

	(void)state;
	case_init(&c, &gpt2, SCHEDULE_1F1B, 4, 1, 1, 1);
	bytes = of_rank(&c, 0);
	assert_int_equal(state_of(&bytes), 16 * count);
	c.strategy.zero_owners = 1; /* 8 + 8/d, d = 4: 10; two owners: 12 */
	bytes = of_rank(&c, 0);
	assert_int_equal(state_of(&bytes), 10 * count);
	c.strategy.zero_owners = 2;
	bytes = of_rank(&c, 0);
	assert_int_equal(state_of(&bytes), 12 * count);
	c.strategy.zero_owners = 4;
	bytes = of_rank(&c, 0);
	assert_int_equal(state_of(&bytes), 16 * count);
	c.strategy.value_bytes = 2; /* 6 + 12 R/d */
	bytes = of_rank(&c, 0);
	assert_int_equal(state_of(&bytes), 18 * count);
	c.strategy.zero_owners = 1;
	bytes = of_rank(&c, 0);
	assert_int_equal(state_of(&bytes), 9 * count);
	schedule_finish(&c.schedule);
}

/* A layer of GPT-2 keeps, in tokens x width: its input, norm1, q, k, v, attention, the middle, norm2: 8; up: 4 (what gelu makes is made again). Over tp
 * the four of the stream stay whole; with sequence parallelism they are split too, but for what was gathered and kept. While a layer is in work there are gradients: of the
 * stream before, in and behind it, of q, k, v and up: 10. */
static void activations_by_hand(void **state)
{
	struct memory_case c;
	const uint64_t unit = 2ull * 1024 * 768 * 4;
	const uint64_t tokens = 2ull * 1024 * 4;
	/* The head, once: the norm, logits; maximum, two sums and target of each token. Of each microbatch its input; of the embedding the tokens. */
	const uint64_t head = unit + 2ull * 1024 * 50304 * 4 + 4 * tokens;

	(void)state;
	case_init(&c, &gpt2, SCHEDULE_1F1B, 1, 1, 1, 1);
	assert_int_equal(of_rank(&c, 0).activations, 12 * 12 * unit + unit + tokens);
	assert_int_equal(of_rank(&c, 0).working, 10 * unit + head);
	assert_int_equal(of_rank(&c, 0).messages, 0);
	schedule_finish(&c.schedule);

	case_init(&c, &gpt2, SCHEDULE_1F1B, 1, 3, 4, 1);
	assert_int_equal(of_rank(&c, 1).activations, 2 * 4 * (4 * unit + 8 * unit / 4));
	assert_int_equal(of_rank(&c, 1).working, 3 * unit + 7 * unit / 4);
	/* Two in flight on the rank in the middle, one on the last, which has nothing to send but gradients. */
	assert_int_equal(of_rank(&c, 1).messages, (2 + MEMORY_MESSAGES) * unit);
	assert_int_equal(of_rank(&c, 2).messages, MEMORY_MESSAGES * unit);
	c.strategy.sequence_parallel = true;
	assert_int_equal(of_rank(&c, 1).activations, 2 * 4 * (2 * unit + 10 * unit / 4));
	c.strategy
	    .gather_again = true; /* all of it over tp: Korthikanti et al., arXiv 2205.05198, table 2 */
	assert_int_equal(of_rank(&c, 1).activations, 2 * 4 * 12 * unit / 4);
	c.in.recompute = true; /* a layer's input, and one layer besides */
	assert_int_equal(of_rank(&c, 1).activations, 2 * 4 * unit / 4);
	assert_int_equal(of_rank(&c, 1).working, (10 + 12 - 1) * unit / 4);
	schedule_finish(&c.schedule);
}

/* As many microbatches as the schedule's formula says. */
static void activations_in_flight(void **state)
{
	(void)state;
	for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
		struct memory_case c, one;
		uint32_t v = kind == SCHEDULE_INTERLEAVED ? 2 : 1;
		case_init(&c, &llama, (enum schedule_kind)kind, 1, 4, 2, v);
		case_init(&one, &llama, SCHEDULE_1F1B, 1, 1, 2, 1);
		/* What a layer keeps of one microbatch, with its input and without. */
		uint64_t unit = 2ull * 2048 * 2048 * 4, all = of_rank(&one, 0).activations;
		one.in.recompute = true;
		uint64_t layer = (all - of_rank(&one, 0).activations) / 16 + unit;
		for (uint32_t rank = 1; rank < 3; rank++)
			assert_int_equal(of_rank(&c, rank).activations,
			    layer * (16 / 4 / v) * schedule_in_flight(&c.schedule.shape, rank));
		/* The first rank keeps tokens besides, the last one the head's input of what it has in flight of its last chunk. */
		assert_true(of_rank(&c, 0).activations >=
		    layer * (16 / 4 / v) * schedule_in_flight(&c.schedule.shape, 0));
		schedule_finish(&c.schedule);
		schedule_finish(&one.schedule);
	}
}

/* Parameters of all workers of a replica together are the model's, but for those that tp holds whole and the table's second copy. */
static void parameters_add_up(void **state)
{
	struct memory_case c;
	uint64_t sum = 0, whole = 0;

	(void)state;
	case_init(&c, &gpt2, SCHEDULE_INTERLEAVED, 1, 3, 4, 2);
	for (uint32_t rank = 0; rank < 3; rank++)
		sum += 4 * of_rank(&c, rank).parameters / 4;
	for (int i = 0; i < MODEL_PARAMETERS; i++) {
		enum model_parameter which = (enum model_parameter)i;
		uint64_t layers = layer_graph_parameter_section(which) == SECTION_LAYER ? 12 : 1;
		if (layer_graph_has(&gpt2, which) &&
		    c.strategy.over_tp[which].kind == PLACEMENT_BROADCAST)
			whole += layers * layer_graph_parameter_count(&gpt2, which);
	}
	assert_int_equal(sum,
	    model_config_parameters(&gpt2) + 3 * whole +
	        layer_graph_parameter_count(&gpt2, PARAMETER_TABLE));
	schedule_finish(&c.schedule);
}

static void uneven_stages(void **state)
{
	struct memory_case c;

	(void)state;
	case_init(&c, &gpt2, SCHEDULE_1F1B, 1, 3, 1, 1);
	c.stage_layers[0] = 6;
	c.stage_layers[2] = 2;
	uint64_t unit = of_rank(&c, 1).activations / 4 / 2;
	assert_int_equal(of_rank(&c, 0).activations, 3 * (6 * unit + 2ull * 1024 * 4));
	schedule_finish(&c.schedule);
}

static void refused(const struct memory_case *c, uint32_t rank, const char *words)
{
	struct memory_bytes bytes = { .total = 77 };
	struct tr_error error;

	assert_int_equal(memory_of_rank(&c->in, rank, &bytes, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
	assert_int_equal(bytes.total, 77);
}

static void what_does_not_fit(void **state)
{
	struct memory_case c;

	(void)state;
	case_init(&c, &gpt2, SCHEDULE_1F1B, 2, 3, 1, 1);
	refused(&c, 3, "memory: rank 3 of a schedule of 3 ranks, in a mesh with pp 3");
	c.strategy.zero_owners = 3;
	refused(&c, 0, "3 owners of each piece of the moments; at most dp, 2");
	c.strategy.zero_owners = 0;
	c.stage_layers[1] = 5;
	refused(&c, 0, "memory: stages have 13 layers together, the model 12");
	c.stage_layers[1] = 4;
	c.strategy.sequences = 3;
	refused(&c, 0, "a microbatch: 3 sequences cannot be split over dp 2; dp may be 1 or 3");
	schedule_finish(&c.schedule);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_bytes_per_parameter),
		cmocka_unit_test(activations_by_hand),
		cmocka_unit_test(activations_in_flight),
		cmocka_unit_test(parameters_add_up),
		cmocka_unit_test(uneven_stages),
		cmocka_unit_test(what_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
