/* Which samples a member may consume: leases, handed out without anybody who hands them out. Samples are numbered from 0 over the whole job. Every
 * member holds a queue of ranges and consumes it from the front; how much it has consumed goes with each merge, and the commit of that
 * round counts it. All apply the same rules to the same numbers, so all have the same account:
 *
 *	[0, cursor)  =  counted  +  held by members  +  free  +  dropped
 *
 *	enroll  a round began: who holds nothing says so in the round's roster and gets its first lease from what the roster comes to. It
 *	        waits for that; nobody else does
 *	settle  a round was committed: what its contributors consumed is counted. Who held something and is not among them is dead, and nothing that
 *	        it learned since its last count is in any result: its whole queue is free again, for others
 *	top up  then everybody is given what it may consume until the merge of the next round; free ranges first
 *
 *	absent  where members that are cut off train on (alone.h): before that, those who are missing are marked, and what they hold waits for them
 *	        for some rounds. Who comes back says in the roster who it was, and has its queue again
 *
 * A sample is counted with the first round that takes a fragment after the step that consumed it. So nothing that is counted can be handed out again,
 * and nothing learned from a sample is in a result before the sample is counted. One of which all that was learned is thrown away (drift.h) is dropped.
 *
 * The account is state of the group: equal on all members, sent to joiners, digested with every commit, in checkpoints. Zeroed it is that of a job
 * that begins. A claim is a lease that a newcomer got in a try of the round that was given up: it goes into the roster of the next try.
 *
 * Pure; no threads, no memory. Numbers from peers are not trusted with memory safety.
 */
#ifndef TR_COLLECTIVES_SYNC_LEASE_H
#define TR_COLLECTIVES_SYNC_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"

enum {
	LEASE_PIECES_MAX = 3, /* ranges in a member's queue; more only where a group by schedule has shrunk */
	/* And one of each who comes before the dead are settled. */
	LEASE_HELD_MAX = (LEASE_PIECES_MAX + 1) * TR_GROUP_PEERS_MAX,
	LEASE_FREE_MAX = LEASE_HELD_MAX,
	LEASE_DROPPED_MAX = 128,
};
#define LEASE_SAMPLE_MAX (UINT64_C(1) << 53) /* numbers travel as f64 */

struct lease_range {
	uint64_t from, to; /* [from, to) */
};
struct lease_held {
	uint64_t peer, from, to;
	uint64_t absent; /* the first round without its holder; 0: it is there */
};
enum lease_cause {
	LEASE_DIED = 1,  /* ddp: the round ended without its data */
	LEASE_DRIFTED,   /* its state was wrong, and its movement did not count */
	LEASE_NO_ROOM,   /* free, but in too many pieces */
	LEASE_LEFT_OVER, /* free, but from here on whole batches are handed out */
};

/* `count` samples of [from, to) were not, and will not be, trained on. count < to - from only where two of them were joined for want of room. */
struct lease_dropped {
	uint64_t from, to, count;
	uint64_t peer, round; /* who had them, and the round that ended without; 0: several */
	uint64_t cause;       /* enum lease_cause */
};

struct lease_account {
	uint64_t cursor; /* from here on nothing was handed out */
	uint64_t round;  /* the last that was counted */
	uint64_t held_count, free_count, dropped_count;
	uint64_t
	    anew; /* numbers below it were of another order of samples, which began anew here; 0: it never did */
	uint64_t
	    begun; /* so many were counted when the group began, or training went back to a checkpoint last; in no file */
	struct lease_held held[LEASE_HELD_MAX]; /* ascending by peer; of one peer in the order of use */
	struct lease_range free[LEASE_FREE_MAX];         /* ascending, apart from each other */
	struct lease_dropped dropped[LEASE_DROPPED_MAX]; /* ascending, apart from each other */
};

/* A contributor's place in the roster; peer 0: nobody's. from == to: no claim. `was`: whose queue it takes over, since it was that member; or 0. */
struct lease_wish {
	double peer, from, to, was;
};
enum { LEASE_WISH_NUMBERS = sizeof(struct lease_wish) / sizeof(double) };

/* What a contributor says with a merge. */
struct lease_use {
	uint64_t peer;     /* 0: nobody */
	uint64_t consumed; /* from the front of its queue, since it said so last */
	uint64_t lost;     /* the first of them, of which nothing is in any result: dropped */
};
/* The same in the round's op. */
struct lease_said {
	double consumed, lost;
};
enum { LEASE_SAID_NUMBERS = sizeof(struct lease_said) / sizeof(double) };

uint64_t lease_have(const struct lease_account *account, uint64_t peer); /* samples in its queue */
/* The i-th of them; UINT64_MAX: there are not so many. */
uint64_t lease_at(const struct lease_account *account, uint64_t peer, uint64_t i);
unsigned lease_members(const struct lease_account *account); /* that hold something */
uint64_t lease_counted(const struct lease_account *account);

/* Leases for those of the roster who hold nothing: their claims, else `need` each, behind what they take over. Who holds nothing after it: all
 * LEASE_SAMPLE_MAX samples were handed out. */
void lease_enroll(struct lease_account *account, const struct lease_wish *roster, size_t count,
    uint64_t need);
/* What of a newcomer's queue is its claim: what lies beyond that of the group, in which the round is not committed yet. */
struct lease_range lease_claim(const struct lease_account *own, const struct lease_account *group,
    uint64_t peer);
/* What those hold who are not in `uses` waits for them, until `keep` rounds after the first one without them. */
void lease_mark_absent(struct lease_account *account, const struct lease_use *uses, size_t count,
    uint64_t round, uint64_t keep);
bool lease_any_absent(const struct lease_account *account);
void lease_settle(struct lease_account *account, const struct lease_use *uses, size_t count,
    uint64_t round);
/* Ranges are to be few, so what a queue gets is large. `exact`: until it has `need` samples, which the peer will consume; what is its last piece
 * fills it up to twice that. Else `need` is a guess: a queue that has half of it, or LEASE_PIECES_MAX pieces, gets nothing, another is filled up to it. */
void lease_top_up(struct lease_account *account, uint64_t peer, uint64_t need, bool exact);
/* Such a guess, of a peer that consumed so much in the last round: half of it is twice that, and not less than `least`. */
uint64_t lease_guess(uint64_t consumed, uint64_t least);

/* Hands out the next `count` samples and counts them at once: of a round that consumes whole batches. First number. */
uint64_t lease_batch(struct lease_account *account, uint64_t count, uint64_t round);
/* [from, to) of such a batch was not trained on after all. */
void lease_drop(struct lease_account *account, struct lease_dropped dropped);

/* Before the first such batch, of an account that other modes have used: what is free is dropped. */
void lease_drop_free(struct lease_account *account);

/* All leases are free: nobody who held one is there any more. */
void lease_release(struct lease_account *account);
/* Of an account that comes from a file: whether it is one. */
bool lease_valid(const struct lease_account *account);

/* That of a tr_sync whose options have a batch (collectives/sync.h): to be read after a merge; to go on from what was saved, filled before
 * tr_state_ready. NULL: no batch. */
struct tr_sync;
struct lease_account *tr_sync_leases(struct tr_sync *sync);

#endif
