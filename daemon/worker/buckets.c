#include "daemon/worker/buckets.h"

/* Places where gradients become final, from the end: see model_hooks.gradients_final. */
static size_t boundary(const struct layout *layout, size_t i)
{
	size_t layers = layout->config.layers;
	return i < layers ? layout_layer(layout, layers - 1 - i, LAYOUT_NORM1_W) : 0;
}

void buckets_plan(const struct layout *layout, size_t least_bytes, struct buckets *out)
{
	size_t share = (layout->count + BUCKETS_MAX - 1) / BUCKETS_MAX;
	size_t least = least_bytes / sizeof(float) > share ? least_bytes / sizeof(float) : share;
	struct buckets plan = { .end = layout->count };
	size_t end = plan.end;
	for (size_t i = 0; i <= layout->config.layers; i++) {
		size_t first = boundary(layout, i);
		/* A stage's first layer may begin the array: behind it there is nothing. */
		if (first < end && (end - first >= least || first == 0)) {
			plan.first[plan.count++] = first;
			end = first;
		}
	}
	*out = plan;
}
