/* What members that search for a learning rate decide by what they told each other (collectives/sync/search.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "collectives/sync/search.h"

enum { H = 10, STEPS = 1000, MEMBERS = 3 };

struct fixture {
	struct tr_sync_options options;
	struct search_state state;
	struct search_told told[MEMBERS];
	double base;
	uint64_t step;
};

static struct fixture begun(uint64_t steps, bool found)
{
	struct fixture f = { .options = TR_SYNC_OPTIONS_INIT, .base = 1 };
	f.options.mode = TR_SYNC_HDET;
	f.options.steps = steps;
	f.options.inner_steps = H;
	search_begin(&f.state, &f.options, found);
	return f;
}

static void commit(struct fixture *f)
{
	f->step += H;
	search_control(&f->options, f->told, MEMBERS, f->step, &f->base, &f->state);
	memset(f->told, 0, sizeof(f->told));
}

static void run_until_judged(struct fixture *f)
{
	while (f->state.judged == 0) {
		assert_true(f->step < STEPS && f->state.winner == 0);
		commit(f);
	}
}

static void tell(struct fixture *f, unsigned member, double scale, double loss)
{
	f->told[member] = (struct search_told){ .asked = 1,
		.peer = 100.0 + member,
		.scale = scale,
		.loss = { loss } };
}

static void rates_of_a_race_span_it(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	double low = INFINITY, high = 0;
	for (unsigned i = 0; i < 5; i++) {
		double scale = search_scale(&f.state, &f.options, 2, i, 5);
		low = fmin(low, scale);
		high = fmax(high, scale);
	}
	assert_true(fabs(low * 27 - 2) < 1e-9 && fabs(high - 2) < 1e-9);
	assert_true(
	    search_scale(&f.state, &f.options, 0.5, 0, 1) == 0.5); /* alone there is no race */
	f.state.race = 2;
	low = fmin(search_scale(&f.state, &f.options, 1, 0, 2),
	    search_scale(&f.state, &f.options, 1, 1, 2));
	assert_true(fabs(low * 3 - 1) < 1e-9);
}

static void two_races_name_the_least_loss(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	run_until_judged(&f);
	assert_int_equal(f.step, 30);
	tell(&f, 0, 1, 3);
	tell(&f, 1, 0.2, 2.5);
	commit(&f);
	assert_true(f.state.winner == 101 && f.state.judged == 0 && f.base == 0.2);
	assert_int_equal(f.state.race, 1);
	commit(&f); /* it has given its parameters */
	assert_true(f.state.race == 2 && f.state.winner == 0 && f.base == 0.2);
	run_until_judged(&f);
	assert_int_equal(f.step, 60);
	tell(&f, 2, 0.5, 2);
	commit(&f);
	commit(&f);
	assert_true(f.state.race == 0 && f.base == 0.5 && f.state.anchored == 80);
}

static void a_race_that_nobody_can_judge_goes_on(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	run_until_judged(&f);
	tell(&f, 0, 1, NAN);
	commit(&f);
	assert_true(f.state.judged == 1 && f.state.winner == 0 && f.base == 1);
	tell(&f, 1, 1e6, 2); /* held within 64 */
	commit(&f);
	assert_true(f.state.winner == 101 && f.base == 64);
}

static void no_race_where_it_would_not_pay(void **state)
{
	(void)state;
	assert_int_equal(begun(SEARCH_FEWEST_PERIODS * H - 1, false).state.race, 0);
	assert_int_equal(begun(SEARCH_FEWEST_PERIODS * H, false).state.race, 1);
	assert_int_equal(begun(0, false).state.race, 0); /* without end */
	assert_int_equal(begun(STEPS, true).state.race, 0);
}

/* Losses along the line of a parabola that is lowest at c. */
static double base_after(double c, double curvature)
{
	struct fixture f = begun(STEPS, true);
	while (f.state.probed == 0)
		commit(&f);
	assert_int_equal(f.step, 2 * H); /* the shortest window */
	for (unsigned m = 0; m < 2; m++) {
		f.told[m].asked = SEARCH_POINTS;
		for (unsigned p = 0; p < SEARCH_POINTS; p++)
			f.told[m].loss[p] = m + 2 + curvature * pow(search_point(p) - c, 2);
	}
	commit(&f);
	assert_true(f.state.anchored == 2 * H && f.state.probed == 0);
	return f.base;
}

static void the_line_moves_the_base(void **state)
{
	(void)state;
	assert_true(fabs(base_after(1, 2) - 1) < 1e-9);
	assert_true(fabs(base_after(0.8, 2) - 0.8) < 1e-9);
	assert_true(fabs(base_after(1.3, 2) - 1.69) < 1e-9); /* squared */
	assert_true(base_after(9, 2) == 4 && base_after(-9, 2) == 0.5);
	assert_true(base_after(9, -1) == 0.5 && base_after(-9, -1) == 4); /* no lowest point */
}

static void nothing_told_leaves_the_base(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, true);
	while (f.state.probed == 0)
		commit(&f);
	f.told[0] = (struct search_told){ .asked = SEARCH_POINTS, .loss = { 1, INFINITY, 1 } };
	commit(&f);
	assert_true(f.base == 1 && f.state.probed == 0 && f.state.anchored == 2 * H);
}

static void windows_grow_and_shrink(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, true);
	uint64_t longest = 0, last = 0, before = f.state.anchored;
	while (f.step < STEPS) {
		commit(&f);
		if (f.state.anchored == before)
			continue;
		last = f.state.anchored - before;
		longest = last > longest ? last : longest;
		before = f.state.anchored;
	}
	assert_true(longest > 150 && longest < 250); /* 0.4 x 430 = 0.3 x 570 */
	assert_int_equal(last, 2 * H);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_of_a_race_span_it),
		cmocka_unit_test(two_races_name_the_least_loss),
		cmocka_unit_test(a_race_that_nobody_can_judge_goes_on),
		cmocka_unit_test(no_race_where_it_would_not_pay),
		cmocka_unit_test(the_line_moves_the_base),
		cmocka_unit_test(nothing_told_leaves_the_base),
		cmocka_unit_test(windows_grow_and_shrink),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
