/* The receiving end of a link: which of a peer's connections belong together, and how much came on each, so that what was on
 * a broken one comes again, and nothing twice (docs/protocol.md, "Lanes"). Part of peer_inbound.c's work.
 */
#ifndef TR_COLLECTIVES_ENGINE_INBOUND_LINK_H
#define TR_COLLECTIVES_ENGINE_INBOUND_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/engine/pulse.h"
#include "common/error.h"
#include "common/limits.h"

struct lane;
struct member;

struct inbound_link {
	struct inbound_link *next;
	uint64_t from, name;
	unsigned open;     /* connections */
	bool several;      /* at one time */
	uint64_t got_view; /* newest view of which frames came */
	bool as_one;       /* that we judge it so was said since it has several */
	uint64_t came;     /* bytes, on all of them, ever */
	bool parked;       /* this look: one of them is not read */
	struct pulse_ear ear;
	struct {
		uint32_t lane;
		uint64_t frames;
	} ended[TR_LANES_MAX]; /* the newest */
	unsigned ended_count;
};

/* One more connection of it. TR_EPROTO: that one has ended; TR_ENOMEM. */
tr_status inbound_link_join(struct member *member, uint64_t from, uint64_t name, uint32_t lane,
    struct inbound_link **link, struct tr_error *error);
/* It is given up after so many frames: its hello will not be taken. */
void inbound_link_end(struct inbound_link *link, uint32_t lane, uint64_t frames);
/* One less, after so many frames. Frees it with the last. */
void inbound_link_part(struct member *member, struct inbound_link *link, uint32_t lane,
    uint64_t frames);
/* false: that lane has not ended. */
bool inbound_link_ended(const struct inbound_link *link, uint32_t lane, uint64_t *frames);
/* Tells the sender, on any connection of the link, how much of `lane` came. */
tr_status inbound_link_tell(struct lane *through, uint32_t lane, uint64_t frames, bool ended);

#endif
