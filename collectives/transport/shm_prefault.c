#include "collectives/transport/shm_prefault.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

/* Of a turn: 0.25 ms. */
#define SLICE_BYTES ((size_t)4 << 20)
#define PAGE_LEAST  4096u

/* Pages of [at, at + bytes) that are in memory; false: the system does not say so, or fills none. */
static bool fill(unsigned char *at, size_t bytes)
{
	unsigned char there[SLICE_BYTES / PAGE_LEAST];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
	if (mincore(at, bytes, there) != 0)
		return false;
	for (size_t i = 0, end; i < pages; i = end) {
		for (end = i + 1; end < pages && (there[end] & 1) == (there[i] & 1);)
			end++;
		if ((there[i] & 1) != 0 &&
		    madvise(at + i * page, (end - i) * page, MADV_POPULATE_READ) != 0)
			return false;
	}
	return true;
}

static void drop(struct shm_prefault *prefault, struct shm_range **at)
{
	struct shm_range *range = *at;
	*at = range->next;
	free(range);
	if (prefault->ranges == NULL)
		(void)uv_idle_stop(&prefault->idle);
}

static void on_idle(uv_idle_t *idle)
{
	struct shm_prefault *prefault = (struct shm_prefault *)((char *)idle -
	    offsetof(struct shm_prefault, idle));
	struct shm_range *range = prefault->ranges;
	size_t left = range->bytes - range->done;
	size_t slice = left < SLICE_BYTES ? left : SLICE_BYTES;
	bool filled = fill(range->base + range->done, slice);
	range->done += slice;
	if (!filled || slice == left)
		drop(prefault, &prefault->ranges);
}

void shm_prefault_init(struct shm_prefault *prefault, uv_loop_t *loop)
{
	(void)uv_idle_init(loop, &prefault->idle);
	prefault->ranges = NULL;
}

void shm_prefault_add(struct shm_prefault *prefault, void *base, size_t bytes)
{
	struct shm_range **at = &prefault->ranges, *range;
	if (bytes == 0 || uv_is_closing((const uv_handle_t *)&prefault->idle))
		return;
	range = malloc(sizeof(*range));
	if (range == NULL)
		return;
	*range = (struct shm_range){ .base = base, .bytes = bytes };
	while (*at != NULL)
		at = &(*at)->next;
	*at = range;
	(void)uv_idle_start(&prefault->idle, on_idle);
}

void shm_prefault_end(struct shm_prefault *prefault, const void *base)
{
	struct shm_range **at = &prefault->ranges;
	while (*at != NULL && (*at)->base != base)
		at = &(*at)->next;
	if (*at != NULL)
		drop(prefault, at);
}

void shm_prefault_close(struct shm_prefault *prefault, uv_close_cb closed)
{
	while (prefault->ranges != NULL)
		drop(prefault, &prefault->ranges);
	uv_close((uv_handle_t *)&prefault->idle, closed);
}
