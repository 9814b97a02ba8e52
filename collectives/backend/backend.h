/* A backend does the collectives of the members of one failure domain. It is opened anew for each view of the domain;
 * domain.c drives it:
 *
 *	backend->open(&place, &comm, &error);
 *	while ((st = backend->poll(comm, &done, &error)) == TR_EAGAIN)
 *		...                                   // and looks whether a member died, or a deadline passed
 *	backend->start(comm, &op, &error);            // as often as wanted; poll counts them as they finish
 *	if (st != TR_OK || deadline)
 *		backend->abort(comm);                 // comm is gone
 *	else
 *		backend->close(comm);
 *
 * Threads: one, the same for all calls of a communicator. Nothing but `enter` and `close` may block, and those only for the
 * deadline in `place`. A backend in a module of its own exports `const struct backend backend_NAME`.
 */
#ifndef TR_COLLECTIVES_BACKEND_BACKEND_H
#define TR_COLLECTIVES_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "common/limits.h"

#define BACKEND_INTERFACE \
	2 /* grows with every change of this header: a module of another number is refused */
#define BACKEND_ID_BYTES 128

/* What a communicator is opened from. */
struct backend_place {
	unsigned rank, size;
	char address[TR_ADDRESS_MAX]; /* where the members meet */
	uint8_t id[BACKEND_ID_BYTES]; /* from make_id of the leader, the same on all members */
	uint32_t deadline_ms;
	int device;
	void *stream;
	const char *nccl_library, *cuda_library; /* NULL: the usual names */
};

enum backend_kind {
	BACKEND_ALL_REDUCE,
	BACKEND_REDUCE_SCATTER,
	BACKEND_ALL_GATHER,
	BACKEND_BROADCAST, /* from rank 0 */
	BACKEND_REDUCE,    /* to rank 0 */
};

/* `in` and `out` are in the backend's memory (of the host or of the device), `host` always of the host. Rank 0 alone gives
 * `host`, with BACKEND_REDUCE for the result instead of `out`, with BACKEND_BROADCAST (if not NULL) for the source instead
 * of `in`. All are borrowed until the op is done. Counts are as in struct tr_domain_op. */
struct backend_op {
	enum backend_kind kind;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	const void *in;
	void *out, *host;
	bool pinned; /* `host` is in memory that `pin` took: no copy of it is made on the way */
	size_t count;
};

struct backend_comm;

struct backend {
	unsigned interface; /* BACKEND_INTERFACE */
	const char *name;
	bool rebuilds; /* the survivors of an abort can open another communicator */
	bool spins; /* its collectives move only while they are polled: who waits does not sleep */

	/* Once, first: loads libraries, fills in what the backend knows better (rank, size, address). TR_EUNAVAILABLE: the text
	 * names what is missing. */
	tr_status (*enter)(struct backend_place *place, struct tr_error *error);
	/* Leader only, for every view. NULL: the backend needs none. */
	tr_status (*make_id)(struct backend_place *place, struct tr_error *error);
	/* Starts to open; poll says when it is done. On an error there is nothing to abort. */
	tr_status (*open)(const struct backend_place *place, struct backend_comm **comm,
	    struct tr_error *error);
	bool (*supports)(enum tr_dtype dtype, enum tr_reduce reduce);
	/* Queues an op behind those before it. `op` is copied. TR_ELIMIT: poll first. */
	tr_status (
	    *start)(struct backend_comm *comm, const struct backend_op *op, struct tr_error *error);
	/* Moves things on. *done: how many of the started ops are finished, from the first, since open; their memory is the
	 * caller's again. TR_OK: all of them, and it is open. TR_EAGAIN: not yet. Else: broken, with the cause in words. */
	tr_status (*poll)(struct backend_comm *comm, uint64_t *done, struct tr_error *error);
	/* Takes the communicator, in any state; returns soon once all living members abort theirs, so they are told before. True: memory of unfinished ops is the
	 * caller's again, with anything in `out` and `host`. False: the device does not come to rest and may still read and
	 * write it. */
	bool (*abort)(struct backend_comm *comm);
	/* Rank 0, while no op is under way: memory of the host that the device is to reach by itself. False: it cannot, which
	 * costs a copy. `unpin` before it is given back. NULL: there is nothing to gain. */
	bool (*pin)(void *memory, size_t bytes);
	void (*unpin)(void *memory);
	/* Takes an idle communicator; all members close theirs. NULL: none was opened. */
	void (*close)(struct backend_comm *comm);
	/* Last, once, if enter succeeded. `clean`: no communicator was aborted. */
	void (*leave)(bool clean);
};

/* Finds "nccl" inside the library, and others as modules traincoll-NAME.so beside it. TR_EINVAL: no such name.
 * TR_EUNAVAILABLE: not built or not loadable here; the text says why. */
tr_status backend_find(const char *name, const struct backend **backend, struct tr_error *error);

extern const struct backend backend_nccl;

#endif
