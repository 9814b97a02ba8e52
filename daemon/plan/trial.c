#include "daemon/plan/trial.h"

#include <string.h>

void trial_end(struct trial *trial)
{
	memset(trial, 0, sizeof(*trial));
}

void trial_begin(struct trial *trial, const struct pace *pace, const struct ranks *before)
{
	if (trial->before_ns > 0 && !trial_failed(trial) && pace->steps == 0)
		return;
	trial_end(trial);
	if (pace->steps == 0 && pace->before_replicas != ranks_replicas(before))
		return; /* what is known is of other ones */
	trial->before_ns = pace_step_ns(pace);
	ranks_places(before, trial->places);
	if (trial->before_ns == 0)
		trial_end(trial);
}

void trial_note(struct trial *trial, const struct pace *pace, uint64_t steps)
{
	uint64_t now_ns = pace_step_ns(pace);

	if (trial->before_ns == 0 || trial_failed(trial) || pace->steps < steps)
		return;
	if (now_ns / (100 + TRIAL_PERCENT) >= trial->before_ns / 100 + 1)
		trial->longer_ns = now_ns;
	else
		trial_end(trial);
}

bool trial_failed(const struct trial *trial)
{
	return trial->longer_ns > 0;
}
