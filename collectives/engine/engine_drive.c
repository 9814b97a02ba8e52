/* The engine's turns, and who makes them. Usually its own thread: a turn of the loop, then sleep in epoll. But a caller of the
 * same process that waits for an answer may make turns itself: it takes its own submissions, steps the core, reads the rings of
 * shared memory, for as long as something comes; that saves two changes of threads an op, which cost more than a small op.
 * `turn` is held by whoever works, and by nobody while the engine's thread sleeps. When the caller goes, the rings ring the
 * doorbell again, and the engine's thread goes on.
 */
#include "collectives/engine/engine_internal.h"

#include <poll.h>
#include <sched.h>

#include "collectives/transport/watch.h"

/* So long the caller looks without anything coming before it sleeps. */
#define DRIVE_IDLE_NS 50000u

static bool rings_quiet(const struct engine *engine)
{
	return engine->shm == NULL || shm_hub_sleep(engine->shm);
}

void engine_run(void *arg)
{
	struct engine *engine = arg;
	bool alive = true;
	while (alive) {
		pthread_mutex_lock(&engine->turn);
		do {
			alive = uv_run(&engine->loop, UV_RUN_NOWAIT) != 0;
		} while (alive && (watch_started() || !rings_quiet(engine)));
		int timeout = uv_backend_timeout(&engine->loop);
		engine->wakes_ms = timeout < 0 ? UINT64_MAX
		                               : uv_now(&engine->loop) + (uint64_t)timeout;
		pthread_mutex_unlock(&engine->turn);
		struct pollfd wait = { .fd = uv_backend_fd(&engine->loop), .events = POLLIN };
		if (alive && timeout != 0)
			(void)poll(&wait, 1, timeout);
	}
}

/* One look at everything that a caller waits for. */
static bool look(struct engine *engine)
{
	bool moved = false;
	for (struct member *member = engine->members; member != NULL; member = member->next) {
		moved |= observe_serve(member);
		moved |= member_calls_serve(member);
		moved |= held_offer(member);
	}
	return (engine->shm != NULL && shm_hub_look(engine->shm)) || moved;
}

/* What came up meanwhile and is the loop's to do. */
static void hand_back(struct engine *engine)
{
	int timeout = uv_backend_timeout(&engine->loop);
	bool earlier = timeout >= 0 && uv_now(&engine->loop) + (uint64_t)timeout < engine->wakes_ms;
	if (!rings_quiet(engine) || watch_started() || earlier)
		(void)uv_async_send(&engine->wake);
}

bool engine_drive(struct engine *engine, bool (*done)(void *arg), void *arg)
{
	if (done == NULL && pthread_mutex_trylock(&engine->turn) != 0)
		return false;
	if (done != NULL)
		pthread_mutex_lock(&engine->turn);
	uv_update_time(&engine->loop);
	engine->driven = true;
	bool near = engine->shm != NULL && shm_hub_awake(engine->shm);
	uint64_t idle_ns = uv_hrtime();
	while (!engine->stopping) {
		bool moved = look(engine);
		if (done == NULL || done(arg))
			break;
		uint64_t now_ns = uv_hrtime();
		if (moved)
			idle_ns = now_ns;
		else if (!near || now_ns - idle_ns > DRIVE_IDLE_NS)
			break;
		else
			(void)sched_yield();
	}
	engine->driven = false;
	hand_back(engine);
	pthread_mutex_unlock(&engine->turn);
	return true;
}
