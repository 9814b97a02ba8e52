#include "collectives/sync/shares.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/limits.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 (sqrt(5) - 1) / 2 */

static bool taken(const struct sync_report *r)
{
	return r->lr_scale != 0;
}

/* Samples a second; 0: it did not measure. */
static double speed(const struct sync_report *r)
{
	double found = r->samples > 0 && r->step_s > 0 ? r->samples / r->step_s : 0;

	return isfinite(found) ? found : 0;
}

/* What is left to those who measured is dealt by their speeds; who would get less than `least` gets that, and the others the rest. */
static void deal_by_speed(const struct sync_report *reports, size_t count, double rest,
    double least, double *parts)
{
	bool raised = true;

	while (raised) {
		double all = 0, left = rest;
		raised = false;
		for (size_t i = 0; i < count; i++) {
			if (parts[i] < 0)
				all += speed(&reports[i]);
			else if (speed(&reports[i]) > 0)
				left -= parts[i];
		}
		for (size_t i = 0; i < count; i++) {
			if (parts[i] >= 0 || !(left * (speed(&reports[i]) / all) < least))
				continue;
			parts[i] = least;
			raised = true;
		}
		for (size_t i = 0; !raised && i < count; i++)
			if (parts[i] < 0)
				parts[i] = left * (speed(&reports[i]) / all);
	}
}

void shares_deal(const struct sync_report *reports, size_t count, uint64_t batch, uint64_t period,
    struct sync_share *shares)
{
	double parts[TR_GROUP_PEERS_MAX] = { 0 }, members = 0, unmeasured = 0, sum = 0;

	memset(shares, 0, count * sizeof(shares[0]));
	if (count > TR_GROUP_PEERS_MAX)
		count = TR_GROUP_PEERS_MAX;
	for (size_t i = 0; i < count; i++)
		members += taken(&reports[i]);
	double equal = members > 0 ? (double)batch / members : 0,
	       least = fmin(equal, period > 0 ? 1 / (double)period : equal);
	for (size_t i = 0; i < count; i++) {
		const struct sync_report *r = &reports[i];
		if (!taken(r))
			continue;
		parts[i] = speed(r) > 0 ? -1 : r->share > 0 ? fmin(r->share, equal) : equal;
		unmeasured += parts[i] > 0 ? parts[i] : 0;
	}
	deal_by_speed(reports, count, (double)batch - unmeasured, least, parts);
	/* One after the other; where the parts of those who did not measure leave something over, or rounding does, all have their part of it. */
	for (size_t i = 0; i < count; i++)
		sum += parts[i];
	double scale = sum > 0 ? (double)batch / sum : 0, at = 0;
	for (size_t i = 0; i < count; i++) {
		if (!taken(&reports[i]))
			continue;
		shares[i].from = at;
		at += parts[i] * scale;
		shares[i].to = at = fmin(at, (double)batch);
	}
	for (size_t i = count; i-- > 0;)
		if (taken(&reports[i])) {
			shares[i].to = (double)batch;
			break;
		}
}

struct sync_share shares_least(const struct sync_share *shares, size_t count)
{
	double least = 0;

	for (size_t i = 0; i < count; i++) {
		double part = shares[i].to - shares[i].from;
		if (part > 0 && (least == 0 || part < least))
			least = part;
	}
	return (struct sync_share){ 0, least };
}

struct sync_share shares_among(struct sync_share share, uint64_t members, uint64_t now)
{
	double scale = now > members ? (double)members / (double)now : 1;

	return (struct sync_share){ share.from * scale, share.to * scale };
}

uint64_t shares_of_step(const struct sync_share *share, uint64_t step)
{
	double u = (double)((step * GOLDEN) >> 44) *
	    0x1p-20; /* so few digits that batch + u is exact */

	return (uint64_t)(floor(share->to + u) - floor(share->from + u));
}

/* A piece of length x is hit by k such points in a row k x times, but for less than 3 + log2(k): the golden ratio's continued fraction has ones alone. */
uint64_t shares_most(double each, uint64_t steps)
{
	uint64_t more = 4;

	for (uint64_t k = steps; k > 0; k /= 2)
		more++;
	return (uint64_t)ceil(each * (double)steps) + more;
}
