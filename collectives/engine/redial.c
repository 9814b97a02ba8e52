#include "collectives/engine/redial.h"

#include <math.h>

#include "common/limits.h"

#define PATIENCE_LEAST_MS 400
#define SILENCE_PARTS     32

bool redial_due(const struct tcp_path *path)
{
	return path->resent >= TR_CONN_WATCHED_RETRIES_MIN &&
	    (uint64_t)path->quiet_ms * 1000 >= 3 * (uint64_t)path->rto_us;
}

uint32_t redial_patience_ms(double rtt_s, uint64_t silent_ms)
{
	double patience_ms = fmax(8000 * rtt_s, (double)silent_ms / SILENCE_PARTS);
	if (rtt_s <= 0)
		return 0;
	if (patience_ms > TR_CONN_DIAL_TIMEOUT_MS)
		return TR_CONN_DIAL_TIMEOUT_MS;
	return patience_ms < PATIENCE_LEAST_MS ? PATIENCE_LEAST_MS : (uint32_t)patience_ms;
}
