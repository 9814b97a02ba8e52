/* A view as the core keeps it: a checked copy of the message. Immutable but for the figures of its links (links.c). Pure. */
#ifndef TR_COLLECTIVES_CORE_VIEW_H
#define TR_COLLECTIVES_CORE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/core/shares.h"
#include "common/error.h"
#include "common/limits.h"
#include "traind/peer/peer.pb-c.h"

struct view_peer {
	uint64_t peer, participate_from, contribute_from, donor;
	char address[TR_ADDRESS_MAX];
	unsigned host; /* equal for those that share a kernel's memory: index of the first peer there */
	bool maps;     /* it shares memory with those; else they talk over sockets */
	double latency_s, bandwidth_bytes_per_s; /* 0: not measured */
};

struct view {
	uint64_t number; /* 0: none yet */
	unsigned count, hub;
	struct view_peer *peers; /* ascending by id */
	unsigned *ring;          /* indices into peers, in ring order */
	Traind__Peer__Policy policy;
	Traind__Peer__Algorithm algorithm;
	bool deterministic;
	bool nobody_follows; /* those who are missing */
	double latency_s, bandwidth_bytes_per_s;
	uint32_t segment_bytes;
	uint32_t op_segments;          /* of an op without a codec; 0: op_segment_bytes knows */
	uint8_t owners[SHARES_OWNERS]; /* indices into peers: who owns which segments (direct) */
};

/* As view_init would say it. */
tr_status view_check(const Traind__Peer__View *message, struct tr_error *error);
/* TR_EPROTO: ids not ascending, ring no permutation, hub out of range, ... ; TR_ENOMEM. */
tr_status view_init(struct view *view, const Traind__Peer__View *message, struct tr_error *error);
void view_finish(struct view *view);

/* Other figures of its links: `bandwidth` by peer, bytes/s, 0: not measured. */
void view_measured(struct view *view, uint32_t latency_us, const uint64_t *bandwidth);

/* The owners among those peers of which `who` has the indices, ascending; as indices into `who`. `live`: of each whether it may own anything; NULL: all may. */
void view_owners(const struct view *view, const unsigned *who, unsigned count, const bool *live,
    uint8_t owners[SHARES_OWNERS]);

/* Its state comes gradually: rounds may be decided without that. It begins to contribute in a view after it has all of it. */
static inline bool view_gradual(const struct view_peer *peer)
{
	return peer->contribute_from == TR_ROUND_LATER;
}

const struct view_peer *view_find(const struct view *view, uint64_t peer); /* NULL: not in it */

#endif
