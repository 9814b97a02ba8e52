/* A worker's memory, piece by piece, and what its engine makes of the pieces that come. Sometimes a worker that died has left it all (sim_left), some of that damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/engine/state_receive.h"
#include "common/log.h"
#include "proto/segment.h"
#include "tests/sim/sim.h"

#define STREAM_PIECES 29
#define REST          4 /* pieces that do not come gradually */
#define CLOCK_MS      1000
#define LOOK_MS       10

struct sim_pieces {
	struct sim_node *node;
	struct engine engine;
	struct member member;
	struct channel_host host;
	struct channel_tensor tensors[SIM_PIECES_MAX];
	uint64_t memory[SIM_PIECES_MAX];
	XXH128_hash_t left[SIM_PIECES_MAX]; /* of what a worker left here */
	unsigned spoilt;                    /* transfers that differed */
	uint64_t spoiler, spoilt_round;     /* the last ones: whose, of which round, how many */
	unsigned spoilt_row;
	bool turns, looks; /* events are on their way */
};

uint64_t pieces_piece(uint64_t chain, unsigned tensor)
{
	return chain ^ (tensor + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

void pieces_prepare(struct sim *sim)
{
	uint64_t draw = rng_below(sim->key, STREAM_PIECES, 0, 8);

	sim->way.damager = draw == 6 || draw == 3 ? (int)rng_below(sim->key, STREAM_PIECES, 1, 4)
	                                          : -1;
	sim->way.damage = draw == 4 || draw == 5 ? 60 : draw == 7 ? 400 : 0;
	if (sim->plant == PLANT_SPOILT)
		sim->way.damage = 60;
	log_configure(LOG_ERROR, false); /* an engine says much */
}

void pieces_at(struct sim *sim, uint64_t delay_us, enum pieces_event what, unsigned a, unsigned b,
    uint64_t serial)
{
	sim_at(sim, sim->now_us + delay_us, SIM_PIECES, a, b, serial * PIECES_EVENTS + what);
}

struct member *pieces_member(struct sim *sim, unsigned number)
{
	struct sim_pieces *pieces = sim->nodes[number].pieces;

	pieces->engine.loop.time = CLOCK_MS + sim->now_us / MS;
	return &pieces->member;
}

struct sim *pieces_sim(const struct member *member, unsigned *number)
{
	const struct sim_pieces *pieces = member->engine->arg;

	*number = (unsigned)(pieces->node - pieces->node->sim->nodes);
	return pieces->node->sim;
}

/* ---- life ---- */

static void pieces_declare(const struct sim *sim, struct sim_pieces *pieces)
{
	unsigned count = 36 + (unsigned)rng_below(sim->key, STREAM_PIECES, 2, SIM_PIECES_MAX - 35);
	unsigned a_unit = 1 + (count - REST) / SIM_GRADUAL_PARTS;

	for (unsigned i = 0; i < count; i++) {
		struct channel_tensor *tensor = &pieces->tensors[i];
		tensor->data = (uint8_t *)&pieces->memory[i];
		tensor->bytes = sizeof(pieces->memory[i]);
		tensor->gradual = sim->gradual && i >= REST ? 1 + (i - REST) / a_unit : 0;
	}
	pieces->host.tensors = pieces->tensors;
	pieces->host.tensor_count = count;
}

void pieces_start(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	struct sim_pieces *pieces = calloc(1, sizeof(*pieces));

	if (!pieces)
		abort();
	*pieces = (struct sim_pieces){ .node = node };
	pieces->engine.arg = pieces;
	pieces->engine.loop.data = &pieces->member;
	pieces_declare(sim, pieces);
	pieces->member = (struct member){ .engine = &pieces->engine,
		.group = node->group,
		.peer = node->peer,
		.core = node->core,
		.host = &pieces->host };
	posted_init(&pieces->member.posted);
	node->pieces = pieces;
}

void pieces_died(struct sim *sim, unsigned number, bool silently)
{
	struct sim_pieces *pieces = sim->nodes[number].pieces;

	if (pieces)
		pieces->member.over = true;
	conn_died(sim, number, silently);
}

void pieces_finish(struct sim *sim, unsigned number)
{
	struct sim_pieces *pieces = sim->nodes[number].pieces;

	if (!pieces)
		return;
	pieces->member.over = true;
	conn_finish_all(sim, number);
	state_receive_free(&pieces->member);
	posted_finish(&pieces->member.posted);
	free(pieces->member.view_peers);
	free(pieces);
	sim->nodes[number].pieces = NULL;
}

void member_unhold(struct member *member)
{
	member->holds--;
}

/* ---- its core and its view ---- */

bool pieces_hold(struct sim *sim, unsigned number)
{
	return sim->nodes[number].pieces && member_hold_posts(pieces_member(sim, number));
}

void pieces_let(struct sim *sim, unsigned number, bool held)
{
	if (held)
		member_let_posts(pieces_member(sim, number), true);
}

void pieces_view(struct sim *sim, unsigned number, const Traind__Peer__View *view)
{
	if (!sim->nodes[number].pieces)
		return;
	struct member *member = pieces_member(sim, number);
	if (view->number <= member->view)
		return;
	free(member->view_peers);
	member->view_peers = calloc(view->n_peers + 1, sizeof(*member->view_peers));
	if (!member->view_peers)
		abort();
	for (size_t i = 0; i < view->n_peers; i++) {
		const Traind__Peer__ViewPeer *from = view->peers[i];
		struct view_peer_entry *to = &member->view_peers[i];
		unsigned node = node_of_peer(sim, from->peer);
		to->peer = from->peer;
		to->participate_from = from->participate_from;
		to->gradual = from->contribute_from == TR_ROUND_LATER;
		(void)snprintf(to->address, sizeof(to->address), "127.0.0.1:%u", 9000 + node);
		(void)snprintf(to->node_name, sizeof(to->node_name), "m%u",
		    sim->hosts > 0 ? node % sim->hosts : node);
	}
	member->view_peer_count = view->n_peers;
	member->view = view->number;
}

void pieces_installed(struct sim *sim, unsigned number)
{
	if (sim->nodes[number].pieces)
		state_send_view_changed(pieces_member(sim, number));
}

void pieces_link_up(struct sim *sim, unsigned number)
{
	if (sim->nodes[number].pieces)
		state_receive_link_up(pieces_member(sim, number));
}

void pieces_ask(struct sim *sim, unsigned number, const struct group_action *ask)
{
	gradual_asked(sim, number, ask->round);
	state_receive_ask(pieces_member(sim, number), ask->to, ask->round);
}

struct group_wish pieces_asked(struct sim *sim, unsigned number, const struct sim_message *message)
{
	if (sim->nodes[number].pieces && message->wish.take_back)
		state_send_take_back(pieces_member(sim, number), sim->nodes[message->from].peer,
		    message->round, &message->wish);
	return message->wish;
}

void pieces_send(struct sim *sim, unsigned number, const struct group_action *send)
{
	const struct sim_worker *worker = &sim->nodes[number].worker;

	if (worker->applied != send->round || !worker->holds)
		sim_violation(sim,
		    "I7: n%u is to stream the state after round %lu, it has that after %lu", number,
		    (unsigned long)send->round, (unsigned long)worker->applied);
	pieces_lay(sim, number);
	sim_trace(sim, "n%u streams %lu to %lu%s of its state after round %lu to peer %lu", number,
	    (unsigned long)send->wish.first, (unsigned long)send->wish.end,
	    send->wish.pieces ? "" : ", and digests", (unsigned long)send->round,
	    (unsigned long)send->to);
	state_send_start(pieces_member(sim, number), send->to, send->round, &send->wish);
}

/* ---- memory ---- */

void pieces_lay(struct sim *sim, unsigned number)
{
	const struct sim_node *node = &sim->nodes[number];

	for (unsigned i = 0; node->pieces && i < node->pieces->host.tensor_count; i++)
		node->pieces->memory[i] = pieces_piece(node->worker.chain ^
		        (sim->plant == PLANT_LATE_STATE),
		    i);
}

/* The history that is in it. If not all pieces say the same, one that nobody else has. */
static uint64_t pieces_chain(const struct sim_pieces *pieces)
{
	uint64_t chain = pieces_piece(pieces->memory[0], 0);

	for (unsigned i = 1; i < pieces->host.tensor_count; i++)
		if (pieces_piece(pieces->memory[i], i) != chain)
			return tr_digest_of(pieces->memory,
			    pieces->host.tensor_count * sizeof(pieces->memory[0]))
			    .low;
	return chain;
}

/* All of its unit is here: only then does the caller know how to change it. */
static bool pieces_may_change(const struct sim_pieces *pieces, const uint8_t *have, unsigned i)
{
	bool whole = pieces->tensors[i].gradual != 0;

	for (unsigned k = 0; k < pieces->host.tensor_count; k++)
		whole = whole &&
		    (pieces->tensors[k].gradual != pieces->tensors[i].gradual || bits_get(have, k));
	return whole;
}

void pieces_apply(struct sim *sim, unsigned number, struct tr_digest result)
{
	struct sim_pieces *pieces = sim->nodes[number].pieces;
	const struct state_receive *receive = pieces->member.state_receive;

	for (unsigned i = 0; receive && i < pieces->host.tensor_count; i++) {
		if (!bits_get(receive->plan.have, i))
			continue;
		const struct tr_digest before = { pieces_piece(pieces->memory[i], i), 0 };
		pieces->memory[i] = pieces_piece(tr_digest_fold(before, result).low, i) ^
		    !pieces_may_change(pieces, receive->plan.have, i);
	}
}

bool pieces_defer(struct sim *sim, unsigned number)
{
	struct member *member = pieces_member(sim, number);
	struct tr_state_progress progress = { 0 };

	state_gradual_progress(member, &progress);
	if (!progress.may_defer)
		return false;
	sim_trace(sim, "n%u has %lu of %lu bytes of its state", number,
	    (unsigned long)(progress.bytes - progress.missing), (unsigned long)progress.bytes);
	state_gradual_defer(member);
	return true;
}

void pieces_decided(struct sim *sim, unsigned number, tr_status status, uint64_t round)
{
	if (!sim->nodes[number].pieces)
		return;
	struct member *member = pieces_member(sim, number);
	if (status == TR_OK && round > 0)
		state_send_round_over(member, round);
	state_gradual_decided(member, status, round);
}

/* ---- what came of it ---- */

bool pieces_gave_up(const struct sim *sim, unsigned number)
{
	const struct sim_pieces *pieces = sim->nodes[number].pieces;

	return pieces && pieces->spoilt >= MEMBER_DAMAGED_MAX;
}

/* Damage is found where there is some. */
static void pieces_differ(struct sim *sim, unsigned number, uint64_t from, uint64_t round)
{
	struct sim_pieces *pieces = sim->nodes[number].pieces;

	if (pieces->spoiler != from || pieces->spoilt_round != round)
		pieces->spoilt_row = 0;
	pieces->spoilt_row++;
	pieces->spoiler = from;
	pieces->spoilt_round = round;
	pieces->spoilt++;
	sim->way.spoilt++;
	sim_trace(sim, "n%u: the state after round %lu differs from its digests", number,
	    (unsigned long)round);
	if (pieces_chain(pieces) == sim->truth[round].chain)
		sim_violation(sim, "I7: n%u refuses the state after round %lu, which is whole",
		    number, (unsigned long)round);
	else if (pieces->spoilt > sim->way.damaged[number])
		sim_violation(sim,
		    "I7: n%u has come to a state after round %lu that is nobody's, and nothing was "
		    "damaged",
		    number, (unsigned long)round);
}

void pieces_posted(struct sim *sim, unsigned number, struct group_event *event)
{
	struct sim_node *node = &sim->nodes[number];
	const struct sim_worker before = node->worker;
	bool whole = event->kind == GROUP_STATE_GOT && event->status == TR_OK;

	if (event->kind == GROUP_STATE_GOT && event->status == TR_EDIGEST)
		pieces_differ(sim, number, event->from, event->round);
	/* It is in the worker's memory before anybody says so, also if the process dies of saying it. */
	if (whole)
		worker_takes_state(sim, number, event->round, pieces_chain(node->pieces));
	tr_status st = node_step(sim, number, event);
	if (node->pieces->spoilt_row >= MEMBER_DAMAGED_MAX && node->alive && !node->failed)
		sim_violation(sim, "I7: n%u goes on with a donor of damaged states", number);
	if (whole && st == TR_OK) {
		worker_state_got(sim, number);
	} else if (whole && node->alive) {
		worker_takes_state_back(sim, number, &before);
		if (!node->failed)
			sim_violation(sim,
			    "I7: n%u's caller was told that its state is here, and its core awaits "
			    "none",
			    number);
	}
}

static void pieces_records(struct sim *sim, unsigned number, unsigned from,
    const Traind__Peer__StateBegin *begin)
{
	struct group_event event = { .kind = GROUP_STATE_RECORDS,
		.from = sim->nodes[from].peer,
		.records = { begin->records, begin->n_records } };

	if (node_step(sim, number, &event) == TR_EPROTO)
		sim_violation(sim, "n%u refuses the records of n%u", number, from);
}

/* Planted: digests of what came, where that is not what was sent. */
static void pieces_plant(const struct sim *sim, const struct sim_pieces *pieces,
    Traind__Peer__StateEnd *end)
{
	const struct state_receive *receive = pieces->member.state_receive;

	for (unsigned i = 0; sim->plant == PLANT_SPOILT && receive && i < end->n_digest_low; i++) {
		if (!bits_get(receive->plan.have, i))
			continue;
		XXH128_hash_t hash = XXH3_128bits(&pieces->memory[i], sizeof(pieces->memory[i]));
		end->digest_low[i] = hash.low64;
		end->digest_high[i] = hash.high64;
	}
}

static tr_status pieces_take_message(struct sim *sim, unsigned number, unsigned from,
    const struct inbound *in, const struct conn_frame *frame, struct tr_error *error)
{
	struct member *member = pieces_member(sim, number);
	uint64_t peer = sim->nodes[from].peer;
	Traind__Peer__PeerMessage *message = traind__peer__peer_message__unpack(NULL, frame->bytes,
	    frame->data);
	tr_status st;

	if (!message)
		abort();
	if (message->body_case == TRAIND__PEER__PEER_MESSAGE__BODY_STATE_BEGIN) {
		st = state_receive_begin(member, peer, in, message->state_begin, error);
		if (st == TR_OK)
			pieces_records(sim, number, from, message->state_begin);
	} else {
		pieces_plant(sim, sim->nodes[number].pieces, message->state_end);
		st = state_receive_finish(member, peer, in, message->state_end, error);
	}
	traind__peer__peer_message__free_unpacked(message, NULL);
	return st;
}

tr_status pieces_take(struct sim *sim, unsigned number, struct conn *conn, unsigned from,
    const struct conn_frame *frame)
{
	const struct inbound *in = (const struct inbound *)(const void *)conn;
	struct tr_error error = { 0 };
	tr_status st;

	if (!sim->nodes[number].pieces)
		return TR_ESTALE;
	struct member *member = pieces_member(sim, number);
	if (!frame || !frame->data) {
		state_receive_broken(member, in, "closed");
		return TR_OK;
	}
	if (frame->type == FRAME_STATE)
		st = state_receive_chunk(member, sim->nodes[from].peer, in, frame->data,
		    frame->bytes, &error);
	else
		st = pieces_take_message(sim, number, from, in, frame, &error);
	if (st != TR_OK)
		sim_trace(sim, "n%u: %s", number, error.text);
	if (st != TR_OK && st != TR_ESTALE && sim->nodes[number].alive)
		sim_violation(sim, "n%u refuses what n%u streams: %s", number, from, error.text);
	return st;
}

/* ---- what a worker left ---- */

bool leftover_round(const struct member *member, uint64_t *round)
{
	unsigned number;
	const struct sim_left *left = &pieces_sim(member, &number)->nodes[number].left;

	*round = left->round;
	return left->there;
}

uint64_t leftover_bytes(const struct member *member)
{
	return member->host->tensor_count * sizeof(uint64_t);
}

void leftover_copy_begin(struct member *member)
{
	(void)member;
}

bool leftover_copy(struct member *member)
{
	unsigned number;
	struct sim *sim = pieces_sim(member, &number);
	const struct sim_left *left = &sim->nodes[number].left;
	struct sim_pieces *pieces = sim->nodes[number].pieces;

	if (sim->truth[left->round].chain != left->chain)
		sim_violation(sim, "I7: what was left to n%u is another state after round %lu",
		    number, (unsigned long)left->round);
	for (unsigned i = 0; i < pieces->host.tensor_count; i++)
		pieces->memory[i] = pieces_piece(left->chain, i);
	if (sim_chance(sim, 20))
		pieces->memory[sim_draw(sim, pieces->host.tensor_count)] ^= 1;
	for (unsigned i = 0; i < pieces->host.tensor_count; i++)
		pieces->left[i] = XXH3_128bits(&pieces->memory[i], sizeof(pieces->memory[i]));
	sim->lefts++;
	return true;
}

const XXH128_hash_t *leftover_digests(const struct member *member)
{
	unsigned number;

	return pieces_sim(member, &number)->nodes[number].pieces->left;
}

void leftover_drop(struct member *member)
{
	unsigned number;

	pieces_sim(member, &number)->nodes[number].left.there = false;
}

/* ---- its turns ---- */

static void pieces_turn_at(struct sim *sim, unsigned number, uint64_t delay_us)
{
	sim->nodes[number].pieces->turns = true;
	pieces_at(sim, delay_us, PIECES_TURN, number, 0, 0);
}

static void pieces_look_at(struct sim *sim, unsigned number)
{
	sim->nodes[number].pieces->looks = true;
	pieces_at(sim, LOOK_MS * MS, PIECES_LOOK, number, 0, 0);
}

void state_work_wake(struct member *member)
{
	unsigned number;
	struct sim *sim = pieces_sim(member, &number);

	if (!sim->nodes[number].pieces->turns)
		pieces_turn_at(sim, number, sim_between(sim, 0, 1 * MS));
}

void state_work_look(struct member *member)
{
	unsigned number;
	struct sim *sim = pieces_sim(member, &number);

	if (!sim->nodes[number].pieces->looks)
		pieces_look_at(sim, number);
}

static void pieces_turn(struct sim *sim, unsigned number)
{
	struct member *member = pieces_member(sim, number);
	bool more = state_send_turn(member);

	more = state_receive_turn(member) || more;
	sim->nodes[number].pieces->turns = false;
	if (more)
		pieces_turn_at(sim, number, 1);
}

static void pieces_look(struct sim *sim, unsigned number)
{
	bool more = state_send_look(pieces_member(sim, number));

	sim->nodes[number].pieces->looks = false;
	if (more)
		pieces_look_at(sim, number);
}

void pieces_event(struct sim *sim, unsigned a, unsigned b, uint64_t stamp)
{
	enum pieces_event what = (enum pieces_event)(stamp % PIECES_EVENTS);

	if (what == PIECES_LINK) {
		sim->links[a][b].used = true;
		pieces_link_up(sim, a);
	} else if (what == PIECES_TURN) {
		pieces_turn(sim, a);
	} else if (what == PIECES_LOOK) {
		pieces_look(sim, a);
	} else {
		conn_event(sim, what, stamp / PIECES_EVENTS);
	}
}
