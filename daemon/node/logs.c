#include "daemon/node/logs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/log.h"
#include "daemon/node/capture.h"
#include "daemon/node/log_folder.h"
#include "daemon/node/log_stream.h"
#include "daemon/node/mailbox.h"

struct logs {
	/* Control loop's side. */
	struct mailbox to_control;
	struct logs_callbacks callbacks;
	void *arg;
	struct mail last; /* the end must not want for memory */
	/* Log thread's side. */
	pthread_t thread;
	uv_loop_t loop;
	struct mailbox to_thread;
	char folder[PATH_MAX];
	struct capture *captures;
	struct log_stream *streams;
	size_t stream_count;
	bool stopping;
};

enum order_kind { ORDER_CAPTURE, ORDER_FINISH, ORDER_OPEN, ORDER_CREDIT, ORDER_CANCEL };

struct order {
	struct mail mail;
	struct logs *logs;
	enum order_kind kind;
	struct logs_request request; /* also .job, .peer, .stream, .credit_bytes of the other kinds */
	uint32_t rank;
	int fds[2];
};

/* From the log thread to the control loop. */
struct news {
	struct mail mail;
	struct logs *logs;
	uint64_t stream,
	    peer; /* stream 0: the peer's output is drained, bytes are its last lines */
	bool end;
	char error[256];
	uint64_t position;
	size_t bytes;
	char data[];
};

/* ---- news, to the control loop */

static void run_news(struct mail *mail, bool dropped)
{
	struct news *news = (struct news *)mail;
	struct logs *logs = news->logs;
	if (!dropped && news->stream == 0)
		logs->callbacks.drained(logs->arg, news->peer, news->data);
	else if (!dropped)
		logs->callbacks.data(logs->arg, news->stream, news->position, news->data,
		    news->bytes, news->end, news->error);
	free(news);
}

static struct news *news_of(struct logs *logs, uint64_t peer, const void *data, size_t bytes)
{
	struct news *news = calloc(1, sizeof(*news) + bytes + 1);
	if (news == NULL) {
		log_error("logs", "out of memory: a message about peer %llu is lost",
		    (unsigned long long)peer);
		return NULL;
	}
	news->mail.run = run_news;
	news->logs = logs;
	news->peer = peer;
	news->bytes = bytes;
	if (bytes > 0)
		memcpy(news->data, data, bytes);
	return news;
}

static void tell_drained(struct logs *logs, uint64_t peer, const char *last_lines)
{
	struct news *news = news_of(logs, peer, last_lines, strlen(last_lines));
	if (news != NULL)
		mailbox_post(&logs->to_control, &news->mail);
}

static void tell_piece(struct logs *logs, const struct log_stream *stream, const char *piece,
    size_t bytes)
{
	struct news *news = news_of(logs, stream->request.peer, piece, bytes);
	if (news == NULL)
		return;
	news->stream = stream->request.stream;
	news->position = stream->position - bytes;
	mailbox_post(&logs->to_control, &news->mail);
}

static void tell_end(struct logs *logs, const struct logs_request *request, const char *error)
{
	struct news *news = news_of(logs, request->peer, NULL, 0);
	if (news == NULL)
		return;
	news->stream = request->stream;
	news->end = true;
	(void)snprintf(news->error, sizeof(news->error), "%s", error);
	mailbox_post(&logs->to_control, &news->mail);
}

/* ---- streams, on the log thread */

static void remove_stream(struct logs *logs, struct log_stream *stream)
{
	for (struct log_stream **at = &logs->streams; *at != NULL; at = &(*at)->next) {
		if (*at != stream)
			continue;
		*at = stream->next;
		logs->stream_count--;
		log_stream_finish(stream);
		free(stream);
		return;
	}
}

static void pump(struct logs *logs, struct log_stream *stream)
{
	static _Thread_local char piece[LOG_STREAM_PIECE_BYTES];
	for (;;) {
		struct tr_error error;
		size_t bytes;
		bool ended;
		if (log_stream_next(stream, piece, &bytes, &ended, &error) != TR_OK) {
			tell_end(logs, &stream->request, error.text);
			remove_stream(logs, stream);
			return;
		}
		if (bytes > 0)
			tell_piece(logs, stream, piece, bytes);
		if (ended) {
			tell_end(logs, &stream->request, "");
			remove_stream(logs, stream);
			return;
		}
		if (bytes == 0)
			return;
	}
}

static void pump_readers(struct logs *logs, const struct capture *capture)
{
	for (struct log_stream *stream = logs->streams, *next; stream != NULL; stream = next) {
		next = stream->next;
		if (stream->capture == capture)
			pump(logs, stream);
	}
}

static struct capture *find_capture(struct logs *logs, uint64_t peer)
{
	struct capture *capture = logs->captures;
	while (capture != NULL && (capture->peer != peer || capture->finishing))
		capture = capture->next;
	return capture;
}

static void open_stream(struct logs *logs, const struct logs_request *request)
{
	struct tr_error error = { 0 };
	struct log_stream *stream = logs->stream_count < TR_LOG_STREAMS_MAX
	    ? calloc(1, sizeof(*stream))
	    : NULL;
	tr_status st = stream == NULL
	    ? tr_error_set(&error, TR_ELIMIT, "too many readers of output at once")
	    : log_stream_start(stream, request, find_capture(logs, request->peer), logs->folder,
	          &error);
	if (st != TR_OK) {
		tell_end(logs, request, error.text);
		free(stream);
		return;
	}
	stream->next = logs->streams;
	logs->streams = stream;
	logs->stream_count++;
	pump(logs, stream);
}

static void add_credit(struct logs *logs, uint64_t id, uint64_t bytes)
{
	for (struct log_stream *stream = logs->streams; stream != NULL; stream = stream->next) {
		if (stream->request.stream == id) {
			stream->request.credit_bytes += bytes;
			pump(logs, stream);
			return;
		}
	}
}

static void cancel(struct logs *logs, uint64_t id)
{
	for (struct log_stream *stream = logs->streams, *next; stream != NULL; stream = next) {
		next = stream->next;
		if (id == 0 || stream->request.stream == id)
			remove_stream(logs, stream);
	}
}

/* ---- captures, on the log thread */

static void maybe_stop(struct logs *logs)
{
	if (logs->stopping && logs->captures == NULL)
		mailbox_close(&logs->to_thread, NULL);
}

static void capture_grown(struct capture *capture)
{
	pump_readers(capture->owner, capture);
}

static void capture_drained(struct capture *capture)
{
	struct logs *logs = capture->owner;
	char lines[CAPTURE_TAIL_MAX + 1];
	capture_last_lines(capture, lines);
	tell_drained(logs, capture->peer, lines);
	struct capture **at = &logs->captures;
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	free(capture);
	maybe_stop(logs);
}

static void finish_capture(struct logs *logs, struct capture *capture)
{
	capture_finish(capture);
	for (struct log_stream *stream = logs->streams, *next; stream != NULL; stream = next) {
		next = stream->next;
		if (stream->capture == capture) {
			log_stream_detach(stream);
			pump(logs, stream); /* may end it */
		}
	}
}

static bool is_captured(void *arg, uint64_t job)
{
	const struct logs *logs = arg;
	for (const struct capture *capture = logs->captures; capture != NULL;
	     capture = capture->next)
		if (capture->job == job)
			return true;
	return false;
}

/* Who writes there learns that nobody will read it; a pipe that stays open and unread would stop it for ever. */
static void close_pipes(const struct order *order)
{
	(void)close(order->fds[0]);
	(void)close(order->fds[1]);
}

static void begin_capture(struct logs *logs, const struct order *order)
{
	char path[PATH_MAX - 16];
	struct tr_error error = { 0 };
	struct logfile log = { .fd = -1 };
	struct capture *capture = calloc(1, sizeof(*capture));
	if (capture == NULL) {
		close_pipes(order);
		tell_drained(logs, order->request.peer, "");
		return;
	}
	capture->job = order->request.job;
	capture->peer = order->request.peer;
	capture->owner = logs;
	capture->grown = capture_grown;
	capture->drained = capture_drained;
	capture->next = logs->captures;
	logs->captures = capture;
	log_folder_drop(logs->folder, capture->job, capture->peer);
	/* Without a file the pipes must be read all the same: a full pipe would stop the worker. Each piece tries to open it again. */
	if (log_folder_file(logs->folder, order->request.job, order->rank, order->request.peer,
	        path, sizeof(path), &error) != TR_OK ||
	    logfile_open(&log, path, TR_LOG_FILE_BYTES_MAX, TR_LOG_FILES_MAX, &error) != TR_OK)
		log_warn("logs", "job %llu: %s", (unsigned long long)capture->job, error.text);
	if (capture_start(&logs->loop, capture, &log, order->fds[0], order->fds[1], &error) !=
	    TR_OK) {
		log_warn("logs", "job %llu: %s", (unsigned long long)capture->job, error.text);
		finish_capture(logs, capture);
	}
	(void)log_folder_prune(logs->folder, TR_LOG_JOBS_MAX, is_captured, logs);
}

/* The mailbox is open: nobody else closes it. */
static void run_last(struct mail *mail, bool dropped)
{
	struct logs *logs = (struct logs *)(void *)((char *)mail - offsetof(struct logs, last));
	(void)dropped;
	logs->stopping = true;
	cancel(logs, 0);
	for (struct capture *capture = logs->captures, *next; capture != NULL; capture = next) {
		next = capture->next;
		capture_finish(capture);
	}
	maybe_stop(logs);
}

static void run_order(struct mail *mail, bool dropped)
{
	struct order *order = (struct order *)mail;
	struct logs *logs = order->logs;
	struct capture *capture;
	if (dropped && order->kind == ORDER_CAPTURE)
		close_pipes(order);
	if (!dropped) {
		switch (order->kind) {
		case ORDER_CAPTURE:
			begin_capture(logs, order);
			break;
		case ORDER_FINISH:
			capture = find_capture(logs, order->request.peer);
			if (capture != NULL)
				finish_capture(logs, capture);
			break;
		case ORDER_OPEN:
			open_stream(logs, &order->request);
			break;
		case ORDER_CREDIT:
			add_credit(logs, order->request.stream, order->request.credit_bytes);
			break;
		case ORDER_CANCEL:
			cancel(logs, order->request.stream);
			break;
		}
	}
	free(order);
}

static void *thread_main(void *arg)
{
	struct logs *logs = arg;
	(void)pthread_setname_np(pthread_self(), "logs");
	(void)uv_run(&logs->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* ---- the control loop's side */

static void give(struct logs *logs, const struct order *order)
{
	struct order *copy = malloc(sizeof(*copy));
	if (copy == NULL) {
		log_error("logs", "out of memory: an order to the log thread is lost");
		if (order->kind == ORDER_CAPTURE)
			close_pipes(order);
		return;
	}
	*copy = *order;
	copy->logs = logs;
	copy->mail.run = run_order;
	mailbox_post(&logs->to_thread, &copy->mail);
}

tr_status logs_create(uv_loop_t *control, const char *folder,
    const struct logs_callbacks *callbacks, void *arg, struct logs **logs, struct tr_error *error)
{
	struct logs *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	made->callbacks = *callbacks;
	made->arg = arg;
	(void)snprintf(made->folder, sizeof(made->folder), "%s", folder);
	int rc = uv_loop_init(&made->loop);
	if (rc != 0) {
		free(made);
		return tr_error_set(error, TR_EIO, "cannot make a loop: %s", uv_strerror(rc));
	}
	if (mailbox_init(&made->to_thread, &made->loop, error) != TR_OK)
		goto free_loop;
	if (mailbox_init(&made->to_control, control, error) != TR_OK)
		goto close_mailbox;
	rc = pthread_create(&made->thread, NULL, thread_main, made);
	if (rc == 0) {
		*logs = made;
		return TR_OK;
	}
	(void)tr_error_set(error, TR_EIO, "cannot start a thread: %s", strerror(rc));
	/* The control loop still holds the other mailbox's handle, so `made` stays; the program ends on this error. */
	mailbox_close(&made->to_control, NULL);
	mailbox_close(&made->to_thread, NULL);
	return TR_EIO;
close_mailbox:
	mailbox_close(&made->to_thread, NULL);
	(void)uv_run(&made->loop, UV_RUN_DEFAULT);
free_loop:
	(void)uv_loop_close(&made->loop);
	free(made);
	return TR_EIO;
}

static void control_closed(uv_handle_t *handle)
{
	struct mailbox *mailbox = handle->data;
	free((char *)mailbox - offsetof(struct logs, to_control));
}

void logs_destroy(struct logs *logs)
{
	if (logs == NULL)
		return;
	logs->last.run = run_last;
	mailbox_post(&logs->to_thread, &logs->last);
	(void)pthread_join(logs->thread, NULL);
	(void)uv_loop_close(&logs->loop);
	mailbox_close(&logs->to_control, control_closed);
}

void logs_capture(struct logs *logs, uint64_t job, uint32_t rank, uint64_t peer, int out_fd,
    int err_fd)
{
	give(logs,
	    &(struct order){ .kind = ORDER_CAPTURE,
	        .request = { .job = job, .peer = peer },
	        .rank = rank,
	        .fds = { out_fd, err_fd } });
}

void logs_finish(struct logs *logs, uint64_t peer)
{
	give(logs, &(struct order){ .kind = ORDER_FINISH, .request = { .peer = peer } });
}

void logs_open(struct logs *logs, const struct logs_request *request)
{
	give(logs, &(struct order){ .kind = ORDER_OPEN, .request = *request });
}

void logs_credit(struct logs *logs, uint64_t stream, uint64_t bytes)
{
	give(logs,
	    &(struct order){ .kind = ORDER_CREDIT,
	        .request = { .stream = stream, .credit_bytes = bytes } });
}

void logs_cancel(struct logs *logs, uint64_t stream)
{
	give(logs, &(struct order){ .kind = ORDER_CANCEL, .request = { .stream = stream } });
}
