/* What memberd's core remembers. Durable fields change in apply.c only, when an entry comes back
 * from the log; all that is in a `soft` struct may be forgotten at any restart. Inside the core
 * only.
 */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_STATE_H
#define TR_DAEMON_MEMBERSHIP_CORE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/limits.h"
#include "daemon/membership/core/ledger.h"
#include "daemon/membership/core/measuring.h"
#include "daemon/membership/core/membership.h"
#include "daemon/plan/joining.h"
#include "daemon/plan/plan_watch.h"

#define REASON_MAX 256
/* Numbers of proposals that each view in the log allows in advance: a proposal then waits for no disk. */
#define VIEWS_RESERVED 16u

/* A growing array of pointers. */
struct list {
	void **items;
	size_t count, capacity;
};

enum peer_state { PEER_PLACED, PEER_FINISHED, PEER_LOST };

/* A round of which members said different things: nobody can have it. */
struct refusal {
	uint64_t round; /* 0: none */
	int32_t status; /* tr_status that the callers get */
};

struct peer {
	uint64_t id, job, group, node, incarnation;
	uint32_t rank, local_rank;
	enum peer_state state;
	bool founder;           /* placed with the group itself */
	bool worked;            /* contributed to a recorded round */
	int32_t exit_code;      /* of a command's rank that failed; 0: lost otherwise */
	struct refusal refusal; /* that ended it */
	char reason[REASON_MAX];
	char node_name[TR_NAME_MAX];
	char address[TR_ADDRESS_MAX]; /* library peers: of their engine, if not the node's */
	struct {
		enum peer_state
		    fate; /* decided; its entry may still be on its way. PEER_PLACED: none */
		bool fast;
		int32_t exit_code;
		struct refusal refusal;
		char reason[REASON_MAX];
		uint64_t start_conn,
		    stop_conn;       /* the connection on which it was told to start, to stop */
		uint64_t stop_ms;    /* when it was told to stop */
		uint64_t start_ms;   /* when it was told to start; 0: not known */
		uint64_t missing_ms; /* its node came back without it: until then its exit may be
		                        reported; 0: no */
		bool started, ready, signed_state;
		bool gradual;  /* what it needs of the state may come while rounds are decided */
		bool stopping; /* told to stop, and its end was not reported yet */
		bool refuses;  /* its engine gave up, or was told that its round was refused */
		uint32_t pid;
		uint64_t ready_round, view;
		uint64_t
		    left_next; /* 1 + the round whose state a worker before it left there; 0: none */
		bool state_left;    /* it died, and left its state on its node */
		bool left_taken;    /* one was placed there to follow it */
		bool learning_left; /* its node holds what workers of its group learned alone */
		struct tr_digest signature;
		/* From heartbeats. */
		uint64_t round, progress, moved_ms;
		bool waiting;
		double waits;      /* share of the last ten seconds or so in which it was waiting */
		uint64_t waits_ms; /* when that was last updated; 0: never */
		uint64_t waited_us; /* in all */
		uint64_t waits_for[8];
		size_t waits_for_count;
		struct {
			uint64_t to, bytes_per_s, sent_bytes;
			uint32_t rtt_us;
		} links[TR_PEER_LINKS_MAX]; /* slowest first */
		size_t links_count;
		uint64_t links_ms;          /* when they were said */
		char suspicion[REASON_MAX]; /* empty: none */
	} soft;
};

struct node {
	uint64_t id;
	Traind__Peer__NodeHello *hello; /* without peers */
	bool lost;
	char reason[REASON_MAX];
	uint64_t changed_unix_ms;
	struct {
		uint64_t conn;     /* 0: not connected */
		uint64_t lifeline; /* its second connection; 0: none */
		uint32_t call;     /* of the hello on it; lower ones come late */
		uint64_t heard_ms; /* last sign of life */
		bool beaten; /* on this connection: what it says behind Welcome came before that */
		uint64_t started_ms; /* when it last started a worker */
		uint64_t
		    gone_ms; /* since when it is not, as far as this memberd knows; 0: it is, or was not seen to go */
		uint64_t awaited_ms; /* after a restart: until then it may come back; 0: not awaited */
		uint64_t acked_ms; /* when it last had an answer to a heartbeat */
		uint32_t apart_ms; /* as it was told then */
		double rtt_s, bandwidth;
		char suspicion[REASON_MAX];
		char closing[REASON_MAX]; /* why the connection went, until NodeGone is applied */
		uint64_t duties; /* digest of the relay duties that it was told; 0: it has none */
	} soft;
};

/* A connection that said hello and waits for its registration to be durable, or for proof that its
 * rival is dead. */
struct greeting {
	uint64_t conn;
	Traind__Peer__NodeHello *hello; /* node_id set unless it waits for a rival */
	uint64_t rival_heard_ms; /* what the rival had last said by then; UINT64_MAX: no rival */
};

/* A JoinGroup that is not in the log yet. */
struct join {
	uint64_t conn;
	Traind__Peer__JoinGroup *wish;
	/* Of the entry that admits it, on its way into the log; 0: none is. */
	uint64_t cookie, group, peer;
};

struct report {
	uint64_t peer;
	Traind__Peer__ViewReport *report; /* NULL: still to come */
};

struct proposal {
	uint64_t number; /* 0: none */
	bool asked;      /* its number is reserved in the log and the members were told */
	uint64_t deadline_ms;
	size_t count;
	struct report *members; /* ascending */
	char reason[REASON_MAX];
};

struct complaint {
	uint64_t from, about;
	bool unreachable; /* nothing comes through at all; else a connection that broke */
	uint64_t due_ms;
	char reason[REASON_MAX];
};

/* One direction between two members that was dialled in vain. */
struct way {
	uint64_t from, to;
	uint64_t token[2];
	uint64_t node; /* the relay; 0: none, or none yet */
	uint64_t tried[TR_RELAY_TRIES_MAX];
	size_t tried_count; /* nodes over which it did not work either */
	bool tried_us;      /* nor over us */
	bool of_old;        /* from before we restarted */
	bool heard;         /* though `from` heard `to` */
};

struct group {
	uint64_t id, job;
	Traind__Peer__JoinGroup *founder; /* library groups */
	Traind__Peer__ViewInstall *view;  /* NULL: none yet */
	uint64_t proposed;                /* views up to this number may be or have been proposed */
	struct list peers;     /* struct peer; library groups only: else they are the job's */
	struct ledger *ledger; /* library groups only */
	struct {
		uint64_t newest; /* number that this process has proposed, or may not propose */
		uint64_t
		    token[2]; /* for its first view, from which on the view has it; 0, 0: not drawn */
		struct proposal proposal;
		struct complaint complaints[64];
		size_t complaints_count;
		struct list ways; /* struct way; those of the view are in the view too */
		bool repair; /* a new view with the same members is wanted, for .repair_reason */
		char repair_reason[REASON_MAX];
		char waiting[REASON_MAX]; /* why there is no new view yet; logged when it changes */
		uint64_t finished_ms; /* first time that a member of the view was seen finished */
		Traind__Peer__RoundCommits *batch; /* records that wait for those in the log's queue */
		bool refused; /* the log refused records, and a round before the newest is missing */
		uint64_t gap_at,
		    gap_since_ms; /* all rounds up to that one, and none behind it, are in the log since; 0: none was looked for */
		uint64_t reply_conn, reply_round; /* of the records in the log's queue */
	} soft;
};

struct job {
	uint64_t id;
	char request_id[TR_NAME_MAX];
	Traind__V1__JobSpec *spec;
	Traind__V1__JobState state;
	char reason[TR_ERROR_TEXT_MAX];
	uint64_t submitted_unix_ms, started_unix_ms, ended_unix_ms;
	Traind__V1__Progress *progress;
	struct list events; /* Traind__V1__JobEvent */
	int32_t exit_code;
	uint64_t group, view; /* group 0: none, or a command job */
	struct list peers;    /* struct peer, in order of id */
	char master_address[TR_ADDRESS_MAX];
	uint32_t master_port;
	uint32_t restarts, stalled_restarts, fast_deaths;
	char *goes_on_from; /* the checkpoint that it was queued again with; NULL: none, as its spec says */
	struct ledger *ledger; /* native jobs */
	struct {
		char waiting[REASON_MAX]; /* why it is still queued, or waits for nodes; logged when
		                             it changes */
		Traind__V1__Progress *progress; /* newer than the durable one; NULL: not */
		uint64_t noted_ms;              /* of the last durable note of progress */
		bool note_due;
		struct plan_watch watch; /* of a job that was planned */
		uint64_t watched_view;
		double watched_step_s;   /* what was planned */
		uint64_t place_after_ms; /* back-off of replacements */
		uint64_t grow_after_ms;  /* of those more than were asked for */
		struct {
			struct joining_refused refused; /* a place that stays free */
			uint64_t
			    told_step; /* the newest word of how far it is, also where it went back */
			uint64_t start_ms; /* the least that a worker took to be ready; 0: not known */
		} late;
		uint64_t
		    gone_ms; /* when the last went of its plan's nodes that are not there, while it is queued; 0: all are */
		uint64_t events_from_ms; /* window of the limit on events */
		unsigned events_in_window;
		uint64_t last_lost; /* peer; 0: not known, memberd has just begun to lead */
		char failure[TR_ERROR_TEXT_MAX]; /* a failing rank of a command job decided its end
		                                  */
		int32_t failure_code;
	} soft;
};

enum pending_kind {
	PENDING_NODE = 1,
	PENDING_JOB,
	PENDING_PEER,
	PENDING_GROUP,
	PENDING_ROUNDS,
	PENDING_NOTE,
	PENDING_FOUND /* a library group (object 0) or a peer of one (object: the group) */
};

/* An entry on its way through the log: what it is about is not decided again meanwhile. */
struct pending {
	uint64_t cookie;
	enum pending_kind kind;
	uint64_t object;
};

/* An API call that waits for an entry. */
struct waiter {
	uint64_t cookie, request, job;
	bool existed;
	char request_id[TR_NAME_MAX]; /* of a submission */
};

struct membership {
	struct membership_options options;
	uint64_t next_id, next_job;
	struct list nodes;  /* by id */
	struct list jobs;   /* by id */
	struct list groups; /* by id */
	/* Soft. */
	bool leading, oom, dirty;
	bool relaying;   /* somebody has duties of a relay, or had them */
	uint64_t duties; /* digest of our own; 0: none */
	uint64_t now_ms, unix_ms, random, secret[2], looked_ms;
	uint64_t stepped_ms; /* the step before this one */
	uint64_t woke_ms; /* when we last had stood still for so long that nodes gave us up; 0: never */
	uint64_t next_cookie, soft_next_id, soft_next_job;
	uint64_t retry_ms; /* after a failed append: nothing is appended before that */
	bool all_read; /* this step is a tick, which comes when all that was there to read has been stepped */
	struct list greetings;
	struct measuring measuring;
	struct list measured; /* struct measured_link */
	struct list joins;    /* struct join: processes that asked for a library group */
	struct pending *pending;
	size_t pending_count, pending_capacity;
	struct waiter *waiters;
	size_t waiters_count, waiters_capacity;
	struct {
		uint64_t since_ms, count;
		char last[REASON_MAX];
	} ignored;                          /* messages that named nothing we know */
	struct membership_actions *actions; /* of the step under way */
};

/* state.c: finding, making and freeing. Makers return NULL and set `oom` when memory is out. */
void *state_alloc(struct membership *m, size_t bytes);
bool list_add(struct membership *m, struct list *list, void *item);
void list_remove(struct list *list, size_t index);
struct node *state_node(const struct membership *m, uint64_t id);
struct node *state_node_of_conn(const struct membership *m, uint64_t conn);
struct job *state_job(const struct membership *m, uint64_t id);
struct group *state_group(const struct membership *m, uint64_t id);
struct list *state_peers(const struct membership *m, const struct group *group);
struct ledger *state_ledger(const struct membership *m, const struct group *group);
struct peer *state_peer(const struct list *peers, uint64_t id);
struct peer *state_group_peer(const struct membership *m, const struct group *group, uint64_t id);
bool state_peer_live(const struct peer *peer);
bool state_job_ended(const struct job *job);
bool state_job_live(const struct job *job); /* STARTING or RUNNING */
/* That a native job without a plan asks for. */
uint32_t state_job_nodes(const struct job *job);
uint32_t state_job_per_node(const struct job *job);
/* That this group of it is to have: those it was founded with; more, where its plan has more, or it asks for more. */
uint32_t state_job_workers(const struct job *job, uint64_t group);
/* Those of the group that live, replacements and who came with mesh.grow too. */
uint32_t state_job_live_workers(const struct job *job, uint64_t group);
/* A worker of the group that it has got over its start. */
bool state_job_trained(const struct job *job);
const Traind__Peer__ViewPeer *state_view_peer(const struct group *group, uint64_t peer);
uint64_t state_view_number(const struct group *group);
uint64_t state_take_id(struct membership *m);
void node_free(struct node *node);
void peer_free(void *peer);
void job_free(struct job *job);
void group_free(struct group *group);
void state_clear(struct membership *m); /* durable and soft, connections included */

/* pending.c */
bool pending_any(const struct membership *m, enum pending_kind kind, uint64_t object);
void pending_add(struct membership *m, enum pending_kind kind, uint64_t object, uint64_t cookie);
bool pending_is(const struct membership *m, uint64_t cookie, enum pending_kind kind,
    uint64_t *object); /* whether the entry is of that kind; then of what */
void pending_remove(struct membership *m, uint64_t cookie);
void pending_wait(struct membership *m, uint64_t cookie, uint64_t request, uint64_t job,
    bool existed, const char *request_id);
void pending_answer(struct membership *m, uint64_t cookie, tr_status status, const char *text);

/* actions.c. Entries and messages are given as borrowed structs and copied whole. */
void action_append(struct membership *m, Traind__Peer__LogEntry *entry, enum pending_kind kind,
    uint64_t object, uint64_t *cookie);
/* As action_append without a cookie: of what calls for a view, whose entry follows when the members have reported. */
void action_append_before_view(struct membership *m, Traind__Peer__LogEntry *entry,
    enum pending_kind kind, uint64_t object);
void action_send(struct membership *m, uint64_t conn, const Traind__Peer__ToNode *message);
/* To this connection too, without another copy. `sent`: how many actions there were before that message. */
void action_send_also(struct membership *m, uint64_t conn, size_t sent);
void action_relay(struct membership *m, Traind__Peer__RelayDuties *duties);
void action_close(struct membership *m, uint64_t conn, const char *text);
void action_reply(struct membership *m, uint64_t request, tr_status status, uint64_t job,
    bool existed, const char *text);
void action_changed(struct membership *m, uint64_t job);
void action_log(struct membership *m, bool warn, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Not more than a line a second, with a count. */
void action_ignored(struct membership *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void action_log_data(struct membership *m, uint64_t conn, const Traind__Peer__LogData *data);

/* copy.c: whole copies of messages; NULL and oom when memory is out. */
void *copy_message(struct membership *m, const ProtobufCMessage *message);
char *copy_string(struct membership *m, const char *text);
void copy_text(char *to, size_t size, const char *from); /* truncates at a whole UTF-8 character */
void copy_number(struct membership *m, uint64_t **array, size_t *count, uint64_t value);

/* apply.c: the only writer of durable state. */
void apply_entry(struct membership *m, const Traind__Peer__LogEntry *entry);
void apply_event(struct membership *m, struct job *job, uint64_t unix_ms, const char *text);

struct group *apply_add_group(struct membership *m, uint64_t id, uint64_t job);
void apply_remove_group(struct membership *m, uint64_t id);
/* apply_group.c */
void apply_founded(struct membership *m, const Traind__Peer__GroupFounded *founded);
void apply_proposed(struct membership *m, const Traind__Peer__ViewProposed *proposed);
void apply_view(struct membership *m, const Traind__Peer__ViewInstall *install, uint64_t unix_ms);
void apply_rounds(struct membership *m, const Traind__Peer__RoundCommits *rounds, uint64_t unix_ms);

/* snapshot.c */
void snapshot_restore(struct membership *m, const Traind__Peer__Snapshot *snapshot);

/* node.c */
void node_hello(struct membership *m, uint64_t conn, const Traind__Peer__NodeHello *hello);
void node_lifeline(struct membership *m, uint64_t conn, const Traind__Peer__Lifeline *lifeline);
void node_closed(struct membership *m, uint64_t conn, const char *reason);
void node_registered(struct membership *m, const Traind__Peer__NodeHello *hello);
void node_lose(struct membership *m, struct node *node, const char *reason);
void node_leave(struct membership *m, struct node *node, const char *reason);
void node_think(struct membership *m);

/* health.c */
void health_heartbeat(struct membership *m, struct node *node,
    const Traind__Peer__Heartbeat *heartbeat);
void health_think(struct membership *m);
/* Silence after which the node is lost: what is configured, more over a long way. */
uint64_t health_timeout_ms(const struct membership *m, const struct node *node);
/* How long it has been silent, if that is half of what is allowed or more: who asks reckons with its loss. Else 0. */
uint64_t health_doubt_ms(const struct membership *m, const struct node *node);
void health_paused(struct membership *m, uint64_t gap_ms);
uint64_t health_deadline_ms(const struct membership *m);

/* peer.c: the end of a peer, and telling its node. */
/* Its process runs, or may still run: its slot is taken. */
bool peer_holds_slot(const struct membership *m, const struct peer *peer);
/* It gave up, and its process has not ended yet: it may say more of the cause than its engine did. */
bool peer_may_say_why(const struct membership *m, const struct peer *peer);
void peer_end(struct membership *m, struct peer *peer, enum peer_state fate, bool fast,
    const char *reason);
/* Of those who held its state nobody is left: lost as well, though not what the job ends of. */
void peer_end_without_state(struct membership *m, struct peer *peer);
void peer_started(struct membership *m, struct node *node,
    const Traind__Peer__WorkerStarted *started);
void peer_exited(struct membership *m, struct node *node, const Traind__Peer__WorkerExited *exited);
void peer_ready(struct membership *m, struct node *node, const Traind__Peer__PeerReady *ready);
/* Can nobody have `round`, with which the members of a proposal are to go on? They are ended then. */
bool peer_refused(struct membership *m, struct group *group, uint64_t round);
void peer_failed(struct membership *m, struct node *node, const Traind__Peer__PeerFailed *failed);
void peer_installed(struct membership *m, struct node *node,
    const Traind__Peer__ViewInstalled *installed);
void peer_think(struct membership *m, struct list *peers);
/* Nobody of this group of the job will follow those who died: their nodes may let go of what they left. */
void peer_left_over(struct membership *m, const struct job *job, uint64_t group);
/* What a node that came (back) hosts, against what we think. */
void peer_reconcile(struct membership *m, struct node *node, const Traind__Peer__NodeHello *hello);

/* job.c */
const char *job_state_name(Traind__V1__JobState state);
bool job_move_legal(Traind__V1__JobState from, Traind__V1__JobState to);
void job_submit(struct membership *m, uint64_t request, const Traind__V1__SubmitJobRequest *submit);
void job_cancel(struct membership *m, uint64_t request, uint64_t job, const char *reason);
void job_think(struct membership *m);
void job_wait(struct membership *m, struct job *job, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void job_append_moved(struct membership *m, struct job *job, Traind__V1__JobState to,
    int32_t exit_code, const char *reason, const Traind__V1__Progress *progress, uint64_t *cookie);
uint64_t job_deadline_ms(const struct membership *m);

/* native.c, command.c: what a job of that kind needs next. */
void native_think(struct membership *m, struct job *job);
void native_back_off(struct membership *m, struct job *job); /* after a fast death */
void command_think(struct membership *m, struct job *job);
void command_exited(struct membership *m, struct job *job, const struct peer *peer, int32_t code,
    const char *reason);

/* start.c: messages that start a peer. */
void start_worker(struct membership *m, struct job *job, struct peer *peer, uint64_t conn);
void start_joined(struct membership *m, struct group *group, struct peer *peer, uint64_t conn);

/* queue.c: places queued jobs in the order of submission, and replacements. */
void queue_think(struct membership *m);
void queue_replace(struct membership *m, struct job *job);
/* With mesh.grow: one more than were asked for, if a node has come that has a slot. */
void queue_grow(struct membership *m, struct job *job);
/* Whether a worker of the group's job is missing beside `members` of its next view, and none is on its way nor can be: no node has a free slot for it, or has one soon or may come back. */
bool queue_nobody_follows(struct membership *m, const struct group *group, size_t members);

/* elsewhere.c */
/* A traind that its supervisor starts again (configs/traind.service), or whose memberd was away, is there within a few seconds: longer than a node may be away before it counts as lost. Shorter than
 * anybody waits for who looks at a job that stands. */
#define ELSEWHERE_AFTER_MS 10000u
/* When a queued job is placed on other nodes than its plan's, or on fewer than it asks for; 0: it is not to be. */
uint64_t elsewhere_ms(const struct job *job);
/* The same of a job without a plan for which so few nodes are there. UINT64_MAX: it waits for more. */
uint64_t elsewhere_without_ms(const struct job *job, uint32_t nodes);
/* At least; with fewer workers they would wait (mesh.too_few). */
uint32_t elsewhere_nodes(const struct job *job);
uint32_t elsewhere_workers(const struct job *job);

/* latecomer.c */
/* Is a worker for the job's free place, on this node, worth its start? An event says so if not, and if it is after all. */
bool latecomer_pays(struct membership *m, struct job *job, const struct node *node);
bool latecomer_stays_out(const struct job *job); /* a place stays free since it was not */
/* A worker that was told to start is ready. */
void latecomer_started(const struct membership *m, const struct peer *peer);

/* grow.c */
/* Is it one of those? */
bool grow_is_more(const struct job *job, const struct peer *peer);
/* One of those has ended: others come later. */
void grow_lost(const struct membership *m, struct job *job);
/* Now: the job asks for it and has trained, and nobody else needs a slot. */
bool grow_is_wanted(const struct membership *m, const struct job *job);
/* On this node. */
bool grow_takes(const struct job *job, const struct node *node);

/* group.c: library groups */
void group_join(struct membership *m, uint64_t conn, const Traind__Peer__JoinGroup *join);
/* An entry is in the log, or did not get there (applied: false): a join is over with the former, and goes on waiting after the latter. */
void group_join_logged(struct membership *m, uint64_t cookie, bool applied);
void group_leave(struct membership *m, struct node *node, const Traind__Peer__LeaveGroup *leave);
void group_think(struct membership *m);
void join_free(void *join);

/* view.c */
void view_think(struct membership *m, struct group *group);
void view_report(struct membership *m, struct node *node, const Traind__Peer__ViewReport *report);
void view_proposed(struct membership *m, struct group *group);
void view_installed(struct membership *m, struct group *group);
void view_send(struct membership *m, const struct group *group, uint64_t conn);
void view_ask(struct membership *m, const struct group *group, uint64_t conn);
void view_drop_proposal(struct group *group);
uint64_t view_deadline_ms(const struct membership *m);

/* members.c: who is to be in the next view, and why. */
/* On fewer there is none. */
size_t members_least_nodes(const struct membership *m, const struct group *group);
size_t members_wanted(struct membership *m, struct group *group, struct peer **members,
    char reason[REASON_MAX]);

/* link.c */
void link_lost(struct membership *m, struct node *node, const Traind__Peer__LinkLost *lost);
void link_think(struct membership *m, struct group *group);
uint64_t link_deadline_ms(const struct group *group);

/* relay.c: members that cannot dial each other, and who relays between them. */
bool relay_may_help(const char *reason); /* of a LinkLost: it was dialled in vain */
/* Remembers it, and that what relays between them now does not do. */
void relay_complain(struct membership *m, struct group *group, const Traind__Peer__LinkLost *lost);
/* A relay for each pair of which somebody complains. 0: there is none for one of them; else whose reason to name, 1 + an index. */
size_t relay_find(struct membership *m, struct group *group, char reason[REASON_MAX]);
/* The rows of the view to be; `view` has its peers. What is allocated is freed by relay_unfill. */
void relay_fill(struct membership *m, struct group *group, Traind__Peer__View *view);
void relay_unfill(Traind__Peer__View *view);
/* Those rows of a view that this connection's node needs: at most as many as the view has. */
size_t relay_rows_of(const struct membership *m, const struct group *group, uint64_t conn,
    Traind__Peer__Relayed **rows);
void relay_look(struct membership *m); /* views are new to us: is there anything to tell? */
/* Each node, and our own shell, what it has to do, if that has changed. */
void relay_tell(struct membership *m);

/* measure.c: links between hosts, on request; answered by action_reply. */
void measure_request(struct membership *m, uint64_t request,
    const Traind__V1__MeasureLinksRequest *wish);
void measure_clear(struct membership *m);
void measure_answered(struct membership *m, const struct node *node,
    const Traind__Peer__LinkMeasured *said);
void measure_think(struct membership *m);
uint64_t measure_deadline_ms(const struct membership *m);

/* planned.c: after progress of a job; says so if steps do not take what was planned. */
void planned_look(struct membership *m, struct job *job);

/* rounds.c: records of committed rounds, until they are in the log. */
void rounds_told(struct membership *m, struct node *node, const Traind__Peer__RoundCommits *rounds);
void rounds_applied(struct membership *m, struct group *group);
void rounds_refused(struct membership *m,
    uint64_t group); /* records of it did not get into the log */
void rounds_think(struct membership *m, struct group *group);
/* Records of this group are on their way into the log: no decision about its rounds can be taken before. */
bool rounds_pending(const struct membership *m, const struct group *group);

/* facts.c: progress and events from nodes. */
void facts_report(struct membership *m, struct node *node, const Traind__Peer__PeerReport *report);
/* What a member leaves behind, before its end is taken. NULL: nothing. */
void facts_last_words(struct membership *m, struct node *node, struct peer *peer,
    const Traind__Peer__LastWords *words);
/* And of one that was given up before: what it learned alone is for who takes its place. */
void facts_left(struct membership *m, struct peer *peer, const Traind__Peer__LastWords *words);
void facts_think(struct membership *m, struct job *job);
void facts_note(struct membership *m, const struct job *job,
    const char *text); /* an event, through the log */

/* samples.c: a worker's account of samples, its own words (borrowed); the newest, or NULL. */
void samples_take(struct membership *m, struct job *job, const Traind__V1__SampleAccount *account);
const Traind__V1__SampleAccount *samples_of(const struct job *job);

#endif
