#include "daemon/worker/virtual.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/shard_cut.h"
#include "daemon/plan/strict.h"
#include "daemon/worker/model_inside.h"
#include "daemon/worker/turns.h"

enum { VIRTUAL_ALIGN = 64, VIRTUAL_BLOCK = 1024 }; /* bytes; numbers that are added at a time */

enum virtual_meeting { VIRTUAL_SUM, VIRTUAL_MAXIMUM, VIRTUAL_SCATTER, VIRTUAL_GATHER };

struct virtual_member {
	struct virtual_members *all;
	unsigned number; /* of those that this worker plays */
	struct model *model;
	struct model_tensor tensor;
	real *params, *grads;
	real *given; /* at the meeting under way */
	double loss;
};

/* What all play. */
enum virtual_call { VIRTUAL_FORWARD, VIRTUAL_BACKWARD, VIRTUAL_LOSS };
struct virtual_work {
	enum virtual_call call;
	size_t slot;
	const real *doutput;
	real *dinput;
	const struct model_hooks *hooks;
};

struct virtual_members {
	struct model *model; /* that they make up */
	struct shard_cut cut;
	unsigned count, all; /* members here, and of all workers that share a layer */
	struct virtual_member members[STRICT_PARTS_MAX];
	struct turns *turns;
	struct virtual_work work;
	const struct model_tensor *outer; /* NULL: all members are here */
	unsigned half;                    /* of its exchange, that is used next */
	enum virtual_meeting meeting;
	size_t meeting_count;
	real *shared; /* gradients of what all hold, one behind the other */
	size_t shared_numbers;
	void *memory; /* of params, grads, exchanges and shared */
};

/* ---- sums ---- */

/* Of a pool's part: numbers [first, last). The tree over all that were given is left in the first. */
static void add_up(struct virtual_members *v, size_t first, size_t last)
{
	bool maximum = v->meeting == VIRTUAL_MAXIMUM;
	for (unsigned step = 1; step < v->count; step *= 2)
		for (unsigned k = 0; k < v->count; k += 2 * step) {
			real *to = v->members[k].given;
			const real *from = v->members[k + step].given;
			for (size_t i = first; !maximum && i < last; i++)
				to[i] += from[i];
			for (size_t i = first; maximum && i < last; i++)
				to[i] = from[i] > to[i] ? from[i] : to[i];
		}
}

static void add_part(void *arg, unsigned thread, unsigned threads)
{
	struct virtual_members *v = arg;
	size_t first, last;
	pool_share(v->meeting_count, VIRTUAL_BLOCK, thread, threads, &first, &last);
	for (size_t at = first; at < last; at += VIRTUAL_BLOCK)
		add_up(v, at, last - at < VIRTUAL_BLOCK ? last : at + VIRTUAL_BLOCK);
}

/* Block `number` of all members is that of member `number`. */
static size_t block_of(const struct virtual_members *v)
{
	return v->meeting_count / v->all;
}

static unsigned first_of(const struct virtual_members *v)
{
	return v->outer != NULL ? v->outer->rank * v->count : 0;
}

static void copy_numbers(real *to, const real *from, size_t count)
{
	if (to != from)
		memcpy(to, from, count * sizeof(*to));
}

/* The result, at `made`, to the members: each its block, or all. */
static void hand_out(const struct virtual_members *v, const real *made)
{
	size_t block = block_of(v), count = v->meeting_count;
	for (unsigned k = 0; k < v->count; k++) {
		size_t at = (first_of(v) + k) * block;
		if (v->meeting == VIRTUAL_SCATTER)
			copy_numbers(v->members[k].given + at, made + at, block);
		else
			copy_numbers(v->members[k].given, made, count);
	}
}

static real *outer_half(struct virtual_members *v)
{
	real *half = v->half == 0 ? v->outer->exchange : v->outer->exchange_too;
	v->half ^= 1;
	return half;
}

static bool (*sum_of(const struct virtual_members *v))(void *arg, real *data, size_t count)
{
	if (v->meeting == VIRTUAL_SCATTER)
		return v->outer->reduce_scatter;
	return v->meeting == VIRTUAL_MAXIMUM ? v->outer->maximum : v->outer->sum;
}

static bool meet_sum(struct virtual_members *v)
{
	real *made = v->members[0].given;
	pool_run(v->model->pool, add_part, v);
	if (v->outer != NULL) {
		made = outer_half(v);
		memcpy(made, v->members[0].given, v->meeting_count * sizeof(*made));
		if (!sum_of(v)(v->outer->arg, made, v->meeting_count))
			return false;
	}
	hand_out(v, made);
	return true;
}

static bool meet_gather(struct virtual_members *v)
{
	size_t block = block_of(v);
	real *made = v->outer != NULL ? outer_half(v) : v->members[0].given;
	for (unsigned k = 0; k < v->count; k++) {
		size_t at = (first_of(v) + k) * block;
		copy_numbers(made + at, v->members[k].given + at, block);
	}
	if (v->outer != NULL && !v->outer->all_gather(v->outer->arg, made, v->meeting_count))
		return false;
	hand_out(v, made);
	return true;
}

static bool meet_all(void *arg)
{
	struct virtual_members *v = arg;
	return v->meeting == VIRTUAL_GATHER ? meet_gather(v) : meet_sum(v);
}

static bool virtual_meet(struct virtual_member *member, real *data, size_t count,
    enum virtual_meeting meeting)
{
	struct virtual_members *v = member->all;
	member->given = data;
	v->meeting = meeting;
	v->meeting_count = count;
	return turns_meet(v->turns, member->number, meet_all, v);
}

static bool virtual_sum(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_SUM);
}

static bool virtual_maximum(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_MAXIMUM);
}

static bool virtual_reduce_scatter(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_SCATTER);
}

static bool virtual_all_gather(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_GATHER);
}

/* ---- parameters and gradients ---- */

static void copy_piece(const struct shard_piece *piece, const real *from, size_t from_stride,
    real *to, size_t to_stride)
{
	for (size_t row = 0; row < piece->rows; row++)
		memcpy(to + row * to_stride, from + row * from_stride, piece->columns * sizeof(*to));
}

/* Tensor `item` / count of member `item` % count. */
static void take_item(struct virtual_members *v, size_t item)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	struct virtual_member *member = &v->members[item % v->count];
	size_t count = shard_cut_pieces(&v->cut, member->number, item / v->count, false, pieces);
	for (size_t i = 0; i < count; i++)
		copy_piece(&pieces[i], v->model->params + pieces[i].whole, pieces[i].whole_stride,
		    member->params + pieces[i].local, pieces[i].local_stride);
}

static void take_part(void *arg, unsigned thread, unsigned threads)
{
	struct virtual_members *v = arg;
	size_t first, last;
	pool_share(shard_cut_tensors(&v->cut) * v->count, 1, thread, threads, &first, &last);
	for (size_t item = first; item < last; item++)
		take_item(v, item);
}

static void take_parameters(struct virtual_members *v)
{
	pool_run(v->model->pool, take_part, v);
	for (unsigned k = 0; k < v->count; k++)
		v->members[k].model->stale = true;
	v->model->stale = false;
}

static bool is_shared(const struct virtual_members *v, size_t tensor)
{
	return v->all > 1 && tensor < v->cut.part.tensor_count &&
	    shard_cut_shared(&v->cut.part, tensor);
}

static void put_item(struct virtual_members *v, size_t item)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	const struct virtual_member *member = &v->members[item % v->count];
	size_t tensor = item / v->count;
	size_t count = is_shared(v, tensor)
	    ? 0
	    : shard_cut_pieces(&v->cut, member->number, tensor, true, pieces);
	for (size_t i = 0; i < count; i++)
		copy_piece(&pieces[i], member->grads + pieces[i].local, pieces[i].local_stride,
		    v->model->grads + pieces[i].whole, pieces[i].whole_stride);
}

static void put_part(void *arg, unsigned thread, unsigned threads)
{
	struct virtual_members *v = arg;
	size_t first, last;
	pool_share(shard_cut_tensors(&v->cut) * v->count, 1, thread, threads, &first, &last);
	for (size_t item = first; item < last; item++)
		put_item(v, item);
}

/* What all hold: the tree over the members here, into v->shared. */
static void add_shared(struct virtual_members *v)
{
	size_t at = 0;
	v->meeting = VIRTUAL_SUM;
	for (size_t i = 0; i < v->cut.part.tensor_count; i++) {
		const struct layout_tensor *tensor = &v->cut.part.tensors[i];
		size_t numbers = layout_numbers(tensor);
		if (!is_shared(v, i))
			continue;
		for (unsigned k = 0; k < v->count; k++)
			v->members[k].given = v->members[k].grads + tensor->offset;
		add_up(v, 0, numbers);
		memcpy(v->shared + at, v->members[0].given, numbers * sizeof(real));
		at += numbers;
	}
}

/* And over the workers, as much at a time as the exchange has room for. */
static bool reduce_shared(struct virtual_members *v)
{
	size_t room = model_exchange_numbers(v->model->layout, v->model->max_sequences);
	for (size_t at = 0; v->outer != NULL && at < v->shared_numbers; at += room) {
		size_t left = v->shared_numbers - at, count = left < room ? left : room;
		real *half = outer_half(v);
		memcpy(half, v->shared + at, count * sizeof(*half));
		if (!v->outer->sum(v->outer->arg, half, count))
			return false;
		memcpy(v->shared + at, half, count * sizeof(*half));
	}
	return true;
}

static void put_shared(struct virtual_members *v)
{
	size_t at = 0;
	for (size_t i = 0; i < v->cut.part.tensor_count; i++) {
		size_t numbers = layout_numbers(&v->cut.part.tensors[i]);
		if (!is_shared(v, i))
			continue;
		memcpy(v->model->grads + v->cut.whole->tensors[i].offset, v->shared + at,
		    numbers * sizeof(real));
		at += numbers;
	}
}

void model_part_begin(struct model *m)
{
	struct virtual_members *v = m->virtual_members;
	for (unsigned k = 0; k < v->count; k++)
		memset(v->members[k].grads, 0, v->cut.part.count * sizeof(real));
}

bool model_part_end(struct model *m)
{
	struct virtual_members *v = m->virtual_members;
	add_shared(v);
	if (!reduce_shared(v))
		return false;
	pool_run(m->pool, put_part, v);
	put_shared(v);
	return true;
}

/* ---- calls ---- */

/* Member k's rows of a stream that is here: NULL stays NULL. */
static size_t own_stream(const struct virtual_members *v, size_t slot)
{
	const struct model_batch *batch = &v->model->slots[slot].batch;
	struct model_room room = { .row_parts = v->all };
	return model_stream_numbers(&v->cut.part, &room, batch->sequences, batch->length);
}

static bool play_member(void *arg, unsigned number)
{
	struct virtual_members *v = arg;
	struct virtual_member *member = &v->members[number];
	const struct virtual_work *work = &v->work;
	struct model_slot *slot = &member->model->slots[work->slot];
	/* One says for all that the work goes on; gradients are not final before model_part_end. */
	struct model_hooks hooks = { 0 };
	if (number == 0 && work->hooks != NULL)
		hooks = (struct model_hooks){ work->hooks->progress, NULL, work->hooks->arg };
	size_t first = number * own_stream(v, work->slot);
	slot->batch = v->model->slots[work->slot].batch;
	if (work->call == VIRTUAL_FORWARD)
		return model_slot_forward(member->model, slot, &hooks);
	if (work->call == VIRTUAL_LOSS)
		return model_slot_loss(member->model, slot, &member->loss);
	return model_slot_backward(member->model, slot,
	    work->doutput != NULL ? work->doutput + first : NULL,
	    work->dinput != NULL ? work->dinput + first : NULL, &hooks, &member->loss);
}

static bool virtual_run(struct model *m, const struct virtual_work *work)
{
	struct virtual_members *v = m->virtual_members;
	v->work = *work;
	/* A worker may get another rank. */
	for (unsigned k = 0; k < v->count; k++)
		v->members[k].tensor.rank = v->members[k].tensor.place = first_of(v) + k;
	return turns_run(v->turns);
}

static bool anything_taken(const struct model *m)
{
	for (size_t i = 0; i < m->room.slots; i++)
		if (m->slots[i].taken)
			return true;
	return false;
}

struct model_slot *virtual_slot_take(struct model *m, size_t chunk, const struct model_batch *batch,
    const real *input, real *output)
{
	struct virtual_members *v = m->virtual_members;
	struct model_slot *slot = m->slots;
	m->stale = m->stale || !anything_taken(m);
	while (slot->taken)
		slot++;
	assert(slot < m->slots + m->room.slots);
	slot->taken = true;
	slot->batch = *batch;
	size_t at = (size_t)(slot - m->slots), own = own_stream(v, at);
	for (unsigned k = 0; k < v->count; k++) {
		struct model_slot *its = model_slot_take(v->members[k].model, chunk, batch,
		    input != NULL ? input + k * own : NULL,
		    output != NULL ? output + k * own : NULL);
		assert(its == &v->members[k].model->slots[at]);
		slot->head = its->head;
	}
	return slot;
}

void virtual_slot_give(struct model *m, struct model_slot *slot)
{
	struct virtual_members *v = m->virtual_members;
	assert(slot->taken);
	slot->taken = false;
	for (unsigned k = 0; k < v->count; k++)
		model_slot_give(v->members[k].model, &v->members[k].model->slots[slot - m->slots]);
}

bool virtual_slot_forward(struct model *m, struct model_slot *slot, const struct model_hooks *hooks)
{
	struct virtual_work work = { .call = VIRTUAL_FORWARD,
		.slot = (size_t)(slot - m->slots),
		.hooks = hooks };
	if (m->stale || slot == m->whole)
		take_parameters(m->virtual_members);
	return virtual_run(m, &work);
}

/* All members have the same loss. */
bool virtual_slot_backward(struct model *m, struct model_slot *slot, const real *doutput,
    real *dinput, const struct model_hooks *hooks, double *loss_sum)
{
	struct virtual_work work = { VIRTUAL_BACKWARD, (size_t)(slot - m->slots), doutput, dinput,
		hooks };
	if (!virtual_run(m, &work))
		return false;
	if (slot->head)
		*loss_sum = m->virtual_members->members[0].loss;
	return true;
}

bool virtual_slot_loss(struct model *m, struct model_slot *slot, double *loss_sum)
{
	struct virtual_work work = { .call = VIRTUAL_LOSS, .slot = (size_t)(slot - m->slots) };
	if (!virtual_run(m, &work))
		return false;
	*loss_sum = m->virtual_members->members[0].loss;
	return true;
}

/* ---- made and unmade ---- */

void virtual_use_tensor(struct model *m, const struct model_tensor *tensor)
{
	struct virtual_members *v = m->virtual_members;
	assert(tensor->size * v->count == v->all && tensor->exchange_too != NULL);
	v->outer = tensor;
}

void virtual_use_ops(struct model *m, const struct ops *ops)
{
	for (unsigned k = 0; k < m->virtual_members->count; k++)
		model_use_ops(m->virtual_members->members[k].model, ops);
}

tr_status virtual_use_bf16(struct model *m, bool plain, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (unsigned k = 0; k < m->virtual_members->count && status == TR_OK; k++)
		status = model_use_bf16(m->virtual_members->members[k].model, plain, error);
	return status;
}

const char *virtual_bf16_slow(const struct model *m)
{
	return model_bf16_slow(m->virtual_members->members[0].model);
}

static size_t aligned(size_t numbers)
{
	size_t grain = VIRTUAL_ALIGN / sizeof(real);
	return (numbers + grain - 1) / grain * grain;
}

/* Parameters, gradients and both halves of the exchange of each member, then what is shared. */
static tr_status allocate_members(struct virtual_members *v, struct tr_error *error)
{
	size_t state = aligned(v->cut.part.count);
	size_t half = aligned(model_exchange_numbers(&v->cut.part, v->model->max_sequences));
	for (size_t i = 0; i < v->cut.part.tensor_count; i++)
		if (is_shared(v, i))
			v->shared_numbers += layout_numbers(&v->cut.part.tensors[i]);
	size_t numbers = v->count * (2 * state + 2 * half) + v->shared_numbers;
	v->memory = malloc(numbers * sizeof(real) + VIRTUAL_ALIGN);
	if (v->memory == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "train.strict: no memory for parameters and gradients in %u parts (%zu MiB)",
		    v->count, numbers * sizeof(real) >> 20);
	real *at = (real *)(((uintptr_t)v->memory + VIRTUAL_ALIGN - 1) / VIRTUAL_ALIGN *
	    VIRTUAL_ALIGN);
	memset(at, 0, numbers * sizeof(real));
	for (unsigned k = 0; k < v->count; k++, at += 2 * (state + half)) {
		struct virtual_member *member = &v->members[k];
		member->params = at;
		member->grads = at + state;
		member->tensor.exchange = at + 2 * state;
		member->tensor.exchange_too = member->tensor.exchange + half;
	}
	v->shared = at;
	v->model->bytes.working += numbers * sizeof(real);
	return TR_OK;
}

static tr_status create_member(struct virtual_members *v, unsigned number, struct tr_error *error)
{
	struct virtual_member *member = &v->members[number];
	const struct model *m = v->model;
	struct model_room room = m->room;
	room.members = 0;
	room.row_parts = v->all;
	member->all = v;
	member->number = number;
	member->tensor.size = v->all;
	member->tensor.vocab = (size_t)v->cut.part.config.vocab * v->all;
	member->tensor.sum = virtual_sum;
	member->tensor.maximum = virtual_maximum;
	member->tensor.reduce_scatter = virtual_reduce_scatter;
	member->tensor.all_gather = virtual_all_gather;
	member->tensor.arg = member;
	tr_status status = model_create_room(&v->cut.part, &room, m->max_sequences, m->pool,
	    &member->model, error);
	if (status != TR_OK)
		return status;
	v->model->bytes.slots += member->model->bytes.slots;
	v->model->bytes.working += member->model->bytes.working;
	v->model->bytes.threads += member->model->bytes.threads;
	model_bind(member->model, member->params, member->grads);
	if (v->all > 1)
		model_use_tensor(member->model, &member->tensor);
	return TR_OK;
}

tr_status virtual_create(struct model *m, struct tr_error *error)
{
	struct virtual_members *v = calloc(1, sizeof(*v));
	m->virtual_members = v;
	m->slots = calloc(m->room.slots + 1, sizeof(*m->slots));
	if (v == NULL || m->slots == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a model in parts");
	v->model = m;
	v->count = (unsigned)m->room.members;
	v->all = v->count * (m->room.row_parts > 1 ? (unsigned)m->room.row_parts : 1);
	tr_status status = shard_cut_init(m->layout, v->count, &v->cut, error);
	if (status == TR_OK)
		status = allocate_members(v, error);
	for (unsigned k = 0; k < v->count && status == TR_OK; k++)
		status = create_member(v, k, error);
	return status == TR_OK ? turns_create(v->count, play_member, v, &v->turns, error) : status;
}

void virtual_destroy(struct virtual_members *v)
{
	if (v == NULL)
		return;
	turns_destroy(v->turns);
	for (unsigned k = 0; k < v->count; k++)
		model_destroy(v->members[k].model);
	shard_cut_finish(&v->cut);
	free(v->memory);
	free(v);
}
