/* Whether all who hold the same shard hold the same numbers. Looked at when shards go to who writes a checkpoint, and before anything else is done in that round: so
 * no checkpoint is made of wrong numbers, and no step. Where a majority of a shard's workers holds the same, the others hold nothing from then on, and get
 * that in the next round as anybody with a new rank does. Where there is none, nobody holds the shard: training goes back to the newest checkpoint. */
#include <stdio.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* 63 bits: digests travel as i64, each in a place of its own, and are never what a place is without one. */
static int64_t digest_of(const struct trainer *t)
{
	size_t bytes = t->layout.count * sizeof(float);
	struct tr_digest all = tr_digest_of(t->arrays.params, bytes);
	all = tr_digest_fold(all, tr_digest_of(t->arrays.first, bytes));
	all = tr_digest_fold(all, tr_digest_of(t->arrays.second, bytes));
	return (int64_t)(all.low >> 1 | 1);
}

static bool same_shard(const struct ranks *r, uint32_t a, uint32_t b)
{
	return r->peers[a].rank != RANKS_NONE && r->peers[b].rank != RANKS_NONE &&
	    ranks_shard(&r->mesh, r->peers[a].rank) == ranks_shard(&r->mesh, r->peers[b].rank);
}

/* Those of peer i's shard that hold what it holds are more than half. */
static bool is_right(const struct ranks *r, const int64_t *digests, uint32_t i)
{
	uint32_t workers = 0, same = 0;
	for (uint32_t k = 0; k < r->count; k++) {
		workers += same_shard(r, i, k);
		same += same_shard(r, i, k) && digests[i] == digests[k];
	}
	return 2 * same > workers;
}

tr_status sharded_compare(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	int64_t *digests = s->sums->digests;
	memset(digests, 0, sizeof(s->sums->digests));
	if (s->rank != RANKS_NONE)
		digests[s->self] = digest_of(t);
	tr_status status = tr_allreduce(t->group, TAG_PARITY, digests, s->next.count, TR_I64,
	    TR_SUM, trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
	if (status == TR_OK)
		status = tr_wait(t->group, TAG_PARITY, error);
	for (uint32_t i = 0; i < s->next.count && status == TR_OK; i++)
		if (s->next.peers[i].rank != RANKS_NONE && !is_right(&s->next, digests, i))
			s->kind = SHARDED_MEND;
	return status;
}

void sharded_mend(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	char event[512] = "";
	size_t used = 0;
	for (uint32_t i = 0; i < s->next.count; i++) {
		struct ranks_peer *p = &s->next.peers[i];
		char place[64];
		if (p->rank == RANKS_NONE || is_right(&s->next, s->sums->digests, i))
			continue;
		p->shard = RANKS_NONE;
		if (used < sizeof(event) - 128)
			used += (size_t)snprintf(event + used, sizeof(event) - used,
			    "%speer %llu (%s)", used > 0 ? ", " : "", (unsigned long long)p->peer,
			    sharded_place(&s->mesh, p->rank, place, sizeof(place)));
	}
	(void)snprintf(event + used, sizeof(event) - used,
	    ": other numbers than the majority of those who hold the shard; step %llu is done with "
	    "right ones",
	    (unsigned long long)t->counters->step + 1);
	if (round->index == 0)
		trainer_report_event(t, event);
}
