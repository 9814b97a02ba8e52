#include "daemon/worker/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/float_mode.h"

/* A layer's parts take about a millisecond and follow each other closely: look a few microseconds
 * before sleeping. */
#define POOL_SPINS 2000

struct pool_thread {
	struct pool *pool;
	pthread_t thread;
	unsigned index;
};

struct pool {
	unsigned threads, parts, started;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	atomic_uint generation, running;
	bool stop; /* under lock; read after a new generation was seen */
	pool_fn *fn;
	void *arg;
	unsigned mode; /* float_mode.h */
	struct pool_thread *members;
};

static void wait_for_work(struct pool *pool, unsigned seen)
{
	for (int i = 0; i < POOL_SPINS; i++)
		if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen)
			return;
	(void)pthread_mutex_lock(&pool->lock);
	while (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen)
		(void)pthread_cond_wait(&pool->work, &pool->lock);
	(void)pthread_mutex_unlock(&pool->lock);
}

/* A thread's parts. */
static void work(const struct pool *pool, unsigned thread, unsigned mode, pool_fn *fn, void *arg)
{
	unsigned before = float_mode_set(mode);

	for (unsigned part = thread; part < pool->parts; part += pool->threads)
		fn(arg, part, pool->parts);
	(void)float_mode_set(before);
}

static void *member_main(void *arg)
{
	struct pool_thread *self = arg;
	struct pool *pool = self->pool;
	for (unsigned seen = 0;; seen++) {
		wait_for_work(pool, seen);
		if (pool->stop)
			return NULL;
		work(pool, self->index, pool->mode, pool->fn, pool->arg);
		if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1) {
			(void)pthread_mutex_lock(&pool->lock);
			(void)pthread_cond_signal(&pool->done);
			(void)pthread_mutex_unlock(&pool->lock);
		}
	}
}

static void wake_all(struct pool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
	(void)pthread_cond_broadcast(&pool->work);
	(void)pthread_mutex_unlock(&pool->lock);
}

static void run(struct pool *pool, pool_fn *fn, void *arg, unsigned mode)
{
	if (pool->threads == 1) { /* writes nothing: any thread may run it */
		work(pool, 0, mode, fn, arg);
		return;
	}
	pool->fn = fn;
	pool->arg = arg;
	pool->mode = mode;
	atomic_store_explicit(&pool->running, pool->threads - 1, memory_order_relaxed);
	wake_all(pool);
	work(pool, 0, mode, fn, arg);
	for (int i = 0; i < POOL_SPINS; i++)
		if (atomic_load_explicit(&pool->running, memory_order_acquire) == 0)
			return;
	(void)pthread_mutex_lock(&pool->lock);
	while (atomic_load_explicit(&pool->running, memory_order_acquire) != 0)
		(void)pthread_cond_wait(&pool->done, &pool->lock);
	(void)pthread_mutex_unlock(&pool->lock);
}

void pool_run(struct pool *pool, pool_fn *fn, void *arg)
{
	run(pool, fn, arg, FLOAT_EXACT);
}

void pool_run_flushing(struct pool *pool, pool_fn *fn, void *arg)
{
	run(pool, fn, arg, FLOAT_FLUSH);
}

tr_status pool_create(unsigned threads, struct pool **out, struct tr_error *error)
{
	return pool_create_parts(threads, threads, out, error);
}

tr_status pool_create_parts(unsigned most, unsigned parts, struct pool **out, struct tr_error *error)
{
	unsigned threads = most < parts ? most : parts;
	struct pool *pool = calloc(1, sizeof(*pool));
	if (pool != NULL)
		pool->members = calloc(threads, sizeof(*pool->members));
	if (pool == NULL || pool->members == NULL) {
		free(pool);
		return tr_error_set(error, TR_ENOMEM, "no memory for a pool of %u threads", threads);
	}
	pool->threads = threads;
	pool->parts = parts;
	(void)pthread_mutex_init(&pool->lock, NULL);
	(void)pthread_cond_init(&pool->work, NULL);
	(void)pthread_cond_init(&pool->done, NULL);
	for (unsigned i = 1; i < threads; i++) {
		struct pool_thread *member = &pool->members[i];
		*member = (struct pool_thread){ .pool = pool, .index = i };
		int failed = pthread_create(&member->thread, NULL, member_main, member);
		if (failed != 0) {
			pool_destroy(pool);
			return tr_error_set(error, TR_ELIMIT,
			    "cannot start compute thread %u of %u: %s", i, threads,
			    strerror(failed));
		}
		pool->started++;
	}
	*out = pool;
	return TR_OK;
}

void pool_destroy(struct pool *pool)
{
	if (pool == NULL)
		return;
	pool->stop = true;
	wake_all(pool);
	for (unsigned i = 1; i <= pool->started; i++)
		(void)pthread_join(pool->members[i].thread, NULL);
	(void)pthread_mutex_destroy(&pool->lock);
	(void)pthread_cond_destroy(&pool->work);
	(void)pthread_cond_destroy(&pool->done);
	free(pool->members);
	free(pool);
}

unsigned pool_threads(const struct pool *pool)
{
	return pool->parts;
}
