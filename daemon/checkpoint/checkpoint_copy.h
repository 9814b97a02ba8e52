/* A checkpoint's files as one row of bytes: read where they are, written where they are not. Who reads compares their digests with what the manifest says, so nobody gets a copy of what is damaged.
 *
 *	int64_t sizes[CHECKPOINT_COPY_FILES];
 *	status = checkpoint_copy_open("/home/me/run/step-00000400", &manifest, &from, sizes, &error);      // there
 *	status = checkpoint_copy_begin("/home/me/run/step-00000400", sizes, &to, &error);       // here
 *	while (status == TR_OK && left > 0)                                                     // of checkpoint_copy_bytes(sizes), piece by piece
 *		status = checkpoint_copy_read(&from, piece, n, &error), then checkpoint_copy_write(&to, piece, n, &error)
 *	status = checkpoint_copy_end(&to, status == TR_OK, &error);
 *	checkpoint_copy_close(&from);
 *
 * One thread at a time. Errors: TR_EIO, of the disk; TR_EDIGEST; TR_EINVAL: sizes that no checkpoint has, a path that names no step.
 */
#ifndef TR_DAEMON_CHECKPOINT_CHECKPOINT_COPY_H
#define TR_DAEMON_CHECKPOINT_CHECKPOINT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/checkpoint_dir.h"

enum { CHECKPOINT_COPY_FILES = 5 };

struct checkpoint_copy {
	struct checkpoint_dir dir; /* of a writer */
	int folder, fd;            /* fd: of the file under way; -1: none */
	int64_t sizes[CHECKPOINT_COPY_FILES];
	unsigned next;                   /* file */
	int64_t left;                    /* of the one under way */
	const struct manifest *manifest; /* of a reader */
	struct tr_digest_stream digest;  /* of what was read of the one under way */
	uint64_t step;                   /* of a writer, as the next ones */
	int lock;
	bool elsewhere; /* another worker of this machine makes it */
};

/* `path`: a step's folder, whose manifest stays borrowed. sizes: bytes of each file, in the order in which they follow each other; -1: it has no such file. */
tr_status checkpoint_copy_open(const char *path, const struct manifest *manifest,
    struct checkpoint_copy *copy, int64_t sizes[CHECKPOINT_COPY_FILES], struct tr_error *error);
/* The next `bytes` of it. TR_EDIGEST: with them a file ends that is not the one of the manifest. */
tr_status checkpoint_copy_read(struct checkpoint_copy *copy, void *to, size_t bytes,
    struct tr_error *error);
void checkpoint_copy_close(struct checkpoint_copy *copy);

/* The folder is made, under a hidden name. Of several workers that share the disk the first makes the copy: from the others nothing is written. */
tr_status checkpoint_copy_begin(const char *path, const int64_t sizes[CHECKPOINT_COPY_FILES],
    struct checkpoint_copy *copy, struct tr_error *error);
tr_status checkpoint_copy_write(struct checkpoint_copy *copy, const void *from, size_t bytes,
    struct tr_error *error);
/* Synced, it gets its name, and `latest` points to it, if that names none of more steps; another one of that step becomes step-00000400.other. Or (whole: false) it is removed. Where another worker
 * makes it, it is there when this returns, if that one could. Ends copy in any case. */
tr_status checkpoint_copy_end(struct checkpoint_copy *copy, bool whole, struct tr_error *error);
/* After it: of copies in the folder to which the job writes itself no more are kept than of what it writes. */
void checkpoint_copy_prune(const struct checkpoint_folder *folder, const char *path);

/* Of all files. UINT64_MAX: no checkpoint has such sizes. */
uint64_t checkpoint_copy_bytes(const int64_t sizes[CHECKPOINT_COPY_FILES]);

#endif
