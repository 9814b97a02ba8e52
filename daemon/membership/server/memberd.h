/* memberd around its core: one listening port, the log, the API. Everything that happens becomes an event in a queue; the loop
 * steps the core from there, never inside a callback, and carries out the core's actions.
 */
#ifndef TR_DAEMON_MEMBERSHIP_SERVER_MEMBERD_H
#define TR_DAEMON_MEMBERSHIP_SERVER_MEMBERD_H

#include <stdbool.h>
#include <uv.h>

#include "common/error.h"
#include "daemon/membership/core/membership.h"

struct memberd;

struct memberd_options {
	const char *listen, *folder; /* folder exists and is ours (rundir.h) */
	const char *tls;             /* folder (transport/tls_folder.h); NULL: plain */
	bool insecure;
	struct membership_options core;
};

/* Opens the port and the log. Serves, and says so in folder/address and folder/pid, once the log is replayed. If the log
 * cannot go on, `failed` (text borrowed) is called once; the caller stops then. */
tr_status memberd_create(uv_loop_t *loop, const struct memberd_options *options,
    void (*failed)(void *arg, const char *text), void *arg, struct memberd **memberd,
    struct tr_error *error);
/* Closes everything; the loop then runs out of handles. */
void memberd_stop(struct memberd *memberd);
/* After the loop has run out. */
void memberd_destroy(struct memberd *memberd);

#endif
