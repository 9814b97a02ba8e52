/* What a vote says of ops that not all members have: numbers of which nothing is left over all votes if their members agree.
 *
 * Of ops in a scope each member adds up a digest, and the first of the scope's living takes away as many as the others add (scope.h). Of sends and receives whose
 * other end is in this view both ends add the same number by XOR.
 */
#ifndef TR_COLLECTIVES_CORE_TALLY_H
#define TR_COLLECTIVES_CORE_TALLY_H

#include "collectives/core/op.h"

struct group_core;

#define TALLY_WORDS 4 /* of a vote */
_Static_assert(TR_GROUP_PEERS_MAX <= 64 * TALLY_WORDS, "a bit of a vote for each contributor");

struct tally {
	uint64_t sum;
	uint64_t results;           /* scopes: the same of what came of them */
	uint64_t with[TALLY_WORDS]; /* contributors: bit i % 64 of word i / 64 */
};

/* `results`: all are sealed. */
struct tally tally_scoped(const struct group_core *core, bool results);
struct tally tally_pairs(const struct group_core *core);

/* How an op is signed, after `digest`. */
struct tr_digest tally_signature(struct tr_digest digest, const struct op *op);
/* What such an op adds, but for the place in its scope. */
uint64_t tally_signed(const struct op *op);
uint64_t tally_result(const struct op *op); /* sealed; of a scope */
/* Contributor of the round at a pair's other end. */
uint32_t tally_other_end(const struct op *op);

#endif
