/* What a process that was spoken to may not keep: descriptors, mapped memory, heap. Static.
 *
 *	growth_start();   // when all is there that stays
 *	growth_begin();   // each input
 *	growth_check();   // after it: dies if something was kept
 */
#ifndef TR_TESTS_FUZZ_GROWTH_H
#define TR_TESTS_FUZZ_GROWTH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/die.h"

#define GROWTH_HEAP_MAX (256 << 10) /* over all inputs */

/* sanitizer/allocator_interface.h, which gcc's packages leave out. */
size_t __sanitizer_get_current_allocated_bytes(void);

/* Those that an engine makes; the sanitizer's symbolizer has pipes. `list`: for who has to find the one that is left. */
static unsigned growth_descriptors(bool list)
{
	unsigned count = 0;
	for (int fd = 0; fd < 128; fd++) {
		char path[64], is[64];
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, is, sizeof(is) - 1);
		is[n > 0 ? n : 0] = '\0';
		if (strncmp(is, "socket:", 7) != 0 && strncmp(is, "anon_inode:", 11) != 0 &&
		    strncmp(is, "/memfd:", 7) != 0)
			continue;
		count++;
		if (list)
			(void)fprintf(stderr, "live: %d: %s\n", fd, is);
	}
	return count;
}

static unsigned growth_mapped(void)
{
	char line[512];
	unsigned count = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, "memfd:") != NULL;
	if (maps != NULL)
		(void)fclose(maps);
	return count;
}

static struct {
	unsigned descriptors, mapped;
	size_t heap_before;
	int64_t heap;
} growth;

static void growth_start(void)
{
	growth.descriptors = growth_descriptors(false);
	growth.mapped = growth_mapped();
}

static void growth_begin(void)
{
	live_inputs++;
	growth.heap_before = __sanitizer_get_current_allocated_bytes();
}

static void growth_check(void)
{
	char text[128];
	unsigned descriptors = growth_descriptors(false);
	growth.heap += (int64_t)__sanitizer_get_current_allocated_bytes() -
	    (int64_t)growth.heap_before;
	if (descriptors != growth.descriptors) {
		(void)growth_descriptors(true);
		(void)snprintf(text, sizeof(text), "%u descriptors, %u before", descriptors,
		    growth.descriptors);
		live_die(text);
	}
	if (live_inputs % 64 <= 8 && growth_mapped() != growth.mapped)
		live_die("shared memory stays mapped");
	if (growth.heap > GROWTH_HEAP_MAX) {
		(void)snprintf(text, sizeof(text), "the heap grew by %ld bytes", (long)growth.heap);
		live_die(text);
	}
}

#endif
