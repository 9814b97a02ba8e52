#include "collectives/engine/engine_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

/* Then timers and sockets have a turn: memberd may say more all the time. */
#define COMMANDS_PER_TURN 256

/* What another thread asks for. */
struct command {
	struct command *next;
	enum {
		COMMAND_ADD,
		COMMAND_REMOVE,
		COMMAND_TO_NODE,
		COMMAND_MEMBERD_LOST,
		COMMAND_ACCEPT,
		COMMAND_STOP,
	} kind;
	struct member *member;
	uint64_t group, peer;
	Traind__Peer__ToNode *message;
	size_t message_bytes;
	struct stream stream;
	char reason[256];
	size_t early_bytes;
	uint8_t early[];
};

/* ---- commands ---- */

static void engine_post(struct engine *engine, struct command *command)
{
	pthread_mutex_lock(&engine->lock);
	*engine->commands_tail = command;
	engine->commands_tail = &command->next;
	engine->backlog += command->message_bytes;
	engine_unpark(engine);
	pthread_mutex_unlock(&engine->lock);
	(void)uv_async_send(&engine->wake);
}

static struct command *engine_take(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	struct command *command = engine->commands;
	/* The end is the thread's own: nobody else would wake it from its sleep in a loop that has ended. */
	if (command != NULL && command->kind == COMMAND_STOP && engine->driven) {
		engine->stop_left = true;
		/* A caller that comes back all the time would keep it parked. */
		engine_unpark(engine);
		command = NULL;
	}
	if (command != NULL) {
		engine->commands = command->next;
		engine->backlog -= command->message_bytes;
		if (engine->commands == NULL)
			engine->commands_tail = &engine->commands;
	}
	pthread_mutex_unlock(&engine->lock);
	return command;
}

struct member *engine_find(struct engine *engine, uint64_t group, uint64_t peer)
{
	struct member *member = engine->members;
	while (member != NULL && (member->group != group || member->peer != peer))
		member = member->next;
	return member;
}

static void add_member(struct engine *engine, struct member *member)
{
	if (engine_find(engine, member->group, member->peer) != NULL) {
		log_warn("engine", "peer %lu of group %lu is already here",
		    (unsigned long)member->peer, (unsigned long)member->group);
		member_destroy(member, TR_EEXIST, "this peer is already here");
		return;
	}
	member->next = engine->members;
	engine->members = member;
	pthread_mutex_lock(&engine->lock);
	member->row.next = engine->rows;
	engine->rows = &member->row;
	pthread_mutex_unlock(&engine->lock);
	member_start(member);
}

static void recorded(struct engine *engine, const Traind__Peer__RoundsRecorded *message)
{
	struct member *next;
	for (struct member *m = engine->members; m != NULL; m = next) {
		struct group_event event = { .kind = GROUP_RECORDED, .round = message->frontier };
		struct tr_error none;
		next = m->next;
		if (m->group != message->group)
			continue;
		notices_recorded(m, message->round);
		if (!m->over)
			(void)member_step(m, &event, &none);
	}
}

static void to_node(struct engine *engine, const Traind__Peer__ToNode *message)
{
	struct member *next;
	switch (message->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE:
		for (struct member *m = engine->members; m != NULL; m = next) {
			next = m->next;
			if (m->group == message->view_propose->group)
				member_propose(m, message->view_propose);
		}
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL:
		for (struct member *m = engine->members; m != NULL; m = next) {
			next = m->next;
			if (message->view_install->view != NULL &&
			    m->group == message->view_install->view->group)
				member_install(m, message->view_install);
		}
		break;
	case TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED: {
		const Traind__Peer__PeerEvicted *evicted = message->peer_evicted;
		struct member *m = engine_find(engine, evicted->group, evicted->peer);
		bool refused = evicted->status == TR_EMISMATCH || evicted->status == TR_EDIGEST;
		if (m != NULL)
			member_end(m, refused ? (tr_status)evicted->status : TR_EEVICTED,
			    evicted->reason);
		break;
	}
	case TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED:
		recorded(engine, message->rounds_recorded);
		break;
	case TRAIND__PEER__TO_NODE__BODY_GROUP_OVER:
		leftovers_drop_group(engine, message->group_over->group);
		break;
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
		engine->memberd_lost = false;
		pulse_start(engine, message->welcome->heartbeat_interval_ms,
		    message->welcome->heartbeat_timeout_ms);
		for (struct member *m = engine->members; m != NULL; m = m->next) {
			notices_again(m);
			(void)member_step(m, &(struct group_event){ .kind = GROUP_MEMBERD_BACK },
			    NULL);
		}
		break;
	default:
		break;
	}
}

static void engine_stop(struct engine *engine)
{
	engine->stopping = true;
	while (engine->members != NULL)
		member_destroy(engine->members, TR_ECANCELLED, "the engine stops");
	inbound_door_close(engine);
	engine_shm_stop(engine);
	pulse_stop(engine);
	gauge_stop(engine);
	leftovers_stop(engine);
	uv_close((uv_handle_t *)&engine->hello_timer, NULL);
	uv_close((uv_handle_t *)&engine->wake, NULL);
}

static void command_run(struct engine *engine, struct command *command)
{
	switch (command->kind) {
	case COMMAND_ADD:
		add_member(engine, command->member);
		break;
	case COMMAND_REMOVE: {
		struct member *member = engine_find(engine, command->group, command->peer);
		if (member != NULL)
			member_destroy(member, TR_ECANCELLED, command->reason);
		break;
	}
	case COMMAND_TO_NODE:
		to_node(engine, command->message);
		traind__peer__to_node__free_unpacked(command->message, NULL);
		break;
	case COMMAND_MEMBERD_LOST:
		engine->memberd_lost = true;
		break;
	case COMMAND_ACCEPT:
		inbound_accept(engine, command->stream, command->early, command->early_bytes);
		break;
	case COMMAND_STOP:
		engine_stop(engine);
		break;
	}
	free(command);
}

static void on_wake(uv_async_t *wake)
{
	struct engine *engine = wake->data;
	for (unsigned i = 0; i < COMMANDS_PER_TURN; i++) {
		struct command *c = engine_take(engine);
		if (c == NULL)
			return;
		bool last = c->kind == COMMAND_STOP;
		command_run(engine, c);
		if (last)
			return;
	}
	(void)uv_async_send(wake);
}

/* ---- the interface ---- */

tr_status engine_create(const struct engine_callbacks *callbacks, void *arg, struct engine **engine,
    struct tr_error *error)
{
	struct engine *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for the engine");
	made->callbacks = *callbacks;
	made->arg = arg;
	made->commands_tail = &made->commands;
	int rc = uv_loop_init(&made->loop);
	if (rc != 0) {
		free(made);
		return tr_error_set(error, TR_EIO, "cannot make the engine's loop: %s",
		    uv_strerror(rc));
	}
	log_limit_init(&made->drops, uv_now(&made->loop));
	pthread_mutex_init(&made->lock, NULL);
	pthread_mutex_init(&made->turn, NULL);
	(void)uv_cond_init(&made->unparked);
	engine_shm_start(made);
	(void)uv_timer_init(&made->loop, &made->hello_timer);
	made->hello_timer.data = made->wake.data = made;
	pulse_init(made);
	gauge_init(made);
	leftovers_init(made);
	rc = uv_async_init(&made->loop, &made->wake, on_wake);
	bool woken = rc == 0;
	if (rc == 0)
		rc = uv_thread_create(&made->thread, engine_run, made);
	if (rc != 0) {
		uv_close((uv_handle_t *)&made->hello_timer, NULL);
		pulse_stop(made);
		gauge_stop(made);
		leftovers_stop(made);
		engine_shm_stop(made);
		if (woken)
			uv_close((uv_handle_t *)&made->wake, NULL);
		(void)uv_run(&made->loop, UV_RUN_DEFAULT);
		(void)uv_loop_close(&made->loop);
		pthread_mutex_destroy(&made->lock);
		pthread_mutex_destroy(&made->turn);
		uv_cond_destroy(&made->unparked);
		free(made);
		return tr_error_set(error, TR_EIO, "cannot start the engine: %s", uv_strerror(rc));
	}
	*engine = made;
	return TR_OK;
}

static struct command *command_create(size_t early_bytes)
{
	struct command *command = calloc(1, sizeof(*command) + early_bytes);
	if (command != NULL)
		command->early_bytes = early_bytes;
	return command;
}

/* For calls that cannot fail towards their caller; a lost command would be a lost view. */
static struct command *command_create_sure(void)
{
	struct command *command = command_create(0);
	while (command == NULL) {
		(void)usleep(10000);
		command = command_create(0);
	}
	return command;
}

void engine_destroy(struct engine *engine)
{
	if (engine == NULL)
		return;
	struct command *command = command_create_sure();
	command->kind = COMMAND_STOP;
	engine_post(engine, command);
	(void)uv_thread_join(&engine->thread);
	engine_callers_left(engine);
	int rc = uv_loop_close(&engine->loop);
	assert(rc == 0);
	pthread_mutex_destroy(&engine->lock);
	pthread_mutex_destroy(&engine->turn);
	uv_cond_destroy(&engine->unparked);
	tls_context_release(engine->links.tls);
	free(engine);
}

tr_status engine_set_links(struct engine *engine, const struct engine_links *links,
    struct tr_error *error)
{
	if (links->transport == TR_TRANSPORT_SHM && engine->shm == NULL)
		return tr_error_set(error, TR_EUNAVAILABLE,
		    "transport shm: this process cannot share memory with others (memfd, UNIX "
		    "sockets, /proc)");
	if (links->sockets > TR_LANES_MAX)
		return tr_error_set(error, TR_EINVAL, "sockets %u, allowed: 0 (by the link) to %d",
		    links->sockets, TR_LANES_MAX);
	tr_status st = links->congestion == NULL || links->congestion[0] == '\0'
	    ? TR_OK
	    : congestion_check(links->congestion, error);
	if (st != TR_OK)
		return st;
	engine->links.transport = links->transport;
	engine->links.sockets = links->sockets;
	engine->links.alone = links->alone;
	engine->links.insecure = links->insecure;
	(void)snprintf(engine->links.congestion, sizeof(engine->links.congestion), "%s",
	    links->congestion != NULL ? links->congestion : "");
	(void)snprintf(engine->links.memberd, sizeof(engine->links.memberd), "%s",
	    links->memberd != NULL ? links->memberd : "");
	tls_context_release(engine->links.tls);
	engine->links.tls = tls_context_hold(links->tls);
	return TR_OK;
}

tr_status engine_add_worker(struct engine *engine, const Traind__Peer__StartWorker *start,
    unsigned threads, int worker_fd, struct tr_error *error)
{
	struct channel_host *host;
	struct member *member;
	struct channel_seat seat = engine_commons_take(engine, start->group);
	tr_status st = channel_host_create(start, threads, worker_fd, &seat, &host, error);
	if (st != TR_OK) {
		engine_commons_give_back(engine, start->group, &seat, true);
		return st;
	}
	struct command *command = command_create(0);
	st = command == NULL ? tr_error_set(error, TR_ENOMEM, "no memory for a worker")
	                     : member_create(engine, start, host, &member, error);
	if (st != TR_OK) {
		engine_commons_give_back(engine, start->group, &seat, false);
		channel_host_destroy(host);
		free(command);
		return st;
	}
	command->kind = COMMAND_ADD;
	command->member = member;
	engine_post(engine, command);
	return TR_OK;
}

void engine_remove(struct engine *engine, uint64_t group, uint64_t peer, const char *reason)
{
	struct command *command = command_create_sure();
	command->kind = COMMAND_REMOVE;
	command->group = group;
	command->peer = peer;
	(void)snprintf(command->reason, sizeof(command->reason), "%s", reason);
	engine_post(engine, command);
}

void engine_to_node(struct engine *engine, const Traind__Peer__ToNode *message)
{
	size_t bytes = traind__peer__to_node__get_packed_size(message);
	uint8_t *packed = malloc(bytes == 0 ? 1 : bytes);
	struct command *command = command_create_sure();
	command->kind = COMMAND_TO_NODE;
	if (packed != NULL) {
		(void)traind__peer__to_node__pack(message, packed);
		command->message = traind__peer__to_node__unpack(NULL, bytes, packed);
	}
	free(packed);
	command->message_bytes = sizeof(*command) + bytes;
	if (command->message == NULL) {
		log_error("engine", "no memory for a message from memberd: it is lost");
		free(command);
		return;
	}
	engine_post(engine, command);
}

size_t engine_backlog(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	size_t backlog = engine->backlog;
	pthread_mutex_unlock(&engine->lock);
	return backlog;
}

void engine_memberd_lost(struct engine *engine)
{
	struct command *command = command_create_sure();
	command->kind = COMMAND_MEMBERD_LOST;
	engine_post(engine, command);
}

void engine_accept(struct engine *engine, struct stream stream, const void *early,
    size_t early_bytes)
{
	struct command *command = command_create(early_bytes);
	if (command == NULL) {
		stream_close(&stream);
		return;
	}
	command->kind = COMMAND_ACCEPT;
	command->stream = stream;
	if (early_bytes > 0)
		memcpy(command->early, early, early_bytes);
	engine_post(engine, command);
}

size_t engine_progress(struct engine *engine, struct engine_progress *rows, size_t max)
{
	size_t count = 0;
	pthread_mutex_lock(&engine->lock);
	for (struct member_row *row = engine->rows; row != NULL && count < max; row = row->next) {
		rows[count] = row->progress;
		rows[count].progress += channel_host_progress(row->host);
		rows[count].waited_us = channel_host_waited_us(row->host);
		uint64_t lacks = channel_host_lacks(row->host);
		if (lacks != 0) {
			rows[count].waiting = true;
			rows[count].waits_for[0] = lacks;
			rows[count].waits_for_count = 1;
		}
		count++;
	}
	pthread_mutex_unlock(&engine->lock);
	return count;
}

double engine_bandwidth(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	double bandwidth = engine->bandwidth_bytes_per_s;
	pthread_mutex_unlock(&engine->lock);
	return bandwidth;
}

/* ---- for the other files ---- */

void engine_tell(struct engine *engine, const Traind__Peer__ToMember *message)
{
	if (engine->callbacks.to_member != NULL)
		engine->callbacks.to_member(engine->arg, message);
}

void engine_learn_bandwidth(struct engine *engine, double bytes_per_s)
{
	const double weight = 0.25; /* of the newest burst */
	if (engine->gauge.up.bytes_per_s > 0 && gauge_is_far(engine))
		return;
	pthread_mutex_lock(&engine->lock);
	double *learned = &engine->bandwidth_bytes_per_s;
	*learned = *learned == 0 ? bytes_per_s : *learned + weight * (bytes_per_s - *learned);
	pthread_mutex_unlock(&engine->lock);
}
