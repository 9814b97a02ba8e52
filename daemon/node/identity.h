/* Who this node is: an id that memberd gave it once, kept in its folder, and a number of this very process. */
#ifndef TR_DAEMON_NODE_IDENTITY_H
#define TR_DAEMON_NODE_IDENTITY_H

#include <stdint.h>

#include "common/error.h"

struct identity {
	uint64_t node_id;     /* 0: none yet */
	uint64_t incarnation; /* random, new at each start */
};

/* An unreadable node-id is an error: a second id for the same folder would be a second node. */
tr_status identity_load(const char *folder, struct identity *identity, struct tr_error *error);
tr_status identity_keep(const char *folder, struct identity *identity, uint64_t node_id,
    struct tr_error *error);

#endif
