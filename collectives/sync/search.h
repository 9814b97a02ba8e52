/* A search for the learning rate before members train together (HDET with lr_search): races. From the same parameters each member trains apart, at a rate of its own; the least loss wins.
 *
 *	first   rates: the middles of N equal cells of [1/16, 16] times the base, in the logarithm; N members. The base becomes the best one's, moved by at most
 *	        half a cell to where the parabola through its and its neighbours' losses is lowest; and all begin anew, from where they began
 *	second  the same around that, [1/4, 4] times. The best one's parameters are everybody's; where the parabola of least squares through all losses is lowest, times N, is the
 *	        base, but no more than the highest rate that a member took in a race and came within a tenth of the best loss. (The noise of single losses is that of a factor of two in the rate: so all of them count)
 *
 * A race is as long as the caller's warm-up, and a little, or 3 % of all steps; and a race *begins training anew*: schedules and optimizers' counts begin there (`origin`). For what a race compares has to be what a rate
 * does from the beginning. From parameters that have been trained the smaller rate looks better for hundreds of steps wherever it stands, since it takes noise away first, and what the larger one learns shows later; so losses of short spans,
 * the paper's among them, mislead (docs/low-communication.md has the figures). Losses on one batch that all see are told with a merge, all conclude the same.
 *
 * N: where gradients are mostly noise, as with the small batches that one member has, a step of AdamW is as long as the rate whatever the gradient, noise for the most part. The mean of N members' steps has 1/N of the noise's
 * square for the same way downhill, so with N times the rate it has as much noise for its way as one member has. (The same reckoning as the square-root rule, Malladi et al., arXiv 2205.10287, which is of steps with N times the batch: those go sqrt(N) times as far downhill.)
 *
 * Who races alone has nothing to compare: its first race is the last one, and it goes on.
 *
 * Pure: no memory, no I/O. What all decide by is state, and told by ops of the round, so all decide alike; of the arithmetic of a base only what IEEE 754 rounds correctly is used.
 */
#ifndef TR_COLLECTIVES_SYNC_SEARCH_H
#define TR_COLLECTIVES_SYNC_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/sync.h"

enum { SEARCH_RACES = 2, SEARCH_FEWEST_PERIODS = 48 };

/* State of the group, equal on all members after each merge; zeros to begin with. */
struct search_state {
	uint64_t race;   /* 1, 2: under way; 0: none */
	uint64_t judged; /* 1: in the round after this merge all tell their losses */
	uint64_t
	    winner; /* of the last race, peer id: in the round after this merge it gives its parameters; 0: nobody does */
	uint64_t origin; /* step at which training began anew */
	double highest;  /* scale of the rate in the races so far at which a member still learned */
};

/* What a member tells with a merge. */
struct search_told {
	double asked;       /* 1: it has a loss; -1: one that is no number */
	double peer, scale; /* who it is, and at which scale of the rate it trained */
	double loss;
};

enum { SEARCH_TOLD_NUMBERS = sizeof(struct search_told) / sizeof(double) };

/* Before the first round. Without lr_search there is no race. `found`: the base is from an earlier run, so there is none; nor is there one where the options do not tell how many merges
 * there are, or tell of less than SEARCH_FEWEST_PERIODS. */
void search_begin(struct search_state *state, const struct tr_sync_options *options, bool found);

/* In a race: scale of the rate of contributor `index` of `contributors`. Not the same bits on every machine: it is told, not agreed on. */
double search_scale(const struct search_state *state, const struct tr_sync_options *options,
    double base, unsigned index, unsigned contributors);

/* Of `count` places who has the least loss; NULL: nobody. */
const struct search_told *search_best(const struct search_told *told, size_t count);

/* At a commit in a race: what is told of it, and the step of its merge. `given`: somebody's movement is in the merge; a winner that was lost gives none, and training begins anew at the base that was found. */
void search_control(const struct tr_sync_options *options, const struct search_told *told,
    size_t count, uint64_t step, bool given, double *base, struct search_state *state);

#endif
