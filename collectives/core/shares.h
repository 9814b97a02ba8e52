/* Who owns how much of a direct all-reduce when links are unequal. Pure integers: every member computes the same.
 *
 * A peer that owns share w of n peers' vector of S bytes sends and receives S(1 + (n-2)w). The time of the slowest is least
 * when the shares are filled like water: w_i = max(0, (t b_i - 1)/(n - 2)) with sum 1, b_i the bandwidth of peer i. With A
 * the peers whose share is above zero and B the sum of their bandwidths, t = (n - 2 + |A|)/B, so that
 *
 *	w_i is proportional to (n - 2 + |A|) b_i - B         for the i in A, and 0 for the others.
 */
#ifndef TR_COLLECTIVES_CORE_SHARES_H
#define TR_COLLECTIVES_CORE_SHARES_H

#include <stdint.h>

#define SHARES_OWNERS 256 /* entries of an owner table: at least TR_GROUP_PEERS_MAX */

/* bandwidth[i] in any one unit, at most 2^40; 0: not measured, taken as the mean of those that are. All weights are equal
 * if nothing was measured or n <= 2. At least one weight is above zero. */
void shares_weigh(const uint64_t *bandwidth, unsigned n, uint64_t *weight);

/* owners[k]: who owns the segments k, k + SHARES_OWNERS, ... Smooth weighted round-robin: any run of entries holds each peer
 * nearly as often as its weight asks. n <= SHARES_OWNERS; weights sum to less than 2^62. */
void shares_table(const uint64_t *weight, unsigned n, uint8_t owners[SHARES_OWNERS]);

#endif
