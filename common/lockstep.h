/* Processes of one machine that take the same steps at the same times, over a page of shared memory: so what one of them measures has in it that it waits for the others, as tensor-parallel workers do at
 * each sum. A member that has left, has died, or does not come within LOCKSTEP_PATIENCE_MS, is waited for no more, by anybody; it goes on alone.
 *
 *	int page = lockstep_create();                       // who starts them: to be inherited by each
 *	lockstep_open(page, 0, 2, &lockstep, &error);       // in member 0 of 2
 *	lockstep_meet(lockstep, 0, 2);                      // returns when both have called it as often
 *	again = lockstep_agree(lockstep, again);            // the same: all get what member 0 gave
 *	lockstep_close(lockstep);
 *
 * Calls with a NULL lockstep return at once, of a member alone. One thread a member. Who waits looks for as long as workers that make sums by themselves, and then sleeps, so that it takes no core. */
#ifndef TR_COMMON_LOCKSTEP_H
#define TR_COMMON_LOCKSTEP_H

#include <stdbool.h>

#include "common/error.h"

#define LOCKSTEP_MEMBERS_MAX 256
#define LOCKSTEP_PATIENCE_MS 5000
#define LOCKSTEP_PAGE_FD     3 /* where a program that was started finds it */

struct lockstep;

/* A descriptor (close-on-exec) of the page, the caller's to close; -1 with errno. */
int lockstep_create(void);
/* page: of lockstep_create, inherited; it may be closed afterwards. TR_EINVAL: no such page or member; TR_EIO, TR_ENOMEM. */
tr_status lockstep_open(int page, unsigned self, unsigned members, struct lockstep **lockstep,
    struct tr_error *error);
/* Nobody waits for this member any more. */
void lockstep_close(struct lockstep *lockstep);

/* Of members [first, end), of which this is one. Each of them makes these calls, with the same members, in the same order. */
void lockstep_meet(struct lockstep *lockstep, unsigned first, unsigned end);
/* Of all members. What member 0 said; where that is gone, what this one said. */
bool lockstep_agree(struct lockstep *lockstep, bool word);

#endif
