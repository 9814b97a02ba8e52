/* The backend of a domain's member that is fuzzed, and the group of its leader: what is started comes to be and is done `looks_each` looks later. It looks
 * whether it is called within its contract (backend.h). Static.
 */
#ifndef TR_TESTS_FUZZ_FAKE_BACKEND_H
#define TR_TESTS_FUZZ_FAKE_BACKEND_H

#include "collectives/backend/domain_internal.h"
#include "tests/fuzz/live.h"
#include "tests/fuzz/waits.h"

#define MEMBERS 3

struct backend_comm {
	uint64_t started, done;
	unsigned rank, looks;
	struct backend_op ops[8];
};

static unsigned looks_each, comms;
static bool fake_is_member; /* whose backend it is; else the leader's */

static tr_status backend_enter(struct backend_place *place, struct tr_error *error)
{
	(void)place;
	(void)error;
	return TR_OK;
}

static tr_status backend_open(const struct backend_place *place, struct backend_comm **comm,
    struct tr_error *error)
{
	(void)error;
	if (place->size == 0 || place->size > MEMBERS || place->rank >= place->size ||
	    (place->rank == 0) == fake_is_member)
		live_die("a communicator is opened at a place that is none");
	*comm = calloc(1, sizeof(**comm));
	(*comm)->rank = place->rank;
	comms++;
	return TR_OK;
}

static bool backend_supports(enum tr_dtype dtype, enum tr_reduce reduce)
{
	return dtype == TR_F32 && reduce == TR_SUM;
}

static tr_status backend_start(struct backend_comm *comm, const struct backend_op *op,
    struct tr_error *error)
{
	(void)error;
	comm->ops[comm->started++ % (sizeof(comm->ops) / sizeof(comm->ops[0]))] = *op;
	return TR_OK;
}

static tr_status backend_poll(struct backend_comm *comm, uint64_t *done, struct tr_error *error)
{
	(void)error;
	if (waits.ours)
		(void)waits_turn();
	if (comm->done < comm->started && comm->looks++ >= looks_each) {
		const struct backend_op
		    *op = &comm->ops[comm->done++ % (sizeof(comm->ops) / sizeof(comm->ops[0]))];
		bool reads_host = op->kind == BACKEND_BROADCAST && comm->rank == 0;
		if (op->out != NULL)
			memset(op->out, 1, op->count * sizeof(float));
		if (op->host != NULL && !reads_host)
			memset(op->host, 1, op->count * sizeof(float));
		comm->looks = 0;
	}
	*done = comm->done;
	return comm->done < comm->started ? TR_EAGAIN : TR_OK;
}

static bool backend_abort(struct backend_comm *comm)
{
	comms--;
	free(comm);
	return true;
}

static void backend_close(struct backend_comm *comm)
{
	(void)backend_abort(comm);
}

static void backend_leave(bool clean)
{
	(void)clean;
}

static struct backend backend = { .interface = BACKEND_INTERFACE,
	.name = "fake",
	.enter = backend_enter,
	.open = backend_open,
	.supports = backend_supports,
	.start = backend_start,
	.poll = backend_poll,
	.abort = backend_abort,
	.close = backend_close,
	.leave = backend_leave };

tr_status backend_find(const char *name, const struct backend **found, struct tr_error *error)
{
	(void)name;
	(void)error;
	*found = &backend;
	return TR_OK;
}

/* ---- the leaders' group: one domain */

static struct tr_group {
	uint64_t round;
	void *memory[64];
	unsigned count;
} group;

tr_status tr_round_begin(tr_group *g, struct tr_round *round, struct tr_error *error)
{
	(void)error;
	*round = (struct tr_round){ .round = ++g->round, .view = 1, .contributors = 1, .peers = 1 };
	return TR_OK;
}

tr_status tr_round_commit(tr_group *g, const struct tr_commit *commit, struct tr_round *round,
    struct tr_error *error)
{
	(void)g;
	(void)commit;
	(void)round;
	(void)error;
	return TR_OK;
}

tr_status tr_allreduce(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    enum tr_reduce reduce, unsigned flags, struct tr_error *error)
{
	(void)g;
	(void)tag;
	(void)dtype;
	(void)reduce;
	(void)flags;
	(void)error;
	memset(data, 1, count * sizeof(float));
	return TR_OK;
}

void *tr_alloc(tr_group *g, size_t bytes)
{
	if (g->count == sizeof(g->memory) / sizeof(g->memory[0]))
		live_die("the leader takes ever more memory of its group");
	return g->memory[g->count++] = malloc(bytes);
}

bool tr_progress(tr_group *g)
{
	(void)g;
	return true;
}

#endif
