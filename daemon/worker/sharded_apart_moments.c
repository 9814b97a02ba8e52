/* Moments of replicas that train apart, to another mesh (sharded_remesh.c), and to who has come into a replica whose other copies have them. Each replica has its own, and no table says who has which: all contributors say of what `lineage` theirs are (sharded_apart.h), so those that say the same
 * have made them together, whichever replica they were in. Of the lineages of which all shards are there the newest is taken (a spare may have old ones), and all replicas of the other mesh begin with its moments, as all begin with one replica's where they go on from a
 * checkpoint. There may be none: its workers were a step apart when one of them died, or all owners of a piece are gone (ZeRO-1). Then each replica begins with fresh ones.
 *
 * Moments by pieces are put together at one holder of each shard, in its own arrays, where nobody reads what it does not own; then they move as others do. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* What is said in the roster's memory. */
static void say(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	const struct apart_moments *m = &s->apart->moments;
	bool pieces = s->owners > 0 && !m->whole;
	if (m->shard == RANKS_NONE)
		return;
	s->apart->roster[s->self] = (struct apart_word){ .first = (int64_t)m->shard + 1,
		.lineage = (int64_t)m->lineage,
		.age = (int64_t)m->age,
		.used = (int64_t)m->used,
		.piece = pieces ? (int64_t)(m->number / ranks_shards(&s->shards.mesh)) + 1 : 0 };
}

/* As a table of ranks (daemon/plan/owners.h): who holds what of the moments of this lineage, in the mesh that is left. */
static void holders_of(const struct sharded *s, int64_t lineage, struct ranks *held)
{
	uint32_t copies = (uint32_t)s->state->ranks.copies;
	*held = s->next;
	for (uint32_t i = 0; i < held->count; i++) {
		const struct apart_word *word = &s->apart->roster[i];
		bool holds = lineage != 0 && word->lineage == lineage && word->first > 0;
		held->peers[i].shard = holds ? (uint32_t)word->first - 1 : RANKS_NONE;
		held->peers[i].part = word->piece > 0
		    ? (struct ranks_part){ copies, (uint32_t)word->piece - 1 }
		    : (struct ranks_part){ 1, 0 };
	}
}

/* Who puts a shard's together: who has all of them, or the first that has some. */
static uint32_t gatherer_of(const struct ranks *held, uint32_t shard)
{
	uint32_t found = RANKS_NONE;
	for (uint32_t i = held->count; i > 0; i--) {
		const struct ranks_peer *peer = &held->peers[i - 1];
		if (peer->shard == shard &&
		    (found == RANKS_NONE || peer->part.of == 1 || held->peers[found].part.of != 1))
			found = i - 1;
	}
	return found;
}

/* By peer, the shard of whose moments of this lineage it has when those by pieces are put together, by s->moments; *whole: all shards are there. */
static tr_status plan_givers(struct sharded *s, int64_t lineage,
    uint32_t givers[TR_GROUP_PEERS_MAX], bool *whole, struct tr_error *error)
{
	struct ranks held;
	tr_status status = TR_OK;
	holders_of(s, lineage, &held);
	owners_plan_clear(&s->moments);
	*whole = true;
	for (uint32_t i = 0; i < held.count; i++)
		givers[i] = s->owners == 0 ? held.peers[i].shard : RESHARD_NONE;
	for (uint32_t k = 0; k < mesh_shards_count(&s->shards) && status == TR_OK; k++) {
		uint32_t gatherer = gatherer_of(&held, k);
		*whole = *whole && gatherer != RANKS_NONE;
		if (gatherer == RANKS_NONE || s->owners == 0)
			continue;
		givers[gatherer] = k;
		status = sharded_plan_whole(s, &s->moments, &held, gatherer, k, error);
	}
	*whole = *whole && s->moments.lost == RANKS_NONE;
	return status;
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
	uint32_t givers[TR_GROUP_PEERS_MAX];
	bool whole = false;
	memset(s->apart->roster, 0, TR_GROUP_PEERS_MAX * sizeof(*s->apart->roster));
	if (s->self != RANKS_NONE)
		say(t);
	tr_status status = sharded_apart_exchange(t, round, error);
	for (uint32_t i = 0; i < s->next.count && status == TR_OK; i++) {
		const struct apart_word *word = &s->apart->roster[i];
		if (word->lineage == 0 ||
		    (carried->lineage != 0 && !is_newer(word, carried->used, carried->age)))
			continue;
		status = plan_givers(s, word->lineage, givers, &whole, error);
		if (!whole)
			continue;
		carried->lineage = (uint64_t)word->lineage;
		carried->age = (uint64_t)word->age;
		carried->used = (uint64_t)word->used;
	}
	owners_plan_clear(&s->moments);
	if (status == TR_OK && carried->lineage != 0)
		status = plan_givers(s, (int64_t)carried->lineage, givers, &whole, error);
	return status == TR_OK && carried->lineage != 0
	    ? sharded_plan_moves(s, givers, &s->next, &carried->moves, error)
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

/* In so many a shard's moments are cut, of which a copy has some. */
static uint32_t pieces_of(const struct sharded *s)
{
	return sharded_owners_share(s) ? sharded_copies(s) : 1;
}

static bool has_piece(const struct sharded *s, uint32_t copy, uint32_t piece)
{
	return !sharded_owners_share(s) || owners_owns(s->owners, sharded_copies(s), copy, piece);
}

static bool is_there(const struct sharded *s, uint32_t replica, int64_t lineage, uint32_t shard,
    uint32_t piece)
{
	uint32_t shards = ranks_shards(&s->next.mesh);
	for (uint32_t copy = 0; copy < sharded_copies(s); copy++)
		if (has_piece(s, copy, piece) &&
		    word_of(s, replica, copy * shards + shard)->lineage == lineage)
			return true;
	return false;
}

static bool is_whole(const struct sharded *s, uint32_t replica, int64_t lineage)
{
	bool whole = lineage != 0;
	for (uint32_t shard = 0; shard < ranks_shards(&s->next.mesh) && whole; shard++)
		for (uint32_t piece = 0; piece < pieces_of(s) && whole; piece++)
			whole = is_there(s, replica, lineage, shard, piece);
	return whole;
}

uint64_t sharded_lineage_of(const struct sharded *s, uint32_t replica)
{
	const struct apart_word *newest = NULL;
	for (uint32_t k = 0; k < ranks_members(&s->next); k++) {
		const struct apart_word *word = word_of(s, replica, k);
		if ((newest == NULL ||
		        is_newer(word, (uint64_t)newest->used, (uint64_t)newest->age)) &&
		    is_whole(s, replica, word->lineage))
			newest = word;
	}
	return newest != NULL ? (uint64_t)newest->lineage : 0;
}

static bool has(const struct sharded *s, uint32_t index, uint64_t lineage)
{
	return s->apart->roster[index].lineage == (int64_t)lineage;
}

/* Of a piece of this worker's shard: the first that has it gives it to all that lack it. False: this worker has no part in that. */
static bool scope_of(const struct sharded *s, uint64_t lineage, uint32_t piece,
    struct sharded_scope *scope, unsigned *root)
{
	bool in = false, given = false;
	scope->count = 0;
	for (uint32_t i = 0; i < s->copies.count; i++) {
		uint32_t index = s->copies.members[i];
		bool gives = has(s, index, lineage);
		if (!has_piece(s, ranks_copy(&s->next, index), piece) || (gives && given))
			continue;
		if (gives)
			*root = scope->count;
		given = given || gives;
		in = in || index == s->self;
		scope->members[scope->count++] = index;
	}
	return in && scope->count > 1;
}

static uint32_t tag_of(uint32_t piece, unsigned which)
{
	return TAG_GIVEN + 2 * piece + which;
}

static tr_status give_pieces(struct trainer *t, uint64_t lineage, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	uint32_t pieces = pieces_of(s), mine[TR_GROUP_PEERS_MAX], count = 0;
	tr_status status = TR_OK;
	for (uint32_t piece = 0; piece < pieces && status == TR_OK; piece++) {
		struct owners_range range = owners_piece(t->layout.count, pieces, piece);
		struct sharded_scope scope;
		unsigned root = 0;
		if (range.first == range.end || !scope_of(s, lineage, piece, &scope, &root))
			continue;
		mine[count++] = piece;
		for (unsigned which = 0; which < 2 && status == TR_OK; which++)
			status = sharded_broadcast(t, tag_of(piece, which),
			    sharded_array(&t->arrays, 1 + which) + range.first,
			    range.end - range.first, &scope, root, error);
	}
	for (uint32_t i = 0; i < 2 * count && status == TR_OK; i++)
		status = tr_wait(t->group, tag_of(mine[i / 2], i % 2), error);
	if (status == TR_OK)
		status = sharded_barrier(t, tag_of(pieces, 0), &s->copies, error);
	for (uint32_t i = 0; i < 2 * count && status == TR_OK; i++)
		status = tr_release(t->group, tag_of(mine[i / 2], i % 2), error);
	return status;
}

tr_status sharded_give_moments(struct trainer *t, uint64_t lineage, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	bool lacks = !has(s, s->self, lineage);
	uint32_t lacking = 0, giver = s->self;
	for (uint32_t i = 0; i < s->copies.count; i++) {
		if (has(s, s->copies.members[i], lineage))
			giver = s->copies.members[i];
		else
			lacking++;
	}
	if (lacking == 0)
		return TR_OK;
	/* Until all of them have come they are nobody's. */
	if (lacks) {
		sharded_clear_moments(t);
		sharded_apart_begin_moments(t, 0, 0);
	}
	tr_status status = give_pieces(t, lineage, error);
	if (status == TR_OK && lacks)
		sharded_apart_begin_moments(t, (uint64_t)s->apart->roster[giver].age, lineage);
	return status;
}
