#include "daemon/checkpoint/bulk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the kernel may hold back of a file before it is made to write it. */
#define SYNC_PIECE (64u << 20)

void bulk_file_begin(struct bulk_file *file, int fd, const struct progress *progress)
{
	*file = (struct bulk_file){ .fd = fd, .progress = progress };
	tr_digest_begin(&file->digest);
}

void bulk_file_finish(struct bulk_file *file)
{
	free(file->block);
	file->block = NULL;
}

/* ---- which way ---- */

static void go_direct(struct bulk_file *file)
{
	int flags = fcntl(file->fd, F_GETFL);
	bool can = flags >= 0 && fcntl(file->fd, F_SETFL, flags | O_DIRECT) == 0;
	file->way = can ? BULK_DIRECT : BULK_CACHED;
}

static void go_cached(struct bulk_file *file)
{
	int flags = file->way == BULK_DIRECT ? fcntl(file->fd, F_GETFL) : -1;
	if (flags >= 0)
		(void)fcntl(file->fd, F_SETFL, flags & ~O_DIRECT);
	file->way = BULK_CACHED;
}

/* ---- writing ---- */

/* Of sync_file_range that was to begin to write: not every file system, and not every sandbox, has it. */
static bool is_none(int cause)
{
	return cause == ENOSYS || cause == EINVAL || cause == EOPNOTSUPP || cause == EPERM;
}

/* So that the last fsync has little left to do: with a large memory all of a checkpoint would wait for it, and it would take minutes. The piece before is
 * waited for, so the disk always has one to write. Whichever way: some file systems take O_DIRECT and keep all in the cache (ext4 with data=journal, ZFS).
 * An error of the disk is told once, maybe here, whatever its number is (a medium's ENODATA, a server's ETIMEDOUT). */
static tr_status send_piece(struct bulk_file *file, struct tr_error *error)
{
	off_t before = file->sent > SYNC_PIECE ? SYNC_PIECE : file->sent;
	int failed = sync_file_range(file->fd, file->sent, file->written - file->sent,
	    SYNC_FILE_RANGE_WRITE);
	bool none = failed != 0 && is_none(errno);
	if (failed == 0 && before > 0)
		failed = sync_file_range(file->fd, file->sent - before, before,
		    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
		        SYNC_FILE_RANGE_WAIT_AFTER);
	file->sent = file->written;
	if (failed != 0 && !none)
		return tr_error_set(error, TR_EIO, "cannot write: %s", strerror(errno));
	return TR_OK;
}

static tr_status write_out(struct bulk_file *file, const uint8_t *at, size_t count,
    struct tr_error *error)
{
	while (count > 0) {
		if (progress_cancelled(file->progress))
			return tr_error_set(error, TR_ECANCELLED, "it was given up");
		ssize_t wrote = write(file->fd, at,
		    count < BULK_BLOCK_BYTES ? count : BULK_BLOCK_BYTES);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0 && errno == EINVAL && file->way == BULK_DIRECT) {
			go_cached(
			    file); /* it wants more than BULK_ALIGNMENT, or has no such way after all */
			continue;
		}
		if (wrote <= 0)
			return tr_error_set(error, TR_EIO, "cannot write: %s",
			    strerror(wrote < 0 ? errno : ENOSPC));
		tr_digest_add(&file->digest, at, (size_t)wrote);
		at += wrote;
		count -= (size_t)wrote;
		file->written += wrote;
		if (file->way == BULK_DIRECT && (size_t)wrote % BULK_ALIGNMENT != 0)
			go_cached(file);
		if (file->written - file->sent >= SYNC_PIECE && send_piece(file, error) != TR_OK)
			return TR_EIO;
		progress_tell(file->progress);
	}
	return TR_OK;
}

static tr_status write_held(struct bulk_file *file, struct tr_error *error)
{
	size_t count = file->held;
	if (file->way == BULK_UNDECIDED)
		go_direct(file);
	file->held = 0;
	return write_out(file, file->block, count, error);
}

/* ---- the interface ---- */

tr_status bulk_file_room(struct bulk_file *file, void **room, size_t *most, struct tr_error *error)
{
	if (file->block == NULL)
		file->block = aligned_alloc(BULK_ALIGNMENT, BULK_BLOCK_BYTES);
	if (file->block == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a piece of a file");
	tr_status status = file->held == BULK_BLOCK_BYTES ? write_held(file, error) : TR_OK;
	*room = file->block + file->held;
	*most = BULK_BLOCK_BYTES - file->held;
	return status;
}

void bulk_file_filled(struct bulk_file *file, size_t count)
{
	file->held += count;
}

/* How many bytes go through the block before the rest can be written from where it lies; all of them, where it cannot. */
static size_t before_straight(const struct bulk_file *file, const uint8_t *at, size_t count)
{
	size_t ahead = (BULK_ALIGNMENT - file->held % BULK_ALIGNMENT) % BULK_ALIGNMENT;
	if (file->way == BULK_CACHED)
		ahead = 0;
	else if ((uintptr_t)(at + ahead) % BULK_ALIGNMENT != 0)
		return count;
	return count >= ahead + BULK_BLOCK_BYTES ? ahead : count;
}

tr_status bulk_file_put(struct bulk_file *file, const void *bytes, size_t count,
    struct tr_error *error)
{
	const uint8_t *at = bytes;
	tr_status status = TR_OK;
	while (count > 0 && status == TR_OK) {
		size_t ahead = before_straight(file, at, count), piece = BULK_BLOCK_BYTES;
		void *room;
		if (ahead == 0) {
			status = write_held(file, error);
			if (status == TR_OK)
				status = write_out(file, at, piece, error);
		} else {
			status = bulk_file_room(file, &room, &piece, error);
			if (status != TR_OK)
				break;
			piece = piece < ahead ? piece : ahead;
			memcpy(room, at, piece);
			bulk_file_filled(file, piece);
		}
		at += piece;
		count -= piece;
	}
	return status;
}

tr_status bulk_file_end(struct bulk_file *file, struct tr_digest *digest, struct tr_error *error)
{
	size_t whole = file->way == BULK_DIRECT ? file->held - file->held % BULK_ALIGNMENT : 0;
	tr_status status = write_out(file, file->block, whole, error);
	go_cached(file);
	if (status == TR_OK && file->held > whole)
		status = write_out(file, file->block + whole, file->held - whole, error);
	file->held = 0;
	if (status == TR_OK)
		*digest = tr_digest_end(&file->digest);
	return status;
}
