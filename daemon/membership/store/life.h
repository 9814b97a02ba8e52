/* One life of C-Raft over the store's folder: from opening to closed. After a failed write C-Raft cannot go on, so the store
 * ends a life and begins another. Inside the store only.
 */
#ifndef TR_DAEMON_MEMBERSHIP_LIFE_H
#define TR_DAEMON_MEMBERSHIP_LIFE_H

#include <raft.h>
#include <raft/uv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/error.h"

/* C-Raft calls these from within its own; none may call C-Raft again. */
struct life_callbacks {
	int (*applied)(void *arg, const void *bytes, size_t size);
	int (*restored)(void *arg, const void *bytes, size_t size);
	tr_status (*snapshot)(void *arg, void **bytes, size_t *size); /* raft_malloc'ed */
	void (*leading)(void *arg);
	void (*written)(void *arg, size_t count, int status); /* a batch: 0, or C-Raft's error */
	void (*closed)(void *arg);
};

struct life;

/* Writes the beginning of a log, a cluster of one, into an empty folder. */
tr_status life_found(const char *folder, struct tr_error *error);
/* Loads the folder; entries and snapshot may come through the callbacks before this returns. */
tr_status life_open(uv_loop_t *loop, const char *folder, const struct life_callbacks *callbacks,
    void *arg, struct life **life, struct tr_error *error);
/* To be called on later turns until `leading` came: asks for the barrier that ends the replay. */
void life_poll(struct life *life);
/* One batch, written with one fsync. Takes the buffers on success. */
int life_append(struct life *life, struct raft_buffer *buffers, unsigned count);
const char *life_error(const struct life *life);
/* Not from within a callback. Calls `closed` later, once; frees itself. */
void life_close(struct life *life);

#endif
