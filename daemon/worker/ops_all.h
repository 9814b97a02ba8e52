/* All ops again, under the name and for the machine of the file that includes this. No include
 * guard on purpose: a program may hold several variants, each in its own file. */
#include "daemon/worker/ops_adamw.c"
#include "daemon/worker/ops_attention.c"
#include "daemon/worker/ops_bf16.c"
#include "daemon/worker/ops_dropout.c"
#include "daemon/worker/ops_embed.c"
#include "daemon/worker/ops_gelu.c"
#include "daemon/worker/ops_layernorm.c"
#include "daemon/worker/ops_linear.c"
#include "daemon/worker/ops_loss.c"
#include "daemon/worker/ops_rmsnorm.c"
#include "daemon/worker/ops_rotate.c"
#include "daemon/worker/ops_swiglu.c"
