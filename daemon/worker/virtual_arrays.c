/* A worker's parameters to its virtual members, and the gradients of a part of the batch from them. */
#include <string.h>

#include "daemon/worker/virtual_inside.h"

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

static void each_item(struct virtual_members *v, unsigned thread, unsigned threads,
    void (*call)(struct virtual_members *v, size_t item))
{
	size_t first, last;
	pool_share(shard_cut_tensors(&v->cut) * v->count, 1, thread, threads, &first, &last);
	for (size_t item = first; item < last; item++)
		call(v, item);
}

static void take_part(void *arg, unsigned thread, unsigned threads)
{
	each_item(arg, thread, threads, take_item);
}

void virtual_arrays_take(struct virtual_members *v)
{
	pool_run(v->model->pool, take_part, v);
	for (unsigned k = 0; k < v->count; k++)
		v->members[k].model->stale = true;
	v->model->stale = false;
}

bool virtual_arrays_is_shared(const struct virtual_members *v, size_t tensor)
{
	return v->all > 1 && tensor < v->cut.part.tensor_count &&
	    shard_cut_shared(&v->cut.part, tensor);
}

static void put_item(struct virtual_members *v, size_t item)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	const struct virtual_member *member = &v->members[item % v->count];
	size_t tensor = item / v->count;
	size_t count = virtual_arrays_is_shared(v, tensor)
	    ? 0
	    : shard_cut_pieces(&v->cut, member->number, tensor, true, pieces);
	for (size_t i = 0; i < count; i++)
		copy_piece(&pieces[i], member->grads + pieces[i].local, pieces[i].local_stride,
		    v->model->grads + pieces[i].whole, pieces[i].whole_stride);
}

static void put_part(void *arg, unsigned thread, unsigned threads)
{
	each_item(arg, thread, threads, put_item);
}

/* What all hold: the tree over the members here, into v->shared. */
static void add_shared(struct virtual_members *v)
{
	size_t at = 0;
	v->meeting = VIRTUAL_SUM;
	for (size_t i = 0; i < v->cut.part.tensor_count; i++) {
		const struct layout_tensor *tensor = &v->cut.part.tensors[i];
		size_t numbers = layout_numbers(tensor);
		if (!virtual_arrays_is_shared(v, i))
			continue;
		for (unsigned k = 0; k < v->count; k++)
			v->members[k].given = v->members[k].grads + tensor->offset;
		virtual_meeting_add(v, 0, numbers);
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
		real *half = virtual_meeting_half(v);
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
		if (!virtual_arrays_is_shared(v, i))
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
