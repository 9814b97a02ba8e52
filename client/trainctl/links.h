/* Links between a cluster's nodes, as its nodes measured them: fetched, found by pair, and shown. */
#ifndef TR_CLIENT_TRAINCTL_LINKS_H
#define TR_CLIENT_TRAINCTL_LINKS_H

#include <stdbool.h>

#include "client/trainctl/rpc.h"

/* What was measured last; `measure`: now, which takes a few seconds for each node. NULL: rpc->status and rpc->text say why. */
Traind__V1__Links *links_fetch(struct rpc *rpc, bool measure);

/* From one node to another, or within one (both the same); NULL: it was not measured. Nodes of one host have what it shares. */
const Traind__V1__Link *links_find(const Traind__V1__Links *links, uint64_t from, uint64_t to);

/* Tables on stdout, or JSON: {"links": [...], "hosts": [...]}. */
void links_print_people(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed,
    bool color);
void links_print_json(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed);

#endif
