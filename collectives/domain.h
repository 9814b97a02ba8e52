/* Collectives inside one failure domain: the processes of one host that share their GPUs' links (backend "nccl"), or of one
 * mpirun (backend "mpi"). Inside, the backend's own collectives run: fast, and lost as a whole when a member hangs. Between
 * domains coll.h's group runs: rank 0 of each domain, the leader, is a peer of the group. So an all-reduce is: a sum inside,
 * the group's all-reduce among the leaders, a broadcast inside. A round and its commit mean what they mean in coll.h, for
 * all members of all domains.
 *
 *	struct tr_domain_options options = TR_DOMAIN_OPTIONS_INIT;
 *	options.backend = "mpi";
 *	tr_domain *domain;
 *	struct tr_error error;
 *	if (tr_domain_open(&options, &domain, &error) != TR_OK)      // all members
 *		die(error.text);
 *	if (tr_domain_rank(domain) == 0) {
 *		tr_group_join(&join_options, &group, &error);        // join_options.size: how many domains
 *		tr_state_ready(group, 0, &error);
 *		tr_domain_lead(domain, group, &error);
 *	}
 *	for (;;) {
 *		struct tr_round round;
 *		tr_domain_round_begin(domain, &round, &error);
 *		fill(x);
 *		int64_t members = 1;                                 // after the round: how many members' data x holds
 *		tr_domain_allreduce(domain, 0, x, count, TR_F32, TR_SUM, &error);
 *		tr_domain_allreduce(domain, 1, &members, 1, TR_I64, TR_SUM, &error);
 *		tr_status st = tr_domain_commit(domain, &(struct tr_commit){ 0 }, &round, &error);
 *		if (st == TR_ERESTART)
 *			continue;                                    // error.text says why; compute again
 *		...                                                  // x is the sum, the same bits everywhere
 *	}
 *	tr_domain_close(domain);
 *	tr_group_leave(group);
 *
 * All members make the same calls in the same order. Memory: with "mpi" of the host, with "nccl" of the device (the
 * example's `members` too). Threads: one caller's thread, the same for all calls; no thread is made. No call waits for ever.
 *
 * When a member dies the backend's communicator is aborted at once, and the calls of the round return TR_ERESTART with the
 * member's rank in the text. The next tr_domain_round_begin builds a communicator of the survivors ("nccl") or ends the
 * domain on all members with TR_EPEERLOST ("mpi": an MPI world does not outlive a member). The leader's death ends the
 * domain; the other domains go on as coll.h says.
 */
#ifndef TR_DOMAIN_H
#define TR_DOMAIN_H

#include "collectives/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_domain tr_domain;

struct tr_domain_options {
	size_t size_of;      /* sizeof(struct tr_domain_options) */
	const char *backend; /* "mpi" or "nccl" */
	/* Where the members meet: a path for a UNIX socket that is not there yet, or "@name", which needs no file; the same on all
	 * members. With "mpi" NULL: the leader invents one. Only processes of the same user are let in. */
	const char *address;
	unsigned rank, size; /* nccl: this process's place. mpi: ignored, MPI_COMM_WORLD knows */
	/* That of the group. TR_KEEP: an op goes to the other domains as soon as it is summed inside. Else all ops of a round go
	 * when the last one is, so that a member's data is in all of them or in none. */
	enum tr_policy policy;
	uint32_t deadline_ms; /* for a collective inside once all members are in it; 0: 30000 */
	uint32_t wait_ms; /* for a member to make the call that the others have made; 0: 600000 */
	int device;       /* nccl: of the CUDA runtime */
	/* nccl: a cudaStream_t; what it holds when a collective is submitted is waited for, on the device. NULL: the default
	 * stream of `device`. */
	void *stream;
	const char *nccl_library; /* NULL: "libnccl.so.2" as the dynamic linker finds it */
	const char *cuda_library; /* NULL: "libcudart.so.13", ".12" or "libcudart.so" */
};
/* All fields, in order: C++ knows no other way. */
#define TR_DOMAIN_OPTIONS_INIT                                                                    \
	{                                                                                         \
		sizeof(struct tr_domain_options), NULL, NULL, 0, 0, TR_KEEP, 0, 0, 0, NULL, NULL, \
		    NULL                                                                          \
	}

/* Loads the backend, meets the other members and opens their communicator. Blocks until all are there. TR_EUNAVAILABLE:
 * there is no such backend on this machine, the text says what is missing. */
TR_API tr_status tr_domain_open(const struct tr_domain_options *options, tr_domain **domain,
    struct tr_error *error);

/* Leader only, before the first round: the group of the domains' leaders, borrowed until tr_domain_close. Rounds of that
 * group are begun and committed by this domain alone. */
TR_API tr_status tr_domain_lead(tr_domain *domain, tr_group *group, struct tr_error *error);

/* Ends it; in the midst of things it counts as this member's death. Accepts NULL. */
TR_API void tr_domain_close(tr_domain *domain);

/* This member's place; it may change in tr_domain_round_begin and tr_domain_commit, but the leader stays the leader. */
TR_API unsigned tr_domain_rank(const tr_domain *domain);
TR_API unsigned tr_domain_size(const tr_domain *domain);

/* As tr_round_begin. `round` counts domains, not members. A joining domain gets receive_state: after its ops the leader
 * calls tr_state_receive and all members tr_domain_inside, a broadcast of what it received; then they commit. */
TR_API tr_status tr_domain_round_begin(tr_domain *domain, struct tr_round *round,
    struct tr_error *error);

/* Submits an all-reduce over all members of all domains, in place; returns at once. `data` is borrowed, and holds what it
 * held, until tr_domain_commit returns. TR_AVG is refused: which members are in a result is known after it, so sum, and
 * divide by a count that was summed too. TR_ERESTART: the round is broken, commit says the same. */
TR_API tr_status tr_domain_allreduce(tr_domain *domain, uint32_t tag, void *data, size_t count,
    enum tr_dtype dtype, enum tr_reduce reduce, struct tr_error *error);

/* As tr_progress, and moves what is under way: call it a few times a second while computing. */
TR_API bool tr_domain_progress(tr_domain *domain);

/* As tr_round_commit; the leader's `commit` counts, the others' is not looked at. Results are in place when it returns TR_OK;
 * after TR_ERESTART the data is what it was before tr_domain_allreduce. */
TR_API tr_status tr_domain_commit(tr_domain *domain, const struct tr_commit *commit,
    struct tr_round *round, struct tr_error *error);

/* A collective of the domain's members alone, for parameters and for tensor parallelism: ends when the result is in place.
 * TR_ALL_REDUCE: `count` elements in and out. TR_REDUCE_SCATTER: `count` out, size x count in. TR_ALL_GATHER: `count` in,
 * size x count out. TR_BROADCAST: from `in` of rank 0 to `out` of all. `in` may be `out` but for scatter and gather. */
struct tr_domain_op {
	size_t size_of;
	enum tr_collective collective;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	unsigned unused;
	const void *in;
	void *out;
	size_t count;
};
TR_API tr_status tr_domain_inside(tr_domain *domain, const struct tr_domain_op *op,
    struct tr_error *error);

#ifdef __cplusplus
}
#endif

#endif
