/* A strict job's step (train.strict; daemon/plan/strict.h): the batch is cut into parts, of which a replica has so many neighbouring ones; each is computed by itself, by a model whose width is cut
 * too (virtual.h), and gradients of parts are added up as a binary tree, whose upper levels are sums of two replicas each. Loss and norm are told part by part, and added up by all in
 * the same order. */
#ifndef TR_DAEMON_WORKER_SHARDED_STRICT_H
#define TR_DAEMON_WORKER_SHARDED_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/plan/strict.h"

struct trainer;
struct model_hooks;

#define STRICT_LEVELS_MAX 3 /* of a tree of STRICT_PARTS_MAX */

struct sharded_strict {
	uint32_t width_parts, batch_parts;
	size_t squares; /* numbers of `sums` behind the losses: of each tensor's parts */
	double *sums; /* in the group's memory, as is what follows: losses of the parts, then squares */
	double *validated;                /* [STRICT_PARTS_MAX] */
	float *levels[STRICT_LEVELS_MAX]; /* gradients: of subtrees, then of replicas */
	/* Of sums over a tensor-parallel group: two buffers of each level, used in turn, and the op that used one last. */
	float *pairs[STRICT_LEVELS_MAX][2];
	uint32_t pair_tags[STRICT_LEVELS_MAX];
	uint32_t meetings; /* of the round under way */
};

/* t->sharded->strict: with the trainer, before there is a mesh. */
tr_status sharded_strict_create(struct trainer *t, struct tr_error *error);
void sharded_strict_destroy(struct trainer *t);
/* What depends on the mesh. */
tr_status sharded_strict_make(struct trainer *t, struct tr_error *error);
void sharded_strict_unmake(struct trainer *t);
/* Numbers of an array of gradients, with a second table of a tied model. */
size_t sharded_strict_numbers(const struct trainer *t);

/* This replica's gradient, reduced over all: t->arrays.grads is whole then. False: the work stopped, or *status is an error. */
bool sharded_strict_gradient(struct trainer *t, const struct model_hooks *hooks, tr_status *status,
    struct tr_error *error);
/* `speaks`: this worker says its replica's losses. */
tr_status sharded_strict_submit_sums(struct trainer *t, bool speaks, unsigned flags,
    struct tr_error *error);
/* `part` computes one of STRICT_PARTS_MAX parts of the validation. */
bool sharded_strict_validate(struct trainer *t, const struct model_hooks *hooks,
    bool (*part)(struct trainer *t, uint32_t part, const struct model_hooks *hooks));
tr_status sharded_strict_submit_validation(struct trainer *t, bool speaks, unsigned flags,
    struct tr_error *error);
/* Of the whole gradient, once TAG_PARTS is there. */
double sharded_strict_squares(const struct trainer *t);
/* The round is committed: what was told in parts goes to the sums of any job. */
void sharded_strict_settle(struct trainer *t);

/* ---- sharded_newcomers.c: gradients of those who hold the shards go to newcomers, in place of sharded_submit_nothing ---- */
tr_status sharded_forward_gradients(struct trainer *t, struct tr_error *error);
/* With ZeRO-1, as sharded_wait_nothing; what this worker has handed on is its own again. */
tr_status sharded_wait_forwarded(struct trainer *t, struct tr_error *error);
tr_status sharded_release_forwarded(struct trainer *t, struct tr_error *error);

/* ---- sharded_pairs.c: for model_tensor, of `arg` the trainer's exchange ---- */
void sharded_pairs_begin(struct sharded_strict *strict);
bool sharded_pairs_sum(void *arg, float *data, size_t count);
bool sharded_pairs_maximum(void *arg, float *data, size_t count);
bool sharded_pairs_scatter(void *arg, float *data, size_t count);
bool sharded_pairs_gather(void *arg, float *data, size_t count);

#endif
