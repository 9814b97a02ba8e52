#include "collectives/sync/searching.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

tr_status searching_create(struct tr_sync *s, struct tr_error *error)
{
	if (!s->options.lr_search)
		return TR_OK;
	if (!s->options.lr_probe)
		return tr_error_set(error, TR_EINVAL,
		    "sync.lr_search: found true without lr_probe: the program has to say what the "
		    "loss is");
	s->told = tr_alloc(s->group, TR_GROUP_PEERS_MAX * sizeof(s->told[0]));
	return s->told
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM, "sync.lr_search: no memory for what members tell");
}

bool searching_choose(struct tr_sync *s)
{
	const struct search_state *state = &s->counters->search;

	s->apart = s->options.lr_search && state->race > 0;
	if (!s->apart)
		return false;
	if (s->raced != state->race)
		s->race_scale = search_scale(state, &s->options, s->counters->lr_base[0],
		    s->round.index, s->round.contributors);
	if (s->raced != state->race) /* who comes later has had less time, and tells nothing */
		s->raced_late = s->progress.step > state->origin;
	s->raced = state->race;
	s->lr_scale = s->race_scale;
	return true;
}

bool searching_take(struct tr_sync *s)
{
	const struct search_state *state = &s->counters->search;

	memset(&s->tell, 0, sizeof(s->tell));
	if (s->apart && state->judged > 0 && !s->raced_late) {
		double loss = s->options.lr_probe(s->options.lr_probe_arg, s->round.round);
		bool number = isfinite(loss);
		s->tell = (struct search_told){ number ? 1 : -1, (double)tr_peer_id(s->group),
			s->race_scale, number ? loss : 0 };
	}
	return !s->apart || state->winner == tr_peer_id(s->group);
}

tr_status tr_sync_follow(tr_sync *s, float *array, size_t count, struct tr_error *error)
{
	if (s->started || !s->options.lr_search || s->follower_count == SYNC_FOLLOW_MAX || !array ||
	    count == 0)
		return tr_error_set(error, TR_EINVAL, "sync: %s",
		    s->started                  ? "what follows is named before tr_sync_start"
		        : !s->options.lr_search ? "only with lr_search does something follow"
		        : !array || count == 0  ? "what follows has no data"
		                                : "at most 4 arrays follow");
	float *sum = tr_alloc_sparse(s->group, count * sizeof(float));
	if (!sum)
		return tr_error_set(error, TR_ENOMEM, "sync: no memory for what follows: %zu MiB",
		    count * sizeof(float) >> 20);
	s->followers[s->follower_count].array = array;
	s->followers[s->follower_count].sum = sum;
	s->followers[s->follower_count++].count = count;
	return TR_OK;
}

/* The winner's, summed with zeros, aside: if it dies in this round, nobody's are void. */
static tr_status submit_followers(struct tr_sync *s, unsigned flags, struct tr_error *error)
{
	uint64_t winner = s->counters->search.winner;
	tr_status status = TR_OK;

	for (unsigned i = 0; winner > 0 && status == TR_OK && i < s->follower_count; i++) {
		float *sum = s->followers[i].sum;
		size_t bytes = s->followers[i].count * sizeof(float);
		if (winner == tr_peer_id(s->group))
			memcpy(sum, s->followers[i].array, bytes);
		else
			memset(sum, 0, bytes);
		status = tr_allreduce(s->group, (uint32_t)SYNC_TAG_FOLLOW + i, sum,
		    s->followers[i].count, TR_F32, TR_SUM, flags, error);
	}
	return status;
}

tr_status searching_submit(struct tr_sync *s, unsigned flags, struct tr_error *error)
{
	tr_status status = submit_followers(s, flags, error);

	if (status != TR_OK)
		return status;
	memset(s->told, 0, TR_GROUP_PEERS_MAX * sizeof(s->told[0]));
	if (sync_contributes(s))
		s->told[s->round.index] = s->tell;
	return tr_allreduce(s->group, SYNC_TAG_SEARCH, s->told,
	    (size_t)s->options.peers_most * SEARCH_TOLD_NUMBERS, TR_F64, TR_SUM, flags, error);
}

/* ---- what came of it ---- */

static void say(struct tr_sync *s, const struct search_state *before)
{
	const struct search_told *best = search_best(s->told, s->options.peers_most);

	if (s->event[0] == '\0' && best)
		(void)snprintf(s->event, sizeof(s->event),
		    "learning rate, race %u of %u: peer %llu has the least loss, %.3f; %s at %.3g "
		    "times "
		    "what the job says",
		    (unsigned)before->race, (unsigned)SEARCH_RACES, (unsigned long long)best->peer,
		    best->loss,
		    s->counters->search.race > before->race ? "all begin anew, around it,"
		                                            : "all go on from there",
		    s->counters->lr_base[0]);
}

void searching_commit(struct tr_sync *s, uint64_t step, bool given)
{
	struct search_state *state = &s->counters->search, before = *state;

	for (unsigned i = 0; before.winner > 0 && given && i < s->follower_count; i++)
		memcpy(s->followers[i].array, s->followers[i].sum,
		    s->followers[i].count * sizeof(float));
	search_control(&s->options, s->told, s->options.peers_most, step, given,
	    &s->counters->lr_base[0], state);
	for (unsigned i = 0; state->origin != before.origin && i < s->follower_count; i++)
		memset(s->followers[i].array, 0, s->followers[i].count * sizeof(float));
	if (state->race != before.race || state->winner != before.winner)
		say(s, &before);
}

bool searching_race_ends(const struct tr_sync *s)
{
	return s->counters->search.race != s->raced;
}

uint64_t tr_sync_origin(const tr_sync *s)
{
	return s->counters->search.origin;
}

bool tr_sync_races(const tr_sync *s)
{
	return s->counters->search.race > 0;
}
