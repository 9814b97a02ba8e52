#include "tests/bench/coll_exact.h"

#include <stdio.h>
#include <string.h>

#define ASK_EVERY (16u << 10) /* elements; less than a segment */

static float sum_at(const struct coll_exact *x, size_t element, bool with_victim)
{
	unsigned sum = 0;
	for (unsigned k = 0; k < x->world; k++)
		sum += k == x->victim && !with_victim ? 0 : measure_input(k, element);
	return (float)sum;
}

/* Whether the library names exactly those contributors. */
static bool named(const struct coll_exact *x, size_t element, bool with_victim)
{
	uint64_t peers[MEASURE_WORLD_MAX];
	size_t count = 0, wanted = with_victim ? x->world : x->world - 1;
	bool there[MEASURE_WORLD_MAX] = { 0 };
	if (tr_contributors(x->group, 0, element, peers, MEASURE_WORLD_MAX, &count) != TR_OK ||
	    count != wanted)
		return false;
	for (size_t i = 0; i < count; i++)
		for (unsigned k = 0; k < x->world; k++)
			there[k] = there[k] || x->peers[k] == peers[i];
	for (unsigned k = 0; k < x->world; k++)
		if (there[k] != (k != x->victim || with_victim))
			return false;
	return true;
}

bool coll_exact_check(const struct coll_exact *x, double *kept)
{
	size_t with = 0;
	bool before = false;
	for (size_t e = 0; e < x->count; e++) {
		float whole = sum_at(x, e, true), rest = sum_at(x, e, false);
		bool is_whole = memcmp(&x->data[e], &whole, sizeof(whole)) == 0;
		if (!is_whole && memcmp(&x->data[e], &rest, sizeof(rest)) != 0) {
			fprintf(stderr, "collbench: element %zu is %g, neither %g nor %g\n", e,
			    (double)x->data[e], (double)whole, (double)rest);
			return false;
		}
		bool turn = e > 0 && is_whole != before;
		if ((e % ASK_EVERY == 0 || turn || e == x->count - 1) && !named(x, e, is_whole)) {
			fprintf(stderr,
			    "collbench: element %zu holds %s, its contributors say otherwise\n", e,
			    is_whole ? "all contributions" : "the survivors' contributions");
			return false;
		}
		if (turn && !named(x, e - 1, before))
			return false;
		before = is_whole;
		with += is_whole;
	}
	*kept = (double)with / (double)x->count;
	return true;
}
