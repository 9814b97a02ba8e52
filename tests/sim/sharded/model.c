/* A model of whole numbers below a prime, in the places of the real one
 *(daemon/worker/slots.h, model.h): each layer's output is a sum over all of its
 *parameters, of which a member of a tensor-parallel group adds its part, and
 *what all hold one of them; backward the same. So all of it depends on every
 *parameter and every sample, and no order of sums changes a bit.
 *
 *	x' = 3 x + sum over p of weight(p) p           a layer, and the
 *embedding of a sample's number g(p) += dx'[p mod width] x[p mod width] + p for
 *each row dx = 3 dx' + sum over p of weight'(p) p
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/shard_cut.h"
#include "daemon/worker/virtual.h"
#include "tests/sim/sharded/play.h"

#define NOWHERE   UINT32_MAX
#define PARTS     10 /* head, embedding and layers */
#define WIDTH_MAX 16

struct part_sums {
	bool known;
	uint64_t at[WIDTH_MAX];
};

struct model_slot {
	bool taken;
	size_t chunk;
	struct model_batch batch;
	const float *input;
	float *output;
	float *layers; /* inputs of the chunk's layers, and of the head */
};

struct model {
	const struct layout *layout;
	uint32_t *whole; /* place in the whole layout of each number; NOWHERE */
	const float *params;
	float *grads;
	const struct model_tensor *tensor; /* NULL: alone */
	struct shard placed;               /* that `whole` is of */
	struct part_sums sums[PARTS][2];   /* by part, and forward or back */
	bool odd;                          /* which exchange is next */
	size_t rows;
	struct model_slot slots[16];
};

/* What a number of the array is part of. */
enum part { PART_EMBEDDING = -1, PART_HEAD = -2 };

float model_first_number(size_t place)
{
	return (float)((place * 31 + 7) % PLAY_PRIME);
}

static bool is_part(const struct layout *l, size_t offset, int part)
{
	if (part == PART_EMBEDDING)
		return offset == l->tokens || offset == l->positions;
	if (part == PART_HEAD)
		return offset == l->head || offset == l->last_norm_w || offset == l->last_norm_b;
	return offset >= l->first_layer && (offset - l->first_layer) / l->stride == (size_t)part &&
	    offset < l->first_layer + l->config.layers * l->stride;
}

/* What a chunk is: layers from `first` on, of those of its rank. */
struct stage {
	bool embedding, head;
	size_t first, count;
};

static struct stage stage_of(const struct layout *l, size_t chunk)
{
	const struct layout_depth *depth = &l->depth;
	struct stage stage = { chunk == 0 && depth->embedding,
		chunk + 1 == depth->chunks && depth->head, 0, depth->layers[chunk].count };
	for (size_t c = 0; c < chunk; c++)
		stage.first += depth->layers[c].count;
	return stage;
}

static size_t rows_of(const struct model_slot *slot)
{
	return slot->batch.sequences * slot->batch.length;
}

/* ---- places ---- */

static void find_places(struct model *m, const struct layout *whole, const struct shard *shard)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	for (size_t i = 0; i < m->layout->count; i++)
		m->whole[i] = NOWHERE;
	for (size_t t = 0; t < m->layout->tensor_count; t++) {
		size_t count = shard_pieces(whole, m->layout, shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			for (size_t e = 0; e < pieces[i].rows * pieces[i].columns; e++) {
				size_t row = e / pieces[i].columns, column = e % pieces[i].columns;
				m->whole[pieces[i].local + row * pieces[i].local_stride +
				    column] = (uint32_t)(pieces[i].whole +
				    row * pieces[i].whole_stride + column);
			}
	}
}

/* Is tensor `t` counted here? What all of a group hold counts with the first.
 */
static bool counts(const struct model *m, const struct layout *whole, size_t t)
{
	return m->tensor == NULL || m->tensor->rank == 0 || !shard_whole(whole, m->layout, t);
}

/* Of the worker whose coroutine runs; of the reference, whose layout is whole.
 */
static struct play *now_playing;

static const struct layout *whole_of(const struct model *m)
{
	return now_playing != NULL ? &now_playing->reference.layout : m->layout;
}

/* ---- making ---- */

static tr_status make(const struct layout *layout, size_t rows, struct model **model)
{
	struct model *m = calloc(1, sizeof(*m));
	if (m == NULL)
		abort();
	m->layout = layout;
	m->rows = rows;
	m->whole = calloc(layout->count + 1, sizeof(*m->whole));
	for (size_t i = 0; i < sizeof(m->slots) / sizeof(m->slots[0]); i++)
		m->slots[i].layers = calloc((layout->config.layers + 1) * rows *
		            layout->config.width +
		        1,
		    sizeof(float));
	*model = m;
	return TR_OK;
}

tr_status model_create_room(const struct layout *layout, const struct model_room *room,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error)
{
	(void)room;
	(void)pool;
	(void)error;
	return make(layout, max_sequences * layout->config.context, model);
}

tr_status model_create_whole(const struct layout *layout, const struct model_room *how,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error)
{
	return model_create_room(layout, how, max_sequences, pool, model, error);
}

size_t model_stream_numbers(const struct layout *layout, const struct model_room *room,
    size_t sequences, size_t length)
{
	(void)room;
	return sequences * length * layout->config.width;
}

tr_status model_create(const struct layout *layout, size_t max_sequences, struct pool *pool,
    struct model **model, struct tr_error *error)
{
	return model_create_room(layout, NULL, max_sequences, pool, model, error);
}

void model_destroy(struct model *m)
{
	if (m == NULL)
		return;
	for (size_t i = 0; i < sizeof(m->slots) / sizeof(m->slots[0]); i++)
		free(m->slots[i].layers);
	free(m->whole);
	free(m);
}

void model_room_add(struct model_room *room, const struct layout *layout, size_t chunk, size_t slots)
{
	(void)layout;
	(void)chunk;
	room->slots += slots;
}

size_t model_chunk_begin(const struct layout *layout, size_t chunk)
{
	return chunk == 0 ? 0
	                  : layout->first_layer + stage_of(layout, chunk).first * layout->stride;
}

size_t model_exchange_numbers(const struct layout *layout, size_t sequences)
{
	return sequences * layout->config.context * layout->config.width;
}

void model_use_tensor(struct model *m, const struct model_tensor *tensor)
{
	m->tensor = tensor;
}

void model_bind(struct model *m, const float *params, float *grads)
{
	m->params = params;
	m->grads = grads;
	memset(m->sums, 0, sizeof(m->sums));
	const struct trainer *t = now_playing != NULL && now_playing->inside != NULL
	    ? now_playing->inside->trainer
	    : NULL;
	if (t != NULL && t->sharded->apart != NULL && params == t->sharded->apart->work)
		stream_trains(t->group);
}

void model_changed(struct model *m)
{
	memset(m->sums, 0, sizeof(m->sums));
}

/* ---- sums ---- */

static uint64_t weight_of(uint32_t place, bool back)
{
	return back ? place % 5 + 1 : place % 11 + 1;
}

/* Of this part's parameters that count here. */
static void add_up(const struct model *m, int part, bool back, struct part_sums *sums)
{
	const struct layout *l = m->layout, *whole = whole_of(m);
	memset(sums, 0, sizeof(*sums));
	for (size_t t = 0; t < l->tensor_count; t++) {
		size_t first = l->tensors[t].offset;
		if (!is_part(l, first, part) || !counts(m, whole, t))
			continue;
		for (size_t i = first; i < first + layout_numbers(&l->tensors[t]); i++)
			if (m->whole[i] != NOWHERE)
				sums->at[m->whole[i] % l->config.width] += (uint64_t)m->params[i] *
				    weight_of(m->whole[i], back);
	}
	for (size_t c = 0; c < l->config.width; c++)
		sums->at[c] %= PLAY_PRIME;
	sums->known = true;
}

/* Parameters stay as they are from a round's first pass on. */
static const uint64_t *sums_of(struct model *m, int part, bool back)
{
	struct part_sums *sums = &m->sums[part - PART_HEAD][back];
	assert((size_t)(part - PART_HEAD) < PARTS && m->layout->config.width <= WIDTH_MAX);
	if (!sums->known)
		add_up(m, part, back, sums);
	return sums->at;
}

/* As the real model's: of a backward pass in two calls. */
static bool sum(const struct model_tensor *tensor, bool back, float *data, size_t count)
{
	if (!back || tensor->begin == NULL)
		return tensor->sum(tensor->arg, data, count);
	return tensor->begin(tensor->arg, data, count, false) && tensor->end(tensor->arg);
}

/* What all of the group have of it, below the prime. False: the work stops. */
static bool exchange(struct model *m, bool back, float *x, size_t count)
{
	const struct model_tensor *tensor = m->tensor;
	if (tensor != NULL) {
		float *through = m->odd ? tensor->exchange_too : tensor->exchange;
		m->odd = !m->odd;
		memcpy(through, x, count * sizeof(float));
		if (!sum(tensor, back, through, count))
			return false;
		memcpy(x, through, count * sizeof(float));
	}
	for (size_t i = 0; i < count; i++)
		x[i] = (float)((uint64_t)x[i] % PLAY_PRIME);
	return true;
}

/* y = factor x + sums over the part, over the group. */
static bool apply(struct model *m, const struct model_slot *slot, int part, bool back,
    uint64_t factor, const float *x, float *y)
{
	size_t width = m->layout->config.width, rows = rows_of(slot);
	uint64_t once = m->tensor == NULL || m->tensor->rank == 0;
	const uint64_t *sums = sums_of(m, part, back);
	for (size_t i = 0; i < rows * width; i++)
		y[i] = (float)((once * factor * (uint64_t)x[i] + sums[i % width]) % PLAY_PRIME);
	return exchange(m, back, y, rows * width);
}

/* ---- passes ---- */

/* It may have become another rank's. */
static void place_here(struct model *m, const struct shard *shard)
{
	if (memcmp(&m->placed, shard, sizeof(*shard)) != 0)
		find_places(m, &now_playing->reference.layout, shard);
	m->placed = *shard;
}

struct model_slot *model_slot_take(struct model *m, size_t chunk, const struct model_batch *batch,
    const float *input, float *output)
{
	struct model_slot *slot = m->slots;
	while (slot->taken)
		slot++;
	assert(slot < m->slots + sizeof(m->slots) / sizeof(m->slots[0]));
	float *layers = slot->layers;
	*slot = (struct model_slot){ true, chunk, *batch, input, output, layers };
	if (now_playing != NULL)
		place_here(m, &now_playing->inside->trainer->sharded->shard);
	return slot;
}

void model_slot_give(struct model *m, struct model_slot *slot)
{
	(void)m;
	slot->taken = false;
}

static float *layer_of(const struct model *m, const struct model_slot *slot, size_t layer)
{
	return slot->layers + layer * m->rows * m->layout->config.width;
}

static bool goes_on(const struct model_hooks *hooks)
{
	return hooks == NULL || hooks->progress == NULL || hooks->progress(hooks->arg);
}

static bool embed(struct model *m, struct model_slot *slot)
{
	size_t width = m->layout->config.width;
	float *x = layer_of(m, slot, 0);
	for (size_t i = 0; i < rows_of(slot) * width; i++)
		x[i] = (float)(((uint64_t)slot->batch.inputs[i / width] * 7 + i % width) %
		    PLAY_PRIME);
	return apply(m, slot, PART_EMBEDDING, false, 1, x, x);
}

#define FOUNDER_MS 20

/* With balances some nodes take four times as long as others; where who comes late is looked at founders take a while, too. */
static void take_time(void)
{
	struct tr_group *g = now_playing != NULL ? group_inside() : NULL;
	if (g != NULL && g->play->what.balances)
		group_takes(g, g->number % 3 == 0 ? 8 * MS : 2 * MS);
	if (g != NULL && g->play->what.late_ms > 0)
		group_takes(g,
		    g->number >= g->sim->founders ? g->play->what.late_ms * MS : FOUNDER_MS * MS);
}

bool model_slot_forward(struct model *m, struct model_slot *slot, const struct model_hooks *hooks)
{
	struct stage stage = stage_of(m->layout, slot->chunk);
	size_t numbers = rows_of(slot) * m->layout->config.width;
	if (stage.embedding) {
		if (!embed(m, slot))
			return false;
	} else {
		memcpy(layer_of(m, slot, 0), slot->input, numbers * sizeof(float));
	}
	for (size_t l = 0; l < stage.count; l++) {
		take_time();
		if (!goes_on(hooks) ||
		    !apply(m, slot, (int)(stage.first + l), false, 3, layer_of(m, slot, l),
		        layer_of(m, slot, l + 1)))
			return false;
	}
	if (!stage.head)
		memcpy(slot->output, layer_of(m, slot, stage.count), numbers * sizeof(float));
	return true;
}

/* z, the head's output, and the loss. */
static bool head(struct model *m, struct model_slot *slot, float *z, double *loss)
{
	size_t width = m->layout->config.width;
	size_t layers = stage_of(m->layout, slot->chunk).count;
	if (!apply(m, slot, PART_HEAD, false, 1, layer_of(m, slot, layers), z))
		return false;
	*loss = 0;
	for (size_t i = 0; i < rows_of(slot) * width; i++) {
		size_t row = i / width;
		*loss += (double)z[i] * (double)(i % width + 1) + slot->batch.targets[row];
	}
	return true;
}

bool model_slot_loss(struct model *m, struct model_slot *slot, double *loss)
{
	float *z = calloc(rows_of(slot) * m->layout->config.width + 1, sizeof(*z));
	bool good = head(m, slot, z, loss);
	free(z);
	return good;
}

/* Gradients of a part: dy of its output, x of its input. */
static void gather(struct model *m, const struct model_slot *slot, int part, const float *dy,
    const float *x)
{
	const struct layout *l = m->layout;
	size_t width = l->config.width;
	for (size_t t = 0; t < l->tensor_count; t++) {
		size_t first = l->tensors[t].offset;
		if (!is_part(l, first, part))
			continue;
		for (size_t i = first; i < first + layout_numbers(&l->tensors[t]); i++)
			for (size_t row = 0; m->whole[i] != NOWHERE && row < rows_of(slot); row++) {
				size_t at = row * width + m->whole[i] % width;
				m->grads[i] += (float)(((uint64_t)dy[at] * (uint64_t)x[at] +
				                           m->whole[i]) %
				    PLAY_PRIME);
			}
	}
}

static bool backward(struct model *m, struct model_slot *slot, float *dy, float *dinput,
    const struct model_hooks *hooks)
{
	struct stage stage = stage_of(m->layout, slot->chunk);
	size_t numbers = rows_of(slot) * m->layout->config.width;
	for (size_t l = stage.count; l-- > 0;) {
		int part = (int)(stage.first + l);
		gather(m, slot, part, dy, layer_of(m, slot, l));
		if (!goes_on(hooks) || !apply(m, slot, part, true, 3, dy, dy))
			return false;
	}
	if (stage.embedding)
		gather(m, slot, PART_EMBEDDING, dy, layer_of(m, slot, 0));
	else
		memcpy(dinput, dy, numbers * sizeof(float));
	if (hooks != NULL && hooks->gradients_final != NULL)
		hooks->gradients_final(hooks->arg, model_chunk_begin(m->layout, slot->chunk));
	return true;
}

bool model_slot_backward(struct model *m, struct model_slot *slot, const float *doutput,
    float *dinput, const struct model_hooks *hooks, double *loss)
{
	size_t width = m->layout->config.width, numbers = rows_of(slot) * width;
	float *dy = calloc(numbers + 1, sizeof(*dy));
	struct stage stage = stage_of(m->layout, slot->chunk);
	bool good = dy != NULL;
	if (stage.head) {
		good = good && head(m, slot, dy, loss);
		for (size_t i = 0; good && i < numbers; i++)
			dy[i] = (float)((2 * (uint64_t)dy[i] + i % width +
			                    (uint64_t)slot->batch.targets[i / width]) %
			    PLAY_PRIME);
		if (good)
			gather(m, slot, PART_HEAD, dy, layer_of(m, slot, stage.count));
	} else {
		memcpy(dy, doutput, numbers * sizeof(float));
	}
	good = good && backward(m, slot, dy, dinput, hooks);
	free(dy);
	return good;
}

/* ---- parts of a batch (virtual.h) ---- */

void model_part_begin(struct model *m)
{
	memset(m->grads, 0,
	    (m->layout->count + shard_cut_table_numbers(m->layout)) * sizeof(*m->grads));
}

/* Gradients are where they belong, both of a tied table together; whole numbers need no members to be added in any order. */
bool model_part_end(struct model *m)
{
	(void)m;
	return true;
}

void pool_run(struct pool *pool, pool_fn *fn, void *arg)
{
	(void)pool;
	fn(arg, 0, 1);
}

/* ---- the optimizer ---- */

void model_update(float *params, float *first, float *second, const float *grads, size_t count,
    uint64_t step)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t g = (uint64_t)grads[i] % PLAY_PRIME;
		params[i] = (float)(((uint64_t)params[i] * 5 + g * (step % 7 + 1)) % PLAY_PRIME);
		first[i] = (float)(((uint64_t)first[i] + g) % PLAY_PRIME);
		second[i] = (float)(((uint64_t)second[i] * 3 + g) % PLAY_PRIME);
	}
}

double model_squares(const float *grads, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++) {
		double g = (double)((uint64_t)grads[i] % PLAY_PRIME);
		sum += g * g;
	}
	return sum;
}

/* ---- one worker ---- */

void play_samples(uint64_t sample, int32_t *inputs, int32_t *targets)
{
	*inputs = (int32_t)(sample % 1000);
	*targets = (int32_t)(sample * 13 % 50);
}

static double pass(struct model *m, uint64_t sample, bool train)
{
	int32_t input, target;
	double loss = 0;
	play_samples(sample, &input, &target);
	struct model_batch batch = { &input, &target, 1, 1, NULL };
	struct model_slot *slot = model_slot_take(m, 0, &batch, NULL, NULL);
	(void)model_slot_forward(m, slot, NULL);
	if (train)
		(void)model_slot_backward(m, slot, NULL, NULL, NULL, &loss);
	else
		(void)model_slot_loss(m, slot, &loss);
	model_slot_give(m, slot);
	return loss;
}

void model_of_step(struct play_reference *r, uint64_t step)
{
	uint64_t samples[PLAY_BATCH_MOST];
	for (uint64_t i = 0; i < r->batch; i++)
		samples[i] = step * r->batch + i;
	model_of_samples(r, &r->states[step], samples, r->batch);
}

void model_of_samples(struct play_reference *r, struct play_state *state, const uint64_t *samples,
    size_t count)
{
	struct play *before = now_playing;
	struct shard all = { .rank = 0, .size = 1, .depth = r->layout.depth };
	struct model *m;
	now_playing = NULL;
	(void)make(&r->layout, 1, &m);
	find_places(m, &r->layout, &all);
	model_bind(m, state->params, state->grads);
	for (size_t i = 0; i < count; i++)
		state->loss += pass(m, samples[i], true);
	for (uint64_t i = 0; i < PLAY_VALIDATION; i++)
		state->validation += pass(m, PLAY_VALIDATION_FIRST + i, false);
	for (size_t t = 0; t < r->layout.tensor_count; t++)
		state->squares += model_squares(state->grads + r->layout.tensors[t].offset,
		    layout_numbers(&r->layout.tensors[t]));
	model_destroy(m);
	now_playing = before;
}

void model_play(struct play *play)
{
	now_playing = play;
}
