#include <stdio.h>

#include "client/trainctl/job_json.h"
#include "client/trainctl/links.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"

#define DEADLINE_MS 10000

const struct args_row verb_nodes_options[] = {
	{ "--links", NULL, NULL, "latency and bandwidth between nodes, as measured last", false },
	{ "--measure", NULL, NULL,
	    "measure them now: each pair sends up to 32 MiB, for a second, in each direction",
	    false },
	{ NULL, NULL, NULL, NULL, false },
};

static void print_json(const Traind__V1__ListNodesResponse *listed)
{
	struct json json = { 0 };
	json_array(&json);
	for (size_t i = 0; i < listed->n_nodes; i++)
		job_json_node(&json, listed->nodes[i]);
	json_end(&json);
	print_json_text(&json);
}

static void print_people(const struct config *config, const Traind__V1__ListNodesResponse *listed)
{
	struct print_table table = { .columns = 9 };
	static const char *const heads[] = { "ID", "NAME", "STATE", "ADDRESS", "PID", "WORKERS",
		"CORES", "MEMORY", "REASON" };
	for (size_t i = 0; i < table.columns; i++)
		print_cell(&table, "%s", heads[i]);
	for (size_t i = 0; i < listed->n_nodes; i++) {
		const Traind__V1__Node *node = listed->nodes[i];
		char memory[PRINT_FIGURE_MAX];
		print_cell(&table, "%llu", (unsigned long long)node->id);
		print_cell(&table, "%s", node->name);
		print_cell(&table, "%s", node->state);
		print_cell(&table, "%s", node->address);
		print_cell(&table, "%u", node->pid);
		print_cell(&table, "%zu/%u", node->n_workers, node->slots);
		print_cell(&table, "%u", node->cores);
		print_cell(&table, "%s", print_bytes(node->memory_bytes, memory));
		print_cell(&table, "%s", node->reason);
	}
	print_table_out(&table, config->color);
}

static int show_links(struct verb_call *call, const Traind__V1__ListNodesResponse *listed)
{
	Traind__V1__Links *links = args_has(call->args, "--measure")
	    ? links_measure(call->rpc, NULL, false)
	    : links_fetch(call->rpc);
	if (links == NULL)
		return rpc_complain(call->rpc);
	if (call->config->json)
		links_print_json(links, listed);
	else
		links_print_people(links, listed, call->config->color);
	traind__v1__links__free_unpacked(links, NULL);
	return EXIT_OK;
}

int verb_nodes(struct verb_call *call)
{
	int code = EXIT_OK;
	Traind__V1__ListNodesRequest request = TRAIND__V1__LIST_NODES_REQUEST__INIT;
	Traind__V1__ListNodesResponse *listed = rpc_call(call->rpc, RPC_PATH("ListNodes"), &request,
	    &traind__v1__list_nodes_response__descriptor, DEADLINE_MS);
	if (listed == NULL)
		return rpc_complain(call->rpc);
	if (args_has(call->args, "--links") || args_has(call->args, "--measure"))
		code = show_links(call, listed);
	else if (call->config->json)
		print_json(listed);
	else
		print_people(call->config, listed);
	traind__v1__list_nodes_response__free_unpacked(listed, NULL);
	return code;
}
