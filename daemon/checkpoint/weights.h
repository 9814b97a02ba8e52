/* The parameters (or moments) of a layout as named tensors of a safetensors file. */
#ifndef TR_DAEMON_CHECKPOINT_WEIGHTS_H
#define TR_DAEMON_CHECKPOINT_WEIGHTS_H

#include "daemon/checkpoint/layout.h"
#include "daemon/checkpoint/safetensors.h"
#include "daemon/checkpoint/shard.h"

/* What a tensor is called under a suffix. */
void weights_name(const struct layout_tensor *tensor, const char *suffix,
    char name[SAFETENSORS_NAME_MAX]);
/* Appends the layout's tensors as `name` + `suffix` to items (room for layout->tensor_count). Returns what holds
 * the names' text: free() it after the items. NULL: out of memory. */
void *weights_items(const struct layout *layout, const char *suffix, const float *values,
    struct safetensors_item *items);

/* Copies every tensor of the layout from the file; what is missing or of another shape is an error, and `values` is then partly
 * written. Gaps are not touched. */
tr_status weights_load(const struct layout *layout, const char *suffix,
    const struct safetensors *file, float *values, struct tr_error *error);

/* Of tensor `tensor` of the layout that the file has, under that suffix: `whole` of a piece is a place in that layout's arrays, `local` one in `values`. */
tr_status weights_load_pieces(const struct layout *layout, size_t tensor, const char *suffix,
    const struct safetensors *file, const struct shard_piece *pieces, size_t count,
    const struct progress *progress, float *values, struct tr_error *error);

/* The same of a shard: of each tensor of `whole` in the file what `local` has, which is zeroed before. `progress` is told (NULL: nobody) after each. */
tr_status weights_load_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, const char *suffix, const struct safetensors *file,
    const struct progress *progress, float *values, struct tr_error *error);

#endif
