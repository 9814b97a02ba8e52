/* The memberd of a bench's run: started in a temporary folder on a port of the system's choice, ended with it. */
#ifndef TR_BENCH_COLL_MEMBERD_H
#define TR_BENCH_COLL_MEMBERD_H

#include <stdbool.h>
#include <sys/types.h>

struct coll_memberd {
	char folder[256], address[128];
	pid_t pid;
};

/* `program`: its path. Logs from `log_level` on to `log_fd`; -1: to stderr. Returns once it serves. `sites`: it runs
 * in the first of them (coll_site.h); NULL: on this host's loopback. `tls`: its
 * folder; NULL: plain. false: it did not start, and it or this said why. */
bool coll_memberd_start(struct coll_memberd *memberd, const char *program, const char *log_level,
    int log_fd, const char *sites, const char *tls);
void coll_memberd_stop(const struct coll_memberd *memberd);

#endif
