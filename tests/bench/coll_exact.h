/* Whether the result of an op that lost a contributor is the sum that the library says it is. */
#ifndef TR_BENCH_COLL_EXACT_H
#define TR_BENCH_COLL_EXACT_H

#include "collectives/coll.h"
#include "tests/bench/measure.h"

struct coll_exact {
	tr_group *group;
	unsigned world, victim;            /* its place */
	uint64_t peers[MEASURE_WORLD_MAX]; /* peer id of each place */
	const float *data;                 /* result of op 0 of the round committed last */
	size_t count;
};

/* true: every element is the sum of measure_input over the contributors that tr_contributors names for it. Contributions are
 * whole numbers above 0, so an element can only be one of two sums: with the victim's or without. Each is compared bit for
 * bit; tr_contributors is asked wherever one gives way to the other, and at each segment. *kept: the fraction with the victim's. */
bool coll_exact_check(const struct coll_exact *exact, double *kept);

#endif
