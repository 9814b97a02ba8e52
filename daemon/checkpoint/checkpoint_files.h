/* Files of a folder that is being written: new, whole and on the disk when a call returns TR_OK; and of one that is read. Inside daemon/checkpoint. */
#ifndef TR_DAEMON_CHECKPOINT_CHECKPOINT_FILES_H
#define TR_DAEMON_CHECKPOINT_CHECKPOINT_FILES_H

#include "common/digest.h"
#include "common/error.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/safetensors.h"

/* text NULL: out of memory. */
tr_status checkpoint_put_text(int dir, const char *name, const char *text, struct tr_error *error);

#define CHECKPOINT_ARRAYS_MAX 4
/* The layout's tensors once for each of `count` arrays, under that array's suffix; digest: the file's. */
struct checkpoint_arrays {
	const struct layout *layout;
	size_t count;
	const char *suffixes[CHECKPOINT_ARRAYS_MAX];
	const float *values[CHECKPOINT_ARRAYS_MAX]; /* NULL: */
	const struct checkpoint_source *source;
	unsigned first; /* array of it */
};
tr_status checkpoint_put_arrays(int dir, const char *name, const struct checkpoint_arrays *arrays,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error);

tr_status checkpoint_open_file(const char *folder, const char *name, struct safetensors *file,
    struct tr_error *error);

/* What is to be read, and into what: a shard, or (local NULL) everything. */
struct checkpoint_wanted {
	const struct layout *whole, *local;
	const struct shard *shard;
	const struct optim_arrays *arrays;
	const struct progress *progress;
};

/* TR_EDIGEST: what was found is not what the manifest says of the file. */
tr_status checkpoint_compare_digest(const char *name, const char *digest, struct tr_digest found,
    struct tr_error *error);
/* Its bytes have the digest that the manifest names, or TR_EDIGEST. */
tr_status checkpoint_check_file(const char *name, const char *digest,
    const struct progress *progress, const struct safetensors *file, struct tr_error *error);

#endif
