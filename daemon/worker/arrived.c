/* Policy drop: a round may end without some contributor's data, and not with the same contributors in every segment: what was sealed
 * before the death has all, the rest the survivors. So each segment is normalised by the tokens that are in it: it is scaled by
 * (tokens of the batch) / (tokens that arrived), and then the step goes on as for a whole batch.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* What peer `id` brought. The roster is reduced first of all in the round; if a peer died even before that, but after others had its
 * gradients, its share is taken as the average (wrong by less than one sequence). */
static double tokens_of(const struct trainer *t, const struct tr_round *round, uint64_t id)
{
	for (unsigned i = 0; i < round->contributors; i++)
		if (t->sums->roster[2 * i] == (double)id)
			return t->sums->roster[2 * i + 1];
	return (double)(t->batch * t->layout.config.context) / round->contributors;
}

static tr_status tokens_in(struct trainer *t, const struct tr_round *round, uint32_t tag,
    size_t element, double *tokens, struct tr_error *error)
{
	uint64_t peers[TR_GROUP_PEERS_MAX];
	size_t count = 0;
	tr_status status = tr_contributors(t->group, tag, element, peers, TR_GROUP_PEERS_MAX,
	    &count);
	if (status != TR_OK)
		return tr_error_set(error, status,
		    "round %llu: the contributors of op %u, element %zu are not known",
		    (unsigned long long)round->round, tag, element);
	*tokens = 0;
	for (size_t i = 0; i < count; i++)
		*tokens += tokens_of(t, round, peers[i]);
	return TR_OK;
}

static void scale(float *x, size_t count, float by)
{
	for (size_t i = 0; i < count; i++)
		x[i] *= by;
}

tr_status trainer_scale_arrived(struct trainer *t, const struct tr_round *round, char *text,
    size_t text_bytes, struct tr_error *error)
{
	double whole = (double)(t->batch * t->layout.config.context), least = whole;
	size_t segments = 0, reduced = 0;
	for (size_t b = 0; b < t->buckets.count; b++) {
		size_t end = buckets_end(&t->buckets, b);
		size_t piece = 0;
		tr_status known = tr_run_elements(t->group, (uint32_t)b, &piece);
		if (known != TR_OK)
			return tr_error_set(error, known,
			    "round %llu: the segments of op %zu are not known",
			    (unsigned long long)round->round, b);
		for (size_t at = t->buckets.first[b]; at < end; at += piece) {
			double tokens = 0;
			tr_status status = tokens_in(t, round, (uint32_t)b,
			    at - t->buckets.first[b], &tokens, error);
			if (status != TR_OK)
				return status;
			segments++;
			if (tokens == whole)
				continue;
			/* No token at all: nothing is known about these parameters. */
			scale(t->arrays.grads + at, end - at < piece ? end - at : piece,
			    tokens > 0 ? (float)(whole / tokens) : 0);
			least = tokens < least ? tokens : least;
			reduced++;
		}
	}
	(void)snprintf(text, text_bytes,
	    "step %llu applied with what arrived: %zu of %zu segments lack a peer, the least holds "
	    "%.0f of %.0f "
	    "tokens",
	    (unsigned long long)round->round, reduced, segments, least, whole);
	return TR_OK;
}
