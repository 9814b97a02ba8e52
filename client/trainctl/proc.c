#include "client/trainctl/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KILL_WAIT_MS 5000

static ssize_t slurp(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t used = 0;
	ssize_t got = 1;
	while (got > 0 && used < bytes - 1) {
		got = read(fd, text + used, bytes - 1 - used);
		used += got > 0 ? (size_t)got : 0;
	}
	(void)close(fd);
	text[used] = '\0';
	return got < 0 ? -1 : (ssize_t)used;
}

#define PF_EXITING 0x4 /* linux/sched.h */

struct facts {
	uint64_t start_time;
	bool zombie;  /* so is a process whose first thread has ended while others have not */
	bool exiting; /* it runs nothing more */
};

/* False: there is no such process, or nothing can be said. */
static bool read_facts(pid_t pid, struct facts *facts)
{
	char path[64], text[1024];
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (pid <= 0 || slurp(path, text, sizeof(text)) <= 0)
		return false;
	/* The name, in brackets, may hold anything; fields count from the last bracket: state is the third. */
	char *at = strrchr(text, ')');
	if (at == NULL || at[1] != ' ')
		return false;
	facts->zombie = at[2] == 'Z' || at[2] == 'X';
	for (int field = 2; field < 22 && at != NULL; field++) {
		at = strchr(at + 1, ' ');
		if (field == 8 && at != NULL)
			facts->exiting = (strtoul(at + 1, NULL, 10) & PF_EXITING) != 0;
	}
	facts->start_time = at != NULL ? strtoull(at + 1, NULL, 10) : 0;
	return facts->start_time != 0;
}

uint64_t proc_start_time(pid_t pid)
{
	struct facts facts;
	return read_facts(pid, &facts) && !facts.zombie ? facts.start_time : 0;
}

/* SIGKILL has reached it. A process with much memory takes tens of milliseconds from there to its end. */
static bool is_killed(pid_t pid)
{
	static const char *const pending[] = { "\nSigPnd:", "\nShdPnd:" };
	char path[64], text[16384];
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (slurp(path, text, sizeof(text)) <= 0)
		return false;
	for (size_t i = 0; i < 2; i++) {
		const char *at = strstr(text, pending[i]);
		if (at != NULL &&
		    (strtoull(at + strlen(pending[i]), NULL, 16) & 1ULL << (SIGKILL - 1)) != 0)
			return true;
	}
	return false;
}

bool proc_alive(pid_t pid, uint64_t start_time)
{
	struct facts facts;
	return start_time != 0 && read_facts(pid, &facts) && facts.start_time == start_time &&
	    !facts.zombie && !facts.exiting && !is_killed(pid);
}

static int64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* -1: it is gone or is not ours. The descriptor holds on to this very process, whatever becomes of the pid. */
static int open_ours(const struct proc *process)
{
	int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	struct facts facts;
	if (fd >= 0 &&
	    !(read_facts(process->pid, &facts) && facts.start_time == process->start_time)) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

/* Until all have ended (their descriptors become readable) or the time is over. */
static bool wait_for(const int *fds, size_t count, int64_t deadline)
{
	for (size_t i = 0; i < count; i++) {
		struct pollfd poll_fd = { .fd = fds[i], .events = POLLIN };
		int ready = -1;
		while (fds[i] >= 0 && ready < 0) {
			int64_t left = deadline - now_ms();
			ready = poll(&poll_fd, 1, left > 0 ? (int)left : 0);
			if (ready < 0 && errno != EINTR)
				break;
		}
		if (ready == 0)
			return false;
	}
	return true;
}

static void signal_all(const int *fds, size_t count, int number)
{
	for (size_t i = 0; i < count; i++) {
		if (fds[i] >= 0)
			(void)syscall(SYS_pidfd_send_signal, fds[i], number, NULL, 0);
	}
}

/* NULL: no memory. Descriptors of those that are gone, or are not ours, are -1. */
static int *open_all(const struct proc *processes, size_t count)
{
	int *fds = calloc(count + 1, sizeof(*fds));
	for (size_t i = 0; fds != NULL && i < count; i++)
		fds[i] = open_ours(&processes[i]);
	return fds;
}

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
	}
	free(fds);
}

bool proc_end(const struct proc *processes, size_t count, unsigned grace_ms)
{
	int *fds = open_all(processes, count);
	if (fds == NULL)
		return false;
	signal_all(fds, count, SIGTERM);
	signal_all(fds, count, SIGCONT); /* a stopped one would not hear */
	bool ended = wait_for(fds, count, now_ms() + grace_ms);
	if (!ended) {
		signal_all(fds, count, SIGKILL);
		ended = wait_for(fds, count, now_ms() + KILL_WAIT_MS);
	}
	close_all(fds, count);
	return ended;
}

bool proc_await(const struct proc *processes, size_t count)
{
	int *fds = open_all(processes, count);
	bool ended = fds != NULL && wait_for(fds, count, now_ms() + KILL_WAIT_MS);
	if (fds != NULL)
		close_all(fds, count);
	return ended;
}

static bool holds(const char *environment, size_t bytes, const char *variable)
{
	for (size_t at = 0; at < bytes; at += strlen(environment + at) + 1) {
		if (strcmp(environment + at, variable) == 0)
			return true;
	}
	return false;
}

size_t proc_marked(const char *variable, struct proc *found, size_t max)
{
	size_t count = 0, room = 1 << 20;
	char *text = malloc(room);
	DIR *proc = opendir("/proc");
	for (struct dirent *entry;
	     proc != NULL && text != NULL && count < max && (entry = readdir(proc)) != NULL;) {
		char path[64];
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		if (pid <= 0 || pid == getpid())
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
		ssize_t bytes = slurp(path, text, room);
		uint64_t start = bytes > 0 && holds(text, (size_t)bytes, variable)
		    ? proc_start_time(pid)
		    : 0;
		if (start != 0)
			found[count++] = (struct proc){ pid, start };
	}
	if (proc != NULL)
		(void)closedir(proc);
	free(text);
	return count;
}

bool proc_has_argument(pid_t pid, const char *argument)
{
	char path[64];
	size_t room = 1 << 16;
	char *text = malloc(room);
	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	ssize_t bytes = text != NULL ? slurp(path, text, room) : -1;
	bool found = bytes > 0 && holds(text, (size_t)bytes, argument);
	free(text);
	return found;
}

bool proc_find_program(const char *name, const char *search_path, char *path, size_t bytes)
{
	char own[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
	if (length > 0) {
		own[length] = '\0';
		*strrchr(own, '/') = '\0';
		int written = snprintf(path, bytes, "%s/%s", own, name);
		if (written > 0 && (size_t)written < bytes && access(path, X_OK) == 0)
			return true;
	}
	for (const char *at = search_path; at != NULL;
	     at = strchr(at, ':'), at = at != NULL ? at + 1 : NULL) {
		int written = snprintf(path, bytes, "%.*s/%s", (int)strcspn(at, ":"), at, name);
		if (at[0] == '/' && written > 0 && (size_t)written < bytes &&
		    access(path, X_OK) == 0)
			return true;
	}
	return false;
}
