#include "collectives/sync/late.h"

#include "collectives/sync/outer.h"

static bool comes_late(const struct tr_sync *s)
{
	return (s->options.carry || s->alone > 0) && !s->start && !s->outcast;
}

void late_recall(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment], count = sync_fragment_count(s, s->slot.fragment);
	/* Without a step before the take it had not moved. */
	float scale = s->given.weight > 0 ? (float)(1 / s->given.weight) : 0;

	s->recalled = comes_late(s);
	if (!s->recalled)
		return;
	outer_recall(s->delta, s->outer + first, scale, count);
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
