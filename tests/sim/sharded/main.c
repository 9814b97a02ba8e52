/* build/bin/sim-sharded --seeds 1..1000 | --seed S [--trace] | --all [--case NAME] [--part K/N]   [--plant NAME]
 *
 * A seed is a mesh and some faults at random instructions; --all is each fault
 * at each instruction, of all kinds of jobs or of one (cases.h has their names), with --part
 * the K-th of N equal parts of these, which processors may share. Prints one line for each run that violates what must be
 * (play.h), and last `runs=N violations=M`. Exit code 1 if M > 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sharded/cases.h"
#include "tests/sim/sharded/play.h"

struct options {
	uint64_t first, last, part, parts; /* of --all */
	const char *name;                  /* the same; NULL: all kinds */
	bool all, trace;
	enum play_plant plant;
};

struct totals {
	uint64_t runs, violations, steps, backs, remeshes, rounds, restarts, struck, sat_out,
	    copied, renewed, carried, checkpoints, ended, taken_back;
};

static int usage(const char *program)
{
	(void)fprintf(stderr,
	    "usage: %s --seeds A..B | --seed S [--trace] | --all [--case NAME] "
	    "[--part K/N]   [--plant NAME]\n",
	    program);
	return 2;
}

static bool parse(int count, char **words, struct options *o)
{
	for (int i = 1; i < count; i++) {
		const char *value = i + 1 < count ? words[i + 1] : "";
		char *end = NULL;
		if (strcmp(words[i], "--trace") == 0) {
			o->trace = true;
			continue;
		}
		if (strcmp(words[i], "--all") == 0) {
			o->all = true;
			continue;
		}
		if (strcmp(words[i], "--plant") == 0) {
			while (o->plant < PLAY_PLANT_COUNT &&
			    strcmp(play_plant_names[o->plant], value) != 0)
				o->plant++;
		} else if (strncmp(words[i], "--seed", 6) == 0) {
			o->first = o->last = strtoull(value, &end, 10);
			if (end != value && strncmp(end, "..", 2) == 0)
				o->last = strtoull(end + 2, NULL, 10);
		} else if (strcmp(words[i], "--case") == 0) {
			o->name = value;
		} else if (strcmp(words[i], "--part") == 0) {
			o->part = strtoull(value, &end, 10);
			o->parts = *end == '/' ? strtoull(end + 1, NULL, 10) : 0;
		} else {
			return false;
		}
		i++;
	}
	return (o->all || (o->first > 0 && o->last >= o->first)) && o->part > 0 &&
	    o->part <= o->parts && o->plant < PLAY_PLANT_COUNT;
}

static void count(struct totals *totals, const struct sim *sim, const struct play *play,
    const char *name)
{
	if (sim->violations > 0)
		(void)printf("%s: %s\n", name, sim->violation);
	totals->runs++;
	totals->violations += sim->violations > 0;
	totals->steps += play->steps_done;
	totals->backs += play->backs;
	totals->remeshes += play->remeshes;
	totals->rounds += sim->rounds;
	totals->restarts += sim->restarts;
	totals->struck += play->struck;
	totals->sat_out += play->sat_out;
	totals->copied += play->copied;
	totals->renewed += play->renewed;
	totals->carried += play->carried;
	totals->checkpoints += play->publications;
	totals->ended += play->ended > 0;
	totals->taken_back += play->taken_back;
}

static struct sim sim;
static struct play play;

static void run(uint64_t seed, const struct options *o, struct totals *totals)
{
	struct play_case what;
	char name[200];
	case_of_seed(seed, &what);
	what.plant = o->plant;
	(void)play_run(&sim, &play, seed, o->trace, &what);
	case_name(&what, name, sizeof(name));
	char line[240];
	(void)snprintf(line, sizeof(line), "seed %lu (%s)", (unsigned long)seed, name);
	count(totals, &sim, &play, line);
}

struct single {
	const struct options *o;
	struct totals *totals;
};

static void on_case(void *arg, const struct play_case *of)
{
	const struct single *single = arg;
	struct play_case what = *of;
	char name[200];
	what.plant = single->o->plant;
	(void)play_run(&sim, &play, CASE_SEED, single->o->trace, &what);
	case_name(&what, name, sizeof(name));
	count(single->totals, &sim, &play, name);
}

int main(int words, char **word)
{
	struct options o = { .part = 1, .parts = 1 };
	struct totals totals = { 0 };
	if (!parse(words, word, &o))
		return usage(word[0]);
	for (uint64_t seed = o.first; !o.all && seed <= o.last; seed++)
		run(seed, &o, &totals);
	struct single single = { &o, &totals };
	if (o.all && !cases_all(&sim, &play, o.name, o.part, o.parts, on_case, &single))
		return usage(word[0]);
	(void)printf("steps=%lu rounds=%lu restarts=%lu faults=%lu "
	             "back_to_checkpoints=%lu meshes=%lu sat_out=%lu copies=%lu renewed=%lu "
	             "carried=%lu checkpoints=%lu ended=%lu taken_back=%lu\n",
	    (unsigned long)totals.steps, (unsigned long)totals.rounds,
	    (unsigned long)totals.restarts, (unsigned long)totals.struck,
	    (unsigned long)totals.backs, (unsigned long)totals.remeshes,
	    (unsigned long)totals.sat_out, (unsigned long)totals.copied,
	    (unsigned long)totals.renewed, (unsigned long)totals.carried,
	    (unsigned long)totals.checkpoints, (unsigned long)totals.ended,
	    (unsigned long)totals.taken_back);
	(void)printf("runs=%lu violations=%lu\n", (unsigned long)totals.runs,
	    (unsigned long)totals.violations);
	return totals.violations > 0;
}
