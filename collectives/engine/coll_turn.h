/* Ops with TR_IN_TURN: one at a time, and where all of its members are workers of one engine, made by their callers themselves (transport/commons.h).
 *
 * All members decide alike which way an op goes: by what they have to agree on, and by who has a seat. Where they do not agree, they find that out here (commons_look), and all give the op to their engines, which
 * tell the group who differs: so such a program ends as it always did.
 */
#ifndef TR_COLLECTIVES_ENGINE_COLL_TURN_H
#define TR_COLLECTIVES_ENGINE_COLL_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/engine/channel.h"
#include "collectives/transport/commons.h"

/* What the engine is told of an op. */
struct coll_message {
	struct channel_submission head;
	struct channel_extra extra; /* if head.extended */
};

struct coll_turn {
	struct commons_own own; /* zeroed: this worker has no seat */
	uint64_t round, attempt;
	bool told;      /* the engine knows that there are ops in scopes */
	unsigned looks; /* before it sleeps: more where that was enough, fewer where it was not */
	uint64_t ops[TR_COLLECTIVES_MAX], bytes[TR_COLLECTIVES_MAX]; /* made here in this round */
	/* The op in turn. */
	bool open; /* it was not waited for */
	bool here; /* it is made here */
	struct tr_op op;
	struct coll_message message; /* where it goes to the engine */
	struct commons_op name;
	uint32_t members[COMMONS_SEATS]; /* op.scope's */
	unsigned seats[COMMONS_SEATS];   /* theirs */
	unsigned index;                  /* of us among them */
	uint64_t readers;                /* their seats, by bit */
};

/* The channel says whether there is a seat; without one, and where that cannot be had, ops go to the engine. */
void coll_turn_open(struct tr_group *group);
void coll_turn_close(struct tr_group *group);
void coll_turn_begun(struct tr_group *group, uint64_t round, uint64_t attempt);
/* The round is about to be closed, or was not after all. Who waits here for an op that we do not have gives it to its engine, which finds that out. */
void coll_turn_closes(struct tr_group *group, bool closes);
void coll_turn_committed(struct tr_group *group);

/* TR_EINVAL: TR_IN_TURN is not for such an op, or the one before was not waited for. */
tr_status coll_turn_check(const struct tr_group *group, const struct tr_op *op,
    struct tr_error *error);
/* The op is in turn now. If it is `here`, its input was shown, the engine is not to see it, and it is waited for with coll_turn_wait. TR_ERESTART, or how the member ended. */
tr_status coll_turn_submit(struct tr_group *group, const struct tr_op *op, struct tr_error *error);
/* Whether `tag` is the op in turn, made here, and not waited for yet. */
bool coll_turn_awaits(const struct tr_group *group, uint32_t tag);
/* Makes it; for at most so long (UINT64_MAX: as long as it takes). *passed: it went to the engine after all, where it is to be waited for. TR_ETIMEDOUT names who has not come. */
tr_status coll_turn_wait(struct tr_group *group, uint64_t milliseconds, bool *passed,
    struct tr_error *error);
/* The round is under way, as it was begun. */
tr_status coll_turn_goes_on(const struct tr_group *group, struct tr_error *error);
/* The engine says that op `tag` is done. */
void coll_turn_waited(struct tr_group *group, uint32_t tag);

#endif
