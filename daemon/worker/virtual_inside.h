/* What virtual*.c share: the members that a worker plays. */
#ifndef TR_DAEMON_WORKER_VIRTUAL_INSIDE_H
#define TR_DAEMON_WORKER_VIRTUAL_INSIDE_H

#include "daemon/checkpoint/shard_cut.h"
#include "daemon/plan/strict.h"
#include "daemon/worker/model_inside.h"
#include "daemon/worker/turns.h"
#include "daemon/worker/virtual.h"

enum virtual_meeting { VIRTUAL_SUM, VIRTUAL_MAXIMUM, VIRTUAL_SCATTER, VIRTUAL_GATHER };

struct virtual_member {
	struct virtual_members *all;
	unsigned number; /* of those that this worker plays */
	struct model *model;
	struct model_tensor tensor;
	real *params, *grads;
	real *given; /* at the meeting under way */
	double loss;
};

/* What all play. */
enum virtual_call { VIRTUAL_FORWARD, VIRTUAL_BACKWARD, VIRTUAL_LOSS };
struct virtual_work {
	enum virtual_call call;
	size_t slot;
	const real *doutput;
	real *dinput;
	const struct model_hooks *hooks;
};

struct virtual_members {
	struct model *model; /* that they make up */
	struct shard_cut cut;
	unsigned count, all; /* members here, and of all workers that share a layer */
	struct virtual_member members[STRICT_PARTS_MAX];
	struct turns *turns;
	struct virtual_work work;
	const struct model_tensor *outer; /* NULL: all members are here */
	unsigned half;                    /* of its exchange, that is used next */
	enum virtual_meeting meeting;
	size_t meeting_count;
	real *shared; /* gradients of what all hold, one behind the other */
	size_t shared_numbers;
	void *memory; /* of params, grads, exchanges and shared */
};

/* The number, of all workers' members, of the first one here. */
static inline unsigned virtual_first(const struct virtual_members *v)
{
	return v->outer != NULL ? v->outer->rank * v->count : 0;
}

/* ---- virtual_meeting.c ---- */

/* A member's exchange, as the model calls it (slots.h): members meet at each. */
void virtual_meeting_use(struct model_tensor *tensor, struct virtual_member *member);
/* Numbers [first, last) of what members have given: the tree over them is left in the first's. */
void virtual_meeting_add(struct virtual_members *v, size_t first, size_t last);
/* The half of the workers' exchange that is used next. */
real *virtual_meeting_half(struct virtual_members *v);

/* ---- virtual_arrays.c ---- */

/* Members' parameters are the worker's again. */
void virtual_arrays_take(struct virtual_members *v);
/* Do all members hold this tensor whole, so that its gradient is a sum over them? */
bool virtual_arrays_is_shared(const struct virtual_members *v, size_t tensor);

#endif
