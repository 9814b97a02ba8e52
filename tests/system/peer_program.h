/* What the programs of tests/system that join a group have in common. */
#ifndef TR_TESTS_PEER_PROGRAM_H
#define TR_TESTS_PEER_PROGRAM_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/coll.h"

static inline void fail(const char *what, tr_status st, const struct tr_error *error)
{
	printf("{\"error\": \"%s\", \"call\": \"%s\", \"text\": \"%s\"}\n", tr_status_name(st),
	    what, error->text);
	exit(1);
}

/* Argument `at` as a number; `otherwise`: there is none. */
static inline uint64_t number_of(int argc, char **argv, int at, uint64_t otherwise)
{
	return argc > at ? strtoull(argv[at], NULL, 10) : otherwise;
}

static inline enum tr_policy policy_of(const char *word)
{
	return strcmp(word, "replay") == 0 ? TR_REPLAY
	    : strcmp(word, "uniform") == 0 ? TR_UNIFORM
	                                   : TR_KEEP;
}

/* What was committed: `contributors` and `wrong` as this program counts them, `sum` over all results so far. */
static inline void say_round(const struct tr_round *round, size_t contributors, unsigned long wrong,
    uint64_t restarts, uint64_t sum)
{
	printf("{\"round\": %" PRIu64 ", \"view\": %" PRIu64
	       ", \"peers\": %u, \"contributors\": %zu, \"wrong\": %lu, \"restarts\": %" PRIu64
	       ", \"partial\": %s, \"sum\": %" PRIu64 "}\n",
	    round->round, round->view, round->peers, contributors, wrong, restarts,
	    round->partial ? "true" : "false", sum);
}

/* state[0]: rounds applied, state[1]: a sum over all results, equal at all: gives a joiner both. */
static inline uint64_t *state_of(tr_group *group)
{
	struct tr_error error = { .text = "no memory" };
	uint64_t *state = tr_alloc(group, 2 * sizeof(*state));
	tr_status st = state == NULL
	    ? TR_ENOMEM
	    : tr_state_add(group, "state", state, 2 * sizeof(*state), &error);
	if (st == TR_OK)
		st = tr_state_ready(group, 0, &error);
	if (st != TR_OK)
		fail("ready", st, &error);
	return state;
}

#endif
