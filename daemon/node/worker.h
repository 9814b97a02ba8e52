/* The workers of this node: started and stopped as memberd says, their ends reported. On the control loop. */
#ifndef TR_DAEMON_NODE_WORKER_H
#define TR_DAEMON_NODE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/error.h"
#include "daemon/node/worker_ends.h"
#include "traind/peer/peer.pb-c.h"

struct engine;
struct logs;
struct worker;

struct workers {
	/* Set by the owner before the first start. */
	uv_loop_t *loop;
	struct engine *engine;
	struct logs *logs;
	const char *trainworker; /* program of native jobs */
	const char *folder;      /* traind's own */
	const char *cgroup;      /* folder for cgroups; "": none */
	unsigned cores, slots;
	uint64_t open_files;
	uint64_t halted_ms; /* how long a member may be stopped by a signal; 0: for ever */
	uint64_t node;      /* id; 0: none yet */
	bool set_omp;
	void (*report)(void *arg, const Traind__Peer__ToMember *message);
	void (*changed)(void *arg); /* a worker is gone */
	void *arg;
	/* Own. */
	struct worker *first;
	size_t count;
	struct worker_ends ends;
	uint64_t cgroup_serial;
};

/* A worker that cannot be started is reported as one that exited with 127. One that is here already: nothing. */
void workers_start(struct workers *workers, const Traind__Peer__StartWorker *start);
/* peer 0: all of the job; job 0: all. TERM now, KILL after the grace. */
void workers_stop(struct workers *workers, uint64_t job, uint64_t peer, unsigned grace_ms,
    const char *reason);
/* No longer a member of its group: ends it. Who gave up by itself has half a second to end by itself, so that its log and its job's events say
 * what it knows of the cause; what else would stop it waits as long. */
void workers_evict(struct workers *workers, const Traind__Peer__PeerEvicted *evicted);
/* The engine says that its channel closed; the process should be ending too. `words` (taken; NULL: none) go
 * with the report of its end. */
void workers_channel_closed(struct workers *workers, uint64_t group, uint64_t peer,
    Traind__Peer__LastWords *words);
/* From logs: everything it wrote is in its file. */
void workers_drained(struct workers *workers, uint64_t peer, const char *last_lines);
/* After memberd came back: ends that it may not have heard of. */
void workers_report_ends(struct workers *workers);

/* They are of no interest to this memberd. */
void workers_forget_ends(struct workers *workers);

struct worker_here {
	uint64_t job, group, peer;
	pid_t pid;
};
size_t workers_list(const struct workers *workers, struct worker_here *rows, size_t max);

#endif
