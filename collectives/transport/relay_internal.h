/* Shared by relay.c (thread, grants), relay_end.c (who has said what, who meets whom) and relay_joint.c (bytes); for nobody else. All
 * of it belongs to the relay's thread but what is under `lock`.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_RELAY_INTERNAL_H
#define TR_COLLECTIVES_TRANSPORT_RELAY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "collectives/transport/relay.h"
#include "common/limits.h"
#include "common/log_limit.h"
#include "proto/relay.h"

enum relay_end_state {
	END_SAYS,   /* its message has not come whole */
	END_WAITS,  /* for a call */
	END_CALLS,  /* for who waits */
	END_JOINED, /* has its other end; `answered`: and was told all of that */
	END_CLOSED,
};

struct relay_joint;

struct relay_end {
	struct relay *relay;
	struct relay_end *next; /* among the relay's, until it is joined */
	struct stream stream;   /* after the answer without TLS */
	uv_poll_t poll;
	enum relay_end_state state;
	int polled;
	uint64_t deadline_ms; /* UINT64_MAX: none */
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	size_t got;
	struct relay_message said;
	struct relay_joint *joint;
	bool answered;
	/* What came from it and the other end has not taken. */
	uint8_t *held;
	size_t held_begin, held_end;
	bool ended; /* nothing more comes from it */
	bool told;  /* that the other one has ended */
	char name[TR_ADDRESS_MAX];
};

struct relay_joint {
	struct relay_joint *next;
	struct relay_end *ends[2];
};

struct relay_visitor {
	struct relay_visitor *next;
	struct stream stream;
};

struct relay {
	uv_loop_t loop;
	uv_thread_t thread;
	uv_async_t wake;
	uv_timer_t look;        /* at deadlines, while there are ends */
	struct relay_end *ends; /* oldest first */
	unsigned ends_count;
	unsigned strangers; /* of them, that have not said what they want */
	struct relay_joint *joints;
	unsigned joints_count, joined_max;
	struct relay_grant *grants;
	size_t grants_count;
	struct log_limit drops;
	bool stopping;
	uint8_t scratch[TR_RELAY_BUFFER_BYTES];
	_Atomic unsigned joined, waiting, calling;
	_Atomic uint64_t bytes, refused;

	pthread_mutex_t lock; /* of what follows */
	bool running, stop;
	struct relay_visitor *visitors, **visitors_tail;
	struct relay_grant *new_grants;
	size_t new_grants_count;
	bool granted;
};

/* ---- relay.c ---- */
bool relay_knows(const struct relay *relay, const struct relay_message *said);

/* ---- relay_end.c ---- */
void relay_end_begin(struct relay *relay, struct stream stream); /* takes it */
/* Some may have no grant any more. */
void relay_ends_judge(struct relay *relay);
void relay_ends_look(struct relay *relay); /* at their deadlines */
void relay_ends_close(struct relay *relay, const char *reason);
void relay_end_poll(struct relay_end *end, int events);
/* It is among nobody's any more. `broken`: the other side is to see a reset, not an end. */
void relay_end_close(struct relay_end *end, bool broken);

/* ---- relay_joint.c ---- */
/* Takes both out of the relay's ends. false: no memory, both are as they were. */
bool relay_joint_make(struct relay_end *caller, struct relay_end *waiter);
void relay_joint_event(struct relay_end *end, int status, int events);
void relay_joint_break(struct relay_joint *joint, const char *reason);

#endif
