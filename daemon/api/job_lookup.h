/* A job for an answer. */
#ifndef TR_DAEMON_API_JOB_LOOKUP_H
#define TR_DAEMON_API_JOB_LOOKUP_H

#include "daemon/api/trainer_service.h"

/* The job with its events, fit to be sent; free it. NULL: there is none, and the call was ended with NOT_FOUND. */
Traind__V1__Job *job_lookup(const struct trainer_backend *backend, void *arg, uint64_t job,
    struct grpc_call *call);

#endif
