#include "collectives/core/tag_set.h"

#include <stdlib.h>
#include <string.h>

#define FREE_MARK      UINT32_MAX
#define CAPACITY_FIRST 256u
#define CAPACITY_KEPT  4096u

/* Tags are mostly counted up, or up in several rows: the upper bits of a product spread them. */
static size_t tag_set_first(const struct tag_set *set, uint32_t tag)
{
	uint64_t product = tag * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(product >> 32) & (set->capacity - 1);
}

/* The tag's slot, or the free one where it would be. */
static struct tag_sign *tag_set_slot(const struct tag_set *set, uint32_t tag)
{
	size_t at = tag_set_first(set, tag);

	while (set->slots[at].tag != FREE_MARK && set->slots[at].tag != tag)
		at = (at + 1) & (set->capacity - 1);
	return &set->slots[at];
}

static void tag_set_empty(struct tag_set *set)
{
	memset(set->slots, 0xff, set->capacity * sizeof(set->slots[0]));
}

static tr_status tag_set_grow(struct tag_set *set)
{
	struct tag_set larger = *set;

	larger.capacity = set->capacity > 0 ? 2 * set->capacity : CAPACITY_FIRST;
	larger.slots = malloc(larger.capacity * sizeof(larger.slots[0]));
	if (!larger.slots)
		return TR_ENOMEM;
	tag_set_empty(&larger);
	for (size_t i = 0; i < set->capacity; i++)
		if (set->slots[i].tag != FREE_MARK)
			*tag_set_slot(&larger, set->slots[i].tag) = set->slots[i];
	free(set->slots);
	*set = larger;
	return TR_OK;
}

tr_status tag_set_add(struct tag_set *set, uint32_t tag, uint32_t sign)
{
	if (tag_set_has(set, tag))
		return TR_OK;
	/* At most five eighths full: then few slots are looked at. */
	if ((set->capacity == 0 || 8 * (set->count + 1) > 5 * set->capacity) &&
	    tag_set_grow(set) != TR_OK)
		return TR_ENOMEM;
	if (tag == FREE_MARK) {
		set->has_free_mark = true;
		set->free_mark_sign = sign;
	} else {
		*tag_set_slot(set, tag) = (struct tag_sign){ tag, sign };
	}
	set->count++;
	return TR_OK;
}

const uint32_t *tag_set_sign(const struct tag_set *set, uint32_t tag)
{
	if (set->count == 0)
		return NULL;
	if (tag == FREE_MARK)
		return set->has_free_mark ? &set->free_mark_sign : NULL;
	const struct tag_sign *slot = tag_set_slot(set, tag);
	return slot->tag == tag ? &slot->sign : NULL;
}

void tag_set_clear(struct tag_set *set)
{
	if (set->count == 0)
		return;
	if (set->capacity > CAPACITY_KEPT) {
		tag_set_finish(set);
		return;
	}
	tag_set_empty(set);
	set->count = 0;
	set->has_free_mark = false;
}

void tag_set_finish(struct tag_set *set)
{
	free(set->slots);
	*set = (struct tag_set){ 0 };
}
