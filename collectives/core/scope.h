/* Ops among a part of the round's contributors (struct tr_scope): their rosters, made when the first op of a scope is submitted in an attempt and kept
 * until the next one. An op knows its own (op->roster), so that routes, sums and windows are the same code for all.
 *
 * What only some members know is no part of the digests that all compare at the commit. Instead each member adds up a digest of each of its
 * scoped ops, and the first of a scope's living takes away as many as the others add: over all votes nothing is left, modulo 2^64, if every scope agrees.
 */
#ifndef TR_COLLECTIVES_CORE_SCOPE_H
#define TR_COLLECTIVES_CORE_SCOPE_H

#include "collectives/core/bits.h"
#include "collectives/core/group.h"
#include "collectives/core/op.h"

/* TR_EINVAL: no such scope among so many contributors, or one that the contributor `index` is not in. */
tr_status scope_check(const struct tr_scope *scope, uint32_t tag, unsigned contributors,
    unsigned index, struct scope *checked, struct tr_error *error);

/* The round's own roster if the scope is of all. NULL: TR_ENOMEM. Valid until the next attempt. */
const struct roster *scope_roster(struct group_core *core, const struct scope *scope);
void scope_forget(struct group_core *core); /* all rosters: there is a new attempt, or a new view */

static inline bool scope_same(const struct op_scope *a, const struct op_scope *b)
{
	return a->count == b->count && a->digest == b->digest;
}

/* The scope's contributor `index`, as one of the round; ROSTER_NONE: there is none. */
uint32_t scope_outer(const struct scope *scope, uint32_t index);

/* What the vote of the scope's `place`th of `living` members adds for an op with this digest, or for some with this sum of digests. */
uint64_t scope_term(unsigned place, unsigned living, uint64_t digest);

#endif
