#include "collectives/sync/closing.h"

#include <math.h>
#include <string.h>

#include "collectives/sync/alone.h"
#include "collectives/sync/arriving.h"
#include "collectives/sync/drift.h"
#include "collectives/sync/hdet.h"
#include "collectives/sync/late.h"
#include "collectives/sync/outer.h"
#include "collectives/sync/searching.h"
#include "common/error.h"

/* What all compare of their state goes last: with an overlap this is long after the fragment went. */
static tr_status settle(struct tr_sync *s, bool patient, struct tr_error *error)
{
	bool compared_before = s->compared; /* inner steps lie in between */
	tr_status status = drift_submit(s, error);

	if (status == TR_OK && !patient)
		status = alone_wait(s, SYNC_TAG_TOTALS, error);
	if (status == TR_OK && !patient)
		status = alone_wait(s, parity_first_tag(&s->parity), error);
	if (status == TR_OK)
		status = drift_settle(s, error);
	if (status == TR_OK)
		status = tr_wait(s->group, SYNC_TAG_TOTALS, error);
	if (status == TR_OK && s->round.receive_state)
		status = arriving_rest(s, error);
	if (status != TR_OK)
		return status;
	s->close = (struct tr_commit){ .samples = (uint64_t)llround(s->result.totals->samples) };
	s->close.flags = s->defers ? TR_DEFER_STATE : 0;
	s->close.salt = s->defers ? parity_salt_agreed(&s->parity)
	    : compared_before     ? parity_salt_compared(&s->parity)
	                          : parity_salt(&s->parity);
	s->settled = true;
	return TR_OK;
}

/* TR_ETIMEDOUT: this peer trains on alone, and calls it again. */
static tr_status try_commit(struct tr_sync *s, struct tr_error *error)
{
	bool patient = !alone_may(s);
	struct tr_round committed = s->round;
	tr_status status = s->settled ? TR_OK : settle(s, patient, error);

	if (status != TR_OK)
		return status;
	s->closed = true;
	if (!patient)
		return alone_commit(s, &s->close, error);
	status = tr_round_commit(s->group, &s->close, &committed, error);
	if (status == TR_OK)
		arriving_closed(s, &committed);
	return status;
}

/* Nobody's work came in if all contributors died: then nothing is learned. */
static void step_outer(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment];
	size_t count = sync_fragment_count(s, s->slot.fragment);
	double weight = s->result.totals->weight;

	/* Who meant to defer compared nothing of its own, whatever came after. */
	if ((s->close.flags & TR_DEFER_STATE) == 0)
		drift_look_again(s);
	late_recall(s);
	sync_follow_schedule(s);
	if (weight > 0)
		outer_step(s->outer + first, s->momentum ? s->momentum + first : NULL,
		    s->result.sum, (float)(1 / weight), (float)s->options.outer_lr,
		    (float)s->options.outer_momentum, count);
	/* Of the other fragments the next one is stale: only this fragment's changes hands. */
	if (sync_contributes(s) && s->residual && weight > 0)
		memcpy(s->residual + first, s->result.residual_next, count * sizeof(float));
	s->share = weight > 0 ? s->given.weight / weight : 0;
	s->counters->round = s->round.round;
	if (s->options.mode == TR_SYNC_HDET && !s->options.lr_search)
		hdet_control(&s->options, s->reports, TR_GROUP_PEERS_MAX, s->counters->lr_base);
	if (pace_decides(&s->options))
		pace_agree(&s->options, s->reports, TR_GROUP_PEERS_MAX, s->round.round,
		    &s->counters->agreed);
	uint64_t step = pace_decides(&s->options) ? s->counters->agreed.step : s->slot.merge;
	costs_count(&s->counters->costs, &s->result.totals->costs, step,
	    s->first[s->options.fragments]);
	if (s->options.lr_search)
		searching_commit(s, step, weight > 0);
	if (s->leases)
		sync_leasing_commit(s);
	s->committed = true;
	s->merging = s->round.round;
	s->agreed = s->counters->agreed;
	drift_remember(s);
}

/* ---- without waiting, and with it ---- */

/* TR_ETIMEDOUT: the others are not so far. */
static tr_status look(struct tr_sync *s, struct tr_error *error)
{
	struct tr_round committed = s->round;
	tr_status status = TR_OK;

	if (!s->compared)
		status = tr_wait_for(s->group, SYNC_TAG_FRAGMENT, 0, error);
	if (status == TR_OK && !s->compared)
		status = tr_wait_for(s->group, SYNC_TAG_TOTALS, 0, error);
	if (status == TR_OK)
		status = drift_submit(s, error);
	if (status == TR_OK && !s->settled)
		status = tr_wait_for(s->group, parity_first_tag(&s->parity), 0, error);
	if (status == TR_OK && !s->settled)
		status = settle(s, true, error);
	if (status != TR_OK || s->parity.drifted)
		return status;
	s->closed = true;
	status = tr_round_commit_for(s->group, &s->close, &committed, 0, error);
	if (status != TR_OK)
		return status;
	step_outer(s);
	return sync_begin_ahead(s, error);
}

tr_status closing_go_on(struct tr_sync *s, struct tr_error *error)
{
	bool waits = s->settled && s->parity.drifted;

	if (s->committed || waits || s->round.receive_state)
		return TR_OK;
	double since_s = sync_monotonic_s();
	tr_status status = look(s, error);
	if (status == TR_ERESTART)
		status = sync_begin(s, error);
	s->waited_s += sync_monotonic_s() - since_s;
	return status == TR_ETIMEDOUT ? TR_OK : status;
}

tr_status closing_wait(struct tr_sync *s, struct tr_error *error)
{
	if (s->committed)
		return TR_OK;
	tr_status status = try_commit(s, error);
	while (status == TR_ERESTART) {
		status = sync_begin(s, error);
		if (status == TR_OK)
			status = try_commit(s, error);
	}
	if (status != TR_OK)
		return status;
	drift_mend(s);
	step_outer(s);
	return TR_OK;
}
