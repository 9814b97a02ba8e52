/* The server's side of one HTTP/2 connection, without its socket. The calls it hands out are those of grpc_server.h. */
#ifndef TR_DAEMON_API_GRPC_SERVER_SESSION_H
#define TR_DAEMON_API_GRPC_SERVER_SESSION_H

#include "daemon/api/grpc_server.h"
#include "daemon/api/grpc_session.h"

/* `request` gets each whole request; see grpc_method_fn. */
struct grpc_session *grpc_server_session_create(grpc_method_fn *request, void *arg, uint64_t now_ms);
/* Refuses new calls and ends those under way with UNAVAILABLE; the session is finished when that was said. */
void grpc_server_session_close(struct grpc_session *session);

#endif
