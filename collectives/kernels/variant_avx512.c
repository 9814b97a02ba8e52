/* The loops for x86 processors with AVX-512 (scripts/kernels.mk sets the flags for this file). */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define VARIANT_NAME "avx512"
#include "collectives/kernels/variant_loops.h"

const struct variant *const variant_avx512 = &table;
#else
#include "collectives/kernels/variant.h"

const struct variant *const variant_avx512 = NULL;
#endif
