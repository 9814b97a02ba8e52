/* Which links, cards and cables a plan's groups, edges and rings take (plan_layout.h). */
#include <math.h>
#include <string.h>

#include "daemon/plan/plan_layout.h"

static void clear_uses(struct plan_layout *l)
{
	memset(l->uses, 0, l->link_count * sizeof(*l->uses));
}

/* The links that a way takes: itself, between hosts two cards, and between sites two cables, if anything is known of any. Returns how many. */
static uint32_t links_of(const struct plan_layout *l, uint32_t way, uint32_t links[PLAN_PARTS])
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t n = c->node_count, from = c->nodes[way / n].host, to = c->nodes[way % n].host,
	         site = c->nodes[from].site, other = c->nodes[to].site;

	links[0] = way;
	links[1] = plan_layout_card(l, from, false);
	links[2] = plan_layout_card(l, to, true);
	links[3] = plan_layout_cable(l, site, false);
	links[4] = plan_layout_cable(l, other, true);
	return from == to ? 1 : site == other || !l->cables ? 3 : PLAN_PARTS;
}

void plan_layout_use(const struct plan_layout *l, uint32_t way, double what, double *uses)
{
	uint32_t links[PLAN_PARTS], count = links_of(l, way, links);

	for (uint32_t i = 0; i < count; i++)
		uses[links[i]] += what;
}

double plan_layout_busiest_s(const struct plan_layout *l, const double *bytes)
{
	double most = 0;

	for (uint32_t i = 0; i < l->link_count; i++)
		if (bytes[i] > 0)
			most = fmax(most, bytes[i] / plan_layout_bandwidth(l, i));
	return most;
}

double plan_layout_part_s(const struct plan_layout *l, const struct plan_part *part, double bytes)
{
	return part->streams > 0
	    ? part->streams * bytes / (plan_layout_bandwidth(l, part->link) * part->share)
	    : 0;
}

double plan_layout_edge_s(const struct plan_layout *l, const struct plan_edge *edge, double bytes)
{
	double most = 0;

	for (uint32_t k = 0; k < PLAN_PARTS; k++)
		most = fmax(most, plan_layout_part_s(l, &edge->parts[k], bytes));
	return most;
}

/* The tensor-parallel rings of all groups. */
static void place_groups(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;

	clear_uses(l);
	for (uint32_t i = 0; i < l->dp * l->pp; i++) {
		const uint16_t *workers = &plan->worker_of[(i % l->pp * l->dp + i / l->pp) * l->tp];
		struct plan_group *group = &l->groups[i];
		*group = (struct plan_group){ .speed = INFINITY, .one_node = true };
		for (uint32_t t = 0; t < l->tp; t++) {
			group->speed = fmin(group->speed, c->workers[workers[t]].speed);
			group->one_node = group->one_node &&
			    c->workers[workers[t]].node == c->workers[workers[0]].node;
			if (l->tp == 1)
				continue;
			uint32_t way = plan_cluster_way(c, workers[t], workers[(t + 1) % l->tp]);
			plan_layout_use(l, way, 1, l->uses);
			group->latency_s = fmax(group->latency_s, l->links[way].latency_s);
		}
	}
	for (uint32_t i = 0; i < l->dp * l->pp && l->tp > 1; i++) {
		const uint16_t *workers = &plan->worker_of[(i % l->pp * l->dp + i / l->pp) * l->tp];
		struct plan_group *group = &l->groups[i];
		for (uint32_t t = 0; t < l->tp; t++) {
			uint32_t way = plan_cluster_way(c, workers[t], workers[(t + 1) % l->tp]),
			         links[PLAN_PARTS], count = links_of(l, way, links);
			for (uint32_t k = 0; k < count; k++)
				group->seconds_a_byte = fmax(group->seconds_a_byte,
				    l->uses[links[k]] / plan_layout_bandwidth(l, links[k]));
		}
	}
}

/* Of the tp streams of a pair of pipeline ranks, those on the link (and on the cards and cables) that has least for them; `share` is all replicas' streams there. */
static struct plan_edge slowest_edge(const struct plan_layout *l, const struct plan *plan,
    uint32_t replica, uint32_t from, uint32_t to)
{
	struct plan_edge edge = { 0 };
	double slowest[PLAN_PARTS] = { -1, -1, -1, -1, -1 };

	for (uint32_t t = 0; t < l->tp; t++) {
		uint32_t way = plan_cluster_way(l->in->cluster,
		    plan_layout_worker(l, plan, replica, from, t),
		    plan_layout_worker(l, plan, replica, to, t));
		uint32_t links[PLAN_PARTS], count = links_of(l, way, links);
		for (uint32_t k = 0; k < count && k < PLAN_PARTS; k++) {
			struct plan_part *part = &edge.parts[k];
			double uses = l->uses[links[k]],
			       takes = uses / plan_layout_bandwidth(l, links[k]);
			if (takes > slowest[k]) {
				slowest[k] = takes;
				*part = (struct plan_part){ .link = links[k], .share = uses };
			}
			part->streams += part->link == links[k];
		}
	}
	return edge;
}

static void add_uses(struct plan_layout *l, const struct plan *plan, uint32_t replica, double what)
{
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		uint32_t next = (rank + 1) % l->pp;
		if (next == 0 && l->stages == l->pp)
			continue;
		for (uint32_t t = 0; t < l->tp; t++) {
			uint32_t here = plan_layout_worker(l, plan, replica, rank, t),
			         there = plan_layout_worker(l, plan, replica, next, t);
			plan_layout_use(l, plan_cluster_way(l->in->cluster, here, there), what,
			    l->uses);
			plan_layout_use(l, plan_cluster_way(l->in->cluster, there, here), what,
			    l->uses);
		}
	}
}

/* A replica has of a link what its streams are of all replicas' streams; l->uses is what the others have there. */
static void share_edge(const struct plan_layout *l, struct plan_edge *edge)
{
	for (uint32_t k = 0; k < PLAN_PARTS; k++) {
		struct plan_part *part = &edge->parts[k];
		part->share = part->share > 0 ? (part->share - l->uses[part->link]) / part->share
		                              : 1;
	}
}

static void place_pipeline(struct plan_layout *l, const struct plan *plan)
{
	clear_uses(l);
	for (uint32_t replica = 0; replica < l->dp && l->pp > 1; replica++)
		add_uses(l, plan, replica, 1);
	for (uint32_t replica = 0; replica < l->dp && l->pp > 1; replica++) {
		struct plan_edge *forward = &l->forward[replica * l->pp],
		                 *backward = &l->backward[replica * l->pp];
		for (uint32_t rank = 0; rank < l->pp; rank++) {
			forward[rank] = slowest_edge(l, plan, replica, rank, (rank + 1) % l->pp);
			backward[rank] = slowest_edge(l, plan, replica, rank,
			    (rank + l->pp - 1) % l->pp);
		}
		add_uses(l, plan, replica, -1);
		for (uint32_t rank = 0; rank < l->pp; rank++) {
			share_edge(l, &forward[rank]);
			share_edge(l, &backward[rank]);
		}
		add_uses(l, plan, replica, 1);
	}
}

/* Workers of one dp group in the order of their ring: those of a node together, then the nearest node (most bandwidth, then least
 * latency). */
void plan_layout_ring(const struct plan_layout *l, const struct plan *plan, uint32_t rank,
    uint32_t tp, uint32_t *order)
{
	const struct plan_cluster *c = l->in->cluster;

	for (uint32_t i = 0; i < l->dp; i++)
		order[i] = plan_layout_worker(l, plan, i, rank, tp);
	for (uint32_t i = 1; i < l->dp; i++) {
		uint32_t best = i;
		for (uint32_t j = i; j < l->dp; j++) {
			const struct flow_link
			    *a = &c->links[plan_cluster_way(c, order[i - 1], order[j])],
			    *b = &c->links[plan_cluster_way(c, order[i - 1], order[best])];
			bool here = c->workers[order[j]].node == c->workers[order[i - 1]].node,
			     best_here = c->workers[order[best]].node ==
			    c->workers[order[i - 1]].node;
			if (here != best_here) {
				best = here ? j : best;
				continue;
			}
			if (a->bandwidth_bytes_per_s > b->bandwidth_bytes_per_s ||
			    (a->bandwidth_bytes_per_s == b->bandwidth_bytes_per_s &&
			        a->latency_s < b->latency_s))
				best = j;
		}
		uint32_t taken = order[best];
		order[best] = order[i];
		order[i] = taken;
	}
}

/* The ways of all tp workers' rings of a pipeline rank: dp * tp of them. */
static void ways_of_rings(const struct plan_layout *l, const struct plan *plan, uint32_t rank,
    uint32_t *ways)
{
	uint32_t order[PLAN_WORKERS_MAX];

	for (uint32_t t = 0; t < l->tp; t++) {
		plan_layout_ring(l, plan, rank, t, order);
		for (uint32_t i = 0; i < l->dp; i++)
			*ways++ = plan_cluster_way(l->in->cluster, order[i], order[(i + 1) % l->dp]);
	}
}

/* l->uses: of all ranks' rings; l->own_uses: of this one's. */
static struct plan_ring slowest_crossings(const struct plan_layout *l, const uint32_t *ways,
    uint32_t count)
{
	struct plan_ring ring = { 0 };
	double alone = -1, shared = -1;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t links[PLAN_PARTS], parts = links_of(l, ways[i], links);
		ring.latency_s = fmax(ring.latency_s, l->links[ways[i]].latency_s);
		for (uint32_t k = 0; k < parts; k++) {
			uint32_t link = links[k];
			struct plan_crossing crossing = { link, l->own_uses[link] };
			if (crossing.times / plan_layout_bandwidth(l, link) > alone) {
				alone = crossing.times / plan_layout_bandwidth(l, link);
				ring.alone = crossing;
			}
			if (l->uses[link] / plan_layout_bandwidth(l, link) > shared) {
				shared = l->uses[link] / plan_layout_bandwidth(l, link);
				ring.shared = crossing;
			}
		}
	}
	return ring;
}

static void place_rings(struct plan_layout *l, const struct plan *plan)
{
	uint32_t ways[PLAN_WORKERS_MAX];
	const uint32_t each = l->dp * l->tp;

	clear_uses(l);
	for (uint32_t rank = 0; rank < l->pp; rank++)
		l->rings[rank] = (struct plan_ring){ 0 };
	for (uint32_t rank = 0; rank < l->pp && l->dp > 1; rank++) {
		ways_of_rings(l, plan, rank, &ways[rank * each]);
		for (uint32_t i = 0; i < each; i++)
			plan_layout_use(l, ways[rank * each + i], 1, l->uses);
	}
	for (uint32_t rank = 0; rank < l->pp && l->dp > 1; rank++) {
		for (uint32_t i = 0; i < each; i++)
			plan_layout_use(l, ways[rank * each + i], 1, l->own_uses);
		l->rings[rank] = slowest_crossings(l, &ways[rank * each], each);
		for (uint32_t i = 0; i < each; i++)
			plan_layout_use(l, ways[rank * each + i], -1, l->own_uses);
	}
}

/* The commit of a round goes there and back. */
static double farthest(const struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;
	bool used[PLAN_WORKERS_MAX] = { false };
	double most = 0;

	for (uint32_t i = 0; i < l->dp * l->pp * l->tp; i++)
		used[c->workers[plan->worker_of[i]].node] = true;
	for (uint32_t from = 0; from < c->node_count; from++)
		for (uint32_t to = 0; to < c->node_count && used[from]; to++)
			if (used[to] && l->dp * l->pp * l->tp > 1)
				most = fmax(most, plan_cluster_link(c, from, to)->latency_s);
	return most;
}

void plan_layout_place(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_choice *choice = &plan->choice;

	l->dp = choice->mesh.size[MESH_DP];
	l->pp = choice->mesh.size[MESH_PP];
	l->tp = choice->mesh.size[MESH_TP];
	l->stages = l->pp * choice->chunks;
	l->cost = plan_layout_cost(l, choice, &l->of_tp);
	place_groups(l, plan);
	place_pipeline(l, plan);
	place_rings(l, plan);
	l->farthest_s = farthest(l, plan);
}
