/* One connection that was dialled to us. Shared by peer_inbound.c (its frames, its life) and inbound_door.c (whether it is let in); for
 * nobody else. Engine thread.
 */
#ifndef TR_COLLECTIVES_ENGINE_INBOUND_H
#define TR_COLLECTIVES_ENGINE_INBOUND_H

#include "collectives/engine/engine_internal.h"

struct inbound_link;

struct inbound {
	struct engine *engine;
	struct member *member; /* NULL: it has not said whom it wants */
	struct inbound *next;
	struct lane *lane;
	uint64_t from;
	struct inbound_link *link; /* NULL: it belongs to none (state) */
	uint64_t got_view;         /* newest view of which frames came, without a link */
	uint32_t number;           /* in the link */
	uint64_t frames, told;     /* that came; that the sender knows of */
	size_t untold_bytes;
	uint64_t deadline_ms;             /* at the door: until then it has to be let in */
	uint64_t looked_ms, looked_bytes; /* when its bytes were last seen to grow */
	uint64_t heard_bytes;             /* that its link has counted */
	bool parked;
	bool waits;      /* at the door, for the view that its hello is of */
	bool proven;     /* it waits and has the group's token */
	bool alive;      /* something came after its hello */
	bool dismissed;  /* closed since its peer is in our view no more: that is no loss */
	bool silent;     /* closed for that */
	bool ended;      /* closed because the sender said so */
	bool far;        /* among the engine's far_lanes */
	uint32_t rtt_us; /* of its way, once that is known */
	struct gauge_lane gauged;
};

/* ---- inbound_door.c: who has not been let in ---- */

/* A new connection: it has to say hello in time. */
void inbound_door_enter(struct engine *engine, struct inbound *in);
/* Its first message. TR_OK: it is among its member's connections; TR_EAGAIN: it waits, and is offered again when that changes. An
 * error: it is to be closed. */
tr_status inbound_door_hello(struct inbound *in, const Traind__Peer__PeerMessage *message,
    struct tr_error *error);
void inbound_door_left(struct inbound *in); /* it is closed */

#endif
