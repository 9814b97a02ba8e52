#include "daemon/worker/sharded_claims.h"

#include <stdlib.h>
#include <string.h>

static uint64_t free_samples(const struct lease_account *a)
{
	uint64_t all = 0;
	for (size_t i = 0; i < a->free_count; i++)
		all += a->free[i].to - a->free[i].from;
	return all;
}

uint64_t claims_sample(const struct lease_account *a, uint64_t place)
{
	for (size_t i = 0; i < a->free_count; i++) {
		uint64_t here = a->free[i].to - a->free[i].from;
		if (place < here)
			return a->free[i].from + place;
		place -= here;
	}
	return a->cursor + place;
}

static int by_first(const void *a, const void *b)
{
	const struct claim *one = a, *other = b;
	return (one->first > other->first) - (one->first < other->first);
}

/* Ascending: behind those that are there, or the last of them longer. */
static void add_free(struct lease_account *a, struct lease_range range)
{
	struct lease_range *last = a->free_count > 0 ? &a->free[a->free_count - 1] : NULL;
	if (last != NULL && last->to == range.from)
		last->to = range.to;
	else if (a->free_count < LEASE_FREE_MAX)
		a->free[a->free_count++] = range;
	else
		lease_drop(a,
		    (struct lease_dropped){ .from = range.from,
		        .to = range.to,
		        .count = range.to - range.from,
		        .cause = LEASE_NO_ROOM });
}

/* Places [from, to) of the list as it was stay free; those of samples beyond the cursor, too. */
static void keep(struct lease_account *a, const struct lease_account *was, uint64_t from,
    uint64_t to)
{
	uint64_t at = 0;
	for (size_t i = 0; i < was->free_count && from < to; i++) {
		uint64_t here = was->free[i].to - was->free[i].from,
		         end = to < at + here ? to : at + here;
		if (from < end) {
			add_free(a,
			    (struct lease_range){ was->free[i].from + (from - at),
			        was->free[i].from + (end - at) });
			from = end;
		}
		at += here;
	}
	if (from < to)
		add_free(a,
		    (struct lease_range){ was->cursor + (from - at), was->cursor + (to - at) });
}

void claims_count(struct lease_account *a, const struct claim *claims, size_t count, uint64_t round)
{
	struct claim sorted[TR_GROUP_PEERS_MAX];
	struct lease_account was = *a;
	uint64_t old = free_samples(a), at = 0;
	memcpy(sorted, claims, count * sizeof(*claims));
	qsort(sorted, count, sizeof(*sorted), by_first);
	memset(a->free, 0, sizeof(a->free)); /* digested: no rest stays */
	a->free_count = 0;
	for (size_t i = 0; i < count; i++) {
		keep(a, &was, at, sorted[i].first);
		at = sorted[i].first + sorted[i].count;
	}
	if (at < old)
		keep(a, &was, at, old);
	else
		a->cursor += at - old;
	a->round = round;
}
