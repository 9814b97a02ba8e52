/* When low-communication training talks if its members do not take the same number of inner steps: by time, by speed, or with a grace for those
 * that are late. (Else: schedule.h.) Rounds are numbered, and round r is about fragment (r - 1) mod P, as there; but when a peer takes its fragment
 * is its own matter:
 *
 *	by time   its budget T / P of working time is spent. Working time is what passes between the return of one tr_sync_step and the next call,
 *	          on the peer's own monotonic clock, counted from its last take. The moment that all clocks are set by is a merge: it ends for
 *	          all when the last one's data is there, and what somebody waited in it is not working time. So members that left a merge
 *	          together come to the next take together, but for the rest of one inner step, and one that was held up moves all
 *	          (without overlap: a merge behind steps in which its round was committed waits for nobody).
 *	by speed  it has taken its quota of steps, H times its speed over the fastest's, at least P: DyLU, arXiv 2401.09135, section 5.
 *	grace     it has taken its quota (or H), or the time has passed that the quorum's last peer needs for its own, by the speeds of the round
 *	          before, and `grace_seconds` more: then it gives what it has. It looks at the clock when an inner step ends.
 *
 * The merge is `overlap` steps later, or when the next fragment is due (eager: then). Whoever comes first waits for the others at the merge: no
 * clock is shared and nobody is asked whether he is ready.
 *
 * Every merge carries, of each contributor, how far it was at its take and how long a step takes it (report.h). From these all draw the same
 * conclusions, struct pace_agreed, which is state: the step of a merge is that of the furthest, from there all count on; once it is the last one,
 * the work that was done since the takes is merged, fragment by fragment, and training has ended. A peer never goes beyond the last step.
 *
 * Pure; no threads, no memory.
 */
#ifndef TR_COLLECTIVES_SYNC_PACE_H
#define TR_COLLECTIVES_SYNC_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/sync.h"
#include "collectives/sync/report.h"

/* Equal on all peers after each merge. */
struct pace_agreed {
	uint64_t step; /* of the furthest, at its take of the last merged round */
	uint64_t last; /* round at whose merge `step` was the last one; 0: it is not */
	double fastest_s, slowest_s; /* seconds of a step, of those who measured; 0: nobody yet */
	double quorum_s; /* until so many as make the quorum have taken their quota; 0: not known */
};

/* One peer's. */
struct pace_progress {
	uint64_t step;       /* inner steps done, all that were agreed on included */
	uint64_t since_take; /* its own */
	double worked_s;     /* since the take */
	double step_s;       /* as in its last report; 0: it has made none */
	double samples;      /* since the take */
};

/* Whether it is this file that decides. */
static inline bool pace_decides(const struct tr_sync_options *options)
{
	return options->inner_seconds > 0 || options->by_speed || options->grace_seconds > 0;
}

/* Whether a movement's sum is on its way while the caller works: with an overlap, which in eager mode by time is a period of steps that nobody counts, or alone. */
static inline bool pace_overlaps(const struct tr_sync_options *options)
{
	return options->overlap != 0 || options->mode == TR_SYNC_EAGER || options->alone_steps > 0;
}

void pace_agree(const struct tr_sync_options *options, const struct sync_report *reports,
    size_t count, uint64_t round, struct pace_agreed *agreed);

/* Steps between two takes of the same fragment by a peer whose step takes so long; one that has not measured is taken for the slowest. */
uint64_t pace_quota(const struct tr_sync_options *options, const struct pace_agreed *agreed,
    double step_s);

/* Whether round `round` is about what is left after the last step; and whether there is no such round, since all is merged. */
bool pace_is_final(const struct pace_agreed *agreed, uint64_t round);
bool pace_is_past(const struct tr_sync_options *options, const struct pace_agreed *agreed,
    uint64_t round);

/* Whether a peer takes, or merges, the fragment of round `round` now. */
bool pace_takes(const struct tr_sync_options *options, const struct pace_agreed *agreed,
    const struct pace_progress *progress, uint64_t round);
bool pace_merges(const struct tr_sync_options *options, const struct pace_agreed *agreed,
    const struct pace_progress *progress, uint64_t round);

#endif
