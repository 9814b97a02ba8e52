/* Records of rounds of peers that train (membership_harness.h). */
#ifndef TR_TESTS_UNIT_MEMBERSHIP_COMMITS_H
#define TR_TESTS_UNIT_MEMBERSHIP_COMMITS_H

#include "tests/unit/membership_harness.h"

/* A peer of group 4 says a round of peers 5 to 7, 12 samples. */
static inline void commit_one(struct world *w, uint64_t conn, uint64_t peer, uint64_t round)
{
	static uint64_t contributors[] = { 5, 6, 7 };
	Traind__Peer__RoundCommits body = TRAIND__PEER__ROUND_COMMITS__INIT;
	Traind__Peer__RoundCommit row = TRAIND__PEER__ROUND_COMMIT__INIT, *rows[1] = { &row };
	row.round = round;
	row.view = row.attempt = 1;
	row.samples = 12;
	row.contributors = contributors;
	row.n_contributors = 3;
	row.digest_low = round;
	body.group = 4;
	body.peer = peer;
	body.rounds = rows;
	body.n_rounds = 1;
	MESSAGE(w, conn, ROUND_COMMITS, round_commits, &body);
}

#endif
