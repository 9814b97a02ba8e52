/* The safetensors format (https://github.com/huggingface/safetensors): 8 bytes of header length, little endian; a JSON header;
 * the tensors' bytes, without holes. Written here: header padded with spaces, so that those begin at a multiple of 8 (in a large file of
 * BULK_ALIGNMENT: bulk_file.h), "__metadata__": {"format": "pt"}, F32.
 *
 * Reading trusts nothing: every length, shape and offset is checked before it is used, and nothing is allocated by an
 * unchecked number.
 */
#ifndef TR_DAEMON_CHECKPOINT_SAFETENSORS_H
#define TR_DAEMON_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"
#include "common/progress.h"

#define SAFETENSORS_NAME_MAX 256
#define SAFETENSORS_DIMS_MAX 8

enum safetensors_dtype {
	SAFETENSORS_F32,
	SAFETENSORS_I32,
	SAFETENSORS_I64,
	SAFETENSORS_F64,
	SAFETENSORS_F16,
	SAFETENSORS_BF16,
	SAFETENSORS_I8,
	SAFETENSORS_U8,
	SAFETENSORS_I16,
	SAFETENSORS_BOOL
};

struct safetensors_tensor {
	char name[SAFETENSORS_NAME_MAX];
	enum safetensors_dtype dtype;
	unsigned dims;
	uint64_t shape[SAFETENSORS_DIMS_MAX];
	uint64_t at; /* of the file's bytes; not necessarily aligned */
	size_t bytes;
};

struct safetensors {
	const void *bytes; /* the whole file, in memory; NULL: it is read from `fd` */
	int fd;            /* -1: none */
	size_t size;
	size_t count;
	struct safetensors_tensor *tensors; /* sorted by name */
};

/* Reads the header of a file in memory. `data` stays borrowed until safetensors_close. */
tr_status safetensors_parse(const void *data, size_t size, struct safetensors *file,
    struct tr_error *error);
/* Opens a file and reads its header. Nothing is mapped: what the disk does not give up, or became shorter meanwhile, is an error and no SIGBUS. */
tr_status safetensors_open(const char *path, struct safetensors *file, struct tr_error *error);
/* Gives the descriptor back and keeps the table of tensors, for a model of more files than a process may have open; and opens it once more: TR_EIO if it has another size now. */
void safetensors_rest(struct safetensors *file);
tr_status safetensors_open_again(const char *path, struct safetensors *file, struct tr_error *error);
/* Copies `bytes` of the file from byte `at`, which a tensor has. TR_EIO: the disk does not give them. */
tr_status safetensors_read(const struct safetensors *file, uint64_t at, size_t bytes, void *to,
    struct tr_error *error);
/* Of the whole file's bytes; tells progress every few MiB. */
tr_status safetensors_digest(const struct safetensors *file, const struct progress *progress,
    struct tr_digest *digest, struct tr_error *error);
void safetensors_close(struct safetensors *file);
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
const char *safetensors_dtype_name(enum safetensors_dtype dtype); /* "BF16" */
/* Where the tensor's data is, if it is there as F32 [rows, columns] (rows 0: [columns]); the error says what was found. */
tr_status safetensors_find_f32(const struct safetensors *file, const char *name, uint64_t rows,
    uint64_t columns, uint64_t *at, struct tr_error *error);

/* Numbers that are nowhere in one piece. */
struct safetensors_source {
	/* Of item `item` the numbers [first, end), into to[0 .. end - first). */
	void (*read)(void *arg, size_t item, size_t first, size_t end, float *to);
	void *arg;
};

struct safetensors_item {
	const char *name;
	uint64_t rows, columns; /* rows 0: a vector */
	const float *data;      /* NULL: */
	const struct safetensors_source *source;
};

/* Writes a whole file to `fd`; *digest is of its bytes. `progress` (may be NULL) is called every few MiB. Items that lie in memory as in the file, one
 * behind the other and the first at a multiple of BULK_ALIGNMENT, are not copied on their way to the disk. */
tr_status safetensors_write(int fd, const struct safetensors_item *items, size_t count,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error);

#endif
