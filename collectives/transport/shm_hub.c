#include "collectives/transport/shm_hub.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/shm_internal.h"
#include "collectives/transport/watch.h"
#include "common/limits.h"
#include "common/log.h"

/* How long to look at the rings before sleeping. Chosen, not measured. */
#define SPIN_NS 50000u
/* Frames that never end must not keep timers and sockets waiting. */
#define POLL_MOST_NS 2000000u
/* So many looks in a row may go without one at the rings. */
#define LOOKS_PASSED_MOST 8u
/* As listener.c. */
#define ACCEPT_PAUSE_MS 100
/* Until some of those that were let in have said hello. */
#define STRANGERS_PAUSE_MS 5

bool shm_hub_look(struct shm_hub *hub)
{
	/* What it shows elsewhere is small, and answers follow it: the rings wait, but not for ever. */
	bool moved = hub->callbacks.look != NULL && hub->callbacks.look(hub->arg);
	if (moved && ++hub->passed < LOOKS_PASSED_MOST)
		return true;
	hub->passed = 0;
	/* Lanes that come meanwhile are put in front; none is freed before a later turn. */
	for (struct lane_shm *lane = hub->lanes; lane != NULL; lane = lane->next)
		moved |= lane_shm_poll(lane);
	return moved;
}

bool shm_hub_sleep(struct shm_hub *hub)
{
	bool quiet = true,
	     starved = hub->callbacks.starved != NULL && hub->callbacks.starved(hub->arg);
	hub->attended = false;
	for (struct lane_shm *lane = hub->lanes; lane != NULL; lane = lane->next)
		quiet &= lane_shm_sleep(lane, starved);
	atomic_thread_fence(memory_order_seq_cst); /* shm_hub_nudge has the other one */
	return quiet && (hub->callbacks.pending == NULL || !hub->callbacks.pending(hub->arg));
}

void shm_hub_awake(struct shm_hub *hub)
{
	if (hub->attended)
		return;
	hub->attended = true;
	for (struct lane_shm *lane = hub->lanes; lane != NULL; lane = lane->next)
		lane_shm_awake(lane);
}

/* Before the loop sleeps. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct shm_hub *hub = prepare->data;
	if (hub->attended)
		return;
	shm_hub_awake(hub);
	uint64_t began_ns = uv_hrtime(), idle_ns = began_ns, now_ns;
	do {
		if (shm_hub_look(hub))
			idle_ns = uv_hrtime();
		else if (hub->callbacks.busy == NULL || !hub->callbacks.busy(hub->arg))
			break;
		else
			(void)sched_yield();
		now_ns = uv_hrtime();
	} while (now_ns - idle_ns < SPIN_NS && now_ns - began_ns < POLL_MOST_NS);
	if (!shm_hub_sleep(hub))
		shm_socket_ring(hub->bell); /* the others have their turn, then we look again */
}

static void on_bell(uv_poll_t *poll, int status, int events)
{
	struct shm_hub *hub = poll->data;
	uint64_t count;
	(void)status;
	(void)events;
	ssize_t ignored = read(hub->bell, &count, sizeof(count));
	(void)ignored; /* the rings are looked at before the loop sleeps again */
}

static void on_dialled(uv_poll_t *poll, int status, int events);

static void on_pause(uv_timer_t *timer)
{
	struct shm_hub *hub = timer->data;
	if (!hub->stopping)
		watch_start(&hub->socket_poll, UV_READABLE, on_dialled);
}

/* Who dials stays in the queue, and the socket readable: watched, it would keep the loop busy. */
static void pause_accepting(struct shm_hub *hub, unsigned pause_ms)
{
	(void)uv_poll_stop(&hub->socket_poll);
	(void)uv_timer_start(&hub->pause, on_pause, pause_ms, 0);
}

static void starve(struct shm_hub *hub, int reason)
{
	if (!hub->starved)
		log_warn("shm", "no descriptor for a process of this host that dials: %s; it waits",
		    strerror(reason));
	hub->starved = true;
	pause_accepting(hub, ACCEPT_PAUSE_MS);
}

static void on_dialled(uv_poll_t *poll, int status, int events)
{
	struct shm_hub *hub = poll->data;
	(void)status;
	(void)events;
	/* Those beyond wait: one that was closed here would take TCP for good. */
	while (hub->strangers < TR_SHM_UNGREETED_MAX) {
		struct lane_shm *lane;
		int fd = accept4(hub->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			    errno == ENOMEM)
				starve(hub, errno);
			return;
		}
		hub->starved = false;
		if (lane_shm_create(hub, fd, false, &lane, NULL) == TR_OK)
			hub->strangers++;
	}
	pause_accepting(hub, STRANGERS_PAUSE_MS);
}

void shm_hub_opened(struct lane_shm *lane)
{
	struct shm_hub *hub = lane->hub;
	if (!lane->dialled)
		hub->strangers--;
	lane->counted = true;
	if (hub->open_lanes++ == 0)
		(void)uv_prepare_start(&hub->prepare, on_prepare);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct shm_hub *hub = handle->data;
	if (--hub->handles > 0)
		return;
	if (hub->bell >= 0)
		(void)close(hub->bell);
	(void)close(hub->socket);
	if (hub->stopping && hub->callbacks.closed != NULL)
		hub->callbacks.closed(hub->arg);
	free(hub);
}

static void end_if_idle(struct shm_hub *hub)
{
	if (!hub->stopping || hub->lanes != NULL || hub->closing)
		return;
	hub->closing = true;
	uv_close((uv_handle_t *)&hub->prepare, on_handle_closed);
	uv_close((uv_handle_t *)&hub->pause, on_handle_closed);
	uv_close((uv_handle_t *)&hub->bell_poll, on_handle_closed);
	uv_close((uv_handle_t *)&hub->socket_poll, on_handle_closed);
}

void shm_hub_forget(struct lane_shm *lane)
{
	struct shm_hub *hub = lane->hub;
	struct lane_shm **at = &hub->lanes;
	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	if (!lane->counted && !lane->dialled)
		hub->strangers--;
	if (lane->counted && --hub->open_lanes == 0)
		(void)uv_prepare_stop(&hub->prepare);
	free(lane);
	end_if_idle(hub);
}

/* ---- the interface ---- */

tr_status shm_hub_create(uv_loop_t *loop, const struct shm_hub_callbacks *callbacks, void *arg,
    struct shm_hub **hub, struct tr_error *error)
{
	struct shm_hub *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for shared memory");
	made->loop = loop;
	made->callbacks = *callbacks;
	made->arg = arg;
	tr_status st = shm_socket_listen(made->address, sizeof(made->address), &made->socket, error);
	if (st != TR_OK) {
		free(made);
		return st;
	}
	made->bell_poll.data = made->socket_poll.data = made->prepare.data = made->pause.data = made;
	made->prefault.idle.data = made;
	(void)uv_prepare_init(loop, &made->prepare);
	(void)uv_timer_init(loop, &made->pause);
	shm_prefault_init(&made->prefault, loop);
	made->handles = 3;
	made->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = made->bell < 0 ? UV_EMFILE : uv_poll_init(loop, &made->bell_poll, made->bell);
	if (rc == 0) {
		made->handles++;
		rc = uv_poll_init(loop, &made->socket_poll, made->socket);
		if (rc != 0)
			uv_close((uv_handle_t *)&made->bell_poll, on_handle_closed);
	}
	if (rc != 0) {
		uv_close((uv_handle_t *)&made->prepare, on_handle_closed);
		uv_close((uv_handle_t *)&made->pause, on_handle_closed);
		shm_prefault_close(&made->prefault, on_handle_closed);
		return tr_error_set(error, TR_EIO, "cannot watch shared memory: %s",
		    uv_strerror(rc));
	}
	made->handles++;
	watch_start(&made->bell_poll, UV_READABLE, on_bell);
	watch_start(&made->socket_poll, UV_READABLE, on_dialled);
	*hub = made;
	return TR_OK;
}

void shm_hub_close(struct shm_hub *hub)
{
	if (hub == NULL || hub->stopping)
		return;
	for (struct lane_shm *lane = hub->lanes; lane != NULL; lane = lane->next)
		if (!lane->counted && !lane->dialled)
			lane_shm_close(lane, "the engine stops");
	hub->stopping = true;
	(void)uv_poll_stop(&hub->socket_poll);
	(void)uv_timer_stop(&hub->pause);
	shm_prefault_close(&hub->prefault, on_handle_closed);
	end_if_idle(hub);
}

const char *shm_hub_address(const struct shm_hub *hub)
{
	return hub->address;
}

tr_status shm_hub_dial(struct shm_hub *hub, const char *address, const struct shm_claim *claim,
    struct shm_exports *exports, const struct lane_callbacks *callbacks, void *arg,
    struct lane **lane, struct tr_error *error)
{
	struct lane_shm *made;
	int fd = -1;
	tr_status st = shm_socket_dial(address, &fd, error);
	if (st == TR_OK)
		st = lane_shm_create(hub, fd, true, &made, error);
	if (st != TR_OK)
		return st;
	st = lane_shm_say_hello(made, claim, error);
	if (st != TR_OK) { /* nobody hears of its end */
		lane_shm_close(made, "no hello");
		return st;
	}
	made->lane.callbacks = *callbacks;
	made->lane.arg = arg;
	made->exports = exports;
	*lane = &made->lane;
	return TR_OK;
}

void shm_hub_prefault(struct shm_hub *hub, void *base, size_t bytes)
{
	shm_prefault_add(&hub->prefault, base, bytes);
}

void shm_hub_prefault_end(struct shm_hub *hub, const void *base)
{
	shm_prefault_end(&hub->prefault, base);
}
