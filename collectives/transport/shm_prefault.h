/* Fills the page table of a mapping of shared memory that another mapping has already touched, in the loop's idle turns.
 *
 * The engine maps a worker's memory a second time, and a mapping's first write to each page is a fault of 1 us: 16,384 of them
 * for 64 MiB, on the path of the worker's first op, on which its peers wait. MADV_POPULATE_READ on a writable mapping of a memfd maps
 * the pages that are there writable, at 4 ms for 64 MiB. Pages that are not there (mincore) are left alone: nothing is allocated here.
 *
 * Each turn takes one slice, so that a turn stays shorter than a millisecond. While there is something to do the loop does not
 * sleep; then its idle handle is stopped. What cannot be filled (an old kernel, no memory for the list) is only slower. What is mapped counts as the process's
 * memory (RssShmem), so the caller bounds it.
 *
 *	shm_prefault_init(&prefault, loop);
 *	shm_prefault_add(&prefault, base, bytes);
 *	...
 *	shm_prefault_end(&prefault, base);        before munmap(base, bytes)
 *	shm_prefault_close(&prefault, on_closed); once; nothing is added afterwards
 *
 * One loop, one thread.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_PREFAULT_H
#define TR_COLLECTIVES_TRANSPORT_SHM_PREFAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct shm_prefault {
	uv_idle_t idle; /* its `data` is the owner's */
	struct shm_range {
		struct shm_range *next;
		unsigned char *base;
		size_t bytes, done;
	} * ranges;
};

void shm_prefault_init(struct shm_prefault *prefault, uv_loop_t *loop);
/* `base` as mmap gave it. After shm_prefault_close: nothing. */
void shm_prefault_add(struct shm_prefault *prefault, void *base, size_t bytes);
/* Forgets the range that begins there; none: nothing. */
void shm_prefault_end(struct shm_prefault *prefault, const void *base);
/* Forgets all; `closed` as of uv_close. */
void shm_prefault_close(struct shm_prefault *prefault, uv_close_cb closed);

#endif
