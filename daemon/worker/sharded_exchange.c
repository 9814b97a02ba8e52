/* Sums inside the model, over the tensor-parallel group, and with sequence parallelism their halves: each an op of its scope, in place, that is waited for at once, or after what the model computes meanwhile. The model uses two buffers in turn
 * (model_tensor.exchange_too), so with its result an op says that the one before it is done with at all members: its buffer is the next op's. */
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/worker/trainer_inside.h"

_Static_assert(TAG_MOMENTS - TAG_TENSOR == JOB_MESH_SUMS_MAX, "jobs with more are refused");

void sharded_exchange_begin(struct sharded_exchange *x, const struct sharded_scope *scope)
{
	x->used = 0;
	x->scope = scope;
	x->status = TR_OK;
}

static bool submit(struct sharded_exchange *x, const struct sharded_scope *scope, struct tr_op *op)
{
	if (x->status == TR_OK && x->used == TAG_MOMENTS - TAG_TENSOR)
		x->status = tr_error_set(&x->error, TR_ELIMIT,
		    "mesh.tp: more than %d sums in a round: set a larger train.micro_sequences, or "
		    "fewer "
		    "train.batch_tokens, train.eval_sequences or sync.inner_steps",
		    TAG_MOMENTS - TAG_TENSOR);
	if (x->status != TR_OK)
		return false;
	op->flags |= TR_IN_TURN;
	op->tag = TAG_TENSOR + x->used++;
	op->scope = (struct tr_scope){ scope->members, scope->count };
	double since_s = trainer_monotonic_s();
	x->status = tr_submit(x->group, op, &x->error);
	x->waited_s += trainer_monotonic_s() - since_s;
	return x->status == TR_OK;
}

static struct tr_op op_on(float *data, size_t count, enum tr_collective collective,
    enum tr_reduce how)
{
	struct tr_op op = TR_OP_INIT;
	op.collective = collective;
	op.output = data;
	op.count = count;
	op.reduce = how;
	return op;
}

static bool settle(struct sharded_exchange *x, uint32_t tag)
{
	double since_s = trainer_monotonic_s();
	x->status = tr_wait(x->group, tag, &x->error);
	x->waited_s += trainer_monotonic_s() - since_s;
	return x->status == TR_OK;
}

bool sharded_exchange_op(struct sharded_exchange *x, const struct sharded_scope *scope, float *data,
    size_t count, enum tr_collective collective, enum tr_reduce how, uint32_t *tag)
{
	struct tr_op op = op_on(data, count, collective, how);
	op.flags |= TR_THEN_WAIT;
	if (!submit(x, scope, &op))
		return false;
	*tag = op.tag;
	return settle(x, op.tag);
}

/* All have come to op `tag`, so they are done with what the one before it left. */
static bool release_before(struct sharded_exchange *x, uint32_t tag)
{
	if (tag > TAG_TENSOR)
		x->status = tr_release(x->group, tag - 1, &x->error);
	return x->status == TR_OK;
}

static bool exchange(struct sharded_exchange *x, float *data, size_t count,
    enum tr_collective collective, enum tr_reduce how)
{
	uint32_t tag = 0;
	return sharded_exchange_op(x, x->scope, data, count, collective, how, &tag) &&
	    release_before(x, tag);
}

bool sharded_sum_begin(void *arg, float *data, size_t count, bool scatter)
{
	struct sharded_exchange *x = arg;
	struct tr_op op = op_on(data, count, scatter ? TR_REDUCE_SCATTER : TR_ALL_REDUCE, TR_SUM);
	return submit(x, x->scope, &op);
}

bool sharded_sum_end(void *arg)
{
	struct sharded_exchange *x = arg;
	uint32_t tag = TAG_TENSOR + x->used - 1;
	return settle(x, tag) && release_before(x, tag);
}

bool sharded_sum(void *arg, float *data, size_t count)
{
	return exchange(arg, data, count, TR_ALL_REDUCE, TR_SUM);
}

bool sharded_maximum(void *arg, float *data, size_t count)
{
	return exchange(arg, data, count, TR_ALL_REDUCE, TR_MAX);
}

bool sharded_reduce_scatter(void *arg, float *data, size_t count)
{
	return exchange(arg, data, count, TR_REDUCE_SCATTER, TR_SUM);
}

bool sharded_all_gather(void *arg, float *data, size_t count)
{
	return exchange(arg, data, count, TR_ALL_GATHER, TR_SUM);
}
