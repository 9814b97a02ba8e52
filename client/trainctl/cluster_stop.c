#include <stdio.h>
#include <stdlib.h>

#include "client/trainctl/cluster.h"

/* traind gives its workers TR_WORKER_TERM_GRACE_MS before it kills them. */
#define NODE_GRACE_MS    (TR_WORKER_TERM_GRACE_MS + 4000)
#define MEMBERD_GRACE_MS 5000
#define LEFT_GRACE_MS    1000
#define LEFT_MAX         4096

static bool end_nodes(const struct cluster *cluster)
{
	struct proc processes[CLUSTER_NODES_MAX];
	for (size_t i = 0; i < cluster->n_nodes; i++)
		processes[i] = cluster->nodes[i].process;
	return proc_end(processes, cluster->n_nodes, NODE_GRACE_MS);
}

/* Workers end with their traind; this is for what a killed traind could not see to. */
static size_t end_what_is_left(const struct cluster *cluster)
{
	char mark[PATH_MAX + 32];
	struct proc *left = calloc(LEFT_MAX, sizeof(*left));
	(void)snprintf(mark, sizeof(mark), CLUSTER_MARK "=%s", cluster->folder);
	size_t count = left != NULL ? proc_marked(mark, left, LEFT_MAX) : 0;
	if (count > 0)
		(void)proc_end(left, count, LEFT_GRACE_MS);
	count = left != NULL ? proc_marked(mark, left, LEFT_MAX) : 0;
	free(left);
	return count;
}

tr_status cluster_stop(struct cluster *cluster, struct tr_error *error)
{
	bool ended = end_nodes(cluster);
	ended = proc_end(&cluster->memberd.process, 1, MEMBERD_GRACE_MS) && ended;
	size_t left = end_what_is_left(cluster);
	if (!ended || left > 0)
		return tr_error_set(error, TR_EIO,
		    "%zu processes of the cluster in %s do not end, even by SIGKILL",
		    left > 0 ? left : 1, cluster->folder);
	tr_status status = cluster_forget(cluster, error);
	cluster->memberd = (struct cluster_daemon){ 0 };
	cluster->n_nodes = 0;
	cluster->starting = false;
	return status;
}
