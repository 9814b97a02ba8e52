/* The API's calls as events and reads of the core. */
#include "daemon/membership/server/memberd_internal.h"

#include <stdlib.h>

#include "daemon/api/trainer_service.h"

/* The core has one space of request numbers; the lowest bits say which answer the API waits for. */
enum asked { ASKED_SUBMIT, ASKED_CANCEL, ASKED_MEASURE, ASKED_MASK };

static uint64_t number_of(uint64_t request, enum asked asked)
{
	return request << 2 | asked;
}

/* A copy that outlives the call: through its wire form, which every message has. */
static void *copy_request(const ProtobufCMessage *request)
{
	size_t bytes = protobuf_c_message_get_packed_size(request);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return NULL;
	(void)protobuf_c_message_pack(request, packed);
	ProtobufCMessage *copy = protobuf_c_message_unpack(request->descriptor, NULL, bytes, packed);
	free(packed);
	return copy;
}

static void submit(void *arg, uint64_t request, const Traind__V1__SubmitJobRequest *message)
{
	struct memberd *memberd = arg;
	Traind__V1__SubmitJobRequest *copy = copy_request(&message->base);
	if (copy == NULL) {
		trainer_service_submitted(memberd->service, request, TR_ENOMEM, 0, false,
		    "out of memory");
		return;
	}
	event_queue_push(memberd,
	    &(struct membership_event){ .kind = MEMBERSHIP_SUBMIT,
	        .request = number_of(request, ASKED_SUBMIT),
	        .submit = copy },
	    &copy->base, NULL);
}

static void cancel(void *arg, uint64_t request, uint64_t job, const char *reason)
{
	event_queue_push(arg,
	    &(struct membership_event){ .kind = MEMBERSHIP_CANCEL,
	        .request = number_of(request, ASKED_CANCEL),
	        .job = job },
	    NULL, reason);
}

static void measure(void *arg, uint64_t request, const Traind__V1__MeasureLinksRequest *message)
{
	struct memberd *memberd = arg;
	Traind__V1__MeasureLinksRequest *copy = copy_request(&message->base);
	if (copy == NULL) {
		trainer_service_measured(memberd->service, request, TR_ENOMEM, "out of memory");
		return;
	}
	event_queue_push(memberd,
	    &(struct membership_event){ .kind = MEMBERSHIP_MEASURE,
	        .request = number_of(request, ASKED_MEASURE),
	        .measure = copy },
	    &copy->base, NULL);
}

void backend_reply(struct memberd *memberd, const struct membership_action *action)
{
	uint64_t request = action->request >> 2;
	switch ((enum asked)(action->request & ASKED_MASK)) {
	case ASKED_SUBMIT:
		trainer_service_submitted(memberd->service, request, action->status, action->job,
		    action->existed, action->text);
		break;
	case ASKED_CANCEL:
		trainer_service_cancelled(memberd->service, request, action->status, action->job,
		    action->text);
		break;
	case ASKED_MEASURE:
		trainer_service_measured(memberd->service, request, action->status, action->text);
		break;
	case ASKED_MASK:
		break;
	}
}

static Traind__V1__Job *job(void *arg, uint64_t number, bool with_events)
{
	const struct memberd *memberd = arg;
	return membership_job(memberd->core, number, with_events);
}

static Traind__V1__ListJobsResponse *jobs(void *arg)
{
	const struct memberd *memberd = arg;
	return membership_jobs(memberd->core);
}

static Traind__V1__ListNodesResponse *nodes(void *arg)
{
	const struct memberd *memberd = arg;
	return membership_nodes(memberd->core, uv_hrtime() / 1000000);
}

static Traind__V1__Links *links(void *arg)
{
	const struct memberd *memberd = arg;
	return membership_links(memberd->core, uv_hrtime() / 1000000);
}

static Traind__V1__Samples *samples(void *arg, uint64_t number)
{
	const struct memberd *memberd = arg;
	return membership_samples(memberd->core, number);
}

static tr_status log_open(void *arg, uint64_t stream, const Traind__V1__StreamLogsRequest *request,
    struct tr_error *error)
{
	return log_relay_open(arg, stream, request, error);
}

static void log_credit(void *arg, uint64_t stream, uint64_t bytes)
{
	log_relay_credit(arg, stream, bytes);
}

static void log_close(void *arg, uint64_t stream)
{
	log_relay_close(arg, stream);
}

static bool serving(void *arg)
{
	const struct memberd *memberd = arg;
	return membership_leading(memberd->core) && !memberd->stopping;
}

const struct trainer_backend backend_calls = {
	.submit = submit,
	.cancel = cancel,
	.job = job,
	.jobs = jobs,
	.nodes = nodes,
	.samples = samples,
	.measure = measure,
	.links = links,
	.log_open = log_open,
	.log_credit = log_credit,
	.log_close = log_close,
	.serving = serving,
};
