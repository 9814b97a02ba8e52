#include "daemon/worker/rope.h"

#include <math.h>

#include "daemon/worker/exact_math.h"

/* Of an angle in radians, in turns within [0, 1). */
static double turns(float angle)
{
	double turn = (double)angle * 0.15915494309189534;
	return turn - floor(turn);
}

void rope_tables(size_t context, size_t head, double theta, real *cosines, real *sines)
{
	size_t half = head / 2;
	double log_theta = exact_log(theta);
	for (size_t i = 0; i < half; i++) {
		float power = (float)(2 * i) / (float)head;
		float frequency = 1 / (float)exact_exp((double)power * log_theta);
		for (size_t t = 0; t < context; t++) {
			double turn = turns((float)t * frequency);
			double behind = turn < 0.25 ? turn + 0.75 : turn - 0.25;
			cosines[t * half + i] = (real)(float)exact_cos_turns(turn);
			sines[t * half + i] = (real)(float)exact_cos_turns(behind);
		}
	}
}
