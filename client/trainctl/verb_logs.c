#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/output.h"
#include "client/trainctl/print.h"
#include "client/trainctl/shown.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"
#include "common/utf8.h"

const struct args_row verb_logs_options[] = {
	{ "--follow", "-f", NULL, "go on until the job has ended", false },
	{ "--rank", NULL, "R", "of this rank only", false },
	{ "--tail", NULL, "BYTES", "begin so many bytes before the end of each rank's output",
	    false },
	{ NULL, NULL, NULL, NULL, false },
};

/* What the last piece of a peer ended with: a character that is not whole. */
struct begun {
	Traind__V1__LogChunk of; /* without data and name */
	char node[TR_NAME_MAX];
	uint8_t bytes[4];
	size_t count;
};

struct logs {
	struct rpc *rpc;
	struct output output;
	struct shown shown;
	struct begun *begun; /* of JSON: one for each peer */
	size_t n_begun;
	struct grpc_client_call *stream;
	bool json, ended;
};

/* One JSON object a piece, one a line. */
static void print_piece(struct logs *logs, const Traind__V1__LogChunk *chunk, uint64_t missing)
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
	output_check(&logs->output.failed);
}

/* NULL: no memory. */
static struct begun *begun_of(struct logs *logs, const Traind__V1__LogChunk *chunk)
{
	for (size_t i = 0; i < logs->n_begun; i++)
		if (logs->begun[i].of.peer_id == chunk->peer_id)
			return &logs->begun[i];
	struct begun *grown = realloc(logs->begun, (logs->n_begun + 1) * sizeof(*grown));
	if (grown == NULL)
		return NULL;
	logs->begun = grown;
	struct begun *begun = &grown[logs->n_begun++];
	*begun = (struct begun){ .of = TRAIND__V1__LOG_CHUNK__INIT };
	begun->of.rank = chunk->rank;
	begun->of.peer_id = chunk->peer_id;
	(void)snprintf(begun->node, sizeof(begun->node), "%s", chunk->node_name);
	return begun;
}

/* Nothing comes that would make it whole. */
static void print_begun(struct logs *logs, struct begun *begun)
{
	Traind__V1__LogChunk chunk = begun->of;
	chunk.node_name = begun->node;
	chunk.data = (ProtobufCBinaryData){ begun->count, begun->bytes };
	if (begun->count > 0)
		print_piece(logs, &chunk, 0);
	begun->count = 0;
}

/* Pieces end anywhere; a string of JSON ends with a whole character. */
static void print_json(struct logs *logs, const Traind__V1__LogChunk *chunk, uint64_t missing)
{
	struct begun *begun = begun_of(logs, chunk);
	uint8_t *bytes = malloc(chunk->data.len + sizeof(begun->bytes));
	Traind__V1__LogChunk whole = *chunk;
	if (begun == NULL || bytes == NULL) {
		print_piece(logs, chunk, missing);
		free(bytes);
		return;
	}
	if (missing > 0)
		print_begun(logs, begun);
	memcpy(bytes, begun->bytes, begun->count);
	if (chunk->data.len > 0)
		memcpy(bytes + begun->count, chunk->data.data, chunk->data.len);
	size_t all = begun->count + chunk->data.len;
	begun->count = utf8_begun(bytes, all);
	whole.data = (ProtobufCBinaryData){ all - begun->count, bytes };
	memcpy(begun->bytes, bytes + whole.data.len, begun->count);
	if (whole.data.len > 0 || missing > 0)
		print_piece(logs, &whole, missing);
	free(bytes);
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
	rpc_note_end(logs->rpc, logs->stream, status, text);
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
	struct tr_error error;
	if (!read_options(call, &request))
		return EXIT_USAGE;
	logs.shown.anywhere = request.tail_bytes > 0;
	logs.output.color = call->config->color;
	logs.output.raw = request.one_rank || call->config->json ||
	    !has_many_ranks(call->rpc, request.job_id);
	if (rpc_start(call->rpc, RPC_PATH("StreamLogs"), &request, &callbacks, &logs, &logs.stream,
	        &error) != TR_OK)
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	while (!logs.ended && logs.output.failed == 0 && uv_run(&call->rpc->loop, UV_RUN_ONCE) != 0)
		;
	if (!logs.ended)
		grpc_client_cancel(logs.stream);
	while (!logs.ended && uv_run(&call->rpc->loop, UV_RUN_ONCE) != 0)
		;
	for (size_t i = 0; i < logs.n_begun && logs.output.failed == 0; i++)
		print_begun(&logs, &logs.begun[i]);
	free(logs.begun);
	int failed = output_finish(&logs.output);
	shown_finish(&logs.shown);
	if (failed == EPIPE)
		return EXIT_OK; /* `trainctl logs 1 | head` */
	if (failed != 0)
		return verbs_complain(EXIT_JOB_FAILED, "standard output: %s", strerror(failed));
	return call->rpc->status == GRPC_OK ? EXIT_OK : rpc_complain(call->rpc);
}
