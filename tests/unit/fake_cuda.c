/* The half of the fake that is the device: memory, streams that run a task at a time, events. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/fake_internal.h"

#define BLOCKS_MAX  256
#define STREAMS_MAX 64
#define EVENTS_MAX  512
#define NAMES_MAX   64
#define DEVICES     2

struct block {
	char *memory;
	size_t bytes;
	bool pinned, registered; /* registered: somebody else's memory */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[BLOCKS_MAX];
static struct cuda_opaque_stream streams[STREAMS_MAX];
static struct cuda_opaque_event events[EVENTS_MAX];
static struct {
	const char *name;
	unsigned count;
} names[NAMES_MAX];
static char violation[256];
static unsigned long copied_bytes;
static struct cuda_opaque_stream default_stream = { .live = true };
static bool no_pinning, never_rests;
static unsigned no_memory; /* so many more calls of cudaMalloc fail */
static _Thread_local int current_device;
static _Thread_local cuda_error last_error; /* as the program would find it */

void fake_broken(const char *format, ...)
{
	va_list arguments;
	if (violation[0] != '\0')
		return;
	va_start(arguments, format);
	(void)vsnprintf(violation, sizeof(violation), format, arguments);
	va_end(arguments);
}

void fake_enter(const char *name)
{
	pthread_mutex_lock(&lock);
	if (last_error != CUDA_OK && strcmp(name, "cudaGetLastError") != 0)
		fake_broken("error %d was left for the program to find", last_error);
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		if (names[i].name == NULL)
			names[i].name = name;
		if (strcmp(names[i].name, name) == 0) {
			names[i].count++;
			return;
		}
	}
}

int fake_leave(int code)
{
	pthread_mutex_unlock(&lock);
	return code;
}

struct cuda_opaque_stream *fake_stream_of(struct cuda_opaque_stream *stream)
{
	return stream != NULL ? stream : &default_stream;
}

bool fake_in_block(const void *memory, size_t bytes, bool pinned)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		if (blocks[i].memory != NULL && blocks[i].pinned == pinned &&
		    (const char *)memory >= blocks[i].memory &&
		    (const char *)memory + bytes <= blocks[i].memory + blocks[i].bytes)
			return true;
	return false;
}

size_t fake_size_of(int dtype)
{
	return dtype == NCCL_FLOAT32 || dtype == NCCL_INT32 ? 4
	    : dtype == NCCL_INT64 || dtype == NCCL_FLOAT64  ? 8
	    : dtype == NCCL_UINT8                           ? 1
	                                                    : 2;
}

/* ---- what runs on streams */

static void add(char *sum, const char *more, size_t count, int dtype, int reduce)
{
	for (size_t i = 0; i < count; i++) {
		if (dtype == NCCL_FLOAT32 && reduce == NCCL_SUM)
			((float *)(void *)sum)[i] += ((const float *)(const void *)more)[i];
		else if (dtype == NCCL_INT64 && reduce == NCCL_SUM)
			((uint64_t *)(void *)sum)[i] += ((const uint64_t *)(const void *)more)[i];
		else
			fake_broken("the fake does not reduce type %d by %d", dtype, reduce);
	}
}

static void compute(struct task **tasks, unsigned size)
{
	const struct task *first = tasks[0];
	size_t each = first->count * fake_size_of(first->dtype);
	size_t whole = each *
	    (first->collective == REDUCE_SCATTER || first->collective == ALL_GATHER ? size : 1);
	char *result = malloc(whole);
	if (result == NULL)
		abort();
	if (first->collective == ALL_GATHER) {
		for (unsigned r = 0; r < size; r++)
			memcpy(result + r * each, tasks[r]->in, each);
	} else {
		memcpy(result, first->in, whole);
		for (unsigned r = 1; r < size && first->collective != BROADCAST; r++)
			add(result, tasks[r]->in, whole / fake_size_of(first->dtype), first->dtype,
			    first->reduce);
	}
	for (unsigned r = 0; r < size; r++)
		if (first->collective != REDUCE || r == 0)
			memcpy(tasks[r]->out,
			    result + (first->collective == REDUCE_SCATTER ? r * each : 0),
			    first->collective == REDUCE_SCATTER ? each : whole);
	free(result);
}

static void pop(struct cuda_opaque_stream *stream)
{
	memmove(stream->tasks, stream->tasks + 1, (stream->count - 1) * sizeof(*stream->tasks));
	stream->count--;
}

/* When the kernels of all ranks have reached the heads of their streams. */
static bool run_collective(const struct task *task)
{
	const struct world *world = task->comm->world;
	struct task *tasks[RANKS_MAX] = { 0 };
	for (unsigned r = 0; r < world->size; r++) {
		const struct nccl_opaque_comm *comm = world->comms[r];
		if (comm == NULL || comm->dead || comm->stream == NULL || comm->stream->count == 0)
			return false;
		tasks[r] = &comm->stream->tasks[0];
		if (tasks[r]->kind != COLLECTIVE || tasks[r]->hangs)
			return false;
		if (tasks[r]->collective != tasks[0]->collective ||
		    tasks[r]->count != tasks[0]->count || tasks[r]->dtype != tasks[0]->dtype)
			return false; /* the real one hangs, or worse */
	}
	compute(tasks, world->size);
	for (unsigned r = 0; r < world->size; r++)
		pop(world->comms[r]->stream);
	return true;
}

/* One task. */
static bool run_one(struct cuda_opaque_stream *stream)
{
	if (stream->count == 0)
		return false;
	struct task *task = &stream->tasks[0];
	switch (task->kind) {
	case COPY:
		memcpy(task->out, task->in, task->bytes);
		break;
	case RECORD:
		task->event->done = task->generation;
		break;
	case WAIT:
		if (task->event->done < task->generation)
			return false;
		break;
	case COLLECTIVE:
		return run_collective(task);
	}
	pop(stream);
	return true;
}

void fake_put(struct cuda_opaque_stream *stream, struct task task)
{
	if (stream->count == TASKS_MAX) {
		fake_broken("more than %d tasks on a stream", TASKS_MAX);
		return;
	}
	if (stream->comm != NULL && !stream->comm->dead && stream->comm->polls > 0 &&
	    task.kind != WAIT)
		fake_broken("something follows a launch that is not complete");
	stream->tasks[stream->count++] = task;
}

static bool used(const char *memory, size_t bytes)
{
	for (unsigned s = 0; s < STREAMS_MAX; s++) {
		for (unsigned i = 0; i < streams[s].count; i++) {
			const char *in = streams[s].tasks[i].in, *out = streams[s].tasks[i].out;
			if ((in >= memory && in < memory + bytes) ||
			    (out >= memory && out < memory + bytes))
				return true;
		}
	}
	return false;
}

/* ---- the CUDA runtime */

cuda_error cudaGetDeviceCount(int *count)
{
	*count = DEVICES;
	return CUDA_OK;
}

cuda_error cudaSetDevice(int device)
{
	if (device < 0 || device >= DEVICES)
		return 101;
	current_device = device;
	return CUDA_OK;
}

cuda_error cudaGetDevice(int *device)
{
	*device = current_device;
	return CUDA_OK;
}

static cuda_error allocate(void **memory, size_t bytes, bool pinned)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		if (blocks[i].memory != NULL)
			continue;
		blocks[i] = (struct block){ malloc(bytes + 1), bytes, pinned, false };
		if (blocks[i].memory == NULL)
			return 2;
		memset(blocks[i].memory, 0x5a, bytes);
		*memory = blocks[i].memory;
		return CUDA_OK;
	}
	return 2;
}

static cuda_error release(void *memory, bool pinned)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		if (blocks[i].memory != memory || memory == NULL || blocks[i].pinned != pinned ||
		    blocks[i].registered)
			continue;
		if (used(blocks[i].memory, blocks[i].bytes))
			fake_broken("memory is freed that a stream still uses");
		free(blocks[i].memory);
		blocks[i].memory = NULL;
		return CUDA_OK;
	}
	fake_broken("memory is freed that was not allocated");
	return 1;
}

cuda_error cudaMalloc(void **memory, size_t bytes)
{
	fake_enter(__func__);
	if (no_memory > 0) {
		no_memory--;
		return fake_leave(last_error = 2);
	}
	return fake_leave(allocate(memory, bytes, false));
}

cuda_error cudaFree(void *memory)
{
	fake_enter(__func__);
	return fake_leave(release(memory, false));
}

cuda_error cudaHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
	fake_enter(__func__);
	if (flags != CUDA_HOST_ALLOC_DEFAULT)
		fake_broken("cudaHostAlloc has flags");
	return fake_leave(allocate(memory, bytes, true));
}

cuda_error cudaFreeHost(void *memory)
{
	fake_enter(__func__);
	return fake_leave(release(memory, true));
}

static bool stands_still(const struct cuda_opaque_stream *stream)
{
	return never_rests && stream->comm != NULL && stream->comm->dead;
}

cuda_error cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
	fake_enter(__func__);
	if (flags != CUDA_HOST_REGISTER_DEFAULT)
		fake_broken("cudaHostRegister has flags");
	for (unsigned s = 0; s < STREAMS_MAX; s++)
		if (streams[s].live && streams[s].comm != NULL &&
		    streams[s].comm->own == pthread_self() && streams[s].count > 0)
			fake_broken("memory is pinned while a collective is under way");
	for (unsigned i = 0; i < BLOCKS_MAX && !no_pinning; i++) {
		if (blocks[i].memory != NULL)
			continue;
		blocks[i] = (struct block){ memory, bytes, true, true };
		return fake_leave(CUDA_OK);
	}
	return fake_leave(last_error = 2);
}

cuda_error cudaHostUnregister(void *memory)
{
	fake_enter(__func__);
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		if (blocks[i].memory != memory || !blocks[i].registered)
			continue;
		if (used(blocks[i].memory, blocks[i].bytes))
			fake_broken("memory is unpinned that a stream still uses");
		blocks[i] = (struct block){ 0 };
		return fake_leave(CUDA_OK);
	}
	fake_broken("memory is unpinned that was not pinned");
	return fake_leave(last_error = 1);
}

cuda_error cudaGetLastError(void)
{
	fake_enter(__func__);
	cuda_error code = last_error;
	last_error = CUDA_OK;
	return fake_leave(code);
}

cuda_error cudaMemcpyAsync(void *out, const void *in, size_t bytes, cuda_copy kind,
    cuda_stream stream)
{
	fake_enter(__func__);
	bool down = kind == CUDA_DEVICE_TO_HOST, up = kind == CUDA_HOST_TO_DEVICE;
	if (!fake_in_block(out, bytes, down) || !fake_in_block(in, bytes, up))
		fake_broken("a copy (kind %d) is not between pinned and device memory", kind);
	copied_bytes += down ? bytes : 0;
	fake_put(fake_stream_of(stream),
	    (struct task){ .kind = COPY, .out = out, .in = in, .bytes = bytes });
	return fake_leave(CUDA_OK);
}

cuda_error cudaStreamCreateWithFlags(cuda_stream *stream, unsigned int flags)
{
	fake_enter(__func__);
	for (unsigned i = 0; i < STREAMS_MAX; i++) {
		if (streams[i].live)
			continue;
		streams[i] = (struct cuda_opaque_stream){ .live = flags ==
			    CUDA_STREAM_NON_BLOCKING };
		*stream = &streams[i];
		return fake_leave(CUDA_OK);
	}
	return fake_leave(2);
}

cuda_error cudaStreamDestroy(cuda_stream stream)
{
	fake_enter(__func__);
	if (stream->count > 0)
		fake_broken("a stream is destroyed with %u tasks on it", stream->count);
	stream->live = false;
	return fake_leave(CUDA_OK);
}

cuda_error cudaStreamSynchronize(cuda_stream stream)
{
	fake_enter(__func__);
	while (run_one(fake_stream_of(stream)))
		continue;
	return fake_leave(CUDA_OK);
}

cuda_error cudaStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned int flags)
{
	fake_enter(__func__);
	fake_put(fake_stream_of(stream),
	    (struct task){ .kind = WAIT, .event = event, .generation = event->recorded + flags });
	return fake_leave(CUDA_OK);
}

cuda_error cudaEventCreateWithFlags(cuda_event *event, unsigned int flags)
{
	fake_enter(__func__);
	for (unsigned i = 0; i < EVENTS_MAX; i++) {
		if (events[i].live)
			continue;
		events[i] = (struct cuda_opaque_event){ .live = flags == CUDA_EVENT_DISABLE_TIMING,
			.device = current_device };
		*event = &events[i];
		return fake_leave(CUDA_OK);
	}
	return fake_leave(2);
}

cuda_error cudaEventRecord(cuda_event event, cuda_stream stream)
{
	fake_enter(__func__);
	if (stream == NULL &&
	    event->device != current_device) /* the other device's default stream */
		return fake_leave(last_error = 400);
	event->stream = fake_stream_of(stream);
	fake_put(event->stream,
	    (struct task){ .kind = RECORD, .event = event, .generation = ++event->recorded });
	if (event->stream == &default_stream) /* the program's stream is always idle here */
		(void)run_one(event->stream);
	return fake_leave(CUDA_OK);
}

cuda_error cudaEventQuery(cuda_event event)
{
	fake_enter(__func__);
	struct nccl_opaque_comm *comm = event->stream != NULL ? event->stream->comm : NULL;
	if (comm != NULL && !comm->dead && !comm->looked)
		fake_broken("an event is looked at, but asynchronous errors are not");
	if (comm != NULL)
		comm->looked = false;
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		if (streams[i].live && !stands_still(&streams[i]))
			(void)run_one(&streams[i]);
	if (event->done != event->recorded)
		last_error = CUDA_NOT_READY;
	return fake_leave(last_error);
}

cuda_error cudaEventDestroy(cuda_event event)
{
	fake_enter(__func__);
	event->live = false;
	return fake_leave(CUDA_OK);
}

const char *cudaGetErrorString(cuda_error error)
{
	return error == CUDA_OK ? "no error" : "an error of the fake";
}

/* ---- for the other half */

const char *fake_first_broken(void)
{
	return violation[0] != '\0' ? violation : NULL;
}

unsigned fake_call_count(const char *name)
{
	unsigned count = 0;
	for (unsigned i = 0; i < NAMES_MAX && names[i].name != NULL; i++)
		if (strcmp(names[i].name, name) == 0)
			count = names[i].count;
	return count;
}

unsigned fake_device_live(void)
{
	unsigned count = 0;
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		count += blocks[i].memory != NULL;
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		count += streams[i].live;
	for (unsigned i = 0; i < EVENTS_MAX; i++)
		count += events[i].live;
	return count;
}

/* What stood still goes on, late. */
void fake_device_goes_on(void)
{
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		if (stands_still(&streams[i]) && streams[i].count > 0)
			never_rests = false;
}

void fake_device_trouble(bool cannot_pin, bool does_not_rest, unsigned allocations_fail)
{
	no_memory = allocations_fail;
	no_pinning = cannot_pin;
	never_rests = does_not_rest;
}

unsigned long fake_copied_bytes(void)
{
	return copied_bytes;
}

void fake_device_reset(void)
{
	memset(names, 0, sizeof(names));
	memset(streams, 0, sizeof(streams));
	memset(events, 0, sizeof(events));
	memset(blocks, 0, sizeof(blocks)); /* what a device that never rested kept */
	violation[0] = '\0';
	copied_bytes = 0;
	no_pinning = never_rests = false;
}
