/* Replicas that train apart (daemon/worker/sharded_apart.h), beside what one worker with the whole model makes of the same steps and merges.
 *
 * A worker says by its state which step it takes: the merge that its round began with, its replica's claim and step, and the moments that it has, by their lineage. The reference takes the
 * same step on the whole layout, once, and each worker's shard of parameters, moments and gradient, and the norm, have to be its. At a commit the merge of all that have a part in it is made
 * of the reference's steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/sync/hdet.h"
#include "collectives/sync/outer.h"
#include "tests/sim/sharded/apart.h"

float *apart_numbers(const struct play *play, const float *from)
{
	size_t count = play->reference.layout.count;
	float *made = calloc(count + 1, sizeof(*made));
	if (made == NULL)
		abort();
	if (from != NULL)
		memcpy(made, from, count * sizeof(*made));
	return made;
}

uint64_t apart_now(const struct trainer *t)
{
	return t->sharded->apart->stream.on ? t->sharded->state->merges : t->counters->step;
}

void apart_create(struct play *play)
{
	if (!play->what.apart)
		return;
	play->apart = calloc(1, sizeof(*play->apart));
	if (play->apart == NULL)
		abort();
	play->apart->at[0] = (struct merge){ .params = apart_numbers(play,
		                                 reference_at(play, 0)->params),
		.outer = apart_numbers(play, NULL) };
}

static void finish_arrays(struct optim_arrays *a)
{
	free(a->params);
	free(a->first);
	free(a->second);
	free(a->outer);
}

void apart_finish(struct play *play)
{
	struct play_apart *a = play->apart;
	if (a == NULL)
		return;
	while (a->moments != NULL) {
		struct moments *next = a->moments->next;
		free(a->moments->first);
		free(a->moments->second);
		free(a->moments);
		a->moments = next;
	}
	while (a->walks != NULL) {
		struct walk *next = a->walks->next;
		for (unsigned k = 0; k <= APART_STEPS_MOST; k++) {
			free(a->walks->at[k].params);
			free(a->walks->at[k].first);
			free(a->walks->at[k].second);
			free(a->walks->at[k].grads);
		}
		stream_free(&a->walks->own);
		free(a->walks);
		a->walks = next;
	}
	stream_finish(play);
	for (unsigned i = 0; i < PLAY_STEPS_MAX; i++) {
		free(a->at[i].params);
		free(a->at[i].outer);
		finish_arrays(&a->disk[i]);
	}
	free(a);
	play->apart = NULL;
}

/* ---- moments ---- */

static void keep_moments(struct play *play, uint64_t lineage, const float *first,
    const float *second)
{
	struct moments *made = malloc(sizeof(*made));
	if (made == NULL)
		abort();
	*made = (struct moments){ play->apart->moments, lineage, apart_numbers(play, first),
		apart_numbers(play, second) };
	play->apart->moments = made;
}

/* Those that nobody has made are fresh, or of the checkpoint that training begins at. */
static const struct moments *moments_of(struct play *play, const struct apart_moments *m,
    uint64_t step)
{
	for (const struct moments *known = play->apart->moments; known != NULL; known = known->next)
		if (known->lineage == m->lineage)
			return known;
	bool fresh = m->age == 0;
	keep_moments(play, m->lineage, fresh ? NULL : play->apart->disk[step].first,
	    fresh ? NULL : play->apart->disk[step].second);
	return play->apart->moments;
}

/* ---- steps ---- */

static void make_gradient(struct play *play, struct walk *w, const struct trainer *t)
{
	struct play_state *state = &w->at[w->taken];
	uint64_t samples[PLAY_BATCH_MOST];
	const struct apart_own *own = &t->sharded->apart->own;
	for (uint64_t i = 0; i < own->share; i++)
		samples[i] = claims_sample(t->account, own->claim.first + w->taken * own->share + i);
	model_of_samples(&play->reference, state, samples, own->share);
}

/* ---- learning rates ---- */

static void base_at(const struct play *play, uint64_t step, double base[2])
{
	memcpy(base, play->apart->at[step].lr_base, 2 * sizeof(*base));
	if (base[0] == 0)
		base[0] = 1;
}

/* A replica begins a round with the rate of its number then; it stays, whatever its number is when the round is begun again. So it is that of some number. */
static void check_rate(struct tr_group *g)
{
	const struct trainer *t = g->trainer;
	const struct sharded *s = t->sharded;
	double base[2] = { 1, 0 }, found = s->apart->own.lr_scale;
	bool right = !g->play->what.rates && found == 1;
	if (g->play->what.rates)
		base_at(g->play, t->counters->step, base);
	for (unsigned n = 1; g->play->what.rates && n <= mesh_workers(&g->play->what.mesh); n++)
		for (unsigned i = 0; i < n; i++)
			right = right ||
			    found ==
			        base[0] *
			            hdet_factor(&s->apart->options, s->state->costs.merges + 1, i,
			                n);
	if (!right)
		sim_violation(g->sim,
		    "S2: n%u trains with %g of the learning rate, of a base of %g", g->number,
		    found, base[0]);
}

/* Of streams: as this worker has it when it takes its next step, or when it begins. */
static bool has_work(const struct tr_group *g, const struct walk *w)
{
	const struct sharded_apart *a = g->trainer->sharded->apart;
	bool begins = a->own.steps == 0 && !a->own.taken;
	return !stream_is_on(g->play) ||
	    a->stream.lineage == (begins ? w->begin : w->work[a->own.steps]);
}

struct walk *apart_walk_of(struct tr_group *g)
{
	struct play *play = g->play;
	const struct trainer *t = g->trainer;
	const struct apart_own *own = &t->sharded->apart->own;
	const struct apart_moments *m = &t->sharded->apart->moments;
	/* In another try of the round the same workers may begin anew, with other moments. */
	for (struct walk *w = play->apart->walks; w != NULL; w = w->next)
		if (w->round == own->round && w->workers == own->workers &&
		    w->first == own->claim.first && w->share == own->share &&
		    w->lr == own->lr_scale && own->steps <= w->taken &&
		    w->lineage[own->steps] == m->lineage && has_work(g, w))
			return w;
	if (own->steps > 0 || own->taken)
		return NULL;
	check_rate(g);
	if (m->age == 0)
		apart_check_fresh(g);
	const struct moments *begin = moments_of(play, m, t->counters->step);
	struct walk *w = calloc(1, sizeof(*w));
	if (w == NULL)
		abort();
	w->round = own->round;
	w->workers = own->workers;
	w->first = own->claim.first;
	w->share = own->share;
	w->claim = own->claim;
	w->lr = own->lr_scale;
	w->lineage[0] = m->lineage;
	w->at[0] = (struct play_state){ .params = apart_numbers(play,
		                            play->apart->at[apart_now(t)].params),
		.first = apart_numbers(play, begin->first),
		.second = apart_numbers(play, begin->second),
		.grads = apart_numbers(play, NULL) };
	if (stream_is_on(play))
		stream_begin(g, w);
	make_gradient(play, w, t);
	w->next = play->apart->walks;
	play->apart->walks = w;
	return w;
}

/* The state after the newest one. */
static void take_step(struct tr_group *g, struct walk *w, uint64_t step, uint64_t lineage,
    double norm)
{
	struct play *play = g->play;
	const struct play_state *from = &w->at[w->taken++];
	struct play_state *next = &w->at[w->taken];
	*next = (struct play_state){ .params = apart_numbers(play, from->params),
		.first = apart_numbers(play, from->first),
		.second = apart_numbers(play, from->second),
		.grads = apart_numbers(play, NULL) };
	model_update(next->params, next->first, next->second, from->grads,
	    play->reference.layout.count, step);
	w->lineage[w->taken] = lineage;
	keep_moments(play, lineage, next->first, next->second);
	if (stream_is_on(play))
		stream_step(g, w, norm);
	if (w->taken < APART_STEPS_MOST)
		make_gradient(play, w, g->trainer);
}

void apart_update(struct tr_group *g, const struct optim_arrays *arrays, const struct optim_by *by,
    size_t first, size_t end)
{
	struct trainer *t = g->trainer;
	const struct apart_own *own = &t->sharded->apart->own;
	const struct apart_moments *m = &t->sharded->apart->moments;
	struct walk *w = apart_walk_of(g);
	double sum = by->norm / by->scale, squares = (double)(uint64_t)(sum * sum + 0.5);
	if (w == NULL || by->step != t->counters->step + own->steps + 1)
		sim_violation(g->sim,
		    "S3: n%u takes step %lu after another one, or with other moments, than its "
		    "replica has",
		    g->number, (unsigned long)by->step);
	if (w != NULL && by->settings->lr != w->lr)
		sim_violation(g->sim, "S2: n%u, step %lu: a learning rate of %g, not %g", g->number,
		    (unsigned long)by->step, by->settings->lr, w->lr);
	if (g->sim->violations > 0)
		return;
	const struct play_state *at = &w->at[own->steps];
	if (squares != at->squares)
		sim_violation(g->sim, "S2: n%u, step %lu: the gradient's squares are %g, not %g",
		    g->number, (unsigned long)by->step, squares, at->squares);
	reference_check_state(g, by->step - 1, arrays, at, first, end);
	if (own->steps == w->taken)
		take_step(g, w, by->step, sharded_apart_lineage(own, m->lineage, by->norm),
		    by->norm);
	model_update(arrays->params + first, arrays->first + first, arrays->second + first,
	    arrays->grads + first, end - first, by->step);
	model_changed(t->model);
}

/* ---- merges ---- */

static float remainder_of(float number)
{
	return (float)((uint64_t)number % PLAY_PRIME);
}

/* In place of f32 arithmetic: whole numbers, of which sums have one result in any order. */
/* Nobody's numbers are other than they were made. */
bool outer_sound(const float *numbers, size_t count)
{
	(void)numbers;
	(void)count;
	return true;
}

double outer_weight(enum tr_sync_weights weights, double tokens, double steps)
{
	return weights == TR_SYNC_WEIGHTS_ROOT && steps > 0 ? floor(tokens / steps) : 0;
}

void outer_delta(float *out, const float *from, const float *to, float weight, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = remainder_of(from[i] + PLAY_PRIME - to[i]) * weight;
}

void apart_step_outer(float *theta, float *v, const float *d, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		v[i] = remainder_of(3 * v[i] + remainder_of(d[i]));
		theta[i] = remainder_of(5 * theta[i] + 7 * remainder_of(d[i]) + 2 * v[i]);
	}
}

/* The newest that a replica's workers have begun in this round with what they claim. */
struct walk *apart_walk_merged(struct tr_group *g, uint32_t replica)
{
	const struct sharded *s = g->trainer->sharded;
	const struct apart_part *part = &s->apart->parts[replica];
	struct walk *w = g->play->apart->walks;
	uint64_t workers = sharded_apart_workers(s, replica);
	while (w != NULL &&
	    (w->workers != workers || w->first != part->claim.first || w->share != part->share ||
	        w->round != g->round.round))
		w = w->next;
	return w;
}

/* No sample is in two replicas' steps of one merge, and each takes steps. */
void apart_check_claims(struct tr_group *g, uint64_t least, uint64_t most)
{
	const struct sharded *s = g->trainer->sharded;
	const struct apart_part *parts = s->apart->parts;
	for (uint32_t a = 0; a < ranks_replicas(&s->next); a++) {
		if (parts[a].trains &&
		    (parts[a].steps < least || parts[a].steps > most ||
		        parts[a].claim.count != parts[a].share * parts[a].steps))
			sim_violation(g->sim, "S3: n%u: replica %u takes %lu steps of %lu samples",
			    g->number, a, (unsigned long)parts[a].steps,
			    (unsigned long)parts[a].claim.count);
		for (uint32_t b = 0; b < a; b++)
			if (parts[a].trains && parts[b].trains &&
			    parts[a].claim.first < parts[b].claim.first + parts[b].claim.count &&
			    parts[b].claim.first < parts[a].claim.first + parts[a].claim.count)
				sim_violation(g->sim,
				    "S3: n%u: replicas %u and %u train on the same samples",
				    g->number, b, a);
	}
}

/* All of a replica have taken its steps with moments that they made together. */
static void check_together(struct tr_group *g)
{
	const struct trainer *t = g->trainer;
	const struct apart_part *part = sharded_apart_part(t);
	if (part == NULL || !part->trains)
		return;
	const struct walk *w = apart_walk_merged(g,
	    ranks_replica(&t->sharded->next, t->sharded->self));
	if (w != NULL && w->lr != t->sharded->apart->own.lr_scale)
		sim_violation(g->sim,
		    "S2: n%u merges what it learned at another rate than its replica", g->number);
	if (w != NULL && w->lineage[part->steps] != t->sharded->apart->moments.lineage)
		sim_violation(g->sim,
		    "S2: n%u merges steps that were taken with other moments than "
		    "its replica's",
		    g->number);
}

static void check_report(struct tr_group *g, uint32_t replica, const struct sync_report *right)
{
	const struct sync_report *said = &g->trainer->sharded->apart->sums->reports[replica];
	if (g->play->what.rates && (said->lr_scale != right->lr_scale || said->loss != right->loss))
		sim_violation(g->sim, "S2: n%u: replica %u says a loss of %g at %g, not %g at %g",
		    g->number, replica, said->loss, said->lr_scale, right->loss, right->lr_scale);
}

/* What those have learned that the worker says have a part; and what each says of its loss. */
static double sum_walks(struct tr_group *g, const struct merge *from, float *sum,
    struct sync_report *reports)
{
	const struct trainer *t = g->trainer;
	const struct sharded *s = t->sharded;
	size_t count = g->play->reference.layout.count;
	float *delta = apart_numbers(g->play, NULL);
	double loss = 0;
	for (uint32_t r = 0; r < ranks_replicas(&s->next); r++) {
		const struct apart_part *part = &s->apart->parts[r];
		if (!part->trains)
			continue;
		const struct walk *w = apart_walk_merged(g, r);
		if (w == NULL || w->taken < part->steps) {
			sim_violation(g->sim, "S2: n%u merges what replica %u has not done",
			    g->number, r);
			continue;
		}
		outer_delta(delta, from->params, w->at[part->steps].params,
		    (float)outer_weight(TR_SYNC_WEIGHTS_ROOT, (double)part->claim.count,
		        (double)part->steps),
		    count);
		for (size_t i = 0; i < count; i++)
			sum[i] += delta[i];
		double own = 0;
		for (uint64_t k = 0; k < part->steps; k++)
			own += w->at[k].loss;
		loss += own;
		reports[r] = (struct sync_report){ .lr_scale = w->lr,
			.loss = own / (double)part->claim.count };
		check_report(g, r, &reports[r]);
	}
	free(delta);
	return loss;
}

static void check_sums(struct tr_group *g, double loss)
{
	const struct apart_sums *sums = g->trainer->sharded->apart->sums;
	if (sums->loss != loss)
		sim_violation(g->sim, "S2: n%u: the merge's loss is %g, not %g", g->number,
		    sums->loss, loss);
}

/* ---- what coding lost ---- */

void apart_lose(const struct tr_op *op)
{
	for (size_t i = 0; op->residual != NULL && i < op->count; i++)
		op->residual_next[i] = op->residual[i] + 1;
}

bool apart_lost_is(const struct tr_group *g)
{
	const struct sharded *s = g->trainer->sharded;
	return g->lost.shard == ranks_number(&s->next, s->self) &&
	    mesh_equal(&g->lost.mesh, &s->next.mesh) && g->lost.copies == s->next.copies;
}

/* It has been through as many merges as this worker has had its shard for, all that were committed and no other. */
static void check_lost(struct tr_group *g, uint64_t step, uint64_t next)
{
	struct trainer *t = g->trainer;
	const struct sharded *s = t->sharded;
	const struct apart_lost *lost = &s->apart->lost;
	size_t offset = 0, numbers = 0;
	if (lost->now == NULL)
		return;
	if (!apart_lost_is(g) || g->lost.step != step || g->lost.breaks != play_breaks(g->play))
		g->lost.merges = 0;
	g->lost.mesh = s->next.mesh;
	g->lost.copies = s->next.copies;
	g->lost.shard = ranks_number(&s->next, s->self);
	g->lost.step = next;
	g->lost.breaks = play_breaks(g->play);
	if (s->dp.count > 1)
		g->lost.merges++;
	if (!t->layout.depth.head || !sharded_has_copy(t, &offset, &numbers))
		offset = t->layout.count;
	/* Of several copies each has what its part lost. */
	struct owners_range own[] = { sharded_own_part(s, 0, offset),
		sharded_own_part(s, offset + numbers, t->layout.count) };
	for (size_t i = 0; i < t->layout.count && s->dp.count > 1; i++)
		if (((i >= own[0].first && i < own[0].end) ||
		        (i >= own[1].first && i < own[1].end)) &&
		    lost->now[i] != (float)g->lost.merges) {
			sim_violation(g->sim,
			    "S2: n%u: what coding lost of number %zu is of %g merges, not %lu",
			    g->number, i, lost->now[i], (unsigned long)g->lost.merges);
			return;
		}
}

void outer_step(float *theta, float *v, const float *d, float scale, float eta, float mu,
    size_t count)
{
	if (stream_outer_step(theta, v, d, scale, count))
		return;
	struct tr_group *g = group_inside();
	struct play_apart *a = g->play->apart;
	const struct trainer *t = g->trainer;
	uint64_t step = t->counters->step, next = step + sharded_apart_steps(t);
	struct merge *to = &a->at[next];
	struct merge made = { .params = apart_numbers(g->play, a->at[step].params),
		.outer = apart_numbers(g->play, a->at[step].outer) };
	struct sync_report reports[TR_GROUP_PEERS_MAX] = { 0 };
	float *sum = apart_numbers(g->play, NULL);
	(void)eta;
	(void)mu;
	reference_check_outer(g, step, theta, v, a->at[step].params, a->at[step].outer);
	check_together(g);
	apart_check_claims(g, 1, PLAY_INNER_STEPS);
	check_lost(g, step, next);
	check_sums(g, sum_walks(g, &a->at[step], sum, reports));
	base_at(g->play, step, made.lr_base);
	if (g->play->what.rates)
		hdet_control(&t->sharded->apart->options, reports, TR_GROUP_PEERS_MAX, made.lr_base);
	g->play->rates_moved += made.lr_base[1] != a->at[step].lr_base[1];
	apart_step_outer(made.params, made.outer, sum, g->play->reference.layout.count);
	apart_step_outer(theta, v, d, count);
	reference_check_outer(g, next, theta, v, made.params, made.outer);
	free(sum);
	free(to->params); /* training may have gone back */
	free(to->outer);
	*to = made;
}

/* ---- checkpoints ---- */

static void check_written(struct tr_group *g, uint64_t step, const char *what, const float *ours,
    const float *theirs)
{
	if (memcmp(ours, theirs, g->play->reference.layout.count * sizeof(*ours)) != 0)
		sim_violation(g->sim, "S5: n%u writes a checkpoint of step %lu with other %s",
		    g->number, (unsigned long)step, what);
}

/* All shards' are of one replica: somebody has made them together, or they are fresh. */
static bool are_one_replicas(struct play *play, const struct optim_arrays *disk)
{
	size_t bytes = play->reference.layout.count * sizeof(float);
	bool zeros = true;
	for (size_t i = 0; i < play->reference.layout.count && zeros; i++)
		zeros = disk->first[i] == 0 && disk->second[i] == 0;
	const struct moments *known = zeros ? NULL : play->apart->moments;
	while (known != NULL &&
	    (memcmp(known->first, disk->first, bytes) != 0 ||
	        memcmp(known->second, disk->second, bytes) != 0))
		known = known->next;
	return zeros || known != NULL;
}

void apart_save(struct tr_group *g, uint64_t step)
{
	struct play *play = g->play;
	const struct merge *now = &play->apart->at[stream_is_on(play) ? stream_merges(step) : step];
	struct optim_arrays *disk = &play->apart->disk[step];
	finish_arrays(disk);
	*disk = (struct optim_arrays){ .params = play_read_parts(g, 0),
		.first = play_read_parts(g, 1),
		.second = play_read_parts(g, 2),
		.outer = play_read_parts(g, 3) };
	check_written(g, step, "parameters", disk->params, now->params);
	check_written(g, step, "outer momentum", disk->outer, now->outer);
	if (!are_one_replicas(play, disk))
		sim_violation(g->sim,
		    "S5: n%u writes a checkpoint of step %lu with moments of several replicas",
		    g->number, (unsigned long)step);
}

/* It may be one of steps that training had gone back behind before, and took otherwise since. */
static void begin_at(struct play *play, uint64_t step)
{
	struct merge *at = &play->apart->at[stream_is_on(play) ? stream_merges(step) : step];
	free(at->params);
	free(at->outer);
	*at = (struct merge){ .params = apart_numbers(play, play->apart->disk[step].params),
		.outer = apart_numbers(play, play->apart->disk[step].outer) };
	memcpy(at->lr_base, play->disk[step]->lr_base, sizeof(at->lr_base));
}

void apart_read(struct play *play, uint64_t step, const struct layout *whole,
    const struct layout *local, const struct shard *shard, const struct optim_arrays *arrays)
{
	const struct optim_arrays *disk = &play->apart->disk[step];
	group_inside()->lost.shard = RANKS_NONE;
	begin_at(play, step);
	shard_take(whole, local, shard, disk->params, arrays->params);
	shard_take(whole, local, shard, disk->first, arrays->first);
	shard_take(whole, local, shard, disk->second, arrays->second);
	shard_take(whole, local, shard, disk->outer, arrays->outer);
}
