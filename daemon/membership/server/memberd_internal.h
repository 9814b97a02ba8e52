/* What the files of daemon/membership/server share; for nobody else. */
#ifndef TR_DAEMON_MEMBERSHIP_SERVER_MEMBERD_INTERNAL_H
#define TR_DAEMON_MEMBERSHIP_SERVER_MEMBERD_INTERNAL_H

#include "collectives/transport/conn.h"
#include "collectives/transport/listener.h"
#include "collectives/transport/relay.h"
#include "common/limits.h"
#include "common/log_limit.h"
#include "daemon/api/grpc_server.h"
#include "daemon/api/trainer_service.h"
#include "daemon/membership/server/memberd.h"
#include "daemon/membership/store/store.h"

#define MEMBERD_CONNS_MAX 8192 /* power of two: low bits of a connection's number are its place */

/* An event that waits for its step, with the message that it owns. */
struct queued_event {
	struct membership_event event;
	ProtobufCMessage *owned; /* freed after the step; NULL: nothing */
	char reason[256];
	struct queued_event *next;
};

struct event_queue {
	struct queued_event *first, **last;
	uv_check_t check; /* steps after each round of input */
	uv_idle_t busy;   /* active while events wait, so that the loop does not sleep */
	uv_timer_t timer; /* the core's deadline */
	bool tick_due;
};

struct node_conn {
	uint64_t number;
	struct conn *conn;
	bool greeted;    /* said NodeHello or Lifeline */
	bool held;       /* nothing is read of it until its messages were stepped */
	unsigned queued; /* messages that wait for their step */
	uint64_t since_ms;
	struct memberd *memberd;
};

struct node_conns {
	struct node_conn *places[MEMBERD_CONNS_MAX];
	size_t count, ungreeted;
	uint64_t serial;
	uv_timer_t timer; /* active while somebody has not said hello */
	struct log_limit drops;
};

struct log_reader;

struct memberd {
	uv_loop_t *loop;
	char folder[4096];
	struct membership *core;
	struct membership_actions actions;
	struct store *store;
	struct listener *listener;
	struct relay *relay; /* NULL: we relay nothing */
	struct grpc_server *grpc;
	struct trainer_service *service;
	struct event_queue queue;
	struct node_conns nodes;
	struct log_reader *readers;
	size_t reader_count;
	uint64_t next_log_stream;
	bool leading, stopping;
	bool broken; /* memory ran out in the middle of a change: nothing is stepped or kept any more */
	void (*failed)(void *arg, const char *text);
	void *arg;
};

/* event_queue.c. The push functions copy `event`; `owned` is taken; `reason` is copied. */
void event_queue_init(struct memberd *memberd);
void event_queue_push(struct memberd *memberd, const struct membership_event *event,
    ProtobufCMessage *owned, const char *reason);
/* Steps what the log has applied, ahead of everything else, so that a snapshot holds it. */
void event_queue_catch_up(struct memberd *memberd);
void event_queue_wake(struct memberd *memberd); /* there is something to do in the next turn */
/* Memory ran out: memberd ends before it acts on half a state. */
void event_queue_broken(struct memberd *memberd);
void event_queue_close(struct memberd *memberd);

/* actions.c: carries out what the core asked for. */
void actions_carry_out(struct memberd *memberd);

/* node_conns.c */
void node_conns_init(struct memberd *memberd);
void node_conns_accept(struct memberd *memberd, struct stream stream, const void *early,
    size_t early_bytes);
bool node_conns_has(struct memberd *memberd, uint64_t number);
void node_conns_send(struct memberd *memberd, uint64_t number, const Traind__Peer__ToNode *message);
/* The same message may go to many: it is packed if `packed` is of another one, which the caller frees in the end. */
struct packed_message {
	const Traind__Peer__ToNode *of;
	uint8_t *bytes;
	size_t size;
};
void node_conns_send_same(struct memberd *memberd, uint64_t number,
    const Traind__Peer__ToNode *message, struct packed_message *packed);
void node_conns_finish(struct memberd *memberd, uint64_t number, const char *reason);
/* One message of the connection was stepped: there is room for another. */
void node_conns_stepped(struct memberd *memberd, uint64_t number);
void node_conns_close(struct memberd *memberd);

/* backend.c: the API's calls */
extern const struct trainer_backend backend_calls;
/* The core's answer to a submit or cancel event. */
void backend_reply(struct memberd *memberd, const struct membership_action *action);

/* log_relay.c: output of workers, from nodes to readers of the API */
tr_status log_relay_open(struct memberd *memberd, uint64_t stream,
    const Traind__V1__StreamLogsRequest *request, struct tr_error *error);
/* Begins what was opened since the last turn. */
void log_relay_turn(struct memberd *memberd);
void log_relay_credit(struct memberd *memberd, uint64_t stream, uint64_t bytes);
void log_relay_close(struct memberd *memberd, uint64_t stream);
void log_relay_data(struct memberd *memberd, const Traind__Peer__LogData *data);
void log_relay_job_changed(struct memberd *memberd, uint64_t job);
void log_relay_node_gone(struct memberd *memberd, uint64_t conn);
void log_relay_finish(struct memberd *memberd);

#endif
