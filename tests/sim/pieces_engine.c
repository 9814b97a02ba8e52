/* The rest of an engine, as far as its files for state (state_*.c) call it, and as an engine does it. Each member has one of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine_internal.h"
#include "collectives/engine/state_receive.h"
#include "tests/sim/sim.h"

#define FRAMES_AHEAD 2 /* on a connection, at which others go first */

/* ---- its member ---- */

const struct view_peer_entry *member_view_peer(const struct member *member, uint64_t peer)
{
	for (size_t i = 0; i < member->view_peer_count; i++)
		if (member->view_peers[i].peer == peer)
			return &member->view_peers[i];
	return NULL;
}

static void step_what_was_posted(struct member *member)
{
	unsigned node;
	struct sim *sim = pieces_sim(member, &node);
	struct posted_event *posted;

	member->stepping = true;
	while (!member->over && (posted = posted_take(&member->posted))) {
		pieces_posted(sim, node, &posted->event);
		free(posted);
	}
	member->stepping = false;
}

void member_post(struct member *member, enum group_event_kind kind, uint64_t from, uint64_t round,
    tr_status status, const char *reason)
{
	const struct group_event event = { .kind = kind,
		.from = from,
		.round = round,
		.status = status,
		.reason = reason };

	if (member->over)
		return;
	if (!posted_add(&member->posted, &event))
		abort();
	if (!member->stepping)
		step_what_was_posted(member);
}

bool member_hold_posts(struct member *member)
{
	bool held = !member->stepping;

	member->stepping = true;
	return held;
}

void member_let_posts(struct member *member, bool held)
{
	if (!held)
		return;
	member->stepping = false;
	if (member->posted.first)
		step_what_was_posted(member);
}

void member_calls_state_here(struct member *member, tr_status status, const char *reason)
{
	(void)reason;
	member->state_here = status == TR_OK;
}

void notices_event(struct member *member, const char *text)
{
	unsigned node;

	sim_trace(pieces_sim(member, &node), "%s", text);
}

void observe_ended(struct member *member, uint64_t peer, const struct traffic *carried)
{
	(void)member;
	(void)peer;
	(void)carried;
}

void traffic_add_conn(struct traffic *sum, const struct conn *conn)
{
	(void)sum;
	(void)conn;
}

void held_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	(void)member;
	(void)now_ms;
	(void)late_ms;
}

void inbound_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	(void)member;
	(void)now_ms;
	(void)late_ms;
}

void member_board_settle(struct member *member)
{
	(void)member;
}

/* ---- its links: the simulator's (net.c) ---- */

static unsigned engine_way(const struct member *member, uint64_t peer, struct sim **sim,
    unsigned *node)
{
	*sim = pieces_sim(member, node);
	return node_of_peer(*sim, peer);
}

bool peer_link_is_up(struct member *member, uint64_t peer)
{
	struct sim *sim;
	unsigned node, to = engine_way(member, peer, &sim, &node);

	return to < SIM_NODES_MAX && sim->links[node][to].used && !sim->links[node][to].dead;
}

void peer_link_connect(struct member *member, uint64_t peer)
{
	struct sim *sim;
	unsigned node, to = engine_way(member, peer, &sim, &node);

	if (to < SIM_NODES_MAX && sim->nodes[to].alive)
		pieces_at(sim, sim_between(sim, 20, 2 * sim->delay_us), PIECES_LINK, node, to, 0);
}

void peer_link_look(struct member *member)
{
	(void)member;
}

void peer_link_say(struct member *member, uint64_t peer, const Traind__Peer__PeerMessage *message)
{
	struct sim *sim;
	unsigned node, to = engine_way(member, peer, &sim, &node);
	const Traind__Peer__StateRequest *request = message->state_request;
	struct sim_message *said = calloc(1, sizeof(*said));

	if (!said)
		abort();
	if (to == SIM_NODES_MAX) {
		free(said);
		return;
	}
	said->kind = SIM_STATE_ASK;
	said->round = request->round;
	said->wish = state_ask_wish(request);
	said->wish.same = state_send_knows(member, request); /* all declare the same */
	sim->way.taken_back += request->take_back ? 1 : 0;
	sim->way.shared += request->pieces && !request->take_back ? 1 : 0;
	sim_trace(sim, "n%u %s n%u for %s%s%lu to %lu of the state after round %lu", node,
	    request->take_back ? "no longer asks" : "asks", to,
	    request->digests_only ? "digests, " : "", request->pieces ? "pieces " : "",
	    (unsigned long)request->first, (unsigned long)request->end,
	    (unsigned long)request->round);
	net_send_plain(sim, node, to, said);
}

/* Segments go first: here, whenever some pieces wait. */
bool peer_link_carries(struct member *member, uint64_t peer)
{
	struct sim *sim;
	unsigned node, to = engine_way(member, peer, &sim, &node);

	return to < SIM_NODES_MAX && conn_waits(sim, node, to) >= FRAMES_AHEAD;
}

tr_status peer_send_hello(struct conn *conn, const struct member *member, uint64_t to)
{
	(void)conn;
	(void)member;
	(void)to;
	return TR_OK;
}

tr_status peer_send_message(struct conn *conn, const Traind__Peer__PeerMessage *message)
{
	size_t bytes = traind__peer__peer_message__get_packed_size(message);
	uint8_t *packed = malloc(bytes + 1);

	if (!packed)
		abort();
	traind__peer__peer_message__pack(message, packed);
	tr_status st = conn_send_copy(conn, FRAME_PEER, packed, bytes);
	free(packed);
	return st;
}

bool state_work_cut(const struct channel_host *host, struct state_map *map)
{
	uint64_t bytes[SIM_PIECES_MAX];

	for (unsigned i = 0; i < host->tensor_count; i++)
		bytes[i] = host->tensors[i].bytes;
	bool made = state_map_make(map, bytes, host->tensor_count);
	map->chunk_bytes = TR_STATE_CHUNK_BYTES; /* each of these few stands for so many */
	return made;
}
