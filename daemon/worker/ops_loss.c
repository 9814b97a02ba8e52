/* Softmax and cross-entropy: in one pass over the logits, and in three where each of several workers has some of the columns. */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

/* logits become e^(logit - max); their sum. */
static inline real row_exp(real *logits, size_t vocab, real max)
{
	real lane[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= vocab; i += LANES) {
		for (size_t j = 0; j < LANES; j++) {
			real e = lanes_exp(logits[i + j] - max);
			logits[i + j] = e;
			lane[j] += e;
		}
	}
	for (size_t j = 0; i + j < vocab; j++) {
		logits[i + j] = lanes_exp(logits[i + j] - max);
		lane[j] += logits[i + j];
	}
	return lanes_fold(lane);
}

static inline void row_scale(real *logits, size_t vocab, real scale)
{
	for (size_t i = 0; i < vocab; i++)
		logits[i] *= scale;
}

double OP(softmax_loss)(real *logits, const int32_t *targets, size_t rows, size_t vocab)
{
	double total = 0;
	for (size_t row = 0; row < rows; row++, logits += vocab) {
		real max = lanes_max(logits, vocab);
		size_t target = (size_t)targets[row];
		double logit = (double)(logits[target] - max);
		real sum = row_exp(logits, vocab, max);
		total += log((double)sum) - logit;
		row_scale(logits, vocab, 1 / sum);
		logits[target] -= 1;
	}
	return total;
}

void OP(softmax_max)(const struct columns *c, const real *logits, size_t rows, real *max)
{
	for (size_t row = 0; row < rows; row++, logits += c->stride)
		max[row] = c->count > 0 ? lanes_max(logits, c->count) : REAL_C(-3e38);
}

void OP(softmax_sums)(const struct columns *c, real *logits, const int32_t *targets, size_t rows,
    const real *max, real *sums)
{
	for (size_t row = 0; row < rows; row++, logits += c->stride) {
		size_t target = (size_t)targets[row] - c->first; /* far beyond if it is before */
		sums[2 * row + 1] = target < c->count ? logits[target] - max[row] : 0;
		sums[2 * row] = row_exp(logits, c->count, max[row]);
	}
}

double OP(softmax_finish)(const struct columns *c, real *logits, const int32_t *targets,
    size_t rows, const real *sums)
{
	double total = 0;
	for (size_t row = 0; row < rows; row++, logits += c->stride) {
		size_t target = (size_t)targets[row] - c->first;
		total += log((double)sums[2 * row]) - (double)sums[2 * row + 1];
		row_scale(logits, c->count, 1 / sums[2 * row]);
		for (size_t i = c->count; i < c->stride; i++)
			logits[i] = 0;
		if (target < c->count)
			logits[target] -= 1;
	}
	return total;
}
