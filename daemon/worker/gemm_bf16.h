/* Matrix products of numbers rounded to bf16, with f32 sums and results: on oneDNN, which takes half the time of f32 where the processor has instructions for bf16 (onednn.h); elsewhere
 * the rounded numbers go through gemm.h: the same but for the order of sums, and slower than f32. Row-major; strides are counted in numbers from row to row. Each product
 * runs in the thread that asks for it, with scratch of its own.
 *
 *	gemm_bf16_create(ops, a_numbers, b_numbers, &g, &error);             // one a thread
 *	ops->to_bf16(weights, in, out, out, rounded);                        // once a step
 *	gemm_bf16_nn(g, rows, out, in, x, in, rounded, out, 0, y, out);      // y = x W, x is rounded on the way
 */
#ifndef TR_DAEMON_WORKER_GEMM_BF16_H
#define TR_DAEMON_WORKER_GEMM_BF16_H

#include <stdbool.h>

#include "common/error.h"
#include "daemon/worker/ops.h"

struct gemm_bf16;

/* Room for operands of so many numbers: m * k of A, k * n of B. `plain`: without oneDNN. TR_ENOMEM. */
tr_status gemm_bf16_create(const struct ops *ops, size_t a_numbers, size_t b_numbers, bool plain,
    struct gemm_bf16 **gemm, struct tr_error *error);
void gemm_bf16_destroy(struct gemm_bf16 *gemm); /* accepts NULL */

/* Why it is not fast, in words; NULL: it is. */
const char *gemm_bf16_slow(const struct gemm_bf16 *gemm);

/* C[m, n] = A[m, k] B[k, n] + beta C, beta 0 or 1 */
void gemm_bf16_nn(struct gemm_bf16 *gemm, size_t m, size_t n, size_t k, const real *a,
    size_t a_stride, const uint16_t *b, size_t b_stride, real beta, real *c, size_t c_stride);
/* C[m, n] = A[m, k] B[n, k]^T + beta C */
void gemm_bf16_nt(struct gemm_bf16 *gemm, size_t m, size_t n, size_t k, const real *a,
    size_t a_stride, const uint16_t *b, size_t b_stride, real beta, real *c, size_t c_stride);
/* C[m, n] = A[k, m]^T B[k, n] + beta C: both are rounded on the way */
void gemm_bf16_tn(struct gemm_bf16 *gemm, size_t m, size_t n, size_t k, const real *a,
    size_t a_stride, const real *b, size_t b_stride, real beta, real *c, size_t c_stride);

#endif
