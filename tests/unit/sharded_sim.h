/* What tests of sharded jobs in the simulator (tests/sim/sharded/play.h) share. */
#ifndef TR_TESTS_UNIT_SHARDED_SIM_H
#define TR_TESTS_UNIT_SHARDED_SIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/sharded/cases.h"

static struct sim sim;
static struct play play;

static inline void run(const struct play_case *what, uint64_t seed)
{
	char name[200];
	case_name(what, name, sizeof(name));
	if (play_run(&sim, &play, seed, false, what) > 0)
		fail_msg("seed %lu, %s: %s", (unsigned long)seed, name, sim.violation);
}

#ifdef __SANITIZE_THREAD__
#define THREADS_ARE_WATCHED true
#else
#define THREADS_ARE_WATCHED false
#endif

static inline void not_where_threads_are_watched(void **state)
{
	(void)state;
	print_message(
	    "skipped: the thread sanitizer knows no coroutines, and there is one thread\n");
	skip();
}

#endif
