/* Bytes of a peer on an HTTP/2 connection, to both roles of a grpc_session.
 * First byte: bit 0 role (0: we are the server), bit 1 the client's preface comes before the rest, bit 2 our calls are paused or
 * held; second: bytes at a time (0: all); third: milliseconds between the pieces. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/api/grpc_client_session.h"
#include "daemon/api/grpc_server_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CALLS 3

struct run {
	bool hold;
	unsigned open; /* calls that have not heard of their end */
	unsigned messages;
	struct grpc_call *held;
	struct grpc_client_call *calls[CALLS];
};

static void on_cancelled(void *arg)
{
	struct run *run = arg;
	assert(run->open > 0);
	run->open--;
	run->held = NULL;
}

static void on_writable(void *arg)
{
	struct run *run = arg;
	(void)run;
}

static void on_request(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	static uint8_t large[100000];
	struct run *run = arg;
	unsigned sum = 0;
	for (size_t i = 0; i < bytes; i++)
		sum += request[i];
	(void)grpc_call_send(call, large, sum % sizeof(large));
	if (!run->hold) {
		grpc_call_end(call, (enum grpc_status)(sum % 17), grpc_call_path(call));
		return;
	}
	run->open++;
	run->held = call;
	grpc_call_on_cancel(call, on_cancelled, run);
	grpc_call_on_writable(call, on_writable, run);
}

static void on_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct run *run = arg;
	volatile uint8_t last = bytes > 0 ? message[bytes - 1] : 0;
	(void)last;
	run->messages++;
}

static void on_over(void *arg, struct grpc_client_call *call)
{
	struct run *run = arg;
	assert(run->open > 0);
	run->open--;
	for (unsigned i = 0; i < CALLS; i++)
		if (run->calls[i] == call)
			run->calls[i] = NULL;
	assert(call->decided && memchr(call->text, '\0', sizeof(call->text)) != NULL);
	grpc_outbox_finish(&call->request);
	free(call);
}

static struct grpc_session *start_client(struct run *run)
{
	static const struct grpc_client_session_callbacks callbacks = { .over = on_over };
	static char path[] = "/traind.v1.Trainer/ListNodes";
	struct grpc_session *session = grpc_client_session_create("fuzz:1", &callbacks, run, 0);
	assert(session != NULL);
	for (unsigned i = 0; i < CALLS; i++) {
		struct grpc_client_call *call = calloc(1, sizeof(*call));
		assert(call != NULL);
		call->path = path;
		call->callbacks.message = on_message;
		call->arg = run;
		call->deadline_ms = GRPC_NO_DEADLINE;
		call->paused = run->hold;
		tr_status status = grpc_outbox_add(&call->request, "request", 7);
		assert(status == TR_OK);
		status = grpc_client_session_start(session, call);
		assert(status == TR_OK);
		run->calls[i] = call;
		run->open++;
	}
	return session;
}

static void drain(struct grpc_session *session, uint64_t now_ms)
{
	uint8_t out[1u << 16];
	while (grpc_session_send(session, now_ms, out, sizeof(out)) > 0)
		;
}

static void check(const struct grpc_session *session)
{
	size_t received = 0, unsent = 0;
	unsigned count = 0;
	for (const struct grpc_stream *s = session->streams; s != NULL; s = s->next) {
		received += s->in.length;
		unsent += s->out.unsent;
		count++;
	}
	assert(count == session->stream_count && count <= TR_GRPC_STREAMS_MAX + 1);
	assert(unsent == session->unsent);
	assert(received <= TR_GRPC_REQUESTS_BYTES_MAX + (size_t)count * TR_GRPC_WINDOW_BYTES);
}

/* Later, a held call sends more, and the second call of a client is cancelled. */
static void act(struct run *run, unsigned turn)
{
	if (run->held != NULL && turn % 2 == 0)
		(void)grpc_call_send(run->held, "more", 4);
	if (turn == 3 && run->calls[1] != NULL)
		grpc_client_session_end(run->calls[1], GRPC_CANCELLED, "cancelled");
	if (turn == 5 && run->calls[2] != NULL) {
		run->calls[2]->paused = false;
		grpc_session_touch(&run->calls[2]->stream);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
	if (size < 3)
		return 0;
	struct run run = { .hold = (data[0] & 4) != 0 };
	bool client = (data[0] & 1) != 0;
	size_t step = data[1] == 0 ? size : data[1];
	uint64_t now_ms = 0;
	unsigned turn = 0;
	tr_status status = TR_OK;
	struct grpc_session *session = client ? start_client(&run)
	                                      : grpc_server_session_create(on_request, &run, 0);
	assert(session != NULL);
	if (!client && (data[0] & 2) != 0)
		status = grpc_session_receive(session, 0, (const uint8_t *)preface, sizeof(preface),
		    NULL);
	assert(status == TR_OK);
	for (size_t at = 3; at < size && status == TR_OK; at += step, now_ms += data[2]) {
		size_t piece = size - at < step ? size - at : step;
		status = grpc_session_receive(session, now_ms, data + at, piece, NULL);
		act(&run, turn++);
		drain(session, now_ms);
		check(session);
		if (grpc_session_deadline_ms(session) <= now_ms)
			grpc_session_tick(session, now_ms);
	}
	if ((data[0] & 8) != 0 && !client)
		grpc_server_session_close(session);
	drain(session, now_ms);
	grpc_session_lose(session, "the input is over");
	assert(session->streams == NULL && session->unsent == 0 && run.open == 0);
	grpc_session_destroy(session);
	return 0;
}
