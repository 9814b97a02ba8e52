#include "client/trainctl/plan_view.h"
#include "client/trainctl/print.h"
#include "daemon/plan/plan_loss.h"
#include "daemon/plan/plan_memory.h"

static void key_double(struct json *json, const char *key, double value)
{
	json_key(json, key);
	json_double(json, value);
}

static void key_string(struct json *json, const char *key, const char *value)
{
	json_key(json, key);
	json_string(json, value);
}

/* Into an object that is open. */
static void write_plan(struct json *json, const struct plan_view *v, const struct plan *plan)
{
	const struct plan_times *t = &plan->times;
	for (unsigned axis = 0; axis < MESH_AXES; axis++)
		json_key_uint(json, mesh_axis_name((enum mesh_axis)axis),
		    plan->choice.mesh.size[axis]);
	key_string(json, "schedule", schedule_kind_name(plan->choice.kind));
	json_key_uint(json, "chunks", plan->choice.chunks);
	json_key_uint(json, "microbatch", plan->choice.sequences);
	json_key_bool(json, "recompute", plan->choice.recompute);
	json_key_bool(json, "sequence_parallel", plan->choice.own_rows);
	json_key_uint(json, "zero_owners", plan->choice.owners);
	key_double(json, "step_s", t->step_s);
	key_double(json, "tokens_per_s", plan_view_tokens_per_s(v, plan));
	json_key_uint(json, "memory_bytes", plan->memory_bytes);
	json_key_bool(json, "fits", plan->memory_part <= 1);
}

static void write_times(struct json *json, const struct plan_times *t)
{
	json_key(json, "times");
	json_object(json);
	key_double(json, "compute_s", t->compute_s);
	key_double(json, "exchange_s", t->exchange_s);
	key_double(json, "idle_s", t->idle_s);
	key_double(json, "reduce_s", t->reduce_s);
	key_double(json, "update_s", t->update_s);
	json_end(json);
}

/* What memory_bytes is the sum of. */
static void write_memory(struct json *json, const struct plan_view *v, uint32_t rank)
{
	struct plan_rank_memory m;
	plan_rank_memory(v->layout, v->best, rank, &v->schedule, &m);
	json_key(json, "memory");
	json_object(json);
	json_key_uint(json, "process", m.process);
	json_key_uint(json, "state", m.state);
	json_key_uint(json, "activations", m.activations);
	json_key_uint(json, "working", m.working);
	json_key_uint(json, "messages", m.messages);
	json_key_uint(json, "copy", m.copy);
	json_end(json);
}

static void write_ranks(struct json *json, const struct plan_view *v)
{
	json_key(json, "layers");
	json_array(json);
	for (uint32_t stage = 0; stage < v->pp * v->best->choice.chunks; stage++)
		json_uint(json, v->best->layers_of[stage]);
	json_end(json);
	json_key(json, "ranks");
	json_array(json);
	for (uint32_t rank = 0; rank < v->dp * v->pp * v->tp; rank++) {
		struct mesh_at at = mesh_at(&v->best->choice.mesh, rank);
		json_object(json);
		json_key_uint(json, "rank", rank);
		for (unsigned axis = 0; axis < MESH_AXES; axis++)
			json_key_uint(json, mesh_axis_name((enum mesh_axis)axis), at.at[axis]);
		key_string(json, "node", plan_view_node(v, plan_view_worker(v, rank)->node));
		json_key_uint(json, "worker", v->best->worker_of[rank]);
		json_key_uint(json, "microbatches", v->best->microbatches_of[at.at[MESH_DP]]);
		json_key_uint(json, "memory_bytes",
		    plan_rank_bytes(v->layout, v->best, at.at[MESH_PP], &v->schedule));
		write_memory(json, v, at.at[MESH_PP]);
		json_key_uint(json, "has_bytes", plan_view_worker(v, rank)->memory_bytes);
		json_end(json);
	}
	json_end(json);
}

static void write_key(struct json *json, const char *key, bool first)
{
	(void)first;
	json_string(json, key);
}

/* As `--set` has them. */
static void write_keys(struct json *json, const struct plan_view *v)
{
	json_key(json, "keys");
	json_array(json);
	bool places = plan_view_keys(v, write_key, json) == 0;
	json_end(json);
	json_key_bool(json, "keys_place", places);
}

static void write_losses(struct json *json, const struct plan_view *v)
{
	const struct plan_cluster *c = v->p->in->cluster;
	json_key(json, "goes_back_without");
	json_array(json);
	for (uint32_t node = 0; node < c->node_count; node++)
		if (plan_loss_goes_back(c, v->best, node))
			json_string(json, plan_view_node(v, node));
	json_end(json);
}

static void write_links(struct json *json, const struct plan_view *v)
{
	const struct plan_cluster *c = v->p->in->cluster;
	json_key(json, "links");
	json_array(json);
	for (uint32_t i = 0; i < c->node_count * c->node_count; i++) {
		if (v->layout->bytes[i] <= 0)
			continue;
		json_object(json);
		key_string(json, "from", plan_view_node(v, i / c->node_count));
		key_string(json, "to", plan_view_node(v, i % c->node_count));
		key_double(json, "bytes", v->layout->bytes[i]);
		key_double(json, "seconds", v->layout->bytes[i] / c->links[i].bandwidth_bytes_per_s);
		json_end(json);
	}
	json_end(json);
}

/* Those over which several links go: a host's card, by its first node, or a site's cable, by its. */
static void write_shared(struct json *json, const struct plan_view *v, const char *key,
    uint32_t (*link_of)(const struct plan_view *v, uint32_t of, bool in))
{
	const struct plan_cluster *c = v->p->in->cluster;
	json_key(json, key);
	json_array(json);
	for (uint32_t i = 0; i < 2 * c->node_count; i++) {
		uint32_t link = link_of(v, i / 2, i % 2 == 1);
		if (link == UINT32_MAX)
			continue;
		json_object(json);
		key_string(json, "node", plan_view_node(v, i / 2));
		key_string(json, "way", i % 2 == 1 ? "in" : "out");
		key_double(json, "bytes", v->layout->bytes[link]);
		key_double(json, "seconds",
		    v->layout->bytes[link] / plan_layout_bandwidth(v->layout, link));
		json_end(json);
	}
	json_end(json);
}

static void write_others(struct json *json, const struct plan_view *v)
{
	json_key(json, "others");
	json_array(json);
	for (uint32_t i = 0; i < v->p->result->loser_count; i++) {
		json_object(json);
		write_plan(json, v, &v->p->result->losers[i].plan);
		json_key_uint(json, "writer_bytes", v->p->result->losers[i].plan.writer_bytes);
		key_string(json, "why", v->p->result->losers[i].why);
		json_end(json);
	}
	json_end(json);
	json_key(json, "pareto");
	json_array(json);
	for (uint32_t i = 0; i < v->p->result->pareto_count; i++) {
		json_object(json);
		write_plan(json, v, &v->p->result->pareto[i]);
		json_key_uint(json, "writer_bytes", v->p->result->pareto[i].writer_bytes);
		json_end(json);
	}
	json_end(json);
}

tr_status plan_print_json(const struct plan_print *print, struct tr_error *error)
{
	struct plan_view v;
	struct json json = { 0 };
	tr_status st = plan_view_init(&v, print, error);
	if (st != TR_OK)
		return st;
	json_object(&json);
	key_string(&json, "job", print->job);
	json_key_bool(&json, "runnable", print->in->runnable);
	json_key_uint(&json, "writer_bytes", plan_view_writer(&v));
	json_key_bool(&json, "writer_fits",
	    plan_view_writer(&v) <= plan_view_worker(&v, 0)->memory_bytes);
	key_string(&json, "layers_by", print->layers_by);
	key_string(&json, "links_by", print->links_by);
	write_plan(&json, &v, v.best);
	write_times(&json, &v.best->times);
	write_keys(&json, &v);
	write_ranks(&json, &v);
	write_losses(&json, &v);
	write_links(&json, &v);
	write_shared(&json, &v, "cards", plan_view_card);
	write_shared(&json, &v, "cables", plan_view_cable);
	write_others(&json, &v);
	json_end(&json);
	print_json_text(&json);
	plan_view_finish(&v);
	return TR_OK;
}
