/* Files of a folder that is being written: new, whole and on the disk when a call returns TR_OK; and of one that is read. Inside daemon/checkpoint. */
#ifndef TR_DAEMON_CHECKPOINT_CHECKPOINT_FILES_H
#define TR_DAEMON_CHECKPOINT_CHECKPOINT_FILES_H

#include "common/digest.h"
#include "common/error.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/safetensors.h"

/* text NULL: out of memory. */
tr_status checkpoint_put_text(int dir, const char *name, const char *text, struct tr_error *error);

#define CHECKPOINT_ARRAYS_MAX 3
/* The layout's tensors once for each of `count` arrays, under that array's suffix; hex is the file's digest. */
struct checkpoint_arrays {
	const struct layout *layout;
	size_t count;
	const char *suffixes[CHECKPOINT_ARRAYS_MAX];
	const float *values[CHECKPOINT_ARRAYS_MAX]; /* NULL: */
	const struct checkpoint_source *source;
	unsigned first; /* array of it */
};
tr_status checkpoint_put_arrays(int dir, const char *name, const struct checkpoint_arrays *arrays,
    const struct progress *progress, char hex[TR_DIGEST_HEX_MAX], struct tr_error *error);

/* TR_EDIGEST: what was found is not what the manifest says of the file. */
tr_status checkpoint_compare_digest(const char *name, const char *digest, struct tr_digest found,
    struct tr_error *error);
/* Its bytes have the digest that the manifest names, or TR_EDIGEST. */
tr_status checkpoint_check_file(const char *name, const char *digest,
    const struct progress *progress, const struct safetensors *file, struct tr_error *error);

#endif
