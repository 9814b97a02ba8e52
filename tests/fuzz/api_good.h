/* Who asks the API rightly, on a connection of its own: each of its calls has to be answered as is known. Static.
 *
 *	static const struct good_call calls[] = { { .path = "/traind.v1.Trainer/ListNodes", .messages = 1 } };
 *	good_asks(secure, calls, 1);
 */
#ifndef TR_TESTS_FUZZ_API_GOOD_H
#define TR_TESTS_FUZZ_API_GOOD_H

#include "daemon/api/grpc_client_session.h"
#include "tests/fuzz/port_end.h"

#define GOOD_CALLS_MAX 8

struct good_call {
	const char *path;
	uint8_t request[16];
	size_t bytes;
	uint64_t within_ms; /* 0: any time */
	enum grpc_status status;
	const char *text; /* NULL: any */
	unsigned messages;
	const uint8_t *message; /* NULL: any */
	size_t message_bytes;
};

struct good {
	unsigned *open;
	const struct good_call *is;
	unsigned messages;
};

static void good_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct good *good = arg;
	good->messages++;
	if (good->is->message != NULL &&
	    (bytes != good->is->message_bytes || memcmp(message, good->is->message, bytes) != 0))
		live_die("who asks rightly gets another answer");
}

static void good_over(void *arg, struct grpc_client_call *call)
{
	const struct good *good = call->arg;
	(void)arg;
	if (call->status != good->is->status ||
	    (good->is->text != NULL && strcmp(call->text, good->is->text) != 0)) {
		(void)fprintf(stderr, "live: %s: status %u: %s\n", good->is->path,
		    (unsigned)call->status, call->text);
		live_die("who asks rightly gets another status, or other words");
	}
	if (good->messages != good->is->messages)
		live_die("who asks rightly gets more messages than there are, or less");
	--*good->open;
	grpc_outbox_finish(&call->request);
	free(call->path);
	free(call);
}

static void good_start(struct grpc_session *session, struct good *good)
{
	struct grpc_client_call *call = calloc(1, sizeof(*call));
	if (call == NULL || (call->path = strdup(good->is->path)) == NULL)
		live_die("no memory for a call");
	call->callbacks.message = good_message;
	call->arg = good;
	call->deadline_ms = good->is->within_ms == 0 ? GRPC_NO_DEADLINE : good->is->within_ms;
	if (grpc_outbox_add(&call->request, good->is->request, good->is->bytes) != TR_OK ||
	    grpc_client_session_start(session, call) != TR_OK)
		live_die("no call can be made");
	++*good->open;
}

static void good_turn(struct port_end *end, struct grpc_session *session)
{
	static uint8_t bytes[PORT_READ_BYTES];
	struct tr_error error = { 0 };
	for (ssize_t n; (n = grpc_session_send(session, 0, bytes, sizeof(bytes))) > 0;)
		port_put(end, &port.none, bytes, (size_t)n);
	one_wait(ONE_TURN_NS);
	size_t got = port_turn(end, &port.none, bytes, sizeof(bytes));
	if (got > 0)
		live_need(grpc_session_receive(session, 0, bytes, got, &error), &error,
		    "what the server says");
}

static void good_asks(bool secure, const struct good_call *calls, unsigned count)
{
	static const struct grpc_client_session_callbacks callbacks = { .over = good_over };
	struct good goods[GOOD_CALLS_MAX];
	struct port_end end;
	unsigned open = 0;
	port_connect(&end, secure ? PORT_SECURE : PORT_PLAIN, TLS_END_OURS, &port.none);
	struct grpc_session *session = grpc_client_session_create("fuzz:1", &callbacks, NULL, 0);
	if (session == NULL)
		live_die("no memory for a session");
	for (unsigned i = 0; i < count; i++) {
		goods[i] = (struct good){ &open, &calls[i], 0 };
		good_start(session, &goods[i]);
	}
	for (unsigned turns = 0; open > 0; turns++) {
		good_turn(&end, session);
		if (turns == PORT_TURNS_MAX)
			live_die("who asks rightly is not answered");
	}
	grpc_session_lose(session, "all is said");
	grpc_session_destroy(session);
	port_close(&end);
}

#endif
