#include "daemon/worker/gemm.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>

#ifdef REAL_IS_DOUBLE
#define cblas_gemm     cblas_dgemm
#define cblas_omatcopy cblas_domatcopy
#else
#define cblas_gemm     cblas_sgemm
#define cblas_omatcopy cblas_somatcopy
#endif

void gemm_setup(void)
{
	openblas_set_num_threads(1);
}

static int blas_int(size_t value)
{
	assert(value <= INT_MAX);
	return (int)value;
}

void gemm_nn(size_t m, size_t n, size_t k, real alpha, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride)
{
	cblas_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blas_int(m), blas_int(n), blas_int(k),
	    alpha, a, blas_int(a_stride), b, blas_int(b_stride), beta, c, blas_int(c_stride));
}

void gemm_nt(size_t m, size_t n, size_t k, real alpha, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride)
{
	cblas_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas_int(m), blas_int(n), blas_int(k),
	    alpha, a, blas_int(a_stride), b, blas_int(b_stride), beta, c, blas_int(c_stride));
}

void gemm_tn(size_t m, size_t n, size_t k, real alpha, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride)
{
	cblas_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, blas_int(m), blas_int(n), blas_int(k),
	    alpha, a, blas_int(a_stride), b, blas_int(b_stride), beta, c, blas_int(c_stride));
}

void gemm_transpose(size_t m, size_t n, const real *a, size_t a_stride, real *c, size_t c_stride)
{
	cblas_omatcopy(CblasRowMajor, CblasTrans, blas_int(m), blas_int(n), 1, a,
	    blas_int(a_stride), c, blas_int(c_stride));
}
