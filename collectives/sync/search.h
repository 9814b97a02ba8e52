/* A search for the learning rate while members train (HDET with lr_search). What a few steps with another rate do to the loss says what the noise of a
 * step costs, not what the rate gains: so losses of short spans, the paper's among them, want a smaller rate wherever it stands (docs/low-communication.md has
 * the figures). The two signs that are used look at long spans:
 *
 *	race    at the beginning, twice: from the same parameters each member trains apart at a rate of its own, spread evenly in the logarithm
 *	        from 1/27 of the base to the base, the second time from a third to three times, until 3 % (5 %) of all steps are done. The losses on
 *	        one batch that all see are told with a round's merge, all name the winner, and with the next merge its parameters are everybody's
 *	        and its rate is the base. (Not upward at first: what a rate that is too high spoils early stays; the line finds the way up)
 *	line    from then on, at the end of each window of min(0.4 of the steps so far, 0.3 of those to come), two periods at least: with d the way of the
 *	        outer parameters through the window, the loss at start + c d for c = 0.7, 1 and 1.3. Let c be where the parabola through them is lowest, within
 *	        1/2 and 2: the base is multiplied by c, and where that is above 1, by its square. A rate that is too low goes in the same
 *	        direction window after window and does not go far enough
 *
 * Windows that grow with the run see what a rate gains, and towards its end, where noise can no longer be taken away later, they shrink, and the rate comes down.
 *
 * Pure: no memory, no I/O. What all decide by is state, and told by ops of the round, so all decide alike.
 */
#ifndef TR_COLLECTIVES_SYNC_SEARCH_H
#define TR_COLLECTIVES_SYNC_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/sync.h"

enum { SEARCH_RACES = 2, SEARCH_POINTS = 3, SEARCH_FEWEST_PERIODS = 48 };

/* State of the group, equal on all members after each merge; zeros to begin with. */
struct search_state {
	uint64_t race;   /* 1, 2: under way; 0: none */
	uint64_t judged; /* 1: in the round after this merge all tell their losses */
	uint64_t
	    winner; /* peer id: in the round after this merge it gives its parameters; 0: nobody does */
	uint64_t anchored; /* step at which the window began */
	uint64_t due;      /* step at which it ends */
	uint64_t probed; /* step of the merge at which losses along the line were wanted; 0: none are */
};

/* What a member tells with a merge. */
struct search_told {
	double asked;       /* losses that it has: 0, 1 (race), SEARCH_POINTS (line) */
	double peer, scale; /* race: who it is, and at which scale of the rate it trained */
	double loss[SEARCH_POINTS];
};

enum { SEARCH_TOLD_NUMBERS = sizeof(struct search_told) / sizeof(double) };

/* Of the points of the line. */
double search_point(unsigned i);

/* Before the first round. `found`: the base is from an earlier run, so there is no race; nor is there one where the options do not tell how many merges
 * there are, or tell of less than SEARCH_FEWEST_PERIODS. */
void search_begin(struct search_state *state, const struct tr_sync_options *options, bool found);

/* In a race: scale of the rate of contributor `index` of `contributors`. Not the same bits on every machine: it is told, not agreed on. */
double search_scale(const struct search_state *state, const struct tr_sync_options *options,
    double base, unsigned index, unsigned contributors);

/* At a commit: what is told of it, of `count` places, and the step of its merge. */
void search_control(const struct tr_sync_options *options, const struct search_told *told,
    size_t count, uint64_t step, double *base, struct search_state *state);

#endif
