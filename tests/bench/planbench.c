/* The timeline's predictions (daemon/plan/timeline.h) beside what Megatron-LM published, from the hardware's published numbers alone:
 * docs/sharding.md says what is assumed and how close it comes.
 *
 *	planbench
 *
 * Nothing is fitted: the speed of a GPU is the one that the same source states for the model on one GPU. Collectives and their
 * bytes are those that propagate() derives.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/plan/propagate.h"
#include "daemon/plan/timeline.h"

#define FP16      2
#define PIPELINE  12
#define STAGE_MAX 64

struct hardware {
	double flops;               /* of one GPU, sustained on the model without parallelism */
	double nvlink_bytes_per_s;  /* of one GPU, each direction */
	double network_bytes_per_s; /* of one GPU, each direction */
	double network_latency_s;
};

struct work {
	struct model_config shape;
	uint32_t tp, sequences, sequence_length;
};

static struct model_config gpt(uint32_t layers, uint32_t width, uint32_t heads, uint32_t context)
{
	return (struct model_config){ .preset = MODEL_GPT2,
		.layers = layers,
		.width = width,
		.heads = heads,
		.kv_heads = heads,
		.head_width = width / heads,
		.hidden = 4 * width,
		.context = context,
		.vocab = 51200 };
}

/* Floating-point operations of one layer's forward, and of the logits (arXiv 2104.04473, appendix). */
static double layer_flops(const struct work *work)
{
	double tokens = (double)work->sequences * work->sequence_length, h = work->shape.width;

	return 24 * tokens * h * h + 4 * tokens * work->sequence_length * h;
}

static double logit_flops(const struct work *work)
{
	return 2.0 * work->sequences * work->sequence_length * work->shape.width *
	    work->shape.vocab;
}

/* Bytes that one GPU sends over tp in a layer, in a phase. */
static double layer_bytes(const struct work *work, enum propagate_phase phase)
{
	struct mesh mesh = { { [MESH_DP] = 1, [MESH_PP] = 1, [MESH_TP] = work->tp } };
	struct strategy strategy;
	struct collective_log log;
	struct tr_error error;

	strategy_megatron(&work->shape, &mesh, &strategy);
	strategy.sequences = work->sequences;
	strategy.sequence_length = work->sequence_length;
	strategy.value_bytes = FP16;
	if (propagate(&work->shape, &strategy, &log, NULL, &error) != TR_OK) {
		fprintf(stderr, "planbench: %s\n", error.text);
		exit(1);
	}
	return collective_log_bytes_sent(&log, &strategy, SECTION_LAYER, phase, COLLECTIVES,
	    MESH_TP, 1);
}

struct times {
	double forward_s, backward_s, logits_s; /* of a layer; of the head forward and backward */
};

/* With recomputation a layer's backward begins with its forward. */
static struct times times_of(const struct work *work, const struct hardware *hw)
{
	double forward = layer_flops(work) / work->tp / hw->flops +
	    layer_bytes(work, PHASE_FORWARD) / hw->nvlink_bytes_per_s;
	double backward = 2 * layer_flops(work) / work->tp / hw->flops +
	    layer_bytes(work, PHASE_BACKWARD) / hw->nvlink_bytes_per_s;

	return (struct times){ forward, forward + backward,
		3 * logit_flops(work) / work->tp / hw->flops };
}

/* Of an iteration of one microbatch, without a pipeline: the timeline of one rank. */
static double iteration_s(const struct work *work, const struct hardware *hw, double reduce_bytes,
    bool overlap)
{
	struct times times = times_of(work, hw);
	struct timeline_stage stage = { .forward_s = work->shape.layers * times.forward_s,
		.backward_s = work->shape.layers * times.backward_s + times.logits_s,
		.reduce_bytes = reduce_bytes,
		.buckets = overlap ? work->shape.layers : 1 };
	struct flow_link network = { 0, hw->network_bytes_per_s };
	struct timeline_rank rank = { .reduce_link = 0 };
	uint32_t link_of = TIMELINE_NO_LINK;
	struct schedule schedule;
	struct timeline_result result;
	struct tr_error error;

	if (schedule_create(&(struct schedule_shape){ SCHEDULE_1F1B, 1, 1, 1 }, &schedule,
	        &error) != TR_OK ||
	    timeline_run(&(struct timeline_input){ &schedule, &stage, &rank, &network, 1, &link_of,
	                     false, overlap, NULL, 0 },
	        &result, &error) != TR_OK) {
		fprintf(stderr, "planbench: %s\n", error.text);
		exit(1);
	}
	double step = result.step_s;
	timeline_finish(&result);
	schedule_finish(&schedule);
	return step;
}

static double model_flops(const struct work *work)
{
	return 4 * work->shape.layers * layer_flops(work) + 3 * logit_flops(work);
}

/* Megatron-LM 1.0 on a DGX-2H (nv-adlr.github.io/MegatronLMV1): 62.4 TFLOP/s on one GPU; iteration times of batch 8. */
static void tensor_parallel_2020(void)
{
	static const struct hardware hw = { 62.4e12, 150e9, INFINITY, 0 };
	static const struct {
		const char *name;
		uint32_t layers, width, heads, tp;
		double published_s;
	} rows[] = { { "1.2B", 24, 1920, 15, 1, 1.288 }, { "2.0B", 30, 2304, 18, 2, 1.242 },
		{ "4.2B", 36, 3072, 24, 4, 1.357 }, { "8.7B", 42, 4096, 32, 8, 1.508 } };

	printf("Megatron-LM 1.0, DGX-2H, tensor parallel, one iteration of 8 sequences of 1024:\n");
	printf("  %-6s %3s %14s %14s %8s\n", "model", "tp", "predicted, ms", "published, ms",
	    "ratio");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct work work = { gpt(rows[i].layers, rows[i].width, rows[i].heads, 1024),
			rows[i].tp, 8, 1024 };
		double predicted = iteration_s(&work, &hw, 0, false);
		printf("  %-6s %3u %14.0f %14.0f %8.3f\n", rows[i].name, rows[i].tp,
		    1e3 * predicted, 1e3 * rows[i].published_s, predicted / rows[i].published_s);
	}
}

/* arXiv 1909.08053: 39 TFLOP/s on one GPU for 1.2B, NVSwitch 300 GB/s, 100 GB/s between servers of 16 GPUs; 8.3B, tp 8, dp 64, batch 512.
 * A server holds two tp groups, so eight rings of gradients, one for each tp rank, share what goes between servers. */
static void weak_scaling_2019(void)
{
	static const struct hardware hw = { 39e12, 150e9, 100e9 / 8, 0 };
	struct work work = { gpt(72, 3072, 32, 1024), 8, 8, 1024 };
	double gradients = (double)model_config_parameters(&work.shape) / work.tp * FP16;
	double reduce = collective_bytes_sent(COLLECTIVE_ALL_REDUCE, gradients, 64);
	double ideal = model_flops(&work) / work.tp / hw.flops;
	double alone = iteration_s(&work, &hw, 0, false),
	       after = iteration_s(&work, &hw, reduce, false),
	       overlapped = iteration_s(&work, &hw, reduce, true);

	printf("\nMegatron-LM 2019, 8.3B (%.2fB by our count), scaling against 39 TFLOP/s on one "
	       "GPU:\n",
	    (double)model_config_parameters(&work.shape) * 1e-9);
	printf("  %-52s %10s %10s\n", "", "predicted", "published");
	printf("  %-52s %9.1f%% %10s\n", "tp 8 on one server", 100 * ideal / alone, "77%");
	printf("  %-52s %9.1f%% %10s\n", "tp 8 x dp 64, 512 GPUs, reduction after backward",
	    100 * ideal / after, "74% (76%)");
	printf("  %-52s %9.1f%% %10s\n", "the same, reduction overlapped with backward",
	    100 * ideal / overlapped, "-");
	printf("  %-52s %9.1f  %10s\n", "PFLOP/s of 512 GPUs, reduction after backward",
	    512 * hw.flops * ideal / after * 1e-15, "15.1");
}

/* 175B over tp 8 and pp 12: 96 layers in 12 v stages; each of a node's 8 GPUs has a network card of 25 GB/s. */
static double pipeline_s(const struct work *work, const struct hardware *hw, uint32_t microbatches,
    uint32_t chunks, bool scatter_gather)
{
	struct schedule_shape shape = { chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B, PIPELINE,
		microbatches, chunks };
	struct times times = times_of(work, hw);
	uint32_t stages = PIPELINE * chunks, layers = work->shape.layers / stages;
	double boundary = (double)work->sequences * work->sequence_length * work->shape.width *
	    FP16;
	/* With scatter/gather each of tp sends its part, and the receivers gather over NVLink: within the stage's time. */
	double gather_s = scatter_gather
	    ? boundary * (work->tp - 1) / work->tp / hw->nvlink_bytes_per_s
	    : 0;
	struct timeline_stage stage[STAGE_MAX] = { 0 };
	struct timeline_rank ranks[PIPELINE] = { 0 };
	struct flow_link links[PIPELINE];
	uint32_t link_of[PIPELINE * PIPELINE];
	struct schedule schedule;
	struct timeline_result result;
	struct tr_error error;

	for (uint32_t i = 0; i < stages; i++)
		stage[i] = (struct timeline_stage){ .forward_s = layers * times.forward_s +
			    (i > 0 ? gather_s : 0),
			.backward_s = layers * times.backward_s +
			    (i + 1 < stages ? gather_s : times.logits_s),
			.boundary_bytes = scatter_gather ? boundary / work->tp : boundary };
	for (uint32_t i = 0; i < PIPELINE; i++) {
		ranks[i].reduce_link = TIMELINE_NO_LINK;
		links[i] = (struct flow_link){ hw->network_latency_s, hw->network_bytes_per_s };
	}
	for (uint32_t i = 0; i < PIPELINE * PIPELINE; i++)
		link_of[i] = i / PIPELINE; /* the sender's card */
	if (schedule_create(&shape, &schedule, &error) != TR_OK ||
	    timeline_run(&(struct timeline_input){ &schedule, stage, ranks, links, PIPELINE,
	                     link_of, false, false, NULL, 0 },
	        &result, &error) != TR_OK) {
		fprintf(stderr, "planbench: %s\n", error.text);
		exit(1);
	}
	double step = result.step_s;
	timeline_finish(&result);
	schedule_finish(&schedule);
	return step;
}

/* arXiv 2104.04473: A100, 312 TFLOP/s of peak, 137 sustained by the 1.7B model that is split by data alone (table 1); NVLink 600 GB/s both
 * ways; 8 InfiniBand cards of 200 Gbit/s a node. 5 us of latency is ours. */
static void interleaving_2021(void)
{
	static const struct hardware hw = { 137e12, 300e9, 25e9, 5e-6 };
	struct work work = { gpt(96, 12288, 96, 2048), 8, 1, 2048 };

	printf("\nMegatron-LM 2021, 175B on 96 A100 (tp 8, pp 12), microbatch 1; interleaving's "
	       "gain over 1F1B:\n");
	printf("  %-6s %22s %22s %22s\n", "batch", "1F1B, TFLOP/s a GPU", "v=2, with scatter/g.",
	    "v=4, with scatter/g.");
	for (uint32_t m = 12; m <= 60; m += 12) {
		double flops = model_flops(&work) * m / (PIPELINE * 8) * 1e-12,
		       plain = pipeline_s(&work, &hw, m, 1, true);
		double two = pipeline_s(&work, &hw, m, 2, true),
		       four = pipeline_s(&work, &hw, m, 4, true);
		printf("  %-6u %22.1f %13.1f (%+5.1f%%) %13.1f (%+5.1f%%)\n", m, flops / plain,
		    flops / two, 100 * (plain / two - 1), flops / four, 100 * (plain / four - 1));
	}
	printf("  published: \"10+%%\" (abstract); the gap closes as the batch grows (figure 12, "
	       "which gives no numbers)\n");
	printf("  scatter/gather's gain at batch 60: v=2 %+.1f%%, v=4 %+.1f%%; published: up to "
	       "11%% (section 5.7)\n",
	    100 * (pipeline_s(&work, &hw, 60, 2, false) / pipeline_s(&work, &hw, 60, 2, true) - 1),
	    100 * (pipeline_s(&work, &hw, 60, 4, false) / pipeline_s(&work, &hw, 60, 4, true) - 1));
}

int main(void)
{
	tensor_parallel_2020();
	weak_scaling_2019();
	interleaving_2021();
	return 0;
}
