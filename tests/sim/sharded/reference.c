/* What one worker learns: each step from the one before, on the whole layout.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sharded/play.h"

void model_update(float *params, float *first, float *second, const float *grads, size_t count,
    uint64_t step)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t g = (uint64_t)grads[i] % PLAY_PRIME;
		params[i] = (float)(((uint64_t)params[i] * 5 + g * (step % 7 + 1)) % PLAY_PRIME);
		first[i] = (float)(((uint64_t)first[i] + g) % PLAY_PRIME);
		second[i] = (float)(((uint64_t)second[i] * 3 + g) % PLAY_PRIME);
	}
}

double model_squares(const float *grads, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++) {
		double g = (double)((uint64_t)grads[i] % PLAY_PRIME);
		sum += g * g;
	}
	return sum;
}

void play_samples(uint64_t sample, size_t rows, int32_t *inputs, int32_t *targets)
{
	for (size_t row = 0; row < rows; row++) {
		inputs[row] = (int32_t)((sample + 37 * row) % 1000);
		targets[row] = (int32_t)((sample * 13 + 11 * row) % 50);
	}
}

static float *numbers(const struct play_reference *r)
{
	float *made = calloc(r->layout.count, sizeof(*made));
	if (made == NULL)
		abort();
	return made;
}

static void add_state(struct play_reference *r)
{
	struct play_state *state = &r->states[r->known++];
	*state = (struct play_state){ .params = numbers(r),
		.first = numbers(r),
		.second = numbers(r),
		.grads = numbers(r) };
}

void reference_create(struct play *play)
{
	const struct mesh *mesh = &play->what.mesh;
	struct play_reference *r = &play->reference;
	uint32_t tp = mesh->size[MESH_TP], heads = tp == 4 || tp == 5 ? tp : 6;
	uint32_t pp = mesh->size[MESH_PP], chunks = play->what.chunks > 1 ? play->what.chunks : 1;
	r->batch = mesh->size[MESH_DP] > PLAY_BATCH ? PLAY_BATCH_MOST : PLAY_BATCH;
	if (play->what.batch > 0)
		r->batch = play->what.batch;
	struct model_config config = { .preset = play->what.preset,
		.layers = pp > 1 ? pp * chunks + 1 : 2,
		.width = 2 * heads,
		.heads = heads,
		.hidden = 2 * heads,
		.context = 1,
		.vocab = 13, /* which no tp divides */
		.untied = play->what.untied };
	struct tr_error error;
	if (play->what.shared_heads)
		config.kv_heads = tp > 2 ? tp : 2;
	if (play->what.sequence_parallel)
		config.context = tp;
	r->rows = config.context;
	if (play->what.strict &&
	    tp > 1) { /* the width in four parts; a batch has one row of each context */
		config.heads = 4;
		config.width = config.hidden = 8;
		config.context = 4;
		config.vocab = 16;
	}
	if (layout_init(&config, &r->layout, &error) != TR_OK) {
		sim_violation(play->sim, "%s", error.text);
		return;
	}
	add_state(r);
	for (size_t t = 0; t < r->layout.tensor_count; t++) {
		size_t first = r->layout.tensors[t].offset;
		for (size_t i = 0; i < layout_numbers(&r->layout.tensors[t]); i++)
			r->states[0].params[first + i] = model_first_number(first + i);
	}
	model_of_step(r, 0);
}

void reference_finish(struct play_reference *r)
{
	for (uint64_t i = 0; i < r->known; i++) {
		free(r->states[i].params);
		free(r->states[i].first);
		free(r->states[i].second);
		free(r->states[i].grads);
	}
	layout_finish(&r->layout);
	r->known = 0;
}

const struct play_state *reference_at(struct play *play, uint64_t step)
{
	struct play_reference *r = &play->reference;
	size_t bytes = r->layout.count * sizeof(float);
	if (step + 1 >= PLAY_STEPS_MAX)
		abort();
	while (r->known <= step) {
		uint64_t before = r->known - 1;
		add_state(r);
		struct play_state *next = &r->states[before + 1], *from = &r->states[before];
		memcpy(next->params, from->params, bytes);
		memcpy(next->first, from->first, bytes);
		memcpy(next->second, from->second, bytes);
		model_update(next->params, next->first, next->second, from->grads, r->layout.count,
		    before + 1);
		model_of_step(r, before + 1);
	}
	return &r->states[step];
}

static float remainder_of(float number)
{
	return (float)((uint64_t)number % PLAY_PRIME);
}

static void compare(struct tr_group *g, const char *what, uint64_t step, const float *ours,
    const float *whole, bool remainders, size_t first, size_t end)
{
	const struct trainer *t = g->trainer;
	float *theirs = calloc(t->layout.count + 1, sizeof(*theirs));
	if (theirs == NULL)
		abort();
	shard_take(&g->play->reference.layout, &t->layout, &t->sharded->shard, whole, theirs);
	for (size_t i = first; i < end; i++) {
		float got = remainders ? remainder_of(ours[i]) : ours[i];
		if (got == (remainders ? remainder_of(theirs[i]) : theirs[i]))
			continue;
		sim_violation(g->sim,
		    "S2: n%u, %s after %lu steps: number %zu of its shard is %g, "
		    "one worker has %g",
		    g->number, what, (unsigned long)step, i, (double)ours[i], (double)theirs[i]);
		break;
	}
	free(theirs);
}

void reference_check_parameters(struct tr_group *g, uint64_t step,
    const struct optim_arrays *arrays, size_t first, size_t end)
{
	const struct play_state *state = reference_at(g->play, step);
	compare(g, "parameters", step, arrays->params, state->params, false, first, end);
}

void reference_check_moments(struct tr_group *g, uint64_t step, const struct optim_arrays *arrays,
    size_t first, size_t end)
{
	const struct play_state *state = reference_at(g->play, step);
	compare(g, "first moments", step, arrays->first, state->first, false, first, end);
	compare(g, "second moments", step, arrays->second, state->second, false, first, end);
}

void reference_check_state(struct tr_group *g, uint64_t step, const struct optim_arrays *arrays,
    const struct play_state *state, size_t first, size_t end)
{
	size_t all = g->trainer->layout.count;
	/* Behind the first of two ranges: that one's are new. */
	size_t from = first > 0 && g->trainer->sharded->owners > 0 ? first : 0;
	compare(g, "parameters", step, arrays->params, state->params, false, from, all);
	compare(g, "first moments", step, arrays->first, state->first, false, first, end);
	compare(g, "second moments", step, arrays->second, state->second, false, first, end);
	compare(g, "gradients of the step", step, arrays->grads, state->grads, true, 0, all);
}

void reference_check_array(struct tr_group *g, const char *what, uint64_t step, const float *ours,
    const float *whole)
{
	compare(g, what, step, ours, whole, false, 0, g->trainer->layout.count);
}

void reference_check_outer(struct tr_group *g, uint64_t step, const float *params,
    const float *momentum, const float *whole_params, const float *whole_momentum)
{
	size_t end = g->trainer->layout.count;
	compare(g, "outer parameters", step, params, whole_params, false, 0, end);
	compare(g, "outer momentum", step, momentum, whole_momentum, false, 0, end);
}

void reference_check_gradients(struct tr_group *g, uint64_t step, const struct optim_arrays *arrays,
    size_t first, size_t end)
{
	const struct play_state *state = reference_at(g->play, step);
	compare(g, "gradients of the step", step, arrays->grads, state->grads, true, first, end);
}
