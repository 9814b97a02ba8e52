/* How long steps and changes of mesh take: each worker says in every round how long the one before took it, the longest counts, so that with the commit all know the same (daemon/plan/pace.h). */
#include "daemon/worker/trainer_inside.h"

static uint64_t since_ns(double then_s)
{
	double now_s = trainer_monotonic_s();
	return now_s > then_s ? (uint64_t)(1e9 * (now_s - then_s)) : 1;
}

void sharded_end_change(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s->moving_since_s > 0)
		s->change_ns = since_ns(s->moving_since_s);
	s->moving_since_s = 0;
}

void sharded_say_pace(struct trainer *t)
{
	struct sharded *s = t->sharded;
	s->told->round_ns = (int64_t)s->round_ns;
	s->told->change_ns = (int64_t)s->change_ns;
	s->told->unit_ns = (int64_t)s->unit_ns;
}

bool sharded_goes_on(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->kind == SHARDED_STEP && dealing_equal(&s->dealing, &s->state->dealing) &&
	    ranks_same(&s->state->ranks, &s->next);
}

/* Steps that also validate, gather a checkpoint or send shards to newcomers are other ones; rounds of replicas that train apart are merges, so of theirs no price is known, and who comes is welcome. */
static bool is_plain(const struct trainer *t)
{
	return t->sharded->apart == NULL && !t->sharded->gathers &&
	    t->sharded->newcomers.count == 0 && !trainer_validates(t, t->counters->step);
}

void sharded_learn_pace(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_state *state = s->state;
	if (state->plain > 0)
		pace_step(&state->pace, (uint64_t)s->told->round_ns);
	if (state->fills > 0)
		pace_fill(&state->pace, (uint64_t)s->told->round_ns);
	pace_change(&state->pace, (uint64_t)s->told->change_ns);
	if (!sharded_goes_on(t))
		pace_restart(&state->pace, ranks_replicas(&state->ranks));
	state->fills = s->kind == SHARDED_STEP && s->transfer_count > 0;
	state->plain = sharded_goes_on(t) && is_plain(t);
	s->change_ns = 0;
	s->round_ns = s->committed_s > 0 ? since_ns(s->committed_s) : 0;
	s->committed_s = trainer_monotonic_s();
}

/* Replicas that train apart do not wait for each other's steps. */
void sharded_try_replicas(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_state *state = s->state;
	const struct ranks *before = &state->ranks;
	if (!ranks_same_peers(before, &s->next) || !mesh_equal(&before->mesh, &s->next.mesh) ||
	    s->replans)
		trial_end(&state->trial);
	else if (s->kind == SHARDED_STEP && s->apart == NULL && ranks_replicas(before) > 0 &&
	    ranks_replicas(&s->next) > ranks_replicas(before))
		trial_begin(&state->trial, &state->pace, before);
	else
		trial_note(&state->trial, &state->pace, s->trial_steps);
}

/* Workers that compute with such a table. */
static uint32_t working(const struct ranks *ranks)
{
	return ranks_replicas(ranks) * ranks_members(ranks);
}

bool sharded_pays(struct trainer *t, uint64_t next_ns, uint64_t ns_a_byte)
{
	struct sharded *s = t->sharded;
	const struct pace *pace = &s->state->pace;
	uint64_t each = SHARDED_ARRAYS * sizeof(float);
	s->worth = (struct worth){ .step_ns = pace_step_ns(pace),
		.next_ns = next_ns,
		.steps_left = t->steps - t->counters->step,
		.cost_ns = pace_link_cost_ns(pace, each * reshard_moved(&s->moves),
		    each * reshard_busiest(&s->moves), ns_a_byte) };
	return worthwhile(&s->worth);
}

bool sharded_mesh_pays(struct trainer *t, const struct ranks *next)
{
	const struct sharded *s = t->sharded;
	return sharded_pays(t,
	    worth_at_best_ns(pace_step_ns(&s->state->pace), working(&s->next), working(next)), 0);
}
