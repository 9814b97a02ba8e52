#include "tests/wan/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void keep(int pipe_end, const struct space *spaces, unsigned count, const char *folder,
    const char *control)
{
	static const int refused[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	sigset_t none;
	char byte;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		(void)signal(refused[i], SIG_IGN);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setsid();
	(void)prctl(PR_SET_NAME, "wanlab-keeper");
	for (unsigned i = 0; i < count; i++)
		if (spaces[i].device >= 0)
			(void)close(spaces[i].device);
	while (read(pipe_end, &byte, 1) < 0 && errno == EINTR)
		;
	space_clear(spaces, count);
	(void)unlink(control);
	(void)rmdir(folder);
	_exit(0);
}

tr_status keeper_start(struct keeper *keeper, const struct space *spaces, unsigned count,
    const char *folder, const char *control, struct tr_error *error)
{
	int ends[2];
	*keeper = (struct keeper){ .pipe = -1, .watch = -1 };
	if (pipe2(ends, O_CLOEXEC) != 0)
		return tr_error_set(error, TR_EIO, "a pipe: %s", strerror(errno));
	keeper->pid = fork();
	if (keeper->pid == 0) {
		(void)close(ends[1]);
		keep(ends[0], spaces, count, folder, control);
	}
	(void)close(ends[0]);
	keeper->pipe = ends[1];
	if (keeper->pid > 0)
		keeper->watch = pidfd_open(keeper->pid, 0);
	if (keeper->watch >= 0)
		return TR_OK;
	tr_status st = tr_error_set(error, TR_EIO, "the process that clears up: %s",
	    strerror(errno));
	keeper->pid = keeper->pid > 0 ? keeper->pid : 0;
	keeper_finish(keeper);
	return st;
}

void keeper_finish(struct keeper *keeper)
{
	if (keeper->pipe >= 0)
		(void)close(keeper->pipe);
	if (keeper->watch >= 0)
		(void)close(keeper->watch);
	while (keeper->pid > 0 && waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
		;
	*keeper = (struct keeper){ .pipe = -1, .watch = -1 };
}
