/* A state, or a range of its chunks, to a joiner, on a connection of its own, so that segments and votes do not wait behind it. The
 * chunks go straight from the worker's memory, which does not change before the decision of the round is handed to it: what is
 * still under way then ends. If the connection breaks, nothing of the view is lost: the joiner asks again.
 */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <xxhash.h>

#include "collectives/engine/state_plan.h"
#include "common/digest.h"
#include "common/log.h"
#include "proto/bytes.h"

struct state_send {
	struct member *member;
	struct state_send *next;
	uint64_t to, round;
	struct conn *conn;
	bool up; /* connected */
	struct group_wish wish;
	struct state_map map;
	uint64_t next_chunk, end; /* to be queued */
	uint64_t bytes;           /* queued */
	size_t in_flight;
	bool ended; /* all was queued */
	bool told;  /* the core knows that this is over */
	bool pumping;
	bool yields;        /* segments go first */
	uint64_t queued_ms; /* when the newest chunk was */
	unsigned hashed;    /* tensors; of the next one `hashed_bytes`. Of pieces: all */
	uint64_t hashed_bytes;
	XXH3_state_t *hash;
	uint64_t *digest_low, *digest_high;
};

struct chunk {
	struct state_send *send;
	size_t bytes;
};

#define YIELD_MS 1000

static void pump(struct state_send *send);

static void tell_sent(struct state_send *send, tr_status status, const char *reason)
{
	if (send->told)
		return;
	send->told = true;
	member_post(send->member, GROUP_STATE_SENT, send->to, send->round, status, reason);
}

static void state_send_free(struct state_send *send)
{
	if (send->hash != NULL)
		(void)XXH3_freeState(send->hash);
	state_map_finish(&send->map);
	free(send->digest_low);
	free(send->digest_high);
	free(send);
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct state_send *send = arg;
	struct member *member = send->member;
	struct state_send **at = &member->state_sends;
	struct traffic carried = { 0 };
	traffic_add_conn(&carried, conn);
	observe_ended(member, send->to, &carried);
	while (*at != send)
		at = &(*at)->next;
	*at = send->next;
	if (!send->told) {
		log_info("engine", "peer %" PRIu64 ": state to peer %" PRIu64 ": %s", member->peer,
		    send->to, reason);
		/* The ordinary link tries for longer, and finds out who cannot be reached. */
		if (!send->up && !send->wish.any)
			peer_link_connect(member, send->to);
	}
	tell_sent(send, TR_EIO, reason);
	state_send_free(send);
	member_unhold(member);
}

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	(void)arg;
	(void)conn;
	(void)type;
	(void)payload;
	(void)bytes;
	return tr_error_set(error, TR_EPROTO, "a frame against the connection's direction");
}

static void on_released(void *arg, bool sent)
{
	struct chunk *chunk = arg;
	struct state_send *send = chunk->send;
	(void)sent;
	send->in_flight -= chunk->bytes;
	free(chunk);
	if (!send->told)
		pump(send);
}

/* The newest of so many bytes: the message must fit a frame. */
static size_t records_of(const struct state_send *send, Traind__Peer__RoundCommit **records)
{
	size_t count = group_core_records(send->member->core, send->round, records,
	    TR_STATE_RECORDS_MAX);
	size_t bytes = 0, first = count;
	while (first > 0) {
		bytes += traind__peer__round_commit__get_packed_size(records[first - 1]);
		if (bytes > TR_FRAME_CONTROL_MAX / 2)
			break;
		first--;
	}
	memmove(records, records + first, (count - first) * sizeof(records[0]));
	return count - first;
}

void state_send_layout(const struct channel_host *host, uint8_t layout[STATE_LAYOUT_BYTES])
{
	struct tr_digest_stream stream;
	tr_digest_begin(&stream);
	for (unsigned i = 0; i < host->tensor_count; i++) {
		uint8_t size[8];
		bytes_put_u64(size, host->tensors[i].bytes);
		tr_digest_add(&stream, host->tensors[i].name, strlen(host->tensors[i].name) + 1);
		tr_digest_add(&stream, size, sizeof(size));
	}
	const struct tr_digest digest = tr_digest_end(&stream);
	bytes_put_u64(layout, digest.low);
	bytes_put_u64(layout + 8, digest.high);
}

bool state_send_knows(const struct member *member, const Traind__Peer__StateRequest *request)
{
	uint8_t layout[STATE_LAYOUT_BYTES];
	if (request->layout.len != sizeof(layout))
		return false;
	state_send_layout(member->host, layout);
	return memcmp(request->layout.data, layout, sizeof(layout)) == 0;
}

static void send_begin(struct state_send *send)
{
	const struct channel_host *host = send->member->host;
	Traind__Peer__StateBegin begin = TRAIND__PEER__STATE_BEGIN__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	unsigned count = send->wish.same ? 0 : host->tensor_count;
	Traind__Peer__StateTensor *tensors = calloc(count + 1u, sizeof(*tensors));
	Traind__Peer__StateTensor **list = calloc(count + 1u, sizeof(*list));
	Traind__Peer__RoundCommit **records = calloc(TR_STATE_RECORDS_MAX, sizeof(*records));
	tr_status st = tensors == NULL || list == NULL || records == NULL ? TR_ENOMEM : TR_OK;
	for (unsigned i = 0; st == TR_OK && i < count; i++) {
		traind__peer__state_tensor__init(&tensors[i]);
		tensors[i].name = host->tensors[i].name;
		tensors[i].bytes = host->tensors[i].bytes;
		list[i] = &tensors[i];
	}
	begin.round = send->round;
	begin.same = send->wish.same;
	begin.n_tensors = count;
	begin.tensors = list;
	if (st == TR_OK && !send->wish.pieces) {
		begin.records = records;
		begin.n_records = records_of(send, records);
	}
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_STATE_BEGIN;
	message.state_begin = &begin;
	if (st == TR_OK)
		st = peer_send_message(send->conn, &message);
	free(tensors);
	free(list);
	free(records);
	if (st != TR_OK)
		conn_close(send->conn, tr_status_text(st));
}

static void send_end(struct state_send *send)
{
	Traind__Peer__StateEnd end = TRAIND__PEER__STATE_END__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	end.round = send->round;
	end.n_digest_low = end.n_digest_high = send->wish.pieces ? 0 : send->map.tensors;
	end.digest_low = send->digest_low;
	end.digest_high = send->digest_high;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_STATE_END;
	message.state_end = &end;
	send->ended = true;
	tr_status st = peer_send_message(send->conn, &message);
	if (st != TR_OK)
		conn_close(send->conn, tr_status_text(st));
}

static tr_status send_chunk(struct state_send *send)
{
	struct chunk *chunk = malloc(sizeof(*chunk));
	const struct state_chunk at = state_map_at(&send->map, send->next_chunk);
	struct state_header header = { .round = send->round,
		.offset = at.offset,
		.tensor = at.tensor,
		.bytes = at.bytes };
	uint8_t head[STATE_HEADER_BYTES];
	if (chunk == NULL)
		return TR_ENOMEM;
	*chunk = (struct chunk){ send, header.bytes };
	const uint8_t *data = send->member->host->tensors[at.tensor].data + at.offset;
	state_header_put(&header, head);
	send->in_flight += header.bytes;
	tr_status st = conn_send_borrow(send->conn, FRAME_STATE, head, sizeof(head), data,
	    header.bytes, on_released, chunk);
	if (st != TR_OK) {
		send->in_flight -= header.bytes;
		free(chunk);
		return st;
	}
	send->bytes += header.bytes;
	send->queued_ms = uv_now(&send->member->engine->loop);
	send->next_chunk++;
	return TR_OK;
}

static void finish(struct state_send *send)
{
	log_info("engine",
	    "peer %" PRIu64 ": sent %" PRIu64 " bytes of the state after round %" PRIu64
	    " to peer %" PRIu64 "%s",
	    send->member->peer, send->bytes, send->round, send->to,
	    send->wish.pieces ? "" : ", and its digests");
	tell_sent(send, TR_OK, "");
	conn_finish(send->conn, "the state is sent");
}

static void finish_tensor(struct state_send *send)
{
	XXH128_hash_t hash = XXH3_128bits_digest(send->hash);
	send->digest_low[send->hashed] = hash.low64;
	send->digest_high[send->hashed] = hash.high64;
	send->hashed++;
	send->hashed_bytes = 0;
	(void)XXH3_128bits_reset(send->hash);
}

/* One turn's worth. */
static void hash_some(struct state_send *send)
{
	uint64_t budget = TR_STATE_TURN_BYTES;
	while (send->hashed < send->map.tensors && budget > 0) {
		const uint8_t *data = send->member->host->tensors[send->hashed].data;
		uint64_t left = send->map.bytes[send->hashed] - send->hashed_bytes;
		uint64_t n = left < budget ? left : budget;
		if (n > 0)
			(void)XXH3_128bits_update(send->hash, data + send->hashed_bytes, n);
		send->hashed_bytes += n;
		budget -= n;
		if (n == left)
			finish_tensor(send);
	}
	if (send->hashed == send->map.tensors)
		pump(send);
}

bool state_send_turn(struct member *member)
{
	bool more = false;
	struct state_send *next;
	for (struct state_send *send = member->state_sends; send != NULL; send = next) {
		next = send->next;
		if (!send->up || send->hashed == send->map.tensors || send->told)
			continue;
		hash_some(send);
		more = true;
	}
	return more;
}

/* Segments of the round go first: all wait for those, and for the state one peer at most. Now and then a chunk goes all the same, as a sign of life. */
static bool yields(struct state_send *send)
{
	struct member *member = send->member;
	uint64_t now = uv_now(&member->engine->loop);
	send->yields = now - send->queued_ms < YIELD_MS && peer_link_carries(member, send->to);
	if (send->yields)
		state_work_look(member);
	return send->yields;
}

/* Queues as much as the window takes; all written: over. */
static void pump(struct state_send *send)
{
	tr_status st = TR_OK;
	if (send->pumping)
		return;
	send->pumping = true;
	while (st == TR_OK && send->next_chunk < send->end &&
	    send->in_flight < TR_STATE_WINDOW_BYTES && !yields(send))
		st = send_chunk(send);
	if (st == TR_OK && !send->ended && send->next_chunk == send->end &&
	    send->hashed == send->map.tensors)
		send_end(send);
	send->pumping = false;
	if (st != TR_OK) {
		conn_close(send->conn, tr_status_text(st));
	} else if (send->ended && send->in_flight == 0) {
		finish(send);
	}
}

bool state_send_look(struct member *member)
{
	bool more = false;
	struct state_send *next;
	for (struct state_send *send = member->state_sends; send != NULL; send = next) {
		next = send->next;
		if (!send->yields || send->told)
			continue;
		pump(send);
		more = true;
	}
	return more;
}

static void on_connected(void *arg, struct conn *conn)
{
	struct state_send *send = arg;
	/* What is not on its way can still be taken back, and segments go before it. */
	int low = (int)TR_STATE_CHUNK_BYTES / 4;
	(void)setsockopt(conn_socket(conn), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof(low));
	send->up = true;
	if (peer_send_hello(conn, send->member, send->to) != TR_OK) {
		conn_close(conn, "no memory for a hello");
		return;
	}
	send_begin(send);
	if (!send->wish.pieces)
		state_work_wake(send->member);
	pump(send);
}

/* false: no memory. What a peer asks for beyond the last chunk is nothing. */
static bool cut(struct state_send *send)
{
	if (!state_work_cut(send->member->host, &send->map))
		return false;
	uint64_t chunks = state_map_chunks(&send->map);
	bool all = send->wish.first == 0 && send->wish.end == 0;
	send->end = all || send->wish.end > chunks ? chunks : send->wish.end;
	send->next_chunk = send->wish.first < send->end ? send->wish.first : send->end;
	if (send->wish.digests_only)
		send->end = send->next_chunk;
	if (send->wish.pieces)
		send->hashed = send->map.tensors;
	return true;
}

void state_send_take_back(struct member *member, uint64_t from, uint64_t round,
    const struct group_wish *wish)
{
	for (struct state_send *send = member->state_sends; send != NULL; send = send->next) {
		if (send->to != from || send->round != round || send->told ||
		    wish->first != send->wish.first || wish->end >= send->end)
			continue;
		send->end = wish->end > send->next_chunk ? wish->end : send->next_chunk;
		if (send->up)
			pump(send);
	}
}

void state_send_start(struct member *member, uint64_t to, uint64_t round,
    const struct group_wish *wish)
{
	static const struct conn_callbacks callbacks = { .frame = on_frame,
		.connected = on_connected,
		.closed = on_closed };
	const struct view_peer_entry *peer = member_view_peer(member, to);
	struct tr_error error = { .text = "no memory to send the state" };
	struct state_send *send = calloc(1, sizeof(*send));
	size_t count = member->host->tensor_count + 1u;
	tr_status st = send == NULL ? TR_ENOMEM : TR_OK;
	if (st == TR_OK) {
		*send = (struct state_send){ .member = member,
			.to = to,
			.round = round,
			.wish = *wish };
		send->hash = XXH3_createState();
		send->digest_low = calloc(count, sizeof(uint64_t));
		send->digest_high = calloc(count, sizeof(uint64_t));
		if (send->hash == NULL || send->digest_low == NULL || send->digest_high == NULL ||
		    !cut(send))
			st = TR_ENOMEM;
	}
	if (st == TR_OK && peer == NULL)
		st = tr_error_set(&error, TR_ENOTFOUND, "cannot reach it: its address is unknown");
	if (st == TR_OK) {
		(void)XXH3_128bits_reset(send->hash);
		st = conn_dial_through(&member->engine->loop, peer->address, peer->relay,
		    member->engine->links.tls, &callbacks, send, &send->conn, &error);
	}
	if (st != TR_OK) {
		if (send != NULL)
			state_send_free(send);
		log_info("engine", "peer %" PRIu64 ": state to peer %" PRIu64 ": %s", member->peer,
		    to, error.text);
		member_post(member, GROUP_STATE_SENT, to, round, st, error.text);
		return;
	}
	member->holds++;
	send->next = member->state_sends;
	member->state_sends = send;
	log_info("engine",
	    "peer %" PRIu64 ": sending %sthe state after round %" PRIu64 " to peer %" PRIu64,
	    member->peer,
	    wish->digests_only ? "the digests of "
	        : wish->pieces ? "pieces of "
	                       : "",
	    round, to);
}

/* The core is not told: it knows. `told` first: nothing more is queued then. */
static void stop(struct state_send *send, const char *reason)
{
	send->told = true;
	conn_drop_borrowed(send->conn);
	conn_close(send->conn, reason);
}

void state_send_stop_all(struct member *member, const char *reason)
{
	for (struct state_send *send = member->state_sends; send != NULL; send = send->next)
		stop(send, reason);
}

void state_send_round_over(struct member *member, uint64_t round)
{
	for (struct state_send *send = member->state_sends; send != NULL; send = send->next)
		if (send->round < round && !send->told) {
			log_info("engine",
			    "peer %" PRIu64 ": state to peer %" PRIu64 ": ended with %" PRIu64
			    " bytes: its round is decided",
			    member->peer, send->to, send->bytes);
			stop(send, "its round is decided");
		}
}

void state_send_view_changed(struct member *member)
{
	for (struct state_send *send = member->state_sends; send != NULL; send = send->next) {
		if (member_view_peer(member, send->to) != NULL || send->told)
			continue;
		tell_sent(send, TR_EPEERLOST, "no longer in the view");
		stop(send, "no longer in the view");
	}
}

void state_send_traffic(const struct member *member, uint64_t peer, struct traffic *sum)
{
	for (const struct state_send *send = member->state_sends; send != NULL; send = send->next)
		if (peer == 0 || send->to == peer)
			traffic_add_conn(sum, send->conn);
}
