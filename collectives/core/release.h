/* Ops whose memory the caller has taken back in the middle of a round (tr_release): what the round still has to know of them.
 *
 * Which. Ops in a scope, sends and receives: nobody but their members knows of them, and the caller says that each of these has its result. An op of all
 * has no such end before the commit: a joiner may come that takes part in the round and is given what is sealed, and its digest goes into
 * the one that all compare, in the order of tags.
 *
 * The vote says the same as if they were still there. For each set of members (`party`) the digests of their ops are added up; the place in a scope, by which
 * a vote's term goes (scope_term), is put in when the vote is made, since it is of the view. What only two know of counts while the other end is there.
 *
 * A view change. A report does not list them, so whoever still has such an op may be told to serve it to us, or, in a reduce-scatter, gives its input
 * once more. That comes for a tag which is in `tags`, is dropped, and its sender told that the op is submitted here (ahead.c); so is the question of who waited for it
 * and has got it meanwhile. Whoever means another op by the tag is told so as of any op, by the 32 bits that are kept of its signature. So no tag can be
 * used again in the round, and nobody looks at the bytes of such a frame, which may be on its way while its memory changes. Nothing else
 * reads what was released: every other frame of an op is part of somebody's result, and everybody has it; what is handed on lies in the memory of who hands it on.
 *
 * They end with the attempt. An attempt that is given up is never redone behind a caller that has released something of it, since its input
 * is gone: ops with indices make memberd begin the round again at all callers (Resume.restart).
 */
#ifndef TR_COLLECTIVES_CORE_RELEASE_H
#define TR_COLLECTIVES_CORE_RELEASE_H

#include "collectives/core/op.h"
#include "collectives/core/tag_set.h"

/* Released ops of the same members. */
struct release_party {
	uint8_t bits[ROUTE_SET_BYTES]; /* contributors of the round */
	bool pairs;                    /* sends and receives between these two; else a scope's */
	uint64_t sum, results;         /* of tally.h's terms: by XOR for pairs */
};

/* That one was released, for those who have not been told that it was submitted. */
struct release_note {
	uint64_t number; /* the op's */
	uint32_t tag, party;
};

#define RELEASE_NOTES_MAX 1024 /* then all are told */

struct released {
	struct tag_set tags; /* with signs of their signatures */
	struct release_party *parties;
	size_t party_count, party_capacity;
	struct release_note *notes; /* NULL, or RELEASE_NOTES_MAX */
	size_t note_count;
	uint64_t ops[TR_COLLECTIVES_MAX], op_bytes[TR_COLLECTIVES_MAX];
	bool partial; /* some of them lack data of a contributor */
};

struct group_core;
struct group_event;

/* TR_EINVAL: it is of all, or its result is not here. TR_ENOMEM: it is as before. */
tr_status release_op(struct group_core *core, const struct group_event *event,
    struct tr_error *error);
static inline bool release_has(const struct released *released, uint32_t tag)
{
	return tag_set_has(&released->tags, tag);
}
/* Is what comes with this header of another op than the one that was released with its tag? */
bool release_differs(const struct released *released, const struct segment_header *header);
void release_forget(struct released *released); /* the attempt is over */
void release_finish(struct released *released);

#endif
