/* A set of tags, as many as memory holds, each with 32 bits that say something of it: a hash table with open addressing, 13 to 26 bytes a tag. Tags are only ever
 * added, until all are forgotten.
 */
#ifndef TR_COLLECTIVES_CORE_TAG_SET_H
#define TR_COLLECTIVES_CORE_TAG_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct tag_sign {
	uint32_t tag, sign;
};

struct tag_set { /* zeroed: empty */
	struct tag_sign *slots;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
	bool has_free_mark; /* the tag by which free slots are known */
	uint32_t free_mark_sign;
};

tr_status tag_set_add(struct tag_set *set, uint32_t tag, uint32_t sign); /* TR_ENOMEM: as it was */
/* NULL: it is not in it. Valid until the next change. */
const uint32_t *tag_set_sign(const struct tag_set *set, uint32_t tag);
static inline bool tag_set_has(const struct tag_set *set, uint32_t tag)
{
	return tag_set_sign(set, tag) != NULL;
}
void tag_set_clear(struct tag_set *set); /* keeps little memory */
void tag_set_finish(struct tag_set *set);

#endif
