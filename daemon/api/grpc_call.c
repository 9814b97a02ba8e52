#include "daemon/api/grpc_call.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/api/grpc_percent.h"

#define CALL_TEXT_ENCODED_MAX (3 * TR_GRPC_STATUS_TEXT_MAX)
#define CALL_HEADERS_MAX      8

struct call_headers {
	nghttp2_nv fields[CALL_HEADERS_MAX];
	size_t count;
};

/* nghttp2 copies both when the headers are submitted. */
static void call_add_header(struct call_headers *headers, const char *name, const char *value)
{
	assert(headers->count < CALL_HEADERS_MAX);
	headers->fields[headers->count++] = (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name,
		.namelen = strlen(name),
		.value = (uint8_t *)(uintptr_t)value,
		.valuelen = strlen(value),
	};
}

struct call_status_text {
	char code[4];
	char text[CALL_TEXT_ENCODED_MAX];
};

static void call_add_status(struct call_headers *headers, const struct grpc_call *call,
    struct call_status_text *out)
{
	(void)snprintf(out->code, sizeof(out->code), "%u", (unsigned)call->status & 31);
	call_add_header(headers, "grpc-status", out->code);
	if (call->text == NULL || call->text[0] == '\0')
		return;
	(void)grpc_percent_encode(call->text, out->text, sizeof(out->text));
	call_add_header(headers, "grpc-message", out->text);
}

static void call_add_answer(struct call_headers *headers, const char *http_status)
{
	call_add_header(headers, ":status", http_status);
	call_add_header(headers, "content-type", "application/grpc");
	call_add_header(headers, "grpc-accept-encoding", "identity");
}

void grpc_call_submit_trailers(struct grpc_call *call)
{
	struct call_headers headers = { .count = 0 };
	struct call_status_text text;
	call_add_status(&headers, call, &text);
	(void)nghttp2_submit_trailer(call->stream.session->http2, call->stream.id, headers.fields,
	    headers.count);
}

/* One HEADERS frame that is the whole answer. */
static void call_submit_trailers_only(struct grpc_call *call)
{
	struct call_headers headers = { .count = 0 };
	struct call_status_text text;
	char http_status[8];
	(void)snprintf(http_status, sizeof(http_status), "%u",
	    call->http_status == 0 ? 200 : call->http_status % 1000);
	call_add_answer(&headers, http_status);
	call_add_status(&headers, call, &text);
	call->answered = true;
	(void)nghttp2_submit_response(call->stream.session->http2, call->stream.id, headers.fields,
	    headers.count, NULL);
}

static void call_submit_answer(struct grpc_call *call)
{
	struct call_headers headers = { .count = 0 };
	nghttp2_data_provider provider = grpc_stream_provider(&call->stream);
	call_add_answer(&headers, "200");
	call->answered = true;
	(void)nghttp2_submit_response(call->stream.session->http2, call->stream.id, headers.fields,
	    headers.count, &provider);
}

static void call_set_status(struct grpc_call *call, enum grpc_status status, const char *text)
{
	call->ended = true;
	call->status = status;
	if (text != NULL && text[0] != '\0')
		call->text = strndup(text, TR_GRPC_STATUS_TEXT_MAX - 1);
}

static void call_say_end(struct grpc_call *call)
{
	if (call->stream.closed)
		return;
	if (call->answered)
		grpc_stream_finish(&call->stream);
	else
		call_submit_trailers_only(call);
	grpc_session_wake(call->stream.session);
}

/* Whether trailers would leave now: nghttp2 asks for data, and so for our trailers, only with an open window. */
static bool call_can_say_end(const struct grpc_call *call)
{
	nghttp2_session *http2 = call->stream.session->http2;
	return !call->answered ||
	    (call->stream.out.unsent == 0 && nghttp2_session_get_remote_window_size(http2) > 0 &&
	        nghttp2_session_get_stream_remote_window_size(http2, call->stream.id) > 0);
}

void grpc_call_abort(struct grpc_call *call, enum grpc_status status, const char *text)
{
	if (call->ended)
		return;
	call_set_status(call, status, text);
	call->abandoned = call->dispatched;
	if (call_can_say_end(call))
		call_say_end(call);
	else
		grpc_stream_reset(&call->stream, NGHTTP2_CANCEL);
	grpc_session_touch(&call->stream);
}

void grpc_call_run_cancelled(struct grpc_call *call)
{
	bool run = call->abandoned && call->cancelled != NULL;
	call->abandoned = false;
	if (run)
		call->cancelled(call->cancelled_arg);
}

const char *grpc_call_path(const struct grpc_call *call)
{
	return call->head.path;
}

uint64_t grpc_call_time_left_ms(const struct grpc_call *call)
{
	uint64_t now_ms = call->stream.session->now_ms;
	if (call->deadline_ms == GRPC_NO_DEADLINE)
		return UINT64_MAX;
	return call->deadline_ms > now_ms ? call->deadline_ms - now_ms : 0;
}

bool grpc_call_is_crowded(const struct grpc_call *call)
{
	return call->stream.session->unsent > TR_GRPC_UNSENT_BYTES_MAX;
}

void grpc_call_on_cancel(struct grpc_call *call, void (*cancelled)(void *arg), void *arg)
{
	call->cancelled = cancelled;
	call->cancelled_arg = arg;
}

void grpc_call_on_writable(struct grpc_call *call, void (*writable)(void *arg), void *arg)
{
	call->writable = writable;
	call->writable_arg = arg;
}

tr_status grpc_call_send(struct grpc_call *call, const void *message, size_t bytes)
{
	if (call->ended || call->stream.closed)
		return TR_ECANCELLED;
	tr_status status = grpc_stream_queue(&call->stream, message, bytes);
	if (!call->answered && (status == TR_OK || status == TR_EAGAIN))
		call_submit_answer(call);
	return status;
}

void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *message)
{
	if (call->ended) {
		call->abandoned = false; /* by us, and now its handler has let go of it: it need not hear of that */
		return;
	}
	call_set_status(call, status, message);
	call_say_end(call);
}
