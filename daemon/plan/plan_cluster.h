/* What the planner plans for: workers of some speed and memory on nodes, and what each node can send to each other one. Pure.
 *
 * Two nodes have a link in each direction, which all that goes from the one to the other shares. What workers of one node send to
 * each other shares one link too, the node's own: its memory, or its switch.
 *
 * All that leaves a host goes through its card, and so does all that comes in, the other way: nodes of one host share it. A card that nobody gives is as fast as the fastest link of its
 * host in that direction. That is what is known of it: links are measured one at a time (each host with one other at a time), so a link carries no more than the cards at its ends, and a
 * card no less than its fastest link. It may be faster (a server to which many homes are near, over 1 Gbit/s, of which each takes 20 Mbit/s); then its owner says so. That
 * it is as fast as all its links together, which was assumed before, is true of next to no host: two neighbours in one rack share the cable of the third.
 *
 * What goes from one site to another (a data centre, a home) also takes the cable of each, which its hosts share. A cable that nobody gives is free: links are then all that is known. That a host has one card is
 * next to certain; that hosts of one site have one bottleneck is not. Behind links of 1 Gbit/s each there may be a cable of 1 Gbit/s or of 100, and the fastest link tells nothing of it but the least that it
 * can be: a plan over it would be taken to be slower by as many times as there are hosts, where nothing is shared. Whether it is can only be measured.
 *
 *	struct plan_cluster cluster;
 *	st = plan_cluster_create(2, 4, &cluster, &error);
 *	cluster.workers[0] = (struct plan_worker){ .node = 0, .speed = 1, .memory_bytes = 8 << 30 };   // and so on
 *	*plan_cluster_link(&cluster, 0, 1) = (struct flow_link){ 1e-3, 125e6 };
 *	st = plan_cluster_check(&cluster, &error);
 *	plan_cluster_finish(&cluster);
 */
#ifndef TR_DAEMON_PLAN_PLAN_CLUSTER_H
#define TR_DAEMON_PLAN_PLAN_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/limits.h"
#include "daemon/plan/flow.h"

struct plan_node {
	char name[TR_NAME_MAX];
	uint32_t host; /* the first node on the same one: itself, as created */
	double card_out_bytes_per_s, card_in_bytes_per_s; /* of that host; 0: of its fastest link */
	uint32_t site; /* of that host: the first node at the same one; itself, as created */
	double cable_out_bytes_per_s, cable_in_bytes_per_s; /* of that site; 0: free */
};

struct plan_worker {
	uint32_t node;
	double speed; /* 1: as fast as the one on which layers were measured */
	uint64_t memory_bytes;
};

struct plan_cluster {
	uint32_t node_count, worker_count;
	bool busy; /* all cores compute: what is sent takes their time, so nothing is hidden behind layers */
	struct plan_node *nodes;
	struct plan_worker *workers;
	struct flow_link *links; /* [node_count * node_count], from * node_count + to */
};

/* Zeroed but for the sizes, each node a host and a site. TR_EINVAL: none, or more than TR_GROUP_PEERS_MAX; TR_ENOMEM. */
tr_status plan_cluster_create(uint32_t nodes, uint32_t workers, struct plan_cluster *cluster,
    struct tr_error *error);
void plan_cluster_finish(struct plan_cluster *cluster); /* accepts a zeroed one */

/* TR_EINVAL: a worker without speed, memory or node, a node without host or site, a card, a cable or a link without bandwidth; the words name it. */
tr_status plan_cluster_check(const struct plan_cluster *cluster, struct tr_error *error);

/* Workers that are at least half as fast as the fastest, on hosts whose card has at least a tenth of the best one's bandwidth, and so the cable of their site, unless most workers are there: whoever else there is may do more harm than good. */
uint32_t plan_cluster_good(const struct plan_cluster *cluster);

/* Between two nodes; the same node twice: its own. */
static inline struct flow_link *plan_cluster_link(const struct plan_cluster *cluster, uint32_t from,
    uint32_t to)
{
	return &cluster->links[(size_t)from * cluster->node_count + to];
}

/* What a host can send to all others together, or get from them: as it was given, else of its fastest link. INFINITY: there is no other host. */
double plan_cluster_card_out(const struct plan_cluster *cluster, uint32_t host);
double plan_cluster_card_in(const struct plan_cluster *cluster, uint32_t host);

/* Where a node's host is. */
static inline uint32_t plan_cluster_site(const struct plan_cluster *cluster, uint32_t node)
{
	return cluster->nodes[cluster->nodes[node].host].site;
}

/* What a site can send to all others together, or get from them. INFINITY: it is free. */
double plan_cluster_cable_out(const struct plan_cluster *cluster, uint32_t site);
double plan_cluster_cable_in(const struct plan_cluster *cluster, uint32_t site);

/* Number of the link from one worker to another. */
static inline uint32_t plan_cluster_way(const struct plan_cluster *cluster, uint32_t from_worker,
    uint32_t to_worker)
{
	return cluster->workers[from_worker].node * cluster->node_count +
	    cluster->workers[to_worker].node;
}

#endif
