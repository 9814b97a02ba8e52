/* Shared by shm_hub.c and lane_shm*.c; for nobody else. */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_INTERNAL_H
#define TR_COLLECTIVES_TRANSPORT_SHM_INTERNAL_H

#include "collectives/transport/shm_hub.h"
#include "collectives/transport/shm_prefault.h"
#include "collectives/transport/shm_ring.h"
#include "collectives/transport/shm_socket.h"
#include "common/limits.h"

/* Frames that found no room in the ring. */
struct shm_waiting {
	struct shm_waiting *next;
	struct lane_send frame; /* its head and a body without `released` lie behind this struct */
	uint8_t memory[];
};

struct lane_shm {
	struct lane lane;
	struct shm_hub *hub;
	struct lane_shm *next;
	bool dialled, open, closing;
	bool counted;   /* among the hub's open lanes */
	bool parked;    /* the owner answered TR_EAGAIN */
	bool resumed;   /* and wants it again */
	bool gone;      /* the other side closed; what is in its ring is still read */
	bool finishing; /* input is thrown away; closes once its output was read */
	bool said_end;
	bool letting_go; /* of bodies that the peer may still read */
	bool wants_room; /* lane_room answered 0 */
	int socket, peer_bell;
	uv_poll_t poll;
	uv_timer_t timer; /* for the other side's first word, and its last */
	unsigned handles;
	struct shm_sender *out;
	struct shm_receiver in;
	struct shm_exports *exports;
	uint32_t announced; /* of the exports */
	struct shm_import *import;
	struct shm_waiting *waiting, **waiting_tail;
	struct shm_waiting *going; /* of them: just being put; NULL: none */
	size_t waiting_bytes, waiting_copied;
	struct lane_counters counters;
	char reason[TR_ERROR_TEXT_MAX];
	char name[64];
};

struct shm_hub {
	uv_loop_t *loop;
	struct shm_hub_callbacks callbacks;
	void *arg;
	struct lane_shm *lanes;
	unsigned open_lanes, strangers, handles;
	bool stopping, closing;
	bool starved;    /* no descriptor for who dials: until `pause` */
	bool attended;   /* somebody looks at the rings: none is marked */
	unsigned passed; /* looks since the last one at the rings */
	int socket, bell;
	uv_poll_t socket_poll, bell_poll;
	uv_prepare_t prepare;
	uv_timer_t pause;
	struct shm_prefault prefault;
	char address[TR_ADDRESS_MAX];
};

/* ---- lane_shm.c ---- */

/* Takes the socket, also on an error. Accepted: waits for a hello. */
tr_status lane_shm_create(struct shm_hub *hub, int socket, bool dialled, struct lane_shm **lane,
    struct tr_error *error);
tr_status lane_shm_say_hello(struct lane_shm *lane, const struct shm_claim *claim,
    struct tr_error *error);
void lane_shm_close(struct lane_shm *lane, const char *reason);
/* Of all bodies in its ring; the peer may go on reading them. */
void lane_shm_let_go(struct lane_shm *lane);
/* Reads its ring and sends what waits. true: something moved. */
bool lane_shm_poll(struct lane_shm *lane);
/* false: there is something to do, look again. `starved`: what comes to be collected is something to do too. */
bool lane_shm_sleep(struct lane_shm *lane, bool starved);
void lane_shm_awake(struct lane_shm *lane);
void lane_shm_read_socket(struct lane_shm *lane);

/* ---- lane_shm_in.c ---- */
bool lane_shm_read_ring(struct lane_shm *lane); /* true: something came */

/* ---- lane_shm_out.c ---- */
tr_status lane_shm_send(struct lane_shm *lane, const struct lane_send *frame);
void lane_shm_wake(struct lane_shm *lane); /* the peer, if it sleeps */
/* The next piece of what we show to the peer, which there has to be; false: its socket takes nothing now. */
bool lane_shm_show(struct lane_shm *lane);
bool lane_shm_send_waiting(struct lane_shm *lane); /* true: something went */
bool lane_shm_has_room(const struct lane_shm *lane);
void lane_shm_drop_waiting(struct lane_shm *lane, bool borrowed_only);

/* ---- shm_hub.c ---- */
void shm_hub_opened(struct lane_shm *lane);
void shm_hub_forget(struct lane_shm *lane); /* it is closed: frees it */

#endif
