/* Whose part of each step's samples is how large, where members of different speed all take the same steps (struct tr_sync_options, share_by_speed): in proportion to the samples a second that each said
 * with the last merge, so that all come to the next one together.
 *
 * A member's part is a piece [from, to) of [0, batch); the pieces of all, side by side, are the whole. Of step t it is given
 *
 *	floor(to + u_t) - floor(from + u_t),    u_t = the fraction of t (sqrt(5) - 1) / 2
 *
 * samples: a whole number, whose mean over steps is to - from, and the numbers of all members come to the batch in each step. (u_t is the sequence that fills [0, 1) most evenly: Kronecker's, of the golden ratio.)
 * A member that is slower than the time of one sample a step is given none in some.
 *
 * Time is a + b x for a part x, with an a that does not shrink (the optimizer's); each deal goes by the time that the last one took, so after some merges all take the same all the same:
 * the error shrinks by a / (a + b x) each time.
 *
 * Pure; no threads, no memory. Numbers from peers are not trusted.
 */
#ifndef TR_COLLECTIVES_SYNC_SHARES_H
#define TR_COLLECTIVES_SYNC_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/sync/report.h"

struct sync_share {
	double from, to; /* samples of a step; from == to: nobody's place */
};

/* By the reports of `count` places (at most TR_GROUP_PEERS_MAX), of which those with lr_scale != 0 are somebody's. Who did not measure keeps what it had, or an equal part if it had none. Nobody gets less than a
 * sample in `period` steps, by which it is measured, or than an equal part if that is less. */
void shares_deal(const struct sync_report *reports, size_t count, uint64_t batch, uint64_t period,
    struct sync_share *shares);

/* The smallest part, at the beginning: of who comes, and was not measured. Nobody has one: zeros. */
struct sync_share shares_least(const struct sync_share *shares, size_t count);

/* Of `members` there are `now`, more than were dealt to: all give up alike. */
struct sync_share shares_among(struct sync_share share, uint64_t members, uint64_t now);

/* Samples of step `step`. */
uint64_t shares_of_step(const struct sync_share *share, uint64_t step);

/* No member is given more in so many steps, one after the other, with parts up to `each`. */
uint64_t shares_most(double each, uint64_t steps);

#endif
