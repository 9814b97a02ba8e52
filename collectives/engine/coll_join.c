/* A process that joins a group by name: an engine, and a thread with the one listening port and the link to memberd. To
 * memberd it is a node without slots.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "collectives/engine/coll_group.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/link.h"
#include "collectives/engine/relaying.h"
#include "collectives/engine/sized.h"
#include "collectives/transport/address.h"
#include "collectives/transport/listener.h"
#include "common/cores.h"
#include "common/log.h"
#include "common/standard_files.h"

#define JOIN_OPTIONS_LEAST offsetof(struct tr_join_options, unused)
#define LAST_WORDS_S       2 /* the engine has them as soon as it sees the caller's end closed */

/* A message from the engine's thread on its way to memberd. */
struct letter {
	struct letter *next;
	size_t bytes;
	uint8_t packed[];
};

struct coll_join {
	struct engine *engine;
	uv_loop_t loop;
	uv_thread_t thread;
	uv_async_t wake;
	struct link link;
	struct listener *listener;
	struct relaying relaying;
	struct tls_context *tls; /* NULL: plain */
	uint64_t node_id, incarnation;
	char node_name[TR_NAME_MAX];
	char group_name[TR_NAME_MAX];
	Traind__Peer__JoinGroup wish;
	Traind__Peer__PeerHere here, *here_list[1];
	Traind__Peer__PeerProgress progress, *progress_list[1];
	uint64_t waits_for[8];
	Traind__Peer__LinkProgress links[TR_PEER_LINKS_MAX], *link_list[TR_PEER_LINKS_MAX];

	pthread_mutex_t lock; /* of what follows */
	uv_cond_t changed;
	struct letter *letters, **letters_tail;
	bool stop, deaf; /* deaf: the link is closed, letters are thrown away */
	bool joined, failed;
	bool gone; /* the caller has left, and its last words were posted */
	uint64_t group, peer;
	int worker_fd; /* the caller's end of the channel, once joined */
	struct tr_error error;
	char trouble[TR_ERROR_TEXT_MAX]; /* why the newest try to reach memberd ended; empty: none has */
};

/* ---- the engine's callbacks, on its thread ---- */

static void on_to_member(void *arg, const Traind__Peer__ToMember *message)
{
	struct coll_join *join = arg;
	size_t bytes = traind__peer__to_member__get_packed_size(message);
	struct letter *letter = malloc(sizeof(*letter) + bytes);
	if (letter == NULL) {
		log_error("coll", "out of memory: a message to memberd is lost");
		return;
	}
	letter->next = NULL;
	letter->bytes = bytes;
	(void)traind__peer__to_member__pack(message, letter->packed);
	pthread_mutex_lock(&join->lock);
	if (join->deaf) {
		free(letter);
	} else {
		*join->letters_tail = letter;
		join->letters_tail = &letter->next;
		(void)uv_async_send(&join->wake);
	}
	pthread_mutex_unlock(&join->lock);
}

/* The caller closed its end: what it leaves behind goes to memberd with the farewell. */
static void on_worker_gone(void *arg, uint64_t group, uint64_t peer,
    const Traind__Peer__LastWords *words)
{
	struct coll_join *join = arg;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__LeaveGroup leave = TRAIND__PEER__LEAVE_GROUP__INIT;
	leave.group = group;
	leave.peer = peer;
	leave.last_words = (Traind__Peer__LastWords *)(uintptr_t)words;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_LEAVE_GROUP;
	message.leave_group = &leave;
	on_to_member(join, &message);
	pthread_mutex_lock(&join->lock);
	join->gone = true;
	uv_cond_broadcast(&join->changed);
	pthread_mutex_unlock(&join->lock);
}

static const struct engine_callbacks engine_callbacks = { .to_member = on_to_member,
	.worker_gone = on_worker_gone };

/* ---- the link's callbacks, on the link's thread ---- */

static bool own_progress(struct coll_join *join, struct engine_progress *row)
{
	return join->joined && engine_progress(join->engine, row, 1) == 1;
}

static void on_hello(void *arg, Traind__Peer__NodeHello *hello)
{
	struct coll_join *join = arg;
	struct engine_progress row;
	hello->node_id = join->node_id;
	hello->incarnation = join->incarnation;
	hello->name = join->node_name;
	hello->address = join->wish.address;
	hello->host = (char *)(uintptr_t)engine_host(join->engine);
	hello->local_address = (char *)(uintptr_t)engine_local_address(join->engine);
	hello->pid = (uint32_t)getpid();
	hello->cores = cores_allowed();
	hello->relays = join->relaying.busy;
	if (!own_progress(join, &row))
		return;
	traind__peer__peer_here__init(&join->here);
	join->here.group = row.group;
	join->here.peer = row.peer;
	join->here.view = row.view;
	join->here.committed_round = row.committed;
	join->here.ready = row.ready;
	join->here.gradual = row.gradual;
	join->here.pid = (uint32_t)getpid();
	join->here_list[0] = &join->here;
	hello->peers = join->here_list;
	hello->n_peers = 1;
}

static void on_heartbeat(void *arg, Traind__Peer__Heartbeat *heartbeat)
{
	struct coll_join *join = arg;
	struct engine_progress row;
	struct engine_link links[TR_PEER_LINKS_MAX];
	heartbeat->bandwidth_bytes_per_s = engine_bandwidth(join->engine);
	if (!own_progress(join, &row))
		return;
	traind__peer__peer_progress__init(&join->progress);
	join->progress.group = row.group;
	join->progress.peer = row.peer;
	join->progress.round = row.round;
	join->progress.progress = row.progress;
	join->progress.waiting = row.waiting;
	join->progress.waited_us = row.waited_us;
	memcpy(join->waits_for, row.waits_for, sizeof(join->waits_for));
	join->progress.waits_for = join->waits_for;
	join->progress.n_waits_for = row.waits_for_count;
	join->progress.n_links = engine_links(join->engine, links, TR_PEER_LINKS_MAX);
	for (size_t i = 0; i < join->progress.n_links; i++) {
		engine_link_say(&links[i], &join->links[i]);
		join->link_list[i] = &join->links[i];
	}
	join->progress.links = join->link_list;
	join->progress_list[0] = &join->progress;
	heartbeat->peers = join->progress_list;
	heartbeat->n_peers = 1;
}

static void on_welcome(void *arg, const Traind__Peer__Welcome *welcome)
{
	struct coll_join *join = arg;
	join->node_id = welcome->node_id;
	if (join->joined)
		return;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_JOIN_GROUP;
	message.join_group = &join->wish;
	link_send(&join->link, &message);
}

static void settle(struct coll_join *join, tr_status status, const struct tr_error *error)
{
	pthread_mutex_lock(&join->lock);
	join->joined = status == TR_OK;
	join->failed = status != TR_OK;
	if (status != TR_OK)
		join->error = *error;
	uv_cond_broadcast(&join->changed);
	pthread_mutex_unlock(&join->lock);
}

static bool on_refused(void *arg, const char *reason)
{
	struct coll_join *join = arg;
	struct tr_error error;
	if (join->joined)
		return false;
	(void)tr_error_set(&error, TR_EREFUSED, "group %s: %s", join->group_name, reason);
	settle(join, TR_EREFUSED, &error);
	return true;
}

static void on_failed(void *arg, const char *reason)
{
	struct coll_join *join = arg;
	pthread_mutex_lock(&join->lock);
	(void)snprintf(join->trouble, sizeof(join->trouble), "%s", reason);
	pthread_mutex_unlock(&join->lock);
}

static bool is_behind(void *arg)
{
	const struct coll_join *join = arg;
	return engine_backlog(join->engine) >= TR_TO_NODE_BYTES_MAX;
}

static void group_joined(struct coll_join *join, const Traind__Peer__GroupJoined *joined)
{
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	struct tr_error error = { 0 };
	int ends[2] = { -1, -1 };
	if (join->joined || strcmp(joined->name, join->group_name) != 0)
		return;
	start.group = join->group = joined->group;
	start.peer = join->peer = joined->peer;
	tr_status st = channel_pair(ends, &error);
	if (st == TR_OK) {
		join->worker_fd = ends[1];
		st = engine_add_worker(join->engine, &start, 1, ends[0], &error);
	}
	settle(join, st, &error);
}

static void on_message(void *arg, const Traind__Peer__ToNode *message)
{
	struct coll_join *join = arg;
	switch (message->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_GROUP_JOINED:
		group_joined(join, message->group_joined);
		break;
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
	case TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE:
	case TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL:
	case TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED:
	case TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED:
		engine_to_node(join->engine, message);
		break;
	case TRAIND__PEER__TO_NODE__BODY_RELAY_DUTIES:
		relaying_duties(&join->relaying, message->relay_duties);
		break;
	case TRAIND__PEER__TO_NODE__BODY_STOP_WORKER: {
		Traind__Peer__ToNode evict = TRAIND__PEER__TO_NODE__INIT;
		Traind__Peer__PeerEvicted evicted = TRAIND__PEER__PEER_EVICTED__INIT;
		evicted.group = join->group;
		evicted.peer = join->peer;
		evicted.reason = message->stop_worker->reason;
		evict.body_case = TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED;
		evict.peer_evicted = &evicted;
		engine_to_node(join->engine, &evict);
		break;
	}
	default:
		break;
	}
}

static void on_lost(void *arg)
{
	const struct coll_join *join = arg;
	engine_memberd_lost(join->engine); /* the link dials again, rounds go on */
}

static const struct link_callbacks link_callbacks = { .hello = on_hello,
	.heartbeat = on_heartbeat,
	.welcome = on_welcome,
	.message = on_message,
	.lost = on_lost,
	.refused = on_refused,
	.failed = on_failed,
	.behind = is_behind };

/* ---- the link's thread ---- */

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct coll_join *join = arg;
	if (protocol == LISTENER_FRAMES)
		engine_accept(join->engine, stream, early, early_bytes);
	else if (protocol == LISTENER_RELAY)
		relaying_accept(&join->relaying, stream);
	else
		stream_close(&stream);
}

static void say_farewell(struct coll_join *join)
{
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__NodeLeave node_leave = TRAIND__PEER__NODE_LEAVE__INIT;
	char reason[] = "it left the group";
	node_leave.reason = reason;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_NODE_LEAVE;
	message.node_leave = &node_leave;
	link_send(&join->link, &message);
}

static void on_wake(uv_async_t *wake)
{
	struct coll_join *join = wake->data;
	pthread_mutex_lock(&join->lock);
	struct letter *letter = join->letters;
	bool stop = join->stop;
	join->letters = NULL;
	join->letters_tail = &join->letters;
	join->deaf = stop;
	pthread_mutex_unlock(&join->lock);
	while (letter != NULL) {
		struct letter *next = letter->next;
		link_send_packed(&join->link, letter->packed, letter->bytes);
		free(letter);
		letter = next;
	}
	if (!stop)
		return;
	say_farewell(join);
	link_close(&join->link, "it left the group");
	relaying_close(&join->relaying);
	listener_stop(join->listener);
	uv_close((uv_handle_t *)wake, NULL);
}

static void join_run(void *arg)
{
	struct coll_join *join = arg;
	(void)uv_run(&join->loop, UV_RUN_DEFAULT);
}

/* ---- joining and leaving ---- */

/* As memberd would refuse them (join_fault). */
static tr_status check_terms(const struct tr_join_options *o, struct tr_error *error)
{
	if ((int)o->policy < TR_KEEP || (int)o->policy > TR_REPLAY)
		return tr_error_set(error, TR_EINVAL,
		    "join: policy %d, allowed: %d (keep), %d (uniform), %d (replay)",
		    (int)o->policy, TR_KEEP, TR_UNIFORM, TR_REPLAY);
	if ((int)o->algorithm < TR_AUTO || (int)o->algorithm > TR_ONE_SHOT)
		return tr_error_set(error, TR_EINVAL,
		    "join: algorithm %d, allowed: %d (auto) to %d (one-shot)", (int)o->algorithm,
		    TR_AUTO, TR_ONE_SHOT);
	if (o->segment_bytes % 64 != 0 || o->segment_bytes > TR_SEGMENT_BYTES)
		return tr_error_set(error, TR_EINVAL,
		    "join: segment_bytes %u, allowed: 0 or a multiple of 64, at most %d",
		    o->segment_bytes, (int)TR_SEGMENT_BYTES);
	return TR_OK;
}

static tr_status check_options(const struct tr_join_options *o, struct tr_error *error)
{
	if (o->membership == NULL || o->name == NULL || o->name[0] == '\0' ||
	    strlen(o->name) >= TR_NAME_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "join: memberd's address and a group name of 1 to %d bytes are needed",
		    TR_NAME_MAX - 1);
	if (o->size == 0 || o->size > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EINVAL, "join: size %u, allowed: 1 to %d", o->size,
		    TR_GROUP_PEERS_MAX);
	if ((int)o->transport < TR_TRANSPORT_AUTO || (int)o->transport > TR_TRANSPORT_SHM)
		return tr_error_set(error, TR_EINVAL, "join: transport %d is unknown",
		    (int)o->transport);
	return check_terms(o, error);
}

static void fill_wish(struct coll_join *join, const struct tr_join_options *o)
{
	traind__peer__join_group__init(&join->wish);
	(void)snprintf(join->group_name, sizeof(join->group_name), "%s", o->name);
	(void)snprintf(join->node_name, sizeof(join->node_name), "process-%d", (int)getpid());
	join->wish.name = join->group_name;
	join->wish.size = o->size;
	join->wish.policy = (Traind__Peer__Policy)o->policy;
	join->wish.algorithm = (Traind__Peer__Algorithm)o->algorithm;
	join->wish.deterministic = o->deterministic;
	join->wish.segment_bytes = o->segment_bytes;
	/* proto3 strings are not written to */
	join->wish.address = (char *)(uintptr_t)listener_address(join->listener);
}

static void join_free(struct coll_join *join)
{
	if (join->worker_fd >= 0)
		(void)close(join->worker_fd);
	while (join->letters != NULL) {
		struct letter *next = join->letters->next;
		free(join->letters);
		join->letters = next;
	}
	uv_cond_destroy(&join->changed);
	pthread_mutex_destroy(&join->lock);
	tls_context_release(join->tls);
	free(join);
}

/* Everything up to the running thread. */
static tr_status join_start(const struct tr_join_options *o, struct coll_join **started,
    struct tr_error *error)
{
	struct coll_join *join = calloc(1, sizeof(*join));
	if (join == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to join");
	join->worker_fd = -1;
	join->letters_tail = &join->letters;
	pthread_mutex_init(&join->lock, NULL);
	if (uv_cond_init(&join->changed) != 0) {
		free(join);
		return tr_error_set(error, TR_ENOMEM, "no memory to join");
	}
	if (getrandom(&join->incarnation, sizeof(join->incarnation), 0) < 0)
		join->incarnation = (uint64_t)getpid() << 32 | (uint64_t)time(NULL);
	tr_status st = engine_create(&engine_callbacks, join, &join->engine, error);
	if (st != TR_OK)
		goto free_join;
	st = o->tls != NULL ? tls_context_load(o->tls, &join->tls, error)
	                    : address_check_plain(o->membership, o->insecure, error);
	const struct engine_links links = { .transport = o->transport,
		.sockets = o->sockets,
		.congestion = o->congestion,
		.tls = join->tls,
		.memberd = o->membership,
		.alone = true,
		.insecure = o->insecure };
	if (st == TR_OK)
		st = engine_set_links(join->engine, &links, error);
	if (st != TR_OK)
		goto destroy_engine;
	int rc = uv_loop_init(&join->loop);
	if (rc != 0) {
		st = tr_error_set(error, TR_EIO, "cannot make a loop: %s", uv_strerror(rc));
		goto destroy_engine;
	}
	st = listener_start(&join->loop, o->listen != NULL ? o->listen : "127.0.0.1:0", o->insecure,
	    join->tls, on_accepted, join, &join->listener, error);
	if (st != TR_OK)
		goto close_loop;
	fill_wish(join, o);
	st = tls_context_check_address(join->tls, join->wish.address, error);
	if (st == TR_OK)
		st = relaying_start(&join->relaying, &join->loop, join->tls, o->insecure,
		    join->listener, o->membership, error);
	if (st == TR_OK)
		st = link_start(&join->link, &join->loop, o->membership, join->tls, &link_callbacks,
		    join, error);
	if (st != TR_OK)
		goto stop_listener;
	join->wake.data = join;
	rc = uv_async_init(&join->loop, &join->wake, on_wake);
	if (rc == 0) {
		rc = uv_thread_create(&join->thread, join_run, join);
		if (rc == 0) {
			*started = join;
			return TR_OK;
		}
		uv_close((uv_handle_t *)&join->wake, NULL);
	}
	st = tr_error_set(error, TR_EIO, "cannot start a thread: %s", uv_strerror(rc));
	link_close(&join->link, "no thread");
stop_listener:
	relaying_close(&join->relaying);
	listener_stop(join->listener);
close_loop:
	(void)uv_run(&join->loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&join->loop);
destroy_engine:
	engine_destroy(join->engine);
free_join:
	join_free(join);
	return st;
}

/* For something to change, by a clock that nobody sets. False: the time is over. */
static bool wait_until(struct coll_join *join, uint64_t until_ns)
{
	uint64_t now_ns = uv_hrtime();
	return now_ns < until_ns &&
	    uv_cond_timedwait(&join->changed, &join->lock, until_ns - now_ns) == 0;
}

void coll_join_leave(struct coll_join *join)
{
	if (join == NULL)
		return;
	uint64_t until_ns = uv_hrtime() + UINT64_C(1000000000) * LAST_WORDS_S;
	pthread_mutex_lock(&join->lock);
	while (join->joined && !join->gone && wait_until(join, until_ns))
		;
	join->stop = true;
	(void)uv_async_send(&join->wake);
	pthread_mutex_unlock(&join->lock);
	(void)uv_thread_join(&join->thread);
	(void)uv_loop_close(&join->loop);
	engine_destroy(join->engine);
	join_free(join);
}

/* Until memberd has admitted us or the time is over. */
static tr_status wait_admitted(struct coll_join *join, const char *membership,
    struct tr_error *error)
{
	uint64_t until_ns = uv_hrtime() + UINT64_C(1000000) * TR_JOIN_TIMEOUT_MS;
	tr_status st = TR_OK;
	pthread_mutex_lock(&join->lock);
	while (!join->joined && !join->failed && st == TR_OK)
		if (!wait_until(join, until_ns))
			st = TR_EUNAVAILABLE;
	if (join->joined)
		st = TR_OK;
	else if (join->failed)
		st = tr_error_set(error, join->error.status, "%s", join->error.text);
	else
		(void)tr_error_set(error, st,
		    "memberd at %s did not admit this process within %d s: %s", membership,
		    TR_JOIN_TIMEOUT_MS / 1000,
		    join->trouble[0] != '\0' ? join->trouble : "is it running?");
	pthread_mutex_unlock(&join->lock);
	return st;
}

/* In a process that is somebody else's only warnings are written. */
static void be_quiet(void)
{
	log_configure(LOG_WARN, false);
}

static bool drive(void *engine, bool (*done)(void *arg), void *arg, struct pollfd *also)
{
	return engine_drive(engine, done, arg, also);
}

tr_status tr_group_join(const struct tr_join_options *options, tr_group **group,
    struct tr_error *error)
{
	struct coll_join *join = NULL;
	struct tr_group *made = NULL;
	struct tr_join_options known;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, be_quiet);
	standard_files_hold();
	tr_status st = sized_read("join", options, JOIN_OPTIONS_LEAST, &known, sizeof(known), error);
	if (st == TR_OK)
		st = check_options(&known, error);
	if (st == TR_OK)
		st = join_start(&known, &join, error);
	if (st != TR_OK)
		return st;
	st = wait_admitted(join, known.membership, error);
	if (st == TR_OK) {
		int fd = join->worker_fd;
		join->worker_fd = -1; /* the group's */
		st = coll_group_open(fd, &made, error);
	}
	if (st != TR_OK) {
		coll_join_leave(join);
		return st;
	}
	made->join = join;
	channel_worker_set_drive(made->channel, drive, join->engine);
	made->op_deadline_ms = known.op_deadline_ms;
	*group = made;
	return TR_OK;
}
