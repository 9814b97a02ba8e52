/* Leases of samples among the rounds of tr_sync. The account changes when a round is committed, on all members alike; between two commits a member
 * goes through its own queue alone. How many samples it is given ahead: all that it can consume until the merge of the next round, which the schedule
 * says; where members take steps as they can, two to four times what it consumed in the last round, and a queue that runs dry all the same brings the
 * member's next take, or merge, forward.
 */
#include <math.h>
#include <string.h>

#include "collectives/sync/alone.h"
#include "collectives/sync/sync_internal.h"

#define STEPS_GUESSED 100 /* a period of members that go by time and have not measured any */

const struct lease_account *sync_leasing_account(const struct tr_sync *s)
{
	return s->enrolled_early ? s->early : s->leases;
}

/* Consumed from this peer's queue and not counted yet. */
static uint64_t ahead(const struct tr_sync *s)
{
	double said = s->taken && !s->committed ? s->given_lost + s->given.samples : 0;

	return (uint64_t)(said + s->lost + s->samples);
}

static uint64_t leasing_left(const struct tr_sync *s)
{
	uint64_t have = lease_have(sync_leasing_account(s), tr_peer_id(s->group));

	return have > ahead(s) ? have - ahead(s) : 0;
}

uint64_t tr_sync_sample(const tr_sync *s, uint64_t i)
{
	return i < sync_leasing_samples(s)
	    ? lease_at(sync_leasing_account(s), tr_peer_id(s->group), ahead(s) + i)
	    : UINT64_MAX;
}

uint64_t sync_leasing_samples(const struct tr_sync *s)
{
	if (!s->leases || s->finished || !sync_contributes(s))
		return 0;
	uint64_t batch = s->options.batch, n = s->round.contributors, left = leasing_left(s);
	if (s->dealt > 0) {
		struct sync_share part = shares_among(s->part, s->dealt, n);
		uint64_t dealt = shares_of_step(&part, s->progress.step + s->alone);
		if (s->enrolled_early && dealt > s->most)
			dealt = s->most; /* as below */
		return dealt < left ? dealt : left;
	}
	/* With more peers than samples each takes one all the same. */
	uint64_t share = batch * (s->round.index + 1) / n - batch * s->round.index / n;
	if (share > s->most)
		share = s->most; /* peers died: more than it was given for each step */
	if (share == 0)
		share = 1;
	return share < left ? share : left;
}

bool sync_leasing_is_dry(const struct tr_sync *s)
{
	return s->leases && leasing_left(s) == 0;
}

/* ---- how much ---- */

static uint64_t share_of(const struct tr_sync *s, uint64_t contributors)
{
	return contributors == 0 ? s->options.batch
	                         : (s->options.batch + contributors - 1) / contributors;
}

/* Inner steps of a round, of members whose steps no schedule knows. */
static uint64_t steps_guessed(const struct tr_sync_options *o)
{
	uint64_t period = o->inner_steps > 0 ? o->inner_steps : STEPS_GUESSED;

	return 2 * (period / o->fragments + 1);
}

/* From the merge before this round to its own. */
static uint64_t steps_first(const struct tr_sync *s)
{
	struct sync_slot slot, before = { 0 };

	if (pace_decides(&s->options))
		return steps_guessed(&s->options);
	if (!sync_schedule_slot(&s->schedule, s->round.round, &slot))
		return 0;
	(void)sync_schedule_slot(&s->schedule, s->round.round - 1, &before);
	return slot.merge - before.merge;
}

/* Samples of so many steps, of which each has `each` in the mean. */
static uint64_t samples_of(const struct tr_sync *s, double each, uint64_t steps)
{
	return s->options.share_by_speed ? shares_most(each, steps) : (uint64_t)each * steps;
}

/* What a member's queue has after the commit of this round, in which it consumed so much: the steps since its take are still in it. Samples of a step before and after the commit. */
static uint64_t needed(const struct tr_sync *s, uint64_t consumed, double before, double after)
{
	struct sync_slot next;
	uint64_t alone = s->options.alone_steps; /* before the merge or after it */
	double most = fmax(before, after);

	if (pace_decides(&s->options))
		return pace_is_past(&s->options, &s->counters->agreed, s->round.round + 1)
		    ? 0
		    : lease_guess(consumed, samples_of(s, after, steps_guessed(&s->options))) +
		        2 * samples_of(s, most, alone);
	if (!sync_schedule_slot(&s->schedule, s->round.round + 1, &next))
		return 0;
	return samples_of(s, most, s->slot.merge - s->slot.take + alone) +
	    samples_of(s, after, next.merge - s->slot.merge);
}

/* ---- rounds ---- */

tr_status sync_leasing_submit(struct tr_sync *s, unsigned flags, struct tr_error *error)
{
	memset(s->roster, 0, TR_GROUP_PEERS_MAX * sizeof(s->roster[0]));
	if (sync_contributes(s)) {
		uint64_t peer = tr_peer_id(s->group);
		struct lease_wish *wish = &s->roster[s->round.index];
		wish->peer = (double)peer;
		wish->was = (double)alone_was(s);
		if (s->enrolled_early) {
			struct lease_range claim = lease_claim(s->early, s->leases, peer);
			wish->from = (double)claim.from;
			wish->to = (double)claim.to;
		}
	}
	return tr_allreduce(s->group, SYNC_TAG_ROSTER, s->roster,
	    (size_t)s->options.peers_most * LEASE_WISH_NUMBERS, TR_F64, TR_SUM, flags, error);
}

tr_status sync_leasing_submit_said(struct tr_sync *s, unsigned flags, struct tr_error *error)
{
	memset(s->said, 0, TR_GROUP_PEERS_MAX * sizeof(s->said[0]));
	if (sync_contributes(s))
		s->said[s->round.index] = (struct lease_said){ s->given_lost + s->given.samples,
			s->given_lost };
	return tr_allreduce(s->group, SYNC_TAG_SAID, s->said,
	    (size_t)s->options.peers_most * LEASE_SAID_NUMBERS, TR_F64, TR_SUM, flags, error);
}

bool sync_leasing_is_new(const struct tr_sync *s)
{
	return !s->enrolled_early && lease_have(s->leases, tr_peer_id(s->group)) == 0;
}

bool sync_leasing_has_none(const struct tr_sync *s)
{
	return lease_have(sync_leasing_account(s), tr_peer_id(s->group)) == 0;
}

static void enroll(struct tr_sync *s, struct lease_account *into)
{
	uint64_t contributors = 0;

	for (size_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		contributors += s->roster[i].peer > 0;
	s->most = share_of(s, contributors);
	lease_enroll(into, s->roster, TR_GROUP_PEERS_MAX,
	    (steps_first(s) + s->options.alone_steps) * s->most);
}

void sync_leasing_enroll(struct tr_sync *s)
{
	*s->early = *s->leases;
	enroll(s, s->early);
	s->enrolled_early = true;
}

/* Of what a member says: a whole number that is not beyond `most`. */
static uint64_t whole(double number, uint64_t most)
{
	if (!(number > 0))
		return 0;
	return number < (double)most ? (uint64_t)number : most;
}

/* Who says more than it had is not given the more for it. */
static struct lease_use use_of(const struct tr_sync *s, size_t contributor)
{
	const struct lease_said *said = &s->said[contributor];
	double peer = s->roster[contributor].peer;
	struct lease_use use = { 0 };

	if (!(peer > 0 && peer < (double)LEASE_SAMPLE_MAX))
		return use;
	use.peer = (uint64_t)peer;
	use.consumed = whole(said->consumed, lease_have(s->leases, use.peer));
	use.lost = whole(said->lost, use.consumed);
	return use;
}

/* Who is missing is not measured any more: as long as somebody is, the slowest of before counts. */
static void mark_absent(struct tr_sync *s, const struct lease_use *uses)
{
	struct sync_counters *c = s->counters;
	double slowest_s = fmax(c->slowest_s, c->agreed.slowest_s);

	lease_mark_absent(s->leases, uses, TR_GROUP_PEERS_MAX, s->round.round,
	    alone_keep_rounds(&s->options, &c->agreed, slowest_s));
	c->slowest_s = lease_any_absent(s->leases) ? slowest_s : c->agreed.slowest_s;
}

double sync_leasing_part(const struct tr_sync *s)
{
	return s->dealt > 0 ? s->part.to - s->part.from : (double)s->most;
}

/* Who has no place, since it is new or was put out of the movement, has the smallest part. */
static struct sync_share part_of(const struct sync_share *parts, size_t index)
{
	bool has = index < TR_GROUP_PEERS_MAX && parts[index].to > parts[index].from;

	return has ? parts[index] : shares_least(parts, TR_GROUP_PEERS_MAX);
}

static void deal(struct tr_sync *s, struct sync_share *parts)
{
	uint64_t period = s->options.inner_steps / s->options.fragments;

	shares_deal(s->reports, TR_GROUP_PEERS_MAX, s->options.batch, period, parts);
	s->dealt_next = 0;
	for (size_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		s->dealt_next += parts[i].to > parts[i].from;
	s->part_next = part_of(parts, s->round.index);
}

void sync_leasing_merge(struct tr_sync *s)
{
	s->part = s->part_next;
	s->dealt = s->dealt_next;
}

static uint64_t need_of(const struct tr_sync *s, const struct sync_share *parts, size_t index,
    uint64_t consumed)
{
	double before = (double)s->most, after = before;

	if (s->dealt_next > 0) {
		struct sync_share part = part_of(parts, index);
		/* Who has no part yet takes up to `most` until the merge: of those who are left. */
		before = fmin(fmax(s->reports[index].share, before), (double)s->options.batch);
		after = part.to - part.from;
	}
	return needed(s, consumed, before, after);
}

void sync_leasing_commit(struct tr_sync *s)
{
	struct lease_use uses[TR_GROUP_PEERS_MAX];
	struct sync_share parts[TR_GROUP_PEERS_MAX] = { { 0 } };
	uint64_t contributors = 0;

	enroll(s, s->leases);
	for (size_t i = 0; i < TR_GROUP_PEERS_MAX; i++) {
		uses[i] = use_of(s, i);
		contributors += uses[i].peer != 0;
	}
	if (s->options.alone_steps > 0)
		mark_absent(s, uses);
	lease_settle(s->leases, uses, TR_GROUP_PEERS_MAX, s->round.round);
	s->most = share_of(s, contributors);
	if (s->options.share_by_speed)
		deal(s, parts);
	for (size_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		if (uses[i].peer != 0)
			lease_top_up(s->leases, uses[i].peer,
			    need_of(s, parts, i, uses[i].consumed), !pace_decides(&s->options));
	if (s->enrolled_early)
		s->was = s->was_before = 0;
	s->enrolled_early = false;
}
