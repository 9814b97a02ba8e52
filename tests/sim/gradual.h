/* A joiner's state that comes over several rounds, in the simulator (gradual.c). */
#ifndef TR_TESTS_SIM_GRADUAL_H
#define TR_TESTS_SIM_GRADUAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"

struct sim;

/* Parts of a joiner's state that have come: after which round, and their history. */
enum { SIM_GRADUAL_PARTS = 4 };
struct sim_gradual {
	uint64_t round, chain[SIM_GRADUAL_PARTS];
	bool here[SIM_GRADUAL_PARTS];
	unsigned deferred;
};

void gradual_asked(struct sim *sim, unsigned node, uint64_t round);
bool gradual_defers(struct sim *sim,
    unsigned node); /* it commits without its state; false: it looks again, or waits for it */
void gradual_committed(struct sim *sim, unsigned node, uint64_t round, struct tr_digest digest);
void gradual_whole(struct sim *sim, unsigned node, uint64_t round,
    uint64_t chain); /* it has all of it */

#endif
