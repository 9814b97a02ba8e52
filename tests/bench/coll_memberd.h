/* The memberd of a run of collbench: started in a temporary folder on a port of the system's choice, ended with it. */
#ifndef TR_BENCH_COLL_MEMBERD_H
#define TR_BENCH_COLL_MEMBERD_H

#include <stdbool.h>
#include <sys/types.h>

struct coll_memberd {
	char folder[256], address[128];
	pid_t pid;
};

/* `program`: its path. `log_fd`: where its log goes from level info on; -1: to stderr, errors only. false: it did not start, and
 * it or this said why. */
bool coll_memberd_start(struct coll_memberd *memberd, const char *program, int log_fd);
void coll_memberd_stop(const struct coll_memberd *memberd);

#endif
