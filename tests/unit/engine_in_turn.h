/* For tests of ops in turn: workers that share an engine, in their first round. */
#ifndef TR_TESTS_ENGINE_IN_TURN_H
#define TR_TESTS_ENGINE_IN_TURN_H

#include "tests/unit/engine_fixture.h"

/* So many workers of one engine, in the first round, with so much memory each; the last `apart` have an engine of their own. */
static inline struct fx *fx_common(unsigned workers, unsigned apart, Traind__Peer__Policy policy,
    size_t bytes, void **memory)
{
	struct fx *fx = fx_start(1, policy, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_round round;
	for (unsigned i = 1; i < workers - apart; i++)
		fx_share(fx, i, &fx->hosts[0]);
	for (unsigned i = workers - apart; i < workers; i++) {
		fx_host_start(fx, i);
		fx->count++;
	}
	for (unsigned i = 0; i < workers; i++) {
		fx_ready(&fx->hosts[i]);
		memory[i] = tr_alloc(fx->hosts[i].group, bytes);
		assert_non_null(memory[i]);
	}
	fx_found(fx, workers);
	for (unsigned i = 0; i < workers; i++)
		assert_int_equal(tr_round_begin(fx->hosts[i].group, &round, NULL), TR_OK);
	return fx;
}

static const uint32_t all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

static inline struct tr_op op_in_turn(uint32_t tag, void *data, size_t count, unsigned members)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.output = data;
	op.count = count;
	op.flags |= TR_IN_TURN;
	op.scope = (struct tr_scope){ all, members };
	return op;
}

#endif
