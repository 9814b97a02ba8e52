#include "daemon/plan/drift.h"

#define DOUBLED_MOST   3
#define EXPLAINED_PART 2

void drift_begin(struct drift *d, uint64_t planned_ns)
{
	*d = (struct drift){ .planned_ns = planned_ns, .expected_ns = planned_ns };
}

void drift_restart(struct drift *d)
{
	d->steps = d->ns = d->settled = d->looks = d->measured_ns = 0;
}

void drift_shaken(struct drift *d)
{
	drift_restart(d);
	d->shaken = d->planned_ns > 0;
}

static uint64_t looks_needed(const struct drift *d)
{
	return (uint64_t)DRIFT_LOOKS << (d->searches < DOUBLED_MOST ? d->searches : DOUBLED_MOST);
}

static bool is_other(const struct drift *d, uint64_t ns)
{
	bool longer = 100 * ns > (100 + DRIFT_PERCENT) * d->expected_ns;

	return longer || (d->changes > 0 && 100 * ns < (100 - DRIFT_PERCENT) * d->expected_ns);
}

bool drift_note(struct drift *d, uint64_t steps_of_look, uint64_t ns)
{
	if (d->planned_ns == 0 || ns == 0) /* nobody was there long enough to know */
		return false;
	d->ns += ns;
	if (++d->steps >= (steps_of_look + DRIFT_SHAKEN_PART - 1) / DRIFT_SHAKEN_PART &&
	    d->shaken > 0) {
		uint64_t short_ns = d->ns / d->steps;
		drift_restart(d);
		d->measured_ns = short_ns;
		return true;
	}
	if (d->steps < steps_of_look)
		return false;
	uint64_t mean_ns = d->ns / d->steps;
	d->steps = d->ns = 0;
	if (d->settled++ == 0)
		return false;
	d->looks = is_other(d, mean_ns) ? d->looks + 1 : 0;
	if (d->looks < looks_needed(d))
		return false;
	drift_restart(d);
	d->measured_ns = mean_ns;
	d->searches++;
	return true;
}

void drift_follows(struct drift *d, uint64_t planned_ns)
{
	drift_restart(d);
	d->planned_ns = d->expected_ns = planned_ns > 0 ? planned_ns : 1;
	d->changes++;
	d->shaken = 0;
}

void drift_stays(struct drift *d, uint64_t explained_ns)
{
	bool explained = explained_ns == 0 || explained_ns >= d->measured_ns / EXPLAINED_PART;

	if (explained && d->measured_ns > 0)
		d->expected_ns = d->measured_ns;
	drift_restart(d);
	d->shaken = 0;
}
