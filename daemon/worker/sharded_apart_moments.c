/* Moments of replicas that train apart, to another mesh (sharded_remesh.c), and to who has come into a replica whose other copies have them. Each replica has its own, and no table says who has which: all contributors say of what `lineage` theirs are (sharded_apart.h), so those that say the same
 * have made them together, whichever replica they were in. Of the lineages of which all shards are there the newest is taken (a spare may have old ones), and all replicas of the other mesh begin with its moments, as all begin with one replica's where they go on from a
 * checkpoint. There may be none: its workers were a step apart when one of them died, or moments are by pieces (ZeRO-1). Then each replica begins with fresh ones. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* What is said in the roster's memory. */
static void say(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	const struct apart_moments *m = &s->apart->moments;
	bool pieces = s->owners > 0 && !m->whole;
	if (m->shard == RANKS_NONE || pieces)
		return;
	s->apart->roster[s->self] = (struct apart_word){ .first = (int64_t)m->shard + 1,
		.lineage = (int64_t)m->lineage,
		.age = (int64_t)m->age,
		.used = (int64_t)m->used };
}

/* By peer, the shard of whose moments of this lineage it holds. Are all shards held? */
static bool holders_of(const struct sharded *s, int64_t lineage, uint32_t held[TR_GROUP_PEERS_MAX])
{
	bool there[TR_GROUP_PEERS_MAX] = { false }, all = lineage != 0;
	for (uint32_t i = 0; i < s->next.count; i++) {
		const struct apart_word *word = &s->apart->roster[i];
		held[i] = word->lineage == lineage && word->first > 0 ? (uint32_t)word->first - 1
		                                                      : RESHARD_NONE;
		if (held[i] != RESHARD_NONE)
			there[held[i]] = true;
	}
	for (uint32_t k = 0; k < mesh_shards_count(&s->shards); k++)
		all = all && there[k];
	return all;
}

/* Those that were used later, of as new ones those of more steps. */
static bool is_newer(const struct apart_word *word, uint64_t used, uint64_t age)
{
	return (uint64_t)word->used != used ? (uint64_t)word->used > used
	                                    : (uint64_t)word->age > age;
}

tr_status sharded_carry_moments(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct apart_carried *carried = &s->apart->carried;
	uint32_t held[TR_GROUP_PEERS_MAX], newest[TR_GROUP_PEERS_MAX];
	memset(s->apart->roster, 0, TR_GROUP_PEERS_MAX * sizeof(*s->apart->roster));
	if (s->self != RANKS_NONE)
		say(t);
	tr_status status = sharded_apart_exchange(t, round, error);
	for (uint32_t i = 0; i < s->next.count && status == TR_OK; i++) {
		const struct apart_word *word = &s->apart->roster[i];
		if ((carried->lineage != 0 && !is_newer(word, carried->used, carried->age)) ||
		    !holders_of(s, word->lineage, held))
			continue;
		carried->lineage = (uint64_t)word->lineage;
		carried->age = (uint64_t)word->age;
		carried->used = (uint64_t)word->used;
		memcpy(newest, held, sizeof(newest));
	}
	return status == TR_OK && carried->lineage != 0
	    ? sharded_plan_moves(s, newest, &s->next, &carried->moves, error)
	    : status;
}

void sharded_carry_none(struct sharded_apart *a)
{
	reshard_finish(&a->carried.moves);
	a->carried = (struct apart_carried){ .moves.lost = RESHARD_NONE };
}

uint64_t sharded_carried_places(const struct sharded *s)
{
	uint32_t there[TR_GROUP_PEERS_MAX], count = ranks_there(&s->next, there);
	uint64_t places = 0;
	for (uint32_t i = 0; i < count && there[i] < 64; i++)
		places |= UINT64_C(1) << there[i];
	return s->apart != NULL && s->apart->carried.lineage != 0 ? places : 0;
}

void sharded_adopt_moments(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	if (s->held.first == NULL)
		return;
	a->moments = (struct apart_moments){ .first = s->held.first,
		.second = s->held.second,
		.shard = ranks_shard(&s->shards.mesh, s->rank),
		.number = RANKS_NONE,
		.whole = true,
		.lineage = a->carried.lineage,
		.age = a->carried.age,
		.used = a->carried.used };
	s->held.first = s->held.second = NULL;
}

/* ---- to a copy ---- */

static const struct apart_word *word_of(const struct sharded *s, uint32_t replica, uint32_t number)
{
	return &s->apart->roster[ranks_member(&s->next, replica, number)];
}

static bool is_whole(const struct sharded *s, uint32_t replica, int64_t lineage)
{
	uint32_t shards = ranks_shards(&s->next.mesh), members = ranks_members(&s->next);
	for (uint32_t shard = 0; shard < shards; shard++) {
		bool there = false;
		for (uint32_t k = shard; k < members; k += shards)
			there = there || word_of(s, replica, k)->lineage == lineage;
		if (!there)
			return false;
	}
	return lineage != 0;
}

uint64_t sharded_lineage_of(const struct sharded *s, uint32_t replica)
{
	const struct apart_word *newest = NULL;
	if (sharded_owners_share(s))
		return 0; /* each has other pieces */
	for (uint32_t k = 0; k < ranks_members(&s->next); k++) {
		const struct apart_word *word = word_of(s, replica, k);
		if ((newest == NULL ||
		        is_newer(word, (uint64_t)newest->used, (uint64_t)newest->age)) &&
		    is_whole(s, replica, word->lineage))
			newest = word;
	}
	return newest != NULL ? (uint64_t)newest->lineage : 0;
}

static tr_status give(struct trainer *t, unsigned which, uint32_t root, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	struct tr_op op = TR_OP_INIT;
	op.tag = TAG_GIVEN + which;
	op.collective = TR_BROADCAST;
	op.output = sharded_array(&t->arrays, 1 + which);
	op.count = t->layout.count;
	op.root = root;
	op.scope = (struct tr_scope){ s->copies.members, s->copies.count };
	return tr_submit(t->group, &op, error);
}

tr_status sharded_give_moments(struct trainer *t, uint64_t lineage, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct apart_word *roster = s->apart->roster, *own = &roster[s->self];
	uint32_t root = s->copies.count, lacking = 0;
	tr_status status = TR_OK;
	for (uint32_t i = s->copies.count; i > 0; i--) {
		bool has = roster[s->copies.members[i - 1]].lineage == (int64_t)lineage;
		root = has ? i - 1 : root;
		lacking += !has;
	}
	if (lacking == 0)
		return TR_OK;
	/* Until all of them have come they are nobody's. */
	if (own->lineage != (int64_t)lineage)
		sharded_apart_begin_moments(t, 0, 0);
	for (unsigned which = 0; which < 2 && status == TR_OK; which++)
		status = give(t, which, root, error);
	for (unsigned which = 0; which < 2 && status == TR_OK; which++)
		status = tr_wait(t->group, TAG_GIVEN + which, error);
	if (status == TR_OK)
		status = sharded_barrier(t, TAG_GIVEN + 2, &s->copies, error);
	for (unsigned which = 0; which < 2 && status == TR_OK; which++)
		status = tr_release(t->group, TAG_GIVEN + which, error);
	if (status == TR_OK && own->lineage != (int64_t)lineage)
		sharded_apart_begin_moments(t, (uint64_t)roster[s->copies.members[root]].age,
		    lineage);
	return status;
}
