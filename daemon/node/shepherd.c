#include "daemon/node/shepherd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/node/cgroup.h"
#include "daemon/node/descend.h"
#include "daemon/node/shepherd_spec.h"
#include "daemon/node/worker_exec.h"

#define KILL_AGAIN_MS 20

struct shepherd {
	struct shepherd_spec spec;
	pid_t worker; /* 0: reaped */
	int traind_fd, signal_fd;
	bool traind_gone;
	bool ending;         /* TERM was sent */
	uint64_t kill_at_ms; /* when ending */
};

static uint64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void tell(struct shepherd *s, int32_t kind, int32_t a, int32_t b)
{
	struct shepherd_message message = { kind, a, b };
	if (!s->traind_gone)
		(void)send(SHEPHERD_FD_CONTROL, &message, sizeof(message), MSG_NOSIGNAL);
}

/* Everything that descends from us is the worker's, and gets TERM once: many programs end at once at the second. A stopped process takes
 * TERM only after CONT. */
static void signal_tree(struct shepherd *s, int signal_number)
{
	struct descend all = { .root = getpid() }, rest = all;
	if (s->worker != 0 && kill(-s->worker, signal_number) == 0 && signal_number == SIGTERM)
		rest.told = s->worker;
	if (signal_number == SIGKILL)
		(void)cgroup_kill(s->spec.cgroup);
	(void)descend_signal(&rest, signal_number);
	if (signal_number == SIGTERM)
		(void)descend_signal(&all, SIGCONT);
}

static void begin_end(struct shepherd *s, unsigned grace_ms)
{
	uint64_t kill_at_ms = now_ms() + grace_ms;
	if (s->ending) {
		if (kill_at_ms < s->kill_at_ms)
			s->kill_at_ms = kill_at_ms;
		return;
	}
	s->ending = true;
	s->kill_at_ms = kill_at_ms;
	if (grace_ms > 0)
		signal_tree(s, SIGTERM);
}

/* Reaps whoever ended, and hears of a worker that a signal stopped. False: no descendant is left. */
static bool reap(struct shepherd *s)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			return false;
		if (pid == 0)
			return true;
		if (pid != s->worker)
			continue;
		if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
			tell(s, SHEPHERD_HALTED, WIFSTOPPED(status) ? WSTOPSIG(status) : 0, 0);
			continue;
		}
		s->worker = 0;
		tell(s, SHEPHERD_EXITED, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
		    WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	}
}

static void hear_control(struct shepherd *s)
{
	struct shepherd_message message;
	ssize_t got = recv(SHEPHERD_FD_CONTROL, &message, sizeof(message), MSG_DONTWAIT);
	if (got == (ssize_t)sizeof(message) && message.kind == SHEPHERD_STOP && message.a >= 0)
		begin_end(s, (unsigned)message.a);
	else if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		s->traind_gone = true;
}

static void hear_signals(struct shepherd *s)
{
	struct signalfd_siginfo info;
	while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			begin_end(s, s->spec.grace_ms);
}

static void wait_for_something(struct shepherd *s)
{
	struct pollfd fds[3] = {
		{ .fd = s->signal_fd, .events = POLLIN },
		{ .fd = s->traind_gone ? -1 : SHEPHERD_FD_CONTROL, .events = POLLIN },
		{ .fd = s->traind_gone ? -1 : s->traind_fd, .events = POLLIN },
	};
	int timeout_ms = -1;
	if (s->ending) {
		uint64_t now = now_ms();
		timeout_ms = now < s->kill_at_ms ? (int)(s->kill_at_ms - now) : KILL_AGAIN_MS;
	}
	if (poll(fds, 3, timeout_ms) < 0)
		return;
	if (fds[0].revents != 0)
		hear_signals(s);
	if (fds[1].revents != 0)
		hear_control(s);
	if (fds[2].revents != 0)
		s->traind_gone = true;
}

static void watch(struct shepherd *s)
{
	while (reap(s)) {
		if (s->traind_gone || s->worker == 0)
			begin_end(s, s->spec.grace_ms);
		if (s->ending && now_ms() >= s->kill_at_ms)
			signal_tree(s, SIGKILL);
		wait_for_something(s);
	}
}

/* After this, traind's death is noticed whenever it comes, even if it came before. */
static bool tie_to_traind(struct shepherd *s)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	s->traind_fd = (int)syscall(SYS_pidfd_open, s->spec.traind, 0);
	return getppid() == s->spec.traind;
}

static bool block_signals(struct shepherd *s)
{
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return s->signal_fd >= 0;
}

int shepherd_run(void)
{
	struct shepherd s = { 0 };
	struct tr_error error;
	(void)close_range(SHEPHERD_FD_CHANNEL + 1, ~0U, 0);
	if (shepherd_spec_read(SHEPHERD_FD_SPEC, &s.spec, &error) != TR_OK) {
		(void)fprintf(stderr, "traind: %s\n", error.text);
		return 2;
	}
	(void)close(SHEPHERD_FD_SPEC);
	if (!block_signals(&s) || !tie_to_traind(&s)) {
		shepherd_spec_finish(&s.spec);
		return 1;
	}
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)prctl(PR_SET_NAME, "traind-shepherd");
	if (!cgroup_make(s.spec.cgroup))
		s.spec.cgroup = "";
	s.worker = worker_exec(&s.spec);
	/* The worker alone holds its pipes and its channel now: their ends tell that it died. */
	worker_exec_release(&s.spec);
	if (s.worker > 0) {
		tell(&s, SHEPHERD_STARTED, s.worker, 0);
		watch(&s);
	} else {
		tell(&s, SHEPHERD_EXITED, 127, 0);
	}
	cgroup_remove(s.spec.cgroup);
	shepherd_spec_finish(&s.spec);
	return 0;
}
