/* How the round that was in progress goes on after a view change. Pure (docs/architecture.md, "One
 * kill"). */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_RESUME_H
#define TR_DAEMON_MEMBERSHIP_CORE_RESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "traind/peer/peer.pb-c.h"

struct resume_input {
	const Traind__Peer__ViewInstall
	    *old; /* the view that froze, with its own resume; NULL: none yet */
	Traind__Peer__Policy policy;
	uint64_t number;   /* of the new view */
	uint64_t recorded; /* newest round in the log: committed, whatever the reports say */
	/* One per member of the new view, ascending; NULL: a joiner that has no view. */
	const Traind__Peer__ViewReport *const *reports;
	const uint64_t *members;
	size_t count;
};

struct resume_decision {
	uint64_t base_round, base_attempt;
	bool finish, abandoned;
	bool restart; /* abandoned, and callers may not stay in it: their indices, or what they read, are of that attempt */
	/* Of base_attempt if it goes on, dead ones included; ascending. Else empty: the new view
	 * says who. */
	uint64_t contributors[TR_GROUP_PEERS_MAX];
	size_t contributors_count;
	const char *reason; /* static, in words */
};

/* An op is known by its tag and its scope. */
bool resume_same_op(const Traind__Peer__OpReport *op, uint32_t tag,
    const ProtobufCBinaryData *scope);

void resume_decide(const struct resume_input *input, struct resume_decision *decision);

#endif
