#include "daemon/api/grpc_dial.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/socket.h"
#include "common/limits.h"

struct grpc_dial {
	uv_loop_t *loop;
	struct address address;
	uv_getaddrinfo_t resolve;
	uv_poll_t poll;
	uv_timer_t timer; /* starts it from a later turn, then limits it */
	struct addrinfo *results, *next;
	struct sockaddr_storage unix_address;
	socklen_t unix_length;
	bool resolving, polling, over;
	unsigned open_handles;
	struct stream stream;
	struct tls_context *tls; /* NULL: plain */
	char cause[TR_ERROR_TEXT_MAX];
	grpc_dial_fn *done; /* NULL: cancelled */
	void *arg;
};

static void dial_try_next(struct grpc_dial *dial);

static void dial_free_when_closed(struct grpc_dial *dial)
{
	if (!dial->over || dial->resolving || dial->open_handles > 0)
		return;
	if (dial->results != NULL)
		uv_freeaddrinfo(dial->results);
	tls_context_release(dial->tls);
	free(dial);
}

static void dial_timer_closed(uv_handle_t *handle)
{
	struct grpc_dial *dial = handle->data;
	dial->open_handles--;
	dial_free_when_closed(dial);
}

static const struct stream nothing = { -1, NULL };

static void dial_over(struct grpc_dial *dial, struct stream stream)
{
	dial->over = true;
	uv_close((uv_handle_t *)&dial->timer, dial_timer_closed);
	if (dial->resolving)
		(void)uv_cancel((uv_req_t *)&dial->resolve);
	if (dial->done != NULL)
		dial->done(dial->arg, stream, stream.fd < 0 ? dial->cause : NULL);
	else
		stream_close(&stream);
}

static void dial_set_cause(struct grpc_dial *dial, const char *cause)
{
	(void)snprintf(dial->cause, sizeof(dial->cause), "%s", cause);
}

/* What `error` says, and a question where nobody may be there at all. */
static void dial_set_errno(struct grpc_dial *dial, int error)
{
	bool nobody = error == ECONNREFUSED || error == ENOENT || error == ETIMEDOUT ||
	    error == EHOSTUNREACH;
	(void)snprintf(dial->cause, sizeof(dial->cause), "%s%s", strerror(error),
	    nobody ? "; is it running there?" : "");
}

/* The poll handle is closed before its socket is handed on or closed. */
static void dial_poll_closed(uv_handle_t *handle)
{
	struct grpc_dial *dial = handle->data;
	const struct stream stream = dial->stream;
	dial->open_handles--;
	dial->polling = false;
	dial->stream = nothing;
	bool connected = dial->cause[0] == '\0';
	if (!connected || dial->over)
		stream_close(&stream);
	if (dial->over)
		dial_free_when_closed(dial);
	else if (connected)
		dial_over(dial, stream);
	else
		dial_try_next(dial);
}

static void dial_leave_poll(struct grpc_dial *dial)
{
	(void)uv_poll_stop(&dial->poll);
	uv_close((uv_handle_t *)&dial->poll, dial_poll_closed);
}

static void dial_shake(uv_poll_t *poll, int status, int events)
{
	struct grpc_dial *dial = poll->data;
	(void)status; /* the handshake meets it */
	(void)events;
	enum tls_step step = tls_handshake(dial->stream.tls);
	if (step == TLS_WAITS) {
		(void)uv_poll_start(poll,
		    UV_READABLE | (stream_unsent(&dial->stream) > 0 ? UV_WRITABLE : 0), dial_shake);
		return;
	}
	dial_set_cause(dial, step == TLS_DONE ? "" : tls_error(dial->stream.tls));
	dial_leave_poll(dial);
}

static void dial_connected(uv_poll_t *poll, int status, int events)
{
	struct grpc_dial *dial = poll->data;
	int failed = 0;
	socklen_t length = sizeof(failed);
	(void)events;
	(void)status; /* libuv says EBADF for any error */
	if (getsockopt(dial->stream.fd, SOL_SOCKET, SO_ERROR, &failed, &length) != 0)
		dial_set_errno(dial, errno);
	else if (failed != 0)
		dial_set_errno(dial, failed);
	else
		dial_set_cause(dial, "");
	if (dial->cause[0] == '\0' && dial->tls != NULL) {
		dial->stream.tls = tls_create(dial->tls, dial->stream.fd, dial->address.host);
		if (dial->stream.tls != NULL) {
			dial_shake(poll, 0, 0);
			return;
		}
		dial_set_cause(dial, "out of memory");
	}
	dial_leave_poll(dial);
}

/* False: dial->cause says why. */
static bool dial_connect(struct grpc_dial *dial, const struct sockaddr *address, socklen_t length)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		dial_set_errno(dial, errno);
		return false;
	}
	socket_tune(fd, address);
	if ((connect(fd, address, length) != 0 && errno != EINPROGRESS) ||
	    uv_poll_init(dial->loop, &dial->poll, fd) != 0) {
		dial_set_errno(dial, errno);
		(void)close(fd);
		return false;
	}
	dial->stream = (struct stream){ fd, NULL };
	dial->poll.data = dial;
	dial->polling = true;
	dial->open_handles++;
	(void)uv_poll_start(&dial->poll, UV_WRITABLE, dial_connected);
	return true;
}

static void dial_try_next(struct grpc_dial *dial)
{
	while (dial->next != NULL) {
		struct addrinfo *result = dial->next;
		dial->next = result->ai_next;
		if (dial_connect(dial, result->ai_addr, result->ai_addrlen))
			return;
	}
	dial_over(dial, nothing);
}

static void dial_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *results)
{
	struct grpc_dial *dial = resolve->data;
	dial->resolving = false;
	dial->results = dial->next = results;
	if (dial->over) {
		dial_free_when_closed(dial);
		return;
	}
	if (status != 0)
		(void)snprintf(dial->cause, sizeof(dial->cause), "cannot resolve the name: %s",
		    uv_strerror(status));
	dial_try_next(dial);
}

static void dial_resolve(struct grpc_dial *dial)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
	const struct address *address = &dial->address;
	if (getaddrinfo(address->host, address->port, &hints, &dial->results) == 0) {
		dial->next = dial->results;
		dial_try_next(dial);
		return;
	}
	dial->results = NULL;
	hints.ai_flags = 0;
	dial->resolve.data = dial;
	int failed = uv_getaddrinfo(dial->loop, &dial->resolve, dial_resolved, address->host,
	    address->port, &hints);
	dial->resolving = failed == 0;
	if (failed != 0) {
		dial_set_cause(dial, uv_strerror(failed));
		dial_over(dial, nothing);
	}
}

static void dial_timed_out(uv_timer_t *timer)
{
	struct grpc_dial *dial = timer->data;
	(void)snprintf(dial->cause, sizeof(dial->cause),
	    "no answer for %d ms; is it running there?", TR_GRPC_DIAL_TIMEOUT_MS);
	if (dial->polling && !uv_is_closing((uv_handle_t *)&dial->poll))
		uv_close((uv_handle_t *)&dial->poll, dial_poll_closed);
	dial_over(dial, nothing);
}

static void dial_begin(uv_timer_t *timer)
{
	struct grpc_dial *dial = timer->data;
	(void)uv_timer_start(timer, dial_timed_out, TR_GRPC_DIAL_TIMEOUT_MS, 0);
	if (!dial->address.is_unix)
		dial_resolve(dial);
	else if (!dial_connect(dial, (struct sockaddr *)&dial->unix_address, dial->unix_length))
		dial_over(dial, nothing);
}

tr_status grpc_dial_start(uv_loop_t *loop, const struct address *address, struct tls_context *tls,
    grpc_dial_fn *done, void *arg, struct grpc_dial **out)
{
	struct grpc_dial *dial = calloc(1, sizeof(*dial));
	if (dial == NULL)
		return TR_ENOMEM;
	dial->loop = loop;
	dial->address = *address;
	dial->done = done;
	dial->arg = arg;
	dial->stream = nothing;
	dial->tls = address->is_unix ? NULL : tls_context_hold(tls);
	if (address->is_unix &&
	    address_unix(address, &dial->unix_address, &dial->unix_length, NULL) != TR_OK) {
		free(dial); /* to a UNIX socket no TLS is held */
		return TR_EINVAL;
	}
	(void)uv_timer_init(loop, &dial->timer);
	dial->timer.data = dial;
	dial->open_handles = 1;
	(void)uv_timer_start(&dial->timer, dial_begin, 0, 0);
	*out = dial;
	return TR_OK;
}

void grpc_dial_cancel(struct grpc_dial *dial)
{
	dial->done = NULL;
	dial_set_cause(dial, "cancelled");
	if (dial->polling && !uv_is_closing((uv_handle_t *)&dial->poll))
		uv_close((uv_handle_t *)&dial->poll, dial_poll_closed);
	dial_over(dial, nothing);
}
