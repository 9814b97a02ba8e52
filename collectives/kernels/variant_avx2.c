/* The loops for x86 processors with AVX2 and F16C (scripts/kernels.mk sets the flags for this file). */
#include "collectives/kernels/variant.h"

#if defined(__AVX2__) && defined(__F16C__)
#include "collectives/kernels/variant_loops.h"

static const struct variant table = VARIANT_TABLE("avx2");
const struct variant *const variant_avx2 = &table;
#else
const struct variant *const variant_avx2 = NULL;
#endif
