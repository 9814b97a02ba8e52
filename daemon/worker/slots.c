#include "daemon/worker/slots.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_inside.h"

enum { MODEL_ALIGN = 64 }; /* bytes */

/* What a chunk is. */
struct stage {
	size_t first, count; /* layers, of those in the layout */
	bool embedding, head;
};

static struct stage stage_of(const struct layout *layout, size_t chunk)
{
	const struct layout_depth *depth = &layout->depth;
	struct stage stage = { .embedding = chunk == 0 && depth->embedding,
		.head = chunk + 1 == depth->chunks && depth->head };
	assert(chunk < depth->chunks);
	for (size_t c = 0; c < chunk; c++)
		stage.first += depth->layers[c].count;
	stage.count = depth->layers[chunk].count;
	return stage;
}

/* Arrays between layers that are neither input nor output: before each layer but the first, and at the ends that are ours. */
static size_t streams_of(const struct stage *stage)
{
	if (stage->count == 0)
		return stage->embedding && stage->head;
	return stage->count - 1 + stage->embedding + stage->head;
}

void model_room_add(struct model_room *room, const struct layout *layout, size_t chunk, size_t slots)
{
	struct stage stage = stage_of(layout, chunk);
	room->slots += slots;
	room->layers += slots * stage.count;
	room->streams += slots * streams_of(&stage);
}

size_t model_stream_numbers(const struct layout *layout, const struct model_room *room,
    size_t sequences, size_t length)
{
	size_t rows = sequences * length;
	return (room->row_parts > 1 ? rows / room->row_parts : rows) * layout->config.width;
}

size_t model_chunk_begin(const struct layout *layout, size_t chunk)
{
	struct stage stage = stage_of(layout, chunk);
	if (stage.embedding)
		return 0;
	if (stage.first < layout->config.layers)
		return layout_layer(layout, stage.first, LAYOUT_NORM1_W);
	return layout->depth.head ? layout->last_norm_w : layout->count;
}

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

static size_t rows_of(const struct model *m)
{
	return m->max_sequences * m->layout->config.context;
}

/* Of these our own. */
static size_t own_of(const struct model *m)
{
	return model_splits_rows(m) ? rows_of(m) / m->room.row_parts : rows_of(m);
}

static void carve_layer(struct carver *c, const struct model *m, struct layer_activations *a)
{
	const struct model_config *config = &m->layout->config;
	size_t N = rows_of(m), n = own_of(m);
	size_t C = config->width, qkv = model_qkv(config), up = model_up(config);
	a->norm1 = carve(c, N * C);
	a->mean1 = carve(c, n);
	a->rstd1 = carve(c, n);
	a->qkv = carve(c, N * qkv);
	a->row_max = carve(c, N * config->heads);
	a->row_scale = carve(c, N * config->heads);
	a->attended = carve(c, N * model_queries(config));
	a->middle = carve(c, n * C);
	a->norm2 = carve(c, N * C);
	a->mean2 = carve(c, n);
	a->rstd2 = carve(c, n);
	a->up = carve(c, N * up);
}

static void carve_slots(struct model *m, struct carver *c)
{
	for (size_t i = 0; i < m->room.streams; i++)
		m->streams[i] = carve(c, own_of(m) * m->layout->config.width);
	for (size_t i = 0; i < m->room.layers; i++) {
		m->blocks[i] = carve(c, 0);
		carve_layer(c, m, &(struct layer_activations){ 0 });
	}
}

static void carve_head(struct model *m, struct carver *c)
{
	size_t N = rows_of(m);
	m->last_norm = carve(c, N * m->layout->config.width);
	m->last_mean = carve(c, own_of(m));
	m->last_rstd = carve(c, own_of(m));
	m->logits = carve(c, N * m->layout->config.vocab);
}

/* Returns how much of it is never touched, at the end. */
static size_t carve_working(struct model *m, struct carver *c)
{
	const struct model_config *config = &m->layout->config;
	size_t C = config->width, N = rows_of(m), n = own_of(m);
	/* A chunk of short sequences may hold more rows than one whole sequence. */
	size_t chunk = config->context > MODEL_CHUNK_ROWS ? config->context : MODEL_CHUNK_ROWS;
	size_t vectors = m->layout->vectors > 2 * C ? m->layout->vectors : 2 * C;
	size_t angles = m->layout->architecture->rotary
	    ? (size_t)config->context * (config->head_width / 2)
	    : 0;
	if (m->room.recompute)
		carve_layer(c, m, &m->again);
	if (m->layout->depth.head)
		carve_head(m, c);
	m->flow[0] = carve(c, n * C);
	m->flow[1] = carve(c, n * C);
	m->dmiddle = carve(c, n * C);
	m->dup = carve(c, N * model_up(config));
	m->dqkv = carve(c, N * model_qkv(config));
	m->cos = carve(c, angles);
	m->sin = carve(c, angles);
	size_t before = c->used, busy = before;
	/* What every thread writes to first, then what one needs for a sequence: of the last threads nothing, if there are fewer (model_share). */
	for (unsigned t = 0; t < pool_threads(m->pool); t++)
		m->scratch[t].vectors = carve(c, vectors);
	for (unsigned t = 0; t < pool_threads(m->pool); t++) {
		struct thread_scratch *s = &m->scratch[t];
		s->wide = carve(c, chunk * config->hidden);
		s->narrow = carve(c,
		    chunk * (C > model_queries(config) ? C : model_queries(config)));
		s->attention = carve(c, 2 * attention_scratch(config->context, config->head_width));
		busy = t < m->max_sequences ? c->used : busy;
	}
	m->bytes.threads = (busy - before) * sizeof(real);
	return c->used - busy;
}

/* Tables of what the arrays will be: calloc of nothing may be NULL, so there is one more of each. */
static bool allocate_tables(struct model *m)
{
	const struct layout_depth *depth = &m->layout->depth;
	size_t most = 0;
	for (uint32_t c = 0; c < depth->chunks; c++)
		most = depth->layers[c].count > most ? depth->layers[c].count : most;
	m->streams = calloc(m->room.streams + 1, sizeof(*m->streams));
	m->blocks = calloc(m->room.layers + 1, sizeof(*m->blocks));
	m->slots = calloc(m->room.slots + 1, sizeof(*m->slots));
	m->tables = calloc(m->room.slots * most + 1, sizeof(*m->tables));
	m->scratch = calloc(pool_threads(m->pool), sizeof(*m->scratch));
	if (m->streams == NULL || m->blocks == NULL || m->slots == NULL || m->tables == NULL ||
	    m->scratch == NULL)
		return false;
	for (size_t i = 0; i < m->room.slots; i++)
		m->slots[i].layers = m->tables + i * most;
	return true;
}

/* By hand, since what aligned_alloc gives is larger than what it asks for: glibc (before 2.38) does not find it again for the next model of this size, and a mesh that changes makes many. */
void *model_allocate(size_t bytes, void **allocated)
{
	*allocated = malloc(bytes + MODEL_ALIGN - 1);
	return *allocated == NULL
	    ? NULL
	    : (void *)(((uintptr_t)*allocated + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN);
}

static tr_status allocate(struct model *m, struct tr_error *error)
{
	struct carver carver = { NULL, 0 };
	if (allocate_tables(m)) {
		carve_slots(m, &carver);
		m->bytes.slots = carver.used * sizeof(real);
		size_t untouched = carve_working(m, &carver);
		m->bytes.working = (carver.used - untouched) * sizeof(real) - m->bytes.slots;
		m->memory = model_allocate(carver.used * sizeof(real), &m->allocated);
	}
	if (m->memory == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "no memory for the activations of %zu sequences (%zu MiB)", m->max_sequences,
		    carver.used * sizeof(real) >> 20);
	carver = (struct carver){ m->memory, 0 };
	carve_slots(m, &carver);
	(void)carve_working(m, &carver);
	m->free_streams = m->room.streams;
	m->free_blocks = m->room.layers;
	return TR_OK;
}

tr_status model_create_room(const struct layout *layout, const struct model_room *room,
    size_t max_sequences, struct pool *pool, struct model **out, struct tr_error *error)
{
	struct model *m = calloc(1, sizeof(*m));
	if (m == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a model");
	m->layout = layout;
	m->pool = pool;
	m->ops = ops_choose();
	m->max_sequences = max_sequences;
	m->room = *room;
	if (room->recompute)
		m->room.layers = 0;
	tr_status status = room->members > 0 ? virtual_create(m, error) : allocate(m, error);
	if (status != TR_OK) {
		model_destroy(m);
		return status;
	}
	if (room->members == 0 && layout->architecture->rotary)
		rope_tables(layout->config.context, layout->config.head_width,
		    layout->config.rope_theta, m->cos, m->sin);
	*out = m;
	return TR_OK;
}

struct model_bytes model_bytes(const struct model *m)
{
	return m->bytes;
}

void model_destroy(struct model *m)
{
	if (m == NULL)
		return;
	virtual_destroy(m->virtual_members);
	model_end_bf16(m);
	model_end_onednn(m);
	free(m->allocated);
	free(m->dropout.allocated);
	free(m->scratch);
	free(m->streams);
	free(m->blocks);
	free(m->slots);
	free(m->tables);
	free(m);
}

static real *take_stream(struct model *m)
{
	assert(m->free_streams > 0);
	return m->streams[--m->free_streams];
}

/* The arrays of a layer, in a block of its own or in that for layers which are computed again. */
static void take_block(struct model *m, struct layer_activations *a)
{
	*a = m->again;
	if (m->room.recompute)
		return;
	assert(m->free_blocks > 0);
	a->block = m->blocks[--m->free_blocks];
	carve_layer(&(struct carver){ a->block, 0 }, m, a);
}

static struct model_slot *free_slot(struct model *m)
{
	for (size_t i = 0; i < m->room.slots; i++)
		if (!m->slots[i].taken)
			return &m->slots[i];
	return NULL;
}

static bool in_flight(const struct model *m)
{
	for (size_t i = 0; i < m->room.slots; i++)
		if (m->slots[i].taken)
			return true;
	return false;
}

struct model_slot *model_slot_take(struct model *m, size_t chunk, const struct model_batch *batch,
    const real *input, real *output)
{
	if (m->virtual_members != NULL)
		return virtual_slot_take(m, chunk, batch, input, output);
	struct stage stage = stage_of(m->layout, chunk);
	struct model_slot *slot = free_slot(m);
	assert(slot != NULL);
	m->stale = m->stale || !in_flight(m);
	assert((input == NULL) == stage.embedding && (output == NULL) == stage.head);
	slot->taken = true;
	slot->first = stage.first;
	slot->count = stage.count;
	slot->head = stage.head;
	slot->embedded = NULL;
	slot->batch = *batch;
	slot->input = input;
	if (stage.embedding)
		slot->input = slot->embedded = stage.count == 0 && !stage.head ? output
		                                                               : take_stream(m);
	for (size_t i = 0; i < stage.count; i++) {
		struct layer_activations *a = &slot->layers[i];
		take_block(m, a);
		a->x = i == 0 ? slot->input : slot->layers[i - 1].out;
		a->out = i + 1 == stage.count && !stage.head ? output : take_stream(m);
	}
	slot->output = output;
	return slot;
}

void model_slot_give(struct model *m, struct model_slot *slot)
{
	if (m->virtual_members != NULL) {
		virtual_slot_give(m, slot);
		return;
	}
	assert(slot->taken);
	slot->taken = false;
	if (slot->embedded != NULL && slot->embedded != slot->output)
		m->streams[m->free_streams++] = slot->embedded;
	for (size_t i = 0; i < slot->count; i++) {
		if (slot->layers[i].block != NULL)
			m->blocks[m->free_blocks++] = slot->layers[i].block;
		if (slot->layers[i].out != slot->output)
			m->streams[m->free_streams++] = slot->layers[i].out;
	}
}

/* The slot is the one in work. */
static void begin(struct model *m, struct model_slot *slot)
{
	const struct model_batch *batch = &slot->batch;
	assert(slot->taken);
	assert(batch->sequences > 0 && batch->sequences <= m->max_sequences);
	assert(batch->length > 0 && batch->length <= m->layout->config.context);
	assert(!model_splits_rows(m) || batch->sequences * batch->length % m->room.row_parts == 0);
	m->slot = slot;
	m->inputs = batch->inputs;
	m->targets = batch->targets;
	m->samples = batch->samples;
	m->sequences = batch->sequences;
	m->length = batch->length;
	m->first = 0;
}

static size_t stream_bytes(const struct model *m)
{
	return model_own_rows(m) * m->layout->config.width * sizeof(real);
}

bool model_slot_forward(struct model *m, struct model_slot *slot, const struct model_hooks *hooks)
{
	if (m->virtual_members != NULL)
		return virtual_slot_forward(m, slot, hooks);
	begin(m, slot);
	if (m->stale || slot == m->whole)
		model_round(m);
	/* A chunk of nothing hands over what it gets: the only copy. */
	if (slot->count == 0 && slot->embedded == NULL && !slot->head)
		memcpy(slot->output, slot->input, stream_bytes(m));
	return model_forward(m, hooks);
}

bool model_slot_backward(struct model *m, struct model_slot *slot, const real *doutput,
    real *dinput, const struct model_hooks *hooks, double *loss_sum)
{
	if (m->virtual_members != NULL)
		return virtual_slot_backward(m, slot, doutput, dinput, hooks, loss_sum);
	assert(m->grads != NULL);
	assert((doutput == NULL) == slot->head && (dinput == NULL) == (slot->embedded != NULL));
	begin(m, slot);
	m->dout = doutput;
	if (slot->head) {
		real *to = slot->count == 0 && slot->embedded == NULL ? dinput : m->flow[0];
		if (!model_head(m, to, loss_sum))
			return false;
		m->dout = to;
	} else if (slot->count == 0 && slot->embedded == NULL)
		memcpy(dinput, doutput, stream_bytes(m));
	return model_backward(m, dinput, hooks);
}

bool model_slot_loss(struct model *m, struct model_slot *slot, double *loss_sum)
{
	if (m->virtual_members != NULL)
		return virtual_slot_loss(m, slot, loss_sum);
	assert(slot->head);
	begin(m, slot);
	return model_head(m, NULL, loss_sum);
}
