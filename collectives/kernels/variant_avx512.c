/* The loops for x86 processors with AVX-512 (scripts/kernels.mk sets the flags for this file). */
#include "collectives/kernels/variant.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "collectives/kernels/variant_loops.h"

static const struct variant table = VARIANT_TABLE("avx512");
const struct variant *const variant_avx512 = &table;
#else
const struct variant *const variant_avx512 = NULL;
#endif
