/* Training a model that is split over a mesh (mesh.tp and mesh.pp in the job file; docs/sharding.md): each worker holds a shard, a replica's workers compute together.
 *
 * Common state of the group, which a joiner receives as ever, are counters, the account of samples and the table of ranks (daemon/plan/ranks.h).
 * Parameters and moments are not: who gets a new rank gets its shard in that very round, from a peer that holds it, by ops; or where there are replicas without it, in rounds before that
 * (daemon/plan/newcomers.h). They do not change between a round's begin and its commit either, so a round that begins again finds what it began with.
 *
 * With ZeRO-1 (mesh.zero_owners) of its shard's moments each worker holds pieces alone (daemon/plan/owners.h): the table says which. What a worker lacks of those that are its own in
 * a round it gets in that round too.
 *
 * A round is one of these, which all its peers derive from the common state and the ids of its contributors:
 *
 *	step    the global batch, shared out over the replicas; also: shards to new ranks, and of a step before to who writes a checkpoint
 *	wait    too few contributors for one replica: nothing happens, for a while
 *	back    nobody holds some shard: training goes back to the newest checkpoint that all can use
 *	remesh  too few for one replica for long, or enough for a better mesh again, or steps drifted from their plan: shards of another mesh are made out of what peers hold
 *	mend    some of a shard's workers hold other numbers than the rest: they hold nothing from then on
 *	load    training begins with its last step done: shards are read, for the final round
 *	final   validation, last checkpoint, sample
 *	save	shards to who writes a checkpoint, and nothing else: of jobs whose replicas train apart (sharded_apart.h), where a step is many of them and a merge; and after the last step where each writes its own (sharded_saving.h)
 *
 * So the number of a round is not that of a step. A loss begins the round again at all (scopes, collectives/coll.h): with what is left.
 */
#ifndef TR_DAEMON_WORKER_SHARDED_H
#define TR_DAEMON_WORKER_SHARDED_H

#include "collectives/sync/costs.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/mesh_shards.h"
#include "daemon/checkpoint/reshard.h"
#include "daemon/plan/balance.h"
#include "daemon/plan/dealing.h"
#include "daemon/plan/drift.h"
#include "daemon/plan/newcomers.h"
#include "daemon/plan/owners.h"
#include "daemon/plan/pace.h"
#include "daemon/plan/trial.h"
#include "daemon/plan/ranks.h"
#include "daemon/plan/remesh.h"
#include "daemon/plan/restage.h"
#include "daemon/plan/worthwhile.h"
#include "daemon/worker/mesh_memory.h"
#include "daemon/worker/pipeline.h"
#include "daemon/worker/replanner.h"
#include "daemon/worker/saver.h"
#include "daemon/worker/sharded_fetch.h"
#include "daemon/worker/sharded_parts.h"
#include "daemon/worker/sharded_saving.h"
#include "daemon/worker/sharded_strict.h"
#include "daemon/worker/waits.h"

/* Rounds of too few workers before there is a smaller mesh: ten a second. */
#define SHARDED_WAIT_ROUNDS 20u
#define SHARDED_ARRAYS      3u /* that make up a shard: parameters and both moments */
/* And the outer momentum of replicas that train apart. */
#define SHARDED_OUTER      3u
#define SHARDED_ARRAYS_ALL 4u
#define SHARDED_MOMENTS    (2u | 4u) /* a bit each */
/* Pieces of a checkpoint that is copied (sharded_fetch.c). */
#define SHARDED_FETCH_BYTES (4u << 20)
/* What all say to plan anew. */
#define SHARDED_REPLAN_WORDS (REPLAN_PEERS_MAX * sizeof(struct replan_figures) / sizeof(int64_t))

struct trainer;
struct sharded_apart;
struct fetch_piece;

enum sharded_round {
	SHARDED_STEP,
	SHARDED_WAIT,
	SHARDED_BACK,
	SHARDED_REMESH,
	SHARDED_MEND,
	SHARDED_LOAD,
	SHARDED_FINAL,
	SHARDED_SAVE
};

/* Part of the group's state. */
struct sharded_state {
	/* Numbers of the shards are with the peers alone. 0: each can read its own, from where training begins. */
	uint64_t born;
	uint64_t origin; /* that is the job's own checkpoint of this step; 0: what the job file says */
	uint64_t
	    saved; /* step of the newest checkpoint of its own that is known to be whole; 0: none */
	uint64_t gathered;   /* the step whose shards went to who writes the checkpoint */
	uint64_t step_round; /* the round of the last step */
	uint64_t mended;     /* times that numbers differed since the newest checkpoint */
	uint64_t
	    back_to; /* one more than the step of the checkpoint that is tried next, since a newer one could not be used; 0: none is */
	struct remesh_counts remesh;
	struct dealing asked;   /* by the job file, or by the newest plan */
	struct dealing dealing; /* in force, over the mesh in force */
	struct ranks ranks;     /* of the last round, with the mesh in force */
	struct balance balance; /* of the dealing in force */
	struct pace pace;       /* the same */
	struct restage restage; /* the same */
	uint64_t wishes;        /* 1: the next round is to give stages other layers: */
	struct restage_wish wish;
	struct drift drift;      /* of the plan in force */
	uint64_t replanning;     /* how far another plan is (sharded_replan.c): */
	struct wish planned;     /* what was found, where the next round is to make it true */
	struct sync_costs costs; /* of merges, of replicas that train apart */
	double lr_base[2];       /* of their learning rates: sharded_lr_base */
	uint64_t merged_steps;   /* of the newest merge; 0: there was none */
	/* Places along dp (ranks_stood) of replicas that had a part in the newest merge, and whose workers are the same since. */
	uint64_t trained;
	uint64_t merges; /* that lie between the job's first step and this one (sharded_stream.h) */
	uint64_t
	    kept_out; /* 1: of the last round's peers a replica was not put to work, since it is not worth it */
	struct newcomers newcomers; /* of the last round */
	struct trial trial;         /* of a replica more; failed: it is kept out */
	struct saving saving;       /* a checkpoint in shards */
	uint64_t fills;             /* 1: the last round was a step in which somebody got a shard */
	uint64_t plain; /* 1: the last round was a step, like the one before it, and nothing else */
};

/* What each says in every round; the most of all counts. 0: it does not know. */
struct sharded_told {
	int64_t saved;    /* the newest checkpoint of the job's own that it knows to be whole */
	int64_t round_ns; /* that the round before took it */
	int64_t unit_ns;  /* of what came to it as a newcomer (daemon/plan/newcomers.h) */
	int64_t change_ns; /* and the change of mesh, if that was one; with the making of what there is for it */
	int64_t follows; /* twice the number of the view that it began the round under, one more where nobody follows those who are missing: what the newest view says counts */
};

/* What is added up over all, f64 in the group's memory. Squares of the gradient by shard: one replica says them, so that all have the same bits. */
struct sharded_sums {
	double loss, tokens;
	double squares[TR_GROUP_PEERS_MAX];
	/* An op of its own: of each contributor's numbers, of those that all of its stage hold, and with ZeRO-1 of its pieces of the moments, one after another. */
	int64_t digests[(2 + OWNERS_MAX) * TR_GROUP_PEERS_MAX];
	int64_t work[TR_GROUP_PEERS_MAX]; /* an op of its own: nanoseconds that each replica, by its number, computed in this step; the most that one of its workers says */
	int64_t choice[4]; /* the same, the least counts, of the checkpoint in question: less than 0 by one more than the step of the newest before it that each has; the index of who cannot use it; 0 if that one could not use another worker's copy of it either; -1 if who says so has it */
	int64_t here[TR_GROUP_PEERS_MAX]; /* the same, summed: by index which checkpoint of the step in question each has on its disk; 0: none */
	int64_t stages[2 *
	    TR_GROUP_PEERS_MAX]; /* the same, of each stage its slowest worker, without waiting; and how many layers more it has no memory for (sharded_restage.c) */
};

struct sharded_scope {
	uint32_t members[TR_GROUP_PEERS_MAX];
	uint32_t count;
};

/* Sums inside the model (sharded_exchange.c). */
struct sharded_exchange {
	struct tr_group *group;
	const struct sharded *sharded;
	uint32_t used;   /* ops of the round under way */
	double waited_s; /* for them, and for messages between stages, while the step is computed */
	const struct sharded_scope *scope;
	tr_status status; /* of the first that failed */
	struct tr_error error;
};

struct sharded {
	struct layout whole;
	struct mesh_memory memory; /* of what is made for a mesh */
	uint64_t newcomer_parts,
	    newcomer_least;   /* NEWCOMERS_PARTS, NEWCOMERS_LEAST but in the simulator */
	size_t fetch_bytes;   /* SHARDED_FETCH_BYTES but there */
	uint64_t trial_steps; /* TRIAL_STEPS, or TRIAL_BALANCED_STEPS, but there */
	uint32_t
	    owners; /* with ZeRO-1, of each piece of a shard's moments (daemon/plan/owners.h); 0: all of its workers hold them all */

	/* Made for a mesh, anew for another one (sharded_mesh.c); as are t->model, t->layout and t->buckets. */
	struct dealing dealing;
	struct mesh_shards shards;
	struct shard shard;                /* that the model is built for */
	struct sharded_pipeline *pipeline; /* NULL: one stage */
	struct sharded_strict *strict;     /* train.strict; NULL: not */
	struct sharded_apart
	    *apart; /* replicas train apart; NULL: gradients are summed at every step */
	struct model_tensor tensor;
	size_t row_parts; /* of the model (slots.h): more than one with sequence parallelism */
	struct optim_arrays held,
	    other; /* other: for a shard that comes while another is held; NULL as long as there was none */
	struct optim_arrays *staged; /* by shard: of who writes checkpoints */
	struct sharded_parts lent;
	float *shared; /* sharded_shared.c; NULL: not needed with this mesh */
	float *made;   /* sharded_update.c: new parameters, until the commit; NULL: none were yet */
	size_t made_room;
	/* Of the arrays of moments that are held, what has pages: as of this row of the table; more, if `untidy`. */
	struct ranks_peer tidied;
	bool untidy;

	struct sharded_exchange exchange;
	struct sharded_state *state;
	struct sharded_sums *sums;
	struct sharded_told *told;
	uint64_t resumed; /* step of the checkpoint that the job file names, when this worker looked */
	uint32_t loaded;         /* the shard that is read from where training begins; RANKS_NONE */
	int64_t loaded_from;     /* `which` it is of */
	uint64_t saved_here;     /* by this worker, not told yet; 0: none */
	struct tr_error refused; /* why this worker could not use checkpoints, since the last step */
	uint32_t differs;        /* times that this worker was mended since the last step */
	uint64_t put_by;         /* the step that this worker began to write last */
	bool in_shards;          /* checkpoint.sharded: each writes its own, sharded_saving.h */
	struct saving_own saving;
	struct saving_job saving_job;
	struct saving_word *words; /* in the group's memory; NULL: not in shards */

	/* For another plan (sharded_replan.c). */
	struct replanner *replanner; /* NULL: the job is not planned anew */
	int64_t *replan_words;       /* in the group's memory */
	double computing_s;          /* of the step under way, without waiting */
	double computed_s;           /* of the look under way, of so many steps: */
	uint64_t computed_steps;
	struct wish found; /* by this worker, not committed yet */
	bool has_found;

	/* The round under way. */
	enum sharded_round kind;
	struct ranks next;
	uint32_t self, rank; /* index and rank; RANKS_NONE */
	struct sharded_scope tp,
	    dp; /* dp, of replicas that train apart: with whom this worker merges */
	struct sharded_scope
	    copies; /* of its shard in its replica, where it has several (sharded_copies.c) */
	struct ranks_transfer transfers[TR_GROUP_PEERS_MAX];
	size_t transfer_count;
	struct newcomers newcomers;
	bool meets; /* somebody works who was a newcomer until now */
	uint32_t pieces[SHARDED_ARRAYS * NEWCOMERS_DONORS]; /* ops with what comes to this worker */
	size_t piece_count;
	double pieces_since_s; /* monotonic */
	uint64_t unit_ns;      /* to be told */
	struct owners_plan moments, pieces_moments,
	    gathered; /* to who owns them or gives them to another mesh; to newcomers; to who writes */
	uint32_t lost;
	bool lost_moments; /* alone, from s->moments.lost_at on */
	bool into_other;   /* what it gets */
	bool behind;       /* sharded_arrivals.c: shards come while others train apart */
	size_t arriving; /* one more than the transfer that this worker has not waited for; 0: none */
	bool gathers;
	struct saving begins; /* in shards, with it; key 0: none does */
	bool leaves_out;      /* a checkpoint that would begin, since another is on its way */
	uint64_t share;       /* samples of this worker's replica */
	double work_s;        /* that computing it took; meanwhile since when, monotonic */
	struct waits waits;
	struct fetch_piece *fetch; /* sharded_fetch.c; NULL: none was needed yet */
	struct manifest *back;     /* what training goes back to; in the group's memory */
	/* What the round said of a checkpoint (sharded_back.c): the step in question; one more than that which all take, or try next, 0: none; who cannot use it, or SHARDED_NOBODY; and why, if this worker cannot. */
	uint64_t tried, chosen;
	int64_t refuser;
	struct tr_error refusal;
	struct sharded_files files;
	bool kept_out; /* a replica is not put to work in this round; s->worth says why, s->declined what would be */
	bool tells_kept_out;
	bool takes_back; /* a replica that made steps longer; the same, from the next round on it is kept out */
	bool replans; /* what was planned anew is made in this round, or is not worth it; the same */
	bool restages; /* other layers are made in this round, or are not worth it; s->worth says why */
	bool stays; /* in this mesh, since the next one is not worth the change: */
	struct worth worth;
	struct mesh declined;

	/* Of a round that changes the mesh; zeroed: it does not. */
	struct dealing next_dealing;
	bool changed; /* that round is committed: also where the shards are the same ones, at other ranks */
	struct mesh_shards coming;
	struct optim_arrays arrived; /* of this worker's shard of it */
	struct reshard moves;
	float *packed;
	double moving_since_s;        /* monotonic */
	double committed_s;           /* the same: the last commit; 0: none yet */
	uint64_t round_ns, change_ns; /* to be told */
};

/* ---- sharded.c, called while the trainer is made ---- */

/* t->layout, of the whole model, becomes a shard's. */
tr_status sharded_create(struct trainer *t, struct tr_error *error);
void sharded_destroy(struct trainer *t);
/* Layouts of a mesh that the job may have, with the layers that a dealing gives its stages. */
tr_status sharded_lay(struct trainer *t, const struct dealing *dealing, struct mesh_shards *shards,
    struct tr_error *error);
/* What is in the group's memory: t->arrays, too, with room for any shard. */
tr_status sharded_attach(struct trainer *t, struct tr_error *error);
tr_status sharded_declare(struct trainer *t, struct tr_error *error);
/* Counters and account of where training begins. *round: that the state is of. */
tr_status sharded_begin(struct trainer *t, uint64_t *round, struct tr_error *error);
/* Layout and model as those of this rank's shard. */
tr_status sharded_take_rank(struct trainer *t, uint32_t rank, struct tr_error *error);

/* ---- sharded_mesh.c ---- */

/* What is made for s->shards: arrays with room for any of its shards (s->held, if it is not there yet), the model or the pipeline. */
tr_status sharded_make_mesh(struct trainer *t, struct tr_error *error);
/* s->shards, too. */
void sharded_unmake_mesh(struct trainer *t);
/* Of the width, that a worker of this mesh plays (slots.h, members). */
size_t sharded_members(const struct trainer *t);
/* Those of these arrays (a bit each: 1 << which), zeroed. On an error nothing was taken. */
tr_status sharded_take_arrays(struct trainer *t, size_t numbers, unsigned which,
    struct optim_arrays *arrays, struct tr_error *error);
/* Arrays that a worker holds, that go with a shard to a new rank whole, and to who writes. */
unsigned sharded_arrays_held(const struct sharded *s);
unsigned sharded_arrays_moved(const struct sharded *s);
unsigned sharded_arrays_whole(const struct sharded *s);
void sharded_give_arrays(struct trainer *t, struct optim_arrays *arrays); /* accepts a zeroed one */

static inline float *sharded_array(const struct optim_arrays *arrays, unsigned which)
{
	return which == 0 ? arrays->params
	    : which == 1  ? arrays->first
	    : which == 2  ? arrays->second
	                  : arrays->outer;
}

/* ---- sharded_remesh.c ---- */

/* The dealing that the common state has is what there is made for, with the shard that has come if the round before changed it. Called when a round has begun: no op uses memory of
 * the one before. */
tr_status sharded_use_mesh(struct trainer *t, struct tr_error *error);
/* Whether this round changes the mesh: s->kind, s->next and, where something is held by nobody, s->lost. */
tr_status sharded_derive_remesh(struct trainer *t, struct tr_error *error);
tr_status sharded_submit_remesh(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* Whether workers of the mesh that so many contributors would have lack room for it, by what the job was planned with. */
bool sharded_lacks_room(const struct trainer *t, uint32_t contributors, struct mesh *mesh,
    uint64_t *bytes, uint64_t *room);
/* Ranks of `now`'s peers in another mesh: by id, as those of the first one. */
void sharded_rank_anew(const struct trainer *t, const struct ranks *now,
    const struct remesh_shape *shape, struct ranks *next);
/* s->coming and s->moves, from what s->next's peers hold to what `next`'s have with another dealing. */
tr_status sharded_plan_change(struct trainer *t, const struct dealing *dealing,
    const struct ranks *next, struct tr_error *error);
/* From what peers hold, by index, to what `next`'s ranks have of s->coming. */
tr_status sharded_plan_moves(const struct sharded *s, const uint32_t *held,
    const struct ranks *next, struct reshard *moves, struct tr_error *error);
/* This round makes the change that was planned, or training goes back. */
tr_status sharded_change(struct trainer *t, const struct ranks *next, struct tr_error *error);
/* It is committed: s->next is what all hold now. */
void sharded_end_remesh(struct trainer *t);
/* Any round is committed: how long there have been too few, or enough for a better mesh. Before s->next is the state's. */
void sharded_count_rounds(struct trainer *t);
void sharded_drop_coming(struct trainer *t);

/* ---- sharded_pipeline.c: of jobs with stages; sharded_has_copy and sharded_submit_table of all ---- */
struct sharded_pipeline;
tr_status sharded_pipeline_create(struct trainer *t, struct tr_error *error);
void sharded_pipeline_destroy(struct trainer *t);
/* t->layout, t->model and t->buckets become those of this stage; a new round begins. */
tr_status sharded_take_stage(struct trainer *t, uint32_t stage, struct tr_error *error);
/* As trainer_gradient and trainer_validate: this worker's stages of it. */
bool sharded_pipeline_gradient(struct trainer *t, size_t count, const struct model_hooks *hooks);
bool sharded_pipeline_validate(struct trainer *t, uint32_t replica, uint32_t replicas,
    const struct model_hooks *hooks);
/* Why it stopped; TR_OK in *status: not for a message. */
const struct tr_error *sharded_pipeline_failed(const struct trainer *t, tr_status *status);
/* A tied table of which another stage has a copy; the sum of all their gradients, of all replicas (TAG_TABLE). */
bool sharded_has_copy(const struct trainer *t, size_t *offset, size_t *numbers);
tr_status sharded_submit_table(struct trainer *t, struct tr_error *error);
/* Whether this worker takes part in that. */
bool sharded_sums_table(const struct trainer *t);
/* Of this worker's replica those that have a copy of its table. Returns which of them has the first stage. */
unsigned sharded_ends(const struct trainer *t, struct sharded_scope *ends);

/* ---- sharded_run.c ---- */
tr_status sharded_run(struct trainer *t, struct tr_error *error);
/* All steps are done, and merged. */
bool sharded_is_last(const struct trainer *t);

/* ---- sharded_exchange.c ---- */
bool sharded_sum(void *arg, float *data, size_t count);
bool sharded_maximum(void *arg, float *data, size_t count);
bool sharded_reduce_scatter(void *arg, float *data, size_t count);
bool sharded_all_gather(void *arg, float *data, size_t count);
bool sharded_sum_begin(void *arg, float *data, size_t count, bool scatter);
bool sharded_sum_end(void *arg);
/* One op, that is waited for; *tag is it. False: x->status is not TR_OK. */
bool sharded_exchange_op(struct sharded_exchange *x, const struct sharded_scope *scope, float *data,
    size_t count, enum tr_collective collective, enum tr_reduce how, uint32_t *tag);
void sharded_exchange_begin(struct sharded_exchange *exchange, const struct sharded_scope *scope);

/* ---- sharded_load.c ---- */

/* This worker's shard, from where training begins; the round is one back if that is a checkpoint that somebody cannot use. */
tr_status sharded_load(struct trainer *t, const struct tr_round *round, struct tr_error *error);

/* ---- sharded_back.c ---- */

/* Where the checkpoint of a step lies, for this job; "": it has begun without one. */
void sharded_checkpoint_path(const struct trainer *t, uint64_t step, char path[CHECKPOINT_PATH_MAX]);
/* Whether s->back is of that one. */
tr_status sharded_check_checkpoint(const struct trainer *t, uint64_t step, const char *path,
    struct tr_error *error);
#define SHARDED_NOBODY INT64_MAX
/* What all who read a shard of it say: s->refuser, s->chosen. own: why this worker cannot use it; NULL: it can. */
tr_status sharded_agree(struct trainer *t, const struct tr_round *round, uint64_t step,
    const struct tr_error *own, struct tr_error *error);
/* Step of a checkpoint of this job that is newer than those that all know to be whole; 0: there is none. */
uint64_t sharded_found_saved(struct trainer *t);
/* Looks at what training would go back to, and asks the others whether they could. */
tr_status sharded_submit_back(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* It is committed: training goes back, or another one is tried. */
void sharded_go_back(struct trainer *t, const struct tr_round *round);

void sharded_pause_for_tests(struct trainer *t, unsigned milliseconds);

/* ---- sharded_move.c ---- */

/* Sends shards to new ranks; waits for what this worker needs to work. */
/* Waits for what comes to this worker, but where that comes behind. */
tr_status sharded_submit_moves(struct trainer *t, struct tr_error *error);
tr_status sharded_wait_arrival(struct trainer *t, struct tr_error *error);
/* Committed: what came is what is held. */
void sharded_end_moves(struct trainer *t);
/* Sends shards to who writes, once they were compared. */
tr_status sharded_submit_gather(struct trainer *t, struct tr_error *error);
/* A round has begun: with ZeRO-1 who wrote does not keep what came for it. */
void sharded_give_staged(struct trainer *t);
/* Who writes shard `shard`, by index: the first that works with the first shard writes all, or (checkpoint.sharded) each its own. And whether this worker writes any. */
uint32_t sharded_writer_of(const struct trainer *t, uint32_t shard);
bool sharded_writes(const struct trainer *t);
/* Whether moments of some replica's workers fit each other: of replicas that train apart they are written then, else there are none. */
bool sharded_moments_fit(const struct sharded *s);
/* Waits for what was gathered: at who writes. */
tr_status sharded_wait_gathered(struct trainer *t, struct tr_error *error);
/* Arrays of each shard that go to who writes whole, or are its own. */
unsigned sharded_arrays_gathered(const struct sharded *s);
/* Room for its own shard, in s->staged. */
tr_status sharded_stage_own(struct trainer *t, struct tr_error *error);

/* ---- sharded_update.c ---- */

/* The step under way, once TAG_LOSS has come. */
struct optim_by sharded_step_by(const struct trainer *t);
/* Does this worker get new parameters from others, and give them some? */
bool sharded_gathers_update(const struct trainer *t);
tr_status sharded_gather_update(struct trainer *t, struct tr_error *error);
/* It is committed. */
void sharded_update(struct trainer *t, const struct optim_by *by);

/* ---- sharded_step.c ---- */
tr_status sharded_submit_step(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
tr_status sharded_submit_validation(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
tr_status sharded_submit_bucket(struct trainer *t, uint32_t bucket,
    const struct sharded_scope *scope, struct tr_error *error);
/* It is committed: counts, updates, reports. */
void sharded_apply_step(struct trainer *t, const struct tr_round *round);
/* Whether this worker says what all of its replica have. */
bool sharded_speaks(const struct trainer *t);
/* Of this worker's shard, without what another one counts; `shared`: with what all of its tensor-parallel group hold, if it is the one. */
double sharded_squares(const struct trainer *t, bool shared);
/* Why model or pipeline stopped early. */
tr_status sharded_stopped(struct trainer *t, struct tr_error *error);

/* ---- sharded_shared.c: gradients of what all members of a tensor-parallel group hold ---- */
tr_status sharded_make_shared(struct trainer *t, struct tr_error *error);
/* Are they summed apart from the others in this round? */
bool sharded_has_shared(const struct trainer *t);
/* Gradients [first, end) are final here: before a sum over dp is made of them in their place. */
void sharded_keep_shared(struct trainer *t, size_t first, size_t end);
/* All were kept. */
tr_status sharded_submit_shared(struct trainer *t, struct tr_error *error);
/* Waits for the sums: their squares. */
tr_status sharded_shared_squares(struct trainer *t, double *sum, struct tr_error *error);
/* Of what the buffer has. */
double sharded_kept_squares(const struct trainer *t);
/* They go to the gradients, whose memory is the caller's again. */
void sharded_end_shared(struct trainer *t);
/* All of them between the gradients and s->shared, where they lie one after another. Returns how many numbers. */
size_t sharded_copy_shared(struct trainer *t, bool back);

/* ---- sharded_alike.c ---- */

/* The round is one to mend if numbers differ. */
tr_status sharded_compare(struct trainer *t, const struct tr_round *round, struct tr_error *error);
/* It is committed. */
void sharded_mend(struct trainer *t, const struct tr_round *round);
/* TR_EDIGEST: what this worker holds is wrong whenever it is looked at, so it is to end. */
tr_status sharded_check_differs(const struct trainer *t, struct tr_error *error);

/* ---- sharded_final.c ---- */
tr_status sharded_submit_final(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);

/* ---- sharded_balance.c: shares that follow measured speeds ---- */

/* This replica began to compute its share. */
void sharded_begin_work(struct trainer *t);
/* It is done. */
void sharded_end_work(struct trainer *t);
/* All say how long that took. */
tr_status sharded_submit_work(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* The step is committed: other shares from the next one on, if they are better. */
void sharded_balance(struct trainer *t, const struct tr_round *round);
/* Sequences of the global batch [*first, *last) that the replica with this number computes. */
void sharded_share(const struct trainer *t, uint32_t replica, uint64_t *first, uint64_t *last);

/* ---- sharded_pace.c: how long steps and changes take ---- */

/* What there is made for another mesh is made: a change that this worker took part in is over. */
void sharded_end_change(struct trainer *t);
/* Into s->told. */
void sharded_say_pace(struct trainer *t);
/* A round is committed: a replica more is tried, or was long enough. Before sharded_learn_pace. */
void sharded_try_replicas(struct trainer *t);
/* A round is committed: what all said of the one before. Before s->next is the state's, after what the round changed of the dealing. */
void sharded_learn_pace(struct trainer *t);
/* Is the round another step of the same peers at the same ranks, with what was dealt before? */
bool sharded_goes_on(const struct trainer *t);
/* Whether the way by s->moves to steps of next_ns pays, where a byte takes so long from host to host (0: nobody knows); s->worth says why. */
bool sharded_pays(struct trainer *t, uint64_t next_ns, uint64_t ns_a_byte);
/* The same of a larger mesh that the job asks for. */
bool sharded_mesh_pays(struct trainer *t, const struct ranks *next);

/* ---- sharded_join.c ---- */

/* s->next, of the round that begins, with its transfers and s->lost. */
void sharded_next_ranks(struct trainer *t, const uint64_t *peers, size_t count);

/* ---- sharded_arrivals.c, of the round under way ---- */

void sharded_derive_arrivals(struct trainer *t);
/* Does contributor `index` get its shard while others train? */
bool sharded_arrives(const struct sharded *s, uint32_t index);
/* Some worker of this replica does. */
bool sharded_waits_for_shards(const struct sharded *s, uint32_t replica);
/* Whether they take longer, by what merges took, than the round's steps get shorter if the replicas that wait for them train too. steps_s: that the others alone take for them. */
bool sharded_hold_up(const struct sharded *s, double steps_s);

/* ---- sharded_newcomers.c: shards that come while the others train on (daemon/plan/newcomers.h) ---- */

/* Are there such in this job, or is who comes given its shard while the others wait? */
bool sharded_knows_newcomers(const struct trainer *t);
/* s->newcomers of the round that begins with s->next; it would be `wanted`, if all held their shards. */
void sharded_plan_newcomers(struct trainer *t, const struct ranks *wanted);
/* Steps that it takes until shards of so many bytes in all are there. */
uint64_t sharded_newcomer_steps(const struct trainer *t, uint64_t bytes);
/* What the round is, is known. */
void sharded_derive_newcomers(struct trainer *t);
tr_status sharded_submit_newcomers(struct trainer *t, struct tr_error *error);
/* What this worker, if it is one, adds to the others' sums. */
tr_status sharded_submit_nothing(struct trainer *t, struct tr_error *error);
/* With ZeRO-1 the others use the memory of their sums again once all have them: those. */
tr_status sharded_wait_nothing(struct trainer *t, struct tr_error *error);
/* Those of this worker, if it is one. */
tr_status sharded_wait_pieces(struct trainer *t, struct tr_error *error);
/* A step is committed. */
void sharded_update_newcomer(struct trainer *t, const struct optim_by *by);
/* Any round is, and who holds what is settled. */
void sharded_end_newcomers(struct trainer *t);
/* Is this worker one in this round? Does that one work from this round on, having been one? */
bool sharded_is_newcomer(const struct trainer *t);
bool sharded_begins_to_work(const struct trainer *t, uint32_t index);
/* Of this worker, which has a rank or is a newcomer. */
uint32_t sharded_stage(const struct trainer *t);
/* Among whom gradients from `first` on are summed, to the end of their bucket. */
void sharded_sum_scope(const struct trainer *t, size_t first, struct sharded_scope *scope);
void sharded_add_newcomer(const struct sharded *s, const struct newcomer *newcomer,
    struct sharded_scope *scope);
/* What leaves a sum as it is. */
void sharded_add_nothing(float *sums, size_t count);

/* ---- sharded_restage.c: layers of stages that follow measured speeds ---- */

/* All say how long they computed. */
tr_status sharded_submit_stages(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* The step is committed: other layers with the next round, if they are better. */
void sharded_restage(struct trainer *t);
/* Whether this round makes them. */
tr_status sharded_derive_restage(struct trainer *t, struct tr_error *error);

/* ---- sharded_replan.c: dp, pp and tp where steps drift from their plan ---- */

/* From the job's plan on. */
void sharded_begin_replan(struct trainer *t);
/* All say what they measure, or what was found. */
tr_status sharded_submit_replan(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* A round is committed: another dp, pp or tp with the next one, if that was found to be better. Before sharded_learn_pace. */
void sharded_replan(struct trainer *t, const struct tr_round *round);
/* Whether this round makes them. */
tr_status sharded_derive_replan(struct trainer *t, struct tr_error *error);
/* What a step takes by the plan in force; 0: it was not planned. */
double sharded_planned_step_s(const struct trainer *t);
/* That plan, if it is not the one that the job came with. */
bool sharded_plan_now(const struct trainer *t, struct tr_plan_now *plan);

/* ---- sharded_tell.c ---- */

/* What came of a search for another plan. */
void sharded_tell_replan(struct trainer *t);

/* Why shares are other than they were: nanoseconds that each replica takes for a sequence; s->state->dealing has the new ones. */
void sharded_tell_shares(struct trainer *t, const struct dealing *before, const uint64_t *each_ns);

/* What the round that was committed changed, in words: before s->state is the next. */
void sharded_tell(struct trainer *t, const struct tr_round *round);
/* "tp 1 of replica 0", "copy 1 of replica 0". */
const char *sharded_place(const struct ranks *ranks, uint32_t rank, char *text, size_t bytes);

#endif
