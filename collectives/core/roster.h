/* Who does what in one attempt of one round: participants (receive, vote, commit), contributors (whose data counts),
 * their order on the ring, the hub, the owners of segments, the hosts. A pure function of the view and, when a round is finished under an older attempt,
 * of that attempt's contributors; so every member computes the same.
 *
 * A scope (struct tr_scope) has a roster of its own: its contributors that live are its participants, and nobody else is there for its ops.
 */
#ifndef TR_COLLECTIVES_CORE_ROSTER_H
#define TR_COLLECTIVES_CORE_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/core/view.h"

#define ROSTER_NONE UINT32_MAX

struct roster {
	uint64_t round, attempt;
	unsigned n;      /* participants */
	uint64_t *peers; /* of the participants, ascending */
	bool *live;      /* by participant: its data counts in segments sealed from now on */
	uint32_t *bit;   /* by participant: its place among `contributors`; ROSTER_NONE */
	unsigned *order; /* by ring place: participant. Deterministic: ascending ids */
	unsigned *place; /* by participant: ring place */
	bool *live_at;   /* by ring place */
	bool deterministic;
	uint8_t owners[SHARES_OWNERS]; /* participants, by segment (route.c) */
	/* Figures of the links, for the cost model (select.h); 0: not measured. */
	double bandwidth_bytes_per_s, hub_bandwidth_bytes_per_s, direct_load, direct_given;
	unsigned host_count, host_peers; /* hosts, and participants on the fullest one */
	bool maps;      /* every participant shares memory with those of its host */
	unsigned *host; /* by participant: its host, 0 ... host_count - 1 in order of lowest ids */
	unsigned *by_host;    /* participants, host by host */
	unsigned *host_first; /* by host, and one more: where its members begin in by_host */
	unsigned live_count;
	unsigned
	    me; /* this peer's index among the participants; ROSTER_NONE: it does not participate */
	unsigned hub; /* participant */
	unsigned contributor_count;
	uint64_t *contributors; /* of the attempt, ascending, dead ones included */
	unsigned *
	    outer; /* of a scope, by participant: which one of the round it is; NULL: the round's */
	void *memory;
};

/* `contributors` (ascending): of an older attempt that goes on; NULL: those of the view. */
tr_status roster_init(struct roster *roster, const struct view *view, uint64_t round,
    uint64_t attempt, const uint64_t *contributors, size_t contributor_count, uint64_t me,
    struct tr_error *error);
/* Of a scope of `whole`, which is the round's: of `count` of its contributors, by their bits. Some of them may be dead: live_count is less than
 * contributor_count then. */
tr_status roster_scope(struct roster *roster, const struct roster *whole, const struct view *view,
    const uint8_t *bits, unsigned count, uint64_t me, struct tr_error *error);
void roster_finish(struct roster *roster);

unsigned roster_find(const struct roster *roster, uint64_t peer); /* participant; ROSTER_NONE */

#endif
