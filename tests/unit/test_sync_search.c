/* What members that search for a learning rate decide by what they told each other (collectives/sync/search.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "collectives/sync/search.h"

enum { H = 10, STEPS = 1000, MEMBERS = 5 };

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
	f.options.lr_race_steps = 30;
	f.options.lr_search = true;
	search_begin(&f.state, &f.options, found);
	return f;
}

static void commit(struct fixture *f, bool given)
{
	f->step += H;
	search_control(&f->options, f->told, MEMBERS, f->step, given, &f->base, &f->state);
	memset(f->told, 0, sizeof(f->told));
}

/* Whoever asks whether a race is under way takes it for a reason not to save anything. */
static void there_is_no_race_without_a_search(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	assert_true(f.state.race == 1);
	f.options.lr_search = false;
	search_begin(&f.state, &f.options, false);
	assert_true(f.state.race == 0);
}

static void run_until_judged(struct fixture *f)
{
	while (f->state.judged == 0) {
		assert_true(f->step < STEPS && f->state.winner == 0);
		commit(f, false);
	}
}

static void tell(struct fixture *f, unsigned member, double scale, double loss)
{
	f->told[member] = (struct search_told){ .asked = 1,
		.peer = 100.0 + member,
		.scale = scale,
		.loss = loss };
}

/* Ascending, over what is lowest. */
static void scales_of(struct fixture *f, double base, unsigned members, double *scales)
{
	for (unsigned i = 0; i < members; i++) {
		double scale = search_scale(&f->state, &f->options, base, i, members);
		unsigned at = i;
		for (; at > 0 && scales[at - 1] > scale; at--)
			scales[at] = scales[at - 1];
		scales[at] = scale;
	}
}

static void rates_of_a_race_are_the_middles_of_cells(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	double scales[5];
	scales_of(&f, 2, 4, scales);
	for (unsigned i = 0; i < 4; i++) /* cells of a factor of 4, of [1/16, 16] */
		assert_true(fabs(scales[i] - 2 * pow(4, i) / 8) < 1e-9);
	assert_true(
	    search_scale(&f.state, &f.options, 0.5, 0, 1) == 0.5); /* alone there is no race */
	f.state.race = 2;
	scales_of(&f, 1, 2, scales);
	assert_true(fabs(scales[0] - 0.5) < 1e-9 && fabs(scales[1] - 2) < 1e-9);
	scales_of(&f, 64, 5, scales);
	assert_true(scales[4] == 64); /* held within 64 */
}

static void the_second_race_begins_anew_and_its_winner_gives_what_it_has(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	run_until_judged(&f);
	assert_true(f.step == 30 && f.state.origin == 0);
	tell(&f, 0, 2, 2.7);
	tell(&f, 1, 0.5, 2.5);
	commit(&f, false);
	assert_true(f.state.race == 2 && f.state.winner == 0 && f.base == 0.5);
	assert_true(f.state.origin == 40 && f.state.judged == 0);
	run_until_judged(&f);
	assert_int_equal(f.step, 70);
	tell(&f, 0, 0.25, 2.1);
	tell(&f, 2, 1, 2);
	commit(&f, false);
	assert_true(f.state.race == 2 && f.state.winner == 102 && f.state.judged == 0);
	assert_true(f.base == 2); /* 1, of two; the first race went as far */
	commit(&f, true);
	assert_true(f.state.race == 0 && f.state.winner == 0 && f.state.origin == 40);
	assert_true(f.base == 2);
	commit(&f, true);
	assert_true(f.state.race == 0 && f.base == 2); /* for good */
}

static void who_races_alone_goes_on(void **state)
{
	(void)state;
	for (unsigned others = 0; others < 2; others++) {
		struct fixture f = begun(STEPS, false);
		run_until_judged(&f);
		tell(&f, 0, 1, 3);
		f.told[1].asked = others ? -1 : 0; /* its loss is no number: then it is not alone */
		commit(&f, false);
		assert_true(f.state.race == 1 + others && f.state.winner == (others ? 0 : 100));
		assert_true(f.base == 1 && f.state.origin == (others ? f.step : 0));
	}
	struct fixture f = begun(STEPS, false);
	run_until_judged(&f);
	tell(&f, 0, 8, 3); /* it was one of several: the others are lost */
	commit(&f, false);
	assert_true(f.state.race == 2 && f.base == 8);
}

static void a_winner_that_is_lost_is_a_new_beginning(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	f.state.race = 2;
	run_until_judged(&f);
	tell(&f, 1, 2, 2);
	commit(&f, false);
	assert_true(f.state.winner == 101 && f.base == 2);
	commit(&f, false);
	assert_true(f.state.race == 0 && f.state.origin == f.step && f.base == 2);
}

static void a_race_that_nobody_can_judge_goes_on(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	run_until_judged(&f);
	tell(&f, 0, 1, NAN);
	commit(&f, false);
	assert_true(f.state.judged == 1 && f.state.race == 1 && f.base == 1);
	tell(&f, 1, 1e6, 2); /* held within 64 */
	commit(&f, false);
	assert_true(f.state.race == 2 && f.base == 64);
}

static void a_race_that_nobody_ever_judges_ends(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	while (f.state.race > 0 && f.step < STEPS)
		commit(&f, false);
	assert_int_equal(f.step, 80); /* a race and 5 % */
	assert_true(f.base == 1 && f.state.origin == 80);
}

static bool near(double one, double other)
{
	return fabs(one / other - 1) < 1e-9;
}

/* The base of a race, with losses of members whose rates are a factor of 4 apart. */
static double base_after(uint64_t race, unsigned members, const double *losses)
{
	struct fixture f = begun(STEPS, false);
	f.state.race = race;
	f.state.highest = 64;
	run_until_judged(&f);
	for (unsigned i = 0; i < members; i++)
		tell(&f, (i + 1) % members, pow(4, (double)i) / 16, losses[i]);
	commit(&f, false);
	return 16 * f.base / (race > 1 ? members : 1);
}

#define BASE(race, ...)                                                      \
	base_after(race, sizeof((double[]){ __VA_ARGS__ }) / sizeof(double), \
	    (double[]){ __VA_ARGS__ })

static void the_base_is_where_the_parabola_is_lowest(void **state)
{
	(void)state;
	for (uint64_t race = 1; race <= 2; race++) {
		assert_true(near(BASE(race, 3, 2, 3), 4));
		assert_true(
		    near(BASE(race, 3, 2, 2.5), 4 * sqrt(2))); /* a sixth of a cell: one quarter */
		assert_true(near(BASE(race, 2.5, 2, 3), 4 / sqrt(2)));
		assert_true(
		    near(BASE(race, 3, 2, 2 + 1e-9), 8) && near(BASE(race, 2 + 1e-9, 2, 3), 2));
		assert_true(near(BASE(race, 4, 3), 4)); /* no parabola */
	}
	assert_true(
	    near(BASE(1, 2, 3, 4), 1) && near(BASE(1, 4, 3, 2), 16)); /* at the edge: as it is */
	/* Half a cell beyond the edge at most; and where it has no lowest point, the best one's. */
	assert_true(near(BASE(2, 2, 2.5, 3.5), 0.5) && near(BASE(2, 3.5, 2.5, 2), 32));
	assert_true(near(BASE(2, 2, 3, 2.5), 1));
}

static void the_second_race_goes_by_all_losses_and_the_first_by_three(void **state)
{
	(void)state;
	/* (x - 1)^2 for x = 0 to 4, but that the third one had less luck, or more: a quarter of a spacing, and a whole one. */
	assert_true(near(BASE(2, 1, 0, 0.9, 4, 9), 4));
	assert_true(near(BASE(2, 1, 0, -0.1, 4, 9), 4 * sqrt(2)));
	assert_true(near(BASE(1, 1, 0, -0.1, 4, 9), 8));
}

static void the_base_is_no_higher_than_where_somebody_learned(void **state)
{
	(void)state;
	for (unsigned own = 0; own < 2; own++) {
		struct fixture f = begun(STEPS, false);
		f.state.race = 2;
		f.state.highest = own ? 0 : 2.5;
		run_until_judged(&f);
		tell(&f, 0, 0.5, 3);
		tell(&f, 1, 1, 2);
		tell(&f, 2, 2, 2.15);
		tell(&f, 3, 4, 2.3); /* more than a tenth above */
		tell(&f, 4, 8, 4);
		commit(&f, false);
		assert_true(f.base == (own ? 2 : 2.5));
	}
}

static void a_rate_that_is_missing_is_not_made_up(void **state)
{
	(void)state;
	struct fixture f = begun(STEPS, false);
	f.state.race = 2;
	f.state.highest = 64;
	run_until_judged(&f);
	tell(&f, 0, 1, 3);
	tell(&f, 1, 2, 2);
	tell(&f, 2, 8, 2.1); /* who had 4 was lost */
	commit(&f, false);
	assert_true(f.base == 6);
}

static void no_race_where_it_would_not_pay(void **state)
{
	(void)state;
	assert_int_equal(begun(SEARCH_FEWEST_PERIODS * H - 1, false).state.race, 0);
	assert_int_equal(begun(SEARCH_FEWEST_PERIODS * H, false).state.race, 1);
	assert_int_equal(begun(0, false).state.race, 0); /* without end */
	assert_int_equal(begun(STEPS, true).state.race, 0);
}

/* What is complete may be completed again: a job does so, and then its workers. */
static void options_of_races(void **state)
{
	(void)state;
	struct tr_error error;
	for (unsigned search = 0; search < 2; search++) {
		struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;
		o.mode = TR_SYNC_HDET;
		o.steps = STEPS;
		o.inner_steps = H;
		o.lr_search = search;
		assert_int_equal(tr_sync_complete(&o, 3, &error), TR_OK);
		assert_int_equal(o.lr_race_steps, search ? 30 : 0);
		assert_int_equal(tr_sync_complete(&o, 3, &error), TR_OK);
		o.lr_race_steps = search ? STEPS / 5 + 1 : 1;
		assert_int_equal(tr_sync_complete(&o, 3, &error), TR_EINVAL);
		assert_non_null(
		    strstr(error.text, search ? "a fifth of all steps" : "without lr_search"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_is_no_race_without_a_search),
		cmocka_unit_test(rates_of_a_race_are_the_middles_of_cells),
		cmocka_unit_test(the_second_race_begins_anew_and_its_winner_gives_what_it_has),
		cmocka_unit_test(who_races_alone_goes_on),
		cmocka_unit_test(a_winner_that_is_lost_is_a_new_beginning),
		cmocka_unit_test(a_race_that_nobody_can_judge_goes_on),
		cmocka_unit_test(a_race_that_nobody_ever_judges_ends),
		cmocka_unit_test(the_base_is_where_the_parabola_is_lowest),
		cmocka_unit_test(the_second_race_goes_by_all_losses_and_the_first_by_three),
		cmocka_unit_test(the_base_is_no_higher_than_where_somebody_learned),
		cmocka_unit_test(a_rate_that_is_missing_is_not_made_up),
		cmocka_unit_test(no_race_where_it_would_not_pay),
		cmocka_unit_test(options_of_races),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
