#include "daemon/worker/speed.h"

void speed_add(struct speed *speed, double tokens, double seconds)
{
	uint64_t at = speed->count++ % SPEED_ROUNDS;

	speed->tokens[at] = tokens;
	speed->seconds[at] = seconds;
}

double speed_tokens_per_s(const struct speed *speed)
{
	double tokens = 0, seconds = 0;

	for (unsigned i = 0; i < SPEED_ROUNDS; i++) {
		tokens += speed->tokens[i];
		seconds += speed->seconds[i];
	}
	return seconds > 0 ? tokens / seconds : 0;
}
