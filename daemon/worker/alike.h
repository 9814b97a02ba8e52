/* Data parallel training: whether all workers hold the same parameters, moments and counters. Looked at in the first round and before each
 * checkpoint, so that none has what only one worker holds: in the round with whose step it begins, and in the last one before it is written; tensor by tensor
 * (collectives/sync/parity.h). Where a majority holds the same, the others get that; a step in which somebody's
 * parameters were wrong is not applied by anybody, since its gradient is in the sum. Where there is no majority the commit ends with TR_EDIGEST, and the
 * job goes on from its checkpoint; an event has named the tensors. If it has none, the last one is written as contributor 0 has it, and the event says so.
 *
 * Low-communication training has its own (collectives/sync.h), but where all began with the last step done, which no merge follows: then parameters are looked at here.
 */
#ifndef TR_DAEMON_WORKER_ALIKE_H
#define TR_DAEMON_WORKER_ALIKE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/sync/parity.h"

struct trainer;

struct alike {
	struct parity parity;
	unsigned
	    arrays; /* of each tensor that are compared, parameters first, which may be tr_sync's */
};

/* Once the arrays are there. */
tr_status alike_create(struct trainer *t, struct tr_error *error);
void alike_destroy(struct trainer *t);

/* After the step's other ops were submitted, or at the beginning of a last round. */
tr_status alike_settle(struct trainer *t, const struct tr_round *round, struct tr_error *error);

/* For the commit; a joiner has its state by then. 0: not looked at in this round. */
uint64_t alike_salt(struct trainer *t, const struct tr_round *round);

/* The commit of `round` has failed, since others hold other parameters: says so where they began like that. */
void alike_tell_beginning(struct trainer *t, const struct tr_round *round);

/* In a last round, settled: whether contributor 0 writes, since nobody's state is wrong. Else the commit puts it right, and one more round does it. */
bool alike_may_write(const struct trainer *t);

/* After the commit; an event says what was wrong. False: some contributor's parameters, and so the sum of the gradients. */
bool alike_mend(struct trainer *t, const struct tr_round *round);

#endif
