#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/trainctl/output.h"
#include "client/trainctl/print.h"
#include "client/trainctl/shown.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"

const struct args_row verb_logs_options[] = {
	{ "--follow", "-f", NULL, "go on until the job has ended", false },
	{ "--rank", NULL, "R", "of this rank only", false },
	{ "--tail", NULL, "BYTES", "begin so many bytes before the end of each rank's output",
	    false },
	{ NULL, NULL, NULL, NULL, false },
};

struct logs {
	struct rpc *rpc;
	struct output output;
	struct shown shown;
	bool json, ended;
};

/* One JSON object a piece, one a line. */
static void print_json(struct logs *logs, const Traind__V1__LogChunk *chunk, uint64_t missing)
{
	struct json json = { 0 };
	json_object(&json);
	json_key(&json, "rank");
	json_uint(&json, chunk->rank);
	json_key(&json, "peer");
	json_uint(&json, chunk->peer_id);
	json_key(&json, "node");
	json_string(&json, chunk->node_name);
	json_key_uint(&json, "missing", missing);
	json_key(&json, "data");
	json_stringn(&json, (const char *)chunk->data.data, chunk->data.len);
	json_end(&json);
	errno = 0;
	print_json_text(&json);
	output_check(&logs->output);
}

static void on_chunk(void *arg, const uint8_t *message, size_t bytes)
{
	struct logs *logs = arg;
	Traind__V1__LogChunk *chunk = traind__v1__log_chunk__unpack(NULL, bytes, message);
	if (chunk == NULL)
		return;
	uint64_t missing = shown_add(&logs->shown, chunk).missing;
	if (logs->json) {
		print_json(logs, chunk, missing);
	} else {
		output_gap(&logs->output, chunk->rank, missing);
		output_write(&logs->output, chunk->rank, chunk->data.data, chunk->data.len);
	}
	traind__v1__log_chunk__free_unpacked(chunk, NULL);
}

static void on_ended(void *arg, enum grpc_status status, const char *text)
{
	struct logs *logs = arg;
	logs->rpc->status = status;
	(void)snprintf(logs->rpc->text, sizeof(logs->rpc->text), "%s", text != NULL ? text : "");
	logs->ended = true;
}

/* Whether each line needs its rank before it. */
static bool has_many_ranks(struct rpc *rpc, uint64_t id)
{
	Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
	request.job_id = id;
	Traind__V1__Job *job = rpc_call(rpc, RPC_PATH("GetJob"), &request,
	    &traind__v1__job__descriptor, 10000);
	bool many = job == NULL || job->spec == NULL || job->spec->mesh == NULL ||
	    job->spec->mesh->workers != 1;
	if (job != NULL)
		traind__v1__job__free_unpacked(job, NULL);
	return many;
}

static bool read_options(const struct verb_call *call, Traind__V1__StreamLogsRequest *request)
{
	uint64_t rank, tail;
	struct tr_error error;
	if (!verbs_job(call, &request->job_id))
		return false;
	if (args_number(call->args, "--rank", 0, TR_GROUP_PEERS_MAX - 1, 0, &rank, &error) !=
	        TR_OK ||
	    args_number(call->args, "--tail", 1, INT64_MAX, 0, &tail, &error) != TR_OK) {
		(void)verbs_complain(EXIT_USAGE, "%s", error.text);
		return false;
	}
	request->follow = args_has(call->args, "--follow");
	request->one_rank = args_has(call->args, "--rank");
	request->rank = (uint32_t)rank;
	request->tail_bytes = tail;
	return true;
}

int verb_logs(struct verb_call *call)
{
	static const struct grpc_client_callbacks callbacks = { .message = on_chunk,
		.ended = on_ended };
	Traind__V1__StreamLogsRequest request = TRAIND__V1__STREAM_LOGS_REQUEST__INIT;
	struct logs logs = { .rpc = call->rpc, .json = call->config->json };
	struct grpc_client_call *stream;
	struct tr_error error;
	if (!read_options(call, &request))
		return EXIT_USAGE;
	logs.shown.anywhere = request.tail_bytes > 0;
	logs.output.color = call->config->color;
	logs.output.raw = request.one_rank || call->config->json ||
	    !has_many_ranks(call->rpc, request.job_id);
	if (rpc_start(call->rpc, RPC_PATH("StreamLogs"), &request, &callbacks, &logs, &stream,
	        &error) != TR_OK)
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	while (!logs.ended && logs.output.failed == 0 && uv_run(&call->rpc->loop, UV_RUN_ONCE) != 0)
		;
	if (!logs.ended)
		grpc_client_cancel(stream);
	while (!logs.ended && uv_run(&call->rpc->loop, UV_RUN_ONCE) != 0)
		;
	int failed = output_finish(&logs.output);
	shown_finish(&logs.shown);
	if (failed == EPIPE)
		return EXIT_OK; /* `trainctl logs 1 | head` */
	if (failed != 0)
		return verbs_complain(EXIT_JOB_FAILED, "standard output: %s", strerror(failed));
	return call->rpc->status == GRPC_OK ? EXIT_OK : rpc_complain(call->rpc);
}
