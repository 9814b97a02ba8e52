/* What a tr_group is, shared by coll.c and its parts, coll_*.c. */
#ifndef TR_COLLECTIVES_ENGINE_COLL_GROUP_H
#define TR_COLLECTIVES_ENGINE_COLL_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "collectives/coll.h"
#include "collectives/core/strided.h"
#include "collectives/core/tag_set.h"
#include "collectives/engine/channel_worker.h"
#include "collectives/engine/coll_turn.h"

/* struct tr_op as it was in the first version. */
#define COLL_OP_LEAST (offsetof(struct tr_op, output_block) + sizeof(void *))

/* Memory that one op reads or writes. */
struct coll_use {
	uint32_t tag;
	const char *what; /* "input" */
	bool writes;
	bool some; /* of an op that only some members have: it can be released */
	bool here; /* made by the callers: the engine does not know of it */
	uintptr_t base;
	size_t element_bytes;
	struct strided layout;
};

enum { COLL_USES_MAX = 4 }; /* of an op: output, input, residual, residual_next */

/* A piece of declared state. */
struct coll_tensor {
	uintptr_t base;
	size_t bytes;
	uint32_t gradual; /* 1 + its unit; 0: of none */
	char name[TR_STATE_NAME_MAX];
};

enum { COLL_STATE_NAMES = 2 * TR_STATE_TENSORS_MAX }; /* half of them are free */

/* All of it: no two pieces have a name or a byte in common. Zeroed: there is none. */
struct coll_state {
	struct coll_tensor tensors[TR_STATE_TENSORS_MAX]; /* as they were declared */
	unsigned count;
	unsigned
	    names[COLL_STATE_NAMES]; /* a hash table with open addressing: 1 + a place in `tensors` */
	/* Places of those that are not empty, by ascending base. */
	unsigned by_base[TR_STATE_TENSORS_MAX], by_base_count;
	struct tag_set units;
};

struct coll_join; /* the engine and the membership link of a process that joined by name */

struct tr_group {
	struct channel_worker *channel;
	struct coll_join *join; /* NULL: attached to traind */
	uint32_t op_deadline_ms;
	bool ready;
	pid_t pid;      /* whose it is */
	unsigned forks; /* coll_forks as it was opened */
	_Atomic uint64_t
	    abandons; /* channel_control.abandons when the round began; tr_progress reads it on any thread */
	unsigned index, contributors; /* this peer's, of the round under way */
	bool begun;                   /* some round was */
	bool open; /* a round was begun here that is not committed; an abandoned one is until the next begin */
	uint64_t contributor_ids[TR_GROUP_PEERS_MAX];
	struct coll_use *uses; /* of memory, by the ops of the round under way */
	unsigned use_count, use_capacity, op_count;
	struct tag_set released;  /* in the round under way */
	struct coll_state *state; /* NULL: none was declared */
	/* All of them lie in it; not read where there is none. */
	struct coll_range {
		uintptr_t low, high;
		uint32_t tag_low, tag_high;
	} used;
	double first_loss;     /* the first that this peer reported; NaN: none yet */
	struct coll_turn turn; /* ops in turn */
};

/* Takes fd, also on an error. */
tr_status coll_group_open(int fd, struct tr_group **group, struct tr_error *error);
void coll_group_close(struct tr_group *group);
uint32_t coll_op_deadline_ms(const struct tr_group *group);
/* Whether all of it is one piece of what tr_alloc gave. */
bool coll_is_allocated(const struct tr_group *group, const void *data, size_t bytes);

/* The op in turn, which was to be made by the callers, goes to the engine. */
tr_status coll_op_pass(struct tr_group *group, struct tr_error *error);
/* Whether op `tag` of the round was made by the callers. */
bool coll_op_here(const struct tr_group *group, uint32_t tag);

void coll_state_finish(struct tr_group *group);
/* Some declared state that `use` touches; NULL: none. */
const struct coll_tensor *coll_state_touched(const struct tr_group *group,
    const struct coll_use *use);

/* How many forks this process is away from the one that loaded the library. */
extern unsigned coll_forks;
void coll_take(struct tr_group *group); /* it is this process's */
tr_status coll_refuse_child(const struct tr_group *group, struct tr_error *error);
/* TR_EINVAL: it is a parent's. */
static inline tr_status coll_own(const struct tr_group *group, struct tr_error *error)
{
	return group->forks == coll_forks ? TR_OK : coll_refuse_child(group, error);
}

void coll_join_leave(struct coll_join *join);

#endif
