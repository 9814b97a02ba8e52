#include "daemon/api/forward.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/limits.h"
#include "daemon/api/grpc_client.h"
#include "daemon/api/health_service.h"

struct forward {
	char address[TR_ADDRESS_MAX];
	struct grpc_client *client;
	struct health_service health;
};

/* One call under way: `in` from the client, `out` to memberd. */
struct forwarded {
	struct forward *forward;
	struct grpc_call *in; /* NULL: the client went away */
	struct grpc_client_call *out;
};

static void forwarded_cancelled(void *arg)
{
	struct forwarded *call = arg;
	call->in = NULL;
	grpc_client_cancel(call->out);
}

/* Nothing more comes of it from memberd. */
static void forwarded_refuse(struct forwarded *call, enum grpc_status status, const char *text)
{
	grpc_call_end(call->in, status, text);
	forwarded_cancelled(call);
}

static void forwarded_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct forwarded *call = arg;
	/* They came here at once, by calls that had begun before: memberd does not know who is slow. */
	if (call->in != NULL && grpc_call_is_crowded(call->in)) {
		forwarded_refuse(call, GRPC_RESOURCE_EXHAUSTED,
		    "more than 64 MiB of answers wait on this connection; read them and try again");
		return;
	}
	tr_status status = call->in == NULL ? TR_ECANCELLED
	                                    : grpc_call_send(call->in, message, bytes);
	if (status == TR_OK ||
	    status == TR_ECANCELLED) /* gone: forwarded_cancelled has run, or will */
		return;
	if (status == TR_EAGAIN) {
		grpc_client_pause(call->out, true);
		return;
	}
	forwarded_refuse(call, grpc_status_of(status), tr_status_text(status));
}

static void forwarded_writable(void *arg)
{
	struct forwarded *call = arg;
	grpc_client_pause(call->out, false);
}

static void forwarded_ended(void *arg, enum grpc_status status, const char *text)
{
	struct forwarded *call = arg;
	char unreachable[TR_ADDRESS_MAX + 80];
	if (grpc_client_call_is_lost(call->out)) {
		(void)snprintf(unreachable, sizeof(unreachable),
		    "memberd at %s is not reachable; training goes on; try again",
		    call->forward->address);
		text = unreachable;
	}
	if (call->in != NULL)
		grpc_call_end(call->in, status, text);
	free(call);
}

void forward_call(void *arg, struct grpc_call *in, const uint8_t *request, size_t bytes)
{
	static const struct grpc_client_callbacks callbacks = { forwarded_message, forwarded_ended };
	struct forward *forward = arg;
	struct tr_error error;
	uint64_t left_ms = grpc_call_time_left_ms(in);
	struct forwarded *call = calloc(1, sizeof(*call));
	if (call == NULL) {
		grpc_call_end(in, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	call->forward = forward;
	call->in = in;
	tr_status status = grpc_client_call(forward->client, grpc_call_path(in), request, bytes,
	    left_ms == UINT64_MAX ? 0 : left_ms + 1, &callbacks, call, &call->out, &error);
	if (status != TR_OK) {
		grpc_call_end(in, grpc_status_of(status), error.text);
		free(call);
		return;
	}
	grpc_call_on_cancel(in, forwarded_cancelled, call);
	grpc_call_on_writable(in, forwarded_writable, call);
}

static bool forward_serves(void *arg)
{
	(void)arg;
	return true;
}

static void forward_health_check(void *arg, struct grpc_call *call, const uint8_t *request,
    size_t bytes)
{
	health_service_check(&((struct forward *)arg)->health, call, request, bytes);
}

static void forward_health_watch(void *arg, struct grpc_call *call, const uint8_t *request,
    size_t bytes)
{
	health_service_watch(&((struct forward *)arg)->health, call, request, bytes);
}

const struct grpc_method *forward_methods(void)
{
	static const struct grpc_method methods[] = {
		{ HEALTH_CHECK_PATH, forward_health_check },
		{ HEALTH_WATCH_PATH, forward_health_watch },
		{ NULL, NULL },
	};
	return methods;
}

tr_status forward_create(uv_loop_t *loop, const char *memberd_address, struct tls_context *tls,
    struct forward **out, struct tr_error *error)
{
	struct forward *forward = calloc(1, sizeof(*forward));
	if (forward == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	tr_status status = grpc_client_create(loop, memberd_address, tls, &forward->client, error);
	if (status != TR_OK) {
		free(forward);
		return status;
	}
	(void)snprintf(forward->address, sizeof(forward->address), "%s", memberd_address);
	health_service_init(&forward->health, loop, forward_serves, forward);
	*out = forward;
	return TR_OK;
}

void forward_destroy(struct forward *forward)
{
	if (forward == NULL)
		return;
	grpc_client_destroy(forward->client);
	health_service_finish(&forward->health);
	free(forward);
}
