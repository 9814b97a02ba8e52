#include "daemon/membership/server/memberd_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/shell/healthz.h"
#include "daemon/shell/rundir.h"

static void accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct memberd *memberd = arg;
	switch (protocol) {
	case LISTENER_FRAMES:
		/* Before the log is replayed a node would be a stranger; it tries again soon. */
		if (memberd->leading)
			node_conns_accept(memberd, stream, early, early_bytes);
		else
			stream_close(&stream);
		break;
	case LISTENER_RELAY:
		if (memberd->relay != NULL)
			relay_accept(memberd->relay, stream);
		else
			stream_close(&stream);
		break;
	case LISTENER_PROBE: /* ways go between nodes; we are none */
		stream_close(&stream);
		break;
	case LISTENER_HTTP2:
		grpc_server_accept(memberd->grpc, stream, early, early_bytes);
		break;
	case LISTENER_HTTP1:
		healthz_answer(memberd->loop, stream, early, early_bytes,
		    membership_leading(memberd->core), "the log is being replayed");
		break;
	}
}

/* ---- the log */

static void log_applied(void *arg, const void *bytes, size_t size, uint64_t cookie)
{
	struct memberd *memberd = arg;
	Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL, size, bytes);
	if (entry == NULL) {
		memberd->failed(memberd->arg,
		    "an entry of the log cannot be read: it was written by another version");
		return;
	}
	event_queue_push(memberd,
	    &(struct membership_event){ .kind = MEMBERSHIP_APPLIED,
	        .entry = entry,
	        .cookie = cookie },
	    &entry->base, NULL);
}

static void log_restored(void *arg, const void *bytes, size_t size)
{
	struct memberd *memberd = arg;
	Traind__Peer__Snapshot *snapshot = traind__peer__snapshot__unpack(NULL, size, bytes);
	if (snapshot == NULL) {
		memberd->failed(memberd->arg,
		    "the snapshot cannot be read: it was written by another version");
		return;
	}
	event_queue_push(memberd,
	    &(struct membership_event){ .kind = MEMBERSHIP_RESTORED, .snapshot = snapshot },
	    &snapshot->base, NULL);
}

static void log_leading(void *arg)
{
	struct memberd *memberd = arg;
	struct tr_error error;
	const char *address = listener_address(memberd->listener);
	memberd->leading = true;
	event_queue_push(memberd, &(struct membership_event){ .kind = MEMBERSHIP_LEADING }, NULL,
	    NULL);
	if (rundir_announce(memberd->folder, address, &error) != TR_OK) {
		memberd->failed(memberd->arg, error.text);
		return;
	}
	log_info("server", "memberd " TR_VERSION " serves at %s, folder %s", address,
	    memberd->folder);
}

static void log_failed(void *arg, uint64_t cookie, const char *reason)
{
	event_queue_push(arg,
	    &(struct membership_event){ .kind = MEMBERSHIP_APPEND_FAILED, .cookie = cookie }, NULL,
	    reason);
}

static tr_status log_snapshot(void *arg, void **bytes, size_t *size)
{
	struct memberd *memberd = arg;
	event_queue_catch_up(memberd);
	Traind__Peer__Snapshot *snapshot = memberd->broken ? NULL
	                                                   : membership_snapshot(memberd->core);
	if (snapshot == NULL)
		return TR_ENOMEM;
	size_t packed_size = traind__peer__snapshot__get_packed_size(snapshot);
	void *packed = malloc(packed_size > 0 ? packed_size : 1);
	if (packed != NULL) {
		*size = traind__peer__snapshot__pack(snapshot, packed);
		*bytes = packed;
	}
	traind__peer__snapshot__free_unpacked(snapshot, NULL);
	return packed == NULL ? TR_ENOMEM : TR_OK;
}

static void log_closed(void *arg)
{
	struct memberd *memberd = arg;
	memberd->store = NULL;
}

/* ---- life */

static tr_status open_parts(struct memberd *memberd, const struct memberd_options *options,
    struct tr_error *error)
{
	static const struct store_callbacks store_calls = {
		.applied = log_applied,
		.restored = log_restored,
		.leading = log_leading,
		.failed = log_failed,
		.snapshot = log_snapshot,
		.closed = log_closed,
	};
	struct tls_context *tls = NULL;
	tr_status st = membership_create(&options->core, &memberd->core);
	if (st == TR_OK)
		st = trainer_service_create(memberd->loop, &backend_calls, memberd,
		    &memberd->service);
	struct grpc_server_options grpc = { .methods = trainer_service_methods(),
		.arg = memberd->service };
	if (st == TR_OK)
		st = grpc_server_create(memberd->loop, &grpc, &memberd->grpc);
	if (st != TR_OK)
		return tr_error_set(error, st, "cannot start: %s", tr_status_text(st));
	if (options->core.relays)
		st = relay_create(TR_RELAY_JOINED_MAX, &memberd->relay, error);
	if (st == TR_OK && options->tls != NULL)
		st = tls_context_load(options->tls, &tls, error);
	if (st == TR_OK)
		st = listener_start(memberd->loop, options->listen, options->insecure, tls,
		    accepted, memberd, &memberd->listener, error);
	tls_context_release(tls);
	if (st == TR_OK)
		st = store_open(memberd->loop, options->folder, &store_calls, memberd,
		    &memberd->store, error);
	return st;
}

tr_status memberd_create(uv_loop_t *loop, const struct memberd_options *options,
    void (*failed)(void *arg, const char *text), void *arg, struct memberd **memberd,
    struct tr_error *error)
{
	struct memberd *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	made->loop = loop;
	made->failed = failed;
	made->arg = arg;
	(void)snprintf(made->folder, sizeof(made->folder), "%s", options->folder);
	event_queue_init(made);
	node_conns_init(made);
	tr_status st = open_parts(made, options, error);
	if (st != TR_OK) {
		memberd_stop(made);
		(void)uv_run(loop, UV_RUN_DEFAULT);
		memberd_destroy(made);
		return st;
	}
	*memberd = made;
	return TR_OK;
}

void memberd_stop(struct memberd *memberd)
{
	if (memberd->stopping)
		return;
	memberd->stopping = true;
	rundir_retract(memberd->folder);
	if (memberd->listener != NULL)
		listener_stop(memberd->listener);
	log_relay_finish(memberd);
	healthz_finish();
	node_conns_close(memberd);
	if (memberd->grpc != NULL)
		grpc_server_close(memberd->grpc, NULL, NULL);
	if (memberd->store != NULL)
		store_close(memberd->store);
	event_queue_close(memberd);
}

void memberd_destroy(struct memberd *memberd)
{
	if (memberd == NULL)
		return;
	relay_destroy(memberd->relay);
	trainer_service_destroy(memberd->service);
	membership_destroy(memberd->core);
	membership_actions_finish(&memberd->actions);
	free(memberd);
}
