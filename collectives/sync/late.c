#include "collectives/sync/late.h"

static bool comes_late(const struct tr_sync *s)
{
	return (s->options.carry || s->alone > 0) && s->given.tokens > 0 && !s->start &&
	    !s->outcast;
}

void late_recall(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment], count = sync_fragment_count(s, s->slot.fragment);

	s->recalled = comes_late(s);
	if (!s->recalled)
		return;
	float scale = (float)(1 / s->given.tokens);
	for (size_t i = 0; i < count; i++)
		s->delta[i] = s->outer[first + i] - s->delta[i] * scale;
}

bool late_merge(struct tr_sync *s)
{
	size_t first = s->first[s->slot.fragment];
	float rest = 1 - (float)s->options.alpha;

	for (size_t t = 0; s->recalled && t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		const float *outer = s->outer + tensor->offset,
		            *taken = s->delta + tensor->offset - first;
		for (size_t i = 0; sync_in_slot(s, t) && i < tensor->count; i++)
			tensor->data[i] += rest * (outer[i] - taken[i]);
	}
	return s->recalled;
}
