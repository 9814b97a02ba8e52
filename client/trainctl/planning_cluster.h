/* The running cluster as the planner wants it: free slots as workers, links as the nodes measured them, with the reasons in words. */
#ifndef TR_CLIENT_TRAINCTL_PLANNING_CLUSTER_H
#define TR_CLIENT_TRAINCTL_PLANNING_CLUSTER_H

#include <stdbool.h>

#include "client/trainctl/rpc.h"
#include "daemon/plan/plan_cluster.h"

enum planning_links {
	PLANNING_LINKS_MISSING, /* as measured last; all of them now, if some, or the job's layers, never were; what cannot be is assumed */
	PLANNING_LINKS_NEW,     /* measured now */
};

enum planning_slots {
	PLANNING_SLOTS_CORED, /* whoever works there, but on no host more than it has cores for */
	PLANNING_SLOTS_FREE,  /* of these the free ones, for a job that is to run now */
	PLANNING_SLOTS_ALL,   /* workers of a host may have to share its cores */
};

struct planning_taking {
	const Traind__V1__JobSpec *spec;
	enum planning_links links;
	enum planning_slots slots;
};

#define PLANNING_LINKS_WORDS_MAX 640

struct planning_cluster {
	struct plan_cluster cluster;
	uint64_t node_ids[TR_GROUP_PEERS_MAX]; /* of cluster.nodes */
	double layer_s[TR_GROUP_PEERS_MAX]; /* of these: a layer of the job, as it measured; 0: it did not */
	/* Of these: the part of its threads that a worker has cores for, with as many of the job's there as can be. */
	double cores_part[TR_GROUP_PEERS_MAX];
	uint32_t host_of[TR_GROUP_PEERS_MAX]; /* of these: the first on the same host */
	uint32_t slots_left;                  /* of hosts with too few cores for them */
	uint32_t slots_over;                  /* more than a job may have workers */
	char links_by[PLANNING_LINKS_WORDS_MAX];
};

/* *threads of a worker: 0 becomes what a slot has of its node's cores. TR_EUNAVAILABLE and others: the words say why. */
tr_status planning_cluster_take(struct rpc *rpc, const struct planning_taking *taking,
    unsigned *threads, struct planning_cluster *out, struct tr_error *error);

#endif
