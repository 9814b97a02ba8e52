#include "tests/bench/coll_kill.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/coll_exact.h"
#include "tests/bench/coll_log.h"
#include "tests/bench/coll_memberd.h"
#include "tests/bench/processes.h"

#define WATCH_NS \
	100000 /* between two looks at how much was sent: the kernel has no event for that */
#define DEADLINE_S  120 /* for the survivors to end */
#define SOCKETS_MAX 256

/* What a process found. */
struct found {
	double undisturbed_s, disturbed_s;
	double undisturbed_bytes; /* sent until the commit's return */
	double resent;            /* struct tr_stats, of the op in which the victim died */
	double kept;              /* fraction of the elements that hold the victim's contribution */
	double rss_mib;           /* the op's with the death included */
	uint64_t peer, digest;
	bool exact, done;
};

/* Shared by all processes of the case. */
struct scene {
	pthread_barrier_t barrier;
	struct found found[MEASURE_WORLD_MAX];
	_Atomic unsigned victim;
	_Atomic double signal_s; /* when it was raised; 0: not yet */
	const char *_Atomic
	    trigger; /* what told the victim; a string of this program, the same in all its forks */
};

struct actor {
	struct coll_case c;
	struct coll_kill kill;
	struct scene *scene;
	unsigned victim;
	int log_fd;
	tr_group *group;
	void *data;
};

/* ---- the victim's thread ---- */

struct watch {
	const struct actor *actor;
	sem_t armed;           /* the op begins */
	double op_s, op_bytes; /* of an undisturbed op */
};

static void raise_signal(const struct actor *a, const char *trigger)
{
	double none = 0;
	if (!atomic_compare_exchange_strong(&a->scene->signal_s, &none, measure_now_s()))
		return;
	atomic_store(&a->scene->trigger, trigger);
	(void)kill(getpid(), a->kill.stop ? SIGSTOP : SIGKILL);
}

/* The sockets do not change during an op, and reading their names each time would slow the op. */
static unsigned list_sockets(int *sockets)
{
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");
	if (folder == NULL)
		return 0;
	for (struct dirent *entry; count < SOCKETS_MAX && (entry = readdir(folder)) != NULL;) {
		int fd = (int)strtol(entry->d_name, NULL, 10);
		if (entry->d_name[0] != '.' && measure_wire_bytes_of(fd) >= 0)
			sockets[count++] = fd;
	}
	(void)closedir(folder);
	return count;
}

static double bytes_of(const int *sockets, unsigned count)
{
	double sum = 0;
	for (unsigned i = 0; i < count; i++)
		sum += fmax(0, (double)measure_wire_bytes_of(sockets[i]));
	return sum;
}

/* Moves `at` on, and sleeps until then. */
static void sleep_until(struct timespec *at, uint64_t ns)
{
	uint64_t sum = (uint64_t)at->tv_nsec + ns;
	at->tv_sec += (time_t)(sum / 1000000000u);
	at->tv_nsec = (long)(sum % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL) == EINTR)
		continue;
}

static void *run_watch(void *arg)
{
	struct watch *w = arg;
	const struct actor *a = w->actor;
	int sockets[SOCKETS_MAX];
	unsigned count = list_sockets(sockets);
	bool by_bytes = w->op_bytes > (double)a->c.c.bytes / 8;
	double before = bytes_of(sockets, count);
	while (sem_wait(&w->armed) != 0)
		continue;
	struct timespec look;
	(void)clock_gettime(CLOCK_MONOTONIC, &look);
	if (by_bytes)
		while (bytes_of(sockets, count) - before < a->kill.at * w->op_bytes)
			sleep_until(&look, WATCH_NS);
	else
		sleep_until(&look, (uint64_t)(a->kill.at * w->op_s * 1e9));
	raise_signal(a, by_bytes ? "bytes" : "time");
	return NULL;
}

/* ---- a process ---- */

static void begin_round(const struct actor *a)
{
	struct tr_error error = { 0 };
	struct tr_round round;
	measure_fill(a->c.c.dtype, a->data, a->c.c.bytes, a->c.c.rank);
	coll_check(tr_round_begin(a->group, &round, &error), "begin", &error);
	(void)pthread_barrier_wait(&a->scene->barrier);
}

/* Seconds from the call to the result's arrival. */
static double run_op(const struct actor *a, struct watch *watch, double *bytes)
{
	struct tr_error error = { 0 };
	struct tr_round round;
	uint64_t before = measure_wire_bytes();
	double start = measure_now_s();
	if (watch != NULL)
		(void)sem_post(&watch->armed);
	coll_case_submit(a->group, 0, a->data, &a->c);
	coll_check(tr_wait(a->group, 0, &error), "wait", &error);
	double took = measure_now_s() - start;
	if (watch != NULL)
		raise_signal(a, "the op's end: it was over before the fraction");
	coll_check(tr_round_commit(a->group, NULL, &round, &error), "commit", &error);
	*bytes = (double)(measure_wire_bytes() - before);
	return took;
}

static void check_result(const struct actor *a, struct found *mine)
{
	struct coll_exact exact = { .group = a->group,
		.world = a->c.c.world,
		.victim = a->victim,
		.dtype = a->c.c.dtype,
		.data = a->data,
		.count = a->c.c.bytes / measure_dtype_size(a->c.c.dtype),
		.tolerance = strcmp(a->c.codec, "none") == 0 ? 0 : coll_case_tolerance(&a->c) };
	for (unsigned i = 0; i < a->c.c.world; i++)
		exact.peers[i] = a->scene->found[i].peer;
	mine->exact = coll_exact_check(&exact, &mine->kept);
	mine->digest = measure_digest(0, a->data, a->c.c.bytes);
}

static double resent_bytes(const struct actor *a)
{
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_error error = { 0 };
	coll_check(tr_stats_get(a->group, &stats, &error), "stats", &error);
	return (double)stats.resent_bytes;
}

/* Of what each sent in the ops before. */
static unsigned choose_victim(const struct actor *a)
{
	const struct found *found = a->scene->found;
	unsigned victim = a->victim;
	(void)pthread_barrier_wait(&a->scene->barrier);
	for (unsigned i = 0; a->kill.busiest && i < a->c.c.world; i++)
		if (found[i].undisturbed_bytes > found[victim].undisturbed_bytes)
			victim = i;
	atomic_store(&a->scene->victim, victim);
	return victim;
}

static void body(void *arg, unsigned rank)
{
	struct actor a = *(const struct actor *)arg;
	struct found *mine = &a.scene->found[rank];
	struct tr_error error = { 0 };
	unsigned timed = a.c.c.iterations;
	double *op_s = calloc(timed, sizeof(double)), *bytes = calloc(timed, sizeof(double)), warm;
	(void)dup2(a.log_fd, STDERR_FILENO);
	a.c.c.rank = rank;
	a.group = coll_case_join(&a.c);
	a.data = tr_alloc(a.group, a.c.c.bytes);
	if (a.data == NULL || op_s == NULL || bytes == NULL)
		_exit(1);
	mine->peer = tr_peer_id(a.group);
	coll_check(tr_state_ready(a.group, 0, &error), "ready", &error);
	memset(a.data, 1, a.c.c.bytes);
	struct measure_memory memory;
	measure_memory_begin(&memory);
	for (unsigned i = 0; i < MEASURE_WARM_ROUNDS + timed; i++) {
		unsigned k = i - MEASURE_WARM_ROUNDS;
		begin_round(&a);
		double took = run_op(&a, NULL, i < MEASURE_WARM_ROUNDS ? &warm : &bytes[k]);
		if (i >= MEASURE_WARM_ROUNDS)
			op_s[k] = took;
	}
	mine->undisturbed_s = measure_median(op_s, timed);
	mine->undisturbed_bytes = measure_median(bytes, timed);
	a.victim = choose_victim(&a);
	struct watch watch = { .actor = &a,
		.op_s = mine->undisturbed_s,
		.op_bytes = mine->undisturbed_bytes };
	pthread_t thread;
	(void)sem_init(&watch.armed, 0, 0);
	if (rank == a.victim && pthread_create(&thread, NULL, run_watch, &watch) != 0)
		_exit(1);
	double before = resent_bytes(&a);
	begin_round(&a);
	mine->disturbed_s = run_op(&a, rank == a.victim ? &watch : NULL, &warm);
	mine->resent = resent_bytes(&a) - before;
	mine->rss_mib = measure_memory_grown_mib(&memory);
	check_result(&a, mine);
	mine->done = true;
	/* What leaving says is no news of the death. */
	_exit(0);
}

/* ---- the case ---- */

static void print_case(const struct actor *a, const struct coll_log *log)
{
	const struct found *found = a->scene->found;
	const struct coll_case *c = &a->c;
	unsigned victim = atomic_load(&a->scene->victim), first = victim == 0;
	struct found worst = { .exact = true };
	double signal_s = atomic_load(&a->scene->signal_s), resent = 0;
	bool identical = true;
	for (unsigned i = 0; i < c->c.world; i++) {
		worst.undisturbed_s = fmax(worst.undisturbed_s, found[i].undisturbed_s);
		if (i == victim)
			continue;
		worst.disturbed_s = fmax(worst.disturbed_s, found[i].disturbed_s);
		worst.exact = worst.exact && found[i].exact;
		worst.kept = found[i].kept;
		identical = identical && found[i].digest == found[first].digest;
		worst.rss_mib = fmax(worst.rss_mib, found[i].rss_mib);
		resent += found[i].resent;
	}
	struct coll_log_line line;
	bool known = coll_log_first_loss(log, signal_s, &line);
	printf("{\"peer\": \"traind\", \"algo\": \"%s\", \"transport\": \"%s\", \"codec\": \"%s\", "
	       "\"world\": %u, "
	       "\"bytes\": %zu, \"dtype\": \"%s\", \"%s\": %.3f, \"trigger\": \"%s\", "
	       "\"median_s\": %.9f, \"algbw_gbps\": %.6f, \"busbw_gbps\": %.6f, \"rss_mib\": %.1f, "
	       "\"undisturbed_s\": %.6f, "
	       "\"disturbed_s\": %.6f, \"added_s\": %.6f, ",
	    c->algorithm, c->transport, c->codec, c->c.world, c->c.bytes,
	    measure_dtype_names[c->c.dtype], a->kill.stop ? "stop_at" : "kill_at", a->kill.at,
	    atomic_load(&a->scene->trigger), worst.undisturbed_s,
	    (double)c->c.bytes / worst.undisturbed_s / 1e9,
	    measure_busbw_gbps(&c->c, worst.undisturbed_s), worst.rss_mib, worst.undisturbed_s,
	    worst.disturbed_s, worst.disturbed_s - worst.undisturbed_s);
	if (known)
		printf("\"detect_s\": %.6f, \"detect_event\": \"%s: %s\", ", line.at_s - signal_s,
		    line.from_memberd ? "memberd" : "survivor", line.text);
	else
		printf("\"detect_s\": null, \"detect_event\": null, ");
	printf("\"resent_bytes\": %.0f, \"resent_shares\": %.3f, \"kept\": %.3f, \"identical\": "
	       "%s, "
	       "\"exact\": %s}\n",
	    resent, resent / ((double)c->c.bytes / c->c.world), worst.kept,
	    identical ? "true" : "false", worst.exact && identical ? "true" : "false");
	(void)fflush(stdout);
}

/* Reads the logs until the survivors have ended. false: one failed, or they take too long. */
static bool watch_processes(const struct actor *a, pid_t *pids, struct coll_log *log)
{
	double deadline_s = measure_now_s() + DEADLINE_S;
	unsigned left = a->c.c.world - 1;
	bool well = true;
	while (left > 0 && well) {
		coll_log_read(log, 20);
		for (unsigned i = 0; i < a->c.c.world; i++) {
			int status;
			if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
				continue;
			pids[i] = 0;
			if (i == atomic_load(&a->scene->victim))
				well = well && atomic_load(&a->scene->signal_s) > 0;
			else if (left-- > 0 && status != 0)
				well = false;
		}
		if (measure_now_s() > deadline_s) {
			fprintf(stderr, "collbench: the survivors have not ended after %d s\n",
			    DEADLINE_S);
			well = false;
		}
	}
	for (unsigned i = 0; i < a->c.c.world; i++)
		if (pids[i] > 0) {
			(void)kill(pids[i], SIGKILL);
			(void)waitpid(pids[i], NULL, 0);
		}
	coll_log_read(log, 0);
	return well;
}

static struct scene *make_scene(unsigned world)
{
	pthread_barrierattr_t shared;
	struct scene *scene = mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (scene == MAP_FAILED)
		return NULL;
	(void)pthread_barrierattr_init(&shared);
	(void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	(void)pthread_barrier_init(&scene->barrier, &shared, world);
	(void)pthread_barrierattr_destroy(&shared);
	atomic_store(&scene->trigger, "none");
	atomic_store(&scene->victim, world - 1);
	return scene;
}

bool coll_kill_run(const struct coll_case *c, const struct coll_kill *kill, const char *program)
{
	struct actor a = { .c = *c, .kill = *kill, .victim = c->c.world - 1 };
	struct coll_memberd memberd;
	struct coll_log log;
	pid_t pids[MEASURE_WORLD_MAX];
	if (c->c.world < 2) {
		fprintf(stderr, "collbench: --kill-at and --stop-at need 2 processes or more\n");
		return false;
	}
	a.scene = make_scene(c->c.world);
	if (a.scene == NULL || !coll_log_open(&log))
		return false;
	if (!coll_memberd_start(&memberd, program, "info", log.memberd[1], c->sites, c->tls))
		return false;
	a.c.address = memberd.address;
	a.log_fd = log.processes[1];
	processes_start(c->c.world, body, &a, pids);
	bool well = watch_processes(&a, pids, &log);
	for (unsigned i = 0; well && i < c->c.world; i++)
		well = i == atomic_load(&a.scene->victim) || a.scene->found[i].done;
	if (well)
		print_case(&a, &log);
	else
		coll_log_print(&log);
	coll_memberd_stop(&memberd);
	coll_log_close(&log);
	(void)munmap(a.scene, sizeof(*a.scene));
	return well;
}
