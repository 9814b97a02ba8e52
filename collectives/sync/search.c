#include "collectives/sync/search.h"

#include <math.h>

#include "common/limits.h"
#include "common/rng.h"

#define BASE_MOST 64.0
/* Of all steps: so long a race waits for a loss that is a number. */
#define GIVE_UP_PART 0.05
#define LEARNED_PART 0.1

/* Of each race: from 1 / reach to reach, times the base. */
static const double reaches[SEARCH_RACES] = { 16, 4 };

static double within(double x, double least, double most)
{
	return x < least ? least : x > most ? most : x;
}

void search_begin(struct search_state *state, const struct tr_sync_options *o, bool found)
{
	bool wanted = o->lr_search && !found && o->inner_steps > 0 &&
	    o->steps / o->inner_steps >= SEARCH_FEWEST_PERIODS;

	*state = (struct search_state){ .race = wanted ? 1 : 0 };
}

double search_scale(const struct search_state *state, const struct tr_sync_options *o, double base,
    unsigned index, unsigned contributors)
{
	if (contributors < 2 || state->race == 0)
		return base;
	uint64_t place = rng_permute(rng_key(o->seed, state->race, 1), contributors, index);
	double middle = (2 * (double)place + 1) / (double)contributors - 1;

	return within(base * pow(reaches[state->race - 1], middle), 1 / BASE_MOST, BASE_MOST);
}

/* ---- who has won ---- */

static bool known(const struct search_told *t)
{
	return t->asked == 1 && isfinite(t->loss) && t->scale > 0;
}

const struct search_told *search_best(const struct search_told *told, size_t count)
{
	const struct search_told *best = NULL;

	for (size_t i = 0; i < count; i++)
		if (known(&told[i]) && (best == NULL || told[i].loss < best->loss))
			best = &told[i];
	return best;
}

/* ---- which rate ---- */

/* Ascending by rate; how many. */
static size_t sorted(const struct search_told *told, size_t count,
    const struct search_told *by_rate[TR_GROUP_PEERS_MAX])
{
	size_t all = 0;

	for (size_t i = 0; i < count && all < TR_GROUP_PEERS_MAX; i++) {
		size_t at = all;
		if (!known(&told[i]))
			continue;
		for (; at > 0 && by_rate[at - 1]->scale > told[i].scale; at--)
			by_rate[at] = by_rate[at - 1];
		by_rate[at] = &told[i];
		all++;
	}
	return all;
}

/* Each as far from the one before, in the logarithm: nobody who was between them is missing. */
static bool evenly_spaced(const struct search_told *const *of, size_t count)
{
	for (size_t i = 1; i + 1 < count; i++) {
		double even = of[i - 1]->scale * of[i + 1]->scale / (of[i]->scale * of[i]->scale);
		if (!(even > 0.99 && even < 1.01))
			return false;
	}
	return true;
}

/* Of the parabola of least squares through evenly spaced losses, in spacings from the first; at most half of one outside. NAN: it has no lowest point. */
static double lowest_point(const struct search_told *const *of, size_t count)
{
	double middle = ((double)count - 1) / 2, squares = 0, slope = 0, bend = 0, bends = 0;

	for (size_t i = 0; i < count; i++)
		squares += ((double)i - middle) * ((double)i - middle);
	double mean = squares / (double)count;
	for (size_t i = 0; i < count; i++) {
		double x = (double)i - middle, y = of[i]->loss - of[0]->loss;
		slope += x * y / squares;
		bend += (x * x - mean) * y;
		bends += (x * x - mean) * (x * x - mean);
	}
	double curvature = bend / bends;
	return curvature > 0 ? within(middle - slope / (2 * curvature), -0.5, (double)count - 0.5)
	                     : NAN;
}

/* Where the parabola through them is lowest, in quarters of a spacing: square roots have the same bits on every machine. */
static double lowest_rate(const struct search_told *const *of, size_t count, double otherwise)
{
	if (count < 3 || !evenly_spaced(of, count))
		return otherwise;
	double lowest = lowest_point(of, count);
	if (!isfinite(lowest))
		return otherwise;
	long quarters = lround(4 * lowest);
	double quarter = sqrt(sqrt(of[1]->scale / of[0]->scale)), rate = of[0]->scale;
	for (; quarters > 0; quarters--)
		rate *= quarter;
	for (; quarters < 0; quarters++)
		rate /= quarter;
	return rate;
}

/* Over the whole span of the first race losses are no parabola: there the best one's and its neighbours' count. */
static double rate_of(const struct search_told *told, size_t count, uint64_t race)
{
	const struct search_told *by_rate[TR_GROUP_PEERS_MAX], *best = search_best(told, count);
	size_t all = sorted(told, count, by_rate), first = 0;

	if (race > 1)
		return lowest_rate(by_rate, all, best->scale);
	while (first < all && by_rate[first] != best)
		first++;
	bool between = first > 0 && first + 1 < all;
	return between ? lowest_rate(&by_rate[first - 1], 3, best->scale) : best->scale;
}

static void note_highest(const struct search_told *told, size_t count,
    const struct search_told *best, struct search_state *state)
{
	for (size_t i = 0; i < count; i++)
		if (known(&told[i]) &&
		    told[i].loss - best->loss <= LEARNED_PART * fabs(best->loss) &&
		    told[i].scale > state->highest)
			state->highest = told[i].scale;
}

/* ---- races ---- */

static void begin_anew(struct search_state *state, uint64_t race, uint64_t step)
{
	state->race = race;
	state->judged = state->winner = 0;
	state->origin = step;
}

/* Also those whose loss is no number. */
static size_t racers(const struct search_told *told, size_t count)
{
	size_t all = 0;

	for (size_t i = 0; i < count; i++)
		all += told[i].asked != 0 ? 1 : 0;
	return all;
}

static bool nobody_will_tell(const struct tr_sync_options *o, uint64_t step,
    const struct search_state *state)
{
	double waited = (double)(step - state->origin) - (double)o->lr_race_steps;

	return waited >= GIVE_UP_PART * (double)o->steps;
}

static void judge(const struct tr_sync_options *o, const struct search_told *told, size_t count,
    uint64_t step, double *base, struct search_state *state)
{
	const struct search_told *best = search_best(told, count);

	if (best == NULL) { /* nobody was there to tell, or nobody's is a number: again */
		if (nobody_will_tell(o, step, state))
			begin_anew(state, 0, step);
		return;
	}
	double rate = rate_of(told, count, state->race);
	note_highest(told, count, best, state);
	if (state->race < SEARCH_RACES && !(racers(told, count) == 1 && best->scale == *base)) {
		begin_anew(state, state->race + 1, step);
	} else {
		state->judged = 0;
		state->winner = (uint64_t)best->peer;
		rate *= (double)racers(told, count);
		rate = rate < state->highest ? rate : state->highest;
	}
	*base = within(rate, 1 / BASE_MOST, BASE_MOST);
}

void search_control(const struct tr_sync_options *o, const struct search_told *told, size_t count,
    uint64_t step, bool given, double *base, struct search_state *state)
{
	if (state->race == 0)
		return;
	if (state->winner > 0 && given)
		state->race = state->winner = 0;
	else if (state->winner > 0) /* it was lost, and with it what was learned in the race */
		begin_anew(state, 0, step);
	else if (state->judged > 0)
		judge(o, told, count, step, base, state);
	else
		state->judged = step - state->origin >= o->lr_race_steps;
}
