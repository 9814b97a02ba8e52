/* StreamLogs: pieces of output from the backend to calls. The backend is given credit as the client reads, so that a slow client
 * costs at most a call's queue and the backend's window.
 */
#ifndef TR_DAEMON_API_LOG_CALLS_H
#define TR_DAEMON_API_LOG_CALLS_H

#include "daemon/api/trainer_service.h"

struct log_call;

/* Embedded in the service. */
struct log_calls {
	const struct trainer_backend *backend;
	void *arg; /* the backend's */
	struct log_call *calls;
	uint64_t last_stream;
};

void log_calls_init(struct log_calls *calls, const struct trainer_backend *backend, void *arg);
void log_calls_add(struct log_calls *calls, struct grpc_call *call,
    const Traind__V1__StreamLogsRequest *request);
void log_calls_data(struct log_calls *calls, uint64_t stream, const Traind__V1__LogChunk *chunk);
void log_calls_end(struct log_calls *calls, uint64_t stream, tr_status status, const char *text);

#endif
