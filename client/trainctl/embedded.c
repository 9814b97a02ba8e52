#include "client/trainctl/embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/cluster.h"
#include "client/trainctl/print.h"

#define LIST_DEADLINE_MS 2000

static tr_status start(struct cluster *cluster, const struct cluster_plan *plan, bool *started,
    struct tr_error *error)
{
	*started = false;
	if (cluster->starting) {
		(void)fprintf(stderr,
		    "trainctl: the cluster in %s was left half started: ending what there is of "
		    "it\n",
		    cluster->folder);
		tr_status ended = cluster_stop(cluster, error);
		if (ended != TR_OK)
			return ended;
	}
	size_t alive = cluster_count_alive(cluster);
	if (cluster_daemon_alive(&cluster->memberd))
		return TR_OK;
	if (alive > 0)
		return tr_error_set(error, TR_EUNAVAILABLE,
		    "memberd of the cluster in %s has ended, %zu nodes live: `trainctl up "
		    "--replace` starts it anew, `trainctl "
		    "down` ends all",
		    cluster->folder, alive);
	if (!cluster_await_dead(cluster))
		return cluster_still_ends(cluster, error);
	cluster->memberd = (struct cluster_daemon){ 0 };
	cluster->n_nodes = 0;
	(void)fprintf(stderr,
	    "trainctl: no cluster is running: starting one of %zu node%s in %s, for this job\n",
	    plan->nodes, plan->nodes == 1 ? "" : "s", cluster->folder);
	tr_status status = cluster_start(cluster, plan, error);
	*started = status == TR_OK;
	return status;
}

tr_status embedded_start(struct config *config, size_t nodes, unsigned slots, bool *started,
    struct tr_error *error)
{
	struct cluster *cluster = malloc(sizeof(*cluster));
	if (cluster == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	struct cluster_plan plan = { .nodes = nodes,
		.slots = slots,
		.search_path = config_search_path() };
	if (nodes > CLUSTER_NODES_MAX) {
		free(cluster);
		return tr_error_set(error, TR_ELIMIT,
		    "mesh.nodes: found %zu, allowed: at most %d in an embedded cluster", nodes,
		    CLUSTER_NODES_MAX);
	}
	tr_status status = cluster_open(config->cluster, true, cluster, error);
	if (status == TR_OK) {
		status = start(cluster, &plan, started, error);
		(void)snprintf(config->address, sizeof(config->address), "%s",
		    cluster->memberd.address);
		config->address_by = CONFIG_BY_HOME;
		cluster_close(cluster);
	}
	free(cluster);
	return status;
}

/* False: memberd does not say. */
static bool count_unfinished(struct rpc *rpc, size_t *count)
{
	Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
	Traind__V1__ListJobsResponse *listed = rpc_call(rpc, RPC_PATH("ListJobs"), &request,
	    &traind__v1__list_jobs_response__descriptor, LIST_DEADLINE_MS);
	*count = 0;
	if (listed == NULL)
		return false;
	for (size_t i = 0; i < listed->n_jobs; i++)
		*count += print_is_over(listed->jobs[i]->state) ? 0 : 1;
	traind__v1__list_jobs_response__free_unpacked(listed, NULL);
	return true;
}

/* Whether the cluster is still the one that was started, and nobody can lose a job by its end. */
static bool may_stop(const struct cluster *cluster, const struct config *config, bool asked,
    size_t unfinished)
{
	if (cluster->memberd.process.pid == 0)
		return false; /* somebody else has ended it */
	if (strcmp(cluster->memberd.address, config->address) != 0) {
		(void)fprintf(stderr,
		    "trainctl: the cluster was ended and started anew meanwhile: it stays; "
		    "`trainctl down` ends it\n");
		return false;
	}
	if (!asked && cluster_count_alive(cluster) > 0) {
		(void)fprintf(stderr,
		    "trainctl: memberd does not say which jobs have not ended: the cluster stays; "
		    "`trainctl down` ends it\n");
		return false;
	}
	if (unfinished > 0)
		(void)fprintf(stderr,
		    "trainctl: %zu job%s not ended: the cluster stays; `trainctl down` ends it\n",
		    unfinished, unfinished == 1 ? " has" : "s have");
	return unfinished == 0;
}

tr_status embedded_stop(struct config *config, struct rpc *rpc, struct tr_error *error)
{
	size_t unfinished = 0;
	bool asked = rpc != NULL && count_unfinished(rpc, &unfinished);
	struct cluster *cluster = malloc(sizeof(*cluster));
	if (cluster == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	tr_status status = cluster_open(config->cluster, true, cluster, error);
	if (status == TR_OK) {
		if (may_stop(cluster, config, asked, unfinished))
			status = cluster_stop(cluster, error);
		cluster_close(cluster);
	}
	free(cluster);
	return status;
}
