/* A lane: one way between two peers that carries frames, whatever it is made of. The engine knows lanes only by this
 * interface; a transport is a file that makes them (lane_tcp.h: a connection; shared memory: rings).
 *
 * A link to a peer has one or several lanes that take frames from one queue (collectives/engine/peer_link.c): whoever has
 * room takes the next. So a lane keeps little for itself: what it has taken cannot go another way.
 *
 * Frames arrive in the order in which they were sent on the same lane. Both ends may send; bulk goes from the end that
 * opened the lane to the end that accepted it, and what is said back is small and rare.
 *
 * Everything here belongs to the loop's thread and never blocks. A lane never calls back from within a call into it,
 * except where a member says so. A lane that does not read because its owner is busy (TR_EAGAIN) goes on writing, and one
 * that cannot write goes on reading: no two peers wait for each other with full queues.
 *
 *	struct lane *lane;
 *	lane_tcp_dial(loop, "10.0.0.2:7600", NULL, NULL, NULL, &callbacks, link, &lane, &error);
 *	...opened: while (lane_room(lane) > 0 && (frame = next())) lane_send(lane, frame);
 *	...drained: the same again
 */
#ifndef TR_COLLECTIVES_TRANSPORT_LANE_H
#define TR_COLLECTIVES_TRANSPORT_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"

#define LANE_HEAD_MAX 128

struct lane;
struct packing_pace;

/* `sent`: the frame is on its way, or was when the lane broke; false: it was dropped whole and the peer will not see it. */
typedef void lane_released_fn(void *arg, bool sent);

/* A frame on its way out. */
struct lane_send {
	uint16_t type;    /* enum frame_type */
	const void *head; /* copied; at most LANE_HEAD_MAX bytes */
	size_t head_bytes;
	const void *body; /* borrowed until `released`; if that is NULL: copied, and there is no head */
	size_t body_bytes;
	/* Exactly once if lane_send returned TR_OK, never otherwise: the transport needs the body no more (it is written, it
	 * was dropped, the lane closed). May run within lane_send, lane_room, lane_drop_borrowed and lane_close; may send, ask for room and
	 * close the lane, but not drop its bodies. */
	lane_released_fn *released;
	void *arg;
	/* In fewer bytes, if it can be and the transport can (packing.h): the peer gets the same frame. Told what it took. NULL: as it is. */
	struct packing_pace *pack;
};

/* A frame that came, whole. */
struct lane_frame {
	uint16_t type;
	/* What the sender gave as head and body, one behind the other in `head` (8-byte aligned, borrowed until return); or, if
	 * `body` is set, the head alone there and the rest in `body`. */
	const uint8_t *head;
	size_t head_bytes;
	const void *body;
	size_t body_bytes;
	/* Of lane_callbacks.place: the frame's taker owns it now, unless it answers TR_EAGAIN. NULL: `body` is borrowed. */
	void *place;
	/* `body` stays readable and unchanged until the op's round is decided or the view freezes: memory of the peer's caller
	 * that is mapped here. */
	bool stable;
};

/* Memory for a body that is about to be received. */
struct lane_place {
	/* At least body_bytes. Looked at before each byte is received: the owner may have the rest elsewhere meanwhile. */
	void *const *memory;
	void *place; /* the owner's name for it */
	/* What is received is added to it while it is hot; NULL: not. */
	struct tr_digest_stream *hash;
};

struct lane_callbacks {
	/* Frames may be sent (lanes that were dialled; an accepted one is open from the start). May be NULL. */
	void (*opened)(void *arg, struct lane *lane);
	/* Exactly once, from a turn of the loop of its own; `reason` in words. The lane is freed after it returns. */
	void (*closed)(void *arg, struct lane *lane, const char *reason);
	/* There is room again after lane_room had answered 0. May be NULL. */
	void (*drained)(void *arg, struct lane *lane);
	/* TR_OK: taken. TR_EAGAIN: nothing was taken; the frame is kept, and nothing more is read until lane_resume. Any other
	 * status: the lane is closed with error->text as the reason. */
	tr_status (*frame)(void *arg, struct lane *lane, const struct lane_frame *frame,
	    struct tr_error *error);
	/* The head of a FRAME_SEGMENT is here (SEGMENT_HEADER_BYTES of it) and its body follows: where to? false: nowhere of
	 * its own; it is received into the lane's memory as any frame. Called for what a peer announced and has not sent yet:
	 * the owner answers for the bound. At most one place is out at a time on a lane. May be NULL. */
	bool (*place)(void *arg, struct lane *lane, const uint8_t *head, size_t body_bytes,
	    struct lane_place *place);
	/* A place that no frame will fill: the lane closed in the middle of it. NULL if `place` is. */
	void (*unplace)(void *arg, void *place);
};

struct lane_counters {
	uint64_t bytes_in, bytes_out;
	uint64_t
	    copied_bytes; /* of bodies, by the program (not the kernel): reading ahead, kept halves of frames */
	uint64_t calls; /* system calls that moved bytes */
};

/* What a path is like, as far as its transport knows; 0: unknown. */
struct lane_path {
	uint32_t rtt_us; /* without queues */
	uint32_t now_rtt_us;
	uint32_t retransmits;
	uint64_t acked_bytes;
	uint64_t
	    full_bytes_per_s; /* of the newest time in which there was always more to send, unless less was sent faster since; 0: unknown */
	const char *congestion; /* "cubic"; "" where there is none. Valid until the next call */
};

/* What came through, packet by packet: bytes count in order only, so behind a lost packet they stand still, and come all at once. Zeros where it is
 * unknown. */
struct lane_glance {
	uint32_t rtt_us;      /* without queues */
	uint32_t now_rtt_us;  /* lately */
	uint32_t retransmits; /* packets, ever */
	uint32_t packets_out,
	    packets_in; /* data that the other end has, and that came from it, ever; modulo 2^32 */
	uint32_t packet_bytes_out, packet_bytes_in; /* of a full one */
};

/* What a transport implements. All on the loop's thread, none blocks. */
struct lane_ops {
	const char *name; /* "tcp", "shm": for logs and statistics */
	/* TR_EUNAVAILABLE: not open, or closing; TR_ELIMIT: too many copied bytes are unsent; TR_ENOMEM. Nothing was taken then.
	 * Taken even where lane_room is 0: that bound is the caller's to keep, for bulk. */
	tr_status (*send)(struct lane *lane, const struct lane_send *frame);
	/* Bytes of bulk that it would take now; 0: none, `drained` follows. */
	size_t (*room)(struct lane *lane);
	/* Bytes taken and not yet handed to the kernel or the peer. */
	size_t (*unsent)(const struct lane *lane);
	/* Lets go of all borrowed bodies; they have been released on return. Frames that had begun are completed from a copy,
	 * the others are dropped. */
	void (*drop_borrowed)(struct lane *lane);
	/* The frame that was answered with TR_EAGAIN is offered again, in the loop's next turn. */
	void (*resume)(struct lane *lane);
	/* At once; `closed` follows with this reason. Unsent bodies are released. */
	void (*close)(struct lane *lane, const char *reason);
	/* Once all that was taken has reached the other end, or a while has passed. Input is thrown away from now on. */
	void (*finish)(struct lane *lane, const char *reason);
	/* How long what was sent may stay unanswered before the lane closes itself: "no answer for 1.2 s". */
	void (*set_patience)(struct lane *lane, uint32_t patience_ms);
	void (*counters)(const struct lane *lane, struct lane_counters *counters);
	void (*path)(struct lane *lane, struct lane_path *path);
	/* Without any change to the lane: to be asked every few milliseconds. */
	void (*glance)(const struct lane *lane, struct lane_glance *glance);
	/* It lets out no more than that, said again every second while it has something to send; 0: as much as the transport likes. NULL: it has no such bound. */
	void (*set_pace)(struct lane *lane, double bytes_per_s);
	const char *(*peer_name)(
	    const struct lane *lane); /* "127.0.0.1:40312"; lives as long as the lane */
};

/* First member of every transport's own struct. */
struct lane {
	const struct lane_ops *ops;
	struct lane_callbacks callbacks;
	void *arg;  /* for the callbacks; the owner may change it */
	bool known; /* the owner says: its peer has told who it is, so its frames may be unpacked */
};

static inline tr_status lane_send(struct lane *lane, const struct lane_send *frame)
{
	return lane->ops->send(lane, frame);
}

static inline size_t lane_room(struct lane *lane)
{
	return lane->ops->room(lane);
}

static inline size_t lane_unsent(const struct lane *lane)
{
	return lane->ops->unsent(lane);
}

static inline void lane_drop_borrowed(struct lane *lane)
{
	lane->ops->drop_borrowed(lane);
}

static inline void lane_resume(struct lane *lane)
{
	lane->ops->resume(lane);
}

static inline void lane_close(struct lane *lane, const char *reason)
{
	lane->ops->close(lane, reason);
}

static inline void lane_finish(struct lane *lane, const char *reason)
{
	lane->ops->finish(lane, reason);
}

static inline void lane_set_patience(struct lane *lane, uint32_t patience_ms)
{
	lane->ops->set_patience(lane, patience_ms);
}

static inline void lane_counters(const struct lane *lane, struct lane_counters *counters)
{
	lane->ops->counters(lane, counters);
}

static inline void lane_path(struct lane *lane, struct lane_path *path)
{
	lane->ops->path(lane, path);
}

static inline void lane_glance(const struct lane *lane, struct lane_glance *glance)
{
	lane->ops->glance(lane, glance);
}

static inline void lane_set_pace(struct lane *lane, double bytes_per_s)
{
	if (lane->ops->set_pace != NULL)
		lane->ops->set_pace(lane, bytes_per_s);
}

static inline const char *lane_peer_name(const struct lane *lane)
{
	return lane->ops->peer_name(lane);
}

#endif
