/* Drives memberd's core without I/O: a log in memory, connections as numbers, a trace of all actions in words. */
#ifndef TR_TESTS_UNIT_MEMBERSHIP_HARNESS_H
#define TR_TESTS_UNIT_MEMBERSHIP_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/limits.h"
#include "daemon/membership/core/membership.h"
#include "daemon/plan/job_options.h"

#define UNUSED __attribute__((unused))

struct blob {
	uint8_t *data;
	size_t size;
	uint64_t cookie;
};

struct world {
	struct membership *m;
	struct membership_actions actions;
	uint64_t now, random;
	struct blob *log; /* everything that was applied */
	size_t log_count;
	struct blob *queue; /* appended, not applied yet */
	size_t queue_count;
	bool hold;  /* appended entries wait for world_apply */
	bool quiet; /* no trace */
	void (*on_action)(struct world *w, const struct membership_action *action);
	char trace[65536];
	size_t trace_length;
	/* The newest of each kind. */
	struct membership_action reply;
	Traind__Peer__ToNode *last[128]; /* by connection */
	Traind__Peer__ToNode *install[128];
};

static inline void trace(struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void trace(struct world *w, const char *format, ...)
{
	va_list args;
	if (w->quiet)
		return;
	va_start(args, format);
	int n = vsnprintf(w->trace + w->trace_length, sizeof(w->trace) - w->trace_length, format,
	    args);
	va_end(args);
	assert_true(n >= 0 && (size_t)n < sizeof(w->trace) - w->trace_length);
	w->trace_length += (size_t)n;
}

static struct membership_options world_options = {
	.heartbeat_interval_ms = 250,
	.heartbeat_timeout_ms = 2000,
	.progress_timeout_ms = 20000,
	.reconnect_grace_ms = 5000,
};

static inline void world_init(struct world *w)
{
	*w = (struct world){ .now = 1000000, .random = 12345 };
	assert_int_equal(membership_create(&world_options, &w->m), TR_OK);
}

static inline void world_forget(struct world *w)
{
	for (size_t i = 0; i < 128; i++) {
		if (w->last[i] != NULL)
			traind__peer__to_node__free_unpacked(w->last[i], NULL);
		if (w->install[i] != NULL)
			traind__peer__to_node__free_unpacked(w->install[i], NULL);
		w->last[i] = w->install[i] = NULL;
	}
}

static inline void world_finish(struct world *w)
{
	for (size_t i = 0; i < w->log_count; i++)
		free(w->log[i].data);
	for (size_t i = 0; i < w->queue_count; i++)
		free(w->queue[i].data);
	free(w->log);
	free(w->queue);
	world_forget(w);
	membership_actions_finish(&w->actions);
	membership_destroy(w->m);
}

static inline const char *entry_name(const Traind__Peer__LogEntry *entry)
{
	const ProtobufCMessageDescriptor *d = &traind__peer__log_entry__descriptor;
	for (unsigned i = 0; i < d->n_fields; i++)
		if (d->fields[i].id == (uint32_t)entry->body_case)
			return d->fields[i].name;
	return "?";
}

static inline void trace_peers(struct world *w, const uint64_t *ids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		trace(w, "%sp%llu", i > 0 ? "," : "", (unsigned long long)ids[i]);
}

static inline void trace_install(struct world *w, const Traind__Peer__ViewInstall *install)
{
	const Traind__Peer__View *view = install->view;
	const Traind__Peer__Resume *resume = install->resume;
	trace(w, "view %llu hub p%llu [", (unsigned long long)view->number,
	    (unsigned long long)view->peers[view->hub]->peer);
	for (size_t i = 0; i < view->n_peers; i++) {
		const Traind__Peer__ViewPeer *p = view->peers[i];
		trace(w, "%sp%llu", i > 0 ? " " : "", (unsigned long long)p->peer);
		if (p->donor != 0)
			trace(w, "(from %llu, counts %llu, donor p%llu)",
			    (unsigned long long)p->participate_from,
			    (unsigned long long)p->contribute_from, (unsigned long long)p->donor);
		else if (p->contribute_from > resume->base_round)
			trace(w, "(counts %llu)", (unsigned long long)p->contribute_from);
	}
	trace(w, "] round %llu %s attempt %llu of ", (unsigned long long)resume->base_round,
	    resume->finish ? "finish" : "start", (unsigned long long)resume->base_attempt);
	trace_peers(w, resume->contributors, resume->n_contributors);
}

static inline void trace_entry(struct world *w, const Traind__Peer__LogEntry *e)
{
	trace(w, "append %s", entry_name(e));
	switch (e->body_case) {
	case TRAIND__PEER__LOG_ENTRY__BODY_NODE_SEEN:
		trace(w, " n%llu", (unsigned long long)e->node_seen->hello->node_id);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_NODE_GONE:
		trace(w, " n%llu: %s", (unsigned long long)e->node_gone->node_id,
		    e->node_gone->reason);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_SUBMITTED:
		trace(w, " job %llu", (unsigned long long)e->job_submitted->job_id);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_PLANNED:
		trace(w, " job %llu group %llu:", (unsigned long long)e->job_planned->job_id,
		    (unsigned long long)e->job_planned->group);
		for (size_t i = 0; i < e->job_planned->n_peers; i++)
			trace(w, " p%llu@n%llu", (unsigned long long)e->job_planned->peers[i]->peer,
			    (unsigned long long)e->job_planned->peers[i]->node_id);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_MOVED:
		trace(w, " job %llu -> %d exit %d: %s", (unsigned long long)e->job_moved->job_id,
		    (int)e->job_moved->state, e->job_moved->exit_code, e->job_moved->reason);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_PEER_MOVED:
		trace(w, " p%llu %s%s: %s", (unsigned long long)e->peer_moved->peer,
		    e->peer_moved->state, e->peer_moved->fast ? " fast" : "",
		    e->peer_moved->reason);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_VIEW:
		trace(w, " ");
		trace_install(w, e->view);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_VIEW_PROPOSED:
		trace(w, " %llu", (unsigned long long)e->view_proposed->number);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_ROUNDS:
		trace(w, " x%zu", e->rounds->n_rounds);
		break;
	default:
		break;
	}
	trace(w, "\n");
}

static inline void trace_send(struct world *w, uint64_t conn, const Traind__Peer__ToNode *s)
{
	const ProtobufCMessageDescriptor *d = &traind__peer__to_node__descriptor;
	const char *name = "?";
	if (s->body_case == TRAIND__PEER__TO_NODE__BODY_HEARTBEAT_ACK)
		return;
	for (unsigned i = 0; i < d->n_fields; i++)
		if (d->fields[i].id == (uint32_t)s->body_case)
			name = d->fields[i].name;
	trace(w, "send c%llu %s", (unsigned long long)conn, name);
	switch (s->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
		trace(w, " n%llu", (unsigned long long)s->welcome->node_id);
		break;
	case TRAIND__PEER__TO_NODE__BODY_REFUSED:
		trace(w, ": %s", s->refused->reason);
		break;
	case TRAIND__PEER__TO_NODE__BODY_START_WORKER:
		trace(w, " p%llu rank %u/%u local %u/%u node %u/%u",
		    (unsigned long long)s->start_worker->peer, s->start_worker->rank,
		    s->start_worker->world_size, s->start_worker->local_rank,
		    s->start_worker->local_world_size, s->start_worker->node_rank,
		    s->start_worker->nodes);
		break;
	case TRAIND__PEER__TO_NODE__BODY_STOP_WORKER:
		trace(w, " p%llu: %s", (unsigned long long)s->stop_worker->peer,
		    s->stop_worker->reason);
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE:
		trace(w, " %llu to ", (unsigned long long)s->view_propose->number);
		trace_peers(w, s->view_propose->members, s->view_propose->n_members);
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL:
		trace(w, " %llu", (unsigned long long)s->view_install->view->number);
		break;
	case TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED:
		trace(w, " p%llu", (unsigned long long)s->peer_evicted->peer);
		break;
	case TRAIND__PEER__TO_NODE__BODY_GROUP_JOINED:
		trace(w, " %s group %llu p%llu", s->group_joined->name,
		    (unsigned long long)s->group_joined->group,
		    (unsigned long long)s->group_joined->peer);
		break;
	case TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED:
		trace(w, " %llu", (unsigned long long)s->rounds_recorded->round);
		break;
	default:
		break;
	}
	trace(w, "\n");
}

static inline void blob_add(struct blob **blobs, size_t *count, const Traind__Peer__LogEntry *entry,
    uint64_t cookie)
{
	*blobs = realloc(*blobs, (*count + 1) * sizeof(**blobs));
	assert_non_null(*blobs);
	struct blob *b = &(*blobs)[(*count)++];
	b->size = traind__peer__log_entry__get_packed_size(entry);
	b->data = malloc(b->size + 1);
	b->cookie = cookie;
	traind__peer__log_entry__pack(entry, b->data);
}

static inline void world_remember(struct world *w, const struct membership_action *a)
{
	if (a->conn >= 128 || a->message->body_case == TRAIND__PEER__TO_NODE__BODY_HEARTBEAT_ACK)
		return;
	size_t size = traind__peer__to_node__get_packed_size(a->message);
	uint8_t *bytes = malloc(size + 1);
	traind__peer__to_node__pack(a->message, bytes);
	Traind__Peer__ToNode **slot = a->message->body_case ==
	        TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL
	    ? &w->install[a->conn]
	    : &w->last[a->conn];
	if (*slot != NULL)
		traind__peer__to_node__free_unpacked(*slot, NULL);
	*slot = traind__peer__to_node__unpack(NULL, size, bytes);
	free(bytes);
}

static inline void world_act(struct world *w)
{
	for (size_t i = 0; i < w->actions.count; i++) {
		struct membership_action *a = &w->actions.items[i];
		if (w->on_action != NULL)
			w->on_action(w, a);
		switch (a->kind) {
		case MEMBERSHIP_DO_APPEND:
			trace_entry(w, a->entry);
			blob_add(&w->queue, &w->queue_count, a->entry, a->cookie);
			break;
		case MEMBERSHIP_DO_RELAY: /* as if we were connection 0 */
		case MEMBERSHIP_DO_SEND:
			trace_send(w, a->conn, a->message);
			world_remember(w, a);
			break;
		case MEMBERSHIP_DO_CLOSE:
			trace(w, "close c%llu: %s\n", (unsigned long long)a->conn, a->text);
			break;
		case MEMBERSHIP_DO_REPLY:
			trace(w, "reply r%llu %s job %llu%s%s%s\n", (unsigned long long)a->request,
			    tr_status_name(a->status), (unsigned long long)a->job,
			    a->existed ? " existed" : "", a->text[0] != '\0' ? ": " : "", a->text);
			w->reply = *a;
			break;
		case MEMBERSHIP_DO_LOG:
		case MEMBERSHIP_DO_JOB_CHANGED:
		case MEMBERSHIP_DO_LOG_DATA:
			break;
		}
	}
	membership_actions_clear(&w->actions);
}

static inline void world_apply(struct world *w);

static inline void world_step(struct world *w, struct membership_event *event)
{
	struct tr_error error = { 0 };
	event->now_ms = w->now;
	event->unix_ms = 1700000000000u + w->now;
	event->random = w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	event->secret[0] = event->random * 0x9e3779b97f4a7c15u;
	event->secret[1] = ~event->random;
	assert_int_equal(membership_step(w->m, event, &w->actions, &error), TR_OK);
	world_act(w);
	if (!w->hold)
		world_apply(w);
}

/* The log commits what is queued, in order, one by one. */
static inline void world_apply_one(struct world *w)
{
	struct blob b = w->queue[0];
	memmove(&w->queue[0], &w->queue[1], (w->queue_count - 1) * sizeof(b));
	w->queue_count--;
	Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL, b.size, b.data);
	assert_non_null(entry);
	blob_add(&w->log, &w->log_count, entry, 0);
	struct membership_event event = { .kind = MEMBERSHIP_APPLIED,
		.entry = entry,
		.cookie = b.cookie };
	bool hold = w->hold;
	w->hold = true;
	world_step(w, &event);
	w->hold = hold;
	traind__peer__log_entry__free_unpacked(entry, NULL);
	free(b.data);
}

static inline void world_apply(struct world *w)
{
	while (w->queue_count > 0)
		world_apply_one(w);
}

static inline void world_lead(struct world *w)
{
	struct membership_event event = { .kind = MEMBERSHIP_LEADING };
	world_step(w, &event);
}

static inline void world_tick(struct world *w, uint64_t ms)
{
	struct membership_event event = { .kind = MEMBERSHIP_TICK };
	w->now += ms;
	world_step(w, &event);
}

static inline void world_message(struct world *w, uint64_t conn, Traind__Peer__ToMember *message)
{
	struct membership_event event = { .kind = MEMBERSHIP_MESSAGE,
		.conn = conn,
		.message = message };
	world_step(w, &event);
}

#define MESSAGE(w, conn, CASE, field, ...)                                       \
	do {                                                                     \
		Traind__Peer__ToMember message_ = TRAIND__PEER__TO_MEMBER__INIT; \
		message_.body_case = TRAIND__PEER__TO_MEMBER__BODY_##CASE;       \
		message_.field = __VA_ARGS__;                                    \
		world_message(w, conn, &message_);                               \
	} while (0)

static inline void world_closed(struct world *w, uint64_t conn, const char *reason)
{
	struct membership_event event = { .kind = MEMBERSHIP_CLOSED,
		.conn = conn,
		.reason = reason };
	world_step(w, &event);
}

static inline void hello_with(struct world *w, uint64_t conn, uint64_t id, uint64_t incarnation,
    uint32_t slots, Traind__Peer__PeerHere **peers, size_t count)
{
	Traind__Peer__NodeHello hello = TRAIND__PEER__NODE_HELLO__INIT;
	char name[32], address[32];
	(void)snprintf(name, sizeof(name), "node-%llu", (unsigned long long)conn % 10);
	(void)snprintf(address, sizeof(address), "10.0.0.%llu:7000", (unsigned long long)conn % 10);
	hello.node_id = id;
	hello.incarnation = incarnation;
	hello.name = name;
	hello.address = address;
	hello.pid = (uint32_t)(1000 + conn);
	hello.slots = slots;
	hello.peers = peers;
	hello.n_peers = count;
	MESSAGE(w, conn, HELLO, hello, &hello);
}

static inline void hello(struct world *w, uint64_t conn, uint64_t id, uint64_t incarnation,
    uint32_t slots)
{
	hello_with(w, conn, id, incarnation, slots, NULL, 0);
}

static inline void heartbeat(struct world *w, uint64_t conn)
{
	Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
	beat.rtt_s = 0.0002;
	MESSAGE(w, conn, HEARTBEAT, heartbeat, &beat);
}

static inline void ready(struct world *w, uint64_t conn, uint64_t group, uint64_t peer,
    uint64_t round)
{
	Traind__Peer__PeerReady body = TRAIND__PEER__PEER_READY__INIT;
	body.group = group;
	body.peer = peer;
	body.round = round;
	body.state_signature = (char *)(uintptr_t) "w:4096";
	MESSAGE(w, conn, PEER_READY, peer_ready, &body);
}

static inline void exited(struct world *w, uint64_t conn, uint64_t job, uint64_t peer, int code,
    int signal, const char *lines)
{
	Traind__Peer__WorkerExited body = TRAIND__PEER__WORKER_EXITED__INIT;
	body.job_id = job;
	body.peer = peer;
	body.exit_code = code;
	body.signal = signal;
	body.last_lines = (char *)(uintptr_t)lines;
	MESSAGE(w, conn, WORKER_EXITED, worker_exited, &body);
}

static inline void started(struct world *w, uint64_t conn, uint64_t job, uint64_t peer)
{
	Traind__Peer__WorkerStarted body = TRAIND__PEER__WORKER_STARTED__INIT;
	body.job_id = job;
	body.peer = peer;
	body.pid = (uint32_t)(5000 + peer);
	MESSAGE(w, conn, WORKER_STARTED, worker_started, &body);
}

/* A report of a member that has begun `begun` under `attempt`, with one op of 8 segments. */
static inline void report(struct world *w, uint64_t conn, uint64_t group, uint64_t peer,
    uint64_t proposal, uint64_t view, uint64_t committed, uint64_t begun, uint64_t attempt,
    bool closed, uint8_t sealed, uint8_t whole)
{
	Traind__Peer__ViewReport body = TRAIND__PEER__VIEW_REPORT__INIT;
	Traind__Peer__OpReport op = TRAIND__PEER__OP_REPORT__INIT, *ops[1] = { &op };
	op.tag = 7;
	op.segments = 8;
	op.sealed = (ProtobufCBinaryData){ .len = 1, .data = &sealed };
	op.whole = (ProtobufCBinaryData){ .len = 1, .data = &whole };
	body.group = group;
	body.peer = peer;
	body.proposal = proposal;
	body.view = view;
	body.committed_round = committed;
	body.begun_round = begun;
	body.attempt = attempt;
	body.closed = closed;
	body.ops = ops;
	body.n_ops = begun > committed ? 1 : 0;
	MESSAGE(w, conn, VIEW_REPORT, view_report, &body);
}

static inline Traind__V1__JobSpec *native_spec(uint32_t nodes)
{
	Traind__V1__JobSpec *spec = job_spec_new(true);
	struct tr_error error = { 0 };
	char text[16];
	assert_non_null(spec);
	(void)snprintf(text, sizeof(text), "%u", nodes);
	assert_int_equal(job_option_set(spec, "name", "test", &error), TR_OK);
	assert_int_equal(job_option_set(spec, "mesh.nodes", text, &error), TR_OK);
	assert_int_equal(job_option_set(spec, "train.steps", "100", &error), TR_OK);
	assert_int_equal(job_option_set(spec, "data.text", "/tmp/a", &error), TR_OK);
	assert_int_equal(job_option_set(spec, "checkpoint.dir", "/tmp/c", &error), TR_OK);
	return spec;
}

static inline Traind__V1__JobSpec *command_spec(uint32_t workers)
{
	Traind__V1__JobSpec *spec = job_spec_new(false);
	assert_non_null(spec);
	spec->command->argv = calloc(1, sizeof(char *));
	spec->command->argv[0] = strdup("true");
	spec->command->n_argv = 1;
	spec->command->directory = strdup("/");
	if (spec->mesh == NULL) {
		spec->mesh = malloc(sizeof(*spec->mesh));
		traind__v1__mesh__init(spec->mesh);
	}
	spec->mesh->workers = workers;
	return spec;
}

static inline void submit(struct world *w, uint64_t request, const char *id,
    Traind__V1__JobSpec *spec)
{
	Traind__V1__SubmitJobRequest body = TRAIND__V1__SUBMIT_JOB_REQUEST__INIT;
	struct membership_event event = { .kind = MEMBERSHIP_SUBMIT,
		.request = request,
		.submit = &body };
	body.request_id = (char *)(uintptr_t)id;
	body.spec = spec;
	world_step(w, &event);
	traind__v1__job_spec__free_unpacked(spec, NULL);
}

static inline Traind__V1__JobState job_state(struct world *w, uint64_t id)
{
	Traind__V1__Job *job = membership_job(w->m, id, false);
	assert_non_null(job);
	Traind__V1__JobState state = job->state;
	traind__v1__job__free_unpacked(job, NULL);
	return state;
}

static inline void snapshot_bytes(struct membership *m, uint8_t **bytes, size_t *size)
{
	Traind__Peer__Snapshot *s = membership_snapshot(m);
	assert_non_null(s);
	*size = traind__peer__snapshot__get_packed_size(s);
	*bytes = malloc(*size + 1);
	traind__peer__snapshot__pack(s, *bytes);
	traind__peer__snapshot__free_unpacked(s, NULL);
}

/* memberd dies and comes back: only what was applied is left. */
static inline void world_restart(struct world *w)
{
	membership_destroy(w->m);
	assert_int_equal(membership_create(&world_options, &w->m), TR_OK);
	for (size_t i = 0; i < w->queue_count; i++)
		free(w->queue[i].data);
	w->queue_count = 0;
	size_t count = w->log_count;
	for (size_t i = 0; i < count; i++) {
		Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL,
		    w->log[i].size, w->log[i].data);
		struct membership_event event = { .kind = MEMBERSHIP_APPLIED, .entry = entry };
		world_step(w, &event);
		traind__peer__log_entry__free_unpacked(entry, NULL);
	}
	assert_int_equal(w->queue_count, 0);
}

static inline void skip_trace(struct world *w)
{
	w->trace_length = 0;
	w->trace[0] = '\0';
}

/* Compares the trace so far, and starts a new one. */
static inline void expect(struct world *w, const char *wanted)
{
	if (getenv("SHOW")) {
		print_message("%s---\n", w->trace);
		skip_trace(w);
		return;
	}
	if (strcmp(w->trace, wanted) != 0)
		print_error("--- got:\n%s--- wanted:\n%s---\n", w->trace, wanted);
	assert_string_equal(w->trace, wanted);
	w->trace_length = 0;
	w->trace[0] = '\0';
}

/* Three nodes with one slot each (n1 to n3) on connections 1 to 3. */
static inline void three_nodes(struct world *w)
{
	world_init(w);
	world_lead(w);
	for (uint64_t c = 1; c <= 3; c++)
		hello(w, c, 0, 100 + c, 1);
}

/* Job 1, group 4, peers p5 to p7 on connections 1 to 3, view 1. */
static inline void training_with(struct world *w, Traind__V1__JobSpec *spec)
{
	three_nodes(w);
	submit(w, 1, "a", spec);
	for (uint64_t c = 1; c <= 3; c++)
		ready(w, c, 4, 4 + c, 0);
	for (uint64_t c = 1; c <= 3; c++)
		report(w, c, 4, 4 + c, 1, 0, 0, 0, 0, false, 0, 0);
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	skip_trace(w);
}

static inline void training(struct world *w)
{
	training_with(w, native_spec(3));
}

#endif
