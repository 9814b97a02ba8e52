/* A call on the server's side, inside daemon/api. Its public face is grpc_server.h. */
#ifndef TR_DAEMON_API_GRPC_CALL_H
#define TR_DAEMON_API_GRPC_CALL_H

#include "daemon/api/grpc_request_head.h"
#include "daemon/api/grpc_server.h"
#include "daemon/api/grpc_session.h"

struct grpc_server_session {
	struct grpc_session base;
	grpc_method_fn *request;
	void *arg;
	uint64_t greeting_deadline_ms;
	size_t reserved;  /* for requests that are being received */
	unsigned waiting; /* calls that wait for memory */
	bool closing;
};

struct grpc_call {
	struct grpc_stream stream;
	struct grpc_request_head head;
	uint64_t deadline_ms; /* absolute */
	size_t reserved;
	bool judged;     /* the headers were looked at */
	bool waits;      /* for memory of the connection */
	bool dispatched; /* the handler has it */
	bool ended;      /* by the handler or by us */
	bool abandoned;  /* the handler must hear of that */
	bool answered;   /* response headers were submitted */
	unsigned http_status;
	enum grpc_status status;
	char *text; /* NULL: none */
	void (*cancelled)(void *arg);
	void *cancelled_arg;
	void (*writable)(void *arg);
	void *writable_arg;
};

/* Ends a call that its handler did not end: it hears of it from the next step. What is unsent is dropped. No-op if ended. */
void grpc_call_abort(struct grpc_call *call, enum grpc_status status, const char *text);
void grpc_call_run_cancelled(struct grpc_call *call);
void grpc_call_submit_trailers(struct grpc_call *call);

#endif
