/* The API without a cluster, for tests/system/test_api*.py: trainer_service over a backend in memory, or forward.
 *
 *	api_server LISTEN			jobs in memory
 *	api_server LISTEN --forward MEMBERD	what traind does
 *
 * Prints the address it listens on. Ends on SIGTERM. What a job does follows from its name: "ticks" counts its steps and is done;
 * "hang" is never answered; "bad-text" has a reason that is not UTF-8; "" is refused. A log has as many bytes as tail_bytes says.
 * ListNodes tells: slots = log streams open, cores = log streams closed by their client.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/listener.h"
#include "common/log.h"
#include "daemon/api/forward.h"
#include "daemon/api/grpc_server.h"
#include "daemon/api/trainer_service.h"

#define JOBS_MAX     64
#define STREAMS_MAX  256
#define WINDOW_BYTES (256u << 10)
#define CHUNK_BYTES  (16u << 10)

struct log_source {
	uint64_t stream, left, credit;
	bool follow;
};

struct program {
	uv_loop_t loop;
	uv_signal_t terminate;
	uv_timer_t tick;
	struct listener *listener;
	struct grpc_server *server;
	struct trainer_service *service;
	struct forward *forward;
	Traind__V1__SubmitJobRequest *jobs[JOBS_MAX];
	uint64_t steps[JOBS_MAX];
	bool cancelled[JOBS_MAX];
	unsigned job_count, streams_closed;
	struct log_source streams[STREAMS_MAX];
};

static bool named(const struct program *program, unsigned job, const char *name)
{
	return strcmp(program->jobs[job]->spec->name, name) == 0;
}

static Traind__V1__SubmitJobRequest *copy_of(const Traind__V1__SubmitJobRequest *submit)
{
	size_t bytes = traind__v1__submit_job_request__get_packed_size(submit);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		abort();
	(void)traind__v1__submit_job_request__pack(submit, packed);
	Traind__V1__SubmitJobRequest *copy = traind__v1__submit_job_request__unpack(NULL, bytes,
	    packed);
	free(packed);
	return copy;
}

static void submit(void *arg, uint64_t request, const Traind__V1__SubmitJobRequest *message)
{
	struct program *program = arg;
	struct trainer_service *service = program->service;
	const char *name = message->spec == NULL ? "" : message->spec->name;
	for (unsigned i = 0; i < program->job_count; i++) {
		if (message->request_id[0] != '\0' &&
		    strcmp(program->jobs[i]->request_id, message->request_id) == 0) {
			trainer_service_submitted(service, request, TR_OK, i + 1, true, NULL);
			return;
		}
	}
	if (strcmp(name, "hang") == 0)
		return;
	if (name[0] == '\0' || program->job_count == JOBS_MAX) {
		trainer_service_submitted(service, request, TR_EINVAL, 0, false,
		    "name: found '', allowed: 1 to 63 characters");
		return;
	}
	program->jobs[program->job_count++] = copy_of(message);
	trainer_service_submitted(service, request, TR_OK, program->job_count, false, NULL);
}

static void cancel(void *arg, uint64_t request, uint64_t job, const char *reason)
{
	struct program *program = arg;
	(void)reason;
	if (job == 0 || job > program->job_count) {
		trainer_service_cancelled(program->service, request, TR_ENOTFOUND, job,
		    "there is no such job");
		return;
	}
	program->cancelled[job - 1] = true;
	trainer_service_job_changed(program->service, job);
	trainer_service_cancelled(program->service, request, TR_OK, job, NULL);
}

static Traind__V1__Job *job(void *arg, uint64_t id, bool with_events)
{
	const struct program *program = arg;
	(void)with_events;
	if (id == 0 || id > program->job_count)
		return NULL;
	unsigned i = (unsigned)id - 1;
	Traind__V1__Job *job = malloc(sizeof(*job));
	Traind__V1__Progress *progress = malloc(sizeof(*progress));
	Traind__V1__SubmitJobRequest *copy = copy_of(program->jobs[i]);
	if (job == NULL || progress == NULL)
		abort();
	traind__v1__job__init(job);
	traind__v1__progress__init(progress);
	uint64_t steps = copy->spec->train != NULL && copy->spec->train->optimizer != NULL
	    ? copy->spec->train->optimizer->steps
	    : 0;
	job->id = id;
	job->spec = copy->spec;
	copy->spec = NULL;
	traind__v1__submit_job_request__free_unpacked(copy, NULL);
	job->progress = progress;
	progress->step = program->steps[i];
	progress->steps = steps;
	job->state = TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING;
	if (program->cancelled[i])
		job->state = TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED;
	else if (named(program, i, "ticks") && progress->step == steps)
		job->state = TRAIND__V1__JOB_STATE__JOB_STATE_DONE;
	job->reason = strdup(named(program, i, "bad-text") ? "\xff said \xc3\xa9\xc3" : "runs");
	return job;
}

static Traind__V1__ListJobsResponse *jobs(void *arg)
{
	struct program *program = arg;
	Traind__V1__ListJobsResponse *list = malloc(sizeof(*list));
	if (list == NULL)
		abort();
	traind__v1__list_jobs_response__init(list);
	list->jobs = calloc(JOBS_MAX, sizeof(Traind__V1__Job *));
	list->n_jobs = program->job_count;
	for (unsigned i = 0; i < program->job_count; i++)
		list->jobs[i] = job(program, program->job_count - i, false);
	return list;
}

static Traind__V1__ListNodesResponse *nodes(void *arg)
{
	const struct program *program = arg;
	Traind__V1__ListNodesResponse *list = malloc(sizeof(*list));
	Traind__V1__Node *node = malloc(sizeof(*node));
	if (list == NULL || node == NULL)
		abort();
	traind__v1__list_nodes_response__init(list);
	traind__v1__node__init(node);
	list->nodes = calloc(1, sizeof(Traind__V1__Node *));
	if (list->nodes == NULL)
		abort();
	list->nodes[0] = node;
	list->n_nodes = 1;
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		node->slots += program->streams[i].stream != 0;
	node->cores = program->streams_closed;
	return list;
}

/* ---- logs: bytes that count, so that a reader can tell a gap */

static struct log_source *source_of(struct program *program, uint64_t stream)
{
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		if (program->streams[i].stream == stream)
			return &program->streams[i];
	return NULL;
}

static void pour(struct program *program, struct log_source *source)
{
	static uint8_t bytes[CHUNK_BYTES];
	uint64_t stream = source->stream;
	while (source->left > 0 && source->credit > 0) {
		Traind__V1__LogChunk chunk = TRAIND__V1__LOG_CHUNK__INIT;
		char name[] = "node-1";
		size_t length = CHUNK_BYTES;
		length = source->left < length ? (size_t)source->left : length;
		length = source->credit < length ? (size_t)source->credit : length;
		for (size_t i = 0; i < length; i++)
			bytes[i] = (uint8_t)((source->left - i) % 251);
		source->left -= length;
		source->credit -= length;
		chunk.node_name = name;
		chunk.data = (ProtobufCBinaryData){ length, bytes };
		trainer_service_log(program->service, stream, &chunk);
		if (source->stream != stream)
			return;
	}
	if (source->left == 0 && !source->follow) {
		source->stream = 0;
		trainer_service_log_end(program->service, stream, TR_OK, NULL);
	}
}

static tr_status log_open(void *arg, uint64_t stream, const Traind__V1__StreamLogsRequest *request,
    struct tr_error *error)
{
	struct program *program = arg;
	struct log_source *source = source_of(program, 0);
	if (request->job_id == 0 || request->job_id > program->job_count)
		return tr_error_set(error, TR_ENOTFOUND, "no job %" PRIu64, request->job_id);
	if (source == NULL)
		return tr_error_set(error, TR_ELIMIT, "too many streams");
	*source = (struct log_source){ stream, request->tail_bytes, WINDOW_BYTES, request->follow };
	return TR_OK;
}

/* What credit allows is sent from the tick: never from inside a call of the service. */
static void log_credit(void *arg, uint64_t stream, uint64_t bytes)
{
	struct log_source *source = source_of(arg, stream);
	if (source != NULL)
		source->credit += bytes;
}

static void log_close(void *arg, uint64_t stream)
{
	struct program *program = arg;
	struct log_source *source = source_of(program, stream);
	if (source != NULL)
		source->stream = 0;
	program->streams_closed++;
}

static Traind__V1__Samples *samples(void *arg, uint64_t number)
{
	Traind__V1__Samples *answer = malloc(sizeof(*answer));
	(void)arg;
	if (answer == NULL)
		return NULL;
	traind__v1__samples__init(answer);
	answer->job_id = number;
	return answer;
}

static bool serving(void *arg)
{
	(void)arg;
	return true;
}

static const struct trainer_backend backend = {
	.submit = submit,
	.cancel = cancel,
	.job = job,
	.jobs = jobs,
	.nodes = nodes,
	.samples = samples,
	.log_open = log_open,
	.log_credit = log_credit,
	.log_close = log_close,
	.serving = serving,
};

static void on_tick(uv_timer_t *timer)
{
	struct program *program = timer->data;
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		if (program->streams[i].stream != 0)
			pour(program, &program->streams[i]);
	for (unsigned i = 0; i < program->job_count; i++) {
		if (!named(program, i, "ticks") ||
		    program->steps[i] == program->jobs[i]->spec->train->optimizer->steps)
			continue;
		program->steps[i]++;
		trainer_service_job_changed(program->service, i + 1);
	}
}

/* ---- life */

static void server_closed(void *arg)
{
	struct program *program = arg;
	forward_destroy(program->forward);
	trainer_service_destroy(program->service);
}

static void on_terminate(uv_signal_t *signal, int number)
{
	struct program *program = signal->data;
	(void)number;
	listener_stop(program->listener);
	grpc_server_close(program->server, server_closed, program);
	uv_close((uv_handle_t *)signal, NULL);
	uv_close((uv_handle_t *)&program->tick, NULL);
}

static void accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct program *program = arg;
	(void)protocol; /* garbage goes to the HTTP/2 side, which must stand it */
	grpc_server_accept(program->server, stream, early, early_bytes);
}

static tr_status start(struct program *program, int argc, char **argv, struct tr_error *error)
{
	struct grpc_server_options options = { .methods = trainer_service_methods() };
	tr_status status;
	if (argc == 4) {
		status = forward_create(&program->loop, argv[3], NULL, &program->forward, error);
		options = (struct grpc_server_options){ forward_methods(), forward_call,
			program->forward };
	} else {
		status = trainer_service_create(&program->loop, &backend, program,
		    &program->service);
		options.arg = program->service;
	}
	if (status == TR_OK)
		status = grpc_server_create(&program->loop, &options, &program->server);
	if (status == TR_OK)
		status = listener_start(&program->loop, argv[1], false, NULL, accepted, program,
		    &program->listener, error);
	return status;
}

int main(int argc, char **argv)
{
	static struct program program;
	struct tr_error error = { TR_OK, "" };
	log_configure(LOG_INFO, false);
	if ((argc != 2 && argc != 4) || uv_loop_init(&program.loop) != 0)
		return 2;
	(void)uv_timer_init(&program.loop, &program.tick);
	(void)uv_signal_init(&program.loop, &program.terminate);
	program.tick.data = program.terminate.data = &program;
	(void)uv_timer_start(&program.tick, on_tick, 5, 5);
	(void)uv_signal_start(&program.terminate, on_terminate, SIGTERM);
	if (start(&program, argc, argv, &error) != TR_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)printf("%s\n", listener_address(program.listener));
	(void)fflush(stdout);
	(void)uv_run(&program.loop, UV_RUN_DEFAULT);
	for (unsigned i = 0; i < program.job_count; i++)
		traind__v1__submit_job_request__free_unpacked(program.jobs[i], NULL);
	return uv_loop_close(&program.loop) == 0 ? 0 : 3;
}
