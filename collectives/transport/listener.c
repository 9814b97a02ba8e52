#include "collectives/transport/listener.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/watch.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/log_limit.h"
#include "proto/frame.h"
#include "proto/probe.h"
#include "proto/relay.h"

#define ACCEPTS_PER_TURN 64
#define ACCEPT_PAUSE_MS  100
/* For files, pipes and sockets of our own: strangers do not get the last descriptors. */
#define DESCRIPTORS_KEPT 64

/* A connection that has not said what it is. */
struct waiting {
	uv_poll_t poll;
	struct listener *listener;
	struct waiting *older, *newer;
	struct stream stream;
	bool shaken; /* what comes is the greeting: plain, or the TLS handshake is over */
	uint64_t deadline_ms;
	size_t got;
	uint8_t bytes[FRAME_GREETING_BYTES];
	char peer_name[TR_ADDRESS_MAX];
};

struct listener {
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t pause;  /* out of file descriptors */
	uv_timer_t expire; /* the oldest waiting connection's deadline */
	int fd;
	unsigned handles; /* freed when none is left */
	bool stopped, starved;
	listener_fn *accepted;
	void *arg;
	struct tls_context *tls; /* NULL: plain */
	struct waiting *oldest, *newest;
	unsigned waiting_count;
	struct log_limit drops, starvations;
	char address[TR_ADDRESS_MAX];
	char unix_path[TR_ADDRESS_MAX]; /* to unlink; empty: none */
};

static void on_expire(uv_timer_t *timer);
static void on_listening(uv_poll_t *poll, int status, int events);
static void on_waiting(uv_poll_t *poll, int status, int events);

static void listener_handle_closed(struct listener *listener)
{
	if (--listener->handles > 0)
		return;
	tls_context_release(listener->tls);
	free(listener);
}

static void on_listener_closed(uv_handle_t *handle)
{
	listener_handle_closed(handle->data);
}

static void on_waiting_closed(uv_handle_t *handle)
{
	struct waiting *waiting = handle->data;
	struct listener *listener = waiting->listener;
	free(waiting);
	listener_handle_closed(listener);
}

/* ---- connections that have not said what they are ---- */

static void log_drop(struct listener *listener, const char *who, const char *reason)
{
	log_limited(&listener->drops, uv_now(listener->loop), LOG_INFO, "listener",
	    "%s: connection from %s dropped: %s", listener->address, who, reason);
}

/* Ends the watch; the stream is the caller's. */
static struct stream waiting_remove(struct waiting *waiting)
{
	struct listener *listener = waiting->listener;
	if (waiting->older != NULL)
		waiting->older->newer = waiting->newer;
	else
		listener->oldest = waiting->newer;
	if (waiting->newer != NULL)
		waiting->newer->older = waiting->older;
	else
		listener->newest = waiting->older;
	listener->waiting_count--;
	uv_close((uv_handle_t *)&waiting->poll, on_waiting_closed);
	return waiting->stream;
}

static void waiting_drop(struct waiting *waiting, const char *reason)
{
	log_drop(waiting->listener, waiting->peer_name, reason);
	const struct stream stream = waiting_remove(waiting);
	stream_close(&stream);
}

static void expire_oldest(struct listener *listener)
{
	uint64_t now_ms = uv_now(listener->loop);
	while (listener->oldest != NULL && listener->oldest->deadline_ms <= now_ms)
		waiting_drop(listener->oldest, "it said nothing in time");
	if (listener->oldest != NULL)
		(void)uv_timer_start(&listener->expire, on_expire,
		    listener->oldest->deadline_ms - now_ms, 0);
}

static void on_expire(uv_timer_t *timer)
{
	expire_oldest(timer->data);
}

enum verdict { VERDICT_WAIT, VERDICT_KNOWN, VERDICT_GARBAGE };

static enum verdict judge(const uint8_t *bytes, size_t got, enum listener_protocol *protocol)
{
	static const struct {
		const char *start;
		enum listener_protocol protocol;
	} known[] = {
		{ FRAME_GREETING, LISTENER_FRAMES },
		{ RELAY_GREETING, LISTENER_RELAY },
		{ PROBE_GREETING, LISTENER_PROBE },
		{ "PRI ", LISTENER_HTTP2 },
		{ "GET ", LISTENER_HTTP1 },
		{ "HEAD ", LISTENER_HTTP1 },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t length = strlen(known[i].start);
		if (memcmp(bytes, known[i].start, got < length ? got : length) != 0)
			continue;
		*protocol = known[i].protocol;
		return got >= length ? VERDICT_KNOWN : VERDICT_WAIT;
	}
	return VERDICT_GARBAGE;
}

/* A greeting is "TRAIND" and the version. */
static bool is_of_another_version(const struct waiting *waiting)
{
	return waiting->got > FRAME_GREETING_NAME_BYTES &&
	    memcmp(waiting->bytes, FRAME_GREETING, FRAME_GREETING_NAME_BYTES) == 0;
}

static void waiting_known(struct waiting *waiting, enum listener_protocol protocol)
{
	struct listener *listener = waiting->listener;
	uint8_t bytes[FRAME_GREETING_BYTES];
	bool greeted = protocol == LISTENER_FRAMES || protocol == LISTENER_RELAY ||
	    protocol == LISTENER_PROBE;
	size_t early = greeted ? 0 : waiting->got;
	memcpy(bytes, waiting->bytes, sizeof(bytes));
	listener->accepted(listener->arg, protocol, waiting_remove(waiting), bytes, early);
}

/* It speaks TLS and we do not, or the other way around. */
static void refuse(struct waiting *waiting, const char *reason)
{
	tls_send_refusal(waiting->stream.fd);
	waiting_drop(waiting, reason);
}

/* No more is read than tells the protocol, so that nothing but it has to be handed over. */
static void read_greeting(struct waiting *waiting, bool broken)
{
	ssize_t n = stream_read(&waiting->stream, waiting->bytes + waiting->got,
	    sizeof(waiting->bytes) - waiting->got);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) && !broken)
		return;
	if (n < 0 && errno == EPROTO && waiting->stream.tls != NULL) {
		waiting_drop(waiting, tls_error(waiting->stream.tls));
		return;
	}
	if (n <= 0) {
		waiting_drop(waiting,
		    n == 0 ? "it closed before it said what it is"
		           : "it broke before it said what it is");
		return;
	}
	waiting->got += (size_t)n;
	enum listener_protocol protocol;
	switch (judge(waiting->bytes, waiting->got, &protocol)) {
	case VERDICT_KNOWN:
		waiting_known(waiting, protocol);
		break;
	case VERDICT_GARBAGE:
		if (waiting->bytes[0] == TLS_BYTE_HANDSHAKE && waiting->stream.tls == NULL)
			refuse(waiting,
			    "it speaks TLS, and this port does not: give --tls DIR here");
		else
			waiting_drop(waiting,
			    is_of_another_version(waiting)
			        ? "it is of another version of traind: all of a cluster have to "
			          "be of the same"
			        : "its first bytes are neither a frame nor HTTP");
		break;
	case VERDICT_WAIT:
		break;
	}
}

/* ---- TLS: whether it is spoken, and its handshake ---- */

/* The first byte tells; it is left where it is. false: nothing more is to be done now, or ever. */
static bool begin_tls(struct waiting *waiting)
{
	uint8_t first;
	ssize_t n = recv(waiting->stream.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return false;
	if (n == 1 && first != TLS_BYTE_HANDSHAKE) {
		refuse(waiting, "it does not speak TLS, and this port does: give --tls DIR there");
		return false;
	}
	waiting->stream.tls = tls_create(waiting->listener->tls, waiting->stream.fd, NULL);
	if (waiting->stream.tls == NULL)
		waiting_drop(waiting, "no memory for TLS");
	return waiting->stream.tls != NULL;
}

/* false: not over, or the connection was dropped. */
static bool shake(struct waiting *waiting)
{
	if (waiting->stream.tls == NULL && !begin_tls(waiting))
		return false;
	struct tls *tls = waiting->stream.tls;
	enum tls_step step = tls_handshake(tls);
	if (step == TLS_FAILED) {
		waiting_drop(waiting, tls_error(tls));
		return false;
	}
	waiting->shaken = step == TLS_DONE;
	watch_start(&waiting->poll, UV_READABLE | (tls_unsent(tls) > 0 ? UV_WRITABLE : 0),
	    on_waiting);
	return waiting->shaken;
}

static void on_waiting(uv_poll_t *poll, int status, int events)
{
	struct waiting *waiting = poll->data;
	(void)events;
	if (waiting->shaken || shake(waiting))
		read_greeting(waiting, status != 0);
}

static void waiting_add(struct listener *listener, int fd, const struct sockaddr *from,
    socklen_t length)
{
	struct waiting *waiting = calloc(1, sizeof(*waiting));
	if (waiting == NULL || uv_poll_init(listener->loop, &waiting->poll, fd) != 0) {
		log_drop(listener, "somebody", "no memory to watch it");
		free(waiting);
		(void)close(fd);
		return;
	}
	socket_tune(fd, from);
	address_format(from, length, waiting->peer_name);
	waiting->listener = listener;
	waiting->poll.data = waiting;
	waiting->stream.fd = fd;
	waiting->shaken = listener->tls == NULL;
	waiting->deadline_ms = uv_now(listener->loop) + TR_CONN_GREETING_TIMEOUT_MS;
	listener->handles++;
	waiting->older = listener->newest;
	if (listener->newest != NULL)
		listener->newest->newer = waiting;
	else
		listener->oldest = waiting;
	listener->newest = waiting;
	if (++listener->waiting_count > TR_CONN_UNGREETED_MAX)
		waiting_drop(listener->oldest, "too many others wait to say what they are");
	watch_start(&waiting->poll, UV_READABLE, on_waiting);
	if (!uv_is_active((uv_handle_t *)&listener->expire))
		expire_oldest(listener);
}

void listener_take(struct listener *listener, int fd)
{
	struct sockaddr_storage from = { 0 };
	socklen_t length = sizeof(from);
	if (getpeername(fd, (struct sockaddr *)&from, &length) == 0)
		waiting_add(listener, fd, (struct sockaddr *)&from, length);
	else
		(void)close(fd);
}

/* ---- accepting ---- */

static void on_pause_over(uv_timer_t *timer)
{
	struct listener *listener = timer->data;
	watch_start(&listener->poll, UV_READABLE, on_listening);
}

static void pause_accepting(struct listener *listener, int cause)
{
	if (!listener->starved)
		log_limited(&listener->starvations, uv_now(listener->loop), LOG_WARN, "listener",
		    "%s: cannot accept: %s; trying again every %d ms", listener->address,
		    strerror(cause), ACCEPT_PAUSE_MS);
	listener->starved = true;
	(void)uv_poll_stop(&listener->poll);
	(void)uv_timer_start(&listener->pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
}

/* The first descriptor that is kept; the kernel gives the lowest that is free. */
static int first_kept(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	rlim_t kept = limit.rlim_cur / 4 < DESCRIPTORS_KEPT ? limit.rlim_cur / 4 : DESCRIPTORS_KEPT;
	return limit.rlim_cur - kept < INT_MAX ? (int)(limit.rlim_cur - kept) : INT_MAX;
}

static void on_listening(uv_poll_t *poll, int status, int events)
{
	struct listener *listener = poll->data;
	int kept = first_kept();
	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN && !listener->stopped; i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t length = sizeof(from);
		int fd = accept4(listener->fd, (struct sockaddr *)&from, &length,
		    SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= kept) {
			(void)close(fd);
			pause_accepting(listener, EMFILE);
			return;
		}
		if (fd >= 0) {
			listener->starved = false;
			waiting_add(listener, fd, (struct sockaddr *)&from, length);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(listener, errno);
		if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO)
			return;
	}
}

/* ---- starting and stopping ---- */

static tr_status bind_failed(const char *text, int cause, struct tr_error *error)
{
	if (cause == EADDRINUSE)
		return tr_error_set(error, TR_EEXIST,
		    "address %s is in use by another program: end it, or choose another port",
		    text);
	if (cause == EADDRNOTAVAIL)
		return tr_error_set(error, TR_EINVAL,
		    "address %s is not one of this machine: take one that `ip address` shows, or "
		    "0.0.0.0 for all of them",
		    text);
	if (cause == EACCES)
		return tr_error_set(error, TR_EINVAL,
		    "address %s: this user may not listen there: take a port of 1024 or more, or "
		    "for "
		    "unix: a path in a folder that this user can write",
		    text);
	if (cause == ENOENT || cause == ENOTDIR)
		return tr_error_set(error, TR_EINVAL, "address %s: there is no such folder", text);
	return tr_error_set(error, TR_EIO, "cannot listen on %s: %s", text, strerror(cause));
}

/* A socket file whose owner died is in nobody's use. */
static bool unix_path_is_stale(const struct sockaddr *sa, socklen_t length)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	bool stale = connect(fd, sa, length) != 0 && errno == ECONNREFUSED;
	(void)close(fd);
	return stale;
}

static tr_status listen_on(struct listener *listener, const char *text, const struct sockaddr *sa,
    socklen_t length, struct tr_error *error)
{
	int on = 1;
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return bind_failed(text, errno, error);
	if (sa->sa_family != AF_UNIX)
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	const char *path = listener->unix_path;
	int rc = bind(fd, sa, length);
	if (rc != 0 && errno == EADDRINUSE && path[0] != '\0' && unix_path_is_stale(sa, length))
		rc = unlink(path) == 0 ? bind(fd, sa, length) : -1;
	if (rc != 0 || listen(fd, SOMAXCONN) != 0) {
		int cause = errno;
		(void)close(fd);
		return bind_failed(text, cause, error);
	}
	struct sockaddr_storage real = { 0 };
	socklen_t real_length = sizeof(real);
	(void)getsockname(fd, (struct sockaddr *)&real, &real_length);
	address_format((struct sockaddr *)&real, real_length, listener->address);
	listener->fd = fd;
	return TR_OK;
}

static tr_status open_unix(struct listener *listener, const struct address *address,
    const char *text, struct tr_error *error)
{
	struct sockaddr_storage sa;
	socklen_t length;
	tr_status st = address_unix(address, &sa, &length, error);
	if (st != TR_OK)
		return st;
	(void)snprintf(listener->unix_path, sizeof(listener->unix_path), "%s", address->host);
	return listen_on(listener, text, (struct sockaddr *)&sa, length, error);
}

static tr_status open_tcp(struct listener *listener, const struct address *address,
    const char *text, bool allowed, struct tr_error *error)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | AI_PASSIVE };
	struct addrinfo *found;
	int rc = getaddrinfo(address->host, address->port, &hints, &found);
	if (rc != 0)
		return tr_error_set(error, TR_EINVAL, "cannot resolve %s: %s", text,
		    gai_strerror(rc));
	tr_status st = TR_EIO;
	for (struct addrinfo *info = found; info != NULL && st != TR_OK; info = info->ai_next) {
		st = allowed || address_is_loopback(info->ai_addr)
		    ? listen_on(listener, text, info->ai_addr, info->ai_addrlen, error)
		    : address_refuse_plain(text, error);
	}
	freeaddrinfo(found);
	return st;
}

tr_status listener_start(uv_loop_t *loop, const char *text, bool insecure, struct tls_context *tls,
    listener_fn *accepted, void *arg, struct listener **listener, struct tr_error *error)
{
	struct address address;
	tr_status st = address_parse(text, &address, error);
	if (st != TR_OK)
		return st;
	struct listener *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to listen on %s", text);
	made->loop = loop;
	made->accepted = accepted;
	made->arg = arg;
	st = address.is_unix ? open_unix(made, &address, text, error)
	                     : open_tcp(made, &address, text, insecure || tls != NULL, error);
	if (st != TR_OK) {
		free(made);
		return st;
	}
	int rc = uv_poll_init(loop, &made->poll, made->fd);
	if (rc != 0) {
		(void)close(made->fd);
		free(made);
		return tr_error_set(error, TR_EIO, "cannot watch %s: %s", text, uv_strerror(rc));
	}
	made->tls = address.is_unix ? NULL : tls_context_hold(tls);
	(void)uv_timer_init(loop, &made->pause);
	(void)uv_timer_init(loop, &made->expire);
	made->poll.data = made->pause.data = made->expire.data = made;
	made->handles = 3;
	log_limit_init(&made->drops, uv_now(loop));
	log_limit_init(&made->starvations, uv_now(loop));
	watch_start(&made->poll, UV_READABLE, on_listening);
	*listener = made;
	return TR_OK;
}

const char *listener_address(const struct listener *listener)
{
	return listener->address;
}

void listener_stop(struct listener *listener)
{
	if (listener == NULL)
		return;
	listener->stopped = true;
	while (listener->oldest != NULL) {
		const struct stream stream = waiting_remove(listener->oldest);
		stream_close(&stream);
	}
	uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
	uv_close((uv_handle_t *)&listener->pause, on_listener_closed);
	uv_close((uv_handle_t *)&listener->expire, on_listener_closed);
	(void)close(listener->fd);
	if (listener->unix_path[0] != '\0')
		(void)unlink(listener->unix_path);
}
