/* A connected stream socket, plain or with TLS: what a listener hands on and whoever reads and writes has. Passed by value; whoever takes
 * it closes it. Plain, each function is the system call of its name.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_STREAM_H
#define TR_COLLECTIVES_TRANSPORT_STREAM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/tls.h"

struct stream {
	int fd;
	struct tls *tls; /* NULL: plain */
};

static inline ssize_t stream_read(const struct stream *stream, void *bytes, size_t count)
{
	struct iovec piece = { bytes, count };
	return stream->tls == NULL ? recv(stream->fd, bytes, count, MSG_DONTWAIT)
	                           : tls_read(stream->tls, &piece, 1);
}

static inline ssize_t stream_write(const struct stream *stream, const void *bytes, size_t count)
{
	struct iovec piece = { (void *)(uintptr_t)bytes, count };
	return stream->tls == NULL ? send(stream->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT)
	                           : tls_write(stream->tls, &piece, 1);
}

/* There may be more to read that no poll tells of. */
static inline bool stream_pending(const struct stream *stream)
{
	return stream->tls != NULL && tls_pending(stream->tls);
}

/* Taken by stream_write and not by the socket: poll until it is writable, then stream_flush. */
static inline size_t stream_unsent(const struct stream *stream)
{
	return stream->tls == NULL ? 0 : tls_unsent(stream->tls);
}

/* As stream_write: 0 when nothing is kept any more. */
static inline ssize_t stream_flush(const struct stream *stream)
{
	return stream->tls == NULL ? 0 : tls_write(stream->tls, NULL, 0);
}

/* In words, after -1; `cause` is errno. */
static inline const char *stream_error(const struct stream *stream, int cause)
{
	return stream->tls != NULL && cause == EPROTO ? tls_error(stream->tls) : strerror(cause);
}

/* Nothing more will be written. */
static inline void stream_end(const struct stream *stream)
{
	if (stream->tls != NULL)
		tls_end(stream->tls);
	(void)shutdown(stream->fd, SHUT_WR);
}

static inline void stream_close(const struct stream *stream)
{
	tls_destroy(stream->tls);
	if (stream->fd >= 0)
		(void)close(stream->fd);
}

#endif
