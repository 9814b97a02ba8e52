#include "daemon/plan/job_sync.h"

#include <math.h>
#include <string.h>

#define RACE_STEPS_LEAST 250

/* Place of `name` in `names`, of "" or NULL the first; `count`: it is not among them. */
static unsigned place(const char *name, const char *const *names, unsigned count)
{
	unsigned at = 0;
	if (name == NULL || name[0] == '\0')
		return 0;
	while (at < count && strcmp(name, names[at]) != 0)
		at++;
	return at;
}

bool job_sync_is_rare(const Traind__V1__Sync *sync)
{
	return sync != NULL && sync->mode != NULL && sync->mode[0] != '\0' &&
	    strcmp(sync->mode, "ddp") != 0;
}

/* A little more than the warm-up: what a race compares is what a rate does at its full height. In its first hundred steps a model learns little more than how often each token is there, at any rate. */
static uint64_t race_steps(const Traind__V1__TrainSpec *spec, uint64_t steps)
{
	double most = 0.1 * (double)steps,
	       wanted = fmax(fmax(0.03 * (double)steps, RACE_STEPS_LEAST),
	           1.15 * (double)spec->optimizer->warmup);
	return (uint64_t)ceil(fmin(wanted, most));
}

tr_status job_sync_options(const Traind__V1__TrainSpec *spec, uint64_t steps,
    struct tr_sync_options *options, struct tr_error *error)
{
	static const char *const modes[] = { "", "local_sgd", "diloco", "streaming", "eager",
		"hdet" };
	static const char *const codecs[] = { "none", "bf16", "int8", "int4", "e3m0", "int2" };
	const Traind__V1__Sync *sync = spec->sync;
	static const char *const weights[] = { "root", "tokens" };
	struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;
	o.mode = (enum tr_sync_mode)place(sync->mode, modes, sizeof(modes) / sizeof(modes[0]));
	o.codec = (enum tr_codec)place(sync->codec, codecs, sizeof(codecs) / sizeof(codecs[0]));
	o.steps = steps;
	o.inner_steps = sync->inner_steps;
	o.outer_lr = sync->outer_lr;
	o.fragments = sync->fragments;
	/* In a job 0 is "unset", here a negative number is; in both -1 and 0 change places for feedback. */
	o.outer_momentum = sync->outer_momentum > 0 ? sync->outer_momentum : -1;
	o.overlap = sync->overlap > 0 ? (int64_t)sync->overlap : -1;
	o.alpha = sync->alpha > 0 ? sync->alpha : -1;
	o.carry = sync->carry;
	o.feedback = sync->feedback > 0 ? sync->feedback : sync->feedback < 0 ? 0 : -1;
	o.lr_spread = sync->lr_spread;
	o.lr_momentum = sync->lr_momentum > 0 ? sync->lr_momentum : -1;
	o.lr_step = sync->lr_step > 0 ? sync->lr_step : -1;
	o.lr_decay = sync->lr_decay;
	o.lr_temperature = sync->lr_temperature;
	o.lr_search = sync->lr_search;
	o.lr_race_steps = sync->lr_search ? race_steps(spec, steps) : 0;
	o.inner_seconds = sync->inner_seconds;
	o.by_speed = sync->by_speed;
	o.share_by_speed = sync->share_by_speed;
	o.weights = (enum tr_sync_weights)place(sync->weights, weights,
	    sizeof(weights) / sizeof(weights[0]));
	o.grace_seconds = sync->grace_seconds;
	o.quorum = sync->quorum;
	o.alone_steps = sync->alone_steps;
	o.alone_after_seconds = sync->alone_after_seconds;
	o.seed = spec->optimizer->seed;
	o.batch = spec->model->context > 0 ? spec->optimizer->batch_tokens / spec->model->context
	                                   : 0;
	*options = o;
	return tr_sync_complete(options, job_sync_layers(spec->model), error);
}

uint64_t job_sync_merges(const Traind__V1__TrainSpec *spec, uint64_t steps)
{
	struct tr_sync_options o;
	if (!job_sync_is_rare(spec->sync) || spec->optimizer == NULL || spec->model == NULL ||
	    job_sync_options(spec, steps, &o, NULL) != TR_OK)
		return 0;
	return tr_sync_merges(&o);
}
