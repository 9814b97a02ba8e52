#include "daemon/plan/plan_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/plan_front.h"
#include "daemon/plan/plan_place.h"
#include "daemon/plan/plan_predict.h"
#include "daemon/plan/plan_refine.h"
#include "daemon/plan/plan_why.h"

#define SEMIFINALISTS 128 /* annealed a little */
#define FINALISTS     32  /* annealed and timed */
#define OF_A_MESH     4   /* of them at most */
#define REFINED       6   /* for long; all others a little */
#define MOVES_LEAST   400
#define MOVES_SHORT   8     /* semifinalists have so many times fewer */
#define MOVES_WORK    40000 /* of workers moved past each other: fewer moves on larger clusters */
#define SHAKES        96
#define INSTRUCTIONS \
	6000000ull /* of timelines, to refine all finalists with, and again for the best of them */
/* Another placement may make a plan fit that lacks so much. */
#define PART_HOPE 2.5
/* The formula may find a plan so much longer than the timeline. */
#define MARGIN 1.1
/* Towards the front: so many of the nearest are annealed a little and timed, no farther away by their estimates, and of these so many are annealed in full and refined, no farther by their times. */
#define NEAR_TIMED    256
#define FAR_ESTIMATED 4 /* another placement may be so much better */
#define NEAR_REFINED  64
#define FAR_TIMED     1.25

struct candidate {
	struct plan_choice choice;
	uint32_t number; /* as they were listed */
	uint32_t
	    plain; /* number of the same one without what saves memory alone; its own: it is that */
	double bound_s;
	double hope; /* its score, if that were to fit; INFINITY: not estimated */
	uint64_t memory_bytes;
	bool fits;
	double distance; /* to the front (plan_front.h); INFINITY: it was a finalist */
};

struct semifinalist {
	struct plan plan;
	double score;
};

struct search {
	const struct plan_search_settings *settings;
	struct plan_layout *l;
	struct candidate *candidates;
	bool *plain_fits; /* [count], by number */
	uint32_t count;
	struct semifinalist semis[SEMIFINALISTS];
	uint32_t semi_count;
	struct plan finalists[FINALISTS];
	uint32_t finalist_count;
	struct plan_front front; /* of all that were timed, where it is wanted */
	struct plan closest;     /* lacks least memory */
	struct plan_result *result;
	struct tr_error *error;
};

static int by_bound(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->bound_s != right->bound_s)
		return left->bound_s < right->bound_s ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number;
}

static int by_hope(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	return left->hope < right->hope ? -1 : left->hope > right->hope;
}

static int by_score(const void *a, const void *b)
{
	const struct semifinalist *left = a, *right = b;

	return left->score < right->score ? -1 : left->score > right->score;
}

static int by_step(const void *a, const void *b)
{
	const struct plan *left = a, *right = b;
	double x = plan_place_score(left, left->times.step_s),
	       y = plan_place_score(right, right->times.step_s);

	return x < y ? -1 : x > y;
}

static bool is_measured(const struct search *s)
{
	const struct plan_choice *only = &s->settings->only;
	const struct plan_costs *costs = s->l->in->costs;

	for (uint32_t i = 0; i < costs->count; i++)
		if (s->l->derived[i].possible && costs->at[i].tp == only->mesh.size[MESH_TP] &&
		    costs->at[i].sequences == only->sequences)
			return true;
	return false;
}

/* Why no choice is as the settings want it. */
static tr_status refuse_none(struct search *s)
{
	const struct plan_choice *only = &s->settings->only;
	const struct plan_input *in = s->l->in;
	uint32_t workers = mesh_workers(&only->mesh); /* 0: any */

	if (workers > in->cluster->worker_count)
		return tr_error_set(s->error, TR_EINVAL,
		    "there is no such plan: the mesh needs %u workers, there are %u", workers,
		    in->cluster->worker_count);
	if (only->mesh.size[MESH_DP] > in->batch)
		return tr_error_set(s->error, TR_EINVAL,
		    "there is no such plan: a batch of %u sequences is less than one for each of "
		    "%u replicas",
		    in->batch, only->mesh.size[MESH_DP]);
	if (only->sequences > 0 && workers > 0 && !is_measured(s))
		return tr_error_set(s->error, TR_EINVAL,
		    "there is no such plan: there are no costs of tp %u and microbatches of %u "
		    "sequences",
		    only->mesh.size[MESH_TP], only->sequences);
	char least[48] = "";
	if (in->min_nodes > 1)
		(void)snprintf(least, sizeof(least), ", and at least %u for mesh.min_nodes,",
		    in->min_nodes);
	return tr_error_set(s->error, TR_EINVAL,
	    "there is no such plan: no mesh of at most %u workers%s has a microbatch with costs "
	    "for each replica out of a batch of %u sequences, and a layer for each stage",
	    in->cluster->worker_count, least, in->batch);
}

/* Own rows and owners save memory; between stages own rows are fewer bytes too. */
static bool is_plain(const struct search *s, const struct plan_choice *choice)
{
	return (s->l->in->owners > 0 || choice->owners == 0) &&
	    (s->l->in->costs->sequence_parallel || !choice->own_rows);
}

static void add_candidate(struct search *s, const struct plan_choice *choice)
{
	uint32_t number = s->count++, plain = number;

	if (!is_plain(s, choice) && number > 0)
		plain = s->candidates[number - 1].plain; /* they come one behind the other */
	s->candidates[number] = (struct candidate){ .choice = *choice,
		.number = number,
		.plain = plain,
		.bound_s = plan_bound_s(s->l, choice),
		.hope = INFINITY };
}

static tr_status list_choices(struct search *s)
{
	struct plan_choice choice = { 0 };
	uint32_t count = 0;

	while (plan_choice_next(s->l, &s->settings->only, &choice))
		count += plan_choice_is_wanted(s->settings, &choice);
	if (count == 0)
		return refuse_none(s);
	s->candidates = calloc(count, sizeof(*s->candidates));
	s->plain_fits = calloc(count, sizeof(*s->plain_fits));
	if (s->candidates == NULL || s->plain_fits == NULL)
		return tr_error_set(s->error, TR_ENOMEM, "no memory for %u choices", count);
	choice = (struct plan_choice){ 0 };
	while (plan_choice_next(s->l, &s->settings->only, &choice))
		if (plan_choice_is_wanted(s->settings, &choice))
			add_candidate(s, &choice);
	qsort(s->candidates, s->count, sizeof(*s->candidates), by_bound);
	s->result->choices = count;
	return TR_OK;
}

/* What the plan without it has room for is of no use, but for fewer bytes between stages. */
static bool is_needless(const struct search *s, const struct candidate *candidate)
{
	const struct plan_choice *choice = &candidate->choice;
	bool sends_less = choice->own_rows && choice->mesh.size[MESH_PP] > 1 &&
	    (choice->owners == 0 || s->l->in->owners > 0);

	return candidate->plain != candidate->number && s->plain_fits[candidate->plain] &&
	    !sends_less && !s->settings->pareto;
}

static tr_status check_wanted(const struct search *s)
{
	if (s->settings->gives_up == NULL || !s->settings->gives_up())
		return TR_OK;
	return tr_error_set(s->error, TR_ECANCELLED, "the search for a plan was given up");
}

/* Estimates of what its bound leaves a chance. */
static tr_status estimate_choices(struct search *s)
{
	double least = INFINITY;
	tr_status st = TR_OK;

	s->closest.memory_part = INFINITY;
	for (uint32_t i = 0; i < s->count && st == TR_OK; i++) {
		struct candidate *candidate = &s->candidates[i];
		struct plan plan = { .choice = candidate->choice };
		if (candidate->bound_s > least * MARGIN && !s->settings->pareto) {
			s->result->bounded++;
			continue;
		}
		if (is_needless(s, candidate)) {
			s->result->needless++;
			continue;
		}
		st = check_wanted(s);
		candidate->hope = plan_place_start(s->l, &plan);
		candidate->fits = plan.memory_part <= 1;
		s->plain_fits[candidate->number] = candidate->fits;
		candidate->memory_bytes = plan.memory_bytes;
		if (plan.memory_part < s->closest.memory_part)
			s->closest = plan;
		if (candidate->fits)
			least = fmin(least, candidate->hope);
		else if (plan.memory_part <= PART_HOPE)
			candidate->hope /= plan_place_score(&plan, 1);
		s->result->unfit += !candidate->fits;
	}
	qsort(s->candidates, s->count, sizeof(*s->candidates), by_hope);
	return st;
}

static bool same_mesh(const struct plan_choice *a, const struct plan_choice *b)
{
	return memcmp(&a->mesh, &b->mesh, sizeof(a->mesh)) == 0 && a->chunks == b->chunks;
}

static bool same_choice(const struct plan_choice *a, const struct plan_choice *b)
{
	return same_mesh(a, b) && a->kind == b->kind && a->sequences == b->sequences &&
	    a->recompute == b->recompute && a->own_rows == b->own_rows && a->owners == b->owners;
}

static uint32_t moves_of(const struct search *s)
{
	uint32_t moves = MOVES_WORK / s->l->in->cluster->worker_count;

	return moves > MOVES_LEAST ? moves : MOVES_LEAST;
}

static void choose_semifinalists(struct search *s)
{
	uint32_t unfit = 0;

	for (uint32_t i = 0; i < s->count && s->semi_count < SEMIFINALISTS; i++) {
		struct semifinalist *semi = &s->semis[s->semi_count];
		if (isinf(s->candidates[i].hope))
			break;
		/* Where memory is short there are many of them, and few come to fit. */
		if (!s->candidates[i].fits && unfit++ >= SEMIFINALISTS / 2)
			continue;
		semi->plan = (struct plan){ .choice = s->candidates[i].choice };
		(void)plan_place_start(s->l, &semi->plan);
		semi->score = plan_place_anneal(s->l, s->settings->seed, moves_of(s) / MOVES_SHORT,
		    &semi->plan);
		if (semi->plan.memory_part < s->closest.memory_part)
			s->closest = semi->plan;
		s->semi_count++;
	}
	qsort(s->semis, s->semi_count, sizeof(*s->semis), by_score);
}

static tr_status add_finalist(struct search *s, const struct plan *from)
{
	struct plan *plan = &s->finalists[s->finalist_count];

	*plan = *from;
	(void)plan_place_anneal(s->l, s->settings->seed, moves_of(s), plan);
	plan_fill(s->l, plan);
	tr_status st = plan_predict(s->l, plan, s->error);
	if (st == TR_OK)
		s->finalist_count++;
	s->result->annealed++;
	return st;
}

static tr_status choose_finalists(struct search *s)
{
	tr_status st = TR_OK;

	for (uint32_t i = 0; i < s->semi_count && s->finalist_count < FINALISTS && st == TR_OK;
	     i++) {
		const struct plan *plan = &s->semis[i].plan;
		uint32_t alike = 0;
		for (uint32_t j = 0; j < s->finalist_count; j++)
			alike += same_mesh(&s->finalists[j].choice, &plan->choice);
		if (alike < OF_A_MESH)
			st = add_finalist(s, plan);
		if (st == TR_OK)
			st = check_wanted(s);
	}
	qsort(s->finalists, s->finalist_count, sizeof(*s->finalists), by_step);
	return st;
}

static tr_status refine_finalists(struct search *s, uint32_t count, uint32_t shakes)
{
	tr_status st = TR_OK;

	count = count < s->finalist_count ? count : s->finalist_count;
	for (uint32_t i = 0; i < count && st == TR_OK; i++) {
		uint64_t budget = INSTRUCTIONS / count;
		st = plan_refine(s->l, shakes, &budget, &s->finalists[i], s->error);
		if (st == TR_OK)
			st = check_wanted(s);
	}
	qsort(s->finalists, s->finalist_count, sizeof(*s->finalists), by_step);
	return st;
}

static void name_losers(struct search *s)
{
	struct plan_result *r = s->result;

	r->best = s->finalists[0];
	for (uint32_t i = 1; i < s->finalist_count && r->loser_count < PLAN_LOSERS_MAX; i++) {
		const struct plan *plan = &s->finalists[i];
		bool known = same_mesh(&plan->choice, &r->best.choice);
		for (uint32_t j = 0; j < r->loser_count; j++)
			known = known || same_mesh(&plan->choice, &r->losers[j].plan.choice);
		if (known)
			continue;
		r->losers[r->loser_count].plan = *plan;
		plan_why_lost(s->l, &r->best, plan, r->losers[r->loser_count].why);
		r->loser_count++;
	}
}

static bool is_finalist(const struct search *s, const struct plan_choice *choice)
{
	for (uint32_t i = 0; i < s->finalist_count; i++)
		if (same_choice(&s->finalists[i].choice, choice))
			return true;
	return false;
}

static int by_distance(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->distance != right->distance)
		return left->distance < right->distance ? -1 : 1;
	return by_bound(a, b);
}

/* Finalists are there already. */
static void order_by_distance(struct search *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		struct candidate *candidate = &s->candidates[i];
		candidate->distance = is_finalist(s, &candidate->choice)
		    ? INFINITY
		    : plan_front_distance(&s->front, candidate->hope, candidate->memory_bytes);
	}
	qsort(s->candidates, s->count, sizeof(*s->candidates), by_distance);
}

/* Timed as first placed, and annealed; and refined, as far as there is a budget. */
static tr_status improve(struct search *s, uint32_t moves, uint64_t budget, struct plan *plan)
{
	(void)plan_place_start(s->l, plan);
	tr_status st = plan_predict(s->l, plan, s->error);
	if (st != TR_OK)
		return st;
	(void)plan_place_anneal(s->l, s->settings->seed, moves, plan);
	plan_fill(s->l, plan);
	st = plan_predict(s->l, plan, s->error);
	if (st == TR_OK)
		st = plan_refine(s->l, 0, &budget, plan, s->error);
	return st == TR_OK ? check_wanted(s) : st;
}

/* The nearest to the front, up to `count` and no farther than `far`. */
static tr_status improve_nearest(struct search *s, uint32_t count, double far, uint32_t moves,
    uint64_t budget)
{
	tr_status st = TR_OK;

	order_by_distance(s);
	for (uint32_t i = 0; i < s->count && i < count && st == TR_OK; i++) {
		struct candidate *candidate = &s->candidates[i];
		struct plan plan = { .choice = candidate->choice };
		if (candidate->distance > far)
			break;
		st = improve(s, moves, budget / count, &plan);
		candidate->hope = plan.times.step_s;
		candidate->memory_bytes = plan.memory_bytes;
	}
	return st;
}

/* Of plans alike in both the first stays. */
static bool has_plan(const struct plan_front *front, const struct plan *plan)
{
	for (uint32_t i = 0; i < front->count; i++)
		if (front->at[i].times.step_s == plan->times.step_s &&
		    front->at[i].memory_bytes == plan->memory_bytes)
			return true;
	return false;
}

/* Around each plan of the front, as long as that makes new ones (Pareto local search: Paquete, Chiarandini, Stuetzle 2004). */
static tr_status search_around_front(struct search *s)
{
	struct plan_front tried = { 0 }, now = { 0 };
	uint64_t budget = INSTRUCTIONS;
	tr_status st = TR_OK;
	bool found = true;

	while (found && budget > 0 && st == TR_OK) {
		found = false;
		if (plan_front_copy(&s->front, &now) != TR_OK)
			st = tr_error_set(s->error, TR_ENOMEM, "no memory for a front of %u plans",
			    s->front.count);
		for (uint32_t i = 0; i < now.count && st == TR_OK; i++) {
			if (has_plan(&tried, &now.at[i]))
				continue;
			found = true;
			st = plan_refine_around(s->l, &budget, &now.at[i], s->error);
			if (st == TR_OK)
				st = check_wanted(s);
		}
		plan_front_finish(&tried);
		tried = now;
		now = (struct plan_front){ 0 };
	}
	plan_front_finish(&tried);
	return st;
}

/* The fastest of the front may be one that was no finalist. */
static void head_finalists(struct search *s)
{
	struct plan fastest = s->front.at[0];

	if (fastest.times.step_s == s->finalists[0].times.step_s &&
	    fastest.memory_bytes == s->finalists[0].memory_bytes)
		return;
	if (s->finalist_count < FINALISTS)
		s->finalist_count++;
	memmove(&s->finalists[1], &s->finalists[0], (s->finalist_count - 1) * sizeof(*s->finalists));
	s->finalists[0] = fastest;
}

static tr_status find_pareto(struct search *s)
{
	uint32_t moves = moves_of(s);
	tr_status st = improve_nearest(s, NEAR_TIMED, FAR_ESTIMATED, moves / MOVES_SHORT, 0);

	if (st == TR_OK)
		st = improve_nearest(s, NEAR_REFINED, FAR_TIMED, moves, INSTRUCTIONS);
	if (st == TR_OK)
		st = search_around_front(s);
	if (st != TR_OK)
		return st;
	head_finalists(s);
	s->result->pareto = s->front.at;
	s->result->pareto_count = s->front.count;
	s->front = (struct plan_front){ 0 };
	return TR_OK;
}

static tr_status check_nodes(const struct plan_input *in, struct tr_error *error)
{
	if (in->min_nodes <= in->cluster->node_count)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "there is no such plan: it is to be on at least %u nodes (mesh.min_nodes), there are "
	    "%u",
	    in->min_nodes, in->cluster->node_count);
}

static tr_status run(struct search *s)
{
	tr_status st = check_nodes(s->l->in, s->error);

	if (st == TR_OK)
		st = list_choices(s);
	if (st == TR_OK)
		st = estimate_choices(s);
	if (st != TR_OK)
		return st;
	choose_semifinalists(s);
	if (s->closest.memory_part > 1)
		return plan_why_none_fits(s->l, s->settings, &s->closest, s->error);
	st = choose_finalists(s);
	if (st == TR_OK)
		st = refine_finalists(s, FINALISTS, 0);
	if (st == TR_OK)
		st = refine_finalists(s, REFINED, SHAKES);
	if (st != TR_OK)
		return st;
	if (s->finalists[0].memory_part > 1)
		return plan_why_none_fits(s->l, s->settings, &s->finalists[0], s->error);
	if (s->settings->pareto)
		st = find_pareto(s);
	if (st == TR_OK)
		name_losers(s);
	return st;
}

tr_status plan_search(const struct plan_input *in, const struct plan_search_settings *settings,
    struct plan_result **result, struct tr_error *error)
{
	struct search *s = calloc(1, sizeof(*s));
	struct plan_result *made = calloc(1, sizeof(*made));
	struct tr_error none;
	tr_status st = TR_ENOMEM;

	error = error != NULL ? error : &none;
	if (s == NULL || made == NULL) {
		(void)tr_error_set(error, TR_ENOMEM, "no memory to plan");
	} else {
		s->settings = settings;
		s->result = made;
		s->error = error;
		s->l = plan_layout_create(in, error);
		if (s->l != NULL && settings->pareto)
			s->l->front = &s->front;
		st = s->l != NULL ? run(s) : error->status;
		plan_layout_destroy(s->l);
		free(s->candidates);
		free(s->plain_fits);
		plan_front_finish(&s->front);
	}
	free(s);
	if (st == TR_OK)
		*result = made;
	else
		plan_search_destroy(made);
	return st;
}

void plan_search_destroy(struct plan_result *result)
{
	if (result == NULL)
		return;
	free(result->pareto);
	free(result);
}
