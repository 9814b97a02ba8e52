/* What the reference knows of replicas that train apart (apart.c), and of those whose work goes on through merges (stream.c). Arrays are of the whole layout. */
#ifndef TR_TESTS_SIM_SHARDED_APART_H
#define TR_TESTS_SIM_SHARDED_APART_H

#include "tests/sim/sharded/play.h"

/* The first round of eager has twice as many steps as any other. */
#define APART_STEPS_MOST (2 * PLAY_INNER_STEPS)
#define APART_FRAGMENTS  3

struct moments {
	struct moments *next;
	uint64_t lineage;
	float *first, *second;
};

/* What a replica has beside its moments, by the lineage of its work (daemon/worker/sharded_stream.h). */
struct stream_work {
	struct stream_work *next;
	uint64_t lineage;
	float *params, *delta;
	float *start, *lead, *lead_momentum;
	uint64_t round, workers, breaks; /* whose merge it came out of; play_breaks by then */
	double tokens[APART_FRAGMENTS], steps[APART_FRAGMENTS], since_loss, since_tokens, gave,
	    share;
};

/* A replica's steps of a round, of several tries of it perhaps: in another one it may take fewer. */
struct walk {
	struct walk *next;
	uint64_t round, workers, first, share;
	uint64_t taken; /* states that are known, but for the one at the beginning */
	struct play_state at[APART_STEPS_MOST + 1];
	uint64_t lineage[APART_STEPS_MOST + 1];
	struct claim claim;
	double lr; /* by which its learning rate is multiplied */
	/* stream.c: lineage of its work at the beginning, and when it takes the next step. */
	uint64_t begin, work[APART_STEPS_MOST + 1];
	struct stream_work own; /* but for params, which are in `at` */
	double given_loss, given_tokens;
};

/* Before a step, or a merge: the outer parameters, and their momentum. */
struct merge {
	float *params, *outer;
	double lr_base[2]; /* zeros: to begin with, which is 1 and 0 */
	uint64_t round;    /* of streams: that it was made in, and with which weight */
	double weight;
};

struct play_apart {
	struct moments *moments;
	struct walk *walks;
	struct stream_work *works;
	struct merge at[PLAY_STEPS_MAX];          /* by step, with streams by merges */
	struct optim_arrays disk[PLAY_STEPS_MAX]; /* of checkpoints, as they were written */
};

/* ---- apart.c ---- */

float *apart_numbers(const struct play *play, const float *from);
/* Where training is, in `at`. */
uint64_t apart_now(const struct trainer *t);
struct walk *apart_walk_of(struct tr_group *g);
/* The newest that a replica's workers have begun in this round with what they claim. */
struct walk *apart_walk_merged(struct tr_group *g, uint32_t replica);
/* Each takes so many steps. */
void apart_check_claims(struct tr_group *g, uint64_t least, uint64_t most);
void apart_step_outer(float *theta, float *v, const float *d, size_t count);

/* ---- stream.c ---- */

bool stream_is_on(const struct play *play);
void stream_finish(struct play *play);
void stream_free(struct stream_work *work); /* its arrays */
/* A replica begins with the work that it says: at[0] and the rest. */
void stream_begin(struct tr_group *g, struct walk *walk);
/* It has taken step `taken`, and what is to be taken then. */
void stream_step(struct tr_group *g, struct walk *walk, double norm);
/* A worker's call of outer_step; false: there are no streams. */
bool stream_outer_step(float *theta, float *v, const float *d, float scale, size_t count);
/* Merges that lie up to a step. */
uint64_t stream_merges(uint64_t step);

#endif
