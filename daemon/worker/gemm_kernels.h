/* Which kernels OpenBLAS runs, and whether this processor could run better ones. */
#ifndef TR_DAEMON_WORKER_GEMM_KERNELS_H
#define TR_DAEMON_WORKER_GEMM_KERNELS_H

#include <stdbool.h>

/* What the processor can do and what OpenBLAS is told and says of itself. */
struct gemm_kernels {
	const char *asked;  /* OPENBLAS_CORETYPE; NULL or "": OpenBLAS chooses */
	const char *core;   /* openblas_get_corename() */
	const char *config; /* openblas_get_config() */
	bool avx2, avx512;  /* of x86-64 */
};

/* The name of kernels that are faster by a factor, or NULL: there are none, OpenBLAS has been told which to take, or it was built for
 * one processor and cannot be told. Pure. */
const char *gemm_kernels_better(const struct gemm_kernels *kernels);
/* The same of OpenBLAS as this process has it, on this processor. */
const char *gemm_kernels_missed(const char *asked);
/* One line of log about them: a warning if there are better ones. */
void gemm_kernels_log(const char *asked);

#endif
