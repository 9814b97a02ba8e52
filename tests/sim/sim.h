/* A deterministic simulator of a whole group: virtual time, one seed, the real core of memberd (daemon/membership/core) and of every
 * member (collectives/core). Around them: a log with a disk that loses what was not synced, links that delay, break and
 * cut off, processes that die at any action or stop for seconds, and workers that do what callers do. After every event the
 * invariants of the design are checked (check.c).
 *
 *	world.c    time and events        net.c     links between engines, connections to memberd
 *	node.c     an engine: runs a core  worker.c  its caller
 *	board.c    what nodes show to each other   shape.c    the ops of a round
 *	release.c  callers take memory back in the middle of one    pulse.c    who hears nothing of whom
 *	uplink.c   the engine's side of memberd
 *	memberd.c  the membership core and its log
 *	fault.c    what goes wrong, when   plant.c   bugs planted on purpose
 *	aim.c      faults aimed at rare states
 *	pieces.c   a joiner's state in pieces, from several members, through the engine's own files
 *	cover.c    in which states it went wrong
 *	sharded/   workers of sharded jobs, whose code is the trainer's own
 */
#ifndef TR_TESTS_SIM_H
#define TR_TESTS_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/core/group.h"
#include "collectives/engine/gather.h"
#include "collectives/engine/pulse.h"
#include "common/digest.h"
#include "common/rng.h"
#include "daemon/membership/core/membership.h"
#include "tests/sim/gradual.h"
#include "tests/sim/pieces.h"
#include "tests/sim/plant.h"

#define SIM_ROUNDS_MAX  4096
#define SIM_OPS_MAX     5
#define SIM_CROWD_MAX   240 /* ops of a round, where rounds of many come */
#define SIM_ELEMENTS    112
#define SIM_FAULTS_MAX  16
#define SIM_AIMS_MAX    3
#define SIM_PATIENCE_US 120000000u /* virtual time to finish after the last fault */

#define MS               1000u
#define SECOND           1000000u
#define SIM_HEARTBEAT_US (200 * MS)
#define SIM_TIMEOUT_MS   1000u

struct sim;

/* ---- world.c ---- */
enum sim_event_kind {
	SIM_LINK,          /* the head of link a -> b is due */
	SIM_LINK_SEEN,     /* a sees that its connection with b broke */
	SIM_TO_NODE,       /* memberd -> a */
	SIM_TO_MEMBER,     /* a -> memberd */
	SIM_CONN_LOST,     /* a sees its connection to memberd close */
	SIM_CONN_CLOSED,   /* memberd sees connection b close */
	SIM_CONNECT,       /* a dials memberd */
	SIM_HEARTBEAT,     /* a */
	SIM_CORE_TICK,     /* a */
	SIM_FOLLOW,        /* a worker is started where one died; it finds its state */
	SIM_WORKER,        /* a's caller does its next thing */
	SIM_BOARD,         /* a looks at the others' boards */
	SIM_HELD,          /* a is offered what it could not take */
	SIM_TRANSFER,      /* a has streamed its state to b */
	SIM_TRANSFER_TOLD, /* and its core hears of it */
	SIM_STATE_IN,      /* and it has arrived at a, from b */
	SIM_MEMBER_TICK,
	SIM_MEMBER_APPLY, /* the oldest unsynced log entry is durable */
	SIM_MEMBER_START,
	SIM_FAULT, /* number a */
	SIM_AIM,   /* number a, at b */
	SIM_PIECES,
};

struct sim_event {
	uint64_t time_us, sequence;
	enum sim_event_kind kind;
	unsigned a, b;
	uint64_t stamp; /* of what it was meant for; an older one is dropped */
};

void sim_at(struct sim *sim, uint64_t time_us, enum sim_event_kind kind, unsigned a, unsigned b,
    uint64_t stamp);
uint64_t sim_draw(struct sim *sim, uint64_t bound);                   /* [0, bound) */
uint64_t sim_between(struct sim *sim, uint64_t least, uint64_t most); /* skewed to the small */
bool sim_chance(struct sim *sim, unsigned percent);
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_violation(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- net.c ---- */
enum sim_message_kind { SIM_SEGMENT, SIM_VOTE, SIM_COMMIT, SIM_SUBMITTED, SIM_STATE_ASK };

struct sim_message {
	struct sim_message *next;
	unsigned from;
	enum sim_message_kind kind;
	uint64_t due_us;
	struct segment_header header;
	const void *payload; /* borrowed from op memory or `buffer` until `copied` */
	size_t payload_bytes;
	struct group_buffer *buffer;
	struct tr_digest sent; /* of the payload when the core gave it away */
	const void *origin;    /* where it was then */
	bool copied;
	bool due;                   /* held, and its op was submitted since */
	bool counted;               /* as in group_event */
	bool looked;                /* whether it comes in halves is known */
	struct group_buffer *place; /* half of it is there */
	char *first;                /* where that half is */
	unsigned to;                /* whose that is */
	Traind__Peer__Vote vote;
	Traind__Peer__Commit commit;
	uint64_t bandwidth[SIM_NODES_MAX]; /* the commit's */
	Traind__Peer__Submitted *submitted;
	char reason[256];
	uint64_t round;
	struct group_wish wish;
};

/* A payload that a core was promised until its round is decided or its view freezes: memory of a peer that it maps. */
struct sim_stable {
	struct sim_stable *next;
	unsigned from;
	const void *origin; /* there */
	size_t bytes;
	uint8_t data[];
};

struct sim_link {
	struct sim_message *head, *tail;
	uint64_t last_due_us, hold_until_us, stamp;
	bool used, parked;
	struct pulse_ear ear; /* the receiver's */
	uint64_t pulses;
	bool dead; /* broken and the sender does not know yet: what it sends is lost */
};

void net_send(struct sim *sim, unsigned from, struct group_action *action,
    enum sim_message_kind kind);
void net_send_plain(struct sim *sim, unsigned from, unsigned to, struct sim_message *message);
/* A segment that did not come over the link. */
void net_came(struct sim *sim, unsigned from, unsigned to, const struct segment_header *header,
    const void *payload, size_t bytes);
void net_pump(struct sim *sim, unsigned from, unsigned to, uint64_t stamp);
void net_retry(struct sim *sim, unsigned to, const struct group_action *retry);
void net_offer_held(struct sim *sim, unsigned to);
void net_drop_sends(struct sim *sim, unsigned from);
void net_break(struct sim *sim, unsigned from, unsigned to);
/* `to` closes it for its silence; `from` learns that when the way is open again. */
void net_silent(struct sim *sim, unsigned from, unsigned to);
void net_node_died(struct sim *sim, unsigned dead, bool silently);
void net_check_returned(struct sim *sim, unsigned from, const void *memory, size_t bytes);
/* The same in the middle of a round: peers that map it see other bytes. */
void net_unread(struct sim *sim, unsigned from, const void *memory, size_t bytes);
void net_unmap(struct sim *sim, unsigned number); /* a promise to its core has ended */
void net_finish(struct sim *sim);

/* ---- board.c ---- */
struct sim_node;
void board_start(struct sim *sim, unsigned node); /* with its core */
void board_enter(struct sim *sim, unsigned node, const Traind__Peer__View *view);
void board_wake(struct sim *sim, unsigned node);
void board_spread(struct sim *sim, unsigned node, const struct group_action *spread);
void board_look(struct sim *sim, unsigned node);
/* struct group_lent: whether all whose memory this node (`arg`) maps are in no later view than that. */
bool board_lent_intact(void *arg, uint64_t view);

/* ---- worker.c ---- */
struct sim_op {
	uint32_t tag;
	enum tr_collective collective;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	enum tr_codec codec;
	enum tr_algorithm algorithm;
	unsigned root, source; /* contributors: as struct tr_op; whose data it is */
	uint64_t count;
	bool in_place, strided, feedback;
	bool absent;                             /* a pair's, and this member is neither of them */
	unsigned index, contributors;            /* of whom submits it, in its scope */
	uint32_t scoped, members[SIM_NODES_MAX]; /* how many are in its scope, and who; 0: all */
	void *data, *input;
	float *residual, *residual_next;
	bool released;          /* then these four are copies of ours, and in the same order: */
	uint8_t *taken_back[4]; /* what the core had; NULL: there was none */
	bool submitted, told;
	bool wanted, read;       /* before the commit */
	struct tr_digest result; /* what was read */
};

enum sim_worker_state {
	WORKER_NONE,
	WORKER_BEGIN, /* waits for BEGAN */
	WORKER_OPEN,  /* submits */
	WORKER_WAITS, /* for an op's result, before it commits */
	WORKER_CLOSED,
	WORKER_THINK, /* between rounds */
	WORKER_ENDED,
};

struct sim_worker {
	enum sim_worker_state state;
	struct tr_round round;
	struct sim_op ops[SIM_CROWD_MAX + 1];
	unsigned op_count, submitted;
	bool receives, received; /* joiner: its state */
	bool abandoned;          /* told TR_ERESTART, has not noticed */
	unsigned lingers;        /* so often more before it closes */
	bool altered;            /* it submits something else than the others */
	uint32_t waited;         /* WORKER_WAITS: tag */
	uint64_t samples; /* to be said at commit: taken from a result, where workers wait for one */
	uint64_t applied, chain;    /* newest round in its state; a hash of all results in order */
	bool holds;                 /* has a state at all */
	struct sim_gradual gradual; /* until then */
	uint64_t stamp;
};

/* Callers of another kind than worker.c's: of the group's calls they make all themselves. */
struct sim_callers {
	void (*step)(struct sim *sim, unsigned node);  /* they wished to be woken (worker_wake) */
	void (*began)(struct sim *sim, unsigned node); /* worker.round */
	void (*op_done)(struct sim *sim, unsigned node, uint32_t tag);
	void (*decided)(struct sim *sim, unsigned node, tr_status status,
	    const struct tr_round *round); /* TR_OK, TR_ERESTART */
	void (*took_state)(struct sim *sim, unsigned node, uint64_t round);
	void (*ended)(struct sim *sim, unsigned node); /* its process has */
	bool (*finished)(struct sim *sim);             /* asked after each event */
};
void worker_wake(struct sim *sim, unsigned node, uint64_t delay_us);
void worker_start(struct sim *sim, unsigned node);
void worker_step(struct sim *sim, unsigned node);
void worker_began(struct sim *sim, unsigned node, const struct tr_round *round);
void worker_op_done(struct sim *sim, unsigned node, uint32_t tag);
void worker_decided(struct sim *sim, unsigned node, tr_status status, const struct tr_round *round,
    const char *reason);
void worker_takes_state(struct sim *sim, unsigned node, uint64_t round, uint64_t chain);
void worker_takes_state_back(struct sim *sim, unsigned node, const struct sim_worker *before);
void worker_state_got(struct sim *sim, unsigned node); /* its core took it */
void worker_end(struct sim *sim, unsigned node);
unsigned worker_key(const struct sim *sim, unsigned node, unsigned index);

/* ---- shape.c: ops, what goes into them and what comes out ---- */
unsigned shape_ops(const struct sim *sim, uint64_t round, unsigned index, unsigned contributors,
    struct sim_op ops[SIM_CROWD_MAX]);
void shape_give(const struct sim *sim, unsigned key, uint64_t round, struct sim_op *op);
void shape_free(struct sim_op *op);
size_t shape_bytes(const struct sim_op *op); /* of `data`, of `input` */
struct group_submit shape_submit(const struct sim_op *op, struct tr_block blocks[2]);
bool shape_sourced(const struct sim_op *op);
bool shape_common(const struct sim_op *op);
bool shape_exact(const struct sim *sim, const struct sim_op *op);
unsigned shape_source(const struct sim_op *op, uint64_t element);
/* The op's contributor `index` as one of the round. */
unsigned shape_outer(const struct sim_op *op, unsigned index);
/* What contributors with these keys (ascending peers) come to: op->count elements in a row. */
void shape_expect(const struct sim *sim, const struct sim_op *op, uint64_t round,
    const unsigned *keys, size_t count, void *out);
struct tr_digest shape_result(const struct sim_op *op); /* of all elements that are for us */
const void *shape_element(const struct sim_op *op, uint64_t element); /* NULL: not for us */
bool shape_is_untouched_element(const struct sim_op *op, const void *element);
bool shape_untouched(const struct sim *sim, unsigned key, uint64_t round, const struct sim_op *op);
bool shape_residual_holds(const struct sim *sim, unsigned key, uint64_t round,
    const struct sim_op *op, const bool *gone);

/* ---- release.c ---- */
void release_some(struct sim *sim, unsigned node); /* of those that all their members have */
bool release_may_come(const struct sim *sim, unsigned node);
void release_check(struct sim *sim, unsigned node, const struct sim_op *op); /* nobody wrote there */

/* ---- node.c ---- */
struct sim_left {
	bool there;
	uint64_t round, chain;
};

struct sim_records { /* packed, as they go with a state */
	uint8_t *data;
	size_t bytes;
};

struct sim_node {
	struct sim *sim;
	bool started, alive;
	uint64_t paused_until_us;
	uint64_t id, incarnation; /* as memberd knows it */
	uint64_t conn;            /* to memberd; 0: none */
	uint64_t to_node_due_us, to_member_due_us, hold_until_us;
	bool joining;
	uint64_t group, peer, view, newest_view;
	struct group_core *core;
	uint64_t tick_us;
	struct sim_stable *stable;
	struct board *board;
	struct sim_pieces *pieces;
	struct gather gather;
	struct sim_message *held; /* what its core could not take yet */
	bool retry_all;           /* of it */
	unsigned crash_after;     /* actions; 0: not planned */
	bool crash_silently;
	uint64_t transfer_round[SIM_NODES_MAX], transfer_chain[SIM_NODES_MAX];
	struct sim_records transfer_records[SIM_NODES_MAX];
	bool transferring[SIM_NODES_MAX], arriving[SIM_NODES_MAX], asked;
	bool transfers_digests[SIM_NODES_MAX];
	struct sim_left left;         /* by a worker that died before it on this machine */
	bool vanished[SIM_NODES_MAX]; /* the first state sent to it was lost, and neither core knows */
	unsigned asked_donor;
	uint64_t asked_round;
	struct sim_worker worker;
	uint64_t progress;
	struct pulse_clock clock;
	Traind__Peer__RoundCommit **records; /* not yet known to be in memberd's log */
	size_t record_count, record_capacity;
	bool failed;
	tr_status failure;
	char failure_text[256];
	uint64_t refused_round; /* of the failure; 0: the others can have it */
};

void node_start(struct sim *sim, unsigned node);
void node_follow(struct sim *sim);
void node_crash(struct sim *sim, unsigned node, bool silently, const char *why);
tr_status node_step(struct sim *sim, unsigned node, struct group_event *event);
void node_release(struct sim *sim, unsigned node, struct group_buffer *buffer);
void node_message(struct sim *sim, unsigned node, const Traind__Peer__ToNode *message);
void node_finish(struct sim *sim, unsigned node);
void node_connect(struct sim *sim, unsigned node);
void node_conn_lost(struct sim *sim, unsigned node);
void node_heartbeat(struct sim *sim, unsigned node);
void node_view_changed(struct sim *sim, unsigned node, const Traind__Peer__View *view);
void node_stops_state(struct sim *sim,
    unsigned node); /* who sends it one finds its connection closed */
void node_link_seen(struct sim *sim, unsigned node, unsigned other);
void node_transfer_told(struct sim *sim, unsigned node, unsigned to, uint64_t round);
void node_transfer_done(struct sim *sim, unsigned node, unsigned to);
void node_state_in(struct sim *sim, unsigned node, unsigned from, bool failed);
unsigned node_of_peer(const struct sim *sim, uint64_t peer); /* SIM_NODES_MAX: none */

/* ---- pulse.c ---- */
void pulse_look(struct sim *sim, unsigned node); /* with each heartbeat */

/* ---- uplink.c ---- */
void uplink_report(struct sim *sim, unsigned node, struct group_action *action);
void uplink_link_lost(struct sim *sim, unsigned node, const struct group_action *action);
void uplink_record(struct sim *sim, unsigned node, struct group_action *action);
void uplink_fail(struct sim *sim, unsigned node, const struct group_action *action);
void uplink_forget_records(struct sim *sim, unsigned node, uint64_t round);

/* ---- memberd.c ---- */
struct sim_packet {
	struct sim_packet *next;
	unsigned node;
	uint64_t conn;
	size_t bytes;
	uint8_t data[];
};

struct sim_entry {
	uint8_t *data;
	size_t bytes;
	uint64_t cookie;
	bool refused; /* the disk was full: it fails when its turn comes */
};

struct sim_memberd {
	struct membership *core;
	bool up;
	uint64_t stamp, next_conn, tick_ms;
	uint64_t conn_floor; /* connections up to this one were another process's */
	uint64_t stalled_until_us;
	struct sim_entry *log;
	size_t log_count, log_capacity, applied;
	uint8_t *snapshot;
	size_t snapshot_bytes, snapshot_applied;
	struct sim_packet *to_member_head, *to_member_tail;
	struct sim_packet *to_node_head[SIM_NODES_MAX], *to_node_tail[SIM_NODES_MAX];
};

void memberd_start(struct sim *sim);
void memberd_crash(struct sim *sim);
uint64_t memberd_accept(struct sim *sim, unsigned node); /* 0: it is down */
void memberd_closed(struct sim *sim, unsigned node, uint64_t conn);
void memberd_tick(struct sim *sim);
void memberd_apply(struct sim *sim, uint64_t stamp);
void memberd_send(struct sim *sim, unsigned node, const Traind__Peer__ToMember *message);
void memberd_receive(struct sim *sim, unsigned node); /* the oldest packet of this node */
void memberd_deliver(struct sim *sim, unsigned node);
void memberd_snapshot(struct sim *sim);
uint64_t memberd_recorded(struct sim *sim); /* all rounds up to this one are in its log */
void memberd_finish(struct sim *sim);

/* ---- fault.c ---- */
enum sim_fault_kind {
	FAULT_CRASH,
	FAULT_CRASH_AT_ACTION,
	FAULT_POWER_LOSS, /* no reset reaches anybody */
	FAULT_PAUSE,
	FAULT_BREAK_LINK,
	FAULT_CUT_OFF, /* one node from everybody for a while */
	FAULT_CUT_WAY, /* one way between two members */
	FAULT_MEMBERD_STALL,
	FAULT_JOIN,
	FAULT_MEMBERD_RESTART,
	FAULT_LEAVE,
	FAULT_MISMATCH, /* a worker submits another signature */
	FAULT_SALT,     /* a worker says another salt */
	FAULT_KINDS
};

struct sim_fault {
	enum sim_fault_kind kind;
	uint64_t at_us;       /* by time, or */
	uint64_t at_delivery; /* at this message between peers */
	bool done;
};

void fault_plan(struct sim *sim);
void fault_fire(struct sim *sim, unsigned number);
void fault_delivery(struct sim *sim);
bool fault_stalls(struct sim *sim,
    unsigned to); /* whether it stands still from now on, before a vote that comes to it */
unsigned fault_victim(struct sim *sim); /* SIM_NODES_MAX: nobody is left */
void fault_strike(struct sim *sim, enum sim_fault_kind kind, unsigned victim);
void fault_progress(struct sim *sim); /* the group has its first view: the clock of faults starts */

/* ---- aim.c ---- */
struct sim_aim {
	bool of_memberd;
	unsigned state; /* cover.c's */
	enum sim_fault_kind kind;
	bool led, done;
};

void aim_plan(struct sim *sim);
void aim_in_step(struct sim *sim, unsigned node, size_t actions); /* before they are done */
void aim_at_member(struct sim *sim, unsigned node);               /* after them */
void aim_at_memberd(struct sim *sim);
void aim_fire(struct sim *sim, unsigned number, unsigned victim);
void aim_at_begin(struct sim *sim, unsigned node); /* its worker is to submit ops */

/* ---- cover.c ---- */
unsigned cover_member(const struct group_core *core); /* its state */
unsigned cover_frozen(unsigned member_state);         /* the same, frozen */
unsigned cover_group(const struct sim *sim);
struct sim_aim cover_rare(uint64_t pick, bool seldom); /* where chance hardly strikes */
const char *cover_name(const struct sim_aim *aim);
/* A fault strikes now; `victim` SIM_NODES_MAX: memberd, or nobody. */
void cover_strike(const struct sim *sim, enum sim_fault_kind kind, unsigned victim);
void cover_print(void);

/* ---- check.c ---- */
struct sim_truth {
	bool known;
	struct tr_digest results;
	uint64_t chain;
	unsigned told[SIM_NODES_MAX]; /* by index: 1 + who was told it; 0: nobody */
};

/* What the members of a scope hold of one of its ops; the newest ones. */
#define SIM_PARTS_KEPT 1024
struct sim_part {
	uint64_t round;
	uint32_t tag, first; /* of its members: scopes of one op have none in common */
	struct tr_digest result;
};

/* Who is in a view; the newest ones. */
#define SIM_VIEWS_KEPT 64
struct sim_view {
	uint64_t number;
	bool nodes[SIM_NODES_MAX];
};

void check_committed(struct sim *sim, unsigned node, const struct tr_round *round);
void check_order(struct sim *sim, unsigned node, const struct tr_round *round); /* that alone */
void check_view(struct sim *sim, unsigned node, uint64_t view);
void check_members(struct sim *sim,
    const Traind__Peer__View *view); /* of a view that is installed */
void check_failed(struct sim *sim, unsigned node);
void check_record(struct sim *sim, const Traind__Peer__RoundCommit *record);
bool check_finished(struct sim *sim); /* faults are over and everybody alive got further */

struct sim {
	uint64_t seed, draws, now_us, next_sequence;
	struct rng_key key;
	bool trace, over;
	struct sim_event *heap;
	size_t heap_count, heap_capacity;

	/* drawn from the seed */
	Traind__Peer__Policy policy;
	Traind__Peer__Algorithm algorithm;
	bool deterministic;
	bool all_ops; /* all collectives, dtypes and codecs */
	bool stalled; /* a receiver of a vote was, then */
	bool boards; /* seeds from SIM_BOARDS_FROM on: all on one host, with boards; small ops, one-shot often */
	unsigned board_entries;
	uint64_t shown, gathered, board_looks, awaits, deferrals;
	bool stalls; /* seeds from SIM_STALLS_FROM on: members stand still until the others have given them up, in the middle of ops */
	bool pieces; /* seeds from SIM_PIECES_FROM on: joiners' states come in pieces (pieces.h) */
	bool crowds; /* some of them: some rounds have a hundred ops and more */
	unsigned recut; /* links that broke for that */
	bool recuts; /* others: who submits other ops than the others has them cut otherwise, and a view changes then */
	struct sim_way way;
	bool halves; /* some frames come in halves, the first into the memory that their receiver has for them */
	bool fulls; /* memberd's disk is full now and then, until the faults are over */
	bool gradual; /* joiners' states come gradually, over rounds to which they do not contribute */
	bool declares; /* some joiners say that they have a state, of some round or other */
	bool waits; /* workers wait for results before they commit, and say samples that they took from one */
	bool early_waits; /* for some of them before they submit others */
	bool scopes;      /* some ops are of a part of the contributors */
	bool releases;    /* workers take memory back in the middle of rounds */
	bool tells;       /* cores say of each op that it is done */
	unsigned hosts;   /* that nodes share; 0: unknown */
	size_t window_bytes, outlet_bytes, ahead_bytes; /* group_core_options */
	uint32_t segment_bytes;
	const struct sim_callers *callers; /* NULL: those of worker.c */
	void *calls;                       /* theirs */
	unsigned founders;
	uint64_t think_us, delay_us, sync_us;

	struct sim_node nodes[SIM_NODES_MAX];
	unsigned node_count;
	struct sim_left left; /* for the next one that starts */
	uint64_t group;
	struct sim_link links[SIM_NODES_MAX][SIM_NODES_MAX];
	struct sim_memberd memberd;

	struct sim_fault faults[SIM_FAULTS_MAX];
	unsigned fault_count, faults_done;
	struct sim_aim aims[SIM_AIMS_MAX];
	unsigned aim_count;
	bool faults_started;
	uint64_t deliveries, looks, submits, takes, last_fault_us, target_round, looked_us;

	struct sim_view seen[SIM_VIEWS_KEPT];
	unsigned seen_count;
	struct sim_truth truth[SIM_ROUNDS_MAX];
	struct sim_part parts[SIM_PARTS_KEPT];
	size_t part_count;
	uint64_t newest_round;
	int mismatch_node, salt_node; /* -1: nobody */
	bool mismatch_came; /* it does not contribute to the round in which it is wrong: it ends alone */
	bool mismatch_told;     /* somebody failed because of it */
	uint64_t refused_round; /* by memberd's log; 0: none */
	bool story_told;        /* seeds_story */

	enum sim_plant plant;
	bool planted;

	unsigned violations;
	char violation[512];
	uint64_t events, rounds, views, restarts, joins, lefts, released;
};

/* The parts of sim_run, for callers of another kind: faults are theirs. Between the two founders and policies may be set. */
void sim_prepare(struct sim *sim, uint64_t seed, bool trace, enum sim_plant plant,
    const struct sim_callers *callers, void *calls);
void sim_begin(struct sim *sim);
unsigned sim_finish(struct sim *sim); /* runs it; as sim_run */

/* Runs one seed; the number of violations (0 or 1: it stops at the first). */
unsigned sim_run(struct sim *sim, uint64_t seed, bool trace, enum sim_plant plant);

/* ---- seeds.c: seeds that found a bug, by name ---- */
#define SIM_STALLS_FROM UINT64_C(10000001)
#define SIM_BOARDS_FROM UINT64_C(20000001) /* odd ones stall too */
#define SIM_SELDOM_FROM UINT64_C(30000001) /* aimed at what those hardly meet */
#define SIM_PIECES_FROM \
	UINT64_C(40000001) /* joiners' states come from several, damaged now and then */
struct sim_seed {
	uint64_t seed;
	/* When it was found: 0: workers ran all-reduce only; 1: every collective; 2: and frames came in halves; 3: and workers waited for
	 * results before they committed; 4: and before they submitted others; 5: and some ops were of a part of the contributors; 6: and workers took memory
	 * back in the middle of rounds; 7: and memberd's disk was full now and then; 8: and joiners declared states of their own; 9: that came gradually; 10: and what sources staged had a window; 11: of one buffer now and then; 12: all that there is. */
	unsigned had;
	const char *name, *what;
};
extern const struct sim_seed sim_seeds[];
extern const size_t sim_seed_count;
/* Words that some failure has to have: without them a named seed does not tell its story any more, and guards nothing. NULL: its story is no failure, or it has none. */
const char *seeds_story(uint64_t seed);

#endif
