/* A fake NCCL and CUDA runtime in one shared object, for processes whose threads are the ranks. It does the collectives, but
 * late: what is put on a stream runs one task at a time, while somebody asks for an event. So who reads memory too early
 * reads garbage. And it holds the rules that the real ones hold silently; the first broken one is kept in words:
 *
 *	collectives stand between ncclGroupStart and ncclGroupEnd, which pair
 *	a communicator that is opening, or launching, is left alone but for ncclCommGetAsyncError
 *	nothing follows a launch on its stream before the launch is complete
 *	asynchronous errors are looked at before each look at an event
 *	a communicator that was aborted or destroyed is never named again; a thread aborts the old one before it opens a new one
 *	an abort returns when all living ranks have called it, as NVIDIA's manual says
 *	copies go between pinned memory and the device; collectives are on the device
 *	memory and streams are freed when nothing on a stream uses them
 *	memory is pinned while none of the thread's collectives is under way
 *	no error is left for cudaGetLastError
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/fake_internal.h"

#define COMMS_MAX    128
#define WORLDS_MAX   64
#define LAUNCH_POLLS 2 /* a launch is in progress for so many looks */
#define ABORT_NAPS   5000
#define ABORT_NAP_US 1000

static struct nccl_opaque_comm comms[COMMS_MAX];
static struct world worlds[WORLDS_MAX];
static unsigned comms_count, worlds_count, ids;
static enum fake_trouble trouble;
static unsigned trouble_rank, trouble_at, trouble_times;
static unsigned launches[RANKS_MAX];
static _Thread_local unsigned group_depth, own_comms;

/* ---- NCCL */

nccl_result ncclGetVersion(int *version)
{
	*version = 23007;
	return NCCL_OK;
}

nccl_result ncclGetUniqueId(nccl_id *id)
{
	fake_enter(__func__);
	memset(id, 0, sizeof(*id));
	(void)snprintf(id->internal, sizeof(id->internal), "id %u", ++ids);
	return fake_leave(NCCL_OK);
}

static struct world *world_of(const nccl_id *id, unsigned size)
{
	for (unsigned i = 0; i < worlds_count; i++)
		if (memcmp(worlds[i].id, id->internal, sizeof(worlds[i].id)) == 0)
			return &worlds[i];
	if (worlds_count == WORLDS_MAX)
		abort();
	struct world *world = &worlds[worlds_count++];
	*world = (struct world){ .size = size };
	memcpy(world->id, id->internal, sizeof(world->id));
	if (trouble == FAKE_INIT_HANGS && trouble_times > 0) {
		trouble_times--;
		world->hangs = true;
	}
	return world;
}

nccl_result ncclCommInitRankConfig(nccl_comm *out, int size, nccl_id id, int rank,
    nccl_config_type *config)
{
	fake_enter(__func__);
	struct world *world = world_of(&id, (unsigned)size);
	if (config->size != 24 || config->magic != NCCL_CONFIG_MAGIC || config->blocking != 0)
		fake_broken("the configuration is not that of a non-blocking communicator");
	if (world->size != (unsigned)size || rank < 0 || rank >= size ||
	    world->comms[rank] != NULL || comms_count == COMMS_MAX) {
		fake_broken("rank %d of %d does not fit its communicator", rank, size);
		return fake_leave(4);
	}
	if (own_comms > 0)
		fake_broken("a communicator is opened before the old one is gone");
	own_comms++;
	struct nccl_opaque_comm *comm = &comms[comms_count++];
	*comm = (struct nccl_opaque_comm){ .world = world,
		.rank = (unsigned)rank,
		.opening = true,
		.own = pthread_self() };
	world->comms[rank] = comm;
	fake_device_goes_on();
	world->here++;
	*out = comm;
	return fake_leave(NCCL_IN_PROGRESS);
}

static bool alive(const struct nccl_opaque_comm *comm, const char *name)
{
	if (comm == NULL || comm->dead)
		fake_broken("%s is called on a communicator that is gone", name);
	return comm != NULL && !comm->dead;
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *state)
{
	fake_enter(__func__);
	if (!alive(comm, __func__))
		return fake_leave(4);
	comm->looked = true;
	if (comm->opening && comm->world->here == comm->world->size && !comm->world->hangs)
		comm->opening = false;
	*state = comm->error ? 6 : comm->opening || comm->polls > 0 ? NCCL_IN_PROGRESS : NCCL_OK;
	if (comm->polls > 0)
		comm->polls--;
	return fake_leave(NCCL_OK);
}

nccl_result ncclCommFinalize(nccl_comm comm)
{
	fake_enter(__func__);
	if (!alive(comm, __func__))
		return fake_leave(4);
	if (comm->opening || comm->polls > 0 || comm->error)
		fake_broken("a communicator is finalized that is not at rest");
	comm->finalized = true;
	comm->polls = LAUNCH_POLLS;
	return fake_leave(NCCL_IN_PROGRESS);
}

static void bury(struct nccl_opaque_comm *comm)
{
	comm->dead = true;
	own_comms--;
	/* its kernels leave the device */
	for (unsigned i = 0; comm->stream != NULL && i < comm->stream->count;) {
		struct task *task = &comm->stream->tasks[i];
		if (task->kind != COLLECTIVE) {
			i++;
			continue;
		}
		memmove(task, task + 1, (comm->stream->count - i - 1) * sizeof(*task));
		comm->stream->count--;
	}
}

nccl_result ncclCommDestroy(nccl_comm comm)
{
	fake_enter(__func__);
	if (!alive(comm, __func__))
		return fake_leave(4);
	if (!comm->finalized || comm->polls > 0)
		fake_broken("a communicator is destroyed before it is finalized");
	bury(comm);
	return fake_leave(NCCL_OK);
}

/* Some rank that has neither aborted nor ended its part. */
static bool lives_on(const struct world *world)
{
	for (unsigned r = 0; r < world->size; r++) {
		const struct nccl_opaque_comm *other = world->comms[r];
		if (other != NULL && !other->dead && !other->aborting && !other->finalized)
			return true;
	}
	return false;
}

nccl_result ncclCommAbort(nccl_comm comm)
{
	fake_enter(__func__);
	if (!alive(comm, __func__))
		return fake_leave(4);
	comm->aborting = true;
	for (unsigned naps = 0; lives_on(comm->world); naps++) {
		if (naps == ABORT_NAPS) {
			fake_broken("ncclCommAbort of rank %u waits for a rank that was not told",
			    comm->rank);
			break;
		}
		(void)fake_leave(0);
		(void)usleep(ABORT_NAP_US);
		fake_enter("");
	}
	bury(comm);
	return fake_leave(NCCL_OK);
}

nccl_result ncclGroupStart(void)
{
	fake_enter(__func__);
	if (group_depth++ != 0)
		fake_broken("ncclGroupStart is nested");
	return fake_leave(NCCL_OK);
}

nccl_result ncclGroupEnd(void)
{
	fake_enter(__func__);
	if (group_depth-- != 1)
		fake_broken("ncclGroupEnd has no ncclGroupStart");
	return fake_leave(NCCL_IN_PROGRESS);
}

static nccl_result put_launch(const char *name, struct task task, nccl_comm comm, cuda_stream stream)
{
	if (!alive(comm, name))
		return 4;
	if (group_depth != 1)
		fake_broken("%s stands outside of a group", name);
	if (comm->opening || comm->polls > 0)
		fake_broken("%s is called on a communicator that is in progress", name);
	unsigned size = comm->world->size;
	size_t bytes = task.count * fake_size_of(task.dtype);
	size_t in = task.collective == REDUCE_SCATTER ? bytes * size : bytes;
	size_t out = task.collective == ALL_GATHER ? bytes * size : bytes;
	if (!fake_in_block(task.in, in, false) ||
	    ((task.collective != REDUCE || comm->rank == 0) && !fake_in_block(task.out, out, false)))
		fake_broken("%s is not on device memory", name);
	unsigned number = launches[comm->rank]++;
	bool now = number == trouble_at && comm->rank == trouble_rank;
	comm->error = (now && trouble == FAKE_ASYNC_ERROR) ||
	    (trouble == FAKE_BROADCAST_FAILS && comm->rank == trouble_rank &&
	        task.collective == BROADCAST);
	task.hangs = comm->error ||
	    (now && (trouble == FAKE_KERNEL_HANGS || trouble == FAKE_NEVER_RESTS));
	task.kind = COLLECTIVE;
	task.comm = comm;
	comm->stream = fake_stream_of(stream);
	fake_put(comm->stream, task);
	comm->stream->comm = comm;
	comm->polls = LAUNCH_POLLS;
	return NCCL_IN_PROGRESS;
}

/* What the five have in common. */
static nccl_result launch(const char *name, enum collective collective, const void *in, void *out,
    size_t count, nccl_dtype dtype, nccl_reduce reduce, int root, nccl_comm comm,
    cuda_stream stream)
{
	fake_enter(name);
	if (root != 0)
		fake_broken("%s: the fake knows rank 0 alone as a root", name);
	return fake_leave(put_launch(name,
	    (struct task){ .collective = collective,
	        .in = in,
	        .out = out,
	        .count = count,
	        .dtype = dtype,
	        .reduce = reduce },
	    comm, stream));
}

nccl_result ncclAllReduce(const void *in, void *out, size_t count, nccl_dtype dtype,
    nccl_reduce reduce, nccl_comm comm, cuda_stream stream)
{
	return launch(__func__, ALL_REDUCE, in, out, count, dtype, reduce, 0, comm, stream);
}

nccl_result ncclReduceScatter(const void *in, void *out, size_t count, nccl_dtype dtype,
    nccl_reduce reduce, nccl_comm comm, cuda_stream stream)
{
	return launch(__func__, REDUCE_SCATTER, in, out, count, dtype, reduce, 0, comm, stream);
}

nccl_result ncclAllGather(const void *in, void *out, size_t count, nccl_dtype dtype, nccl_comm comm,
    cuda_stream stream)
{
	return launch(__func__, ALL_GATHER, in, out, count, dtype, 0, 0, comm, stream);
}

nccl_result ncclBroadcast(const void *in, void *out, size_t count, nccl_dtype dtype, int root,
    nccl_comm comm, cuda_stream stream)
{
	return launch(__func__, BROADCAST, in, out, count, dtype, 0, root, comm, stream);
}

nccl_result ncclReduce(const void *in, void *out, size_t count, nccl_dtype dtype,
    nccl_reduce reduce, int root, nccl_comm comm, cuda_stream stream)
{
	return launch(__func__, REDUCE, in, out, count, dtype, reduce, root, comm, stream);
}

const char *ncclGetErrorString(nccl_result result)
{
	return result == 6 ? "remote process exited or there was a network error"
	                   : "an error of the fake";
}

const char *ncclGetLastError(nccl_comm comm)
{
	fake_enter(__func__);
	(void)fake_leave(alive(comm, __func__));
	return "";
}

/* ---- for the test */

static void reset(void)
{
	fake_enter(__func__);
	fake_device_reset();
	memset(launches, 0, sizeof(launches));
	trouble = FAKE_NONE;
	comms_count = worlds_count = 0;
	(void)fake_leave(0);
}

static void inject(enum fake_trouble what, unsigned rank, unsigned at, unsigned times)
{
	fake_enter(__func__);
	trouble = what;
	trouble_rank = rank;
	trouble_at = at;
	trouble_times = times;
	fake_device_trouble(what == FAKE_CANNOT_PIN, what == FAKE_NEVER_RESTS,
	    what == FAKE_NO_MEMORY ? times : 0);
	(void)fake_leave(0);
}

static unsigned live(void)
{
	unsigned count = fake_device_live();
	for (unsigned i = 0; i < comms_count; i++)
		count += !comms[i].dead;
	return count;
}

const struct fake_calls fake = { reset, inject, fake_first_broken, fake_call_count, live,
	fake_copied_bytes };
