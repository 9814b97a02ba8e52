/* A plan: how a model is spread over the workers of a cluster, and what that is predicted to take. Plain data; plan_predict.h says what
 * one takes, plan_search.h finds the best. Pure.
 *
 * Ranks are those of the mesh (mesh.h). Each replica (of dp) takes its own number of microbatches, so that a slow one gets fewer; the
 * layers of a stage are the same in all replicas, since their gradients are summed.
 */
#ifndef TR_DAEMON_PLAN_PLAN_H
#define TR_DAEMON_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/plan/mesh.h"
#include "daemon/plan/schedule.h"

#define PLAN_WORKERS_MAX TR_GROUP_PEERS_MAX
#define PLAN_STAGES_MAX  256 /* of pp x v; a model has no more layers */
/* v that a search tries by itself; a job may have up to TR_SCHEDULE_CHUNKS_MAX. */
#define PLAN_CHUNKS_TRIED 8

struct plan_choice {
	struct mesh mesh;
	enum schedule_kind kind;
	uint32_t chunks;    /* v */
	uint32_t sequences; /* of a microbatch, in one replica */
	bool recompute;     /* every layer's activations, in the backward pass */
	bool own_rows;      /* sequence parallelism, with tp */
	uint32_t owners; /* ZeRO-1: R of each piece of the moments; 0: each worker has them all */
};

/* Where the time of a step goes, along the rank that works longest; together step_s. */
struct plan_times {
	double step_s;
	double compute_s;  /* layers, embedding, head */
	double exchange_s; /* sums over tp within them */
	double idle_s;     /* bubble, and waiting for what other stages send */
	double reduce_s;   /* gradients over dp, as far as the backward pass does not hide it */
	double update_s;   /* optimizer, and the commit of the round */
};

struct plan {
	struct plan_choice choice;
	uint16_t worker_of[PLAN_WORKERS_MAX];       /* [ranks] */
	uint16_t layers_of[PLAN_STAGES_MAX];        /* [pp * v], by stage */
	uint32_t microbatches_of[PLAN_WORKERS_MAX]; /* [dp] */
	struct plan_times times;
	uint64_t memory_bytes; /* most of all workers, while they train */
	uint64_t
	    writer_bytes; /* of worker_of[0], when it writes a checkpoint (plan_input.writes); 0: none does */
	double memory_part; /* most of all workers: of what it has. Above 1 the plan does not fit */
	uint32_t fullest;   /* pipeline rank, whose part that is */
	bool writer_fullest; /* that of worker_of[0], which writes checkpoints (plan_input.writes) */
};

#endif
