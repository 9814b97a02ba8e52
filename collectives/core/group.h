/* The core of one group member: views, rounds, ops, repair. Sans-IO: an event in, actions out, no
 * clock, no sockets, no logging. The engine runs it over TCP; the simulator runs the same code in
 * virtual time.
 *
 * Walk of a gradient. Every segment of an op has a route through the round's participants (route.h): a tree in which sums
 * go up and the result comes down. A member adds its own (untouched) input and its children's sums, and passes the sum on
 * from staging; the root seals: writes the result in place and sends it down as SEALED. Ring: the tree is a chain that
 * starts at ring place k mod n for segment k, and the result goes around once more. Star: its root is the hub. Direct:
 * each segment has its owner, by shares that follow the links' bandwidth (shares.h). Hierarchical: the members of a host
 * first, then the hosts. One-shot: no tree, everybody gets all inputs and seals by itself. Which one: select.h. With
 * `deterministic` everything is added in ascending peer id (ring: one chain, from the lowest). A participant that does not
 * contribute passes on what it got.
 *
 * A member has at most a window of an op on the way: begun and not sealed at itself (window.c). A result is the credit for the
 * next segment, so staging is bounded whatever the op's size. In a reduce-scatter the credit is what is sealed of one's own block.
 * A source (broadcast, all-gather, send) gets nothing back: where it encodes or gathers it has a window of that on the way out (outlet.c), else it begins all at once.
 *
 * Ahead. Peers may submit the same ops in any order, and wait in between. A member sends only so much of an op to a peer that has not said
 * that it submitted it too (ahead.c); so who takes segments can keep aside what comes too early, and nothing else waits behind it.
 *
 * Commit. When the caller asked to commit and all ops are sealed, the member votes (digest) to the
 * hub; the hub answers COMMIT when all participants voted the same. A member that got COMMIT for r
 * knows that everyone voted for r, so everyone holds all of r's results.
 *
 * View change. PROPOSE freezes: nothing of the old view is sent, added or sealed any more; a REPORT
 * says what is sealed. INSTALL brings the new view and a Resume: sealed segments are served by the
 * lowest-numbered holder to those who lack them; the others are redone among the survivors from
 * intact inputs; or (finish = false) the round is begun again: with POLICY_REPLAY the caller is
 * told TR_ERESTART, with POLICY_UNIFORM the core redoes it from its saved inputs.
 */
#ifndef TR_COLLECTIVES_CORE_GROUP_H
#define TR_COLLECTIVES_CORE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"
#include "common/ids.h"
#include "collectives/coll.h"
#include "proto/segment.h"
#include "traind/peer/peer.pb-c.h"

struct group_core;

/* Reference-counted staging; the engine holds one reference per unfinished send. */
struct group_buffer;

/* Where staging comes from, so that an engine can place it in memory which its peers map. */
struct group_memory {
	void *(*get)(void *arg, size_t bytes); /* 64-byte aligned; NULL: none left */
	void (*put)(void *arg, void *memory, size_t bytes);
	void *arg;
};

/* Whether bodies that were given as `stable` in this view are as they were. A member that stood still while the others gave it up may wake with frames and votes of the old view
 * that speak of memory whose owners have gone on. It asks before it votes: whoever votes has read everything, and nobody decides without all votes. */
struct group_lent {
	bool (*intact)(void *arg,
	    uint64_t view); /* NULL: bodies are copied, or never written again */
	void *arg;
};

enum group_event_kind {
	GROUP_PROPOSE, /* .propose: freeze and report */
	GROUP_INSTALL, /* .install: view and resume; borrowed during the step */
	GROUP_READY,   /* .round: the caller's state holds this round (tr_state_ready) */
	GROUP_BEGIN,   /* the caller wants to begin the next round */
	GROUP_SUBMIT,  /* .submit */
	GROUP_WAIT,    /* .tag: the caller waits for an op's result before it closes */
	GROUP_RELEASE, /* .tag: all members of the op have its result; its memory is the caller's */
	GROUP_SCOPED, /* the caller makes ops in scopes that come to no core, from now on: as if one had been submitted */
	GROUP_CLOSE, /* .close: the caller asks to commit. TR_DEFER_STATE: if group_core_may_defer; its state is not to be called whole before the round is decided, and from then on nothing may write into it until the next GROUP_DO_STATE_ASK */
	GROUP_SEGMENT, /* .segment: from a peer; payload borrowed during the step */
	/* .gathered: all others' inputs of a small op of ours, each as a SEGMENT would bring it. TR_EAGAIN: not in this way, offer them one by one */
	GROUP_GATHERED,
	GROUP_VOTE,        /* .vote */
	GROUP_COMMIT,      /* .commit */
	GROUP_SUBMITTED,   /* .submitted: what .from has submitted */
	GROUP_LINK_LOST,   /* .link: the connection to or from a peer broke */
	GROUP_STATE_ASKED, /* .from wants our state, or of it what .wish says, .round */
	GROUP_STATE_SENT, /* the transfer of the state after .round to .from ended, well or not; not said once DECIDED ended it */
	GROUP_STATE_RECORDS, /* .records of rounds before our state, that came with it; borrowed during the step */
	GROUP_STATE_GOT, /* our own transfer ended; .status */
	GROUP_LINKS,     /* .links: what was measured of our long links; the next vote says it */
	GROUP_RECORDED, /* .round: memberd's log has the records of all up to it, none is missing */
	GROUP_LEAVE, /* the caller left: all records that the log may lack are said, not only the hub's */
	GROUP_MEMBERD_BACK, /* it may not know that we are frozen: the report again */
	GROUP_TICK,
};

/* What a joiner wants of a member's state. Its donor has to answer; other members that hold the state do if `any`. */
struct group_wish {
	bool digests_only; /* no chunk: it has them, or gets them from others */
	bool pieces;       /* no digests */
	bool any;          /* of whoever holds it; in view `view` */
	bool take_back; /* what was asked for from `first` on ends at `end`; if it is over, nothing is wanted */
	bool same; /* its tensors are the worker's here, by name and size: they need not be said */
	uint64_t view;       /* in which the joiner says so */
	uint64_t first, end; /* chunks; both 0: all */
};

/* An op of the caller's. Pointers are borrowed until the round is decided or the op released, blocks during the step. What each collective reads and
 * writes: struct tr_op. */
struct group_submit {
	uint32_t tag;
	enum tr_collective collective;
	void *data;        /* the result; in place: the input too */
	const void *input; /* NULL: in place, or nothing to give */
	uint64_t count;
	uint64_t
	    own_elements; /* that the memory of the caller's own block has: reduce-scatter's data, all-gather's input, out of place */
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	enum tr_codec codec;
	enum tr_algorithm algorithm; /* TR_AUTO: the view's */
	uint32_t root;
	bool contribute;
	const struct tr_block *data_block, *input_block; /* NULL: contiguous */
	const float *residual; /* `count` floats each; NULL: no error feedback */
	float *residual_next;
	float beta;
	struct tr_scope scope;
};

struct group_event {
	enum group_event_kind kind;
	uint64_t now_us;
	uint64_t from; /* peer id, where a peer sent it */
	uint64_t round;
	uint32_t tag;
	tr_status status;
	struct group_wish wish;
	union {
		const Traind__Peer__ViewPropose *propose;
		const Traind__Peer__ViewInstall *install;
		struct group_submit submit;
		struct tr_commit close;
		struct {
			const struct segment_header *header;
			const void *payload;
			/* Holds the payload (group_buffer_take); the step takes the reference, unless it returns TR_EAGAIN. NULL:
			 * borrowed during the step. */
			struct group_buffer *buffer;
			/* The payload stays as it is until this round is decided or the view freezes: memory of a peer's caller
			 * that we map. It may be kept by pointer. */
			bool stable;
			/* Of this frame, kept with it while it is parked: false when it comes, then the core's (ahead.c). NULL:
			 * it is not offered again. */
			bool *counted;
		} segment;
		struct {
			/* Of our own frame; theirs are the same, but for the contributor. */
			const struct segment_header *header;
			const uint64_t *peers;       /* of whom, ascending */
			const void *const *payloads; /* borrowed during the step */
			size_t count;
		} gathered;
		const Traind__Peer__Vote *vote;
		const Traind__Peer__Commit *commit;
		const Traind__Peer__Submitted *submitted;
		struct {
			Traind__Peer__RoundCommit *const *items;
			size_t count;
		} records;
		const char *reason;
		struct {
			uint32_t latency_us;            /* one way, of the worst; 0: unknown */
			uint64_t bandwidth_bytes_per_s; /* of all of them together; 0: unknown */
		} links;
	};
};

enum group_action_kind {
	GROUP_DO_SEND_SEGMENT, /* .send: to peer `to` */
	/* The same to all other members of the view, `to` is nobody: shown to all at once, or sent to each (group_action_to). */
	GROUP_DO_SPREAD,
	GROUP_DO_SEND_VOTE,
	GROUP_DO_SEND_COMMIT,
	GROUP_DO_SEND_SUBMITTED, /* .submitted */
	GROUP_DO_DROP_SENDS, /* the view froze: forget unsent segments of it (a half-written frame
	                        may be copied) */
	GROUP_DO_REPORT,     /* .report: to memberd */
	GROUP_DO_LINK_LOST, /* .reason: to memberd, about peer `to`; 0: no link, but we need another view */
	GROUP_DO_CONNECT, /* edges that this view will use: peer `to` at .address */
	GROUP_DO_BEGAN,   /* answer to BEGIN: .round_info */
	/* Answer to WAIT: .tag's result is in place; it stays, unless the round begins again at the caller. .status TR_EPEERLOST, .text: some of
	 * it is nobody's, and will not come in this round. */
	GROUP_DO_OP_DONE,
	GROUP_DO_DECIDED, /* answer to CLOSE (or unasked: restart, eviction): .status, .round_info,
	                     .reason */
	/* .record for memberd's log: keep it until ROUNDS_RECORDED covers it, say it again after a reconnect. */
	GROUP_DO_RECORD,
	/* Donor: stream the state after .round to peer `to`, or of it what .wish says, until GROUP_STATE_SENT, or until DECIDED says
	 * that the next round is committed: then the joiner has it, and the memory is the caller's. Over a connection of its own: a
	 * segment that the joiner has parked (TR_EAGAIN) must not hold it up. */
	GROUP_DO_STATE_SEND,
	/* Joiner: ask donor `to` for the state after .round. Said again until GROUP_STATE_GOT: a transfer that moves goes on. */
	GROUP_DO_STATE_ASK,
	/* .status, .text: this member cannot go on. .refused: nor can anybody in .round, of which its members say different things. Tell
	 * memberd, again after a reconnect. */
	GROUP_DO_FAIL,
	/* Parked segments (TR_EAGAIN) may be offered again: all, or if .one_op those of op .tag of .round. */
	GROUP_DO_RETRY,
};

struct group_action {
	enum group_action_kind kind;
	uint64_t to;
	uint64_t round;
	uint32_t tag;
	bool one_op;
	bool refused;           /* FAIL */
	struct group_wish wish; /* STATE_SEND */
	tr_status status;
	struct tr_round round_info;
	struct segment_header header; /* SEND_SEGMENT, SPREAD */
	const void
	    *payload; /* SEND_SEGMENT, SPREAD: the op's memory (stable until decided or frozen) or
	                        .buffer's */
	size_t payload_bytes;
	struct group_buffer *buffer; /* SEND_SEGMENT, SPREAD: one reference to give back, or NULL */
	Traind__Peer__ViewReport *report; /* REPORT: owned by the actions until group_actions_clear */
	Traind__Peer__RoundCommit *record; /* RECORD: likewise (set the pointer to NULL to keep it) */
	Traind__Peer__Submitted *submitted; /* SEND_SUBMITTED: likewise */
	/* Only of the kinds that have them: */
	Traind__Peer__Vote vote; /* SEND_VOTE: no pointers inside */
	/* SEND_COMMIT: .reason points to .text or the empty string, .bandwidth_bytes_per_s into the core until its next step. */
	Traind__Peer__Commit commit;
	char address[TR_ADDRESS_MAX];
	char text[256]; /* reason in words */
};

/* A growing array, emptied by the caller after it acted. */
struct group_actions {
	struct group_action *items;
	size_t count, capacity;
};

struct group_core_options {
	uint64_t group, peer;
	struct group_memory memory; /* zeroed: the allocator's */
	struct group_lent lent;     /* zeroed: nothing is */
	bool spreads;               /* GROUP_DO_SPREAD is understood */
	size_t window_bytes; /* of one op: begun by this member and not sealed here; 0: TR_OP_WINDOW_BYTES */
	size_t outlet_bytes; /* of one op: staged by this member as its source, and not sent; 0: window_bytes */
	size_t ahead_bytes; /* of what comes before its op is submitted here; 0: TR_AHEAD_BYTES. The same at all members */
};

tr_status group_core_create(const struct group_core_options *options, struct group_core **core);
void group_core_destroy(struct group_core *core);

/* One step. TR_OK; TR_EAGAIN (GROUP_SEGMENT only: nothing was consumed, offer it again after
 * GROUP_DO_RETRY and stop reading that connection until then); TR_ESTALE (dropped by its header);
 * TR_EPROTO, TR_ENOMEM of what came from a peer (its connection is to be closed; of anything else that is lost for want of memory the
 * core says GROUP_DO_LINK_LOST of nobody, or fails); TR_EINVAL, TR_ERESTART (GROUP_SUBMIT,
 * GROUP_WAIT, GROUP_RELEASE, GROUP_CLOSE, GROUP_BEGIN: the caller's). */
tr_status group_core_step(struct group_core *core, const struct group_event *event,
    struct group_actions *actions, struct tr_error *error);

/* TR_OK: GROUP_INSTALL of it will not be refused, unless there is no memory. Else why it will be. */
tr_status group_core_may_install(const struct group_core *core,
    const Traind__Peer__ViewInstall *install, struct tr_error *error);
/* Can there be frames of this view? Numbers grow by a few with each proposal, and a member freezes for a view before anybody has it. */
bool group_core_expects(const struct group_core *core, uint64_t view);

/* What GROUP_DO_SPREAD says, for one of them: a SEND_SEGMENT with a reference of its own. */
struct group_action group_action_to(const struct group_action *spread, uint64_t peer);
/* Would this segment be taken, or dropped, rather than answered TR_EAGAIN? */
bool group_core_takes(const struct group_core *core, const struct segment_header *header);
/* What the caller waits for: the op with *tag, or all of them, to commit. */
enum group_wait { GROUP_WAITS_NOT, GROUP_WAITS_OP, GROUP_WAITS_ALL };
enum group_wait group_core_waits(const struct group_core *core, uint32_t *tag);
/* Ops of the round whose result is not here. */
size_t group_core_open_ops(const struct group_core *core);

/* Is a GROUP_TICK wanted now? Giving back a buffer may make it so, beside steps. */
bool group_core_due(const struct group_core *core);
/* Does something wait for buffers to be given back? Then nothing else may come that tells that they could be. */
bool group_core_starved(const struct group_core *core);
/* Next time at which GROUP_TICK is wanted; 0: now; UINT64_MAX: none. */
uint64_t group_core_deadline_us(const struct group_core *core);

/* Memory for the payload of a segment whose header has come from that peer: header->bytes of it, staging or the caller's own
 * (landing.c). One reference; NULL: out of memory. */
struct group_buffer *group_buffer_take(struct group_core *core, uint64_t from,
    const struct segment_header *header);
/* Where its bytes go. Any step may change that: look before each of them is written. What was written before stays where it is. */
void *const *group_buffer_at(const struct group_buffer *buffer);
/* Of all bytes, in order: whoever writes them may add them while they are hot, and spares the core to read them again. NULL: no need. */
struct tr_digest_stream *group_buffer_hash(struct group_buffer *buffer);
/* The caller's memory is the caller's again, whatever is under way: the member ends. */
void group_core_let_go(struct group_core *core);
/* Gives back a reference: one that came with GROUP_DO_SEND_SEGMENT, or of group_buffer_take. */
void group_buffer_release(struct group_core *core, struct group_buffer *buffer);

/* What a heartbeat tells: the round under way, whether the caller waits, and for whom. */
struct group_core_progress {
	uint64_t view, round, committed;
	bool waiting;
	uint64_t waits_for[8];
	size_t waits_for_count;
	size_t lack_count; /* the first so many have not submitted the op that is waited for; 0: none, or it is not known */
};
/* `caller_waits`: a blocking call of the caller's is open (for an op, for state); the core itself knows of BEGIN and CLOSE. */
void group_core_progress(const struct group_core *core, bool caller_waits,
    struct group_core_progress *progress);

/* Which algorithm an op would take in this view, and why, in words (tr_explain); of `op` the collective, count, dtype, codec and
 * algorithm are read, which are valid. TR_EUNAVAILABLE: there is no view. */
tr_status group_core_explain(const struct group_core *core, const struct group_submit *op,
    enum tr_algorithm *algorithm, char *reason, size_t reason_bytes);

/* As in struct tr_stats; resent_bytes: given out in an earlier view of the round. */
struct group_core_counters {
	uint64_t view, peers, views, peers_lost;
	uint64_t rounds, rounds_abandoned, rounds_repaired;
	uint64_t ops[TR_COLLECTIVES_MAX], op_bytes[TR_COLLECTIVES_MAX];
	uint64_t resent_bytes;
};
const struct group_core_counters *group_core_counters(const struct group_core *core);

/* The caller's memory holds the state after *round and may not change it now: it has begun a round, or asked to, and was not
 * told that it is committed. False otherwise: it may be in the middle of a change. */
bool group_core_state(const struct group_core *core, uint64_t *round);

/* A joiner without its state may close with TR_DEFER_STATE: the view says that it comes gradually. */
bool group_core_may_defer(const struct group_core *core);

/* Records of rounds up to `round` that memberd's log may lack, ascending: they go along with the state after it, so that they outlive
 * those who committed the rounds. At most `max`, the newest; borrowed until the next step. Returns how many. */
size_t group_core_records(const struct group_core *core, uint64_t round,
    Traind__Peer__RoundCommit **records, size_t max);

/* Ids of the contributors of the round under way, by their index; borrowed until the next step. */
const uint64_t *group_core_round_contributors(const struct group_core *core, unsigned *count);
/* Number of the attempt at it that the caller was told of last. */
uint64_t group_core_round_attempt(const struct group_core *core);

tr_status group_core_contributors(const struct group_core *core, uint32_t tag, uint64_t element,
    uint64_t *peers, size_t max, size_t *count);
/* Elements of a segment of an op of the round committed last; 0: there is no such op with elements. */
size_t group_core_segment_elements(const struct group_core *core, uint32_t tag);

/* Forgets all actions and keeps the array. Frees every `report`, `record` and `submitted` that is still set.
 * Does not touch `buffer`: whoever acted on a GROUP_DO_SEND_SEGMENT gives it back with
 * group_buffer_release, sent or not. */
void group_actions_clear(struct group_actions *actions);
void group_actions_finish(struct group_actions *actions);

#endif
