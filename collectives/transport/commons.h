/* Commons: memory that the workers of one engine have in common, in which their callers make small collectives by themselves (what others call one-shot collectives in symmetric memory). No engine takes
 * part: an op costs each member one write of its input, one look at each other's, and no system call as long as nobody sleeps.
 *
 * Each worker has a seat, where it shows the inputs of its newest COMMONS_ENTRIES ops. An entry says which op it is of, and has a stamp that says when it is whole. Who has read it says so at its own seat;
 * then it may be written over. But for bells, which only wake, nobody writes at another's seat: a worker that the others have given up, and that has not died yet, spoils nobody's numbers.
 *
 * An op is named by its round, the attempt at it, and its tag; its sign is a digest of what all its members have to agree on. Attempts that were given up need no cleaning up: no later op has their names. A seat
 * whose worker has died may have another one, whose stamps go on from there.
 *
 *	memcpy(commons_write(&own, &op, others), input, bytes);
 *	commons_show(&own);
 *	commons_wake(&own, others);                                // then, for each of them:
 *	while (commons_look(&own, seat, &op, &shown) == COMMONS_NOT_YET)
 *		...                                                // sleep: commons_drowse
 *	add(out, shown.body);
 *	commons_read(&own, seat, &shown);                          // and commons_wake
 *
 * Threads: one has a seat. Processes that map it trust each other's numbers (they are of one job), not their timing.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_COMMONS_H
#define TR_COLLECTIVES_TRANSPORT_COMMONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/limits.h"

#define COMMONS_SEATS    TR_IN_TURN_WORKERS_MAX
#define COMMONS_ENTRIES  2u
#define COMMONS_BODY_MAX ((size_t)TR_IN_TURN_BYTES_MAX)
#define COMMONS_NO_SEAT  UINT32_MAX

struct commons; /* the memory */

struct commons_op {
	uint64_t round, attempt, sign;
	uint32_t tag;
};

/* What a worker knows of its own seat. */
struct commons_own {
	struct commons *commons;
	unsigned seat;
	uint64_t stamp; /* newest */
	struct commons_entry_use {
		uint64_t stamp, round, attempt;
		uint64_t readers; /* seats, by bit, that are to read it */
	} uses[COMMONS_ENTRIES];
};

/* ---- the engine's ---- */

/* Zeroed; the descriptor (close-on-exec) is the caller's. What is not used costs nothing. */
tr_status commons_create(int *fd, struct tr_error *error);

/* ---- a worker's ---- */

/* `fd` stays the caller's. From here on the seat is `peer`'s. TR_EPROTO: this is no commons, or no seat. */
tr_status commons_open(int fd, unsigned seat, uint64_t peer, struct commons_own *own,
    struct tr_error *error);
void commons_close(struct commons_own *own); /* of a zeroed one: nothing */
/* Whose seat it is, or was last; 0: nobody's. */
uint64_t commons_peer(const struct commons_own *own, unsigned seat);
unsigned commons_seat_of(const struct commons_own *own,
    uint64_t peer); /* COMMONS_NO_SEAT: it has none */

/* Seats, by bit, that have not read what the next entry holds: it must not be written over before. 0: there is room. */
uint64_t commons_unread(const struct commons_own *own, const struct commons_op *op);
/* Where to write our input of it, COMMONS_BODY_MAX bytes, for those at the seats `readers` (by bit). There is room. */
void *commons_write(struct commons_own *own, const struct commons_op *op, uint64_t readers);
void commons_show(struct commons_own *own); /* what was written so */
/* Our part of this op goes another way: who waits for it here is not to. */
void commons_pass(struct commons_own *own, const struct commons_op *op);
/* No other op of ours comes in this attempt: who waits for one here is not to. NULL: they may come after all. */
void commons_end(struct commons_own *own, const struct commons_op *op);

enum commons_found {
	COMMONS_NOT_YET,
	COMMONS_SHOWN,
	COMMONS_ELSEWHERE, /* it was passed, or never comes, or that worker means another op by this name */
};
struct commons_shown {
	const void *body;
	uint64_t stamp;
};
enum commons_found commons_look(const struct commons_own *own, unsigned seat,
    const struct commons_op *op, struct commons_shown *shown);
/* What was read is what was shown; else its worker has given up the attempt, and so has everybody. */
bool commons_still(const struct commons_own *own, unsigned seat, const struct commons_shown *shown);
/* We have read it and do not come back to it. */
void commons_read(struct commons_own *own, unsigned seat, const struct commons_shown *shown);

/* Wakes those at these seats that sleep: something that they may wait for was shown, passed or read. */
void commons_wake(const struct commons_own *own, uint64_t seats);
/* To sleep: `bell = commons_drowse(own)`, then look once more, and if there is nothing yet commons_sleep(own, bell, ms); in any case commons_rise. */
uint32_t commons_drowse(struct commons_own *own);
void commons_sleep(struct commons_own *own, uint32_t bell, unsigned milliseconds);
void commons_rise(struct commons_own *own);

#endif
