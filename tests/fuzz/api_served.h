/* grpc_server's connections, whose accounts a fuzzer looks at; and so few of them that more come. Static. */
#ifndef TR_TESTS_FUZZ_API_SERVED_H
#define TR_TESTS_FUZZ_API_SERVED_H

#include "common/limits.h"
#include "daemon/api/grpc_call.h"
#include "tests/fuzz/api_backend.h"
#include "tests/fuzz/port_end.h"

#undef TR_GRPC_CONNECTIONS_MAX
#define TR_GRPC_CONNECTIONS_MAX (PORT_ENDS - 2)
#include "daemon/api/grpc_server.c"

/* What all connections of a server together may have unsent and half received. */
#define SERVED_HELD_MAX                    \
	((size_t)TR_GRPC_CONNECTIONS_MAX * \
	    (TR_GRPC_UNSENT_BYTES_MAX + TR_GRPC_MESSAGE_MAX + TR_GRPC_REQUESTS_BYTES_MAX))

/* What a connection keeps accounts of is what its calls have. */
static void served_look_at(const struct grpc_session *session)
{
	const struct grpc_server_session *is = (const struct grpc_server_session *)session;
	size_t received = 0, unsent = 0, reserved = 0;
	unsigned count = 0, waiting = 0;
	for (const struct grpc_stream *s = session->streams; s != NULL; s = s->next, count++) {
		const struct grpc_call *call = (const struct grpc_call *)s;
		received += s->in.length;
		unsent += s->out.unsent;
		reserved += call->reserved;
		waiting += call->waits;
	}
	if (count != session->stream_count || count > TR_GRPC_STREAMS_MAX + 1)
		live_die("more calls than are counted, or than may be");
	if (unsent != session->unsent || reserved != is->reserved || waiting != is->waiting)
		live_die("a connection's accounts are wrong");
	if (received > TR_GRPC_REQUESTS_BYTES_MAX + (size_t)count * TR_GRPC_WINDOW_BYTES)
		live_die("more is received than its window lets in");
}

/* What a port accepted, for `server`; NULL: it is ending. */
static void served_accept(struct grpc_server *server, enum listener_protocol protocol,
    struct stream stream, const void *early, size_t early_bytes)
{
	bool http = protocol == LISTENER_HTTP2 || protocol == LISTENER_HTTP1;
	if (http && server != NULL)
		grpc_server_accept(server, stream, early, early_bytes);
	else
		stream_close(&stream);
}

/* The Trainer service over the cluster that is played. */
static struct grpc_server *served_trainer(void)
{
	struct grpc_server *server;
	struct tr_error error = { 0 };
	live_need(trainer_service_create(&port.net, &api_backend, NULL, &api.service), &error,
	    "a service");
	const struct grpc_server_options options = { .methods = trainer_service_methods(),
		.arg = api.service };
	live_need(grpc_server_create(&port.net, &options, &server), &error, "a server");
	return server;
}

/* NULL: there is none. */
static void served_look(const struct grpc_server *server)
{
	for (const struct grpc_server_connection *c = server != NULL ? server->connections : NULL;
	     c != NULL; c = c->next)
		served_look_at(c->session);
}

/* Else who asks rightly would be sent away, where all others have calls. */
static void served_make_room(void)
{
	for (unsigned i = TR_GRPC_CONNECTIONS_MAX - 1; i < PORT_ENDS; i++)
		port_close(&port.ends[i]);
	for (unsigned i = 0; i < PORT_LAST_TURNS; i++)
		one_wait(ONE_TURN_NS);
}

#endif
