/* ZeRO-1 (mesh.zero_owners: R): which of a shard's moments each of its workers holds, and who sends what to whom when that changes. Pure: all contributors of a round know the same
 * table of ranks, and so make the same plan.
 *
 * A shard's numbers are cut into as many pieces as there are replicas, as even as whole lines of memory go. The worker of replica p of n owns pieces p, p + 1, ... p + R - 1, counted
 * around: so each piece has R owners (n, where there are fewer replicas), and after the loss of R - 1 of them still one. The first of them, of replica p, is the one that gives others
 * what becomes of the piece's parameters. Rajbhandari et al. (arXiv 1910.02054) have one owner; a loss would take moments with it.
 *
 * What a peer holds is in the table (ranks_peer.part: how many pieces there were, and from which on): it stays what it was until a round is committed, whose table cuts anew.
 *
 *	struct owners_plan plan = { .lost = RANKS_NONE };
 *	owners_plan_next(&plan, &next, R, numbers, &error);   // next: of this round (ranks_next), which says who held what before it
 *	if (plan.lost != RANKS_NONE) ...                      // nobody holds number plan.lost_at of that shard's moments
 *	for each move: move.from sends numbers [first, end) of both moments to move.to
 *	owners_plan_clear(&plan);                             // for the next round, in the same memory
 *	owners_plan_finish(&plan);
 */
#ifndef TR_DAEMON_PLAN_OWNERS_H
#define TR_DAEMON_PLAN_OWNERS_H

#include "common/error.h"
#include "daemon/plan/ranks.h"

#define OWNERS_MAX 16 /* of a piece */

struct owners_range {
	size_t first, end;
};

/* Piece `piece` of a shard of so many numbers that is cut into `of`; may be empty. */
struct owners_range owners_piece(size_t numbers, uint32_t of, uint32_t piece);
/* Does the worker of replica `place`, of `of`, own this piece? */
bool owners_owns(uint32_t owners, uint32_t of, uint32_t place, uint32_t piece);
/* All pieces of a part, as ascending ranges that do not meet: at most two. Returns how many are not empty. */
unsigned owners_ranges(size_t numbers, const struct ranks_part *part, uint32_t owners,
    struct owners_range ranges[2]);

/* By index in the table. */
struct owners_move {
	uint32_t from, to, shard;
	struct owners_range range;
};

struct owners_plan {
	struct owners_move *moves; /* by receiver, ascending */
	size_t count, room;
	size_t sends[TR_GROUP_PEERS_MAX]; /* numbers, by peer */
	uint32_t lost; /* the first shard of which something is needed that nobody holds; RANKS_NONE */
	size_t lost_at; /* its first number that is */
};

/* What peer `to` does not hold of numbers [first, end) of a shard's moments: each run of them from the holder that has to send least so far. TR_ENOMEM. */
tr_status owners_plan_add(struct owners_plan *plan, const struct ranks *ranks, uint32_t owners,
    uint32_t to, uint32_t shard, size_t numbers, struct owners_range range, struct tr_error *error);
/* What each worker of the table has to get to hold its part of its shard. numbers: by shard. */
tr_status owners_plan_next(struct owners_plan *plan, const struct ranks *ranks, uint32_t owners,
    const size_t *numbers, struct tr_error *error);
void owners_plan_clear(struct owners_plan *plan);
void owners_plan_finish(struct owners_plan *plan);

#endif
