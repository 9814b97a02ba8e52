/* What this node measures of the ways to others, as memberd asks (MeasureLink), and what others measure of the way to it: each on a thread of its own,
 * so that neither the control loop nor the engine ever waits. On the loop's thread.
 */
#ifndef TR_DAEMON_NODE_PROBING_H
#define TR_DAEMON_NODE_PROBING_H

#include <stdatomic.h>
#include <stdbool.h>

#include "collectives/transport/stream.h"
#include "daemon/node/mailbox.h"
#include "traind/peer/peer.pb-c.h"

struct probe_task;

struct probing {
	struct mailbox box;
	struct tls_context *tls; /* borrowed; NULL: plain */
	bool anywhere;           /* with TLS, or insecure: beyond loopback too */
	uint64_t token[2];       /* ours, which memberd gives to who is to measure */
	const char *trainworker; /* its path, for layers; set before, borrowed */
	struct probe_task *tasks;
	unsigned served; /* of them, by others */
	atomic_bool stop;
	bool open;
	void (*report)(void *arg, const Traind__Peer__ToMember *message);
	void *arg;
};

/* Set `report` and `arg` before. */
tr_status probing_start(struct probing *probing, uv_loop_t *loop, struct tls_context *tls,
    bool insecure, struct tr_error *error);
void probing_measure(struct probing *probing, const Traind__Peer__MeasureLink *measure);
void probing_accept(struct probing *probing, struct stream stream); /* LISTENER_PROBE; takes it */
/* Ends what is under way: within 100 ms, or when a name is resolved that was being looked up. A zeroed one: nothing. */
void probing_close(struct probing *probing);

#endif
