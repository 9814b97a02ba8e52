#include "daemon/worker/exact_math.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

double exact_log(double x)
{
	assert(x > 0);
	int exponent;
	double m = frexp(x, &exponent); /* exact */
	if (m < 0.70710678118654752) {
		m *= 2;
		exponent--;
	}
	/* log m = 2 atanh z = 2 (z + z^3/3 + ...), |z| < 0.172. */
	static const double odd[] = { 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
		1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1 };
	double z = (m - 1) / (m + 1), square = z * z, sum = 0;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		sum = sum * square + odd[i];
	return exponent * 0.69314718055994531 + 2 * z * sum;
}

double exact_exp(double x)
{
	assert(x >= -700 && x <= 700);
	/* e^x = 2^whole e^r, |r| <= 0.35; the first part of log 2 has so few bits that the product is exact. */
	double whole = floor(x * 1.4426950408889634 + 0.5);
	double r = x - whole * 0.693147180369123816490 - whole * 1.90821492927058770002e-10;
	double sum = 1;
	for (int i = 14; i > 0; i--)
		sum = 1 + sum * r / i;
	return ldexp(sum, (int)whole); /* exact */
}

double exact_cos_turns(double turn)
{
	assert(turn >= 0 && turn <= 1);
	if (turn > 0.5)
		turn = 1 - turn;
	double sign = 1;
	if (turn > 0.25) {
		turn = 0.5 - turn;
		sign = -1;
	}
	/* 1 - x^2/2! + x^4/4! - ..., |x| <= pi / 2; each term from the one before it. */
	static const double steps[] = { -1.0 / (22 * 21), -1.0 / (20 * 19), -1.0 / (18 * 17),
		-1.0 / (16 * 15), -1.0 / (14 * 13), -1.0 / (12 * 11), -1.0 / (10 * 9),
		-1.0 / (8 * 7), -1.0 / (6 * 5), -1.0 / (4 * 3), -1.0 / 2 };
	double x = 6.2831853071795865 * turn, square = x * x, sum = 0;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		sum = (sum + 1) * square * steps[i];
	return sign * (1 + sum);
}

double exact_power(double base, uint64_t exponent)
{
	double result = 1;
	for (; exponent > 0; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}
