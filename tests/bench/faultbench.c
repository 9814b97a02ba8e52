/* What a death and a join cost the others, through libtraincoll with a real memberd: each trial is a group of its own.
 *
 *	faultbench --fault kill --world 4 --bytes 67108864 --policy keep --trials 5 --json
 *	faultbench --fault join --world 3 --bytes 1048576 --transport tcp --state 16777216 --gradual
 *
 * kill: one process gets SIGKILL halfway through an op. extra_ms: how much later the last survivor's op ended than the median of
 * undisturbed ones; resumed_ms: from the kill to the last survivor's return from the disturbed op.
 * join: one more process comes. takes_part_ms: from its connect to its first round's commit; admitted_ms: to the return of
 * tr_group_join; ready_ms: to tr_state_ready, its memory touched; next_op_ms: by how much the others' first round with it was longer
 * than their median round, next_result_ms: the result of its op; stall_ms: the first of the longest of their rounds while it came;
 * calm_most_ms: of undisturbed ones; settled_ms: of the median of the rounds after the first: what one member more costs in each round, on
 * processors and links that were full.
 * --state: so many bytes come to the newcomer from the others, in its first round, which ends with it, or with --gradual over as many as
 * it takes, units of UNIT_BYTES; state_ms: from its connect until it is there; contributes_ms: until the commit of the first round that counts its input.
 * Medians over the trials, with the least and the most.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/coll.h"
#include "tests/bench/coll_memberd.h"

#define WORLD_MAX  16
#define ROUNDS_MAX 4096
#define WARM       2
#define CALM       9 /* rounds that a median is taken of */
#define AFTER      4 /* rounds after a death */
#define TRIALS_MAX 101
#define UNIT_BYTES ((size_t)256 << 10) /* of a gradual state */
#define STEP       4096                /* bytes from one that is looked at to the next */

struct bench {
	const char *memberd, *fault, *policy, *algorithm, *transport, *log_level, *address;
	unsigned world, trials;
	size_t bytes, state;
	bool gradual, json;
};

/* Of one round in one process; 0: not yet. */
struct stamps {
	_Atomic uint64_t start_ns, done_ns, committed_ns;
	unsigned contributors;
};

struct row {
	uint64_t connect_ns, joined_ns, ready_ns, state_ns;
	_Atomic uint64_t first_round; /* that it committed */
	_Atomic uint64_t whole_round; /* to which it contributed */
	struct stamps rounds[ROUNDS_MAX];
	uint64_t wrong;
};

struct shared {
	_Atomic uint64_t last_round; /* all end after this one */
	struct row rows[WORLD_MAX + 1];
	int news[2]; /* a pipe: each process says that a row has changed, and whoever waits looks again */
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

static void stamp(const struct shared *shared, _Atomic uint64_t *what, uint64_t value)
{
	*what = value;
	while (write(shared->news[1], "", 1) < 0 && errno == EINTR)
		continue;
}

/* Of the state's bytes in each STEP of them. */
static uint8_t state_byte(size_t at)
{
	return (uint8_t)(1 + at / STEP % 251);
}

static uint64_t state_wrong(const struct bench *bench, const uint8_t *state)
{
	uint64_t wrong = 0;
	for (size_t i = 0; i < bench->state; i += STEP)
		wrong += state[i] != state_byte(i);
	return wrong;
}

/* Declares it; who comes later gets it. */
static uint8_t *state_add(tr_group *group, const struct bench *bench, bool newcomer)
{
	struct tr_error error = { 0 };
	uint8_t *state = tr_alloc(group, bench->state);
	if (state == NULL)
		_exit(1);
	for (size_t i = 0; i < bench->state; i += STEP)
		state[i] = newcomer ? 0 : state_byte(i);
	if (!bench->gradual)
		check(tr_state_add(group, "state", state, bench->state, &error), "state", &error);
	for (size_t at = 0, unit = 1; bench->gradual && at < bench->state;
	     at += UNIT_BYTES, unit++) {
		size_t bytes = bench->state - at < UNIT_BYTES ? bench->state - at : UNIT_BYTES;
		char name[32];
		(void)snprintf(name, sizeof(name), "state-%zu", unit);
		check(tr_state_add_gradual(group, name, state + at, bytes, (uint32_t)unit, &error),
		    "state", &error);
	}
	return state;
}

/* false: it goes on without, since it comes gradually and something has come. */
static bool state_receive(tr_group *group, const struct bench *bench)
{
	struct tr_error error = { 0 };
	struct tr_state_progress progress;
	tr_status st = TR_ETIMEDOUT;
	for (uint32_t wait_ms = 0; bench->gradual && st == TR_ETIMEDOUT; wait_ms = 1) {
		st = tr_state_receive_for(group, wait_ms, &progress, &error);
		if (st == TR_ETIMEDOUT && progress.may_defer && progress.kept > 0)
			return false;
	}
	if (!bench->gradual)
		st = tr_state_receive(group, &error);
	if (st == TR_ERESTART)
		return false;
	check(st, "state", &error);
	return true;
}

/* Until its op is reduced and the round committed; false: the round begins again. */
static bool attempt(tr_group *group, const struct bench *bench, const struct shared *shared,
    struct row *row, float *data)
{
	struct tr_error error = { 0 };
	struct tr_round round, committed;
	struct tr_commit commit = { 0 };
	size_t count = bench->bytes / sizeof(float);
	check(tr_round_begin(group, &round, &error), "begin", &error);
	struct stamps *stamps = &row->rounds[round.round % ROUNDS_MAX];
	for (size_t i = 0; i < count; i++)
		data[i] = (float)(i % 16);
	if (stamps->start_ns == 0)
		stamp(shared, &stamps->start_ns, now_ns());
	unsigned flags = round.index < round.contributors ? TR_CONTRIBUTE : 0;
	tr_status st = tr_allreduce(group, 0, data, count, TR_F32, TR_SUM, flags, &error);
	if (st == TR_OK && !round.receive_state)
		st = tr_wait(group, 0, &error);
	if (st == TR_ERESTART)
		return false;
	check(st, "all-reduce", &error);
	if (round.receive_state && !state_receive(group, bench))
		commit.flags = TR_DEFER_STATE;
	else if (row->state_ns == 0)
		row->state_ns = now_ns();
	stamp(shared, &stamps->done_ns, now_ns());
	st = tr_round_commit(group, &commit, &committed, &error);
	if (st == TR_ERESTART)
		return false;
	check(st, "commit", &error);
	stamps->contributors = committed.contributors;
	stamp(shared, &stamps->committed_ns, now_ns());
	for (size_t i = 0; i < count && !committed.partial; i += count / 100 + 1)
		row->wrong += data[i] != (float)(i % 16) * (float)committed.contributors;
	if (row->whole_round == 0 && flags != 0)
		stamp(shared, &row->whole_round, committed.round);
	if (row->first_round == 0)
		stamp(shared, &row->first_round, committed.round);
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
	options.transport = strcmp(bench->transport, "tcp") == 0 ? TR_TRANSPORT_TCP
	    : strcmp(bench->transport, "shm") == 0               ? TR_TRANSPORT_SHM
	                                                         : TR_TRANSPORT_AUTO;
	row->connect_ns = now_ns();
	check(tr_group_join(&options, &group, &error), "join", &error);
	row->joined_ns = now_ns();
	float *data = tr_alloc(group, bench->bytes);
	if (data == NULL)
		_exit(1);
	memset(data, 0, bench->bytes); /* as who has parameters to begin with */
	const uint8_t *state = bench->state > 0 ? state_add(group, bench, number == bench->world)
	                                        : NULL;
	check(tr_state_ready(group, 0, &error), "ready", &error);
	row->ready_ns = now_ns();
	uint64_t round = 0;
	while (row->first_round == 0 || row->first_round + round < shared->last_round + 1)
		if (attempt(group, bench, shared, row, data))
			round++;
	row->wrong += state_wrong(bench, state);
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

/* A trial as its parent sees it. */
struct trial {
	const struct bench *bench;
	struct shared *shared;
	pid_t pids[WORLD_MAX + 1]; /* 0: none */
	int ends[WORLD_MAX + 1];   /* pidfds */
	unsigned number, killed;   /* killed: whose end is no news; WORLD_MAX + 1: nobody's */
};

/* Waits until a process says that a row has changed. false: one ended that nobody killed. */
static bool wait_news(const struct trial *t)
{
	struct pollfd fds[WORLD_MAX + 2] = { { .fd = t->shared->news[0], .events = POLLIN } };
	char news[4096];
	for (unsigned i = 0; i <= WORLD_MAX; i++)
		fds[i + 1] = (struct pollfd){ .fd = t->pids[i] > 0 && i != t->killed ? t->ends[i]
			                                                             : -1,
			.events = POLLIN };
	while (poll(fds, WORLD_MAX + 2, -1) < 0)
		if (errno != EINTR)
			return false;
	if ((fds[0].revents & POLLIN) != 0)
		return read(t->shared->news[0], news, sizeof(news)) > 0;
	fprintf(stderr, "faultbench: a process ended too early\n");
	return false;
}

static bool wait_set(const struct trial *t, const _Atomic uint64_t *what)
{
	while (*what == 0)
		if (!wait_news(t))
			return false;
	return true;
}

static bool wait_round(const struct trial *t, uint64_t round, bool begun)
{
	for (unsigned i = 0; i < t->bench->world; i++) {
		struct stamps *stamps = stamps_of(t->shared, i, round);
		if (!wait_set(t, begun ? &stamps->start_ns : &stamps->committed_ns))
			return false;
	}
	return true;
}

/* Of CALM rounds of one process from `first` on, the median: the op, or the round with its commit. `most`: the longest; may be NULL. */
static double median_ms(struct shared *shared, unsigned number, uint64_t first, bool whole,
    double *most)
{
	double values[CALM];
	for (unsigned i = 0; i < CALM; i++) {
		struct stamps *stamps = stamps_of(shared, number, first + i);
		values[i] = ms(stamps->start_ns, whole ? stamps->committed_ns : stamps->done_ns);
	}
	qsort(values, CALM, sizeof(double), by_size);
	if (most != NULL)
		*most = values[CALM - 1];
	return values[CALM / 2];
}

/* Of its undisturbed rounds. */
static double calm_ms(struct shared *shared, unsigned number, bool whole, double *most)
{
	return median_ms(shared, number, WARM + 1, whole, most);
}

struct outcome {
	double calm, extra, resumed; /* kill */
	double admitted, ready, takes_part, state, contributes;
	double next_op, next_result, stall, calm_most, settled;
};

static bool kill_one(struct trial *t, struct outcome *out)
{
	const struct bench *bench = t->bench;
	uint64_t round = WARM + CALM + 1;
	unsigned victim = bench->world - 1;
	if (!wait_round(t, round - 1, false))
		return false;
	for (unsigned i = 0; i < bench->world; i++)
		out->calm = fmax(out->calm, calm_ms(t->shared, i, false, NULL));
	if (!wait_round(t, round, true))
		return false;
	(void)usleep((useconds_t)(out->calm * 500)); /* half of the op */
	uint64_t killed_ns = now_ns();
	t->killed = victim;
	(void)kill(t->pids[victim], SIGKILL);
	for (unsigned i = 0; i < victim; i++) {
		struct stamps *stamps = stamps_of(t->shared, i, round);
		if (!wait_set(t, &stamps->done_ns))
			return false;
		double took = ms(stamps->start_ns, stamps->done_ns);
		out->extra = fmax(out->extra, took - calm_ms(t->shared, i, false, NULL));
		out->resumed = fmax(out->resumed, ms(killed_ns, stamps->done_ns));
	}
	return true;
}

static bool start_process(struct trial *t, unsigned number)
{
	t->pids[number] = fork();
	if (t->pids[number] == 0)
		run_process(t->bench, t->number, t->shared, number);
	t->ends[number] = t->pids[number] > 0 ? (int)syscall(SYS_pidfd_open, t->pids[number], 0)
	                                      : -1;
	return t->ends[number] >= 0;
}

static bool join_one(struct trial *t, struct outcome *out)
{
	const struct bench *bench = t->bench;
	struct row *row = &t->shared->rows[bench->world];
	if (!wait_round(t, WARM + CALM, false) || !start_process(t, bench->world) ||
	    !wait_set(t, &row->first_round) || !wait_set(t, &row->whole_round))
		return false;
	uint64_t first = row->first_round, whole = row->whole_round;
	t->shared->last_round = whole + CALM + 1;
	if (!wait_round(t, whole + CALM, false))
		return false;
	out->admitted = ms(row->connect_ns, row->joined_ns);
	out->ready = ms(row->connect_ns, row->ready_ns);
	out->takes_part = ms(row->connect_ns,
	    stamps_of(t->shared, bench->world, first)->committed_ns);
	out->state = ms(row->connect_ns, row->state_ns);
	out->contributes = ms(row->connect_ns,
	    stamps_of(t->shared, bench->world, whole)->committed_ns);
	for (unsigned i = 0; i < bench->world; i++) {
		double most, calm = calm_ms(t->shared, i, true, &most);
		const struct stamps *next = stamps_of(t->shared, i, first);
		out->calm = fmax(out->calm, calm);
		out->calm_most = fmax(out->calm_most, most - calm);
		out->next_op = fmax(out->next_op, ms(next->start_ns, next->committed_ns) - calm);
		out->next_result = fmax(out->next_result,
		    ms(next->start_ns, next->done_ns) - calm_ms(t->shared, i, false, NULL));
		out->settled = fmax(out->settled,
		    median_ms(t->shared, i, whole + 1, true, NULL) - calm);
		for (uint64_t r = WARM + CALM; r <= whole + 1; r++) {
			struct stamps *stamps = stamps_of(t->shared, i, r);
			if (stamps->committed_ns >= row->connect_ns)
				out->stall = fmax(out->stall,
				    ms(stamps->start_ns, stamps->committed_ns) - calm);
		}
	}
	return true;
}

/* All processes have ended well, but for the one that was killed. After a trial that failed they are ended. */
static bool end_processes(const struct trial *t, bool well)
{
	for (unsigned i = 0; i <= WORLD_MAX; i++) {
		int status = 0;
		if (t->pids[i] <= 0)
			continue;
		if (!well)
			(void)kill(t->pids[i], SIGKILL);
		(void)waitpid(t->pids[i], &status, 0);
		(void)close(t->ends[i]);
		well = well && (status == 0 || i == t->killed);
	}
	return well;
}

static bool run_trial(const struct bench *bench, unsigned number, struct outcome *out)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct trial t = { bench, shared, { 0 }, { 0 }, number, WORLD_MAX + 1 };
	bool kills = strcmp(bench->fault, "kill") == 0, well = true;
	if (shared == MAP_FAILED || pipe2(shared->news, O_CLOEXEC) != 0)
		return false;
	*out = (struct outcome){ 0 };
	shared->last_round = kills ? WARM + CALM + 1 + AFTER : UINT64_MAX / 2;
	for (unsigned i = 0; well && i < bench->world; i++)
		well = start_process(&t, i);
	well = well && (kills ? kill_one(&t, out) : join_one(&t, out));
	well = end_processes(&t, well);
	(void)close(shared->news[0]);
	(void)close(shared->news[1]);
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
		{ "ready_ms", offsetof(struct outcome, ready), false, true },
		{ "takes_part_ms", offsetof(struct outcome, takes_part), false, true },
		{ "state_ms", offsetof(struct outcome, state), false, true },
		{ "contributes_ms", offsetof(struct outcome, contributes), false, true },
		{ "next_op_ms", offsetof(struct outcome, next_op), false, true },
		{ "next_result_ms", offsetof(struct outcome, next_result), false, true },
		{ "stall_ms", offsetof(struct outcome, stall), false, true },
		{ "calm_most_ms", offsetof(struct outcome, calm_most), false, true },
		{ "settled_ms", offsetof(struct outcome, settled), false, true },
	};
	bool kills = strcmp(bench->fault, "kill") == 0;
	printf(bench->json
	        ? "{\"fault\": \"%s\", \"world\": %u, \"bytes\": %zu, \"policy\": "
	          "\"%s\", \"algo\": \"%s\", \"transport\": \"%s\", \"state\": %zu, \"gradual\": "
	          "%s, \"trials\": %u"
	        : "%s, %u processes, %zu bytes, %s, %s, %s, state %zu, gradual %s, %u trials:",
	    bench->fault, bench->world, bench->bytes, bench->policy, bench->algorithm,
	    bench->transport, bench->state, bench->gradual ? "true" : "false", bench->trials);
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

static bool parse(struct bench *bench, int argc, char **argv)
{
	static const struct option options[] = { { "fault", 1, NULL, 'f' },
		{ "world", 1, NULL, 'w' }, { "bytes", 1, NULL, 'b' }, { "policy", 1, NULL, 'p' },
		{ "algo", 1, NULL, 'a' }, { "transport", 1, NULL, 'T' }, { "trials", 1, NULL, 't' },
		{ "json", 0, NULL, 'j' }, { "state", 1, NULL, 's' }, { "gradual", 0, NULL, 'g' },
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
		else if (o == 'T')
			bench->transport = optarg;
		else if (o == 't')
			bench->trials = (unsigned)strtoul(optarg, NULL, 10);
		else if (o == 's')
			bench->state = strtoull(optarg, NULL, 10);
		else if (o == 'g')
			bench->gradual = true;
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
		.transport = "auto",
		.log_level = "error",
		.world = 4,
		.bytes = 64u << 20,
		.trials = 5 };
	struct outcome outcomes[TRIALS_MAX];
	struct coll_memberd memberd;
	char beside[512] = "";
	ssize_t length = readlink("/proc/self/exe", beside, sizeof(beside) - 16);
	if (length > 0)
		(void)snprintf(strrchr(beside, '/') + 1, 16, "memberd");
	bench.memberd = beside;
	if (!parse(&bench, argc, argv)) {
		fprintf(stderr,
		    "usage: faultbench [--fault kill|join] [--world N] [--bytes B] [--policy "
		    "keep|uniform|replay] [--algo ring|star|auto] [--transport auto|tcp|shm] "
		    "[--state B [--gradual]] [--trials T] [--json] [--memberd PATH] [--log-level "
		    "LEVEL]\n");
		return 2;
	}
	if (!coll_memberd_start(&memberd, bench.memberd, bench.log_level, -1, NULL, NULL))
		return 1;
	bench.address = memberd.address;
	unsigned trials = bench.trials, ended = 0;
	for (unsigned t = 0; t < trials; t++)
		ended += run_trial(&bench, t, &outcomes[ended]);
	bench.trials = ended; /* figures are of those */
	if (ended > 0)
		print_outcomes(&bench, outcomes);
	coll_memberd_stop(&memberd);
	return ended == trials ? 0 : 1;
}
