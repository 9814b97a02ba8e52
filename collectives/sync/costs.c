#include "collectives/sync/costs.h"

#define MOST 1e15 /* bytes or seconds of one merge, and more: nonsense of a peer */

static double sane(double number)
{
	return number >= 0 && number < MOST ? number : 0;
}

void costs_count(struct sync_costs *costs, const struct sync_costs_said *said, uint64_t step,
    uint64_t parameters)
{
	double gradient = (double)parameters * sizeof(float);
	uint64_t steps = step > costs->step ? step - costs->step : 0;
	double others = said->members > 1 ? sane(said->members) - 1 : 0;

	costs->merges++;
	costs->sent_bytes += sane(said->sent_bytes);
	costs->waited_s += sane(said->waited_s);
	costs->flight_s += sane(said->flight_s);
	costs->dense_bytes += costs->dense_newest;
	costs->dense_newest = sane((double)steps * 2 * others * gradient);
	costs->step = step;
}

struct sync_costs costs_to_save(const struct sync_costs *costs)
{
	struct sync_costs saved = *costs;

	saved.dense_newest = 0;
	saved.step = 0;
	return saved;
}
