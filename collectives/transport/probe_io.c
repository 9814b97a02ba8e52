#include "collectives/transport/probe_io.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/transport/probe_rate.h"
#include "collectives/transport/tcp_path.h"
#include "common/limits.h"

#define LOOK_MS     100 /* at whether we are to stop */
#define PROGRESS_MS 5   /* between looks at what the other end has */

uint64_t probe_now_us(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static tr_status overdue(const struct probe_io *io)
{
	if (atomic_load(io->stop))
		return tr_error_set(io->error, TR_EIO, "this daemon ends");
	if (probe_now_us() >= io->until_us)
		return tr_error_set(io->error, TR_EIO, "nothing comes through any more");
	return TR_OK;
}

tr_status probe_await(const struct probe_io *io, short events)
{
	struct pollfd ready = { .fd = io->stream.fd, .events = events };
	tr_status st = overdue(io);
	while (st == TR_OK && poll(&ready, 1, LOOK_MS) <= 0)
		st = overdue(io);
	return st;
}

static bool must_wait(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static tr_status broken(const struct probe_io *io, ssize_t n)
{
	return tr_error_set(io->error, TR_EIO, "%s",
	    n == 0 ? "it closed the connection" : stream_error(&io->stream, errno));
}

tr_status probe_write(const struct probe_io *io, const void *bytes, size_t count)
{
	const uint8_t *at = bytes;
	tr_status st = TR_OK;
	while (st == TR_OK && (count > 0 || stream_unsent(&io->stream) > 0)) {
		ssize_t n = count > 0 ? stream_write(&io->stream, at, count)
		                      : stream_flush(&io->stream);
		if (n < 0 && !must_wait())
			return broken(io, n);
		if (n > 0) {
			at += n;
			count -= (size_t)n;
		}
		if (n < 0 || (count == 0 && stream_unsent(&io->stream) > 0))
			st = probe_await(io, POLLOUT);
	}
	return st;
}

/* At least one byte. Who says ever more is not heard for ever. */
static tr_status read_some(const struct probe_io *io, void *bytes, size_t count, size_t *got)
{
	tr_status st = overdue(io);
	*got = 0;
	while (st == TR_OK) {
		ssize_t n = stream_read(&io->stream, bytes, count);
		*got = n > 0 ? (size_t)n : 0;
		if (n > 0)
			return TR_OK;
		if (n == 0 || !must_wait())
			return broken(io, n);
		st = probe_await(io, POLLIN);
	}
	return st;
}

tr_status probe_read(const struct probe_io *io, void *bytes, size_t count)
{
	uint8_t *at = bytes;
	size_t got = 0;
	tr_status st = TR_OK;
	for (; st == TR_OK && count > 0; at += got, count -= got)
		st = read_some(io, at, count, &got);
	return st;
}

tr_status probe_say(const struct probe_io *io, enum probe_kind kind, uint64_t first, uint64_t second)
{
	uint8_t bytes[PROBE_MESSAGE_BYTES];
	const struct probe_message message = { kind, { first, second } };
	probe_message_put(&message, bytes);
	return probe_write(io, bytes, sizeof(bytes));
}

tr_status probe_hear(const struct probe_io *io, struct probe_message *message)
{
	uint8_t bytes[PROBE_MESSAGE_BYTES];
	tr_status st = probe_read(io, bytes, sizeof(bytes));
	return st == TR_OK ? probe_message_get(bytes, message, io->error) : st;
}

tr_status probe_expect(const struct probe_io *io, enum probe_kind kind,
    struct probe_message *message)
{
	tr_status st = probe_hear(io, message);
	if (st == TR_OK && message->kind == PROBE_REFUSED)
		st = tr_error_set(io->error, TR_EIO,
		    "it refuses to be measured: it has been started again, or too many measure it");
	else if (st == TR_OK && message->kind != kind)
		st = tr_error_set(io->error, TR_EPROTO, "it said something else than was due");
	return st;
}

/* What the other end could read of what was given, as its kernel has acknowledged it: what waits there behind a lost packet comes to it in a heap, and to us. */
struct progress {
	struct probe_rate got;
	uint64_t begun_with, next_us;
	bool settled;
};

static bool has_settled(const struct probe_io *io, struct progress *progress)
{
	struct tcp_path path;
	uint64_t now_us = probe_now_us();
	if (progress->settled || now_us < progress->next_us || !tcp_path_get(io->stream.fd, &path))
		return progress->settled;
	progress->next_us = now_us + 1000u * PROGRESS_MS;
	if (progress->begun_with == 0)
		progress->begun_with = path.acked_bytes;
	if (path.acked_bytes == progress->begun_with)
		return false;
	probe_rate_look(&progress->got, now_us, path.acked_bytes);
	uint64_t trips_us = (uint64_t)TR_PROBE_SETTLE_TRIPS * path.rtt_us;
	/* (While it mends a loss the end of what is under way may be late, which would count.) */
	progress->settled = !path.mends_loss &&
	    probe_rate_settled(&progress->got,
	        trips_us > TR_PROBE_SETTLE_US ? trips_us : TR_PROBE_SETTLE_US);
	return progress->settled;
}

/* Until there is room for a block, which on a slow way comes for many at once: the looks go on meanwhile. */
static tr_status await_room(const struct probe_io *io, struct progress *progress)
{
	struct pollfd room = { .fd = io->stream.fd, .events = POLLOUT };
	tr_status st = overdue(io);
	while (st == TR_OK && !has_settled(io, progress) && poll(&room, 1, PROGRESS_MS) == 0)
		st = overdue(io);
	return st;
}

tr_status probe_give(const struct probe_io *io, uint64_t most_us, uint64_t most_bytes, bool beside)
{
	struct {
		struct progress progress;
		uint8_t block[PROBE_BLOCK_BYTES];
	} *room = calloc(1, sizeof(*room));
	uint64_t from_us = probe_now_us(), sent = 0;
	bool last = false;
	tr_status st = TR_OK;
	if (room == NULL)
		return tr_error_set(io->error, TR_ENOMEM, "no memory to measure with");
	while (st == TR_OK && !last) {
		st = await_room(io, &room->progress);
		if (st != TR_OK)
			break;
		sent += PROBE_BLOCK_BYTES;
		last = sent >= most_bytes || probe_now_us() - from_us >= most_us ||
		    (room->progress.settled && !beside);
		probe_message_put(&(struct probe_message){ last ? PROBE_LAST : PROBE_BLOCK,
		                      { 0, 0 } },
		    room->block);
		st = probe_write(io, room->block, PROBE_BLOCK_BYTES);
	}
	free(room);
	return st;
}

/* One block; its bytes count as they come, since on a slow way one takes long. */
static tr_status take_block(const struct probe_io *io, uint8_t *block, uint64_t *total,
    struct probe_rate *rate, bool *last)
{
	struct probe_message message;
	size_t got = 0;
	for (size_t have = 0; have < PROBE_BLOCK_BYTES; have += got) {
		tr_status st = read_some(io, block + have, PROBE_BLOCK_BYTES - have, &got);
		if (st != TR_OK)
			return st;
		*total += got;
		probe_rate_look(rate, probe_now_us(), *total);
	}
	tr_status st = probe_message_get(block, &message, io->error);
	if (st == TR_OK && message.kind != PROBE_BLOCK && message.kind != PROBE_LAST)
		st = tr_error_set(io->error, TR_EPROTO, "it said something else than was due");
	*last = st == TR_OK && message.kind == PROBE_LAST;
	return st;
}

tr_status probe_take(const struct probe_io *io, bool beside, double *bytes_per_s)
{
	struct {
		struct probe_rate rate;
		uint8_t block[PROBE_BLOCK_BYTES];
	} *room = calloc(1, sizeof(*room));
	uint64_t total = 0;
	bool last = false;
	tr_status st = TR_OK;
	if (room == NULL)
		return tr_error_set(io->error, TR_ENOMEM, "no memory to measure with");
	while (st == TR_OK && !last)
		st = take_block(io, room->block, &total, &room->rate, &last);
	*bytes_per_s = beside
	    ? probe_rate_within(&room->rate, TR_PROBE_BESIDE_US / 2, TR_PROBE_BESIDE_US * 7ull / 8)
	    : probe_rate_of(&room->rate);
	free(room);
	return st;
}
