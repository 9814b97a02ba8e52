/* A model whose width is cut into the same parts on any layout (daemon/plan/strict.h): each worker plays all members of the tensor-parallel group that has a part each, one after the other, and so computes
 * with the same shapes and adds in the same order as if these were workers of their own. A room with `members` (slots.h) makes a model such; it is called as any other, but that gradients are summed up
 * in parts of a batch, and are where model_bind said only at a part's end:
 *
 *	model_part_begin(model);
 *	model_gradient(...) or pipeline_gradient(...)      // of the part's sequences
 *	model_part_end(model);                             // the worker's gradients are those of the part
 *
 * Members are threads that run in turn, each until it meets the others at a sum: so the model's code is that of one member, and all share one pool. Where there are as many members as
 * parts, between its products each has its own rows (slots.h, row_parts), so that nothing is computed twice.
 * The worker's own tensor-parallel group (model_use_tensor) is called for what all of its members have made together; what all workers hold is summed up by
 * it too. Its sums have to be trees for the same bits.
 */
#ifndef TR_DAEMON_WORKER_VIRTUAL_H
#define TR_DAEMON_WORKER_VIRTUAL_H

#include "daemon/worker/slots.h"

/* A part of a batch begins: its gradients are 0. Of a model with virtual members. */
void model_part_begin(struct model *model);
/* It ends: gradients of what all hold are summed over all members, and the array that was bound has those of the part; behind them, where the table is tied and both ends of the model are here, the
 * head's (daemon/checkpoint/shard_cut.h). False: the tensor-parallel group said stop. */
bool model_part_end(struct model *model);

/* ---- for the model's own files ---- */

struct virtual_members;

tr_status virtual_create(struct model *model, struct tr_error *error);
void virtual_destroy(struct virtual_members *v); /* accepts NULL */
void virtual_use_tensor(struct model *model, const struct model_tensor *tensor);
tr_status virtual_use_bf16(struct model *model, bool plain, struct tr_error *error);
tr_status virtual_use_dropout(struct model *model, double share, uint64_t seed,
    struct tr_error *error);
const char *virtual_bf16_slow(const struct model *model);
void virtual_use_ops(struct model *model, const struct ops *ops);
struct model_slot *virtual_slot_take(struct model *model, size_t chunk,
    const struct model_batch *batch, const real *input, real *output);
void virtual_slot_give(struct model *model, struct model_slot *slot);
bool virtual_slot_forward(struct model *model, struct model_slot *slot,
    const struct model_hooks *hooks);
bool virtual_slot_backward(struct model *model, struct model_slot *slot, const real *doutput,
    real *dinput, const struct model_hooks *hooks, double *loss_sum);
bool virtual_slot_loss(struct model *model, struct model_slot *slot, double *loss_sum);

#endif
