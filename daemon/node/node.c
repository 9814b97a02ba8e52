#include "daemon/node/node.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/link.h"
#include "collectives/engine/relaying.h"
#include "collectives/transport/address.h"
#include "collectives/transport/listener.h"
#include "common/limits.h"
#include "common/log.h"
#include "daemon/api/forward.h"
#include "daemon/api/grpc_server.h"
#include "daemon/node/advertise.h"
#include "daemon/node/cgroup.h"
#include "daemon/node/devices.h"
#include "daemon/node/engine_mail.h"
#include "daemon/node/identity.h"
#include "daemon/node/kept.h"
#include "daemon/node/logs.h"
#include "daemon/node/node_facts.h"
#include "daemon/node/probing.h"
#include "daemon/node/worker.h"
#include "daemon/shell/healthz.h"
#include "daemon/shell/rundir.h"

struct node {
	uv_loop_t *loop;
	struct node_facts facts;
	struct workers workers;
	struct logs *logs;
	struct engine *engine;
	struct tls_context *tls; /* NULL: plain */
	struct engine_mail engine_mail;
	struct link link;
	struct listener *listener, *api_listener;
	struct relaying relaying;
	struct probing probing;
	struct grpc_server *grpc;
	struct forward *forward;
	char folder[PATH_MAX], cgroup[PATH_MAX + 64];
	bool stopping, closed;
};

static void close_parts(struct node *node);

/* ---- what comes in by the port */

static void accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct node *node = arg;
	switch (protocol) {
	case LISTENER_FRAMES:
		engine_accept(node->engine, stream, early, early_bytes);
		break;
	case LISTENER_RELAY:
		relaying_accept(&node->relaying, stream);
		break;
	case LISTENER_PROBE:
		probing_accept(&node->probing, stream);
		break;
	case LISTENER_HTTP2:
		grpc_server_accept(node->grpc, stream, early, early_bytes);
		break;
	case LISTENER_HTTP1:
		healthz_answer(node->loop, stream, early, early_bytes, !node->stopping,
		    "it is ending");
		break;
	}
}

/* The API's socket is for gRPC only: who can open it is not thereby a peer. */
static void api_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	if (protocol == LISTENER_HTTP2 || protocol == LISTENER_HTTP1)
		accepted(arg, protocol, stream, early, early_bytes);
	else
		stream_close(&stream);
}

/* ---- what memberd says */

static void fill_hello(void *arg, Traind__Peer__NodeHello *hello)
{
	struct node *node = arg;
	node_facts_hello(&node->facts, &node->workers, node->engine, hello);
	hello->relays = node->relaying.busy;
	hello->probe_token_low = node->probing.token[0];
	hello->probe_token_high = node->probing.token[1];
}

static void fill_heartbeat(void *arg, Traind__Peer__Heartbeat *heartbeat)
{
	struct node *node = arg;
	node_facts_heartbeat(&node->facts, &node->workers, node->engine, heartbeat);
}

static void welcomed(void *arg, const Traind__Peer__Welcome *welcome)
{
	struct node *node = arg;
	struct tr_error error;
	if (welcome->node_id != node->facts.identity.node_id)
		workers_forget_ends(
		    &node->workers); /* another cluster's, which has these numbers again */
	if (identity_keep(node->folder, &node->facts.identity, welcome->node_id, &error) != TR_OK)
		log_error("node", "%s; after a restart this will be a new node", error.text);
	node->workers.node = welcome->node_id;
	workers_report_ends(&node->workers);
}

static void memberd_lost(void *arg)
{
	struct node *node = arg;
	engine_memberd_lost(node->engine);
	/* Its readers went with it. */
	logs_cancel(node->logs, 0);
}

static bool is_behind(void *arg)
{
	const struct node *node = arg;
	return engine_backlog(node->engine) >= TR_TO_NODE_BYTES_MAX;
}

static void open_log(struct node *node, const Traind__Peer__LogRequest *request)
{
	logs_open(node->logs,
	    &(struct logs_request){
	        .stream = request->stream,
	        .job = request->job_id,
	        .peer = request->peer,
	        .follow = request->follow,
	        .tail_bytes = request->tail_bytes,
	        .credit_bytes = request->credit_bytes,
	    });
}

static void message(void *arg, const Traind__Peer__ToNode *message)
{
	struct node *node = arg;
	switch (message->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_START_WORKER:
		if (!node->stopping)
			workers_start(&node->workers, message->start_worker);
		break;
	case TRAIND__PEER__TO_NODE__BODY_STOP_WORKER:
		workers_stop(&node->workers, message->stop_worker->job_id,
		    message->stop_worker->peer, message->stop_worker->grace_ms,
		    message->stop_worker->reason);
		break;
	case TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED:
		engine_to_node(node->engine, message);
		workers_evict(&node->workers, message->peer_evicted);
		break;
	case TRAIND__PEER__TO_NODE__BODY_GROUP_OVER:
		kept_drop(node->folder, message->group_over->group);
		engine_to_node(node->engine, message);
		break;
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
	case TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE:
	case TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL:
	case TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED:
		engine_to_node(node->engine, message);
		break;
	case TRAIND__PEER__TO_NODE__BODY_RELAY_DUTIES:
		relaying_duties(&node->relaying, message->relay_duties);
		break;
	case TRAIND__PEER__TO_NODE__BODY_MEASURE_LINK:
		probing_measure(&node->probing, message->measure_link);
		break;
	case TRAIND__PEER__TO_NODE__BODY_LOG_REQUEST:
		open_log(node, message->log_request);
		break;
	case TRAIND__PEER__TO_NODE__BODY_LOG_CREDIT:
		logs_credit(node->logs, message->log_credit->stream, message->log_credit->bytes);
		break;
	case TRAIND__PEER__TO_NODE__BODY_LOG_CANCEL:
		logs_cancel(node->logs, message->log_cancel->stream);
		break;
	default:
		log_debug("node", "memberd said something that this version does not know (%d)",
		    message->body_case);
	}
}

/* ---- what goes to memberd */

static void report(void *arg, const Traind__Peer__ToMember *to_member)
{
	struct node *node = arg;
	link_send(&node->link, to_member);
}

static void from_engine(void *arg, const void *packed, size_t bytes)
{
	struct node *node = arg;
	link_send_packed(&node->link, packed, bytes);
}

static void channel_closed(void *arg, uint64_t group, uint64_t peer, Traind__Peer__LastWords *words)
{
	struct node *node = arg;
	workers_channel_closed(&node->workers, group, peer, words);
}

static void log_data(void *arg, uint64_t stream, uint64_t position, const void *data, size_t bytes,
    bool end, const char *error)
{
	struct node *node = arg;
	Traind__Peer__ToMember to_member = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__LogData piece = TRAIND__PEER__LOG_DATA__INIT;
	piece.stream = stream;
	piece.data.data = (uint8_t *)(uintptr_t)data;
	piece.data.len = bytes;
	piece.position = position;
	piece.end = end;
	piece.error = (char *)(uintptr_t)error;
	to_member.body_case = TRAIND__PEER__TO_MEMBER__BODY_LOG_DATA;
	to_member.log_data = &piece;
	link_send(&node->link, &to_member);
}

static void log_drained(void *arg, uint64_t peer, const char *last_lines)
{
	struct node *node = arg;
	workers_drained(&node->workers, peer, last_lines);
}

static void worker_gone(void *arg)
{
	struct node *node = arg;
	if (node->stopping && node->workers.count == 0)
		close_parts(node);
}

/* ---- life */

/* Workers' cgroups are named after our folder, which is locked: whatever has such a name now has lost its traind. */
static void find_cgroup(struct node *node)
{
	char reason[256] = "no folder", place[PATH_MAX];
	struct stat folder;
	if (stat(node->folder, &folder) != 0 ||
	    !cgroup_find(place, sizeof(place), reason, sizeof(reason))) {
		log_info("node",
		    "workers run without cgroups (%s); their processes are found in /proc instead",
		    reason);
		return;
	}
	(void)snprintf(node->cgroup, sizeof(node->cgroup), "%s/traind-%llx-%llx-", place,
	    (unsigned long long)folder.st_dev, (unsigned long long)folder.st_ino);
	size_t left = cgroup_sweep(node->cgroup);
	if (left > 0)
		log_warn("node", "%zu workers of an earlier traind were still here and were killed",
		    left);
}

static void set_workers(struct node *node, const struct node_options *options)
{
	node->workers.loop = node->loop;
	node->workers.engine = node->engine;
	node->workers.logs = node->logs;
	node->workers.trainworker = options->trainworker;
	node->workers.folder = node->folder;
	node->workers.cgroup = node->cgroup;
	node->workers.cores = node->facts.devices.cores;
	node->workers.slots = options->slots;
	node->workers.open_files = options->open_files;
	node->workers.halted_ms = options->halted_ms;
	node->workers.set_omp = options->set_omp;
	node->workers.report = report;
	node->workers.changed = worker_gone;
	node->workers.arg = node;
}

static tr_status open_api_socket(struct node *node, const struct node_options *options,
    struct tr_error *error)
{
	char address[PATH_MAX + 16];
	if (options->api_socket != NULL)
		(void)snprintf(address, sizeof(address), "unix:%s", options->api_socket);
	else
		(void)snprintf(address, sizeof(address), "unix:%s/api.sock", options->folder);
	tr_status st = listener_start(node->loop, address, options->insecure, NULL, api_accepted,
	    node, &node->api_listener, error);
	if (st == TR_OK || options->api_socket != NULL)
		return st;
	log_warn("node", "no API on a UNIX socket: %s", error->text);
	return TR_OK;
}

static tr_status open_ports(struct node *node, const struct node_options *options,
    struct tr_error *error)
{
	struct grpc_server_options grpc = { .methods = forward_methods(), .fallback = forward_call };
	tr_status st = forward_create(node->loop, options->memberd, node->tls, &node->forward,
	    error);
	if (st != TR_OK)
		return st;
	grpc.arg = node->forward;
	if (grpc_server_create(node->loop, &grpc, &node->grpc) != TR_OK)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	st = listener_start(node->loop, options->listen, options->insecure, node->tls, accepted,
	    node, &node->listener, error);
	if (st == TR_OK)
		st = relaying_start(&node->relaying, node->loop, node->tls, options->insecure,
		    node->listener, options->memberd, error);
	if (st == TR_OK)
		st = open_api_socket(node, options, error);
	return st;
}

static tr_status open_parts(struct node *node, const struct node_options *options,
    struct tr_error *error)
{
	static const struct logs_callbacks logs_calls = { log_data, log_drained };
	static const struct link_callbacks link_calls = {
		.hello = fill_hello,
		.heartbeat = fill_heartbeat,
		.welcome = welcomed,
		.message = message,
		.lost = memberd_lost,
		.behind = is_behind,
	};
	char folder[PATH_MAX + 8];
	(void)snprintf(folder, sizeof(folder), "%s/logs", options->folder);
	tr_status st = identity_load(options->folder, &node->facts.identity, error);
	if (st == TR_OK)
		st = logs_create(node->loop, folder, &logs_calls, node, &node->logs, error);
	if (st == TR_OK)
		st = engine_mail_init(&node->engine_mail, node->loop, from_engine, channel_closed,
		    node, error);
	if (st == TR_OK)
		st = engine_create(&engine_mail_callbacks, &node->engine_mail, &node->engine, error);
	if (st == TR_OK && options->tls != NULL)
		st = tls_context_load(options->tls, &node->tls, error);
	if (st == TR_OK && options->tls == NULL)
		st = address_check_plain(options->memberd, options->insecure, error);
	const struct engine_links links = { .tls = node->tls,
		.memberd = options->memberd,
		.insecure = options->insecure };
	if (st == TR_OK)
		st = engine_set_links(node->engine, &links, error);
	node->probing.report = report;
	node->probing.arg = node;
	node->probing.trainworker = options->trainworker;
	if (st == TR_OK)
		st = probing_start(&node->probing, node->loop, node->tls, options->insecure, error);
	if (st == TR_OK)
		st = open_ports(node, options, error);
	if (st == TR_OK)
		st = advertise_address(listener_address(node->listener), options->advertise,
		    node->facts.address, error);
	if (st == TR_OK)
		st = tls_context_check_address(node->tls, node->facts.address, error);
	if (st != TR_OK)
		return st;
	find_cgroup(node);
	set_workers(node, options);
	kept_drop(node->folder, 0); /* their groups have put them out with the traind before */
	st = link_start(&node->link, node->loop, options->memberd, node->tls, &link_calls, node,
	    error);
	return st == TR_OK ? rundir_announce(options->folder, node->facts.address, error) : st;
}

static bool is_name(const char *text)
{
	size_t length = strlen(text), at = 0;
	while (at < length && !iscntrl((unsigned char)text[at]))
		at++;
	return length > 0 && length < TR_NAME_MAX && at == length;
}

/* The default of --listen is for one machine alone. */
static void warn_of_loopback(const struct node *node, const char *memberd)
{
	if (address_check_told(memberd, false, NULL) == TR_EREFUSED &&
	    address_check_told(node->facts.address, false, NULL) == TR_OK)
		log_warn("node",
		    "memberd is at %s, and other machines cannot dial this node at %s: give "
		    "--listen ADDR, or --advertise HOST",
		    memberd, node->facts.address);
}

tr_status node_create(uv_loop_t *loop, const struct node_options *options, struct node **node,
    struct tr_error *error)
{
	if (!is_name(options->name))
		return tr_error_set(error, TR_EINVAL,
		    "--name: allowed: 1 to %d bytes, none of them a control character",
		    TR_NAME_MAX - 1);
	struct node *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	made->loop = loop;
	(void)snprintf(made->folder, sizeof(made->folder), "%s", options->folder);
	(void)snprintf(made->facts.name, sizeof(made->facts.name), "%s", options->name);
	made->facts.slots = options->slots;
	devices_detect(&made->facts.devices);
	tr_status st = open_parts(made, options, error);
	if (st != TR_OK) {
		close_parts(made);
		(void)uv_run(loop, UV_RUN_DEFAULT);
		node_destroy(made);
		return st;
	}
	log_info("node",
	    "traind " TR_VERSION " serves at %s, folder %s, %" PRIu32 " slot%s, %u cores",
	    made->facts.address, made->folder, made->facts.slots, made->facts.slots == 1 ? "" : "s",
	    made->facts.devices.cores);
	warn_of_loopback(made, options->memberd);
	*node = made;
	return TR_OK;
}

static void grpc_closed(void *arg)
{
	const struct node *node = arg;
	forward_destroy(node->forward);
}

static void close_parts(struct node *node)
{
	if (node->closed)
		return;
	node->closed = true;
	rundir_retract(node->folder);
	relaying_close(&node->relaying);
	probing_close(&node->probing);
	if (node->listener != NULL)
		listener_stop(node->listener);
	if (node->api_listener != NULL)
		listener_stop(node->api_listener);
	healthz_finish();
	if (node->grpc != NULL)
		grpc_server_close(node->grpc, grpc_closed, node);
	else if (node->forward != NULL)
		forward_destroy(node->forward);
	link_close(&node->link, "traind ends");
	engine_destroy(node->engine);
	engine_mail_close(&node->engine_mail);
	logs_destroy(node->logs);
	node->logs = NULL;
}

void node_stop(struct node *node, const char *reason)
{
	Traind__Peer__ToMember to_member = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__NodeLeave leave = TRAIND__PEER__NODE_LEAVE__INIT;
	if (node->stopping)
		return;
	node->stopping = true;
	leave.reason = (char *)(uintptr_t)reason;
	to_member.body_case = TRAIND__PEER__TO_MEMBER__BODY_NODE_LEAVE;
	to_member.node_leave = &leave;
	link_send(&node->link, &to_member);
	/* memberd has taken our peers out with that; how their processes end is our own affair. */
	link_close(&node->link, "traind ends");
	workers_stop(&node->workers, 0, 0, TR_WORKER_TERM_GRACE_MS, "traind ends");
	if (node->workers.count == 0)
		close_parts(node);
}

void node_destroy(struct node *node)
{
	if (node == NULL)
		return;
	workers_forget_ends(&node->workers);
	tls_context_release(node->tls);
	free(node);
}
