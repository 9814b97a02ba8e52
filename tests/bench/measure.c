#include "tests/bench/measure.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* After sys/socket.h. The kernel's own header: libc's struct tcp_info ends before tcpi_bytes_sent. */
#include <linux/tcp.h>

static double clock_s(clockid_t clock)
{
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double measure_now_s(void)
{
	return clock_s(CLOCK_MONOTONIC);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double measure_median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), by_size);
	return values[count / 2];
}

/* ---- sockets ---- */

int64_t measure_wire_bytes_of(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
		return -1;
	return (int64_t)info.tcpi_bytes_sent;
}

/* Calls `each` for every descriptor of the process. */
static void each_descriptor(void (*each)(int fd, void *arg), void *arg)
{
	DIR *folder = opendir("/proc/self/fd");
	if (folder == NULL)
		return;
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
		if (entry->d_name[0] != '.')
			each((int)strtol(entry->d_name, NULL, 10), arg);
	(void)closedir(folder);
}

static _Atomic uint64_t closed_bytes;

void measure_wire_add(uint64_t bytes)
{
	closed_bytes += bytes;
}

static void add_wire_bytes(int fd, void *arg)
{
	int64_t bytes = measure_wire_bytes_of(fd);
	*(uint64_t *)arg += bytes > 0 ? (uint64_t)bytes : 0;
}

uint64_t measure_wire_bytes(void)
{
	uint64_t sum = closed_bytes;
	each_descriptor(add_wire_bytes, &sum);
	return sum;
}

struct busiest {
	int64_t bytes;
	char *name;
};

static void take_congestion(int fd, void *arg)
{
	struct busiest *busiest = arg;
	int64_t bytes = measure_wire_bytes_of(fd);
	socklen_t length = 16;
	if (bytes > busiest->bytes &&
	    getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, busiest->name, &length) == 0)
		busiest->bytes = bytes;
}

/* ---- memory ---- */

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

static double huge_mib(void)
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

/* ---- the run ---- */

struct run {
	const struct measure_case *c;
	const struct measure_calls *calls;
	struct measure_result *result;
	char *data;
	size_t slice; /* bytes from one op's memory to the next one's */
	double *op_s, *round_s;
	unsigned timed, timed_rounds;
};

static void one_round(struct run *run, unsigned ops, bool timed, bool whole)
{
	const struct measure_calls *calls = run->calls;
	for (unsigned i = 0; i < ops; i++)
		measure_fill(run->c->dtype, run->data + i * run->slice, run->c->bytes, run->c->rank);
	if (calls->begin != NULL)
		calls->begin(calls->arg);
	calls->meet(calls->arg);
	double cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
	double start = measure_now_s(), before = start;
	for (unsigned i = 0; i < ops; i++) {
		calls->op(calls->arg, i, run->data + i * run->slice, run->c->bytes);
		double now = measure_now_s();
		if (timed)
			run->op_s[run->timed++] = now - before;
		if (run->result->each < MEASURE_EACH_MAX)
			run->result->each_s[run->result->each++] = now - before;
		before = now;
	}
	if (calls->end != NULL)
		calls->end(calls->arg);
	if (whole)
		run->round_s[run->timed_rounds++] = measure_now_s() - start;
	if (timed)
		run->result->cpu_s += clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu_s;
	for (unsigned i = 0; i < ops; i++) {
		const void *slice = run->data + i * run->slice;
		run->result->right = run->result->right &&
		    (run->c->no_sums || measure_is_sum(run->c, slice));
		run->result->digest = measure_digest(run->result->digest, slice, run->c->bytes);
	}
}

void measure_run(const struct measure_case *c, const struct measure_calls *calls,
    struct measure_result *result)
{
	bool small = c->bytes < MEASURE_SMALL_BYTES;
	unsigned ops = !small ? 1 : c->iterations < MEASURE_BATCH ? c->iterations : MEASURE_BATCH;
	unsigned rounds = (c->iterations + ops - 1) / ops;
	struct run run = { .c = c, .calls = calls, .result = result };
	run.slice = (c->bytes + 63) / 64 * 64;
	run.op_s = calloc((size_t)rounds * ops, sizeof(double));
	run.round_s = calloc(rounds + MEASURE_BATCH, sizeof(double));
	run.data = calls->memory(calls->arg, run.slice * ops);
	if (run.op_s == NULL || run.round_s == NULL || run.data == NULL) {
		fprintf(stderr, "bench: out of memory\n");
		_exit(1);
	}
	result->right = true;
	result->caller_mib = (double)(run.slice * ops) / (1 << 20);
	memset(run.data, 1, run.slice * ops);
	calls->meet(calls->arg);
	struct measure_memory memory;
	measure_memory_begin(&memory);
	for (unsigned i = 0; i < MEASURE_WARM_ROUNDS; i++)
		one_round(&run, ops, false, false);
	calls->meet(calls->arg); /* all that was sent has left */
	uint64_t wire_bytes = measure_wire_bytes();
	for (unsigned i = 0; i < rounds; i++)
		one_round(&run, ops, true, !small && calls->end != NULL);
	calls->meet(calls->arg);
	result->wire_bytes = (double)(measure_wire_bytes() - wire_bytes) / (rounds * ops);
	result->cpu_s /= rounds * ops;
	for (unsigned i = 0; small && calls->end != NULL && i < MEASURE_BATCH; i++)
		one_round(&run, 1, false, true);
	result->rss_mib = measure_memory_grown_mib(&memory);
	result->huge_mib = huge_mib();
	each_descriptor(take_congestion, &(struct busiest){ 0, result->congestion });
	result->median_s = measure_median(run.op_s, run.timed);
	result->round_s = run.timed_rounds > 0 ? measure_median(run.round_s, run.timed_rounds) : 0;
	result->done = true;
	free(run.op_s);
	free(run.round_s);
}

void measure_worst(const struct measure_case *c, const struct measure_result *results,
    struct measure_result *worst)
{
	*worst = (struct measure_result){ .right = true,
		.done = true,
		.huge_mib = results[0].huge_mib };
	(void)memcpy(worst->congestion, results[0].congestion, sizeof(worst->congestion));
	for (unsigned i = 0; i < c->world; i++) {
		const struct measure_result *r = &results[i];
		worst->median_s = fmax(worst->median_s, r->median_s);
		worst->round_s = fmax(worst->round_s, r->round_s);
		worst->cpu_s += r->cpu_s;
		worst->wire_bytes = fmax(worst->wire_bytes, r->wire_bytes);
		worst->caller_mib = fmax(worst->caller_mib, r->caller_mib);
		worst->rss_mib = fmax(worst->rss_mib, r->rss_mib);
		worst->huge_mib = fmin(worst->huge_mib, r->huge_mib);
		worst->right = worst->right && r->right && r->digest == results[0].digest;
	}
}

double measure_busbw_gbps(const struct measure_case *c, double seconds)
{
	return (double)c->bytes / seconds / 1e9 * 2 * (c->world - 1) / c->world;
}

/* Of each op the slowest process's time. */
static void print_each(const struct measure_case *c, const struct measure_result *results)
{
	printf("\"each_s\": [");
	for (unsigned k = 0; k < results[0].each; k++) {
		double slowest = 0;
		for (unsigned i = 0; i < c->world; i++)
			slowest = fmax(slowest, results[i].each_s[k]);
		printf("%s%.6f", k > 0 ? ", " : "", slowest);
	}
	printf("], \"reason_first\": \"%s\", \"reason\": \"%s\", ", results[0].reason_first,
	    results[0].reason);
}

void measure_print(const char *head, const struct measure_case *c,
    const struct measure_result *results)
{
	struct measure_result worst;
	measure_worst(c, results, &worst);
	printf("{%s, \"world\": %u, \"bytes\": %zu, \"dtype\": \"%s\", \"median_s\": %.9f, ", head,
	    c->world, c->bytes, measure_dtype_names[c->dtype], worst.median_s);
	if (worst.round_s > 0)
		printf("\"round_s\": %.9f, ", worst.round_s);
	if (c->each)
		print_each(c, results);
	printf("\"algbw_gbps\": %.6f, \"busbw_gbps\": %.6f, \"identical\": %s, \"rss_mib\": %.1f, "
	       "\"caller_mib\": %.1f, \"huge_mib\": %.1f, \"cpu_s\": %.9f, \"wire_bytes\": %.0f, "
	       "\"congestion\": "
	       "\"%s\"}\n",
	    (double)c->bytes / worst.median_s / 1e9, measure_busbw_gbps(c, worst.median_s),
	    worst.right ? "true" : "false", worst.rss_mib, worst.caller_mib, worst.huge_mib,
	    worst.cpu_s, worst.wire_bytes, worst.congestion);
	(void)fflush(stdout);
}
