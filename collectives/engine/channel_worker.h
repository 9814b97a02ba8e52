/* The worker's end of the channel (channel.h). One caller thread, except channel_worker_progress and channel_worker_ask. */
#ifndef TR_COLLECTIVES_ENGINE_CHANNEL_WORKER_H
#define TR_COLLECTIVES_ENGINE_CHANNEL_WORKER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/channel.h"
#include "common/error.h"

struct channel_worker;

/* Waits for the engine's hello. Takes fd, also on an error. */
tr_status channel_worker_open(int fd, struct channel_worker **worker, struct tr_error *error);
/* The engine is in this process: a caller who waits works for it meanwhile (engine_drive, whose contract this is). */
typedef bool channel_drive_fn(void *arg, bool (*done)(void *arg), void *done_arg,
    struct pollfd *also);
void channel_worker_set_drive(struct channel_worker *worker, channel_drive_fn *drive, void *arg);
void channel_worker_close(struct channel_worker *worker);

const struct channel_control *channel_worker_control(const struct channel_worker *worker);

/* Zeroed memory that the engine sees too; NULL: there is none. From 2 MiB on it is there at once, in huge pages as far as there are some
 * (shm_memory_fill); sparse: as it is touched. */
void *channel_worker_alloc(struct channel_worker *worker, size_t bytes);
void *channel_worker_alloc_sparse(struct channel_worker *worker, size_t bytes);
/* Where in the shared memory [data, data + bytes) lies. TR_EINVAL: not wholly inside. */
tr_status channel_worker_locate(const struct channel_worker *worker, const void *data, size_t bytes,
    uint32_t *arena, uint64_t *offset);

/* Puts a submission without an answer; `extra` of one that is extended, else NULL. TR_EUNAVAILABLE: the engine is gone; or how the member ended. */
tr_status channel_worker_submit(struct channel_worker *worker,
    const struct channel_submission *submission, const struct channel_extra *extra,
    struct tr_error *error);
/* Puts one that the engine need not see before the next call or submission: nobody is woken for it. */
tr_status channel_worker_note(struct channel_worker *worker,
    const struct channel_submission *submission, const struct channel_extra *extra,
    struct tr_error *error);
/* Puts a submission and waits for its answer; returns the answer's status. */
tr_status channel_worker_call(struct channel_worker *worker, struct channel_submission *submission,
    struct channel_answer *answer, struct tr_error *error);

tr_status channel_worker_state(struct channel_worker *worker, const char *name, uint32_t arena,
    uint64_t offset, uint64_t bytes, uint32_t gradual, struct tr_error *error);
tr_status channel_worker_report(struct channel_worker *worker, const void *packed, size_t bytes,
    struct tr_error *error);

/* ---- for ops that are made without the engine (coll_turn.h) ---- */

int channel_worker_commons(const struct channel_worker *worker); /* -1: there is no seat */
/* TR_OK, or how the member ended. */
tr_status channel_worker_alive(struct channel_worker *worker, struct tr_error *error);
/* Asks the system too: or TR_EUNAVAILABLE, the engine is gone. */
tr_status channel_worker_look(struct channel_worker *worker, struct tr_error *error);
/* Waits until the engine knows that there are such ops. */
tr_status channel_worker_scoped(struct channel_worker *worker, struct tr_error *error);
void channel_worker_waits(struct channel_worker *worker, bool waits);
/* 0: nobody. Else to be said again every few milliseconds: it counts for a second. */
void channel_worker_lacks(struct channel_worker *worker, uint64_t peer);
/* So many more, by enum tr_collective, of a round that is committed. */
void channel_worker_made(struct channel_worker *worker, const uint64_t *ops, const uint64_t *bytes);

/* Asks and waits for what the engine tells; returns that status. `links` has room for TR_GROUP_PEERS_MAX; NULL: not wanted. Any
 * thread. */
tr_status channel_worker_ask(struct channel_worker *worker, const struct channel_question *question,
    struct channel_told *told, struct tr_link *links, struct tr_error *error);

/* Counts; true as long as nothing was abandoned since `abandons`. Any thread. */
bool channel_worker_progress(struct channel_worker *worker, uint64_t abandons);
uint64_t channel_worker_abandons(const struct channel_worker *worker);

#endif
