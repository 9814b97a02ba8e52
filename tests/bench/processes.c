#include "tests/bench/processes.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct processes *processes_create(unsigned world)
{
	pthread_barrierattr_t shared;
	struct processes *processes = mmap(NULL, sizeof(*processes), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (processes == MAP_FAILED)
		return NULL;
	(void)pthread_barrierattr_init(&shared);
	(void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	(void)pthread_barrier_init(&processes->barrier, &shared, world);
	(void)pthread_barrierattr_destroy(&shared);
	return processes;
}

/* The barrier is not destroyed: processes that were killed may count as waiting in it, and destroying would wait for them. */
void processes_destroy(struct processes *processes)
{
	if (processes != NULL)
		(void)munmap(processes, sizeof(*processes));
}

static atomic_bool *said; /* shared by the processes of a case */

void processes_die(const char *what, const char *why)
{
	if (said == NULL || !atomic_exchange(said, true))
		fprintf(stderr, "%s: %s\n", what, why);
	_exit(1);
}

void processes_meet(struct processes *processes)
{
	(void)pthread_barrier_wait(&processes->barrier);
}

void processes_start(unsigned world, void (*body)(void *arg, unsigned rank), void *arg, pid_t *pids)
{
	(void)fflush(stdout);
	if (said == NULL)
		said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		    -1, 0);
	if (said == MAP_FAILED)
		said = NULL;
	if (said != NULL)
		atomic_store(said, false);
	for (unsigned i = 0; i < world; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			body(arg, i);
			_exit(0);
		}
	}
}

bool processes_wait(unsigned world, pid_t *pids)
{
	bool well = true;
	for (unsigned left = world; left > 0; left--) {
		int status;
		pid_t ended = waitpid(-1, &status, 0);
		unsigned i = 0;
		while (i < world && pids[i] != ended)
			i++;
		if (ended < 0 && errno != EINTR)
			return false;
		if (i == world) { /* not one of these, or a signal */
			left++;
			continue;
		}
		pids[i] = 0;
		if (status == 0 || !well)
			continue;
		well = false;
		if (said == NULL || !atomic_load(said))
			fprintf(stderr, "bench: process %u failed (wait status %#x)\n", i,
			    (unsigned)status);
		for (unsigned k = 0; k < world; k++)
			if (pids[k] > 0)
				(void)kill(pids[k], SIGKILL);
	}
	return well;
}

bool processes_run(unsigned world, void (*body)(void *arg, unsigned rank), void *arg)
{
	pid_t pids[MEASURE_WORLD_MAX];
	processes_start(world, body, arg, pids);
	return processes_wait(world, pids);
}
