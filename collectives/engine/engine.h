/* The only place where a core meets a transport. One thread, one loop, any number of members (a member is one peer of
 * one group). Hosted by traind (workers hand over tensors in shared memory) and by any process that links the library.
 *
 * All functions may be called from any thread: they post to the engine's loop. Callbacks run on the engine's thread.
 */
#ifndef TR_COLLECTIVES_ENGINE_ENGINE_H
#define TR_COLLECTIVES_ENGINE_ENGINE_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/transport/stream.h"
#include "common/error.h"
#include "traind/peer/peer.pb-c.h"

struct engine;

struct engine_callbacks {
	/* For memberd: VIEW_REPORT, LINK_LOST, PEER_READY, ROUND_COMMITS, PEER_REPORT, PEER_FAILED, VIEW_INSTALLED.
	 * Borrowed until return; pack it to keep it. */
	void (*to_member)(void *arg, const Traind__Peer__ToMember *message);
	/* The worker closed its channel (it died or left). `words` go to memberd with its end. Borrowed until return. */
	void (*worker_gone)(void *arg, uint64_t group, uint64_t peer,
	    const Traind__Peer__LastWords *words);
};

tr_status engine_create(const struct engine_callbacks *callbacks, void *arg, struct engine **engine,
    struct tr_error *error);
void engine_destroy(struct engine *engine); /* joins the thread; callers that wait are told first */

/* How its members talk to their peers; zero: as it finds best. Before the first member is added. TR_EINVAL: what cannot be
 * had, in one line. */
struct engine_links {
	enum tr_transport transport;
	unsigned sockets;        /* to each peer */
	const char *congestion;  /* borrowed until return */
	struct tls_context *tls; /* spoken on every TCP connection that we dial; NULL: none. Held */
	const char *memberd;     /* where it is dialled: it may be a relay. NULL: it is none */
	bool alone;              /* it has one member: nobody shares commons with it */
	bool insecure; /* without TLS, peers that are not at a loopback address are dialled too: else a view that has such ends its member */
};
tr_status engine_set_links(struct engine *engine, const struct engine_links *links,
    struct tr_error *error);

/* For NodeHello: which processes share memory with this one, and how they reach its engine. "": none. Any thread. */
const char *engine_host(const struct engine *engine);
const char *engine_local_address(const struct engine *engine);

/* A member whose caller is another process: `worker_fd` is our end of a UNIX socket pair, the other end is inherited by
 * the worker as TRAIND_WORKER_FD. Takes the fd. The assignment (start) is copied. */
tr_status engine_add_worker(struct engine *engine, const Traind__Peer__StartWorker *start,
    unsigned threads, int worker_fd, struct tr_error *error);
/* Ends a member: its op ends with TR_ECANCELLED, its connections close. Unknown: nothing. */
void engine_remove(struct engine *engine, uint64_t group, uint64_t peer, const char *reason);
/* WELCOME, VIEW_PROPOSE, VIEW_INSTALL, PEER_EVICTED, ROUNDS_RECORDED, GROUP_OVER from memberd. Copied. */
void engine_to_node(struct engine *engine, const Traind__Peer__ToNode *message);
/* Bytes of that which it has not looked at yet. Who reads memberd's words stops at TR_TO_NODE_BYTES_MAX (link.h), lest they be told faster than they can
 * be done. */
size_t engine_backlog(struct engine *engine);
/* What nobody says twice is kept until the next WELCOME. */
void engine_memberd_lost(struct engine *engine);
/* A data connection whose greeting was read. Takes the stream, copies early. */
void engine_accept(struct engine *engine, struct stream stream, const void *early,
    size_t early_bytes);

/* For a caller in this process: does the engine's work in the caller's thread. With `done`: until that says so (it is asked
 * after every step, under the engine's lock), until one of the descriptors in `also` has something (`revents` say what), or the
 * engine ends; sleeps while nothing comes. Without: once, for what was just submitted. false: the engine is at work, ring its
 * doorbell. Callbacks run in this thread, then. */
#define ENGINE_DRIVE_ALSO 2
bool engine_drive(struct engine *engine, bool (*done)(void *arg), void *arg,
    struct pollfd also[ENGINE_DRIVE_ALSO]);

/* For heartbeats: fills at most max rows (waits_for included, owned by the caller: see engine.c). Never blocks on the
 * engine's thread for more than a lock held over copying. */
struct engine_progress {
	uint64_t group, peer, view, round, committed, progress;
	uint64_t waited_us; /* that its caller has waited in calls, the one under way included */
	bool ready, gradual, waiting;
	uint64_t waits_for[8];
	size_t waits_for_count;
};
size_t engine_progress(struct engine *engine, struct engine_progress *rows, size_t max);
/* Links of its members to peers over TCP, slowest first, TR_PEER_LINKS_MAX of each member, one member after another: of those members of which there is news since
 * this was last asked, and whose links fit into max. The others' come the next times, before those of who had his turn. */
struct engine_link {
	uint64_t group, peer, to, bytes_per_s; /* bytes_per_s 0: not measured */
	uint64_t sent_bytes;                   /* that have come */
	uint32_t rtt_us;                       /* without queues */
};
size_t engine_links(struct engine *engine, struct engine_link *links, size_t max);
void engine_link_say(const struct engine_link *link, Traind__Peer__LinkProgress *row);
double engine_bandwidth(struct engine *engine); /* bytes/s learned from real traffic; 0: none yet */

#endif
