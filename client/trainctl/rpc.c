#include "client/trainctl/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/cluster.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"
#include "collectives/transport/address.h"
#include "collectives/transport/tls.h"
#include "daemon/api/message_text.h"

struct waiting {
	const ProtobufCMessageDescriptor *response;
	ProtobufCMessage *message;
	struct rpc *rpc;
	struct grpc_client_call *call;
	bool ended;
};

tr_status rpc_open(struct rpc *rpc, const struct config *config, struct tr_error *error)
{
	*rpc = (struct rpc){ .config = config };
	(void)snprintf(rpc->address, sizeof(rpc->address), "%s", config->address);
	int failed = uv_loop_init(&rpc->loop);
	if (failed != 0)
		return tr_error_set(error, TR_EIO, "no event loop: %s", uv_strerror(failed));
	struct tls_context *tls = NULL;
	struct tr_error cause;
	const char *option = "--tls";
	tr_status status = TR_OK;
	if (config->tls != NULL && config->address_by != CONFIG_BY_HOME)
		status = tls_context_load(config->tls, &tls, &cause);
	if (status == TR_OK) {
		option = "--address";
		if (tls == NULL)
			status = address_check_plain(config->address, config->insecure, &cause);
	}
	if (status == TR_OK) {
		status = grpc_client_create(&rpc->loop, config->address, tls, &rpc->client, &cause);
	}
	tls_context_release(tls);
	if (status != TR_OK)
		(void)tr_error_set(error, status, "%s: %s", option, cause.text);
	if (status != TR_OK)
		(void)uv_loop_close(&rpc->loop);
	else
		interrupt_watch_open(&rpc->watch, &rpc->loop);
	return status;
}

void rpc_close(struct rpc *rpc)
{
	if (rpc->client == NULL)
		return;
	grpc_client_destroy(rpc->client);
	rpc->client = NULL;
	interrupt_watch_close(&rpc->watch);
	(void)uv_run(&rpc->loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&rpc->loop);
}

enum rpc_record rpc_read_record(struct rpc *rpc)
{
	char address[TR_ADDRESS_MAX];
	struct grpc_client *client;
	struct tr_error error;
	const struct config *config = rpc->config;
	if (config->address_by != CONFIG_BY_HOME)
		return RPC_RECORD_SAME;
	bool found = cluster_address(config->cluster, address);
	rpc->gone = !found && !cluster_is_recorded(config->cluster);
	if (rpc->gone)
		return RPC_RECORD_GONE;
	if (!found || strcmp(address, rpc->address) == 0 ||
	    grpc_client_create(&rpc->loop, address, NULL, &client, &error) != TR_OK)
		return RPC_RECORD_SAME;
	grpc_client_destroy(rpc->client);
	rpc->client = client;
	(void)snprintf(rpc->address, sizeof(rpc->address), "%s", address);
	return RPC_RECORD_MOVED;
}

static bool tame(const ProtobufCFieldDescriptor *field, char *text)
{
	print_tame(text, strcmp(field->name, "sample") == 0);
	return true;
}

/* What a job was given to train is no text for people: its paths are opened. */
void *rpc_unpack(const struct rpc *rpc, const ProtobufCMessageDescriptor *kind,
    const uint8_t *message, size_t bytes)
{
	ProtobufCMessage *unpacked = protobuf_c_message_unpack(kind, NULL, bytes, message);
	if (unpacked != NULL && !rpc->config->json)
		(void)message_text_each(unpacked, &traind__v1__train_spec__descriptor, tame);
	return unpacked;
}

void rpc_note_end(struct rpc *rpc, const struct grpc_client_call *call, enum grpc_status status,
    const char *text)
{
	rpc->status = status;
	rpc->lost = grpc_client_call_is_lost(call);
	(void)snprintf(rpc->text, sizeof(rpc->text), "%s", text != NULL ? text : "");
	print_tame(rpc->text, false);
}

static void on_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct waiting *waiting = arg;
	if (waiting->message == NULL)
		waiting->message = rpc_unpack(waiting->rpc, waiting->response, message, bytes);
}

static void on_ended(void *arg, enum grpc_status status, const char *text)
{
	struct waiting *waiting = arg;
	rpc_note_end(waiting->rpc, waiting->call, status, text);
	waiting->ended = true;
}

tr_status rpc_start(struct rpc *rpc, const char *path, const void *request,
    const struct grpc_client_callbacks *callbacks, void *arg, struct grpc_client_call **call,
    struct tr_error *error)
{
	size_t bytes = protobuf_c_message_get_packed_size(request);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	protobuf_c_message_pack(request, packed);
	tr_status status = grpc_client_call(rpc->client, path, packed, bytes, 0, callbacks, arg,
	    call, error);
	free(packed);
	return status;
}

/* A call that is given up ends from a later turn, as CANCELLED. */
static void await(struct rpc *rpc, const struct waiting *waiting)
{
	bool heeds = !rpc->steady, turns = true;
	if (heeds)
		interrupt_watch_start(&rpc->watch);
	while (!waiting->ended && turns) {
		if (heeds && interrupt_pending() != 0) {
			heeds = false;
			grpc_client_cancel(waiting->call);
		}
		turns = uv_run(&rpc->loop, UV_RUN_ONCE) != 0;
	}
	interrupt_watch_stop(&rpc->watch);
}

void *rpc_call(struct rpc *rpc, const char *path, const void *request,
    const ProtobufCMessageDescriptor *response, uint64_t deadline_ms)
{
	static const struct grpc_client_callbacks callbacks = { .message = on_message,
		.ended = on_ended };
	struct waiting waiting = { .response = response, .rpc = rpc };
	struct tr_error error = { 0 };
	size_t bytes = protobuf_c_message_get_packed_size(request);
	uint8_t *packed = malloc(bytes + 1);
	rpc->status = GRPC_INTERNAL;
	rpc->lost = false;
	(void)snprintf(rpc->text, sizeof(rpc->text), "out of memory");
	if (packed == NULL)
		return NULL;
	protobuf_c_message_pack(request, packed);
	tr_status status = grpc_client_call(rpc->client, path, packed, bytes, deadline_ms,
	    &callbacks, &waiting, &waiting.call, &error);
	free(packed);
	if (status != TR_OK) {
		rpc->status = grpc_status_of(status);
		(void)snprintf(rpc->text, sizeof(rpc->text), "%s", error.text);
		return NULL;
	}
	await(rpc, &waiting);
	if (rpc->status == GRPC_OK && waiting.message == NULL) {
		rpc->status = GRPC_INTERNAL;
		(void)snprintf(rpc->text, sizeof(rpc->text), "the answer cannot be read");
	}
	if (rpc->status != GRPC_OK && waiting.message != NULL) {
		protobuf_c_message_free_unpacked(waiting.message, NULL);
		waiting.message = NULL;
	}
	return waiting.message;
}

static const char *advice(const struct rpc *rpc)
{
	if (rpc->gone)
		return " (`trainctl up` starts it again)";
	if (!rpc->lost)
		return "";
	switch (rpc->config->address_by) {
	case CONFIG_BY_HOME:
		return " (the embedded cluster seems to have ended: `trainctl up` says how it is)";
	case CONFIG_BY_DEFAULT:
		return " (no cluster is running here: `trainctl up` starts one; --address names "
		       "another)";
	default:
		return "";
	}
}

int rpc_complain(const struct rpc *rpc)
{
	switch (rpc->status) {
	case GRPC_DEADLINE_EXCEEDED:
		return verbs_complain(EXIT_UNREACHABLE, "%s does not answer: %s", rpc->address,
		    rpc->text);
	case GRPC_UNAVAILABLE:
		return verbs_complain(EXIT_UNREACHABLE, "%s%s", rpc->text, advice(rpc));
	case GRPC_NOT_FOUND:
		return verbs_complain(EXIT_NOT_FOUND, "%s (`trainctl jobs` lists those there are)",
		    rpc->text);
	case GRPC_INVALID_ARGUMENT:
		return verbs_complain(EXIT_USAGE, "%s", rpc->text);
	default:
		return verbs_complain(EXIT_JOB_FAILED, "%s: %s", grpc_status_name(rpc->status),
		    rpc->text);
	}
}
