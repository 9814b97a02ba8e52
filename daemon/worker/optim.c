#include "daemon/worker/optim.h"

#include <math.h>
#include <string.h>

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
	size_t first, end;
	float *made; /* of [first, end); NULL: in place */
	struct adamw matrix, vector;
};

/* Numbers [at, at + count), beside what they are. */
static void update_beside(const struct update_job *job, size_t at, size_t count,
    const struct adamw *by)
{
	float first[OPTIM_BLOCK], second[OPTIM_BLOCK];
	for (size_t done = 0, n; done < count; done += n) {
		size_t from = at + done;
		n = count - done < OPTIM_BLOCK ? count - done : OPTIM_BLOCK;
		memcpy(first, job->arrays->first + from, n * sizeof(float));
		memcpy(second, job->arrays->second + from, n * sizeof(float));
		job->ops->adamw(job->made + (from - job->first), job->arrays->grads + from, first,
		    second, n, by);
	}
}

static void update_part(void *arg, unsigned thread, unsigned threads)
{
	const struct update_job *job = arg;
	for (size_t t = 0; t < job->layout->tensor_count; t++) {
		const struct layout_tensor *tensor = &job->layout->tensors[t];
		size_t begin = tensor->offset, end = begin + layout_numbers(tensor), first, last;
		begin = begin > job->first ? begin : job->first;
		end = end < job->end ? end : job->end;
		if (begin >= end)
			continue;
		pool_share(end - begin, OPTIM_BLOCK, thread, threads, &first, &last);
		const struct adamw *by = tensor->rows > 0 ? &job->matrix : &job->vector;
		size_t at = begin + first;
		if (job->made != NULL)
			update_beside(job, at, last - first, by);
		else
			job->ops->adamw(job->arrays->params + at, job->arrays->grads + at,
			    job->arrays->first + at, job->arrays->second + at, last - first, by);
	}
}

static void set_factors(struct update_job *job, const struct optim_by *by)
{
	const struct optim_settings *s = by->settings;
	double lr = optim_lr(s, by->step), scale = by->scale;
	/* As torch.nn.utils.clip_grad_norm_. */
	if (s->clip > 0 && by->norm + 1e-6 > s->clip)
		scale *= s->clip / (by->norm + 1e-6);
	job->vector = (struct adamw){
		.gradient_scale = (float)scale,
		.beta2 = (float)s->beta2,
		.eps = (float)s->eps,
		.first_share = (float)(1 - s->beta1),
		.second_share = (float)(1 - s->beta2),
		.step_size = (float)(lr / (1 - exact_power(s->beta1, by->age))),
		.variance_scale = (float)(1 / sqrt(1 - exact_power(s->beta2, by->age))),
		.keep = 1,
	};
	job->matrix = job->vector;
	job->matrix.keep = (float)(1 - lr * s->weight_decay);
}

void optim_update_range(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, const struct optim_by *by, size_t first, size_t end)
{
	struct update_job job = { ops, layout, arrays, first, end, .made = NULL };
	if (!isfinite(by->norm))
		return;
	set_factors(&job, by);
	pool_run(pool, update_part, &job);
}

void optim_update_beside(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, const struct optim_by *by, size_t first, size_t end,
    float *made)
{
	struct update_job job = { ops, layout, arrays, first, end, .made = made };
	memcpy(made, arrays->params + first, (end - first) * sizeof(float));
	if (!isfinite(by->norm))
		return;
	set_factors(&job, by);
	pool_run(pool, update_part, &job);
}

double optim_step(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_settings *s, const struct optim_arrays *arrays, double scale, uint64_t step,
    uint64_t age)
{
	const struct optim_by by = { s, scale,
		optim_norm(ops, pool, arrays->grads, layout->count) * scale, step, age };
	optim_update_range(ops, pool, layout, arrays, &by, 0, layout->count);
	return by.norm;
}
