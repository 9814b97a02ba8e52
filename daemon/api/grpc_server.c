#include "daemon/api/grpc_server.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/socket.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/log_limit.h"
#include "daemon/api/grpc_io.h"
#include "daemon/api/grpc_server_session.h"

struct grpc_server_connection {
	struct grpc_server *server;
	struct grpc_server_connection *previous, *next;
	struct grpc_io *io;
	struct grpc_session *session;
	char name[TR_ADDRESS_MAX];
};

struct grpc_server {
	uv_loop_t *loop;
	struct grpc_server_options options;
	struct grpc_server_connection *connections;
	unsigned connection_count;
	struct log_limit drops;
	uv_timer_t grace;
	bool closing, grace_closing;
	void (*closed)(void *arg);
	void *closed_arg;
};

static void server_request(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	const struct grpc_server_options *options = &((struct grpc_server *)arg)->options;
	for (const struct grpc_method *method = options->methods; method->path != NULL; method++) {
		if (strcmp(method->path, grpc_call_path(call)) == 0) {
			method->handle(options->arg, call, request, bytes);
			return;
		}
	}
	if (options->fallback != NULL)
		options->fallback(options->arg, call, request, bytes);
	else
		grpc_call_end(call, GRPC_UNIMPLEMENTED,
		    "no such method; proto/ has those that there are");
}

static void server_freed(uv_handle_t *handle)
{
	struct grpc_server *server = handle->data;
	if (server->closed != NULL)
		server->closed(server->closed_arg);
	free(server);
}

static void server_close_when_empty(struct grpc_server *server)
{
	if (!server->closing || server->grace_closing || server->connections != NULL)
		return;
	server->grace_closing = true;
	uv_close((uv_handle_t *)&server->grace, server_freed);
}

static void server_unlink(struct grpc_server_connection *connection)
{
	struct grpc_server *server = connection->server;
	if (connection->previous == NULL)
		server->connections = connection->next;
	else
		connection->previous->next = connection->next;
	if (connection->next != NULL)
		connection->next->previous = connection->previous;
	server->connection_count--;
}

static void server_connection_closed(void *arg, const char *reason, bool fault)
{
	struct grpc_server_connection *connection = arg;
	struct grpc_server *server = connection->server;
	if (!fault)
		log_debug("api", "connection from %s ended: %s", connection->name, reason);
	else
		log_limited(&server->drops, uv_now(server->loop), LOG_WARN, "api",
		    "connection from %s dropped: %s", connection->name, reason);
	server_unlink(connection);
	free(connection);
	server_close_when_empty(server);
}

/* The connection without calls that has been silent for longest. */
static struct grpc_server_connection *server_idlest(const struct grpc_server *server)
{
	struct grpc_server_connection *idlest = NULL;
	for (struct grpc_server_connection *c = server->connections; c != NULL; c = c->next)
		if (c->session->stream_count == 0 && !c->session->lost &&
		    (idlest == NULL || c->session->heard_ms < idlest->session->heard_ms))
			idlest = c;
	return idlest;
}

static bool server_make_room(struct grpc_server *server)
{
	if (server->connection_count < TR_GRPC_CONNECTIONS_MAX)
		return true;
	struct grpc_server_connection *idlest = server_idlest(server);
	log_limited(&server->drops, uv_now(server->loop), LOG_WARN, "api",
	    "%d connections are open: dropped %s", TR_GRPC_CONNECTIONS_MAX,
	    idlest == NULL ? "the new one, as all others have calls" : idlest->name);
	if (idlest == NULL)
		return false;
	grpc_io_close(idlest->io, "made room for a new connection");
	return true;
}

static struct grpc_server_connection *server_connect(struct grpc_server *server,
    struct stream stream, const void *early, size_t early_bytes)
{
	struct grpc_server_connection *connection = calloc(1, sizeof(*connection));
	if (connection == NULL)
		return NULL;
	connection->server = server;
	connection->session = grpc_server_session_create(server_request, server,
	    uv_now(server->loop));
	if (connection->session == NULL)
		goto free_connection;
	socket_peer_name(stream.fd, connection->name);
	if (grpc_io_create(server->loop, stream, connection->session, early, early_bytes,
	        server_connection_closed, connection, &connection->io) != TR_OK)
		goto destroy_session;
	return connection;

destroy_session:
	grpc_session_destroy(connection->session);
free_connection:
	free(connection);
	return NULL;
}

void grpc_server_accept(struct grpc_server *server, struct stream stream, const void *early,
    size_t early_bytes)
{
	if (server->closing || !server_make_room(server)) {
		stream_close(&stream);
		return;
	}
	struct grpc_server_connection *connection = server_connect(server, stream, early,
	    early_bytes);
	if (connection == NULL) {
		log_limited(&server->drops, uv_now(server->loop), LOG_WARN, "api",
		    "a connection was dropped: out of memory or of file descriptors");
		stream_close(&stream);
		return;
	}
	connection->next = server->connections;
	if (connection->next != NULL)
		connection->next->previous = connection;
	server->connections = connection;
	server->connection_count++;
}

tr_status grpc_server_create(uv_loop_t *loop, const struct grpc_server_options *options,
    struct grpc_server **out)
{
	struct grpc_server *server = calloc(1, sizeof(*server));
	if (server == NULL)
		return TR_ENOMEM;
	server->loop = loop;
	server->options = *options;
	log_limit_init(&server->drops, uv_now(loop));
	(void)uv_timer_init(loop, &server->grace);
	server->grace.data = server;
	*out = server;
	return TR_OK;
}

/* Who has not read the last words by now will not. */
static void server_grace_over(uv_timer_t *timer)
{
	struct grpc_server *server = timer->data;
	for (struct grpc_server_connection *c = server->connections; c != NULL; c = c->next)
		grpc_io_close(c->io, "the server closed");
}

void grpc_server_close(struct grpc_server *server, void (*closed)(void *arg), void *arg)
{
	if (server->closing)
		return;
	server->closing = true;
	server->closed = closed;
	server->closed_arg = arg;
	for (struct grpc_server_connection *c = server->connections; c != NULL; c = c->next)
		grpc_server_session_close(c->session);
	(void)uv_timer_start(&server->grace, server_grace_over, TR_GRPC_CLOSE_GRACE_MS, 0);
	server_close_when_empty(server);
}
