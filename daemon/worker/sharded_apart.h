/* Replicas of several workers that train apart (mesh.tp, mesh.pp or mesh.copies with a sync.mode but ddp; docs/sharding.md, docs/low-communication.md has the formulas): the group's round is H
 * steps of each replica and one merge.
 *
 *	roster   all contributors say what they have of this round, and with which moments (below): all draw the same conclusions
 *	steps    H of them, of each replica by itself, in copies of the parameters (`work`): sums inside the model, between stages and of the norm are ops of its
 *	         own workers, whose memory is taken back within the round (tr_release); nothing is sent to another replica
 *	merge    workers of the same shard sum how far they got, weighted as struct tr_sync_options says (weights); then one sum of all has losses and tokens
 *	commit   each worker takes the outer step on its shard: parameters and outer momentum change here alone, in all replicas or in none
 *
 * A worker dies: the round begins again at all (coll.h, scopes), but a replica whose workers are all there goes on from where it was, since nothing of the others is in what it computed.
 * Workers of a replica that were interrupted may be one step apart: who is ahead had the step's norm, to which the other had given its part, so it has its gradient and takes the
 * step with the norm that the roster says. A replica that has lost a worker, and has another one already, sits this merge out, gets the merged parameters and goes on with the next
 * round; if no replica has anything of this round, all begin it anew.
 *
 * One kill, dp 2 x tp 2, H = 4: worker 3 (tp 1 of replica 1) dies while replica 0 is in its third step. Worker 0 has taken step 2, worker 1 waits for its norm. The view's
 * change ends the round's ops; contributors are 0, 1, 2, and worker 2 is a spare. Roster: 0 says two steps and the second's norm, 1 says one. Both claim the same places of the
 * samples' list; 1 takes its second step; both go on with the third, merge alone (their movement is the mean), commit. Their samples are counted, replica 1's are not: the next
 * round's list begins with those. One join: a worker comes to the group in that round without a part in it, is rank 3 in the next, gets parameters and outer momentum of its shard from
 * worker 1 by ops as in any sharded job, and its replica begins with fresh moments, since those of worker 2 alone would not fit.
 *
 * Where they train on while a fragment is merged (streaming, eager, an overlap) `work` goes on through merges, and a round is the steps between two of them: sharded_stream.h.
 *
 * By speed (`sync.by_speed`): the fastest replica takes H steps, the others as many as they get done meanwhile, by what their workers say in the roster of their newest steps; so all come to the merge
 * at one time. A merge counts as H steps whoever was in it.
 *
 * By time (`sync.inner_seconds`): a replica takes as many steps as it gets done in that time by the same words; in the first round, and where nobody knows, one. A merge counts as the steps of the fastest in it.
 *
 * Several copies (`mesh.copies`) may make up a replica: all of them have to be there, their workers of a shard sum gradients at every step, and each merges a part of the shard (sharded_copies.c). With
 * mesh.zero_owners the replica's moments are cut over them (sharded_apart_owners.c).
 *
 * Another mesh (sharded_remesh.c), or fewer copies, lies between two merges: its shards of outer parameters and momentum are made out of those that workers hold, or with too few of these read from the newest checkpoint; all that is a
 * replica's own is unmade with the old mesh, but for the moments of one of them, with which all begin (sharded_apart_moments.c).
 *
 * Error feedback (`sync.feedback`): what coding lost of a worker's movement is its own, and goes with that of the next merge. It changes with the commit, as parameters do; who gets a shard, or goes
 * back to a checkpoint, begins with none.
 *
 * Moments of AdamW are a replica's own. What all its tensor-parallel workers hold (norms, some biases) and the copies of a tied table have to stay the same bits at all of them, so moments may
 * be used only if all of the replica's workers have made them together: `lineage` is a digest of how they came about. Of several copies who has none gets those of its shard from another one. Where it differs the replica begins with fresh ones, as a
 * worker of a whole model does that joins.
 */
#ifndef TR_DAEMON_WORKER_SHARDED_APART_H
#define TR_DAEMON_WORKER_SHARDED_APART_H

#include "collectives/sync.h"
#include "collectives/sync/costs.h"
#include "collectives/sync/report.h"
#include "common/limits.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/checkpoint/reshard.h"
#include "daemon/plan/owners.h"
#include "daemon/worker/model.h"
#include "daemon/worker/sharded_claims.h"
#include "daemon/worker/sharded_stream.h"

struct manifest;
struct sharded;
struct trainer;

/* What a contributor says in the roster, in a place of its own. */
struct apart_word {
	int64_t first; /* of its claim, and one; 0: it has none */
	int64_t share, steps, quota;
	int64_t began;      /* streams: lineage of the work that its first step was taken from */
	int64_t step_ns;    /* of its newest steps; 0: not known */
	int64_t norm, loss; /* bits of those of its newest step; of one copy, no loss */
	int64_t lineage;    /* of its moments; 0: it has none of its shard */
	int64_t age,
	    used; /* of these: steps that they are of; the job's step at which the newest round that they were used in began */
	int64_t piece; /* with ZeRO-1, which copy's pieces these are, and one; 0: all of the shard's */
	int64_t lacks; /* 1: with ZeRO-1, of the newest step what other copies make of it */
	int64_t work; /* the same of `work`, where that goes on through merges (sharded_stream.h) */
};
enum { APART_WORDS = sizeof(struct apart_word) / sizeof(int64_t) };

/* Of a replica, as all know it. */
struct apart_part {
	bool trains, anew; /* has a part in this merge; from the beginning of the round */
	bool alike;        /* its workers have made their moments together */
	uint64_t lineage; /* that all of its shards have moments of, of several the newest; 0: none */
	bool goes_on;     /* and their work, if that is to go on */
	struct claim claim;
	uint64_t share, steps; /* sequences of a step; steps to take */
};

/* What this worker has of a round: of no use in any other round, replica or shard. */
struct apart_own {
	uint64_t round, workers; /* 0: nothing; digest of its replica's workers */
	struct claim claim;
	uint64_t share, quota, steps; /* to take, taken */
	uint64_t began;               /* streams: lineage of the work before the first of them */
	double norm, newest_loss;     /* of the newest */
	bool lacks; /* with ZeRO-1: of the newest step what other copies make of it has not come yet (sharded_apart_owners.c) */
	bool ready; /* the next one's gradient is whole, its norm is not known yet */
	double loss, step_loss;
	double lr_scale; /* of all its steps (sharded_rates.c) */
	bool taken;      /* what is merged is not in `work` any more, but on its way; since when: */
	double taken_s;
	struct apart_given given;
};

struct apart_moments {
	float *first, *second;
	uint32_t shard; /* whose they are; RANKS_NONE */
	/* With ZeRO-1 those that are owned with this number in a replica (ranks_number); or all, as they were read. */
	uint32_t number;
	bool whole;
	uint64_t lineage, age, used;
};

/* On their way to another mesh. */
struct apart_carried {
	struct reshard moves;        /* s->coming's shards out of s->shards's, of one array */
	uint64_t lineage, age, used; /* lineage 0: there are none, all begin with fresh ones */
};

/* What coding lost of this worker's movements. */
struct apart_lost {
	float *now, *next; /* NULL: it is not kept; as long as the longest shard */
	uint32_t shard;    /* of which; RANKS_NONE: of none */
};

/* All workers' together, f64 in the group's memory. */
struct apart_sums {
	double loss, loss_tokens; /* of so many tokens */
	double tokens;            /* of the round's claims */
	double weight;            /* of all movements */
	struct sync_costs_said costs;
	struct sync_report reports[TR_GROUP_PEERS_MAX]; /* HDET: each replica's, by its number */
};

struct sharded_apart {
	struct tr_sync_options options;
	uint64_t
	    steps_most; /* of a round by time, whatever its time and the mesh are; and over the mesh in force: */
	uint64_t mesh_steps_most;
	float *work; /* parameters that this worker's steps are taken in; as long as the longest shard */
	struct apart_moments moments;
	struct apart_carried carried;
	struct apart_lost lost;
	struct apart_stream stream;
	struct apart_own own;
	uint64_t step_ns; /* what one of the newest round's took; 0: not known */
	struct apart_part parts[TR_GROUP_PEERS_MAX]; /* of the round under way, by replica */
	struct apart_word *roster;                   /* in the group's memory */
	double (*squares)[TR_GROUP_PEERS_MAX];       /* the same: of two steps in turn, by shard */
	struct apart_sums *sums;                     /* the same */
	struct apart_given untold;                   /* losses since the newest report */
	bool skipped;                                /* the newest step was not applied */
	double merging_since_s;                      /* monotonic; 0: not */
	struct sync_costs_said said; /* of the newest merge, told with the next one */
	uint64_t sent_bytes,
	    sent_now; /* to other replicas, when it was last told; now. UINT64_MAX: from the next merge on */
};

/* ---- sharded_apart.c ---- */

tr_status sharded_apart_create(struct trainer *t, struct tr_error *error);
void sharded_apart_destroy(struct trainer *t);
tr_status sharded_apart_attach(struct trainer *t, struct tr_error *error);
/* For a mesh. */
tr_status sharded_apart_make(struct trainer *t, struct tr_error *error);
void sharded_apart_unmake(struct trainer *t);
/* A round began: t->arrays has this worker's moments. */
void sharded_apart_bind(struct trainer *t);
/* They were read from where training begins; NULL: they are initial ones. */
void sharded_apart_loaded(struct trainer *t, const struct manifest *manifest);
/* Before they go to who writes: what are another shard's are none, nor (`mixed`) any. */
void sharded_apart_settle_moments(struct trainer *t, bool mixed);

/* These moments are of this worker's shard now. */
void sharded_apart_begin_moments(struct trainer *t, uint64_t age, uint64_t lineage);

/* Digest of a replica's workers: who has which shard. */
uint64_t sharded_apart_workers(const struct sharded *s, uint32_t replica);
/* 63 bits, and not 0, which is nobody's. */
uint64_t sharded_apart_word(const void *data, size_t bytes);
/* The roster, of which this worker has said its own word: all have all of it. */
tr_status sharded_apart_exchange(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* Of moments, or of `work`, after a step with this norm. */
uint64_t sharded_apart_lineage(const struct apart_own *own, uint64_t before, double norm);

/* Steps of the round that begins at the state's step, of the fastest replica; by time, until the round's roster is there: of the round before. */
uint64_t sharded_apart_steps(const struct trainer *t);
/* What a mesh has to fit (daemon/plan/remesh.h); zeroed: nothing. */
struct job_mesh_rounds sharded_apart_rounds(const struct trainer *t);
/* With another mesh each replica begins from what was merged, with one's moments: not for a better one where fewer steps are left than it takes to merge all of a model once more. */
bool sharded_apart_may_change(const struct trainer *t);
/* Are all steps done, and merged? */
bool sharded_apart_is_done(const struct trainer *t);
/* Whether shards go to who writes in this round, which does nothing else. */
bool sharded_apart_saves(const struct trainer *t);
/* Of the round before: whether a multiple of `every` lies in its steps. */
bool sharded_apart_crossed(const struct trainer *t, uint64_t every);
/* This worker's replica's; NULL: it has none. */
const struct apart_part *sharded_apart_part(const struct trainer *t);

tr_status sharded_submit_apart(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);

/* ---- sharded_inner.c ---- */

/* The rest of the round's steps. */
tr_status sharded_inner_steps(struct trainer *t, struct tr_error *error);
/* The first of the tags of that step of the round. */
uint32_t sharded_inner_tag(const struct sharded *s, uint64_t step);
/* The step whose gradient is there, with this norm. */
void sharded_inner_take(struct trainer *t, double norm);
/* Whether these of this worker's own parameters can be given to a merge (collectives/sync/outer.h). If not an event says so, and its moments are zeros: its shard has no movement then, and goes on from the
 * outer parameters. */
bool sharded_inner_sound(struct trainer *t, const float *work, size_t count);

/* ---- sharded_apart_moments.c: to another mesh, and to a copy that has come ---- */

/* By the roster, the newest of the moments that are there of each shard of replica `replica`; 0: there are none. */
uint64_t sharded_lineage_of(const struct sharded *s, uint32_t replica);
/* Whoever of this shard in this replica has no moments of `lineage` gets them from another copy, before the round's first step. */
tr_status sharded_give_moments(struct trainer *t, uint64_t lineage, struct tr_error *error);
/* In a round that changes the mesh, by all members, after sharded_carry_none: which moments go to whom, in a->carried. */
tr_status sharded_carry_moments(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
void sharded_carry_none(struct sharded_apart *apart);
/* The round is committed: a bit for each of the replicas' first 64 places along dp that begin with carried moments. */
uint64_t sharded_carried_places(const struct sharded *s);
/* The mesh is made: what came with the shard in s->held are this worker's. */
void sharded_adopt_moments(struct trainer *t);

/* ---- sharded_apart_owners.c: ZeRO-1 over the copies of a replica ---- */

/* Of each piece, with as many copies as a replica has now; 0: each copy has all. Of other jobs mesh.zero_owners. */
uint32_t sharded_owners_now(const struct trainer *t);

/* Of this worker's shard, which of the moments it owns: at most two ranges, all without ZeRO-1. Returns how many. */
unsigned sharded_owned(const struct trainer *t, struct owners_range ranges[2]);
/* Whether copies get something of each step from others. */
bool sharded_owners_share(const struct sharded *s);
/* The newest step was taken, of what this worker owns: its copies give each other the rest. */
tr_status sharded_owners_exchange(struct trainer *t, struct tr_error *error);
/* All copies have gone on from that exchange: of it a barrier is left. */
tr_status sharded_owners_release(struct trainer *t, struct tr_error *error);
/* What there is of others' pieces is given back. */
void sharded_owners_begin(struct trainer *t);

/* ---- sharded_rates.c ---- */

/* HDET: the base of the learning rates and its momentum, beside the schedule of `train`. False, and zeros: there is none. */
bool sharded_lr_base(const struct trainer *t, double base[2]);
/* By which this worker's replica multiplies its learning rate until the next merge; 1 but in HDET. */
double sharded_choose_rate(const struct trainer *t);
/* Into the sums, by who speaks for a replica; tokens 0: nothing. Numbers of the sums that reports are. */
size_t sharded_say_rate(struct trainer *t, double tokens);
/* The merge is committed. */
void sharded_move_rates(struct trainer *t);

/* ---- sharded_merge.c ---- */

tr_status sharded_submit_merge(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* Waits for what all together have: *samples that are in it. */
tr_status sharded_wait_merge(struct trainer *t, uint64_t *samples, struct tr_error *error);
/* What coding lost of another shard, or of steps that were gone back behind, is of no use. */
void sharded_settle_lost(struct trainer *t);
/* It is committed. */
void sharded_apply_merge(struct trainer *t, const struct tr_round *round);

#endif
