#include "daemon/worker/patience.h"

#include <time.h>

static uint64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void steps_take(struct steps *steps)
{
	atomic_store(&steps->last_ms, now_ms());
}

bool steps_within(struct steps *steps, unsigned bound_ms)
{
	uint64_t last = atomic_load(&steps->last_ms), now = now_ms();
	return now < last || now - last < bound_ms;
}

static void take(void *arg)
{
	steps_take(arg);
}

struct progress steps_progress(struct steps *steps)
{
	return (struct progress){ take, steps, NULL };
}

void patience_condition(pthread_cond_t *changed)
{
	pthread_condattr_t monotonic;
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* the wall clock may be set */
	(void)pthread_cond_init(changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

void patience_wait(pthread_cond_t *changed, pthread_mutex_t *lock)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += PATIENCE_TELL_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	(void)pthread_cond_timedwait(changed, lock, &until);
}

static void *tell(void *arg)
{
	struct patience *p = arg;
	(void)pthread_mutex_lock(&p->lock);
	while (!p->over) {
		patience_wait(&p->ended, &p->lock);
		if (!p->over && steps_within(&p->steps, p->bound_ms))
			progress_tell(&p->to);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

void patience_begin(struct patience *p, struct progress to, unsigned bound_ms)
{
	*p = (struct patience){ .to = to, .bound_ms = bound_ms };
	steps_take(&p->steps);
	(void)pthread_mutex_init(&p->lock, NULL);
	patience_condition(&p->ended);
	p->started = pthread_create(&p->thread, NULL, tell, p) == 0;
}

static void step(void *arg)
{
	struct patience *p = arg;
	steps_take(&p->steps);
	progress_tell(&p->to);
}

struct progress patience_progress(struct patience *p)
{
	return (struct progress){ step, p, NULL };
}

void patience_end(struct patience *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->over = true;
	(void)pthread_cond_broadcast(&p->ended);
	(void)pthread_mutex_unlock(&p->lock);
	if (p->started)
		(void)pthread_join(p->thread, NULL);
	(void)pthread_cond_destroy(&p->ended);
	(void)pthread_mutex_destroy(&p->lock);
}
