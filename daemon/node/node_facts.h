/* What this node tells memberd about itself: NodeHello and heartbeats. */
#ifndef TR_DAEMON_NODE_NODE_FACTS_H
#define TR_DAEMON_NODE_NODE_FACTS_H

#include "collectives/engine/engine.h"
#include "common/limits.h"
#include "daemon/node/devices.h"
#include "daemon/node/identity.h"
#include "daemon/node/worker.h"
#include "traind/peer/peer.pb-c.h"

#define NODE_PEERS_MAX TR_NODE_WORKERS_MAX
#define NODE_LINKS_MAX (32 * TR_PEER_LINKS_MAX) /* in one heartbeat */

struct node_facts {
	struct identity identity;
	struct devices devices;
	char name[TR_NAME_MAX], address[TR_ADDRESS_MAX];
	unsigned slots;
	/* Rows that messages point into until the next one is made. */
	struct engine_progress progress[NODE_PEERS_MAX];
	struct worker_here here[NODE_PEERS_MAX];
	Traind__Peer__PeerProgress rows[NODE_PEERS_MAX], *row_list[NODE_PEERS_MAX];
	Traind__Peer__PeerHere peers[NODE_PEERS_MAX], *peer_list[NODE_PEERS_MAX];
	char *device_list[DEVICES_MAX];
	struct engine_link links[NODE_LINKS_MAX];
	Traind__Peer__LinkProgress link_rows[NODE_LINKS_MAX], *link_list[NODE_LINKS_MAX];
};

void node_facts_hello(struct node_facts *facts, const struct workers *workers,
    struct engine *engine, Traind__Peer__NodeHello *hello);
void node_facts_heartbeat(struct node_facts *facts, const struct workers *workers,
    struct engine *engine, Traind__Peer__Heartbeat *heartbeat);

#endif
