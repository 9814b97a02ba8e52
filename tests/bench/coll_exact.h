/* Whether the result of an op that lost a contributor is the sum that the library says it is. */
#ifndef TR_BENCH_COLL_EXACT_H
#define TR_BENCH_COLL_EXACT_H

#include "collectives/coll.h"
#include "tests/bench/measure.h"

struct coll_exact {
	tr_group *group;
	unsigned world, victim;            /* its place */
	uint64_t peers[MEASURE_WORLD_MAX]; /* peer id of each place */
	enum measure_dtype dtype;
	const void *data; /* result of op 0 of the round committed last */
	size_t count;
	double tolerance; /* by which an element may be off: 0 without a codec */
};

/* true: every element is the sum of measure_input over the contributors that tr_contributors names for it, all of them but at most the victim.
 * Contributions are whole numbers from 1 on, so without a codec the sum has one value in any order, and one that is missing shows; a codec's result may be as far off as it
 * rounds. tr_contributors is asked every ASK_EVERY elements, and around each change among them. *kept: the fraction of elements with the victim's. */
bool coll_exact_check(const struct coll_exact *exact, double *kept);

#endif
