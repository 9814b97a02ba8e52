/* Learning rates of replicas that train apart with HDET (collectives/sync/hdet.h): a replica is what a worker is where each holds the whole model. Its workers have one rate, since
 * they choose it of what all know: the base, the merge's number, the replica's. What a merge makes of the base is committed with it, and goes to who comes with the rest of the state.
 */
#include <math.h>
#include <string.h>

#include "collectives/sync/hdet.h"
#include "daemon/worker/trainer_inside.h"

bool sharded_lr_base(const struct trainer *t, double base[2])
{
	const struct sharded *s = t->sharded;
	base[0] = base[1] = 0;
	if (s == NULL || s->apart == NULL || s->apart->options.mode != TR_SYNC_HDET)
		return false;
	memcpy(base, s->state->lr_base, sizeof(s->state->lr_base));
	if (!(base[0] > 0)) /* there was no merge yet, nor one that a checkpoint knows */
		base[0] = 1;
	return true;
}

/* Replicas change places from merge to merge. */
double sharded_choose_rate(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	double base[2];
	return sharded_lr_base(t, base) ? base[0] *
	        hdet_factor(&s->apart->options, s->state->costs.merges + 1,
	            ranks_replica(&s->next, s->self), ranks_replicas(&s->next))
	                                : 1;
}

size_t sharded_say_rate(struct trainer *t, double tokens)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	if (a->options.mode != TR_SYNC_HDET)
		return 0;
	if (tokens > 0)
		a->sums->reports[ranks_replica(&s->next, s->self)] = (struct sync_report){
			.lr_scale = isfinite(a->own.loss) ? a->own.lr_scale : -a->own.lr_scale,
			.loss = isfinite(a->own.loss) ? a->own.loss / tokens : 0
		};
	return (size_t)ranks_replicas(&s->next) * SYNC_REPORT_NUMBERS;
}

void sharded_move_rates(struct trainer *t)
{
	struct sharded *s = t->sharded;
	double base[2];
	if (!sharded_lr_base(t, base))
		return;
	hdet_control(&s->apart->options, s->apart->sums->reports, ranks_replicas(&s->next), base);
	memcpy(s->state->lr_base, base, sizeof(base));
}
