/* Shared by the files of the engine; for nobody else. All of it belongs to the engine's thread, except what says otherwise.
 *
 *	engine.c         the thread, commands from other threads, the interface of engine.h
 *	member.c         life of a member; events into its core
 *	member_act.c     actions out of its core
 *	member_calls.c   what its caller wants, and the answers
 *	posted.c         events into its core that wait for the one that is acted on
 *	peer_link.c      links to peers: frames out
 *	peer_lane.c      a link's connections; which frame goes where; peer_stripe.c, stripe.c: how many there are
 *	outgoing.c       frames that wait for one
 *	slow_links.c     which of them are the slowest, for memberd
 *	peer_inbound.c   connections that were dialled to us: frames in
 *	inbound_door.c   those that have not been let in: hello, token, view
 *	inbound_link.c   those that belong to one link of a peer: what came on each
 *	pulse.c          signs of life between members, and who is silent
 *	engine_drive.c   turns of its loop, by its thread or by a caller that waits
 *	engine_shm.c     memory that is shared with peers of this host
 *	held.c           frames that came before the core could take them
 *	state_send.c, state_receive.c, state_ask.c, state_gradual.c   state for joiners; state_plan.c: which piece comes from whom; state_work.c: what takes long
 *	leftover.c       what a dead worker left, for the one that follows it
 *	observe.c        questions about a member (tr_stats_get and its like)
 *	traffic.c        bytes that its connections carried
 *	gauge.c, rate.c, arrival.c  how far its long ways are, and what they carry
 *	pacer.c, peer_pace.c  how much is sent over them, where their queues overflow
 *	notices.c        round records and reports, in batches, to memberd
 *
 * Beside it, on the thread of the listener: relaying.c, what the process has to do with relays.
 */
#ifndef TR_COLLECTIVES_ENGINE_ENGINE_INTERNAL_H
#define TR_COLLECTIVES_ENGINE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "collectives/core/group.h"
#include "collectives/engine/channel_host.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/gather.h"
#include "collectives/engine/gauge.h"
#include "collectives/engine/posted.h"
#include "collectives/transport/packing.h"
#include "collectives/engine/leftover.h"
#include "collectives/engine/pulse.h"
#include "collectives/engine/traffic.h"
#include "collectives/transport/congestion.h"
#include "collectives/transport/conn.h"
#include "collectives/engine/staging.h"
#include "collectives/transport/host.h"
#include "collectives/transport/lane.h"
#include "collectives/transport/shm_hub.h"
#include "common/log_limit.h"

struct inbound_list {
	struct inbound *first; /* oldest first */
	unsigned count;
};

struct engine {
	struct engine_callbacks callbacks;
	void *arg;
	uv_loop_t loop;
	uv_thread_t thread;
	uv_async_t wake;
	uv_timer_t hello_timer; /* connections that have not said who they are */
	bool stopping;
	pthread_mutex_t turn;      /* held by whoever works: of all that is not under `lock` */
	uint64_t wakes_ms;         /* the thread sleeps until then */
	unsigned looks;            /* of callers that wait */
	unsigned words;            /* of callers that do not: calls */
	uint64_t looped_ns;        /* the loop's last turn by a caller */
	uint64_t steps;            /* events that went into cores */
	bool driven;               /* by a caller, who needs no doorbell */
	unsigned sleepers;         /* callers that sleep in the loop */
	uint64_t sleeper_wakes_ms; /* the newest of them sleeps until then */
	bool stop_left;            /* a caller met COMMAND_STOP and left it to the thread */
	unsigned far_lanes;        /* lanes that only the loop sees */
	_Atomic bool parked;       /* the thread looks at no event (engine_drive.c) */
	bool memberd_lost;         /* what is said now does not arrive */
	struct member *members;
	struct inbound_list strangers; /* have not said hello yet */
	struct inbound_list waiting;   /* have, for a view that we do not know */
	unsigned inbound_count;        /* that were let in */
	struct log_limit drops;        /* of strangers */
	struct leftovers leftovers;
	struct shm_hub *shm; /* NULL: there is no shared memory */
	char host[HOST_IDENTITY_MAX], shm_address[TR_ADDRESS_MAX]; /* never change */
	struct {
		enum tr_transport transport;
		unsigned sockets;                     /* 0: as many as a link needs */
		char congestion[CONGESTION_NAME_MAX]; /* "": by the path */
		struct tls_context *tls;              /* NULL: plain */
		char memberd[TR_ADDRESS_MAX];         /* a relay without an address; "": none */
		bool alone;                           /* has one member */
		bool insecure;                        /* plain: beyond loopback too */
	} links;
	struct {
		uv_timer_t timer;
		uint64_t interval_ms, timeout_ms; /* interval 0: memberd has not said it */
		struct pulse_clock clock;
	} pulse;

	struct gauge gauge;
	struct packing_pace packing; /* what it took lately, for all links */

	pthread_mutex_t lock; /* of what follows */
	struct command *commands, **commands_tail;
	size_t backlog;          /* bytes of memberd's words among them */
	struct member_row *rows; /* newest progress of every member */
	double bandwidth_bytes_per_s;
	struct engine_commons *commons;
	unsigned callers; /* in engine_drive, for an answer */
	uint64_t drives,
	    drives_seen; /* comings and goings of them; those that the thread knows of */
	bool unpark, parked_for_long;
	uv_cond_t unparked;
};

/* Progress, as other threads see it. */
struct member_row {
	struct member_row *next;
	struct engine_progress progress;
	const struct channel_host *host;
	struct engine_link links[TR_PEER_LINKS_MAX];
	size_t link_count; /* that nobody has asked for yet */
};

struct view_peer_entry {
	uint64_t peer;
	char address[TR_ADDRESS_MAX];
	char node_name[TR_NAME_MAX];
	uint64_t participate_from; /* the first round that it was in, or will be */
	bool gradual;              /* it has not all of the state, and says so when it has */
	bool near;                 /* on this host */
	char local_address[TR_ADDRESS_MAX]; /* of shared memory; "": none with this peer */
	struct conn_relay *relay;           /* how we get to it; NULL: it is dialled */
	struct traffic ended;               /* with it, on connections that are no more */
};

/* What the caller in the worker waits for. */
struct member_call {
	uint64_t id; /* 0: nothing */
	enum channel_call call;
	uint32_t tag;
	bool limited; /* it waits for at most `limit_ms` */
	bool states;  /* it wants to know how much of the state is here */
	uint32_t limit_ms;
};

#define HELD_LISTS 256
struct held_list {
	struct held_frame *first, *last;
};

struct member {
	struct engine *engine;
	struct member *next;
	uint64_t job, group, peer;
	uint32_t rank;
	unsigned holds; /* handles and connections that point here; freed at 0 */
	bool destroyed; /* out of the engine's list, waits for holds */
	bool over;      /* ended: no event goes to the core any more */
	bool worker_gone;
	struct tr_error
	    failure; /* it cannot go on: what memberd is told, each time that it comes back */
	uint64_t refused_round; /* of the failure: nobody can have that round; 0: the others can */

	struct group_core *core;
	struct group_actions actions;
	struct posted posted;
	bool stepping;
	bool unpublished; /* its row is older than its core */

	struct channel_host *host;
	uv_poll_t bell_poll, socket_poll;
	uv_timer_t tick, deadline, records_timer, reports_timer;
	uint64_t tick_us; /* when `tick` is due at the latest; UINT64_MAX: it is not armed */
	bool ticking; /* within it. One that follows at once is for the next turn, after what has come was read: libuv 1.44 runs timers of 0 ms from timers in the same one */
	uv_idle_t again; /* submissions are left: the ring is read in turns */
	uv_idle_t retry; /* held frames may be offered again */
	uv_idle_t state_turn;
	uv_timer_t state_look;
	bool reports_full;

	/* the caller */
	struct member_call call;
	uint32_t op_deadline_ms;
	bool ready, round_open, begin_asked, close_asked;
	uint64_t ready_round;
	struct channel_answer unclaimed; /* of a call that timed out */
	enum channel_call unclaimed_call;
	struct tr_error submit_error, lost; /* the round's: first bad op; why it was given up */
	bool memory_reused; /* a release was refused: the round cannot be committed any more */
	bool state_awaited, state_here;

	/* the view */
	uint64_t view;
	uint64_t token[2]; /* the group's: in no log line */
	struct view_peer_entry *view_peers;
	size_t view_peer_count;
	struct conn_relay *view_relays; /* of some of view_peers */
	double view_latency_s;          /* one way, of its worst link */

	struct staging staging;
	struct gather gather; /* over boards in it */
	struct shm_exports exports;
	unsigned arenas_shown; /* of the host's */
	size_t prefaulted_bytes;
	struct kept_import *kept_imports;
	struct outgoing *retired; /* frames whose staging peers may still read */

	struct peer_link *links;
	uint64_t links_made; /* their names */
	uint64_t links_told_ms;
	struct inbound *inbound;
	struct inbound_link *inbound_links;
	struct held_list held[HELD_LISTS], held_due; /* by op; those that were asked for */
	size_t held_count;                           /* in all of them */
	bool held_retry_all;
	struct held_source *held_sources;
	struct state_send *state_sends;
	struct state_receive *state_receive;
	struct leftover *leftover; /* claimed; NULL: none */

	/* observe.c */
	struct traffic ended;  /* on connections that are no more */
	uint64_t resent_bytes; /* over another connection, after theirs had broken */

	/* notices.c */
	Traind__Peer__RoundCommit **records; /* not yet in memberd's log */
	size_t record_count, record_capacity;
	size_t record_sent;        /* the first so many were sent */
	uint64_t records_since_ms; /* when the oldest was sent, or became the oldest */
	uint64_t recorded_round;   /* up to here they are */
	char *events[TR_REPORT_EVENTS_MAX];
	unsigned event_count;
	Traind__V1__Progress *progress;     /* newest figures not yet sent */
	Traind__V1__Progress *told;         /* all that were sent, merged */
	Traind__V1__SampleAccount *account; /* the newest */
	bool account_told;

	struct member_row row;
};

/* ---- engine.c ---- */
/* Of the loop's last turn or the caller's last drive: milliseconds do for all that is waited for. */
static inline uint64_t engine_now_us(const struct engine *engine)
{
	return uv_now(&engine->loop) * 1000;
}
void engine_tell(struct engine *engine, const Traind__Peer__ToMember *message);
struct member *engine_find(struct engine *engine, uint64_t group, uint64_t peer);
/* Of a burst of a link that is no long way: of all of those together the gauge knows more. */
void engine_learn_bandwidth(struct engine *engine, double bytes_per_s);

/* ---- member.c ---- */
tr_status member_create(struct engine *engine, const Traind__Peer__StartWorker *start,
    struct channel_host *host, struct member **member, struct tr_error *error); /* any thread */
void member_start(struct member *member);
/* Ends the caller's calls with `status`; says goodbye to the peers. */
void member_end(struct member *member, tr_status status, const char *reason);
/* Ends it, and frees it when its connections are closed. */
void member_destroy(struct member *member, tr_status status, const char *reason);
void member_unhold(struct member *member);
/* A buffer went back to its core, perhaps beside a step. */
void member_look_due(struct member *member);
void member_publish(struct member *member); /* for heartbeats: who waits for whom has changed */
void engine_publish(struct engine *engine); /* it is told: once a turn, not once an event */
/* One event into the core, and all that follows. */
tr_status member_step(struct member *member, struct group_event *event, struct tr_error *error);
/* The same from within a step: it follows when that is done. */
void member_post(struct member *member, enum group_event_kind kind, uint64_t from, uint64_t round,
    tr_status status, const char *reason);
/* Until member_let_posts nothing that is posted is acted on, as in a step. What it returns that one has to be given. */
bool member_hold_posts(struct member *member);
void member_let_posts(struct member *member, bool held);
void member_propose(struct member *member, const Traind__Peer__ViewPropose *propose);
void member_install(struct member *member, const Traind__Peer__ViewInstall *install);
const struct view_peer_entry *member_view_peer(const struct member *member, uint64_t peer);
void member_tell_ready(struct member *member);
void member_failed(struct member *member, tr_status status, const char *reason);
/* The same, and nobody can have that round; 0: the others can. */
void member_refused(struct member *member, tr_status status, uint64_t round, const char *reason);
void member_tell_failure(struct member *member); /* if there was one */

/* ---- member_act.c ---- */
void member_act(struct member *member, struct group_action *action);

/* ---- member_calls.c ---- */
bool member_calls_serve(struct member *member); /* what was submitted; true: something was */
void member_calls_start(struct member *member);
void member_calls_stop(struct member *member);   /* the handles; not the answers */
void member_calls_resume(struct member *member); /* there is room for reports again */
void member_calls_end(struct member *member, tr_status status, const char *reason);
void member_calls_began(struct member *member, const struct tr_round *info);
void member_calls_op_done(struct member *member, uint32_t tag, tr_status status, const char *text);
void member_calls_decided(struct member *member, tr_status status, const struct tr_round *info,
    const char *reason);
void member_calls_state_here(struct member *member, tr_status status, const char *reason);

/* ---- peer_link.c ---- */
void peer_link_connect(struct member *member, uint64_t peer);
void peer_link_segment(struct member *member, const struct group_action *action);
/* Something can be said to it without a dial. */
bool peer_link_is_up(struct member *member, uint64_t peer);
/* Segments for it are waiting, or on their way. Never over shared memory. */
bool peer_link_carries(struct member *member, uint64_t peer);
void peer_link_say(struct member *member, uint64_t peer, const Traind__Peer__PeerMessage *message);
void peer_link_drop_segments(struct member *member);
void peer_link_leave(struct member *member, const char *reason); /* goodbye to all */
void peer_link_view_changed(
    struct member *member); /* closes those to peers that are no longer in it */
/* Now and then: pulses on those that are idle; more or fewer connections, as they need. */
void peer_link_look(struct member *member);
/* Something is shown to all on our board. */
void peer_link_nudge(struct member *member);
/* The round is decided: nothing of the caller's memory is sent any more. */
void peer_link_round_over(struct member *member);
/* Adds what open connections have carried; `peer` 0: to all peers. */
void peer_link_traffic(const struct member *member, uint64_t peer, struct traffic *sum);
/* Adds what went over long ways, and how far the worst of them is. */
void peer_link_gauge(const struct member *member, struct gauge_sum *sum);
/* One of its peers is far (gauge.h). */
bool peer_link_far(const struct member *member);
/* All links to far peers together send so much; 0: as much as they like. */
void peer_pace_all(struct engine *engine, double bytes_per_s, uint32_t rtt_us, uint64_t now_us);
void peer_link_describe(const struct member *member, uint64_t peer, struct tr_link *link);
tr_status peer_send_message(struct conn *conn, const Traind__Peer__PeerMessage *message);
tr_status peer_send_hello(struct conn *conn, const struct member *member, uint64_t to);

/* ---- slow_links.c ---- */
void slow_links_look(struct member *member); /* they may have changed */
/* Among `count` links, slowest first; returns how many there are then. */
size_t slow_links_put(struct engine_link links[TR_PEER_LINKS_MAX], size_t count,
    const struct engine_link *link);

/* ---- peer_inbound.c ---- */
void inbound_accept_lane(struct engine *engine, struct lane *lane); /* open; takes it */
void inbound_accept(struct engine *engine, struct stream stream, const void *early,
    size_t early_bytes);
void inbound_resume_all(struct member *member);
void inbound_view_changed(struct member *member); /* closes those of peers that are not in it */
/* Closes the connections on which nothing comes any more; GROUP_LINK_LOST follows. For `late_ms` we stood still ourselves. */
void inbound_judge(struct member *member, uint64_t now_ms, uint64_t late_ms);
void inbound_leave(struct member *member); /* they stay until the other side closes, for a while */
void inbound_traffic(const struct member *member, uint64_t peer, struct traffic *sum);
void inbound_gauge(const struct member *member, struct gauge_sum *sum); /* what came */
void inbound_describe(const struct member *member, uint64_t peer, struct tr_link *link);
bool inbound_has(const struct member *member, uint64_t peer); /* a connection from there */

/* ---- inbound_door.c ---- */
void inbound_on_hello_timer(uv_timer_t *timer);
void inbound_door_close(struct engine *engine);
void inbound_door_look(struct engine *engine); /* some may be let in now, or have to go */
/* May who claims this show us its memory? */
bool inbound_door_admits(struct engine *engine, const struct shm_claim *claim);

/* ---- engine_drive.c ---- */
void engine_run(void *engine);                   /* the thread */
void engine_unpark(struct engine *engine);       /* under `lock`: it is wanted */
void engine_callers_left(struct engine *engine); /* waits until the last one has */

/* ---- engine_commons.c ---- */
/* A seat for a worker of the group, with the commons, which lives as long as somebody has a seat; or none. Any thread, as of give_back. */
struct channel_seat engine_commons_take(struct engine *engine, uint64_t group);
/* `unused`: nobody writes there any more, so it may be another worker's. */
void engine_commons_give_back(struct engine *engine, uint64_t group,
    const struct channel_seat *seat, bool unused);
void engine_commons_leave(struct member *member, bool dead); /* again: nothing */

/* ---- engine_shm.c ---- */
void engine_shm_start(struct engine *engine);
void engine_shm_stop(struct engine *engine);
tr_status member_shm_start(struct member *member, struct group_core_options *options);
void member_shm_show(struct member *member); /* what its caller has allocated meanwhile */
/* The peer's memory stays mapped until the next view is installed. Takes the reference; NULL is accepted. */
void member_keep_import(struct member *member, uint64_t from, struct shm_import *import);
/* Whether the peer that shows it says no later view than that (staging.h). */
bool member_import_intact(const struct shm_import *import, uint64_t view);
unsigned member_kept_imports(const struct member *member, uint64_t from);
void member_shm_settle(struct member *member); /* a view is installed, or the member ends */
void member_shm_finish(struct member *member); /* after the core */

/* ---- member_board.c ---- */
void member_board_enter(struct member *member); /* a view is installed */
/* GROUP_DO_SPREAD: shown to all, or sent to each. */
void member_board_spread(struct member *member, const struct group_action *spread);
bool member_board_look(struct member *member); /* true: something moved */
bool member_board_pending(struct member *member);
/* Before it is asked who is waited for: what is shown counts as here. */
void member_board_settle(struct member *member);

/* ---- held.c ---- */
void held_start(struct member *member);
void held_stop(struct member *member);
/* Keeps a segment's frame, its staging as it is; `counted` by the core, or not yet. TR_EAGAIN: no memory, the lane has to wait. TR_EPROTO: `from` sends more than it may. */
tr_status held_keep(struct member *member, uint64_t from, const struct lane *lane,
    const struct lane_frame *frame, bool counted, struct tr_error *error);
bool held_offer(struct member *member); /* now, if there is something to retry; true: there was */
/* What a GROUP_DO_RETRY asks for: in the loop's next turn. */
void held_retry(struct member *member, const struct group_action *retry);
/* Drops those of a view that has not come for too long, and closes the connections of their senders. For `late_ms` we stood still. */
void held_judge(struct member *member, uint64_t now_ms, uint64_t late_ms);
/* One segment's frame into the core, which takes its staging; TR_EAGAIN: not now, nothing was taken. `counted`: as in group_event. */
tr_status inbound_segment(struct member *member, uint64_t from, const struct lane_frame *frame,
    bool *counted, struct tr_error *error);
/* The same of one that has just come (`lane` NULL: elsewhere than on a lane). What comes before its op was submitted here does not hold up what is behind it, which our
 * caller may wait for first: it is kept aside. TR_EAGAIN: there is no memory for that. */
tr_status inbound_segment_or_hold(struct member *member, uint64_t from, const struct lane *lane,
    const struct lane_frame *frame, struct tr_error *error);
void inbound_close_from(struct member *member, uint64_t from, const char *reason);
/* Boards of peers that are shown by now. */
void inbound_attach_boards(struct member *member);
/* member_import_intact of all that lanes show. */
bool inbound_lent_intact(const struct member *member, uint64_t view);
void inbound_close_one(struct member *member, const struct inbound *one, const char *reason);

/* ---- state_send.c, state_receive.c ---- */
void state_send_view_changed(
    struct member *member); /* ends those to peers that are no longer in it */
void state_send_start(struct member *member, uint64_t to, uint64_t round,
    const struct group_wish *wish);
/* 128 bits of the names and sizes of its tensors, in their order: the same where a state fits. */
#define STATE_LAYOUT_BYTES 16
void state_send_layout(const struct channel_host *host, uint8_t layout[STATE_LAYOUT_BYTES]);
/* Who asks has the worker's own tensors, by name and size. */
bool state_send_knows(const struct member *member, const Traind__Peer__StateRequest *request);
/* If what was asked for from wish->first on is being sent, it is to end at wish->end. */
void state_send_take_back(struct member *member, uint64_t from, uint64_t round,
    const struct group_wish *wish);
/* That round is decided: its joiners have what they need, and the caller has its memory. */
void state_send_round_over(struct member *member, uint64_t round);
/* The next piece of work on digests; false: nothing is left to do. */
bool state_send_turn(struct member *member);
/* Those that let segments go first look whether these are through. false: there are none such any more. */
bool state_send_look(struct member *member);
void state_send_traffic(const struct member *member, uint64_t peer, struct traffic *sum);
void state_send_stop_all(struct member *member, const char *reason);
/* The core says it every second as long as the state is needed: what does not move is asked for again, of others too. */
void state_receive_ask(struct member *member, uint64_t from, uint64_t round);
void state_receive_link_up(struct member *member); /* one more may be asked */
bool state_receive_turn(struct member *member);
tr_status state_receive_begin(struct member *member, uint64_t from, const struct inbound *in,
    const Traind__Peer__StateBegin *begin, struct tr_error *error);
tr_status state_receive_chunk(struct member *member, uint64_t from, const struct inbound *in,
    const uint8_t *payload, size_t bytes, struct tr_error *error);
tr_status state_receive_finish(struct member *member, uint64_t from, const struct inbound *in,
    const Traind__Peer__StateEnd *end, struct tr_error *error);
void state_receive_broken(struct member *member, const struct inbound *in, const char *reason);
void state_receive_free(struct member *member);

/* ---- state_gradual.c ---- */
/* How much of it is here; zeros at first. */
void state_gradual_progress(const struct member *member, struct tr_state_progress *progress);
/* The round is to be decided without the rest, which comes on until it is. */
void state_gradual_defer(struct member *member);
/* It is: nothing more is written into the caller's state, which it changes now, until the core asks again. Or it begins again. */
void state_gradual_decided(struct member *member, tr_status status, uint64_t round);

/* ---- state_work.c ---- */
void state_work_start(struct member *member);
void state_work_wake(struct member *member);
/* Something lets segments go first: state_send_look, in a moment. */
void state_work_look(struct member *member);
void state_work_stop(struct member *member);
/* The worker's state in chunks (state_plan.h). false: no memory. */
struct state_map;
bool state_work_cut(const struct channel_host *host, struct state_map *map);

/* ---- observe.c ---- */
bool observe_serve(struct member *member); /* answers a question; false: there was none */
/* A connection with this peer ends: what it carried. */
void observe_ended(struct member *member, uint64_t peer, const struct traffic *carried);

/* ---- notices.c ---- */
void notices_start(struct member *member);
void notices_event(struct member *member, const char *text);
void notices_record(struct member *member, Traind__Peer__RoundCommit *record); /* takes it */
void notices_recorded(struct member *member, uint64_t round);
void notices_again(struct member *member); /* memberd came back: all that it may not have */
bool notices_report(void *member, const void *packed, size_t bytes); /* channel_report_fn */
void notices_flush(struct member *member);
/* The worker is gone: what memberd may not have. Points into the member. */
void notices_last_words(struct member *member, Traind__Peer__LastWords *words);
void notices_finish(struct member *member);

#endif
