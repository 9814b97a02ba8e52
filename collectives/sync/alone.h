/* A member that is cut off: it waits for a merge that does not come, trains on by itself, and what it learned goes into a merge when it is back.
 *
 *	alone   a merge was waited for longer than alone_after_seconds: inner steps go on, at most alone_steps of them, on samples of its own lease,
 *	        which is longer by so many. They are beyond the schedule: the count of steps and the speeds that members tell each other stand still.
 *	        Before each step it looks whether the merge has come
 *	late    it has: the merge keeps what was done since (late.h)
 *	back    the others have put it out meanwhile. It keeps what no merge has (tr_sync_keep), joins as a new member, says in the roster who it was
 *	        and has its samples again (lease.h); then it begins at to = theta - what it kept, with the tokens and samples of that, so that its first
 *	        movement holds both. Whether what was on its way had been merged, the account says: then those samples are counted
 *
 * Not for others; called by sync.c. */
#ifndef TR_COLLECTIVES_SYNC_ALONE_H
#define TR_COLLECTIVES_SYNC_ALONE_H

#include "collectives/sync/sync_internal.h"

/* Whether this peer would train on, rather than wait. */
bool alone_may(const struct tr_sync *sync);
/* For an op, or for the commit, as long as this peer is willing to. TR_ETIMEDOUT: it trains on. */
tr_status alone_wait(struct tr_sync *sync, uint32_t tag, struct tr_error *error);
tr_status alone_commit(struct tr_sync *sync, const struct tr_commit *close, struct tr_error *error);
/* So many rounds the others merge before the lease of an absent member is given to others: of everything eight times, since to come back takes a while,
 * and twice as often as while it takes all its steps alone. */
/* Where members take steps as they can the others merge while the fastest takes its H, or in so many seconds; `slowest_s`: a step of the slowest, of those who are there and those who are missing. */
uint64_t alone_keep_rounds(const struct tr_sync_options *options, const struct pace_agreed *agreed,
    double slowest_s);
/* Whose lease this peer takes over, for the roster: of whom a commit knew last; 0: nobody's. */
uint64_t alone_was(const struct tr_sync *sync);
/* When it has the outer parameters and its lease: what it brings. s->event says it. */
void alone_begin(struct tr_sync *sync);
void alone_destroy(struct tr_sync *sync);

#endif
