/* All that an engine has to do with shared memory: the UNIX socket that its peers dial, the doorbell that wakes it, and the
 * lanes. A lane (lane.h) of shared memory is a pair of rings (shm_ring.h) and the socket beside it (shm_socket.h).
 *
 * Before the loop sleeps the hub looks at its rings. While `busy` says that somebody waits for a frame it goes on looking for
 * SHM_SPIN_US, giving way to other threads between two looks; a peer that answers within that time costs no system call and
 * no wake-up. Then it marks its rings (shm_ring_sleep) and the loop sleeps in epoll.
 *
 * One loop, one thread. Nothing blocks.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_HUB_H
#define TR_COLLECTIVES_TRANSPORT_SHM_HUB_H

#include <stdbool.h>
#include <uv.h>

#include "collectives/transport/lane.h"
#include "collectives/transport/shm_export.h"
#include "collectives/transport/shm_socket.h"
#include "common/error.h"

struct shm_hub;

struct shm_hub_callbacks {
	/* A peer's process opened a lane: set its callbacks and arg, or lane_close it. */
	void (*accepted)(void *arg, struct lane *lane);
	/* Does it take a lane of who claims this? May be NULL: always. */
	bool (*admits)(void *arg, const struct shm_claim *claim);
	/* Somebody waits for a frame. May be NULL: never. */
	bool (*busy)(void *arg);
	/* Looks at what else its peers show; true: something moved. May be NULL. */
	bool (*look)(void *arg);
	/* Would it? NULL if `look` is. */
	bool (*pending)(void *arg);
	/* Somebody waits for bodies to be released: a peer that goes past one rings. May be NULL: never; then they are collected at the next look. */
	bool (*starved)(void *arg);
	/* After shm_hub_close: it is gone. May be NULL. */
	void (*closed)(void *arg);
};

tr_status shm_hub_create(uv_loop_t *loop, const struct shm_hub_callbacks *callbacks, void *arg,
    struct shm_hub **hub, struct tr_error *error);
/* Closes the lanes that nobody owns yet, and itself when the last lane is closed. Accepts NULL. */
void shm_hub_close(struct shm_hub *hub);
/* What peers dial: the name of an abstract UNIX socket. */
const char *shm_hub_address(const struct shm_hub *hub);

/* `opened` or `closed` follows. `claim` is for the other end's `admits`. What `exports` holds, now and later, is shown to the peer; they are borrowed until `closed`. An
 * error: it cannot be, with the cause; nothing follows. */
tr_status shm_hub_dial(struct shm_hub *hub, const char *address, const struct shm_claim *claim,
    struct shm_exports *exports, const struct lane_callbacks *callbacks, void *arg,
    struct lane **lane, struct tr_error *error);

/* For who does not leave it to the loop to look, which it does not do again before shm_hub_sleep: the marks of sleep are taken
 * away ... */
void shm_hub_awake(struct shm_hub *hub);
/* ... all rings are looked at once (true: something moved) ... */
bool shm_hub_look(struct shm_hub *hub);
/* ... and marked again. false: something came meanwhile: look again, or have the loop look. */
bool shm_hub_sleep(struct shm_hub *hub);

bool shm_hub_made(const struct lane *lane); /* is it a lane of shared memory? */

/* Something was shown to the peer of this lane, elsewhere: it is woken if it sleeps. After a fence between the two. */
void shm_hub_nudge(struct lane *lane);

/* What the peer of this lane shows to us, for who reads in place beyond the lane's end; a reference. NULL: it is no lane of
 * shared memory. */
struct shm_import *shm_hub_import(const struct lane *lane);

/* The pages of this mapping that are in memory are mapped while the loop is idle (shm_prefault.h), until all are, or ... */
void shm_hub_prefault(struct shm_hub *hub, void *base, size_t bytes);
/* ... it is to be unmapped. */
void shm_hub_prefault_end(struct shm_hub *hub, const void *base);

/* Asked while a frame's `released` runs: true: the lane only lets go of it; the peer has not gone past it and may still read
 * the body where it lies. */
bool shm_hub_shows_on(const struct lane *lane);

#endif
