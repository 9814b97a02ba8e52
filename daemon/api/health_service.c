#include "daemon/api/health_service.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/api/api_message.h"
#include "grpc/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest health_request;
typedef Grpc__Health__V1__HealthCheckResponse health_response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus health_status;

#define HEALTH_STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

struct health_watcher {
	struct health_service *health;
	struct health_watcher *next;
	struct grpc_call *call;
	bool known;
	health_status sent;
};

void health_service_init(struct health_service *health, uv_loop_t *loop, bool (*serving)(void *arg),
    void *arg)
{
	*health = (struct health_service){ .loop = loop, .serving = serving, .arg = arg };
}

void health_service_finish(struct health_service *health)
{
	assert(health->watchers == NULL);
	ticker_close(&health->ticker);
}

static health_status health_now(const struct health_service *health, bool known)
{
	if (!known)
		return HEALTH_STATUS(SERVICE_UNKNOWN);
	return health->serving(health->arg) ? HEALTH_STATUS(SERVING) : HEALTH_STATUS(NOT_SERVING);
}

/* False: malformed, the call was ended. */
static bool health_read(struct grpc_call *call, const uint8_t *request, size_t bytes, bool *known)
{
	ProtobufCMessage *message = api_message_read(call,
	    &grpc__health__v1__health_check_request__descriptor, request, bytes);
	if (message == NULL)
		return false;
	const char *service = ((const health_request *)message)->service;
	*known = service[0] == '\0' || strcmp(service, "traind.v1.Trainer") == 0;
	protobuf_c_message_free_unpacked(message, NULL);
	return true;
}

void health_service_check(struct health_service *health, struct grpc_call *call,
    const uint8_t *request, size_t bytes)
{
	bool known;
	if (!health_read(call, request, bytes, &known))
		return;
	if (!known) {
		grpc_call_end(call, GRPC_NOT_FOUND,
		    "known services: \"\" and \"traind.v1.Trainer\"");
		return;
	}
	health_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
	response.status = health_now(health, known);
	api_message_answer(call, &response.base);
}

static void health_say(struct health_watcher *watcher, health_status status)
{
	health_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
	response.status = status;
	watcher->sent = status;
	(void)api_message_send(watcher->call, &response.base);
}

static void health_tick(void *arg)
{
	struct health_service *health = arg;
	for (struct health_watcher *watcher = health->watchers; watcher != NULL;
	     watcher = watcher->next) {
		health_status now = health_now(health, watcher->known);
		if (now != watcher->sent)
			health_say(watcher, now);
	}
	ticker_arm(&health->ticker, TR_HEALTH_WATCH_INTERVAL_MS);
}

static void health_cancelled(void *arg)
{
	struct health_watcher *watcher = arg;
	struct health_service *health = watcher->health;
	struct health_watcher **at = &health->watchers;
	while (*at != watcher)
		at = &(*at)->next;
	*at = watcher->next;
	free(watcher);
	if (health->watchers == NULL)
		ticker_close(&health->ticker);
}

void health_service_watch(struct health_service *health, struct grpc_call *call,
    const uint8_t *request, size_t bytes)
{
	bool known;
	if (!health_read(call, request, bytes, &known))
		return;
	struct health_watcher *watcher = calloc(1, sizeof(*watcher));
	bool first = health->watchers == NULL;
	if (watcher == NULL ||
	    ticker_open(&health->ticker, health->loop, health_tick, health) != TR_OK) {
		free(watcher);
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	*watcher = (struct health_watcher){ .health = health,
		.next = health->watchers,
		.call = call,
		.known = known };
	health->watchers = watcher;
	grpc_call_on_cancel(call, health_cancelled, watcher);
	health_say(watcher, health_now(health, known));
	if (first)
		ticker_arm(&health->ticker, TR_HEALTH_WATCH_INTERVAL_MS);
}
