/* The parameters (or moments) of a layout as named tensors of a safetensors file. */
#ifndef TR_DAEMON_CHECKPOINT_WEIGHTS_H
#define TR_DAEMON_CHECKPOINT_WEIGHTS_H

#include "daemon/checkpoint/layout.h"
#include "daemon/checkpoint/safetensors.h"
#include "daemon/checkpoint/shard.h"

/* Appends the layout's tensors as `name` + `suffix` to items (room for layout->tensor_count). Returns what holds
 * the names' text: free() it after the items. NULL: out of memory. */
void *weights_items(const struct layout *layout, const char *suffix, const float *values,
    struct safetensors_item *items);

/* Copies every tensor of the layout from the file; what is missing or of another shape is an error, and `values` is then partly
 * written. Gaps are not touched. */
tr_status weights_load(const struct layout *layout, const char *suffix,
    const struct safetensors *file, float *values, struct tr_error *error);

/* The same of a shard: of each tensor of `whole` in the file what `local` has, which is zeroed before. `progress` is told (NULL: nobody) after each. */
tr_status weights_load_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, const char *suffix, const struct safetensors *file,
    const struct progress *progress, float *values, struct tr_error *error);

#endif
