#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/json.h"
#include "daemon/checkpoint/safetensors.h"

#define WRITE_PIECE (4u << 20)
/* What the kernel may hold back of a file before it is made to write it. */
#define SYNC_PIECE (64u << 20)

struct output {
	int fd;
	XXH3_state_t *hash;
	float *piece; /* of what a source reads; NULL: nothing was read yet */
	const struct progress *progress;
	off_t written,
	    sent; /* sent: on its way to the disk; all but the last SYNC_PIECE of that is there */
};

/* So that the last fsync has little left to do: with a large memory all of a checkpoint would wait for it, and it would take minutes. The piece before is
 * waited for, so the disk always has one to write. Not every file system can; but an error of the disk is told once, maybe here. */
static tr_status send_piece(struct output *out, struct tr_error *error)
{
	off_t before = out->sent > SYNC_PIECE ? SYNC_PIECE : out->sent;
	int failed = sync_file_range(out->fd, out->sent, out->written - out->sent,
	    SYNC_FILE_RANGE_WRITE);
	if (failed == 0 && before > 0)
		failed = sync_file_range(out->fd, out->sent - before, before,
		    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
		        SYNC_FILE_RANGE_WAIT_AFTER);
	out->sent = out->written;
	if (failed != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
		return tr_error_set(error, TR_EIO, "cannot write: %s", strerror(errno));
	return TR_OK;
}

static tr_status put(struct output *out, const void *data, size_t bytes, struct tr_error *error)
{
	const char *at = data;
	while (bytes > 0) {
		if (progress_cancelled(out->progress))
			return tr_error_set(error, TR_ECANCELLED, "it was given up");
		ssize_t wrote = write(out->fd, at, bytes < WRITE_PIECE ? bytes : WRITE_PIECE);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return tr_error_set(error, TR_EIO, "cannot write: %s", strerror(errno));
		(void)XXH3_128bits_update(out->hash, at, (size_t)wrote);
		at += wrote;
		bytes -= (size_t)wrote;
		out->written += wrote;
		if (out->written - out->sent >= SYNC_PIECE && send_piece(out, error) != TR_OK)
			return TR_EIO;
		progress_tell(out->progress);
	}
	return TR_OK;
}

static size_t item_numbers(const struct safetensors_item *item)
{
	return (size_t)((item->rows > 0 ? item->rows : 1) * item->columns);
}

static size_t item_bytes(const struct safetensors_item *item)
{
	return item_numbers(item) * sizeof(float);
}

/* Through one piece of memory. */
static tr_status put_read(struct output *out, const struct safetensors_source *source, size_t item,
    size_t numbers, struct tr_error *error)
{
	const size_t most = WRITE_PIECE / sizeof(float);
	tr_status status = TR_OK;
	if (out->piece == NULL && (out->piece = malloc(WRITE_PIECE)) == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a piece of a tensor");
	for (size_t first = 0; first < numbers && status == TR_OK;) {
		size_t end = numbers - first > most ? first + most : numbers;
		source->read(source->arg, item, first, end, out->piece);
		status = put(out, out->piece, (end - first) * sizeof(float), error);
		first = end;
	}
	return status;
}

static void describe(struct json *j, const struct safetensors_item *items, size_t count)
{
	uint64_t at = 0;
	json_object(j);
	json_key(j, "__metadata__");
	json_object(j);
	json_key(j, "format");
	json_string(j, "pt");
	json_end(j);
	for (size_t i = 0; i < count; i++) {
		json_key(j, items[i].name);
		json_object(j);
		json_key(j, "dtype");
		json_string(j, "F32");
		json_key(j, "shape");
		json_array(j);
		if (items[i].rows > 0)
			json_uint(j, items[i].rows);
		json_uint(j, items[i].columns);
		json_end(j);
		json_key(j, "data_offsets");
		json_array(j);
		json_uint(j, at);
		json_uint(j, at += item_bytes(&items[i]));
		json_end(j);
		json_end(j);
	}
	json_end(j);
}

static tr_status put_header(struct output *out, const struct safetensors_item *items, size_t count,
    struct tr_error *error)
{
	struct json j = { 0 };
	describe(&j, items, count);
	const char *text = json_text(&j);
	if (text == NULL) {
		json_finish(&j);
		return tr_error_set(error, TR_ENOMEM, "no memory for a header");
	}
	size_t length = strlen(text), padded = (length + 7) / 8 * 8;
	unsigned char prefix[8];
	for (int i = 0; i < 8; i++)
		prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
	tr_status status = put(out, prefix, sizeof(prefix), error);
	if (status == TR_OK)
		status = put(out, text, length, error);
	if (status == TR_OK)
		status = put(out, "        ", padded - length, error);
	json_finish(&j);
	return status;
}

tr_status safetensors_write(int fd, const struct safetensors_item *items, size_t count,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error)
{
	struct output out = { .fd = fd, .hash = XXH3_createState(), .progress = progress };
	if (out.hash == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a digest");
	(void)XXH3_128bits_reset(out.hash);
	tr_status status = put_header(&out, items, count, error);
	for (size_t i = 0; status == TR_OK && i < count; i++)
		status = items[i].data != NULL
		    ? put(&out, items[i].data, item_bytes(&items[i]), error)
		    : put_read(&out, items[i].source, i, item_numbers(&items[i]), error);
	if (status == TR_OK) {
		XXH128_hash_t hash = XXH3_128bits_digest(out.hash);
		*digest = (struct tr_digest){ hash.low64, hash.high64 };
	}
	(void)XXH3_freeState(out.hash);
	free(out.piece);
	return status;
}
