/* How much may be held while an input of a fuzzer in one thread goes on (one_thread.h's `look`). Static. */
#ifndef TR_TESTS_FUZZ_HELD_H
#define TR_TESTS_FUZZ_HELD_H

#include "tests/fuzz/growth.h"

#define HELD_MAX ((size_t)48 << 20)

static void held_look(void)
{
	if (__sanitizer_get_current_allocated_bytes() > growth.heap_before + HELD_MAX)
		live_die("it holds too much for what it was told");
}

#endif
