/* Which form of the kernels runs. All give the bits of "plain". At the first call the best one that this machine has is compared with plain
 * (self_check.h); should a bit differ, a line in the log says so and the next best is taken. The names: "plain" (the reference), "sse2", "neon" or "portable" (what the compiler makes of the loops for
 * every machine of this architecture), "avx2" (with F16C), "avx512" (F, BW, DQ, VL).
 *
 *	for (const char *const *name = kernels_variants(); *name != NULL; name++) {
 *		kernels_use(*name);
 *		...                        // compare with plain, measure
 *	}
 *	kernels_use(NULL);
 */
#ifndef TR_COLLECTIVES_KERNELS_DISPATCH_H
#define TR_COLLECTIVES_KERNELS_DISPATCH_H

#include <stdbool.h>

/* The forms that this machine can run, worst first, ended by NULL. Any thread. */
const char *const *kernels_variants(void);
/* For tests and benchmarks: all later calls, in all threads, use this form; NULL: the best that passes its check. False: this machine has no
 * such form, and nothing changes. */
bool kernels_use(const char *name);
const char *kernels_used(void);

#endif
