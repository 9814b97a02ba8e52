#include "collectives/sync/search.h"

#include <math.h>

#include "common/rng.h"

#define BASE_MOST  64.0
#define POINT_STEP 0.3
/* Of all steps: so long a race waits for a loss that is a number. */
#define GIVE_UP_PART 0.05
/* Of the steps so far; of those to come. */
#define WINDOW_PAST 0.4
#define WINDOW_LEFT 0.3

/* The lowest rate and the highest, over the base, and the part of all steps at which it ends. */
static const struct {
	double low, high, until;
} races[SEARCH_RACES] = { { 1.0 / 27, 1, 0.03 }, { 1.0 / 3, 3, 0.05 } };

double search_point(unsigned i)
{
	return 1 + POINT_STEP * ((double)i - 1);
}

static double within(double x, double least, double most)
{
	return x < least ? least : x > most ? most : x;
}

/* ---- windows ---- */

static void open_window(struct search_state *state, const struct tr_sync_options *o, uint64_t step)
{
	double wanted = ceil(WINDOW_PAST * (double)step);
	double left = o->steps > step ? WINDOW_LEFT * (double)(o->steps - step) : 0;

	if (o->steps > 0 && left < wanted)
		wanted = left;
	uint64_t length = wanted >= 1 ? (uint64_t)wanted : 1;
	if (length < 2 * o->inner_steps)
		length = 2 * o->inner_steps;
	state->race = state->judged = state->winner = state->probed = 0;
	state->anchored = step;
	state->due = step + length;
}

static void begin_race(struct search_state *state, uint64_t race)
{
	state->race = race;
	state->judged = state->winner = 0;
}

void search_begin(struct search_state *state, const struct tr_sync_options *o, bool found)
{
	bool wanted = !found && o->inner_steps > 0 &&
	    o->steps / o->inner_steps >= SEARCH_FEWEST_PERIODS;

	if (wanted)
		begin_race(state, 1);
	else
		open_window(state, o, 0);
}

/* ---- races ---- */

double search_scale(const struct search_state *state, const struct tr_sync_options *o, double base,
    unsigned index, unsigned contributors)
{
	if (contributors < 2 || state->race == 0)
		return base;
	uint64_t place = rng_permute(rng_key(o->seed, state->race, 1), contributors, index);
	double low = races[state->race - 1].low, high = races[state->race - 1].high;
	double scale = base * low * pow(high / low, (double)place / ((double)contributors - 1));

	return within(scale, 1 / BASE_MOST, BASE_MOST);
}

static void name_winner(const struct search_told *told, size_t count, struct search_state *state,
    double *base)
{
	const struct search_told *best = NULL;

	for (size_t i = 0; i < count; i++)
		if (told[i].asked == 1 && isfinite(told[i].loss[0]) && told[i].scale > 0 &&
		    (best == NULL || told[i].loss[0] < best->loss[0]))
			best = &told[i];
	if (best == NULL) /* nobody was there to tell, or nobody's is a number: again */
		return;
	state->judged = 0;
	state->winner = (uint64_t)best->peer;
	*base = within(best->scale, 1 / BASE_MOST, BASE_MOST);
}

/* The winner has given its parameters, or was lost, and with it what was learned in the race: the base stays. */
static void end_race(const struct tr_sync_options *o, uint64_t step, struct search_state *state)
{
	if (state->race < SEARCH_RACES)
		begin_race(state, state->race + 1);
	else
		open_window(state, o, step);
}

static void judge(const struct tr_sync_options *o, const struct search_told *told, size_t count,
    uint64_t step, double *base, struct search_state *state)
{
	name_winner(told, count, state, base);
	if (state->winner == 0 &&
	    (double)step >= (races[state->race - 1].until + GIVE_UP_PART) * (double)o->steps)
		open_window(state, o, step); /* nobody's loss is a number */
}

static void race_on(const struct tr_sync_options *o, const struct search_told *told, size_t count,
    uint64_t step, double *base, struct search_state *state)
{
	if (state->winner > 0)
		end_race(o, step, state);
	else if (state->judged > 0)
		judge(o, told, count, step, base, state);
	else
		state->judged = (double)step >= races[state->race - 1].until * (double)o->steps;
}

/* ---- the line ---- */

/* Lowest point of the parabola through the losses at 1 - h, 1 and 1 + h. */
static double lowest(const double loss[SEARCH_POINTS])
{
	double slope = (loss[2] - loss[0]) / (2 * POINT_STEP);
	double curvature = (loss[2] + loss[0] - 2 * loss[1]) / (POINT_STEP * POINT_STEP);

	if (!(curvature > 0))
		return slope < 0 ? 2 : 0.5;
	return within(1 - slope / curvature, 0.5, 2);
}

static void follow_line(const struct search_told *told, size_t count, double *base)
{
	double sum[SEARCH_POINTS] = { 0 };
	bool known = false;

	for (size_t i = 0; i < count; i++) {
		if (told[i].asked != SEARCH_POINTS)
			continue;
		known = true;
		for (unsigned p = 0; p < SEARCH_POINTS; p++)
			sum[p] += told[i].loss[p];
	}
	if (!known || !isfinite(sum[0]) || !isfinite(sum[1]) || !isfinite(sum[2]))
		return;
	double c = lowest(sum);
	*base = within(*base * (c > 1 ? c * c : c), 1 / BASE_MOST, BASE_MOST);
}

void search_control(const struct tr_sync_options *o, const struct search_told *told, size_t count,
    uint64_t step, double *base, struct search_state *state)
{
	if (state->race > 0) {
		race_on(o, told, count, step, base, state);
		return;
	}
	if (state->probed > 0) {
		follow_line(told, count, base);
		open_window(state, o, state->probed);
	}
	if (step >= state->due)
		state->probed = step;
}
