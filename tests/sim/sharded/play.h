/* Sharded jobs in the simulator: the workers are the trainer's own code (daemon/worker/sharded*.c, pipeline*.c) over the simulated group, each a
 * coroutine that gives way wherever it waits. Around it:
 *
 *	group.c      coll.h's calls, on a simulated core; each is an instruction, at which faults can strike
 *	model.c      a model of whole numbers, so that sums have one result in any order; model_rows.c: its rows, with sequence parallelism
 *	reference.c  what one worker learns; its optimizer
 *	apart.c      the same of replicas that train apart; stream.c: and train on while they merge
 *	trainer.c    the rest of the trainer; a disk with checkpoints
 *	replanner.c  other plans in the middle of a job
 *	play.c       a run: faults, and when it is over
 *	split.c      faults that divide the workers into two groups
 *
 * At each commit is checked (beside what group and memberd must keep, check.c):
 *
 *	S1  all who have committed a round know the same: steps, samples, table of ranks
 *	S2  gradients, their norm, parameters and moments of each shard, loss and validation are one worker's, of this step
 *	S3  steps are done in their order, each once, and no sample twice; back only to a checkpoint that is whole, and where a shard has gone with those who held it
 *	S4  nobody waits for ever, no worker ends
 *	S5  what is written as a checkpoint is one worker's state
 *	S6  who is cut off from memberd commits no round after the one that was under way
 */
#ifndef TR_TESTS_SIM_SHARDED_PLAY_H
#define TR_TESTS_SIM_SHARDED_PLAY_H

#include <ucontext.h>

#include "daemon/worker/trainer_inside.h"
#include "tests/sim/sim.h"

#define PLAY_STEPS_MAX        256
#define PLAY_FAULTS_MAX       6
#define PLAY_STATES_MAX       4
#define PLAY_ROUNDS_MAX       2048
#define PLAY_BATCH            4 /* sequences; of a wide mesh twice as many */
#define PLAY_BATCH_MOST       8
#define PLAY_ROWS_MAX         6 /* of a sequence */
#define PLAY_VALIDATION       5
#define PLAY_PRIME            97 /* of all numbers: sums of few stay whole in f32 */
#define PLAY_CHECKPOINTS      2  /* steps between them */
#define PLAY_VALIDATES        5
#define PLAY_INNER_SECONDS    0.015 /* or as many steps as they get done in it */
#define PLAY_INNER_STEPS      3   /* of replicas that train apart; and between their checkpoints */
#define PLAY_VALIDATION_FIRST 700 /* sample */

enum play_fault_kind {
	PLAY_KILL,
	PLAY_POWER_LOSS,
	PLAY_PAUSE, /* longer than a heartbeat's timeout */
	PLAY_SHORT_PAUSE,
	PLAY_CUT, /* from everybody, as long */
	PLAY_CUT_FROM_PEERS,
	PLAY_MEMBERD_RESTART,
	PLAY_FAULT_DRAWN, /* one of those above, of most seeds */
	/* Two groups that hear nothing of each other, the fault's `group` and the others; */
	PLAY_SPLIT = PLAY_FAULT_DRAWN, /* memberd hears the others, */
	PLAY_SPLIT_WITH_MEMBERD,       /* the group, */
	PLAY_SPLIT_OF_PEERS,           /* both */
	PLAY_FAULT_KINDS
};
extern const char *const play_fault_names[PLAY_FAULT_KINDS];

/* Mistakes on purpose. */
enum play_plant {
	PLAY_PLANT_NONE,
	PLAY_PLANT_TWICE,  /* a worker computes a sample twice and leaves one out: S2
                      */
	PLAY_PLANT_EARLY,  /* a message's memory is written again once it was sent: S2
                      */
	PLAY_PLANT_SHARD,  /* a number of a shard that comes is another one: S2 */
	PLAY_PLANT_APPLY,  /* a worker keeps the gradients of a round that was
                        abandoned: S2 */
	PLAY_PLANT_TABLE,  /* a joiner's table has two peers exchanged: they disagree,
                        and fail */
	PLAY_PLANT_SILENT, /* a worker leaves a sum over replicas out after a loss:
                        fails, or waits */
	PLAY_PLANT_FORGET, /* who goes back to a checkpoint keeps what it holds: S2 */
	PLAY_PLANT_MOMENT, /* a moment that comes to who owns it is another one: S2 */
	PLAY_PLANT_NEW,    /* an owner makes another new parameter than the others do: S2 */
	PLAY_PLANT_DAMAGE, /* a worker takes damaged numbers of a checkpoint for whole ones: S2 */
	PLAY_PLANT_PIECE,  /* a number that comes to a newcomer is another one: S2 */
	PLAY_PLANT_ADDS,   /* a newcomer adds something to the others' sums: S2 */
	PLAY_PLANT_MET,    /* who was a newcomer holds another number when it begins to work: S2 */
	PLAY_PLANT_KEPT, /* the memory of what has come is not taken back before it is given on: S4 */
	PLAY_PLANT_COPY, /* a copy of a replica has another sum of its gradients than the others: S2 */
	PLAY_PLANT_PART, /* a number of the part that another copy has merged is another one: S2 */
	PLAY_PLANT_CARRIED, /* a moment that comes to another mesh is another one: S2 */
	PLAY_PLANT_GIVEN,   /* a moment that a copy gets from another one is another one: S2 */
	PLAY_PLANT_COUNT
};
extern const char *const play_plant_names[PLAY_PLANT_COUNT];

/* How replicas that train apart merge. */
enum play_stream {
	PLAY_STREAM_NONE,
	PLAY_STREAM_FRAGMENTS, /* two, with an overlap of a step, and coded */
	PLAY_STREAM_CARRY,     /* three, with an overlap as long as it can be */
	PLAY_STREAM_EAGER,
	PLAY_STREAM_KINDS
};

/* Strikes when the `victim`-th node is at its `instruction`-th call, counted
 * while the step after `step` is computed, or while the mesh changes; by then
 * it may be gone. The last worker that is left is spared. */
struct play_fault {
	enum play_fault_kind kind;
	unsigned victim;
	uint64_t step, instruction;
	bool in_remesh; /* of any step */
	bool in_joins;  /* of any step in which shards come to newcomers, or they begin to work */
	uint64_t returns_us; /* so long after it another worker is started; 0: none is */
	uint64_t seen;       /* instructions */
	uint32_t group;      /* of a split: a bit each node; the victim is in it */
	uint64_t lasts_us;   /* the same: until it is healed */
	bool done;
};

struct play_case {
	struct mesh mesh;
	struct dealing dealing; /* over it: shares and layers */
	bool balances;          /* nodes have unequal speeds, and shares and layers follow */
	uint64_t
	    late_ms; /* for each sequence, of who is no founder, where founders take 20; 0: no time */
	uint64_t trial_steps; /* that a replica more is looked at for; 0: as ever */
	bool replans; /* steps drift from their plan, so now and then there is another one */
	uint64_t draws_before; /* each of which is drawn after so many other draws of the seed */
	bool declines;   /* whatever moves state is said to take for ever, so it is not worth it */
	uint32_t owners; /* of each piece of moments (ZeRO-1); 0: off */
	uint32_t chunks; /* of each stage, interleaved, which then have more layers; 0, 1: one */
	bool gpipe;      /* else 1F1B */
	enum model_preset preset;
	bool untied;
	bool shared_heads;      /* Llama: fewer keys and values than queries */
	bool sequence_parallel; /* each of a tensor-parallel group has its own rows */
	bool recompute;         /* layers, in the backward pass */
	uint64_t batch;         /* at most PLAY_BATCH_MOST; 0: as the mesh asks for */
	bool apart;             /* replicas train apart: apart.c */
	bool smaller; /* the same: with too few workers the mesh becomes smaller, where others wait for them */
	uint32_t copies;         /* of the mesh, that make up one of them; 0: one */
	bool by_speed;           /* and not all for as many steps */
	bool timed;              /* the same, by time */
	enum play_stream stream; /* and train on while a fragment is merged: stream.c */
	bool rates;              /* and each at a learning rate of its own */
	bool strict;             /* of a mesh without stages or without tp */
	unsigned spares;
	uint64_t newcomer_parts; /* of a shard, that come one after another at most; 0: as ever */
	struct play_fault faults[PLAY_FAULTS_MAX];
	unsigned fault_count;
	bool in_shards;     /* checkpoints are: shards.c */
	bool own_disks;     /* each node has one, and sees no other's */
	uint32_t bad_disks; /* of these, a bit a node: no copy can be written there, or used */
	bool damages;       /* checkpoints, but never two written one after the other */
	uint32_t
	    damaged_manifests; /* nodes, a bit each, whose copies' manifests are, from the second checkpoint on */
	unsigned starves; /* workers that have no memory for a shard when they read one, and end */
	uint64_t slow_save,
	    slow_us; /* the first checkpoint of this step takes so long, others next to nothing; 0: as ever */
	unsigned
	    differs; /* one more than the worker that always says another digest of its shard; 0: none does */
	uint64_t steps; /* until which it runs */
	bool settles;   /* and until whoever comes has been there for a while: the mesh
                   may be as it was */
	enum play_plant plant;
};

/* What one worker has after `steps` steps, and makes of the next one. Arrays of
 * the whole layout. */
struct play_state {
	float *params, *first, *second, *grads;
	double loss, validation, squares;
};

struct play_reference {
	struct layout layout;
	struct play_state states[PLAY_STEPS_MAX];
	uint64_t known; /* so many */
	uint64_t batch; /* at most PLAY_BATCH_MOST */
	size_t rows;    /* of a sequence, that are computed */
};

struct play_apart;

/* What is wrong with a checkpoint: nodes whose copy is not whole, a bit each; those of them at which it was set aside. */
struct play_damage {
	uint32_t nodes, aside;
	bool manifest; /* seen as soon as it is looked at; else when it is read */
};

struct play {
	struct sim *sim;
	struct play_case what;
	struct play_reference reference;
	Traind__V1__Mesh schedule;
	struct play_shards *shards; /* of checkpoints: shards.c */
	unsigned full, ended; /* times that a disk had no room for a shard; runs to the job's end */
	struct play_apart *apart; /* NULL: gradients are summed at every step */
	struct tr_group *groups[SIM_NODES_MAX];
	ucontext_t home;
	struct tr_group *inside;               /* whose coroutine runs; NULL: none */
	struct manifest *disk[PLAY_STEPS_MAX]; /* by step: a checkpoint that is whole;
                                            NULL: none */
	uint32_t has[PLAY_STEPS_MAX];          /* of these: on whose disks, a bit each */
	uint64_t copied,
	    renewed; /* times that one came to who had none; of them: whose was damaged */
	uint64_t published[PLAY_STEPS_MAX];        /* of these, counted: the newest has most */
	uint8_t *truth[PLAY_ROUNDS_MAX];           /* state after each round */
	uint64_t steps[PLAY_ROUNDS_MAX];           /* the same: steps that are done */
	struct play_damage damage[PLAY_STEPS_MAX]; /* of these */
	uint64_t written, publications, damaged,
	    refused;                 /* checkpoints; of them; times that one was turned down */
	unsigned starved, passed_by; /* workers; checkpoints that one before was taken instead of */
	unsigned differed;           /* workers that ended since what they hold always differs */
	unsigned sat_out;            /* merges without a replica to which shards came meanwhile */
	uint64_t newest_step, steps_done, backs, struck_us, settled_us,
	    moved_us;     /* moved: a new step was done */
	struct mesh mesh; /* in force */
	uint64_t copies;  /* the same */
	uint64_t remeshes;
	uint64_t carried; /* changes of mesh that moments of replicas that train apart came through */
	uint64_t redealt,
	    restaged; /* times that shares or layers, and layers, became others in the same mesh */
	uint64_t drift_changes;     /* of the newest round */
	uint64_t wishes, replanned; /* other plans that were found; times that one was made */
	uint64_t declined;          /* rounds in which peers were kept out, or a better mesh was */
	uint64_t taken_back;        /* times that a replica was, since steps were longer with it */
	uint64_t joins,
	    met; /* rounds in which shards came to newcomers; in which some of them began to work */
	struct dealing dealing;
	struct ranks ranks;                   /* of the newest round: who holds which shard */
	uint64_t instructions[SIM_NODES_MAX]; /* of the step of the first fault */
	uint64_t remesh_instructions[SIM_NODES_MAX];
	uint64_t join_instructions[SIM_NODES_MAX];
	unsigned struck;
	struct {
		uint32_t away;             /* nodes that do not hear memberd, a bit each */
		uint64_t until_us, newest; /* that long; the newest round by then */
		unsigned count;
	} split;
	unsigned following; /* workers that were started for others, or will be */
	uint64_t told; /* times that a worker said that it gets on, while it worked on a shard */
	unsigned
	    rates_moved; /* times that a merge moved the base of the learning rates, at any worker */
	uint64_t works_went_on; /* rounds that a replica began with the work that it had */
	bool planted;
};

/* Times that what is a replica's own was of no use any more: training went back, or the mesh became another one. */
static inline uint64_t play_breaks(const struct play *play)
{
	return play->backs + play->remeshes;
}

struct play_memory {
	struct play_memory *next;
	void *data;
	size_t bytes;
};

struct play_op {
	uint32_t tag;
	const void *data[2]; /* input, output */
	size_t bytes;
	size_t used[2];  /* of them, by this worker */
	bool sent, some; /* not of all members */
};

/* A worker. */
struct tr_group {
	struct play *play;
	struct sim *sim;
	unsigned number;
	ucontext_t context;
	char *stack;
	bool started, finished, dead;
	bool starved; /* had no memory for a shard, and is to end */

	bool began, done;
	uint32_t waits_for;
	enum { PLAY_OPEN, PLAY_COMMITTED, PLAY_AGAIN } decided;
	struct tr_round round;
	struct play_op *ops; /* of the round under way that were not taken back */
	size_t op_count, op_room;
	uint32_t *returned; /* tags of those that were */
	size_t returned_count, returned_room;
	struct play_memory *memory;
	uint64_t links_seen; /* times */
	struct {
		void *data;
		size_t bytes;
	} states[PLAY_STATES_MAX];
	unsigned state_count;

	struct trainer *trainer;
	uint64_t saves, saves_at_us; /* the step of a checkpoint under way, and when
                                  it is written; 0: none */
	struct manifest *manifest;   /* the checkpoint's */
	struct saver_parts parts;    /* the same, or */
	struct saver_work work;      /* .write NULL: it is parts */
	bool copied;                 /* what of them changes */
	struct {
		struct mesh mesh;
		uint64_t copies;       /* of it, of a replica */
		uint32_t shard;        /* of it */
		uint64_t step, merges; /* at the end of the last one; since it got the shard */
		uint64_t of[3];        /* of streams: merges of each fragment since then */
		uint64_t breaks;       /* play_breaks by then */
	} lost;                        /* what coding lost of its movements, as it should be */
};

/* ---- play.c ---- */

/* As sim_run. */
unsigned play_run(struct sim *sim, struct play *play, uint64_t seed, bool trace,
    const struct play_case *what);
/* A fault may strike now: the worker is then dead, or stands still. */
void play_instruction(struct tr_group *g);
/* This one begins a round, and has applied the one before: S1, S3. */
void play_applied(struct tr_group *g);
bool play_is_finished(struct sim *sim);
void play_planted_table(struct tr_group *g); /* it got the others' state */

/* ---- split.c ---- */
/* The group and the others hear nothing of each other. Returns how many workers memberd may put out for it. */
unsigned split_strike(struct tr_group *g, const struct play_fault *fault);
void split_decided(struct tr_group *g, uint64_t round); /* committed: S6 */

/* ---- group.c ---- */
extern const struct sim_callers play_callers;
void group_finish(struct tr_group *g);
void group_takes(struct tr_group *g, uint64_t us); /* time goes by */
struct tr_group *group_inside(void);               /* whose coroutine runs */
bool group_is_member(const struct tr_group *g);    /* of the newest view */

/* ---- ops.c ---- */
/* S4: the library takes the op as well, not its core alone. It has the memory until it is returned. `own`: elements of this worker's block. */
void ops_note(struct tr_group *g, const struct tr_op *op, size_t own);
/* The memory is the caller's again: nobody may still send from it. */
void ops_return(struct tr_group *g, uint32_t tag);
void ops_return_all(struct tr_group *g);
void ops_finish(struct tr_group *g);

/* ---- trainer.c ---- */
struct trainer *play_trainer_create(struct tr_group *g);
void play_trainer_destroy(struct trainer *t);
uint64_t play_step(const struct tr_group *g); /* so many are done */

/* ---- disk.c ---- */
float *play_read_parts(const struct tr_group *g, unsigned which); /* an array of the whole layout */
/* It is whole now. The manifest is copied. */
void play_publish(struct tr_group *g, uint64_t step, const struct manifest *manifest);

/* ---- shards.c ---- */
/* What this worker's thread has copied. True: all writers' have. */
bool play_shards_copied(struct tr_group *g);
float *play_shards_read(const struct tr_group *g, unsigned which); /* as play_read_parts, of these */
void play_shards_finish(struct play *play);
/* This worker has ended, its job's last step being done. */
void play_ended(const struct tr_group *g);
/* No member has a checkpoint, of the step that was tried last or an earlier one, on its own disk. */
bool play_disks_are_lost(const struct tr_group *g);
void play_disk_finish(struct play *play);

/* ---- model.c ---- */
void model_play(struct play *play); /* whose workers the models are, from now
                                       on; NULL: nobody's */
/* Of all samples of the step, on the whole layout. */
void model_of_step(struct play_reference *reference, uint64_t step);
/* Gradient, loss and squares of these samples at the state's parameters. */
void model_of_samples(struct play_reference *reference, struct play_state *state,
    const uint64_t *samples, size_t count);
/* Its parameters were changed where they are. */
void model_changed(struct model *model);
float model_first_number(size_t place);

/* ---- reference.c ---- */
void play_samples(uint64_t sample, size_t rows, int32_t *inputs, int32_t *targets);
void model_update(float *params, float *first, float *second, const float *grads, size_t count,
    uint64_t step);
double model_squares(const float *grads, size_t count);
void reference_create(struct play *play);
void reference_finish(struct play_reference *reference);
const struct play_state *reference_at(struct play *play, uint64_t step);
/* S2: of a shard's arrays, numbers [first, end) beside those after `step` steps:
 * parameters; moments; gradients, which are those of the step after it, and of
 * which only remainders count. */
void reference_check_parameters(struct tr_group *g, uint64_t step,
    const struct optim_arrays *arrays, size_t first, size_t end);
void reference_check_moments(struct tr_group *g, uint64_t step, const struct optim_arrays *arrays,
    size_t first, size_t end);
void reference_check_gradients(struct tr_group *g, uint64_t step, const struct optim_arrays *arrays,
    size_t first, size_t end);

/* A worker's shard beside the whole arrays of `state`, gradients included, numbers [first, end) of its moments; and outer parameters and momentum. */
void reference_check_state(struct tr_group *g, uint64_t step, const struct optim_arrays *arrays,
    const struct play_state *state, size_t first, size_t end);
void reference_check_array(struct tr_group *g, const char *what, uint64_t step, const float *ours,
    const float *whole);
void reference_check_outer(struct tr_group *g, uint64_t step, const float *params,
    const float *momentum, const float *whole_params, const float *whole_momentum);

/* ---- apart.c ---- */
void apart_create(struct play *play);
void apart_finish(struct play *play);
/* The mesh became another one: with the newest moments that are whole. */
void apart_check_carried(const struct tr_group *g);
/* A replica begins with fresh moments: it has no others. */
void apart_check_fresh(const struct tr_group *g);
/* A step of a replica. */
void apart_update(struct tr_group *g, const struct optim_arrays *arrays, const struct optim_by *by,
    size_t first, size_t end);
void apart_save(struct tr_group *g, uint64_t step); /* what g->parts has */
/* In place of what a codec would lose of an op's input: one more than before. The sums stay whole numbers. */
void apart_lose(const struct tr_op *op);
/* Whether it is of the shard that this worker has now. */
bool apart_lost_is(const struct tr_group *g);
void apart_read(struct play *play, uint64_t step, const struct layout *whole,
    const struct layout *local, const struct shard *shard, const struct optim_arrays *arrays);

/* ---- stream.c ---- */

/* This worker is about to train, in its work. */
void stream_trains(struct tr_group *g);
/* It has applied a round. */
void stream_applied(struct tr_group *g);
/* All merges are done, of those at the last step too. */
bool stream_is_done(const struct trainer *t);

#endif
