/* All threads of a process in the fuzzer's: for what starts threads with loops (uv_thread_create) and blocks meanwhile, as coll.h does. Loops are turned
 * whenever somebody waits (poll, uv_cond_timedwait, uv_thread_join); before each turn the input speaks; after it time passes, by a clock of our own. So
 * an input decides what happens in which order, and seconds of patience take none.
 *
 *	one_begin(speak, look);        // speak's false: the input is over, time may pass faster
 *	st = tr_group_join(...);       // and so on
 *	one_end();                     // dies if a loop is left
 *
 * What is dialled is looked at: only one_may_dial's addresses are reached, the loopback refuses all others. Names are not resolved.
 * Static: a fuzzer includes this once.
 */
#ifndef TR_TESTS_FUZZ_ONE_THREAD_H
#define TR_TESTS_FUZZ_ONE_THREAD_H

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engine/engine_internal.h"
#include "tests/fuzz/live_worker.h"

#define ONE_LOOPS_MAX 8
#define ONE_PORTS_MAX 4
#define ONE_LOOK_NS   UINT64_C(5000) /* a look at the clock takes so long */
#define ONE_TURN_NS   UINT64_C(1000000)
#define ONE_IDLE_NS   UINT64_C(20000000) /* a turn in which nobody speaks any more */
#define ONE_INPUT_NS  (UINT64_C(600) * 1000000000)

struct one_loop {
	uv_loop_t *loop;
	struct engine *engine; /* whose loop it is; NULL: none's */
	uv_thread_t thread;
	bool turned; /* by us; else it is of a real thread, or of nobody */
};

/* A name that is asked for. */
struct one_resolve {
	struct one_resolve *next;
	uv_loop_t *loop;
	uv_getaddrinfo_t *request;
	uv_getaddrinfo_cb told;
	char host[256], service[32];
};

static struct {
	struct one_loop loops[ONE_LOOPS_MAX];
	unsigned count, kept; /* kept: those that were here before the input */
	unsigned long threads;
	struct one_resolve *resolves, **resolves_tail;
	bool (*speak)(void);
	void (*look)(void); /* after each turn of a loop */
	int (*others_poll)(struct pollfd *fds, nfds_t count,
	    uint64_t until_ns); /* threads of ours; NULL: they are real */
	bool turning;
	/* As connect(), in its place; NULL: the kernel's. */
	int (*connects)(int fd, const struct sockaddr *to);
	unsigned still; /* turns in which engines stand still: they have much to do */
	uint64_t now_ns, until_ns;
	uint16_t ports[ONE_PORTS_MAX];           /* of the loopback that are ours */
	unsigned long dialled, refused, outside; /* outside: neither loopback nor a UNIX socket */
} one = { .now_ns = UINT64_C(1000000000), .resolves_tail = &one.resolves };

/* Threads that are real (a lifeline's, those of pthread_create) wait as ever, and reach nobody. */
static bool one_is_ours(void)
{
	return syscall(SYS_gettid) == getpid();
}

static void *one_real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* ---- time: libuv's too, so it has to be seen from there */

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
		return (int)syscall(SYS_clock_gettime, clock, now);
	one.now_ns += ONE_LOOK_NS;
	*now = (struct timespec){ (time_t)(one.now_ns / 1000000000),
		(long)(one.now_ns % 1000000000) };
	return 0;
}

/* ---- turns */

static void one_answer(void)
{
	struct one_resolve *all = one.resolves;
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	one.resolves = NULL;
	one.resolves_tail = &one.resolves;
	while (all != NULL) {
		struct one_resolve *this = all;
		struct addrinfo *found = NULL;
		bool here = strcmp(this->host, "localhost") == 0;
		bool known = getaddrinfo(here ? "127.0.0.1" : this->host, this->service, &hints,
		                 &found) == 0;
		all = this->next;
		this->told(this->request, known ? 0 : UV_EAI_NONAME, found);
		free(this);
	}
}

static void one_turn_loop(const struct one_loop *is)
{
	struct engine *engine = is->engine;
	if (!is->turned)
		return;
	if (engine == NULL) {
		(void)uv_run(is->loop, UV_RUN_NOWAIT);
		return;
	}
	/* As its thread does (engine_run). */
	if (one.still > 0 || pthread_mutex_trylock(&engine->turn) != 0)
		return;
	(void)uv_run(is->loop, UV_RUN_NOWAIT);
	engine_publish(engine);
	pthread_mutex_unlock(&engine->turn);
}

/* false: nobody speaks any more. */
static bool one_turn(void)
{
	one.turning = true;
	bool more = one.speak != NULL && one.speak();
	one_answer();
	for (unsigned i = 0; i < one.count; i++) {
		struct one_loop is = one.loops[i];
		one_turn_loop(&is);
		if (one.look != NULL)
			one.look();
	}
	one.turning = false;
	one.still -= one.still > 0;
	return more;
}

/* A turn of somebody who waits, for `left_ns` at most. */
static void one_wait(uint64_t left_ns)
{
	uint64_t step_ns = one_turn() ? ONE_TURN_NS : ONE_IDLE_NS;
	one.now_ns += step_ns < left_ns ? step_ns : left_ns;
	if (one.until_ns != 0 && one.now_ns > one.until_ns)
		live_die("somebody waits without an end");
}

/* ---- loops and threads */

int uv_loop_init(uv_loop_t *loop)
{
	int (*real)(uv_loop_t *);
	*(void **)&real = one_real("uv_loop_init");
	int rc = real(loop);
	if (rc != 0)
		return rc;
	if (one.count == ONE_LOOPS_MAX)
		live_die("more loops than were thought of");
	one.loops[one.count++] = (struct one_loop){ .loop = loop };
	return 0;
}

int uv_loop_close(uv_loop_t *loop)
{
	int (*real)(uv_loop_t *);
	*(void **)&real = one_real("uv_loop_close");
	int rc = real(loop);
	for (unsigned i = 0; rc == 0 && i < one.count; i++)
		if (one.loops[i].loop == loop) {
			one.loops[i] = one.loops[--one.count];
			break;
		}
	return rc;
}

/* A loop that no thread is started for. */
static inline void one_turns(const uv_loop_t *loop)
{
	for (unsigned i = 0; i < one.count; i++)
		if (one.loops[i].loop == loop)
			one.loops[i].turned = true;
}

/* The thread's loop is in the struct that it is started with. */
int uv_thread_create(uv_thread_t *thread, uv_thread_cb entry, void *arg)
{
	struct one_loop *nearest = NULL;
	for (unsigned i = 0; i < one.count; i++) {
		struct one_loop *is = &one.loops[i];
		if ((uintptr_t)is->loop >= (uintptr_t)arg &&
		    (nearest == NULL || is->loop < nearest->loop))
			nearest = is;
	}
	if (nearest == NULL)
		live_die("a thread without a loop");
	*thread = nearest->thread = (uv_thread_t)++one.threads;
	nearest->engine = entry == engine_run ? arg : NULL;
	nearest->turned = true;
	return 0;
}

static bool one_asks(const uv_loop_t *loop)
{
	for (const struct one_resolve *is = one.resolves; is != NULL; is = is->next)
		if (is->loop == loop)
			return true;
	return false;
}

int uv_thread_join(uv_thread_t *thread)
{
	for (unsigned i = 0; i < one.count; i++) {
		uv_loop_t *loop = one.loops[i].loop;
		if (one.loops[i].thread != *thread)
			continue;
		while (uv_loop_alive(loop) || one_asks(loop)) {
			if (!one.turning) {
				one_wait(ONE_IDLE_NS);
				continue;
			}
			/* From within another's turn: that one does not go on meanwhile. */
			(void)uv_run(loop, UV_RUN_NOWAIT);
			one.now_ns += ONE_IDLE_NS;
		}
		return 0;
	}
	live_die("an unknown thread");
	return 0;
}

/* ---- waits */

int uv_cond_timedwait(uv_cond_t *changed, uv_mutex_t *lock, uint64_t wait_ns)
{
	uint64_t until_ns = one.now_ns + wait_ns;
	(void)changed;
	(void)pthread_mutex_unlock(lock);
	one_wait(wait_ns);
	(void)pthread_mutex_lock(lock);
	return one.now_ns >= until_ns ? UV_ETIMEDOUT : 0;
}

int poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
	struct timespec now = { 0 };
	uint64_t until_ns = wait_ms < 0 ? UINT64_MAX : one.now_ns + (uint64_t)wait_ms * 1000000;
	if (!one_is_ours() && one.others_poll != NULL)
		return one.others_poll(fds, count, until_ns);
	if (!one_is_ours()) {
		struct timespec real = { wait_ms / 1000, wait_ms % 1000 * 1000000L };
		return (int)syscall(SYS_ppoll, fds, count, wait_ms < 0 ? NULL : &real, NULL, 0);
	}
	for (;;) {
		int ready = (int)syscall(SYS_ppoll, fds, count, &now, NULL, 0);
		if (ready != 0 || one.turning || one.now_ns >= until_ns)
			return ready;
		one_wait(until_ns - one.now_ns);
	}
}

/* ---- what is dialled */

int uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb told,
    const char *host, const char *service, const struct addrinfo *hints)
{
	struct one_resolve *made = calloc(1, sizeof(*made));
	(void)hints;
	if (made == NULL)
		return UV_ENOMEM;
	made->loop = loop;
	made->request = request;
	made->told = told;
	(void)snprintf(made->host, sizeof(made->host), "%s", host);
	(void)snprintf(made->service, sizeof(made->service), "%s", service);
	*one.resolves_tail = made;
	one.resolves_tail = &made->next;
	return 0;
}

static bool one_may_dial(const struct sockaddr *to)
{
	if (to->sa_family == AF_UNIX) /* those without a file are ours, or nobody's */
		return ((const struct sockaddr_un *)(const void *)to)->sun_path[0] == '\0';
	const struct sockaddr_in *at = (const struct sockaddr_in *)(const void *)to;
	bool here = to->sa_family == AF_INET && ntohl(at->sin_addr.s_addr) == INADDR_LOOPBACK;
	one.outside += !here;
	for (unsigned i = 0; here && i < ONE_PORTS_MAX; i++)
		if (at->sin_port == htons(one.ports[i]))
			return true;
	return false;
}

int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes) /* as glibc declares it */
{
	one.dialled++;
	if (one_is_ours() && one.connects != NULL)
		return one.connects(fd, to.__sockaddr__);
	if (one_is_ours() && one_may_dial(to.__sockaddr__))
		return (int)syscall(SYS_connect, fd, to.__sockaddr__, bytes);
	one.refused++;
	errno = ECONNREFUSED;
	return -1;
}

/* Without it a lifeline is not dialled (lifeline.h): that thread alone would be a real one, with times of its own. */
int close_range(unsigned first, unsigned last, int flags)
{
	(void)first;
	(void)last;
	(void)flags;
	errno = ENOSYS;
	return -1;
}

/* ---- one input */

static void one_begin(bool (*speak)(void), void (*look)(void))
{
	one.speak = speak;
	one.look = look;
	one.kept = one.count;
	one.until_ns = one.now_ns + ONE_INPUT_NS;
	one.dialled = one.refused = one.outside = 0;
}

static void one_end(void)
{
	one.until_ns = 0;
	one.speak = NULL;
	one.look = NULL;
	if (one.count != one.kept)
		live_die("a loop is left");
}

#endif
