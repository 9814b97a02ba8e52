/* Workers whose shards come while the others train on: spares that are to work in replicas more (ranks.h), each with a shard that others hold. In every step each gets a piece more of its shard's
 * arrays, as they are after the step before, and takes part in the sums of its shard's gradient, with nothing of its own: so it takes the step itself with what has come, and holds the
 * same numbers there as all others. When all of it is there the worker holds the shard, and works in the next round without a transfer. Pure: all contributors of a round know the same, and so
 * plan the same.
 *
 *	newcomers_next(&now, &rules, &wanted, &next, &plan);   // a step begins with the table `next`; it would be `wanted`, if all held their shards
 *	... plan.of[i].got to got + piece comes, from newcomers_donors ...
 *	newcomers_settle(&plan, &next);                        // committed: plan is what all know now
 */
#ifndef TR_DAEMON_PLAN_NEWCOMERS_H
#define TR_DAEMON_PLAN_NEWCOMERS_H

#include <stddef.h>

#include "daemon/plan/ranks.h"

/* A piece is the largest of: this part of a shard, and so many numbers; */
#define NEWCOMERS_PARTS 32u
#define NEWCOMERS_LEAST (1u << 14)
/* what takes so much of a step, by what the piece before took; */
#define NEWCOMERS_PERCENT 5u
/* and as many bytes as are summed because of what is there already, three arrays beside one of gradients: the sums are the dearer part of a long way, so that what little more slows a step down makes it
 * a shorter one. So a shard comes in so many steps at most: */
#define NEWCOMERS_STEPS  12u
#define NEWCOMERS_ARRAYS 3u
#define NEWCOMERS_DONORS 4u         /* at most, that share a piece */
#define NEWCOMERS_UNIT   (1u << 20) /* numbers */

struct newcomer {
	uint64_t peer, shard;
	uint64_t numbers;   /* of each of the shard's arrays */
	uint64_t got;       /* of these, the first so many are as they are at others */
	uint64_t piece;     /* that come in this step */
	uint64_t steps, ns; /* since it began */
};

/* Common state of a group. Ascending by peer; behind them zeros. */
struct newcomers {
	uint64_t count;
	uint64_t
	    unit_ns; /* that NEWCOMERS_UNIT of each array took last, at the slowest; 0: not known */
	uint64_t lost_ns; /* that these steps took longer than others */
	struct newcomer of[TR_GROUP_PEERS_MAX];
};

struct newcomers_rules {
	const size_t *numbers; /* by shard */
	uint64_t step_ns;      /* of a step without them; 0: not known */
	uint64_t parts, least; /* NEWCOMERS_PARTS, NEWCOMERS_LEAST but in tests */
};

/* Who has a rank in `wanted` and none in `next`, which is of the same peers. Who holds another shard, which the round may need if it begins again, waits for the next one. */
void newcomers_next(const struct newcomers *now, const struct newcomers_rules *rules,
    const struct ranks *wanted, const struct ranks *next, struct newcomers *plan);

/* The step is committed: pieces are there, and who has all of its shard holds it, with ZeRO-1 all of the moments too. */
void newcomers_settle(struct newcomers *plan, struct ranks *next);

/* What the round of a plan took, beside a step without one; unit_ns: what was measured in it, 0: nothing. For the plan after it. */
void newcomers_took(struct newcomers *plan, uint64_t round_ns, uint64_t step_ns, uint64_t unit_ns);

/* Steps that shards of so many bytes in all are taken to need, if a byte takes so long. */
uint64_t newcomers_steps(const struct newcomers_rules *rules, uint64_t bytes, uint64_t byte_ns);

/* NULL: it is none. */
const struct newcomer *newcomers_find(const struct newcomers *newcomers, uint64_t peer);
/* Does peer `index` work from this round on, as the newcomer that it was? */
bool newcomers_works(const struct newcomers *now, const struct ranks *next, uint32_t index);

/* Who sends the `number`-th newcomer its piece: indexes of workers with its shard, of whom the k-th sends the k-th part (newcomers_part). Returns how many. */
uint32_t newcomers_donors(const struct newcomers *plan, size_t number, const struct ranks *next,
    uint32_t donors[NEWCOMERS_DONORS]);
/* Numbers [*first, *end) of the shard's arrays. */
void newcomers_part(const struct newcomer *newcomer, uint32_t donors, uint32_t k, size_t *first,
    size_t *end);

/* Whether it takes part in the sums of gradients [first, ...) of this shard in this step. */
static inline bool newcomer_sums(const struct newcomer *newcomer, uint32_t shard, size_t first)
{
	return newcomer->shard == shard && first < newcomer->got + newcomer->piece;
}

#endif
