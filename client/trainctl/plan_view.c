#include "client/trainctl/plan_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/plan_keys.h"
#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_predict.h"

tr_status plan_view_init(struct plan_view *v, const struct plan_print *p, struct tr_error *error)
{
	*v = (struct plan_view){ .p = p, .best = &p->result->best };
	v->layout = plan_layout_create(p->in, error);
	if (v->layout == NULL)
		return error->status;
	v->dp = v->best->choice.mesh.size[MESH_DP];
	v->pp = v->best->choice.mesh.size[MESH_PP];
	v->tp = v->best->choice.mesh.size[MESH_TP];
	struct schedule_shape shape = { v->best->choice.kind, v->pp, 0, v->best->choice.chunks };
	for (uint32_t d = 0; d < v->dp; d++)
		if (v->best->microbatches_of[d] > shape.microbatches)
			shape.microbatches = v->best->microbatches_of[d];
	shape.microbatches /= plan_input_runs(p->in, v->dp); /* at a time */
	plan_refill(v->layout, v->best);
	plan_layout_traffic(v->layout, v->best);
	tr_status st = schedule_create(&shape, &v->schedule, error);
	if (st != TR_OK)
		plan_layout_destroy(v->layout);
	return st;
}

void plan_view_finish(struct plan_view *v)
{
	plan_layout_destroy(v->layout);
	schedule_finish(&v->schedule);
}

double plan_view_tokens_per_s(const struct plan_view *v, const struct plan *plan)
{
	return (double)v->p->in->batch * v->p->in->sequence_length / plan->times.step_s;
}

const struct plan_worker *plan_view_worker(const struct plan_view *v, uint32_t rank)
{
	return &v->p->in->cluster->workers[v->best->worker_of[rank]];
}

const char *plan_view_node(const struct plan_view *v, uint32_t node)
{
	return v->p->in->cluster->nodes[node].name;
}

uint32_t plan_view_keys(const struct plan_view *v,
    void (*take)(struct json *json, const char *key, bool first), struct json *json)
{
	const struct plan_print *p = v->p;
	const struct plan_keys keys = { p->in, v->best, p->spec, p->threads };
	uint32_t uneven = 0;
	char *text = plan_keys_text(&keys, &uneven), *rest = text, *key;
	while ((key = strsep(&rest, "\n")) != NULL && *key != '\0')
		take(json, key, key == text);
	free(text);
	return uneven;
}

uint64_t plan_view_writer(const struct plan_view *v)
{
	return plan_rank_bytes(v->layout, v->best, 0, &v->schedule) +
	    plan_writer_bytes(v->layout, v->best, v->p->saves);
}

uint32_t plan_view_card(const struct plan_view *v, uint32_t host, bool in)
{
	const struct plan_cluster *c = v->p->in->cluster;
	uint32_t n = c->node_count, used = 0;
	for (uint32_t i = 0; i < n * n; i++) {
		uint32_t from = c->nodes[i / n].host, to = c->nodes[i % n].host;
		used += from != to && (in ? to : from) == host && v->layout->bytes[i] > 0;
	}
	return used > 1 ? plan_layout_card(v->layout, host, in) : UINT32_MAX;
}

uint32_t plan_view_cable(const struct plan_view *v, uint32_t site, bool in)
{
	const struct plan_cluster *c = v->p->in->cluster;
	uint32_t n = c->node_count, used = 0, cable = plan_layout_cable(v->layout, site, in);
	for (uint32_t i = 0; i < n * n; i++) {
		uint32_t from = plan_cluster_site(c, i / n), to = plan_cluster_site(c, i % n);
		used += from != to && (in ? to : from) == site && v->layout->bytes[i] > 0;
	}
	return used > 1 && !isinf(plan_layout_bandwidth(v->layout, cable)) ? cable : UINT32_MAX;
}
