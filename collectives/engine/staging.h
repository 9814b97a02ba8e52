/* Where a member's core has its staging: in one piece of memory that peers of the same host may read, as long as there is
 * room, else on the heap. Only this mapping can be written (F_SEAL_FUTURE_WRITE), and when the member ends it is unmapped and
 * never used for anything else: a peer that still reads a sum there reads that sum.
 *
 * Its first bytes say which view the member has installed last. They are written before memory of the view before goes back to its owner, so whoever has read that memory, and then finds the view
 * still the same, has read what was lent to it (a sequence lock: group_lent in core/group.h).
 *
 * After them comes the member's board (collectives/transport/board.h).
 *
 * One thread.
 */
#ifndef TR_COLLECTIVES_ENGINE_STAGING_H
#define TR_COLLECTIVES_ENGINE_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAGING_BYTES       (64u << 20) /* sparse: what is not used costs nothing */
#define STAGING_HEAD_BYTES  64u
#define STAGING_BOARD_AT    STAGING_HEAD_BYTES
#define STAGING_CLASSES_MAX 16 /* sizes that are kept for use again */

struct board;

struct staging {
	int fd; /* -1: all is on the heap */
	uint8_t *base;
	size_t used;
	struct staging_class {
		size_t bytes;
		struct staging_free *free;
	} classes[STAGING_CLASSES_MAX];
	unsigned class_count;
};

void staging_init(struct staging *staging);
void staging_finish(struct staging *staging);

/* NULL: all is on the heap. */
struct board *staging_board(const struct staging *staging);
/* A view is installed; before anything that was lent in an earlier one is given back. */
void staging_say_view(struct staging *staging, uint64_t view);
/* Of a peer's staging, from its beginning; at least STAGING_HEAD_BYTES. What was read before it in the peer's memory is what was lent in `view`, unless this is true. */
bool staging_says_later(const void *head, uint64_t view);

/* For struct group_memory: `arg` is the staging. */
void *staging_get(void *arg, size_t bytes);
void staging_put(void *arg, void *memory, size_t bytes);

#endif
