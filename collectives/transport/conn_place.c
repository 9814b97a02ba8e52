/* Bodies of segments, received straight into the memory of whoever combines them. A place is asked for when a head has
 * come, one at a time; how much memory a peer can have announced is thus bounded by its connections, and the owner may
 * answer that there is none: then the frame grows with what came of it, as any other.
 */
#include <string.h>

#include "collectives/transport/conn_internal.h"

/* Smaller bodies cost less to copy than a system call of their own. */
#define PLACED_BYTES_MIN (8u << 10)

void conn_place_begin(struct conn *conn, const struct frame_header *header)
{
	struct conn_input *input = &conn->input;
	struct conn_placed *placed = &conn->placed;
	const uint8_t *frame = input->bytes + input->begin;
	if (conn->callbacks.place == NULL || header->type != FRAME_SEGMENT ||
	    header->length < SEGMENT_HEADER_BYTES + PLACED_BYTES_MIN ||
	    input->end - input->begin < FRAME_HEADER_BYTES + SEGMENT_HEADER_BYTES)
		return;
	memcpy(placed->head, frame + FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES);
	placed->body_bytes = header->length - SEGMENT_HEADER_BYTES;
	if (!conn->callbacks.place(conn->arg, conn, placed->head, placed->body_bytes,
	        &placed->place))
		return;
	placed->active = true;
	input->begin += FRAME_HEADER_BYTES + SEGMENT_HEADER_BYTES;
	placed->got = input->end - input->begin; /* less than the body: else the frame were whole */
	if (placed->got > 0) {
		memcpy(*placed->place.memory, input->bytes + input->begin, placed->got);
		conn_place_hash(placed, 0);
	}
	conn->counters.copied_bytes += placed->got;
	input->begin = input->end = 0;
}

void conn_place_hash(struct conn_placed *placed, size_t from)
{
	if (placed->place.hash != NULL)
		tr_digest_add(placed->place.hash, (const uint8_t *)*placed->place.memory + from,
		    placed->got - from);
}

bool conn_place_dispatch(struct conn *conn)
{
	struct conn_placed *placed = &conn->placed;
	struct tr_error error = { .status = TR_OK };
	if (placed->got < placed->body_bytes)
		return false;
	placed->active = false; /* the callee may close the connection, which drops what is active */
	tr_status st = conn->callbacks.placed(conn->arg, conn, placed->head, placed->place.place,
	    *placed->place.memory, placed->body_bytes, &error);
	if (st == TR_EAGAIN && conn->state == CONN_OPEN) {
		placed->active = true;
		conn->input.parked = true;
		return false;
	}
	if (st == TR_EAGAIN)
		conn->callbacks.unplace(conn->arg, placed->place.place);
	if (conn->state != CONN_OPEN)
		return false;
	if (st != TR_OK) {
		conn_fail(conn, "%s", error.text[0] != '\0' ? error.text : tr_status_text(st));
		return false;
	}
	conn->bulk = true;
	return true;
}

void conn_place_drop(struct conn *conn)
{
	if (!conn->placed.active)
		return;
	conn->placed.active = false;
	conn->callbacks.unplace(conn->arg, conn->placed.place.place);
}
