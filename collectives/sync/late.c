#include "collectives/sync/late.h"

#include "collectives/sync/drift.h"
#include "collectives/sync/outer.h"

static bool comes_late(const struct tr_sync *s)
{
	return (s->options.carry || s->alone > 0) && !s->start && !s->outcast;
}

/* Without a step before the take it had not moved. */
static float scale_of(const struct tr_sync *s)
{
	return s->given.weight > 0 ? (float)(1 / s->given.weight) : 0;
}

/* Of `count` numbers of the slot's fragment, `at` in it. */
static void foresee(const struct tr_sync *s, float *out, size_t at, size_t count)
{
	size_t from = s->first[s->slot.fragment] + at;

	outer_foresee(out, s->outer + from, s->momentum ? s->momentum + from : NULL, s->delta + at,
	    scale_of(s), (float)s->options.outer_lr, (float)s->options.outer_momentum, count);
}

void late_foresee(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment];

	s->foreseen = s->options.carry && drift_holds_momentum(s);
	for (size_t t = 0; s->foreseen && t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		if (sync_in_slot(s, t))
			foresee(s, tensor->data, tensor->offset - first, tensor->count);
	}
}

void late_recall(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment], count = sync_fragment_count(s, s->slot.fragment);

	s->recalled = comes_late(s);
	if (s->recalled && s->foreseen)
		foresee(s, s->delta, 0, count);
	else if (s->recalled)
		outer_recall(s->delta, s->outer + first, s->delta, scale_of(s), count);
}

bool late_merge(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment];
	float rest = 1 - (float)s->options.alpha;

	for (size_t t = 0; s->recalled && t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		if (sync_in_slot(s, t))
			outer_carry(tensor->data, s->outer + tensor->offset,
			    s->delta + tensor->offset - first, rest, tensor->count);
	}
	return s->recalled;
}

bool late_apart(const struct tr_sync *s)
{
	return s->foreseen && s->taken && !s->committed;
}

void late_since(const struct tr_sync *s, float *movement)
{
	size_t first = s->first[s->slot.fragment];

	for (size_t t = 0; t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		float *since = movement + tensor->offset;
		if (!sync_in_slot(s, t))
			continue;
		foresee(s, since, tensor->offset - first, tensor->count);
		for (size_t i = 0; i < tensor->count; i++)
			since[i] -= tensor->data[i];
	}
}
