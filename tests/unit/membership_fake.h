/* Nodes of a sort for random tests of memberd's core: they host peers, answer proposals, lose what was sent to a closed
 * connection. What memberd sends is checked as it is delivered.
 */
#ifndef TR_TESTS_UNIT_MEMBERSHIP_FAKE_H
#define TR_TESTS_UNIT_MEMBERSHIP_FAKE_H

#include "common/digest.h"
#include "common/rng.h"
#include "tests/unit/membership_harness.h"

#define NODES     5
#define PEERS_MAX 64
#define STEPS     3000

struct fake_peer {
	uint64_t job, group, peer, view, committed, begun, attempt;
	bool ready;
};

/* A traind of sorts; its life is its incarnation. */
struct fake_node {
	uint64_t conn, id, incarnation;
	struct fake_peer peers[PEERS_MAX];
	size_t count;
};

struct seen_view {
	uint64_t group, number;
	struct tr_digest digest;
};

struct trial {
	struct world w;
	struct fake_node nodes[NODES];
	uint64_t seed, draws, next_conn, next_incarnation, requests;
	struct seen_view *views;
	size_t views_count;
	struct {
		uint64_t peer, node;
	} * places;
	size_t places_count;
	size_t snapshot_at; /* log entries that the snapshot covers */
	uint8_t *snapshot;
	size_t snapshot_size;
};

static inline uint64_t draw(struct trial *t, uint64_t bound)
{
	return rng_below(rng_key(t->seed, 0, 0), 0, t->draws++, bound);
}

#define HOLD(t, what)                                                                    \
	do {                                                                             \
		if (!(what))                                                             \
			fail_msg("seed %llu: %s", (unsigned long long)(t)->seed, #what); \
	} while (0)

static inline struct fake_node *node_of(struct trial *t, uint64_t conn)
{
	for (size_t i = 0; i < NODES; i++)
		if (t->nodes[i].conn == conn && conn != 0)
			return &t->nodes[i];
	return NULL;
}

static inline struct fake_peer *peer_of(struct fake_node *node, uint64_t id)
{
	for (size_t i = 0; i < node->count; i++)
		if (node->peers[i].peer == id)
			return &node->peers[i];
	return NULL;
}

static inline void forget_peer(struct fake_node *node, uint64_t id)
{
	struct fake_peer *peer = peer_of(node, id);
	if (peer != NULL)
		*peer = node->peers[--node->count];
}

static inline void place(struct trial *t, struct fake_node *node, uint64_t job, uint64_t group,
    uint64_t id)
{
	for (size_t i = 0; i < t->places_count; i++)
		if (t->places[i].peer == id)
			HOLD(t,
			    t->places[i].node ==
			        node->incarnation); /* told twice, but the same place */
	t->places = realloc(t->places, (t->places_count + 1) * sizeof(*t->places));
	t->places[t->places_count].peer = id;
	t->places[t->places_count++].node = node->incarnation;
	if (peer_of(node, id) == NULL && node->count < PEERS_MAX)
		node->peers[node->count++] = (struct fake_peer){ .job = job,
			.group = group,
			.peer = id };
}

static inline struct tr_digest digest_of(const Traind__Peer__ViewInstall *install)
{
	Traind__Peer__ViewInstall copy = *install;
	Traind__Peer__View view = *install->view;
	view.n_relayed = 0; /* each node gets its own rows */
	copy.view = &view;
	copy.recorded_round = 0; /* may grow between deliveries */
	size_t size = traind__peer__view_install__get_packed_size(&copy);
	uint8_t *bytes = malloc(size + 1);
	traind__peer__view_install__pack(&copy, bytes);
	struct tr_digest digest = tr_digest_of(bytes, size);
	free(bytes);
	return digest;
}

static inline bool is_durable(const struct trial *t, const Traind__Peer__View *view)
{
	bool found = false;
	for (size_t i = t->w.log_count; !found && i-- > 0;) {
		Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL,
		    t->w.log[i].size, t->w.log[i].data);
		found = entry->body_case == TRAIND__PEER__LOG_ENTRY__BODY_VIEW &&
		    entry->view->view->group == view->group &&
		    entry->view->view->number == view->number;
		traind__peer__log_entry__free_unpacked(entry, NULL);
	}
	return found;
}

static inline void check_install(struct trial *t, const Traind__Peer__ViewInstall *install)
{
	const Traind__Peer__View *view = install->view;
	struct tr_digest digest = digest_of(install);
	uint64_t newest = 0;
	HOLD(t, view->n_peers > 0 && view->hub < view->n_peers && view->n_ring == view->n_peers);
	HOLD(t, install->resume->n_contributors > 0);
	for (size_t i = 0; i < t->views_count; i++) {
		if (t->views[i].group != view->group)
			continue;
		newest = t->views[i].number > newest ? t->views[i].number : newest;
		if (t->views[i].number == view->number) {
			HOLD(t, tr_digest_equal(t->views[i].digest, digest));
			return;
		}
	}
	HOLD(t, view->number > newest);
	HOLD(t, is_durable(t, view));
	t->views = realloc(t->views, (t->views_count + 1) * sizeof(*t->views));
	t->views[t->views_count++] = (struct seen_view){ .group = view->group,
		.number = view->number,
		.digest = digest };
}

static inline void installed(struct trial *t, struct fake_node *node,
    const Traind__Peer__ViewInstall *install)
{
	check_install(t, install);
	for (size_t i = 0; i < install->view->n_peers; i++) {
		const Traind__Peer__ViewPeer *row = install->view->peers[i];
		struct fake_peer *peer = peer_of(node, row->peer);
		if (peer == NULL || peer->view >= install->view->number)
			continue;
		peer->view = install->view->number;
		if (peer->committed + 1 < install->resume->base_round && row->donor == 0)
			peer->committed = install->resume->base_round - 1;
		peer->attempt = install->resume->base_attempt;
	}
}

static inline void answer(struct trial *t, struct fake_node *node,
    const Traind__Peer__ViewPropose *propose)
{
	for (size_t i = 0; i < propose->n_members; i++) {
		struct fake_peer *peer = peer_of(node, propose->members[i]);
		if (peer == NULL || draw(t, 12) == 0)
			continue; /* a report that is never sent: its member is silent */
		uint8_t bits = (uint8_t)draw(t, 256);
		peer->begun = peer->committed + draw(t, 2);
		report(&t->w, node->conn, propose->group, peer->peer, propose->number, peer->view,
		    peer->view == 0 ? 0 : peer->committed, peer->begun, peer->attempt,
		    draw(t, 2) == 0, bits, bits & (uint8_t)draw(t, 256));
	}
}

static inline void deliver(struct trial *t, uint64_t conn, const Traind__Peer__ToNode *message)
{
	struct fake_node *node = node_of(t, conn);
	HOLD(t, node != NULL || message->body_case == TRAIND__PEER__TO_NODE__BODY_REFUSED);
	if (node == NULL)
		return;
	switch (message->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
		node->id = message->welcome->node_id;
		break;
	case TRAIND__PEER__TO_NODE__BODY_START_WORKER:
		place(t, node, message->start_worker->job_id, message->start_worker->group,
		    message->start_worker->peer);
		break;
	case TRAIND__PEER__TO_NODE__BODY_GROUP_JOINED:
		place(t, node, 0, message->group_joined->group, message->group_joined->peer);
		break;
	case TRAIND__PEER__TO_NODE__BODY_STOP_WORKER:
		if (peer_of(node, message->stop_worker->peer) != NULL && draw(t, 4) != 0) {
			forget_peer(node, message->stop_worker->peer);
			exited(&t->w, conn, message->stop_worker->job_id,
			    message->stop_worker->peer, 0, 15, "");
		}
		break;
	case TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED:
		if (peer_of(node, message->peer_evicted->peer) != NULL &&
		    peer_of(node, message->peer_evicted->peer)->job == 0)
			forget_peer(node, message->peer_evicted->peer);
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL:
		installed(t, node, message->view_install);
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE:
		answer(t, node, message->view_propose);
		break;
	default:
		break;
	}
}

/* What was sent and not delivered yet. */
struct letter {
	uint64_t conn;
	uint8_t *bytes;
	size_t size;
};
static struct letter letters[65536];
static size_t letters_first, letters_count;

static inline void post(struct world *w, const struct membership_action *a)
{
	(void)w;
	if (a->kind != MEMBERSHIP_DO_SEND || letters_count == sizeof(letters) / sizeof(letters[0]))
		return;
	struct letter *letter = &letters[letters_count++];
	letter->conn = a->conn;
	letter->size = traind__peer__to_node__get_packed_size(a->message);
	letter->bytes = malloc(letter->size + 1);
	traind__peer__to_node__pack(a->message, letter->bytes);
}

static inline void deliver_one(struct trial *t)
{
	if (letters_first == letters_count)
		return;
	struct letter letter = letters[letters_first++];
	if (node_of(t, letter.conn) != NULL) { /* else it went down with its connection */
		Traind__Peer__ToNode *message = traind__peer__to_node__unpack(NULL, letter.size,
		    letter.bytes);
		deliver(t, letter.conn, message);
		traind__peer__to_node__free_unpacked(message, NULL);
	}
	free(letter.bytes);
}

static inline void say_hello(struct trial *t, struct fake_node *node)
{
	Traind__Peer__PeerHere rows[PEERS_MAX], *list[PEERS_MAX];
	node->conn = ++t->next_conn;
	for (size_t i = 0; i < node->count; i++) {
		traind__peer__peer_here__init(&rows[i]);
		rows[i].job_id = node->peers[i].job;
		rows[i].group = node->peers[i].group;
		rows[i].peer = node->peers[i].peer;
		rows[i].view = node->peers[i].view;
		rows[i].committed_round = node->peers[i].committed;
		rows[i].ready = node->peers[i].ready;
		list[i] = &rows[i];
	}
	hello_with(&t->w, node->conn, node->id, node->incarnation, 2, list, node->count);
}

static inline void close_connection(struct trial *t, struct fake_node *node)
{
	uint64_t conn = node->conn;
	node->conn = 0;
	if (conn != 0)
		world_closed(&t->w, conn, "reset by peer");
}

#endif
