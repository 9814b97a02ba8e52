/* Another dp, pp or tp in mid-job, where steps drift from their plan or somebody came or went (daemon/plan/drift.h): all see so alike; in the step after it all say what they measure; contributor 0 searches in a thread, beside its
 * work; what it found is told in a sum of words, and so is in the common state with that step's commit. The round after it makes shards of the other mesh out of those that workers hold, as any change of mesh
 * does (sharded_remesh.c), if that pays. Whatever else happens meanwhile ends it: steps are watched anew (a few only, where somebody came or went), and who is contributor 0 then searches. */
#include <stddef.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* Part of the common state: where it stands. */
enum {
	WATCHES,
	ASKS,     /* in this step all say what they measure */
	SEARCHES, /* in each step contributor 0 says what it found, or nothing yet */
	WISHES    /* the next round is the wish's, if it pays */
};

static bool watches(const struct trainer *t)
{
	return t->sharded->replanner != NULL && t->sharded->state->drift.planned_ns > 0;
}

void trainer_is_on(struct trainer *t, uint64_t node)
{
	t->node = node;
}

void trainer_look_often(struct trainer *t, unsigned steps)
{
	t->drift_steps = steps > 0 ? steps : DRIFT_STEPS;
}

void sharded_begin_replan(struct trainer *t)
{
	drift_begin(&t->sharded->state->drift,
	    t->planned_step_s > 0 ? (uint64_t)(1e9 * t->planned_step_s) : 0);
}

double sharded_planned_step_s(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return watches(t) ? 1e-9 * (double)s->state->drift.planned_ns : t->planned_step_s;
}

bool sharded_plan_now(const struct trainer *t, struct tr_plan_now *plan)
{
	const struct sharded_state *state = t->sharded->state;
	const uint32_t *size = state->asked.mesh.size;
	*plan = (struct tr_plan_now){ sharded_planned_step_s(t), size[MESH_DP], size[MESH_PP],
		size[MESH_TP] };
	return watches(t) && state->drift.changes > 0;
}

/* ---- what is told ---- */

static uint32_t words_of(uint32_t count)
{
	return (uint32_t)(offsetof(struct replan_figures, bandwidth) / sizeof(int64_t)) + count;
}

static double computed_s(const struct sharded *s)
{
	return s->computed_steps > 0 ? s->computed_s / (double)s->computed_steps : 0;
}

/* One after another, of each as many words as there are contributors to have a way to. */
static void say_figures(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct replan_figures own = { .node = (int64_t)t->node };
	if (s->self == RANKS_NONE)
		return;
	replanner_say(s->replanner, t->group, &s->dealing, &s->next, s->self, computed_s(s), &own);
	memcpy(s->replan_words + (size_t)s->self * words_of(s->next.count), &own,
	    words_of(s->next.count) * sizeof(int64_t));
}

static void say_wish(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct wish wish;
	if (s->self == 0 && replanner_poll(s->replanner, &wish)) {
		s->found = wish;
		s->has_found = true;
	}
	if (s->self == 0 && s->has_found) /* until it is committed */
		wish_write(&s->found, s->next.count, s->replan_words);
}

tr_status sharded_submit_replan(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint64_t stands = s->state->replanning;
	uint32_t count = s->next.count;
	s->computing_s = s->rank != RANKS_NONE ? s->work_s - s->exchange.waited_s : 0;
	if (!watches(t) || count > REPLAN_PEERS_MAX || (stands != ASKS && stands != SEARCHES))
		return TR_OK;
	memset(s->replan_words, 0, SHARDED_REPLAN_WORDS * sizeof(int64_t));
	if (stands == ASKS)
		say_figures(t);
	else
		say_wish(t);
	return tr_allreduce(t->group, TAG_REPLAN, s->replan_words,
	    stands == ASKS ? (size_t)count * words_of(count) : WISH_WORDS(count), TR_I64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}

/* ---- what the commit makes of it ---- */

static void start_search(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct replan_task task = { .dealing = s->dealing, .count = s->next.count };
	s->has_found = false;
	if (s->self != 0)
		return;
	for (uint32_t i = 0; i < task.count; i++) {
		task.ranks[i] = s->next.peers[i].rank;
		memcpy(&task.figures[i], s->replan_words + (size_t)i * words_of(task.count),
		    words_of(task.count) * sizeof(int64_t));
	}
	replanner_start(s->replanner, &task);
}

/* Of a search: the wish is the next round's, or there is none. */
static uint64_t take_wish(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct wish *wish = &s->state->planned;
	wish_read(s->replan_words, &s->whole.config, s->next.count, wish);
	if (wish->kind == WISH_NONE)
		return SEARCHES;
	s->has_found = false;
	if (wish->kind == WISH_CHANGE)
		return WISHES;
	if (round->index == 0)
		sharded_tell_replan(t);
	drift_stays(&s->state->drift, wish->now_ns);
	return WATCHES;
}

/* A wish that this round has made true, or that was not worth it. */
static void end_wish(struct sharded *s)
{
	if (!s->replans)
		return;
	if (s->kind == SHARDED_REMESH)
		drift_follows(&s->state->drift, s->worth.next_ns);
	else
		drift_stays(&s->state->drift, s->state->planned.now_ns);
}

static void count_computing(struct sharded *s)
{
	bool begins = s->state->drift.steps == 0 && s->state->replanning == WATCHES;
	s->computed_s = (begins ? 0 : s->computed_s) + s->computing_s;
	s->computed_steps = (begins ? 0 : s->computed_steps) + 1;
}

static uint64_t next_stand(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct sharded_state *state = s->state;
	switch (state->replanning) {
	case ASKS:
		start_search(t);
		return SEARCHES;
	case SEARCHES:
		return take_wish(t, round);
	default:
		/* A plan with whom it was taken back from would be made again and again. */
		return state->plain > 0 && !trial_failed(&state->trial) &&
		        drift_note(&state->drift, t->drift_steps, (uint64_t)s->told->round_ns)
		    ? ASKS
		    : WATCHES;
	}
}

/* Somebody came or went since the last round, or had to have another mesh for it. */
static bool other_workers(const struct sharded *s)
{
	bool remade = s->kind == SHARDED_REMESH && !s->replans && !s->restages;
	return remade ||
	    (s->state->ranks.count > 0 && !ranks_same_peers(&s->state->ranks, &s->next));
}

void sharded_replan(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct sharded_state *state = s->state;
	if (!watches(t))
		return;
	if (state->replanning == WISHES)
		end_wish(s);
	bool goes_on = sharded_goes_on(t) && state->wishes == 0 &&
	    s->next.count <= REPLAN_PEERS_MAX;
	if (goes_on && state->replanning != WISHES) {
		count_computing(s);
		state->replanning = next_stand(t, round);
	} else {
		if (other_workers(s))
			drift_shaken(&state->drift);
		else if (!goes_on)
			drift_restart(&state->drift);
		state->replanning = WATCHES;
	}
	if (state->replanning != WISHES)
		memset(&state->planned, 0, sizeof(state->planned));
}

/* ---- the round that makes it true ---- */

/* What is saved by predictions is taken off the step as it was measured, and no more than in proportion. */
static uint64_t saved_ns(const struct wish *wish, uint64_t step_ns)
{
	uint64_t saved = wish->now_ns - wish->next_ns, now_us = wish->now_ns / 1000;
	uint64_t most = now_us > 0 ? saved / 1000 * (step_ns / 1000) / now_us * 1000 : 0;
	return saved < most ? saved : most;
}

static bool pays(struct trainer *t)
{
	const struct wish *wish = &t->sharded->state->planned;
	uint64_t step_ns = pace_step_ns(&t->sharded->state->pace);
	return sharded_pays(t, step_ns - saved_ns(wish, step_ns), wish->ns_a_byte);
}

tr_status sharded_derive_replan(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct wish *wish = &s->state->planned;
	struct ranks next;
	s->replans = false;
	if (s->kind != SHARDED_STEP || s->state->replanning != WISHES || s->stays || s->restages ||
	    !ranks_same(&s->state->ranks, &s->next) || s->transfer_count > 0)
		return TR_OK;
	const struct remesh_shape shape = { wish->dealing.mesh, 1 };
	sharded_rank_anew(t, &s->next, &shape, &next);
	for (uint32_t i = 0; i < next.count; i++)
		next.peers[i].rank = wish->ranks[i];
	tr_status status = sharded_plan_change(t, &wish->dealing, &next, error);
	if (status != TR_OK)
		return status;
	if (s->moves.lost == RESHARD_NONE && pays(t))
		status = sharded_change(t, &next, error);
	else
		sharded_drop_coming(t);
	s->replans = s->kind != SHARDED_BACK;
	return status;
}
