/* The simulator's model (model.c), and which rows each member of a tensor-parallel group has of what goes from layer to layer: with sequence parallelism parts of them. */
#ifndef TR_TESTS_SIM_SHARDED_MODEL_ROWS_H
#define TR_TESTS_SIM_SHARDED_MODEL_ROWS_H

#include "tests/sim/sharded/play.h"

#define NOWHERE   UINT32_MAX
#define PARTS     10 /* head, embedding and layers */
#define WIDTH_MAX 16

struct part_sums {
	bool known;
	uint64_t at[WIDTH_MAX];
};

struct model_slot {
	bool taken;
	size_t chunk;
	struct model_batch batch;
	const float *input;
	float *output;
	float *layers; /* inputs of the chunk's layers, and of the head: all rows, or with recompute our own until they are gathered again */
};

struct model {
	const struct layout *layout;
	uint32_t *whole; /* place in the whole layout of each number; NOWHERE */
	const float *params;
	float *grads;
	const struct model_tensor *tensor; /* NULL: alone */
	struct shard placed;               /* that `whole` is of */
	struct part_sums sums[PARTS][2];   /* by part, and forward or back */
	bool odd;                          /* which exchange is next */
	bool recompute;
	size_t row_parts; /* 1: all rows at each */
	size_t rows;
	float *scratch; /* [2 rows, width] */
	struct model_slot slots[16];
};

static inline size_t model_rows(const struct model_slot *slot)
{
	return slot->batch.sequences * slot->batch.length;
}

/* Of its own rows, where members have parts of them; else of all. */
size_t model_own_numbers(const struct model *m, const struct model_slot *slot);
/* Where they begin among all. */
size_t model_own_first(const struct model *m, const struct model_slot *slot);
/* From what this member has of all rows to what all have of its own, below the prime. False: the work stops. */
bool model_exchange(struct model *m, const struct model_slot *slot, bool back, const float *x,
    float *own);
/* All rows, of everybody's own; `own` may be `all`. False: the work stops. */
bool model_gather_rows(struct model *m, const struct model_slot *slot, const float *own, float *all);

#endif
