#include "daemon/worker/optim.h"

#include <math.h>

#include "daemon/worker/exact_math.h"

#define OPTIM_BLOCK      4096 /* numbers whose squares are summed as one term */
#define OPTIM_BLOCKS_RUN 256  /* terms held at once */

double optim_lr(const struct optim_settings *s, uint64_t step)
{
	if (step <= s->warmup)
		return s->lr * (double)step / (double)s->warmup;
	if (step >= s->steps)
		return s->min_lr;
	double done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
	return s->min_lr + (s->lr - s->min_lr) * (1 + exact_cos_turns(done / 2)) / 2;
}

struct norm_job {
	const struct ops *ops;
	const float *x;
	size_t count, blocks;
	double terms[OPTIM_BLOCKS_RUN];
};

static void norm_part(void *arg, unsigned thread, unsigned threads)
{
	struct norm_job *job = arg;
	size_t first, last;
	pool_share(job->blocks, 1, thread, threads, &first, &last);
	for (size_t b = first; b < last; b++) {
		size_t at = b * OPTIM_BLOCK, left = job->count - at;
		job->terms[b] = job->ops->sum_squares(job->x + at,
		    left < OPTIM_BLOCK ? left : OPTIM_BLOCK);
	}
}

double optim_squares(const struct ops *ops, struct pool *pool, const float *x, size_t count)
{
	struct norm_job job = { .ops = ops };
	const size_t run = (size_t)OPTIM_BLOCK * OPTIM_BLOCKS_RUN;
	double sum = 0;
	for (size_t at = 0; at < count; at += run) {
		job.x = x + at;
		job.count = count - at < run ? count - at : run;
		job.blocks = (job.count + OPTIM_BLOCK - 1) / OPTIM_BLOCK;
		pool_run(pool, norm_part, &job);
		for (size_t b = 0; b < job.blocks; b++)
			sum += job.terms[b];
	}
	return sum;
}

double optim_norm(const struct ops *ops, struct pool *pool, const float *x, size_t count)
{
	return sqrt(optim_squares(ops, pool, x, count));
}

struct update_job {
	const struct ops *ops;
	const struct layout *layout;
	const struct optim_arrays *arrays;
	struct adamw matrix, vector;
};

static void update_part(void *arg, unsigned thread, unsigned threads)
{
	struct update_job *job = arg;
	for (size_t t = 0; t < job->layout->tensor_count; t++) {
		const struct layout_tensor *tensor = &job->layout->tensors[t];
		size_t first, last;
		pool_share(layout_numbers(tensor), OPTIM_BLOCK, thread, threads, &first, &last);
		size_t at = tensor->offset + first;
		job->ops->adamw(job->arrays->params + at, job->arrays->grads + at,
		    job->arrays->first + at, job->arrays->second + at, last - first,
		    tensor->rows > 0 ? &job->matrix : &job->vector);
	}
}

void optim_update(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_settings *s, const struct optim_arrays *arrays, double scale, double norm,
    uint64_t step, uint64_t age)
{
	if (!isfinite(norm))
		return;
	double lr = optim_lr(s, step);
	/* As torch.nn.utils.clip_grad_norm_. */
	if (s->clip > 0 && norm + 1e-6 > s->clip)
		scale *= s->clip / (norm + 1e-6);
	struct update_job job = {
		.ops = ops,
		.layout = layout,
		.arrays = arrays,
		.vector = {
			.gradient_scale = (float)scale,
			.beta1 = (float)s->beta1,
			.beta2 = (float)s->beta2,
			.eps = (float)s->eps,
			.step_size = (float)(lr / (1 - exact_power(s->beta1, age))),
			.variance_scale = (float)(1 / sqrt(1 - exact_power(s->beta2, age))),
			.keep = 1,
		},
	};
	job.matrix = job.vector;
	job.matrix.keep = (float)(1 - lr * s->weight_decay);
	pool_run(pool, update_part, &job);
}

double optim_step(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_settings *s, const struct optim_arrays *arrays, double scale, uint64_t step,
    uint64_t age)
{
	double norm = optim_norm(ops, pool, arrays->grads, layout->count) * scale;
	optim_update(ops, pool, layout, s, arrays, scale, norm, step, age);
	return norm;
}
