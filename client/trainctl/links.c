#include "client/trainctl/links.h"

#include <stdio.h>
#include <string.h>

#include "client/trainctl/print.h"

#define LIST_DEADLINE_MS    10000
#define MEASURE_DEADLINE_MS 3600000 /* many nodes far apart: the turns have bounds of their own */

Traind__V1__Links *links_fetch(struct rpc *rpc)
{
	Traind__V1__ListLinksRequest listing = TRAIND__V1__LIST_LINKS_REQUEST__INIT;
	return rpc_call(rpc, RPC_PATH("ListLinks"), &listing, &traind__v1__links__descriptor,
	    LIST_DEADLINE_MS);
}

void links_layers_name(const struct links_layers *layers, char name[LINKS_LAYERS_NAME_MAX])
{
	const Traind__V1__Model *m = layers->spec->train->model;
	(void)snprintf(name, LINKS_LAYERS_NAME_MAX, "%.16s %u/%u/%u/%u x %u, %.8s%s%s, threads %u",
	    m->preset, m->width, m->heads, m->kv_heads, m->hidden, m->context,
	    layers->spec->train->optimizer->dtype,
	    layers->spec->train->optimizer->strict ? " strict" : "",
	    layers->spec->train->optimizer->dropout > 0 ? " dropout" : "", layers->threads);
}

Traind__V1__Links *links_measure(struct rpc *rpc, const struct links_layers *layers,
    bool layers_only)
{
	Traind__V1__MeasureLinksRequest request = TRAIND__V1__MEASURE_LINKS_REQUEST__INIT;
	Traind__V1__JobSpec job = TRAIND__V1__JOB_SPEC__INIT;
	Traind__V1__TrainSpec train = TRAIND__V1__TRAIN_SPEC__INIT;
	Traind__V1__Optimizer optimizer = TRAIND__V1__OPTIMIZER__INIT;
	char name[LINKS_LAYERS_NAME_MAX];
	if (layers != NULL) {
		links_layers_name(layers, name);
		optimizer = *layers->spec->train->optimizer;
		optimizer.micro_sequences = 1; /* more is not measured then */
		train.model = layers->spec->train->model;
		train.optimizer = &optimizer;
		job.train = &train;
		request.job = &job;
		request.threads = layers->threads;
		request.layers_of = name;
		request.layers_only = layers_only;
	}
	return rpc_call(rpc, RPC_PATH("MeasureLinks"), &request, &traind__v1__links__descriptor,
	    MEASURE_DEADLINE_MS);
}

/* The node whose links stand for those of this one. */
static uint64_t measured_for(const Traind__V1__Links *links, uint64_t node)
{
	for (size_t i = 0; i < links->n_hosts; i++)
		if (links->hosts[i]->node == node)
			return links->hosts[i]->measured;
	return node;
}

const Traind__V1__Link *links_find(const Traind__V1__Links *links, uint64_t from, uint64_t to)
{
	uint64_t a = measured_for(links, from), b = measured_for(links, to);
	for (size_t i = 0; i < links->n_links; i++)
		if (links->links[i]->from_node == a && links->links[i]->to_node == b)
			return links->links[i];
	return NULL;
}

const Traind__V1__LinkSite *links_site(const Traind__V1__Links *links, uint64_t node)
{
	uint64_t by = measured_for(links, node);
	for (size_t i = 0; i < links->n_sites; i++)
		for (size_t k = 0; k < links->sites[i]->n_nodes; k++)
			if (links->sites[i]->nodes[k] == by)
				return links->sites[i];
	return NULL;
}

/* ---- shown ---- */

static const char *name_of(const Traind__V1__ListNodesResponse *listed, uint64_t id)
{
	for (size_t i = 0; i < listed->n_nodes; i++)
		if (listed->nodes[i]->id == id)
			return listed->nodes[i]->name;
	return "?";
}

static const char *bits_rate(double bytes_per_s, char text[PRINT_FIGURE_MAX])
{
	static const char *const units[] = { "bit/s", "kbit/s", "Mbit/s", "Gbit/s" };
	double bits = 8 * bytes_per_s;
	unsigned unit = 0;
	for (; bits >= 1000 && unit < 3; unit++)
		bits /= 1000;
	(void)snprintf(text, PRINT_FIGURE_MAX, "%.3g %s", bits, units[unit]);
	return text;
}

static void print_row(struct print_table *table, const Traind__V1__Link *link,
    const Traind__V1__ListNodesResponse *listed)
{
	char latency[PRINT_FIGURE_MAX], rate[PRINT_FIGURE_MAX], age[PRINT_FIGURE_MAX];
	bool known = link->error[0] == '\0';
	print_cell(table, "%s", name_of(listed, link->from_node));
	print_cell(table, "%s",
	    link->from_node == link->to_node ? "(inside)" : name_of(listed, link->to_node));
	print_cell(table, "%s", known ? print_latency(link->latency_s, latency) : "-");
	print_cell(table, "%s", known ? bits_rate(link->bandwidth_bytes_per_s, rate) : "-");
	print_cell(table, "%s", print_duration(link->age_s, age));
	print_cell(table, "%s", link->error);
}

/* Which nodes have another one's links. */
static void print_hosts(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed)
{
	for (size_t i = 0; i < links->n_hosts; i++) {
		const Traind__V1__LinkHost *host = links->hosts[i];
		if (host->node != host->measured)
			(void)printf("%s shares the host of %s, and its links\n",
			    name_of(listed, host->node), name_of(listed, host->measured));
	}
}

static const char *cable_rate(double bytes_per_s, char text[PRINT_FIGURE_MAX])
{
	return bytes_per_s > 0 ? bits_rate(bytes_per_s, text) : "as much as their links";
}

static void print_sites(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed)
{
	char out[PRINT_FIGURE_MAX], in[PRINT_FIGURE_MAX];
	for (size_t i = 0; i < links->n_sites; i++) {
		const Traind__V1__LinkSite *site = links->sites[i];
		for (size_t k = 0; k < site->n_nodes; k++)
			(void)printf("%s%s", k > 0 ? ", " : "", name_of(listed, site->nodes[k]));
		(void)printf(": to all others together %s, from them %s\n",
		    cable_rate(site->out_bytes_per_s, out), cable_rate(site->in_bytes_per_s, in));
	}
}

void links_print_people(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed,
    bool color)
{
	static const char *const heads[] = { "FROM", "TO", "ONE WAY", "RATE", "AGE", "REASON" };
	struct print_table table = { .columns = sizeof(heads) / sizeof(heads[0]) };
	if (links->n_links == 0) {
		(void)printf("no links were measured yet: trainctl nodes --measure does that\n");
		return;
	}
	for (size_t i = 0; i < table.columns; i++)
		print_cell(&table, "%s", heads[i]);
	for (size_t i = 0; i < links->n_links; i++)
		print_row(&table, links->links[i], listed);
	print_table_out(&table, color);
	print_sites(links, listed);
	print_hosts(links, listed);
}

static void write_string(struct json *json, const char *key, const char *value)
{
	json_key(json, key);
	json_string(json, value);
}

static void write_figure(struct json *json, const char *key, double value, bool known)
{
	json_key(json, key);
	if (known)
		json_double(json, value);
	else
		json_null(json);
}

static void write_link(struct json *json, const Traind__V1__Link *link,
    const Traind__V1__ListNodesResponse *listed)
{
	bool known = link->error[0] == '\0';
	json_object(json);
	write_string(json, "from", name_of(listed, link->from_node));
	write_string(json, "to", name_of(listed, link->to_node));
	json_key_uint(json, "from_node", link->from_node);
	json_key_uint(json, "to_node", link->to_node);
	write_figure(json, "latency_s", link->latency_s, known);
	write_figure(json, "bandwidth_bytes_per_s", link->bandwidth_bytes_per_s, known);
	write_figure(json, "age_s", link->age_s, true);
	write_figure(json, "layer_s", link->layer_s, link->layer_s > 0);
	write_string(json, "error", known ? NULL : link->error);
	json_end(json);
}

static void write_site(struct json *json, const Traind__V1__LinkSite *site,
    const Traind__V1__ListNodesResponse *listed)
{
	json_object(json);
	json_key(json, "nodes");
	json_array(json);
	for (size_t i = 0; i < site->n_nodes; i++)
		json_string(json, name_of(listed, site->nodes[i]));
	json_end(json);
	write_figure(json, "out_bytes_per_s", site->out_bytes_per_s, site->out_bytes_per_s > 0);
	write_figure(json, "in_bytes_per_s", site->in_bytes_per_s, site->in_bytes_per_s > 0);
	json_end(json);
}

void links_print_json(const Traind__V1__Links *links, const Traind__V1__ListNodesResponse *listed)
{
	struct json json = { 0 };
	json_object(&json);
	json_key(&json, "links");
	json_array(&json);
	for (size_t i = 0; i < links->n_links; i++)
		write_link(&json, links->links[i], listed);
	json_end(&json);
	json_key(&json, "sites");
	json_array(&json);
	for (size_t i = 0; i < links->n_sites; i++)
		write_site(&json, links->sites[i], listed);
	json_end(&json);
	write_string(&json, "layers_of", links->layers_of[0] != '\0' ? links->layers_of : NULL);
	json_key(&json, "hosts");
	json_array(&json);
	for (size_t i = 0; i < links->n_hosts; i++) {
		json_object(&json);
		write_string(&json, "node", name_of(listed, links->hosts[i]->node));
		write_string(&json, "measured", name_of(listed, links->hosts[i]->measured));
		json_end(&json);
	}
	json_end(&json);
	json_end(&json);
	print_json_text(&json);
}
