/* The table of ranks of the round that begins (daemon/plan/ranks.h), and whether who has come is to work: a replica more gets its shards from those that others wait for, or train longer with, which may
 * take longer than it saves. If it is to work it does so when it has its shards (daemon/plan/newcomers.h); where nobody else can train meanwhile, or a job knows no newcomers, they come in the round
 * in which it begins. A replica that made steps longer is taken back (daemon/plan/trial.h). */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

static void make_table(struct trainer *t, const uint64_t *peers, size_t count, uint32_t most)
{
	struct sharded *s = t->sharded;
	ranks_next_most(&s->state->ranks, peers, count, t->strict, most, &s->next);
	s->transfer_count = ranks_transfers(&s->next, s->transfers, &s->lost);
}

/* More replicas than there were, some of whose workers have to get their shards first. */
static bool grows(const struct sharded *s, uint32_t replicas)
{
	return s->state->born != 0 && replicas > 0 && s->transfer_count > 0 &&
	    s->lost == RANKS_NONE && ranks_replicas(&s->next) > replicas;
}

static uint64_t bytes_that_move(const struct sharded *s)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < s->transfer_count; i++)
		bytes += SHARDED_ARRAYS * sizeof(float) * sharded_numbers(s, s->transfers[i].shard);
	return bytes;
}

static bool pays(struct trainer *t, uint32_t replicas)
{
	struct sharded *s = t->sharded;
	const struct pace *pace = &s->state->pace;
	uint64_t step_ns = pace_step_ns(pace), bytes = bytes_that_move(s);
	uint64_t left = t->steps - t->counters->step;
	uint64_t until = sharded_knows_newcomers(t) ? sharded_newcomer_steps(t, bytes) : 0;
	s->worth = (struct worth){ .step_ns = step_ns,
		.next_ns = worth_at_best_ns(step_ns, replicas, ranks_replicas(&s->next)),
		.steps_left = left > until ? left - until : 0,
		.cost_ns = pace_fill_cost_ns(pace, bytes) };
	return worthwhile(&s->worth);
}

/* The table is that of before, as long as the peers are the same. */
static bool takes_back(struct trainer *t, const uint64_t *peers, size_t count)
{
	struct sharded *s = t->sharded;
	const struct trial *trial = &s->state->trial;
	if (!trial_failed(trial) || !ranks_same_peers(&s->state->ranks, &s->next))
		return false;
	ranks_next_at(&s->state->ranks, peers, count, trial->places, &s->next);
	s->transfer_count = ranks_transfers(&s->next, s->transfers, &s->lost);
	return true;
}

void sharded_next_ranks(struct trainer *t, const uint64_t *peers, size_t count)
{
	struct sharded *s = t->sharded;
	uint32_t replicas = ranks_replicas(&s->state->ranks);
	make_table(t, peers, count, UINT32_MAX);
	memset(&s->newcomers, 0, sizeof(s->newcomers));
	s->kept_out = takes_back(t, peers, count);
	s->tells_kept_out = false;
	s->takes_back = s->kept_out && s->state->kept_out == 0;
	if (s->kept_out)
		return;
	bool was_kept_out = s->state->kept_out > 0 && ranks_same_peers(&s->state->ranks, &s->next);
	bool more = grows(s, replicas), begun = s->state->newcomers.count > 0;
	s->kept_out = more && !begun && (was_kept_out || !pays(t, replicas));
	s->tells_kept_out = s->kept_out && !was_kept_out;
	s->declined = s->next.mesh;
	s->declined.size[MESH_DP] = ranks_replicas(&s->next) * (uint32_t)s->next.copies;
	if (!s->kept_out && (!more || !sharded_knows_newcomers(t)))
		return;
	struct ranks wanted = s->next;
	make_table(t, peers, count, replicas);
	if (!s->kept_out)
		sharded_plan_newcomers(t, &wanted);
}
