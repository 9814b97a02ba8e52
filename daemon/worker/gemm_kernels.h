/* Which kernels OpenBLAS runs, and whether this processor could run better ones. */
#ifndef TR_DAEMON_WORKER_GEMM_KERNELS_H
#define TR_DAEMON_WORKER_GEMM_KERNELS_H

#include <stdbool.h>

#define GEMM_KERNELS_VARIABLE \
	"OPENBLAS_CORETYPE" /* of the environment, which OpenBLAS reads before main */

/* What the processor can do and what OpenBLAS is told and says of itself. */
struct gemm_kernels {
	const char *asked;  /* the variable; NULL or "": OpenBLAS chooses */
	const char *core;   /* openblas_get_corename() */
	const char *config; /* openblas_get_config() */
	bool avx2, avx512;  /* of x86-64 */
};

/* The name of kernels that are faster by a factor, or NULL: there are none, OpenBLAS has been told which to take, or it was built for
 * one processor and cannot be told. Pure. */
const char *gemm_kernels_better(const struct gemm_kernels *kernels);
/* Begins this program again, with `argv` and the better kernels, where this process has other ones. Returns where it has not, or it cannot be. Nothing may be open yet. */
void gemm_kernels_prefer(const char *asked, char **argv);
/* One line of log about them: a warning if there are better ones. */
void gemm_kernels_log(const char *asked);

#endif
