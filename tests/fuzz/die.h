/* What ends a live fuzzer: it says of which input, and aborts, so that libFuzzer keeps that. Static. */
#ifndef TR_TESTS_FUZZ_DIE_H
#define TR_TESTS_FUZZ_DIE_H

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"

static unsigned long live_inputs; /* so far */

static inline void live_die(const char *what)
{
	(void)fprintf(stderr, "live: input %lu: %s\n", live_inputs, what);
	abort();
}

static inline void live_need(tr_status st, const struct tr_error *error, const char *what)
{
	if (st == TR_OK)
		return;
	(void)fprintf(stderr, "live: %s: %s\n", what, error->text);
	abort();
}

#endif
