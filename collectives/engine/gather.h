/* Small ops over boards (collectives/transport/board.h): what a member shows to all peers of its host, and when what they show goes into its core.
 *
 * Usually all do the same ops in the same order. Then our oldest entry, and the next unread entry of each peer, are frames of one op; when the
 * last of them is there, all inputs go into the core in one event (GROUP_GATHERED), and nothing of it is looked at but whether the headers
 * are the same.
 *
 * Otherwise, entries go into the core one by one, as frames of a link would (GROUP_SEGMENT): when a peer has not shown its frame but sent it
 * (its board was full, or somebody does not read it), or peers have other orders. Then we are `mixed`: some inputs of an op may be in the
 * core already, so no op is gathered until nothing is under way. An entry whose op we have not submitted stays where it is as long as nothing stands
 * behind it; it would only be kept aside.
 *
 * Nobody waits for ever. While our caller waits for an op that we have shown, all others of it come in their turn, or over a link, or behind an entry of another op: then we are
 * mixed. If it waits for another one, each entry goes into the core, but for the newest of each board if it is of an op that we have not submitted. Where it waits for all ops, to
 * commit, all that others may wait for has left us. A board that is full holds up nobody: frames are sent then. What is not read is not counted as come (core/ahead.c), but it is
 * less than half of what makes us say our word.
 *
 * No clock, no I/O: the simulator runs it too. One thread.
 */
#ifndef TR_COLLECTIVES_ENGINE_GATHER_H
#define TR_COLLECTIVES_ENGINE_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/core/group.h"
#include "collectives/transport/board.h"

struct gather {
	struct board *mine; /* NULL: we have none, and read none */
	uint64_t view;
	unsigned entries;
	unsigned count, me; /* members of the view, our place; count 0: boards are not used in it */
	unsigned unread;    /* peers whose boards we do not read */
	bool mixed;
	uint64_t shown; /* our entries */
	uint64_t done;  /* so many of them were gathered, or will not be */
	/* By place: whose next entry is of the same op as our oldest that is not done. */
	uint32_t matched;
	uint64_t room; /* entries may be shown up to this one */
	/* Mixed: when that many are shown it is looked whether something is under way. */
	uint64_t look_at;
	struct gather_peer {
		uint64_t peer;
		const struct board *board; /* NULL: not yet */
		uint64_t read;
	} peers[BOARD_PEERS_MAX];                   /* by place: ascending ids */
	struct segment_header heads[BOARD_ENTRIES]; /* of our own */
};

/* A step of this member's core, with all that follows. */
struct gather_calls {
	tr_status (*gathered)(void *arg, struct group_event *event);
	/* A frame of `from`, as from a link: a header and `bytes` of body, borrowed. TR_EAGAIN: not now, it stays. */
	tr_status (*single)(void *arg, uint64_t from, const uint8_t *frame, size_t bytes);
	void *arg;
};

/* So many `entries` may be shown and not read: BOARD_ENTRIES; fewer are for tests. */
void gather_init(struct gather *gather, struct board *mine, unsigned entries);
/* A view is installed, or is about to be: `peers` are its members, ourselves among them; none if they are not all on our host. Before the core's step. */
void gather_enter(struct gather *gather, uint64_t view, const uint64_t *peers, size_t count,
    uint64_t me);
/* That peer's board can be read from now on, until the next view. */
void gather_attach(struct gather *gather, uint64_t peer, const struct board *board);
/* Is its board wanted, and not read yet? */
bool gather_lacks(const struct gather *gather, uint64_t peer);

/* GROUP_DO_SPREAD: shown to all; false: it has to be sent to each. `held`: frames are kept aside for ops to come. */
bool gather_show(struct gather *gather, const struct group_core *core,
    const struct group_action *spread, bool held);
/* A segment came over a link. */
void gather_came(struct gather *gather, const struct segment_header *header);

/* What peers have shown goes into the core. true: something did. */
bool gather_look(struct gather *gather, const struct group_core *core,
    const struct gather_calls *calls);
/* Would it? */
bool gather_pending(struct gather *gather, const struct group_core *core);
/* The caller has waited for long: the next look gives what is there to the core, which can say then who is waited for. */
void gather_split(struct gather *gather, const struct group_core *core);

#endif
