/* Shares that follow the speeds of replicas (daemon/plan/balance.h): in each step each worker says how long its replica took to compute, their waiting for each other included, and all decide
 * alike with the step's commit. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

void sharded_begin_work(struct trainer *t)
{
	t->sharded->work_s = trainer_monotonic_s();
	t->sharded->exchange.waited_s = 0;
}

void sharded_end_work(struct trainer *t)
{
	t->sharded->work_s = trainer_monotonic_s() - t->sharded->work_s;
}

static bool balances(const struct trainer *t)
{
	return t->balances && t->sharded->shards.mesh.size[MESH_DP] > 1;
}

tr_status sharded_submit_work(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	if (!balances(t))
		return TR_OK;
	memset(s->sums->work, 0, sizeof(s->sums->work));
	if (s->rank != RANKS_NONE)
		s->sums->work[ranks_replica(&s->next, s->self)] = (int64_t)(1e9 * s->work_s);
	return tr_allreduce(t->group, TAG_WORK, s->sums->work, ranks_replicas(&s->next), TR_I64,
	    TR_MAX, trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}

void sharded_share(const struct trainer *t, uint32_t replica, uint64_t *first, uint64_t *last)
{
	const struct sharded *s = t->sharded;
	uint32_t replicas[TR_GROUP_PEERS_MAX];
	uint32_t count = ranks_there(&s->next, replicas);
	dealing_share(&s->dealing, replicas, count, replica, t->batch, first, last);
}

/* Interleaved stages need as many microbatches as there are stages. */
static uint64_t least_of(const struct trainer *t)
{
	const struct mesh_shards *shards = &t->sharded->shards;
	return shards->chunks > 1 ? (shards->mesh.size[MESH_PP] - 1) * t->micro + 1 : 1;
}

static void note_step(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct balance_rules rules = { .replicas = s->shards.mesh.size[MESH_DP],
		.batch = t->batch,
		.least = least_of(t),
		.steps_left = t->steps - t->counters->step };
	uint64_t takes[TR_GROUP_PEERS_MAX], each[TR_GROUP_PEERS_MAX], sequences[TR_GROUP_PEERS_MAX];
	uint32_t next[TR_GROUP_PEERS_MAX];
	for (uint32_t i = 0; i < rules.replicas; i++) {
		uint64_t first, last;
		sharded_share(t, i, &first, &last);
		sequences[i] = last - first;
		takes[i] = (uint64_t)s->sums->work[i];
	}
	if (!balance_note(&s->state->balance, &rules, takes, sequences, next, each))
		return;
	struct dealing before = s->state->dealing;
	memcpy(s->state->dealing.shares, next, rules.replicas * sizeof(*next));
	if (round->index == 0)
		sharded_tell_shares(t, &before, each);
}

void sharded_balance(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	if (!balances(t))
		return;
	if (s->kind != SHARDED_STEP || !ranks_same(&s->state->ranks, &s->next) ||
	    ranks_replicas(&s->next) < s->shards.mesh.size[MESH_DP])
		balance_restart(&s->state->balance);
	else
		note_step(t, round);
}
