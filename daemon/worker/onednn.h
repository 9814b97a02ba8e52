/* oneDNN, found when a job asks for it (train.precision: bf16): products of bf16 numbers compiled for this processor. It is an optional library, of 40 MB and with an OpenMP runtime of its own,
 * so it is opened by name and no other worker pays for it. Our pool's threads call it, each for itself alone.
 */
#ifndef TR_DAEMON_WORKER_ONEDNN_H
#define TR_DAEMON_WORKER_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Of one thread: the products that it has compiled so far. */
struct onednn;

/* TR_ENOTFOUND: there is no oneDNN 2, or this processor has no instructions for bf16; the words say which. TR_ENOMEM. */
tr_status onednn_create(struct onednn **onednn, struct tr_error *error);
void onednn_destroy(struct onednn *onednn); /* accepts NULL */

/* C[m, n] = A[m, k] B[k, n] + beta C, beta 0 or 1; each operand as it lies: element (i, j) of A is at i * a_strides[0] + j * a_strides[1], one of which is 1. C's rows are c_stride apart. */
struct onednn_product {
	size_t m, n, k;
	size_t a_strides[2], b_strides[2], c_stride;
	bool add; /* beta 1 */
};

/* In the thread that made `onednn`, from its first call on. False: it could not be compiled; C is as it was. Should the product itself fail, C is not a number anywhere: no step is
 * made of that (optim.h). */
bool onednn_multiply(struct onednn *onednn, const struct onednn_product *product, const uint16_t *a,
    const uint16_t *b, float *c);

#endif
