/* A cluster, played, behind the API's service (trainer_service.h): three jobs, a node, links, samples and logs. Requests wait until the script answers them,
 * or are answered at once; texts may be long, or no UTF-8. Static.
 */
#ifndef TR_TESTS_FUZZ_API_BACKEND_H
#define TR_TESTS_FUZZ_API_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/trainer_service.h"
#include "tests/fuzz/die.h"
#include "tests/fuzz/script.h"

#define API_JOBS       3
#define API_PENDING    256
#define API_SOURCES    64
#define API_TEXT_LONG  (200u << 10)
#define API_LOG_WINDOW (64u << 10)
#define API_LOG_CHUNK  (4u << 10)

enum api_asked { API_SUBMIT, API_CANCEL, API_MEASURE };

struct api_pending {
	enum api_asked asked;
	uint64_t request, job;
};

struct api_source {
	uint64_t stream, left, credit;
};

static struct {
	struct trainer_service *service;
	struct api_pending pending[API_PENDING]; /* the newest; of others nobody hears again */
	unsigned pending_count;
	struct api_source sources[API_SOURCES];
	Traind__V1__JobState state[API_JOBS];
	bool at_once, away, is_long, is_bad; /* answers at once; not serving; texts */
} api;

static void api_need(const void *memory)
{
	if (memory == NULL)
		live_die("no memory for a cluster");
}

static char *api_text(void)
{
	char *text = malloc(API_TEXT_LONG + 1);
	size_t bytes = api.is_long ? API_TEXT_LONG : 5;
	api_need(text);
	memset(text, 'r', bytes);
	text[bytes] = '\0';
	if (api.is_bad)
		text[bytes / 2] = '\xff';
	return text;
}

/* ---- requests */

static void api_answer(struct api_pending is, tr_status status)
{
	const char *text = status == TR_OK ? NULL : "no";
	if (is.asked == API_SUBMIT)
		trainer_service_submitted(api.service, is.request, status, 1, false, text);
	else if (is.asked == API_CANCEL)
		trainer_service_cancelled(api.service, is.request, status, is.job, text);
	else
		trainer_service_measured(api.service, is.request, status, text);
}

static void api_asks(enum api_asked asked, uint64_t request, uint64_t job)
{
	struct api_pending is = { asked, request, job };
	if (api.at_once)
		api_answer(is, TR_OK);
	else
		api.pending[api.pending_count++ % API_PENDING] = is;
}

static void api_submit(void *arg, uint64_t request, const Traind__V1__SubmitJobRequest *submit)
{
	(void)arg;
	(void)submit;
	api_asks(API_SUBMIT, request, 0);
}

static void api_cancel(void *arg, uint64_t request, uint64_t job, const char *reason)
{
	(void)arg;
	(void)reason;
	api_asks(API_CANCEL, request, job);
}

static void api_measure(void *arg, uint64_t request, const Traind__V1__MeasureLinksRequest *measure)
{
	(void)arg;
	(void)measure;
	api_asks(API_MEASURE, request, 0);
}

/* ---- what is */

static Traind__V1__Job *api_job(void *arg, uint64_t id, bool with_events)
{
	(void)arg;
	(void)with_events;
	if (id == 0 || id > API_JOBS)
		return NULL;
	Traind__V1__Job *job = malloc(sizeof(*job));
	api_need(job);
	traind__v1__job__init(job);
	job->id = id;
	job->state = api.state[id - 1];
	job->reason = api_text();
	return job;
}

static Traind__V1__ListJobsResponse *api_jobs(void *arg)
{
	Traind__V1__ListJobsResponse *list = malloc(sizeof(*list));
	api_need(list);
	traind__v1__list_jobs_response__init(list);
	list->jobs = calloc(API_JOBS, sizeof(list->jobs[0]));
	api_need(list->jobs);
	for (uint64_t id = 1; id <= API_JOBS; id++)
		list->jobs[list->n_jobs++] = api_job(arg, id, false);
	return list;
}

static Traind__V1__ListNodesResponse *api_nodes(void *arg)
{
	Traind__V1__ListNodesResponse *list = malloc(sizeof(*list));
	Traind__V1__Node *node = malloc(sizeof(*node));
	(void)arg;
	api_need(list);
	api_need(node);
	traind__v1__list_nodes_response__init(list);
	traind__v1__node__init(node);
	node->name = api_text();
	list->nodes = calloc(1, sizeof(list->nodes[0]));
	api_need(list->nodes);
	list->nodes[list->n_nodes++] = node;
	return list;
}

static Traind__V1__Samples *api_samples(void *arg, uint64_t job)
{
	Traind__V1__Samples *samples = malloc(sizeof(*samples));
	(void)arg;
	api_need(samples);
	traind__v1__samples__init(samples);
	samples->job_id = job;
	return samples;
}

static Traind__V1__Links *api_links(void *arg)
{
	Traind__V1__Links *links = malloc(sizeof(*links));
	(void)arg;
	api_need(links);
	traind__v1__links__init(links);
	links->layers_of = api_text();
	return links;
}

static bool api_serving(void *arg)
{
	(void)arg;
	return !api.away;
}

/* ---- logs */

static struct api_source *api_source(uint64_t stream)
{
	for (unsigned i = 0; i < API_SOURCES; i++)
		if (api.sources[i].stream == stream)
			return &api.sources[i];
	return NULL;
}

static tr_status api_log_open(void *arg, uint64_t stream,
    const Traind__V1__StreamLogsRequest *request, struct tr_error *error)
{
	struct api_source *source = api_source(0);
	(void)arg;
	if (source == NULL || request->job_id == 0 || request->job_id > API_JOBS)
		return tr_error_set(error, TR_ENOTFOUND, "no such job, or too many read logs");
	*source = (struct api_source){ stream, request->follow ? UINT64_MAX : 100000,
		API_LOG_WINDOW };
	return TR_OK;
}

static void api_log_credit(void *arg, uint64_t stream, uint64_t bytes)
{
	struct api_source *source = api_source(stream);
	(void)arg;
	if (source == NULL)
		live_die("credit for a log that nobody reads");
	source->credit += bytes;
	if (source->credit > API_LOG_WINDOW)
		live_die("more credit for a log than was used");
}

static void api_log_close(void *arg, uint64_t stream)
{
	struct api_source *source = api_source(stream);
	(void)arg;
	if (source == NULL)
		live_die("a log is closed that nobody reads");
	source->stream = 0;
}

static void api_pour(struct api_source *source)
{
	static uint8_t bytes[API_LOG_CHUNK];
	Traind__V1__LogChunk chunk = TRAIND__V1__LOG_CHUNK__INIT;
	uint64_t stream = source->stream, most = source->credit;
	for (uint64_t poured = 0; source->stream == stream && poured < most;
	     poured += chunk.data.len) {
		uint64_t count = source->left < sizeof(bytes) ? source->left : sizeof(bytes);
		count = source->credit < count ? source->credit : count;
		if (count == 0)
			break;
		chunk.data = (ProtobufCBinaryData){ (size_t)count, bytes };
		source->left -= count;
		source->credit -= count;
		trainer_service_log(api.service, stream, &chunk);
	}
	if (source->stream != stream || source->left > 0)
		return;
	source->stream = 0;
	trainer_service_log_end(api.service, stream, TR_OK, NULL);
}

static void api_end_log(struct api_source *source)
{
	uint64_t stream = source->stream;
	source->stream = 0;
	trainer_service_log_end(api.service, stream, TR_EIO, "its node is gone");
}

/* ---- what the script lets happen */

static void api_acts(struct script *script)
{
	uint8_t which = script_byte(script), job = which / 16 % API_JOBS;
	struct api_source *source = &api.sources[which / 16];
	switch (which % 16) {
	case 0:
	case 1:
		if (api.pending_count > 0)
			api_answer(api.pending[--api.pending_count % API_PENDING],
			    which % 16 == 0 ? TR_OK : TR_EINVAL);
		break;
	case 2:
		api_answer((struct api_pending){ which / 16 % 3, script_byte(script), job + 1u },
		    TR_OK); /* perhaps nobody's */
		break;
	case 3:
		api.state[job] = (Traind__V1__JobState)(script_byte(script) % 8);
		trainer_service_job_changed(api.service, job + 1u);
		break;
	case 4:
		trainer_service_job_changed(api.service, job + 1u);
		break;
	case 5:
		if (source->stream != 0)
			api_end_log(source);
		break;
	case 6:
		api.away = !api.away;
		break;
	case 7:
		api.is_long = !api.is_long;
		break;
	case 8:
		api.is_bad = !api.is_bad;
		break;
	case 9:
		api.at_once = !api.at_once;
		break;
	default:
		for (unsigned i = 0; i < API_SOURCES; i++)
			if (api.sources[i].stream != 0)
				api_pour(&api.sources[i]);
	}
}

static void api_begin(void)
{
	api.pending_count = 0;
	api.at_once = api.away = api.is_long = api.is_bad = false;
	for (unsigned i = 0; i < API_JOBS; i++)
		api.state[i] = TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING;
}

static const struct trainer_backend api_backend = {
	.submit = api_submit,
	.cancel = api_cancel,
	.job = api_job,
	.jobs = api_jobs,
	.nodes = api_nodes,
	.samples = api_samples,
	.measure = api_measure,
	.links = api_links,
	.log_open = api_log_open,
	.log_credit = api_log_credit,
	.log_close = api_log_close,
	.serving = api_serving,
};

#endif
