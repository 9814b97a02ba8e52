#include "daemon/node/worker_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/node/cgroup.h"
#include "daemon/node/shepherd.h"
#include "daemon/node/shepherd_spec.h"
#include "daemon/shell/fdlimit.h"

static void complain(const char *what, const char *name)
{
	(void)dprintf(STDERR_FILENO, "traind: cannot %s '%s': %s\n", what, name, strerror(errno));
}

static void reset_signals(void)
{
	sigset_t none;
	(void)sigemptyset(&none);
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The shepherd has one thread, so after fork the child may do what any program may. */
static void become_worker(const struct shepherd_spec *spec, pid_t shepherd)
{
	(void)setsid();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != shepherd)
		_exit(126);
	reset_signals();
	(void)cgroup_enter(spec->cgroup);
	(void)close_range(spec->channel ? SHEPHERD_FD_CHANNEL + 1 : SHEPHERD_FD_CHANNEL, ~0U, 0);
	(void)close(SHEPHERD_FD_CONTROL);
	fdlimit_lower(spec->open_files);
	for (const char *const *entry = spec->environment; *entry != NULL; entry++)
		(void)putenv((char *)(uintptr_t)*entry);
	if (spec->channel) {
		char number[16];
		(void)snprintf(number, sizeof(number), "%d", SHEPHERD_FD_CHANNEL);
		(void)setenv("TRAIND_WORKER_FD", number, 1);
		(void)fcntl(SHEPHERD_FD_CHANNEL, F_SETFD, 0);
	} else {
		(void)unsetenv("TRAIND_WORKER_FD"); /* traind may be a worker itself */
	}
	if (spec->directory[0] != '\0' && chdir(spec->directory) != 0) {
		complain("enter folder", spec->directory);
		_exit(126);
	}
	(void)execvp(spec->argv[0], (char *const *)(uintptr_t)spec->argv);
	int code = errno == ENOENT ? 127 : 126;
	complain("run", spec->argv[0]);
	_exit(code);
}

pid_t worker_exec(const struct shepherd_spec *spec)
{
	pid_t shepherd = getpid();
	pid_t worker = fork();
	if (worker == 0)
		become_worker(spec, shepherd);
	if (worker < 0)
		complain("start a process for", spec->argv[0]);
	return worker;
}

void worker_exec_release(const struct shepherd_spec *spec)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		(void)dup2(null, STDOUT_FILENO);
		(void)dup2(null, STDERR_FILENO);
		(void)close(null);
	}
	if (spec->channel)
		(void)close(SHEPHERD_FD_CHANNEL);
}
