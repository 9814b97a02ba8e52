/* Inside the trainer. Not for others. */
#ifndef TR_DAEMON_WORKER_TRAINER_INSIDE_H
#define TR_DAEMON_WORKER_TRAINER_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "collectives/sync/lease.h"
#include "common/limits.h"
#include "common/progress.h"
#include "daemon/worker/alike.h"
#include "daemon/worker/buckets.h"
#include "daemon/worker/metrics.h"
#include "daemon/worker/model.h"
#include "daemon/worker/optim.h"
#include "daemon/worker/outer.h"
#include "daemon/worker/samples.h"
#include "daemon/worker/saver.h"
#include "daemon/worker/sharded.h"
#include "daemon/worker/sharded_apart.h"
#include "daemon/worker/sharded_copies.h"
#include "daemon/worker/sharded_owners.h"
#include "daemon/worker/speed.h"
#include "daemon/worker/text.h"
#include "daemon/worker/trainer.h"

/* Tags of a round's ops: buckets are 0, 1, ...; these are apart from them. */
enum trainer_tag {
	TAG_LOSS = 1000,
	TAG_VALIDATION,
	TAG_ROSTER,
	TAG_FINAL,
	TAG_TOLD,  /* what each says in every round */
	TAG_PARTS, /* losses and squares, told part by part (train.strict) */
	TAG_PARTS_VALIDATION,
	TAG_WORK,         /* how long each replica computed */
	TAG_STAGES,       /* the same of each stage, without waiting for others */
	TAG_CHOICE,       /* which checkpoint all can use */
	TAG_BACK,         /* what it says of the steps until then */
	TAG_REPLAN,       /* what all measure, or what was planned anew */
	TAG_SAVING,       /* how far each writer of a checkpoint in shards is */
	TAG_HERE,         /* who has a checkpoint on its disk */
	TAG_MERGE = 1100, /* three, of replicas that train apart: how far each got */
	TAG_COPIES = 1200, /* the same where a replica is several copies: each one's part, of two ranges, and two barriers */
	TAG_PARITY = 2000,   /* and those after it, as of the next ones */
	TAG_SHARED = 2998,   /* gradients of what all of a tensor-parallel group hold */
	TAG_TABLE = 2999,    /* a tied table's gradient */
	TAG_SHARD = 3000,    /* four for each shard on its way to a new rank */
	TAG_GATHER = 4096,   /* four for each on its way to who writes the checkpoint */
	TAG_NEWCOMER = 5120, /* twelve for each newcomer's piece */
	TAG_TENSOR = 8192,   /* of sums inside the model */
	TAG_REMESH = 1
	    << 19, /* in a round that changes the mesh, of which there are no others: its messages and barriers */
	TAG_GIVEN = 1
	    << 19, /* of replicas that train apart, in rounds with steps: moments that a copy gets from others, two for each piece, and a barrier */
	TAG_FETCH = 1 << 22, /* two for each piece of a checkpoint that is copied to who has none */
	TAG_MOMENTS = 1
	    << 23, /* with ZeRO-1: two for each piece on its way to who owns it, or to who writes */
	TAG_INNER = 1
	    << 23, /* of jobs whose replicas train apart, in rounds with steps: some for each step of the round (job_mesh_inner_tags) */
	TAG_UPDATED = (1 << 23) + (1 << 22), /* new parameters, by sender and receiver */
	TAG_FORWARDED = (1 << 23) +
	    (3 << 21),         /* four for each newcomer: gradients of a strict job */
	TAG_MESSAGE = 1 << 24, /* and those after it: between stages */
};

#define TRAINER_NOT_FINITE "its gradient is not finite (lower train.lr?)"

/* State besides parameters and moments: what a joiner receives. */
struct trainer_counters {
	uint64_t start;   /* step at which this job began: 0, or the checkpoint's */
	uint64_t step;    /* committed */
	uint64_t samples; /* counted */
	uint64_t tokens;  /* whose gradients were applied */
	uint64_t skipped; /* steps whose gradient was not finite */
	uint64_t reserved[3];
};

/* Small things that are reduced, as f64. In the group's memory. */
struct trainer_sums {
	double loss, loss_tokens;
	double validation, validation_tokens;
	double final_written, final_failed;
	double roster[2 * TR_GROUP_PEERS_MAX]; /* by index: peer id, tokens (policy drop) */
};

struct trainer {
	tr_group *group;
	const Traind__V1__JobSpec *job;
	const Traind__V1__TrainSpec *spec; /* of it */
	struct manifest_job owner;         /* that; id 0: nobody said so */
	unsigned restarts;                 /* of it, until it was begun this time */
	uint64_t steps;
	uint64_t batch; /* sequences of a global batch */
	size_t micro;   /* sequences computed at once */
	bool drop;      /* policy: rounds may lack some contributor's data */
	unsigned threads;
	unsigned peers_most;               /* workers of the job; 0: not known */
	struct dealing dealing;            /* as the job asks for it, over its mesh */
	const Traind__V1__Mesh *mesh_spec; /* NULL: none */
	bool recompute;                    /* layers, in the backward pass */
	unsigned remesh_pause_ms;          /* trainer_pause_remesh */
	unsigned join_pause_ms;            /* trainer_pause_join */
	bool balances;                     /* shares, by measured speeds */
	uint64_t node;                     /* id of the one that this worker is on; 0: not known */
	uint64_t drift_steps;              /* of a look at whether steps are as planned */
	bool mesh_waits;                   /* with too few workers; else it is made smaller */
	bool sequence_parallel;
	bool strict;          /* the same bits on any mesh */
	uint32_t zero_owners; /* mesh.zero_owners */
	uint32_t copies;      /* mesh.copies, 1 at least */

	struct text text;
	struct bpe *bpe; /* NULL: tokens are bytes, or nobody knows which text they are */
	struct samples samples;
	struct layout layout;
	struct buckets buckets;
	struct pool *pool;
	struct model *model;
	const struct ops *ops;
	struct optim_settings settings;
	struct optim_arrays arrays;        /* in the group's memory */
	struct trainer_counters *counters; /* in the group's memory */
	struct trainer_sums *sums;         /* in the group's memory */
	struct lease_account *account;     /* of samples: in the group's memory, and its state */
	uint64_t *numbers;                 /* [batch + 1]: samples of the step under way */
	int32_t *inputs, *targets;         /* [micro, context] */
	char spec_digest[TR_DIGEST_HEX_MAX], order_digest[TR_DIGEST_HEX_MAX]; /* struct manifest */
	struct outer outer;      /* sync modes but ddp */
	struct alike alike;      /* ddp */
	struct sharded *sharded; /* NULL: each worker holds the whole model */

	struct checkpoint_folder folder;
	struct saver *saver;
	bool final_written, final_failed; /* by this worker */
	struct metrics metrics;
	bool reported; /* the folder was looked at for another job's checkpoints */
	bool told_nothing_left;
	struct tr_error
	    nothing_read; /* why no checkpoint could be read: another worker may have one; status TR_OK: it needed none, or has one */
	bool metrics_failed;           /* said once */
	off_t samples_noted;           /* where its newest line begins */
	int samples_log;               /* where numbers of consumed samples go; -1: nowhere */
	double account_told_s;         /* monotonic; 0: not yet */
	bool account_failed;           /* said once */
	double last_round_s;           /* monotonic time of the last commit; 0: none yet */
	struct speed speed;            /* of the newest rounds */
	double tokens_per_s;           /* that */
	double step_s, planned_step_s; /* the newest; 0: none, or not planned */
};

/* trainer.c: train.dtype and train.dropout, for t->model. */
tr_status trainer_choose_arithmetic(struct trainer *t, struct tr_error *error);
/* resume.c: the first round that it begins; of shards, in which nobody has one on its disk. It read no checkpoint: an error, unless others did or have come further meanwhile. */
tr_status trainer_check_start(const struct trainer *t, uint64_t round, bool receives,
    struct tr_error *error);
/* Nobody knows of files that are older than these names, and of imports. */
static inline bool trainer_is_another_job_s(const struct trainer *t, const struct manifest *manifest)
{
	const struct manifest_job *job = &manifest->job, *own = &t->owner;
	return job->id != 0 && own->id != 0 &&
	    (job->id != own->id || job->submitted_unix_ms != own->submitted_unix_ms);
}

/* trainer.c: counters and account as a checkpoint has them. */
void trainer_resume_counters(struct trainer *t, const struct manifest *manifest);

/* resume.c: reads the checkpoint at `resume`, or the newest before it that can be read, with `reads`, which sets t->folder.never_delete; tells which were left out, and why. */
typedef tr_status trainer_reads(struct trainer *t, const char *path, struct manifest *manifest,
    struct tr_error *error);
tr_status trainer_resume(struct trainer *t, const char *resume, trainer_reads *reads,
    struct manifest *manifest, struct tr_error *error);

/* gradient.c: computes this worker's part of the round and hands each op over as soon as it can be. TR_ERESTART: stopped early
 * because the round was abandoned. */
tr_status trainer_submit_step(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* gradient.c: adds the gradient of the samples numbers[0 .. count) to arrays.grads, their loss to sums->loss; sums->loss_tokens says of
 * how many tokens. hooks->gradients_final is called while the last of them are computed. False: hooks->progress said stop. */
bool trainer_gradient(struct trainer *t, size_t count, const struct model_hooks *hooks);
/* gradient.c: part `index` of the validation into sums->validation*; nothing if index is no contributor's. */
bool trainer_validate(struct trainer *t, unsigned index, unsigned contributors,
    const struct model_hooks *hooks);
/* gradient.c: mean loss a token of `count` windows of the training text, drawn by the job's seed and `draw`. NaN: hooks->progress said stop. */
double trainer_loss_of_draw(struct trainer *t, uint64_t draw, size_t count,
    const struct model_hooks *hooks);
/* gradient.c: whether there is a validation before this step. */
bool trainer_validates(const struct trainer *t, uint64_t step);
/* gradient.c: this worker's part of the validation. */
tr_status trainer_submit_validation(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);

/* final.c: the round after the last step, in which contributor 0 writes checkpoint and sample. */
tr_status trainer_submit_final(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);

/* What the last checkpoint is of. */
struct trainer_final {
	struct model *model;         /* for the sample; NULL: there is none */
	const struct layout *layout; /* of the whole */
	const struct optim_arrays *arrays;
	const struct checkpoint_source *source; /* instead of arrays; NULL: not */
};
/* final.c: as trainer_finish_checkpoint, once a save under way has ended. */
uint64_t trainer_end_save(struct trainer *t);
/* final.c: whether the job wants a sample. */
bool trainer_wants_sample(const struct trainer *t);
/* final.c: the sample, and the last checkpoint; once. t->final_written or final_failed. */
void trainer_write_final(struct trainer *t, const struct trainer_final *what);

/* arrived.c: of a round that lacks some contributor's data, scales each segment of the summed gradient as if all tokens of the batch had
 * arrived in it. text says what is missing. */
tr_status trainer_scale_arrived(struct trainer *t, const struct tr_round *round, char *text,
    size_t text_bytes, struct tr_error *error);

/* account.c: the account of samples, before tr_sync or the group knows it: that of the checkpoint, or as if all steps so far had used theirs. */
void trainer_account_resume(struct trainer *t, const struct manifest *manifest);
/* account.c: whether a number is another sample there than in this job. */
bool trainer_account_differs(const struct trainer *t, const struct manifest *manifest);
/* account.c, ddp: the batch of a committed round is counted, but for those of it whose data did not arrive; if it was not applied since the workers
 * were not alike, it is dropped. */
tr_status trainer_account_batch(struct trainer *t, const struct tr_round *round, bool alike,
    struct tr_error *error);
/* account.c: tells memberd, if it was not told just now (`last`: all the same). One worker says it for all. */
void trainer_account_tell(struct trainer *t, const struct tr_round *round, bool last);
/* account.c: the samples numbers[0 .. count) were consumed, for those who check (TRAIND_SAMPLES_LOG). */
void trainer_account_note(struct trainer *t, uint64_t round, size_t count);
/* They were not used after all. */
void trainer_account_unnote(const struct trainer *t);

/* report.c */
void trainer_report_event(struct trainer *t, const char *text);
void trainer_report_checkpoint(struct trainer *t, const char *path);
/* Once, by who writes: a folder that has `step`, which is to come, or later ones is another job's, whose checkpoints are going to be replaced. */
void trainer_look_for_another_job(struct trainer *t, uint64_t step, bool writes);
/* Its beginning, if it is long; the whole is in the checkpoint's sample.txt. */
void trainer_report_sample(struct trainer *t, const char *sample);
/* Of each committed step, at every worker; contributor 0's goes to the people who watch, and to metrics.jsonl. A loss may be no finite number. */
void trainer_report_step(struct trainer *t, const struct tr_round *round, double loss,
    double val_loss, double grad_norm);
/* Of a last round: the validation loss in the sums goes to the last step. */
void trainer_report_end(struct trainer *t, const struct tr_round *round);
/* NaN if there is none in the sums. */
double trainer_validation_loss(const struct trainer *t);
/* Fresh manifest of the state now. */
struct manifest trainer_manifest(const struct trainer *t);

/* rounds.c */
double trainer_monotonic_s(void);
/* rounds.c: tells the group that this worker gets on, while the others wait. */
struct progress trainer_progress(const struct trainer *t);
/* rounds.c: sums->loss_tokens were trained on since the last call. */
void trainer_measure_speed(struct trainer *t);
/* rounds.c: what is to be known, and to be in place, before the job's first round: who writes checkpoints makes their folder, so that a job whose checkpoints cannot be written does not begin. */
tr_status trainer_first_round(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* rounds.c: begins to write a checkpoint of the state now, with these arrays; an event if it cannot. */
void trainer_save(struct trainer *t, const struct optim_arrays *arrays);
/* rounds.c: waits until what is saved may change. */
void trainer_settle_save(struct trainer *t);
/* rounds.c: tells of a checkpoint that has been written meanwhile, or why it was not; a sharded job's parts are its own again. Its step; 0: there is none. */
uint64_t trainer_finish_checkpoint(struct trainer *t);
/* rounds.c: that step `step` changed nothing. */
void trainer_skip_step(struct trainer *t, const struct tr_round *round, uint64_t step,
    const char *why);

static inline bool trainer_contributes(const struct tr_round *round)
{
	return round->index < round->contributors;
}

#endif
