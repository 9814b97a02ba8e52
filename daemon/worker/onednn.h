/* oneDNN, found when a job asks for it (train.dtype: bf16), or of itself where it is known to be faster in f32 than OpenBLAS: products compiled for this processor. It is an optional library, of 40 MB and with an
 * OpenMP runtime of its own, so it is opened by name and no other worker pays for it. Our pool's threads call it, each for itself alone.
 */
#ifndef TR_DAEMON_WORKER_ONEDNN_H
#define TR_DAEMON_WORKER_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Of one thread: the products that it has compiled so far. */
struct onednn;

/* What is multiplied; sums and results are f32. */
enum onednn_type { ONEDNN_F32, ONEDNN_BF16 };

/* TR_ENOTFOUND: there is no oneDNN 2, or this processor has no instructions for bf16, or is none on which f32 was measured to be faster than OpenBLAS (docs/trainer.md); the words say which. TR_ENOMEM. */
tr_status onednn_create(enum onednn_type type, struct onednn **onednn, struct tr_error *error);
void onednn_destroy(struct onednn *onednn); /* accepts NULL */

/* C[m, n] = A[m, k] B[k, n] + beta C, beta 0 or 1; each operand as it lies: element (i, j) of A is at i * a_strides[0] + j * a_strides[1], one of which is 1. C's rows are c_stride apart. */
struct onednn_product {
	size_t m, n, k;
	size_t a_strides[2], b_strides[2], c_stride;
	bool add; /* beta 1 */
};

/* a, b: of its type, bf16 as uint16_t. In the thread that made `onednn`, from its first call on. False: it could not be compiled; C is as it was. Should the product itself fail, C is not a number anywhere: no step is
 * made of that (optim.h). */
bool onednn_multiply(struct onednn *onednn, const struct onednn_product *product, const void *a,
    const void *b, float *c);

#endif
