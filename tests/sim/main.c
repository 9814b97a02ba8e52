/* build/bin/sim --seeds 1..1000 [--every 8] | --seed S [--trace] | --named   [--plant NAME] [--pairs]
 *
 * Prints one line for each seed that violates an invariant, with --pairs the table of (state x fault), and last `seeds=N violations=M`. Exit code 1 if M > 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

struct options {
	uint64_t first, last, every;
	bool trace, named, pairs;
	enum sim_plant plant;
};

struct totals {
	uint64_t seeds, violations, rounds, views, restarts, joins, lefts, deferrals, released,
	    shown, gathered, events, shared, taken_back, spoilt, ended;
};

static int usage(const char *program)
{
	fprintf(stderr,
	    "usage: %s --seeds A..B [--every N] | --seed S [--trace] | --named   [--plant NAME] "
	    "[--pairs]\n",
	    program);
	return 2;
}

static bool parse(int count, char **words, struct options *options)
{
	for (int i = 1; i < count; i++) {
		const char *value = i + 1 < count ? words[i + 1] : "";
		char *end = NULL;
		if (strcmp(words[i], "--trace") == 0) {
			options->trace = true;
		} else if (strcmp(words[i], "--named") == 0) {
			options->named = true;
		} else if (strcmp(words[i], "--pairs") == 0) {
			options->pairs = true;
		} else if (strcmp(words[i], "--seed") == 0 || strcmp(words[i], "--seeds") == 0) {
			options->first = options->last = strtoull(value, &end, 10);
			if (end != value && strncmp(end, "..", 2) == 0)
				options->last = strtoull(end + 2, &end, 10);
			if (*value == '\0' || *end != '\0')
				return false;
			i++;
		} else if (strcmp(words[i], "--every") == 0) {
			options->every = strtoull(value, &end, 10);
			if (*value == '\0' || *end != '\0' || options->every == 0)
				return false;
			i++;
		} else if (strcmp(words[i], "--plant") == 0) {
			options->plant = plant_parse(value);
			if (options->plant == PLANT_COUNT)
				return false;
			i++;
		} else {
			return false;
		}
	}
	return options->named || (options->last >= options->first && options->last > 0);
}

static void run(uint64_t seed, const struct options *options, struct totals *totals,
    const char *name)
{
	static struct sim sim;

	if (sim_run(&sim, seed, options->trace, options->plant) > 0) {
		printf("seed %lu%s%s: %s\n", (unsigned long)seed, name ? " " : "", name ? name : "",
		    sim.violation);
		totals->violations++;
	}
	totals->seeds++;
	totals->rounds += sim.rounds;
	totals->views += sim.views;
	totals->restarts += sim.restarts;
	totals->joins += sim.joins;
	totals->lefts += sim.lefts;
	totals->deferrals += sim.deferrals;
	totals->released += sim.released;
	totals->shown += sim.shown;
	totals->gathered += sim.gathered;
	totals->events += sim.events;
	totals->shared += sim.way.shared;
	totals->taken_back += sim.way.taken_back;
	totals->spoilt += sim.way.spoilt;
	totals->ended += sim.way.ended;
}

int main(int count, char **words)
{
	struct options options = { .every = 1 };
	struct totals totals = { 0 };

	if (!parse(count, words, &options))
		return usage(words[0]);
	for (size_t i = 0; options.named && i < sim_seed_count; i++)
		run(sim_seeds[i].seed, &options, &totals, sim_seeds[i].name);
	for (uint64_t seed = options.first; !options.named && seed <= options.last;
	     seed += options.every)
		run(seed, &options, &totals, NULL);
	if (options.pairs)
		cover_print();
	printf("events=%lu rounds=%lu views=%lu restarts=%lu joins=%lu lefts=%lu deferrals=%lu "
	       "released=%lu "
	       "shown=%lu gathered=%lu\n",
	    (unsigned long)totals.events, (unsigned long)totals.rounds, (unsigned long)totals.views,
	    (unsigned long)totals.restarts, (unsigned long)totals.joins,
	    (unsigned long)totals.lefts, (unsigned long)totals.deferrals,
	    (unsigned long)totals.released, (unsigned long)totals.shown,
	    (unsigned long)totals.gathered);
	if (totals.shared > 0)
		printf("states in pieces: shared=%lu taken-back=%lu spoilt=%lu given-up=%lu\n",
		    (unsigned long)totals.shared, (unsigned long)totals.taken_back,
		    (unsigned long)totals.spoilt, (unsigned long)totals.ended);
	printf("seeds=%lu violations=%lu\n", (unsigned long)totals.seeds,
	    (unsigned long)totals.violations);
	return totals.violations > 0;
}
