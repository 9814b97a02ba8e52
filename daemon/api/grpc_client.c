#include "daemon/api/grpc_client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "common/limits.h"
#include "daemon/api/grpc_client_session.h"
#include "daemon/api/grpc_dial.h"
#include "daemon/api/grpc_io.h"

/* A connection. A client has one, and more only while it has more calls than one may carry, or while the last calls of a
 * connection that takes no more go on. */
struct grpc_client_link {
	struct grpc_client *client;
	struct grpc_client_link *next;
	struct grpc_session *session;
	struct grpc_io *io;
};

struct grpc_client {
	uv_loop_t *loop;
	char text[TR_ADDRESS_MAX];
	struct address address;
	struct tls_context *tls; /* NULL: plain */
	uv_timer_t timer;        /* deadlines, and what must happen from a later turn */
	struct grpc_client_call *calls;
	struct grpc_client_link *links;
	unsigned link_count, call_count;
	struct grpc_dial *dial; /* NULL: none under way */
	bool destroyed, timer_closed;
};

static void client_on_timer(uv_timer_t *timer);

static void client_free_when_closed(struct grpc_client *client)
{
	if (!client->destroyed || !client->timer_closed || client->links != NULL)
		return;
	tls_context_release(client->tls);
	free(client);
}

/* Runs client_on_timer in a later turn of the loop. */
static void client_wake(struct grpc_client *client)
{
	if (!client->destroyed)
		(void)uv_timer_start(&client->timer, client_on_timer, 0, 0);
}

static void client_link_call(struct grpc_client *client, struct grpc_client_call *call)
{
	call->client = client;
	call->next = client->calls;
	client->calls = call;
	client->call_count++;
}

static void client_unlink_call(const struct grpc_client_call *call)
{
	struct grpc_client_call **at = &call->client->calls;
	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
}

/* Tells the caller, then frees the call, which is on no list and on no session. */
static void client_end(struct grpc_client_call *call)
{
	call->client->call_count--;
	call->callbacks.ended(call->arg, call->status, call->text);
	grpc_outbox_finish(&call->request);
	free(call->path);
	free(call);
}

static void client_call_over(void *arg, struct grpc_client_call *call)
{
	struct grpc_client_link *link = arg;
	client_unlink_call(call);
	client_wake(link->client); /* there is room for another */
	client_end(call);
	if (link->session->stream_count == 0 && link->client->link_count > 1)
		grpc_client_session_retire(link->session);
}

/* A server that allowed fewer calls than there are may allow more. */
static void client_settings_came(void *arg)
{
	client_wake(((struct grpc_client_link *)arg)->client);
}

/* Ends a call wherever it is; `ended` runs from a later turn. */
static void client_decide(struct grpc_client_call *call, enum grpc_status status, const char *text)
{
	if (call->decided)
		return;
	if (call->started) {
		grpc_client_session_end(call, status, text);
		return;
	}
	call->decided = true;
	call->status = status;
	(void)snprintf(call->text, sizeof(call->text), "%s", text);
	client_wake(call->client);
}

/* Calls on no session whose end was decided. */
static void client_end_decided(struct grpc_client *client)
{
	struct grpc_client_call **at = &client->calls; /* calls that `ended` starts are put in front */
	while (*at != NULL) {
		struct grpc_client_call *call = *at;
		if (call->started || !call->decided) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		client_end(call);
	}
}

static bool client_waits(const struct grpc_client_call *call)
{
	return !call->started && !call->decided;
}

/* The call that has waited for longest; NULL: none waits. */
static struct grpc_client_call *client_next_waiting(const struct grpc_client *client)
{
	struct grpc_client_call *found = NULL;
	for (struct grpc_client_call *call = client->calls; call != NULL; call = call->next)
		if (client_waits(call))
			found = call;
	return found;
}

static void client_fail_waiting(struct grpc_client *client, const char *cause)
{
	char text[TR_GRPC_STATUS_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "cannot reach %s: %s", client->text, cause);
	for (struct grpc_client_call *call = client->calls; call != NULL; call = call->next) {
		if (client_waits(call)) {
			call->lost = true;
			client_decide(call, GRPC_UNAVAILABLE, text);
		}
	}
	client_end_decided(client);
}

/* A connection that takes one more call. */
static struct grpc_client_link *client_open_link(const struct grpc_client *client)
{
	struct grpc_client_link *link = client->links;
	while (link != NULL && !grpc_client_session_has_room(link->session))
		link = link->next;
	return link;
}

static void client_link_closed(void *arg, const char *reason, bool fault)
{
	struct grpc_client_link *link = arg;
	struct grpc_client *client = link->client;
	struct grpc_client_link **at = &client->links;
	(void)reason;
	(void)fault;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	client->link_count--;
	client_wake(client); /* calls that waited for room */
	free(link);
	client_free_when_closed(client);
}

static tr_status client_add_link(struct grpc_client *client, struct stream stream)
{
	static const struct grpc_client_session_callbacks callbacks = { .over = client_call_over,
		.settings = client_settings_came };
	struct grpc_client_link *link = calloc(1, sizeof(*link));
	if (link == NULL)
		return TR_ENOMEM;
	tr_status status = TR_ENOMEM;
	link->client = client;
	link->session = grpc_client_session_create(client->address.is_unix ? "localhost"
	                                                                   : client->text,
	    &callbacks, link, uv_now(client->loop));
	if (link->session == NULL)
		goto free_link;
	status = grpc_io_create(client->loop, stream, link->session, NULL, 0, client_link_closed,
	    link, &link->io);
	if (status != TR_OK)
		goto destroy_session;
	link->next = client->links;
	client->links = link;
	client->link_count++;
	return TR_OK;

destroy_session:
	grpc_session_destroy(link->session);
free_link:
	free(link);
	return status;
}

static void client_start_waiting(struct grpc_client *client)
{
	struct grpc_client_call *call;
	struct grpc_client_link *link;
	while ((link = client_open_link(client)) != NULL &&
	    (call = client_next_waiting(client)) != NULL) {
		tr_status status = grpc_client_session_start(link->session, call);
		if (status != TR_OK)
			client_decide(call, grpc_status_of(status), tr_status_text(status));
	}
	client_end_decided(client);
}

static void client_pump(struct grpc_client *client);

static void client_dialled(void *arg, struct stream stream, const char *cause)
{
	struct grpc_client *client = arg;
	client->dial = NULL;
	if (stream.fd < 0) {
		client_fail_waiting(client, cause);
	} else if (client_add_link(client, stream) != TR_OK) {
		stream_close(&stream);
		client_fail_waiting(client, "out of memory");
	} else {
		client_pump(client);
	}
}

/* Puts what waits on its way. */
static void client_pump(struct grpc_client *client)
{
	client_end_decided(client);
	client_start_waiting(client);
	if (client_next_waiting(client) == NULL || client->dial != NULL ||
	    client->link_count == TR_GRPC_CLIENT_LINKS_MAX)
		return;
	tr_status status = grpc_dial_start(client->loop, &client->address, client->tls,
	    client_dialled, client, &client->dial);
	if (status != TR_OK)
		client_fail_waiting(client, tr_status_text(status));
}

static void client_on_timer(uv_timer_t *timer)
{
	struct grpc_client *client = timer->data;
	uint64_t now_ms = uv_now(client->loop), next_ms = GRPC_NO_DEADLINE;
	struct grpc_client_call *following;
	for (struct grpc_client_call *call = client->calls; call != NULL; call = following) {
		following = call->next;
		if (call->decided)
			continue;
		if (call->deadline_ms <= now_ms)
			client_decide(call, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
		else if (call->deadline_ms < next_ms)
			next_ms = call->deadline_ms;
	}
	if (next_ms != GRPC_NO_DEADLINE)
		(void)uv_timer_start(timer, client_on_timer, next_ms - now_ms, 0);
	client_pump(client);
}

tr_status grpc_client_create(uv_loop_t *loop, const char *address, struct tls_context *tls,
    struct grpc_client **out, struct tr_error *error)
{
	struct grpc_client *client = calloc(1, sizeof(*client));
	if (client == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	tr_status status = address_parse(address, &client->address, error);
	if (status != TR_OK) {
		free(client);
		return status;
	}
	client->loop = loop;
	client->tls = tls_context_hold(tls);
	(void)snprintf(client->text, sizeof(client->text), "%s", address);
	(void)uv_timer_init(loop, &client->timer);
	client->timer.data = client;
	*out = client;
	return TR_OK;
}

/* Of requests, before they are on a connection and there. */
static size_t client_unsent(const struct grpc_client *client)
{
	size_t unsent = 0;
	for (const struct grpc_client_call *call = client->calls; call != NULL; call = call->next)
		unsent += call->started ? call->stream.out.unsent : call->request.unsent;
	return unsent;
}

tr_status grpc_client_call(struct grpc_client *client, const char *path, const void *request,
    size_t bytes, uint64_t deadline_ms, const struct grpc_client_callbacks *callbacks, void *arg,
    struct grpc_client_call **out, struct tr_error *error)
{
	if (bytes > TR_GRPC_MESSAGE_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "a request of %zu bytes is longer than %u, the limit", bytes,
		    TR_GRPC_MESSAGE_MAX);
	if (client->call_count == TR_GRPC_CLIENT_CALLS_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "%d calls are under way, the limit; try again", TR_GRPC_CLIENT_CALLS_MAX);
	if (client_unsent(client) + bytes > TR_GRPC_UNSENT_BYTES_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "%u MiB of requests wait to be sent, the limit; try again",
		    TR_GRPC_UNSENT_BYTES_MAX >> 20);
	struct grpc_client_call *call = calloc(1, sizeof(*call));
	if (call == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	call->path = strdup(path);
	if (call->path == NULL || grpc_outbox_add(&call->request, request, bytes) != TR_OK) {
		free(call->path);
		free(call);
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	}
	uv_update_time(client->loop); /* the caller may have worked for long since the loop looked */
	uint64_t now_ms = uv_now(client->loop);
	bool timed = deadline_ms != 0 && deadline_ms < GRPC_NO_DEADLINE - now_ms;
	call->deadline_ms = timed ? now_ms + deadline_ms : GRPC_NO_DEADLINE;
	call->callbacks = *callbacks;
	call->arg = arg;
	client_link_call(client, call);
	client_wake(client);
	*out = call;
	return TR_OK;
}

bool grpc_client_call_is_lost(const struct grpc_client_call *call)
{
	return call->lost;
}

void grpc_client_cancel(struct grpc_client_call *call)
{
	client_decide(call, GRPC_CANCELLED, "cancelled by the caller");
}

void grpc_client_pause(struct grpc_client_call *call, bool paused)
{
	call->paused = paused;
	if (!paused && call->started)
		grpc_session_touch(&call->stream);
}

static void client_timer_closed(uv_handle_t *handle)
{
	struct grpc_client *client = handle->data;
	client->timer_closed = true;
	client_free_when_closed(client);
}

void grpc_client_destroy(struct grpc_client *client)
{
	if (client == NULL)
		return;
	client->destroyed = true;
	if (client->dial != NULL)
		grpc_dial_cancel(client->dial);
	for (struct grpc_client_call *call = client->calls; call != NULL; call = call->next)
		client_decide(call, GRPC_CANCELLED, "the client was closed");
	for (struct grpc_client_link *link = client->links; link != NULL; link = link->next)
		grpc_io_close(link->io, "the client was closed");
	client_end_decided(client);
	uv_close((uv_handle_t *)&client->timer, client_timer_closed);
}
