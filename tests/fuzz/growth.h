/* What a process that was spoken to may not keep: descriptors, mapped memory, heap. Static. */
#ifndef TR_TESTS_FUZZ_GROWTH_H
#define TR_TESTS_FUZZ_GROWTH_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

#endif
