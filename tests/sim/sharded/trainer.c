/* The rest of the trainer (trainer_inside.h), as little as its sharded part
 * needs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/available.h"
#include "tests/sim/sharded/play.h"

uint64_t play_step(const struct tr_group *g)
{
	return g->trainer != NULL && g->trainer->counters != NULL ? g->trainer->counters->step : 0;
}

/* ---- made and unmade ---- */

static Traind__V1__Checkpoint checkpoint = { .every = PLAY_CHECKPOINTS };
static Traind__V1__Optimizer optimizer = { .seed = 1 },
                             strict_optimizer = { .seed = 1, .strict = true };
static const Traind__V1__TrainSpec spec = { .optimizer = &optimizer, .checkpoint = &checkpoint },
                                   strict_spec = { .optimizer = &strict_optimizer,
	                                   .checkpoint = &checkpoint };

static Traind__V1__Checkpoint rare_checkpoint = { .every = 2 * PLAY_CHECKPOINTS };
static const Traind__V1__TrainSpec replan_spec = { .optimizer = &optimizer,
	.checkpoint = &rare_checkpoint };

static Traind__V1__Checkpoint apart_checkpoint = { .every = PLAY_INNER_STEPS };
static Traind__V1__Optimizer apart_optimizer = { .seed = 1,
	.batch_tokens = PLAY_BATCH,
	.eval_every = 2 * PLAY_INNER_STEPS };
static Traind__V1__Model apart_model = { .layers = 2, .context = 1 };
static char diloco[] = "diloco", hdet[] = "hdet", int2[] = "int2"; /* which has error feedback */

/* How replicas train apart: [rates][by steps, by speed, by time]. Losses of the reference differ by whole numbers; it has an outer momentum. */
#define BY_STEPS .inner_steps = PLAY_INNER_STEPS
#define BY_SPEED BY_STEPS, .by_speed = true, .codec = int2
#define BY_TIME  .inner_seconds = PLAY_INNER_SECONDS
#define RATES    .mode = hdet, .outer_momentum = 0.5, .lr_temperature = 5
static Traind__V1__Sync syncs[2][3] = {
	{ { .mode = diloco, BY_STEPS }, { .mode = diloco, BY_SPEED }, { .mode = diloco, BY_TIME } },
	{ { RATES, BY_STEPS }, { RATES, BY_SPEED }, { RATES, BY_TIME } }
};

#define APART(rates, by)                                                   \
	{                                                                  \
		.model = &apart_model, .optimizer = &apart_optimizer,      \
		.checkpoint = &apart_checkpoint, .sync = &syncs[rates][by] \
	}
static const Traind__V1__TrainSpec apart_specs[2][3] = { { APART(0, 0), APART(0, 1), APART(0, 2) },
	{ APART(1, 0), APART(1, 1), APART(1, 2) } };

/* Two fragments: takes 2, 4, 6, merges 3, 5, 7. Three: 2, 4, 6 and 4, 6, 8. Eager: 3, 6, 9 and 6, 9, 12. */
static char streaming[] = "streaming", eager[] = "eager";
static Traind__V1__Sync streams[PLAY_STREAM_KINDS] = {
	[PLAY_STREAM_FRAGMENTS] = { .mode = streaming,
	    .inner_steps = 4,
	    .fragments = 2,
	    .overlap = 1,
	    .codec = int2 },
	[PLAY_STREAM_CARRY] = { .mode = streaming,
	    .inner_steps = 6,
	    .fragments = 3,
	    .overlap = 2,
	    .carry = true },
	[PLAY_STREAM_EAGER] = { .mode = eager, .inner_steps = PLAY_INNER_STEPS },
};
#define STREAMS(kind)                                                   \
	{                                                               \
		.model = &apart_model, .optimizer = &apart_optimizer,   \
		.checkpoint = &apart_checkpoint, .sync = &streams[kind] \
	}
static const Traind__V1__TrainSpec stream_specs[PLAY_STREAM_KINDS] = {
	[PLAY_STREAM_FRAGMENTS] = STREAMS(PLAY_STREAM_FRAGMENTS),
	[PLAY_STREAM_CARRY] = STREAMS(PLAY_STREAM_CARRY),
	[PLAY_STREAM_EAGER] = STREAMS(PLAY_STREAM_EAGER),
};

static const Traind__V1__TrainSpec *spec_of(const struct play_case *what)
{
	if (what->stream != PLAY_STREAM_NONE)
		return &stream_specs[what->stream];
	if (what->apart)
		return &apart_specs[what->rates][what->timed ? 2 : what->by_speed];
	return what->strict ? &strict_spec : what->replans ? &replan_spec : &spec;
}

static const struct ops loops = { .sum_squares = model_squares };

static void must(tr_status status, const struct tr_error *error)
{
	if (status == TR_OK)
		return;
	(void)fprintf(stderr, "%s\n", error->text);
	abort();
}

/* Many, and more than they could save. */
#define STEPS_LEFT  1000000
#define FOR_EVER_NS (UINT64_MAX / 4)

static const Traind__V1__Mesh *schedule_of(struct play *play)
{
	static char gpipe[] = "gpipe";
	if (play->what.chunks < 2 && !play->what.gpipe)
		return NULL;
	traind__v1__mesh__init(&play->schedule);
	play->schedule.workers_per_node = 1;
	play->schedule.chunks = play->what.chunks;
	if (play->what.gpipe)
		play->schedule.schedule = gpipe;
	return &play->schedule;
}

struct trainer *play_trainer_create(struct tr_group *g)
{
	struct tr_error error = { .text = "" };
	struct trainer *t = calloc(1, sizeof(*t));
	struct play *play = g->play;
	if (t == NULL)
		abort();
	t->group = g;
	t->spec = spec_of(&play->what);
	t->settings.lr = 1;
	t->mesh_waits = play->what.apart && !play->what.smaller;
	/* Streams have merges at their last step, and last rounds behind them; checkpoints in shards rounds for the last one. */
	t->steps = play->what.stream != PLAY_STREAM_NONE ||
	        (play->what.in_shards && !play->what.settles)
	    ? play->what.steps
	    : UINT64_C(1) << 53; /* the most that there may be */
	t->batch = play->reference.batch;
	t->micro = 1;
	t->threads = 1;
	t->dealing = play->what.dealing;
	t->dealing.mesh = play->what.mesh;
	t->mesh_spec = schedule_of(play);
	t->strict = play->what.strict;
	t->sequence_parallel = play->what.sequence_parallel;
	t->recompute = play->what.recompute;
	t->ops = &loops;
	t->balances = play->what.balances || play->what.replans;
	t->drift_steps = 1;
	t->planned_step_s = play->what.replans ? 1e-6 : 0;
	t->zero_owners = play->what.owners;
	t->copies = play->what.copies > 0 ? play->what.copies : 1;
	t->samples.validation = PLAY_VALIDATION;
	t->samples_log = -1;
	(void)snprintf(t->folder.dir, sizeof(t->folder.dir), "disk");
	t->folder.keep = 1;
	t->counters = tr_alloc(g, sizeof(*t->counters));
	t->sums = tr_alloc(g, sizeof(*t->sums));
	t->account = tr_alloc(g, sizeof(*t->account));
	t->numbers = calloc(t->batch + 1, sizeof(*t->numbers));
	must(layout_init(&play->reference.layout.config, &t->layout, &error), &error);
	must(sharded_create(t, &error), &error);
	t->sharded->in_shards = play->what.in_shards;
	must(sharded_attach(t, &error), &error);
	t->sharded->newcomer_least = 1;
	t->sharded->fetch_bytes = 128;
	if (t->sharded->apart != NULL)
		t->sharded->apart->steps_most = PLAY_INNER_STEPS;
	if (play->what.newcomer_parts > 0)
		t->sharded->newcomer_parts = play->what.newcomer_parts;
	if (play->what.trial_steps > 0)
		t->sharded->trial_steps = play->what.trial_steps;
	if (play->what.declines) {
		t->steps = STEPS_LEFT;
		t->sharded->state->pace.change_ns = t->sharded->state->pace.fill_ns = FOR_EVER_NS;
	}
	must(sharded_declare(t, &error), &error);
	return t;
}

void play_trainer_destroy(struct trainer *t)
{
	sharded_destroy(t);
	free(t->numbers);
	free(t);
}

tr_status trainer_choose_arithmetic(struct trainer *t, struct tr_error *error)
{
	(void)t;
	(void)error;
	return TR_OK;
}

/* ---- samples ---- */

/* A mistake on purpose. */
static uint64_t planted(uint64_t sample)
{
	struct tr_group *g = group_inside();
	if (g->play->what.plant != PLAY_PLANT_TWICE || play_step(g) != 3 || g->number != 0)
		return sample;
	g->play->planted = true;
	return sample | 1;
}

static size_t rows_here(void)
{
	return group_inside()->play->reference.rows;
}

void samples_get(const struct samples *samples, uint64_t index, int32_t *inputs, int32_t *targets)
{
	(void)samples;
	play_samples(planted(index), rows_here(), inputs, targets);
}

void samples_get_validation(const struct samples *samples, uint64_t index, int32_t *inputs,
    int32_t *targets)
{
	(void)samples;
	play_samples(PLAY_VALIDATION_FIRST + index, rows_here(), inputs, targets);
}

static bool pass(struct trainer *t, uint64_t sample, bool train, const struct model_hooks *hooks,
    double *loss)
{
	int32_t inputs[PLAY_ROWS_MAX], targets[PLAY_ROWS_MAX];
	struct model_batch batch = { inputs, targets, 1, rows_here(), NULL };
	play_samples(sample, rows_here(), inputs, targets);
	struct model_slot *slot = model_slot_take(t->model, 0, &batch, NULL, NULL);
	bool good = model_slot_forward(t->model, slot, hooks) &&
	    (train ? model_slot_backward(t->model, slot, NULL, NULL, hooks, loss)
	           : model_slot_loss(t->model, slot, loss));
	model_slot_give(t->model, slot);
	return good;
}

bool trainer_gradient(struct trainer *t, size_t count, const struct model_hooks *hooks)
{
	struct model_hooks before = { hooks->progress, NULL, hooks->arg };
	for (size_t i = 0; i < count; i++) {
		double loss = 0;
		if (!pass(t, planted(t->numbers[i]), true, i + 1 == count ? hooks : &before, &loss))
			return false;
		t->sums->loss += loss;
		t->sums->loss_tokens += (double)rows_here();
	}
	return true;
}

bool trainer_validate(struct trainer *t, unsigned index, unsigned contributors,
    const struct model_hooks *hooks)
{
	for (uint64_t i = index; i < PLAY_VALIDATION; i += contributors) {
		double loss = 0;
		if (!pass(t, PLAY_VALIDATION_FIRST + i, false, hooks, &loss))
			return false;
		t->sums->validation += loss;
		t->sums->validation_tokens += (double)rows_here();
	}
	return true;
}

bool trainer_validates(const struct trainer *t, uint64_t step)
{
	(void)t;
	return step % PLAY_VALIDATES == 0;
}

double trainer_validation_loss(const struct trainer *t)
{
	return t->sums->validation;
}

/* ---- the optimizer: S2 ---- */

double optim_squares(const struct ops *ops, struct pool *pool, const float *x, size_t count)
{
	(void)ops;
	(void)pool;
	return model_squares(x, count);
}

/* This step's norm, as all must have it. */
static void check_norm(struct tr_group *g, const struct optim_by *by)
{
	const struct play_state *state = reference_at(g->play, by->step - 1);
	double sum = by->norm / by->scale, squares = (double)(uint64_t)(sum * sum + 0.5);
	if (squares != state->squares)
		sim_violation(g->sim, "S2: n%u, step %lu: the gradient's squares are %g, not %g",
		    g->number, (unsigned long)by->step, squares, state->squares);
}

/* Their sums may still be under way before the commit, or be told part by part. */
static void check_losses(struct tr_group *g, uint64_t step)
{
	const struct trainer *t = g->trainer;
	const struct sharded_sums *sums = t->sharded->sums;
	const struct play_state *state = reference_at(g->play, step - 1);
	double tokens = (double)t->batch * t->layout.config.context;
	if (sums->loss != state->loss || sums->tokens != tokens)
		sim_violation(g->sim, "S2: n%u, step %lu: loss %g of %g samples, one worker has %g",
		    g->number, (unsigned long)step, sums->loss, sums->tokens, state->loss);
	if (trainer_validates(t, step) && t->sums->validation != state->validation)
		sim_violation(g->sim, "S2: n%u, step %lu: validation %g, one worker has %g",
		    g->number, (unsigned long)step, t->sums->validation, state->validation);
}

static void check_before(struct tr_group *g, const struct optim_arrays *arrays,
    const struct optim_by *by, size_t first, size_t end)
{
	check_norm(g, by);
	reference_check_moments(g, by->step - 1, arrays, first, end);
	reference_check_gradients(g, by->step - 1, arrays, first, end);
}

/* A mistake on purpose: nobody looks at it before the shard is whole. */
static void plant_met(struct tr_group *g, const struct optim_arrays *arrays, size_t end)
{
	const struct trainer *t = g->trainer;
	if (g->play->what.plant != PLAY_PLANT_MET || g->play->planted ||
	    t->sharded->rank != RANKS_NONE || end < t->layout.count)
		return;
	arrays->second[0] += 1;
	g->play->planted = true;
}

void optim_update_range(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, const struct optim_by *by, size_t first, size_t end)
{
	struct tr_group *g = group_inside();
	(void)ops;
	(void)pool;
	(void)layout;
	if (g->play->apart != NULL) {
		apart_update(g, arrays, by, first, end);
		return;
	}
	check_before(g, arrays, by, first, end);
	check_losses(g, by->step);
	reference_check_parameters(g, by->step - 1, arrays, first, end);
	model_update(arrays->params + first, arrays->first + first, arrays->second + first,
	    arrays->grads + first, end - first, by->step);
	reference_check_moments(g, by->step, arrays, first, end);
	plant_met(g, arrays, end);
}

/* A mistake on purpose. */
static void plant_new(struct tr_group *g, float *made, size_t count)
{
	if (g->play->what.plant != PLAY_PLANT_NEW || count == 0 || g->number != 1)
		return;
	made[0] += 1;
	g->play->planted = true;
}

void optim_update_beside(const struct ops *ops, struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, const struct optim_by *by, size_t first, size_t end,
    float *made)
{
	struct tr_group *g = group_inside();
	size_t count = end - first;
	float *moments = calloc(2 * count + 1, sizeof(*moments));
	(void)ops;
	(void)pool;
	if (moments == NULL)
		abort();
	check_before(g, arrays, by, first, end);
	reference_check_parameters(g, by->step - 1, arrays, 0, layout->count);
	memcpy(made, arrays->params + first, count * sizeof(float));
	memcpy(moments, arrays->first + first, count * sizeof(float));
	memcpy(moments + count, arrays->second + first, count * sizeof(float));
	model_update(made, moments, moments + count, arrays->grads + first, count, by->step);
	plant_new(g, made, count);
	free(moments);
}

void model_init_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, uint64_t seed, const struct progress *progress, float *params)
{
	(void)seed;
	(void)progress;
	shard_take(whole, local, shard, reference_at(group_inside()->play, 0)->params, params);
}

/* ---- what is told ---- */

void trainer_account_note(struct trainer *t, uint64_t round, size_t count)
{
	(void)t;
	(void)round;
	(void)count;
}

/* Of those that lead to the job's step; by time a merge has any number of steps. */
static uint64_t merges_by_now(const struct trainer *t)
{
	const struct sharded_apart *a = t->sharded->apart;
	uint64_t each = a->options.inner_steps;
	if (a->stream.on)
		return t->sharded->state->merges;
	return a->options.inner_seconds > 0 ? t->sharded->state->costs.merges
	                                    : (t->counters->step + each - 1) / each;
}

/* What the others' steps took is no time of a merge, and what was undone is none. */
static void check_costs(struct trainer *t)
{
	const struct apart_part *part = t->sharded->apart != NULL ? sharded_apart_part(t) : NULL;
	if (t->sharded->apart != NULL && t->sharded->state->costs.merges != merges_by_now(t))
		sim_violation(t->group->sim, "S2: n%u counts %lu merges up to step %lu, not %lu",
		    t->group->number, (unsigned long)t->sharded->state->costs.merges,
		    (unsigned long)t->counters->step, (unsigned long)merges_by_now(t));
	if (part != NULL && !part->trains && t->sharded->apart->said.flight_s > 0)
		sim_violation(t->group->sim, "S2: n%u sat a merge out, and says it took %g s",
		    t->group->number, t->sharded->apart->said.flight_s);
}

void trainer_account_tell(struct trainer *t, const struct tr_round *round, bool last)
{
	(void)round;
	if (!last) /* which is no merge: who trained in the newest one may have no part in it */
		check_costs(t);
	stream_applied(t->group);
}

/* Its checkpoints have a disk of their own (disk.c). */
tr_status trainer_first_round(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	(void)error;
	if (t->account->round == 0)
		trainer_account_tell(t, round, false);
	return TR_OK;
}

/* Nobody asks, since all is there at once: it is counted. */
static void gets_on(void *arg)
{
	((struct play *)arg)->told++;
}

struct progress trainer_progress(const struct trainer *t)
{
	return (struct progress){ gets_on, t->group->play, NULL };
}

double trainer_monotonic_s(void)
{
	return 1e-6 * (double)group_inside()->sim->now_us;
}

double available_bytes(void)
{
	return INFINITY;
}

/* A step is done: what was updated here, and what others did. */
void trainer_measure_speed(struct trainer *t)
{
	if (t->sharded->rank != RANKS_NONE && t->sharded->apart == NULL)
		reference_check_parameters(t->group, t->counters->step, &t->arrays, 0,
		    t->layout.count);
}

void trainer_report_event(struct trainer *t, const char *text)
{
	t->group->play->passed_by += strstr(text, "is taken instead") != NULL;
	t->group->play->sat_out += strstr(text, "its shards came while they trained") != NULL;
	sim_trace(t->group->sim, "n%u: %s", t->group->number, text);
	if (t->group->play->what.differs == 0 && strncmp(text, "mesh: ", 6) != 0 &&
	    strstr(text, "other numbers than") != NULL)
		sim_violation(t->group->sim, "S2: n%u: %s", t->group->number, text);
}

void trainer_report_step(struct trainer *t, const struct tr_round *round, double loss,
    double val_loss, double grad_norm)
{
	(void)val_loss;
	(void)grad_norm;
	if (round->index == 0)
		sim_trace(t->group->sim, "n%u: step %lu in round %lu, loss %g", t->group->number,
		    (unsigned long)t->counters->step, (unsigned long)round->round, loss);
}

void trainer_report_end(struct trainer *t, const struct tr_round *round)
{
	trainer_report_step(t, round, NAN, NAN, NAN);
}

void trainer_skip_step(struct trainer *t, const struct tr_round *round, uint64_t step,
    const char *why)
{
	(void)round;
	sim_violation(t->group->sim, "S2: step %lu is skipped: %s", (unsigned long)step, why);
}

void trainer_write_final(struct trainer *t, const struct trainer_final *what)
{
	(void)what;
	if (t->group->play->what.stream == PLAY_STREAM_NONE || !stream_is_done(t))
		sim_violation(t->group->sim, "S3: a last round, before the last step");
}

uint64_t trainer_end_save(struct trainer *t)
{
	struct tr_group *g = t->group;
	if (g->saves != 0 && g->saves_at_us > g->sim->now_us)
		group_takes(g, g->saves_at_us - g->sim->now_us);
	return trainer_finish_checkpoint(t);
}

bool trainer_wants_sample(const struct trainer *t)
{
	(void)t;
	return false;
}
