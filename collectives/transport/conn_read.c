/* Reading: one buffer that grows with what was received, never with what was announced. */
#include "collectives/transport/conn_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define INPUT_BYTES_MIN (16u << 10)
/* So much is read of one connection before others get their turn. */
#define READ_BUDGET_BYTES (1u << 20)
/* Behind the end of a frame that is under way only this much more is read, since it has to be moved. */
#define READ_AHEAD_BYTES  4096u
#define PAYLOAD_ALIGNMENT 8u
/* What is read before it is known where a body goes. */
#define BULK_HEAD_BYTES (FRAME_HEADER_BYTES + SEGMENT_HEADER_BYTES)

static tr_status input_grow(struct conn_input *input, size_t capacity)
{
	uint8_t *bytes = aligned_alloc(64, (capacity + 63) & ~(size_t)63);
	if (bytes == NULL)
		return TR_ENOMEM;
	if (input->begin < input->end)
		memcpy(bytes, input->bytes + input->begin, input->end - input->begin);
	free(input->bytes);
	input->bytes = bytes;
	input->end -= input->begin;
	input->begin = 0;
	input->capacity = capacity;
	return TR_OK;
}

/* An idle connection holds no buffer. */
static void input_release(struct conn_input *input)
{
	if (input->begin < input->end)
		return;
	input->begin = input->end = 0;
	if (input->capacity > INPUT_BYTES_MIN)
		return; /* bulk connections keep theirs */
	free(input->bytes);
	input->bytes = NULL;
	input->capacity = 0;
}

static void input_move(struct conn_input *input, size_t to)
{
	if (input->begin < input->end)
		memmove(input->bytes + to, input->bytes + input->begin, input->end - input->begin);
	input->end = to + (input->end - input->begin);
	input->begin = to;
}

/* Makes room at the end; how much of it should be filled is the answer, 0 without memory. */
static size_t input_room(struct conn_input *input, bool bulk)
{
	size_t held = input->end - input->begin;
	size_t wanted = !bulk        ? INPUT_BYTES_MIN
	    : held < BULK_HEAD_BYTES ? BULK_HEAD_BYTES - held
	                             : 1;
	struct frame_header header;
	if (held >= (bulk ? BULK_HEAD_BYTES : FRAME_HEADER_BYTES) &&
	    frame_header_get(input->bytes + input->begin, &header, NULL) == TR_OK)
		wanted = FRAME_HEADER_BYTES + header.length + READ_AHEAD_BYTES - held;
	if (input->begin > 0 && (held == 0 || input->capacity - input->end < wanted))
		input_move(input, 0);
	size_t capacity = 2 * held > INPUT_BYTES_MIN ? 2 * held : INPUT_BYTES_MIN;
	if (capacity > held + wanted)
		capacity = held + wanted < INPUT_BYTES_MIN ? INPUT_BYTES_MIN : held + wanted;
	if (input->capacity < capacity && input->capacity - input->end < wanted &&
	    input_grow(input, capacity) != TR_OK)
		return 0;
	size_t room = input->capacity - input->end;
	return room < wanted ? room : wanted;
}

tr_status conn_read_early(struct conn *conn, const void *bytes, size_t count)
{
	struct conn_input *input = &conn->input;
	if (count == 0)
		return TR_OK;
	input->bytes = aligned_alloc(64, (count + INPUT_BYTES_MIN + 63) & ~(size_t)63);
	if (input->bytes == NULL)
		return TR_ENOMEM;
	memcpy(input->bytes, bytes, count);
	input->capacity = count + INPUT_BYTES_MIN;
	input->end = count;
	conn->counters.bytes_in += count;
	return TR_OK;
}

/* Hands out the frame at `begin`. false: there is no whole one, or reading stopped. */
static bool dispatch_one(struct conn *conn)
{
	struct conn_input *input = &conn->input;
	struct frame_header header;
	struct tr_error error = { .status = TR_OK };
	if (conn->placed.active)
		return conn_place_dispatch(conn);
	if (input->end - input->begin < FRAME_HEADER_BYTES)
		return false;
	if (frame_header_get(input->bytes + input->begin, &header, &error) != TR_OK) {
		conn_fail(conn, "%s", error.text);
		return false;
	}
	size_t whole = FRAME_HEADER_BYTES + header.length;
	if (input->end - input->begin < whole) {
		conn_place_begin(conn, &header);
		return false;
	}
	if (input->begin % PAYLOAD_ALIGNMENT != 0)
		input_move(input, input->begin - input->begin % PAYLOAD_ALIGNMENT);
	tr_status st = conn->callbacks.frame(conn->arg, conn, header.type,
	    input->bytes + input->begin + FRAME_HEADER_BYTES, header.length, &error);
	if (conn->state != CONN_OPEN)
		return false;
	if (st == TR_EAGAIN) {
		input->parked = true;
		return false;
	}
	if (st != TR_OK) {
		conn_fail(conn, "%s", error.text[0] != '\0' ? error.text : tr_status_text(st));
		return false;
	}
	input->begin += whole;
	conn->bulk = false;
	return true;
}

void conn_read_dispatch(struct conn *conn)
{
	while (conn->state == CONN_OPEN && !conn->input.parked && dispatch_one(conn))
		continue;
	if (conn->state == CONN_OPEN && !conn->bulk)
		input_release(&conn->input);
}

/* All that came is the word of a port that speaks TLS. */
static bool refused(const struct conn *conn)
{
	const struct conn_input *input = &conn->input;
	return conn->tls == NULL && conn->counters.bytes_in == input->end - input->begin &&
	    input->bytes != NULL &&
	    tls_is_refusal(input->bytes + input->begin, input->end - input->begin);
}

static void met_end(struct conn *conn)
{
	size_t held = conn->input.end - conn->input.begin;
	if (conn->placed.active)
		held += BULK_HEAD_BYTES + conn->placed.got;
	if (conn->state == CONN_FINISHING)
		conn_close(conn, conn->reason);
	else if (refused(conn))
		conn_fail(conn, "%s", TLS_REFUSED_TEXT);
	else if (held > 0)
		conn_fail(conn, "closed by peer in the middle of a frame, after %zu bytes of it",
		    held);
	else
		conn_fail(conn, "closed by peer");
}

static void met_error(struct conn *conn, int cause)
{
	if (conn->state == CONN_FINISHING)
		conn_close(conn, conn->reason);
	else if (conn->tls != NULL && cause == EPROTO)
		conn_fail(conn, "%s", tls_error(conn->tls));
	else if (refused(conn))
		conn_fail(conn, "%s", TLS_REFUSED_TEXT);
	else if (cause == ECONNRESET)
		conn_fail(conn, "reset by peer");
	else
		conn_fail(conn, "cannot read: %s", strerror(cause));
}

/* One system call; what came, or 0 when nothing more is to be read now. `all`: the socket gave less than was asked for, so
 * it is empty. Behind a placed body the next frame's head is read with it. */
static size_t read_some(struct conn *conn, bool *all)
{
	struct conn_input *input = &conn->input;
	struct conn_placed *placed = &conn->placed;
	struct iovec pieces[2];
	struct msghdr message = { .msg_iov = pieces };
	size_t in_body = placed->active ? placed->body_bytes - placed->got : 0;
	bool piece = in_body > CONN_HASHED_BYTES && placed->place.hash != NULL;
	if (piece)
		in_body = CONN_HASHED_BYTES;
	if (conn->state == CONN_FINISHING)
		input->begin = input->end = 0;
	size_t room = piece ? 0 : input_room(input, placed->active || conn->bulk);
	if (room == 0 && !piece) {
		conn_fail(conn, "no memory to read");
		return 0;
	}
	if (in_body > 0)
		pieces[message.msg_iovlen++] = (struct iovec){
			(uint8_t *)*placed->place.memory + placed->got, in_body
		};
	if (!piece)
		pieces[message.msg_iovlen++] = (struct iovec){ input->bytes + input->end, room };
	ssize_t n;
	do {
		n = conn->tls == NULL ? recvmsg(conn->fd, &message, MSG_DONTWAIT)
		                      : tls_read(conn->tls, pieces, (int)message.msg_iovlen);
	} while (n < 0 && errno == EINTR);
	conn->counters.calls++;
	if (n > 0) {
		size_t of_body = (size_t)n < in_body ? (size_t)n : in_body;
		placed->got += of_body;
		if (of_body > 0)
			conn_place_hash(placed, placed->got - of_body);
		input->end += (size_t)n - of_body;
		conn->counters.bytes_in += (uint64_t)n;
		*all = (size_t)n < in_body + room;
		return (size_t)n;
	}
	if (n == 0)
		met_end(conn);
	else if (errno != EAGAIN && errno != EWOULDBLOCK)
		met_error(conn, errno);
	return 0;
}

void conn_read(struct conn *conn)
{
	size_t budget = READ_BUDGET_BYTES;
	while ((conn->state == CONN_OPEN || conn->state == CONN_FINISHING) && !conn->input.parked) {
		bool all = false;
		size_t n = read_some(conn, &all);
		if (n == 0)
			break;
		if (conn->state == CONN_OPEN)
			conn_read_dispatch(conn);
		if (all || n >= budget)
			break;
		budget -= n;
	}
	if (conn->state == CONN_OPEN && !conn->input.parked && !conn->bulk)
		input_release(&conn->input);
}
