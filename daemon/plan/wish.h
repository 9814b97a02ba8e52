/* What came of a search for another plan (replan.h), in words that one contributor says and all get as a sum of which the others' are 0. Pure.
 *
 *	int64_t words[WISH_WORDS(count)] = { 0 };
 *	wish_write(&wish, count, words);              // who searched; the others leave zeros
 *	...                                           // summed up, committed
 *	wish_read(words, &config, count, &wish);      // kind: WISH_NONE, nobody has said anything
 */
#ifndef TR_DAEMON_PLAN_WISH_H
#define TR_DAEMON_PLAN_WISH_H

#include "daemon/plan/dealing.h"
#include "daemon/plan/model_config.h"

enum wish_kind {
	WISH_NONE,
	WISH_CHANGE, /* the dealing and the ranks are better */
	WISH_STAY,   /* there is none that is */
	WISH_FAILED  /* nothing was found out */
};

/* What is other than planned, for people. */
enum wish_why {
	WISH_WHY_UNKNOWN,
	WISH_WHY_WORKER, /* `who` computes at `percent` of the speed that was planned with */
	WISH_WHY_LINK    /* from `who` to `to` there goes `percent` of what was planned with */
};

/* Without padding: equal wishes are equal bytes. By index of the contributors that it is for. */
struct wish {
	uint32_t kind, why;
	uint32_t who, to, percent;
	struct dealing dealing;
	uint32_t ranks[TR_GROUP_PEERS_MAX]; /* RANKS_NONE: a spare */
	uint64_t now_ns,
	    next_ns; /* a step as things are dealt, and so: both predicted by the same figures */
	uint64_t ns_a_byte; /* over the slowest link between their nodes; 0: there is none */
};

#define WISH_HEAD         (8u + MESH_AXES)
#define WISH_WORDS(count) (WISH_HEAD + 3u * (count))

void wish_write(const struct wish *wish, uint32_t count, int64_t *words);
/* What cannot be, for a model of `config` and so many contributors, is WISH_FAILED. */
void wish_read(const int64_t *words, const struct model_config *config, uint32_t count,
    struct wish *wish);

#endif
