/* Replicas whose work goes on through merges (daemon/worker/sharded_stream.h), beside a reference that has all of it on the whole layout: for each lineage of work what the replica has, from there its steps (apart.c), what
 * is taken of them and when, and what each merge makes of the outer parameters and of the work of all that had a part in it. Which merge is next, and what of it is when, is by the schedule of
 * whole workers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/sync/outer.h"
#include "collectives/sync/schedule.h"
#include "tests/sim/sharded/apart.h"

bool stream_is_on(const struct play *play)
{
	return play->what.stream != PLAY_STREAM_NONE;
}

/* ---- schedule ---- */

static struct sync_schedule schedule_of(const struct trainer *t)
{
	const struct tr_sync_options *o = &t->sharded->apart->options;
	return (struct sync_schedule){ .steps = t->group->play->what.steps,
		.period = o->inner_steps,
		.overlap = (uint64_t)o->overlap,
		.fragments = o->fragments };
}

/* Of merge `merges` + 1: from the one before it on. */
struct slot {
	unsigned fragment;
	uint64_t steps, take, merge;
};

static struct slot slot_of(const struct play *play, uint64_t merges)
{
	struct sync_schedule schedule = schedule_of(group_inside()->trainer);
	struct sync_slot now = { 0 }, before = { 0 };
	(void)sync_schedule_slot(&schedule, merges, &before);
	if (!sync_schedule_slot(&schedule, merges + 1, &now))
		sim_violation(play->sim, "S3: merge %lu, of which there is none",
		    (unsigned long)merges + 1);
	return (struct slot){ now.fragment, now.merge - before.merge, now.take - before.merge,
		now.merge };
}

uint64_t stream_merges(uint64_t step)
{
	struct sync_schedule schedule = schedule_of(group_inside()->trainer);
	struct sync_slot slot;
	uint64_t merges = 0;
	while (sync_schedule_slot(&schedule, merges + 1, &slot) && slot.merge <= step)
		merges++;
	return merges;
}

bool stream_is_done(const struct trainer *t)
{
	struct sync_schedule schedule = schedule_of(t);
	return t->sharded->state->merges == sync_schedule_rounds(&schedule);
}

/* Calls `call` for each part of an array that is of a fragment. */
static bool next_part(const struct play *play, unsigned fragment, size_t *tensor, size_t *first,
    size_t *count)
{
	const struct layout *l = &play->reference.layout;
	unsigned of = group_inside()->trainer->sharded->apart->options.fragments;
	for (size_t i = *tensor; i < l->tensor_count; i++) {
		if (layout_block(l, l->tensors[i].offset) % of != fragment)
			continue;
		*first = l->tensors[i].offset;
		*count = layout_numbers(&l->tensors[i]);
		*tensor = i + 1;
		return true;
	}
	return false;
}

/* ---- in place of f32 arithmetic ---- */

static float remainder_of(float number)
{
	return (float)((uint64_t)number % PLAY_PRIME);
}

/* Of a movement: it is a whole number of times its weight. */
static float unweighted(float d, float scale)
{
	return remainder_of((float)lroundf(d * scale));
}

void outer_merge(float *local, const float *outer, float alpha, size_t count)
{
	(void)alpha;
	for (size_t i = 0; i < count; i++)
		local[i] = remainder_of(3 * local[i] + 4 * outer[i]);
}

void outer_foresee(float *out, const float *theta, const float *v, const float *d, float scale,
    float eta, float mu, size_t count)
{
	(void)eta, (void)mu;
	for (size_t i = 0; i < count; i++)
		out[i] = remainder_of(theta[i] + 3 * (v != NULL ? v[i] : 0) +
		    5 * (PLAY_PRIME - unweighted(d[i], scale)));
	if (group_inside()->trainer->model !=
	    NULL) /* who has no rank makes the reference's merges too */
		model_changed(group_inside()->trainer->model);
}

void outer_carry(float *local, const float *outer, const float *base, float rest, size_t count)
{
	(void)rest;
	for (size_t i = 0; i < count; i++)
		local[i] = remainder_of(local[i] + 2 * (outer[i] + PLAY_PRIME - base[i]));
}

void outer_add(float *local, const float *outer, const float *lead, size_t count)
{
	for (size_t i = 0; i < count; i++)
		local[i] = remainder_of(outer[i] + lead[i]);
	model_changed(group_inside()->trainer->model);
}

void outer_newer(float *out, const float *from, const float *to, const float *d, float scale,
    size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = remainder_of(from[i] + 2 * PLAY_PRIME - to[i] - unweighted(d[i], scale));
}

/* Which share it is counts. */
static void step_lead(float *lead, float *momentum, const float *d, float share, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float shared = d[i] * remainder_of((float)lroundf(840 * share)); /* zeros stay */
		apart_step_outer(lead + i, momentum + i, &shared, 1);
	}
}

/* ---- what replicas have ---- */

void stream_free(struct stream_work *w)
{
	free(w->params);
	free(w->delta);
	free(w->start);
	free(w->lead);
	free(w->lead_momentum);
}

void stream_finish(struct play *play)
{
	while (play->apart->works != NULL) {
		struct stream_work *next = play->apart->works->next;
		stream_free(play->apart->works);
		free(play->apart->works);
		play->apart->works = next;
	}
}

static struct stream_work *work_of(const struct play *play, uint64_t lineage)
{
	struct stream_work *w = play->apart->works;
	while (w != NULL && w->lineage != lineage)
		w = w->next;
	return w;
}

static struct stream_work copy_of(const struct play *play, const struct stream_work *from)
{
	struct stream_work made = *from;
	made.params = apart_numbers(play, from->params);
	made.delta = apart_numbers(play, from->delta);
	made.start = apart_numbers(play, from->start);
	made.lead = apart_numbers(play, from->lead);
	made.lead_momentum = apart_numbers(play, from->lead_momentum);
	return made;
}

/* ---- steps ---- */

/* With carry: where training goes on from behind a take. */
static void foresee(const struct merge *from, const struct stream_work *own, float *out, size_t at,
    size_t count)
{
	outer_foresee(out, from->params + at, from->outer != NULL ? from->outer + at : NULL,
	    own->delta + at, (float)(1 / own->gave), 0, 0, count);
}

/* What is merged of the steps that were taken, if they are those. */
static void take(struct tr_group *g, struct walk *w)
{
	struct play *play = g->play;
	uint64_t merges = g->trainer->sharded->state->merges;
	const struct merge *before_it = &play->apart->at[merges];
	const float *outer = before_it->params;
	struct slot slot = slot_of(play, merges);
	struct stream_work *own = &w->own;
	float *params = w->at[w->taken].params;
	bool eager = play->what.stream == PLAY_STREAM_EAGER, ahead = slot.take < slot.steps;
	float before = own->gave > 0 ? (float)(1 / own->gave) : 0;
	if (w->taken != slot.take)
		return;
	const struct ranks *ranks = &g->trainer->sharded->state->ranks;
	uint32_t replicas = ranks_replicas(ranks);
	if (replicas == 0)
		replicas = ranks->mesh.size[MESH_DP] / (uint32_t)ranks->copies;
	float share = own->share > 0 ? (float)own->share : 1 / (float)replicas;
	own->gave = outer_weight(TR_SYNC_WEIGHTS_ROOT, own->tokens[slot.fragment],
	    own->steps[slot.fragment]);
	own->tokens[slot.fragment] = own->steps[slot.fragment] = 0;
	w->given_loss = own->since_loss;
	w->given_tokens = own->since_tokens;
	own->since_loss = own->since_tokens = 0;
	float *newest = apart_numbers(play, NULL);
	for (size_t i = 0, at, count; next_part(play, slot.fragment, &i, &at, &count);) {
		if (eager && ahead) {
			outer_newer(newest, own->start + at, params + at, own->delta + at, before,
			    count);
			step_lead(own->lead + at, own->lead_momentum + at, newest, share, count);
		}
		outer_delta(own->delta + at, (eager ? own->start : outer) + at, params + at,
		    (float)own->gave, count);
		if (eager && ahead) {
			outer_add(own->start + at, outer + at, own->lead + at, count);
			memcpy(params + at, own->start + at, count * sizeof(float));
		}
		if (play->what.stream == PLAY_STREAM_CARRY && own->gave > 0)
			foresee(before_it, own, params + at, at, count);
	}
	free(newest);
	w->work[w->taken] = sharded_stream_lineage(w->work[w->taken], w->round, false);
}

/* Whether a try of this round has begun with it: then some may have taken steps that others have not. */
static bool was_tried(const struct play *play, const struct stream_work *work, uint64_t round)
{
	for (const struct walk *w = play->apart->walks; w != NULL; w = w->next)
		if (w->round == round && w->begin == work->lineage)
			return true;
	return false;
}

/* Workers that were in the newest merge together go on, and where training went back, or the mesh became another one, nobody does. */
static void check_begin(struct tr_group *g, const struct walk *w, const struct stream_work *known)
{
	struct play *play = g->play;
	uint64_t newest = play->apart->at[g->trainer->sharded->state->merges].round;
	if (!group_is_member(g))
		return;
	if (known != NULL &&
	    (known->round != newest || known->workers != w->workers ||
	        known->breaks != play_breaks(play)))
		sim_violation(g->sim,
		    "S2: n%u goes on from work of round %lu, where the newest merge was in round "
		    "%lu",
		    g->number, (unsigned long)known->round, (unsigned long)newest);
	for (const struct stream_work *k = play->apart->works; known == NULL && k != NULL;
	     k = k->next)
		if (k->round == newest && k->workers == w->workers &&
		    k->breaks == play_breaks(play) && !was_tried(play, k, w->round))
			sim_violation(g->sim,
			    "S2: n%u begins anew, where its replica has work of round %lu",
			    g->number, (unsigned long)newest);
}

void stream_begin(struct tr_group *g, struct walk *w)
{
	struct play *play = g->play;
	const struct apart_stream *stream = &g->trainer->sharded->apart->stream;
	const float *outer = play->apart->at[g->trainer->sharded->state->merges].params;
	const struct stream_work fresh = { .params = (float *)(uintptr_t)outer,
		.start = (float *)(uintptr_t)outer },
	                         *known = work_of(play, stream->lineage);
	const uint64_t from[] = { w->round, w->workers };
	if (known == NULL && stream->lineage != sharded_apart_word(from, sizeof(from)))
		sim_violation(g->sim, "S2: n%u goes on from work that its replica has not made",
		    g->number);
	check_begin(g, w, known);
	w->own = copy_of(play, known != NULL ? known : &fresh);
	play->works_went_on += known != NULL;
	memcpy(w->at[0].params, w->own.params, play->reference.layout.count * sizeof(float));
	w->begin = w->work[0] = stream->lineage;
	take(g, w);
}

void stream_step(struct tr_group *g, struct walk *w, double norm)
{
	const struct apart_own *own = &g->trainer->sharded->apart->own;
	for (unsigned f = 0; f < APART_FRAGMENTS; f++) {
		w->own.tokens[f] += (double)w->share;
		w->own.steps[f]++;
	}
	w->own.since_loss += w->at[w->taken - 1].loss;
	w->own.since_tokens += (double)w->share;
	w->work[w->taken] = sharded_apart_lineage(own, w->work[w->taken - 1], norm);
	take(g, w);
}

void stream_trains(struct tr_group *g)
{
	const struct apart_own *own = &g->trainer->sharded->apart->own;
	if (stream_is_on(g->play) && own->steps == 0 && !own->taken)
		(void)apart_walk_of(g);
}

/* ---- merges ---- */

/* Of all that have a part in it: what they have learned, and said. */
static double sum_up(struct tr_group *g, const struct slot *slot, float *sum)
{
	const struct sharded *s = g->trainer->sharded;
	const struct apart_sums *sums = s->apart->sums;
	struct apart_sums right = { 0 };
	for (uint32_t r = 0; r < ranks_replicas(&s->next); r++) {
		const struct walk *w = apart_walk_merged(g, r);
		if (!s->apart->parts[r].trains)
			continue;
		if (w == NULL || w->taken < slot->steps) {
			sim_violation(g->sim, "S2: n%u merges what replica %u has not done",
			    g->number, r);
			continue;
		}
		for (size_t i = 0, at, count; next_part(g->play, slot->fragment, &i, &at, &count);)
			for (size_t k = at; k < at + count; k++)
				sum[k] += w->own.delta[k];
		right.weight += w->own.gave;
		right.loss += w->given_loss;
		right.loss_tokens += w->given_tokens;
		right.tokens += (double)w->share * (double)slot->steps;
	}
	if (sums->loss != right.loss || sums->loss_tokens != right.loss_tokens ||
	    sums->tokens != right.tokens || sums->weight != right.weight)
		sim_violation(g->sim,
		    "S2: n%u merges a weight of %g, a loss of %g of %g, %g samples; not %g, %g of "
		    "%g, %g",
		    g->number, sums->weight, sums->loss, sums->loss_tokens, sums->tokens,
		    right.weight, right.loss, right.loss_tokens, right.tokens);
	return right.weight;
}

/* What a merge makes of a replica's work. */
static void merge_work(struct play *play, const struct walk *w, const struct slot *slot,
    double weight, const struct merge *from, const struct merge *to)
{
	struct stream_work *made = calloc(1, sizeof(*made));
	const struct stream_work *own = &w->own;
	bool carries = play->what.stream == PLAY_STREAM_CARRY && own->gave > 0;
	bool ahead = play->what.stream == PLAY_STREAM_EAGER && slot->take < slot->steps;
	if (made == NULL)
		abort();
	*made = copy_of(play, own);
	memcpy(made->params, w->at[slot->steps].params,
	    play->reference.layout.count * sizeof(float));
	for (size_t i = 0, at, count; next_part(play, slot->fragment, &i, &at, &count);)
		if (carries) {
			foresee(from, made, made->delta + at, at, count);
			outer_carry(made->params + at, to->params + at, made->delta + at, 1, count);
		} else if (!ahead) {
			outer_merge(made->params + at, to->params + at, 0, count);
		}
	made->round = w->round;
	made->workers = w->workers;
	made->breaks = play_breaks(play);
	made->share = weight > 0 ? own->gave / weight : 0;
	made->lineage = sharded_stream_lineage(w->work[slot->steps], w->round, true);
	made->next = play->apart->works;
	play->apart->works = made;
}

/* Made once, by the first who has it committed. */
static void make_merge(struct tr_group *g, uint64_t merges)
{
	struct play *play = g->play;
	const struct sharded *s = g->trainer->sharded;
	const struct merge *from = &play->apart->at[merges];
	struct merge *to = &play->apart->at[merges + 1];
	if (to->round == g->round.round)
		return;
	struct slot slot = slot_of(play, merges);
	apart_check_claims(g, slot.steps, slot.steps);
	float *sum = apart_numbers(play, NULL);
	double weight = sum_up(g, &slot, sum);
	free(to->params);
	free(to->outer);
	*to = (struct merge){ .params = apart_numbers(play, from->params),
		.outer = apart_numbers(play, from->outer),
		.round = g->round.round,
		.weight = weight };
	for (size_t i = 0, at, count; next_part(play, slot.fragment, &i, &at, &count);)
		if (weight > 0)
			apart_step_outer(to->params + at, to->outer + at, sum + at, count);
	for (uint32_t r = 0; r < ranks_replicas(&s->next) && g->sim->violations == 0; r++)
		if (s->apart->parts[r].trains)
			merge_work(play, apart_walk_merged(g, r), &slot, weight, from, to);
	free(sum);
}

/* What several workers of a replica have taken is one replica's. */
static void check_together(struct tr_group *g, uint64_t merges)
{
	const struct trainer *t = g->trainer;
	const struct sharded_apart *a = t->sharded->apart;
	const struct apart_part *part = sharded_apart_part(t);
	struct slot slot = slot_of(g->play, merges);
	if (part == NULL || !part->trains)
		return;
	const struct walk *w = apart_walk_merged(g,
	    ranks_replica(&t->sharded->next, t->sharded->self));
	if (w != NULL &&
	    (w->lineage[slot.steps] != a->moments.lineage ||
	        w->work[slot.steps] != a->stream.lineage))
		sim_violation(g->sim,
		    "S2: n%u merges steps that its replica has taken otherwise, or not", g->number);
}

bool stream_outer_step(float *theta, float *v, const float *d, float scale, size_t count)
{
	struct tr_group *g = group_inside();
	const struct trainer *t = g->trainer;
	uint64_t merges = t->sharded->state->merges;
	if (!stream_is_on(g->play))
		return false;
	if (theta < t->arrays.params || theta >= t->arrays.params + t->layout.count) {
		step_lead(theta, v, d, scale, count);
		return true;
	}
	make_merge(g, merges);
	check_together(g, merges);
	float right = (float)(1 / g->play->apart->at[merges + 1].weight);
	if (scale != right)
		sim_violation(g->sim, "S2: n%u merges with a scale of %g, not %g", g->number, scale,
		    right);
	apart_step_outer(theta, v, d, count);
	return true;
}

/* ---- committed ---- */

/* Of a fragment's numbers those that this worker merges itself, before a copied table and behind it. */
static void own_parts(const struct trainer *t, unsigned fragment, struct owners_range own[2])
{
	struct stream_piece p = { 0 };
	size_t first = 0, end = 0;
	bool copied = false;
	while (sharded_next_piece(t, fragment, &p))
		if (p.copied) {
			copied = true;
			first = p.packed;
			end = p.packed + p.count;
		}
	size_t all = p.packed + p.count;
	own[0] = sharded_own_part(t->sharded, 0, copied ? first : all);
	own[1] = sharded_own_part(t->sharded, copied ? end : all, all);
}

static bool is_in(const struct owners_range own[2], size_t at)
{
	return (at >= own[0].first && at < own[0].end) || (at >= own[1].first && at < own[1].end);
}

/* What coding lost of each fragment has been through as many merges of it as this worker has had its shard for. */
static void check_lost(struct tr_group *g, uint64_t merges, const struct slot *slot)
{
	struct trainer *t = g->trainer;
	const struct sharded *s = t->sharded;
	const struct apart_lost *lost = &s->apart->lost;
	struct stream_piece p = { 0 };
	size_t at = 0;
	if (lost->now == NULL)
		return;
	if (!apart_lost_is(g) || g->lost.step != merges || g->lost.breaks != play_breaks(g->play))
		memset(g->lost.of, 0, sizeof(g->lost.of));
	g->lost.mesh = s->next.mesh;
	g->lost.copies = s->next.copies;
	g->lost.shard = ranks_number(&s->next, s->self);
	g->lost.step = merges + 1;
	g->lost.breaks = play_breaks(g->play);
	if (s->dp.count < 2)
		return;
	g->lost.of[slot->fragment] += g->play->apart->at[merges + 1].weight > 0;
	for (unsigned f = 0; f < s->apart->options.fragments; f++, at += p.packed + p.count) {
		struct owners_range own[2];
		own_parts(t, f, own);
		p = (struct stream_piece){ 0 };
		while (sharded_next_piece(t, f, &p))
			for (size_t i = 0; i < p.count; i++)
				if (is_in(own, p.packed + i) &&
				    lost->now[at + p.packed + i] != (float)g->lost.of[f])
					sim_violation(g->sim,
					    "S2: n%u: what coding lost of fragment %u is of %g "
					    "merges, "
					    "not %lu",
					    g->number, f, lost->now[at + p.packed + i],
					    (unsigned long)g->lost.of[f]);
	}
}

void stream_applied(struct tr_group *g)
{
	const struct trainer *t = g->trainer;
	const struct sharded *s = t->sharded;
	if (!stream_is_on(g->play) || g->decided != PLAY_COMMITTED || s->kind != SHARDED_STEP)
		return;
	uint64_t merges = s->state->merges - 1, step = t->counters->step;
	struct slot slot = slot_of(g->play, merges);
	make_merge(g, merges);
	if (step != slot.merge)
		sim_violation(g->sim, "S3: n%u: merge %lu is after step %lu, not %lu", g->number,
		    (unsigned long)merges + 1, (unsigned long)step, (unsigned long)slot.merge);
	if (g->sim->violations > 0 || s->rank == RANKS_NONE)
		return;
	const struct merge *now = &g->play->apart->at[merges + 1];
	reference_check_outer(g, step, t->arrays.params, t->arrays.outer, now->params, now->outer);
	check_lost(g, merges, &slot);
	const struct stream_work *work = work_of(g->play, s->apart->stream.lineage);
	if (sharded_apart_part(t)->trains != (work != NULL))
		sim_violation(g->sim, "S2: n%u has %s after merge %lu", g->number,
		    work != NULL ? "work that was not merged" : "no work of its replica",
		    (unsigned long)merges + 1);
	if (work == NULL || g->sim->violations > 0)
		return;
	reference_check_array(g, "work", step, s->apart->work, work->params);
	if (s->apart->stream.start == NULL)
		return;
	reference_check_array(g, "where it started", step, s->apart->stream.start, work->start);
	reference_check_array(g, "how far it is ahead", step, s->apart->stream.lead, work->lead);
}
