#include "collectives/sync/searching.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* Numbers of batches that a round may ask for: one for each member, and the last one for all. */
#define BATCHES (2 * TR_GROUP_PEERS_MAX)

tr_status searching_create(struct tr_sync *s, struct tr_error *error)
{
	if (!s->options.lr_search)
		return TR_OK;
	if (!s->options.lr_probe)
		return tr_error_set(error, TR_EINVAL,
		    "sync.lr_search: found true without lr_probe: the program has to say what the "
		    "loss is");
	s->told = tr_alloc(s->group, TR_GROUP_PEERS_MAX * sizeof(s->told[0]));
	s->anchor = malloc(s->first[s->options.fragments] * sizeof(float));
	if (!s->told || !s->anchor)
		return tr_error_set(error, TR_ENOMEM,
		    "sync.lr_search: no memory for one more copy of the parameters");
	return TR_OK;
}

void searching_destroy(struct tr_sync *s)
{
	free(s->anchor);
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
	s->raced = state->race;
	s->lr_scale = s->race_scale;
	return true;
}

static double loss_on(struct tr_sync *s, uint64_t batch)
{
	return s->options.lr_probe(s->options.lr_probe_arg, s->round.round * BATCHES + batch);
}

bool searching_take(struct tr_sync *s)
{
	const struct search_state *state = &s->counters->search;

	if (s->apart && state->judged > 0) {
		double loss = loss_on(s, BATCHES - 1);
		memset(&s->tell, 0, sizeof(s->tell));
		if (isfinite(loss))
			s->tell = (struct search_told){ .asked = 1,
				.peer = (double)tr_peer_id(s->group),
				.scale = s->race_scale,
				.loss = { loss } };
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
	float *sum = tr_alloc(s->group, count * sizeof(float));
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

static double told_loss(const struct tr_sync *s, uint64_t peer)
{
	for (unsigned i = 0; i < s->options.peers_most; i++)
		if (s->told[i].asked == 1 && (uint64_t)s->told[i].peer == peer)
			return s->told[i].loss[0];
	return 0;
}

void searching_commit(struct tr_sync *s, uint64_t step, bool given)
{
	struct search_state *state = &s->counters->search, before = *state;
	double *base = &s->counters->lr_base[0], was = *base;

	for (unsigned i = 0; before.winner > 0 && given && i < s->follower_count; i++)
		memcpy(s->followers[i].array, s->followers[i].sum,
		    s->followers[i].count * sizeof(float));
	search_control(&s->options, s->told, s->options.peers_most, step, base, state);
	if (s->event[0] != '\0')
		return;
	if (state->winner > 0 && before.winner == 0)
		(void)snprintf(s->event, sizeof(s->event),
		    "learning rate, race %u of %u: peer %llu has the least loss, %.3f, at %.3g "
		    "times "
		    "what the job says",
		    (unsigned)state->race, (unsigned)SEARCH_RACES,
		    (unsigned long long)state->winner, told_loss(s, state->winner), *base);
	else if (before.probed > 0 && (*base > 1.2 * was || *base < was / 1.2))
		(void)snprintf(s->event, sizeof(s->event),
		    "learning rate: %.3g times what the job says from step %llu on (%.3g before)",
		    *base, (unsigned long long)step, was);
}

bool searching_race_ends(const struct tr_sync *s)
{
	return s->counters->search.race != s->raced;
}

/* ---- the line ---- */

static void go_to(struct tr_sync *s, float c)
{
	for (size_t t = 0; t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		const float *from = s->anchor + tensor->offset, *to = s->outer + tensor->offset;
		for (size_t i = 0; i < tensor->count; i++)
			tensor->data[i] = from[i] + c * (to[i] - from[i]);
	}
}

static void look_along(struct tr_sync *s)
{
	bool known = true;

	/* What was done alone since the take is in the parameters, and nowhere else. One fragment: sum has room for all, and is free between merge and take. */
	for (size_t t = 0; t < s->tensor_count; t++)
		memcpy(s->sum + s->tensors[t].offset, s->tensors[t].data,
		    s->tensors[t].count * sizeof(float));
	s->tell.asked = SEARCH_POINTS;
	for (unsigned i = 0; i < SEARCH_POINTS; i++) {
		go_to(s, (float)search_point(i));
		s->tell.loss[i] = loss_on(s, s->round.index);
		known = known && isfinite(s->tell.loss[i]);
	}
	if (!known)
		memset(&s->tell, 0, sizeof(s->tell));
	for (size_t t = 0; t < s->tensor_count; t++)
		memcpy(s->tensors[t].data, s->sum + s->tensors[t].offset,
		    s->tensors[t].count * sizeof(float));
}

void searching_look(struct tr_sync *s, uint64_t step)
{
	const struct search_state *state = &s->counters->search;

	memset(&s->tell, 0, sizeof(s->tell));
	if (!s->options.lr_search || state->race > 0 || s->finished)
		return;
	bool ends = state->probed == step && step > 0, begins = state->anchored == step;
	/* Who came in the middle of a window has not seen where it began. */
	if (ends && s->anchored == state->anchored + 1 && sync_contributes(s))
		look_along(s);
	if (!ends && !begins)
		return;
	memcpy(s->anchor, s->outer, s->first[s->options.fragments] * sizeof(float));
	s->anchored = step + 1;
}
