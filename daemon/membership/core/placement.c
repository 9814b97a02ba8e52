#include "daemon/membership/core/placement.h"

#include "common/limits.h"

static uint32_t free_slots(const struct placement_node *node)
{
	return node->slots > node->used ? node->slots - node->used : 0;
}

uint32_t placement_native(struct placement_node *table, size_t count, uint32_t nodes,
    uint32_t per_node)
{
	uint32_t had = 0;
	for (; had < nodes; had++) {
		struct placement_node *best = NULL;
		for (size_t i = 0; i < count; i++) {
			struct placement_node *node = &table[i];
			if (node->placed != 0 || free_slots(node) < per_node)
				continue;
			if (best == NULL || free_slots(node) > free_slots(best) ||
			    (free_slots(node) == free_slots(best) && node->id < best->id))
				best = node;
		}
		if (best == NULL)
			break;
		best->placed = per_node;
	}
	return had;
}

static bool replaces_better(const struct placement_node *a, const struct placement_node *b)
{
	if (a->left != b->left)
		return a->left;
	if (a->failed != b->failed)
		return b->failed;
	if (a->mine != b->mine)
		return a->mine < b->mine;
	if (free_slots(a) != free_slots(b))
		return free_slots(a) > free_slots(b);
	return a->id < b->id;
}

bool placement_replacement(struct placement_node *table, size_t count, uint32_t per_node)
{
	struct placement_node *best = NULL;
	for (size_t i = 0; i < count; i++) {
		struct placement_node *node = &table[i];
		if (free_slots(node) == 0 || node->mine >= per_node)
			continue;
		if (best == NULL || replaces_better(node, best))
			best = node;
	}
	if (best != NULL)
		best->placed = 1;
	return best != NULL;
}

/* How many slots would be left there, below zero when oversubscribed. */
static int64_t slots_left(const struct placement_node *node)
{
	return (int64_t)node->slots - (int64_t)node->used - (int64_t)node->placed;
}

static bool better(const struct placement_node *a, const struct placement_node *b)
{
	if (slots_left(a) != slots_left(b))
		return slots_left(a) > slots_left(b);
	return a->placed != b->placed ? a->placed < b->placed : a->id < b->id;
}

uint32_t placement_command(struct placement_node *table, size_t count, uint32_t nodes,
    uint32_t workers)
{
	uint32_t had = 0;
	for (uint32_t w = 0; w < workers; w++) {
		/* On exactly `nodes` nodes: one worker on each first, the rest among those. */
		bool opening = nodes != 0 && had < nodes;
		struct placement_node *best = NULL;
		for (size_t i = 0; i < count; i++) {
			struct placement_node *node = &table[i];
			if (node->slots == 0 || node->used + node->placed >= TR_NODE_WORKERS_MAX ||
			    (nodes != 0 && opening != (node->placed == 0)))
				continue;
			if (best == NULL || better(node, best))
				best = node;
		}
		if (best == NULL)
			return nodes != 0 && had < nodes ? had : 0;
		had += best->placed == 0 ? 1 : 0;
		best->placed++;
	}
	return had;
}
