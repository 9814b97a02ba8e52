/* Shards that come to replicas that train apart (sharded_apart.h) while those that are whole take the round's steps. What is sent, outer parameters and momentum, does not change before the merge: so who gets
 * it needs nothing more to have by then what the others have, and takes the outer step with them.
 *
 *	derive    some replica is whole, none of whose workers gets a shard: the others' shards come behind
 *	compare   those who get one are no witnesses, as they hold nothing yet; they are compared before the next round's steps
 *	roster    all know what steps take. A batch is shared out among those that train: so a replica that waits for its shards and then trains makes the others' steps shorter, and the merge later. It sits
 *	          this merge out, and goes on from it, where its shards take longer than what it would save
 *	commit    of a round whose ops are all done, these too (coll.h)
 *
 * A donor dies, or the round begins again for another reason: the table is derived anew, and what is needed then comes anew. */
#include "daemon/worker/trainer_inside.h"

static bool gets(const struct sharded *s, uint32_t index)
{
	return ranks_gets(s->transfers, s->transfer_count, index);
}

static bool is_whole(const struct sharded *s, uint32_t replica)
{
	for (uint32_t k = 0; k < ranks_members(&s->next); k++)
		if (gets(s, ranks_member(&s->next, replica, k)))
			return false;
	return true;
}

void sharded_derive_arrivals(struct trainer *t)
{
	struct sharded *s = t->sharded;
	s->behind = false;
	s->arriving = 0;
	if (s->apart == NULL || s->kind != SHARDED_STEP || s->state->born == 0 ||
	    s->transfer_count == 0)
		return;
	for (uint32_t i = 0; i < ranks_replicas(&s->next); i++)
		s->behind = s->behind || is_whole(s, i);
}

bool sharded_arrives(const struct sharded *s, uint32_t index)
{
	return s->behind && gets(s, index);
}

bool sharded_waits_for_shards(const struct sharded *s, uint32_t replica)
{
	return s->behind && !is_whole(s, replica);
}

/* Bytes that the busiest donor sends. */
static double bytes_sent(const struct sharded *s)
{
	unsigned arrays = (unsigned)__builtin_popcount(sharded_arrays_moved(s));
	double sent[TR_GROUP_PEERS_MAX] = { 0 }, most = 0;
	for (size_t i = 0; i < s->transfer_count; i++) {
		const struct ranks_transfer *move = &s->transfers[i];
		sent[move->from] += arrays * sizeof(float) *
		    (double)sharded_numbers(s, move->shard);
		most = sent[move->from] > most ? sent[move->from] : most;
	}
	return most;
}

bool sharded_hold_up(const struct sharded *s, double steps_s)
{
	const struct sync_costs *costs = &s->state->costs;
	uint32_t replicas = ranks_replicas(&s->next), waiting = 0;
	if (!s->behind || !(costs->sent_bytes > 0))
		return false;
	for (uint32_t i = 0; i < replicas; i++)
		waiting += !is_whole(s, i);
	double arrives_s = costs->flight_s / costs->sent_bytes * bytes_sent(s);
	return arrives_s > steps_s * waiting / replicas;
}
