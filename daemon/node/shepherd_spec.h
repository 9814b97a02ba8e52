/* What traind tells a shepherd about its worker: written into a memfd, since arguments are visible to every user of the
 * machine and an environment may hold secrets.
 */
#ifndef TR_DAEMON_NODE_SHEPHERD_SPEC_H
#define TR_DAEMON_NODE_SHEPHERD_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct shepherd_spec {
	pid_t traind;
	unsigned grace_ms;              /* between TERM and KILL, unless a stop says otherwise */
	uint64_t open_files;            /* soft limit for the worker */
	bool channel;                   /* SHEPHERD_FD_CHANNEL is open: the worker inherits it */
	const char *cgroup;             /* to make and remove; "": none */
	const char *directory;          /* "": traind's own */
	const char *const *argv;        /* ended by NULL */
	const char *const *environment; /* "KEY=value", added to the inherited one; ended by NULL */
	void *memory;                   /* of a read one: free() */
};

tr_status shepherd_spec_write(const struct shepherd_spec *spec, int *fd, struct tr_error *error);
tr_status shepherd_spec_read(int fd, struct shepherd_spec *spec, struct tr_error *error);
void shepherd_spec_finish(struct shepherd_spec *spec); /* of a read one */

#endif
