/* Data parallel training: whether all workers hold the same parameters, moments and counters. Looked at in the first round and in the one after each
 * checkpoint, tensor by tensor (collectives/sync/parity.h). Where a majority holds the same, the others get that; a step in which somebody's
 * parameters were wrong is not applied by anybody, since its gradient is in the sum. Where there is no majority the commit ends with TR_EDIGEST, and the
 * job goes on from its checkpoint; an event has named the tensors.
 *
 * Low-communication training has its own (collectives/sync.h).
 */
#ifndef TR_DAEMON_WORKER_ALIKE_H
#define TR_DAEMON_WORKER_ALIKE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/sync/parity.h"

struct trainer;

struct alike {
	struct parity parity;
};

/* Once the arrays are there. */
tr_status alike_create(struct trainer *t, struct tr_error *error);
void alike_destroy(struct trainer *t);

/* After the round's other ops were submitted. */
tr_status alike_settle(struct trainer *t, const struct tr_round *round, struct tr_error *error);

/* For the commit; a joiner has its state by then. 0: not looked at in this round. */
uint64_t alike_salt(struct trainer *t, const struct tr_round *round);

/* After the commit; an event says what was wrong. False: some contributor's parameters, and so the sum of the gradients. */
bool alike_mend(struct trainer *t, const struct tr_round *round);

#endif
