/* The loops as every processor of this architecture runs them: SSE2 on x86-64, NEON on 64-bit ARM. */
#include "collectives/kernels/variant_loops.h"

#if defined(__aarch64__)
#define NAME "neon"
#elif defined(__x86_64__)
#define NAME "sse2"
#else
#define NAME "portable"
#endif

static const struct variant table = VARIANT_TABLE(NAME);
const struct variant *const variant_base = &table;
