/* For engine_fixture.h: hosts with their engines and ports, their peers' callers, and what a double of memberd hears of them.
 *
 * All of it is static.
 */
#ifndef TR_TESTS_ENGINE_FIXTURE_HOSTS_H
#define TR_TESTS_ENGINE_FIXTURE_HOSTS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "collectives/engine/channel.h"
#include "collectives/engine/coll_group.h"
#include "collectives/engine/engine.h"
#include "collectives/transport/listener.h"

#define FX_HOSTS_MAX   8
#define FX_GROUP       1
#define FX_DEADLINE_S  60
#define FX_KINDS_MAX   32
#define FX_PEER(index) ((uint64_t)(10 + (index)))
#define FX_TOKEN_LOW   UINT64_C(0x6a09e667f3bcc908) /* of every group */
#define FX_TOKEN_HIGH  UINT64_C(0xbb67ae8584caa73b)

struct fx;

struct fx_host {
	struct fx *fx;
	unsigned index;
	struct engine *engine;
	uv_loop_t loop;
	uv_thread_t thread;
	uv_async_t stop;
	struct listener *listener;
	char address[TR_ADDRESS_MAX];
	const char *local_address; /* that views say; NULL: the engine's */
	tr_group *group;
	bool up, ready, gone;
	unsigned coming;           /* callers on their way into the engine */
	struct fx_host *engine_of; /* whose engine it is; NULL: its own */
	char link_lost_reason[256];
	unsigned link_lost, records, reports, events;
	bool gradual;                 /* PeerReady said so */
	uint64_t left_next;           /* 1 + PeerReady.left_round; 0: nothing was left */
	char event[256];              /* newest */
	unsigned heard[FX_KINDS_MAX]; /* messages to memberd, by kind */
	uint64_t installed;
	Traind__Peer__LastWords *words; /* once gone */
	Traind__Peer__ViewReport *report;
	tr_status failed;
	char failed_text[512];
};

struct fx {
	uint64_t group;
	struct fx *beside; /* another group, some of whose hosts share engines with ours; NULL: none */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct timespec until; /* of FX_WAIT's second under way */
	unsigned seconds_left; /* after it */
	struct fx_host hosts[FX_HOSTS_MAX];
	unsigned count;
	Traind__Peer__Policy policy;
	Traind__Peer__Algorithm algorithm;
	bool near;                       /* views say that all share a host */
	bool driving;                    /* callers work for their engines while they wait */
	const uint32_t *ring;            /* order of the first view; NULL: ascending */
	uint32_t hub;                    /* of all views */
	uint64_t view;                   /* newest number used */
	Traind__Peer__ViewInstall *last; /* newest installed */
};

/* ---- the double hears */

static void fx_hear(struct fx_host *host, const Traind__Peer__ToMember *m)
{
	switch (m->body_case) {
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_READY:
		host->ready = true;
		host->gradual = m->peer_ready->gradual;
		host->left_next = m->peer_ready->left ? m->peer_ready->left_round + 1 : 0;
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_LINK_LOST:
		host->link_lost++;
		(void)snprintf(host->link_lost_reason, sizeof(host->link_lost_reason), "%s",
		    m->link_lost->reason);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_VIEW_INSTALLED:
		host->installed = m->view_installed->view;
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS:
		host->records += (unsigned)m->round_commits->n_rounds;
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_REPORT:
		host->reports++;
		host->events += m->peer_report->event[0] != '\0';
		if (m->peer_report->event[0] != '\0')
			(void)snprintf(host->event, sizeof(host->event), "%s",
			    m->peer_report->event);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_FAILED:
		host->failed = (tr_status)m->peer_failed->status;
		(void)snprintf(host->failed_text, sizeof(host->failed_text), "%s",
		    m->peer_failed->reason);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_VIEW_REPORT: {
		size_t bytes = traind__peer__view_report__get_packed_size(m->view_report);
		uint8_t *packed = malloc(bytes + 1);
		assert_non_null(packed);
		(void)traind__peer__view_report__pack(m->view_report, packed);
		if (host->report != NULL)
			traind__peer__view_report__free_unpacked(host->report, NULL);
		host->report = traind__peer__view_report__unpack(NULL, bytes, packed);
		free(packed);
		break;
	}
	default:
		break;
	}
}

/* Several hosts can share an engine (fx_share): of whom is this? */
static struct fx_host *fx_host_of(struct fx_host *host, uint64_t group, uint64_t peer)
{
	struct fx *fx = host->fx->group == group ? host->fx : host->fx->beside;
	return fx != NULL ? &fx->hosts[peer - FX_PEER(0)] : host;
}

static struct fx_host *fx_speaker(struct fx_host *host, const Traind__Peer__ToMember *m)
{
	switch (m->body_case) {
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_READY:
		return fx_host_of(host, m->peer_ready->group, m->peer_ready->peer);
	case TRAIND__PEER__TO_MEMBER__BODY_VIEW_REPORT:
		return fx_host_of(host, m->view_report->group, m->view_report->peer);
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_REPORT:
		return fx_host_of(host, host->fx->group, m->peer_report->peer);
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_FAILED:
		return fx_host_of(host, m->peer_failed->group, m->peer_failed->peer);
	case TRAIND__PEER__TO_MEMBER__BODY_LINK_LOST:
		return fx_host_of(host, m->link_lost->group, m->link_lost->peer);
	case TRAIND__PEER__TO_MEMBER__BODY_VIEW_INSTALLED:
		return fx_host_of(host, m->view_installed->group, m->view_installed->peer);
	case TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS:
		return fx_host_of(host, m->round_commits->group, m->round_commits->peer);
	default:
		return host;
	}
}

static void fx_to_member(void *arg, const Traind__Peer__ToMember *message)
{
	struct fx_host *host = fx_speaker(arg, message);
	pthread_mutex_lock(&host->fx->lock);
	assert_true((unsigned)message->body_case < FX_KINDS_MAX);
	host->heard[message->body_case]++;
	fx_hear(host, message);
	pthread_cond_broadcast(&host->fx->changed);
	pthread_mutex_unlock(&host->fx->lock);
}

static void fx_worker_gone(void *arg, uint64_t group, uint64_t peer,
    const Traind__Peer__LastWords *words)
{
	struct fx_host *host = fx_host_of(arg, group, peer);
	size_t bytes = traind__peer__last_words__get_packed_size(words);
	uint8_t *packed = malloc(bytes + 1);
	assert_non_null(packed);
	(void)traind__peer__last_words__pack(words, packed);
	pthread_mutex_lock(&host->fx->lock);
	if (host->words != NULL)
		traind__peer__last_words__free_unpacked(host->words, NULL);
	host->words = traind__peer__last_words__unpack(NULL, bytes, packed);
	free(packed);
	host->gone = true;
	pthread_cond_broadcast(&host->fx->changed);
	pthread_mutex_unlock(&host->fx->lock);
}

static void fx_next_second(struct fx *fx)
{
	(void)clock_gettime(CLOCK_REALTIME, &fx->until);
	fx->until.tv_sec++;
}

static void fx_lock(struct fx *fx)
{
	pthread_mutex_lock(&fx->lock);
	fx->seconds_left = FX_DEADLINE_S;
	fx_next_second(fx);
}

/* By the second: while all of the process stands still (SIGSTOP) no more than one passes. */
static void fx_wait_more(struct fx *fx, const char *what)
{
	if (pthread_cond_timedwait(&fx->changed, &fx->lock, &fx->until) == 0)
		return;
	if (--fx->seconds_left == 0)
		fail_msg("waited in vain for %s", what);
	fx_next_second(fx);
}

/* Waits until `condition`, which is looked at under the lock. One waiter at a time: the test's thread. */
#define FX_WAIT(fx, condition)                        \
	do {                                          \
		fx_lock(fx);                          \
		while (!(condition))                  \
			fx_wait_more(fx, #condition); \
		pthread_mutex_unlock(&(fx)->lock);    \
	} while (0)

/* Is it so by now? Looked at under the lock: the engines' threads write what is said to memberd, also while hosts stop. */
#define FX_IS(fx, condition)                                \
	do {                                                \
		fx_lock(fx);                                \
		bool fx_is_so = (condition);                \
		pthread_mutex_unlock(&(fx)->lock);          \
		if (!fx_is_so)                              \
			fail_msg("not so: %s", #condition); \
	} while (0)

/* ---- hosts */

/* What the hosts speak on TCP; NULL: plain. */
static struct tls_context *fx_tls;
/* A test may look at what a host accepts. */
static void (*fx_accepted)(struct fx_host *host, struct stream stream, const void *early,
    size_t early_bytes);

static void fx_on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct fx_host *host = arg;
	assert_int_equal(protocol, LISTENER_FRAMES);
	if (fx_accepted != NULL)
		fx_accepted(host, stream, early, early_bytes);
	engine_accept(host->engine, stream, early, early_bytes);
}

static void fx_on_stop(uv_async_t *stop)
{
	struct fx_host *host = stop->data;
	listener_stop(host->listener);
	uv_close((uv_handle_t *)stop, NULL);
}

static void fx_run(void *arg)
{
	struct fx_host *host = arg;
	(void)uv_run(&host->loop, UV_RUN_DEFAULT);
}

static void fx_host_start(struct fx *fx, unsigned index)
{
	static const struct engine_callbacks callbacks = { .to_member = fx_to_member,
		.worker_gone = fx_worker_gone };
	struct fx_host *host = &fx->hosts[index];
	*host = (struct fx_host){ .fx = fx, .index = index, .up = true };
	assert_int_equal(engine_create(&callbacks, host, &host->engine, NULL), TR_OK);
	assert_int_equal(uv_loop_init(&host->loop), 0);
	assert_int_equal(listener_start(&host->loop, "127.0.0.1:0", false, fx_tls, fx_on_accepted,
	                     host, &host->listener, NULL),
	    TR_OK);
	(void)snprintf(host->address, sizeof(host->address), "%s", listener_address(host->listener));
	host->stop.data = host;
	assert_int_equal(uv_async_init(&host->loop, &host->stop, fx_on_stop), 0);
	assert_int_equal(uv_thread_create(&host->thread, fx_run, host), 0);
}

/* Host `index` is another peer of `with`'s engine, behind the same port. */
static inline void fx_share(struct fx *fx, unsigned index, struct fx_host *with)
{
	struct fx_host *host = &fx->hosts[index];
	assert_int_equal(index, fx->count);
	fx->count++;
	*host = (struct fx_host){ .fx = fx,
		.index = index,
		.engine = with->engine,
		.engine_of = with };
	(void)snprintf(host->address, sizeof(host->address), "%s", with->address);
}

/* Adds the host's peer behind `fd`. */
static void fx_add_worker(struct fx_host *host, int fd)
{
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	start.job_id = 3;
	start.group = host->fx->group;
	start.peer = FX_PEER(host->index);
	start.rank = host->index;
	assert_int_equal(engine_add_worker(host->engine, &start, 1, fd, NULL), TR_OK);
}

/* A caller on its way into the engine. */
struct fx_driver {
	struct fx_host *host;
	bool (*done)(void *arg);
	void *arg;
	bool inside;
};

static void fx_arrived(struct fx_driver *driver)
{
	struct fx *fx = driver->host->fx;
	pthread_mutex_lock(&fx->lock);
	driver->inside = true;
	driver->host->coming--;
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
}

static bool fx_done(void *arg)
{
	struct fx_driver *driver = arg;
	if (!driver->inside)
		fx_arrived(driver);
	return driver->done(driver->arg);
}

/* Not once the host stops: its engine goes, and only who is inside is waited for. */
static bool fx_drive(void *host_of, bool (*done)(void *arg), void *arg, struct pollfd *also)
{
	struct fx_driver driver = { .host = host_of, .done = done, .arg = arg };
	struct fx *fx = driver.host->fx;
	pthread_mutex_lock(&fx->lock);
	bool up = driver.host->up;
	driver.host->coming += up;
	pthread_mutex_unlock(&fx->lock);
	if (!up)
		return false;
	bool moved = engine_drive(driver.host->engine, done != NULL ? fx_done : NULL, &driver, also);
	if (!driver.inside)
		fx_arrived(&driver);
	return moved;
}

static void fx_attach(struct fx_host *host)
{
	struct tr_error error = { 0 };
	int ends[2];
	assert_int_equal(channel_pair(ends, NULL), TR_OK);
	fx_add_worker(host, ends[0]);
	if (coll_group_open(ends[1], &host->group, &error) != TR_OK)
		fail_msg("%s", error.text);
	if (host->fx->driving)
		channel_worker_set_drive(host->group->channel, fx_drive,
		    host->engine_of != NULL ? host->engine_of : host);
}

static void fx_host_stop(struct fx_host *host)
{
	if (!host->up)
		return;
	pthread_mutex_lock(&host->fx->lock);
	host->up = false;
	pthread_mutex_unlock(&host->fx->lock);
	(void)uv_async_send(&host->stop);
	(void)uv_thread_join(&host->thread);
	assert_int_equal(uv_loop_close(&host->loop), 0);
	pthread_mutex_lock(&host->fx->lock);
	while (host->coming > 0)
		pthread_cond_wait(&host->fx->changed, &host->fx->lock);
	pthread_mutex_unlock(&host->fx->lock);
	engine_destroy(host->engine);
}

/* Of what fx_start makes: callers work for their engines while they wait. */
static bool fx_driving;

/* Host `index` is in the process of another group's host `with`: one engine has a member of each. That group is stopped first. */
static inline void fx_beside(struct fx *fx, unsigned index, struct fx_host *with)
{
	fx_host_stop(&fx->hosts[index]);
	fx->beside = with->fx;
	with->fx->beside = fx;
	fx->hosts[index] = (struct fx_host){ .fx = fx,
		.index = index,
		.engine = with->engine,
		.engine_of = with };
	(void)snprintf(fx->hosts[index].address, sizeof(with->address), "%s", with->address);
}

static struct fx *fx_start(unsigned count, Traind__Peer__Policy policy,
    Traind__Peer__Algorithm algorithm)
{
	struct fx *fx = calloc(1, sizeof(*fx));
	assert_non_null(fx);
	pthread_mutex_init(&fx->lock, NULL);
	pthread_cond_init(&fx->changed, NULL);
	fx->group = FX_GROUP;
	fx->count = count;
	fx->driving = fx_driving;
	fx->policy = policy;
	fx->algorithm = algorithm;
	for (unsigned i = 0; i < count; i++)
		fx_host_start(fx, i);
	return fx;
}

static void fx_stop(struct fx *fx)
{
	for (unsigned i = 0; i < fx->count; i++) {
		struct fx_host *host = &fx->hosts[i];
		fx_host_stop(host);
		tr_group_leave(host->group);
		if (host->report != NULL)
			traind__peer__view_report__free_unpacked(host->report, NULL);
		if (host->words != NULL)
			traind__peer__last_words__free_unpacked(host->words, NULL);
	}
	if (fx->last != NULL)
		traind__peer__view_install__free_unpacked(fx->last, NULL);
	pthread_cond_destroy(&fx->changed);
	pthread_mutex_destroy(&fx->lock);
	free(fx);
}

#endif
