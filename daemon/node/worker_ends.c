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

static void measure(struct worker_ends *ends, size_t place)
{
	const Traind__Peer__WorkerExited *end = ends->ends[place];
	ends->bytes -= ends->sizes[place];
	ends->sizes[place] = end != NULL ? traind__peer__worker_exited__get_packed_size(end) : 0;
	ends->bytes += ends->sizes[place];
}

static void drop(struct worker_ends *ends, size_t place)
{
	if (ends->ends[place] != NULL)
		traind__peer__worker_exited__free_unpacked(ends->ends[place], NULL);
	ends->ends[place] = NULL;
	measure(ends, place);
}

static void drop_words(struct worker_ends *ends, size_t place)
{
	Traind__Peer__WorkerExited *end = ends->ends[place];
	if (end == NULL || end->last_words == NULL)
		return;
	traind__peer__last_words__free_unpacked(end->last_words, NULL);
	end->last_words = NULL;
	measure(ends, place);
}

static size_t oldest(const struct worker_ends *ends)
{
	return ends->count > WORKER_ENDS_MAX ? ends->count - WORKER_ENDS_MAX : 0;
}

void worker_ends_keep(struct worker_ends *ends, const Traind__Peer__WorkerExited *end)
{
	size_t place = ends->count++ % WORKER_ENDS_MAX;
	drop(ends, place);
	ends->ends[place] = copy(end);
	measure(ends, place);
	for (size_t i = oldest(ends); i < ends->count && ends->bytes > WORKER_ENDS_BYTES_MAX; i++)
		drop_words(ends, i % WORKER_ENDS_MAX);
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
	for (size_t i = oldest(ends); i < ends->count; i++)
		if (ends->ends[i % WORKER_ENDS_MAX] != NULL)
			each(arg, ends->ends[i % WORKER_ENDS_MAX]);
}

void worker_ends_finish(struct worker_ends *ends)
{
	for (size_t i = 0; i < WORKER_ENDS_MAX; i++)
		drop(ends, i);
	*ends = (struct worker_ends){ 0 };
}
