#include "daemon/node/worker_ends.h"

#include <stdlib.h>

static Traind__Peer__WorkerExited *copy(const Traind__Peer__WorkerExited *end)
{
	size_t bytes = traind__peer__worker_exited__get_packed_size(end);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return NULL;
	(void)traind__peer__worker_exited__pack(end, packed);
	Traind__Peer__WorkerExited *made = traind__peer__worker_exited__unpack(NULL, bytes, packed);
	free(packed);
	return made;
}

static void drop(Traind__Peer__WorkerExited *end)
{
	if (end != NULL)
		traind__peer__worker_exited__free_unpacked(end, NULL);
}

void worker_ends_keep(struct worker_ends *ends, const Traind__Peer__WorkerExited *end)
{
	Traind__Peer__WorkerExited **place = &ends->ends[ends->count++ % WORKER_ENDS_MAX];
	drop(*place);
	*place = copy(end);
}

Traind__Peer__WorkerExited *worker_ends_find(const struct worker_ends *ends, uint64_t peer)
{
	for (size_t i = 0; i < WORKER_ENDS_MAX && i < ends->count; i++)
		if (ends->ends[i] != NULL && ends->ends[i]->peer == peer)
			return ends->ends[i];
	return NULL;
}

void worker_ends_each(const struct worker_ends *ends,
    void (*each)(void *arg, Traind__Peer__WorkerExited *end), void *arg)
{
	size_t first = ends->count > WORKER_ENDS_MAX ? ends->count - WORKER_ENDS_MAX : 0;
	for (size_t i = first; i < ends->count; i++)
		if (ends->ends[i % WORKER_ENDS_MAX] != NULL)
			each(arg, ends->ends[i % WORKER_ENDS_MAX]);
}

void worker_ends_finish(struct worker_ends *ends)
{
	for (size_t i = 0; i < WORKER_ENDS_MAX; i++)
		drop(ends->ends[i]);
	*ends = (struct worker_ends){ 0 };
}
