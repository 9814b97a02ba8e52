#include "daemon/plan/worthwhile.h"

#include <stdio.h>

static uint64_t saved_ns(const struct worth *w)
{
	return w->step_ns > w->next_ns ? w->step_ns - w->next_ns : 0;
}

/* Of a time, without a product that could be too large. */
static uint64_t part_of(uint64_t ns, uint64_t part, uint64_t of)
{
	return ns / of * part + ns % of * part / of;
}

bool worthwhile(const struct worth *w)
{
	uint64_t saved = saved_ns(w);

	if (w->step_ns == 0)
		return true;
	if (saved == 0 || saved < part_of(w->step_ns, WORTH_PERCENT, 100))
		return false;
	return w->steps_left > w->cost_ns / saved;
}

const char *worth_words(const struct worth *w, char text[WORTH_TEXT])
{
	double each_s = 1e-9 * (double)saved_ns(w), cost_s = 1e-9 * (double)w->cost_ns;
	char little[48] = "";

	if (saved_ns(w) < part_of(w->step_ns, WORTH_PERCENT, 100))
		(void)snprintf(little, sizeof(little), ", less than a tenth of %.3g ms",
		    1e-6 * (double)w->step_ns);
	if (w->step_ns == 0)
		(void)snprintf(text, WORTH_TEXT, "no step was measured yet");
	else
		(void)snprintf(text, WORTH_TEXT,
		    "%llu steps are left, each %.3g ms shorter%s: %.3g s, for a change of %.3g s",
		    (unsigned long long)w->steps_left, 1e3 * each_s, little,
		    each_s * (double)w->steps_left, cost_s);
	return text;
}

uint64_t worth_at_best_ns(uint64_t step_ns, uint32_t workers, uint32_t next_workers)
{
	uint64_t least = part_of(step_ns, 100 - WORTH_PERCENT, 100);
	uint64_t best = next_workers > workers ? part_of(step_ns, workers, next_workers) : least;

	return best < least ? best : least;
}
