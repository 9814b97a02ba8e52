/* A checkpoint that several write, each its own shard, into a folder that all of them see; and how it is read. Nobody has the whole model, and nothing of it goes over the network.
 *
 *	step-00000200/
 *	  shard-00000.safetensors   of shard 0 (mesh_shards.h): parameters as NAME, moments NAME.exp_avg and NAME.exp_avg_sq, NAME.outer_momentum, shapes as in the shard
 *	  shard-00001.safetensors   ...
 *	  config.json
 *	  manifest.json             the mesh, and the digest of each
 *
 * Who writes agrees on a `key` beforehand, of which there is one for each try: it names the hidden folder. When all shards are written and synced one of them publishes, which looks
 * whether it sees all files: on machines that share no folder it does not. Until then there is no such checkpoint.
 *
 *	st = checkpoint_write_shard(&folder, 200, key, 3, &local, &arrays, &progress, &digest, &error);    // each
 *	manifest.shards.files[3] = the hex of digest                                                       // for each, as it has said
 *	st = checkpoint_publish_shards(&folder, &whole, &manifest, key, path, &error);                     // one
 *	checkpoint_drop_shards(&folder, 200, key);                                                         // or each, if it is given up; not while one publishes
 *
 * Any mesh reads any other's: of each shard that a new one has something in common with the file is opened, its digest compared, and what is needed is read (checkpoint_read, checkpoint_read_shard).
 */
#ifndef TR_DAEMON_CHECKPOINT_CHECKPOINT_SHARDS_H
#define TR_DAEMON_CHECKPOINT_CHECKPOINT_SHARDS_H

#include "common/digest.h"
#include "daemon/checkpoint/checkpoint.h"

struct checkpoint_wanted;

/* All arrays but gradients; outer NULL: there is none. Any thread. TR_EIO. */
tr_status checkpoint_write_shard(const struct checkpoint_folder *folder, uint64_t step,
    uint64_t key, uint32_t number, const struct layout *local, const struct optim_arrays *arrays,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error);
/* manifest->shards says all but what names them together, which is filled, as is ->config. TR_EINVAL: a shard's file is not there; TR_ESTALE: nor is the first, as the folder was removed: it may begin anew. */
tr_status checkpoint_publish_shards(const struct checkpoint_folder *folder,
    const struct layout *whole, struct manifest *manifest, uint64_t key,
    char path[CHECKPOINT_PATH_MAX], struct tr_error *error);
void checkpoint_drop_shards(const struct checkpoint_folder *folder, uint64_t step, uint64_t key);

/* Inside daemon/checkpoint: what is wanted of the checkpoint in `folder`, which is in shards. */
tr_status checkpoint_load_shards(const char *folder, const struct checkpoint_wanted *wanted,
    const struct manifest *manifest, struct tr_error *error);

#endif
