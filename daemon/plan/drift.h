/* Whether the steps of a job that was planned still take what they are to take: else it is planned anew, from what is measured now (replan.h). Pure, in whole numbers of what a commit made common: all
 * contributors of a round know the same, and so decide the same.
 *
 *	drift_begin(&drift, planned_ns);
 *	if (drift_note(&drift, DRIFT_STEPS, nanoseconds))   // each round that was a step and nothing else
 *		...                                         // somebody searches for another plan, then one of these:
 *	drift_follows(&drift, next_ns);                     // it is in force
 *	drift_stays(&drift, now_ns);                        // there is none that is worth it: what steps take now is what they are to take, if figures explain it
 *	drift_restart(&drift);                              // whoever came or went, whatever else was dealt anew
 *	drift_shaken(&drift);                               // and the plan was made for other workers
 *
 * A plan that was made for other workers than are there is no reason to wait for drift: as soon as there are figures, of a fourth of a look, somebody searches, once for each time that somebody came or went. That says nothing of how steady times are,
 * so later searches need no more looks for it.
 *
 * Shares and layers follow speeds by themselves (balance.h, restage.h), cheaper than a change of mesh: a look here is longer than theirs are, and what they change begins it anew. Two looks in a row have to
 * find the same; after each search twice as many, up to 8 times, so that what is slow now and then does not move all state each time. Steps that are shorter than planned are a reason only once the job was
 * planned anew: then what made it so may have ended.
 */
#ifndef TR_DAEMON_PLAN_DRIFT_H
#define TR_DAEMON_PLAN_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

#define DRIFT_STEPS   20 /* of a look */
#define DRIFT_LOOKS   2
#define DRIFT_PERCENT 20 /* more or less than expected */
/* Of a look: so many steps are enough to know how fast workers are. */
#define DRIFT_SHAKEN_PART 4

/* Common state of a group. */
struct drift {
	uint64_t
	    planned_ns; /* what a step takes by the plan in force; 0: there is none, and no drift */
	uint64_t expected_ns; /* the same, or what was measured when the plan stayed */
	uint64_t measured_ns; /* of the last look; 0: there was none since the restart */
	uint64_t steps, ns;   /* of this look, so far */
	uint64_t settled;     /* looks since the restart; what the first one found is left out */
	uint64_t looks;       /* in a row that found other steps than expected */
	uint64_t searches, changes;
	uint64_t shaken; /* 1: the plan is that of other workers, until it was looked at */
};

void drift_begin(struct drift *drift, uint64_t planned_ns);
void drift_restart(struct drift *drift);
void drift_shaken(struct drift *drift);
/* A step took so long. True: it is time to search; it begins anew, and measured_ns says what steps take. */
bool drift_note(struct drift *drift, uint64_t steps_of_look, uint64_t ns);
void drift_follows(struct drift *drift, uint64_t planned_ns);
/* `explained_ns`: what the search's figures say that a step takes as things are; 0: nothing. Where it is less than half of what was measured, they were of a moment in which something became slow, or of
 * another one: steps are not expected to be so long from now on, and after more looks somebody searches again. */
void drift_stays(struct drift *drift, uint64_t explained_ns);

#endif
