#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/jobfile.h"
#include "client/trainctl/plan_file.h"
#include "client/trainctl/plan_measured.h"
#include "client/trainctl/plan_print.h"
#include "client/trainctl/verbs.h"

#define DEADLINE_MS 10000
/* What is not known of a running cluster: between workers of one host, and between hosts. */
#define HOST_LATENCY_S      20e-6
#define HOST_BYTES_PER_S    1.5e9
#define NETWORK_LATENCY_S   0.25e-3
#define NETWORK_BYTES_PER_S 125e6
#define ROUND_S             1e-3 /* beginning and commit of a step's round, besides the way */
#define SEQUENCES_MOST      16

const struct args_row verb_plan_options[] = {
	{ "--cluster", NULL, "FILE",
	    "plan for the nodes and links that FILE describes (configs/cluster.yaml is an example) "
	    "instead of the running cluster",
	    false },
	{ "--costs", NULL, "FILE",
	    "times and sizes of layers, as `trainworker --measure` prints them, instead of "
	    "measuring "
	    "on this machine",
	    false },
	{ "--pareto", NULL, NULL, "print also the plans that are slower but take less memory",
	    false },
	{ "--as-is", NULL,
	    NULL, "no other plan than the job's own mesh and train.micro_sequences: what a step of it takes",
	    false },
	{ "--set", NULL, "KEY=VALUE", "override a key of the job file (repeatable)", false },
	{ NULL, NULL, NULL, NULL, false },
};

struct planning {
	struct verb_call *call;
	Traind__V1__JobSpec *spec;
	struct model_config model;
	struct plan_cluster cluster;
	struct plan_measured measured;
	unsigned threads;
	char layers_by[200], links_by[320];
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

static tr_status take_nodes(struct planning *p, const Traind__V1__ListNodesResponse *listed,
    struct tr_error *error)
{
	const Traind__V1__Node *there[TR_GROUP_PEERS_MAX];
	uint32_t nodes = 0, workers = 0, next = 0;
	for (size_t i = 0; i < listed->n_nodes && nodes < TR_GROUP_PEERS_MAX; i++) {
		if (is_there(listed->nodes[i])) {
			there[nodes++] = listed->nodes[i];
			workers += listed->nodes[i]->slots;
		}
	}
	if (nodes == 0)
		return tr_error_set(error, TR_EUNAVAILABLE,
		    "the cluster has no node that lives and has slots");
	tr_status st = plan_cluster_create(nodes, workers, &p->cluster, error);
	for (uint32_t i = 0; i < nodes && st == TR_OK; i++) {
		uint32_t slots = slots_of_host(listed, there[i]);
		assert(slots > 0); /* its own */
		(void)snprintf(p->cluster.nodes[i].name, TR_NAME_MAX, "%s", there[i]->name);
		for (uint32_t slot = 0; slot < there[i]->slots; slot++)
			p->cluster.workers[next++] = (struct plan_worker){ i, 1,
				there[i]->memory_bytes / slots };
		if (p->threads == 0)
			p->threads = there[i]->cores / slots > 0 ? there[i]->cores / slots : 1;
		p->cluster.busy = p->cluster.busy || p->threads * slots >= there[i]->cores;
		for (uint32_t j = 0; j < nodes; j++)
			*plan_cluster_link(&p->cluster, i, j) = same_host(there[i], there[j])
			    ? (struct flow_link){ HOST_LATENCY_S, HOST_BYTES_PER_S }
			    : (struct flow_link){ NETWORK_LATENCY_S, NETWORK_BYTES_PER_S };
	}
	(void)snprintf(p->links_by, sizeof(p->links_by),
	    "assumed: %.1f GB/s and %.0f us inside a host, %.0f Mbit/s and %.2f ms one way between "
	    "hosts; --cluster FILE says what is",
	    HOST_BYTES_PER_S * 1e-9, HOST_LATENCY_S * 1e6, NETWORK_BYTES_PER_S * 8e-6,
	    NETWORK_LATENCY_S * 1e3);
	return st;
}

static int take_cluster(struct planning *p)
{
	const char *file = args_value(p->call->args, "--cluster");
	struct tr_error error;
	assert(p->spec != NULL);
	p->threads = p->spec->mesh->threads;
	if (file != NULL) {
		if (plan_file_read(file, &p->cluster, &error) != TR_OK)
			return verbs_complain(EXIT_USAGE, "%s", error.text);
		(void)snprintf(p->links_by, sizeof(p->links_by), "as %s says", file);
		p->threads = p->threads > 0 ? p->threads : 1;
		return EXIT_OK;
	}
	struct rpc rpc;
	if (rpc_open(&rpc, p->call->config, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	Traind__V1__ListNodesRequest request = TRAIND__V1__LIST_NODES_REQUEST__INIT;
	Traind__V1__ListNodesResponse *listed = rpc_call(&rpc, RPC_PATH("ListNodes"), &request,
	    &traind__v1__list_nodes_response__descriptor, DEADLINE_MS);
	int code = EXIT_OK;
	if (listed == NULL)
		code = rpc_complain(&rpc);
	else if (take_nodes(p, listed, &error) != TR_OK)
		code = verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	if (listed != NULL)
		traind__v1__list_nodes_response__free_unpacked(listed, NULL);
	rpc_close(&rpc);
	return code;
}

static tr_status take_costs(struct planning *p, struct tr_error *error)
{
	const char *file = args_value(p->call->args, "--costs");
	uint32_t tp = 1;
	tr_status st;
	while (2 * tp <= p->cluster.worker_count && 2 * tp <= p->model.heads)
		tp *= 2;
	if (file != NULL) {
		(void)snprintf(p->layers_by, sizeof(p->layers_by), "as %.150s says", file);
		st = plan_measured_read(file, &p->measured, error);
	} else {
		struct plan_measured_limits limits = { p->threads, tp, SEQUENCES_MOST };
		(void)snprintf(p->layers_by, sizeof(p->layers_by),
		    "measured on this machine with %u thread%s; other workers by their speed (%s)",
		    p->threads, p->threads == 1 ? "" : "s",
		    args_has(p->call->args, "--cluster") ? "as the file says"
		                                         : "taken to be the same");
		st = plan_measured_here(p->spec, &limits, config_search_path(), &p->measured, error);
	}
	if (p->measured.costs.round_s == 0)
		p->measured.costs.round_s = ROUND_S;
	return st;
}

/* The mesh that the job file asks for. */
static void take_own(const Traind__V1__JobSpec *spec, struct plan_search_settings *settings)
{
	const Traind__V1__Mesh *mesh = spec->mesh;
	uint32_t tp = mesh->tp > 0 ? mesh->tp : 1, pp = mesh->pp > 0 ? mesh->pp : 1;
	settings->only = (struct plan_choice){
		.mesh = { { [MESH_DP] = mesh->workers / (tp * pp), [MESH_PP] = pp, [MESH_TP] = tp } },
		.sequences = spec->train->optimizer->micro_sequences
	};
	settings->keep = true;
}

static int plan(struct planning *p)
{
	struct plan_search_settings settings = { .seed = 1,
		.pareto = args_has(p->call->args, "--pareto") };
	struct plan_result *result = NULL;
	struct tr_error error;
	const Traind__V1__Optimizer *train = p->spec->train->optimizer;
	struct plan_input in = { &p->cluster, &p->model, &p->measured.costs,
		(uint32_t)(train->batch_tokens / p->model.context), p->model.context };
	if (args_has(p->call->args, "--as-is"))
		take_own(p->spec, &settings);
	tr_status st = take_costs(p, &error);
	if (st == TR_OK)
		st = plan_search(&in, &settings, &result, &error);
	if (st != TR_OK)
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	struct plan_print print = { .in = &in,
		.result = result,
		.job = p->call->args->words[0],
		.layers_by = p->layers_by,
		.links_by = p->links_by,
		.threads = p->threads,
		.color = p->call->config->color,
		.pareto = settings.pareto };
	st = p->call->config->json ? plan_print_json(&print, &error)
	                           : plan_print_people(&print, &error);
	plan_search_destroy(result);
	return st == TR_OK ? EXIT_OK : verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
}

static tr_status read_job(const struct args *args, Traind__V1__JobSpec **spec,
    struct tr_error *error)
{
	const char **sets = calloc(args->n_given + 1, sizeof(*sets));
	size_t count = 0;
	if (sets == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	for (size_t i = 0; i < args->n_given; i++)
		if (strcmp(args->given[i].row->name, "--set") == 0)
			sets[count++] = args->given[i].value;
	tr_status st = jobfile_read(args->words[0], sets, count, spec, error);
	free(sets);
	return st;
}

int verb_plan(struct verb_call *call)
{
	struct planning *p = calloc(1, sizeof(*p));
	struct tr_error error;
	if (p == NULL)
		return verbs_complain(EXIT_JOB_FAILED, "out of memory");
	p->call = call;
	int code = EXIT_OK;
	if (read_job(call->args, &p->spec, &error) != TR_OK ||
	    job_model_config(p->spec->train->model, &p->model, &error) != TR_OK)
		code = verbs_complain(EXIT_USAGE, "%s", error.text);
	if (code == EXIT_OK)
		code = take_cluster(p);
	if (code == EXIT_OK)
		code = plan(p);
	plan_cluster_finish(&p->cluster);
	if (p->spec != NULL)
		traind__v1__job_spec__free_unpacked(p->spec, NULL);
	free(p);
	return code;
}
