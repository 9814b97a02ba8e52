#include "collectives/sync/local.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collectives/sync/drift.h"
#include "collectives/sync/outer.h"
#include "common/log.h"

void local_fetch(struct tr_sync *s, const float *from)
{
	for (size_t i = 0; i < s->tensor_count; i++)
		memcpy(s->tensors[i].data, from + s->tensors[i].offset,
		    s->tensors[i].count * sizeof(float));
}

void local_merge(struct tr_sync *s)
{
	for (size_t i = 0; i < s->tensor_count; i++)
		if (sync_in_slot(s, i))
			outer_merge(s->tensors[i].data, s->outer + s->tensors[i].offset,
			    (float)s->options.alpha, s->tensors[i].count);
}

void local_delta(struct tr_sync *s, const float *from, float weight)
{
	size_t first = s->first[s->slot.fragment];

	for (size_t i = 0; i < s->tensor_count; i++) {
		const struct sync_tensor *t = &s->tensors[i];
		if (sync_in_slot(s, i))
			outer_delta(s->delta + t->offset - first, from + t->offset, t->data, weight,
			    t->count);
	}
}

void local_run_ahead(struct tr_sync *s, float before)
{
	size_t count = s->first[1];
	float share = s->share > 0 ? (float)s->share : 1 / (float)s->round.contributors;

	for (size_t t = 0; t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		size_t at = tensor->offset;
		/* sum: free between merge and take */
		outer_newer(s->sum + at, s->start + at, tensor->data, s->delta + at, before,
		    tensor->count);
	}
	outer_step(s->lead, s->lead_momentum, s->sum, share, (float)s->options.outer_lr,
	    (float)s->options.outer_momentum, count);
}

void local_start_ahead(struct tr_sync *s)
{
	outer_add(s->start, s->outer, s->lead, s->first[1]);
	local_fetch(s, s->start);
}

void local_begin(struct tr_sync *s)
{
	if (s->start)
		local_start_ahead(s);
	else
		local_fetch(s, s->outer);
}

/* The first that cannot be trained on, of the fragment under way. */
static const struct sync_tensor *unsound_tensor(const struct tr_sync *s)
{
	for (size_t i = 0; i < s->tensor_count; i++)
		if (sync_in_slot(s, i) && !outer_sound(s->tensors[i].data, s->tensors[i].count))
			return &s->tensors[i];
	return NULL;
}

bool local_drop_unsound(struct tr_sync *s)
{
	const struct sync_tensor *t = unsound_tensor(s);

	if (!t)
		return false;
	(void)snprintf(s->event, sizeof(s->event),
	    "round %" PRIu64 ": peer %" PRIu64
	    "'s own parameters of %s are not finite; its movement does not count, it goes on from "
	    "the outer parameters",
	    s->round.round, tr_peer_id(s->group), t->name);
	log_warn("sync", "%s", s->event);
	drift_start_afresh(s);
	memset(s->sums, 0, sizeof(s->sums));
	s->loss = NAN;
	local_begin(s);
	return true;
}
