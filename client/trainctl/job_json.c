#include "client/trainctl/job_json.h"

#include <math.h>

#include "client/trainctl/mesh_now.h"
#include "client/trainctl/print.h"
#include "client/trainctl/progress.h"

static void text(struct json *json, const char *key, const char *value)
{
	json_key(json, key);
	json_string(json, value != NULL && value[0] != '\0' ? value : NULL);
}

static void figure(struct json *json, const char *key, double value)
{
	json_key(json, key);
	json_double(json, value);
}

/* For what is 0 until it is known. */
static void known(struct json *json, const char *key, uint64_t value)
{
	json_key(json, key);
	if (value != 0)
		json_uint(json, value);
	else
		json_null(json);
}

static void write_progress(struct json *json, const Traind__V1__Job *job)
{
	Traind__V1__Progress none = TRAIND__V1__PROGRESS__INIT;
	const Traind__V1__Progress *progress = job->progress;
	if (progress == NULL) {
		none.loss = none.val_loss = none.first_loss = NAN;
		progress = &none;
	}
	bool train = job->spec != NULL && job->spec->train != NULL;
	json_key_uint(json, "step", progress->step);
	known(json, "steps", progress_steps(job));
	figure(json, "loss", train ? progress->loss : NAN);
	figure(json, "val_loss", train ? progress->val_loss : NAN);
	figure(json, "first_loss", train ? progress->first_loss : NAN);
	figure(json, "tokens_per_s", progress->tokens_per_s > 0 ? progress->tokens_per_s : NAN);
	figure(json, "grad_norm", train && progress->step > 0 ? progress->grad_norm : NAN);
	figure(json, "lr", train && progress->step > 0 ? progress->lr : NAN);
	text(json, "checkpoint", progress->checkpoint);
	text(json, "sample", progress->sample);
	json_key(json, "merges");
	if (progress->merges == NULL) {
		json_null(json);
		return;
	}
	json_object(json);
	json_key_uint(json, "count", progress->merges->count);
	json_key_uint(json, "sent_bytes", progress->merges->sent_bytes);
	json_key_uint(json, "dense_bytes", progress->merges->dense_bytes);
	figure(json, "hidden", progress->merges->hidden);
	json_end(json);
}

static void write_links(struct json *json, const Traind__V1__Peer *peer)
{
	json_key(json, "links");
	json_array(json);
	for (size_t i = 0; i < peer->n_links; i++) {
		const Traind__V1__PeerLink *link = peer->links[i];
		json_object(json);
		json_key_uint(json, "peer", link->peer);
		figure(json, "bandwidth_bytes_per_s",
		    link->bandwidth_bytes_per_s > 0 ? link->bandwidth_bytes_per_s : NAN);
		figure(json, "rtt_s", link->rtt_s > 0 ? link->rtt_s : NAN);
		json_key_uint(json, "sent_bytes", link->sent_bytes);
		json_end(json);
	}
	json_end(json);
}

static void write_peers(struct json *json, const Traind__V1__Job *job, bool with_links)
{
	json_key(json, "peers");
	json_array(json);
	for (size_t i = 0; i < job->n_peers; i++) {
		const Traind__V1__Peer *peer = job->peers[i];
		json_object(json);
		json_key_uint(json, "id", peer->id);
		json_key_uint(json, "rank", peer->rank);
		json_key_uint(json, "node_id", peer->node_id);
		text(json, "node", peer->node_name);
		known(json, "pid", peer->pid);
		text(json, "state", peer->state);
		text(json, "reason", peer->reason);
		json_key_uint(json, "round", peer->round);
		figure(json, "waits", peer->waits);
		figure(json, "waited_s", peer->waited_s);
		json_key_bool(json, "slow", peer->slow);
		figure(json, "rtt_s", peer->rtt_s > 0 ? peer->rtt_s : NAN);
		figure(json, "bandwidth_bytes_per_s",
		    peer->bandwidth_bytes_per_s > 0 ? peer->bandwidth_bytes_per_s : NAN);
		if (with_links)
			write_links(json, peer);
		json_end(json);
	}
	json_end(json);
}

static void write_mesh(struct json *json, const Traind__V1__Job *job)
{
	struct mesh_now now;
	json_key(json, "mesh");
	if (!mesh_now_of(job, &now)) {
		json_null(json);
		return;
	}
	json_object(json);
	for (int axis = 0; axis < MESH_AXES; axis++)
		json_key_uint(json, mesh_axis_name((enum mesh_axis)axis), now.mesh.size[axis]);
	json_key_uint(json, "copies", now.copies);
	json_key_uint(json, "replicas", now.replicas);
	json_key_uint(json, "spares", now.spares);
	json_end(json);
}

/* Predicted and actual; null: it was not planned. */
static void write_plan(struct json *json, const Traind__V1__Job *job)
{
	const Traind__V1__JobPlan *plan = job->spec != NULL ? job->spec->plan : NULL;
	json_key(json, "plan");
	if (plan == NULL) {
		json_null(json);
		return;
	}
	double step_s = mesh_now_step_s(job);
	json_object(json);
	text(json, "text", plan->text);
	figure(json, "step_s", mesh_now_planned_s(job));
	figure(json, "actual_step_s", step_s > 0 ? step_s : NAN);
	json_key(json, "nodes");
	json_array(json);
	for (size_t i = 0; i < plan->n_nodes; i++)
		json_uint(json, plan->nodes[i]);
	json_end(json);
	json_end(json);
}

static void write_rounds(struct json *json, const Traind__V1__RoundAccount *rounds)
{
	json_key(json, "rounds");
	if (rounds == NULL) {
		json_null(json);
		return;
	}
	json_object(json);
	json_key_uint(json, "committed", rounds->committed);
	json_key_uint(json, "recorded", rounds->recorded);
	json_key_uint(json, "samples", rounds->samples);
	json_key_uint(json, "partial_rounds", rounds->partial_rounds);
	json_key_uint(json, "replayed_rounds", rounds->replayed_rounds);
	text(json, "last_digest", rounds->last_digest);
	json_end(json);
}

void job_json_write(struct json *json, const Traind__V1__Job *job, bool with_events)
{
	json_object(json);
	json_key_uint(json, "id", job->id);
	text(json, "name", job->spec != NULL ? job->spec->name : NULL);
	text(json, "kind", job->spec != NULL && job->spec->command != NULL ? "command" : "train");
	text(json, "state", print_state(job->state));
	text(json, "reason", job->reason);
	write_progress(json, job);
	write_mesh(json, job);
	write_plan(json, job);
	known(json, "view", job->view);
	write_peers(json, job, with_events);
	write_rounds(json, job->rounds);
	json_key(json, "exit_code");
	json_int(json, job->exit_code);
	known(json, "submitted_unix_ms", job->submitted_unix_ms);
	known(json, "started_unix_ms", job->started_unix_ms);
	known(json, "ended_unix_ms", job->ended_unix_ms);
	figure(json, "seconds", job->started_unix_ms != 0 ? print_seconds_of(job) : NAN);
	if (with_events) {
		json_key(json, "events");
		json_array(json);
		for (size_t i = 0; i < job->n_events; i++) {
			json_object(json);
			json_key_uint(json, "unix_ms", job->events[i]->unix_ms);
			text(json, "text", job->events[i]->text);
			json_end(json);
		}
		json_end(json);
	}
	json_end(json);
}

void job_json_node(struct json *json, const Traind__V1__Node *node)
{
	json_object(json);
	json_key_uint(json, "id", node->id);
	text(json, "name", node->name);
	text(json, "address", node->address);
	known(json, "pid", node->pid);
	text(json, "state", node->state);
	text(json, "reason", node->reason);
	json_key_uint(json, "slots", node->slots);
	json_key(json, "workers");
	json_array(json);
	for (size_t i = 0; i < node->n_workers; i++) {
		json_object(json);
		json_key_uint(json, "job", node->workers[i]->job_id);
		json_key_uint(json, "peer", node->workers[i]->peer_id);
		json_key_uint(json, "rank", node->workers[i]->rank);
		known(json, "pid", node->workers[i]->pid);
		json_end(json);
	}
	json_end(json);
	known(json, "cores", node->cores);
	known(json, "memory_bytes", node->memory_bytes);
	json_key(json, "devices");
	json_array(json);
	for (size_t i = 0; i < node->n_devices; i++)
		json_string(json, node->devices[i]);
	json_end(json);
	figure(json, "heartbeat_age_s", node->heartbeat_age_s);
	text(json, "version", node->version);
	json_end(json);
}
