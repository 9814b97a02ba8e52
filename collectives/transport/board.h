/* A board: where one process shows small messages to all others of its host at once. It lies in memory that only its owner can write and
 * the others map (shm_export.h), and holds the newest BOARD_ENTRIES entries, each with a stamp that says when it is whole. A message to
 * n - 1 peers costs one write, and a reader that finds all it waits for makes no system call.
 *
 * An entry may be written over when all have read it. Every member says on its own board how far it has read those of the others, by
 * their places in the view: so nobody writes what is somebody else's. Stamps name the view; what a board says of another view is nothing.
 *
 * What a peer wrote may be anything, and may change while it is read: it is copied once, and what was copied is looked at. A reader that
 * others have given up may find an entry of a later view where it looked for its own, or half of one: after the copy the stamp tells (a sequence lock).
 *
 * Pure memory. Threads: one writes a board; any may read it.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_BOARD_H
#define TR_COLLECTIVES_TRANSPORT_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "proto/segment.h"

#define BOARD_ENTRIES   TR_SPREAD_UNREAD_MAX
#define BOARD_PEERS_MAX TR_SPREAD_PEERS_MAX
#define BOARD_BODY_MAX  TR_SPREAD_BYTES_MAX

struct board_entry {
	_Alignas(64) _Atomic uint64_t stamp; /* board_stamp: it is whole; 0 while it is written */
	_Atomic uint64_t body_bytes;
	uint8_t head[SEGMENT_HEADER_BYTES];
	uint8_t body[BOARD_BODY_MAX];
};

struct board {
	/* By place in the view: the stamp up to which we have read that peer's board; of another view: we do not read it. */
	_Alignas(64) _Atomic uint64_t read[BOARD_PEERS_MAX];
	struct board_entry entries[BOARD_ENTRIES];
};

#define BOARD_STAMP_BITS 40 /* of the count of a view's entries */
#define BOARD_VIEW_MAX   (UINT64_MAX >> BOARD_STAMP_BITS)

/* "The first `count` entries of this view"; so of entry number `count` - 1, too. */
static inline uint64_t board_stamp(uint64_t view, uint64_t count)
{
	return view << BOARD_STAMP_BITS | (count + 1);
}

/* ---- the owner's ---- */

/* `bytes` at most BOARD_BODY_MAX. */
void board_put(struct board *board, uint64_t view, uint64_t number,
    const struct segment_header *head, const void *body, size_t bytes);
/* How far we have read the board of the peer at that place. */
void board_say_read(struct board *board, unsigned place, uint64_t view, uint64_t count);

/* ---- what others show ---- */

/* How many of our entries, we are at `place`, its owner has read; false: it does not read them in this view. */
bool board_has_read(const struct board *theirs, unsigned place, uint64_t view, uint64_t *count);
/* NULL: it is not there. */
const struct board_entry *board_at(const struct board *theirs, uint64_t view, uint64_t number);
/* Its body, at most BOARD_BODY_MAX bytes; returns how many. */
size_t board_copy_body(const struct board_entry *entry, void *body);
/* What was copied is what was written there; else its writer has gone on. */
bool board_still(const struct board_entry *entry, uint64_t view, uint64_t number);

#endif
