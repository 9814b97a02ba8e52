/* A link: all that goes from a member to one peer. Shared by peer_link.c (its life), peer_lane.c (its lanes), peer_stripe.c (how many of
 * them) and outgoing.c (its frames); for nobody else. Engine thread.
 *
 * Frames wait in one queue and go to whichever lane has room, so a slow stripe carries less. While a link has several lanes,
 * what was sent is kept until the other end says that it came; when one lane breaks, the other end is asked on another one
 * how much of it came, and the rest goes out again: a lost stripe is not a lost peer, and every frame comes once. When the
 * last lane breaks, the link is lost (GROUP_LINK_LOST), and a new view repairs.
 */
#ifndef TR_COLLECTIVES_ENGINE_PEER_LINK_H
#define TR_COLLECTIVES_ENGINE_PEER_LINK_H

#include "collectives/engine/engine_internal.h"
#include "collectives/engine/pacer.h"
#include "collectives/engine/rate.h"
#include "collectives/engine/stripe.h"
#include "collectives/transport/lane.h"

/* In this order they are sent; over long ways segments as they came. */
enum outgoing_class {
	OUTGOING_CONTROL, /* votes, decisions: small, in order, on one lane */
	OUTGOING_HOT, /* sums under way and results: in the cache now, and the others wait for them */
	OUTGOING_OWN, /* our input, at the start of its path: there is no hurry and a lot of it */
	OUTGOING_CLASSES,
};

struct outgoing {
	struct outgoing *next;
	struct member *member;
	struct peer_link *link; /* not to be used once it is among member->retired */
	struct peer_lane *lane; /* that took it */
	struct group_buffer *buffer;
	const void *body; /* of a segment: borrowed from the core; else `copy` */
	uint8_t *copy;    /* of a control frame */
	size_t body_bytes;
	uint64_t number; /* of those that ever waited for its link */
	enum outgoing_class class;
	bool kept;    /* in a lane's list until it is known to have come */
	bool written; /* the transport needs the body no more */
	bool dropped; /* the transport did not send it, since the view froze */
	bool gone;    /* its memory is no longer ours to read: it came, or nobody needs it */
	bool encoded; /* by its op's codec */
	uint8_t head[SEGMENT_HEADER_BYTES];
};

struct outgoing_list {
	struct outgoing *first, **tail;
};

/* One of a link's connections. */
struct peer_lane {
	struct peer_lane *next;
	struct peer_link *link;
	struct lane *lane; /* NULL: closed; the other end is asked what came */
	uint32_t number;   /* in the link */
	bool up;           /* connected, hello said */
	bool far;          /* among the engine's far_lanes */
	bool retiring;     /* one too many: no more bulk, and closed by us when all has come */
	bool ended;        /* the other end has said how much came */
	bool broken;       /* it took a frame no more: it is closed, and will say so */
	uint64_t sent;     /* frames */
	uint64_t known;    /* so many of them came, or were not kept; `kept` are those after it */
	struct outgoing_list kept;
	uint64_t acked_bytes; /* when last looked at */
	uint32_t retransmits;
	struct gauge_lane gauged;
	double pace;           /* bytes/s, at most; 0: no bound */
	uint64_t paced_us;     /* when it was said */
	uint64_t looked_bytes; /* sent when it was last looked whether it is idle */
	bool quiet;            /* it was */
};

struct peer_link {
	struct member *member;
	struct peer_link *next;
	uint64_t peer;
	uint64_t name; /* for the other end: which lanes belong together */
	bool closing;  /* ours to close: no loss is told */
	bool near;     /* over shared memory */
	bool far;      /* which did not come about: over TCP */
	bool feeding;
	bool idle_seen; /* a lane had nothing to send since the last look */
	struct outgoing_list queue[OUTGOING_CLASSES];
	uint64_t queued;         /* ever */
	struct peer_lane *lanes; /* oldest first */
	uint32_t lane_count;     /* ever made: their numbers */
	uint32_t pulsed_lane;    /* said the last pulse */
	bool distant;            /* a long way (gauge.h) */
	bool by_rate;            /* bbr: losses do not bind it */
	bool striped;            /* more than one lane, once: what is sent is kept */
	bool as_one;             /* the other end judges its silence, not that of each lane */
	struct pulse_mouth mouth;
	size_t kept_bytes; /* of staging */
	size_t unwritten;  /* frames that a transport still reads */
	struct stripe stripe;
	uint64_t acked_bytes; /* of all lanes that ever were, as their transport knows */
	uint32_t retransmits;
	uv_timer_t redial;
	uint64_t dialling_since_ms; /* without success; 0: not */
	uint64_t way[2];            /* of the newest dial: the token of its relay; 0: none */
	unsigned pause_ms;
	uint64_t sent_view; /* newest view of which frames were sent */
	uint64_t bytes_out, burst_start_us, burst_bytes;
	uint64_t told_bytes; /* of acked_bytes, when the kernel was last asked for its rate */
	struct {
		struct pacer_link is;
		bool busy; /* there is something to send, or was a moment ago */
		uint64_t waited_us, busy_since_us, looked_us, bytes;
	} pace;
	struct rate_newest rates; /* over TCP: of bursts, and what the kernel says */
	/* For people: the same, and of times between two looks in which there was always more to send. */
	struct rate_newest lately;
	uint32_t rtt_us; /* without queues, when last looked at; 0: not known */
	struct {
		uint64_t looked_us, since_us, bytes; /* since_us: it has not been idle since then */
	} busy;
};

/* ---- outgoing.c ---- */
void outgoing_list_init(struct outgoing_list *list);
void outgoing_append(struct outgoing_list *list, struct outgoing *out);
void outgoing_put_back(struct outgoing_list *list, struct outgoing_list *front); /* before all */
struct outgoing *outgoing_take(struct outgoing_list *list);                      /* NULL: empty */
/* The next one; NULL: none may go. Over a long way the oldest: an input has all of its hops before it. Were it to wait for what comes from others, who begins a ring's op a moment after
 * them would begin most of its chains when theirs are through: four members, 100 ms, 100 Mbit/s, 16 MiB, one of them 50 ms late: 2.8 s instead of 2.3. */
struct outgoing *outgoing_take_segment(struct peer_link *link);
/* NULL: no memory. Takes the buffer's reference, then. */
struct outgoing *outgoing_segment(struct peer_link *link, const struct group_action *action);
struct outgoing *outgoing_message(struct peer_link *link, const Traind__Peer__PeerMessage *message);
void outgoing_let_go(struct outgoing *out); /* of staging and body; it counts, nothing more */
/* Its staging may still be read by the peer: it is freed when the next view is installed (engine_shm.c). */
void outgoing_retire(struct outgoing *out);
void outgoing_free(struct outgoing *out);
void outgoing_drop_all(struct outgoing_list *list);

/* ---- peer_lane.c ---- */
tr_status peer_lane_dial(struct peer_link *link, const char *address, struct tr_error *error);
/* Sends what waits, as far as there is room. */
void peer_lane_feed(struct peer_link *link);
/* The view froze: no segment of it is sent any more, no body is read. */
void peer_lane_drop_segments(struct peer_link *link);
/* The round is decided: the caller's memory is the caller's. */
void peer_lane_round_over(struct peer_link *link);
/* Sends a message at once, past the queue, uncounted: hello, pulse, what lanes say of one another. */
tr_status peer_lane_say(struct lane *lane, const Traind__Peer__PeerMessage *message);
struct peer_lane *peer_lane_first_up(const struct peer_link *link);
/* Some lane has room for nothing that waits. */
bool peer_lane_hungry(const struct peer_link *link);
void peer_lane_pulse(struct peer_lane *pl);
/* Removes those that have no connection any more. */
void peer_lane_forget_closed(struct peer_link *link);

/* ---- peer_pace.c ---- */
void peer_pace_let_go(struct peer_link *link); /* no pace any more */

/* ---- peer_stripe.c ---- */
/* Peers on other hosts: what goes to them, and comes from them, shares our way. */
unsigned peer_stripe_far_peers(const struct member *member);
unsigned peer_stripe_alive(const struct peer_link *link); /* those that are to stay */
/* More or fewer, as the link needs; pulses on some of those that are idle. */
void peer_stripe_look(struct peer_link *link);

/* ---- peer_link.c ---- */
void link_lane_opened(struct peer_link *link);
void link_dial_failed(struct peer_link *link, const char *cause); /* and no lane is up */
void link_not_near(struct peer_link *link, const char *cause);    /* no shared memory with it */
void peer_link_lost(struct peer_link *link, const char *reason);
void link_last_lane_closed(struct peer_link *link, const char *reason);

#endif
