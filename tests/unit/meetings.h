/* What the members of a tensor-parallel group have after a call of model_tensor (daemon/worker/model.h), in threads of one process: number by number, for test_model_tensor.c and
 * pipeline_ranks.h. */
#ifndef TR_TESTS_MEETINGS_H
#define TR_TESTS_MEETINGS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/checkpoint/shard.h"
#include "daemon/worker/real.h"

enum meeting { SUM, MAXIMUM, SCATTER, GATHER };

/* What one member has called, in order. */
enum { MEETING_CALLS_MOST = 2048 };
struct meeting_calls {
	size_t count;
	struct meeting_call {
		enum meeting kind;
		size_t numbers;
	} at[MEETING_CALLS_MOST];
};

static inline void meeting_called(struct meeting_calls *calls, enum meeting kind, size_t numbers)
{
	assert_true(calls->count < MEETING_CALLS_MOST);
	calls->at[calls->count++] = (struct meeting_call){ kind, numbers };
}

/* Whose rows those at a member are: another place than its rank's, since who has which rows has nothing to do with who has which columns. */
static inline unsigned meeting_place(unsigned size, unsigned member)
{
	return size - 1 - member;
}

/* Number i of `count` at `member`, where these gave `arrays`: sums in the order of members. What a reduce-scatter leaves of others' blocks is nothing to read. */
static inline real meeting_number(enum meeting kind, real *const *arrays, unsigned size, size_t i,
    size_t count, unsigned member)
{
	/* meeting_place is its own inverse. */
	unsigned owner = meeting_place(size, (unsigned)(i * size / count));
	real made = arrays[0][i];
	if (kind == GATHER)
		return arrays[owner][i];
	if (kind == SCATTER && owner != member)
		return (real)NAN;
	for (unsigned k = 1; k < size; k++)
		if (kind != MAXIMUM)
			made += arrays[k][i];
		else if (arrays[k][i] > made)
			made = arrays[k][i];
	return made;
}

/* Of gradients of shards of one layout, what all members hold, which with sequence parallelism are those of each one's rows: summed up, at all. */
static inline void meeting_sum_shared(const struct layout *whole, const struct layout *local,
    real *const *grads, unsigned size)
{
	for (size_t t = 0; t < local->tensor_count; t++) {
		size_t offset = local->tensors[t].offset,
		       end = offset + layout_numbers(&local->tensors[t]);
		for (size_t i = offset; shard_whole(whole, local, t) && i < end; i++) {
			real sum = 0;
			for (unsigned k = 0; k < size; k++)
				sum += grads[k][i];
			for (unsigned k = 0; k < size; k++)
				grads[k][i] = sum;
		}
	}
}

#endif
