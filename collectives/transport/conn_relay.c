/* A connection through a relay, until it has joined us with the other end: our message, its answer, and no byte more, since
 * behind that the socket is the other end's. TLS with the relay ends there (proto/relay.h, relay.h).
 */
#include "collectives/transport/conn_internal.h"

#include <errno.h>
#include <string.h>

#include "collectives/transport/socket.h"

#define GREETING_BYTES (sizeof(RELAY_GREETING) - 1)

void conn_relay_begin(struct conn *conn)
{
	const struct stream stream = { conn->fd, conn->tls };
	struct conn_through *through = conn->through;
	uint8_t words[GREETING_BYTES + RELAY_MESSAGE_BYTES];
	memcpy(words, RELAY_GREETING, GREETING_BYTES);
	relay_message_put(&through->relay.say, words + GREETING_BYTES);
	conn->state = CONN_RELAYING;
	through->got = 0;
	socket_keep_alive(conn->fd, TR_RELAY_KEEPALIVE_S);
	/* The first bytes on this connection: a socket that does not take them is broken. */
	if (stream_write(&stream, words, sizeof(words)) != (ssize_t)sizeof(words)) {
		conn_dial_failed(conn, "it closed before we were joined");
		return;
	}
	if (through->handed != NULL) /* for as long as nobody calls */
		(void)uv_timer_stop(&conn->timer);
	conn_relay_ready(conn); /* with TLS the answer may be here */
}

static void hand_on(struct conn *conn)
{
	int fd = conn->fd;
	conn_poll_stop(conn);
	conn->fd = -1;
	conn->through->handed(conn->arg, fd);
	conn_close(conn, "somebody called");
}

static void take_answer(struct conn *conn)
{
	struct conn_through *through = conn->through;
	struct relay_message answer;
	tr_status st = relay_message_get(through->answer, &answer, NULL);
	if (st != TR_OK || (answer.kind != RELAY_JOINED && answer.kind != RELAY_REFUSED)) {
		conn_dial_failed(conn, "it does not answer as a relay does");
		return;
	}
	if (answer.kind == RELAY_REFUSED) {
		conn_dial_failed(conn, relay_cause_words(answer.cause));
		return;
	}
	tls_destroy(conn->tls);
	conn->tls = NULL;
	through->joined = true;
	if (through->handed != NULL)
		hand_on(conn);
	else
		conn_dial_joined(conn);
}

void conn_relay_ready(struct conn *conn)
{
	const struct stream stream = { conn->fd, conn->tls };
	struct conn_through *through = conn->through;
	if (stream_unsent(&stream) > 0)
		(void)stream_flush(&stream); /* what is broken there is met in reading */
	ssize_t n = stream_read(&stream, through->answer + through->got,
	    sizeof(through->answer) - through->got);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
		conn_poll(conn);
		return;
	}
	if (n <= 0) {
		conn_dial_failed(conn, "it closed before we were joined");
		return;
	}
	through->got += (size_t)n;
	if (through->got == sizeof(through->answer))
		take_answer(conn);
	else
		conn_poll(conn);
}
