/* What the two halves of the fake share: fake_cuda.c (memory, streams, events) and fake_nccl.c (communicators). One lock. */
#ifndef TR_TESTS_FAKE_INTERNAL_H
#define TR_TESTS_FAKE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "collectives/backend/nccl_abi.h"
#include "tests/unit/fake_nccl.h"

#pragma GCC visibility push(default)
#define DECLARE(result, name, parameters) result name parameters;
NCCL_CALLS(DECLARE)
CUDA_CALLS(DECLARE)
extern const struct fake_calls fake;
#pragma GCC visibility pop

#define RANKS_MAX 8
#define TASKS_MAX 600

enum task_kind { COPY, RECORD, WAIT, COLLECTIVE };
enum collective { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE };

struct task {
	enum task_kind kind;
	void *out;
	const void *in;
	size_t bytes; /* COPY; of a collective: of its count */
	struct cuda_opaque_event *event;
	uint64_t generation;
	enum collective collective;
	size_t count;
	int dtype, reduce;
	struct nccl_opaque_comm *comm;
	bool hangs;
};

struct cuda_opaque_stream {
	bool live;
	struct task tasks[TASKS_MAX];
	unsigned count;
	struct nccl_opaque_comm *comm; /* that launched here last */
};

struct cuda_opaque_event {
	bool live;
	int device;
	uint64_t recorded, done;
	struct cuda_opaque_stream *stream;
};

struct world {
	char id[128];
	unsigned size, here;
	struct nccl_opaque_comm *comms[RANKS_MAX];
	bool hangs;
};

struct nccl_opaque_comm {
	struct world *world;
	unsigned rank, polls; /* polls: until the launch is complete */
	bool opening, error, dead, looked, finalized, aborting;
	struct cuda_opaque_stream *stream;
	pthread_t own; /* whose it is */
};

void fake_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Takes the lock and counts the call; the other lets it go and returns `code`. */
void fake_enter(const char *name);
int fake_leave(int code);
const char *fake_first_broken(void);
unsigned fake_call_count(const char *name);

size_t fake_size_of(int dtype);
bool fake_in_block(const void *memory, size_t bytes, bool pinned);
struct cuda_opaque_stream *fake_stream_of(struct cuda_opaque_stream *stream);
void fake_put(struct cuda_opaque_stream *stream, struct task task);
unsigned fake_device_live(void); /* blocks, streams, events */
unsigned long fake_copied_bytes(void);
void fake_device_trouble(bool cannot_pin, bool does_not_rest, unsigned allocations_fail);
void fake_device_goes_on(void);
void fake_device_reset(void);

#endif
