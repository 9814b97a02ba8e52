/* Measures all-reduce through libtraincoll: starts a memberd and N processes for each case and prints one JSON object a
 * case, or a line for people. Comma lists make more cases.
 *
 *	collbench --world 2,4 --bytes 4,65536,67108864 --algo ring,star --iters 20 --json
 *
 * median_s: from tr_allreduce to tr_wait's return, the slowest process's median. round_s: the same up to the commit,
 * which is one more exchange. algbw = bytes / median_s; busbw = algbw * 2(n-1)/n, comparable between world sizes.
 * identical: every process held the same bits, the right ones, in every round.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/coll.h"

#define WORLD_MAX   64
#define CASES_MAX   32
#define WARM_ROUNDS 2

struct bench {
	const char *memberd; /* path */
	char folder[256], address[128];
	pid_t memberd_pid;
	size_t worlds[CASES_MAX], bytes[CASES_MAX];
	const char *algorithms[CASES_MAX];
	unsigned world_count, bytes_count, algorithm_count;
	unsigned iterations;
	bool json;
};

struct bench_case {
	unsigned world, number;
	size_t bytes;
	const char *algorithm;
};

/* What a process measured, in memory that it shares with the parent. */
struct result {
	double median_s, round_s;
	uint64_t digest;
	bool right, done;
};

static double now_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), by_size);
	return values[count / 2];
}

/* ---- one process ---- */

static void check(tr_status st, const char *call, const struct tr_error *error)
{
	if (st == TR_OK)
		return;
	fprintf(stderr, "collbench: %s: %s\n", call, error->text);
	_exit(1);
}

static uint64_t fold(uint64_t digest, const float *data, size_t count)
{
	const uint32_t *words = (const uint32_t *)(const void *)data;
	for (size_t i = 0; i < count; i++)
		digest = (digest ^ words[i]) * 0x9e3779b97f4a7c15u;
	return digest;
}

/* Small whole numbers: any order of addition gives the same bits, and the sum is known. */
static float input(unsigned index, size_t element)
{
	return (float)((index * 3 + element) % 16);
}

static bool sum_is_right(const float *data, size_t count, unsigned world)
{
	for (size_t i = 0; i < count; i += count / 1000 + 1) {
		float sum = 0;
		for (unsigned k = 0; k < world; k++)
			sum += input(k, i);
		if (data[i] != sum)
			return false;
	}
	return true;
}

static void run_process(const struct bench *bench, const struct bench_case *c, struct result *result)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	char name[32];
	tr_group *group;
	size_t count = c->bytes / sizeof(float) > 0 ? c->bytes / sizeof(float) : 1;
	double *op_s = calloc(bench->iterations, sizeof(double));
	double *round_s = calloc(bench->iterations, sizeof(double));
	(void)snprintf(name, sizeof(name), "collbench-%u", c->number);
	options.membership = bench->address;
	options.name = name;
	options.size = c->world;
	options.algorithm = strcmp(c->algorithm, "ring") == 0 ? TR_RING
	    : strcmp(c->algorithm, "star") == 0               ? TR_STAR
	                                                      : TR_AUTO;
	check(tr_group_join(&options, &group, &error), "join", &error);
	float *data = tr_alloc(group, count * sizeof(float));
	if (data == NULL || op_s == NULL || round_s == NULL)
		_exit(1);
	check(tr_state_ready(group, 0, &error), "ready", &error);
	result->right = true;
	for (unsigned i = 0; i < bench->iterations + WARM_ROUNDS; i++) {
		struct tr_round round;
		check(tr_round_begin(group, &round, &error), "begin", &error);
		for (size_t e = 0; e < count; e++)
			data[e] = input(round.index, e);
		double start = now_s();
		check(tr_allreduce(group, 0, data, count, TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
		    "all-reduce", &error);
		check(tr_wait(group, 0, &error), "wait", &error);
		double reduced = now_s();
		check(tr_round_commit(group, NULL, &round, &error), "commit", &error);
		if (i >= WARM_ROUNDS) {
			op_s[i - WARM_ROUNDS] = reduced - start;
			round_s[i - WARM_ROUNDS] = now_s() - start;
		}
		result->right = result->right && sum_is_right(data, count, c->world);
		result->digest = fold(result->digest, data, count);
	}
	result->median_s = median(op_s, bench->iterations);
	result->round_s = median(round_s, bench->iterations);
	result->done = true;
	tr_group_leave(group);
	_exit(0);
}

/* ---- one case ---- */

static double memcpy_bytes_per_s(size_t bytes)
{
	char *from = malloc(bytes), *to = malloc(bytes);
	double best = INFINITY;
	if (from == NULL || to == NULL)
		return 0;
	memset(from, 1, bytes);
	memset(to, 2, bytes);
	for (int i = 0; i < 5; i++) {
		double start = now_s();
		memcpy(to, from, bytes);
		__asm__ volatile("" : : "r"(to) : "memory");
		best = fmin(best, now_s() - start);
	}
	free(from);
	free(to);
	return (double)bytes / best;
}

static void print_case(const struct bench *bench, const struct bench_case *c,
    const struct result *results)
{
	double op_s = 0, round_s = 0;
	bool identical = true;
	for (unsigned i = 0; i < c->world; i++) {
		op_s = fmax(op_s, results[i].median_s);
		round_s = fmax(round_s, results[i].round_s);
		identical = identical && results[i].right && results[i].digest == results[0].digest;
	}
	double algbw = (double)c->bytes / op_s / 1e9;
	double busbw = algbw * 2 * (c->world - 1) / c->world;
	double copy = memcpy_bytes_per_s(c->bytes < (1u << 20) ? 1u << 20 : c->bytes) / 1e9;
	if (bench->json)
		printf("{\"world\": %u, \"bytes\": %zu, \"algo\": \"%s\", \"transport\": \"tcp\", "
		       "\"median_s\": %.9f, \"round_s\": %.9f, \"algbw_gbps\": %.4f, "
		       "\"busbw_gbps\": %.4f, \"memcpy_gbps\": %.2f, \"identical\": %s}\n",
		    c->world, c->bytes, c->algorithm, op_s, round_s, algbw, busbw, copy,
		    identical ? "true" : "false");
	else
		printf("%2u processes, %9zu bytes, %-4s: %10.1f us, with commit %10.1f us; busbw "
		       "%.3f GB/s "
		       "(memcpy %.1f); results %s\n",
		    c->world, c->bytes, c->algorithm, op_s * 1e6, round_s * 1e6, busbw, copy,
		    identical ? "identical" : "DIFFER");
	(void)fflush(stdout);
}

/* true: all processes ended well. */
static bool run_case(const struct bench *bench, const struct bench_case *c)
{
	size_t bytes = sizeof(struct result) * WORLD_MAX;
	struct result *results = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[WORLD_MAX];
	bool well = results != MAP_FAILED;
	for (unsigned i = 0; well && i < c->world; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_process(bench, c, &results[i]);
		}
	}
	for (unsigned i = 0; well && i < c->world; i++)
		(void)waitpid(pids[i], NULL, 0);
	for (unsigned i = 0; well && i < c->world; i++)
		well = results[i].done;
	if (well)
		print_case(bench, c, results);
	if (results != MAP_FAILED)
		(void)munmap(results, bytes);
	return well;
}

/* ---- memberd ---- */

static bool start_memberd(struct bench *bench)
{
	char path[300];
	(void)snprintf(bench->folder, sizeof(bench->folder), "/tmp/collbench-XXXXXX");
	if (mkdtemp(bench->folder) == NULL)
		return false;
	bench->memberd_pid = fork();
	if (bench->memberd_pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execl(bench->memberd, "memberd", "--listen", "127.0.0.1:0", "--dir",
		    bench->folder, "--log-level", "error", (char *)NULL);
		fprintf(stderr, "collbench: cannot run %s: %s\n", bench->memberd, strerror(errno));
		_exit(1);
	}
	(void)snprintf(path, sizeof(path), "%s/address", bench->folder);
	for (;;) {
		FILE *file = fopen(path, "r");
		bool there = file != NULL &&
		    fgets(bench->address, sizeof(bench->address), file) != NULL &&
		    strchr(bench->address, ':') != NULL;
		if (file != NULL)
			(void)fclose(file);
		if (there)
			break;
		if (waitpid(bench->memberd_pid, NULL, WNOHANG) != 0)
			return false;
		(void)usleep(2000);
	}
	bench->address[strcspn(bench->address, "\n")] = '\0';
	return true;
}

static void stop_memberd(const struct bench *bench)
{
	char command[300];
	(void)kill(bench->memberd_pid, SIGTERM);
	(void)waitpid(bench->memberd_pid, NULL, 0);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", bench->folder);
	if (system(command) != 0)
		fprintf(stderr, "collbench: cannot remove %s\n", bench->folder);
}

/* ---- options ---- */

static int usage(FILE *to)
{
	fprintf(to,
	    "usage: collbench [--world N,...] [--bytes B,...] [--algo ring|star|auto,...] [--iters "
	    "I] "
	    "[--json] [--memberd PATH]\n");
	return to == stdout ? 0 : 2;
}

static unsigned parse_sizes(char *list, size_t *values, size_t least, size_t most)
{
	unsigned count = 0;
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
		char *end;
		values[count] = strtoull(word, &end, 10);
		if (*end != '\0' || values[count] < least || values[count] > most)
			return 0;
		if (++count == CASES_MAX)
			break;
	}
	return count;
}

static unsigned parse_algorithms(char *list, const char **values)
{
	unsigned count = 0;
	for (char *word = strtok(list, ","); word != NULL && count < CASES_MAX;
	     word = strtok(NULL, ",")) {
		if (strcmp(word, "ring") != 0 && strcmp(word, "star") != 0 &&
		    strcmp(word, "auto") != 0)
			return 0;
		values[count++] = word;
	}
	return count;
}

static bool parse(struct bench *bench, int argc, char **argv)
{
	static const struct option options[] = { { "world", 1, NULL, 'w' },
		{ "bytes", 1, NULL, 'b' }, { "algo", 1, NULL, 'a' }, { "iters", 1, NULL, 'i' },
		{ "json", 0, NULL, 'j' }, { "memberd", 1, NULL, 'm' }, { 0 } };
	size_t iterations[CASES_MAX] = { 20 };
	unsigned iterations_given = 1;
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (o == 'w')
			bench->world_count = parse_sizes(optarg, bench->worlds, 1, WORLD_MAX);
		else if (o == 'b')
			bench->bytes_count = parse_sizes(optarg, bench->bytes, 4, (size_t)8 << 30);
		else if (o == 'a')
			bench->algorithm_count = parse_algorithms(optarg, bench->algorithms);
		else if (o == 'i')
			iterations_given = parse_sizes(optarg, iterations, 1, 1000000);
		else if (o == 'j')
			bench->json = true;
		else if (o == 'm')
			bench->memberd = optarg;
		else if (o == '?')
			return false;
	}
	bench->iterations = (unsigned)iterations[0];
	return optind == argc && iterations_given == 1 && bench->world_count > 0 &&
	    bench->bytes_count > 0 && bench->algorithm_count > 0;
}

int main(int argc, char **argv)
{
	struct bench bench = { .worlds = { 2 },
		.bytes = { 64u << 20 },
		.algorithms = { "auto" },
		.world_count = 1,
		.bytes_count = 1,
		.algorithm_count = 1 };
	char beside[512] = "";
	ssize_t length = readlink("/proc/self/exe", beside, sizeof(beside) - 16);
	if (length > 0)
		(void)snprintf(strrchr(beside, '/') + 1, 16, "memberd");
	bench.memberd = beside;
	if (!parse(&bench, argc, argv))
		return usage(stderr);
	if (!start_memberd(&bench)) {
		fprintf(stderr, "collbench: memberd did not start\n");
		return 1;
	}
	bool well = true;
	unsigned number = 0;
	for (unsigned a = 0; a < bench.algorithm_count; a++)
		for (unsigned w = 0; w < bench.world_count; w++)
			for (unsigned b = 0; b < bench.bytes_count; b++) {
				struct bench_case c = { (unsigned)bench.worlds[w], number++,
					bench.bytes[b], bench.algorithms[a] };
				well = run_case(&bench, &c) && well;
			}
	stop_memberd(&bench);
	return well ? 0 : 1;
}
