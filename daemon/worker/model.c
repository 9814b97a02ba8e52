#include "daemon/worker/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_inside.h"
#include "daemon/worker/rope.h"

/* Carves arrays out of one allocation; with base NULL it only measures. */
struct carver {
	real *base;
	size_t used;
};

static real *carve(struct carver *carver, size_t numbers)
{
	real *at = carver->base == NULL ? NULL : carver->base + carver->used;
	carver->used += (numbers + 15) / 16 * 16;
	return at;
}

static size_t chunk_rows(size_t length)
{
	return length >= MODEL_CHUNK_ROWS ? length : MODEL_CHUNK_ROWS / length * length;
}

static void carve_layer(struct carver *c, size_t N, const struct model_config *config,
    struct layer_activations *a)
{
	size_t C = config->width, qkv = model_qkv(config), up = model_up(config);
	a->norm1 = carve(c, N * C);
	a->mean1 = carve(c, N);
	a->rstd1 = carve(c, N);
	a->qkv = carve(c, N * qkv);
	a->row_max = carve(c, N * config->heads);
	a->row_scale = carve(c, N * config->heads);
	a->attended = carve(c, N * model_queries(config));
	a->middle = carve(c, N * C);
	a->norm2 = carve(c, N * C);
	a->mean2 = carve(c, N);
	a->rstd2 = carve(c, N);
	a->up = carve(c, N * up);
	a->out = carve(c, N * C);
}

static void carve_all(struct model *m, struct carver *c)
{
	const struct model_config *config = &m->layout->config;
	size_t C = config->width, N = m->max_sequences * config->context;
	/* A chunk of short sequences may hold more rows than one whole sequence. */
	size_t chunk = config->context > MODEL_CHUNK_ROWS ? config->context : MODEL_CHUNK_ROWS;
	size_t vectors = m->layout->vectors > 2 * C ? m->layout->vectors : 2 * C;
	size_t angles = m->layout->architecture->rotary
	    ? (size_t)config->context * (config->head_width / 2)
	    : 0;
	m->embedded = carve(c, N * C);
	for (size_t layer = 0; layer < config->layers; layer++)
		carve_layer(c, N, config, &m->layers[layer]);
	m->last_norm = carve(c, N * C);
	m->last_mean = carve(c, N);
	m->last_rstd = carve(c, N);
	m->logits = carve(c, N * config->vocab);
	m->dout = carve(c, N * C);
	m->dmiddle = carve(c, N * C);
	m->dx = carve(c, N * C);
	m->dup = carve(c, N * model_up(config));
	m->dqkv = carve(c, N * model_qkv(config));
	m->cos = carve(c, angles);
	m->sin = carve(c, angles);
	for (unsigned t = 0; t < pool_threads(m->pool); t++) {
		struct thread_scratch *s = &m->scratch[t];
		s->wide = carve(c, chunk * config->hidden);
		s->narrow = carve(c,
		    chunk * (C > model_queries(config) ? C : model_queries(config)));
		s->attention = carve(c, 2 * attention_scratch(config->context));
		s->vectors = carve(c, vectors);
	}
}

tr_status model_create(const struct layout *layout, size_t max_sequences, struct pool *pool,
    struct model **out, struct tr_error *error)
{
	struct model *m = calloc(1, sizeof(*m));
	struct carver carver = { NULL, 0 };
	if (m == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a model");
	m->layout = layout;
	m->pool = pool;
	m->ops = ops_choose();
	m->max_sequences = max_sequences;
	m->layers = calloc(layout->config.layers, sizeof(*m->layers));
	m->scratch = calloc(pool_threads(pool), sizeof(*m->scratch));
	if (m->layers != NULL && m->scratch != NULL) {
		carve_all(m, &carver);
		m->memory = aligned_alloc(64, carver.used * sizeof(real));
	}
	if (m->memory == NULL) {
		tr_status status = tr_error_set(error, TR_ENOMEM,
		    "no memory for the activations of %zu sequences (%zu MiB)", max_sequences,
		    carver.used * sizeof(real) >> 20);
		model_destroy(m);
		return status;
	}
	carver = (struct carver){ m->memory, 0 };
	carve_all(m, &carver);
	if (layout->architecture->rotary)
		rope_tables(layout->config.context, layout->config.head_width,
		    layout->config.rope_theta, m->cos, m->sin);
	*out = m;
	return TR_OK;
}

void model_destroy(struct model *m)
{
	if (m == NULL)
		return;
	free(m->memory);
	free(m->scratch);
	free(m->layers);
	free(m);
}

void model_bind(struct model *m, const real *params, real *grads)
{
	m->params = params;
	m->grads = grads;
}

void model_use_ops(struct model *m, const struct ops *ops)
{
	m->ops = ops;
}

size_t model_exchange_numbers(const struct layout *layout, size_t max_sequences)
{
	/* [N, C], and three numbers a row for the loss (head.c). */
	return max_sequences * layout->config.context * (layout->config.width + 3);
}

void model_use_tensor(struct model *m, const struct model_tensor *tensor)
{
	m->tensor = tensor;
}

bool model_next_chunk(const struct model *m, unsigned thread, unsigned threads, size_t *next,
    struct chunk *chunk)
{
	size_t first, last, most = chunk_rows(m->length) / m->length;
	pool_share(m->sequences, 1, thread, threads, &first, &last);
	first += *next;
	if (first >= last)
		return false;
	size_t sequences = last - first < most ? last - first : most;
	*next += sequences;
	*chunk = (struct chunk){ first * m->length + m->first, sequences * m->length - m->first,
		first, sequences };
	return true;
}

static bool run(struct model *m, const int32_t *inputs, const int32_t *targets, size_t sequences,
    size_t length, bool train, const struct model_hooks *hooks, double *loss_sum)
{
	assert(sequences > 0 && sequences <= m->max_sequences);
	assert(length > 0 && length <= m->layout->config.context);
	m->inputs = inputs;
	m->targets = targets;
	m->sequences = sequences;
	m->length = length;
	m->first = 0;
	m->train = train;
	if (!model_forward(m, hooks) || !model_progress(hooks))
		return false;
	return model_head(m, loss_sum) && (!train || model_backward(m, hooks));
}

bool model_gradient(struct model *m, const int32_t *inputs, const int32_t *targets,
    size_t sequences, size_t length, const struct model_hooks *hooks, double *loss_sum)
{
	assert(m->grads != NULL);
	return run(m, inputs, targets, sequences, length, true, hooks, loss_sum);
}

bool model_loss(struct model *m, const int32_t *inputs, const int32_t *targets, size_t sequences,
    size_t length, const struct model_hooks *hooks, double *loss_sum)
{
	return run(m, inputs, targets, sequences, length, false, hooks, loss_sum);
}
