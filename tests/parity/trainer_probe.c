/* The trainer's model without a cluster, for tests/parity and scripts/bench_trainer.py.
 *
 *	trainer_probe parity CONFIG IN OUT [bf16]
 *		reads weights and "batch" from IN (safetensors), writes logits, gradients (NAME.grad, of the mean loss) and the
 *		losses of 10 AdamW steps to OUT
 *	trainer_probe bench CONFIG SEQUENCES MICRO THREADS [bf16]
 *		for each number N read from stdin trains N steps and prints the seconds they took
 *
 * CONFIG is the folder of a Hugging Face config.json.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/checkpoint/hf_config.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/model.h"
#include "daemon/worker/optim.h"
#include "daemon/checkpoint/weights.h"
#include "common/rng.h"

#define PARITY_STEPS 10

struct probe {
	struct layout layout;
	struct pool *pool;
	struct model *model;
	struct optim_arrays arrays;
	int32_t *inputs, *targets;
	size_t sequences, length, micro;
	uint64_t step;
};

static _Noreturn void die(const char *text)
{
	(void)fprintf(stderr, "trainer_probe: %s\n", text);
	exit(1);
}

static void check(tr_status status, const struct tr_error *error)
{
	if (status != TR_OK)
		die(error->text);
}

static void *zeroed(size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (memory == NULL)
		exit(1);
	memset(memory, 0, bytes);
	return memory;
}

static void build(struct probe *p, const char *folder, size_t sequences, size_t micro,
    unsigned threads, bool bf16)
{
	struct tr_error error;
	struct model_config config;
	gemm_setup();
	check(hf_config_read(folder, "", &config, &error), &error);
	check(layout_init(&config, &p->layout, &error), &error);
	check(pool_create(threads, &p->pool, &error), &error);
	check(model_create(&p->layout, micro, p->pool, &p->model, &error), &error);
	if (bf16)
		check(model_use_bf16(p->model, false, &error), &error);
	else if (getenv("TRAINER_PROBE_OPENBLAS") == NULL)
		(void)model_use_onednn(p->model);
	size_t bytes = p->layout.count * sizeof(float);
	p->arrays = (struct optim_arrays){ .params = zeroed(bytes),
		.grads = zeroed(bytes),
		.first = zeroed(bytes),
		.second = zeroed(bytes) };
	p->sequences = sequences;
	p->micro = micro;
	p->inputs = zeroed(sequences * config.context * sizeof(int32_t));
	p->targets = zeroed(sequences * config.context * sizeof(int32_t));
	p->length = config.context;
	model_bind(p->model, p->arrays.params, p->arrays.grads);
}

static double train_step(struct probe *p, const struct optim_settings *settings)
{
	double total = 0, part = 0;
	memset(p->arrays.grads, 0, p->layout.count * sizeof(float));
	for (size_t at = 0; at < p->sequences; at += p->micro) {
		size_t count = p->sequences - at < p->micro ? p->sequences - at : p->micro;
		(void)model_gradient(p->model, p->inputs + at * p->length,
		    p->targets + at * p->length, count, p->length, NULL, &part);
		total += part;
	}
	double tokens = (double)(p->sequences * p->length);
	(void)optim_step(ops_choose(), p->pool, &p->layout, settings, &p->arrays, 1 / tokens,
	    p->step + 1, p->step + 1);
	p->step++;
	return total / tokens;
}

/* lr stays put: no warm-up, and a cosine from lr to lr. */
static const struct optim_settings settings = { .lr = 1e-3,
	.min_lr = 1e-3,
	.clip = 1,
	.weight_decay = 0.1,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.eps = 1e-8,
	.steps = UINT64_MAX };

static void read_input(struct probe *p, const char *folder, const char *path, bool bf16)
{
	struct safetensors file;
	struct tr_error error;
	check(safetensors_open(path, &file, &error), &error);
	const struct safetensors_tensor *batch = safetensors_find(&file, "batch");
	if (batch == NULL || batch->dtype != SAFETENSORS_I32 || batch->dims != 2)
		die("the input has no I32 batch [n, context + 1]");
	build(p, folder, (size_t)batch->shape[0], (size_t)batch->shape[0], 1, bf16);
	if (batch->shape[1] != p->length + 1)
		die("the batch is not [n, context + 1]");
	check(weights_load(&p->layout, "", &file, p->arrays.params, &error), &error);
	for (size_t i = 0; i < p->sequences; i++) {
		uint64_t row = batch->at + i * (p->length + 1) * sizeof(int32_t);
		size_t bytes = p->length * sizeof(int32_t);
		check(safetensors_read(&file, row, bytes, p->inputs + i * p->length, &error),
		    &error);
		check(safetensors_read(&file, row + sizeof(int32_t), bytes,
		          p->targets + i * p->length, &error),
		    &error);
	}
	safetensors_close(&file);
}

static int run_parity(char **argv, bool bf16)
{
	struct probe p = { .step = 0 };
	struct tr_error error;
	struct tr_digest digest;
	read_input(&p, argv[0], argv[1], bf16);
	size_t rows = p.sequences * p.length, tensors = p.layout.tensor_count;
	size_t vocab = p.layout.config.vocab;
	float *logits = zeroed(rows * vocab * sizeof(float)), losses[PARITY_STEPS];
	float *grads = zeroed(p.layout.count * sizeof(float));
	struct safetensors_item *items = calloc(tensors + 2, sizeof(*items));
	if (items == NULL)
		return 1;
	model_logits(p.model, p.inputs, p.sequences, p.length, logits);
	for (size_t i = 0; i < PARITY_STEPS; i++) {
		losses[i] = (float)train_step(&p, &settings);
		if (i == 0)
			for (size_t j = 0; j < p.layout.count; j++)
				grads[j] = p.arrays.grads[j] / (float)rows;
	}
	if (weights_items(&p.layout, ".grad", grads, items) == NULL)
		return 1;
	items[tensors] = (struct safetensors_item){ "logits", rows, vocab, logits, NULL };
	items[tensors + 1] = (struct safetensors_item){ "losses", 0, PARITY_STEPS, losses, NULL };
	int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	check(safetensors_write(fd, items, tensors + 2, NULL, &digest, &error), &error);
	return close(fd) == 0 ? 0 : 1;
}

static double now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int run_bench(char **argv, bool bf16)
{
	struct probe p = { .step = 0 };
	build(&p, argv[0], (size_t)atoi(argv[1]), (size_t)atoi(argv[2]), (unsigned)atoi(argv[3]),
	    bf16);
	model_init_params(&p.layout, 1, p.arrays.params);
	for (size_t i = 0; i < p.sequences * p.length; i++) {
		p.inputs[i] = (int32_t)rng_below(rng_key(1, 0, 0), 0, i, 256);
		p.targets[i] = (int32_t)rng_below(rng_key(1, 0, 0), 0, i + 1, 256);
	}
	char line[32];
	while (fgets(line, sizeof(line), stdin) != NULL) {
		double start = now();
		for (int i = atoi(line); i > 0; i--)
			(void)train_step(&p, &settings);
		printf("%.6f\n", now() - start);
		(void)fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	bool bf16 = strcmp(argv[argc - 1], "bf16") == 0;
	if (argc == 5 + bf16 && strcmp(argv[1], "parity") == 0)
		return run_parity(argv + 2, bf16);
	if (argc == 6 + bf16 && strcmp(argv[1], "bench") == 0)
		return run_bench(argv + 2, bf16);
	(void)fprintf(stderr,
	    "usage: trainer_probe parity|bench ..., see tests/parity/trainer_probe.c\n");
	return 2;
}
