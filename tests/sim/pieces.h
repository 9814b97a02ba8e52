/* A joiner's state in pieces, from several members at once, as engines have it: through their own files (state_receive.c, state_ask.c, state_gradual.c, state_plan.c
 * for who gets it; state_send.c for who gives it), in seeds from SIM_PIECES_FROM on.
 *
 *	pieces.c         a worker's memory, and what its engine makes of what comes
 *	pieces_engine.c  the rest of an engine, as far as those files call it
 *	pieces_conn.c    connections for state: slow ones, such as stand still, break, lose or damage what they carry
 *
 * A state is as many small tensors as it has pieces; each holds the worker's history (sim_worker.chain), other bits in each. So what a joiner takes for its state is what it goes
 * on with: if one piece is another one's, or damaged, its history is nobody else's (I7).
 */
#ifndef TR_TESTS_SIM_PIECES_H
#define TR_TESTS_SIM_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"

#define SIM_NODES_MAX  12 /* processes ever started in one run: 5 bits each in a 64-bit payload */
#define SIM_PIECES_MAX 64 /* of a state */

struct sim;
struct sim_pieces;
struct sim_message;
struct group_action;
struct group_event;
struct group_wish;
struct conn;
struct conn_frame;
struct member;
typedef struct Traind__Peer__View Traind__Peer__View;

/* What connections for state are like in this run. */
struct sim_way {
	struct conn *conns; /* all that there ever were */
	uint64_t serial;
	unsigned damage; /* of so many pieces one is damaged on its way; 0: none */
	int damager;     /* the first piece of each transfer of this node is; -1: nobody's */
	unsigned damaged[SIM_NODES_MAX]; /* pieces, of whom they were for */
	uint64_t shared, taken_back, spoilt,
	    ended; /* counted: transfers of pieces, orders to send less, states that differed, joiners that gave up */
};

void pieces_prepare(struct sim *sim);
void pieces_start(struct sim *sim, unsigned node); /* with its core */
void pieces_died(struct sim *sim, unsigned node, bool silently);
void pieces_finish(struct sim *sim, unsigned node);
void pieces_event(struct sim *sim, unsigned a, unsigned b, uint64_t stamp); /* SIM_PIECES */

/* Around a step of its core: what is posted meanwhile follows it. */
bool pieces_hold(struct sim *sim, unsigned node);
void pieces_let(struct sim *sim, unsigned node, bool held);
void pieces_view(struct sim *sim, unsigned node,
    const Traind__Peer__View *view);                   /* before the core has it */
void pieces_installed(struct sim *sim, unsigned node); /* after */
void pieces_link_up(struct sim *sim, unsigned node);
void pieces_ask(struct sim *sim, unsigned node, const struct group_action *ask);
/* Takes back what it says so of; what it wishes. */
struct group_wish pieces_asked(struct sim *sim, unsigned node, const struct sim_message *message);
void pieces_send(struct sim *sim, unsigned node, const struct group_action *send);

bool pieces_defer(struct sim *sim, unsigned node); /* false: it may not */
void pieces_decided(struct sim *sim, unsigned node, tr_status status, uint64_t round);
void pieces_lay(struct sim *sim, unsigned node); /* what its worker holds is in its memory */
/* The round's result changes what is here of a state that comes gradually. */
void pieces_apply(struct sim *sim, unsigned node, struct tr_digest result);
/* It has given up, since what came differed too often. */
bool pieces_gave_up(const struct sim *sim, unsigned node);

/* ---- between the three ---- */
enum pieces_event {
	PIECES_TURN,
	PIECES_LOOK,
	PIECES_LINK,
	CONN_OPENS,
	CONN_LEAVES,
	CONN_CLOSED,
	CONN_RESET,
	CONN_ARRIVES,
	CONN_BROKEN,
	PIECES_EVENTS
};
void pieces_at(struct sim *sim, uint64_t delay_us, enum pieces_event what, unsigned a, unsigned b,
    uint64_t serial);
struct member *pieces_member(struct sim *sim, unsigned node); /* its clock is right */
struct sim *pieces_sim(const struct member *member, unsigned *node);
void pieces_posted(struct sim *sim, unsigned node, struct group_event *event);
/* A frame for its state, or (NULL) its end. Not TR_OK: it closes the connection. */
tr_status pieces_take(struct sim *sim, unsigned node, struct conn *conn, unsigned from,
    const struct conn_frame *frame);
uint64_t pieces_piece(uint64_t chain, unsigned tensor);

struct conn_frame {
	struct conn_frame *next;
	uint16_t type;
	size_t head_bytes, body_bytes, bytes; /* bytes: of `data` */
	const void *body;                     /* lent until it leaves */
	struct tr_digest lent;
	void (*released)(void *arg, bool sent);
	void *arg;
	uint8_t head[128];
	uint8_t *data; /* once it has left; NULL: the end of the connection */
};
/* Frames that have not left. */
unsigned conn_waits(const struct sim *sim, unsigned from, unsigned to);
void conn_event(struct sim *sim, enum pieces_event what, uint64_t serial);
void conn_died(struct sim *sim, unsigned node, bool silently); /* that node's */
void conn_break_way(struct sim *sim, unsigned from, unsigned to);
void conn_finish_all(struct sim *sim, unsigned node); /* that it dialled */
void conn_free_all(struct sim *sim);

#endif
