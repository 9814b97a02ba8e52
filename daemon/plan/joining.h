/* Whether who would join a job is worth its start: whether it works before the work has ended, and saves more then than its state costs the others. Pure, in whole numbers.
 *
 *	struct joining joining = { .step_ns = 33000000, .workers = 2, .next_workers = 3, .done = 88, .steps = 100, .round_steps = 1, .start_ns = 2000000000 };
 *	if (!joining_pays(&joining))
 *		joining_words(&joining, text);      // "12 steps are left, 0.396 s, and a worker needs 2 s to start and get its state"
 *
 * All of it is reckoned at best, as what a change of mesh saves is (worthwhile.h): what nobody knows is no reason to leave a place free.
 */
#ifndef TR_DAEMON_PLAN_JOINING_H
#define TR_DAEMON_PLAN_JOINING_H

#include "daemon/plan/worthwhile.h"

#define JOINING_TEXT (WORTH_TEXT + 96)
/* Who was left out is asked about again when so much more time is left: one look at steps differs by a tenth from the next, and a loss makes one of them longer. Or when who comes has its state in so
 * much less: another node, or the links to it were measured since. */
#define JOINING_AGAIN_PERCENT 25

struct joining {
	uint64_t step_ns;               /* of those who are there; 0: not known */
	uint32_t workers, next_workers; /* or replicas, where these are what shares a batch */
	uint64_t done, steps;           /* steps in all; 0: not known */
	uint64_t round_steps;           /* from a merge to the next; 1: all talk at each step */
	uint64_t start_ns;              /* from a worker's start until it can enter; 0: not known */
	uint64_t state_ns; /* that its state is on its way, beside a round of the others */
};

/* A place that stays free; zeros: none does. */
struct joining_refused {
	uint32_t workers;  /* that there were */
	uint64_t left_ns;  /* that the steps which were left took them */
	uint64_t state_ns; /* of who was to come */
};

uint64_t joining_left_ns(const struct joining *joining); /* UINT64_MAX: that or more */
/* What it saves and costs from the step on in which it counts. */
struct worth joining_worth(const struct joining *joining);
bool joining_pays(const struct joining *joining);
/* Of what pays too, as long as it is known. Into `text`, which is returned. */
const char *joining_words(const struct joining *joining, char text[JOINING_TEXT]);

/* Has more than a little changed since? */
bool joining_asks_again(const struct joining_refused *refused, const struct joining *joining);

#endif
