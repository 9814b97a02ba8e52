/* A large file that is written once, from its first byte to its last, and not read again soon: it goes past the page cache (O_DIRECT), so the processor copies
 * nothing of it and what others have in the cache stays there. Where a file system has no such way, the file is a small one, or a write is refused, it goes through the
 * cache. Either way the kernel is made to write what it has of it piece by piece.
 *
 *	struct bulk_file file;
 *	bulk_file_begin(&file, fd, progress);
 *	status = bulk_file_put(&file, numbers, bytes, error);       // ... any number of times
 *	if (status == TR_OK)
 *		status = bulk_file_end(&file, &digest, error);      // then fsync(fd)
 *	bulk_file_finish(&file);
 *
 * One thread. What is put is read before the call returns.
 */
#ifndef TR_DAEMON_CHECKPOINT_BULK_FILE_H
#define TR_DAEMON_CHECKPOINT_BULK_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/digest.h"
#include "common/error.h"
#include "common/limits.h"
#include "common/progress.h"

/* Written at once, at most. From so many bytes on a file is a large one. */
#define BULK_BLOCK_BYTES TR_FILE_BLOCK_BYTES
/* Who puts BULK_BLOCK_BYTES and more whose place in memory and in the file are alike modulo this is spared a copy. */
#define BULK_ALIGNMENT 4096u

enum bulk_way { BULK_UNDECIDED, BULK_DIRECT, BULK_CACHED };

struct bulk_file {
	int fd;
	const struct progress *progress; /* told after each write; NULL: nobody */
	struct tr_digest_stream digest;  /* of what is written */
	enum bulk_way way;
	uint8_t *block; /* [BULK_BLOCK_BYTES]; NULL: nothing was held yet */
	size_t held;    /* in `block`, not written yet */
	off_t written;
	off_t sent; /* on its way to the disk */
};

/* `fd` is at the beginning of an empty file, and stays the caller's. */
void bulk_file_begin(struct bulk_file *file, int fd, const struct progress *progress);
/* TR_EIO: the disk does not take it; TR_ECANCELLED: `progress` was given up; TR_ENOMEM. */
tr_status bulk_file_put(struct bulk_file *file, const void *bytes, size_t count,
    struct tr_error *error);
/* Instead, for who has to put bytes together: where the next ones go, *most of them at most (at least one). Then bulk_file_filled with how many there are. */
tr_status bulk_file_room(struct bulk_file *file, void **room, size_t *most, struct tr_error *error);
void bulk_file_filled(struct bulk_file *file, size_t count);
/* What is still held is written; *digest is of all bytes. */
tr_status bulk_file_end(struct bulk_file *file, struct tr_digest *digest, struct tr_error *error);
/* Gives its memory back, ended or not. */
void bulk_file_finish(struct bulk_file *file);

#endif
