#include "daemon/plan/plan_cluster.h"

#include <math.h>
#include <stdlib.h>

#define GOOD_SPEED 0.5
#define GOOD_REACH 0.1

tr_status plan_cluster_create(uint32_t nodes, uint32_t workers, struct plan_cluster *cluster,
    struct tr_error *error)
{
	struct plan_cluster made = { .node_count = nodes, .worker_count = workers };

	if (nodes == 0 || workers == 0 || nodes > TR_GROUP_PEERS_MAX || workers > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "a cluster of %u nodes and %u workers: 1 to %d of each are allowed", nodes,
		    workers, TR_GROUP_PEERS_MAX);
	made.nodes = calloc(nodes, sizeof(*made.nodes));
	made.workers = calloc(workers, sizeof(*made.workers));
	made.links = calloc((size_t)nodes * nodes, sizeof(*made.links));
	if (made.nodes == NULL || made.workers == NULL || made.links == NULL) {
		plan_cluster_finish(&made);
		return tr_error_set(error, TR_ENOMEM, "no memory for a cluster of %u nodes", nodes);
	}
	for (uint32_t i = 0; i < nodes; i++)
		made.nodes[i].host = made.nodes[i].site = i;
	*cluster = made;
	return TR_OK;
}

void plan_cluster_finish(struct plan_cluster *cluster)
{
	free(cluster->nodes);
	free(cluster->workers);
	free(cluster->links);
	*cluster = (struct plan_cluster){ 0 };
}

static tr_status check_nodes(const struct plan_cluster *c, struct tr_error *error)
{
	for (uint32_t i = 0; i < c->node_count; i++) {
		const struct plan_node *node = &c->nodes[i];
		if (node->host > i || c->nodes[node->host].host != node->host)
			return tr_error_set(error, TR_EINVAL,
			    "the host of %s is number %u, which is no first node of one",
			    node->name, node->host);
		if (!(node->card_out_bytes_per_s >= 0) || !(node->card_in_bytes_per_s >= 0))
			return tr_error_set(error, TR_EINVAL, "the card of %s has no bandwidth",
			    node->name);
		uint32_t site = plan_cluster_site(c, i);
		if (site > i || plan_cluster_site(c, site) != site)
			return tr_error_set(error, TR_EINVAL,
			    "the site of %s is number %u, which is no first node of one",
			    node->name, site);
		if (!(node->cable_out_bytes_per_s >= 0) || !(node->cable_in_bytes_per_s >= 0))
			return tr_error_set(error, TR_EINVAL, "the cable of %s has no bandwidth",
			    node->name);
	}
	return TR_OK;
}

tr_status plan_cluster_check(const struct plan_cluster *c, struct tr_error *error)
{
	for (uint32_t i = 0; i < c->worker_count; i++) {
		const struct plan_worker *worker = &c->workers[i];
		if (worker->node >= c->node_count || !(worker->speed > 0) ||
		    !isfinite(worker->speed) || worker->memory_bytes == 0)
			return tr_error_set(error, TR_EINVAL,
			    "worker %u has no speed, memory or node", i);
	}
	for (uint32_t from = 0; from < c->node_count; from++) {
		for (uint32_t to = 0; to < c->node_count; to++) {
			const struct flow_link *link = plan_cluster_link(c, from, to);
			if (!(link->bandwidth_bytes_per_s > 0) || !(link->latency_s >= 0) ||
			    !isfinite(link->latency_s))
				return tr_error_set(error, TR_EINVAL,
				    "the link from %s to %s has no bandwidth, or a latency below 0",
				    c->nodes[from].name, c->nodes[to].name);
		}
	}
	return check_nodes(c, error);
}

/* Of all links between a host and others, one way. */
static double fastest(const struct plan_cluster *c, uint32_t host, bool out)
{
	double most = 0;

	for (uint32_t here = 0; here < c->node_count; here++)
		for (uint32_t other = 0; other < c->node_count && c->nodes[here].host == host;
		     other++)
			if (c->nodes[other].host != host)
				most = fmax(most,
				    plan_cluster_link(c, out ? here : other, out ? other : here)
				        ->bandwidth_bytes_per_s);
	return most > 0 ? most : INFINITY;
}

double plan_cluster_card_out(const struct plan_cluster *c, uint32_t host)
{
	double given = c->nodes[host].card_out_bytes_per_s;

	return given > 0 ? given : fastest(c, host, true);
}

double plan_cluster_card_in(const struct plan_cluster *c, uint32_t host)
{
	double given = c->nodes[host].card_in_bytes_per_s;

	return given > 0 ? given : fastest(c, host, false);
}

static double free_if_unknown(double given)
{
	return given > 0 ? given : INFINITY;
}

double plan_cluster_cable_out(const struct plan_cluster *c, uint32_t site)
{
	return free_if_unknown(c->nodes[site].cable_out_bytes_per_s);
}

double plan_cluster_cable_in(const struct plan_cluster *c, uint32_t site)
{
	return free_if_unknown(c->nodes[site].cable_in_bytes_per_s);
}

static bool most_are_at(const struct plan_cluster *c, uint32_t site)
{
	uint32_t there = 0;

	for (uint32_t i = 0; i < c->worker_count; i++)
		there += plan_cluster_site(c, c->workers[i].node) == site;
	return 2 * there > c->worker_count;
}

/* How fast a worker and most others reach each other at best. */
static double reach_of(const struct plan_cluster *c, uint32_t worker)
{
	uint32_t node = c->workers[worker].node, host = c->nodes[node].host,
	         site = plan_cluster_site(c, node);
	double card = fmin(plan_cluster_card_out(c, host), plan_cluster_card_in(c, host)),
	       cable = fmin(plan_cluster_cable_out(c, site), plan_cluster_cable_in(c, site));

	return cable < card && !most_are_at(c, site) ? cable : card;
}

uint32_t plan_cluster_good(const struct plan_cluster *c)
{
	double reach[TR_GROUP_PEERS_MAX], speed = 0, best = 0;
	uint32_t good = 0, count = c->worker_count;

	for (uint32_t i = 0; i < count; i++) {
		reach[i] = i > 0 && c->workers[i].node == c->workers[i - 1].node ? reach[i - 1]
		                                                                 : reach_of(c, i);
		speed = fmax(speed, c->workers[i].speed);
		best = fmax(best, reach[i]);
	}
	for (uint32_t i = 0; i < count; i++)
		good += c->workers[i].speed >= GOOD_SPEED * speed && reach[i] >= GOOD_REACH * best;
	return good;
}
