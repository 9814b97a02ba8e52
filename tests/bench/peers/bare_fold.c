/* The floor in shared memory: an all-reduce in place among processes of one host that see each other's vectors, without fault
 * tolerance, agreement or checks. Rank r adds up piece r of all vectors and writes the sum into all of them: n S bytes read and n S
 * written, what any all-reduce in place has to move, so for vectors beyond the caches it takes what memory takes.
 *
 *	bare_fold --world 4 --bytes 67108864 --iters 20
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bench/measure.h"
#include "tests/bench/peers/add.h"
#include "tests/bench/processes.h"

#define BLOCK_FLOATS \
	2048u /* of a sum: stays in the first cache, with one vector's block beside it */

struct fold {
	struct processes *processes;
	struct measure_case c;
	char *vectors; /* of all ranks, one after the other */
	size_t bytes;  /* of one rank */
	unsigned rank;
};

static float *of(const struct fold *fold, unsigned rank, const void *data)
{
	size_t at = (size_t)((const char *)data - fold->vectors) % fold->bytes;
	return (float *)(void *)(fold->vectors + rank * fold->bytes + at);
}

static void all_reduce(void *arg, unsigned slot, void *data, size_t bytes)
{
	const struct fold *fold = arg;
	size_t count = bytes / sizeof(float), n = fold->c.world;
	size_t first = count * fold->rank / n, end = count * (fold->rank + 1) / n;
	float sum[BLOCK_FLOATS];
	(void)slot;
	processes_meet(fold->processes); /* all vectors are filled */
	while (first < end) {
		size_t block = end - first < BLOCK_FLOATS ? end - first : BLOCK_FLOATS;
		memcpy(sum, of(fold, 0, data) + first, block * sizeof(float));
		for (unsigned i = 1; i < n; i++)
			add(sum, of(fold, i, data) + first, block);
		for (unsigned i = 0; i < n; i++)
			memcpy(of(fold, i, data) + first, sum, block * sizeof(float));
		first += block;
	}
	processes_meet(fold->processes); /* all sums are written */
}

static void *memory(void *arg, size_t bytes)
{
	const struct fold *fold = arg;
	char *mine = fold->vectors + fold->rank * fold->bytes;
	measure_memory_collapse(mine, bytes);
	return mine;
}

static void meet(void *arg)
{
	processes_meet(((const struct fold *)arg)->processes);
}

static void body(void *arg, unsigned rank)
{
	struct fold *fold = arg;
	fold->rank = fold->c.rank = rank;
	struct measure_calls calls = { .arg = fold,
		.memory = memory,
		.meet = meet,
		.op = all_reduce };
	measure_run(&fold->c, &calls, &fold->processes->results[rank]);
}

/* Where huge pages fit. */
static void *map_shared(size_t bytes)
{
	size_t huge = MEASURE_HUGE_BYTES;
	char *place = mmap(NULL, bytes + huge, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place == MAP_FAILED)
		return MAP_FAILED;
	place += (huge - (uintptr_t)place % huge) % huge;
	return mmap(place, bytes, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int main(int argc, char **argv)
{
	static const char *const algorithms[] = { "direct", NULL };
	static struct fold fold;
	struct measure_options options;
	if (!measure_options_parse(argc, argv, algorithms, &options))
		return 2;
	fold.c = options.c;
	fold.processes = processes_create(fold.c.world);
	fold.bytes = (fold.c.bytes + 63) / 64 * 64 * MEASURE_BATCH;
	fold.vectors = map_shared(fold.bytes * fold.c.world);
	if (fold.processes == NULL || fold.vectors == MAP_FAILED) {
		perror("bare_fold");
		return 1;
	}
	if (!processes_run(fold.c.world, body, &fold))
		return 1;
	measure_print("\"peer\": \"bare fold\", \"algo\": \"direct\", \"transport\": \"shm\"",
	    &fold.c, fold.processes->results);
	processes_destroy(fold.processes);
	return 0;
}
