/* What a stream of a grpc_session sends: its queue, its end, its reset. */
#include <assert.h>

#include "common/limits.h"
#include "daemon/api/grpc_session.h"

/* nghttp2 was told that there is nothing yet; now there may be. */
static void stream_resume(struct grpc_stream *stream)
{
	if (stream->has_provider && !stream->closed)
		(void)nghttp2_session_resume_data(stream->session->http2, stream->id);
	grpc_session_wake(stream->session);
}

tr_status grpc_stream_queue(struct grpc_stream *stream, const void *message, size_t bytes)
{
	assert(!stream->finishing);
	size_t before = stream->out.unsent;
	tr_status status = grpc_outbox_add(&stream->out, message, bytes);
	if (status != TR_OK)
		return status;
	stream->session->unsent += stream->out.unsent - before;
	stream_resume(stream);
	if (stream->out.unsent <= TR_GRPC_QUEUE_BYTES)
		return TR_OK;
	stream->slow = true;
	return TR_EAGAIN;
}

void grpc_stream_finish(struct grpc_stream *stream)
{
	stream->finishing = true;
	stream_resume(stream);
}

void grpc_stream_reset(struct grpc_stream *stream, uint32_t code)
{
	if (!stream->closed)
		(void)nghttp2_submit_rst_stream(stream->session->http2, NGHTTP2_FLAG_NONE,
		    stream->id, code);
	grpc_stream_drop_unsent(stream);
	grpc_session_wake(stream->session);
}

void grpc_stream_drop_unsent(struct grpc_stream *stream)
{
	stream->session->unsent -= stream->out.unsent;
	grpc_outbox_finish(&stream->out);
}

void grpc_stream_release(struct grpc_stream *stream, size_t bytes)
{
	if (bytes == 0 || stream->closed)
		return;
	(void)nghttp2_session_consume_stream(stream->session->http2, stream->id, bytes);
	grpc_session_wake(stream->session);
}

static ssize_t stream_read(nghttp2_session *http2, int32_t id, uint8_t *out, size_t capacity,
    uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	(void)http2;
	(void)arg;
	struct grpc_stream *stream = nghttp2_session_get_stream_user_data(http2, id);
	(void)source;
	if (stream == NULL) /* its call is over and the reset is on its way */
		return NGHTTP2_ERR_DEFERRED;
	size_t bytes = grpc_outbox_read(&stream->out, out, capacity);
	stream->session->unsent -= bytes;
	if (stream->slow && stream->out.unsent <= TR_GRPC_QUEUE_BYTES / 2) {
		stream->slow = false;
		stream->drained = true;
		grpc_session_touch(stream);
	}
	if (stream->out.unsent > 0)
		return (ssize_t)bytes;
	if (!stream->finishing)
		return bytes > 0 ? (ssize_t)bytes : NGHTTP2_ERR_DEFERRED;
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	if (stream->session->role->trailers(stream))
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
	return (ssize_t)bytes;
}

nghttp2_data_provider grpc_stream_provider(struct grpc_stream *stream)
{
	stream->has_provider = true;
	return (nghttp2_data_provider){ .read_callback = stream_read };
}
