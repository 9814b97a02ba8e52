/* Softmax and cross-entropy in one pass over the logits. */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

double OP(softmax_loss)(real *logits, const int32_t *targets, size_t rows, size_t vocab)
{
	double total = 0;
	for (size_t row = 0; row < rows; row++, logits += vocab) {
		real max = lanes_max(logits, vocab), lane[LANES] = { 0 };
		size_t target = (size_t)targets[row], i = 0;
		double logit = (double)(logits[target] - max);
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
		real sum = lanes_fold(lane), scale = 1 / sum;
		total += log((double)sum) - logit;
		for (i = 0; i < vocab; i++)
			logits[i] *= scale;
		logits[target] -= 1;
	}
	return total;
}
