/* traind.v1.Trainer and grpc.health.v1.Health as method tables over a backend. memberd's backend is its core; traind has no
 * backend: it answers Health by itself and forwards the rest (forward.h).
 */
#ifndef TR_DAEMON_API_TRAINER_SERVICE_H
#define TR_DAEMON_API_TRAINER_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/error.h"
#include "daemon/api/grpc_server.h"
#include "traind/v1/trainer.pb-c.h"

struct trainer_service;

/* All run on the loop's thread. Messages returned are owned by the service (free_unpacked). Requests are borrowed until return. */
struct trainer_backend {
	/* Answer later, once, with trainer_service_submitted / _cancelled for `request`. */
	void (*submit)(void *arg, uint64_t request, const Traind__V1__SubmitJobRequest *submit);
	void (*cancel)(void *arg, uint64_t request, uint64_t job, const char *reason);
	Traind__V1__Job *(*job)(void *arg, uint64_t job, bool with_events); /* NULL: no such job */
	/* Newest first; what does not fit into one message is cut off at the end. */
	Traind__V1__ListJobsResponse *(*jobs)(void *arg);
	Traind__V1__ListNodesResponse *(*nodes)(void *arg);
	Traind__V1__Samples *(
	    *samples)(void *arg, uint64_t job); /* NULL: no such job, or no memory */
	/* Links; answers later, with trainer_service_measured. */
	void (*measure)(void *arg, uint64_t request, const Traind__V1__MeasureLinksRequest *measure);
	Traind__V1__Links *(*links)(void *arg); /* NULL: no memory */
	/* Opens a log stream; pieces come by trainer_service_log for `stream`, until end. Credit is asked for with log_credit
	 * as the client reads. */
	tr_status (*log_open)(void *arg, uint64_t stream,
	    const Traind__V1__StreamLogsRequest *request, struct tr_error *error);
	void (*log_credit)(void *arg, uint64_t stream, uint64_t bytes);
	void (*log_close)(void *arg, uint64_t stream); /* the client went away */
	bool (*serving)(void *arg);
};

tr_status trainer_service_create(uv_loop_t *loop, const struct trainer_backend *backend, void *arg,
    struct trainer_service **service);
/* For grpc_server_options.methods and .arg. */
const struct grpc_method *trainer_service_methods(void);

void trainer_service_submitted(struct trainer_service *service, uint64_t request, tr_status status,
    uint64_t job, bool existed, const char *text);
void trainer_service_cancelled(struct trainer_service *service, uint64_t request, tr_status status,
    uint64_t job, const char *text);
void trainer_service_measured(struct trainer_service *service, uint64_t request, tr_status status,
    const char *text);
void trainer_service_job_changed(struct trainer_service *service, uint64_t job);
void trainer_service_log(struct trainer_service *service, uint64_t stream,
    const Traind__V1__LogChunk *chunk);
void trainer_service_log_end(struct trainer_service *service, uint64_t stream, tr_status status,
    const char *text);
/* After the server's `closed`: no call may be open. Needs no further turn of the loop. */
void trainer_service_destroy(struct trainer_service *service);

#endif
