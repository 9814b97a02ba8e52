/* up and down: the embedded cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/cluster.h"
#include "client/trainctl/interrupt.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"

/* down's options are the last two rows. */
const struct args_row verb_up_options[] = {
	{ "--nodes", NULL, "N",
	    "so many traind in the end (default: as many as there are or were, else 1)", false },
	{ "--slots", NULL, "S",
	    "places for workers on each node that is started (default: as many as it had, else 1)",
	    false },
	{ "--replace", NULL, NULL, "start dead daemons anew", false },
	{ "--dir", NULL, "DIR", "the cluster of DIR instead of that of TRAIND_HOME", false },
	{ NULL, NULL, NULL, NULL, false },
};

static void json_daemon(struct json *json, const struct cluster_daemon *daemon, bool is_node)
{
	json_object(json);
	json_key(json, "name");
	json_string(json, daemon->name);
	json_key(json, "address");
	json_string(json, daemon->address);
	json_key(json, "pid");
	json_int(json, daemon->process.pid);
	json_key_bool(json, "alive", cluster_daemon_alive(daemon));
	if (is_node) {
		json_key(json, "slots");
		json_uint(json, daemon->slots);
	}
	json_end(json);
}

static void print_json(const struct cluster *cluster)
{
	struct json json = { 0 };
	json_object(&json);
	json_key(&json, "folder");
	json_string(&json, cluster->folder);
	json_key(&json, "memberd");
	json_daemon(&json, &cluster->memberd, false);
	json_key(&json, "nodes");
	json_array(&json);
	for (size_t i = 0; i < cluster->n_nodes; i++)
		json_daemon(&json, &cluster->nodes[i], true);
	json_end(&json);
	json_end(&json);
	print_json_text(&json);
}

static void print_people(const struct cluster *cluster, size_t dead)
{
	const struct cluster_daemon *memberd = &cluster->memberd;
	(void)printf("cluster in %s\n", cluster->folder);
	(void)printf("  %-8s  %-21s  pid %d%s\n", memberd->name, memberd->address,
	    (int)memberd->process.pid, cluster_daemon_alive(memberd) ? "" : "  dead");
	for (size_t i = 0; i < cluster->n_nodes; i++) {
		const struct cluster_daemon *node = &cluster->nodes[i];
		(void)printf("  %-8s  %-21s  pid %-7d  %u slot%s%s\n", node->name, node->address,
		    (int)node->process.pid, node->slots, node->slots == 1 ? "" : "s",
		    cluster_daemon_alive(node) ? "" : "  dead");
	}
	if (dead > 0)
		(void)printf("dead: %zu; `trainctl up --replace` starts them anew\n", dead);
	(void)printf("next: `trainctl launch FILE`, `trainctl launch -n 2 -- CMD`, `trainctl "
	             "nodes`; `trainctl down` ends it\n");
}

/* After a reboot, or when all were killed: their folders stay, their record goes. */
static void forget_dead_cluster(struct cluster *cluster)
{
	if (cluster->memberd.process.pid == 0 || cluster_count_alive(cluster) > 0 ||
	    !cluster_await_dead(cluster))
		return;
	(void)fprintf(stderr,
	    "trainctl: the daemons of the cluster in %s have all ended: starting it anew\n",
	    cluster->folder);
	cluster->memberd = (struct cluster_daemon){ 0 };
	cluster->n_nodes = 0;
}

/* A node that runs has the slots with which it was started. */
static void say_kept_slots(const struct cluster *cluster, size_t ran, unsigned slots)
{
	size_t others = 0;
	for (size_t i = 0; i < ran; i++)
		others += cluster->nodes[i].slots != slots ? 1 : 0;
	if (slots != 0 && others > 0)
		(void)fprintf(stderr,
		    "trainctl: nodes that run keep their slots; `trainctl down`, then `trainctl up "
		    "--slots %u` changes them\n",
		    slots);
}

static int up(struct cluster *cluster, struct verb_call *call)
{
	struct tr_error error;
	uint64_t nodes, slots;
	forget_dead_cluster(cluster);
	size_t usual = cluster->n_nodes > 0 ? cluster->n_nodes : cluster_count_folders(cluster);
	if (args_number(call->args, "--nodes", 1, CLUSTER_NODES_MAX, usual > 0 ? usual : 1, &nodes,
	        &error) != TR_OK ||
	    args_number(call->args, "--slots", 1, TR_GROUP_PEERS_MAX, 0, &slots, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	bool running = cluster->memberd.process.pid != 0,
	     replace = args_has(call->args, "--replace");
	if (running && !replace && !cluster_daemon_alive(&cluster->memberd))
		return verbs_complain(EXIT_UNREACHABLE,
		    "memberd (pid %d) has ended; its log is %s/memberd/log; `trainctl up "
		    "--replace` starts it anew",
		    (int)cluster->memberd.process.pid, cluster->folder);
	size_t ran = running && !replace ? cluster->n_nodes : 0;
	struct cluster_plan plan = { .nodes = nodes,
		.slots = (unsigned)slots,
		.replace = replace,
		.search_path = config_search_path() };
	if (cluster_start(cluster, &plan, &error) != TR_OK) {
		int number = interrupt_take();
		if (number != 0)
			return verbs_complain(interrupt_exit_code(number),
			    "%s: what it had started was ended again", interrupt_words(number));
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	}
	if (running && nodes < cluster->n_nodes && args_has(call->args, "--nodes"))
		(void)fprintf(stderr,
		    "trainctl: the cluster has %zu nodes already; `trainctl down` ends it\n",
		    cluster->n_nodes);
	say_kept_slots(cluster, ran, (unsigned)slots);
	if (call->config->json)
		print_json(cluster);
	else
		print_people(cluster, cluster->n_nodes + 1 - cluster_count_alive(cluster));
	return EXIT_OK;
}

/* Runs `function` on the cluster of --dir or TRAIND_HOME, under its lock. */
static int with_cluster(struct verb_call *call, bool make,
    int (*function)(struct cluster *cluster, struct verb_call *call))
{
	struct tr_error error;
	const char *dir = args_value(call->args, "--dir");
	if (dir != NULL && config_set_home(call->config, dir, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "--dir: %s", error.text);
	struct cluster *cluster = malloc(sizeof(*cluster));
	int code = EXIT_JOB_FAILED;
	if (cluster == NULL)
		return verbs_complain(code, "out of memory");
	if (cluster_open(call->config->cluster, make, cluster, &error) != TR_OK) {
		int number = interrupt_take();
		code = number != 0 ? interrupt_exit_code(number) : code;
		(void)verbs_complain(code, "%s", error.text);
	} else {
		code = function(cluster, call);
		cluster_close(cluster);
	}
	free(cluster);
	return code;
}

int verb_up(struct verb_call *call)
{
	interrupt_begin();
	return with_cluster(call, true, up);
}

static int down(struct cluster *cluster, struct verb_call *call)
{
	struct tr_error error;
	size_t recorded = cluster->memberd.process.pid != 0 ? cluster->n_nodes + 1 : 0;
	size_t alive = cluster_count_alive(cluster);
	if (cluster_stop(cluster, &error) != TR_OK)
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	if (call->config->json)
		(void)printf("{\"ended\":%zu,\"already_dead\":%zu}\n", alive, recorded - alive);
	else if (recorded == 0)
		(void)printf("no cluster is running in %s\n", cluster->folder);
	else
		(void)printf("ended %zu daemon%s%s\n", alive, alive == 1 ? "" : "s",
		    recorded > alive ? "; the others had ended before" : "");
	return EXIT_OK;
}

int verb_down(struct verb_call *call)
{
	return with_cluster(call, false, down);
}
