/* A lane of shared memory: what the rings and the socket beside them mean. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/shm_internal.h"
#include "collectives/transport/watch.h"
#include "common/limits.h"

static void on_socket(uv_poll_t *poll, int status, int events);
static const struct lane_ops ops;

/* ---- life ---- */

static void on_handle_closed(uv_handle_t *handle)
{
	struct lane_shm *lane = handle->data;
	if (--lane->handles > 0)
		return;
	(void)close(lane->socket);
	if (lane->lane.callbacks.closed != NULL)
		lane->lane.callbacks.closed(lane->lane.arg, &lane->lane, lane->reason);
	shm_ring_unmap(&lane->in.ring);
	if (lane->out != NULL)
		shm_ring_unmap(&lane->out->ring);
	free(lane->out);
	shm_import_release(lane->import);
	if (lane->peer_bell >= 0)
		(void)close(lane->peer_bell);
	shm_hub_forget(lane);
}

void lane_shm_let_go(struct lane_shm *lane)
{
	lane->letting_go = true;
	shm_ring_let_go(lane->out);
	lane->letting_go = false;
}

void lane_shm_close(struct lane_shm *lane, const char *reason)
{
	if (lane->closing)
		return;
	lane->closing = true;
	lane->open = false;
	if (reason != lane->reason)
		(void)snprintf(lane->reason, sizeof(lane->reason), "%s", reason);
	lane_shm_drop_waiting(lane, false);
	if (lane->out != NULL)
		lane_shm_let_go(lane);
	uv_close((uv_handle_t *)&lane->poll, on_handle_closed);
	uv_close((uv_handle_t *)&lane->timer, on_handle_closed);
}

static void on_timer(uv_timer_t *timer)
{
	struct lane_shm *lane = timer->data;
	lane_shm_close(lane,
	    lane->finishing ? lane->reason : "its shared memory was not opened in time");
}

tr_status lane_shm_create(struct shm_hub *hub, int socket, bool dialled, struct lane_shm **lane,
    struct tr_error *error)
{
	struct lane_shm *made = calloc(1, sizeof(*made));
	pid_t pid = 0;
	tr_status st = made == NULL ? tr_error_set(error, TR_ENOMEM, "no memory for a lane")
	                            : shm_socket_check_peer(socket, &pid, error);
	if (st == TR_OK) {
		made->out = malloc(sizeof(*made->out));
		made->import = shm_import_create();
		if (made->out == NULL || made->import == NULL)
			st = tr_error_set(error, TR_ENOMEM, "no memory for a lane");
	}
	if (st == TR_OK && uv_poll_init(hub->loop, &made->poll, socket) != 0)
		st = tr_error_set(error, TR_EIO, "cannot watch a UNIX socket");
	if (st != TR_OK) {
		(void)close(socket);
		if (made != NULL) {
			shm_import_release(made->import);
			free(made->out);
		}
		free(made);
		return st;
	}
	shm_sender_init(made->out, &(struct shm_ring){ 0 });
	made->lane.ops = &ops;
	made->hub = hub;
	made->dialled = dialled;
	made->socket = socket;
	made->peer_bell = -1;
	made->waiting_tail = &made->waiting;
	made->handles = 2;
	(void)uv_timer_init(hub->loop, &made->timer);
	made->poll.data = made->timer.data = made;
	(void)snprintf(made->name, sizeof(made->name), "process %d", (int)pid);
	(void)uv_timer_start(&made->timer, on_timer, TR_CONN_GREETING_TIMEOUT_MS, 0);
	watch_start(&made->poll, UV_READABLE, on_socket);
	made->next = hub->lanes;
	hub->lanes = made;
	*lane = made;
	return TR_OK;
}

/* ---- the handshake ---- */

tr_status lane_shm_say_hello(struct lane_shm *lane, const struct shm_claim *claim,
    struct tr_error *error)
{
	struct shm_message hello = { .kind = SHM_HELLO,
		.version = SHM_SOCKET_VERSION,
		.claim = *claim };
	struct shm_ring to_them = { 0 }, to_us = { 0 };
	int descriptors[3] = { -1, -1, lane->hub->bell };
	tr_status st = shm_ring_create(&to_them, &descriptors[0], error);
	if (st == TR_OK)
		st = shm_ring_create(&to_us, &descriptors[1], error);
	shm_sender_init(lane->out, &to_them);
	shm_receiver_init(&lane->in, &to_us);
	if (st == TR_OK && shm_socket_send(lane->socket, &hello, descriptors, 3) != TR_OK)
		st = tr_error_set(error, TR_EUNAVAILABLE, "its UNIX socket takes no hello");
	for (int i = 0; i < 2; i++)
		if (descriptors[i] >= 0)
			(void)close(descriptors[i]);
	return st;
}

static void opened(struct lane_shm *lane)
{
	(void)uv_timer_stop(&lane->timer);
	lane->open = true;
	shm_hub_opened(lane);
}

static tr_status take_bell(struct lane_shm *lane, int *bell, struct tr_error *error)
{
	if (!shm_socket_is_bell(*bell))
		return tr_error_set(error, TR_EPROTO, "its doorbell is none");
	lane->peer_bell = *bell;
	*bell = -1;
	return TR_OK;
}

static tr_status take_hello(struct lane_shm *lane, struct shm_received *received,
    struct tr_error *error)
{
	struct shm_message welcome = { .kind = SHM_WELCOME, .version = SHM_SOCKET_VERSION };
	struct shm_ring to_us = { 0 }, to_them = { 0 };
	if (received->descriptor_count != 3)
		return tr_error_set(error, TR_EPROTO, "a hello without its memory");
	if (lane->hub->callbacks.admits != NULL &&
	    !lane->hub->callbacks.admits(lane->hub->arg, &received->message.claim)) {
		welcome.kind = SHM_REFUSED;
		(void)shm_socket_send(lane->socket, &welcome, NULL, 0);
		return tr_error_set(error, TR_EREFUSED, "no shared memory is wanted here");
	}
	tr_status st = shm_ring_open(&to_us, received->descriptors[0], error);
	shm_receiver_init(&lane->in, &to_us);
	if (st == TR_OK)
		st = shm_ring_open(&to_them, received->descriptors[1], error);
	shm_sender_init(lane->out, &to_them);
	if (st == TR_OK)
		st = take_bell(lane, &received->descriptors[2], error);
	if (st == TR_OK && shm_socket_send(lane->socket, &welcome, &lane->hub->bell, 1) != TR_OK)
		st = tr_error_set(error, TR_EUNAVAILABLE, "it takes no welcome");
	if (st != TR_OK)
		return st;
	opened(lane);
	lane->hub->callbacks.accepted(lane->hub->arg, &lane->lane);
	return TR_OK;
}

static tr_status take_welcome(struct lane_shm *lane, struct shm_received *received,
    struct tr_error *error)
{
	if (received->descriptor_count != 1)
		return tr_error_set(error, TR_EPROTO, "a welcome without a doorbell");
	tr_status st = take_bell(lane, &received->descriptors[0], error);
	if (st != TR_OK)
		return st;
	opened(lane);
	if (lane->exports != NULL && lane->exports->count > 0)
		(void)lane_shm_show(lane); /* the first piece: not only for what frames describe */
	if (lane->lane.callbacks.opened != NULL)
		lane->lane.callbacks.opened(lane->lane.arg, &lane->lane);
	return TR_OK;
}

static tr_status take_memory(struct lane_shm *lane, const struct shm_received *received,
    struct tr_error *error)
{
	if (received->descriptor_count != 1)
		return tr_error_set(error, TR_EPROTO, "a message about memory without memory");
	return shm_import_add(lane->import, received->descriptors[0], received->message.bytes,
	    received->message.stable != 0, error);
}

static tr_status take_message(struct lane_shm *lane, struct shm_received *received,
    struct tr_error *error)
{
	if (received->message.kind == SHM_HELLO && !lane->dialled && !lane->open)
		return take_hello(lane, received, error);
	if (received->message.kind == SHM_WELCOME && lane->dialled && !lane->open)
		return take_welcome(lane, received, error);
	if (received->message.kind == SHM_REFUSED && lane->dialled && !lane->open)
		return tr_error_set(error, TR_EREFUSED, "it wants none");
	if (received->message.kind == SHM_MEMORY && lane->open)
		return take_memory(lane, received, error);
	return tr_error_set(error, TR_EPROTO, "a message out of its order");
}

void lane_shm_read_socket(struct lane_shm *lane)
{
	while (!lane->closing && !lane->gone) {
		struct shm_received received;
		struct tr_error error = { 0 };
		tr_status st = shm_socket_receive(lane->socket, &received);
		if (st == TR_EAGAIN)
			return;
		if (st == TR_EUNAVAILABLE) {
			lane->gone = true;
			(void)uv_poll_stop(&lane->poll);
			return;
		}
		if (st != TR_OK) {
			lane_shm_close(lane, "a malformed message on its UNIX socket");
			return;
		}
		st = take_message(lane, &received, &error);
		for (unsigned i = 0; i < received.descriptor_count; i++)
			if (received.descriptors[i] >= 0)
				(void)close(received.descriptors[i]);
		if (st != TR_OK)
			lane_shm_close(lane, error.text);
	}
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct lane_shm *lane = poll->data;
	(void)events;
	if (status < 0)
		lane->gone = true;
	lane_shm_read_socket(lane);
	if (lane->gone && !lane->open)
		lane_shm_close(lane, "it closed its UNIX socket");
}

/* ---- turns of the loop ---- */

static bool finish_further(struct lane_shm *lane)
{
	if (lane->waiting != NULL || lane->said_end)
		return false;
	lane->said_end = true;
	(void)shutdown(lane->socket, SHUT_WR); /* it reads its ring to the end, then closes too */
	return true;
}

/* As most are when they are looked at. */
static bool idle(const struct lane_shm *lane)
{
	return !shm_ring_pending(&lane->in) && !shm_ring_consumed(lane->out) &&
	    lane->waiting == NULL &&
	    !(lane->wants_room | lane->resumed | lane->finishing | lane->gone);
}

bool lane_shm_poll(struct lane_shm *lane)
{
	if (!lane->open || lane->closing || idle(lane))
		return false;
	if (lane->resumed)
		lane->parked = false;
	lane->resumed = false;
	bool moved = lane_shm_read_ring(lane);
	if (lane->closing)
		return true;
	if (shm_ring_collect(lane->out) != TR_OK) {
		lane_shm_close(lane, "it took more from its ring than was there");
		return true;
	}
	moved |= lane_shm_send_waiting(lane);
	if (!lane->closing && lane->wants_room && lane_shm_has_room(lane)) {
		lane->wants_room = false;
		moved = true;
		if (lane->lane.callbacks.drained != NULL)
			lane->lane.callbacks.drained(lane->lane.arg, &lane->lane);
	}
	if (lane->finishing && !lane->closing)
		moved |= finish_further(lane);
	if (lane->gone && !lane->closing && !lane->parked && !shm_ring_pending(&lane->in)) {
		lane_shm_close(lane, lane->finishing ? lane->reason : "it closed its shared memory");
		return true;
	}
	return moved;
}

bool lane_shm_sleep(struct lane_shm *lane, bool starved)
{
	if (!lane->open || lane->closing)
		return true;
	if (lane->gone || lane->resumed)
		return lane->parked && !lane->resumed;
	bool quiet = lane->parked || shm_ring_sleep(&lane->in);
	if (lane->waiting != NULL || lane->wants_room ||
	    (starved && shm_ring_uncollected(lane->out)))
		quiet = shm_ring_wait_room(lane->out) && quiet;
	return quiet;
}

void lane_shm_awake(struct lane_shm *lane)
{
	if (lane->open)
		shm_ring_awake(&lane->in);
}

/* ---- the interface ---- */

static tr_status send_frame(struct lane *base, const struct lane_send *frame)
{
	return lane_shm_send((struct lane_shm *)base, frame);
}

static size_t room(struct lane *base)
{
	struct lane_shm *lane = (struct lane_shm *)base;
	if (!lane->open || lane->finishing)
		return 0;
	if (!lane_shm_has_room(lane))
		(void)shm_ring_collect(lane->out);
	lane->wants_room = !lane_shm_has_room(lane);
	return lane->wants_room ? 0 : SIZE_MAX / 2;
}

static size_t unsent(const struct lane *base)
{
	const struct lane_shm *lane = (const struct lane_shm *)base;
	return lane->waiting_bytes;
}

/* Those in the ring are described, not copied: the peer may still read them until it freezes, too. See engine_shm.c
 * for what that asks of their owner. */
static void drop_borrowed(struct lane *base)
{
	struct lane_shm *lane = (struct lane_shm *)base;
	lane_shm_drop_waiting(lane, true);
	if (lane->open && shm_ring_collect(lane->out) == TR_OK)
		lane_shm_let_go(lane);
}

static void resume(struct lane *base)
{
	struct lane_shm *lane = (struct lane_shm *)base;
	lane->resumed = true;
}

static void close_lane(struct lane *base, const char *reason)
{
	lane_shm_close((struct lane_shm *)base, reason);
}

static void finish(struct lane *base, const char *reason)
{
	struct lane_shm *lane = (struct lane_shm *)base;
	if (lane->closing || lane->finishing)
		return;
	if (!lane->open) {
		lane_shm_close(lane, reason);
		return;
	}
	lane->finishing = true;
	lane->parked = false;
	(void)snprintf(lane->reason, sizeof(lane->reason), "%s", reason);
	(void)uv_timer_start(&lane->timer, on_timer, TR_CONN_FINISH_TIMEOUT_MS, 0);
}

static void counters(const struct lane *base, struct lane_counters *counted)
{
	*counted = ((const struct lane_shm *)base)->counters;
}

/* Nothing gets lost between two rings: whether the process is there is the socket's to say. */
static void set_patience(struct lane *base, uint32_t patience_ms)
{
	(void)base;
	(void)patience_ms;
}

static void path(struct lane *base, struct lane_path *is)
{
	(void)base;
	*is = (struct lane_path){ .congestion = "" };
}

static void glance(const struct lane *base, struct lane_glance *glance)
{
	(void)base;
	*glance = (struct lane_glance){ 0 };
}

static const char *peer_name(const struct lane *base)
{
	return ((const struct lane_shm *)base)->name;
}

static const struct lane_ops ops = { .name = "shm",
	.send = send_frame,
	.room = room,
	.unsent = unsent,
	.drop_borrowed = drop_borrowed,
	.resume = resume,
	.close = close_lane,
	.finish = finish,
	.set_patience = set_patience,
	.counters = counters,
	.path = path,
	.glance = glance,
	.peer_name = peer_name };

bool shm_hub_made(const struct lane *lane)
{
	return lane->ops == &ops;
}

void shm_hub_nudge(struct lane *base)
{
	struct lane_shm *lane = (struct lane_shm *)base;
	if (base->ops == &ops && lane->open && !lane->closing)
		lane_shm_wake(lane);
}

bool shm_hub_shows_on(const struct lane *lane)
{
	return lane->ops == &ops && ((const struct lane_shm *)lane)->letting_go;
}

struct shm_import *shm_hub_import(const struct lane *lane)
{
	if (lane->ops != &ops)
		return NULL;
	return shm_import_hold(((const struct lane_shm *)lane)->import);
}
