/* Memory that processes of one host share: memfds that cannot shrink, so that no mapping of them can fault. Pure system
 * calls; any thread.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_MEMORY_H
#define TR_COLLECTIVES_TRANSPORT_SHM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

/* Zeroed, mapped for reading and writing, its size sealed. The descriptor (close-on-exec) and the mapping are the caller's;
 * `name` is what /proc/PID/maps shows. */
tr_status shm_memory_create(const char *name, size_t bytes, int *fd, void **base,
    struct tr_error *error);
/* The same, but that nobody can write it but through this mapping: the descriptor may be given away as it is. */
tr_status shm_memory_create_shown(const char *name, size_t bytes, int *fd, void **base,
    struct tr_error *error);

/* Makes the pages of [at, at + bytes), all of which is about to be used, at once, as huge ones: they come in a tenth of the time that first touches take, are
 * there for every other mapping too, and miss less. What is not a whole huge page (SHM_HUGE_BYTES, aligned so in the memory that one of the calls above made)
 * is left for first touches. What was written stays. False: so is the rest, and it is not worth asking again: the kernel has none to give, took long to find some (the slice that did
 * is looked at afterwards), or does not know how (before Linux 6.1; shared memory with "deny"). The kernel waits for a moment of every processor: beside a thread of real-time priority
 * that never sleeps that is as long as the system lets it be (sched_rt_runtime_us). */
#define SHM_HUGE_BYTES ((size_t)ARENA_HUGE_PAGE)
bool shm_memory_fill(void *at, size_t bytes);

/* TR_EPROTO with the cause unless `fd` is a memfd of at least `bytes` bytes that is sealed against shrinking and of
 * ordinary pages (huge ones fault when there are none left). */
tr_status shm_memory_check(int fd, uint64_t bytes, struct tr_error *error);

/* Maps the first `bytes` of what somebody else made, after shm_memory_check. `fd` stays the caller's. */
tr_status shm_memory_map(int fd, size_t bytes, bool writable, void **base, struct tr_error *error);

/* The same memory behind a descriptor that can only be read and mapped for reading; -1: errno. `fd` stays open. */
int shm_memory_read_only(int fd);

#endif
