/* Whether all who hold the same shard hold the same numbers, and all of a stage the same of what its tensor-parallel members hold in common. Looked at before shards go to who writes a checkpoint, in the round in which newcomers begin to work, and before anything else is done in that round: so
 * no checkpoint is made of wrong numbers, and no step. Those who work are compared, and they alone send and write; what spares hold is forgotten where something differs. Where a majority of a shard's workers holds the same, the others hold nothing from then on, and get
 * that in the next round as anybody with a new rank does. Where there is none, nobody holds the shard: training goes back to the newest checkpoint. */
#include <stdio.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* What differs each time, though it got the others' numbers, does so for ever: nothing would be done but mend it. */
enum { MOMENTS = 2 | 4, DIFFERS_MOST = 3 };

/* Of these arrays, a bit each: those that all of a shard's workers hold whole. With ZeRO-1 moments are compared by piece; of replicas that train apart they differ. */
static struct tr_digest fold(const struct trainer *t, struct tr_digest all, unsigned which,
    size_t offset, size_t numbers)
{
	struct progress progress = trainer_progress(t); /* of a large shard that takes seconds */
	for (unsigned i = 0; i < SHARDED_ARRAYS_ALL; i++)
		if ((which >> i & 1) != 0)
			all = tr_digest_fold(all,
			    tr_digest_told(sharded_array(&t->arrays, i) + offset,
			        numbers * sizeof(float), &progress));
	return all;
}

/* 63 bits: digests travel as i64, each in a place of its own, and are never what a place is without one. */
static int64_t word_of(struct tr_digest digest)
{
	return (int64_t)(digest.low >> 1 | 1);
}

static int64_t digest_of(const struct trainer *t)
{
	return word_of(
	    fold(t, (struct tr_digest){ 0 }, sharded_arrays_moved(t->sharded), 0, t->layout.count));
}

/* Of what all of its stage hold. */
static int64_t shared_digest_of(const struct trainer *t)
{
	struct tr_digest all = { 0 };
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		if (shard_whole(&t->sharded->whole, &t->layout, i))
			all = fold(t, all, sharded_arrays_moved(t->sharded), tensor->offset,
			    layout_numbers(tensor));
	}
	return word_of(all);
}

static bool same_shard(const struct ranks *r, uint32_t a, uint32_t b)
{
	return r->peers[a].rank != RANKS_NONE && r->peers[b].rank != RANKS_NONE &&
	    ranks_shard(&r->mesh, r->peers[a].rank) == ranks_shard(&r->mesh, r->peers[b].rank);
}

static bool same_stage(const struct ranks *r, uint32_t a, uint32_t b)
{
	return r->peers[a].rank != RANKS_NONE && r->peers[b].rank != RANKS_NONE &&
	    mesh_at(&r->mesh, r->peers[a].rank).at[MESH_PP] ==
	    mesh_at(&r->mesh, r->peers[b].rank).at[MESH_PP];
}

/* Of those that should hold what peer i holds, more than half do. Who was a newcomer until now is no witness, since what it made of what others sent is in question; unless all others are
 * gone. */
static bool is_common(const struct trainer *t, const int64_t *digests, uint32_t i,
    bool (*should)(const struct ranks *r, uint32_t a, uint32_t b))
{
	const struct ranks *r = &t->sharded->next;
	uint32_t witnesses[2] = { 0 }, same[2] = { 0 }; /* [1]: who were newcomers */
	for (uint32_t k = 0; k < r->count; k++) {
		bool begins = sharded_begins_to_work(t, k);
		bool counts = should(r, i, k) && !sharded_arrives(t->sharded, k);
		witnesses[begins] += counts;
		same[begins] += counts && digests[i] == digests[k];
	}
	bool alone = witnesses[0] == 0;
	return 2 * same[alone] > witnesses[alone];
}

/* ---- with ZeRO-1: pieces of moments ---- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Of the k-th piece that this worker owns, counted from its first. */
static int64_t piece_digest_of(const struct trainer *t, uint32_t k)
{
	struct ranks_part mine = ranks_part(&t->sharded->next, t->sharded->self);
	struct owners_range range = owners_piece(t->layout.count, mine.of,
	    (mine.place + k) % mine.of);
	return word_of(
	    fold(t, (struct tr_digest){ 0 }, MOMENTS, range.first, range.end - range.first));
}

/* Of the owners of the k-th piece of peer i more than half hold what it holds; who was a newcomer counts as in is_common. */
static bool piece_is_common(const struct trainer *t, uint32_t i, uint32_t k)
{
	const struct sharded *s = t->sharded;
	const struct ranks *r = &s->next;
	const int64_t *digests = s->sums->digests + 2 * r->count;
	struct ranks_part mine = ranks_part(r, i);
	uint32_t piece = (mine.place + k) % mine.of, owners[2] = { 0 }, same[2] = { 0 };
	for (uint32_t other = 0; other < r->count; other++) {
		if (!same_shard(r, i, other))
			continue;
		struct ranks_part part = ranks_part(r, other);
		if (!owners_owns(s->owners, part.of, part.place, piece))
			continue;
		uint32_t its = (piece + part.of - part.place) % part.of;
		bool begins = sharded_begins_to_work(t, other);
		owners[begins]++;
		same[begins] += digests[its * r->count + other] == digests[k * r->count + i];
	}
	bool alone = owners[0] == 0;
	return 2 * same[alone] > owners[alone];
}

static bool is_right(const struct trainer *t, uint32_t i)
{
	const struct sharded *s = t->sharded;
	const struct ranks *r = &s->next;
	const int64_t *digests = s->sums->digests;
	bool right = is_common(t, digests, i, same_shard) &&
	    is_common(t, digests + r->count, i, same_stage);
	for (uint32_t k = 0; right && k < smaller(sharded_table_owners(s), ranks_replicas(r)); k++)
		right = piece_is_common(t, i, k);
	return right;
}

tr_status sharded_compare(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	int64_t *digests = s->sums->digests;
	memset(digests, 0, sizeof(s->sums->digests));
	if (s->rank != RANKS_NONE && !sharded_arrives(s, s->self)) {
		digests[s->self] = digest_of(t);
		digests[s->next.count + s->self] = shared_digest_of(t);
	}
	for (uint32_t k = 0;
	     s->rank != RANKS_NONE && k < smaller(sharded_table_owners(s), s->dp.count); k++)
		digests[(2 + k) * s->next.count + s->self] = piece_digest_of(t, k);
	tr_status status = tr_allreduce(t->group, TAG_PARITY, digests,
	    (2 + (size_t)sharded_table_owners(s)) * s->next.count, TR_I64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
	if (status == TR_OK)
		status = tr_wait(t->group, TAG_PARITY, error);
	for (uint32_t i = 0; i < s->next.count && status == TR_OK; i++)
		if (s->next.peers[i].rank != RANKS_NONE && !sharded_arrives(s, i) && !is_right(t, i))
			s->kind = SHARDED_MEND;
	return status;
}

/* Some shard, or a piece of its moments, has nobody left who holds it. */
static bool is_lost(const struct sharded *s)
{
	struct owners_plan plan = { .lost = RANKS_NONE };
	bool lost = false;
	for (uint32_t k = 0; k < ranks_shards(&s->next.mesh) && !lost; k++) {
		uint32_t holder = ranks_holder(&s->next, k);
		size_t numbers = sharded_numbers(s, k);
		lost = holder == RANKS_NONE ||
		    (sharded_table_owners(s) > 0 &&
		        owners_plan_add(&plan, &s->next, s->owners, holder, k, numbers,
		            (struct owners_range){ 0, numbers }, NULL) != TR_OK);
	}
	lost = lost || plan.lost != RANKS_NONE;
	owners_plan_finish(&plan);
	return lost;
}

void sharded_mend(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	char event[512] = "";
	size_t used = 0;
	for (uint32_t i = 0; i < s->next.count; i++) {
		struct ranks_peer *p = &s->next.peers[i];
		char place[64];
		bool arrives = sharded_arrives(s, i); /* of numbers that may be wrong */
		if (p->rank == RANKS_NONE || (!arrives && is_right(t, i)))
			continue;
		p->shard = RANKS_NONE;
		p->part = (struct ranks_part){ 0, 0 };
		s->differs += i == s->self && !arrives;
		if (!arrives && used < sizeof(event) - 192)
			used += (size_t)snprintf(event + used, sizeof(event) - used,
			    "%speer %llu (%s)", used > 0 ? ", " : "", (unsigned long long)p->peer,
			    sharded_place(&s->next, p->rank, place, sizeof(place)));
	}
	if (is_lost(s))
		(void)snprintf(event + used, sizeof(event) - used,
		    ": other numbers than others who hold the shard, and no majority says which "
		    "are "
		    "right: training goes back to the newest checkpoint");
	else
		(void)snprintf(event + used, sizeof(event) - used,
		    ": other numbers than the majority of those who hold the shard; they get "
		    "those, "
		    "and training goes on from step %llu",
		    (unsigned long long)t->counters->step);
	if (round->index == 0)
		trainer_report_event(t, event);
}

tr_status sharded_check_differs(const struct trainer *t, struct tr_error *error)
{
	uint32_t times = t->sharded->differs;
	return times <= DIFFERS_MOST
	    ? TR_OK
	    : tr_error_set(error, TR_EDIGEST,
	          "mesh: %u times one after another this worker held other numbers than the "
	          "others of its shard, whose numbers it had got: its memory may be damaged",
	          times);
}
