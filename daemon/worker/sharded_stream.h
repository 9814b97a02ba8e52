/* Replicas that train apart and train on while a fragment of the parameters is merged (sync.mode streaming and eager, or an overlap, over mesh.tp or mesh.pp). What is right is what workers of whole
 * models do (collectives/sync/sync.c, schedule.h, late.h); a replica is what a worker is there. A round of the group stays what it is in sharded_apart.h: steps of each replica and one merge:
 *
 *	merge of the round before -- steps --> take -- tau steps, the sum is under way --> merge, commit
 *
 * take    how far the fragment has moved in `work` since it was taken last, times what that counts (struct tr_sync_options, weights), goes to the sums over dp from memory of its own, which are not waited for
 * merge   the sums are waited for, and come to the places of gradients; from there on all is as in any merge (sharded_merge.c), of the fragment alone
 * commit  outer step of the fragment in the outer parameters; then `work` is merged with them, by alpha or carry; the rest of `work` goes on, and so do the weights of the other fragments
 *
 * Which merge comes next is a number of the common state, `merges`: of the last ones several are at the last step, so the step alone does not say. So a round may have no step, nor a sample.
 *
 * Whose `work` counts: all workers of a replica have to hold the same of what they share, so each says by a digest in the roster how its `work` came about (`lineage`). Where all of a replica say the same the
 * replica goes on from it when a round begins; else all of them begin anew, from the outer parameters with no weights, which also is what a worker of a whole model does that joins. Steps, takes and
 * merges change the digest; what a worker has trained on and gives up (it is another replica's now, or its replica sits the merge out) leaves it without. What this worker alone has
 * seen, of a try of the round that the others have not, decides nothing.
 *
 * A round that begins again keeps what was taken, and submits it again; a worker that was interrupted before its take takes when it gets there.
 *
 * Samples are counted with the round's commit, those of the overlap too: of a replica that dies right behind it up to tau steps are counted that were in no fragment yet, as movements of
 * fragments that were not taken yet are lost with it. Losses are told as there: of the steps up to the take.
 *
 * eager: one fragment, tau = H. At the take a replica runs ahead to where its own part of the merge would bring it; how far and how fast (`lead`), and where it started, are its own, as `work` is.
 *
 * Memory, bytes a parameter: what is taken, and its sum, 8 of the largest fragment; eager: 8, and 12 for what it is ahead.
 */
#ifndef TR_DAEMON_WORKER_SHARDED_STREAM_H
#define TR_DAEMON_WORKER_SHARDED_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/sync/schedule.h"
#include "common/error.h"

struct sharded_scope;
struct trainer;

/* What a replica gives to a merge. */
struct apart_given {
	double weight;       /* by which its movement counts */
	double loss, tokens; /* what it has learned of how many */
};

/* What goes on through merges: this worker's, of `shard`. */
struct apart_stream {
	bool on;
	uint32_t shard;   /* RANKS_NONE */
	uint64_t lineage; /* of `work`; 0: it is of no use */
	double tokens[SYNC_FRAGMENTS_MAX],
	    steps[SYNC_FRAGMENTS_MAX]; /* since each fragment was taken */
	struct apart_given since;      /* the last take; its weight does not count */
	float *delta, *sum; /* of the fragment that was taken, tensor after tensor; NULL: not on */
	float *start, *lead, *lead_momentum; /* eager; NULL: not */
	double gave, share; /* the last weight; what it was of all. 0: there was none */
};

/* Of the round under way. */
struct stream_slot {
	unsigned fragment;
	uint64_t steps, take; /* of the round; after which the fragment is taken */
};

/* A tensor of this worker's shard that is of a fragment; zeroed to begin with. */
struct stream_piece {
	size_t tensor, offset, count;
	size_t packed; /* where it lies in what is taken */
	bool copied;   /* a table that comes from the first stage */
};

/* ---- sharded_fragments.c ---- */

/* The next one; false: there are no more. */
bool sharded_next_piece(const struct trainer *t, unsigned fragment, struct stream_piece *piece);
/* Of this worker's shard. */
size_t sharded_fragment_numbers(const struct trainer *t, unsigned fragment);
/* Of any shard, of any fragment, the most. */
size_t sharded_fragment_most(const struct trainer *t);
/* The sums over dp of what was taken: all but a copied table. */
tr_status sharded_submit_fragment(struct trainer *t, unsigned fragment, struct tr_error *error);
/* Into the gradients. */
tr_status sharded_wait_fragment(struct trainer *t, unsigned fragment, struct tr_error *error);
/* What coding lost of it changes with the commit; of other fragments nothing does. */
void sharded_keep_fragment_lost(struct trainer *t, unsigned fragment);

/* ---- sharded_stream.c ---- */

tr_status sharded_stream_make(struct trainer *t, struct tr_error *error);
void sharded_stream_unmake(struct trainer *t);

/* False: there is no merge left. */
bool sharded_stream_slot(const struct trainer *t, struct stream_slot *slot);
/* Merges that lie up to a step: where training goes back to it. */
uint64_t sharded_stream_merges(const struct trainer *t, uint64_t step);

/* `work` is of no use. */
void sharded_stream_drop(struct trainer *t);
/* It is that of the outer parameters; in a round that begins. */
void sharded_stream_begin(struct trainer *t, uint64_t round, uint64_t workers);
/* This worker has taken a step of so many tokens; before it is counted. */
void sharded_stream_count(struct trainer *t, double tokens, double norm);
/* At each step of a round, and behind the last: whatever is to be taken now is, and goes to the sums. */
tr_status sharded_stream_take(struct trainer *t, struct tr_error *error);
/* A round, or another try of it: what was taken goes to the sums; who has no part in it gives nothing. */
tr_status sharded_stream_submit(struct trainer *t, struct tr_error *error);
/* The round is committed, with so much weight in all. */
void sharded_stream_merge(struct trainer *t, double weight);
/* Digest of `work` after the take, and after the merge, of a round. */
uint64_t sharded_stream_lineage(uint64_t before, uint64_t round, bool merged);

#endif
