#include "daemon/api/log_calls.h"

#include <stdlib.h>

#include "daemon/api/api_message.h"

struct log_call {
	struct log_calls *calls;
	struct log_call *next;
	struct grpc_call *call;
	uint64_t stream;
	uint64_t owed; /* credit held back while the client reads slowly */
	bool slow;
};

void log_calls_init(struct log_calls *calls, const struct trainer_backend *backend, void *arg)
{
	*calls = (struct log_calls){ .backend = backend, .arg = arg };
}

static struct log_call *log_find(const struct log_calls *calls, uint64_t stream)
{
	struct log_call *call = calls->calls;
	while (call != NULL && call->stream != stream)
		call = call->next;
	return call;
}

static void log_remove(struct log_call *call)
{
	struct log_call **at = &call->calls->calls;
	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
	free(call);
}

static void log_cancelled(void *arg)
{
	struct log_call *call = arg;
	const struct log_calls *calls = call->calls;
	uint64_t stream = call->stream;
	log_remove(call);
	calls->backend->log_close(calls->arg, stream);
}

static void log_writable(void *arg)
{
	struct log_call *call = arg;
	const struct log_calls *calls = call->calls;
	uint64_t owed = call->owed;
	call->slow = false;
	call->owed = 0;
	calls->backend->log_credit(calls->arg, call->stream, owed);
}

void log_calls_add(struct log_calls *calls, struct grpc_call *call,
    const Traind__V1__StreamLogsRequest *request)
{
	struct tr_error error = { TR_OK, "" };
	struct log_call *added = calloc(1, sizeof(*added));
	if (added == NULL) {
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	uint64_t stream = ++calls->last_stream;
	*added = (struct log_call){ .calls = calls,
		.next = calls->calls,
		.call = call,
		.stream = stream };
	calls->calls = added;
	grpc_call_on_cancel(call, log_cancelled, added);
	grpc_call_on_writable(call, log_writable, added);
	tr_status status = calls->backend->log_open(calls->arg, stream, request, &error);
	if (status != TR_OK)
		log_calls_end(calls, stream, status, error.text);
}

void log_calls_data(struct log_calls *calls, uint64_t stream, const Traind__V1__LogChunk *chunk)
{
	struct log_call *call = log_find(calls, stream);
	if (call == NULL)
		return;
	tr_status status = api_message_send(call->call, &chunk->base);
	if (status == TR_ECANCELLED)
		return; /* log_cancelled is about to run */
	if (status != TR_OK && status != TR_EAGAIN) {
		grpc_call_end(call->call, grpc_status_of(status), tr_status_text(status));
		log_cancelled(call);
		return;
	}
	call->slow = call->slow || status == TR_EAGAIN;
	if (call->slow)
		call->owed += chunk->data.len;
	else
		calls->backend->log_credit(calls->arg, stream, chunk->data.len);
}

void log_calls_end(struct log_calls *calls, uint64_t stream, tr_status status, const char *text)
{
	struct log_call *call = log_find(calls, stream);
	if (call == NULL)
		return;
	grpc_call_end(call->call, grpc_status_of(status), text);
	log_remove(call);
}
