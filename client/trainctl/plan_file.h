/* A cluster described in a file, for `trainctl plan --cluster FILE`; configs/cluster.yaml has an example of every key.
 *
 *	nodes:                     # `workers` each (1); `speed` (1): of the machine that measures layers; `memory` of each worker
 *	  - {name: a, workers: 2, speed: 1, memory: 8GiB, site: here}
 *	  - {name: c, card_gbit: 10, card_in_gbit: 1}      # all that it sends to others, and gets from them (as card_gbit); as its fastest link each way, where nothing is said
 *	sites:                     # what all its nodes together send to other sites, and get from them (as cable_gbit); free, where nothing is said
 *	  - {name: here, cable_gbit: 0.1, cable_in_gbit: 0.5}
 *	busy: false                # all cores compute: what is sent takes their time
 *	inside: {ms: 0.01, gbit: 40}         # what workers of one node share
 *	between: {ms: 0.2, gbit: 1}          # any two nodes that no link names; each direction has so much
 *	links:                               # of nodes, or of sites; later ones win. One direction alone: `oneway: true`
 *	  - {from: here, to: there, ms: 20, gbit: 0.1}
 *
 * Errors are one line with the place: "cluster.yaml:3: speed: found 'fast', allowed: a number above 0".
 */
#ifndef TR_CLIENT_TRAINCTL_PLAN_FILE_H
#define TR_CLIENT_TRAINCTL_PLAN_FILE_H

#include "daemon/plan/plan_cluster.h"

/* TR_ENOTFOUND: no such file; TR_EINVAL; TR_ENOMEM. */
tr_status plan_file_read(const char *path, struct plan_cluster *cluster, struct tr_error *error);

#endif
