/* Whether all contributors of a round hold the same bits, part by part, and the right ones for who does not. A part is a tensor of the state: the
 * outer parameters of one, say.
 *
 * Each round all reduce 32 bytes, an op of which everybody sees whether all digests are the same: the largest of four numbers, the two words of
 * the digest of all parts and their complements, so the largest and the smallest. Only if they are not, each contributor says the 128-bit digests
 * of all parts (24 bytes each), all draw the same conclusion which is right, and one that has it broadcasts it. All of this is in one round, whose
 * commit the caller makes in between; what was lost on the way is done again with the round.
 *
 * Which is right, among contributors that differ: see parity_right. A contributor also says whether a part still is what it wrote itself, which
 * is enough where there is no majority: bits that flipped in memory are seen by whom they belong to.
 *
 *	parity_create(&p, group, tag, &error);
 *	p.parts = ...; p.count = ...;              // before each round; what, tensor, data, bytes, written
 *	parity_submit(&p, &round, &error);         // before the commit: late, since what happens later is seen by the salt alone (or parity_has_changed)
 *	parity_settle(&p, &error);                 // p.drifted: some differed; p.right, parity_is_wrong say who
 *	(tr_state_receive)                         // a joiner
 *	commit.salt = parity_salt(&p);
 *	tr_round_commit(...)
 *	parity_mend(&p);                           // TR_OK: what this peer had wrong is in place
 *
 * Threads: those of the group's caller.
 */
#ifndef TR_COLLECTIVES_SYNC_PARITY_H
#define TR_COLLECTIVES_SYNC_PARITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "common/digest.h"

struct parity_part {
	const char *what, *tensor; /* "outer momentum", its name; borrowed */
	void *data;                /* not written but by parity_mend */
	size_t bytes;
	struct tr_digest
	    written; /* what this peer left there when it wrote it last; zeros: not known */

	/* Since parity_submit and parity_settle. */
	struct tr_digest digest;
	bool differs;   /* among contributors */
	unsigned right; /* the first contributor that has it right */
	size_t at;      /* in the memory that is broadcast */
	bool changed;   /* the caller's: since it was compared (parity_has_changed) */
};

/* Ascending: who is to be believed more. Absent, all zeros: it died before it said anything (policy keep). Spoilt: it is not what it wrote. */
enum { PARITY_ABSENT = 0, PARITY_SPOILT = 1, PARITY_SOUND = 2 };

/* What a contributor says of a part. */
struct parity_record {
	struct tr_digest digest;
	uint64_t state;
};

/* Memory of the group that is kept for the next time. */
struct parity_room {
	void *data;
	size_t bytes;
};

struct parity {
	tr_group *group;
	uint32_t tag; /* of the ops: this one and the TR_GROUP_PEERS_MAX + 1 after it */
	struct parity_part *parts;
	size_t count;
	bool majority; /* without one nothing is put right, and the commit ends who differs: for state of which nobody knows what it wrote */
	bool drifted;
	bool undecided; /* drifted, and nobody knows what is right, or it did not come: each keeps its own, and the commit ends who differs */
	uint64_t round;
	unsigned index, contributors; /* of it */
	int64_t *extremes;            /* [4] */
	struct parity_room said, fresh;
};

/* That of the op for which all wait first. */
static inline uint32_t parity_first_tag(const struct parity *p)
{
	return p->tag;
}

tr_status parity_create(struct parity *p, tr_group *group, uint32_t tag, struct tr_error *error);

/* Digests the parts, unless this peer is a joiner, and submits the op. TR_ERESTART: as tr_submit. */
tr_status parity_submit(struct parity *p, const struct tr_round *round, struct tr_error *error);

/* Waits for the others. If parts differ, also for what is right. */
tr_status parity_settle(struct parity *p, struct tr_error *error);

/* Contributor `member` has part `part` wrong. */
bool parity_is_wrong(const struct parity *p, unsigned member, size_t part);

/* Id of a contributor, if the parts differ. */
uint64_t parity_peer(const struct parity *p, unsigned member);

/* Digests the parts again, as they will be once they are mended; a joiner has its state by then. Who holds by now what was not compared ends with the commit. */
uint64_t parity_salt(struct parity *p);
/* Of the parts as they were compared, and will be once they are mended: for who looks at them again when they are written (parity_has_changed), and works meanwhile. */
uint64_t parity_salt_compared(struct parity *p);
/* The same, as the others say it, for a joiner that has not all of its state yet. */
uint64_t parity_salt_agreed(const struct parity *p);
/* Since then; after parity_mend. */
bool parity_has_changed(const struct parity *p, size_t part);

/* Adds to the text what contributor `member` had wrong, and from whom it has it: "; round 3: peer 2 held other ...". False: nothing. */
bool parity_tell(const struct parity *p, unsigned member, char *text, size_t text_bytes);

/* Puts what is right in place of what this peer had wrong, or has got from who had it wrong. */
void parity_mend(struct parity *p);

/* Memory of at least so many bytes; NULL: no memory. */
void *parity_room(tr_group *group, struct parity_room *room, size_t bytes);

/* The first contributor that is right about a part: records[i * stride] is contributor i's. Those that hold what they wrote come before those
 * that do not; among these the digest that most hold; else the one of the lowest index, who has been there longest. Pure. */
unsigned parity_right(const struct parity_record *records, size_t stride, unsigned contributors);

/* The outer parameters of tensor `tensor`, for a parity of the caller's own when all is merged. */
struct tr_sync;
float *tr_sync_outer_memory(struct tr_sync *sync, size_t tensor);

#endif
