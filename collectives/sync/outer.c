#include "collectives/sync/outer.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/float_mode.h"

#define WITHOUT_SIGN UINT32_C(0x7fffffff)
#define TWO_TO_64 \
	UINT32_C(0x5f800000) /* as f32; those of larger ones, infinities and NaN lie above it */

bool outer_sound(const float *numbers, size_t count)
{
	uint32_t largest = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &numbers[i], sizeof(bits));
		bits &= WITHOUT_SIGN;
		largest = bits > largest ? bits : largest;
	}
	return largest < TWO_TO_64;
}

double outer_weight(enum tr_sync_weights weights, double tokens, double steps)
{
	if (!(tokens > 0) || !(steps > 0))
		return 0;
	return weights == TR_SYNC_WEIGHTS_TOKENS ? tokens : sqrt(tokens / steps);
}

void outer_delta(float *out, const float *from, const float *to, float weight, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = (from[i] - to[i]) * weight;
}

void outer_step(float *theta, float *v, const float *d, float scale, float eta, float mu,
    size_t count)
{
	unsigned before = float_mode_set(FLOAT_EXACT); /* whatever the caller's program has */

	for (size_t i = 0; !v && i < count; i++)
		theta[i] -= eta * (d[i] * scale);
	for (size_t i = 0; v && i < count; i++) {
		float g = d[i] * scale;
		v[i] = mu * v[i] + g;
		theta[i] -= eta * (g + mu * v[i]);
	}
	(void)float_mode_set(before);
}

void outer_merge(float *local, const float *outer, float alpha, size_t count)
{
	if (alpha == 0) {
		memcpy(local, outer, count * sizeof(float));
		return;
	}
	for (size_t i = 0; i < count; i++)
		local[i] = alpha * local[i] + (1 - alpha) * outer[i];
}

void outer_add(float *local, const float *outer, const float *lead, size_t count)
{
	for (size_t i = 0; i < count; i++)
		local[i] = outer[i] + lead[i];
}

void outer_recall(float *out, const float *from, const float *d, float scale, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = from[i] - d[i] * scale;
}

void outer_foresee(float *out, const float *theta, const float *v, const float *d, float scale,
    float eta, float mu, size_t count)
{
	for (size_t i = 0; !v && i < count; i++)
		out[i] = theta[i] - eta * (d[i] * scale);
	for (size_t i = 0; v && i < count; i++) {
		float g = d[i] * scale;
		out[i] = theta[i] - eta * (g + mu * (mu * v[i] + g));
	}
}

void outer_carry(float *local, const float *outer, const float *base, float rest, size_t count)
{
	for (size_t i = 0; i < count; i++)
		local[i] += rest * (outer[i] - base[i]);
}

void outer_newer(float *out, const float *from, const float *to, const float *d, float scale,
    size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = from[i] - to[i] - d[i] * scale;
}
