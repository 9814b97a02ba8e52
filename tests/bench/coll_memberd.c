#include "tests/bench/coll_memberd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/coll_site.h"

static void run_memberd(const struct coll_memberd *memberd, const char *program,
    const char *log_level, int log_fd, const char *sites, const char *tls)
{
	char listen[COLL_SITE_LISTEN_MAX] = "127.0.0.1:0";
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (log_fd >= 0)
		(void)dup2(log_fd, STDERR_FILENO);
	if (sites != NULL)
		coll_site_enter(sites, 0, listen);
	const char *arguments[12] = { "memberd", "--listen", listen, "--dir", memberd->folder,
		"--log-level", log_level };
	unsigned count = 7;
	if (sites != NULL)
		arguments[count++] = "--insecure";
	if (tls != NULL) {
		arguments[count++] = "--tls";
		arguments[count++] = tls;
	}
	(void)execv(program, (char **)(uintptr_t)arguments);
	fprintf(stderr, "%s: cannot run %s: %s\n", program_invocation_short_name, program,
	    strerror(errno));
	_exit(1);
}

static bool read_address(struct coll_memberd *memberd)
{
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/address", memberd->folder);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return false;
	bool there = fgets(memberd->address, sizeof(memberd->address), file) != NULL;
	(void)fclose(file);
	memberd->address[strcspn(memberd->address, "\n")] = '\0';
	return there;
}

/* memberd renames its address into the folder when it serves. */
static bool wait_address(struct coll_memberd *memberd, int renames)
{
	_Alignas(struct inotify_event) char events[4096];
	int end = (int)syscall(SYS_pidfd_open, memberd->pid, 0);
	struct pollfd fds[2] = { { .fd = renames, .events = POLLIN },
		{ .fd = end, .events = POLLIN } };
	bool there = false;
	/* valgrind 3.19 has no pidfd_open: then look now and then whether it has ended. */
	while (!there && fds[1].revents == 0 &&
	    (end >= 0 || waitpid(memberd->pid, NULL, WNOHANG) == 0)) {
		if (poll(fds, 2, end >= 0 ? -1 : 100) < 0 && errno != EINTR)
			break;
		if ((fds[0].revents & POLLIN) != 0 && read(renames, events, sizeof(events)) > 0)
			there = read_address(memberd);
	}
	if (end >= 0)
		(void)close(end);
	return there;
}

bool coll_memberd_start(struct coll_memberd *memberd, const char *program, const char *log_level,
    int log_fd, const char *sites, const char *tls)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(memberd->folder, sizeof(memberd->folder), "%s/%s-XXXXXX",
	    tmp != NULL ? tmp : "/tmp", program_invocation_short_name);
	int renames = inotify_init1(IN_CLOEXEC);
	if (mkdtemp(memberd->folder) == NULL || renames < 0 ||
	    inotify_add_watch(renames, memberd->folder, IN_MOVED_TO) < 0) {
		fprintf(stderr, "%s: no folder for memberd: %s\n", program_invocation_short_name,
		    strerror(errno));
		return false;
	}
	memberd->pid = fork();
	if (memberd->pid == 0)
		run_memberd(memberd, program, log_level, log_fd, sites, tls);
	bool there = memberd->pid > 0 && wait_address(memberd, renames);
	(void)close(renames);
	if (there)
		return true;
	fprintf(stderr, "%s: memberd did not start\n", program_invocation_short_name);
	if (memberd->pid > 0)
		coll_memberd_stop(memberd);
	return false;
}

void coll_memberd_stop(const struct coll_memberd *memberd)
{
	char command[300];
	(void)kill(memberd->pid, SIGTERM);
	(void)waitpid(memberd->pid, NULL, 0);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", memberd->folder);
	if (system(command) != 0)
		fprintf(stderr, "%s: cannot remove %s\n", program_invocation_short_name,
		    memberd->folder);
}
