/* Connections over which state is streamed: conn.h's, for state_send.c. Each has a pace of its own; some stand still for ever after a while, some lose all that was written, some damage
 * it. Their memory lives on to the end of the run: who receives knows them by it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine_internal.h"
#include "tests/sim/sim.h"

struct conn {
	struct conn *next;
	struct sim *sim;
	uint64_t serial;
	unsigned from, to;
	struct conn_callbacks callbacks;
	void *arg;
	struct conn_frame *unsent, *way; /* what waits at `from`; what is on its way */
	uint64_t pace_us, last_due_us;
	unsigned moves; /* so many frames more leave before it stands still */
	bool open, leaving, finishing, closing, closed; /* `from`'s end */
	bool deaf;                                      /* `to`'s end: nothing is read any more */
	bool lost;                                      /* nobody reads what is written */
	bool damaged;
	char reason[128];
};

static struct conn *conn_of(const struct sim *sim, uint64_t serial)
{
	struct conn *conn = sim->way.conns;

	while (conn && conn->serial != serial)
		conn = conn->next;
	return conn;
}

/* What goes wrong with it does so while other faults may come, too. */
static void conn_draw(struct sim *sim, struct conn *conn)
{
	static const uint64_t most[] = { 500, 500, 5 * MS, 5 * MS, 40 * MS, 40 * MS, 150 * MS };
	bool fails = sim->last_fault_us == 0;

	conn->pace_us = sim_between(sim, 10, most[sim_draw(sim, sizeof(most) / sizeof(most[0]))]);
	conn->moves = UINT32_MAX;
	if (fails && sim_chance(sim, 10))
		conn->moves = (unsigned)sim_draw(sim, 40);
	conn->lost = fails && sim_chance(sim, 6);
}

tr_status conn_dial_through(uv_loop_t *loop, const char *address, const struct conn_relay *relay,
    struct tls_context *tls, const struct conn_callbacks *callbacks, void *arg, struct conn **made,
    struct tr_error *error)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	unsigned node;
	struct sim *sim = pieces_sim((const struct member *)loop->data, &node);
	const char *port = strrchr(address, ':');

	(void)relay;
	(void)tls;
	if (!conn)
		abort();
	unsigned to = port ? (unsigned)strtoul(port + 1, NULL, 10) - 9000 : SIM_NODES_MAX;
	if (to >= SIM_NODES_MAX) {
		free(conn);
		return tr_error_set(error, TR_ENOTFOUND, "no such address");
	}
	*conn = (struct conn){ .next = sim->way.conns,
		.sim = sim,
		.serial = ++sim->way.serial,
		.from = node,
		.to = to,
		.callbacks = *callbacks,
		.arg = arg };
	sim->way.conns = *made = conn;
	conn_draw(sim, conn);
	pieces_at(sim, sim_between(sim, 20, 4 * sim->delay_us), CONN_OPENS, node, conn->to,
	    conn->serial);
	return TR_OK;
}

int conn_socket(const struct conn *conn)
{
	(void)conn;
	return -1;
}

/* ---- `from`'s end ---- */

static void conn_say(struct conn *conn, const char *reason)
{
	(void)snprintf(conn->reason, sizeof(conn->reason), "%s", reason);
}

static void conn_on_way(struct conn *conn, struct conn_frame *frame)
{
	struct sim *sim = conn->sim;
	struct conn_frame **at = &conn->way;
	uint64_t due = sim->now_us + sim_between(sim, 20, sim->delay_us);

	while (*at)
		at = &(*at)->next;
	frame->next = NULL;
	*at = frame;
	conn->last_due_us = due > conn->last_due_us ? due : conn->last_due_us + 1;
	pieces_at(sim, conn->last_due_us - sim->now_us, CONN_ARRIVES, conn->to, conn->from,
	    conn->serial);
}

static struct conn_frame *frame_new(void)
{
	struct conn_frame *frame = calloc(1, sizeof(*frame));

	if (!frame)
		abort();
	return frame;
}

static void frame_free(struct conn_frame *frame)
{
	free(frame->data);
	free(frame);
}

static void conn_shut(struct conn *conn)
{
	conn->closing = true;
	pieces_at(conn->sim, 0, CONN_CLOSED, conn->from, conn->to, conn->serial);
	if (!conn->lost)
		conn_on_way(conn, frame_new());
}

void conn_close(struct conn *conn, const char *reason)
{
	if (!conn || conn->closing)
		return;
	conn_say(conn, reason);
	conn_shut(conn);
}

static void conn_go_on(struct conn *conn)
{
	if (!conn->open || conn->closing || conn->leaving)
		return;
	if (conn->unsent && conn->moves > 0) {
		conn->leaving = true;
		pieces_at(conn->sim, sim_between(conn->sim, conn->pace_us / 2, conn->pace_us * 2),
		    CONN_LEAVES, conn->from, conn->to, conn->serial);
	} else if (conn->unsent) { /* its kernel has no answer for what it sends */
		conn->leaving = true;
		pieces_at(conn->sim, sim_between(conn->sim, 1 * SECOND, 12 * SECOND), CONN_RESET,
		    conn->from, conn->to, conn->serial);
	} else if (conn->finishing) {
		conn_shut(conn);
	}
}

void conn_finish(struct conn *conn, const char *reason)
{
	if (conn->closing || conn->finishing)
		return;
	conn->finishing = true;
	conn_say(conn, reason);
	conn_go_on(conn);
}

tr_status conn_send_borrow(struct conn *conn, uint16_t type, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes, lane_released_fn *released, void *arg)
{
	struct conn_frame **at = &conn->unsent;

	if (conn->closing)
		return TR_EPEERLOST;
	struct conn_frame *frame = frame_new();
	frame->type = type;
	frame->head_bytes = head_bytes;
	memcpy(frame->head, head, head_bytes);
	frame->body = body;
	frame->body_bytes = body_bytes;
	frame->lent = tr_digest_of(body, body_bytes);
	frame->released = released;
	frame->arg = arg;
	while (*at)
		at = &(*at)->next;
	*at = frame;
	conn_go_on(conn);
	return TR_OK;
}

tr_status conn_send_copy(struct conn *conn, uint16_t type, const void *payload, size_t bytes)
{
	struct conn_frame **at = &conn->unsent;

	if (conn->closing)
		return TR_EPEERLOST;
	struct conn_frame *frame = frame_new();
	frame->type = type;
	frame->data = malloc(bytes + 1);
	if (!frame->data)
		abort();
	memcpy(frame->data, payload, bytes);
	frame->bytes = bytes;
	while (*at)
		at = &(*at)->next;
	*at = frame;
	conn_go_on(conn);
	return TR_OK;
}

unsigned conn_waits(const struct sim *sim, unsigned from, unsigned to)
{
	unsigned frames = 0;

	for (const struct conn *conn = sim->way.conns; conn; conn = conn->next)
		for (const struct conn_frame *frame = conn->unsent;
		     conn->from == from && conn->to == to && !conn->closing && frame;
		     frame = frame->next)
			frames++;
	return frames;
}

static void conn_drop(struct conn *conn, bool all)
{
	struct conn_frame **at = &conn->unsent;

	while (*at) {
		struct conn_frame *frame = *at;
		if (!all && !frame->released) {
			at = &frame->next;
			continue;
		}
		*at = frame->next;
		if (frame->released)
			frame->released(frame->arg, false);
		frame_free(frame);
	}
}

void conn_drop_borrowed(struct conn *conn)
{
	conn_drop(conn, false);
}

static bool conn_damages(struct sim *sim, struct conn *conn)
{
	const struct sim_way *way = &sim->way;

	if (!sim->faults_started || sim->last_fault_us != 0)
		return false;
	if (way->damager == (int)conn->from && !conn->damaged)
		return true;
	return way->damage > 0 && sim_draw(sim, way->damage) == 0;
}

static void conn_leaves(struct sim *sim, struct conn *conn)
{
	struct conn_frame *frame = conn->unsent;

	conn->leaving = false;
	if (!frame || conn->closing || conn->moves == 0)
		return;
	conn->moves--;
	conn->unsent = frame->next;
	if (frame->released) {
		if (!tr_digest_equal(tr_digest_of(frame->body, frame->body_bytes), frame->lent))
			sim_violation(sim,
			    "I7: the state of n%u changed while it was streamed to n%u", conn->from,
			    conn->to);
		frame->bytes = frame->head_bytes + frame->body_bytes;
		frame->data = malloc(frame->bytes);
		if (!frame->data)
			abort();
		memcpy(frame->data, frame->head, frame->head_bytes);
		memcpy(frame->data + frame->head_bytes, frame->body, frame->body_bytes);
		if (conn_damages(sim, conn)) {
			conn->damaged = true;
			sim->way.damaged[conn->to]++;
			frame->data[frame->head_bytes] ^= 64;
			sim_trace(sim, "a piece of n%u's state is damaged on its way to n%u",
			    conn->from, conn->to);
		}
	}
	lane_released_fn *released = frame->released;
	void *arg = frame->arg;
	if (conn->lost)
		frame_free(frame);
	else
		conn_on_way(conn, frame);
	if (released)
		released(arg, true);
	conn_go_on(conn);
}

static void conn_opens(struct sim *sim, struct conn *conn)
{
	if (conn->closing)
		return;
	if (!sim->nodes[conn->to].alive) {
		conn_close(conn, "refused");
		return;
	}
	conn->open = true;
	conn->callbacks.connected(conn->arg, conn);
	conn_go_on(conn);
}

static void conn_is_closed(struct conn *conn)
{
	if (conn->closed)
		return;
	conn->closed = conn->closing = true;
	conn_drop(conn, true);
	conn->callbacks.closed(conn->arg, conn, conn->reason);
}

/* ---- `to`'s end ---- */

static void conn_deafen(struct sim *sim, struct conn *conn)
{
	if (conn->deaf)
		return;
	conn->deaf = true;
	pieces_at(sim, 0, CONN_BROKEN, conn->to, conn->from, conn->serial);
	pieces_at(sim, sim_between(sim, 20, sim->delay_us), CONN_RESET, conn->from, conn->to,
	    conn->serial);
}

void inbound_close_one(struct member *member, const struct inbound *one, const char *reason)
{
	struct conn *conn = (struct conn *)(uintptr_t)one;

	(void)member;
	(void)reason;
	if (conn)
		conn_deafen(conn->sim, conn);
}

static void conn_arrives(struct sim *sim, struct conn *conn)
{
	struct conn_frame *frame = conn->way;
	uint64_t open_us = sim->links[conn->from][conn->to].hold_until_us;

	if (open_us > sim->now_us) {
		pieces_at(sim, open_us - sim->now_us, CONN_ARRIVES, conn->to, conn->from,
		    conn->serial);
		return;
	}
	if (!frame)
		return;
	conn->way = frame->next;
	if (!conn->deaf && pieces_take(sim, conn->to, conn, conn->from, frame) != TR_OK)
		conn_deafen(sim, conn);
	conn->deaf = conn->deaf || !frame->data;
	frame_free(frame);
	sim->deliveries++;
	fault_delivery(sim);
}

/* ---- what happens to it ---- */

void conn_event(struct sim *sim, enum pieces_event what, uint64_t serial)
{
	struct conn *conn = conn_of(sim, serial);

	(void)pieces_member(sim, conn->from); /* its clock */
	switch (what) {
	case CONN_OPENS:
		conn_opens(sim, conn);
		break;
	case CONN_LEAVES:
		conn_leaves(sim, conn);
		break;
	case CONN_CLOSED:
		conn_is_closed(conn);
		break;
	case CONN_RESET:
		conn_close(conn, "reset by peer");
		break;
	case CONN_ARRIVES:
		conn_arrives(sim, conn);
		break;
	default:
		(void)pieces_take(sim, conn->to, conn, conn->from, NULL);
		break;
	}
}

static void conn_cut(struct sim *sim, struct conn *conn, bool at_from, bool at_to)
{
	if (at_from)
		pieces_at(sim, sim_between(sim, 0, 50 * MS), CONN_RESET, conn->from, conn->to,
		    conn->serial);
	if (at_to && !conn->deaf) {
		conn->deaf = true;
		pieces_at(sim, sim_between(sim, 0, 50 * MS), CONN_BROKEN, conn->to, conn->from,
		    conn->serial);
	}
}

void conn_died(struct sim *sim, unsigned node, bool silently)
{
	for (struct conn *conn = sim->way.conns; conn; conn = conn->next) {
		if (conn->to == node && !silently)
			conn_cut(sim, conn, true, false);
		else if (conn->from == node && !conn->closing && !silently && sim_chance(sim, 50))
			conn_on_way(conn, frame_new()); /* behind what has left it */
		else if (conn->from == node && !conn->closing)
			conn_cut(sim, conn, false, !silently);
	}
}

void conn_break_way(struct sim *sim, unsigned from, unsigned to)
{
	for (struct conn *conn = sim->way.conns; conn; conn = conn->next)
		if (conn->from == from && conn->to == to && !conn->closing)
			conn_cut(sim, conn, true, true);
}

void conn_finish_all(struct sim *sim, unsigned node)
{
	for (struct conn *conn = sim->way.conns; conn; conn = conn->next)
		if (conn->from == node)
			conn_is_closed(conn);
}

void conn_free_all(struct sim *sim)
{
	while (sim->way.conns) {
		struct conn *conn = sim->way.conns;
		sim->way.conns = conn->next;
		while (conn->way) {
			struct conn_frame *frame = conn->way;
			conn->way = frame->next;
			frame_free(frame);
		}
		free(conn);
	}
}
