/* Matrix products, on OpenBLAS. Row-major; strides are counted in numbers from row to row.
 * OpenBLAS runs each product in the thread that asks for it: parallel work is pool.h's. Any thread.
 */
#ifndef TR_DAEMON_WORKER_GEMM_H
#define TR_DAEMON_WORKER_GEMM_H

#include <stddef.h>

#include "daemon/worker/real.h"

/* Call once before the first product. */
void gemm_setup(void);

/* C[m, n] = alpha A[m, k] B[k, n] + beta C */
void gemm_nn(size_t m, size_t n, size_t k, real alpha, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride);
/* C[m, n] = alpha A[m, k] B[n, k]^T + beta C */
void gemm_nt(size_t m, size_t n, size_t k, real alpha, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride);
/* C[m, n] = alpha A[k, m]^T B[k, n] + beta C */
void gemm_tn(size_t m, size_t n, size_t k, real alpha, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride);
/* C[n, m] = A[m, n]^T */
void gemm_transpose(size_t m, size_t n, const real *a, size_t a_stride, real *c, size_t c_stride);

#endif
