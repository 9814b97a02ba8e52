/* The client's side of one HTTP/2 connection, without its socket. */
#ifndef TR_DAEMON_API_GRPC_CLIENT_SESSION_H
#define TR_DAEMON_API_GRPC_CLIENT_SESSION_H

#include "daemon/api/grpc_client.h"
#include "daemon/api/grpc_response_head.h"
#include "daemon/api/grpc_session.h"

/* A call; heap, owned by grpc_client.c. Embedded first: its stream. */
struct grpc_client_call {
	struct grpc_stream stream;
	struct grpc_client *client;
	struct grpc_client_call *next; /* all of the client's */
	struct grpc_client_callbacks callbacks;
	void *arg;
	char *path;
	uint64_t deadline_ms; /* absolute, or GRPC_NO_DEADLINE */
	struct grpc_response_head head;
	bool started; /* on a session; before, the request waits in `request` */
	bool paused;
	bool decided; /* status and text are known */
	bool lost;    /* as there is no connection, or none any more */
	enum grpc_status status;
	char text[TR_GRPC_STATUS_TEXT_MAX];
	struct grpc_outbox request;
};

struct grpc_client_session_callbacks {
	/* The call is over; it is on no session any more. */
	void (*over)(void *arg, struct grpc_client_call *call);
	/* The server may allow more calls, or less (grpc_client_session_has_room); none may be started from within. May be NULL. */
	void (*settings)(void *arg);
};

/* `authority` is copied. */
struct grpc_session *grpc_client_session_create(const char *authority,
    const struct grpc_client_session_callbacks *callbacks, void *arg, uint64_t now_ms);
/* Sends the request that waits in the call. */
tr_status grpc_client_session_start(struct grpc_session *session, struct grpc_client_call *call);
/* Ends a call of ours before the server does; `over` runs from the next step. No-op if its end is decided. */
void grpc_client_session_end(struct grpc_client_call *call, enum grpc_status status,
    const char *text);
/* Another call can be started here now: the server takes calls, and fewer than it allows are under way. */
bool grpc_client_session_has_room(const struct grpc_session *session);
/* Ends a session without calls. */
void grpc_client_session_retire(struct grpc_session *session);

#endif
