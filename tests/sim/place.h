/* A body comes into the place that a core named for it (group_buffer_take), as a transport writes it: hashed where the core wants that. */
#ifndef TR_TESTS_SIM_PLACE_H
#define TR_TESTS_SIM_PLACE_H

#include <stddef.h>
#include <string.h>

#include "collectives/core/group.h"
#include "common/digest.h"

/* Bytes [from, end) of `body`, the first of which is at `at`. */
static inline void place_write(struct group_buffer *place, char *at, const void *body, size_t from,
    size_t end)
{
	struct tr_digest_stream *hash = group_buffer_hash(place);

	memcpy(at + from, (const char *)body + from, end - from);
	if (hash)
		tr_digest_add(hash, at + from, end - from);
}

#endif
