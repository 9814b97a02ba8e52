/* Backend "mpi": the domain is MPI_COMM_WORLD. A module of its own (traincoll-mpi.so), since MPI's handles differ from one
 * MPI to another: built with mpicc where there is one, loaded by find.c. Non-blocking collectives alone, so that nothing
 * hangs in a call when a member dies; Open MPI then ends the whole world in its own time, so there is no rebuilding.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "collectives/backend/backend.h"
#include "common/error.h"

#define MPI_OPS_MAX 512 /* under way at once */

/* One op, or a piece of one: MPI counts in ints. */
struct mpi_request {
	MPI_Request request;
	bool last; /* piece of its op */
};

struct backend_comm {
	MPI_Comm comm;
	unsigned rank;
	uint64_t done;
	size_t head, count; /* of the ring */
	struct mpi_request requests[MPI_OPS_MAX];
};

static bool mpi_is_ours;                   /* we called MPI_Init, so we call MPI_Finalize */
static struct backend_comm *mpi_abandoned; /* MPI may still write to what an abort left */
static struct {
	MPI_Request request;
	char address[TR_ADDRESS_MAX];
} mpi_meeting; /* and to this, when not everybody came */

static tr_status mpi_fail(const char *what, int code, struct tr_error *error)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length = 0;
	(void)MPI_Error_string(code, text, &length);
	return tr_error_set(error, TR_EPEERLOST, "MPI: %s: %s", what, text);
}

static uint64_t mpi_now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static tr_status mpi_wait(MPI_Request *request, uint32_t deadline_ms, const char *what,
    struct tr_error *error)
{
	uint64_t until = mpi_now_ms() + deadline_ms;
	for (int done = 0; !done;) {
		int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS)
			return mpi_fail(what, code, error);
		if (!done && mpi_now_ms() > until)
			return tr_error_set(error, TR_ETIMEDOUT,
			    "MPI: %s: not all of the world came within %u ms", what, deadline_ms);
		if (!done)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	return TR_OK;
}

static tr_status mpi_enter(struct backend_place *place, struct tr_error *error)
{
	int there = 0, ended = 0, level = 0, rank = 0, size = 0, code;
	(void)MPI_Initialized(&there);
	(void)MPI_Finalized(&ended);
	if (ended)
		return tr_error_set(error, TR_EUNAVAILABLE, "MPI was finalized by this process");
	if (!there) {
		code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
		if (code != MPI_SUCCESS)
			return mpi_fail("MPI_Init_thread", code, error);
		mpi_is_ours = true;
	}
	(void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &size);
	place->rank = (unsigned)rank;
	place->size = (unsigned)size;
	if (rank == 0 && place->address[0] == '\0') {
		uint64_t invented = 0;
		if (getrandom(&invented, sizeof(invented), 0) != sizeof(invented))
			return tr_error_set(error, TR_EIO, "getrandom failed");
		(void)snprintf(place->address, sizeof(place->address), "@traind-domain-%016llx",
		    (unsigned long long)invented);
	}
	memcpy(mpi_meeting.address, place->address, sizeof(mpi_meeting.address));
	code = MPI_Ibcast(mpi_meeting.address, sizeof(mpi_meeting.address), MPI_BYTE, 0,
	    MPI_COMM_WORLD, &mpi_meeting.request);
	if (code != MPI_SUCCESS)
		return mpi_fail("MPI_Ibcast", code, error);
	tr_status st = mpi_wait(&mpi_meeting.request, place->deadline_ms,
	    "sharing the address to meet at", error);
	if (st == TR_OK)
		memcpy(place->address, mpi_meeting.address, sizeof(place->address));
	return st;
}

static tr_status mpi_open(const struct backend_place *place, struct backend_comm **out,
    struct tr_error *error)
{
	struct backend_comm *comm = calloc(1, sizeof(*comm));
	if (comm == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	comm->rank = place->rank;
	/* Ops of ours never match those of the program. Idup: a member that died meanwhile is found by polling. */
	int code = MPI_Comm_idup(MPI_COMM_WORLD, &comm->comm, &comm->requests[0].request);
	if (code != MPI_SUCCESS) {
		free(comm);
		return mpi_fail("MPI_Comm_idup", code, error);
	}
	comm->count = 1;
	*out = comm;
	return TR_OK;
}

static MPI_Datatype mpi_dtype(enum tr_dtype dtype)
{
	switch (dtype) {
	case TR_F32:
		return MPI_FLOAT;
	case TR_F64:
		return MPI_DOUBLE;
	case TR_I32:
		return MPI_INT32_T;
	case TR_I64:
		return MPI_INT64_T;
	case TR_U8:
		return MPI_UINT8_T;
	default:
		return MPI_DATATYPE_NULL;
	}
}

static MPI_Op mpi_reduce_op(enum tr_reduce reduce)
{
	switch (reduce) {
	case TR_SUM:
		return MPI_SUM;
	case TR_MIN:
		return MPI_MIN;
	case TR_MAX:
		return MPI_MAX;
	case TR_PROD:
		return MPI_PROD;
	default:
		return MPI_OP_NULL;
	}
}

/* MPI has no 16-bit floats. */
static bool mpi_supports(enum tr_dtype dtype, enum tr_reduce reduce)
{
	return mpi_dtype(dtype) != MPI_DATATYPE_NULL && mpi_reduce_op(reduce) != MPI_OP_NULL;
}

/* `count` fits an int. Rank 0's own part of a reduction may lie where its result goes. */
static int mpi_start_piece(struct backend_comm *comm, const struct backend_op *op,
    MPI_Datatype type, size_t offset, int count, MPI_Request *request)
{
	const char *in = op->in != NULL ? (const char *)op->in + offset : NULL;
	char *out = op->out != NULL ? (char *)op->out + offset : NULL;
	char *host = op->host != NULL ? (char *)op->host + offset : NULL;
	MPI_Op reduce = mpi_reduce_op(op->reduce);
	const void *from = in == out ? MPI_IN_PLACE : in;
	switch (op->kind) {
	case BACKEND_ALL_REDUCE:
		return MPI_Iallreduce(from, out, count, type, reduce, comm->comm, request);
	case BACKEND_REDUCE_SCATTER:
		return MPI_Ireduce_scatter_block(in, out, count, type, reduce, comm->comm, request);
	case BACKEND_ALL_GATHER:
		return MPI_Iallgather(in, count, type, out, count, type, comm->comm, request);
	case BACKEND_REDUCE:
		return MPI_Ireduce(in == host && comm->rank == 0 ? MPI_IN_PLACE : in, host, count,
		    type, reduce, 0, comm->comm, request);
	case BACKEND_BROADCAST:
		return MPI_Ibcast(out, count, type, 0, comm->comm, request);
	}
	return MPI_ERR_UNSUPPORTED_OPERATION;
}

static tr_status mpi_start(struct backend_comm *comm, const struct backend_op *op,
    struct tr_error *error)
{
	MPI_Datatype type = mpi_dtype(op->dtype);
	int bytes = 0;
	(void)MPI_Type_size(type, &bytes);
	size_t piece_max = INT_MAX / (size_t)bytes; /* bytes, too, are ints in places */
	size_t pieces = op->count > 0 ? (op->count + piece_max - 1) / piece_max : 1;
	bool whole = op->kind == BACKEND_REDUCE_SCATTER || op->kind == BACKEND_ALL_GATHER;
	if (whole && pieces > 1)
		return tr_error_set(error, TR_EINVAL,
		    "MPI scatters and gathers at most %zu elements", piece_max);
	if (pieces > MPI_OPS_MAX - comm->count)
		return tr_error_set(error, TR_ELIMIT, "MPI: more than %u collectives under way",
		    MPI_OPS_MAX);
	const void *source = op->host != NULL ? op->host : op->in;
	if (op->kind == BACKEND_BROADCAST && comm->rank == 0 && source != op->out && op->count > 0)
		memcpy(op->out, source, op->count * (size_t)bytes);
	for (size_t i = 0; i < pieces; i++) {
		size_t first = i * piece_max;
		size_t count = op->count - first < piece_max ? op->count - first : piece_max;
		struct mpi_request
		    *request = &comm->requests[(comm->head + comm->count) % MPI_OPS_MAX];
		int code = mpi_start_piece(comm, op, type, first * (size_t)bytes, (int)count,
		    &request->request);
		if (code != MPI_SUCCESS)
			return mpi_fail("starting a collective", code, error);
		request->last = i + 1 == pieces;
		comm->count++;
	}
	return TR_OK;
}

static tr_status mpi_poll(struct backend_comm *comm, uint64_t *done, struct tr_error *error)
{
	*done = comm->done;
	while (comm->count > 0) {
		struct mpi_request *request = &comm->requests[comm->head];
		int finished = 0;
		int code = MPI_Test(&request->request, &finished, MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS)
			return mpi_fail("a collective", code, error);
		if (!finished)
			return TR_EAGAIN;
		comm->done += request->last; /* opening counts as none */
		*done = comm->done;
		comm->head = (comm->head + 1) % MPI_OPS_MAX;
		comm->count--;
	}
	return TR_OK;
}

/* A collective that has begun cannot be taken back: nothing of MPI is called any more. There is no second communicator. */
static bool mpi_abort(struct backend_comm *comm)
{
	mpi_abandoned = comm;
	return false;
}

static void mpi_close(struct backend_comm *comm)
{
	if (comm == NULL)
		return;
	(void)MPI_Comm_free(&comm->comm);
	free(comm);
}

/* Finalizing waits for the others: not after a death. mpirun then sees a rank end without it, and ends the rest. */
static void mpi_leave(bool clean)
{
	if (clean && mpi_is_ours)
		(void)MPI_Finalize();
	mpi_is_ours = false;
}

extern const struct backend backend_mpi;
__attribute__((visibility("default"))) const struct backend backend_mpi = {
	.interface = BACKEND_INTERFACE,
	.name = "mpi",
	.rebuilds = false,
	.spins = true,
	.enter = mpi_enter,
	.open = mpi_open,
	.supports = mpi_supports,
	.start = mpi_start,
	.poll = mpi_poll,
	.abort = mpi_abort,
	.close = mpi_close,
	.leave = mpi_leave,
};
