/* Which samples replicas use in a round of many steps (sharded_apart.h). All know the round's list: what is free in the account (collectives/sync/lease.h), then what nobody was given
 * yet, by number. A replica has a claim to places of it. What is claimed and was trained on is counted when the round is committed; what lies before that, and was not, is free
 * from then on, so that a replica which is lost takes no sample with it. Pure.
 */
#ifndef TR_DAEMON_WORKER_SHARDED_CLAIMS_H
#define TR_DAEMON_WORKER_SHARDED_CLAIMS_H

#include "collectives/sync/lease.h"

/* Places [first, first + count) of the list. */
struct claim {
	uint64_t first, count;
};

/* The sample at a place of the list. */
uint64_t claims_sample(const struct lease_account *account, uint64_t place);

/* The round is committed: these were trained on. No two have a place in common; at most TR_GROUP_PEERS_MAX of them. */
void claims_count(struct lease_account *account, const struct claim *claims, size_t count,
    uint64_t round);

#endif
