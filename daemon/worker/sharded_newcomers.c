/* Shards that come to workers while the others train on (daemon/plan/newcomers.h), in rounds that are steps:
 *
 *	pieces of the arrays, as they are before the step, go to the newcomers while the others compute
 *	gradients are summed in buckets; a newcomer adds nothing to those of what it has or gets, and so knows the sums. Those of a strict job are handed on to it
 *	commit
 *	it takes the step with what it has, as all do with theirs
 *
 * With ZeRO-1 it gets the moments too, from those who own them, and has all of the shard's until it works: then it keeps its part.
 *
 * What comes goes to its place in arrays that hold nothing that counts: until the round is committed no common state says that it is there, and a round that begins again sends it anew. Before
 * a newcomer works its numbers are compared with those of others (sharded_alike.c). */
#include <math.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

enum { TAGS = SHARDED_ARRAYS * NEWCOMERS_DONORS }; /* of each newcomer */

_Static_assert(TAG_NEWCOMER + TAGS * TR_GROUP_PEERS_MAX <= TAG_TENSOR, "tags are apart");
_Static_assert(TAG_UPDATED + TR_GROUP_PEERS_MAX * TR_GROUP_PEERS_MAX <= TAG_FORWARDED &&
        TAG_FORWARDED + NEWCOMERS_DONORS * TR_GROUP_PEERS_MAX <= TAG_MESSAGE,
    "tags are apart");

static uint32_t forwarded_tag(size_t number, uint32_t donor)
{
	return TAG_FORWARDED + NEWCOMERS_DONORS * (uint32_t)number + donor;
}

bool sharded_knows_newcomers(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->apart == NULL;
}

static struct newcomers_rules rules_of(const struct trainer *t, size_t *numbers)
{
	const struct sharded *s = t->sharded;
	for (uint32_t k = 0; numbers != NULL && k < ranks_shards(&s->shards.mesh); k++)
		numbers[k] = sharded_numbers(s, k);
	return (struct newcomers_rules){ .numbers = numbers,
		.step_ns = pace_step_ns(&s->state->pace),
		.parts = s->newcomer_parts,
		.least = s->newcomer_least };
}

void sharded_plan_newcomers(struct trainer *t, const struct ranks *wanted)
{
	struct sharded *s = t->sharded;
	size_t numbers[TR_GROUP_PEERS_MAX];
	struct newcomers_rules rules = rules_of(t, numbers);
	newcomers_next(&s->state->newcomers, &rules, wanted, &s->next, &s->newcomers);
}

uint64_t sharded_newcomer_steps(const struct trainer *t, uint64_t bytes)
{
	struct newcomers_rules rules = rules_of(t, NULL);
	return newcomers_steps(&rules, bytes, PACE_NS_A_BYTE);
}

/* This worker. NULL: it is none. */
static const struct newcomer *own(const struct sharded *s)
{
	return s->self == RANKS_NONE ? NULL
	                             : newcomers_find(&s->newcomers, s->next.peers[s->self].peer);
}

static uint32_t own_shard(const struct sharded *s)
{
	const struct newcomer *newcomer = own(s);
	return newcomer != NULL ? (uint32_t)newcomer->shard : ranks_shard(&s->shards.mesh, s->rank);
}

uint32_t sharded_stage(const struct trainer *t)
{
	return own_shard(t->sharded) / t->sharded->shards.mesh.size[MESH_TP];
}

/* ---- sums ---- */

void sharded_add_newcomer(const struct sharded *s, const struct newcomer *newcomer,
    struct sharded_scope *scope)
{
	uint32_t at = scope->count++, index = ranks_find(&s->next, newcomer->peer);
	for (; at > 0 && scope->members[at - 1] > index; at--)
		scope->members[at] = scope->members[at - 1];
	scope->members[at] = index;
}

void sharded_sum_scope(const struct trainer *t, size_t first, struct sharded_scope *scope)
{
	const struct sharded *s = t->sharded;
	uint32_t shard = own_shard(s);
	scope->count = 0;
	for (uint32_t i = 0; i < s->next.count; i++)
		if (s->next.peers[i].rank != RANKS_NONE &&
		    ranks_shard(&s->shards.mesh, s->next.peers[i].rank) == shard)
			scope->members[scope->count++] = i;
	for (uint64_t i = 0; i < s->newcomers.count; i++)
		if (newcomer_sums(&s->newcomers.of[i], shard, first))
			sharded_add_newcomer(s, &s->newcomers.of[i], scope);
}

void sharded_add_nothing(float *sums, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sums[i] = -0.0f; /* whose sum with any number, zeros included, is that number */
}

/* A strict job's gradients are trees of sums of two, in which there is no place for a third: who holds the shard hands them on. The op of newcomer `number` and its donor `k`; of no
 * numbers: this worker has no part in it. */
static struct tr_op forwarded_op(const struct trainer *t, size_t number, uint32_t k)
{
	const struct sharded *s = t->sharded;
	const struct newcomer *newcomer = &s->newcomers.of[number];
	const struct newcomer all = { .piece = newcomer->got + newcomer->piece };
	uint32_t donors[NEWCOMERS_DONORS], to = ranks_find(&s->next, newcomer->peer);
	uint32_t count = newcomers_donors(&s->newcomers, number, &s->next, donors);
	struct tr_op op = TR_OP_INIT;
	size_t first, end;
	if (k >= count || (donors[k] != s->self && to != s->self))
		return op;
	newcomers_part(&all, count, k, &first, &end);
	op.tag = forwarded_tag(number, k);
	op.count = end - first;
	op.collective = to == s->self ? TR_RECV : TR_SEND;
	op.root = to == s->self ? donors[k] : to;
	if (to == s->self)
		op.output = t->arrays.grads + first;
	else
		op.input = t->arrays.grads + first;
	return op;
}

enum forwarded { SUBMITTED, WAITED_FOR, RELEASED };

static tr_status forward(struct trainer *t, enum forwarded how, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	size_t ops = s->self != RANKS_NONE ? s->newcomers.count * NEWCOMERS_DONORS : 0;
	tr_status status = TR_OK;
	for (size_t i = 0; i < ops && status == TR_OK; i++) {
		struct tr_op op = forwarded_op(t, i / NEWCOMERS_DONORS, i % NEWCOMERS_DONORS);
		if (op.count == 0)
			continue;
		if (how == SUBMITTED)
			status = tr_submit(t->group, &op, error);
		else if (how == WAITED_FOR && op.collective == TR_RECV)
			status = tr_wait(t->group, op.tag, error);
		else if (how == RELEASED && op.collective == TR_SEND)
			status = tr_release(t->group, op.tag, error);
	}
	return status;
}

tr_status sharded_forward_gradients(struct trainer *t, struct tr_error *error)
{
	return forward(t, SUBMITTED, error);
}

tr_status sharded_wait_forwarded(struct trainer *t, struct tr_error *error)
{
	if (own(t->sharded) == NULL || t->sharded->owners == 0)
		return TR_OK;
	tr_status status = sharded_wait_pieces(t, error); /* which say how fast they came */
	return status == TR_OK ? forward(t, WAITED_FOR, error) : status;
}

tr_status sharded_release_forwarded(struct trainer *t, struct tr_error *error)
{
	return forward(t, RELEASED, error);
}

tr_status sharded_submit_nothing(struct trainer *t, struct tr_error *error)
{
	const struct newcomer *newcomer = own(t->sharded);
	struct sharded_scope scope;
	const struct buckets *b = &t->buckets;
	tr_status status = TR_OK;
	if (newcomer == NULL)
		return TR_OK;
	sharded_add_nothing(t->arrays.grads, t->layout.count);
	for (uint32_t i = 0; i < b->count && status == TR_OK; i++) {
		if (!newcomer_sums(newcomer, (uint32_t)newcomer->shard, b->first[i]))
			continue;
		sharded_sum_scope(t, b->first[i], &scope);
		status = sharded_submit_bucket(t, i, &scope, error);
	}
	if (status == TR_OK)
		status = sharded_submit_shared(t, error);
	return status == TR_OK ? sharded_submit_table(t, error) : status;
}

tr_status sharded_wait_nothing(struct trainer *t, struct tr_error *error)
{
	const struct newcomer *newcomer = own(t->sharded);
	const struct buckets *b = &t->buckets;
	tr_status status = TR_OK;
	if (newcomer == NULL || t->sharded->owners == 0)
		return TR_OK;
	status = sharded_wait_pieces(t, error); /* which say how fast they came */
	for (uint32_t i = 0; i < b->count && status == TR_OK; i++)
		if (newcomer_sums(newcomer, (uint32_t)newcomer->shard, b->first[i]))
			status = tr_wait(t->group, i, error);
	if (status == TR_OK && sharded_sums_table(t))
		status = tr_wait(t->group, TAG_TABLE, error);
	return status == TR_OK && sharded_has_shared(t) ? tr_wait(t->group, TAG_SHARED, error)
	                                                : status;
}

/* ---- pieces ---- */

struct piece {
	size_t number; /* of the newcomer */
	uint32_t donor, from, to;
	size_t first, end;
};

static tr_status submit_piece(struct trainer *t, const struct piece *p, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	unsigned arrays = s->owners > 0 ? 1 : SHARDED_ARRAYS; /* moments come from their owners */
	tr_status status = TR_OK;
	for (unsigned a = 0; a < arrays && p->first < p->end && status == TR_OK; a++) {
		float *at = sharded_array(&s->held, a) + p->first;
		struct tr_op op = TR_OP_INIT;
		op.tag = TAG_NEWCOMER + TAGS * (uint32_t)p->number + SHARDED_ARRAYS * p->donor + a;
		op.count = p->end - p->first;
		op.collective = p->from == s->self ? TR_SEND : TR_RECV;
		op.root = p->from == s->self ? p->to : p->from;
		if (p->from == s->self)
			op.input = at;
		else
			op.output = at;
		status = tr_submit(t->group, &op, error);
		if (status == TR_OK && p->to == s->self)
			t->sharded->pieces[t->sharded->piece_count++] = op.tag;
	}
	return status;
}

/* This worker's ends of what a newcomer gets. */
static tr_status submit_pieces(struct trainer *t, size_t number, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	const struct newcomer *newcomer = &s->newcomers.of[number];
	uint32_t donors[NEWCOMERS_DONORS], count;
	tr_status status = TR_OK;
	struct piece p = { .number = number, .to = ranks_find(&s->next, newcomer->peer) };
	count = newcomers_donors(&s->newcomers, number, &s->next, donors);
	for (p.donor = 0; p.donor < count && status == TR_OK; p.donor++) {
		p.from = donors[p.donor];
		newcomers_part(newcomer, count, p.donor, &p.first, &p.end);
		if (p.from == s->self || p.to == s->self)
			status = submit_piece(t, &p, error);
	}
	return status;
}

/* The layout, and with stages the pipeline, that it will work with. */
static tr_status take_shard(struct trainer *t, const struct newcomer *newcomer,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint32_t shard = (uint32_t)newcomer->shard;
	(void)mesh_shards_layout(&s->shards, shard, &s->shard);
	return s->pipeline != NULL
	    ? sharded_take_stage(t, shard / s->shards.mesh.size[MESH_TP], error)
	    : TR_OK;
}

tr_status sharded_submit_newcomers(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct newcomer *newcomer = own(s);
	tr_status status = TR_OK;
	s->piece_count = s->unit_ns = 0;
	s->pieces_since_s = trainer_monotonic_s();
	if (newcomer != NULL)
		status = take_shard(t, newcomer, error);
	for (size_t i = 0; i < s->newcomers.count && status == TR_OK && s->self != RANKS_NONE; i++)
		status = submit_pieces(t, i, error);
	return status == TR_OK ? sharded_submit_pieces_moments(t, error) : status;
}

/* What NEWCOMERS_UNIT of each array would have taken; 0: not known, or other things were waited for meanwhile. */
static uint64_t unit_ns(const struct sharded *s, const struct newcomer *newcomer)
{
	double took_s = trainer_monotonic_s() - s->pieces_since_s;
	if (s->gathers || newcomer->piece == 0)
		return 0;
	return (uint64_t)(1e9 * took_s * NEWCOMERS_UNIT / (double)newcomer->piece) + 1;
}

tr_status sharded_wait_pieces(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct newcomer *newcomer = own(s);
	tr_status status = TR_OK;
	if (newcomer == NULL || s->pieces_since_s == 0)
		return TR_OK;
	for (size_t i = 0; i < s->piece_count && status == TR_OK; i++)
		status = tr_wait(t->group, s->pieces[i], error);
	if (status == TR_OK)
		status = sharded_wait_pieces_moments(t, error);
	s->unit_ns = unit_ns(s, newcomer);
	s->pieces_since_s = 0;
	if (newcomer->piece > 0 && newcomer->got + newcomer->piece == newcomer->numbers)
		sharded_pause_for_tests(t, t->join_pause_ms);
	return status;
}

/* ---- and then ---- */

void sharded_update_newcomer(struct trainer *t, const struct optim_by *by)
{
	const struct newcomer *newcomer = own(t->sharded);
	if (newcomer == NULL || !isfinite(by->norm))
		return;
	sharded_end_shared(t);
	optim_update_range(t->ops, t->pool, &t->layout, &t->arrays, by, 0,
	    (size_t)(newcomer->got + newcomer->piece));
}

bool sharded_is_newcomer(const struct trainer *t)
{
	return own(t->sharded) != NULL;
}

bool sharded_begins_to_work(const struct trainer *t, uint32_t index)
{
	const struct sharded *s = t->sharded;
	return newcomers_works(&s->state->newcomers, &s->next, index);
}

static bool anybody_begins_to_work(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	bool anybody = false;
	for (uint32_t i = 0; i < s->next.count && !anybody; i++)
		anybody = sharded_begins_to_work(t, i);
	return anybody;
}

void sharded_derive_newcomers(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s->kind != SHARDED_STEP)
		memset(&s->newcomers, 0, sizeof(s->newcomers));
	s->meets = s->kind == SHARDED_STEP && anybody_begins_to_work(t);
}

/* After what is held was settled, so that a newcomer's shard is not taken from it as from any spare. */
void sharded_end_newcomers(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct newcomers *known = &s->state->newcomers;
	uint64_t step_ns = pace_step_ns(&s->state->pace);
	if (s->kind != SHARDED_STEP)
		memset(&s->newcomers, 0, sizeof(s->newcomers));
	if (known->count > 0 && s->newcomers.count > 0)
		newcomers_took(&s->newcomers, (uint64_t)s->told->round_ns, step_ns,
		    (uint64_t)s->told->unit_ns);
	if (s->meets && s->newcomers.count == 0) {
		newcomers_took(known, (uint64_t)s->told->round_ns, step_ns, 0);
		pace_fill(&s->state->pace, known->lost_ns + 1);
	}
	newcomers_settle(&s->newcomers, &s->next);
}
