/* What a joiner knows of the state that is on its way. Shared by state_receive.c (what comes, and whether it is right), state_ask.c (who is
 * asked for what) and state_gradual.c (what stays when a round is decided without the rest); for nobody else. Engine thread.
 */
#ifndef TR_COLLECTIVES_ENGINE_STATE_RECEIVE_H
#define TR_COLLECTIVES_ENGINE_STATE_RECEIVE_H

#include <uv.h>
#include <xxhash.h>

#include "collectives/engine/engine_internal.h"
#include "collectives/engine/state_plan.h"

/* What we know of plan.sources[i]. */
struct carrier {
	const struct inbound *in; /* NULL: not begun, or ended */
	uint64_t asked_first;     /* of the range */
	uint64_t heard_ms;        /* it was asked, or the newest frame of it came */
	bool waits;               /* it was asked, and nothing came since */
	bool silent;              /* nothing came for long: others are asked for its rest */
	bool digests;             /* it was asked for them */
};

struct state_receive {
	uint64_t from, round; /* `from`: the donor */
	uint64_t view;        /* in which pieces were asked for */
	struct state_map map;
	struct state_plan plan;
	struct carrier carriers[TR_STATE_DONORS_MAX];
	bool alone;           /* something was spoilt: by the donor only */
	bool local;           /* from what a worker before left */
	bool copied;          /* local: all of that is here */
	bool told;            /* `theirs`: the digests that it has to have are */
	bool deferred;        /* the round may be decided before it is whole, so it is not before */
	bool paused;          /* the caller may change what is here: nobody sends */
	uint64_t here_before; /* bytes that were here when it was asked for in this round */
	uint8_t layout[STATE_LAYOUT_BYTES]; /* of our tensors (state_send.c) */
	XXH128_hash_t *ours, *theirs;
	unsigned hashed; /* tensors; of the next one `hashed_bytes` */
	uint64_t hashed_bytes;
	XXH3_state_t *hash;
};

static inline uint64_t now_ms(const struct member *member)
{
	return uv_now(&member->engine->loop);
}

static inline struct carrier *carrier_of(struct state_receive *receive,
    const struct state_source *source)
{
	return &receive->carriers[source - receive->plan.sources];
}

/* ---- state_receive.c ---- */
/* Who still sends may stop. */
void state_receive_close(struct member *member, const char *reason);
/* All that was digested may be other bytes now. */
void state_receive_hash_again(struct state_receive *receive);

/* ---- state_gradual.c ---- */
/* It is asked for (again): the caller has begun a round. */
void state_gradual_resume(struct member *member);

/* ---- state_ask.c ---- */
/* What such a request asks for. */
struct group_wish state_ask_wish(const Traind__Peer__StateRequest *request);
/* A range that nobody sends, or the half of somebody's; and the digests. Those are the donor's to say, unless it is silent. If saying it fails
 * the core may have begun another receive, or ended the member, when this or the next one returns. */
void state_ask(struct member *member, struct state_source *source);
/* Who does not send is given something to send; more are asked if they may help. Nothing, if nothing is awaited. */
void state_ask_others(struct member *member);
/* The view names another donor: whoever was asked for digests, or is the only one that may send, may be gone. */
void state_ask_forget(struct state_receive *receive);
/* All who were asked are forgotten: what still comes of them is refused. */
void state_ask_nobody(struct state_receive *receive);
/* Of that peer, new or not. NULL: all are sending. */
struct state_source *state_ask_source(struct state_receive *receive, uint64_t peer);

#endif
