/* Shares of a batch that follow the speeds of replicas: whether those that are found while a job runs are worth other shares, and which. Pure, in whole numbers: all contributors of a round
 * know the same, and so decide the same on any machine.
 *
 *	struct balance_rules rules = { .replicas = 2, .batch = 32, .least = 1, .steps_left = 400 };
 *	if (balance_note(&balance, &rules, nanoseconds, sequences, next, each))   // each step that is committed
 *		...                                                          // from the next one on replica i computes next[i] sequences
 *	balance_restart(&balance);                                           // whoever came or went: what was measured says little
 *
 * Other shares move no state: they cost nothing but that microbatches are counted anew. So there is no price to outweigh, but noise: a look is at a window of steps, and only two looks in a row that
 * find the same make a change.
 */
#ifndef TR_DAEMON_PLAN_BALANCE_H
#define TR_DAEMON_PLAN_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

#define BALANCE_STEPS   10 /* of a look */
#define BALANCE_LOOKS   2
#define BALANCE_PERCENT 10 /* of a step: less is not worth it */

/* Common state of a group. */
struct balance {
	uint64_t steps;   /* of this look, so far */
	uint64_t settled; /* looks since the restart; what the first one found is left out */
	uint64_t looks;   /* in a row that found better shares */
	uint64_t nanoseconds[TR_GROUP_PEERS_MAX]; /* of these steps together, by replica */
};

struct balance_rules {
	uint32_t replicas;
	uint64_t batch, least; /* sequences: of all, and of one replica at least */
	uint64_t steps_left;
};

void balance_restart(struct balance *balance);
/* nanoseconds[replicas] that each computed in this step, sequences[replicas] that it had. True: next[replicas] are better, their sum is the batch, and each[replicas] is what one sequence takes, which is why; it begins anew. */
bool balance_note(struct balance *balance, const struct balance_rules *rules,
    const uint64_t *nanoseconds, const uint64_t *sequences, uint32_t *next, uint64_t *each);
/* What a step then takes, of what is computed in it: the longest of sequences x nanoseconds each. */
uint64_t balance_longest(const uint64_t *each, const uint32_t *sequences, uint32_t replicas);

#endif
