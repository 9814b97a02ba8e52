/* Boards (collectives/engine/gather.h): what members of one host show to each other. Each has its own, which stays readable when it dies; others begin to read it some time after
 * the view has come, and look whenever they are awake.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "tests/sim/sim.h"

#define STREAM_ATTACH 11

void board_start(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];

	node->board = aligned_alloc(_Alignof(struct board), sizeof(*node->board));
	if (!node->board)
		abort();
	memset(node->board, 0, sizeof(*node->board));
	gather_init(&node->gather, sim->boards ? node->board : NULL, sim->board_entries);
}

void board_enter(struct sim *sim, unsigned number, const Traind__Peer__View *view)
{
	struct sim_node *node = &sim->nodes[number];
	uint64_t peers[SIM_NODES_MAX];
	size_t count = view->n_peers <= SIM_NODES_MAX ? view->n_peers : 0;

	for (size_t i = 0; i < count; i++)
		peers[i] = view->peers[i]->peer;
	gather_enter(&node->gather, view->number, peers, count, node->peer);
}

void board_wake(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];

	if (node->alive && node->core && node->gather.count > 0 &&
	    (node->gather.unread > 0 || gather_pending(&node->gather, node->core)))
		sim_at(sim, sim->now_us + sim_between(sim, 0, sim->delay_us), SIM_BOARD, number, 0,
		    0);
}

void board_spread(struct sim *sim, unsigned number, const struct group_action *spread)
{
	struct sim_node *node = &sim->nodes[number];
	const struct view *view = &node->core->view;

	if (gather_show(&node->gather, node->core, spread, node->held != NULL)) {
		sim->shown++;
		sim_trace(sim, "n%u shows v%lu r%lu.%lu op %u", number,
		    (unsigned long)spread->header.view, (unsigned long)spread->header.round,
		    (unsigned long)spread->header.attempt, spread->tag);
		for (unsigned other = 0; other < sim->node_count; other++)
			if (other != number)
				board_wake(sim, other);
	} else {
		for (unsigned i = 0; i < view->count; i++) {
			struct group_action one;
			if (view->peers[i].peer == node->peer)
				continue;
			one = group_action_to(spread, view->peers[i].peer);
			net_send(sim, number, &one, SIM_SEGMENT);
		}
	}
	if (spread->buffer)
		group_buffer_release(node->core, spread->buffer);
}

struct board_looks {
	struct sim *sim;
	unsigned number;
};

static tr_status board_gathered(void *arg, struct group_event *event)
{
	const struct board_looks *looks = arg;
	tr_status st = node_step(looks->sim, looks->number, event);

	looks->sim->gathered += st == TR_OK;
	sim_trace(looks->sim, "n%u gathers r%lu op %u %s", looks->number,
	    (unsigned long)event->gathered.header->round, event->gathered.header->tag,
	    st == TR_OK ? "" : tr_status_name(st));
	return st;
}

static tr_status board_single(void *arg, uint64_t from, const uint8_t *frame, size_t bytes)
{
	const struct board_looks *looks = arg;
	unsigned sender = node_of_peer(looks->sim, from);
	struct segment_header header;

	if (segment_header_get(frame, SEGMENT_HEADER_BYTES + bytes, &header, NULL) != TR_OK)
		sim_violation(looks->sim, "n%u shows n%u what is no frame", sender, looks->number);
	else
		net_came(looks->sim, sender, looks->number, &header, frame + SEGMENT_HEADER_BYTES,
		    bytes);
	return TR_OK;
}

void board_look(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	struct board_looks looks = { sim, number };
	const struct gather_calls calls = { board_gathered, board_single, &looks };

	if (!node->core || !node->alive)
		return;
	for (unsigned other = 0; other < sim->node_count; other++)
		if (sim->nodes[other].board &&
		    gather_lacks(&node->gather, sim->nodes[other].peer) &&
		    rng_below(sim->key, STREAM_ATTACH, sim->board_looks++, 3) != 0)
			gather_attach(&node->gather, sim->nodes[other].peer,
			    sim->nodes[other].board);
	if (gather_look(&node->gather, node->core, &calls)) {
		sim->deliveries++;
		fault_delivery(sim);
	}
	board_wake(sim, number);
}

static bool board_no_later(const struct sim_node *node, const struct sim_node *from, uint64_t view)
{
	return !from->core || from->group != node->group || from->core->view.number <= view;
}

bool board_lent_intact(void *arg, uint64_t view)
{
	const struct sim_node *node = arg;
	const struct sim *sim = node->sim;

	for (const struct sim_stable *s = node->stable; s; s = s->next)
		if (!board_no_later(node, &sim->nodes[s->from], view))
			return false;
	for (unsigned i = 0; i < node->gather.count; i++) {
		unsigned from = node_of_peer(sim, node->gather.peers[i].peer);
		if (node->gather.peers[i].board && from != SIM_NODES_MAX &&
		    !board_no_later(node, &sim->nodes[from], view))
			return false;
	}
	return true;
}
