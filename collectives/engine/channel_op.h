/* A submitted op as the engine reads it from the channel: every number is the worker's and is checked here. */
#ifndef TR_COLLECTIVES_ENGINE_CHANNEL_OP_H
#define TR_COLLECTIVES_ENGINE_CHANNEL_OP_H

#include "collectives/core/group.h"
#include "collectives/engine/channel_host.h"

struct channel_op {
	struct group_submit submit; /* points to the blocks below and to the worker's memory */
	struct tr_block data_block, input_block;
	uint32_t members[TR_GROUP_PEERS_MAX];
};

/* Of the SUBMIT that was taken last (host->extra). All memory that `op` names lies whole in the worker's arenas; whether it is what the
 * collective needs is the core's question. TR_EPROTO: outside of its memory, misaligned, or values that there are none. `op` must stay
 * where it is. */
tr_status channel_op_read(const struct channel_host *host, const struct channel_submission *s,
    struct channel_op *op, struct tr_error *error);

#endif
