/* The whole model, its sources as they ship, compiled here for double: derivatives and sums of shards can be told from rounding then. Included once, first. */
#ifndef TR_TESTS_MODEL_IN_DOUBLE_H
#define TR_TESTS_MODEL_IN_DOUBLE_H

#define REAL_IS_DOUBLE
#include "daemon/worker/backward.c"
#define embed_part   forward_embed_part
#define weights_part head_weights_part
#include "daemon/worker/forward.c"
#include "daemon/worker/gemm.c"
#include "daemon/worker/gemm_bf16.c"
#include "daemon/worker/head.c"
#include "daemon/worker/model.c"
#include "daemon/worker/model_dropout.c"
#include "daemon/worker/model_init.c"
#include "daemon/worker/ops.c"
#include "daemon/worker/ops_all.h"
#include "daemon/worker/parts.c"
#include "daemon/worker/product.c"
#include "daemon/worker/rope.c"
#include "daemon/worker/sequence.c"
#include "daemon/worker/slots.c"
#include "daemon/worker/tensor.c"
#include "daemon/worker/virtual.c"
#include "daemon/worker/virtual_arrays.c"
#include "daemon/worker/virtual_meeting.c"

#endif
