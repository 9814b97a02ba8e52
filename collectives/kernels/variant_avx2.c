/* The loops for x86 processors with AVX2 and F16C (scripts/kernels.mk sets the flags for this file). */
#if defined(__AVX2__) && defined(__F16C__)
#define VARIANT_NAME "avx2"
#include "collectives/kernels/variant_loops.h"

const struct variant *const variant_avx2 = &table;
#else
#include "collectives/kernels/variant.h"

const struct variant *const variant_avx2 = NULL;
#endif
