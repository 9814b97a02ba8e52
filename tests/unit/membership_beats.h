/* Heartbeats of nodes whose peers train (membership_harness.h). */
#ifndef TR_TESTS_UNIT_MEMBERSHIP_BEATS_H
#define TR_TESTS_UNIT_MEMBERSHIP_BEATS_H

#include "tests/unit/membership_harness.h"

/* A heartbeat about one peer of group 4: whom it waits for (0: nobody), and for how long it has in all (0: it does not know). */
static inline void beat_waited(struct world *w, uint64_t conn, uint64_t peer, uint64_t round,
    uint64_t progress, uint64_t waits_for, uint64_t waited_us)
{
	Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
	Traind__Peer__PeerProgress row = TRAIND__PEER__PEER_PROGRESS__INIT, *rows[1] = { &row };
	row.group = 4;
	row.peer = peer;
	row.round = round;
	row.progress = progress;
	row.waiting = waits_for != 0;
	row.waited_us = waited_us;
	row.waits_for = &waits_for;
	row.n_waits_for = waits_for != 0 ? 1 : 0;
	beat.peers = rows;
	beat.n_peers = 1;
	MESSAGE(w, conn, HEARTBEAT, heartbeat, &beat);
}

static inline void beat(struct world *w, uint64_t conn, uint64_t peer, uint64_t round,
    uint64_t progress, uint64_t waits_for)
{
	beat_waited(w, conn, peer, round, progress, waits_for, 0);
}

#endif
