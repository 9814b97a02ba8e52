#include "daemon/node/log_stream.h"

#include <limits.h>

#include "common/limits.h"
#include "daemon/node/log_folder.h"

static const struct logfile *file_of(const struct log_stream *stream)
{
	return stream->capture != NULL ? &stream->capture->log : &stream->old;
}

/* The rank is not in the request, but a peer has one file only. */
static tr_status open_old(struct log_stream *stream, const char *folder, struct tr_error *error)
{
	char path[PATH_MAX];
	tr_status st = log_folder_find(folder, stream->request.job, stream->request.peer, path,
	    sizeof(path), error);
	return st == TR_OK ? logfile_open_old(&stream->old, path, TR_LOG_FILES_MAX, error) : st;
}

tr_status log_stream_start(struct log_stream *stream, const struct logs_request *request,
    struct capture *capture, const char *folder, struct tr_error *error)
{
	*stream = (struct log_stream){ .request = *request,
		.capture = capture,
		.old = { .fd = -1 } };
	if (capture == NULL) {
		tr_status st = open_old(stream, folder, error);
		if (st != TR_OK)
			return st;
	}
	const struct logfile *file = file_of(stream);
	stream->stop = file->end;
	stream->position = logfile_begin(file);
	if (request->tail_bytes > 0 && file->end - stream->position > request->tail_bytes)
		stream->position = file->end - request->tail_bytes;
	return TR_OK;
}

tr_status log_stream_next(struct log_stream *stream, char piece[LOG_STREAM_PIECE_BYTES],
    size_t *bytes, bool *ended, struct tr_error *error)
{
	const struct logfile *file = file_of(stream);
	bool follows = stream->request.follow && stream->capture != NULL;
	uint64_t stop = stream->request.follow ? file->end : stream->stop;
	uint64_t most = stop > stream->position ? stop - stream->position : 0;
	*bytes = 0;
	*ended = most == 0 && !follows;
	if (most > LOG_STREAM_PIECE_BYTES)
		most = LOG_STREAM_PIECE_BYTES;
	if (most > stream->request.credit_bytes)
		most = stream->request.credit_bytes;
	if (most == 0)
		return TR_OK;
	tr_status st = logfile_read(file, &stream->position, piece, (size_t)most, bytes, error);
	if (st == TR_OK)
		stream->request.credit_bytes -= *bytes;
	return st;
}

void log_stream_detach(struct log_stream *stream)
{
	/* Same files, same positions; only nobody writes any more. */
	stream->old = stream->capture->log;
	stream->old.fd = -1;
	stream->capture = NULL;
}

void log_stream_finish(struct log_stream *stream)
{
	logfile_close(&stream->old);
}
