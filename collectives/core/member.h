/* What one member of a group knows. Shared by the files of this core; nobody outside includes it.
 *
 *	group.c    the step: which event goes where, and what follows from any of them
 *	round.c    the caller: begin, submit, close; what it is told
 *	route.c    who adds whose sums, who seals, who gets the result from whom. Pure
 *	window.c   which segments this member begins, and when
 *	path.c     segments that come: sums and results; sending
 *	spread.c   small inputs that go to everybody at once, and come so
 *	ahead.c    what is sent to peers that have not submitted its op yet
 *	fold.c     sums
 *	commit.c   votes and the hub's decision
 *	scope.c    ops of a part of the contributors
 *	tally.c    what votes say of those
 *	release.c  ops that the caller has taken back
 *	wait.c     the caller reads a result before the commit
 *	lack.c     who has not submitted an op that others wait for
 *	links.c    figures of the links, as all members have them
 *	record.c   committed rounds for memberd's log
 *	repair.c   freeze, report, install, resume
 *	handover.c state for joiners
 *	emit.c     actions
 */
#ifndef TR_COLLECTIVES_CORE_MEMBER_H
#define TR_COLLECTIVES_CORE_MEMBER_H

#include "collectives/core/buffer.h"
#include "collectives/core/group.h"
#include "collectives/core/landing.h"
#include "collectives/core/op.h"
#include "collectives/core/release.h"
#include "collectives/core/roster.h"
#include "collectives/core/route.h"
#include "collectives/core/select.h"
#include "collectives/core/view.h"

#define MEMBER_REPEAT_US \
	1000000u /* a message to memberd without effect is said again: it may have restarted */
#define MEMBER_COUNTED_US \
	1000000u /* for a view that counts a joiner whose state came gradually; then its round is decided all the same */
#define MEMBER_DAMAGED_MAX \
	3 /* damaged transfers of a state: it is no accident of the way any more */

/* Where the caller stands. */
enum round_state {
	ROUND_IDLE,      /* nothing begun */
	ROUND_OPEN,      /* begun: ops come in */
	ROUND_CLOSED,    /* the caller asked to commit and waits */
	ROUND_ABANDONED, /* the caller was told TR_ERESTART unasked; it begins again when it notices */
	ROUND_FAILED,    /* this member cannot go on */
	ROUND_STATES
};

struct member_vote {
	uint64_t peer;
	Traind__Peer__Vote vote;
};

/* A broken link that no view change has repaired yet. */
struct member_link {
	uint64_t peer, again_us; /* peer 0: none broke, but we are stuck */
	bool while_frozen; /* frames of the coming view may be lost: it must be said in that view too */
	char reason[128];
};

/* A joiner that wants, or is getting, our state. */
struct member_ask {
	uint64_t peer, round;
	struct group_wish wish;
	bool sending;
};

/* What peer `peer` has said that it submitted, in the newest attempt of which it said anything. */
struct ahead_word {
	uint64_t peer, view, round, attempt;
	uint32_t *tags; /* ascending */
	size_t count, capacity;
};

struct group_core {
	uint64_t group, peer, now_us;

	struct view view;
	struct roster roster; /* of `round`, valid while view.number > 0 */
	uint64_t proposal;    /* frozen for this view number; 0: not frozen */
	uint64_t report_again_us;
	Traind__Peer__Resume *resume; /* of `round`, while it is being finished; else NULL */

	uint64_t round;       /* under way or next; 0 before the first view */
	uint64_t committed;   /* newest round whose results we hold */
	bool ready;           /* the caller declared its state */
	uint64_t state_round; /* the caller's memory holds the state after this round */

	enum round_state state;
	bool begin_wanted;
	struct op **ops; /* of `round`, ascending tags */
	size_t op_count, op_capacity;
	bool indexed; /* some op named contributors by their index, in this round or one before */
	bool scoped;  /* some op was of a part of them, likewise */
	bool scoped_late; /* the first that no core sees came while we were frozen: our report did not say so */
	struct member_scope *scopes; /* of this attempt */
	struct released released;    /* likewise */
	uint64_t begun_attempt;      /* of which the caller knows its index and the contributors */
	/* This attempt cannot be finished here: memberd is asked for a view that begins the round again. Until then nothing of it moves. */
	bool stuck;
	bool waiting; /* the caller waits for the op with the tag `waited` */
	uint32_t waited;
	uint64_t lack_us; /* when to ask who lacks the op that is not here, or whose vote is missing */
	uint64_t lack_apart_us; /* not before then about another op */
	uint8_t lack_votes[TR_GROUP_PEERS_MAX /
	    8];    /* voted: participants that have not, as the hub said last */
	bool read; /* the caller was told of a result of this attempt */
	struct tr_commit closing;
	uint64_t signatures;     /* ROUND_CLOSED: of its ops, as they were closed */
	struct tr_digest digest; /* voted: of what we hold */
	uint64_t early_us;       /* when to tell the hub that we are still waiting */
	bool voted;              /* in this view */
	bool disagreed;          /* hub: the votes differ; only a view change helps */
	bool votes_moved;        /* something that a decision depends on changed */
	struct {
		uint32_t latency_us; /* our own: for the next vote */
		uint64_t bandwidth_bytes_per_s;
	} measured;
	uint64_t
	    said_bandwidth[TR_GROUP_PEERS_MAX]; /* hub: what its newest decision says of the links */
	struct member_vote *votes;
	size_t vote_count, vote_capacity;

	struct op **last_ops; /* of the round committed last, for group_core_contributors */
	size_t last_op_count;
	uint64_t *last_contributors;
	unsigned last_contributor_count;

	Traind__Peer__RoundCommit **records; /* that memberd's log may lack, ascending */
	size_t record_count, record_capacity;
	uint64_t
	    recorded_round; /* the newest that is in the log with all before it, as far as we know */

	uint64_t
	    counted_us; /* until then it waits for a view that counts it, since it has all of its state */
	bool needs_state; /* joiner */
	bool altering; /* its caller may be changing what it has of it: from such a commit to the next begin */
	bool deferred; /* its caller wants this round decided without it (handover.c) */
	uint64_t donor, asked_donor, asked_round;
	bool ask_lost;
	uint64_t ask_again_us;
	unsigned
	    damaged; /* transfers of this state, from this donor, that differed from their digests */
	struct member_ask *asks;
	size_t ask_count, ask_capacity;

	struct member_link *links;
	size_t link_count, link_capacity;
	bool *connected; /* by view peer: GROUP_DO_CONNECT was said in this view */

	/* ahead.c: */
	size_t ahead_bytes;
	size_t ahead_share;       /* of them to one peer, in this attempt */
	struct ahead_peer *ahead; /* by participant */
	uint64_t ahead_view;      /* of `ahead` */
	bool ahead_moved;         /* it may be time to say something */
	uint64_t ops_made, newest_large;
	struct ahead_word *words;
	size_t word_count, word_capacity;

	struct buffer_pool pool;
	struct group_lent lent;
	bool spreads;
	uint64_t spread_view;          /* in which all peers were connected for it */
	struct group_buffer *landings; /* that were handed out, revoked ones included */
	size_t window_bytes;           /* of one op, begun and not sealed */
	size_t outlet_bytes;           /* of one op (outlet.c) */
	size_t served_bytes;           /* of results that were encoded again in this step */
	enum tr_algorithm found;       /* by the links, for `found_for`; TR_AUTO: nothing yet */
	struct select_input found_for;
	/* Of the segment of this step: whoever keeps it takes the reference and sets this to NULL. */
	struct group_buffer *incoming;
	struct group_actions *actions; /* of the step under way */
	struct group_action scratch;   /* takes an action that found no memory */
	tr_status status;              /* TR_ENOMEM: something of this step was lost */
	bool parked; /* some segment was answered TR_EAGAIN since the last RETRY of all */
	bool moved;  /* something changed that may unpark any */
	bool made;   /* an op, which may unpark its own */
	uint32_t made_tag;
	struct tr_error failure; /* ROUND_FAILED */
	struct group_core_counters counters;
};

/* ---- emit.c ---- */
struct group_action *emit(struct group_core *core, enum group_action_kind kind);
void emit_finish(struct group_core *core);
void emit_connect(struct group_core *core, uint64_t peer);
void emit_decided(struct group_core *core, tr_status status, const struct tr_round *info,
    const char *reason);
void emit_fail(struct group_core *core, tr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As emit_fail, because members say different things of the round under way: nobody can have it, and memberd ends it for all. The view that
 * follows would leave us out as if we had died, and those who have not noticed would finish the round without us, each with what it alone said. */
void emit_refuse(struct group_core *core, tr_status status, const char *reason);

/* ---- round.c ---- */
bool round_active(const struct group_core *core); /* the caller works on core->round */
tr_status round_ready(struct group_core *core, uint64_t round, struct tr_error *error);
tr_status round_begin(struct group_core *core, struct tr_error *error);
tr_status round_submit(struct group_core *core, const struct group_event *event,
    struct tr_error *error);
tr_status round_close(struct group_core *core, const struct tr_commit *closing,
    struct tr_error *error);
/* What a call gets that comes at the wrong moment. */
tr_status round_refuse(const struct group_core *core, const char *call, struct tr_error *error);
void round_answer_begin(struct group_core *core);
struct tr_round round_info(const struct group_core *core);
void round_abandon(struct group_core *core, const char *reason);
void round_drop_ops(struct group_core *core);
void round_index_lost(struct group_core *core, uint32_t tag); /* stuck */
/* The caller makes ops in scopes that no core sees: GROUP_SCOPED. */
void round_scoped(struct group_core *core);
/* A view was installed in the middle of the round; `redone`: as another attempt, of which the caller was not told. */
void round_scoped_installed(struct group_core *core, bool redone);
struct op *round_op(const struct group_core *core, uint32_t tag);
void round_remove(struct group_core *core, struct op *op); /* and destroys it */
enum tr_collective round_collective(const struct op *op);
bool round_sealed(const struct group_core *core); /* closed and every op sealed */
/* The round is committed everywhere. */
void round_commit(struct group_core *core);
tr_status round_enter(struct group_core *core, uint64_t round, uint64_t attempt,
    const uint64_t *contributors, size_t contributor_count, struct tr_error *error);

/* ---- window.c ---- */
/* A view was installed, or the op is new: chooses the algorithm and begins. */
void window_start(struct group_core *core, struct op *op);
void window_advance(struct group_core *core, struct op *op); /* something of it was sealed */
/* What a choice depends on beside the view. */
struct window_wish {
	enum tr_algorithm algorithm; /* TR_AUTO: the view's */
	enum tr_collective collective;
	enum op_kind kind;
	enum tr_codec codec;
	uint64_t bytes;
};
/* By which algorithm an all-reduce of this size goes in this view. */
enum tr_algorithm window_algorithm(const struct group_core *core, uint64_t bytes);
/* As which such an op is seen from outside, and why: where a root is given several algorithms are the same way. */
enum tr_algorithm window_explain(const struct group_core *core, const struct window_wish *wish,
    char *reason, size_t reason_bytes);

/* ---- outlet.c ---- */
/* May the op stage one segment more? If not it is told when it may (outlet_advance). */
bool outlet_open(struct op *op);
/* May one that it serves be encoded in this step? If not the next one is due. */
bool outlet_now(struct group_core *core, struct op *op);
/* `buffer`, of that segment, is about to be sent: counts it. */
void outlet_staged(struct group_core *core, struct op *op, uint32_t segment,
    struct group_buffer *buffer);
/* A result is to be passed on, from staging if `staged`, and there is no room. */
bool outlet_waits(struct op *op, bool staged, const struct route *route);
/* The segment is done here; it goes on its way when there is room. */
void outlet_owe(struct op *op, uint32_t segment);
void outlet_give(struct group_core *core, struct op *op);
void outlet_advance(struct group_core *core); /* where there is room again */

/* ---- path.c ---- */
struct path_payload {
	const void *data;
	bool stable; /* it stays as it is until the round is decided or the view freezes */
	enum segment_encoding form;
};
struct path_frame {
	enum segment_kind kind;
	enum segment_encoding encoding;
	const uint8_t *set; /* contributors */
	const void *payload;
	size_t bytes;
	struct group_buffer
	    *buffer; /* holds the payload; NULL: it is in the op's memory. A reference is added. */
};
tr_status path_segment(struct group_core *core, const struct group_event *event,
    struct tr_error *error);
void path_send(struct group_core *core, struct op *op, uint32_t segment, unsigned to,
    const struct path_frame *frame);
/* Whatever it has submitted. */
void path_send_now(struct group_core *core, const struct op *op, uint32_t segment, unsigned to,
    const struct path_frame *frame);
/* Of a send: from its input, which encodes to the same bytes every time. TR_ENOMEM. */
tr_status path_send_input(struct group_core *core, struct op *op, uint32_t segment, unsigned to);
/* A sealed result, to all participants that `to` names: encoded once more, or as it lies in memory. TR_ENOMEM. */
tr_status path_send_result(struct group_core *core, struct op *op, uint32_t segment, const bool *to);
/* The action that sends it to `copies` peers. */
struct group_action *path_emit(struct group_core *core, const struct op *op, uint32_t segment,
    enum group_action_kind kind, unsigned copies, const struct path_frame *frame);
/* Where in time is this segment? TR_ESTALE: of the past, or the view freezes; TR_EAGAIN: of what comes; TR_EPROTO: of another attempt. */
tr_status path_when(const struct group_core *core, const struct segment_header *header);
/* Down the route, from `result` where we have just made it. `encoded`: its form on the wire; NULL: as it is. */
void path_pass_on(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, const struct op_result *result, struct group_buffer *encoded);
/* The same of a sealed one, as path_send_result sends it. TR_ENOMEM. */
tr_status path_pass_on_again(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route);
/* Who is in the segment's result if it is sealed now. */
void path_full_set(const struct op *op, uint32_t segment, uint8_t *set);
/* false: it has no route, since the peer to which or from which it goes is gone. */
bool path_route_of(const struct op *op, uint32_t segment, struct route_of *of);
/* The participant that is this contributor and counts; ROSTER_NONE: it is gone. */
unsigned path_participant(const struct roster *roster, uint32_t contributor);
/* Does this participant need the segment's result? */
bool path_needs(const struct op *op, uint32_t segment, unsigned who);

/* Does this segment wait for this very frame, of which only the header has come? */
bool path_awaits(const struct group_core *core, const struct op *op, unsigned from,
    const struct segment_header *header);

/* Is our op with that tag (NULL: we have closed the round without it) the same as that peer's? TR_EMISMATCH: no; see commit_differs. */
tr_status path_compare(struct group_core *core, uint64_t from, const struct op *op,
    const struct segment_header *header);

/* ---- spread.c ---- */
/* Do inputs of so many bytes go that way among these? All of the view, on one host, and everybody's data counts: each shows its input, and waits for all. All members know the same of it. */
bool spread_may(const struct group_core *core, const struct roster *roster, uint64_t bytes);
/* Our input to all others at once; false: each has to get it by itself. */
bool spread_send(struct group_core *core, struct op *op, uint32_t segment,
    const struct path_frame *frame);
tr_status spread_gathered(struct group_core *core, const struct group_event *event);

/* ---- wait.c ---- */
tr_status wait_begin(struct group_core *core, uint32_t tag, struct tr_error *error);
void wait_advance(struct group_core *core); /* answers when the op is done */
void wait_ask(struct group_core *core);     /* when it takes long */
/* SEGMENT_AWAITED, of this attempt. */
tr_status wait_asked(struct group_core *core, unsigned from, const struct segment_header *header,
    struct tr_error *error);
uint64_t wait_deadline_us(const struct group_core *core);
/* An op as frames about it say it: who gets them may not have it. `bits`: the round's contributors in its scope; of an answer those that it names. */
struct wait_of {
	uint32_t tag;
	const struct op_signature *signature;
	const uint8_t *bits;
};
/* Is participant `who` one of those that submit it? */
bool wait_concerns(const struct group_core *core, unsigned who, const struct wait_of *of);
/* Such a frame, without elements; `about`: the participant that it names. */
void wait_say(struct group_core *core, unsigned to, unsigned about, const struct wait_of *of,
    enum segment_kind kind, enum segment_question question);

/* ---- lack.c ---- */
void lack_wait(struct group_core *core, struct op *op); /* the caller waits for it */
void lack_close(struct group_core *core);               /* for all of them */
void lack_ask(struct group_core *core);                 /* when it takes long */
uint64_t lack_deadline_us(const struct group_core *core);
/* SEGMENT_AWAITED with SEGMENT_ASKS_LACKS or SEGMENT_HAS, of an op that is the same here or not known. */
tr_status lack_asked(struct group_core *core, unsigned from, const struct segment_header *header,
    struct tr_error *error);
void lack_voted(struct group_core *core);
void lack_vote_asked(struct group_core *core, uint64_t from);
/* SEGMENT_LACKED, of this attempt. */
tr_status lack_told(struct group_core *core, unsigned from, const struct segment_header *header,
    struct tr_error *error);
/* Participants that have not submitted the op that this member waits for, or not voted where it has, as far as it was told. False: nobody said. */
bool lack_names(const struct group_core *core, uint8_t lacks[TR_GROUP_PEERS_MAX / 8]);

/* ---- ahead.c ---- */
/* Keeps the frame until `to` has said that it submitted the op; false: it may be sent now. */
bool ahead_keeps(struct group_core *core, struct op *op, uint32_t segment, unsigned who,
    const struct path_frame *frame);
/* Counts a frame that goes to all others; false: nothing is counted, some of them have to wait for it. */
bool ahead_counts_all(struct group_core *core, struct op *op, const struct path_frame *frame);
void ahead_start(struct group_core *core, struct op *op); /* before its first frame in a view */
/* Some of it waits until its receiver has submitted the op. */
bool ahead_unsent(const struct group_core *core, const struct op *op);
void ahead_released(struct group_core *core, const struct op *op, uint32_t party);
/* A segment of this attempt was offered. Its op is known, or it is parked. `counted`: as in group_event. */
void ahead_offered(struct group_core *core, unsigned from, const struct segment_header *header,
    bool known, bool *counted);
/* Of an op that is released here: who sends does not know that it was submitted. */
void ahead_say_released(struct group_core *core, unsigned to, uint32_t tag);
tr_status ahead_word_got(struct group_core *core, uint64_t from,
    const Traind__Peer__Submitted *word, struct tr_error *error);
void ahead_advance(struct group_core *core); /* says what it is time to say */
tr_status ahead_enter(struct group_core *core,
    const struct roster *next);                      /* core->roster's successor */
void ahead_drop(struct group_core *core);            /* what is kept: sends are dropped */
void ahead_forget_words(struct group_core *core);    /* those of earlier views */
void ahead_forget_released(struct group_core *core); /* what this view's words say of those ops */
void ahead_finish(struct group_core *core);

/* ---- fold.c ---- */
/* A child's sum. Takes core->incoming if it keeps it. TR_EPROTO: it came before. */
tr_status fold_add(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, unsigned from, const struct path_payload *payload,
    struct tr_error *error);
/* All inputs of an op of one segment, of which none had come: `payloads` are those of the others, by ascending id. */
tr_status fold_all(struct group_core *core, struct op *op, const void *const *payloads);
/* Our own input may be added from now on. */
tr_status fold_own_given(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route);

/* ---- commit.c ---- */
tr_status commit_vote_got(struct group_core *core, uint64_t from, const Traind__Peer__Vote *vote,
    struct tr_error *error);
tr_status commit_got(struct group_core *core, uint64_t from, const Traind__Peer__Commit *commit,
    struct tr_error *error);
void commit_advance(struct group_core *core); /* votes and decides when it is time */
void commit_early_notice(struct group_core *core);
const Traind__Peer__Vote *commit_vote_of(const struct group_core *core, uint64_t peer);
void commit_refuse(struct group_core *core, uint64_t peer, tr_status status, const char *reason);
bool commit_contributes(const struct group_core *core, uint64_t peer); /* to our round */
/* `peer` has other ops in our round than we: who is wrong, or both, end with TR_EMISMATCH. */
void commit_differs(struct group_core *core, uint64_t peer, const char *reason);
void commit_ask(struct group_core *core); /* having voted: whose vote is missing? */
bool commit_has_vote(const struct group_core *core, uint64_t peer);
bool commit_is_closed(const struct group_core *core, uint64_t peer); /* hub: as far as we know */
void commit_forget_votes(struct group_core *core);                   /* those of earlier views */
struct tr_digest commit_digest(const struct group_core *core);
uint64_t commit_signatures(const struct group_core *core);

/* ---- links.c ---- */
void links_measured(struct group_core *core, uint32_t latency_us, uint64_t bandwidth_bytes_per_s);
/* Hub: all votes are in. Fills in what the decision says of the links, if that is anything new. */
void links_decide(struct group_core *core, Traind__Peer__Commit *commit);
tr_status links_check(const struct group_core *core, const Traind__Peer__Commit *commit,
    struct tr_error *error);
/* Before the round is committed: the next one goes by it. */
void links_take(struct group_core *core, const Traind__Peer__Commit *commit);

/* ---- record.c: what memberd is told about committed rounds ---- */
void record_add(struct group_core *core, struct tr_round *info);
/* Those up to `round` are in the log. */
void record_logged(struct group_core *core, uint64_t round);
/* All that the log may lack are said again: after an installation, and at the end. */
void record_again(struct group_core *core);
/* What a donor knows of rounds before ours. */
tr_status record_inherit(struct group_core *core, Traind__Peer__RoundCommit *const *records,
    size_t count, struct tr_error *error);
void record_finish(struct group_core *core);

/* ---- report.c ---- */
void report_say(struct group_core *core);

/* ---- repair.c ---- */
tr_status repair_propose(struct group_core *core, const Traind__Peer__ViewPropose *propose,
    struct tr_error *error);
tr_status repair_install(struct group_core *core, const Traind__Peer__ViewInstall *install,
    struct tr_error *error);
void repair_link_lost(struct group_core *core, uint64_t peer, const char *reason);
void repair_links_again(struct group_core *core);
/* This attempt has no end here. */
void repair_stuck(struct group_core *core, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Another view of the same members is wanted: said until there is one. */
void repair_ask(struct group_core *core, const char *reason);

/* ---- serve.c ---- */
/* Gives what is sealed here, and ours to give, to those who lack it, as the plan of this view says; what has to be staged waits for room (outlet.c). */
void serve_op(struct group_core *core, struct op *op);
tr_status serve_give(struct group_core *core, struct op *op, uint32_t segment);

/* ---- handover.c ---- */
tr_status handover_asked(struct group_core *core, uint64_t from, uint64_t round,
    const struct group_wish *wish, struct tr_error *error);
void handover_sent(struct group_core *core, uint64_t to, uint64_t round);
tr_status handover_got(struct group_core *core, uint64_t from, tr_status status, uint64_t round,
    const char *reason, struct tr_error *error);
void handover_installed(struct group_core *core);
void handover_advance(struct group_core *core); /* serves whom it can */
void handover_lost(struct group_core *core);
void handover_ask_again(struct group_core *core);
uint64_t handover_deadline_us(const struct group_core *core);
void handover_begun(struct group_core *core); /* the caller has applied the round before */
bool handover_may_defer(const struct group_core *core);
bool handover_awaited(
    const struct group_core *core); /* the round is not decided without the state */
void handover_decided(
    struct group_core *core); /* a round is: no transfer of the state before it runs any more */

#endif
