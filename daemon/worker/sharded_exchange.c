/* Sums inside the model, over the tensor-parallel group: each an op of its scope that is waited for at once. */
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

struct sharded_buffer {
	float *data;
	size_t numbers;
};

void sharded_exchange_begin(struct sharded_exchange *x, const struct sharded_scope *scope)
{
	x->used = 0;
	x->scope = scope;
	x->status = TR_OK;
}

static struct sharded_buffer *grow(struct sharded_exchange *x)
{
	size_t room = x->room > 0 ? 2 * x->room : 64;
	struct sharded_buffer *grown = realloc(x->buffers, room * sizeof(*grown));
	if (grown == NULL)
		return NULL;
	memset(grown + x->room, 0, (room - x->room) * sizeof(*grown));
	x->buffers = grown;
	x->room = room;
	return grown;
}

/* Memory for the next op: an op's buffer is borrowed until its round is decided. NULL: there is none. */
static float *next_buffer(struct sharded_exchange *x, size_t numbers)
{
	if (x->used == x->room && grow(x) == NULL)
		return NULL;
	struct sharded_buffer *b = &x->buffers[x->used];
	if (b->numbers < numbers) { /* what was smaller stays with the group */
		b->data = tr_alloc(x->group, numbers * sizeof(float));
		b->numbers = b->data != NULL ? numbers : 0;
	}
	return b->data;
}

static bool reduce(struct sharded_exchange *x, float *data, size_t count, enum tr_reduce how)
{
	if (x->status != TR_OK)
		return false;
	float *buffer = next_buffer(x, count);
	if (buffer == NULL) {
		x->status = tr_error_set(&x->error, TR_ENOMEM,
		    "mesh.tp: no shared memory for a sum of %zu numbers", count);
		return false;
	}
	struct tr_op op = TR_OP_INIT;
	op.tag = TAG_TENSOR + (uint32_t)x->used++;
	op.output = memcpy(buffer, data, count * sizeof(float));
	op.count = count;
	op.reduce = how;
	op.scope = (struct tr_scope){ x->scope->members, x->scope->count };
	x->status = tr_submit(x->group, &op, &x->error);
	if (x->status == TR_OK)
		x->status = tr_wait(x->group, op.tag, &x->error);
	if (x->status == TR_OK)
		memcpy(data, buffer, count * sizeof(float));
	return x->status == TR_OK;
}

bool sharded_sum(void *arg, float *data, size_t count)
{
	return reduce(arg, data, count, TR_SUM);
}

bool sharded_maximum(void *arg, float *data, size_t count)
{
	return reduce(arg, data, count, TR_MAX);
}
