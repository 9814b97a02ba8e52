#include "client/trainctl/plan_keys.h"

#include <stdio.h>
#include <string.h>

#include "daemon/plan/plan_dealing.h"

/* ", mesh.shares: [3, 1]"; of a list that is not asked for nothing, or that the file's is none. */
static void print_list(const char *key, const uint32_t *list, uint32_t count, size_t in_file)
{
	if (list[0] == 0 && in_file == 0)
		return;
	(void)printf(", %s: [", key);
	for (uint32_t i = 0; i < count && list[0] > 0; i++)
		(void)printf("%s%u", i > 0 ? ", " : "", list[i]);
	(void)printf("]");
}

/* Nodes that the plan uses, and the most workers on one of them. */
static uint32_t count_nodes(const struct plan_keys *k, uint32_t ranks, uint32_t *most)
{
	const struct plan_cluster *c = k->in->cluster;
	uint32_t nodes = 0;
	*most = 0;
	for (uint32_t node = 0; node < c->node_count; node++) {
		uint32_t here = 0;
		for (uint32_t rank = 0; rank < ranks; rank++)
			here += c->workers[k->plan->worker_of[rank]].node == node;
		nodes += here > 0;
		*most = here > *most ? here : *most;
	}
	return nodes;
}

static void print_where(const struct plan_keys *k, uint32_t nodes, uint32_t workers_per_node)
{
	const Traind__V1__Mesh *file = k->spec->mesh;
	if (file->auto_)
		(void)printf("mesh.auto: false, ");
	(void)printf("mesh.nodes: %u, mesh.workers_per_node: %u, ", nodes, workers_per_node);
	if (file->min_nodes > nodes)
		(void)printf("mesh.min_nodes: %u, ", nodes);
}

static void print_stages(const struct plan_keys *k, uint32_t pp)
{
	const Traind__V1__Mesh *file = k->spec->mesh;
	if (pp > 1 || strcmp(file->schedule, "auto") != 0)
		(void)printf(", mesh.schedule: %s",
		    pp > 1 ? schedule_kind_name(k->plan->choice.kind) : "auto");
	if (pp > 1 || file->chunks > 1)
		(void)printf(", mesh.chunks: %u", k->plan->choice.chunks);
}

void plan_keys_print(const struct plan_keys *k)
{
	const struct plan_choice *c = &k->plan->choice;
	const Traind__V1__Mesh *file = k->spec->mesh;
	const uint32_t *size = c->mesh.size;
	struct dealing dealing;
	uint32_t ranks = mesh_workers(&c->mesh), most, nodes = count_nodes(k, ranks, &most);
	bool even = nodes * most == ranks;
	plan_dealing(k->in, k->plan, &dealing);
	(void)printf("keys      ");
	if (even)
		print_where(k, nodes, most);
	(void)printf("mesh.tp: %u, mesh.pp: %u", size[MESH_TP], size[MESH_PP]);
	if (file->threads != k->threads)
		(void)printf(", mesh.threads: %u", k->threads);
	print_stages(k, size[MESH_PP]);
	print_list("mesh.shares", dealing.shares, size[MESH_DP], file->n_shares);
	print_list("mesh.layers", dealing.layers, size[MESH_PP], file->n_layers);
	if (size[MESH_TP] > 1 || file->sequence_parallel)
		(void)printf(", mesh.sequence_parallel: %s", c->own_rows ? "true" : "false");
	if (c->owners > 0 || file->zero_owners > 0)
		(void)printf(", mesh.zero_owners: %u", c->owners);
	(void)printf(", mesh.recompute: %s, train.micro_sequences: %u\n",
	    c->recompute ? "true" : "false", c->sequences);
	if (!even)
		(void)printf("          no keys place %u workers on %u nodes as unevenly as this; "
		             "`mesh: auto` does\n",
		    ranks, nodes);
	(void)printf("\n");
}
