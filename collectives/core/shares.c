#include "collectives/core/shares.h"

#include <assert.h>
#include <stdbool.h>

static void shares_equal(unsigned n, uint64_t *weight)
{
	for (unsigned i = 0; i < n; i++)
		weight[i] = 1;
}

static uint64_t shares_mean(const uint64_t *bandwidth, unsigned n)
{
	uint64_t sum = 0, measured = 0;

	for (unsigned i = 0; i < n; i++) {
		sum += bandwidth[i];
		measured += bandwidth[i] > 0;
	}
	return measured > 0 ? sum / measured : 0;
}

/* Leaves out the slowest, as long as somebody's weight would not be above zero. */
void shares_weigh(const uint64_t *bandwidth, unsigned n, uint64_t *weight)
{
	uint64_t mean = shares_mean(bandwidth, n), sum = 0;
	unsigned active = n;

	if (n <= 2 || mean == 0) {
		shares_equal(n, weight);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		weight[i] = bandwidth[i] > 0 ? bandwidth[i] : mean;
		sum += weight[i];
	}
	for (bool left_out = true; left_out;) {
		uint64_t level = n - 2 + active, still = sum;
		left_out = false;
		for (unsigned i = 0; i < n; i++) {
			if (weight[i] == 0 || level * weight[i] > sum)
				continue;
			still -= weight[i];
			active--;
			weight[i] = 0;
			left_out = true;
		}
		sum = still;
	}
	for (unsigned i = 0; i < n; i++)
		if (weight[i] > 0)
			weight[i] = (n - 2 + active) * weight[i] - sum;
}

void shares_table(const uint64_t *weight, unsigned n, uint8_t owners[SHARES_OWNERS])
{
	int64_t credit[SHARES_OWNERS] = { 0 }, total = 0;

	assert(n > 0 && n <= SHARES_OWNERS);
	for (unsigned i = 0; i < n; i++)
		total += (int64_t)weight[i];
	for (unsigned k = 0; k < SHARES_OWNERS; k++) {
		unsigned most = 0;
		for (unsigned i = 0; i < n; i++) {
			credit[i] += (int64_t)weight[i];
			if (credit[i] > credit[most])
				most = i;
		}
		credit[most] -= total;
		owners[k] = (uint8_t)most;
	}
}
