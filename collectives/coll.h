/* libtraincoll: exact all-reduce among peers that come and go.
 *
 * A group is a set of peers that run collectives together. Work goes in rounds: any number of
 * collectives, then one commit. When a peer dies in the middle, the others repair and finish that very
 * round; every peer that commits it holds bit-identical results, and a round counts exactly once.
 *
 *	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
 *	options.membership = "127.0.0.1:7070";
 *	options.name = "example";
 *	options.size = 4;
 *	tr_group *group;
 *	struct tr_error error;
 *	if (tr_group_join(&options, &group, &error) != TR_OK)
 *		die(error.text);
 *	float *x = tr_alloc(group, count * sizeof(float));
 *	if (x == NULL)
 *		die("out of memory");
 *	if (tr_state_ready(group, 0, &error) != TR_OK)  // state that a joiner needs is declared before: tr_state_add
 *		die(error.text);
 *	for (;;) {
 *		struct tr_round round;
 *		if (tr_round_begin(group, &round, &error) != TR_OK) // blocks until the group has a view
 *			die(error.text);
 *		unsigned flags = round.index < round.contributors ? TR_CONTRIBUTE : 0; // not in a joiner's first round
 *		fill(x, round.index, round.contributors);
 *		tr_status st = tr_allreduce(group, 0, x, count, TR_F32, TR_SUM, flags, &error); // returns at once
 *		if (st == TR_OK && round.receive_state)
 *			st = tr_state_receive(group, &error);
 *		if (st == TR_OK)
 *			st = tr_round_commit(group, &(struct tr_commit){ .samples = 1 }, &round, &error);
 *		if (st == TR_ERESTART)
 *			continue;                               // policy replay: compute again
 *		if (st != TR_OK)
 *			die(error.text);
 *		...                                             // x is the sum, on every peer the same bits
 *	}
 *	tr_group_leave(group);
 *
 * Threads: one caller thread per group at a time; an engine thread (here, or in traind) communicates
 * meanwhile. Buffers given to tr_submit stay borrowed until the round is decided: until tr_round_commit returns with anything but
 * TR_ETIMEDOUT, which only comes with an op_deadline_ms; or until tr_release.
 * A group is of the process that joined or attached. In a child of fork each call but tr_group_leave returns TR_EINVAL (tr_alloc: NULL, tr_progress: false),
 * and what tr_alloc gave is still shared with the parent, so it is not to be written; a child that wants to take part joins for itself.
 * No call waits for ever: it ends with a result or an error that names the peer it waited for. (Callers that wait for each other
 * need op_deadline_ms for that; see tr_wait.)
 * The library never exits, never aborts on a peer's bytes. C99.
 */
#ifndef TR_COLL_H
#define TR_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_group tr_group;

enum tr_dtype {
	TR_F32 = 1,
	TR_F64 = 2,
	TR_I32 = 3,
	TR_I64 = 4,
	TR_F16 = 5,  /* IEEE binary16; added in f32 */
	TR_BF16 = 6, /* the upper half of an f32; added in f32 */
	TR_U8 = 7,
};
/* The form that f32 takes on the wire (collectives/kernels/codec.h says what each costs and loses). */
enum tr_codec {
	TR_CODEC_NONE = 0,
	TR_CODEC_BF16 = 1,
	TR_CODEC_INT8 = 2,
	TR_CODEC_INT4 = 3, /* sixteen even steps */
	TR_CODEC_E3M0 = 4, /* 4 bits: sign and power of two */
	TR_CODEC_INT2 = 5,
};
/* Integers wrap around. Their TR_AVG is the sum, as it wrapped, divided by the number of contributors and truncated toward zero: of 200 and 100 as TR_U8 it
 * is 22, since 300 became 44. Where the sum may not fit, reduce in a wider type. TR_MIN and TR_MAX take one contributor's element after the
 * other and keep what they have unless the next is less (greater): a NaN that comes first stays, one that comes later is passed over. In a
 * `deterministic` group they come by ascending index, else as the algorithm has them, which need not be the same for all elements. So with
 * NaNs the result may be a number or a NaN; all peers have the same bits in any case (sums of one-shot, and of a `deterministic` group, give NaNs without sign and payload). */
enum tr_reduce { TR_SUM = 1, TR_AVG = 2, TR_MIN = 3, TR_MAX = 4, TR_PROD = 5 };

/* What happens to a round when a contributor dies before its data is everywhere. */
enum tr_policy {
	/* keep what is sealed, redo the rest among survivors; avg divides per segment. What only the dead one had (of a TR_BROADCAST or a TR_RECV the
	 * whole, of a TR_ALL_GATHER its block) is left as the caller's memory was, where it is not everywhere yet: see struct tr_op, tr_wait */
	TR_KEEP = 0,
	/* redo the round over one contributor set; costs a copy of in-place inputs. Without the callers, unless one of them has waited for a
	 * result (tr_wait) or uses its index in an op: then tr_round_commit returns TR_ERESTART, as with TR_REPLAY */
	TR_UNIFORM = 1,
	TR_REPLAY = 2, /* unless the round is whole, tr_round_commit returns TR_ERESTART */
};

/* How the bytes travel. TR_AUTO: the cost model of the measured links decides for each op (core/select.h). */
enum tr_algorithm {
	TR_AUTO = 0,
	TR_RING = 1,   /* sums go around, results go around: bandwidth-optimal, 2(n-1) hops */
	TR_STAR = 2,   /* all through the hub: 2 hops, (n-1) S through one link */
	TR_DIRECT = 3, /* each segment has an owner: 2 hops and the ring's bytes, over a full mesh */
	TR_HIERARCHICAL = 4, /* inside each host first, then between hosts */
	TR_ONE_SHOT = 5, /* everybody to everybody: 1 hop, (n-1) S out of every peer; for small ops */
};

/* What one collective does; see struct tr_op. */
enum tr_collective {
	TR_ALL_REDUCE = 0,
	TR_REDUCE_SCATTER = 1,
	TR_ALL_GATHER = 2,
	TR_BROADCAST = 3,
	TR_BARRIER = 4,
	TR_SEND = 5,
	TR_RECV = 6,
};

/* What carries the bytes between two peers. */
enum tr_transport {
	TR_TRANSPORT_AUTO = 0, /* shared memory between processes of one host, else TCP */
	TR_TRANSPORT_TCP = 1,
	TR_TRANSPORT_SHM = 2, /* peers of other hosts still talk TCP */
};

/* Structs that begin with size_of grow at their end only: a program that was compiled with an older header, or finds an
 * older library, works as long as it leaves at zero what the library does not know. The others that may grow have room for it, `reserved`: zero,
 * whoever fills the struct, so initialise what you give as a whole (`= { 0 }`, or by naming fields). */
struct tr_join_options {
	size_t size_of;         /* sizeof(struct tr_join_options) */
	const char *membership; /* "host:port" of memberd; as with `listen` */
	const char *name;       /* of the group; the first to come founds it */
	unsigned size;          /* founders to wait for; later peers join */
	const char *listen; /* NULL: "127.0.0.1:0". Other than loopback needs `tls` or `insecure` */
	enum tr_policy policy;
	enum tr_algorithm algorithm;
	bool deterministic; /* bits do not depend on ring order, algorithm or arrival order */
	bool insecure; /* addresses other than loopback without `tls`: the network can be trusted */
	uint32_t segment_bytes; /* a multiple of 64, at most 1047552; 0: that, over long ways 262144 */
	/* Of begin, wait, commit and receive: how long one call may wait before it returns TR_ETIMEDOUT. The round goes on all the same, its
	 * buffers stay borrowed, and the call can be made again. 0: no limit beyond the membership's own detection */
	uint32_t op_deadline_ms;
	uint32_t unused; /* padding of the first version: never read */
	enum tr_transport transport;
	unsigned sockets;       /* TCP connections to each peer; 0: as many as the link needs */
	const char *congestion; /* TCP congestion control by the kernel's name; NULL: by the link */
	/* Folder with ca.crt, node.crt and node.key (`trainctl cert`): TLS 1.3 to memberd and to all peers but those of the same host over
	 * shared memory, with certificates of that CA on both ends. NULL: plain, as memberd and all peers have to be then */
	const char *tls;
};
/* All fields, in order: C++ knows no other way. */
#define TR_JOIN_OPTIONS_INIT                                                                  \
	{                                                                                     \
		sizeof(struct tr_join_options), NULL, NULL, 0, NULL, TR_KEEP, TR_AUTO, false, \
		    false, 0, 0, 0, TR_TRANSPORT_AUTO, 0, NULL, NULL                          \
	}

/* Joins a named group through memberd. Returns once admitted to the member list (the first view may
 * still be to come; tr_round_begin waits for it). TR_EUNAVAILABLE: memberd cannot be reached. */
TR_API tr_status tr_group_join(const struct tr_join_options *options, tr_group **group,
    struct tr_error *error);

/* In a worker that traind started: attaches to the engine in traind through the inherited channel
 * (environment TRAIND_WORKER_FD). TR_ENOTFOUND: not started by traind. */
TR_API tr_status tr_group_attach(tr_group **group, struct tr_error *error);

/* Leaves the group (the others go on without an error) and frees everything, tr_alloc memory included.
 * Accepts NULL. */
TR_API void tr_group_leave(tr_group *group);

/* Zeroed, 64-byte aligned memory that the engine reaches without a copy (attached groups: a memfd shared
 * with traind). Buffers for ops and state must come from here. NULL: out of memory. Never freed
 * before tr_group_leave. 2 MiB and more are in memory at once, in huge pages as far as the kernel has some to give. */
TR_API void *tr_alloc(tr_group *group, size_t bytes);

/* The same for what may be used in part: each page is there when it is touched first. */
TR_API void *tr_alloc_sparse(tr_group *group, size_t bytes);

/* Declares memory (from tr_alloc) that a joiner receives from a donor: parameters, moments, counters.
 * All peers declare the same names and sizes, in the same order, before tr_state_ready. TR_EINVAL: the name is empty, too long or taken, the
 * memory is not from tr_alloc, or part of it was declared before. */
TR_API tr_status tr_state_add(tr_group *group, const char *name, void *data, size_t bytes,
    struct tr_error *error);

/* The same for memory that comes to a joiner gradually, where links are slow and rounds short: rounds go on meanwhile, in which it takes part and to
 * which it does not contribute. For that each committed round may change such memory piece by piece only, from what the piece was and what the
 * round reduced: what is here the joiner changes as all others do, and may change what is not here yet
 * as well, since that comes later, whole. What depends on each other (a parameter and its momentum) is of one `unit`: its pieces are declared one after the other with the same
 * number, and count as here only together; so units are to be small, some hundred KiB. In each round it waits for its ops, and then looks:
 *
 *	struct tr_commit commit = { .salt = salt };
 *	struct tr_state_progress progress;
 *	st = round.receive_state ? tr_state_receive_for(group, 0, &progress, &error) : TR_OK;
 *	if (st == TR_ETIMEDOUT && progress.may_defer && progress.kept >= enough)
 *		commit.flags = TR_DEFER_STATE;      // else wait longer: nothing is won if hardly anything stays of each round
 *	st = tr_round_commit(group, &commit, &round, &error);
 *	apply(group);                               // then begin the next round; receive_state is true until all is here
 *
 * What tr_state_add declared comes anew in each of these rounds, first, so declare that first and keep it small. Once all is here and its digests agree the
 * peer contributes from the next view on. Its digests are compared only then. */
TR_API tr_status tr_state_add_gradual(tr_group *group, const char *name, void *data, size_t bytes,
    uint32_t unit, struct tr_error *error);

/* State is declared; `round` is the newest round whose effect it already holds (0: fresh; N: from a
 * checkpoint). Required before the first tr_round_begin; a group without state calls it too. It counts among the founders of a group, of
 * whom those with the newest give it to the others. Who joins a group that goes on takes the group's state, whatever it said. TR_EEVICTED, here
 * or in tr_round_begin: all who held that are gone since it joined; leave, and join again. */
TR_API tr_status tr_state_ready(tr_group *group, uint64_t round, struct tr_error *error);

struct tr_round {
	uint64_t round; /* from 1 */
	uint64_t view;  /* number of the view under which it began or was committed */
	unsigned index; /* this peer's place among the contributors, by ascending peer id */
	unsigned
	    contributors; /* how many contribute; index == contributors: this peer does not (a joiner) */
	/* Joiner: submit the ops without TR_CONTRIBUTE, then tr_state_receive. False for a joiner whose state came before its first begin: there
	 * is nothing to wait for then, and tr_state_receive returns at once. */
	bool receive_state;
	bool partial; /* after commit: some contributor's data is missing somewhere (keep) */
	/* Of a job: a worker is missing, and when that view was made no slot was free for another one. Members may know of different views: agree on it before anything follows from it. */
	bool nobody_follows;
	unsigned peers;        /* members of the view */
	enum tr_policy policy; /* of the group */
	uint64_t reserved[3];
};

/* Begins the next round (or the same one again after TR_ERESTART). Blocks until the group has a view with
 * this peer in it. State declared by tr_state_add must not change between here and the commit's return:
 * it may be streamed to a joiner, and if this process dies the one that follows it may go on from it; so no op may have its output there
 * (tr_submit). TR_EEVICTED: no longer a member; leave. */
TR_API tr_status tr_round_begin(tr_group *group, struct tr_round *round, struct tr_error *error);

/* Ids of the contributors of the round that this peer began last, by their index (ascending): writes the first `max`; *count is how many there
 * are. They stay as they are until it begins another try, also if one of them is lost. TR_EINVAL: no round was begun. */
TR_API tr_status tr_round_contributors(tr_group *group, uint64_t *peers, size_t max, size_t *count,
    struct tr_error *error);

/* Flags of an op. */
enum {
	TR_CONTRIBUTE = 1, /* the buffer's content counts */
	/* The next call waits for it (tr_wait, tr_round_commit): the engine hears of both at once, so it wakes up once for them, and the op begins with that call. */
	TR_THEN_WAIT = 2,
	/* Of a contiguous op in a scope: its members take turns with it. All of them give this flag to the same ops, in the same order, and each waits for one (tr_wait) before it
	 * submits the next that has it (TR_EINVAL), and between the two for nothing else that depends on others. An all-reduce, reduce-scatter or all-gather whose members are all workers of one traind is then made by the callers' own threads, in memory that they
	 * have in common, where the inputs of all but one are 4 MiB at most: no engine takes part, and a small one takes a fraction of the time. Inputs are added by ascending index. tr_submit copies the input for the others (it stays the op's until that is done), and may wait until the op before the last was read; tr_contributors
	 * does not know such an op, whose contributors are its scope. Whatever else has the flag goes its ordinary way. */
	TR_IN_TURN = 4,
};

enum { TR_BLOCK_RANK_MAX = 8 };
/* Elements that lie apart in memory: a shard of a tensor, say. Element (i, j, ...) is at i * strides[0] + j * strides[1] + ...
 * elements from the buffer's start; in the op's order the last index counts fastest. No two of them may be the same memory. Columns 2 to
 * 4 of a row-major 10 x 8 matrix `m`: {2, {10, 3}, {8, 1}} at m + 2. */
struct tr_block {
	unsigned rank; /* 0 to TR_BLOCK_RANK_MAX; 0: one element */
	size_t extents[TR_BLOCK_RANK_MAX];
	size_t strides[TR_BLOCK_RANK_MAX]; /* in elements */
};

/* Among whom an op is: these contributors of the round, ascending; what MPI calls a communicator of some of the ranks, and XLA a replica
 * group. count 0: everybody. `root`, blocks and TR_AVG's divisor are of the scope: its members are 0 to count - 1 in this order. Only they
 * submit the op; who does not contribute to the round is in no scope. At most 255. In a mesh of rows of `width` contributors each:
 *
 *	uint32_t row[64];
 *	for (uint32_t k = 0; k < width; k++)
 *		row[k] = round.index - round.index % width + k;
 *	op.scope = (struct tr_scope){ row, width };
 *
 * What an op of some yields is part of something that only all together know how to lay out. So when a contributor is lost, a round in which
 * the callers use scopes, or have used one before in this group, begins again at all of them (TR_ERESTART), whatever the policy; a joiner does
 * not disturb it. tr_explain answers for the whole group. */
struct tr_scope {
	const uint32_t *members; /* borrowed until the call returns */
	uint32_t count;
};

/* One collective of a round. All memory is from tr_alloc and stays borrowed until the round is decided, or the op released. Of the fields down to `root`,
 * but for `input` and `output`, all peers that submit the op say the same (TR_SEND and TR_RECV are each other's counterpart); else the
 * round fails with TR_EMISMATCH, at all members, also those that agreed: the text names two that did not. A joiner that says other things in its
 * first round, which is the contributors', ends alone; the round goes on.
 *
 *	struct tr_op op = TR_OP_INIT;
 *	op.tag = 1;
 *	op.collective = TR_REDUCE_SCATTER;
 *	op.input = gradients;
 *	op.output = mine; // tr_block_range(count, round.contributors, round.index, &first, &elements)
 *	op.count = count;
 *	tr_submit(group, &op, &error);
 *
 *	collective          input                     output
 *	TR_ALL_REDUCE       count                     count
 *	TR_REDUCE_SCATTER   count                     the caller's block; in place: at its place among count
 *	TR_ALL_GATHER       the caller's block        count
 *	TR_BROADCAST        count, at the root only   count
 *	TR_BARRIER          -                         -
 *	TR_SEND             count                     -
 *	TR_RECV             -                         count
 *
 * In place (`input` NULL) the output holds the input. A peer that does not contribute gives no input, and gets what all get: of a
 * reduce-scatter nothing, its output may be empty.
 * With TR_KEEP the output of a TR_BROADCAST or TR_RECV whose source was lost is not written, or in part, and of a TR_ALL_GATHER not at the places of
 * who was lost. tr_wait returns TR_EPEERLOST for the first two; tr_round_commit, which is about the round, TR_OK with `partial`, and tr_contributors
 * says of each element whether it is anybody's: nobody's are not to be used. */
struct tr_op {
	size_t size_of; /* sizeof(struct tr_op) */
	uint32_t tag; /* names the op within the round; scopes without a common peer may use the same */
	enum tr_collective collective;
	const void *input; /* NULL: in place. Else it shares no memory with any output of the round */
	void *output;
	size_t count; /* elements of the whole */
	enum tr_dtype dtype;
	enum tr_reduce reduce; /* TR_ALL_REDUCE, TR_REDUCE_SCATTER */
	enum tr_codec codec;
	enum tr_algorithm algorithm; /* TR_AUTO: the group's */
	unsigned root;  /* contributor: TR_BROADCAST and TR_RECV: source; TR_SEND: destination */
	unsigned flags; /* TR_CONTRIBUTE, TR_THEN_WAIT, TR_IN_TURN */
	const struct tr_block *input_block,
	    *output_block; /* NULL: contiguous; borrowed until return */
	/* Error feedback of a sum with a codec: `count` floats each, in the op's order. What this peer gives is encoded from a = input + beta *
	 * residual, and residual_next = a - what the encoded bytes say. The library reads the one and writes the other; the caller swaps them
	 * after a commit that returned TR_OK, and only then: so an abandoned round has nothing to restore. Start with zeros. Neither shares
	 * memory with the output, nor residual_next with anything.
	 * Where a reduce-scatter's block is nobody's, since its contributor died, residual_next = a (but for an op that was released before). */
	const float *residual;
	float *residual_next;
	float beta;
	struct tr_scope scope;
};
#define TR_OP_INIT                                                                       \
	{                                                                                \
		sizeof(struct tr_op), 0, TR_ALL_REDUCE, NULL, NULL, 0, TR_F32, TR_SUM,   \
		    TR_CODEC_NONE, TR_AUTO, 0, TR_CONTRIBUTE, NULL, NULL, NULL, NULL, 0, \
		{                                                                        \
			NULL, 0                                                          \
		}                                                                        \
	}

/* Submits an op; waits for nobody. (A process that joined by name may make a turn of its own engine in it, as in the calls that wait: then what can be done with
 * the op at once is done here, its first pieces encoded, say, and in a group of one all of it: 0.6 s for a GiB of f32 that is not in place. The engine of an
 * attached one is another process.) All peers, of a scope those in it, submit the same ops, in any order. No two ops of a round that are not released write to the
 * same memory, nor does one read what another writes; none writes into memory that tr_state_add declared, since that must not change before the commit: reduce
 * beside it, and apply the result once tr_round_commit has returned TR_OK. Errors of others surface at commit. TR_EINVAL: says what is wrong; nothing was
 * submitted. So it is outside of a round: before the first tr_round_begin, and from a commit that returned TR_OK to the next one.
 * TR_ERESTART: the round was abandoned. What only the engine finds (TR_ELIMIT: more segments than an op may have) comes with the next tr_wait, and once with tr_round_commit: the
 * op is not in the round then, which goes on. Submit it in another way, or commit without it. */
TR_API tr_status tr_submit(tr_group *group, const struct tr_op *op, struct tr_error *error);

/* An all-reduce in place, the shortest way. */
TR_API tr_status tr_allreduce(tr_group *group, uint32_t tag, void *data, size_t count,
    enum tr_dtype dtype, enum tr_reduce reduce, unsigned flags, struct tr_error *error);

/* The others, the shortest way: contiguous, without a codec, by the group's algorithm; who contributes is the round's matter. */
TR_API tr_status tr_reduce_scatter(tr_group *group, uint32_t tag, const void *input, void *output,
    size_t count, enum tr_dtype dtype, enum tr_reduce reduce, struct tr_error *error);
TR_API tr_status tr_allgather(tr_group *group, uint32_t tag, const void *input, void *output,
    size_t count, enum tr_dtype dtype, struct tr_error *error);
TR_API tr_status tr_broadcast(tr_group *group, uint32_t tag, void *data, size_t count,
    enum tr_dtype dtype, unsigned root, struct tr_error *error);
TR_API tr_status tr_barrier(tr_group *group, uint32_t tag, struct tr_error *error);
TR_API tr_status tr_send(tr_group *group, uint32_t tag, const void *data, size_t count,
    enum tr_dtype dtype, unsigned to, struct tr_error *error);
TR_API tr_status tr_recv(tr_group *group, uint32_t tag, void *data, size_t count,
    enum tr_dtype dtype, unsigned from, struct tr_error *error);

/* Which of `count` elements is contributor `index`'s block, in TR_REDUCE_SCATTER and TR_ALL_GATHER: as even as can be, larger ones first.
 * No elements for an index that is none (a joiner's). */
TR_API void tr_block_range(size_t count, unsigned contributors, unsigned index, size_t *first,
    size_t *elements);

/* Waits until one op's result is in place, before the commit. Reading it early is allowed; acting on it
 * irrevocably is not: only the commit decides. What was read is what is committed, unless this round ends with TR_ERESTART: no policy
 * redoes a round behind a caller that has read something of it, since what it took from it would be of no result. So wait late, for what
 * the commit needs. TR_EMISMATCH: some peer closed the round without the op; the text names it. TR_EPEERLOST: it is a TR_BROADCAST or a TR_RECV in
 * a group with TR_KEEP, and its source, which the text names, was lost before all of it was here: the output is not its result, as often as it is
 * asked for. The round goes on, and can be committed.
 * The source of a TR_BROADCAST with a codec, or that does not lie in a row, waits until the last of it is staged, so until its peers have taken most of it.
 *
 * A caller may wait for an op before it submits others, in any order, unless it waits in a circle: if one peer waits for op 1 before it
 * submits op 2, and another for op 2 before it submits op 1, each waits for the other. Both count as waiting, so nobody is
 * put out: after op_deadline_ms both get TR_ETIMEDOUT, which names the other; without a deadline they wait for ever. (The same circle can
 * go through two groups, or through anything else that callers wait for.) After TR_ETIMEDOUT the round goes on: submit the rest. */
TR_API tr_status tr_wait(tr_group *group, uint32_t tag, struct tr_error *error);
/* The same for at most so long, instead of op_deadline_ms; 0: looks whether the result is there. TR_ETIMEDOUT: it is not yet; the text names who has
 * not submitted the op, or before that is known (600 ms) or if all have, whom this peer itself waits for. */
TR_API tr_status tr_wait_for(tr_group *group, uint32_t tag, uint32_t milliseconds,
    struct tr_error *error);

/* Gives an op's memory back to the caller in the middle of the round: another op may use it, under another tag. The caller says with it that every
 * member of the op, of its scope, has its result, so that nothing of it can be wanted again. That is so once the caller has waited for a later op of the
 * same members which each of them submitted after it had waited for this one (and whose result tells that they did: of an all-reduce, an all-gather or a barrier
 * it does where each of them has a block, so at least as many elements as members; of a broadcast it does not); and of a TR_RECV once it was waited for.
 * Of a TR_SEND only something that its receiver sends later tells: a wait for it returns as soon as it may be on its way, and what is written into its memory
 * then is what the receiver may get. With two buffers in turn:
 *
 *	for (uint32_t k = 0; k < layers; k++) {
 *		op.tag = k;
 *		op.output = buffer[k % 2];      // was op k - 2's
 *		fill(op.output, k);
 *		if (tr_submit(group, &op, &error) != TR_OK || tr_wait(group, k, &error) != TR_OK)
 *			return again(&error);
 *		if (k > 0)
 *			tr_release(group, k - 1, &error);
 *		use(op.output, k);
 *	}
 *
 * Only ops in a scope (one of all contributors, too), sends and receives can be released: what all members have, a joiner may still have to be given. What
 * was released counts for the round as if it were still there, but not among the ops that a round has at most; tr_contributors knows it
 * no more, and its tag cannot be used again in the round. Returns at once, and wakes nobody. TR_EINVAL: no such op in this round; or, from the next
 * tr_wait and each tr_round_commit, that its result was not there, or that it was not sent yet: then this round cannot be committed any more, as two ops may have written to one
 * memory. TR_ERESTART: the round was abandoned. */
TR_API tr_status tr_release(tr_group *group, uint32_t tag, struct tr_error *error);

/* Joiner only: waits until the state of the round before this one has arrived and its digests agree. */
TR_API tr_status tr_state_receive(tr_group *group, struct tr_error *error);

struct tr_state_progress {
	uint64_t bytes, missing; /* of the state as declared */
	uint64_t came;           /* in this round, in all of its tries */
	bool whole;              /* all is here, and its digests agree */
	bool may_defer;          /* TR_DEFER_STATE would be obeyed: what is not gradual is here */
	uint64_t kept; /* of `came`: what would stay if the round were decided now: whole units alone */
	uint64_t reserved[1];
};
/* The same, waiting for at most so long: TR_ETIMEDOUT while it is not whole. Then, and with TR_OK, *progress (not NULL) is filled; otherwise it is left as it is. */
TR_API tr_status tr_state_receive_for(tr_group *group, uint32_t milliseconds,
    struct tr_state_progress *progress, struct tr_error *error);

struct tr_commit {
	/* Samples in the round's result, all contributors together: recorded. Must be equal on all peers, so take it from what was reduced
	 * (tr_wait, in this try of the round): data of a peer that died after it was everywhere counts. 0 if unused. */
	uint64_t samples;
	uint64_t salt;  /* must be equal on all peers (a digest of the state, say); 0 if unused */
	uint64_t flags; /* TR_DEFER_STATE (tr_state_add_gradual), or 0; each peer's own */
	uint64_t reserved[3]; /* zero */
};
/* This peer is to take part in the commit without its state (tr_state_add_gradual). If it may not, the commit waits for the state: of the committed round
 * `receive_state` says whether it was decided without. It counts in the first call of a commit only, and between a call that timed out and the next one no
 * state is received. */
#define TR_DEFER_STATE 1u

/* Closes the round: waits for all ops, exchanges digests, and returns TR_OK with the round decided on every
 * peer. TR_ERESTART: abandoned, nothing may be applied, begin again. TR_EDIGEST,
 * TR_EMISMATCH: peers disagree; the text names them. TR_EPEERLOST: names the peer. With TR_KEEP look at round->partial after TR_OK: of a
 * broadcast or a receive that was not waited for only that says that its source may have been lost, and its output not written (struct tr_op).
 *
 * TR_ETIMEDOUT (with an op_deadline_ms; names who has not submitted an op or not committed, as tr_wait_for): nothing is decided. The round is
 * closed and goes on: its buffers stay borrowed, none may be read, filled or freed, and no op be added. Call it again, or leave; the first
 * call's `commit` counts. */
TR_API tr_status tr_round_commit(tr_group *group, const struct tr_commit *commit,
    struct tr_round *round, struct tr_error *error);
/* The same, waiting for at most so long, as tr_wait_for. */
TR_API tr_status tr_round_commit_for(tr_group *group, const struct tr_commit *commit,
    struct tr_round *round, uint32_t milliseconds, struct tr_error *error);

/* Says that the caller is computing, not stuck; call it a few times a second (cheap: one atomic add).
 * Returns false once the round under way was abandoned, so that the caller can stop early. Any thread. */
TR_API bool tr_progress(tr_group *group);

/* Contributor set of element `element` of op `tag` of the round committed last: writes at most `max`
 * peer ids, ascending; *count is how many there are. TR_ENOTFOUND: there is no such element, or the op was released. */
TR_API tr_status tr_contributors(tr_group *group, uint32_t tag, size_t element, uint64_t *peers,
    size_t max, size_t *count);

/* *elements of op `tag` of the round committed last have the same set: each run of so many from the op's first on (in TR_REDUCE_SCATTER and
 * TR_ALL_GATHER: from each block's first on; the last one is what is left). TR_ENOTFOUND: there is no such op, it has no elements, or it was released. */
TR_API tr_status tr_run_elements(tr_group *group, uint32_t tag, size_t *elements);

/* What a group does, for those who look: this call, tr_stats_get and tr_links. Any thread, at any time between join (or attach) and leave,
 * also while another thread waits in a call of the group: each is a question to the engine, and its answer. After the member's end they
 * return what ended it.
 *
 * Which algorithm an op like this one would take if it were submitted now, and why: "direct: 0.66 ms against 1.26 ms (ring), ...". Of `op` the
 * collective, count, dtype, codec and algorithm are read. `text` gets at most text_bytes, NUL included; `algorithm` and `text` may be
 * NULL. TR_EUNAVAILABLE: the group is in no view yet.
 *
 *	struct tr_op op = TR_OP_INIT;
 *	char why[256];
 *	op.count = 25 << 20;
 *	if (tr_explain(group, &op, NULL, why, sizeof(why), &error) == TR_OK)
 *		printf("%s\n", why); */
TR_API tr_status tr_explain(tr_group *group, const struct tr_op *op, enum tr_algorithm *algorithm,
    char *text, size_t text_bytes, struct tr_error *error);

enum { TR_COLLECTIVES_MAX = 16 }; /* room for those to come */

/* Counted since this peer joined. */
struct tr_stats {
	size_t size_of;            /* sizeof(struct tr_stats) */
	uint64_t view;             /* number of the newest one; 0: the group is in none yet */
	uint64_t peers;            /* in it, this one included */
	uint64_t views;            /* that this peer was in */
	uint64_t peers_lost;       /* that were in one of them and not in the next */
	uint64_t rounds;           /* committed */
	uint64_t rounds_abandoned; /* tries that ended with TR_ERESTART */
	uint64_t rounds_repaired;  /* of `rounds`: begun in one view, finished in a later one */
	uint64_t ops[TR_COLLECTIVES_MAX];      /* of `rounds`, by enum tr_collective */
	uint64_t op_bytes[TR_COLLECTIVES_MAX]; /* of these: elements of the whole, times their size */
	/* To and from all peers, over TCP: headers, votes, signs of life and state included; and through shared memory, where most of it
	 * is read where it lies. */
	uint64_t tcp_sent_bytes, tcp_received_bytes;
	uint64_t shm_sent_bytes, shm_received_bytes;
	/* Of those sent, without headers: pieces that this peer had given out in an earlier view of the same round, or on a connection
	 * that broke, and gave out again. */
	uint64_t resent_bytes;
	uint64_t waited_us; /* that the caller's thread waited in begin, wait, commit and receive */
};
#define TR_STATS_INIT                                                                        \
	{                                                                                    \
		sizeof(struct tr_stats), 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 }, 0, 0, 0, 0, 0, 0 \
	}
TR_API tr_status tr_stats_get(tr_group *group, struct tr_stats *stats, struct tr_error *error);

enum { TR_LINK_NODE_MAX = 64, TR_LINK_ADDRESS_MAX = 128, TR_LINK_CONGESTION_MAX = 16 };

/* The way to one other peer of the view, and back. */
struct tr_link {
	size_t size_of; /* sizeof(struct tr_link) */
	uint64_t peer;
	char node[TR_LINK_NODE_MAX];       /* name of its node */
	char address[TR_LINK_ADDRESS_MAX]; /* "host:port" */
	enum tr_transport transport;       /* TR_TRANSPORT_AUTO: not connected */
	bool up; /* there is a connection, one way at least: the algorithm may need no more */
	unsigned lanes_out;                      /* connections that we opened, for what we send */
	unsigned lanes_in;                       /* that it opened */
	char congestion[TR_LINK_CONGESTION_MAX]; /* TCP congestion control by the kernel's name; "": none */
	double rtt_s; /* round trip, as the kernel measures it; 0: not measured (shared memory) */
	/* At which large bursts went out over TCP (the median of the newest three), encoded elements as long as they were before the engine packed them for a long way; 0: there was none yet. */
	double bandwidth_bytes_per_s;
	uint64_t sent_bytes, received_bytes; /* as in struct tr_stats, while it is in the view */
};
#define TR_LINK_INIT                                                                              \
	{                                                                                         \
		sizeof(struct tr_link), 0, "", "", TR_TRANSPORT_AUTO, false, 0, 0, "", 0, 0, 0, 0 \
	}
/* Writes the first `max` links, by ascending peer; *count is how many there are. links[0].size_of tells the size of all, so of an array only
 * the first has to be TR_LINK_INIT. TR_EUNAVAILABLE: the group is in no view yet. */
TR_API tr_status tr_links(tr_group *group, struct tr_link *links, size_t max, size_t *count,
    struct tr_error *error);

/* Of a job that was planned anew while it ran: the plan in force. */
struct tr_plan_now {
	double step_s; /* predicted */
	unsigned dp, pp, tp;
};

/* Facts for the people who watch: shown by trainctl. NaN or zero or NULL: no news. */
struct tr_report {
	uint64_t step, steps;
	double loss, val_loss, tokens_per_s, grad_norm, lr;
	const char *checkpoint, *event, *sample;
	/* Training that talks rarely. 0: no news of these four. */
	uint64_t merges; /* outer steps */
	uint64_t sent_bytes,
	    dense_bytes; /* by all peers; that data parallel training would have sent */
	double hidden; /* of the time from departure to merge, the share (0 to 1) that nobody waited for */
	const void
	    *samples; /* packed traind.v1.SampleAccount (traind's own worker), samples_bytes long */
	size_t samples_bytes;
	const struct tr_plan_now *plan; /* the same */
	uint64_t reserved[1];
};
TR_API tr_status tr_report(tr_group *group, const struct tr_report *report);

/* The job that traind gave this worker: packed traind.v1.JobSpec, valid until leave; rank, world size,
 * restarts. TR_ENOTFOUND on a group that was joined by name. */
struct tr_assignment {
	const void *spec;
	size_t spec_bytes;
	uint64_t job, peer;
	unsigned rank, world_size, threads, restarts;
	uint64_t reserved[4];
};
TR_API tr_status tr_assignment_get(tr_group *group, struct tr_assignment *assignment);

TR_API uint64_t tr_peer_id(const tr_group *group);

#ifdef __cplusplus
}
#endif

#endif
