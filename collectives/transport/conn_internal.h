/* Shared by conn.c (life, sending), conn_dial.c, conn_relay.c, conn_read.c and conn_place.c; for nobody else. */
#ifndef TR_COLLECTIVES_TRANSPORT_CONN_INTERNAL_H
#define TR_COLLECTIVES_TRANSPORT_CONN_INTERNAL_H

#include "collectives/transport/address.h"
#include "collectives/transport/conn.h"
#include "collectives/transport/send_queue.h"
#include "common/limits.h"
#include "proto/segment.h"

enum conn_state {
	CONN_RESOLVING,
	CONN_CONNECTING,
	CONN_SHAKING,  /* connected; the TLS handshake goes on */
	CONN_RELAYING, /* connected with a relay, which is to join us with the other end */
	CONN_OPEN,
	CONN_FINISHING, /* conn_finish: the queue is being written; input is thrown away */
	CONN_CLOSING,   /* handles are closing; `closed` is still to run */
};

struct conn_input {
	uint8_t *bytes;
	size_t begin, end, capacity; /* received and not yet handed out: [begin, end) */
	bool parked;                 /* the frame at `begin` waits for conn_resume */
	bool resume;                 /* conn_resume was called; acted on in the next turn */
};

/* conn_relay.c: what there is of a connection until a relay has joined it. */
struct conn_through {
	struct conn_relay relay;
	conn_handed_fn *handed; /* NULL: we call */
	uint8_t answer[RELAY_MESSAGE_BYTES];
	size_t got;
	bool joined;
};

/* A segment whose body is received into its owner's memory. */
struct conn_placed {
	bool active;
	struct lane_place place;
	size_t body_bytes, got;
	_Alignas(8) uint8_t head[SEGMENT_HEADER_BYTES];
};

struct conn {
	uv_loop_t *loop;
	enum conn_state state;
	struct conn_callbacks callbacks;
	void *arg;
	int fd;
	struct tls *tls; /* NULL: plain */
	uv_poll_t *poll; /* own allocation: a dial uses one for each address it tries */
	uv_idle_t idle;  /* active while there is something to do in the next turn */
	uv_timer_t timer;
	unsigned handles; /* open ones, and the resolver: conn is freed when none is left */
	int polled;       /* events asked of `poll` */
	bool hang_up_seen, in_flush;
	bool finish_asked, ended_send;
	bool queue_full; /* TR_ELIMIT was returned, `drained` is due */
	bool drain_watched, in_send;
	size_t drain_below; /* `drained` is due once no more than this is unsent */
	struct send_queue queue;
	struct conn_input input; /* while a body is placed: what came behind it */
	struct conn_placed placed;
	bool bulk; /* the last frame was placed: little is read ahead */
	struct lane_counters counters;
	uint32_t patience_ms; /* 0: the limits of limits.h */
	uint32_t dial_ms;     /* for an answer to a dial; 0: as patience_ms */
	char peer_name[TR_ADDRESS_MAX];
	char reason[256];
	/* dialling */
	bool called, answered; /* some address: a connection was asked for; was made */
	uv_getaddrinfo_t resolver;
	struct addrinfo *addresses, *next_address;
	struct tls_context *tls_context; /* to be spoken to who is dialled */
	struct conn_through *through;    /* a relay; NULL: none */
};

/* Of a body that is hashed as it comes, so much is read at once: hashed, it is in the second cache still. */
#define CONN_HASHED_BYTES ((size_t)256 << 10)
/* Bytes [from, got) of the body have come. */
void conn_place_hash(struct conn_placed *placed, size_t from);

/* One handle less; the last one ends the connection. */
void conn_handle_closed(struct conn *conn);
/* Closes because of the world, not of the owner. */
void conn_fail(struct conn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The socket is connected: poll it. */
void conn_open(struct conn *conn);
/* Asks for the events that the connection's state needs. */
void conn_poll(struct conn *conn);
/* Something is to be done in the loop's next turn. */
void conn_wake(struct conn *conn);
/* Starts a poll handle on conn->fd; conn_poll_stop ends it and leaves the fd open. */
tr_status conn_poll_start(struct conn *conn, struct tr_error *error);
void conn_poll_stop(struct conn *conn);

/* Reads what there is, within a budget, and hands whole frames out. */
void conn_read(struct conn *conn);
/* Hands out the whole frames that the buffer holds. */
void conn_read_dispatch(struct conn *conn);
/* A frame whose body has not come whole: if it is a segment, its head is here, and the owner has a place for its body, what
 * came of that moves there. */
void conn_place_begin(struct conn *conn, const struct frame_header *header);
/* Hands the placed frame out, if it is whole. false: nothing more is to be handed out now. */
bool conn_place_dispatch(struct conn *conn);
void conn_place_drop(struct conn *conn);
/* Keeps bytes that were read before the connection existed. */
tr_status conn_read_early(struct conn *conn, const void *bytes, size_t count);

/* Starts with conn->state CONN_RESOLVING. On an error the caller frees. */
tr_status conn_dial_start(struct conn *conn, const struct address *address, struct tr_error *error);
/* The socket of a dial became writable or failed, or its handshake can go on. */
void conn_dial_ready(struct conn *conn);
void conn_dial_finish(struct conn *conn);
/* This address of what is dialled does not do; the next one is tried. */
void conn_dial_failed(struct conn *conn, const char *cause);
/* The socket is the other end's: TLS with it, or open. */
void conn_dial_joined(struct conn *conn);

/* conn_relay.c: the relay is connected (and has shown its certificate): says what we want there; its answer, or a part of it, is here. */
void conn_relay_begin(struct conn *conn);
void conn_relay_ready(struct conn *conn);

#endif
