/* Relays: for each direction in which one member dials another in vain, a node through which it gets there. The relay is one that
 * both can dial, as far as is known: nothing tells that beforehand, so what does not work is not tried again, and after
 * TR_RELAY_TRIES_MAX nodes it is ourselves, whom both have dialled. If that does not do either, link.c decides who goes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

/* Ourselves, as a relay. In a row of a view: node 0, and no address but the one at which each dials us. */
#define US UINT64_MAX

bool relay_may_help(const char *reason)
{
	static const char beginning[] = "cannot reach";
	return strncmp(reason, beginning, sizeof(beginning) - 1) == 0;
}

/* ---- what is remembered ---- */

static struct way *way_find(const struct group *group, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < group->soft.ways.count; i++) {
		struct way *way = group->soft.ways.items[i];
		if (way->from == from && way->to == to)
			return way;
	}
	return NULL;
}

static struct way *way_add(struct membership *m, struct group *group, uint64_t from, uint64_t to)
{
	if (group->soft.ways.count >= TR_RELAYED_PAIRS_MAX)
		return NULL;
	struct way *way = state_alloc(m, sizeof(*way));
	if (way == NULL)
		return NULL;
	way->from = from;
	way->to = to;
	if (list_add(m, &group->soft.ways, way))
		return way;
	free(way);
	return NULL;
}

/* After a restart the view is what we know. */
static void remember_view(struct membership *m, struct group *group)
{
	const Traind__Peer__View *view = group->view != NULL ? group->view->view : NULL;
	for (size_t i = 0; view != NULL && i < view->n_relayed; i++) {
		const Traind__Peer__Relayed *row = view->relayed[i];
		if (way_find(group, row->from, row->to) != NULL)
			continue;
		struct way *way = way_add(m, group, row->from, row->to);
		if (way == NULL)
			return;
		way->node = row->node != 0 ? row->node : US;
		way->of_old = true;
		way->token[0] = row->token_low;
		way->token[1] = row->token_high;
	}
}

static bool live(const struct membership *m, const struct group *group, uint64_t id)
{
	const struct peer *peer = state_group_peer(m, group, id);
	return peer != NULL && state_peer_live(peer);
}

static void forget_the_dead(const struct membership *m, struct group *group)
{
	for (size_t i = group->soft.ways.count; i-- > 0;) {
		struct way *way = group->soft.ways.items[i];
		if (live(m, group, way->from) && live(m, group, way->to))
			continue;
		list_remove(&group->soft.ways, i);
		free(way);
	}
}

/* The present view has this way as we know it: its members have tried it. */
static bool was_tried(const struct group *group, const struct way *way)
{
	const Traind__Peer__View *view = group->view != NULL ? group->view->view : NULL;
	for (size_t i = 0; view != NULL && i < view->n_relayed; i++) {
		const Traind__Peer__Relayed *row = view->relayed[i];
		if (row->from == way->from && row->to == way->to)
			return (row->node != 0 ? row->node : US) == way->node &&
			    row->token_low == way->token[0] && row->token_high == way->token[1];
	}
	return false;
}

/* What went through us broke with us: that says nothing of what comes after a restart. */
static void note_failure(struct way *way)
{
	if (way->node == US)
		way->tried_us = !way->of_old;
	else if (way->tried_count < TR_RELAY_TRIES_MAX)
		way->tried[way->tried_count++] = way->node;
}

void relay_complain(struct membership *m, struct group *group, const Traind__Peer__LinkLost *lost)
{
	remember_view(m, group);
	struct way *way = way_find(group, lost->peer, lost->lost);
	if (way == NULL)
		way = way_add(m, group, lost->peer, lost->lost);
	if (way == NULL)
		return;
	way->heard = lost->heard;
	if (way->node != 0 && !was_tried(group, way))
		return; /* said again, of the view before */
	if (way->node != 0)
		note_failure(way);
	way->node = 0;
	/* An event of its own for each complaint: no two pairs take theirs from the same. */
	memcpy(way->token, m->secret, sizeof(way->token));
}

/* ---- who relays ---- */

static uint64_t node_of(const struct membership *m, const struct group *group, uint64_t id)
{
	const struct peer *peer = state_group_peer(m, group, id);
	return peer != NULL ? peer->node : 0;
}

/* Somebody there dialled somebody here in vain. */
static bool known_bad(const struct membership *m, const struct group *group, uint64_t from_node,
    uint64_t to_node)
{
	for (size_t i = 0; i < group->soft.ways.count; i++) {
		const struct way *way = group->soft.ways.items[i];
		if (node_of(m, group, way->from) == from_node &&
		    node_of(m, group, way->to) == to_node)
			return true;
	}
	return false;
}

static bool tried(const struct way *way, uint64_t node)
{
	for (size_t i = 0; i < way->tried_count; i++)
		if (way->tried[i] == node)
			return true;
	return false;
}

static bool serves(const struct node *node)
{
	return !node->lost && node->soft.conn != 0 && node->soft.closing[0] == '\0';
}

static bool hosts_member(const struct membership *m, const struct group *group, uint64_t node)
{
	const Traind__Peer__View *view = group->view != NULL ? group->view->view : NULL;
	for (size_t i = 0; view != NULL && i < view->n_peers; i++)
		if (node_of(m, group, view->peers[i]->peer) == node)
			return true;
	return false;
}

static bool accused(const struct membership *m, const struct group *group, uint64_t node)
{
	for (size_t i = 0; i < group->soft.ways.count; i++)
		if (node_of(m, group, ((struct way *)group->soft.ways.items[i])->to) == node)
			return true;
	return false;
}

/* Lower is better. Who dials is its own relay if it can be dialled: the other end has only to come and wait. A node that
 * somebody dialled in vain is likely to be behind a NAT. */
enum rank {
	RANK_ITSELF_HEARD,
	RANK_ITSELF,
	RANK_MEMBER,
	RANK_NODE,
	RANK_ACCUSED,
	RANK_NONE = 2 * RANK_ACCUSED
};

static enum rank rank_of(const struct membership *m, const struct group *group,
    const struct way *way, const struct node *node)
{
	uint64_t from = node_of(m, group, way->from), to = node_of(m, group, way->to);
	if (!serves(node) || node->id == to || tried(way, node->id) ||
	    known_bad(m, group, to, node->id))
		return RANK_NONE;
	if (node->id == from && way->heard)
		return RANK_ITSELF_HEARD;
	enum rank worse = accused(m, group, node->id) ? RANK_ACCUSED : 0;
	if (node->id == from)
		return worse + RANK_ITSELF;
	if (known_bad(m, group, from, node->id))
		return RANK_NONE;
	if (hosts_member(m, group, node->id))
		return worse + RANK_MEMBER;
	return node->hello->slots > 0 ? worse + RANK_NODE : RANK_NONE;
}

/* Ties: the nearest to us; then the first. */
static const struct node *best_node(const struct membership *m, const struct group *group,
    const struct way *way)
{
	const struct node *best = NULL;
	enum rank best_rank = RANK_NONE;
	if (way->tried_count == TR_RELAY_TRIES_MAX)
		return NULL;
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		enum rank rank = rank_of(m, group, way, node);
		if (rank > best_rank || rank == RANK_NONE ||
		    (rank == best_rank && best != NULL &&
		        (uint64_t)(1000 * node->soft.rtt_s) >= (uint64_t)(1000 * best->soft.rtt_s)))
			continue;
		best = node;
		best_rank = rank;
	}
	return best;
}

/* 0: nobody. */
static uint64_t choose(const struct membership *m, const struct group *group, const struct way *way)
{
	const struct node *node = best_node(m, group, way);
	if (node != NULL)
		return node->id;
	return m->options.relays && !way->tried_us ? US : 0;
}

static void use(struct membership *m, const struct group *group, struct way *way, uint64_t relay,
    char words[REASON_MAX])
{
	char through[TR_NAME_MAX + 32] = "memberd";
	if (relay != US)
		(void)snprintf(through, sizeof(through), "node n%llu (%s)",
		    (unsigned long long)relay, state_node(m, relay)->hello->name);
	way->node = relay;
	way->of_old = false;
	(void)snprintf(words, REASON_MAX, "peer p%llu gets to peer p%llu through %s",
	    (unsigned long long)way->from, (unsigned long long)way->to, through);
	action_log(m, false, "group %llu: %s", (unsigned long long)group->id, words);
}

size_t relay_find(struct membership *m, struct group *group, char reason[REASON_MAX])
{
	size_t said = 0;
	for (size_t i = 0; i < group->soft.complaints_count; i++) {
		const struct complaint *c = &group->soft.complaints[i];
		struct way *way = way_find(group, c->from, c->about);
		char words[REASON_MAX];
		if (!c->unreachable)
			continue;
		uint64_t relay = way != NULL && relay_may_help(c->reason) ? choose(m, group, way)
		                                                          : 0;
		if (relay == 0)
			return 0;
		use(m, group, way, relay, words);
		if (said == 0)
			(void)snprintf(reason, REASON_MAX, "%.130s: %.120s", words, c->reason);
		said = said == 0 ? i + 1 : said;
	}
	return said;
}

/* ---- views ---- */

static const Traind__Peer__ViewPeer *among(const Traind__Peer__View *view, uint64_t id)
{
	for (size_t i = 0; i < view->n_peers; i++)
		if (view->peers[i]->peer == id)
			return view->peers[i];
	return NULL;
}

static bool still_relays(const struct membership *m, const struct way *way)
{
	const struct node *node = state_node(m, way->node);
	return way->node == US ? m->options.relays : node != NULL && serves(node);
}

/* Without a relay the direct way is tried again. */
static void look_for_relay(struct membership *m, const struct group *group, struct way *way)
{
	if (still_relays(m, way))
		return;
	char words[REASON_MAX];
	uint64_t relay = choose(m, group, way);
	way->node = 0;
	if (relay != 0)
		use(m, group, way, relay, words);
}

static void fill_row(const struct membership *m, const struct group *group, const struct way *way,
    Traind__Peer__Relayed *row)
{
	traind__peer__relayed__init(row);
	row->group = group->id;
	row->from = way->from;
	row->to = way->to;
	if (way->node != US) {
		row->node = way->node;
		row->address = state_node(m, way->node)->hello->address;
	}
	row->token_low = way->token[0];
	row->token_high = way->token[1];
}

void relay_fill(struct membership *m, struct group *group, Traind__Peer__View *view)
{
	remember_view(m, group);
	forget_the_dead(m, group);
	size_t most = group->soft.ways.count;
	Traind__Peer__Relayed *rows = most > 0 ? state_alloc(m, most * sizeof(*rows)) : NULL;
	view->relayed = most > 0 ? state_alloc(m, most * sizeof(Traind__Peer__Relayed *)) : NULL;
	view->n_relayed = 0;
	if (rows == NULL || view->relayed == NULL) {
		free(rows);
		free(view->relayed);
		view->relayed = NULL;
		return;
	}
	view->relayed[0] = rows; /* for relay_unfill */
	for (size_t i = 0; i < most; i++) {
		struct way *way = group->soft.ways.items[i];
		if (among(view, way->from) == NULL || among(view, way->to) == NULL)
			continue;
		look_for_relay(m, group, way);
		if (way->node == 0)
			continue;
		fill_row(m, group, way, &rows[view->n_relayed]);
		view->relayed[view->n_relayed] = &rows[view->n_relayed];
		view->n_relayed++;
	}
}

void relay_unfill(Traind__Peer__View *view)
{
	if (view->relayed != NULL)
		free(view->relayed[0]);
	free(view->relayed);
	view->relayed = NULL;
	view->n_relayed = 0;
}

size_t relay_rows_of(const struct membership *m, const struct group *group, uint64_t conn,
    Traind__Peer__Relayed **rows)
{
	const Traind__Peer__View *view = group->view->view;
	size_t count = 0;
	for (size_t i = 0; i < view->n_relayed; i++) {
		const struct node *node = state_node(m, node_of(m, group, view->relayed[i]->from));
		if (node != NULL && node->soft.conn == conn)
			rows[count++] = view->relayed[i];
	}
	return count;
}

/* ---- duties ---- */

/* `node`: whose; 0: ours. */
static void duties_add(struct membership *m, Traind__Peer__RelayDuties *duties, uint64_t node,
    const struct group *group)
{
	const Traind__Peer__View *view = group->view != NULL ? group->view->view : NULL;
	for (size_t i = 0; view != NULL && i < view->n_relayed; i++) {
		Traind__Peer__Relayed *row = view->relayed[i];
		if (!live(m, group, row->from) || !live(m, group, row->to))
			continue;
		bool relays = row->node == node;
		bool waits = node != 0 && node_of(m, group, row->to) == node;
		if (!relays && !waits)
			continue;
		Traind__Peer__Relayed ***list = relays ? &duties->relays : &duties->waits;
		size_t *count = relays ? &duties->n_relays : &duties->n_waits;
		Traind__Peer__Relayed **grown = realloc(*list,
		    (*count + 1) * sizeof(Traind__Peer__Relayed *));
		if (grown == NULL) {
			m->oom = true;
			return;
		}
		*list = grown;
		grown[(*count)++] = row; /* borrowed */
	}
}

static uint64_t digest_of(const Traind__Peer__RelayDuties *duties)
{
	struct tr_digest digest = { duties->n_relays, duties->n_waits };
	for (size_t i = 0; i < duties->n_relays + duties->n_waits; i++) {
		const Traind__Peer__Relayed *row = i < duties->n_relays
		    ? duties->relays[i]
		    : duties->waits[i - duties->n_relays];
		const uint64_t parts[] = { row->group, row->from, row->to, row->node,
			row->token_low, row->token_high };
		digest = tr_digest_fold(digest, tr_digest_of(parts, sizeof(parts)));
	}
	return duties->n_relays + duties->n_waits == 0 ? 0 : digest.low | 2;
}

static bool any_relayed(const struct membership *m)
{
	for (size_t i = 0; i < m->groups.count; i++) {
		const struct group *group = m->groups.items[i];
		if (group->view != NULL && group->view->view->n_relayed > 0)
			return true;
	}
	return false;
}

void relay_look(struct membership *m)
{
	m->relaying = m->relaying || any_relayed(m);
}

/* True: they are others than it was told. duties_free in either case. */
static bool duties_of(struct membership *m, uint64_t node, uint64_t *told,
    Traind__Peer__RelayDuties *duties)
{
	traind__peer__relay_duties__init(duties);
	for (size_t i = 0; i < m->groups.count; i++)
		duties_add(m, duties, node, m->groups.items[i]);
	uint64_t digest = digest_of(duties);
	bool changed = digest != *told && !m->oom;
	*told = digest;
	return changed;
}

static void duties_free(Traind__Peer__RelayDuties *duties)
{
	free(duties->relays);
	free(duties->waits);
}

static void tell_node(struct membership *m, struct node *node)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__RelayDuties duties;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_RELAY_DUTIES;
	message.relay_duties = &duties;
	if (duties_of(m, node->id, &node->soft.duties, &duties))
		action_send(m, node->soft.conn, &message);
	duties_free(&duties);
}

void relay_tell(struct membership *m)
{
	Traind__Peer__RelayDuties ours;
	if (!m->relaying)
		return;
	/* Ours first: who is told after it finds us ready. */
	if (m->options.relays) {
		if (duties_of(m, 0, &m->duties, &ours))
			action_relay(m, &ours);
		duties_free(&ours);
	}
	for (size_t i = 0; i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		if (serves(node))
			tell_node(m, node);
	}
}
