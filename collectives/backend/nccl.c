/* Backend "nccl": a non-blocking communicator, whose asynchronous errors are polled before every step, since a kernel of
 * NCCL's hangs until it is aborted when a peer dies. Ops that end or begin in host memory go in chunks through two slots of
 * pinned memory, so that chunk k crosses PCIe while k+1 is reduced:
 *
 *	reduce:     ncclReduce -> slot's device memory -> cudaMemcpyAsync -> slot's pinned memory -> (event) -> host
 *	broadcast:  host -> slot's pinned memory -> cudaMemcpyAsync -> out -> ncclBroadcast -> (event)
 *
 * without NCCL where a member is alone, and straight to and from the host's memory where that is pinned (`pin`). Memory is allocated in open and pinned between ops
 * alone: cudaMalloc and its like wait for running kernels, and with one of NCCL's would hang.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/backend/backend.h"
#include "collectives/backend/nccl_load.h"

#define NCCL_SLOTS     2
#define NCCL_REMOTE    6 /* ncclRemoteError */
#define NCCL_FINISH_MS 2000
#define NCCL_OPS_MAX   512

_Static_assert(sizeof(nccl_id) == BACKEND_ID_BYTES, "the unique id travels in backend_place");

struct nccl_slot {
	void *pinned, *device; /* rank 0 alone */
	cuda_event done;
};

struct backend_comm {
	struct nccl_calls c;
	nccl_comm comm;
	unsigned rank, size;
	int device;
	cuda_stream stream, user_stream;
	cuda_event ready; /* what the user's stream held at start */
	struct nccl_slot slots[NCCL_SLOTS];
	struct backend_op ops[NCCL_OPS_MAX];
	size_t head, count;
	uint64_t done;
	/* Chunks of the op at the head: launched >= staged >= drained. Staged: its copy and its event are on the stream. */
	size_t launched, staged, drained;
};

static pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_calls nccl_loaded; /* under the lock; valid after enter */

static tr_status nccl_fail(const struct backend_comm *comm, const char *what, nccl_result code,
    struct tr_error *error)
{
	const char *more = comm->comm != NULL ? comm->c.ncclGetLastError(comm->comm) : NULL;
	return tr_error_set(error, code == NCCL_REMOTE ? TR_EPEERLOST : TR_EIO, "NCCL: %s: %s%s%s",
	    what, comm->c.ncclGetErrorString(code), more != NULL && more[0] != '\0' ? "; " : "",
	    more != NULL ? more : "");
}

/* It is told here, so the program's own look is not to find it: it may well be over when a communicator is built again. */
static tr_status cuda_fail(const struct nccl_calls *c, const char *what, cuda_error code,
    struct tr_error *error)
{
	(void)c->cudaGetLastError();
	return tr_error_set(error, TR_EIO, "CUDA: %s: %s", what, c->cudaGetErrorString(code));
}

static uint64_t nccl_now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static tr_status nccl_enter(struct backend_place *place, struct tr_error *error)
{
	struct nccl_calls calls;
	tr_status st = nccl_load(place->nccl_library, place->cuda_library, &calls, error);
	if (st != TR_OK)
		return st;
	cuda_error code = calls.cudaSetDevice(place->device);
	if (code != CUDA_OK)
		return cuda_fail(&calls, "cudaSetDevice", code, error);
	pthread_mutex_lock(&nccl_lock);
	nccl_loaded = calls;
	pthread_mutex_unlock(&nccl_lock);
	return TR_OK;
}

static struct nccl_calls nccl_calls_loaded(void)
{
	pthread_mutex_lock(&nccl_lock);
	struct nccl_calls calls = nccl_loaded;
	pthread_mutex_unlock(&nccl_lock);
	return calls;
}

static tr_status nccl_make_id(struct backend_place *place, struct tr_error *error)
{
	struct nccl_calls calls = nccl_calls_loaded();
	nccl_id id;
	nccl_result code = calls.ncclGetUniqueId(&id);
	if (code != NCCL_OK)
		return tr_error_set(error, TR_EIO, "NCCL: ncclGetUniqueId: %s",
		    calls.ncclGetErrorString(code));
	memcpy(place->id, &id, sizeof(id));
	return TR_OK;
}

/* ---- opening and ending */

static void nccl_free(struct backend_comm *comm)
{
	const struct nccl_calls *c = &comm->c;
	for (size_t i = 0; i < NCCL_SLOTS; i++) {
		struct nccl_slot *slot = &comm->slots[i];
		if (slot->pinned != NULL)
			(void)c->cudaFreeHost(slot->pinned);
		if (slot->device != NULL)
			(void)c->cudaFree(slot->device);
		if (slot->done != NULL)
			(void)c->cudaEventDestroy(slot->done);
	}
	if (comm->ready != NULL)
		(void)c->cudaEventDestroy(comm->ready);
	if (comm->stream != NULL)
		(void)c->cudaStreamDestroy(comm->stream);
	free(comm);
}

static cuda_error nccl_allocate(struct backend_comm *comm)
{
	const struct nccl_calls *c = &comm->c;
	cuda_error code = c->cudaStreamCreateWithFlags(&comm->stream, CUDA_STREAM_NON_BLOCKING);
	if (code == CUDA_OK)
		code = c->cudaEventCreateWithFlags(&comm->ready, CUDA_EVENT_DISABLE_TIMING);
	for (size_t i = 0; i < NCCL_SLOTS && code == CUDA_OK; i++) {
		struct nccl_slot *slot = &comm->slots[i];
		code = c->cudaEventCreateWithFlags(&slot->done, CUDA_EVENT_DISABLE_TIMING);
		if (code == CUDA_OK && comm->rank == 0)
			code = c->cudaHostAlloc(&slot->pinned, TR_BACKEND_CHUNK_BYTES,
			    CUDA_HOST_ALLOC_DEFAULT);
		if (code == CUDA_OK && comm->rank == 0)
			code = c->cudaMalloc(&slot->device, TR_BACKEND_CHUNK_BYTES);
	}
	return code;
}

static tr_status nccl_open(const struct backend_place *place, struct backend_comm **out,
    struct tr_error *error)
{
	struct nccl_config config = { .size = sizeof(config),
		.magic = NCCL_CONFIG_MAGIC,
		.version = NCCL_CONFIG_VERSION,
		.blocking = 0 };
	struct backend_comm *comm = calloc(1, sizeof(*comm));
	if (comm == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	comm->c = nccl_calls_loaded();
	comm->rank = place->rank;
	comm->size = place->size;
	comm->device = place->device;
	comm->user_stream = place->stream;
	tr_status st;
	cuda_error cuda = comm->c.cudaSetDevice(place->device);
	if (cuda == CUDA_OK)
		cuda = nccl_allocate(comm);
	if (cuda != CUDA_OK) {
		st = cuda_fail(&comm->c, "opening", cuda, error);
		goto free_comm;
	}
	nccl_id id;
	memcpy(&id, place->id, sizeof(id));
	nccl_result code = comm->c.ncclCommInitRankConfig(&comm->comm, (int)place->size, id,
	    (int)place->rank, (nccl_config_type *)&config);
	if (code != NCCL_OK && code != NCCL_IN_PROGRESS) {
		st = nccl_fail(comm, "ncclCommInitRankConfig", code, error);
		if (comm->comm != NULL)
			(void)comm->c.ncclCommAbort(comm->comm);
		goto free_comm;
	}
	*out = comm;
	return TR_OK;
free_comm:
	nccl_free(comm);
	return st;
}

/* "Not ready" is kept as the thread's last error, as any other is: the program's own look at it would find ours. */
static cuda_error nccl_query(const struct nccl_calls *c, cuda_event event)
{
	cuda_error code = c->cudaEventQuery(event);
	if (code != CUDA_OK)
		(void)c->cudaGetLastError();
	return code;
}

/* Nothing on the stream touches memory any more. False: it does not come to rest, as when the program's own stream, which
 * ours waits for, hangs. */
static bool nccl_at_rest(struct backend_comm *comm)
{
	const struct nccl_calls *c = &comm->c;
	uint64_t until = nccl_now_ms() + NCCL_FINISH_MS;
	if (c->cudaEventRecord(comm->ready, comm->stream) != CUDA_OK) {
		(void)c->cudaGetLastError();
		return true; /* the device is gone, and its kernels with it */
	}
	while (nccl_query(c, comm->ready) == CUDA_NOT_READY) {
		if (nccl_now_ms() > until)
			return false;
		(void)nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	return true;
}

static bool nccl_abort(struct backend_comm *comm)
{
	if (comm->comm != NULL)
		(void)comm->c.ncclCommAbort(comm->comm);
	comm->comm = NULL;
	if (!nccl_at_rest(comm))
		return false; /* all is left to the device */
	nccl_free(comm);
	return true;
}

static bool nccl_pin(void *memory, size_t bytes)
{
	struct nccl_calls calls = nccl_calls_loaded();
	if (calls.cudaHostRegister(memory, bytes, CUDA_HOST_REGISTER_DEFAULT) == CUDA_OK)
		return true;
	(void)calls.cudaGetLastError();
	return false;
}

static void nccl_unpin(void *memory)
{
	struct nccl_calls calls = nccl_calls_loaded();
	if (calls.cudaHostUnregister(memory) != CUDA_OK)
		(void)calls.cudaGetLastError();
}

static void nccl_close(struct backend_comm *comm)
{
	if (comm == NULL)
		return;
	const struct nccl_calls *c = &comm->c;
	uint64_t until = nccl_now_ms() + NCCL_FINISH_MS;
	nccl_result code = c->ncclCommFinalize(comm->comm);
	while (code == NCCL_IN_PROGRESS && nccl_now_ms() < until) {
		if (c->ncclCommGetAsyncError(comm->comm, &code) != NCCL_OK)
			break;
		if (code == NCCL_IN_PROGRESS)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	if (code != NCCL_OK) {
		(void)nccl_abort(comm);
		return;
	}
	(void)c->ncclCommDestroy(comm->comm);
	nccl_free(comm);
}

static void nccl_leave(bool clean)
{
	(void)clean; /* libraries stay loaded: others may use them */
}

/* ---- what ops become */

static int nccl_dtype_of(enum tr_dtype dtype, size_t *bytes)
{
	static const struct {
		int nccl;
		size_t bytes;
	} rows[] = {
		[TR_F32] = { NCCL_FLOAT32, 4 },
		[TR_F64] = { NCCL_FLOAT64, 8 },
		[TR_I32] = { NCCL_INT32, 4 },
		[TR_I64] = { NCCL_INT64, 8 },
		[TR_F16] = { NCCL_FLOAT16, 2 },
		[TR_BF16] = { NCCL_BFLOAT16, 2 },
		[TR_U8] = { NCCL_UINT8, 1 },
	};
	if ((unsigned)dtype >= sizeof(rows) / sizeof(*rows) || rows[dtype].bytes == 0)
		return -1;
	*bytes = rows[dtype].bytes;
	return rows[dtype].nccl;
}

static int nccl_reduce_of(enum tr_reduce reduce)
{
	switch (reduce) {
	case TR_SUM:
		return NCCL_SUM;
	case TR_PROD:
		return NCCL_PROD;
	case TR_MIN:
		return NCCL_MIN;
	case TR_MAX:
		return NCCL_MAX;
	default:
		return -1;
	}
}

static bool nccl_supports(enum tr_dtype dtype, enum tr_reduce reduce)
{
	size_t bytes;
	return nccl_dtype_of(dtype, &bytes) >= 0 && nccl_reduce_of(reduce) >= 0;
}

/* All members must see the same chunks, so only what they all know counts. */
static size_t nccl_chunk_elements(const struct backend_op *op)
{
	size_t bytes = 1;
	bool staged = op->kind == BACKEND_REDUCE || op->kind == BACKEND_BROADCAST;
	(void)nccl_dtype_of(op->dtype, &bytes);
	return staged ? TR_BACKEND_CHUNK_BYTES / bytes : op->count;
}

static size_t nccl_chunks(const struct backend_op *op)
{
	size_t elements = nccl_chunk_elements(op);
	return op->count == 0 ? 0 : (op->count + elements - 1) / elements;
}

static nccl_result nccl_call(struct backend_comm *comm, const struct backend_op *op,
    const struct nccl_slot *slot, size_t offset, size_t count)
{
	const struct nccl_calls *c = &comm->c;
	size_t bytes;
	int dtype = nccl_dtype_of(op->dtype, &bytes), reduce = nccl_reduce_of(op->reduce);
	const char *in = op->in != NULL ? (const char *)op->in + offset : NULL;
	char *out = op->out != NULL ? (char *)op->out + offset : NULL;
	switch (op->kind) {
	case BACKEND_ALL_REDUCE:
		return c->ncclAllReduce(in, out, count, dtype, reduce, comm->comm, comm->stream);
	case BACKEND_REDUCE_SCATTER:
		return c->ncclReduceScatter(in, out, count, dtype, reduce, comm->comm, comm->stream);
	case BACKEND_ALL_GATHER:
		return c->ncclAllGather(in, out, count, dtype, comm->comm, comm->stream);
	case BACKEND_BROADCAST:
		return c->ncclBroadcast(comm->rank == 0 && op->host == NULL ? in : out, out, count,
		    dtype, 0, comm->comm, comm->stream);
	case BACKEND_REDUCE:
		return c->ncclReduce(in, slot->device, count, dtype, reduce, 0, comm->comm,
		    comm->stream);
	}
	return NCCL_INVALID_ARGUMENT;
}

/* Offset in elements and length of chunk `index` of the op at the head. */
static size_t nccl_chunk(const struct backend_op *op, size_t index, size_t *count)
{
	size_t elements = nccl_chunk_elements(op), first = index * elements;
	*count = op->count - first < elements ? op->count - first : elements;
	return first;
}

/* Where the device reads or writes a chunk in the host's memory. */
static void *nccl_host(const struct backend_op *op, const struct nccl_slot *slot, size_t offset)
{
	return op->pinned ? (char *)op->host + offset : slot->pinned;
}

/* A member that is alone has the sum already. */
static tr_status nccl_copy(struct backend_comm *comm, const struct backend_op *op, size_t offset,
    size_t bytes, struct tr_error *error)
{
	if (op->kind == BACKEND_REDUCE || op->host != NULL || op->in == op->out)
		return TR_OK; /* it goes to the host, it came from there, it is in place */
	cuda_error code = comm->c.cudaMemcpyAsync((char *)op->out + offset,
	    (const char *)op->in + offset, bytes, CUDA_DEVICE_TO_DEVICE, comm->stream);
	return code == CUDA_OK ? TR_OK : cuda_fail(&comm->c, "copying", code, error);
}

static tr_status nccl_launch(struct backend_comm *comm, struct tr_error *error)
{
	const struct nccl_calls *c = &comm->c;
	const struct backend_op *op = &comm->ops[comm->head];
	struct nccl_slot *slot = &comm->slots[comm->launched % NCCL_SLOTS];
	size_t count, bytes = 1, first = nccl_chunk(op, comm->launched, &count);
	(void)nccl_dtype_of(op->dtype, &bytes);
	if (op->kind == BACKEND_BROADCAST && op->host != NULL) {
		const void *from = nccl_host(op, slot, first * bytes);
		if (!op->pinned)
			memcpy(slot->pinned, (const char *)op->host + first * bytes, count * bytes);
		cuda_error code = c->cudaMemcpyAsync((char *)op->out + first * bytes, from,
		    count * bytes, CUDA_HOST_TO_DEVICE, comm->stream);
		if (code != CUDA_OK)
			return cuda_fail(c, "copying to the device", code, error);
	}
	if (comm->size == 1) {
		tr_status st = nccl_copy(comm, op, first * bytes, count * bytes, error);
		comm->launched += st == TR_OK;
		return st;
	}
	nccl_result code = c->ncclGroupStart();
	if (code != NCCL_OK)
		return nccl_fail(comm, "ncclGroupStart", code, error);
	nccl_result called = nccl_call(comm, op, slot, first * bytes, count);
	code = c->ncclGroupEnd();
	if (called != NCCL_OK && called != NCCL_IN_PROGRESS)
		return nccl_fail(comm, "a collective", called, error);
	if (code != NCCL_OK && code != NCCL_IN_PROGRESS)
		return nccl_fail(comm, "ncclGroupEnd", code, error);
	comm->launched++;
	return TR_OK;
}

/* After the launch is complete: what follows it on the stream. */
static tr_status nccl_stage(struct backend_comm *comm, struct tr_error *error)
{
	const struct nccl_calls *c = &comm->c;
	const struct backend_op *op = &comm->ops[comm->head];
	struct nccl_slot *slot = &comm->slots[comm->staged % NCCL_SLOTS];
	size_t count, bytes = 1;
	cuda_error code = CUDA_OK;
	size_t first = nccl_chunk(op, comm->staged, &count);
	(void)nccl_dtype_of(op->dtype, &bytes);
	const void *sum = comm->size == 1 ? (const char *)op->in + first * bytes : slot->device;
	if (op->kind == BACKEND_REDUCE && comm->rank == 0)
		code = c->cudaMemcpyAsync(nccl_host(op, slot, first * bytes), sum, count * bytes,
		    CUDA_DEVICE_TO_HOST, comm->stream);
	if (code == CUDA_OK)
		code = c->cudaEventRecord(slot->done, comm->stream);
	if (code != CUDA_OK)
		return cuda_fail(c, "copying from the device", code, error);
	comm->staged++;
	return TR_OK;
}

/* TR_EAGAIN: the oldest chunk is not through. */
static tr_status nccl_drain(struct backend_comm *comm, struct tr_error *error)
{
	const struct backend_op *op = &comm->ops[comm->head];
	struct nccl_slot *slot = &comm->slots[comm->drained % NCCL_SLOTS];
	size_t count, bytes = 1, first = nccl_chunk(op, comm->drained, &count);
	cuda_error code = nccl_query(&comm->c, slot->done);
	if (code == CUDA_NOT_READY)
		return TR_EAGAIN;
	if (code != CUDA_OK)
		return cuda_fail(&comm->c, "a collective", code, error);
	(void)nccl_dtype_of(op->dtype, &bytes);
	if (op->kind == BACKEND_REDUCE && comm->rank == 0 && !op->pinned)
		memcpy((char *)op->host + first * bytes, slot->pinned, count * bytes);
	comm->drained++;
	return TR_OK;
}

/* TR_OK: something moved. TR_EAGAIN: all waits for the device. */
static tr_status nccl_step(struct backend_comm *comm, struct tr_error *error)
{
	size_t chunks = nccl_chunks(&comm->ops[comm->head]);
	if (comm->drained == chunks) {
		comm->head = (comm->head + 1) % NCCL_OPS_MAX;
		comm->count--;
		comm->done++;
		comm->launched = comm->staged = comm->drained = 0;
		return TR_OK;
	}
	if (comm->staged < comm->launched)
		return nccl_stage(comm, error);
	if (comm->launched < chunks && comm->launched - comm->drained < NCCL_SLOTS)
		return nccl_launch(comm, error);
	return nccl_drain(comm, error);
}

/* What the program's stream holds now. Its default stream is the current device's, which may be another one by now. */
static cuda_error nccl_after_program(struct backend_comm *comm)
{
	const struct nccl_calls *c = &comm->c;
	int current = comm->device;
	cuda_error code = c->cudaGetDevice(&current);
	if (code == CUDA_OK && current != comm->device)
		code = c->cudaSetDevice(comm->device);
	if (code == CUDA_OK)
		code = c->cudaEventRecord(comm->ready, comm->user_stream);
	if (code == CUDA_OK)
		code = c->cudaStreamWaitEvent(comm->stream, comm->ready, 0);
	if (current != comm->device)
		(void)c->cudaSetDevice(current);
	return code;
}

static tr_status nccl_start(struct backend_comm *comm, const struct backend_op *op,
    struct tr_error *error)
{
	bool adds = op->kind != BACKEND_ALL_GATHER && op->kind != BACKEND_BROADCAST;
	if ((unsigned)op->kind > BACKEND_REDUCE ||
	    !nccl_supports(op->dtype, adds ? op->reduce : TR_SUM))
		return tr_error_set(error, TR_EINVAL, "NCCL: collective %d, type %d, reduce %d",
		    (int)op->kind, (int)op->dtype, (int)op->reduce);
	if (comm->count == NCCL_OPS_MAX)
		return tr_error_set(error, TR_ELIMIT, "NCCL: more than %u collectives under way",
		    NCCL_OPS_MAX);
	cuda_error code = nccl_after_program(comm);
	if (code != CUDA_OK)
		return cuda_fail(&comm->c, "waiting for the program's stream", code, error);
	comm->ops[(comm->head + comm->count) % NCCL_OPS_MAX] = *op;
	comm->count++;
	return TR_OK;
}

static tr_status nccl_poll(struct backend_comm *comm, uint64_t *done, struct tr_error *error)
{
	for (;;) {
		nccl_result state = NCCL_OK;
		nccl_result code = comm->c.ncclCommGetAsyncError(comm->comm, &state);
		*done = comm->done;
		if (code != NCCL_OK || (state != NCCL_OK && state != NCCL_IN_PROGRESS))
			return nccl_fail(comm, "a member is gone, or the network",
			    code != NCCL_OK ? code : state, error);
		if (state == NCCL_IN_PROGRESS)
			return TR_EAGAIN;
		if (comm->count == 0)
			return TR_OK;
		tr_status st = nccl_step(comm, error);
		if (st != TR_OK)
			return st;
	}
}

const struct backend backend_nccl = {
	.interface = BACKEND_INTERFACE,
	.name = "nccl",
	.rebuilds = true,
	.enter = nccl_enter,
	.make_id = nccl_make_id,
	.open = nccl_open,
	.supports = nccl_supports,
	.start = nccl_start,
	.poll = nccl_poll,
	.abort = nccl_abort,
	.pin = nccl_pin,
	.unpin = nccl_unpin,
	.close = nccl_close,
	.leave = nccl_leave,
};
