/* Players in turn (daemon/worker/turns.h): one at a time, all at each meeting, and to the end when one stops. Also work that is cut into more parts than there are threads, or flushes subnormal numbers (pool.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/float_mode.h"
#include "daemon/worker/pool.h"
#include "daemon/worker/turns.h"

enum { PLAYERS = 8, MEETINGS = 50, NEVER = MEETINGS };

/* Without locks or atomics: that one runs at a time is what is tested (with the thread sanitizer, too). */
struct game {
	struct turns *turns;
	unsigned players, running, meetings, met[PLAYERS], ended;
	unsigned stopper, stops_at; /* before its meeting */
	unsigned refuses_at;        /* the meeting itself says so */
};

static bool meet(void *arg)
{
	struct game *g = arg;
	for (unsigned k = 0; k < g->players; k++)
		assert_int_equal(g->met[k], g->meetings);
	return g->meetings++ != g->refuses_at;
}

static bool play(void *arg, unsigned player)
{
	struct game *g = arg;
	for (unsigned i = 0; i < MEETINGS; i++) {
		assert_int_equal(g->running++, 0);
		bool stops = player == g->stopper && i == g->stops_at;
		g->met[player] = i;
		g->running--;
		if (stops || !turns_meet(g->turns, player, meet, g))
			return false;
	}
	g->ended++;
	return true;
}

static void start(struct game *g)
{
	g->running = g->meetings = g->ended = 0;
	memset(g->met, 0xff, sizeof(g->met));
}

static void all_meet_each_time(void **state)
{
	(void)state;
	for (unsigned players = 1; players <= PLAYERS; players++) {
		struct game g = { .players = players, .stops_at = NEVER, .refuses_at = NEVER };
		assert_int_equal(turns_create(players, play, &g, &g.turns, NULL), TR_OK);
		for (unsigned i = 0; i < 3; i++) {
			start(&g);
			assert_true(turns_run(g.turns));
			assert_true(g.meetings == MEETINGS && g.ended == players);
		}
		turns_destroy(g.turns);
	}
}

static void one_stops_all(void **state)
{
	(void)state;
	struct game g = { .players = PLAYERS, .refuses_at = NEVER };
	assert_int_equal(turns_create(PLAYERS, play, &g, &g.turns, NULL), TR_OK);
	for (g.stopper = 0; g.stopper < PLAYERS; g.stopper++)
		for (g.stops_at = 0; g.stops_at < MEETINGS; g.stops_at += 7) {
			start(&g);
			assert_false(turns_run(g.turns));
			assert_true(g.meetings == g.stops_at && g.ended == 0);
		}
	g.stops_at = NEVER;
	for (g.refuses_at = 0; g.refuses_at < MEETINGS; g.refuses_at += 7) {
		start(&g);
		assert_false(turns_run(g.turns));
		assert_true(g.meetings == g.refuses_at + 1 && g.ended == 0);
	}
	start(&g);
	assert_true(turns_run(g.turns));
	turns_destroy(g.turns);
}

/* ---- parts ---- */

enum { PARTS = 7 };

struct parts {
	unsigned calls[PARTS], of;
};

static void count_part(void *arg, unsigned part, unsigned parts)
{
	struct parts *p = arg;
	p->calls[part] += parts == p->of;
}

static void each_part_is_done_once(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= PARTS + 2; threads++) {
		struct parts p = { .of = PARTS };
		struct pool *pool;
		assert_int_equal(pool_create_parts(threads, PARTS, &pool, NULL), TR_OK);
		assert_int_equal(pool_threads(pool), PARTS);
		for (unsigned i = 1; i <= 100; i++) {
			pool_run(pool, count_part, &p);
			for (unsigned k = 0; k < PARTS; k++)
				assert_int_equal(p.calls[k], i);
		}
		pool_destroy(pool);
	}
}

struct halves {
	volatile float least; /* that is no subnormal */
	float half[PARTS];
};

static void halve(void *arg, unsigned part, unsigned parts)
{
	struct halves *h = arg;
	(void)parts;
	h->half[part] = h->least / 2;
}

/* In all threads, for this one run, and whatever the caller's own mode is. */
static void subnormal_numbers_are_flushed_where_that_was_asked_for(void **state)
{
	(void)state;
#if !defined(__x86_64__) && !defined(__aarch64__)
	skip();
#endif
	for (unsigned threads = 1; threads <= 3; threads++) {
		struct halves h = { .least = 0x1p-126F };
		struct pool *pool;
		assert_int_equal(pool_create_parts(threads, PARTS, &pool, NULL), TR_OK);
		for (unsigned m = 0; m < 2; m++) {
			unsigned mine = m == 0 ? FLOAT_EXACT : FLOAT_FLUSH;
			assert_int_equal(float_mode_set(mine), FLOAT_EXACT);
			pool_run_flushing(pool, halve, &h);
			bool all = true;
			for (unsigned k = 0; k < PARTS; k++)
				all = all && h.half[k] == 0;
			pool_run(pool, halve, &h);
			unsigned left = float_mode_set(FLOAT_EXACT);
			assert_true(all);
			assert_int_equal(left, mine);
			for (unsigned k = 0; k < PARTS; k++)
				assert_true(h.half[k] == 0x1p-127F);
		}
		pool_destroy(pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_meet_each_time),
		cmocka_unit_test(one_stops_all),
		cmocka_unit_test(each_part_is_done_once),
		cmocka_unit_test(subnormal_numbers_are_flushed_where_that_was_asked_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
