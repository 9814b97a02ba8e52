#include "daemon/worker/model.h"

#include <assert.h>

#include "daemon/worker/model_inside.h"

static size_t chunk_rows(size_t length)
{
	return length >= MODEL_CHUNK_ROWS ? length : MODEL_CHUNK_ROWS / length * length;
}

tr_status model_create_whole(const struct layout *layout, const struct model_room *how,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error)
{
	struct model_room room = { .recompute = how->recompute,
		.row_parts = how->row_parts,
		.members = how->members };
	struct model *m = NULL;
	const struct layout_depth *depth = &layout->depth;
	assert(depth->chunks == 1 && depth->embedding && depth->head);
	model_room_add(&room, layout, 0, 1);
	tr_status status = model_create_room(layout, &room, max_sequences, pool, &m, error);
	if (status != TR_OK)
		return status;
	m->whole = model_slot_take(m, 0, &(struct model_batch){ 0 }, NULL, NULL);
	*model = m;
	return TR_OK;
}

tr_status model_create(const struct layout *layout, size_t max_sequences, struct pool *pool,
    struct model **model, struct tr_error *error)
{
	return model_create_whole(layout, &(struct model_room){ 0 }, max_sequences, pool, model,
	    error);
}

void model_bind(struct model *m, const real *params, real *grads)
{
	m->params = params;
	m->grads = grads;
}

void model_use_ops(struct model *m, const struct ops *ops)
{
	m->ops = ops;
	if (m->virtual_members != NULL)
		virtual_use_ops(m, ops);
}

size_t model_exchange_numbers(const struct layout *layout, size_t max_sequences)
{
	/* [N, C], and three numbers a row for the loss (head.c). */
	return max_sequences * layout->config.context * (layout->config.width + 3);
}

void model_use_tensor(struct model *m, const struct model_tensor *tensor)
{
	if (m->virtual_members != NULL) {
		virtual_use_tensor(m, tensor);
		return;
	}
	if (model_splits_rows(m))
		assert(tensor->size == m->room.row_parts && tensor->exchange_too != NULL);
	m->tensor = tensor;
}

void model_share(const struct model *m, unsigned thread, unsigned threads, size_t *first,
    size_t *last)
{
	if (m->sequences >= threads) {
		pool_share(m->sequences, 1, thread, threads, first, last);
		return;
	}
	*first = thread < m->sequences ? thread : m->sequences;
	*last = thread < m->sequences ? *first + 1 : *first;
}

bool model_next_chunk(const struct model *m, unsigned thread, unsigned threads, size_t *next,
    struct chunk *chunk)
{
	size_t first, last, most = chunk_rows(m->length) / m->length;
	model_share(m, thread, threads, &first, &last);
	first += *next;
	if (first >= last)
		return false;
	size_t sequences = last - first < most ? last - first : most;
	*next += sequences;
	*chunk = (struct chunk){ first * m->length + m->first, sequences * m->length - m->first,
		first, sequences };
	return true;
}

bool model_next_own(const struct model *m, unsigned thread, unsigned threads, size_t *next,
    struct chunk *chunk)
{
	size_t first, last;
	if (!model_splits_rows(m))
		return model_next_chunk(m, thread, threads, next, chunk);
	pool_share(model_own_rows(m), 1, thread, threads, &first, &last);
	first += *next;
	if (first >= last)
		return false;
	size_t rows = last - first < MODEL_CHUNK_ROWS ? last - first : MODEL_CHUNK_ROWS;
	*next += rows;
	*chunk = (struct chunk){ .row = first, .rows = rows };
	return true;
}

static struct model_slot *whole_slot(struct model *m, const int32_t *inputs, const int32_t *targets,
    size_t sequences, size_t length)
{
	assert(m->whole != NULL);
	m->whole->batch = (struct model_batch){ inputs, targets, sequences, length, NULL };
	return m->whole;
}

bool model_gradient_of(struct model *m, const struct model_batch *batch,
    const struct model_hooks *hooks, double *loss_sum)
{
	assert(m->whole != NULL);
	m->whole->batch = *batch;
	return model_slot_forward(m, m->whole, hooks) && model_progress(hooks) &&
	    model_slot_backward(m, m->whole, NULL, NULL, hooks, loss_sum);
}

bool model_gradient(struct model *m, const int32_t *inputs, const int32_t *targets,
    size_t sequences, size_t length, const struct model_hooks *hooks, double *loss_sum)
{
	struct model_batch batch = { inputs, targets, sequences, length, NULL };
	return model_gradient_of(m, &batch, hooks, loss_sum);
}

bool model_loss(struct model *m, const int32_t *inputs, const int32_t *targets, size_t sequences,
    size_t length, const struct model_hooks *hooks, double *loss_sum)
{
	struct model_slot *slot = whole_slot(m, inputs, targets, sequences, length);
	return model_slot_forward(m, slot, hooks) && model_progress(hooks) &&
	    model_slot_loss(m, slot, loss_sum);
}
