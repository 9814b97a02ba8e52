#include "daemon/plan/plan_watch.h"

static bool differ(double ratio, double from)
{
	return ratio > from * (1 + PLAN_WATCH_PART) || ratio < from * (1 - PLAN_WATCH_PART);
}

void plan_watch_restart(struct plan_watch *watch, uint64_t step)
{
	watch->next_step = step + PLAN_WATCH_STEPS;
	watch->off = 0;
}

bool plan_watch_look(struct plan_watch *watch, uint64_t step, double actual_s, double planned_s)
{
	if (watch->next_step == 0)
		plan_watch_restart(watch, step);
	if (step < watch->next_step || !(actual_s > 0) || !(planned_s > 0))
		return false;
	double ratio = actual_s / planned_s, expected = watch->said > 0 ? watch->said : 1;
	watch->next_step = step + PLAN_WATCH_STEPS;
	watch->off = differ(ratio, expected) ? watch->off + 1 : 0;
	if (watch->off < PLAN_WATCH_LOOKS)
		return false;
	watch->off = 0;
	watch->said = ratio;
	return differ(ratio, 1);
}
