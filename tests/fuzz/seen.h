/* That all is as before, after each input of a fuzzer in one thread (one_thread.h), and that not too much is held meanwhile. Static. */
#ifndef TR_TESTS_FUZZ_SEEN_H
#define TR_TESTS_FUZZ_SEEN_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/growth.h"
#include "tests/fuzz/one_thread.h"

#define SEEN_HELD_MAX   ((size_t)48 << 20)
#define SEEN_GROWTH_MAX (256 << 10) /* over all inputs */

static struct {
	unsigned descriptors, mapped;
	size_t heap_before;
	int64_t heap_growth;
} seen;

static void seen_look(void)
{
	if (__sanitizer_get_current_allocated_bytes() > seen.heap_before + SEEN_HELD_MAX)
		live_die("it holds too much for what it was told");
}

/* What is here by now stays. */
static void seen_start(void)
{
	seen.descriptors = growth_descriptors(false);
	seen.mapped = growth_mapped();
}

static void seen_begin(void)
{
	live_inputs++;
	seen.heap_before = __sanitizer_get_current_allocated_bytes();
}

static void seen_check(void)
{
	char text[128];
	unsigned descriptors = growth_descriptors(false);
	seen.heap_growth += (int64_t)__sanitizer_get_current_allocated_bytes() -
	    (int64_t)seen.heap_before;
	if (descriptors != seen.descriptors) {
		(void)growth_descriptors(true);
		(void)snprintf(text, sizeof(text), "%u descriptors, %u before", descriptors,
		    seen.descriptors);
		live_die(text);
	}
	if (live_inputs % 64 <= 8 && growth_mapped() != seen.mapped)
		live_die("shared memory stays mapped");
	if (seen.heap_growth > SEEN_GROWTH_MAX) {
		(void)snprintf(text, sizeof(text), "the heap grew by %ld bytes",
		    (long)seen.heap_growth);
		live_die(text);
	}
}

#endif
