#include "tests/bench/coll_memberd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void run_memberd(const struct coll_memberd *memberd, const char *program, int log_fd)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (log_fd >= 0)
		(void)dup2(log_fd, STDERR_FILENO);
	(void)execl(program, "memberd", "--listen", "127.0.0.1:0", "--dir", memberd->folder,
	    "--log-level", log_fd >= 0 ? "info" : "error", (char *)NULL);
	fprintf(stderr, "collbench: cannot run %s: %s\n", program, strerror(errno));
	_exit(1);
}

bool coll_memberd_start(struct coll_memberd *memberd, const char *program, int log_fd)
{
	char path[300];
	(void)snprintf(memberd->folder, sizeof(memberd->folder), "/tmp/collbench-XXXXXX");
	if (mkdtemp(memberd->folder) == NULL)
		return false;
	memberd->pid = fork();
	if (memberd->pid == 0)
		run_memberd(memberd, program, log_fd);
	(void)snprintf(path, sizeof(path), "%s/address", memberd->folder);
	for (;;) {
		FILE *file = fopen(path, "r");
		bool there = file != NULL &&
		    fgets(memberd->address, sizeof(memberd->address), file) != NULL &&
		    strchr(memberd->address, ':') != NULL;
		if (file != NULL)
			(void)fclose(file);
		if (there)
			break;
		if (waitpid(memberd->pid, NULL, WNOHANG) != 0) {
			fprintf(stderr, "collbench: memberd did not start\n");
			return false;
		}
		(void)usleep(2000);
	}
	memberd->address[strcspn(memberd->address, "\n")] = '\0';
	return true;
}

void coll_memberd_stop(const struct coll_memberd *memberd)
{
	char command[300];
	(void)kill(memberd->pid, SIGTERM);
	(void)waitpid(memberd->pid, NULL, 0);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", memberd->folder);
	if (system(command) != 0)
		fprintf(stderr, "collbench: cannot remove %s\n", memberd->folder);
}
