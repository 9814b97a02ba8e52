#include "tests/sim/sharded/model_rows.h"

#include <string.h>

size_t model_own_numbers(const struct model *m, const struct model_slot *slot)
{
	return model_rows(slot) / m->row_parts * m->layout->config.width;
}

size_t model_own_first(const struct model *m, const struct model_slot *slot)
{
	return m->row_parts > 1 ? m->tensor->place * model_own_numbers(m, slot) : 0;
}

/* The halves of the exchange are used in turn. */
static float *next_exchange(struct model *m)
{
	m->odd = !m->odd;
	return m->odd ? m->tensor->exchange : m->tensor->exchange_too;
}

/* As the real model's: of a backward pass in two calls. */
static bool sum(const struct model *m, bool back, float *data, size_t count)
{
	const struct model_tensor *tensor = m->tensor;
	bool scatter = m->row_parts > 1;
	if (back && tensor->begin != NULL)
		return tensor->begin(tensor->arg, data, count, scatter) && tensor->end(tensor->arg);
	return (scatter ? tensor->reduce_scatter : tensor->sum)(tensor->arg, data, count);
}

bool model_exchange(struct model *m, const struct model_slot *slot, bool back, const float *x,
    float *own)
{
	size_t count = model_rows(slot) * m->layout->config.width;
	const float *made = x;
	if (m->tensor != NULL) {
		float *through = next_exchange(m);
		memcpy(through, x, count * sizeof(float));
		if (!sum(m, back, through, count))
			return false;
		made = through + model_own_first(m, slot);
	}
	for (size_t i = 0; i < model_own_numbers(m, slot); i++)
		own[i] = (float)((uint64_t)made[i] % PLAY_PRIME);
	return true;
}

bool model_gather_rows(struct model *m, const struct model_slot *slot, const float *own, float *all)
{
	size_t count = model_rows(slot) * m->layout->config.width;
	if (m->row_parts == 1) {
		memmove(all, own, count * sizeof(float));
		return true;
	}
	float *through = next_exchange(m);
	memcpy(through + model_own_first(m, slot), own, model_own_numbers(m, slot) * sizeof(float));
	if (!m->tensor->all_gather(m->tensor->arg, through, count))
		return false;
	memcpy(all, through, count * sizeof(float));
	return true;
}
