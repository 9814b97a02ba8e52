#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/virtual_inside.h"

enum { VIRTUAL_ALIGN = 64 }; /* bytes */

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
		v->members[k].tensor.rank = v->members[k].tensor.place = virtual_first(v) + k;
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
		virtual_arrays_take(m->virtual_members);
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

tr_status virtual_use_dropout(struct model *m, double share, uint64_t seed, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (unsigned k = 0; k < m->virtual_members->count && status == TR_OK; k++) {
		struct model *member = m->virtual_members->members[k].model;
		size_t before = member->bytes.working;
		status = model_use_dropout(member, share, seed, error);
		member->dropout.depth = &m->layout->depth; /* its own has layers from 0 on */
		m->bytes.working += member->bytes.working - before;
	}
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
		if (virtual_arrays_is_shared(v, i))
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
	virtual_meeting_use(&member->tensor, member);
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
