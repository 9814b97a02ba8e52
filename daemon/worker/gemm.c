#include "daemon/worker/gemm.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "common/log.h"

#ifdef REAL_IS_DOUBLE
#define cblas_gemm cblas_dgemm
#else
#define cblas_gemm cblas_sgemm
#endif

#ifdef __x86_64__
static bool one_of(const char *name, const char *const *names)
{
	for (; *names != NULL; names++)
		if (strcmp(name, *names) == 0)
			return true;
	return false;
}

/* OpenBLAS falls back to older kernels on processors that it does not know, at half the speed or
 * less. */
static const char *better_than(const char *core)
{
	static const char *const avx512[] = { "SkylakeX", "Cooperlake", "Sapphirerapids",
		"SapphireRapids", NULL };
	static const char *const old[] = { "Generic", "Prescott", "Core2", "Penryn", "Dunnington",
		"Nehalem", "Atom", "Athlon", "Opteron", "Barcelona", "Bobcat", "Sandybridge",
		NULL };
	if (__builtin_cpu_supports("avx512dq") && !one_of(core, avx512))
		return "SkylakeX";
	if (__builtin_cpu_supports("avx2") && one_of(core, old))
		return "Haswell";
	return NULL;
}
#else
static const char *better_than(const char *core)
{
	(void)core;
	return NULL;
}
#endif

void gemm_setup(void)
{
	openblas_set_num_threads(1);
	const char *core = openblas_get_corename(), *better = better_than(core);
	log_info("gemm", "OpenBLAS uses its %s kernels", core);
	if (better != NULL)
		log_warn("gemm",
		    "this processor can run the faster %s kernels: set OPENBLAS_CORETYPE=%s",
		    better, better);
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
