/* Threads that the code under test starts with pthread_create, one at a time beside the fuzzer's (one_thread.h): each runs until it waits (poll), and goes on
 * when the fuzzer passes it the baton again. So what happens in which order is the input's to decide, and time is one_thread.h's. Static.
 *
 *	baton.on = true;    // from here on; threads of before are real ones
 *	baton_turn();       // each has a turn
 */
#ifndef TR_TESTS_FUZZ_BATON_H
#define TR_TESTS_FUZZ_BATON_H

#include <dlfcn.h>
#include <pthread.h>

#include "tests/fuzz/one_thread.h"

#define BATON_THREADS_MAX 16
#define BATON_FUZZER      BATON_THREADS_MAX /* who holds it between turns */

struct baton_thread {
	bool used, over;
	pthread_t thread;
	void *(*run)(void *arg);
	void *arg;
};

static struct {
	bool on;
	pthread_mutex_t lock;
	pthread_cond_t passed;
	unsigned holder;
	struct baton_thread threads[BATON_THREADS_MAX];
} baton = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.passed = PTHREAD_COND_INITIALIZER,
	.holder = BATON_FUZZER };
static __thread unsigned baton_me = BATON_FUZZER;

/* Clang's sanitizer is linked in, and gcc's is a library. */
int __interceptor_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    __attribute__((weak));
int __interceptor_pthread_join(pthread_t, void **) __attribute__((weak));

static void baton_pass(unsigned to)
{
	baton.holder = to;
	(void)pthread_cond_broadcast(&baton.passed);
}

static void baton_await(unsigned me)
{
	while (baton.holder != me)
		(void)pthread_cond_wait(&baton.passed, &baton.lock);
}

static void *baton_run(void *arg)
{
	struct baton_thread *is = arg;
	baton_me = (unsigned)(is - baton.threads);
	(void)pthread_mutex_lock(&baton.lock);
	baton_await(baton_me);
	(void)pthread_mutex_unlock(&baton.lock);
	void *result = is->run(is->arg);
	(void)pthread_mutex_lock(&baton.lock);
	is->over = true;
	baton_pass(BATON_FUZZER);
	(void)pthread_mutex_unlock(&baton.lock);
	return result;
}

static void baton_give(unsigned to)
{
	(void)pthread_mutex_lock(&baton.lock);
	if (baton.threads[to].used && !baton.threads[to].over) {
		baton_pass(to);
		baton_await(BATON_FUZZER);
	}
	(void)pthread_mutex_unlock(&baton.lock);
}

static void baton_turn(void)
{
	for (unsigned i = 0; i < BATON_THREADS_MAX; i++)
		baton_give(i);
}

/* ---- what the code under test calls; and libFuzzer, whose thread the sanitizer has to know */

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
    const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
	    void *) = __interceptor_pthread_create;
	struct baton_thread *is = baton.threads;
	if (real == NULL)
		*(void **)&real = one_real("pthread_create");
	if (!baton.on)
		return real(thread, attributes, run, arg);
	while (is->used)
		if (++is == baton.threads + BATON_THREADS_MAX)
			live_die("more threads than were thought of");
	*is = (struct baton_thread){ .used = true, .run = run, .arg = arg };
	int rc = real(&is->thread, attributes, baton_run, is);
	*thread = is->thread;
	is->used = rc == 0;
	return rc;
}

/* Time passes until it is over. */
__attribute__((visibility("default"))) int pthread_join(pthread_t thread, void **result)
{
	int (*real)(pthread_t, void **) = __interceptor_pthread_join;
	if (real == NULL)
		*(void **)&real = one_real("pthread_join");
	for (unsigned i = 0; i < BATON_THREADS_MAX; i++) {
		struct baton_thread *is = &baton.threads[i];
		if (!is->used || !pthread_equal(is->thread, thread))
			continue;
		for (; !is->over; one.now_ns += ONE_TURN_NS)
			baton_give(i);
		int rc = real(thread, result);
		is->used = false;
		return rc;
	}
	return real(thread, result);
}

/* poll of one of them, for one_thread.h. */
static int baton_poll(struct pollfd *fds, nfds_t count, uint64_t until_ns)
{
	struct timespec now = { 0 };
	int ready;
	while ((ready = (int)syscall(SYS_ppoll, fds, count, &now, NULL, 0)) == 0 &&
	    one.now_ns < until_ns) {
		(void)pthread_mutex_lock(&baton.lock);
		baton_pass(BATON_FUZZER);
		baton_await(baton_me);
		(void)pthread_mutex_unlock(&baton.lock);
	}
	return ready;
}

static void baton_start(void)
{
	one.others_poll = baton_poll;
	baton.on = true;
}

#endif
