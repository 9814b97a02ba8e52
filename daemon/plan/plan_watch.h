/* Whether the steps of a job take as long as was planned. Pure.
 *
 *	plan_watch_restart(&watch, step);                       // somebody came or went: the next steps say little
 *	if (plan_watch_look(&watch, step, actual_s, planned_s)) // now and then, with the time of recent steps
 *		...say so, once
 */
#ifndef TR_DAEMON_PLAN_PLAN_WATCH_H
#define TR_DAEMON_PLAN_PLAN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_WATCH_PART  0.2 /* more or less than planned */
#define PLAN_WATCH_STEPS 20  /* between two looks; so many are left out after a restart */
#define PLAN_WATCH_LOOKS 2   /* in a row, that find so */

struct plan_watch {
	uint64_t next_step;
	unsigned
	    off; /* looks in a row that found the steps longer, or shorter, than what was said last */
	double said; /* actual / planned when that was said; 0: nothing was */
};

void plan_watch_restart(struct plan_watch *watch, uint64_t step);
/* True: they take PLAN_WATCH_PART more or less than planned, and that is news. */
bool plan_watch_look(struct plan_watch *watch, uint64_t step, double actual_s, double planned_s);

#endif
