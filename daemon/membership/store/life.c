#include "daemon/membership/store/life.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_ID          1
#define SERVER_ADDRESS     "memberd" /* nobody dials it: a cluster of one */
#define SNAPSHOT_THRESHOLD 4096u     /* entries between snapshots */
#define SNAPSHOT_TRAILING  256u
#define TURNS_OF_REST      16u

struct life {
	struct raft raft;
	struct raft_io io;
	struct raft_fsm fsm;
	struct raft_uv_transport transport;
	struct raft_barrier barrier;
	/* libraft 0.15 may fire its close callback before the last of its files' handles is closed,
	 * and once more after that: the first counts, and memory is freed some turns later. */
	void (*real_close)(struct raft_io *io, raft_io_close_cb callback);
	raft_io_close_cb io_closed;
	bool io_gone;
	uv_idle_t rest;
	unsigned turns;
	struct life_callbacks callbacks;
	void *arg;
	bool asked;     /* the barrier is on its way, or passed */
	bool stillborn; /* nobody is to hear of its end */
};

struct batch {
	struct raft_apply request;
	struct life *life;
	unsigned count;
};

static int transport_init(struct raft_uv_transport *transport, raft_id id, const char *address)
{
	(void)transport;
	(void)id;
	(void)address;
	return 0;
}

static int transport_listen(struct raft_uv_transport *transport, raft_uv_accept_cb accept)
{
	(void)transport;
	(void)accept;
	return 0;
}

static int transport_connect(struct raft_uv_transport *transport, struct raft_uv_connect *request,
    raft_id id, const char *address, raft_uv_connect_cb callback)
{
	(void)transport;
	(void)request;
	(void)id;
	(void)address;
	(void)callback;
	return RAFT_NOCONNECTION;
}

static void transport_close(struct raft_uv_transport *transport, raft_uv_transport_close_cb callback)
{
	callback(transport);
}

static struct life *life_of_io(struct raft_io *io)
{
	return (struct life *)((char *)io - offsetof(struct life, io));
}

static void on_io_closed(struct raft_io *io)
{
	struct life *life = life_of_io(io);
	if (life->io_gone)
		return;
	life->io_gone = true;
	life->io_closed(io);
}

static void io_close(struct raft_io *io, raft_io_close_cb callback)
{
	struct life *life = life_of_io(io);
	life->io_closed = callback;
	life->real_close(io, on_io_closed);
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buffer, void **result)
{
	struct life *life = fsm->data;
	*result = NULL;
	return life->callbacks.applied(life->arg, buffer->base, buffer->len);
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *buffers[], unsigned *count)
{
	struct life *life = fsm->data;
	void *bytes = NULL;
	size_t size = 0;
	struct raft_buffer *list = raft_malloc(sizeof(*list));
	if (list == NULL)
		return RAFT_NOMEM;
	if (life->callbacks.snapshot(life->arg, &bytes, &size) != TR_OK) {
		raft_free(list);
		return RAFT_NOMEM;
	}
	list->base = bytes;
	list->len = size;
	*buffers = list;
	*count = 1;
	return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buffer)
{
	struct life *life = fsm->data;
	int rv = life->callbacks.restored(life->arg, buffer->base, buffer->len);
	if (rv == 0)
		raft_free(buffer->base);
	return rv;
}

static void on_rest_closed(uv_handle_t *handle)
{
	struct life *life = handle->data;
	void (*closed)(void *arg) = life->stillborn ? NULL : life->callbacks.closed;
	void *arg = life->arg;
	raft_uv_close(&life->io);
	free(life);
	if (closed != NULL)
		closed(arg);
}

static void on_rest(uv_idle_t *rest)
{
	struct life *life = rest->data;
	if (++life->turns == TURNS_OF_REST)
		uv_close((uv_handle_t *)rest, on_rest_closed);
}

static void on_closed(struct raft *raft)
{
	struct life *life = raft->data;
	(void)uv_idle_start(&life->rest, on_rest);
}

static tr_status life_init(struct life *life, uv_loop_t *loop, const char *folder,
    struct tr_error *error)
{
	life->transport.init = transport_init;
	life->transport.listen = transport_listen;
	life->transport.connect = transport_connect;
	life->transport.close = transport_close;
	life->fsm.version = 1;
	life->fsm.data = life;
	life->fsm.apply = fsm_apply;
	life->fsm.snapshot = fsm_snapshot;
	life->fsm.restore = fsm_restore;
	int rv = raft_uv_init(&life->io, loop, folder, &life->transport);
	if (rv != 0)
		return tr_error_set(error, TR_EIO, "cannot open the log in %s: %s", folder,
		    life->io.errmsg[0] != '\0' ? life->io.errmsg : raft_strerror(rv));
	/* It would move whole files with acknowledged entries away: repair.h. */
	raft_uv_set_auto_recovery(&life->io, false);
	rv = raft_init(&life->raft, &life->io, &life->fsm, SERVER_ID, SERVER_ADDRESS);
	if (rv != 0) {
		tr_error_set(error, TR_EIO, "cannot open the log in %s: %s", folder,
		    raft_errmsg(&life->raft));
		raft_uv_close(&life->io);
		return TR_EIO;
	}
	(void)uv_idle_init(loop, &life->rest);
	life->rest.data = life;
	life->real_close = life->io.close;
	life->io.close = io_close;
	life->raft.data = life;
	raft_set_snapshot_threshold(&life->raft, SNAPSHOT_THRESHOLD);
	raft_set_snapshot_trailing(&life->raft, SNAPSHOT_TRAILING);
	return TR_OK;
}

tr_status life_open(uv_loop_t *loop, const char *folder, const struct life_callbacks *callbacks,
    void *arg, struct life **result, struct tr_error *error)
{
	struct life *life = calloc(1, sizeof(*life));
	if (life == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	life->callbacks = *callbacks;
	life->arg = arg;
	tr_status status = life_init(life, loop, folder, error);
	if (status != TR_OK) {
		free(life);
		return status;
	}
	if (raft_start(&life->raft) != 0)
		status = tr_error_set(error, TR_EIO,
		    "cannot read the log in %s: %s; put a backup of the folder there, or move it "
		    "away to begin anew",
		    folder, raft_errmsg(&life->raft));
	if (status != TR_OK) {
		life->stillborn = true;
		raft_close(&life->raft, on_closed); /* the loop frees it on its next turns */
		return status;
	}
	*result = life;
	return TR_OK;
}

static tr_status bootstrap(struct life *life, const char *folder, struct tr_error *error)
{
	struct raft_configuration configuration;
	raft_configuration_init(&configuration);
	int rv = raft_configuration_add(&configuration, SERVER_ID, SERVER_ADDRESS, RAFT_VOTER);
	if (rv == 0)
		rv = raft_bootstrap(&life->raft, &configuration);
	raft_configuration_close(&configuration);
	if (rv == 0)
		return TR_OK;
	return tr_error_set(error, rv == RAFT_NOMEM ? TR_ENOMEM : TR_EIO,
	    "cannot begin the log in %s: %s", folder,
	    raft_errmsg(&life->raft)[0] != '\0' ? raft_errmsg(&life->raft) : raft_strerror(rv));
}

tr_status life_found(const char *folder, struct tr_error *error)
{
	uv_loop_t loop;
	struct life *life = calloc(1, sizeof(*life));
	if (life == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	life->stillborn = true;
	(void)uv_loop_init(&loop);
	tr_status status = life_init(life, &loop, folder, error);
	if (status == TR_OK) {
		status = bootstrap(life, folder, error);
		raft_close(&life->raft, on_closed);
	} else {
		free(life);
	}
	while (uv_run(&loop, UV_RUN_DEFAULT) != 0)
		;
	(void)uv_loop_close(&loop);
	return status;
}

static void on_barrier(struct raft_barrier *request, int status)
{
	struct life *life = request->data;
	if (status == 0)
		life->callbacks.leading(life->arg);
	else
		life->callbacks.written(life->arg, 0, status);
}

void life_poll(struct life *life)
{
	if (life->asked || raft_state(&life->raft) != RAFT_LEADER)
		return;
	life->barrier.data = life;
	life->asked = raft_barrier(&life->raft, &life->barrier, on_barrier) == 0;
}

static void on_written(struct raft_apply *request, int status, void *result)
{
	struct batch *batch = request->data;
	struct life *life = batch->life;
	(void)result;
	life->callbacks.written(life->arg, batch->count, status);
	free(batch);
}

int life_append(struct life *life, struct raft_buffer *buffers, unsigned count)
{
	struct batch *batch = calloc(1, sizeof(*batch));
	if (batch == NULL)
		return RAFT_NOMEM;
	batch->life = life;
	batch->count = count;
	batch->request.data = batch;
	int rv = raft_apply(&life->raft, &batch->request, buffers, count, on_written);
	if (rv != 0)
		free(batch);
	return rv;
}

const char *life_error(const struct life *life)
{
	return life->raft.errmsg;
}

void life_close(struct life *life)
{
	raft_close(&life->raft, on_closed);
}
