/* Plain HTTP on the daemon's port, for load balancers and people: GET /healthz. */
#ifndef TR_DAEMON_SHELL_HEALTHZ_H
#define TR_DAEMON_SHELL_HEALTHZ_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "collectives/transport/stream.h"

struct healthz;

/* Reads one request's first line, answers and closes: 200 "ok" or 503 with the reason for /healthz, 404 for other paths, 400 for
 * what is no request. Takes the stream; `early` is what was read of the request so far, copied. A client that does not finish its line in
 * TR_CONN_GREETING_TIMEOUT_MS is dropped, and so is one over TR_HEALTHZ_MAX at once. `serving` decides the answer (`reason`, static,
 * why not). */
void healthz_answer(uv_loop_t *loop, struct stream stream, const void *early, size_t early_bytes,
    bool serving, const char *reason);
/* Drops those that are open, when the daemon ends. */
void healthz_finish(void);

#endif
