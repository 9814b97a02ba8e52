/* The engine's turns, and who makes them. Usually its own thread: a turn of the loop, then sleep in epoll. But a caller of the
 * same process that waits for an answer makes turns itself: it takes its own submissions, steps the core, reads the rings of
 * shared memory and, if peers are on TCP, the sockets; it sleeps in epoll when nothing comes for a while. That saves two changes of
 * threads an op, which cost more than a small op. `turn` is held by whoever works, and by nobody while all sleep.
 *
 * Two who sleep in the same epoll would both be woken by each frame. So while callers wait, and for PARK_NS after the last of them
 * has gone, the engine's thread is parked: it looks at a clock, not at the loop. Whoever leaves while it is parked leaves rings and
 * sockets as they are: a caller that comes back at once with its next op finds them so, and no peer has rung a doorbell in vain.
 * If none comes back, the thread takes over. What other threads want of the engine unparks it at once.
 */
#include "collectives/engine/engine_internal.h"

#include <poll.h>
#include <sched.h>
#include <string.h>

#include "collectives/transport/watch.h"
#include "common/float_mode.h"

/* So long a caller looks without anything coming before it sleeps. */
#define SPIN_NS 50000u
/* A caller that is kept busy by rings alone looks at sockets and timers now and then. */
#define LOOP_EVERY_NS 500000u
/* A clock costs as much as a look: so many looks that find something go by one. */
#define LOOKS_PER_CLOCK 16u
/* Of calls that only say something, one in so many looks at the rings. */
#define WORDS_PER_LOOK 16u
/* So often the parked thread looks whether callers are still at it; not during a call that it saw before: whoever ends that wakes it. A
 * look takes the core from a caller that computes, 20 us with what its caches lose. */
#define PARK_NS 500000u

static bool rings_quiet(const struct engine *engine)
{
	return engine->shm == NULL || shm_hub_sleep(engine->shm);
}

static uint64_t wakes_ms(const struct engine *engine, int timeout)
{
	return timeout < 0 ? UINT64_MAX : uv_now(&engine->loop) + (uint64_t)timeout;
}

/* ---- the thread ---- */

void engine_unpark(struct engine *engine)
{
	engine->unpark = true;
	uv_cond_broadcast(&engine->unparked);
}

static void park_while_driven(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	atomic_store(&engine->parked, true);
	while (!engine->unpark && (engine->callers > 0 || engine->drives != engine->drives_seen)) {
		engine->parked_for_long = engine->drives == engine->drives_seen;
		engine->drives_seen = engine->drives;
		if (engine->parked_for_long)
			uv_cond_wait(&engine->unparked, &engine->lock);
		else
			(void)uv_cond_timedwait(&engine->unparked, &engine->lock, PARK_NS);
	}
	atomic_store(&engine->parked, false);
	engine->unpark = engine->parked_for_long = false;
	pthread_mutex_unlock(&engine->lock);
}

void engine_run(void *arg)
{
	struct engine *engine = arg;
	bool alive = true;
	(void)float_mode_set(FLOAT_EXACT); /* it began with its creator's */
	while (alive) {
		park_while_driven(engine);
		pthread_mutex_lock(&engine->turn);
		do {
			alive = uv_run(&engine->loop, UV_RUN_NOWAIT) != 0;
		} while (alive && (watch_started() || !rings_quiet(engine)));
		engine_publish(engine);
		int timeout = uv_backend_timeout(&engine->loop);
		engine->wakes_ms = wakes_ms(engine, timeout);
		/* It parks as long as they sleep: one of them has to know of a timer that was started here. */
		if (engine->sleepers > 0 && engine->wakes_ms < engine->sleeper_wakes_ms)
			(void)uv_async_send(&engine->wake);
		pthread_mutex_unlock(&engine->turn);
		struct pollfd wait = { .fd = uv_backend_fd(&engine->loop), .events = POLLIN };
		if (alive && timeout != 0)
			(void)poll(&wait, 1, timeout);
	}
}

/* ---- callers ---- */

static void caller_comes(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->callers++;
	engine->drives++;
	pthread_mutex_unlock(&engine->lock);
}

/* Nothing of the engine is touched after it: it may be destroyed. */
static void caller_goes(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->drives++;
	if (--engine->callers == 0 && (engine->parked_for_long || engine->unpark))
		uv_cond_broadcast(&engine->unparked);
	pthread_mutex_unlock(&engine->lock);
}

void engine_callers_left(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->unpark = true;
	while (engine->callers > 0)
		uv_cond_wait(&engine->unparked, &engine->lock);
	pthread_mutex_unlock(&engine->lock);
}

static bool look_at_calls(struct engine *engine)
{
	bool moved = false;
	for (struct member *member = engine->members; member != NULL; member = member->next) {
		moved |= observe_serve(member);
		moved |= member_calls_serve(member);
		moved |= held_offer(member);
	}
	return moved;
}

/* One look at everything that a caller waits for, but for what only the loop sees. */
static bool look(struct engine *engine)
{
	bool moved = look_at_calls(engine);
	return (engine->shm != NULL && shm_hub_look(engine->shm)) || moved;
}

static bool loop_turn(struct engine *engine)
{
	uint64_t steps = engine->steps;
	(void)uv_run(&engine->loop, UV_RUN_NOWAIT);
	engine_publish(engine);
	return engine->steps != steps;
}

static void attend(struct engine *engine)
{
	engine->driven = true;
	if (engine->shm != NULL)
		shm_hub_awake(engine->shm);
}

/* What came up meanwhile and is the loop's to do. */
static void hand_back(struct engine *engine)
{
	if (uv_backend_timeout(&engine->loop) == 0) /* what was made is to be written */
		(void)loop_turn(engine);
	int timeout = uv_backend_timeout(&engine->loop);
	bool earlier = engine->sleepers > 0 || wakes_ms(engine, timeout) < engine->wakes_ms;
	engine->driven = false;
	bool looked_after = engine->sleepers == 0 && atomic_load(&engine->parked);
	if (engine->stopping || (looked_after && !engine->stop_left))
		return;
	engine_publish(engine);
	if (engine->stop_left || !rings_quiet(engine) || watch_started() || earlier)
		(void)uv_async_send(&engine->wake);
}

static bool over(const struct engine *engine)
{
	return engine->stopping || engine->stop_left;
}

/* true: it is done; false: nothing came for a while, nor is anything due in the loop. */
static bool spin(struct engine *engine, bool (*done)(void *arg), void *arg)
{
	uint64_t idle_ns = 0; /* since then; 0: something came just now */
	bool missed = false;  /* the look before found nothing */
	attend(engine);
	while (!over(engine)) {
		bool moved = look(engine), clock = ++engine->looks % LOOKS_PER_CLOCK == 0;
		bool is_done = done(arg);
		if (is_done && !clock)
			return true;
		if (moved && engine->far_lanes == 0 && !clock) {
			idle_ns = 0;
			missed = false;
			continue;
		}
		/* Whoever has the core next may be the one that we wait for: then no clock was needed. */
		if (!moved && !missed && engine->far_lanes == 0 && !clock) {
			missed = true;
			(void)sched_yield();
			continue;
		}
		uint64_t now_ns = uv_hrtime();
		bool long_idle = idle_ns != 0 && now_ns - idle_ns > SPIN_NS;
		if (engine->far_lanes > 0 || long_idle ||
		    now_ns - engine->looped_ns > LOOP_EVERY_NS) {
			engine->looped_ns = now_ns;
			moved |= loop_turn(engine);
			is_done = is_done || done(arg);
		}
		if (is_done)
			return true;
		if (!moved && long_idle)
			return false;
		if (moved)
			idle_ns = 0;
		else if (idle_ns == 0)
			idle_ns = now_ns;
		if (!moved)
			(void)sched_yield();
	}
	return false;
}

/* true: one of `also` has something to say. */
static bool sleep_in_loop(struct engine *engine, struct pollfd *also)
{
	struct pollfd waits[ENGINE_DRIVE_ALSO + 1];
	if (over(engine) || watch_started() || !rings_quiet(engine))
		return false;
	engine_publish(engine);
	int timeout = uv_backend_timeout(&engine->loop);
	memcpy(waits, also, ENGINE_DRIVE_ALSO * sizeof(*also));
	waits[ENGINE_DRIVE_ALSO] = (struct pollfd){ .fd = uv_backend_fd(&engine->loop),
		.events = POLLIN };
	engine->driven = false;
	engine->sleepers++;
	engine->sleeper_wakes_ms = wakes_ms(engine, timeout);
	pthread_mutex_unlock(&engine->turn);
	int ready = poll(waits, ENGINE_DRIVE_ALSO + 1, timeout);
	pthread_mutex_lock(&engine->turn);
	engine->sleepers--;
	bool said = false;
	for (unsigned i = 0; i < ENGINE_DRIVE_ALSO; i++) {
		also[i].revents = ready > 0 ? waits[i].revents : 0;
		said = said || also[i].revents != 0;
	}
	return said;
}

/* The loop's time is of its last turn, long ago if the thread has slept since; while it is parked callers make turns all the time. */
static void catch_up_time(struct engine *engine)
{
	if (!atomic_load(&engine->parked))
		uv_update_time(&engine->loop);
}

static bool drive_once(struct engine *engine)
{
	if (pthread_mutex_trylock(&engine->turn) != 0)
		return false;
	catch_up_time(engine);
	attend(engine);
	/* It has only something to say, and usually comes back at once to wait: then it looks. */
	if (++engine->words % WORDS_PER_LOOK == 0)
		(void)look(engine);
	else
		(void)look_at_calls(engine);
	hand_back(engine);
	pthread_mutex_unlock(&engine->turn);
	return true;
}

static bool drive_until(struct engine *engine, bool (*done)(void *arg), void *arg,
    struct pollfd also[ENGINE_DRIVE_ALSO])
{
	caller_comes(engine);
	pthread_mutex_lock(&engine->turn);
	catch_up_time(engine);
	while (!over(engine) && !spin(engine, done, arg) && !sleep_in_loop(engine, also))
		continue;
	hand_back(engine);
	pthread_mutex_unlock(&engine->turn);
	caller_goes(engine);
	return true;
}

bool engine_drive(struct engine *engine, bool (*done)(void *arg), void *arg,
    struct pollfd also[ENGINE_DRIVE_ALSO])
{
	unsigned mode = float_mode_set(FLOAT_EXACT); /* whatever the caller's program has */
	bool driven = done == NULL ? drive_once(engine) : drive_until(engine, done, arg, also);

	(void)float_mode_set(mode);
	return driven;
}
