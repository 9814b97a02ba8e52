#include "client/trainctl/plan_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define GBIT           125e6
#define INSIDE_MS      0.01
#define INSIDE_GBIT    40
#define BETWEEN_MS     0.25
#define BETWEEN_GBIT   1
#define MEMORY_DEFAULT "8GiB"
#define MEMORY_MOST    0x1p50

struct reader {
	const char *path;
	yaml_document_t document;
	char sites[TR_GROUP_PEERS_MAX][TR_NAME_MAX]; /* by node */
	uint32_t workers[TR_GROUP_PEERS_MAX];        /* of node */
	struct tr_error *error;
};

static tr_status refuse(const struct reader *r, const yaml_node_t *node, const char *what,
    const char *allowed)
{
	bool scalar = node != NULL && node->type == YAML_SCALAR_NODE;
	return tr_error_set(r->error, TR_EINVAL, "%s:%zu: %s: found %s%.40s%s, allowed: %s",
	    r->path, node != NULL ? node->start_mark.line + 1 : 1, what, scalar ? "'" : "",
	    scalar             ? (const char *)node->data.scalar.value
	        : node == NULL ? "nothing"
	                       : "something else",
	    scalar ? "'" : "", allowed);
}

static yaml_node_t *member(struct reader *r, const yaml_node_t *mapping, const char *key)
{
	if (mapping == NULL || mapping->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
	     pair < mapping->data.mapping.pairs.top; pair++) {
		const yaml_node_t *name = yaml_document_get_node(&r->document, pair->key);
		if (name != NULL && name->type == YAML_SCALAR_NODE &&
		    strcmp((char *)name->data.scalar.value, key) == 0)
			return yaml_document_get_node(&r->document, pair->value);
	}
	return NULL;
}

/* Every key of a mapping is one of `keys`, which ends with NULL. */
static tr_status check_keys(struct reader *r, const yaml_node_t *mapping, const char *what,
    const char *const *keys)
{
	char allowed[160] = "";
	for (size_t i = 0; keys[i] != NULL; i++)
		(void)snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "%s%s",
		    i > 0 ? ", " : "", keys[i]);
	if (mapping->type != YAML_MAPPING_NODE)
		return refuse(r, mapping, what, allowed);
	for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
	     pair < mapping->data.mapping.pairs.top; pair++) {
		const yaml_node_t *name = yaml_document_get_node(&r->document, pair->key);
		bool known = false;
		for (size_t i = 0; keys[i] != NULL && name->type == YAML_SCALAR_NODE; i++)
			known = known || strcmp((char *)name->data.scalar.value, keys[i]) == 0;
		if (!known)
			return refuse(r, name, what, allowed);
	}
	return TR_OK;
}

/* *value stays as it is if the key is not there. */
static tr_status read_number(struct reader *r, const yaml_node_t *mapping, const char *key,
    double least, double *value)
{
	const yaml_node_t *node = member(r, mapping, key);
	char *end = NULL;
	if (node == NULL)
		return TR_OK;
	double number = node->type == YAML_SCALAR_NODE
	    ? strtod((const char *)node->data.scalar.value, &end)
	    : NAN;
	if (end == NULL || end == (const char *)node->data.scalar.value || *end != '\0' ||
	    !(number >= least) || isinf(number))
		return refuse(r, node, key, least > 0 ? "a number above 0" : "a number from 0");
	*value = number;
	return TR_OK;
}

static const char *text_of(struct reader *r, const yaml_node_t *mapping, const char *key,
    const char *otherwise)
{
	const yaml_node_t *node = member(r, mapping, key);
	return node != NULL && node->type == YAML_SCALAR_NODE
	    ? (const char *)node->data.scalar.value
	    : otherwise;
}

static tr_status read_bool(struct reader *r, const yaml_node_t *mapping, const char *key,
    bool *value)
{
	const yaml_node_t *node = member(r, mapping, key);
	const char *text = text_of(r, mapping, key, "");
	if (node == NULL)
		return TR_OK;
	*value = strcmp(text, "true") == 0;
	return *value || strcmp(text, "false") == 0 ? TR_OK : refuse(r, node, key, "true or false");
}

static tr_status read_bytes(struct reader *r, const yaml_node_t *mapping, uint64_t *bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	const yaml_node_t *node = member(r, mapping, "memory");
	const char *text = node == NULL ? MEMORY_DEFAULT : text_of(r, mapping, "memory", "");
	char *end;
	double number = strtod(text, &end);
	while (*end == ' ')
		end++;
	for (unsigned i = 0; i < 5; i++) {
		double found = ldexp(number, (int)(10 * i));
		if (strcmp(end, units[i]) == 0 && found >= 1 && found < MEMORY_MOST) {
			*bytes = (uint64_t)found;
			return TR_OK;
		}
	}
	return refuse(r, node, "memory", "in MiB, GiB or TiB, as 512MiB or 16 GiB, below 1024 TiB");
}

static tr_status read_link(struct reader *r, const yaml_node_t *mapping, struct flow_link *link)
{
	double ms = link->latency_s * 1e3, gbit = link->bandwidth_bytes_per_s / GBIT;
	tr_status st = read_number(r, mapping, "ms", 0, &ms);
	if (st == TR_OK)
		st = read_number(r, mapping, "gbit", 1e-9, &gbit);
	*link = (struct flow_link){ ms / 1e3, gbit * GBIT };
	return st;
}

/* Links could not say which of two they mean. */
static tr_status check_name(struct reader *r, const yaml_node_t *nodes, uint32_t number)
{
	const yaml_node_t *row = yaml_document_get_node(&r->document,
	    nodes->data.sequence.items.start[number]);
	const char *name = text_of(r, row, "name", "");
	if (name[0] == '\0')
		return refuse(r, row, "name", "each node has one");
	for (uint32_t i = 0; i < number; i++) {
		const yaml_node_t *other = yaml_document_get_node(&r->document,
		    nodes->data.sequence.items.start[i]);
		if (strcmp(text_of(r, other, "name", ""), name) == 0)
			return refuse(r, member(r, row, "name"), "name",
			    "one that no other node has");
	}
	return TR_OK;
}

/* How many nodes and workers there are, and where each node is. */
static tr_status count(struct reader *r, const yaml_node_t *nodes, uint32_t *n, uint32_t *workers)
{
	static const char *const keys[] = { "name", "workers", "speed", "memory", "site",
		"card_gbit", "card_in_gbit", NULL };
	if (nodes == NULL || nodes->type != YAML_SEQUENCE_NODE)
		return refuse(r, nodes, "nodes", "a list of {name: ...}");
	for (yaml_node_item_t *item = nodes->data.sequence.items.start;
	     item < nodes->data.sequence.items.top; item++, (*n)++) {
		const yaml_node_t *node = yaml_document_get_node(&r->document, *item);
		double here = 1;
		tr_status st = check_keys(r, node, "nodes", keys);
		if (st == TR_OK && *n >= TR_GROUP_PEERS_MAX)
			st = refuse(r, node, "nodes", "256 at most");
		if (st == TR_OK)
			st = check_name(r, nodes, *n);
		if (st == TR_OK)
			st = read_number(r, node, "workers", 1, &here);
		if (st == TR_OK && (here != floor(here) || here + *workers > TR_GROUP_PEERS_MAX))
			st = refuse(r, member(r, node, "workers"), "workers",
			    "a whole number, 256 of all nodes at most");
		if (st != TR_OK)
			return st;
		(void)snprintf(r->sites[*n], TR_NAME_MAX, "%s", text_of(r, node, "site", ""));
		r->workers[*n] = (uint32_t)here;
		*workers += (uint32_t)here;
	}
	return *n > 0 ? TR_OK : refuse(r, nodes, "nodes", "at least one");
}

/* Of a card, or a cable. Where nobody says, both are 0; who says the first one means both. */
static tr_status read_rates(struct reader *r, const yaml_node_t *row, const char *out_key,
    const char *in_key, double *out, double *in)
{
	double gbit = 0, in_gbit;
	tr_status st = read_number(r, row, out_key, 1e-9, &gbit);
	in_gbit = gbit;
	if (st == TR_OK)
		st = read_number(r, row, in_key, 1e-9, &in_gbit);
	*out = gbit * GBIT;
	*in = in_gbit * GBIT;
	return st;
}

/* A node that names no site is one. */
static uint32_t first_at_site(const struct reader *r, uint32_t node)
{
	uint32_t first = 0;
	while (first < node &&
	    (r->sites[node][0] == '\0' || strcmp(r->sites[first], r->sites[node]) != 0))
		first++;
	return first;
}

static tr_status read_nodes(struct reader *r, const yaml_node_t *nodes, struct plan_cluster *c)
{
	uint32_t next = 0;
	for (uint32_t i = 0; i < c->node_count; i++) {
		const yaml_node_t *node = yaml_document_get_node(&r->document,
		    nodes->data.sequence.items.start[i]);
		struct plan_worker worker = { .node = i, .speed = 1 };
		tr_status st = read_number(r, node, "speed", 1e-9, &worker.speed);
		if (st == TR_OK)
			st = read_bytes(r, node, &worker.memory_bytes);
		if (st == TR_OK)
			st = read_rates(r, node, "card_gbit", "card_in_gbit",
			    &c->nodes[i].card_out_bytes_per_s, &c->nodes[i].card_in_bytes_per_s);
		if (st != TR_OK)
			return st;
		(void)snprintf(c->nodes[i].name, TR_NAME_MAX, "%s", text_of(r, node, "name", ""));
		c->nodes[i].site = first_at_site(r, i);
		for (uint32_t w = 0; w < r->workers[i]; w++)
			c->workers[next++] = worker;
	}
	return TR_OK;
}

static tr_status set_cable(struct reader *r, const yaml_node_t *row, struct plan_cluster *c)
{
	static const char *const keys[] = { "name", "cable_gbit", "cable_in_gbit", NULL };
	const char *name = text_of(r, row, "name", "");
	uint32_t at = 0;
	tr_status st = check_keys(r, row, "sites", keys);
	while (st == TR_OK && at < c->node_count &&
	    (name[0] == '\0' || strcmp(r->sites[at], name) != 0))
		at++;
	if (st == TR_OK && at == c->node_count)
		st = refuse(r, row, "sites", "name is the site of a node");
	return st == TR_OK
	    ? read_rates(r, row, "cable_gbit", "cable_in_gbit", &c->nodes[at].cable_out_bytes_per_s,
	          &c->nodes[at].cable_in_bytes_per_s)
	    : st;
}

static tr_status read_sites(struct reader *r, const yaml_node_t *sites, struct plan_cluster *c)
{
	tr_status st = TR_OK;
	if (sites == NULL)
		return TR_OK;
	if (sites->type != YAML_SEQUENCE_NODE)
		return refuse(r, sites, "sites", "a list of {name: A, cable_gbit: ...}");
	for (yaml_node_item_t *item = sites->data.sequence.items.start;
	     item < sites->data.sequence.items.top && st == TR_OK; item++)
		st = set_cable(r, yaml_document_get_node(&r->document, *item), c);
	return st;
}

static bool is_named(const struct reader *r, const struct plan_cluster *c, uint32_t node,
    const char *name)
{
	return strcmp(c->nodes[node].name, name) == 0 || strcmp(r->sites[node], name) == 0;
}

/* Without it a link would be of all nodes that are at no site. */
static tr_status check_end(struct reader *r, const yaml_node_t *row, const char *key)
{
	if (text_of(r, row, key, "")[0] != '\0')
		return TR_OK;
	const yaml_node_t *end = member(r, row, key);
	if (end != NULL)
		return refuse(r, end, key, "a node, or a site");
	return tr_error_set(r->error, TR_EINVAL,
	    "%s:%zu: links: found one without `%s`, allowed: from and to are nodes, or sites",
	    r->path, row->start_mark.line + 1, key);
}

/* Of all pairs that it names. */
static tr_status set_link(struct reader *r, const yaml_node_t *row, struct plan_cluster *c)
{
	static const char *const keys[] = { "from", "to", "ms", "gbit", "oneway", NULL };
	const char *from = text_of(r, row, "from", ""), *to = text_of(r, row, "to", "");
	bool oneway = false;
	unsigned found = 0;
	tr_status st = check_keys(r, row, "links", keys);
	if (st == TR_OK)
		st = check_end(r, row, "from");
	if (st == TR_OK)
		st = check_end(r, row, "to");
	if (st == TR_OK)
		st = read_bool(r, row, "oneway", &oneway);
	for (uint32_t i = 0; i < c->node_count * c->node_count && st == TR_OK; i++) {
		uint32_t a = i / c->node_count, b = i % c->node_count;
		bool there = is_named(r, c, a, from) && is_named(r, c, b, to),
		     back = !oneway && is_named(r, c, a, to) && is_named(r, c, b, from);
		if (a == b || (!there && !back))
			continue;
		st = read_link(r, row, plan_cluster_link(c, a, b));
		found++;
	}
	if (st == TR_OK && found == 0)
		st = refuse(r, row, "links", "from and to are nodes, or sites");
	return st;
}

static tr_status read_links(struct reader *r, const yaml_node_t *root, struct plan_cluster *c)
{
	static const char *const keys[] = { "ms", "gbit", NULL };
	struct flow_link inside = { INSIDE_MS / 1e3, INSIDE_GBIT * GBIT },
	                 between = { BETWEEN_MS / 1e3, BETWEEN_GBIT * GBIT };
	const yaml_node_t *of_inside = member(r, root, "inside"),
	                  *of_between = member(r, root, "between"),
	                  *links = member(r, root, "links");
	tr_status st = of_inside != NULL ? check_keys(r, of_inside, "inside", keys) : TR_OK;
	if (st == TR_OK)
		st = read_link(r, of_inside, &inside);
	if (st == TR_OK && of_between != NULL)
		st = check_keys(r, of_between, "between", keys);
	if (st == TR_OK)
		st = read_link(r, of_between, &between);
	for (uint32_t i = 0; i < c->node_count * c->node_count; i++)
		c->links[i] = i / c->node_count == i % c->node_count ? inside : between;
	if (st != TR_OK || links == NULL)
		return st;
	if (links->type != YAML_SEQUENCE_NODE)
		return refuse(r, links, "links", "a list of {from: A, to: B, ms: ..., gbit: ...}");
	for (yaml_node_item_t *item = links->data.sequence.items.start;
	     item < links->data.sequence.items.top && st == TR_OK; item++)
		st = set_link(r, yaml_document_get_node(&r->document, *item), c);
	return st;
}

static tr_status read_document(struct reader *r, struct plan_cluster *cluster)
{
	static const char *const keys[] = { "nodes", "sites", "inside", "between", "links", "busy",
		NULL };
	const yaml_node_t *root = yaml_document_get_root_node(&r->document);
	uint32_t nodes = 0, workers = 0;
	if (root == NULL)
		return refuse(r, NULL, "nodes", "a list of {name: ...}");
	tr_status st = check_keys(r, root, "cluster", keys);
	if (st == TR_OK)
		st = count(r, member(r, root, "nodes"), &nodes, &workers);
	if (st == TR_OK)
		st = plan_cluster_create(nodes, workers, cluster, r->error);
	if (st != TR_OK)
		return st;
	st = read_bool(r, root, "busy", &cluster->busy);
	if (st == TR_OK)
		st = read_nodes(r, member(r, root, "nodes"), cluster);
	if (st == TR_OK)
		st = read_sites(r, member(r, root, "sites"), cluster);
	if (st == TR_OK)
		st = read_links(r, root, cluster);
	if (st != TR_OK)
		plan_cluster_finish(cluster);
	return st;
}

tr_status plan_file_read(const char *path, struct plan_cluster *cluster, struct tr_error *error)
{
	yaml_parser_t parser;
	struct reader *r = calloc(1, sizeof(*r));
	FILE *file = fopen(path, "re");
	tr_status st = TR_OK;
	if (r == NULL || !yaml_parser_initialize(&parser)) {
		st = tr_error_set(error, TR_ENOMEM, "no memory to read %s", path);
	} else if (file == NULL) {
		st = tr_error_set(error, TR_ENOTFOUND, "--cluster: cannot read %s: %s", path,
		    strerror(errno));
		yaml_parser_delete(&parser);
	} else {
		r->path = path;
		r->error = error;
		yaml_parser_set_input_file(&parser, file);
		if (!yaml_parser_load(&parser, &r->document)) {
			st = tr_error_set(error, TR_EINVAL, "%s:%zu: no YAML: %s", path,
			    parser.problem_mark.line + 1,
			    parser.problem != NULL ? parser.problem : "it cannot be read");
		} else {
			st = read_document(r, cluster);
			yaml_document_delete(&r->document);
		}
		yaml_parser_delete(&parser);
	}
	if (file != NULL)
		(void)fclose(file);
	free(r);
	return st;
}
