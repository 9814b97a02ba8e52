#include "daemon/worker/measure.h"

#include <link.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/checkpoint/shard_cut.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/plan_costs.h"
#include "daemon/plan/strict.h"
#include "daemon/worker/available.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/measure_clock.h"
#include "daemon/worker/measure_sums.h"
#include "daemon/worker/measure_update.h"
#include "daemon/worker/slots.h"
#include "daemon/worker/text.h"
#include "daemon/worker/virtual.h"

#define LAYERS_MOST   4    /* at once: more would only take longer */
#define SEQUENCES_MAX 4096 /* of train.micro_sequences */
#define EVERY_TP      16   /* up to which every divisor of the heads is measured */
#define RUNS          5    /* at least, unless they are long */
#define RUNS_MOST     64
#define LONG_S        0.8 /* no more runs after so long */
#define ENOUGH_S      0.1 /* short runs go on for so long */
#define PATIENCE_S    6.0 /* so much in disturbed runs is thrown away, in all */

/* When the model said what, in a run. */
struct times {
	unsigned layers;
	double begun_s, embedded_s, forward_s, head_s, layers_s, ended_s;
	unsigned reports, finals;
};

struct measured {
	struct layout whole, layout;
	struct pool *pool;
	bool bf16; /* products with parameters are in it */
	struct model *model;
	struct model_tensor tensor;
	float *params, *grads;
	int32_t *tokens;
	uint64_t *samples; /* their numbers */
	double dropout;
	size_t sequences, length;
	bool sequence_parallel; /* the job asks for it */
	uint32_t parts;         /* of the width, of a strict job; else 0 */
	const struct measure_limits *limits;
	struct model_room how;
	struct spent waited; /* for others, in a run */
	double patience_s;   /* what is left of it */
	double on_core;      /* the least of what was said */
	unsigned rows;       /* of costs, that were */
	unsigned begun, all; /* of what is measured */
};

struct costs {
	double total_s;
	double on_core;                 /* what this thread had of one, besides waiting */
	double forward[3], backward[3]; /* embedding, layer, head */
};

/* Reports of the forward pass: before each layer, and at its end. */
static bool on_progress(void *arg)
{
	struct times *times = arg;
	if (times->reports == 0)
		times->embedded_s = now_s();
	if (times->reports == times->layers)
		times->forward_s = now_s();
	times->reports++;
	return true;
}

/* Behind the head, each layer, the embedding. */
static void on_final(void *arg, size_t offset)
{
	struct times *times = arg;
	(void)offset;
	if (times->finals == 0)
		times->head_s = now_s();
	if (times->finals == times->layers)
		times->layers_s = now_s();
	times->finals++;
}

/* Who measures in step with others waits for those that it would exchange with: of its tp, as far as they are here. */
static bool exchange_nothing(void *arg, real *data, size_t count)
{
	struct measured *m = arg;
	unsigned tp = m->tensor.size, first = m->limits->self / tp * tp;
	struct spent begun = spent_now();
	(void)data;
	(void)count;
	lockstep_meet(m->limits->lockstep, first, first + tp);
	struct spent waited = spent_between(begun, spent_now());
	m->waited.s += waited.s;
	m->waited.core_s += waited.core_s;
	return true;
}

static void *zeroed(size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (memory != NULL)
		memset(memory, 0, bytes);
	return memory;
}

static void finish(struct measured *m)
{
	model_destroy(m->model);
	layout_finish(&m->layout);
	layout_finish(&m->whole);
	free(m->tensor.exchange);
	free(m->params);
	free(m->grads);
	free(m->tokens);
	free(m->samples);
	*m = (struct measured){ .pool = m->pool,
		.bf16 = m->bf16,
		.dropout = m->dropout,
		.sequence_parallel = m->sequence_parallel,
		.parts = m->parts,
		.limits = m->limits,
		.patience_s = m->patience_s,
		.on_core = m->on_core,
		.rows = m->rows,
		.begun = m->begun,
		.all = m->all };
}

/* Of what is built for a run, without what model_bytes has. */
static size_t built_bytes(const struct measured *m)
{
	size_t numbers = 2 * m->layout.count + shard_cut_table_numbers(&m->layout) +
	    2 * ((model_exchange_numbers(&m->layout, m->sequences) + 15) / 16 * 16);
	return numbers * sizeof(float) + (m->bf16 ? m->layout.count * sizeof(uint16_t) : 0) +
	    m->sequences * (m->length * sizeof(int32_t) + sizeof(*m->samples));
}

/* Arrays are put aside, and nothing of them is touched yet. Workers of one host have as much each. */
static bool fits(const struct measured *m)
{
	struct model_bytes arrays = model_bytes(m->model);
	double each = (double)(arrays.slots + arrays.working + built_bytes(m));
	return each * (1 + m->limits->beside) < available_bytes();
}

/* `layers` layers of the model as the first of tp workers holds them. */
static tr_status build(struct measured *m, const struct model_config *config, uint32_t layers,
    uint32_t tp, size_t sequences, struct tr_error *error)
{
	struct model_config few = *config;
	struct shard shard = { .rank = 0, .size = tp };
	few.layers = layers;
	tr_status st = layout_init(&few, &m->whole, error);
	if (st == TR_OK)
		st = shard_layout(&m->whole, &shard, &m->layout, error);
	bool splits = (m->sequence_parallel || m->parts > 0) && tp > 1 && config->context % tp == 0;
	m->how = (struct model_room){ .row_parts = splits ? tp : 0, .members = m->parts / tp };
	if (st == TR_OK)
		st = model_create_whole(&m->layout, &m->how, sequences, m->pool, &m->model, error);
	if (st == TR_OK && m->bf16)
		st = model_use_bf16(m->model, false, error);
	else if (st == TR_OK && m->parts == 0)
		(void)model_use_onednn(m->model);
	if (st == TR_OK)
		st = model_use_dropout(m->model, m->dropout, 0, error);
	m->sequences = sequences;
	m->length = config->context;
	if (!lockstep_agree(m->limits->lockstep, st == TR_OK && fits(m)) && st == TR_OK)
		st = tr_error_set(error, TR_ENOMEM, "no memory to measure %zu sequences, tp %u",
		    sequences, tp);
	if (st != TR_OK)
		return st;
	size_t exchanged = (model_exchange_numbers(&m->layout, sequences) + 15) / 16 * 16;
	m->params = zeroed(m->layout.count * sizeof(float));
	m->grads = zeroed((m->layout.count + shard_cut_table_numbers(&m->layout)) * sizeof(float));
	m->tokens = zeroed(sequences * m->length * sizeof(int32_t));
	m->samples = zeroed(sequences * sizeof(*m->samples));
	m->tensor = (struct model_tensor){ .size = tp,
		.vocab = config->vocab,
		.arg = m,
		.sum = exchange_nothing,
		.maximum = exchange_nothing,
		.reduce_scatter = exchange_nothing,
		.all_gather = exchange_nothing,
		.exchange = zeroed(2 * exchanged * sizeof(real)) };
	m->tensor.exchange_too = m->tensor.exchange + exchanged;
	if (m->params == NULL || m->grads == NULL || m->tokens == NULL || m->samples == NULL ||
	    m->tensor.exchange == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to measure %zu sequences",
		    sequences);
	model_init_shard(&m->whole, &m->layout, &shard, 1, NULL, m->params);
	model_bind(m->model, m->params, m->grads);
	if (tp > 1)
		model_use_tensor(m->model, &m->tensor);
	size_t tokens = config->vocab > tp ? config->vocab / tp : 1; /* of the first worker */
	for (size_t i = 0; i < sequences * m->length; i++)
		m->tokens[i] = (int32_t)(i * 2654435761u % tokens);
	return TR_OK;
}

static double above_0(double value)
{
	return fmax(value, 0);
}

/* Gradients, then the loss alone, which tells what of the head is forward. */
static struct costs run_once(struct measured *m)
{
	unsigned layers = m->layout.config.layers;
	struct times times = { .layers = layers, .begun_s = now_s() }, loss = { .layers = layers };
	struct model_hooks hooks = { on_progress, on_final, &times },
	                   loss_hooks = { on_progress, NULL, &loss };
	double sum;
	struct model_batch batch = { m->tokens, m->tokens, m->sequences, m->length, m->samples };
	struct spent begun = spent_now();
	m->waited = (struct spent){ 0, 0 };
	(void)model_gradient_of(m->model, &batch, &hooks, &sum);
	times.ended_s = now_s();
	(void)model_loss(m->model, m->tokens, m->tokens, m->sequences, m->length, &loss_hooks, &sum);
	double whole_head = times.head_s - times.forward_s,
	       head = fmin(now_s() - loss.forward_s, whole_head);
	struct spent computed = spent_between(m->waited, spent_between(begun, spent_now()));
	return (struct costs){ times.ended_s - times.begun_s, computed.core_s / computed.s,
		{ above_0(times.embedded_s - times.begun_s),
		    above_0(times.forward_s - times.embedded_s) / layers, above_0(head) },
		{ above_0(times.ended_s - times.layers_s),
		    above_0(times.layers_s - times.head_s) / layers, above_0(whole_head - head) } };
}

static int compare_totals(const void *a, const void *b)
{
	double x = ((const struct costs *)a)->total_s, y = ((const struct costs *)b)->total_s;
	return (x > y) - (x < y);
}

/* Whether a run is thrown away: other work had the core, and its time says what a step takes beside that. Of more threads one alone would say nothing. */
static bool was_disturbed(struct measured *m, const struct costs *costs, double took_s)
{
	if (m->limits->threads > 1 || costs->on_core >= PLAN_COSTS_ON_CORE || m->patience_s <= 0)
		return false;
	m->patience_s -= took_s;
	return true;
}

/* The median run as it was: steps take what most of them do, and the least of each part alone would be shorter than any. */
static struct costs run(struct measured *m)
{
	struct costs runs[RUNS_MOST] = { 0 };
	double spent = 0;
	size_t count = 0;
	(void)run_once(m); /* it touches all memory for the first time */
	for (bool enough = false; !enough;) {
		double begun = now_s();
		struct costs once = run_once(m);
		double took = now_s() - begun;
		if (!was_disturbed(m, &once, took) && count < RUNS_MOST) {
			runs[count++] = once;
			spent += took;
		}
		enough = count == RUNS_MOST || spent > LONG_S || (count > RUNS && spent > ENOUGH_S);
		enough = lockstep_agree(m->limits->lockstep, enough);
	}
	qsort(runs, count, sizeof(runs[0]), compare_totals);
	m->on_core = fmin(m->on_core, runs[count / 2].on_core);
	return runs[count / 2];
}

/* ---- strict ---- */

/* Of a strict job's model, whose members report at different times: the shortest loss, and the shortest gradient of a part. */
struct totals {
	double loss_s, gradient_s;
};

static struct totals totals_of(struct measured *m)
{
	struct totals best = { INFINITY, INFINITY };
	struct model_batch batch = { m->tokens, m->tokens, m->sequences, m->length, m->samples };
	double sum, begun = now_s();
	bool enough = false;
	for (unsigned i = 0; !enough; i++) {
		double from = now_s();
		model_part_begin(m->model);
		(void)model_gradient_of(m->model, &batch, NULL, &sum);
		(void)model_part_end(m->model);
		double between = now_s();
		(void)model_loss(m->model, m->tokens, m->tokens, m->sequences, m->length, NULL,
		    &sum);
		double now = now_s();
		if (i > 0) { /* it has touched all memory for the first time */
			best.gradient_s = fmin(best.gradient_s, between - from);
			best.loss_s = fmin(best.loss_s, now - between);
		}
		enough = i > 0 && (now - begun > LONG_S || (i >= RUNS && now - begun > ENOUGH_S));
		enough = lockstep_agree(m->limits->lockstep, enough);
	}
	return best;
}

/* What more layers take, and the rest, which is the head's: the embedding takes less than a hundredth of the smallest models (docs/sharding.md). */
static struct costs costs_between(struct totals one, struct totals many, uint32_t layers)
{
	double more = layers - 1, least = 1e-9;
	double forward = fmax((many.loss_s - one.loss_s) / more, least),
	       both = fmax((many.gradient_s - one.gradient_s) / more, forward);
	double head = above_0(one.loss_s - forward);
	return (struct costs){ many.gradient_s, 1, { 0, forward, head },
		{ 0, both - forward, above_0(one.gradient_s - both - head) } };
}

/* Parameters and gradients of the parts are counted with the parameters. */
static size_t of_parts(const struct measured *m, size_t working)
{
	size_t parts = m->parts > 0 ? 2 * m->layout.count * sizeof(float) : 0;
	return working > parts ? working - parts : 0;
}

/* Two buffers for each level of a strict job's sums over tp (sharded_pairs.c). */
static size_t pairs_bytes(const struct measured *m, uint32_t tp, size_t sequences)
{
	size_t each = model_exchange_numbers(&m->layout, sequences) * sizeof(real), bytes = 0;
	for (uint32_t level = 1; m->parts > 0 && level < tp; level *= 2)
		bytes += 2 * each;
	return bytes;
}

static tr_status measure(struct measured *m, const struct model_config *config, uint32_t tp,
    size_t sequences, FILE *to, struct tr_error *error)
{
	uint32_t layers = config->layers < LAYERS_MOST ? config->layers : LAYERS_MOST;
	struct totals single = { 0, 0 };
	layers = m->parts > 0 && layers < 2 ? 2 : layers;
	tr_status st = build(m, config, 1, tp, sequences, error);
	struct model_bytes one = st == TR_OK ? model_bytes(m->model) : (struct model_bytes){ 0 };
	if (st == TR_OK && m->parts > 0)
		single = totals_of(m);
	size_t strict_working = st == TR_OK ? of_parts(m, one.working) : 0;
	finish(m);
	if (st == TR_OK)
		st = build(m, config, 2, tp, sequences, error);
	struct model_bytes two = st == TR_OK ? model_bytes(m->model) : one;
	finish(m);
	if (st == TR_OK)
		st = build(m, config, layers, tp, sequences, error);
	if (st == TR_OK) {
		struct costs costs = m->parts > 0 ? costs_between(single, totals_of(m), layers)
		                                  : run(m);
		size_t layer = two.slots - one.slots,
		       ends = one.slots > layer ? one.slots - layer : 0;
		size_t exchanged = tp > 1
		    ? 2 * model_exchange_numbers(&m->layout, sequences) * sizeof(real) /* in turn */
		    : 0;
		m->rows++;
		/* Nothing is kept of the embedding but what is the first layer's input (test_slot_memory.c). */
		(void)fprintf(to, "cost %u %zu %.9g %.9g %.9g %.9g %.9g %.9g %zu %zu %zu %zu\n", tp,
		    sequences, costs.forward[0], costs.backward[0], costs.forward[1],
		    costs.backward[1], costs.forward[2], costs.backward[2], (size_t)0, layer, ends,
		    (m->parts > 0 ? strict_working : two.working) + exchanged +
		        pairs_bytes(m, tp, sequences));
	}
	finish(m);
	return st;
}

/* Resident now; 0: nobody knows. */
static size_t resident_bytes(void)
{
	unsigned long size, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file != NULL && fscanf(file, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	if (file != NULL)
		(void)fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Of the program itself: a worker runs most of its code sooner or later, a run of a model hardly half. */
static int read_program(struct dl_phdr_info *object, size_t bytes, void *arg)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	(void)bytes, (void)arg;
	for (unsigned i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		const volatile char *at = (const char *)(object->dlpi_addr + part->p_vaddr);
		for (size_t k = 0;
		     part->p_type == PT_LOAD && (part->p_flags & PF_W) == 0 && k < part->p_memsz;
		     k += page)
			(void)at[k];
	}
	return 1; /* libraries come behind it */
}

/* What a worker has resident besides the arrays that are counted one by one: code, libraries' own memory (OpenBLAS's buffers), the allocator's. So a small model is run, which touches all of that. */
static tr_status measure_process(struct measured *m, const struct model_config *config, uint32_t tp,
    size_t *bytes, struct tr_error *error)
{
	tr_status st = build(m, config, 1, tp, 1, error);
	if (st == TR_OK) {
		struct model_batch batch = { m->tokens, m->tokens, 1, m->length, m->samples };
		struct model_bytes arrays = model_bytes(m->model);
		double sum;
		if (m->parts > 0)
			model_part_begin(m->model);
		(void)model_gradient_of(m->model, &batch, NULL, &sum);
		if (m->parts > 0)
			(void)model_part_end(m->model);
		(void)dl_iterate_phdr(read_program, NULL);
		size_t all = resident_bytes(),
		       counted = arrays.slots + arrays.working + built_bytes(m);
		*bytes = all > counted ? all - counted : 0;
	}
	finish(m);
	return st != TR_OK || *bytes > 0
	    ? st
	    : tr_error_set(error, TR_EIO, "/proc/self/statm does not say what is resident");
}

static tr_status say_sums(FILE *to, struct tr_error *error)
{
	struct sum_cost sums = { 0, 0 };
	tr_status st = measure_sums(&sums, error);
	if (st == TR_OK)
		(void)fprintf(to, "sum %.9g %.9g\n", sums.op_s, sums.byte_s);
	return st;
}

static bool is_power(uint32_t value)
{
	return (value & (value - 1)) == 0;
}

/* What of a job says which splits are measured: its batch, the most sequences of a microbatch, how many its replicas make of their share, its tp. */
struct own {
	uint64_t batch;
	uint32_t most, share, tp;
};

static struct own own_of(const Traind__V1__JobSpec *spec, const struct model_config *config)
{
	const Traind__V1__Optimizer *job = spec->train->optimizer;
	struct own own = { job->batch_tokens / config->context, job->micro_sequences, 0, 1 };
	uint64_t dp = 1;
	if (spec->mesh != NULL && spec->mesh->tp > 0)
		own.tp = spec->mesh->tp;
	if (spec->mesh != NULL)
		dp = spec->mesh->workers / own.tp / (spec->mesh->pp > 0 ? spec->mesh->pp : 1);
	uint64_t share = dp > 0 ? (own.batch + dp - 1) / dp : own.batch;
	if (job_is_strict(spec->train)) /* microbatches are cut out of a part of the batch */
		share = own.batch / strict_batch_parts(own.batch);
	own.share = share < own.most ? (uint32_t)share : own.most;
	return own;
}

/* Whether a microbatch is one that is measured. */
static bool is_measured(const struct own *own, uint32_t sequences, uint32_t most)
{
	return sequences == own->most || sequences == own->share ||
	    (own->batch % sequences == 0 && is_power(sequences) && sequences <= most);
}

/* Whoever waits sees how far it is. */
static void say_next(struct measured *m, uint32_t tp, uint32_t sequences, FILE *to)
{
	(void)fprintf(to, "# measures %u of %u: microbatches of %u sequence%s, tp %u\n", ++m->begun,
	    m->all, sequences, sequences == 1 ? "" : "s", tp);
	(void)fflush(to);
}

/* Small ones first: where memory is lacking what was measured stays, and larger tp are measured that need less. */
static tr_status measure_tp(struct measured *m, const struct model_config *config,
    const struct own *own, uint32_t tp, uint32_t most, FILE *to, struct tr_error *error)
{
	tr_status st = TR_OK;
	for (uint32_t n = 1; n <= own->batch && n <= SEQUENCES_MAX && st == TR_OK; n++) {
		if (!is_measured(own, n, most))
			continue;
		say_next(m, tp, n, to);
		st = measure(m, config, tp, n, to, error);
		if (st != TR_ENOMEM)
			continue;
		(void)fprintf(to, "# no memory for microbatches of %u sequences, tp %u\n", n, tp);
		return TR_OK;
	}
	return st;
}

/* Whether layers are split over so many workers: few divisors of the heads, powers of two, and as the job does. */
static bool is_split(const struct measured *m, const struct own *own,
    const struct model_config *config, uint32_t tp)
{
	if (m->parts > 0)
		return m->parts % tp == 0;
	return config->heads % tp == 0 && (tp <= EVERY_TP || is_power(tp) || tp == own->tp);
}

static uint32_t count_all(const struct measured *m, const struct own *own,
    const struct model_config *config)
{
	uint32_t splits = 0, microbatches = 0;
	for (uint32_t tp = 1; tp <= m->limits->tp_most && tp <= config->heads; tp++)
		splits += is_split(m, own, config, tp);
	for (uint32_t n = 1; n <= own->batch && n <= SEQUENCES_MAX; n++)
		microbatches += is_measured(own, n, m->limits->sequences_most);
	return splits * microbatches;
}

/* Of a process without a model, and of each parameter: with gradient and moments, and rounded for products. */
static tr_status measure_memory(struct measured *m, const Traind__V1__JobSpec *spec,
    const struct model_config *config, const struct own *own, FILE *to, struct tr_error *error)
{
	size_t process = 0;
	uint32_t batch_parts = strict_batch_parts(own->batch);
	tr_status st = TR_ENOMEM;
	for (uint32_t tp = 1; tp <= m->limits->tp_most && st == TR_ENOMEM; tp++)
		if (is_split(m, own, config, tp)) /* the least that fits */
			st = measure_process(m, config, tp, &process, error);
	if (st != TR_OK)
		return st;
	(void)fprintf(to, "process %zu\n", process + (size_t)text_bytes(spec->train->data));
	size_t arrays = 4; /* with gradient and moments */
	if (m->parts > 0)
		arrays += 2; /* of the parts: parameter and gradient */
	for (uint32_t parts = 1; m->parts > 0 && parts < batch_parts; parts *= 2)
		arrays++; /* sums of parts of the batch */
	(void)fprintf(to, "parameter %zu\n",
	    arrays * sizeof(float) + (m->bf16 ? sizeof(uint16_t) : 0));
	return TR_OK;
}

tr_status measure_costs(const Traind__V1__JobSpec *spec, const struct measure_limits *limits,
    FILE *to, struct tr_error *error)
{
	struct measured m = { .patience_s = PATIENCE_S,
		.on_core = 1,
		.sequence_parallel = spec->mesh != NULL && spec->mesh->sequence_parallel,
		.limits = limits };
	struct model_config config;
	tr_status st = job_model_config(spec->train->model, &config, error);
	bool strict = job_is_strict(spec->train);
	if (st == TR_OK)
		st = pool_create_parts(limits->threads, strict ? STRICT_THREADS : limits->threads,
		    &m.pool, error);
	if (st != TR_OK)
		return st;
	m.parts = strict ? strict_width_parts(&config) : 0;
	m.dropout = spec->train->optimizer->dropout;
	m.bf16 = strcmp(spec->train->optimizer->dtype, "bf16") == 0;
	gemm_setup();
	char of[PLAN_COSTS_OF_MAX];
	(void)fprintf(to, "of %s\n",
	    plan_costs_of(&config, spec->train->optimizer->dtype, limits->threads, strict,
	        spec->train->optimizer->dropout > 0, of));
	struct own own = own_of(spec, &config);
	m.all = count_all(&m, &own, &config);
	st = measure_memory(&m, spec, &config, &own, to, error);
	if (st == TR_OK)
		st = measure_update(m.pool, &config, limits->beside, to, error);
	if (st == TR_OK)
		st = say_sums(to, error);
	for (uint32_t tp = 1; tp <= limits->tp_most && tp <= config.heads && st == TR_OK; tp++) {
		if (!is_split(&m, &own, &config, tp))
			continue;
		st = measure_tp(&m, &config, &own, tp, limits->sequences_most, to, error);
		if (st == TR_EINVAL && tp > 1) /* other sizes do not divide so */
			st = TR_OK;
	}
	pool_destroy(m.pool);
	if (st == TR_OK && m.rows == 0)
		st = tr_error_set(error, TR_ENOMEM,
		    "no memory here for one sequence of any split of this model; --costs FILE has "
		    "what another machine measured");
	if (st == TR_OK)
		(void)fprintf(to, "core %.3g\n", m.on_core);
	return st == TR_OK && fflush(to) != 0
	    ? tr_error_set(error, TR_EIO, "what was measured cannot be written")
	    : st;
}
