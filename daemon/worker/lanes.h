/* Sums of a row in a fixed order: sixteen running sums, folded pairwise at the end. The order does
 * not depend on the width of the machine's vectors, so every build of an op gives the same bits,
 * and compilers turn the inner loops into vector code without being allowed to reorder sums.
 */
#ifndef TR_DAEMON_WORKER_LANES_H
#define TR_DAEMON_WORKER_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/real.h"

#define LANES 16

static inline real lanes_fold(real lane[LANES])
{
	for (int width = LANES / 2; width > 0; width /= 2)
		for (int j = 0; j < width; j++)
			lane[j] += lane[j + width];
	return lane[0];
}

static inline double lanes_fold_f64(double lane[LANES])
{
	for (int width = LANES / 2; width > 0; width /= 2)
		for (int j = 0; j < width; j++)
			lane[j] += lane[j + width];
	return lane[0];
}

static inline real lanes_sum(const real *x, size_t count)
{
	real lane[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lane[j] += x[i + j];
	for (size_t j = 0; i + j < count; j++)
		lane[j] += x[i + j];
	return lanes_fold(lane);
}

static inline real lanes_dot(const real *x, const real *y, size_t count)
{
	real lane[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lane[j] += x[i + j] * y[i + j];
	for (size_t j = 0; i + j < count; j++)
		lane[j] += x[i + j] * y[i + j];
	return lanes_fold(lane);
}

/* count > 0. */
static inline real lanes_max(const real *x, size_t count)
{
	real lane[LANES];
	for (size_t j = 0; j < LANES; j++)
		lane[j] = x[0];
	size_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
	for (size_t j = 0; i + j < count; j++)
		lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
	for (int width = LANES / 2; width > 0; width /= 2)
		for (int j = 0; j < width; j++)
			lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
	return lane[0];
}

/* e^x; relative error under 3e-7 in float. Below -87 (the smallest normal) it is e^-87. In + - *
 * only, so that compilers vectorise it. Range reduction and polynomial: Cephes, expf (S. Moshier).
 */
static inline real lanes_exp(real x)
{
#ifdef REAL_IS_DOUBLE
	return exp(x);
#else
	x = x < -87.0f ? -87.0f : x;
	x = x > 88.0f ? 88.0f : x;
	union {
		float value;
		uint32_t bits;
	} n, scale;
	n.value = x * 1.44269504f +
	    12582912.0f; /* 1.5 * 2^23 rounds to an integer in the low bits */
	float whole = n.value - 12582912.0f;
	float r = x - whole * 0.693359375f;
	r = r - whole * -2.12194440e-4f;
	float p = 1.9875691500e-4f;
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	scale.bits = (n.bits - 0x4b400000u + 127u) << 23; /* of a NaN: whatever it is */
	return p * scale.value;
#endif
}

#endif
