/* A model of whole numbers below a prime, in the places of the real one
 *(daemon/worker/slots.h, model.h): each layer's output is a sum over all of its
 *parameters, of which a member of a tensor-parallel group adds its part, and
 *what all hold one of them; backward the same. So all of it depends on every
 *parameter and every sample, and no order of sums changes a bit.
 *
 *	x' = 3 x + sum over p of weight(p) p           a layer, and the
 *embedding of a sample's number g(p) += dx'[p mod width] x[p mod width] + p for
 *each row dx = 3 dx' + sum over p of weight'(p) p
 *
 * With sequence parallelism each member has its own rows of x and dx, and of the gradients of what all hold.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/shard_cut.h"
#include "daemon/worker/virtual.h"
#include "tests/sim/sharded/model_rows.h"

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
	m->row_parts = 1;
	m->rows = rows;
	m->scratch = calloc(2 * rows * layout->config.width + 1, sizeof(float));
	m->whole = calloc(layout->count + 1, sizeof(*m->whole));
	for (size_t i = 0; i < sizeof(m->slots) / sizeof(m->slots[0]); i++)
		m->slots[i].layers = calloc((layout->config.layers + 1) * rows *
		            layout->config.width +
		        1,
		    sizeof(float));
	*model = m;
	return TR_OK;
}

/* Of a strict model these are its members' affair (virtual.h), whom nobody plays here. */
static size_t parts_of(const struct model_room *room)
{
	return room != NULL && room->row_parts > 1 && room->members == 0 ? room->row_parts : 1;
}

tr_status model_create_room(const struct layout *layout, const struct model_room *room,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error)
{
	(void)pool;
	(void)error;
	tr_status status = make(layout, max_sequences * layout->config.context, model);
	(*model)->recompute = room != NULL && room->recompute;
	(*model)->row_parts = parts_of(room);
	return status;
}

tr_status model_create_whole(const struct layout *layout, const struct model_room *how,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error)
{
	return model_create_room(layout, how, max_sequences, pool, model, error);
}

size_t model_stream_numbers(const struct layout *layout, const struct model_room *room,
    size_t sequences, size_t length)
{
	return sequences * length / parts_of(room) * layout->config.width;
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
	free(m->scratch);
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

/* y = factor x + sums over the part, over the group: x all rows, y its own; it may be x. */
static bool apply(struct model *m, const struct model_slot *slot, int part, bool back,
    uint64_t factor, const float *x, float *y)
{
	size_t width = m->layout->config.width, numbers = model_rows(slot) * width;
	uint64_t once = m->tensor == NULL || m->tensor->rank == 0;
	const uint64_t *sums = sums_of(m, part, back);
	float *made = m->scratch + m->rows * width;
	for (size_t i = 0; i < numbers; i++)
		made[i] = (float)((once * factor * (uint64_t)x[i] + sums[i % width]) % PLAY_PRIME);
	return model_exchange(m, slot, back, made, y);
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

static bool embed(struct model *m, const struct model_slot *slot, float *own)
{
	size_t width = m->layout->config.width;
	float *x = m->scratch;
	for (size_t i = 0; i < model_rows(slot) * width; i++)
		x[i] = (float)(((uint64_t)slot->batch.inputs[i / width] * 7 + i % width) %
		    PLAY_PRIME);
	return apply(m, slot, PART_EMBEDDING, false, 1, x, own);
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

/* From its own rows of a layer's input to those of its output; what is kept of it, too. */
static bool forward_layer(struct model *m, const struct model_slot *slot, size_t layer, float *x)
{
	int part = (int)(stage_of(m->layout, slot->chunk).first + layer);
	float *kept = layer_of(m, slot, layer), *all = m->recompute ? m->scratch : kept;
	if (m->recompute)
		memcpy(kept, x, model_own_numbers(m, slot) * sizeof(float));
	return model_gather_rows(m, slot, x, all) && apply(m, slot, part, false, 3, all, x);
}

bool model_slot_forward(struct model *m, struct model_slot *slot, const struct model_hooks *hooks)
{
	struct stage stage = stage_of(m->layout, slot->chunk);
	size_t bytes = model_own_numbers(m, slot) * sizeof(float);
	float *x = layer_of(m, slot, stage.count); /* in the end it is that */
	if (stage.embedding) {
		if (!embed(m, slot, x))
			return false;
	} else {
		memcpy(x, slot->input, bytes);
	}
	for (size_t l = 0; l < stage.count; l++) {
		take_time();
		if (!goes_on(hooks) || !forward_layer(m, slot, l, x))
			return false;
	}
	if (!stage.head)
		memcpy(slot->output, x, bytes);
	return true;
}

/* z, the head's output, all rows of it, and the loss. */
static bool head(struct model *m, struct model_slot *slot, float *z, double *loss)
{
	size_t width = m->layout->config.width;
	float *x = layer_of(m, slot, stage_of(m->layout, slot->chunk).count);
	if (!model_gather_rows(m, slot, x, x) || !apply(m, slot, PART_HEAD, false, 1, x, z) ||
	    !model_gather_rows(m, slot, z, z))
		return false;
	*loss = 0;
	for (size_t i = 0; i < model_rows(slot) * width; i++) {
		size_t row = i / width;
		*loss += (double)z[i] * (double)(i % width + 1) + slot->batch.targets[row];
	}
	return true;
}

bool model_slot_loss(struct model *m, struct model_slot *slot, double *loss)
{
	float *z = calloc(model_rows(slot) * m->layout->config.width + 1, sizeof(*z));
	bool good = head(m, slot, z, loss);
	free(z);
	return good;
}

/* Gradients of a part: dy of its output, x of its input, all rows of both; of what all hold those of our own rows, where there are such. */
static void gather(struct model *m, const struct model_slot *slot, int part, const float *dy,
    const float *x)
{
	const struct layout *l = m->layout;
	size_t width = l->config.width, own_rows = model_rows(slot) / m->row_parts;
	for (size_t t = 0; t < l->tensor_count; t++) {
		size_t first = l->tensors[t].offset;
		if (!is_part(l, first, part))
			continue;
		bool own = m->row_parts > 1 && shard_whole(whole_of(m), l, t);
		size_t from = own ? m->tensor->place * own_rows : 0;
		size_t rows = own ? own_rows : model_rows(slot);
		for (size_t i = first; i < first + layout_numbers(&l->tensors[t]); i++)
			for (size_t row = from; m->whole[i] != NOWHERE && row < from + rows; row++) {
				size_t at = row * width + m->whole[i] % width;
				m->grads[i] += (float)(((uint64_t)dy[at] * (uint64_t)x[at] +
				                           m->whole[i]) %
				    PLAY_PRIME);
			}
	}
}

/* All rows of a layer's input; computed again it is as often sent. */
static bool input_again(struct model *m, const struct model_slot *slot, size_t layer)
{
	int part = (int)(stage_of(m->layout, slot->chunk).first + layer);
	float *x = layer_of(m, slot, layer);
	return !m->recompute ||
	    (model_gather_rows(m, slot, x, x) && apply(m, slot, part, false, 3, x, m->scratch));
}

/* From its own rows of an output's gradient to those of the input's. */
static bool backward_layer(struct model *m, const struct model_slot *slot, size_t layer, float *dy)
{
	int part = (int)(stage_of(m->layout, slot->chunk).first + layer);
	if (!input_again(m, slot, layer) || !model_gather_rows(m, slot, dy, m->scratch))
		return false;
	gather(m, slot, part, m->scratch, layer_of(m, slot, layer));
	return apply(m, slot, part, true, 3, m->scratch, dy);
}

static bool backward(struct model *m, struct model_slot *slot, float *dy, float *dinput,
    const struct model_hooks *hooks)
{
	struct stage stage = stage_of(m->layout, slot->chunk);
	for (size_t l = stage.count; l-- > 0;)
		if (!goes_on(hooks) || !backward_layer(m, slot, l, dy))
			return false;
	if (stage.embedding) {
		if (!model_gather_rows(m, slot, dy, m->scratch))
			return false;
		gather(m, slot, PART_EMBEDDING, m->scratch, layer_of(m, slot, 0));
	} else {
		memcpy(dinput, dy, model_own_numbers(m, slot) * sizeof(float));
	}
	if (hooks != NULL && hooks->gradients_final != NULL)
		hooks->gradients_final(hooks->arg, model_chunk_begin(m->layout, slot->chunk));
	return true;
}

/* Of its own rows, from the loss. */
static bool backward_head(struct model *m, struct model_slot *slot, float *dy, double *loss)
{
	size_t width = m->layout->config.width, numbers = model_rows(slot) * width;
	if (!head(m, slot, dy, loss))
		return false;
	for (size_t i = 0; i < numbers; i++)
		dy[i] = (float)((2 * (uint64_t)dy[i] + i % width +
		                    (uint64_t)slot->batch.targets[i / width]) %
		    PLAY_PRIME);
	gather(m, slot, PART_HEAD, dy, layer_of(m, slot, stage_of(m->layout, slot->chunk).count));
	memmove(dy, dy + model_own_first(m, slot), model_own_numbers(m, slot) * sizeof(float));
	return true;
}

bool model_slot_backward(struct model *m, struct model_slot *slot, const float *doutput,
    float *dinput, const struct model_hooks *hooks, double *loss)
{
	float *dy = calloc(model_rows(slot) * m->layout->config.width + 1, sizeof(*dy));
	bool good = dy != NULL;
	if (good && stage_of(m->layout, slot->chunk).head)
		good = backward_head(m, slot, dy, loss);
	else if (good)
		memcpy(dy, doutput, model_own_numbers(m, slot) * sizeof(float));
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

/* ---- one worker ---- */

static double pass(struct model *m, uint64_t sample, size_t rows, bool train)
{
	int32_t inputs[PLAY_ROWS_MAX], targets[PLAY_ROWS_MAX];
	double loss = 0;
	play_samples(sample, rows, inputs, targets);
	struct model_batch batch = { inputs, targets, 1, rows, NULL };
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
	(void)make(&r->layout, r->rows, &m);
	find_places(m, &r->layout, &all);
	model_bind(m, state->params, state->grads);
	for (size_t i = 0; i < count; i++)
		state->loss += pass(m, samples[i], r->rows, true);
	for (uint64_t i = 0; i < PLAY_VALIDATION; i++)
		state->validation += pass(m, PLAY_VALIDATION_FIRST + i, r->rows, false);
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
