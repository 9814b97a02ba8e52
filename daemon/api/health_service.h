/* grpc.health.v1.Health: Check and Watch. Known services are "" (the daemon) and "traind.v1.Trainer". */
#ifndef TR_DAEMON_API_HEALTH_SERVICE_H
#define TR_DAEMON_API_HEALTH_SERVICE_H

#include "daemon/api/grpc_server.h"
#include "daemon/api/ticker.h"

#define HEALTH_CHECK_PATH "/grpc.health.v1.Health/Check"
#define HEALTH_WATCH_PATH "/grpc.health.v1.Health/Watch"

struct health_watcher;

/* Embedded in who serves it. */
struct health_service {
	uv_loop_t *loop;
	bool (*serving)(void *arg);
	void *arg;
	struct health_watcher *watchers;
	struct ticker ticker;
};

void health_service_init(struct health_service *health, uv_loop_t *loop, bool (*serving)(void *arg),
    void *arg);
void health_service_check(struct health_service *health, struct grpc_call *call,
    const uint8_t *request, size_t bytes);
/* `serving` is asked every TR_HEALTH_WATCH_INTERVAL_MS while somebody watches. */
void health_service_watch(struct health_service *health, struct grpc_call *call,
    const uint8_t *request, size_t bytes);
/* All calls must be over. */
void health_service_finish(struct health_service *health);

#endif
