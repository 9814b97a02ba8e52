/* Workers that die and leave their memory on their node: part of membership_harness.h, for tests of what follows them. */
#ifndef TR_TESTS_UNIT_MEMBERSHIP_LEFT_H
#define TR_TESTS_UNIT_MEMBERSHIP_LEFT_H

#include "tests/unit/membership_harness.h"

/* Fresh, and a worker that died on its node left the state after a round. */
static inline void ready_with_left(struct world *w, uint64_t conn, uint64_t group, uint64_t peer,
    uint64_t left_round)
{
	Traind__Peer__PeerReady body = TRAIND__PEER__PEER_READY__INIT;
	body.group = group, body.peer = peer;
	body.left = true, body.left_round = left_round;
	body.state_signature = (char *)(uintptr_t) "w:4096";
	MESSAGE(w, conn, PEER_READY, peer_ready, &body);
}

static inline void ended_and_left(struct world *w, uint64_t conn, uint64_t peer, bool learning)
{
	Traind__Peer__WorkerExited body = TRAIND__PEER__WORKER_EXITED__INIT;
	Traind__Peer__LastWords words = TRAIND__PEER__LAST_WORDS__INIT;
	words.state_left = !learning;
	words.learning_left = learning;
	body.job_id = 1;
	body.peer = peer;
	body.signal = 9;
	body.last_words = &words;
	MESSAGE(w, conn, WORKER_EXITED, worker_exited, &body);
}

static inline void killed_and_left(struct world *w, uint64_t conn, uint64_t peer)
{
	ended_and_left(w, conn, peer, false);
}

#endif
