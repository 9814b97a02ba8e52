/* The way of one segment: who adds whose sums, who seals, who passes the result to whom. Pure arithmetic over a roster: every
 * algorithm is a tree whose root seals, so that the code that sends and adds (path.c, fold.c) is the same for all.
 *
 *	ring          a chain: it starts at a contributor, visits all ring places, the last one seals; the result goes
 *	              around once more. Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
 *	star          all inputs go to the hub, which seals
 *	direct        all inputs go to the segment's owner, which seals (reduce-scatter and all-gather over a full mesh)
 *	hierarchical  members of a host -> one of them, another for each segment -> the owner among those; back the same way
 *	one-shot      everybody sends its input to everybody, and everybody seals by itself; no results are sent
 *
 * Where the root is given (OP_SCATTERED, OP_SOURCED) the same trees lead to it, or from it: the half that carries sums up, or the half that
 * carries the result down. A chain or a one-shot up is nothing but hops more, so those go straight to the root.
 *
 * A part of the tree without a contributor sends nothing and is not waited for. All of it needs roster->live_count > 0.
 */
#ifndef TR_COLLECTIVES_CORE_ROUTE_H
#define TR_COLLECTIVES_CORE_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/core/roster.h"
#include "common/limits.h"

/* What becomes of a segment. An op without elements is OP_REDUCED, whatever the collective. */
enum op_kind {
	OP_REDUCED,   /* all-reduce, barrier: the sum of all contributors, for everybody */
	OP_SCATTERED, /* reduce-scatter: that sum, for the contributor whose block it is */
	OP_SOURCED,   /* all-gather, broadcast: one contributor's, for everybody */
	OP_PAIR,      /* send, receive: one contributor's, for one other; nobody else has the op */
};

#define ROUTE_SET_BYTES (TR_GROUP_PEERS_MAX / 8)

/* Which segment's way. */
struct route_of {
	const struct roster *roster;
	enum tr_algorithm algorithm; /* not TR_AUTO */
	uint32_t tag, segment;
	enum op_kind kind;
	unsigned
	    root; /* participant: OP_SCATTERED: who gets it, else whose it is. OP_REDUCED: not read */
	unsigned to; /* OP_PAIR: participant that gets it; ROSTER_NONE: it is gone */
	bool relayed; /* OP_SOURCED, direct: over the segment's owner; else the source sends to each */
};

struct route {
	bool seals;   /* the sum of our children's sums and our input is the result */
	bool spreads; /* one-shot: our input goes to everybody else */
	unsigned up;  /* to whom our sum goes; ROSTER_NONE: we seal, or there is nothing to send */
	unsigned down_from; /* who sends us the result; ROSTER_NONE: nobody, we seal */
	unsigned child_count, down_count;
	uint8_t children[ROUTE_SET_BYTES]; /* bitmap of participants whose sums we wait for */
	uint8_t down_to
	    [TR_GROUP_PEERS_MAX]; /* participants that get the result from us, in order of sending */
};

void route_none(struct route *route); /* no part in it; `down_to` is not touched */
/* The part of participant `who`. */
void route_find(const struct route_of *of, unsigned who, struct route *route);
/* Whose data is in the sum that `who` sends: bits of contributors. */
void route_set(const struct route_of *of, unsigned who, uint8_t set[ROUTE_SET_BYTES]);

#endif
