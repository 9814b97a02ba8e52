/* Callers that work through a mesh of scopes and take back the memory of each op as soon as they may, while views change: what they have taken back counts as if it were still
 * there, and nothing of it is written any more.
 */
#include "tests/unit/group_release.h"

#define NEVER  99
#define PEOPLE 4

/* A caller that makes one op after the other, in its row and its column by turns, waits for each, and releases each when a later one of the same members is there. */
struct walker {
	unsigned step;
	unsigned lag;      /* it releases op k after op k + lag; at least 2. NEVER */
	unsigned released; /* ops below it */
	unsigned done;     /* of the member's done_count */
	bool waits, closed;
};

static struct walker walkers[PUMP_MEMBERS];

static struct set row_of(unsigned who, unsigned length, unsigned n)
{
	struct set set = { .count = 0 };
	for (unsigned i = who - who % length; i < n && i < who - who % length + length; i++)
		set.members[set.count++] = i;
	return set;
}

static struct set comb_of(unsigned who, unsigned stride, unsigned n)
{
	struct set set = { .count = 0 };
	for (unsigned i = who % stride; i < n; i += stride)
		set.members[set.count++] = i;
	return set;
}

static int64_t value(unsigned who, unsigned step, size_t k)
{
	return (int64_t)(1 + step) << (6 * who) | (int64_t)(k % 2);
}

static int64_t sum_of(struct set set, unsigned step, size_t k)
{
	int64_t sum = 0;
	for (unsigned i = 0; i < set.count; i++)
		sum += value(set.members[i], step, k);
	return sum;
}

/* ---- walkers ---- */

static struct set set_of(unsigned who, unsigned step, unsigned length, unsigned n)
{
	return step % 2 == 0 ? row_of(who, length, n) : comb_of(who, length, n);
}

static void walker_releases(struct pump *pump, unsigned who, unsigned lag)
{
	struct walker *walker = &walkers[who];
	for (; walker->released + lag < walker->step; walker->released++) {
		assert_int_equal(release(pump, who, walker->released), TR_OK);
		scribble(who, walker->released);
	}
}

/* What it waited for is there. */
static void walker_reads(struct pump *pump, unsigned who, unsigned length, unsigned n)
{
	struct walker *walker = &walkers[who];
	struct set set = set_of(who, walker->step, length, n);
	for (size_t k = 0; k < COUNT; k++)
		assert_int_equal(memory[who][walker->step][k], sum_of(set, walker->step, k));
	walker->waits = false;
	walker->done = pump->members[who].done_count;
	walker->step++;
	walker_releases(pump, who, walker->lag);
}

static void walk(struct pump *pump, unsigned who, unsigned length, unsigned n)
{
	struct walker *walker = &walkers[who];
	for (;;) {
		if (walker->waits && pump->members[who].done_count == walker->done)
			return;
		if (walker->waits)
			walker_reads(pump, who, length, n);
		if (walker->step == STEPS) {
			if (!walker->closed)
				assert_int_equal(pump_close(pump, who, 0, 0), TR_OK);
			walker->closed = true;
			return;
		}
		for (size_t k = 0; k < COUNT; k++)
			memory[who][walker->step][k] = value(who, walker->step, k);
		assert_int_equal(submit(pump, who, walker->step, memory[who][walker->step],
		                     TR_ALL_REDUCE, 0, set_of(who, walker->step, length, n)),
		    TR_OK);
		assert_int_equal(wait_for(pump, who, walker->step), TR_OK);
		walker->waits = true;
	}
}

static void walkers_start(const unsigned *lags, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		walkers[i] = (struct walker){ .lag = lags[i] };
}

/* Delivers at most `most` messages; true: there were fewer. */
static bool walk_all(struct pump *pump, unsigned length, unsigned n, unsigned most)
{
	for (unsigned done = 0;; done++) {
		for (unsigned i = 0; i < n; i++)
			if (!pump->members[i].dead)
				walk(pump, i, length, n);
		if (done == most)
			return false;
		if (pump_some(pump, 1) == 0)
			return true;
	}
}

static void all_are_done(const struct pump *pump, unsigned length, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (pump->members[i].dead)
			continue;
		if (pump->members[i].decided_count != 1 || pump->members[i].status != TR_OK)
			fail_msg("%u: %u decided, %s: %s", i + 1, pump->members[i].decided_count,
			    tr_status_name(pump->members[i].status), pump->members[i].reason);
		const struct group_core_counters *counters = group_core_counters(
		    pump->members[i].core);
		assert_int_equal(counters->ops[TR_ALL_REDUCE], STEPS);
		assert_int_equal(counters->op_bytes[TR_ALL_REDUCE], sizeof(memory[0]));
		for (unsigned step = 0; step < STEPS; step++)
			for (size_t k = 0; k < COUNT; k++)
				assert_int_equal(memory[i][step][k],
				    step < walkers[i].released
				        ? SCRIBBLE
				        : sum_of(set_of(i, step, length, n), step, k));
	}
}

/* ---- tests ---- */

/* The votes of those who have released nothing and of those who have nearly all agree. */
static void a_mesh_releases_as_it_goes(void **state)
{
	(void)state;
	static const unsigned lags[PUMP_MEMBERS] = { 2, 3, NEVER, 2, 5, NEVER, 2, 4 };
	for (unsigned n = 1; n <= PUMP_MEMBERS; n++)
		for (unsigned length = 1; length <= n; length++)
			for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++) {
				struct pump *pump = begun(n, algorithm);
				walkers_start(lags, n);
				assert_true(walk_all(pump, length, n, UINT32_MAX));
				all_are_done(pump, length, n);
				uint64_t peer;
				size_t count;
				assert_int_equal(group_core_contributors(pump->members[0].core, 0,
				                     0, &peer, 1, &count),
				    TR_ENOTFOUND);
				pump_destroy(pump);
			}
}

/* A view change without a loss at every point of it, where some have released what others still hold, and some do so while they are frozen. Whoever still holds
 * it serves it in vain.
 */
static void a_joiner_comes_at_any_time(void **state)
{
	(void)state;
	static const unsigned lags[][PEOPLE] = { { 2, NEVER, 3, NEVER }, { NEVER, 2, 2, 4 },
		{ 2, 2, 2, 2 }, { 3, 2, NEVER, 3 } };
	unsigned told_late = 0;
	for (unsigned set = 0; set < 4; set++)
		for (unsigned delivered = 0;; delivered++) {
			struct pump *pump = pump_create(PEOPLE + 1);
			struct pump_view view = first_view(pump, TR_DIRECT);
			view.count = PEOPLE;
			pump_ready_all(pump);
			pump_install(pump, &view);
			for (unsigned i = 0; i < PEOPLE; i++)
				assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
			walkers_start(lags[set], PEOPLE);
			bool over = walk_all(pump, 2, PEOPLE, delivered);
			if (!over) {
				/* The hub may have committed it: then the others do. */
				unsigned committed = pump->members[0].decided_count;
				pump_propose(pump, 2);
				for (unsigned i = 0; i < PEOPLE; i++)
					if ((lags[set][i] == 3 || lags[set][i] == 4) &&
					    !walkers[i].closed)
						walker_releases(pump, i, 2);
				view = first_view(pump, TR_RING + (int)(delivered % 5));
				view.number = 2;
				view.base_round = committed + 1;
				view.base_attempt = committed == 0;
				view.finish = committed == 0;
				view.contributor_count = view.finish ? PEOPLE : 0;
				for (unsigned i = 0; i < PEOPLE; i++)
					view.contributors[i] = i + 1;
				view.participate_from[PEOPLE] = committed + 2;
				view.contribute_from[PEOPLE] = committed + 3;
				view.donor[PEOPLE] = 1;
				pump_install(pump, &view);
				assert_true(walk_all(pump, 2, PEOPLE, UINT32_MAX));
				told_late += strstr(pump->trace, "submitted") != NULL;
			}
			all_are_done(pump, 2, PEOPLE);
			pump_destroy(pump);
			if (over)
				break;
		}
	assert_true(told_late > 20); /* some served in vain, and were told */
}

/* The round begins again: its tags are free, and what was released does not count. */
static void a_death_begins_the_round_again(void **state)
{
	(void)state;
	static const unsigned lags[PEOPLE] = { 2, NEVER, 3, 2 };
	static const unsigned two[PEOPLE] = { 2, 2, 2 };
	for (unsigned delivered = 0; delivered < 160; delivered += 13)
		for (int policy = 0; policy < 3; policy++) {
			struct pump *pump = pump_create(PEOPLE);
			struct pump_view view = first_view(pump, TR_DIRECT);
			view.policy = (Traind__Peer__Policy)policy;
			pump_ready_all(pump);
			pump_install(pump, &view);
			for (unsigned i = 0; i < PEOPLE; i++)
				assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
			walkers_start(lags, PEOPLE);
			assert_false(walk_all(pump, 2, PEOPLE, delivered));
			pump_kill(pump, 3);
			pump_propose(pump, 2);
			view = first_view(pump, TR_DIRECT);
			view.number = 2;
			view.policy = (Traind__Peer__Policy)policy;
			view.count = 3;
			view.restart = true;
			pump_install(pump, &view);
			walkers_start(two, 3);
			for (unsigned i = 0; i < 3; i++) {
				assert_int_equal(pump->members[i].status, TR_ERESTART);
				assert_int_equal(release(pump, i, 0), TR_ERESTART);
				assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
				pump->members[i].decided_count = 0;
				walkers[i].done = pump->members[i].done_count;
			}
			assert_true(walk_all(pump, 3, 3, UINT32_MAX));
			all_are_done(pump, 3, 3);
			pump_destroy(pump);
		}
}

/* All had voted when the first of a scope died, who takes away what the others add: the next one does now. */
static void a_death_after_all_votes_commits(void **state)
{
	(void)state;
	static const unsigned lags[PEOPLE] = { 2, 3, NEVER, 2 };
	for (int dead = 0; dead < 2; dead++) {
		struct pump *pump = begun(PEOPLE, TR_DIRECT);
		walkers_start(lags, PEOPLE);
		walkers[0].closed = true; /* the hub: later */
		assert_true(walk_all(pump, 3, PEOPLE, UINT32_MAX));
		for (unsigned i = 0; i < PEOPLE; i++)
			assert_int_equal(walkers[i].step, STEPS);
		assert_int_equal(pump_close(pump, 0, 0, 0), TR_OK);
		assert_int_equal(pump->members[0].decided_count, 1);
		pump_kill(pump, 0);
		pump_propose(pump, 2);
		struct pump_view view = { .number = 2,
			.base_round = 1,
			.base_attempt = 1,
			.count = 3,
			.peers = { 2, 3, 4 },
			.participate_from = { 1, 1, 1 },
			.contribute_from = { 1, 1, 1 },
			.finish = true,
			.contributors = { 1, 2, 3, 4 },
			.contributor_count = PEOPLE,
			.hub = (uint32_t)dead,
			.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT,
			.segment_bytes = 16 };
		pump_install(pump, &view);
		pump_run(pump);
		all_are_done(pump, 3, PEOPLE);
		pump_destroy(pump);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mesh_releases_as_it_goes),
		cmocka_unit_test(a_joiner_comes_at_any_time),
		cmocka_unit_test(a_death_begins_the_round_again),
		cmocka_unit_test(a_death_after_all_votes_commits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
