/* The connection to memberd and the lifeline beside it (lifeline.h): dialled for ever, from 50 ms to 1 s apart, with NodeHello first and heartbeats on it. What is
 * sent while memberd is away is dropped: after NodeHello memberd knows what this node hosts, and engines repeat what counts.
 *
 * While what is sent on it has no answer from the other end's kernel (redial.h) memberd is dialled anew beside it. The connection that has an answer first is the one that counts. If that is the
 * new one NodeHello follows on it, and what still comes on the old one is heard no more; but that stays open until memberd says welcome: memberd takes a node whose connection closes for lost.
 */
#ifndef TR_COLLECTIVES_ENGINE_LINK_H
#define TR_COLLECTIVES_ENGINE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "collectives/engine/pulse.h"
#include "common/error.h"
#include "common/limits.h"
#include "traind/peer/peer.pb-c.h"

struct conn;
struct tls_context;
struct lifeline;

struct link_callbacks {
	/* Fills in what this node is and hosts; lists stay valid until the next call. */
	void (*hello)(void *arg, Traind__Peer__NodeHello *hello);
	void (*heartbeat)(void *arg, Traind__Peer__Heartbeat *heartbeat);
	void (*welcome)(void *arg, const Traind__Peer__Welcome *welcome);
	/* All but Refused and HeartbeatAck; Welcome after the call above. Borrowed until return. */
	void (*message)(void *arg, const Traind__Peer__ToNode *message);
	void (*lost)(void *arg); /* after welcome; dialling goes on */
	/* True: that was all that was wanted of memberd, and the caller says so. Else it is logged, and dialling goes on. May be NULL */
	bool (*refused)(void *arg, const char *reason);
	/* A try ended before memberd had welcomed us, for this reason; dialling goes on. May be NULL */
	void (*failed)(void *arg, const char *reason);
	/* True: what was said before is still to be done, and no more is read for a moment. May be NULL */
	bool (*behind)(void *arg);
};

#define LINK_PAST_MAX 4

struct link {
	uv_loop_t *loop;
	char address[TR_ADDRESS_MAX];
	struct tls_context *tls; /* NULL: plain */
	const struct link_callbacks *callbacks;
	void *arg;
	struct conn *conn;                /* NULL: between two dials */
	struct conn *fresh;               /* dialled beside it; NULL: none */
	struct conn *past[LINK_PAST_MAX]; /* replaced, until memberd's welcome */
	uv_timer_t retry, beat, breath;
	uint64_t backoff_ms, random;
	uint32_t calls; /* hellos that were said */
	bool welcomed, complained, was_welcomed, closing;
	bool given_up; /* refused, and not dialled again */
	struct pulse_echo echo;
	uint64_t heard_ms;
	uint64_t interval_ms, timeout_ms;
	uint64_t apart_ms, beat_ms; /* heartbeats that have an answer; the newest */
	uint64_t busy_ns;           /* in callbacks, since the timers ran */
	struct lifeline *lifeline;
	uint64_t incarnation; /* as we said hello */
	double rtt_s;
};

/* `address` must be well-formed (TR_EINVAL); whether it can be reached shows later. `tls`: spoken to memberd, and held; NULL: plain. */
tr_status link_start(struct link *link, uv_loop_t *loop, const char *address,
    struct tls_context *tls, const struct link_callbacks *callbacks, void *arg,
    struct tr_error *error);
void link_send(struct link *link, const Traind__Peer__ToMember *message);
void link_send_packed(struct link *link, const void *packed, size_t bytes);
/* Writes what is queued, then closes; nothing is called any more. */
void link_close(struct link *link, const char *reason);

#endif
