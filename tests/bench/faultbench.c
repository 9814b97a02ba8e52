/* What a death and a join cost the others, through libtraincoll with a real memberd: each trial is a group of its own.
 *
 *	faultbench --fault kill --world 4 --bytes 67108864 --policy keep --trials 5 --json
 *	faultbench --fault join --world 3 --bytes 1048576
 *
 * kill: one process gets SIGKILL halfway through an op. extra_ms: how much later the last survivor's op ended than the median of
 * undisturbed ones; resumed_ms: from the kill to the last survivor's return from the disturbed op.
 * join: one more process comes. takes_part_ms: from its connect to its first round's commit; admitted_ms: to the return of
 * tr_group_join; stall_ms: by how much the longest of the others' rounds while it came was longer than their median round.
 * Medians over the trials, with the least and the most.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
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

#define WORLD_MAX  16
#define ROUNDS_MAX 4096
#define WARM       2
#define CALM       9 /* undisturbed rounds that the median is taken of */
#define AFTER      4 /* rounds after the fault */
#define TRIALS_MAX 101

struct bench {
	const char *memberd, *fault, *policy, *algorithm, *log_level;
	char folder[256], address[128];
	pid_t memberd_pid;
	unsigned world, trials;
	size_t bytes;
	bool json;
};

/* Of one round in one process; 0: not yet. */
struct stamps {
	_Atomic uint64_t start_ns, done_ns, committed_ns;
	unsigned contributors;
};

struct row {
	uint64_t connect_ns, joined_ns;
	_Atomic uint64_t first_round; /* that it committed */
	struct stamps rounds[ROUNDS_MAX];
	uint64_t wrong;
};

struct shared {
	_Atomic uint64_t last_round; /* all end after this one */
	struct row rows[WORLD_MAX + 1];
};

static uint64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* ---- one process ---- */

static void check(tr_status st, const char *call, const struct tr_error *error)
{
	if (st == TR_OK)
		return;
	fprintf(stderr, "faultbench: %s: %s\n", call, error->text);
	_exit(1);
}

/* Until its op is reduced and the round committed; false: the round begins again. */
static bool attempt(tr_group *group, const struct bench *bench, struct row *row, float *data)
{
	struct tr_error error = { 0 };
	struct tr_round round, committed;
	size_t count = bench->bytes / sizeof(float);
	check(tr_round_begin(group, &round, &error), "begin", &error);
	struct stamps *stamps = &row->rounds[round.round % ROUNDS_MAX];
	for (size_t i = 0; i < count; i++)
		data[i] = (float)(i % 16);
	if (stamps->start_ns == 0)
		stamps->start_ns = now_ns();
	unsigned flags = round.index < round.contributors ? TR_CONTRIBUTE : 0;
	tr_status st = tr_allreduce(group, 0, data, count, TR_F32, TR_SUM, flags, &error);
	if (st == TR_OK && !round.receive_state)
		st = tr_wait(group, 0, &error);
	if (st == TR_ERESTART)
		return false;
	check(st, "all-reduce", &error);
	if (round.receive_state)
		check(tr_state_receive(group, &error), "state", &error);
	stamps->done_ns = now_ns();
	st = tr_round_commit(group, NULL, &committed, &error);
	if (st == TR_ERESTART)
		return false;
	check(st, "commit", &error);
	stamps->committed_ns = now_ns();
	stamps->contributors = committed.contributors;
	for (size_t i = 0; i < count && !committed.partial; i += count / 100 + 1)
		row->wrong += data[i] != (float)(i % 16) * (float)committed.contributors;
	if (row->first_round == 0)
		row->first_round = committed.round;
	return true;
}

static void run_process(const struct bench *bench, unsigned trial, struct shared *shared,
    unsigned number)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	struct row *row = &shared->rows[number];
	char name[32];
	tr_group *group;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(name, sizeof(name), "faultbench-%u", trial);
	options.membership = bench->address;
	options.name = name;
	options.size = bench->world;
	options.policy = strcmp(bench->policy, "replay") == 0 ? TR_REPLAY
	    : strcmp(bench->policy, "uniform") == 0           ? TR_UNIFORM
	                                                      : TR_KEEP;
	options.algorithm = strcmp(bench->algorithm, "ring") == 0 ? TR_RING
	    : strcmp(bench->algorithm, "star") == 0               ? TR_STAR
	                                                          : TR_AUTO;
	row->connect_ns = now_ns();
	check(tr_group_join(&options, &group, &error), "join", &error);
	row->joined_ns = now_ns();
	float *data = tr_alloc(group, bench->bytes);
	if (data == NULL)
		_exit(1);
	check(tr_state_ready(group, 0, &error), "ready", &error);
	uint64_t round = 0;
	while (row->first_round == 0 || row->first_round + round < shared->last_round + 1)
		if (attempt(group, bench, row, data))
			round++;
	tr_group_leave(group);
	_exit(row->wrong == 0 ? 0 : 3);
}

/* ---- one trial ---- */

static struct stamps *stamps_of(struct shared *shared, unsigned number, uint64_t round)
{
	return &shared->rows[number].rounds[round % ROUNDS_MAX];
}

static double ms(uint64_t from_ns, uint64_t to_ns)
{
	return ((double)to_ns - (double)from_ns) * 1e-6;
}

static void wait_round(struct shared *shared, const struct bench *bench, uint64_t round, bool begun)
{
	for (unsigned i = 0; i < bench->world; i++) {
		struct stamps *stamps = stamps_of(shared, i, round);
		while ((begun ? stamps->start_ns : stamps->committed_ns) == 0)
			(void)usleep(100);
	}
}

/* Of one process's undisturbed rounds: the op, or the round with its commit. */
static double calm_ms(struct shared *shared, unsigned number, bool whole)
{
	double values[CALM];
	for (unsigned i = 0; i < CALM; i++) {
		struct stamps *stamps = stamps_of(shared, number, WARM + 1 + i);
		values[i] = ms(stamps->start_ns, whole ? stamps->committed_ns : stamps->done_ns);
	}
	qsort(values, CALM, sizeof(double), by_size);
	return values[CALM / 2];
}

struct outcome {
	double calm, extra, resumed; /* kill */
	double admitted, takes_part, stall;
};

static void kill_one(const struct bench *bench, struct shared *shared, const pid_t *pids,
    struct outcome *out)
{
	uint64_t round = WARM + CALM + 1;
	unsigned victim = bench->world - 1;
	wait_round(shared, bench, round - 1, false);
	for (unsigned i = 0; i < bench->world; i++)
		out->calm = fmax(out->calm, calm_ms(shared, i, false));
	wait_round(shared, bench, round, true);
	(void)usleep((useconds_t)(out->calm * 500));
	uint64_t killed_ns = now_ns();
	(void)kill(pids[victim], SIGKILL);
	for (unsigned i = 0; i < victim; i++) {
		struct stamps *stamps = stamps_of(shared, i, round);
		while (stamps->done_ns == 0)
			(void)usleep(100);
		double took = ms(stamps->start_ns, stamps->done_ns);
		out->extra = fmax(out->extra, took - calm_ms(shared, i, false));
		out->resumed = fmax(out->resumed, ms(killed_ns, stamps->done_ns));
	}
}

static pid_t start_process(const struct bench *bench, unsigned trial, struct shared *shared,
    unsigned number)
{
	pid_t pid = fork();
	if (pid == 0)
		run_process(bench, trial, shared, number);
	return pid;
}

static void join_one(const struct bench *bench, unsigned trial, struct shared *shared, pid_t *pids,
    struct outcome *out)
{
	wait_round(shared, bench, WARM + CALM, false);
	pids[bench->world] = start_process(bench, trial, shared, bench->world);
	struct row *row = &shared->rows[bench->world];
	while (row->first_round == 0)
		(void)usleep(100);
	uint64_t first = row->first_round;
	shared->last_round = first + 2 * AFTER;
	wait_round(shared, bench, first + 1, false);
	out->admitted = ms(row->connect_ns, row->joined_ns);
	out->takes_part = ms(row->connect_ns, stamps_of(shared, bench->world, first)->committed_ns);
	for (unsigned i = 0; i < bench->world; i++) {
		double calm = calm_ms(shared, i, true);
		out->calm = fmax(out->calm, calm);
		for (uint64_t r = WARM + CALM; r <= first + 1; r++) {
			struct stamps *stamps = stamps_of(shared, i, r);
			if (stamps->committed_ns >= row->connect_ns)
				out->stall = fmax(out->stall,
				    ms(stamps->start_ns, stamps->committed_ns) - calm);
		}
	}
}

static bool run_trial(const struct bench *bench, unsigned trial, struct outcome *out)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool kills = strcmp(bench->fault, "kill") == 0, well = true;
	pid_t pids[WORLD_MAX + 1] = { 0 };
	if (shared == MAP_FAILED)
		return false;
	*out = (struct outcome){ 0 };
	shared->last_round = kills ? WARM + CALM + 1 + AFTER : UINT64_MAX / 2;
	for (unsigned i = 0; i < bench->world; i++)
		pids[i] = start_process(bench, trial, shared, i);
	if (kills)
		kill_one(bench, shared, pids, out);
	else
		join_one(bench, trial, shared, pids, out);
	for (unsigned i = 0; i <= bench->world; i++) {
		int status = 0;
		if (pids[i] == 0)
			continue;
		(void)waitpid(pids[i], &status, 0);
		well = well && (status == 0 || (kills && i == bench->world - 1));
	}
	(void)munmap(shared, sizeof(*shared));
	return well;
}

static void print_figure(const struct bench *bench, const char *name, double *values)
{
	qsort(values, bench->trials, sizeof(double), by_size);
	printf(bench->json ? ", \"%s\": [%.2f, %.2f, %.2f]" : "  %s %.2f (%.2f to %.2f)", name,
	    values[bench->trials / 2], values[0], values[bench->trials - 1]);
}

static void print_outcomes(const struct bench *bench, const struct outcome *outcomes)
{
	static const struct {
		const char *name;
		size_t offset;
		bool kill, join;
	} figures[] = {
		{ "calm_ms", offsetof(struct outcome, calm), true, true },
		{ "extra_ms", offsetof(struct outcome, extra), true, false },
		{ "resumed_ms", offsetof(struct outcome, resumed), true, false },
		{ "admitted_ms", offsetof(struct outcome, admitted), false, true },
		{ "takes_part_ms", offsetof(struct outcome, takes_part), false, true },
		{ "stall_ms", offsetof(struct outcome, stall), false, true },
	};
	bool kills = strcmp(bench->fault, "kill") == 0;
	printf(bench->json ? "{\"fault\": \"%s\", \"world\": %u, \"bytes\": %zu, \"policy\": "
	                     "\"%s\", \"algo\": \"%s\", \"trials\": %u"
	                   : "%s, %u processes, %zu bytes, %s, %s, %u trials:",
	    bench->fault, bench->world, bench->bytes, bench->policy, bench->algorithm,
	    bench->trials);
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		double values[TRIALS_MAX];
		if (kills ? !figures[i].kill : !figures[i].join)
			continue;
		for (unsigned t = 0; t < bench->trials; t++)
			memcpy(&values[t], (const char *)&outcomes[t] + figures[i].offset,
			    sizeof(double));
		print_figure(bench, figures[i].name, values);
	}
	printf(bench->json ? "}\n" : "\n");
}

/* ---- memberd ---- */

static bool start_memberd(struct bench *bench)
{
	char path[300];
	(void)snprintf(bench->folder, sizeof(bench->folder), "%s/faultbench-XXXXXX",
	    getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
	if (mkdtemp(bench->folder) == NULL)
		return false;
	bench->memberd_pid = fork();
	if (bench->memberd_pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execl(bench->memberd, "memberd", "--listen", "127.0.0.1:0", "--dir",
		    bench->folder, "--log-level", bench->log_level, (char *)NULL);
		fprintf(stderr, "faultbench: cannot run %s: %s\n", bench->memberd, strerror(errno));
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
		fprintf(stderr, "faultbench: cannot remove %s\n", bench->folder);
}

static bool parse(struct bench *bench, int argc, char **argv)
{
	static const struct option options[] = { { "fault", 1, NULL, 'f' },
		{ "world", 1, NULL, 'w' }, { "bytes", 1, NULL, 'b' }, { "policy", 1, NULL, 'p' },
		{ "algo", 1, NULL, 'a' }, { "trials", 1, NULL, 't' }, { "json", 0, NULL, 'j' },
		{ "memberd", 1, NULL, 'm' }, { "log-level", 1, NULL, 'l' }, { 0 } };
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (o == 'f')
			bench->fault = optarg;
		else if (o == 'w')
			bench->world = (unsigned)strtoul(optarg, NULL, 10);
		else if (o == 'b')
			bench->bytes = strtoull(optarg, NULL, 10);
		else if (o == 'p')
			bench->policy = optarg;
		else if (o == 'a')
			bench->algorithm = optarg;
		else if (o == 't')
			bench->trials = (unsigned)strtoul(optarg, NULL, 10);
		else if (o == 'j')
			bench->json = true;
		else if (o == 'm')
			bench->memberd = optarg;
		else if (o == 'l')
			bench->log_level = optarg;
		else
			return false;
	}
	bool kills = strcmp(bench->fault, "kill") == 0;
	return optind == argc && (kills || strcmp(bench->fault, "join") == 0) &&
	    bench->world >= (kills ? 2 : 1) && bench->world <= WORLD_MAX && bench->bytes >= 4 &&
	    bench->trials >= 1 && bench->trials <= TRIALS_MAX;
}

int main(int argc, char **argv)
{
	struct bench bench = { .fault = "kill",
		.policy = "keep",
		.algorithm = "auto",
		.log_level = "error",
		.world = 4,
		.bytes = 64u << 20,
		.trials = 5 };
	struct outcome outcomes[TRIALS_MAX];
	char beside[512] = "";
	ssize_t length = readlink("/proc/self/exe", beside, sizeof(beside) - 16);
	if (length > 0)
		(void)snprintf(strrchr(beside, '/') + 1, 16, "memberd");
	bench.memberd = beside;
	if (!parse(&bench, argc, argv)) {
		fprintf(stderr,
		    "usage: faultbench [--fault kill|join] [--world N] [--bytes B] [--policy "
		    "keep|uniform|replay] [--algo ring|star|auto] [--trials T] [--json] [--memberd "
		    "PATH] [--log-level LEVEL]\n");
		return 2;
	}
	if (!start_memberd(&bench)) {
		fprintf(stderr, "faultbench: memberd did not start\n");
		return 1;
	}
	bool well = true;
	for (unsigned t = 0; t < bench.trials; t++)
		well = run_trial(&bench, t, &outcomes[t]) && well;
	print_outcomes(&bench, outcomes);
	stop_memberd(&bench);
	return well ? 0 : 1;
}
