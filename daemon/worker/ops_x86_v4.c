/* The ops for processors with AVX-512 (scripts/worker.mk sets -march=x86-64-v4 for this file). */
#define OP_VARIANT x86_v4
#include "daemon/worker/ops_all.h"

extern const struct ops ops_x86_v4;
const struct ops ops_x86_v4 = OPS_TABLE("AVX-512");
