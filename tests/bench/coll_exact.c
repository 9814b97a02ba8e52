#include "tests/bench/coll_exact.h"

#include <math.h>
#include <stdio.h>

#define ASK_EVERY 1024u /* elements; less than a segment */

/* false: the library names others than all, or all but the victim. */
static bool ask(const struct coll_exact *x, size_t element, bool *whole)
{
	uint64_t peers[MEASURE_WORLD_MAX];
	size_t count = 0;
	bool there[MEASURE_WORLD_MAX] = { 0 }, well;

	well = tr_contributors(x->group, 0, element, peers, MEASURE_WORLD_MAX, &count) == TR_OK &&
	    count >= x->world - 1 && count <= x->world;
	for (size_t i = 0; well && i < count; i++)
		for (unsigned k = 0; k < x->world; k++)
			there[k] = there[k] || x->peers[k] == peers[i];
	*whole = there[x->victim];
	for (unsigned k = 0; k < x->world; k++)
		well = well && (k == x->victim || there[k]);
	if (!well || count != x->world - !*whole)
		(void)fprintf(stderr,
		    "collbench: element %zu has other contributors than the survivors\n", element);
	return well && count == x->world - !*whole;
}

static bool check_run(const struct coll_exact *x, size_t first, size_t end, bool whole)
{
	double sums[MEASURE_INPUT_MAX] = { 0 }; /* inputs have this period */

	for (unsigned i = 0; i < MEASURE_INPUT_MAX; i++)
		for (unsigned k = 0; k < x->world; k++)
			sums[i] += k == x->victim && !whole ? 0 : measure_input(k, i);
	for (size_t e = first; e < end; e++) {
		double value = measure_value(x->dtype, x->data, e),
		       sum = sums[e % MEASURE_INPUT_MAX];
		if (!(fabs(value - sum) <= x->tolerance)) {
			(void)fprintf(stderr,
			    "collbench: element %zu is %g, the sum of its contributors %g\n", e,
			    value, sum);
			return false;
		}
	}
	return true;
}

/* The first element with other contributors than `first`, where `last` has others. */
static bool find_change(const struct coll_exact *x, size_t first, size_t last, bool whole,
    size_t *change)
{
	while (last - first > 1) {
		size_t middle = first + (last - first) / 2;
		bool is_whole;
		if (!ask(x, middle, &is_whole))
			return false;
		if (is_whole == whole)
			first = middle;
		else
			last = middle;
	}
	*change = last;
	return true;
}

bool coll_exact_check(const struct coll_exact *x, double *kept)
{
	size_t with = 0;

	for (size_t first = 0, end; first < x->count; first = end) {
		bool whole, last_whole;
		end = x->count - first > ASK_EVERY ? first + ASK_EVERY : x->count;
		if (!ask(x, first, &whole) || !ask(x, end - 1, &last_whole) ||
		    (whole != last_whole && !find_change(x, first, end - 1, whole, &end)) ||
		    !check_run(x, first, end, whole))
			return false;
		with += whole ? end - first : 0;
	}
	*kept = (double)with / (double)x->count;
	return true;
}
