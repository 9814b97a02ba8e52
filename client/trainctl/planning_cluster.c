#include "client/trainctl/planning_cluster.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "client/trainctl/interrupt.h"
#include "client/trainctl/links.h"
#include "client/trainctl/print.h"

#define DEADLINE_MS 10000
/* Links that nobody has measured: between workers of one host, and between hosts. */
#define HOST_LATENCY_S      20e-6
#define HOST_BYTES_PER_S    1.5e9
#define NETWORK_LATENCY_S   0.25e-3
#define NETWORK_BYTES_PER_S 125e6
/* Two that cannot reach each other: through a relay perhaps, at a rate that nobody knows. */
#define RELAY_LATENCY_S   50e-3
#define RELAY_BYTES_PER_S 1e6
/* What the engine does of a message inside a host, besides waking who waits: half of an attached worker's small sum, less its wakes. */
#define ENGINE_S 9e-6

struct taking {
	const Traind__V1__ListNodesResponse *listed;
	const Traind__V1__Links *links; /* NULL: none */
	struct links_layers layers;
	const Traind__V1__Node *there[TR_GROUP_PEERS_MAX];
	uint32_t take[TR_GROUP_PEERS_MAX]; /* of its slots */
	uint32_t nodes, workers;
	uint32_t slots_left;                /* that have no cores */
	uint32_t slots_over;                /* more than a job may have workers */
	uint32_t measured, assumed, failed; /* links between nodes */
	double oldest_s;
	const Traind__V1__Node *cut_off[2]; /* the first that cannot reach each other */
	char why[160];                      /* nothing was measured; "": it was, or had been */
};

static size_t host_of(const char *address)
{
	const char *colon = strrchr(address, ':');
	return colon != NULL ? (size_t)(colon - address) : strlen(address);
}

static bool same_host(const Traind__V1__Node *a, const Traind__V1__Node *b)
{
	size_t length = host_of(a->address);
	return length == host_of(b->address) && strncmp(a->address, b->address, length) == 0;
}

static bool is_there(const Traind__V1__Node *node)
{
	return strcmp(node->state, "alive") == 0 && node->slots > 0;
}

/* Slots of all nodes of a node's host, which share its memory and cores. */
static uint32_t slots_of_host(const Traind__V1__ListNodesResponse *listed,
    const Traind__V1__Node *node)
{
	uint32_t slots = 0;
	for (size_t i = 0; i < listed->n_nodes; i++)
		if (is_there(listed->nodes[i]) && same_host(listed->nodes[i], node))
			slots += listed->nodes[i]->slots;
	return slots;
}

/* A node whose slots may be taken. */
struct offer {
	uint32_t slots; /* that are left */
	uint32_t cores; /* that its host has for workers; UINT32_MAX: any number */
	uint32_t host;  /* the first node of it */
};

/* Threads of a worker are what a slot has of its node's cores, where the job does not say. */
static void find_threads(const struct taking *t, const Traind__V1__Node *node, unsigned *threads)
{
	uint32_t slots = slots_of_host(t->listed, node);
	assert(slots > 0); /* its own */
	unsigned each = node->cores / slots;
	if (*threads == 0)
		*threads = each > 0 ? each : 1;
}

static void add_offer(struct taking *t, const Traind__V1__Node *node, enum planning_slots which,
    unsigned threads, struct offer *offers)
{
	uint32_t used = which == PLANNING_SLOTS_FREE ? (uint32_t)node->n_workers : 0, host = 0;
	uint32_t slots = node->slots > used ? node->slots - used : 0,
	         cores = node->cores / threads > 0 ? node->cores / threads : 1;
	if (slots == 0)
		return;
	if (t->nodes == TR_GROUP_PEERS_MAX) {
		t->slots_over += slots;
		return;
	}
	while (host < t->nodes && !same_host(t->there[host], node))
		host++;
	t->there[t->nodes] = node;
	offers[t->nodes++] = (struct offer){ slots,
		which == PLANNING_SLOTS_ALL ? UINT32_MAX : cores, host };
}

/* One slot of each node in turn, as long as its host has cores for it: what is too much for a job is too much of all nodes, so that the search can choose among all
 * speeds and links. */
static void take_in_turn(struct taking *t, struct offer *offers)
{
	uint32_t taken_on[TR_GROUP_PEERS_MAX] = { 0 };
	bool more = true;
	while (more) {
		more = false;
		for (uint32_t i = 0; i < t->nodes; i++) {
			struct offer *offer = &offers[i];
			if (offer->slots == 0 || taken_on[offer->host] >= offer->cores)
				continue;
			more = true;
			offer->slots--;
			taken_on[offer->host]++;
			if (t->workers == TR_GROUP_PEERS_MAX) {
				t->slots_over++;
				continue;
			}
			t->take[i]++;
			t->workers++;
		}
	}
}

/* Those of which nothing was taken are none. */
static void keep_taken(struct taking *t, const struct offer *offers)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < t->nodes; i++) {
		t->slots_left += offers[i].slots;
		if (t->take[i] == 0)
			continue;
		t->there[kept] = t->there[i];
		t->take[kept++] = t->take[i];
	}
	t->nodes = kept;
}

static tr_status take_nodes(struct taking *t, enum planning_slots which, unsigned *threads,
    struct tr_error *error)
{
	struct offer offers[TR_GROUP_PEERS_MAX];
	for (size_t i = 0; i < t->listed->n_nodes; i++) {
		if (!is_there(t->listed->nodes[i]))
			continue;
		find_threads(t, t->listed->nodes[i], threads);
		add_offer(t, t->listed->nodes[i], which, *threads, offers);
	}
	take_in_turn(t, offers);
	keep_taken(t, offers);
	if (t->nodes > 0)
		return TR_OK;
	return tr_error_set(error, TR_EUNAVAILABLE, "the cluster has no node that lives and has %s",
	    which == PLANNING_SLOTS_FREE
	        ? "a free slot: `trainctl nodes` says whose workers have them"
	        : "slots");
}

/* With as many on its host of the job's workers as can be (`of_job`; 0: who knows). One alone has all that there are, as where layers are measured. */
static double cores_part_of(const struct taking *t, uint32_t node, uint32_t of_job, unsigned threads)
{
	const Traind__V1__Node *there = t->there[node];
	double room = (double)there->cores / threads;
	uint32_t most = 0;
	for (uint32_t i = 0; i < t->nodes; i++)
		most += same_host(t->there[i], there) ? t->take[i] : 0;
	if (of_job > 0 && of_job < most)
		most = of_job;
	room = room > 1 ? room : 1;
	return room < most ? room / most : 1;
}

/* ---- links ---- */

static struct flow_link link_of(struct taking *t, uint32_t from, uint32_t to)
{
	const Traind__V1__Node *a = t->there[from], *b = t->there[to];
	const Traind__V1__Link *row = t->links != NULL ? links_find(t->links, a->id, b->id) : NULL;
	bool inside = row != NULL ? row->from_node == row->to_node : same_host(a, b);
	if (row == NULL) {
		t->assumed++;
		return inside ? (struct flow_link){ HOST_LATENCY_S, HOST_BYTES_PER_S }
		              : (struct flow_link){ NETWORK_LATENCY_S, NETWORK_BYTES_PER_S };
	}
	if (row->error[0] != '\0') {
		if (t->failed++ == 0) {
			t->cut_off[0] = a;
			t->cut_off[1] = b;
		}
		return (struct flow_link){ RELAY_LATENCY_S, RELAY_BYTES_PER_S };
	}
	t->measured++;
	t->oldest_s = row->age_s > t->oldest_s ? row->age_s : t->oldest_s;
	return (struct flow_link){ row->latency_s + (inside ? ENGINE_S : 0),
		row->bandwidth_bytes_per_s };
}

/* What a node has measured of this job's layers; 0: of none, or of another's. */
static double layer_of(const struct taking *t, uint32_t node)
{
	char name[LINKS_LAYERS_NAME_MAX];
	const Traind__V1__Link *row = t->links == NULL
	    ? NULL
	    : links_find(t->links, t->there[node]->id, t->there[node]->id);
	links_layers_name(&t->layers, name);
	return row != NULL && strcmp(t->links->layers_of, name) == 0 ? row->layer_s : 0;
}

static bool lacks_links(const struct taking *t)
{
	for (uint32_t i = 0; i < t->nodes * t->nodes; i++) {
		const Traind__V1__Link *row = t->links == NULL
		    ? NULL
		    : links_find(t->links, t->there[i / t->nodes]->id, t->there[i % t->nodes]->id);
		if (row == NULL)
			return true;
	}
	return false;
}

/* Of several hosts, of which one may be slower; a host where somebody worked then has not measured these, and would not now. */
static bool lacks_layers(const struct taking *t)
{
	char name[LINKS_LAYERS_NAME_MAX];
	bool several = false;
	for (uint32_t i = 1; i < t->nodes; i++)
		several = several || !same_host(t->there[0], t->there[i]);
	links_layers_name(&t->layers, name);
	return several && strcmp(t->links->layers_of, name) != 0;
}

static tr_status fetch(struct taking *t, struct rpc *rpc, enum planning_links how,
    struct tr_error *error)
{
	Traind__V1__Links *found = how == PLANNING_LINKS_NEW ? NULL : links_fetch(rpc);
	t->links = found;
	bool known = how == PLANNING_LINKS_MISSING && !lacks_links(t);
	if (known && !lacks_layers(t))
		return TR_OK;
	Traind__V1__Links *measured = links_measure(rpc, &t->layers, known);
	if (measured == NULL && (how == PLANNING_LINKS_NEW || interrupt_pending() != 0))
		return tr_error_set(error, TR_EUNAVAILABLE, "links cannot be measured: %s",
		    rpc->text);
	if (measured == NULL) {
		(void)snprintf(t->why, sizeof(t->why), ": %.150s", rpc->text);
		rpc->status = GRPC_OK; /* no matter: what fails from here on fails for itself */
		return TR_OK;
	}
	if (found != NULL)
		traind__v1__links__free_unpacked(found, NULL);
	t->links = measured;
	return TR_OK;
}

static void say_links(const struct taking *t, char words[PLANNING_LINKS_WORDS_MAX])
{
	char age[PRINT_FIGURE_MAX];
	size_t used = 0;
	if (t->measured > 0)
		used += (size_t)snprintf(words, PLANNING_LINKS_WORDS_MAX,
		    "measured by the nodes, %s ago%s", print_duration(t->oldest_s, age),
		    t->assumed > 0 ? "; others " : "");
	if (t->assumed > 0)
		used += (size_t)snprintf(words + used, PLANNING_LINKS_WORDS_MAX - used,
		    "assumed: %.1f GB/s and %.0f us inside a host, %.0f Mbit/s and %.2f ms one way "
		    "between hosts, as they cannot be measured%s",
		    HOST_BYTES_PER_S * 1e-9, HOST_LATENCY_S * 1e6, NETWORK_BYTES_PER_S * 8e-6,
		    NETWORK_LATENCY_S * 1e3, t->why);
	if (t->failed > 0)
		(void)snprintf(words + used, PLANNING_LINKS_WORDS_MAX - used,
		    "%s%u could not be measured, the first from %s to %s (`trainctl nodes "
		    "--links`): "
		    "taken to be %.0f Mbit/s",
		    used > 0 ? "; " : "", t->failed, t->cut_off[0]->name, t->cut_off[1]->name,
		    RELAY_BYTES_PER_S * 8e-6);
}

/* ---- all of it ---- */

static uint32_t first_of_host(const struct taking *t, uint32_t node)
{
	uint32_t first = 0;
	while (!same_host(t->there[first], t->there[node]))
		first++;
	return first;
}

static void set_site(const struct taking *t, uint32_t node, struct plan_node *to)
{
	const Traind__V1__LinkSite *site = t->links != NULL
	    ? links_site(t->links, t->there[node]->id)
	    : NULL;
	to->site = node;
	for (uint32_t i = node; i > 0 && site != NULL; i--)
		if (links_site(t->links, t->there[i - 1]->id) == site)
			to->site = i - 1;
	to->cable_out_bytes_per_s = site != NULL ? site->out_bytes_per_s : 0;
	to->cable_in_bytes_per_s = site != NULL ? site->in_bytes_per_s : 0;
}

static void fill(struct taking *t, uint32_t of_job, unsigned threads, struct planning_cluster *out)
{
	struct plan_cluster *c = &out->cluster;
	uint32_t next = 0;
	for (uint32_t i = 0; i < t->nodes; i++) {
		const Traind__V1__Node *node = t->there[i];
		uint32_t slots = slots_of_host(t->listed, node);
		assert(slots > 0);
		out->node_ids[i] = node->id;
		out->host_of[i] = first_of_host(t, i);
		out->layer_s[i] = layer_of(t, i);
		out->cores_part[i] = cores_part_of(t, i, of_job, threads);
		(void)snprintf(c->nodes[i].name, TR_NAME_MAX, "%s", node->name);
		c->nodes[i].host = out->host_of[i];
		set_site(t, i, &c->nodes[i]);
		for (uint32_t k = 0; k < t->take[i]; k++)
			c->workers[next++] = (struct plan_worker){ i, 1,
				node->memory_bytes / slots };
		c->busy = c->busy || threads * slots >= node->cores;
		for (uint32_t j = 0; j < t->nodes; j++)
			*plan_cluster_link(c, i, j) = link_of(t, i, j);
	}
	out->slots_left = t->slots_left;
	out->slots_over = t->slots_over;
	say_links(t, out->links_by);
}

tr_status planning_cluster_take(struct rpc *rpc, const struct planning_taking *taking,
    unsigned *threads, struct planning_cluster *out, struct tr_error *error)
{
	Traind__V1__ListNodesRequest request = TRAIND__V1__LIST_NODES_REQUEST__INIT;
	Traind__V1__ListNodesResponse *listed = rpc_call(rpc, RPC_PATH("ListNodes"), &request,
	    &traind__v1__list_nodes_response__descriptor, DEADLINE_MS);
	struct taking t = { .listed = listed };
	if (listed == NULL)
		return tr_error_set(error, TR_EUNAVAILABLE, "%s", rpc->text);
	tr_status st = take_nodes(&t, taking->slots, threads, error);
	if (st == TR_OK)
		st = plan_cluster_create(t.nodes, t.workers, &out->cluster, error);
	t.layers = (struct links_layers){ taking->spec, *threads };
	if (st == TR_OK)
		st = fetch(&t, rpc, taking->links, error);
	if (st == TR_OK)
		fill(&t, taking->spec->mesh->workers, *threads, out);
	if (t.links != NULL)
		traind__v1__links__free_unpacked((Traind__V1__Links *)(uintptr_t)t.links, NULL);
	traind__v1__list_nodes_response__free_unpacked(listed, NULL);
	return st;
}
