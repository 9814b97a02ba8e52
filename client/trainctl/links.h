/* Links between a cluster's nodes, as its nodes measured them: fetched, found by pair, and shown. */
#ifndef TR_CLIENT_TRAINCTL_LINKS_H
#define TR_CLIENT_TRAINCTL_LINKS_H

#include <stdbool.h>

#include "client/trainctl/rpc.h"

/* What was measured last. NULL: rpc->status and rpc->text say why. */
Traind__V1__Links *links_fetch(struct rpc *rpc);

/* Of which job layers are measured too, and by what name one knows them again. */
struct links_layers {
	const Traind__V1__JobSpec *spec;
	unsigned threads;
};
#define LINKS_LAYERS_NAME_MAX 120
void links_layers_name(const struct links_layers *layers, char name[LINKS_LAYERS_NAME_MAX]);

/* Measured now, which takes a few seconds for each node. `layers`: NULL for links alone. `layers_only`: links that are known stay as they are, so it takes a few seconds in all. */
Traind__V1__Links *links_measure(struct rpc *rpc, const struct links_layers *layers,
    bool layers_only);

/* From one node to another, or within one (both the same); NULL: it was not measured. Nodes of one host have what it shares. */
const Traind__V1__Link *links_find(const Traind__V1__Links *links, uint64_t from, uint64_t to);

/* Where a node's host shares a cable with others; NULL: nowhere that is known. */
const Traind__V1__LinkSite *links_site(const Traind__V1__Links *links, uint64_t node);

/* Tables on stdout, or JSON: {"links": [...], "sites": [...], "hosts": [...]}. */
void links_print_people(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed,
    bool color);
void links_print_json(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed);

#endif
