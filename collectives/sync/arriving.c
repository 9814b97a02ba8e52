#include "collectives/sync/arriving.h"

#include <inttypes.h>

#include "collectives/kernels/codec.h"
#include "common/error.h"
#include "common/log.h"

#define LOOK_MS     50   /* between two looks at what has come */
#define NEARLY_LAST 0.95 /* of the steps: where nobody knows which merge is the last */

bool arriving_defers(const struct arriving *now)
{
	if (now->came == 0 || now->kept == 0 || now->missing == 0 || now->elapsed_s <= 0)
		return false;
	double n = now->contributors, rate = (double)now->came / now->elapsed_s;
	double result_s = (double)now->result / rate, rest_s = (double)now->missing / rate;
	uint64_t rounds = (now->missing + now->kept - 1) / now->kept;

	return (double)rounds * (n * result_s + now->elapsed_s + result_s) < n * rest_s;
}

static void has_come(struct tr_sync *s)
{
	if (s->deferred > 0)
		log_info("sync",
		    "peer %" PRIu64 ": its state is here; %u rounds were merged meanwhile",
		    tr_peer_id(s->group), s->deferred);
	s->deferred = 0;
	s->round.receive_state = false;
}

tr_status arriving_head(struct tr_sync *s, struct tr_error *error)
{
	struct tr_state_progress progress = { 0 };
	tr_status status = TR_ETIMEDOUT;

	while (status == TR_ETIMEDOUT && !progress.may_defer)
		status = tr_state_receive_for(s->group, LOOK_MS, &progress, error);
	if (status == TR_OK)
		has_come(s);
	return status == TR_ETIMEDOUT ? TR_OK : status;
}

tr_status arriving_all(struct tr_sync *s, struct tr_error *error)
{
	tr_status status = TR_OK;

	while (status == TR_OK && s->round.receive_state) {
		status = tr_state_receive(s->group, error);
		if (status == TR_OK)
			has_come(s);
		else if (status == TR_ERESTART)
			status = sync_begin(s, error);
	}
	return status;
}

/* Who goes on without its state has to get it in a later round. */
static bool is_last(const struct tr_sync *s)
{
	struct sync_slot slot;

	if (!pace_decides(&s->options))
		return !sync_schedule_slot(&s->schedule, s->round.round + 1, &slot);
	/* The newest merge whose step is known is the one before this round's. */
	double step = (double)s->counters->agreed.step;
	double a_round = step / (double)(s->round.round - s->counters->before);
	double steps = (double)s->options.steps;
	return steps > 0 && (step >= NEARLY_LAST * steps || step + 2 * a_round >= steps);
}

static bool defers(const struct tr_sync *s, const struct tr_state_progress *progress)
{
	size_t count = sync_fragment_count(s, s->slot.fragment);
	struct arriving now = { .missing = progress->missing,
		.came = progress->came,
		.kept = progress->kept,
		.result = s->options.codec == TR_CODEC_NONE ? count * sizeof(float)
		                                            : codec_bytes(s->options.codec, count),
		.elapsed_s = sync_monotonic_s() - s->begun_s,
		.contributors = s->round.contributors };

	return progress->may_defer && !is_last(s) && !s->options.lr_search && arriving_defers(&now);
}

tr_status arriving_rest(struct tr_sync *s, struct tr_error *error)
{
	struct tr_state_progress progress;
	uint32_t wait_ms = 0;

	for (;; wait_ms = LOOK_MS) {
		tr_status status = tr_state_receive_for(s->group, wait_ms, &progress, error);
		if (status == TR_OK)
			has_come(s);
		if (status != TR_ETIMEDOUT)
			return status;
		if (defers(s, &progress))
			break;
	}
	s->defers = true;
	return TR_OK;
}

void arriving_closed(struct tr_sync *s, const struct tr_round *committed)
{
	s->defers = committed->receive_state;
	if (s->defers)
		s->deferred++;
	else if (s->round.receive_state || s->deferred > 0)
		has_come(s);
}

tr_status arriving_too_late(const struct tr_sync *s, struct tr_error *error)
{
	return tr_error_set(error, TR_EUNAVAILABLE,
	    "sync: training ended in round %" PRIu64
	    " before all of the state was here: there is nothing left to take part in",
	    s->merging);
}
