#include "daemon/api/trainer_service.h"

#include <assert.h>
#include <stdlib.h>

#include "common/limits.h"
#include "daemon/api/api_message.h"
#include "daemon/api/health_service.h"
#include "daemon/api/job_lookup.h"
#include "daemon/api/job_watch.h"
#include "daemon/api/log_calls.h"
#include "daemon/api/message_text.h"

/* A SubmitJob, CancelJob or MeasureLinks that the backend answers later. */
struct pending_call {
	struct trainer_service *service;
	struct pending_call *next;
	struct grpc_call *call;
	uint64_t request;
};

struct trainer_service {
	const struct trainer_backend *backend;
	void *arg;
	struct pending_call *pending;
	uint64_t last_request;
	struct job_watch watch;
	struct log_calls logs;
	struct health_service health;
};

static void pending_remove(struct pending_call *pending)
{
	struct pending_call **at = &pending->service->pending;
	while (*at != pending)
		at = &(*at)->next;
	*at = pending->next;
	free(pending);
}

/* The backend goes on; its answer finds nobody. */
static void pending_cancelled(void *arg)
{
	pending_remove(arg);
}

/* The number of the request; 0: no memory, the call was ended. */
static uint64_t pending_add(struct trainer_service *service, struct grpc_call *call)
{
	struct pending_call *pending = calloc(1, sizeof(*pending));
	if (pending == NULL) {
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return 0;
	}
	*pending = (struct pending_call){ service, service->pending, call, ++service->last_request };
	service->pending = pending;
	grpc_call_on_cancel(call, pending_cancelled, pending);
	return pending->request;
}

/* The call that waits for this answer; NULL: it went away. */
static struct grpc_call *pending_take(struct trainer_service *service, uint64_t request)
{
	struct pending_call *pending = service->pending;
	while (pending != NULL && pending->request != request)
		pending = pending->next;
	if (pending == NULL)
		return NULL;
	struct grpc_call *call = pending->call;
	pending_remove(pending);
	return call;
}

/* ---- methods */

static void submit_job(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__submit_job_request__descriptor, request, bytes);
	uint64_t number = message == NULL ? 0 : pending_add(service, call);
	if (number != 0)
		service->backend->submit(service->arg, number,
		    (Traind__V1__SubmitJobRequest *)message);
	protobuf_c_message_free_unpacked(message, NULL);
}

static void cancel_job(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__cancel_job_request__descriptor, request, bytes);
	uint64_t number = message == NULL ? 0 : pending_add(service, call);
	if (number != 0) {
		const Traind__V1__CancelJobRequest *cancel = (Traind__V1__CancelJobRequest *)message;
		service->backend->cancel(service->arg, number, cancel->job_id, cancel->reason);
	}
	protobuf_c_message_free_unpacked(message, NULL);
}

static void answer_with_job(struct trainer_service *service, struct grpc_call *call, uint64_t id)
{
	Traind__V1__Job *job = job_lookup(service->backend, service->arg, id, call);
	if (job == NULL)
		return;
	api_message_answer(call, &job->base);
	traind__v1__job__free_unpacked(job, NULL);
}

/* A memberd that reads its log knows less than it did before: "there is no such job" would be a lie. */
static bool ready(const struct trainer_service *service, struct grpc_call *call)
{
	if (service->backend->serving(service->arg))
		return true;
	grpc_call_end(call, GRPC_UNAVAILABLE,
	    "memberd is not ready: it reads its log, or ends; try again");
	return false;
}

static void get_job(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	if (!ready(arg, call))
		return;
	ProtobufCMessage *message = api_message_read(call, &traind__v1__get_job_request__descriptor,
	    request, bytes);
	if (message != NULL)
		answer_with_job(arg, call, ((Traind__V1__GetJobRequest *)message)->job_id);
	protobuf_c_message_free_unpacked(message, NULL);
}

static void get_samples(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	if (!ready(service, call))
		return;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__get_samples_request__descriptor, request, bytes);
	if (message == NULL)
		return;
	uint64_t id = ((Traind__V1__GetSamplesRequest *)message)->job_id;
	protobuf_c_message_free_unpacked(message, NULL);
	/* It answers if there is no such job. */
	Traind__V1__Job *job = job_lookup(service->backend, service->arg, id, call);
	if (job == NULL)
		return;
	traind__v1__job__free_unpacked(job, NULL);
	Traind__V1__Samples *samples = service->backend->samples(service->arg, id);
	if (samples == NULL) {
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	message_text_repair(&samples->base);
	api_message_answer(call, &samples->base);
	traind__v1__samples__free_unpacked(samples, NULL);
}

/* Sends the first jobs that fit. */
static void answer_with_jobs(struct grpc_call *call, Traind__V1__ListJobsResponse *jobs)
{
	enum { FIELD_BYTES_MAX = 6 }; /* tag and length of one entry */
	size_t bytes = 0, whole = jobs->n_jobs, fits = 0;
	while (fits < whole) {
		bytes += FIELD_BYTES_MAX + traind__v1__job__get_packed_size(jobs->jobs[fits]);
		if (bytes > TR_GRPC_MESSAGE_MAX)
			break;
		fits++;
	}
	jobs->n_jobs = fits;
	api_message_answer(call, &jobs->base);
	jobs->n_jobs = whole;
}

static void list_jobs(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	if (!ready(service, call))
		return;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__list_jobs_request__descriptor, request, bytes);
	if (message == NULL)
		return;
	protobuf_c_message_free_unpacked(message, NULL);
	Traind__V1__ListJobsResponse *jobs = service->backend->jobs(service->arg);
	if (jobs == NULL) {
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	message_text_repair(&jobs->base);
	answer_with_jobs(call, jobs);
	traind__v1__list_jobs_response__free_unpacked(jobs, NULL);
}

static void list_nodes(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	if (!ready(service, call))
		return;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__list_nodes_request__descriptor, request, bytes);
	if (message == NULL)
		return;
	protobuf_c_message_free_unpacked(message, NULL);
	Traind__V1__ListNodesResponse *nodes = service->backend->nodes(service->arg);
	if (nodes == NULL) {
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	message_text_repair(&nodes->base);
	api_message_answer(call, &nodes->base);
	traind__v1__list_nodes_response__free_unpacked(nodes, NULL);
}

static void answer_with_links(struct trainer_service *service, struct grpc_call *call)
{
	Traind__V1__Links *links = service->backend->links(service->arg);
	if (links == NULL) {
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	message_text_repair(&links->base);
	api_message_answer(call, &links->base);
	traind__v1__links__free_unpacked(links, NULL);
}

static void measure_links(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__measure_links_request__descriptor, request, bytes);
	uint64_t number = message == NULL ? 0 : pending_add(service, call);
	if (number != 0)
		service->backend->measure(service->arg, number,
		    (Traind__V1__MeasureLinksRequest *)message);
	protobuf_c_message_free_unpacked(message, NULL);
}

static void list_links(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	if (!ready(arg, call))
		return;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__list_links_request__descriptor, request, bytes);
	if (message != NULL)
		answer_with_links(arg, call);
	protobuf_c_message_free_unpacked(message, NULL);
}

static void watch_job(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	if (!ready(service, call))
		return;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__watch_job_request__descriptor, request, bytes);
	if (message != NULL)
		job_watch_add(&service->watch, call,
		    ((Traind__V1__WatchJobRequest *)message)->job_id);
	protobuf_c_message_free_unpacked(message, NULL);
}

static void stream_logs(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct trainer_service *service = arg;
	if (!ready(service, call))
		return;
	ProtobufCMessage *message = api_message_read(call,
	    &traind__v1__stream_logs_request__descriptor, request, bytes);
	if (message != NULL)
		log_calls_add(&service->logs, call, (Traind__V1__StreamLogsRequest *)message);
	protobuf_c_message_free_unpacked(message, NULL);
}

static void health_check(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	health_service_check(&((struct trainer_service *)arg)->health, call, request, bytes);
}

static void health_watch(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	health_service_watch(&((struct trainer_service *)arg)->health, call, request, bytes);
}

const struct grpc_method *trainer_service_methods(void)
{
	static const struct grpc_method methods[] = {
		{ "/traind.v1.Trainer/SubmitJob", submit_job },
		{ "/traind.v1.Trainer/GetJob", get_job },
		{ "/traind.v1.Trainer/ListJobs", list_jobs },
		{ "/traind.v1.Trainer/CancelJob", cancel_job },
		{ "/traind.v1.Trainer/ListNodes", list_nodes },
		{ "/traind.v1.Trainer/WatchJob", watch_job },
		{ "/traind.v1.Trainer/StreamLogs", stream_logs },
		{ "/traind.v1.Trainer/GetSamples", get_samples },
		{ "/traind.v1.Trainer/MeasureLinks", measure_links },
		{ "/traind.v1.Trainer/ListLinks", list_links },
		{ HEALTH_CHECK_PATH, health_check },
		{ HEALTH_WATCH_PATH, health_watch },
		{ NULL, NULL },
	};
	return methods;
}

/* ---- from the backend */

void trainer_service_submitted(struct trainer_service *service, uint64_t request, tr_status status,
    uint64_t job, bool existed, const char *text)
{
	struct grpc_call *call = pending_take(service, request);
	if (call == NULL)
		return;
	if (status != TR_OK) {
		grpc_call_end(call, grpc_status_of(status), text);
		return;
	}
	Traind__V1__SubmitJobResponse response = TRAIND__V1__SUBMIT_JOB_RESPONSE__INIT;
	response.job_id = job;
	response.existed = existed;
	api_message_answer(call, &response.base);
}

void trainer_service_cancelled(struct trainer_service *service, uint64_t request, tr_status status,
    uint64_t job, const char *text)
{
	struct grpc_call *call = pending_take(service, request);
	if (call == NULL)
		return;
	if (status != TR_OK)
		grpc_call_end(call, grpc_status_of(status), text);
	else
		answer_with_job(service, call, job);
}

void trainer_service_measured(struct trainer_service *service, uint64_t request, tr_status status,
    const char *text)
{
	struct grpc_call *call = pending_take(service, request);
	if (call == NULL)
		return;
	if (status != TR_OK)
		grpc_call_end(call, grpc_status_of(status), text);
	else
		answer_with_links(service, call);
}

void trainer_service_job_changed(struct trainer_service *service, uint64_t job)
{
	job_watch_changed(&service->watch, job);
}

void trainer_service_log(struct trainer_service *service, uint64_t stream,
    const Traind__V1__LogChunk *chunk)
{
	log_calls_data(&service->logs, stream, chunk);
}

void trainer_service_log_end(struct trainer_service *service, uint64_t stream, tr_status status,
    const char *text)
{
	log_calls_end(&service->logs, stream, status, text);
}

/* ---- life */

tr_status trainer_service_create(uv_loop_t *loop, const struct trainer_backend *backend, void *arg,
    struct trainer_service **out)
{
	struct trainer_service *service = calloc(1, sizeof(*service));
	if (service == NULL)
		return TR_ENOMEM;
	service->backend = backend;
	service->arg = arg;
	job_watch_init(&service->watch, loop, backend, arg);
	log_calls_init(&service->logs, backend, arg);
	health_service_init(&service->health, loop, backend->serving, arg);
	*out = service;
	return TR_OK;
}

void trainer_service_destroy(struct trainer_service *service)
{
	if (service == NULL)
		return;
	assert(service->pending == NULL && service->logs.calls == NULL);
	job_watch_finish(&service->watch);
	health_service_finish(&service->health);
	free(service);
}
