#include "daemon/api/job_lookup.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/api/message_text.h"

Traind__V1__Job *job_lookup(const struct trainer_backend *backend, void *arg, uint64_t job,
    struct grpc_call *call)
{
	Traind__V1__Job *found = backend->job(arg, job, true);
	if (found == NULL) {
		char text[96];
		(void)snprintf(text, sizeof(text), "there is no job %" PRIu64, job);
		grpc_call_end(call, GRPC_NOT_FOUND, text);
		return NULL;
	}
	message_text_repair(&found->base); /* reasons and events quote what programs wrote */
	return found;
}
