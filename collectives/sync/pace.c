#include "collectives/sync/pace.h"

#include "common/limits.h"

#define STEPS_MOST 9e15 /* what a double counts one by one */

uint64_t pace_quota(const struct tr_sync_options *o, const struct pace_agreed *agreed, double step_s)
{
	if (!(step_s > 0))
		step_s = agreed->slowest_s;
	if (!o->by_speed || step_s <= 0 || step_s <= agreed->fastest_s)
		return o->inner_steps;
	uint64_t quota = (uint64_t)((double)o->inner_steps * (agreed->fastest_s / step_s));
	return quota > o->fragments ? quota : o->fragments;
}

/* Of a whole period, of the peer that completes the quorum, if nobody is disturbed. */
static double quorum_time(const struct tr_sync_options *o, const struct pace_agreed *agreed,
    const struct sync_report *reports, size_t count)
{
	double times[TR_GROUP_PEERS_MAX];
	size_t known = 0;

	for (size_t i = 0; i < count && i < TR_GROUP_PEERS_MAX; i++) {
		if (reports[i].step_s <= 0)
			continue;
		double time = (double)pace_quota(o, agreed, reports[i].step_s) * reports[i].step_s;
		size_t at = known++;
		for (; at > 0 && times[at - 1] > time; at--)
			times[at] = times[at - 1];
		times[at] = time;
	}
	if (known == 0)
		return 0;
	size_t quorum = o->quorum > 0 ? o->quorum : known / 2 + 1;
	return times[(quorum < known ? quorum : known) - 1];
}

void pace_agree(const struct tr_sync_options *o, const struct sync_report *reports, size_t count,
    uint64_t round, struct pace_agreed *agreed)
{
	double fastest_s = 0, slowest_s = 0;

	for (size_t i = 0; i < count; i++) {
		double step_s = reports[i].step_s;
		if (reports[i].step > (double)agreed->step && reports[i].step < STEPS_MOST)
			agreed->step = (uint64_t)reports[i].step;
		if (step_s > 0 && (fastest_s == 0 || step_s < fastest_s))
			fastest_s = step_s;
		if (step_s > slowest_s)
			slowest_s = step_s;
	}
	if (fastest_s > 0) {
		agreed->fastest_s = fastest_s;
		agreed->slowest_s = slowest_s;
		agreed->quorum_s = quorum_time(o, agreed, reports, count);
	}
	if (agreed->last == 0 && o->steps > 0 && agreed->step >= o->steps)
		agreed->last = round;
}

bool pace_is_final(const struct pace_agreed *agreed, uint64_t round)
{
	return agreed->last > 0 && round > agreed->last;
}

/* Without overlap and with one fragment nothing is left after the merge of the last step. */
bool pace_is_past(const struct tr_sync_options *o, const struct pace_agreed *agreed, uint64_t round)
{
	bool nothing_left = o->fragments == 1 && o->overlap == 0 && o->mode != TR_SYNC_EAGER;

	return agreed->last > 0 && round > agreed->last + (nothing_left ? 0 : o->fragments);
}

bool pace_takes(const struct tr_sync_options *o, const struct pace_agreed *agreed,
    const struct pace_progress *p, uint64_t round)
{
	uint64_t fragment = (round - 1) % o->fragments;

	if (pace_is_final(agreed, round) || (o->steps > 0 && p->step >= o->steps))
		return true;
	if (p->since_take == 0)
		return false;
	if (o->inner_seconds > 0)
		return p->worked_s * o->fragments >= o->inner_seconds;
	uint64_t quota = pace_quota(o, agreed, p->step_s);
	if (p->since_take >= (fragment + 1) * quota / o->fragments - fragment * quota / o->fragments)
		return true;
	return o->grace_seconds > 0 && agreed->quorum_s > 0 &&
	    p->worked_s >= agreed->quorum_s / o->fragments + o->grace_seconds;
}

bool pace_merges(const struct tr_sync_options *o, const struct pace_agreed *agreed,
    const struct pace_progress *p, uint64_t round)
{
	bool whole = o->mode == TR_SYNC_EAGER;

	if (!whole && p->since_take >= (uint64_t)o->overlap)
		return true;
	/* The next round's fragment is due, or all steps are done. */
	return pace_is_final(agreed, round) || pace_takes(o, agreed, p, round + 1);
}
