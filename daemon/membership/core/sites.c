#include "daemon/membership/core/sites.h"

#include <math.h>
#include <string.h>

#define MESSAGE_BYTES 0x1p20
/* The farthest of a site by the nearest elsewhere, at most: sites are told apart by more than measurements differ. */
#define APART 0.5
/* Links grow by at least this where sites begin. */
#define GAP 2.0
/* What streams have together by what they have alone, where they share a cable. */
#define SHARED 0.85

static const struct flow_link *link_of(const struct sites *s, uint32_t from, uint32_t to)
{
	return &s->links[(size_t)from * s->hosts + to];
}

static double rate_of(const struct sites *s, uint32_t from, uint32_t to)
{
	return link_of(s, from, to)->bandwidth_bytes_per_s;
}

/* INFINITY: it is not known. */
static double distance(const struct sites *s, uint32_t a, uint32_t b)
{
	double there = rate_of(s, a, b), back = rate_of(s, b, a);

	return there > 0 && back > 0 ? link_of(s, a, b)->latency_s + link_of(s, b, a)->latency_s +
	        MESSAGE_BYTES / there + MESSAGE_BYTES / back
	                             : INFINITY;
}

/* Hosts join the nearest that has joined (a least spanning tree): how far each was is the edge by which it did. */
static void join_all(const struct sites *s, uint32_t *order, double *edge)
{
	double nearest[TR_PROBE_HOSTS_MAX];
	bool joined[TR_PROBE_HOSTS_MAX] = { false };
	uint32_t next = 0;

	for (uint32_t i = 0; i < s->hosts; i++)
		nearest[i] = i == 0 ? 0 : INFINITY;
	for (uint32_t count = 0; count < s->hosts; count++) {
		order[count] = next;
		edge[count] = nearest[next];
		joined[next] = true;
		uint32_t best = next;
		for (uint32_t i = 0; i < s->hosts; i++) {
			if (joined[i])
				continue;
			nearest[i] = fmin(nearest[i], distance(s, next, i));
			if (joined[best] || nearest[i] < nearest[best])
				best = i;
		}
		next = best;
	}
}

static void sort(double *values, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		double value = values[i];
		uint32_t at = i;
		for (; at > 0 && values[at - 1] > value; at--)
			values[at] = values[at - 1];
		values[at] = value;
	}
}

/* The longest edge within a site: behind it they grow most. INFINITY: they do not grow by GAP. */
static double longest_within(const double *edge, uint32_t count)
{
	double sorted[TR_PROBE_HOSTS_MAX], most = GAP, found = INFINITY;

	memcpy(sorted, edge, count * sizeof(*edge));
	sort(sorted, count);
	for (uint32_t i = 0; i + 1 < count; i++) {
		if (!isinf(sorted[i + 1]) && sorted[i + 1] >= most * sorted[i]) {
			most = sorted[i + 1] / sorted[i];
			found = sorted[i];
		}
	}
	return found;
}

/* Every host is far nearer to all of its site than to any other. */
static bool are_apart(const struct sites *s)
{
	for (uint32_t a = 0; a < s->hosts; a++) {
		double farthest = 0, nearest = INFINITY;
		for (uint32_t b = 0; b < s->hosts; b++) {
			if (a != b && s->of[a] == s->of[b])
				farthest = fmax(farthest, distance(s, a, b));
			else if (a != b)
				nearest = fmin(nearest, distance(s, a, b));
		}
		if (farthest > APART * nearest)
			return false;
	}
	return true;
}

/* A site has several hosts, and so have all others together. */
static bool may_share(const struct sites *s)
{
	bool some = false;

	for (uint32_t site = 0; site < s->count; site++)
		some = some || (s->size[site] > 1 && s->hosts - s->size[site] > 1);
	return some;
}

static void number_sites(struct sites *s, double within)
{
	uint32_t order[TR_PROBE_HOSTS_MAX], site = 0;
	double edge[TR_PROBE_HOSTS_MAX];

	memset(s->size, 0, sizeof(s->size));
	join_all(s, order, edge);
	/* Who joins by a short edge is a neighbour of the newest site: short edges are all taken before a long one. */
	for (uint32_t i = 0; i < s->hosts; i++) {
		site += i > 0 && edge[i] > within;
		s->of[order[i]] = site;
		if (site < TR_PROBE_SITES_MAX)
			s->size[site]++;
	}
	s->count = site + 1;
}

static void reckon(struct sites *s)
{
	memset(s->card_out, 0, sizeof(s->card_out));
	memset(s->card_in, 0, sizeof(s->card_in));
	memset(s->fastest, 0, sizeof(s->fastest));
	for (uint32_t from = 0; from < s->hosts; from++) {
		for (uint32_t to = 0; to < s->hosts; to++) {
			double *fastest = &s->fastest[s->of[from]][s->of[to]],
			       rate = rate_of(s, from, to);
			if (from == to)
				continue;
			s->card_out[from] = fmax(s->card_out[from], rate);
			s->card_in[to] = fmax(s->card_in[to], rate);
			*fastest = fmax(*fastest, rate);
		}
	}
}

void sites_find(struct sites *s)
{
	uint32_t order[TR_PROBE_HOSTS_MAX];
	double edge[TR_PROBE_HOSTS_MAX], within = INFINITY;

	memset(s->cable_out, 0, sizeof(s->cable_out));
	memset(s->cable_in, 0, sizeof(s->cable_in));
	if (s->hosts > 3) {
		join_all(s, order, edge);
		within = longest_within(&edge[1], s->hosts - 1);
	}
	number_sites(s, within);
	if (s->count > TR_PROBE_SITES_MAX || !may_share(s) || !are_apart(s))
		number_sites(s, INFINITY);
	reckon(s);
}

void sites_relink(struct sites *s, uint32_t from, uint32_t to, double bytes_per_s)
{
	s->links[(size_t)from * s->hosts + to].bandwidth_bytes_per_s = bytes_per_s;
	reckon(s);
}

/* The fastest between two sites, of both ways the slower. */
static struct tournament_pair fastest(const struct sites *s, uint32_t a, uint32_t b)
{
	struct tournament_pair found = { 0, 0 };
	double most = 0;

	for (uint32_t i = 0; i < s->hosts * s->hosts; i++) {
		uint32_t low = i / s->hosts, high = i % s->hosts;
		double rate = fmin(rate_of(s, low, high), rate_of(s, high, low));
		bool between = (s->of[low] == a && s->of[high] == b) ||
		    (s->of[low] == b && s->of[high] == a);
		if (low < high && between && rate > most) {
			most = rate;
			found = (struct tournament_pair){ low, high };
		}
	}
	return found;
}

uint32_t sites_alone(const struct sites *s, uint32_t turn, struct tournament_pair *pairs)
{
	uint32_t met = s->count > 1 ? tournament_pairs(s->count, turn, pairs) : 0, count = 0;

	for (uint32_t i = 0; i < met; i++) {
		uint32_t a = pairs[i].low, b = pairs[i].high;
		struct tournament_pair pair = s->size[a] > 1 || s->size[b] > 1
		    ? fastest(s, a, b)
		    : (struct tournament_pair){ 0, 0 };
		if (pair.low != pair.high)
			pairs[count++] = pair;
	}
	return count;
}

uint32_t sites_together(const struct sites *s, uint32_t site, struct tournament_pair *pairs)
{
	bool taken[TR_PROBE_HOSTS_MAX] = { false };
	uint32_t streams[TR_PROBE_HOSTS_MAX] = { 0 }, count = 0;

	if (s->count < 2 || (s->count == 2 && site == 1))
		return 0;
	for (;;) {
		uint32_t here = 0, there = 0;
		double most = 0;
		for (uint32_t i = 0; i < s->hosts * s->hosts; i++) {
			uint32_t a = i / s->hosts, b = i % s->hosts;
			if (s->of[a] != site || s->of[b] == site || taken[a] || taken[b])
				continue;
			/* A site that has a stream already has less for one more. */
			double rate = fmin(sites_lone(s, a, b), sites_lone(s, b, a)) /
			    (1 + streams[s->of[b]]);
			if (rate > most) {
				most = rate;
				here = a;
				there = b;
			}
		}
		if (most <= 0)
			break;
		taken[here] = taken[there] = true;
		streams[s->of[there]]++;
		pairs[count++] = (struct tournament_pair){ here, there };
	}
	return count > 1 ? count : 0;
}

void sites_take(struct sites *s, uint32_t site, double out, double in)
{
	struct tournament_pair pairs[TR_PROBE_HOSTS_MAX];
	uint32_t count = sites_together(s, site, pairs);
	double alone_out = 0, alone_in = 0;

	for (uint32_t i = 0; i < count; i++) {
		alone_out += sites_lone(s, pairs[i].low, pairs[i].high);
		alone_in += sites_lone(s, pairs[i].high, pairs[i].low);
	}
	s->cable_out[site] = out < SHARED * alone_out ? out : 0;
	s->cable_in[site] = in < SHARED * alone_in ? in : 0;
	if (s->count == 2) {
		s->cable_out[1 - site] = s->cable_in[site];
		s->cable_in[1 - site] = s->cable_out[site];
	}
}

double sites_lone(const struct sites *s, uint32_t from, uint32_t to)
{
	double rate = rate_of(s, from, to);

	return rate > 0 && s->of[from] != s->of[to]
	    ? fmin(s->fastest[s->of[from]][s->of[to]], fmin(s->card_out[from], s->card_in[to]))
	    : rate;
}

bool sites_crosses(const struct sites *s, uint32_t from, uint32_t to)
{
	return s->of[from] != s->of[to] &&
	    (s->cable_out[s->of[from]] > 0 || s->cable_in[s->of[to]] > 0);
}
