#include "collectives/core/roster.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"

/* One allocation for all arrays, widest elements first. */
static tr_status roster_reserve(struct roster *roster, unsigned peers, unsigned contributors,
    struct tr_error *error)
{
	size_t words = (size_t)peers + contributors;
	char *at = calloc(1,
	    words * sizeof(uint64_t) +
	        peers * (sizeof(uint32_t) + 6 * sizeof(unsigned) + 2 * sizeof(bool)) +
	        sizeof(unsigned) + 1);
	if (!at)
		return tr_error_set(error, TR_ENOMEM, "out of memory for a roster");
	roster->memory = at;
	roster->peers = (uint64_t *)at;
	roster->contributors = roster->peers + peers;
	roster->bit = (uint32_t *)(roster->contributors + contributors);
	roster->order = (unsigned *)(roster->bit + peers);
	roster->place = roster->order + peers;
	roster->host = roster->place + peers;
	roster->by_host = roster->host + peers;
	roster->host_first = roster->by_host + peers;
	roster->outer = roster->host_first + peers + 1;
	roster->live = (bool *)(roster->outer + peers);
	roster->live_at = roster->live + peers;
	return TR_OK;
}

static void roster_own_contributors(struct roster *roster, const struct view *view)
{
	for (unsigned i = 0; i < view->count; i++)
		if (view->peers[i].contribute_from <= roster->round)
			roster->contributors[roster->contributor_count++] = view->peers[i].peer;
}

static uint32_t roster_bit(const struct roster *roster, uint64_t peer)
{
	for (uint32_t i = 0; i < roster->contributor_count; i++)
		if (roster->contributors[i] == peer)
			return i;
	return ROSTER_NONE;
}

static void roster_place(struct roster *roster, const struct view *view)
{
	unsigned place = 0;
	for (unsigned i = 0; i < view->count; i++) {
		uint64_t peer = view->peers[view->ring[i]].peer;
		unsigned who = view->deterministic ? (i < roster->n ? i : ROSTER_NONE)
		                                   : roster_find(roster, peer);
		if (who == ROSTER_NONE)
			continue;
		roster->order[place] = who;
		roster->place[who] = place;
		roster->live_at[place] = roster->live[who];
		place++;
	}
	assert(place == roster->n);
}

/* Who owns what, and who shares a host; `who` has the participants' indices in the view. */
static void roster_spread(struct roster *roster, const struct view *view, const unsigned *who)
{
	unsigned number[TR_GROUP_PEERS_MAX], at = 0;

	/* Who gives nothing owns nothing: it is sent the result once, and no inputs. */
	const bool *live = roster->live_count > 0 && roster->live_count < roster->n ? roster->live
	                                                                            : NULL;
	if (roster->n == view->count && live == NULL)
		memcpy(roster->owners, view->owners, sizeof(roster->owners));
	else if (roster->n > 0)
		view_owners(view, who, roster->n, live, roster->owners);
	for (unsigned i = 0; i < view->count; i++)
		number[i] = ROSTER_NONE;
	roster->maps = true;
	for (unsigned i = 0; i < roster->n; i++) {
		roster->maps = roster->maps && view->peers[who[i]].maps;
		unsigned *host = &number[view->peers[who[i]].host];
		if (*host == ROSTER_NONE)
			*host = roster->host_count++;
		roster->host[i] = *host;
	}
	for (unsigned host = 0; host < roster->host_count; host++) {
		roster->host_first[host] = at;
		for (unsigned i = 0; i < roster->n; i++)
			if (roster->host[i] == host)
				roster->by_host[at++] = i;
	}
	roster->host_first[roster->host_count] = at;
	for (unsigned host = 0; host < roster->host_count; host++)
		if (roster->host_first[host + 1] - roster->host_first[host] > roster->host_peers)
			roster->host_peers = roster->host_first[host + 1] -
			    roster->host_first[host];
}

/* What the cost model wants to know of the links. Who was not measured counts as the slowest that was. */
static void roster_links(struct roster *roster, const struct view *view, const unsigned *who)
{
	unsigned owned[TR_GROUP_PEERS_MAX] = { 0 };
	double slowest = 0;

	for (unsigned i = 0; i < roster->n; i++) {
		double bandwidth = view->peers[who[i]].bandwidth_bytes_per_s;
		if (bandwidth > 0 && (slowest == 0 || bandwidth < slowest))
			slowest = bandwidth;
	}
	if (slowest == 0) {
		roster->bandwidth_bytes_per_s = view->bandwidth_bytes_per_s;
		return;
	}
	roster->bandwidth_bytes_per_s = slowest;
	roster->hub_bandwidth_bytes_per_s = view->peers[who[roster->hub]].bandwidth_bytes_per_s;
	for (unsigned k = 0; k < SHARES_OWNERS; k++)
		owned[roster->owners[k]]++;
	for (unsigned i = 0; i < roster->n; i++) {
		double bandwidth = view->peers[who[i]].bandwidth_bytes_per_s;
		double share = (double)owned[i] / SHARES_OWNERS;
		double slowness = bandwidth > 0 ? slowest / bandwidth : 1;
		double load = (1 + (roster->n - 2.0) * share) * slowness;
		if (load > roster->direct_load)
			roster->direct_load = load;
		if ((1 - share) * slowness > roster->direct_given)
			roster->direct_given = (1 - share) * slowness;
	}
}

/* A finished attempt may list a peer that was taken out and came back as a joiner: its data no longer counts. */
static bool roster_counts(const struct view_peer *peer, uint64_t round, bool resumed)
{
	return !resumed || peer->contribute_from <= round;
}

/* All that follows from who takes part; `who` has the participants' indices in the view. */
static void roster_arrange(struct roster *roster, const struct view *view, const unsigned *who,
    uint64_t me)
{
	roster_place(roster, view);
	roster_spread(roster, view, who);
	roster->me = roster_find(roster, me);
	/* A hub that has only just joined does not take part yet, or is not in the scope: the lowest id stands in. */
	roster->hub = roster_find(roster, view->peers[view->hub].peer);
	if (roster->hub == ROSTER_NONE)
		roster->hub = 0;
	if (roster->n > 0)
		roster_links(roster, view, who);
}

tr_status roster_init(struct roster *roster, const struct view *view, uint64_t round,
    uint64_t attempt, const uint64_t *contributors, size_t contributor_count, uint64_t me,
    struct tr_error *error)
{
	if (contributors && contributor_count > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EPROTO, "bad resume: %zu contributors",
		    contributor_count);
	unsigned who[TR_GROUP_PEERS_MAX] = { 0 };
	*roster = (struct roster){ .round = round,
		.attempt = attempt,
		.deterministic = view->deterministic };
	unsigned most = contributors ? (unsigned)contributor_count : view->count;
	tr_status st = roster_reserve(roster, view->count, most, error);
	if (st != TR_OK)
		return st;
	for (unsigned i = 0; i < view->count; i++)
		if (view->peers[i].participate_from <= round) {
			who[roster->n] = i;
			roster->peers[roster->n++] = view->peers[i].peer;
		}
	for (size_t i = 0; contributors && i < contributor_count; i++)
		roster->contributors[roster->contributor_count++] = contributors[i];
	if (!contributors)
		roster_own_contributors(roster, view);
	for (unsigned i = 0; i < roster->n; i++) {
		const struct view_peer *peer = view_find(view, roster->peers[i]);
		roster->bit[i] = roster_bit(roster, roster->peers[i]);
		roster->live[i] = roster->bit[i] != ROSTER_NONE &&
		    roster_counts(peer, round, contributors);
		roster->live_count += roster->live[i];
	}
	roster->outer = NULL;
	roster_arrange(roster, view, who, me);
	return TR_OK;
}

tr_status roster_scope(struct roster *roster, const struct roster *whole, const struct view *view,
    const uint8_t *bits, unsigned count, uint64_t me, struct tr_error *error)
{
	unsigned who[TR_GROUP_PEERS_MAX] = { 0 };

	*roster = (struct roster){ .round = whole->round,
		.attempt = whole->attempt,
		.deterministic = whole->deterministic };
	tr_status st = roster_reserve(roster, count, count, error);
	if (st != TR_OK)
		return st;
	for (unsigned bit = 0; bit < whole->contributor_count; bit++) {
		if (!bits_get(bits, bit))
			continue;
		uint64_t peer = whole->contributors[bit];
		unsigned at = roster_find(whole, peer), index = roster->contributor_count++;
		roster->contributors[index] = peer;
		if (at == ROSTER_NONE || !whole->live[at])
			continue;
		who[roster->n] = (unsigned)(view_find(view, peer) - view->peers);
		roster->bit[roster->n] = index;
		roster->live[roster->n] = true;
		roster->outer[roster->n] = at;
		roster->peers[roster->n++] = peer;
	}
	assert(roster->contributor_count == count);
	roster->live_count = roster->n;
	roster_arrange(roster, view, who, me);
	return TR_OK;
}

void roster_finish(struct roster *roster)
{
	free(roster->memory);
	*roster = (struct roster){ .me = ROSTER_NONE };
}

unsigned roster_find(const struct roster *roster, uint64_t peer)
{
	unsigned low = 0, high = roster->n;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		if (roster->peers[middle] == peer)
			return middle;
		if (roster->peers[middle] < peer)
			low = middle + 1;
		else
			high = middle;
	}
	return ROSTER_NONE;
}
