/* Memory that a bench's buffers have, and by how much a process grew over it. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bench/measure.h"

/* The line of that file that begins with `key`, in MiB. */
static double line_mib(const char *path, const char *key)
{
	char line[256];
	double kib = 0;
	FILE *file = fopen(path, "r");
	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtod(line + strlen(key), NULL);
	(void)fclose(file);
	return kib / 1024;
}

/* ---- of resident memory, what is not this process's own ---- */

#define OWN_FILES_MAX 64

struct own_file {
	unsigned long inode;
	double mib; /* of its largest mapping */
};

struct own {
	double elsewhere_mib;
	struct own_file files[OWN_FILES_MAX];
	unsigned file_count;
	bool library, writable; /* the mapping whose lines are read */
	unsigned long inode;
	double rss_mib;
};

/* The library's memory: what a process only reads is a peer's, and what it maps twice, as the engine does the caller's, is there once. */
static void own_library(struct own *own)
{
	unsigned i = 0;
	if (!own->writable) {
		own->elsewhere_mib += own->rss_mib;
		return;
	}
	while (i < own->file_count && own->files[i].inode != own->inode)
		i++;
	if (i == OWN_FILES_MAX)
		return;
	if (i == own->file_count)
		own->files[own->file_count++] = (struct own_file){ own->inode, 0 };
	own->elsewhere_mib += fmin(own->files[i].mib, own->rss_mib);
	own->files[i].mib = fmax(own->files[i].mib, own->rss_mib);
}

/* All else that processes share counts by parts. */
static void own_line(struct own *own, const char *line)
{
	char flags[8];
	double kib;
	if (sscanf(line, "%*x-%*x %7s %*x %*x:%*x %lu", flags, &own->inode) == 2) {
		own->library = strstr(line, "/memfd:traind-") != NULL;
		own->writable = flags[1] == 'w';
	} else if (sscanf(line, "Rss: %lf", &kib) == 1) {
		own->rss_mib = kib / 1024;
	} else if (sscanf(line, "Pss: %lf", &kib) == 1) {
		if (own->library)
			own_library(own);
		else
			own->elsewhere_mib += own->rss_mib - kib / 1024;
	}
}

static double elsewhere_mib(void)
{
	char line[512];
	struct own own = { 0 };
	FILE *file = fopen("/proc/self/smaps", "r");
	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL)
		own_line(&own, line);
	(void)fclose(file);
	return own.elsewhere_mib;
}

double measure_huge_mib(void)
{
	const char *path = "/proc/self/smaps_rollup";
	return line_mib(path, "AnonHugePages:") + line_mib(path, "ShmemPmdMapped:");
}

void *measure_memory_get(size_t bytes)
{
	const char *pages = getenv("TR_BENCH_PAGES");
	if (bytes < MEASURE_HUGE_BYTES || (pages != NULL && strcmp(pages, "plain") == 0))
		return aligned_alloc(64, (bytes + 63) / 64 * 64);
	bytes = (bytes + MEASURE_HUGE_BYTES - 1) / MEASURE_HUGE_BYTES * MEASURE_HUGE_BYTES;
	void *memory = aligned_alloc(MEASURE_HUGE_BYTES, bytes);
	if (memory != NULL)
		(void)madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

void measure_memory_collapse(void *memory, size_t bytes)
{
	size_t misplaced = -(uintptr_t)memory % MEASURE_HUGE_BYTES;
	if (bytes < misplaced + MEASURE_HUGE_BYTES)
		return;
	char *first = (char *)memory + misplaced;
	bytes = (bytes - misplaced) / MEASURE_HUGE_BYTES * MEASURE_HUGE_BYTES;
	for (size_t i = 0; i < bytes; i += MEASURE_HUGE_BYTES)
		first[i] = 1; /* what has no page at all cannot be made a huge one */
	(void)madvise(first, bytes, MADV_COLLAPSE);
}

/* From here on VmHWM is the peak of what follows. */
static void forget_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "5", 1) != 1)
		fprintf(stderr,
		    "bench: the peak of resident memory cannot be reset: rss_mib holds the start's "
		    "too\n");
	(void)close(fd);
}

/* The library maps large buffers of the caller's a second time, in a thread of its own: what is resident stands still for a while when that is over. */
static void settle(void)
{
	double resident = 0, before = -1;
	for (unsigned i = 0; i < 100 && resident != before; i++) {
		before = resident;
		(void)usleep(50000);
		resident = line_mib("/proc/self/status", "VmRSS:");
	}
}

void measure_memory_begin(struct measure_memory *memory)
{
	settle();
	forget_peak();
	*memory = (struct measure_memory){ line_mib("/proc/self/status", "VmRSS:"),
		elsewhere_mib() };
}

double measure_memory_grown_mib(const struct measure_memory *memory)
{
	double grown = line_mib("/proc/self/status", "VmHWM:") - memory->rss_mib;
	return fmax(0, grown - fmax(0, elsewhere_mib() - memory->elsewhere_mib));
}
