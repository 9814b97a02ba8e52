/* The embedded cluster: one memberd and some traind on loopback, started by trainctl and recorded, with their pids and start
 * times, in FOLDER/cluster.json. FOLDER is TRAIND_HOME/cluster; each daemon has a folder in it, with its state and `log`.
 */
#ifndef TR_CLIENT_TRAINCTL_CLUSTER_H
#define TR_CLIENT_TRAINCTL_CLUSTER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/trainctl/proc.h"
#include "common/error.h"
#include "common/limits.h"

#define CLUSTER_NODES_MAX 64
#define CLUSTER_MARK      "TRAIND_CLUSTER" /* in the environment of all its processes: the folder */

#define CLUSTER_NODE_NAME "node-%zu" /* from 1 */

struct cluster_daemon {
	char name[TR_NAME_MAX]; /* "memberd", "node-1": its folder's name */
	struct proc process;    /* pid 0: not started */
	char address[TR_ADDRESS_MAX];
	unsigned slots;
};

struct cluster {
	char folder[PATH_MAX];
	int lock;
	struct cluster_daemon memberd;
	struct cluster_daemon nodes[CLUSTER_NODES_MAX];
	size_t n_nodes;
	bool starting; /* not all of it was there yet when its record was written */
};

/* memberd's recorded address. False: there is no record, or the cluster is not wholly started yet. Takes no lock. */
bool cluster_address(const char *folder, char address[TR_ADDRESS_MAX]);

/* False: there is no record, as after `down`. */
bool cluster_is_recorded(const char *folder);

/* Waits for the lock, unless a signal comes (interrupt.h), and reads the record (none: an empty cluster). A folder that is not there is made, or is an empty cluster. */
tr_status cluster_open(const char *folder, bool make, struct cluster *cluster,
    struct tr_error *error);
tr_status cluster_save(const struct cluster *cluster, struct tr_error *error); /* atomic */
tr_status cluster_forget(const struct cluster *cluster, struct tr_error *error);
void cluster_close(struct cluster *cluster); /* gives the lock back */

bool cluster_daemon_alive(const struct cluster_daemon *daemon);
size_t cluster_count_alive(const struct cluster *cluster); /* memberd included */
/* Nodes that ran here once: node-1, node-2... as far as there are folders. */
size_t cluster_count_folders(const struct cluster *cluster);
/* Until those that are not alive have ended too: their folders and addresses are free then. False: one has not after 5 s. */
bool cluster_await_dead(const struct cluster *cluster);

/* The error for that. */
tr_status cluster_still_ends(const struct cluster *cluster, struct tr_error *error);

struct cluster_plan {
	size_t nodes; /* so many in the end */
	unsigned slots; /* of nodes that are started; 0: as many as each had when it ran last, else 1 */
	bool replace; /* start dead ones anew, in their folders */
	const char *search_path;
};
/* Starts what the plan lacks, waits until every live node is registered, saves. On an error, or a signal (interrupt.h), all that was started is
 * ended again, and the text holds the last lines of the log of what did not come up. */
tr_status cluster_start(struct cluster *cluster, const struct cluster_plan *plan,
    struct tr_error *error);
/* Ends all daemons and whatever they leave behind. */
tr_status cluster_stop(struct cluster *cluster, struct tr_error *error);

#endif
