/* Records of committed rounds on their way to the log: durable, each once. */
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define BATCH_MAX 65536u
#define ENTRY_BYTES \
	(1u << 20) /* of records in one entry; the log refuses one of 4 MiB, and so it would for ever */

/* What its members may forget: what has none missing before it. What is missing may wait here, or be on its way, and who tells it would forget that with the rest; they tell it
 * again every TR_RECORDS_AGAIN_MS. So what is behind a gap that has lasted for long nobody can fill (a member had no room for more while memberd was away), and may be forgotten. */
static uint64_t recorded_up_to(const struct membership *m, struct group *group)
{
	const struct ledger *ledger = state_ledger(m, group);
	uint64_t frontier = ledger_frontier(ledger), newest = ledger_newest(ledger);

	if (frontier == newest || group->soft.gap_at != frontier || group->soft.gap_since_ms == 0) {
		group->soft.gap_at = frontier;
		group->soft.gap_since_ms = frontier == newest ? 0 : m->now_ms;
		return frontier;
	}
	bool waits = group->soft.refused || rounds_pending(m, group);
	bool lasts = m->now_ms - group->soft.gap_since_ms >= 3 * TR_RECORDS_AGAIN_MS;
	return lasts && !waits ? newest : frontier;
}

static void send_recorded(struct membership *m, uint64_t conn, struct group *group)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	recorded.group = group->id;
	recorded.round = recorded_up_to(m, group);
	recorded.frontier = ledger_frontier(state_ledger(m, group));
	message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	message.rounds_recorded = &recorded;
	action_send(m, conn, &message);
}

static void append_rounds(struct membership *m, struct group *group,
    Traind__Peer__RoundCommits *rounds)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_ROUNDS;
	entry.rounds = rounds;
	action_append(m, &entry, PENDING_ROUNDS, group->id, NULL);
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_round(const void *left, const void *right)
{
	const Traind__Peer__RoundCommit *a = *(Traind__Peer__RoundCommit *const *)left;
	const Traind__Peer__RoundCommit *b = *(Traind__Peer__RoundCommit *const *)right;
	const int order[] = { compare(a->round, b->round), compare(a->digest_low, b->digest_low),
		compare(a->digest_high, b->digest_high), compare(a->view, b->view),
		compare(a->attempt, b->attempt) };
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (order[i] != 0)
			return order[i];
	return 0;
}

static bool same_record(const Traind__Peer__RoundCommit *a, const Traind__Peer__RoundCommit *b)
{
	return a->round == b->round && a->digest_low == b->digest_low &&
	    a->digest_high == b->digest_high && a->n_contributors == b->n_contributors &&
	    memcmp(a->contributors, b->contributors,
	        a->n_contributors * sizeof(*a->contributors)) == 0;
}

/* After a time without us all members tell the same rounds at once: each waits once, the oldest first, and none that came into the log meanwhile. */
static void batch_tidy(const struct membership *m, const struct group *group)
{
	Traind__Peer__RoundCommits *batch = group->soft.batch;
	const struct ledger *ledger = state_ledger(m, group);
	size_t kept = 0;
	qsort(batch->rounds, batch->n_rounds, sizeof(Traind__Peer__RoundCommit *), by_round);
	for (size_t i = 0; i < batch->n_rounds; i++) {
		Traind__Peer__RoundCommit *row = batch->rounds[i];
		enum ledger_verdict verdict = ledger_look(ledger, row);
		if ((verdict != LEDGER_NEW && verdict != LEDGER_CONTRADICTS) ||
		    (kept > 0 && same_record(batch->rounds[kept - 1], row)))
			traind__peer__round_commit__free_unpacked(row, NULL);
		else
			batch->rounds[kept++] = row;
	}
	batch->n_rounds = kept;
}

/* Adds copies of the records to those that wait for the log. */
static void batch_add(struct membership *m, struct group *group,
    const Traind__Peer__RoundCommits *rounds)
{
	Traind__Peer__RoundCommits *batch = group->soft.batch;
	if (batch == NULL) {
		group->soft.batch = copy_message(m, &rounds->base);
		return;
	}
	if (batch->n_rounds + rounds->n_rounds > BATCH_MAX)
		batch_tidy(m, group);
	if (batch->n_rounds + rounds->n_rounds > BATCH_MAX) {
		action_ignored(m, "%zu round records of group %llu: the log does not keep up",
		    rounds->n_rounds, (unsigned long long)group->id);
		return;
	}
	Traind__Peer__RoundCommit **grown = realloc(batch->rounds,
	    (batch->n_rounds + rounds->n_rounds) * sizeof(*grown));
	if (grown == NULL) {
		m->oom = true;
		return;
	}
	batch->rounds = grown;
	for (size_t i = 0; i < rounds->n_rounds; i++) {
		Traind__Peer__RoundCommit *copy = copy_message(m, &rounds->rounds[i]->base);
		if (copy == NULL)
			return;
		batch->rounds[batch->n_rounds++] = copy;
	}
}

/* Those worth an entry: new ones, and contradictions, which are to be seen by all. Returns how
 * many. */
static size_t worth_it(struct membership *m, const struct group *group,
    const Traind__Peer__RoundCommits *rounds, Traind__Peer__RoundCommit **kept)
{
	const struct ledger *ledger = state_ledger(m, group);
	size_t count = 0;
	for (size_t i = 0; i < rounds->n_rounds; i++) {
		enum ledger_verdict verdict = ledger_look(ledger, rounds->rounds[i]);
		if (verdict == LEDGER_NEW || verdict == LEDGER_CONTRADICTS)
			kept[count++] = rounds->rounds[i];
		else if (verdict == LEDGER_BAD)
			action_ignored(m, "a malformed record of round %llu of group %llu",
			    (unsigned long long)rounds->rounds[i]->round,
			    (unsigned long long)group->id);
	}
	return count;
}

void rounds_told(struct membership *m, struct node *node, const Traind__Peer__RoundCommits *rounds)
{
	struct group *group = state_group(m, rounds->group);
	const struct peer *peer = group != NULL ? state_group_peer(m, group, rounds->peer) : NULL;
	/* It ended, and these were on their way: what it told last came with its end, and the others decide without it. */
	if (peer != NULL && peer->node == node->id && !state_peer_live(peer))
		return;
	if (peer == NULL || peer->node != node->id || state_ledger(m, group) == NULL ||
	    rounds->n_rounds == 0 || rounds->n_rounds > BATCH_MAX) {
		action_ignored(m,
		    "%zu round records of group %llu from node n%llu, which hosts no member of it",
		    rounds->n_rounds, (unsigned long long)rounds->group,
		    (unsigned long long)node->id);
		return;
	}
	Traind__Peer__RoundCommits copy = *rounds;
	copy.rounds = state_alloc(m, rounds->n_rounds * sizeof(*copy.rounds));
	if (copy.rounds == NULL)
		return;
	copy.n_rounds = worth_it(m, group, rounds, copy.rounds);
	group->soft.reply_conn = node->soft.conn;
	if (copy.n_rounds == 0) {
		send_recorded(m, node->soft.conn, group);
	} else {
		batch_add(m, group, &copy);
		rounds_think(m, group);
	}
	free(copy.rounds);
}

bool rounds_pending(const struct membership *m, const struct group *group)
{
	return group->soft.batch != NULL || pending_any(m, PENDING_ROUNDS, group->id);
}

void rounds_applied(struct membership *m, struct group *group)
{
	const struct ledger *ledger = state_ledger(m, group);
	if (!m->leading)
		return;
	group->soft.refused = group->soft.refused &&
	    ledger_frontier(ledger) < ledger_newest(ledger);
	if (state_node_of_conn(m, group->soft.reply_conn) != NULL)
		send_recorded(m, group->soft.reply_conn, group);
}

void rounds_refused(struct membership *m, uint64_t id)
{
	struct group *group = state_group(m, id);
	if (group != NULL)
		group->soft.refused = true;
}

/* Those before them are in the log, or did not get there. */
void rounds_think(struct membership *m, struct group *group)
{
	Traind__Peer__RoundCommits *batch = group->soft.batch;
	size_t count = 0, bytes = 0;
	if (batch == NULL || pending_any(m, PENDING_ROUNDS, group->id))
		return;
	batch_tidy(m, group);
	for (; count < batch->n_rounds && bytes < ENTRY_BYTES; count++)
		bytes += traind__peer__round_commit__get_packed_size(batch->rounds[count]);
	Traind__Peer__RoundCommits first = *batch;
	first.n_rounds = count;
	if (count > 0)
		append_rounds(m, group, &first);
	for (size_t i = 0; i < count; i++)
		traind__peer__round_commit__free_unpacked(batch->rounds[i], NULL);
	batch->n_rounds -= count;
	memmove(batch->rounds, batch->rounds + count, batch->n_rounds * sizeof(*batch->rounds));
	if (batch->n_rounds > 0)
		return;
	traind__peer__round_commits__free_unpacked(batch, NULL);
	group->soft.batch = NULL;
}
