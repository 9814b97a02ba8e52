/* The Trainer service over a backend of the test's, through a real connection: who is answered when, what a slow watcher and a slow
 * reader of logs get, and what happens to answers that nobody waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/listener.h"
#include "common/limits.h"
#include "daemon/api/grpc_client.h"
#include "daemon/api/trainer_service.h"

#define WINDOW_BYTES (256u << 10)

struct fixture {
	uv_loop_t loop;
	uv_timer_t watchdog;
	struct listener *listener;
	struct grpc_server *server;
	struct trainer_service *service;
	struct grpc_client *client;
	/* the backend */
	unsigned submits, cancels, opens, closes;
	uint64_t request, stream, credit, granted;
	char text[64];     /* of the newest submit or cancel */
	bool exists, away; /* away: it reads its log */
	Traind__V1__JobState state;
	uint64_t step;
	size_t padding;
};

struct outcome {
	struct fixture *fixture;
	struct grpc_client_call *call;
	unsigned messages, ended;
	bool pause;
	uint64_t step;
	size_t log_bytes;
	enum grpc_status status;
	char text[256];
	uint64_t job, link_from;
};

/* ---- the backend */

static void submit(void *arg, uint64_t request, const Traind__V1__SubmitJobRequest *message)
{
	struct fixture *f = arg;
	f->submits++;
	f->request = request;
	(void)snprintf(f->text, sizeof(f->text), "%s", message->request_id);
	uv_stop(&f->loop);
}

static void cancel(void *arg, uint64_t request, uint64_t job, const char *reason)
{
	struct fixture *f = arg;
	(void)job;
	f->cancels++;
	f->request = request;
	(void)snprintf(f->text, sizeof(f->text), "%s", reason);
	uv_stop(&f->loop);
}

static Traind__V1__Job *job(void *arg, uint64_t id, bool with_events)
{
	const struct fixture *f = arg;
	(void)with_events;
	if (!f->exists)
		return NULL;
	Traind__V1__Job *job = malloc(sizeof(*job));
	Traind__V1__Progress *progress = malloc(sizeof(*progress));
	assert_true(job != NULL && progress != NULL);
	traind__v1__job__init(job);
	traind__v1__progress__init(progress);
	job->id = id;
	job->state = f->state;
	job->progress = progress;
	progress->step = f->step;
	job->reason = calloc(1, f->padding + 1);
	memset(job->reason, 'r', f->padding);
	return job;
}

static tr_status log_open(void *arg, uint64_t stream, const Traind__V1__StreamLogsRequest *request,
    struct tr_error *error)
{
	struct fixture *f = arg;
	if (request->job_id != 1)
		return tr_error_set(error, TR_ENOTFOUND, "no job %d", (int)request->job_id);
	f->opens++;
	f->stream = stream;
	f->credit = WINDOW_BYTES;
	uv_stop(&f->loop);
	return TR_OK;
}

static void log_credit(void *arg, uint64_t stream, uint64_t bytes)
{
	struct fixture *f = arg;
	assert_int_equal(stream, f->stream);
	f->credit += bytes;
	f->granted += bytes;
}

static void log_close(void *arg, uint64_t stream)
{
	struct fixture *f = arg;
	assert_int_equal(stream, f->stream);
	f->closes++;
	uv_stop(&f->loop);
}

static Traind__V1__ListJobsResponse *jobs(void *arg)
{
	(void)arg;
	return NULL;
}

static Traind__V1__ListNodesResponse *nodes(void *arg)
{
	(void)arg;
	return NULL;
}

static Traind__V1__Samples *samples(void *arg, uint64_t id)
{
	const struct fixture *f = arg;
	Traind__V1__Samples *samples = f->exists ? malloc(sizeof(*samples)) : NULL;
	if (samples == NULL)
		return NULL;
	traind__v1__samples__init(samples);
	samples->job_id = id;
	samples->known = true;
	samples->round = f->step;
	return samples;
}

static void measure(void *arg, uint64_t request, const Traind__V1__MeasureLinksRequest *message)
{
	(void)message;
	struct fixture *f = arg;
	f->request = request;
	uv_stop(&f->loop);
}

static Traind__V1__Links *links(void *arg)
{
	const struct fixture *f = arg;
	Traind__V1__Links *links = f->exists ? malloc(sizeof(*links)) : NULL;
	if (links == NULL)
		return NULL;
	traind__v1__links__init(links);
	links->n_links = 1;
	links->links = malloc(sizeof(Traind__V1__Link *));
	links->links[0] = malloc(sizeof(Traind__V1__Link));
	traind__v1__link__init(links->links[0]);
	links->links[0]->from_node = f->step;
	return links;
}

static bool serving(void *arg)
{
	const struct fixture *f = arg;
	return !f->away;
}

static const struct trainer_backend backend = { submit, cancel, job, jobs, nodes, samples, measure,
	links, log_open, log_credit, log_close, serving };

/* ---- the client */

static void on_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct outcome *outcome = arg;
	outcome->messages++;
	if (outcome->pause)
		grpc_client_pause(outcome->call, true);
	Traind__V1__Job *job = traind__v1__job__unpack(NULL, bytes, message);
	if (job != NULL && job->progress != NULL)
		outcome->step = job->progress->step;
	if (job != NULL)
		outcome->job = job->id;
	traind__v1__job__free_unpacked(job, NULL);
	Traind__V1__Links *all = traind__v1__links__unpack(NULL, bytes, message);
	if (all != NULL && all->n_links == 1)
		outcome->link_from = all->links[0]->from_node;
	traind__v1__links__free_unpacked(all, NULL);
	Traind__V1__LogChunk *chunk = traind__v1__log_chunk__unpack(NULL, bytes, message);
	if (chunk != NULL)
		outcome->log_bytes += chunk->data.len;
	traind__v1__log_chunk__free_unpacked(chunk, NULL);
	uv_stop(&outcome->fixture->loop);
}

static void on_ended(void *arg, enum grpc_status status, const char *text)
{
	struct outcome *outcome = arg;
	outcome->ended++;
	outcome->status = status;
	(void)snprintf(outcome->text, sizeof(outcome->text), "%s", text);
	uv_stop(&outcome->fixture->loop);
}

static void run_until(struct fixture *f, const unsigned *counter, unsigned value)
{
	while (*counter < value)
		(void)uv_run(&f->loop, UV_RUN_DEFAULT);
}

static void call(struct fixture *f, const char *method, const ProtobufCMessage *request,
    struct outcome *outcome)
{
	static const struct grpc_client_callbacks callbacks = { on_message, on_ended };
	char path[64];
	uint8_t packed[256];
	struct tr_error error;
	(void)snprintf(path, sizeof(path), "/traind.v1.Trainer/%s", method);
	size_t bytes = protobuf_c_message_pack(request, packed);
	outcome->fixture = f;
	assert_int_equal(grpc_client_call(f->client, path, packed, bytes, 0, &callbacks, outcome,
	                     &outcome->call, &error),
	    TR_OK);
}

static void watch(struct fixture *f, struct outcome *outcome)
{
	Traind__V1__WatchJobRequest request = TRAIND__V1__WATCH_JOB_REQUEST__INIT;
	request.job_id = 1;
	call(f, "WatchJob", &request.base, outcome);
}

static void logs(struct fixture *f, uint64_t job_id, struct outcome *outcome)
{
	Traind__V1__StreamLogsRequest request = TRAIND__V1__STREAM_LOGS_REQUEST__INIT;
	request.job_id = job_id;
	call(f, "StreamLogs", &request.base, outcome);
}

static void submit_named(struct fixture *f, const char *id, struct outcome *outcome)
{
	char request_id[64];
	Traind__V1__SubmitJobRequest request = TRAIND__V1__SUBMIT_JOB_REQUEST__INIT;
	(void)snprintf(request_id, sizeof(request_id), "%s", id);
	request.request_id = request_id;
	call(f, "SubmitJob", &request.base, outcome);
}

/* ---- set-up */

static void watchdog_bites(uv_timer_t *timer)
{
	(void)timer;
	(void)fprintf(stderr, "the test hangs\n");
	abort();
}

static void accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	const struct fixture *f = arg;
	assert_int_equal(protocol, LISTENER_HTTP2);
	grpc_server_accept(f->server, stream, early, early_bytes);
}

static int set_up(void **state)
{
	struct tr_error error;
	struct fixture *f = calloc(1, sizeof(*f));
	f->exists = true;
	f->state = TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING;
	assert_int_equal(uv_loop_init(&f->loop), 0);
	(void)uv_timer_init(&f->loop, &f->watchdog);
	(void)uv_timer_start(&f->watchdog, watchdog_bites, 120000, 0);
	assert_int_equal(trainer_service_create(&f->loop, &backend, f, &f->service), TR_OK);
	const struct grpc_server_options options = { .methods = trainer_service_methods(),
		.arg = f->service };
	assert_int_equal(grpc_server_create(&f->loop, &options, &f->server), TR_OK);
	assert_int_equal(listener_start(&f->loop, "127.0.0.1:0", false, NULL, accepted, f,
	                     &f->listener, &error),
	    TR_OK);
	assert_int_equal(grpc_client_create(&f->loop, listener_address(f->listener), NULL,
	                     &f->client, &error),
	    TR_OK);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	grpc_client_destroy(f->client);
	listener_stop(f->listener);
	if (f->server != NULL)
		grpc_server_close(f->server, NULL, NULL);
	uv_close((uv_handle_t *)&f->watchdog, NULL);
	while (uv_run(&f->loop, UV_RUN_DEFAULT) != 0)
		;
	trainer_service_destroy(f->service);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	free(f);
	return 0;
}

/* ---- tests */

static void answers_come_in_any_order(void **state)
{
	struct fixture *f = *state;
	struct outcome first = { 0 }, second = { 0 };
	submit_named(f, "first", &first);
	run_until(f, &f->submits, 1);
	uint64_t first_request = f->request;
	assert_string_equal(f->text, "first");
	submit_named(f, "second", &second);
	run_until(f, &f->submits, 2);
	trainer_service_submitted(f->service, f->request, TR_EINVAL, 0, false, "name: found ''");
	run_until(f, &second.ended, 1);
	assert_int_equal(second.status, GRPC_INVALID_ARGUMENT);
	assert_string_equal(second.text, "name: found ''");
	assert_int_equal(first.ended, 0);
	trainer_service_submitted(f->service, first_request, TR_OK, 7, false, NULL);
	run_until(f, &first.ended, 1);
	assert_int_equal(first.status, GRPC_OK);
	assert_int_equal(first.messages, 1);
}

static void an_answer_that_nobody_waits_for(void **state)
{
	struct fixture *f = *state;
	struct outcome gone = { 0 }, other = { 0 };
	submit_named(f, "gone", &gone);
	run_until(f, &f->submits, 1);
	uint64_t request = f->request;
	grpc_client_cancel(gone.call);
	submit_named(f, "other", &other);
	run_until(f, &f->submits, 2); /* on the same connection, so the cancellation has come */
	trainer_service_submitted(f->service, request, TR_OK, 7, false, NULL);
	trainer_service_submitted(f->service, request, TR_OK, 7, false, NULL);
	trainer_service_submitted(f->service, f->request, TR_OK, 8, false, NULL);
	trainer_service_submitted(f->service, 4711, TR_OK, 9, false, NULL);
	run_until(f, &other.ended, 1);
	assert_int_equal(other.status, GRPC_OK);
	assert_int_equal(gone.status, GRPC_CANCELLED);
}

static void cancel_answers_with_the_job(void **state)
{
	struct fixture *f = *state;
	char reason[] = "enough";
	struct outcome outcome = { 0 };
	Traind__V1__CancelJobRequest request = TRAIND__V1__CANCEL_JOB_REQUEST__INIT;
	request.job_id = 5;
	request.reason = reason;
	call(f, "CancelJob", &request.base, &outcome);
	run_until(f, &f->cancels, 1);
	assert_string_equal(f->text, "enough");
	trainer_service_cancelled(f->service, f->request, TR_OK, 5, NULL);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_int_equal(outcome.job, 5);
}

/* A thousand changes: few messages, the last of them the newest, and the stream ends after the job did. */
static void a_watcher_gets_the_newest(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	watch(f, &outcome);
	run_until(f, &outcome.messages, 1);
	for (int i = 0; i < 1000; i++) {
		f->step++;
		trainer_service_job_changed(f->service, 1);
		trainer_service_job_changed(f->service, 2);
	}
	run_until(f, &outcome.messages, 2);
	assert_int_equal(outcome.step, 1000);
	f->step = 2000;
	f->state = TRAIND__V1__JOB_STATE__JOB_STATE_DONE;
	trainer_service_job_changed(f->service, 1);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_int_equal(outcome.step, 2000);
	assert_int_equal(outcome.messages, 3);
}

/* The states in between are skipped, not kept for it. */
static void a_slow_watcher_gets_the_newest(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { .pause = true };
	f->padding = 2u << 20;
	watch(f, &outcome);
	run_until(f, &outcome.messages, 1); /* then it does not read */
	for (f->step = 1; f->step < 20; f->step++) {
		struct outcome other = { 0 };
		trainer_service_job_changed(f->service, 1);
		watch(f, &other); /* as time passes; at its own pace */
		run_until(f, &other.messages, 1);
		grpc_client_cancel(other.call);
		run_until(f, &other.ended, 1);
	}
	f->state = TRAIND__V1__JOB_STATE__JOB_STATE_FAILED;
	trainer_service_job_changed(f->service, 1);
	outcome.pause = false;
	grpc_client_pause(outcome.call, false);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_int_equal(outcome.step, 20);
	assert_true(outcome.messages <= 4);
}

static void a_watched_job_that_is_forgotten(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	watch(f, &outcome);
	run_until(f, &outcome.messages, 1);
	f->exists = false;
	trainer_service_job_changed(f->service, 1);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_NOT_FOUND);
}

/* Sends what the credit allows. */
static size_t pour(struct fixture *f)
{
	static uint8_t bytes[16u << 10];
	size_t sent = 0;
	while (f->credit > 0) {
		Traind__V1__LogChunk chunk = TRAIND__V1__LOG_CHUNK__INIT;
		size_t length = f->credit < sizeof(bytes) ? (size_t)f->credit : sizeof(bytes);
		if (sent > 64u << 20)
			return sent;
		f->credit -= length;
		sent += length;
		chunk.data = (ProtobufCBinaryData){ length, bytes };
		trainer_service_log(f->service, f->stream, &chunk);
	}
	return sent;
}

/* A reader that reads gives all credit back; one that does not stops the backend after a queue and a window. */
static void log_credit_follows_the_reader(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { .pause = true };
	size_t sent = 0;
	logs(f, 1, &outcome);
	run_until(f, &f->opens, 1);
	for (int i = 0; i < 50; i++) {
		sent += pour(f);
		(void)uv_run(&f->loop, UV_RUN_NOWAIT);
	}
	assert_in_range(sent, TR_GRPC_QUEUE_BYTES,
	    TR_GRPC_QUEUE_BYTES + 2 * WINDOW_BYTES + (8u << 20));
	assert_int_equal(f->credit, 0);
	outcome.pause = false;
	grpc_client_pause(outcome.call, false);
	while (outcome.log_bytes < 16u << 20) {
		sent += pour(f);
		(void)uv_run(&f->loop, UV_RUN_DEFAULT);
	}
	trainer_service_log_end(f->service, f->stream, TR_OK, NULL);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_int_equal(outcome.log_bytes, sent);
	assert_int_equal(f->closes, 0);
}

static void log_ends(void **state)
{
	struct fixture *f = *state;
	struct outcome refused = { 0 }, broken = { 0 }, gone = { 0 };
	logs(f, 9, &refused);
	run_until(f, &refused.ended, 1);
	assert_int_equal(refused.status, GRPC_NOT_FOUND);
	assert_string_equal(refused.text, "no job 9");
	logs(f, 1, &broken);
	run_until(f, &f->opens, 1);
	trainer_service_log_end(f->service, f->stream, TR_EUNAVAILABLE, "node n3 is away");
	run_until(f, &broken.ended, 1);
	assert_int_equal(broken.status, GRPC_UNAVAILABLE);
	assert_string_equal(broken.text, "node n3 is away");
	logs(f, 1, &gone);
	run_until(f, &f->opens, 2);
	grpc_client_cancel(gone.call);
	run_until(f, &f->closes, 1);
	trainer_service_log_end(f->service, f->stream, TR_OK, NULL); /* of a stream that is gone */
}

static void measured_links_are_the_answer(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { 0 }, listed = { 0 }, refused = { 0 };
	Traind__V1__MeasureLinksRequest request = TRAIND__V1__MEASURE_LINKS_REQUEST__INIT;
	f->request = 0;
	call(f, "MeasureLinks", &request.base, &outcome);
	while (f->request == 0)
		(void)uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(outcome.ended, 0);
	f->step = 5;
	trainer_service_measured(f->service, f->request, TR_OK, "");
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_int_equal(outcome.link_from, 5);
	call(f, "ListLinks", &request.base, &listed);
	run_until(f, &listed.ended, 1);
	assert_int_equal(listed.link_from, 5);
	f->request = 0;
	call(f, "MeasureLinks", &request.base, &refused);
	while (f->request == 0)
		(void)uv_run(&f->loop, UV_RUN_DEFAULT);
	trainer_service_measured(f->service, f->request, TR_ELIMIT, "too many");
	run_until(f, &refused.ended, 1);
	assert_int_equal(refused.status, GRPC_RESOURCE_EXHAUSTED);
	assert_string_equal(refused.text, "too many");
}

/* A server that closes ends all calls. Before the service hears of that the backend answers, a watched job ends and a log does:
 * what stood for each call was freed, and was then told that the call is gone. */
static void answers_to_a_server_that_closes(void **state)
{
	struct fixture *f = *state;
	struct outcome submitted = { 0 }, watched = { 0 }, logged = { 0 };
	submit_named(f, "late", &submitted);
	run_until(f, &f->submits, 1);
	watch(f, &watched);
	run_until(f, &watched.messages, 1);
	logs(f, 1, &logged);
	run_until(f, &f->opens, 1);
	f->state = TRAIND__V1__JOB_STATE__JOB_STATE_DONE;
	trainer_service_job_changed(f->service, 1);
	grpc_server_close(f->server, NULL, NULL);
	f->server = NULL;
	trainer_service_submitted(f->service, f->request, TR_OK, 7, false, NULL);
	trainer_service_log_end(f->service, f->stream, TR_OK, NULL);
	run_until(f, &submitted.ended, 1);
	run_until(f, &watched.ended, 1);
	run_until(f, &logged.ended, 1);
	assert_int_equal(submitted.status, GRPC_UNAVAILABLE);
	assert_int_equal(watched.status, GRPC_UNAVAILABLE);
	assert_int_equal(logged.status, GRPC_UNAVAILABLE);
	assert_int_equal(f->closes, 0); /* the backend ended it itself */
}

static void a_backend_without_memory(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
	call(f, "ListJobs", &request.base, &outcome);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_RESOURCE_EXHAUSTED);
}

/* What it does not know yet may be there all the same. */
static void a_backend_that_reads_its_log(void **state)
{
	static const char *const reads[] = { "GetJob", "ListJobs", "ListNodes", "WatchJob",
		"StreamLogs", "ListLinks" };
	struct fixture *f = *state;
	Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
	request.job_id = 5; /* the field's number is the same in all that have it */
	f->away = true;
	f->exists = false;
	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
		struct outcome outcome = { 0 };
		call(f, reads[i], &request.base, &outcome);
		run_until(f, &outcome.ended, 1);
		assert_int_equal(outcome.status, GRPC_UNAVAILABLE);
		assert_non_null(strstr(outcome.text, "memberd is not ready"));
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(answers_come_in_any_order),
		TEST(an_answer_that_nobody_waits_for),
		TEST(cancel_answers_with_the_job),
		TEST(a_watcher_gets_the_newest),
		TEST(a_slow_watcher_gets_the_newest),
		TEST(a_watched_job_that_is_forgotten),
		TEST(log_credit_follows_the_reader),
		TEST(log_ends),
		TEST(measured_links_are_the_answer),
		TEST(answers_to_a_server_that_closes),
		TEST(a_backend_without_memory),
		TEST(a_backend_that_reads_its_log),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
