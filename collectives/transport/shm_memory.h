/* Memory that processes of one host share: memfds that cannot shrink, so that no mapping of them can fault. Pure system
 * calls; any thread.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_MEMORY_H
#define TR_COLLECTIVES_TRANSPORT_SHM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
 * is left for first touches. So is the rest as soon as the kernel has none to give or looks for them for long, and all where it does not know how (before Linux 6.1), where
 * shared memory may have none ("deny") and where huge pages have another size. What was written stays. */
#define SHM_HUGE_BYTES ((size_t)2 << 20)
void shm_memory_fill(void *at, size_t bytes);

/* TR_EPROTO with the cause unless `fd` is a memfd of at least `bytes` bytes that is sealed against shrinking and of
 * ordinary pages (huge ones fault when there are none left). */
tr_status shm_memory_check(int fd, uint64_t bytes, struct tr_error *error);

/* Maps the first `bytes` of what somebody else made, after shm_memory_check. `fd` stays the caller's. */
tr_status shm_memory_map(int fd, size_t bytes, bool writable, void **base, struct tr_error *error);

/* The same memory behind a descriptor that can only be read and mapped for reading; -1: errno. `fd` stays open. */
int shm_memory_read_only(int fd);

#endif
