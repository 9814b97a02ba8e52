/* The ops for processors with AVX2 (scripts/worker.mk sets -march=x86-64-v3 for this file). */
#define OP_VARIANT x86_v3
#include "daemon/worker/ops_all.h"

extern const struct ops ops_x86_v3;
const struct ops ops_x86_v3 = OPS_TABLE("AVX2");
