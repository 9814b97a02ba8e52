/* The loops as every processor of this architecture runs them: SSE2 on x86-64, NEON on 64-bit ARM. */
#if defined(__aarch64__)
#define VARIANT_NAME "neon"
#elif defined(__x86_64__)
#define VARIANT_NAME "sse2"
#else
#define VARIANT_NAME "portable"
#endif
#include "collectives/kernels/variant_loops.h"

const struct variant *const variant_base = &table;
