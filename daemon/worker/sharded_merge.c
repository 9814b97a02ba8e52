/* The merge of replicas that train apart (sharded_apart.h): workers of the same shard sum how far each got.
 *
 * What several workers of a replica hold goes once: the sum of three numbers and more depends on their order, what a codec makes of one on those beside it. Of what all of a tensor-parallel group
 * hold the others get the sum that tp 0 of their replica has, of a tied table the last stage gets the first one's. So outer parameters that are the same at several workers stay so.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "collectives/sync/outer.h"
#include "daemon/worker/trainer_inside.h"

/* ---- what this worker gives ---- */

static double tokens_of(const struct trainer *t)
{
	const struct apart_part *part = sharded_apart_part(t);
	return part != NULL && part->trains ? (double)(part->claim.count * t->layout.config.context)
	                                    : 0;
}

static double weight_of(const struct trainer *t)
{
	const struct apart_part *part = sharded_apart_part(t);
	return part != NULL && part->trains
	    ? outer_weight(t->sharded->apart->options.weights, tokens_of(t), (double)part->steps)
	    : 0;
}

/* Into the gradients, which nobody needs any more. */
static void make_movement(struct trainer *t)
{
	double weight = weight_of(t);
	const float *work = t->sharded->apart->work;
	if (weight > 0 && sharded_inner_sound(t, work, t->layout.count))
		outer_delta(t->arrays.grads, t->arrays.params, work, (float)weight, t->layout.count);
	else
		memset(t->arrays.grads, 0, t->layout.count * sizeof(float));
}

void sharded_settle_lost(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	struct apart_lost *lost = &s->apart->lost;
	uint32_t number = ranks_number(&s->next, s->self);
	if (lost->now == NULL || lost->shard == number)
		return;
	memset(lost->now, 0, t->layout.count * sizeof(float));
	lost->shard = number;
}

/* Numbers [first, end) of the shard: of several copies this one's part, and then the others'. */
static tr_status sum_range(struct trainer *t, unsigned which, size_t begin, size_t stop,
    struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	struct owners_range range = { begin, stop }, part = sharded_own_part(s, begin, stop);
	size_t first = part.first, end = part.end;
	struct tr_op op = TR_OP_INIT;
	if (first == end)
		return sharded_gather_parts(t, which, t->arrays.grads, range, error);
	op.tag = TAG_MERGE + which;
	op.output = t->arrays.grads + first;
	op.count = end - first;
	op.reduce = TR_SUM;
	op.codec = s->apart->options.codec;
	op.scope = (struct tr_scope){ s->dp.members, s->dp.count };
	if (s->apart->lost.now != NULL) {
		op.residual = s->apart->lost.now + first;
		op.residual_next = s->apart->lost.next + first;
		op.beta = (float)s->apart->options.feedback;
	}
	tr_status status = tr_submit(t->group, &op, error);
	if (status == TR_OK)
		status = tr_wait(t->group, op.tag, error);
	return status == TR_OK ? sharded_gather_parts(t, which, t->arrays.grads, range, error)
	                       : status;
}

/* All but a table that comes from the first stage. */
static tr_status sum_movements(struct trainer *t, struct tr_error *error)
{
	size_t offset = t->layout.count, numbers = 0;
	if (t->layout.depth.head && !sharded_has_copy(t, &offset, &numbers))
		offset = t->layout.count;
	tr_status status = sum_range(t, 0, 0, offset, error);
	return status == TR_OK ? sum_range(t, 1, offset + numbers, t->layout.count, error) : status;
}

/* ---- and what is the same at several workers of a replica ---- */

static tr_status share_whole_tensors(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	unsigned root = 0;
	if (s->tp.count < 2)
		return TR_OK;
	while (mesh_at(&s->shards.mesh, s->next.peers[s->tp.members[root]].rank).at[MESH_TP] != 0)
		root++;
	return sharded_broadcast(t, TAG_SHARED, s->shared, sharded_copy_shared(t, false), &s->tp,
	    root, error);
}

/* Its memory is that of the sum, which all have to be done with first. */
static tr_status release_movements(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	bool copies = sharded_copies(s) > 1;
	tr_status status = sharded_barrier(t, TAG_MERGE + 2, copies ? &s->copies : &s->dp, error);
	if (status == TR_OK && copies)
		return sharded_release_parts(t, 0, (struct owners_range){ 0, t->layout.count },
		    error);
	return status == TR_OK ? tr_release(t->group, TAG_MERGE, error) : status;
}

static tr_status share_table(struct trainer *t, struct tr_error *error)
{
	size_t offset, numbers;
	struct sharded_scope ends;
	if (!sharded_has_copy(t, &offset, &numbers))
		return TR_OK;
	tr_status status = t->layout.depth.head || t->sharded->apart->stream.on
	    ? TR_OK
	    : release_movements(t, error);
	unsigned root = sharded_ends(t, &ends);
	return status == TR_OK
	    ? sharded_broadcast(t, TAG_TABLE, t->arrays.grads + offset, numbers, &ends, root, error)
	    : status;
}

static tr_status merge_whole(struct trainer *t, struct tr_error *error)
{
	make_movement(t);
	if (t->sharded->dp.count < 2)
		return TR_OK;
	sharded_settle_lost(t);
	return sum_movements(t, error);
}

/* The table is of the first fragment, as all before the layers is. */
static tr_status merge_movements(struct trainer *t, struct tr_error *error)
{
	struct stream_slot slot = { 0 };
	bool streams = t->sharded->apart->stream.on && sharded_stream_slot(t, &slot);
	tr_status status = streams ? sharded_wait_fragment(t, slot.fragment, error)
	                           : merge_whole(t, error);
	if (status != TR_OK || t->sharded->dp.count < 2)
		return status;
	status = share_whole_tensors(t, error);
	return status == TR_OK && slot.fragment == 0 ? share_table(t, error) : status;
}

/* ---- what all together have ---- */

/* Bytes that this worker has sent to other replicas' workers and to spares. */
static uint64_t sent_across(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	struct tr_link links[TR_GROUP_PEERS_MAX] = { TR_LINK_INIT };
	struct tr_error error;
	size_t count = 0;
	uint64_t sent = 0;
	if (tr_links(t->group, links, TR_GROUP_PEERS_MAX, &count, &error) != TR_OK)
		return 0;
	uint32_t own = ranks_replica(&s->next, s->self);
	for (size_t i = 0; i < count && i < TR_GROUP_PEERS_MAX; i++) {
		uint32_t index = ranks_find(&s->next, links[i].peer);
		if (index == RANKS_NONE || ranks_replica(&s->next, index) != own)
			sent += links[i].sent_bytes;
	}
	return sent;
}

/* Up to the merge before, as tr_sync does. */
static void say_costs(struct trainer *t, struct sync_costs_said *said)
{
	struct sharded_apart *a = t->sharded->apart;
	uint64_t sent = sent_across(t);
	*said = a->said;
	said->members = sharded_speaks_for_replica(t) ? 1 : 0;
	said->sent_bytes = sent > a->sent_bytes ? (double)(sent - a->sent_bytes) : 0;
	a->sent_now = sent; /* told, if this is committed */
}

tr_status sharded_submit_merge(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	tr_status status = TR_OK;
	a->merging_since_s = trainer_monotonic_s();
	memset(a->sums, 0, sizeof(*a->sums));
	if (s->rank != RANKS_NONE) {
		say_costs(t, &a->sums->costs); /* this merge's own are told with the next one */
		status = merge_movements(t, error);
	}
	double spoken = sharded_speaks_for_replica(t) ? tokens_of(t) : 0;
	if (!a->stream.on)
		a->own.given = (struct apart_given){ weight_of(t), a->own.loss, spoken };
	if (sharded_speaks_for_replica(t)) {
		a->sums->loss = a->own.given.loss;
		a->sums->loss_tokens = a->own.given.tokens;
		a->sums->tokens = spoken;
		a->sums->weight = a->own.given.weight;
	}
	size_t numbers = offsetof(struct apart_sums, reports) / sizeof(double) +
	    sharded_say_rate(t, spoken);
	return status == TR_OK ? tr_allreduce(t->group, TAG_LOSS, a->sums, numbers, TR_F64, TR_SUM,
	                             trainer_contributes(round) ? TR_CONTRIBUTE : 0, error)
	                       : status;
}

tr_status sharded_wait_merge(struct trainer *t, uint64_t *samples, struct tr_error *error)
{
	tr_status status = sharded_hand_on(t, error);
	if (status == TR_OK)
		status = tr_wait(t->group, TAG_LOSS, error);
	if (status == TR_OK)
		*samples = (uint64_t)llround(
		    t->sharded->apart->sums->tokens / (double)t->layout.config.context);
	return status;
}

/* ---- committed ---- */

static void keep_lost(struct apart_lost *lost)
{
	float *before = lost->now;
	lost->now = lost->next;
	lost->next = before;
}

static void step_outer(struct trainer *t, double weight)
{
	const struct sharded *s = t->sharded;
	const struct tr_sync_options *o = &s->apart->options;
	if (!(weight > 0))
		return;
	if (s->dp.count > 1)
		keep_lost(&s->apart->lost);
	outer_step(t->arrays.params, t->arrays.outer, t->arrays.grads, (float)(1 / weight),
	    (float)o->outer_lr, (float)o->outer_momentum, t->layout.count);
}

static void merge_committed(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s->rank == RANKS_NONE)
		s->apart->lost.shard = RANKS_NONE;
	else if (s->dp.count > 1 && s->tp.count > 1)
		(void)sharded_copy_shared(t, true);
	if (s->apart->stream.on)
		sharded_stream_merge(t, s->apart->sums->weight);
	else if (s->rank != RANKS_NONE)
		step_outer(t, s->apart->sums->weight);
}

static void note_samples(struct trainer *t, const struct tr_round *round)
{
	const struct apart_part *part = sharded_apart_part(t);
	if (part == NULL || !part->trains || !sharded_speaks(t))
		return;
	uint64_t first, last;
	sharded_copy_samples(t->sharded, part->share, &first, &last);
	for (uint64_t at = 0; at < part->claim.count; at += part->share) {
		for (uint64_t i = first; i < last; i++)
			t->numbers[i - first] = claims_sample(t->account,
			    part->claim.first + at + i);
		trainer_account_note(t, round->round, (size_t)(last - first));
	}
}

static void count_samples(struct trainer *t, const struct tr_round *round)
{
	const struct sharded *s = t->sharded;
	struct claim claims[TR_GROUP_PEERS_MAX];
	size_t count = 0;
	for (uint32_t i = 0; i < ranks_replicas(&s->next); i++)
		if (s->apart->parts[i].trains)
			claims[count++] = s->apart->parts[i].claim;
	note_samples(t, round);
	claims_count(t->account, claims, count, round->round);
}

/* Who was interrupted and not whole again in time, or got shards meanwhile. */
static void tell_absent(struct trainer *t, const struct tr_round *round)
{
	const struct sharded *s = t->sharded;
	for (uint32_t i = 0; i < ranks_replicas(&s->next) && round->index == 0; i++) {
		char event[160];
		if (s->apart->parts[i].trains)
			continue;
		(void)snprintf(event, sizeof(event),
		    "merge at step %llu without one of %u replicas: %s, and goes on from what the "
		    "others merged",
		    (unsigned long long)t->counters->step, ranks_replicas(&s->next),
		    sharded_waits_for_shards(s, i) ? "its shards came while they trained"
		                                   : "it lost a worker");
		trainer_report_event(t, event);
	}
}

static void count_costs(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	double took_s = trainer_monotonic_s() - a->merging_since_s;
	costs_count(&s->state->costs, &a->sums->costs, t->counters->step - t->counters->start,
	    s->whole.parameters);
	a->sent_bytes = a->sent_now;
	/* Who sat it out was there from the round's beginning: what it waited for were the others' steps. */
	const struct apart_part *part = sharded_apart_part(t);
	a->said.waited_s = a->said.flight_s = part != NULL && part->trains ? took_s : 0;
	if (a->own.taken)
		a->said.flight_s = trainer_monotonic_s() - a->own.taken_s;
}

/* Of merges at one step together, as tr_sync tells them: the last ones have no step between them. */
static void report(struct trainer *t, const struct tr_round *round)
{
	struct sharded_apart *a = t->sharded->apart;
	struct stream_slot next;
	a->untold.loss += a->sums->loss;
	a->untold.tokens += a->sums->loss_tokens;
	bool more = a->stream.on && sharded_stream_slot(t, &next) && next.steps == 0;
	if (more || !(a->untold.tokens > 0))
		return;
	t->sums->loss = a->untold.loss;
	t->sums->loss_tokens = a->untold.tokens;
	a->untold = (struct apart_given){ 0 };
	trainer_measure_speed(t);
	trainer_report_step(t, round, t->sums->loss / t->sums->loss_tokens,
	    trainer_validation_loss(t), NAN);
}

static uint64_t trained(const struct sharded *s)
{
	uint32_t there[TR_GROUP_PEERS_MAX], count = ranks_there(&s->next, there);
	uint64_t places = 0;
	for (uint32_t i = 0; i < count && there[i] < 64; i++)
		places |= (uint64_t)s->apart->parts[i].trains << there[i];
	return places;
}

void sharded_apply_merge(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	uint64_t steps = sharded_apart_steps(t);
	merge_committed(t);
	sharded_move_rates(t);
	count_samples(t, round);
	t->counters->step += steps;
	s->state->merged_steps = steps;
	s->state->trained = trained(s);
	s->state->merges++;
	t->counters->samples = lease_counted(t->account);
	t->counters->tokens += (uint64_t)a->sums->tokens;
	count_costs(t);
	tell_absent(t, round);
	a->own = (struct apart_own){ 0 };
	s->state->born = 1;
	s->loaded = RANKS_NONE;
	s->state->step_round = round->round;
	report(t, round);
	trainer_account_tell(t, round, false);
}
