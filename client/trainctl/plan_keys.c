#include "client/trainctl/plan_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/plan_dealing.h"

/* "mesh.shares=[3, 1]"; of a list that is not asked for nothing, or that the file's is none. */
static void list_key(FILE *to, const char *key, const uint32_t *list, uint32_t count, size_t in_file)
{
	if (list[0] == 0 && in_file == 0)
		return;
	(void)fprintf(to, "%s=[", key);
	for (uint32_t i = 0; i < count && list[0] > 0; i++)
		(void)fprintf(to, "%s%u", i > 0 ? ", " : "", list[i]);
	(void)fprintf(to, "]\n");
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

static void where_keys(FILE *to, const struct plan_keys *k, uint32_t nodes, uint32_t most)
{
	const Traind__V1__Mesh *file = k->spec->mesh;
	if (file->auto_)
		(void)fprintf(to, "mesh.auto=false\n");
	(void)fprintf(to, "mesh.nodes=%u\nmesh.workers_per_node=%u\n", nodes, most);
	if (file->min_nodes > nodes)
		(void)fprintf(to, "mesh.min_nodes=%u\n", nodes);
}

static void stage_keys(FILE *to, const struct plan_keys *k, uint32_t pp)
{
	const Traind__V1__Mesh *file = k->spec->mesh;
	if (pp > 1 || strcmp(file->schedule, "auto") != 0)
		(void)fprintf(to, "mesh.schedule=%s\n",
		    pp > 1 ? schedule_kind_name(k->plan->choice.kind) : "auto");
	if (pp > 1 || file->chunks > 1)
		(void)fprintf(to, "mesh.chunks=%u\n", k->plan->choice.chunks);
}

static void all_keys(FILE *to, const struct plan_keys *k, uint32_t *uneven)
{
	const struct plan_choice *c = &k->plan->choice;
	const Traind__V1__Mesh *file = k->spec->mesh;
	const uint32_t *size = c->mesh.size;
	struct dealing dealing;
	uint32_t ranks = mesh_workers(&c->mesh), most, nodes = count_nodes(k, ranks, &most);
	*uneven = nodes * most == ranks ? 0 : nodes;
	plan_dealing(k->in, k->plan, &dealing);
	if (*uneven == 0)
		where_keys(to, k, nodes, most);
	(void)fprintf(to, "mesh.tp=%u\nmesh.pp=%u\n", size[MESH_TP], size[MESH_PP]);
	if (file->threads != k->threads)
		(void)fprintf(to, "mesh.threads=%u\n", k->threads);
	stage_keys(to, k, size[MESH_PP]);
	list_key(to, "mesh.shares", dealing.shares, size[MESH_DP], file->n_shares);
	list_key(to, "mesh.layers", dealing.layers, size[MESH_PP], file->n_layers);
	if (size[MESH_TP] > 1 || file->sequence_parallel)
		(void)fprintf(to, "mesh.sequence_parallel=%s\n", c->own_rows ? "true" : "false");
	if (c->owners > 0 || file->zero_owners > 0)
		(void)fprintf(to, "mesh.zero_owners=%u\n", c->owners);
	(void)fprintf(to, "mesh.recompute=%s\ntrain.micro_sequences=%u\n",
	    c->recompute ? "true" : "false", c->sequences);
}

char *plan_keys_text(const struct plan_keys *k, uint32_t *uneven)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	if (to == NULL)
		return NULL;
	all_keys(to, k, uneven);
	if (fclose(to) == 0)
		return text;
	free(text);
	return NULL;
}
