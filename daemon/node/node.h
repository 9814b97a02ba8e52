/* traind around its parts: workers, logs, the engine, the link to memberd, the API. The control loop is here and does nothing
 * slow: the engine and the logs have threads of their own.
 */
#ifndef TR_DAEMON_NODE_NODE_H
#define TR_DAEMON_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/error.h"

struct node;

struct node_options {
	const char *memberd, *listen;
	const char *advertise;  /* host that others reach us at; NULL: the one of `listen` */
	const char *api_socket; /* path; NULL: folder/api.sock, left out if that is too long */
	const char *folder;     /* exists and is ours (rundir.h) */
	const char *name;
	const char *trainworker;
	const char *tls; /* folder (transport/tls_folder.h); NULL: plain */
	unsigned slots;
	bool insecure;
	bool set_omp;        /* OMP_NUM_THREADS is not in our environment */
	uint64_t open_files; /* soft limit that workers get */
	uint64_t halted_ms;  /* that a worker of a group may be stopped by a signal; 0: any time */
};

/* Opens the port and begins to dial memberd; serves, and says so in folder/address and folder/pid, at once. */
tr_status node_create(uv_loop_t *loop, const struct node_options *options, struct node **node,
    struct tr_error *error);
/* Tells memberd, ends all workers (TERM, then KILL), then closes everything; the loop then runs out of handles. */
void node_stop(struct node *node, const char *reason);
/* After the loop has run out. */
void node_destroy(struct node *node);

#endif
