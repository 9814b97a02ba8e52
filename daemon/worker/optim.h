/* AdamW, its schedule and the clipping of gradients. The bits of an update do not depend on threads
 * or on the processor, so replicas that hold the same gradients stay equal.
 */
#ifndef TR_DAEMON_WORKER_OPTIM_H
#define TR_DAEMON_WORKER_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/checkpoint/layout.h"
#include "daemon/worker/ops.h"
#include "daemon/worker/pool.h"

struct optim_settings {
	double lr, min_lr;
	double clip; /* 0: none */
	double weight_decay, beta1, beta2, eps;
	uint64_t steps, warmup;
};

/* Learning rate of step 1..steps: linear warm-up, then a cosine that reaches min_lr at the last
 * step. */
double optim_lr(const struct optim_settings *settings, uint64_t step);

/* Sum of squares, in f64, in an order that depends on `count` only; its square root. */
double optim_squares(const struct ops *ops, struct pool *pool, const float *x, size_t count);
double optim_norm(const struct ops *ops, struct pool *pool, const float *x, size_t count);

/* Step `step` (from 1) of the schedule. grads are sums; the gradient is grads * scale (1 / tokens). `age`: gradients in the moments, this one
 * included; equal to `step` unless the moments began later. Returns its norm before clipping. Vectors (norms, biases) are not decayed. */
double optim_step(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_settings *settings, const struct optim_arrays *arrays, double scale,
    uint64_t step, uint64_t age);
/* Of the gradient, of which `grads` may be a part: its norm, times `scale`. */
struct optim_by {
	const struct optim_settings *settings;
	double scale, norm;
	uint64_t step, age;
};
/* As optim_step, of numbers [first, end) of the arrays alone: the same bits as the whole has there. Nothing is changed if the norm is not finite. */
void optim_update_range(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, const struct optim_by *by, size_t first, size_t end);
/* What that would make of params [first, end), into made[end - first]: arrays stay as they are. */
void optim_update_beside(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, const struct optim_by *by, size_t first, size_t end,
    float *made);

#endif
