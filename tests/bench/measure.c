#include "tests/bench/measure.h"

#include <dirent.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	result->huge_mib = measure_huge_mib();
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
