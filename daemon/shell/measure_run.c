#include "daemon/shell/measure_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/lockstep.h"

#define LOOK_MS  100
#define END_MS   10          /* between two looks whether it has ended */
#define LEAVE_MS 10000       /* to end after its last word: it gives memory back */
#define TEXT_MAX (64u << 10) /* 128 lines of costs are a third of it */

static uint64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The job where the program reads it; -1: no memory. */
static int put_job(const struct measure_run *run)
{
	int fd = memfd_create("job", MFD_CLOEXEC);
	if (fd >= 0 && write(fd, run->job, run->job_bytes) == (ssize_t)run->job_bytes &&
	    lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

/* One of those that measure. */
struct place {
	int page; /* of their lockstep; -1: it is alone */
	unsigned self;
	int out, words; /* where what it prints and its errors go; words -1: where ours do */
};

/* Ours, and who we are (measure_run.h); NULL: no memory. The texts are ours or `*own`. */
static char **environment_for(char own[64])
{
	size_t count = 0;
	while (environ[count] != NULL)
		count++;
	char **all = calloc(count + 2, sizeof(*all));
	if (all == NULL)
		return NULL;
	(void)snprintf(own, 64, "TRAIND_MEASURE_RUN_BY=%ld", (long)getpid());
	all[0] = own;
	memcpy((void *)(all + 1), (void *)environ, count * sizeof(*all));
	return all;
}

static int spawn(const struct measure_run *run, int job, const struct place *place, pid_t *pid)
{
	char own[64], **environment = environment_for(own);
	if (environment == NULL)
		return ENOMEM;
	char threads[16], tp[16], sequences[16], beside[16], self[16];
	char *argv[] = { (char *)(uintptr_t)run->program, "--measure", threads, tp, sequences,
		beside, place->page >= 0 ? self : NULL, NULL };
	posix_spawn_file_actions_t actions;
	(void)snprintf(threads, sizeof(threads), "%u", run->threads);
	(void)snprintf(tp, sizeof(tp), "%" PRIu32, run->tp_most);
	(void)snprintf(sequences, sizeof(sequences), "%" PRIu32, run->sequences_most);
	(void)snprintf(beside, sizeof(beside), "%u", run->beside);
	(void)snprintf(self, sizeof(self), "%u", place->self);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, job, STDIN_FILENO);
	(void)posix_spawn_file_actions_adddup2(&actions, place->out, STDOUT_FILENO);
	if (place->words >= 0)
		(void)posix_spawn_file_actions_adddup2(&actions, place->words, STDERR_FILENO);
	if (place->page >= 0)
		(void)posix_spawn_file_actions_adddup2(&actions, place->page, LOCKSTEP_PAGE_FD);
	int failed = posix_spawnp(pid, run->program, &actions, NULL, argv, environment);
	(void)posix_spawn_file_actions_destroy(&actions);
	free((void *)environment);
	return failed;
}

static bool is_over(const struct measure_run *run, uint64_t begun_ms)
{
	return (run->stop != NULL && atomic_load(run->stop)) ||
	    (run->most_ms > 0 && now_ms() - begun_ms > run->most_ms);
}

/* The whole ones of [text, text + used). Returns what they take. */
static size_t tell_lines(const struct measure_run *run, const char *text, size_t used)
{
	size_t told = 0;
	const char *end;
	while ((end = memchr(text + told, '\n', used - told)) != NULL) {
		if (run->said != NULL)
			run->said(text + told, (size_t)(end - text) - told);
		told = (size_t)(end - text) + 1;
	}
	return told;
}

/* Until it closes its end. False: it took too long, printed too much, or we are to stop. */
static bool read_all(const struct measure_run *run, uint64_t begun_ms, int from, char *text)
{
	size_t used = 0, told = 0;
	while (used < TEXT_MAX - 1) {
		struct pollfd readable = { .fd = from, .events = POLLIN };
		if (is_over(run, begun_ms))
			return false;
		if (poll(&readable, 1, LOOK_MS) <= 0)
			continue;
		ssize_t n = read(from, text + used, TEXT_MAX - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0;
		used += (size_t)n;
		told += tell_lines(run, text + told, used - told);
	}
	return false;
}

static void end(pid_t pid, int *how)
{
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, how, 0) < 0 && errno == EINTR)
		;
}

/* It has said all that it will, and may live on all the same. */
static bool ends_by_itself(const struct measure_run *run, uint64_t begun_ms, pid_t pid, int *how)
{
	const struct timespec pause = { .tv_nsec = END_MS * 1000000L };
	uint64_t said_ms = now_ms();
	while (waitpid(pid, how, WNOHANG) == 0) {
		if (is_over(run, begun_ms) || now_ms() - said_ms > LEAVE_MS)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
}

static tr_status await(const struct measure_run *run, pid_t pid, int from, char *text,
    struct tr_error *error)
{
	uint64_t begun_ms = now_ms();
	int ended = 0;
	if (!read_all(run, begun_ms, from, text) || !ends_by_itself(run, begun_ms, pid, &ended)) {
		end(pid, &ended);
		return tr_error_set(error, TR_EIO,
		    "layers cannot be measured: trainworker --measure took too long");
	}
	if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0)
		return TR_OK;
	if (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL)
		return tr_error_set(error, TR_EIO,
		    "layers cannot be measured: trainworker --measure was killed; is there too "
		    "little memory on this machine (`dmesg`)?");
	return tr_error_set(error, TR_EIO,
	    "layers cannot be measured: trainworker --measure ended with %s %d",
	    WIFEXITED(ended) ? "exit code" : "signal",
	    WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
}

/* ---- others that measure the same ---- */

#define BESIDE_MOST (LOCKSTEP_MEMBERS_MAX - 1)

struct beside {
	pid_t pids[BESIDE_MOST];
	unsigned count;
};

/* What they print is nobody's. One that cannot be started is missing, and that is all: the others wait for it once. */
static void start_beside(const struct measure_run *run, int page, struct beside *beside)
{
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	beside->count = 0;
	while (nowhere >= 0 && beside->count < run->beside && beside->count < BESIDE_MOST) {
		int job = put_job(run); /* each reads its own */
		const struct place place = { page, beside->count + 1, nowhere, nowhere };
		bool started = job >= 0 &&
		    spawn(run, job, &place, &beside->pids[beside->count]) == 0;
		if (job >= 0)
			(void)close(job);
		if (!started)
			break;
		beside->count++;
	}
	if (nowhere >= 0)
		(void)close(nowhere);
}

static void end_beside(const struct beside *beside)
{
	int how;
	for (unsigned i = 0; i < beside->count; i++)
		end(beside->pids[i], &how);
}

tr_status measure_run(const struct measure_run *run, char **text, struct tr_error *error)
{
	struct beside beside = { .count = 0 };
	int job = put_job(run), ends[2] = { -1, -1 };
	int page = run->beside > 0 && run->beside <= BESIDE_MOST ? lockstep_create() : -1;
	pid_t pid = 0;
	char *room = calloc(1, TEXT_MAX);
	tr_status st = TR_OK;
	if (job < 0 || room == NULL || pipe2(ends, O_CLOEXEC) != 0)
		st = tr_error_set(error, TR_EIO, "no pipe to a trainworker: %s", strerror(errno));
	if (st == TR_OK)
		start_beside(run, page, &beside);
	const struct place place = { page, 0, ends[1], -1 };
	int failed = st == TR_OK ? spawn(run, job, &place, &pid) : 0;
	if (failed != 0)
		st = tr_error_set(error, TR_EIO, "cannot start %s: %s", run->program,
		    strerror(failed));
	if (ends[1] >= 0)
		(void)close(ends[1]);
	if (page >= 0)
		(void)close(page);
	if (st == TR_OK)
		st = await(run, pid, ends[0], room, error);
	end_beside(&beside);
	if (ends[0] >= 0)
		(void)close(ends[0]);
	if (job >= 0)
		(void)close(job);
	if (st == TR_OK)
		*text = room;
	else
		free(room);
	return st;
}
