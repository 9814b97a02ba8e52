#include "collectives/core/route.h"

#include <string.h>

#include "collectives/core/bits.h"

/* ---- ring ---- */

/* Where the chain starts: the first place that contributes, from the segment's own on. */
static unsigned ring_start(const struct route_of *of)
{
	const struct roster *roster = of->roster;
	unsigned first = roster->deterministic ? 0 : of->segment % roster->n;

	if (of->kind == OP_SOURCED) /* the chain ends at the source, which seals */
		return (roster->place[of->root] + 1) % roster->n;

	for (unsigned i = 0; i < roster->n; i++) {
		unsigned place = (first + i) % roster->n;
		if (roster->live_at[place])
			return place;
	}
	return first;
}

static void ring_find(const struct route_of *of, unsigned who, struct route *route)
{
	const struct roster *roster = of->roster;
	unsigned n = roster->n, place = roster->place[who];
	unsigned distance = (place + n - ring_start(of)) % n;
	unsigned next = roster->order[(place + 1) % n];
	unsigned previous = roster->order[(place + n - 1) % n];

	route->seals = distance == n - 1;
	if (distance > 0) {
		bits_set(route->children, previous);
		route->child_count = 1;
	}
	if (!route->seals) {
		route->up = next;
		route->down_from = previous;
	}
	/* From the sealer over the chain's start to the one before the sealer. */
	if (n > 1 && distance != n - 2)
		route->down_to[route->down_count++] = (uint8_t)next;
}

static void ring_set(const struct route_of *of, unsigned who, uint8_t *set)
{
	const struct roster *roster = of->roster;
	unsigned place = ring_start(of), last = roster->place[who];

	for (;; place = (place + 1) % roster->n) {
		if (roster->live_at[place])
			bits_set(set, roster->bit[roster->order[place]]);
		if (place == last)
			return;
	}
}

/* ---- trees ---- */

static unsigned route_root(const struct route_of *of)
{
	if (of->kind != OP_REDUCED)
		return of->root;
	if (of->algorithm == TR_STAR)
		return of->roster->hub;
	return of->roster->owners[((uint64_t)of->segment + of->tag) % SHARES_OWNERS];
}

static void flat_find(const struct route_of *of, unsigned who, struct route *route)
{
	const struct roster *roster = of->roster;
	unsigned root = route_root(of);

	route->seals = who == root;
	if (!route->seals) {
		route->up = roster->live[who] ? root : ROSTER_NONE;
		route->down_from = root;
		return;
	}
	/* Everybody begins with another one: else the first would get all results first. */
	for (unsigned i = 1, other = who; i < roster->n; i++) {
		other = other + 1 < roster->n ? other + 1 : 0;
		route->down_to[route->down_count++] = (uint8_t)other;
		if (!roster->live[other])
			continue;
		bits_set(route->children, other);
		route->child_count++;
	}
}

static void one_shot_find(const struct route_of *of, unsigned who, struct route *route)
{
	const struct roster *roster = of->roster;

	route->seals = true;
	route->spreads = roster->live[who] && roster->n > 1;
	for (unsigned i = 0; i < roster->n; i++) {
		if (i == who || !roster->live[i])
			continue;
		bits_set(route->children, i);
		route->child_count++;
	}
}

/* ---- hierarchical ---- */

static unsigned host_leader(const struct route_of *of, unsigned host, unsigned root)
{
	const struct roster *roster = of->roster;
	unsigned first = roster->host_first[host], size = roster->host_first[host + 1] - first;

	if (roster->host[root] == host)
		return root;
	return roster->by_host[first + ((uint64_t)of->segment + of->tag) % size];
}

static bool host_contributes(const struct roster *roster, unsigned host)
{
	for (unsigned i = roster->host_first[host]; i < roster->host_first[host + 1]; i++)
		if (roster->live[roster->by_host[i]])
			return true;
	return false;
}

static void hierarchical_find(const struct route_of *of, unsigned who, struct route *route)
{
	const struct roster *roster = of->roster;
	unsigned root = route_root(of), host = roster->host[who];
	unsigned leader = host_leader(of, host, root);

	route->seals = who == root;
	if (who != leader) {
		route->up = roster->live[who] ? leader : ROSTER_NONE;
		route->down_from = leader;
		return;
	}
	if (!route->seals) {
		route->up = host_contributes(roster, host) ? root : ROSTER_NONE;
		route->down_from = root;
	}
	/* The far ones first: what they get has the longest way to go. */
	for (unsigned i = 1; route->seals && i < roster->host_count; i++) {
		unsigned far = (host + i) % roster->host_count;
		unsigned other = host_leader(of, far, root);
		route->down_to[route->down_count++] = (uint8_t)other;
		if (!host_contributes(roster, far))
			continue;
		bits_set(route->children, other);
		route->child_count++;
	}
	for (unsigned i = roster->host_first[host]; i < roster->host_first[host + 1]; i++) {
		unsigned other = roster->by_host[i];
		if (other == who)
			continue;
		route->down_to[route->down_count++] = (uint8_t)other;
		if (!roster->live[other])
			continue;
		bits_set(route->children, other);
		route->child_count++;
	}
}

static void hierarchical_set(const struct route_of *of, unsigned who, uint8_t *set)
{
	const struct roster *roster = of->roster;
	unsigned host = roster->host[who];

	if (host_leader(of, host, route_root(of)) != who) {
		bits_set(set, roster->bit[who]);
		return;
	}
	for (unsigned i = roster->host_first[host]; i < roster->host_first[host + 1]; i++)
		if (roster->live[roster->by_host[i]])
			bits_set(set, roster->bit[roster->by_host[i]]);
}

/* ---- a given root ---- */

/* The source sends a segment to its owner, who has the bandwidth for it, and that one to everybody else. */
static void relay_find(const struct route_of *of, unsigned who, struct route *route)
{
	const struct roster *roster = of->roster;
	unsigned owner = roster->owners[((uint64_t)of->segment + of->tag) % SHARES_OWNERS];

	if (owner == of->root) {
		flat_find(of, who, route);
		return;
	}
	route->seals = who == of->root;
	if (route->seals) {
		route->down_to[route->down_count++] = (uint8_t)owner;
		return;
	}
	route->down_from = who == owner ? of->root : owner;
	for (unsigned i = 1; who == owner && i < roster->n; i++) {
		unsigned other = (who + i) % roster->n;
		if (other != of->root)
			route->down_to[route->down_count++] = (uint8_t)other;
	}
}

static void pair_find(const struct route_of *of, unsigned who, struct route *route)
{
	route->seals = who == of->root;
	if (!route->seals)
		route->down_from = of->root;
	else if (of->to != ROSTER_NONE)
		route->down_to[route->down_count++] = (uint8_t)of->to;
}

/* Down only. */
static void sourced_find(const struct route_of *of, unsigned who, struct route *route)
{
	if (of->algorithm == TR_RING)
		ring_find(of, who, route);
	else if (of->algorithm == TR_HIERARCHICAL)
		hierarchical_find(of, who, route);
	else if (of->algorithm == TR_DIRECT && of->relayed)
		relay_find(of, who, route);
	else
		flat_find(of, who, route);
	route->up = ROSTER_NONE;
	route->child_count = 0;
	memset(route->children, 0, sizeof(route->children));
}

/* Up only. */
static void scattered_find(const struct route_of *of, unsigned who, struct route *route)
{
	if (of->algorithm == TR_HIERARCHICAL)
		hierarchical_find(of, who, route);
	else
		flat_find(of, who, route);
	route->down_from = ROSTER_NONE;
	route->down_count = 0;
}

/* ---- any ---- */

void route_none(struct route *route)
{
	route->seals = route->spreads = false;
	route->up = route->down_from = ROSTER_NONE;
	route->child_count = route->down_count = 0;
	memset(route->children, 0, sizeof(route->children));
}

void route_find(const struct route_of *of, unsigned who, struct route *route)
{
	route_none(route);
	if (of->kind == OP_SCATTERED)
		scattered_find(of, who, route);
	else if (of->kind == OP_SOURCED)
		sourced_find(of, who, route);
	else if (of->kind == OP_PAIR)
		pair_find(of, who, route);
	if (of->kind != OP_REDUCED)
		return;
	switch (of->algorithm) {
	case TR_AUTO:
	case TR_RING:
		ring_find(of, who, route);
		return;
	case TR_STAR:
	case TR_DIRECT:
		flat_find(of, who, route);
		return;
	case TR_HIERARCHICAL:
		hierarchical_find(of, who, route);
		return;
	case TR_ONE_SHOT:
		one_shot_find(of, who, route);
		return;
	}
}

void route_set(const struct route_of *of, unsigned who, uint8_t set[ROUTE_SET_BYTES])
{
	memset(set, 0, ROUTE_SET_BYTES);
	if (of->kind == OP_REDUCED && (of->algorithm == TR_RING || of->algorithm == TR_AUTO))
		ring_set(of, who, set);
	else if (of->algorithm == TR_HIERARCHICAL)
		hierarchical_set(of, who, set);
	else
		bits_set(set, of->roster->bit[who]);
}
