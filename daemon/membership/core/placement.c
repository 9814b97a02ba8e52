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

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t free_yet(const struct placement_node *node)
{
	return free_slots(node) - node->placed;
}

/* Of those that have none of its workers, or of all. */
static struct placement_node *freest(struct placement_node *table, size_t count, bool fresh)
{
	struct placement_node *best = NULL;
	for (size_t i = 0; i < count; i++) {
		struct placement_node *node = &table[i];
		if (free_yet(node) == 0 || (fresh && node->placed > 0))
			continue;
		if (best == NULL || free_yet(node) > free_yet(best) ||
		    (free_yet(node) == free_yet(best) && node->id < best->id))
			best = node;
	}
	return best;
}

/* One worker on each node first, as long as there are too few; then what the plan has, then the freest nodes, one after the other. */
uint32_t placement_elsewhere(struct placement_node *table, size_t count, uint32_t workers,
    uint32_t least_nodes)
{
	struct placement_node *node;
	uint32_t left = workers, had = 0;
	for (size_t i = 0; i < count && left > 0; i++) {
		table[i].placed = table[i].planned > 0 ? least(1, free_slots(&table[i])) : 0;
		left -= table[i].placed;
		had += table[i].placed;
	}
	for (; had < least_nodes && left > 0 && (node = freest(table, count, true)) != NULL; had++) {
		node->placed = 1;
		left--;
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t planned = least(table[i].planned, free_slots(&table[i]));
		uint32_t more = planned > table[i].placed ? least(planned - table[i].placed, left)
		                                          : 0;
		table[i].placed += more;
		left -= more;
	}
	while (left > 0 && (node = freest(table, count, false)) != NULL) {
		uint32_t more = least(free_yet(node), left);
		had += node->placed == 0;
		node->placed += more;
		left -= more;
	}
	return had;
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
