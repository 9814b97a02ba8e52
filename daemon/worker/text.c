#include "daemon/worker/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/limits.h"

#define READ_PIECE (1u << 20)

static tr_status make_room(struct text *text, size_t *capacity, struct tr_error *error)
{
	if (*capacity - text->size >= READ_PIECE)
		return TR_OK;
	if (text->size + READ_PIECE > TR_DATA_TEXT_BYTES_MAX)
		return tr_error_set(error, TR_ELIMIT, "the text is larger than %zu GiB",
		    TR_DATA_TEXT_BYTES_MAX >> 30);
	size_t wanted = *capacity * 2 + READ_PIECE;
	uint8_t *grown = realloc(text->bytes, wanted);
	if (grown == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for %zu bytes of text", wanted);
	text->bytes = grown;
	*capacity = wanted;
	return TR_OK;
}

static tr_status append_plain(const char *path, struct text *text, size_t *capacity,
    struct tr_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return tr_error_set(error, TR_EIO, "cannot open: %s", strerror(errno));
	tr_status status = TR_OK;
	for (;;) {
		status = make_room(text, capacity, error);
		if (status != TR_OK)
			break;
		ssize_t got = read(fd, text->bytes + text->size, READ_PIECE);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			status = tr_error_set(error, TR_EIO, "cannot read: %s", strerror(errno));
		if (got <= 0)
			break;
		text->size += (size_t)got;
	}
	(void)close(fd);
	return status;
}

static tr_status append_gz(const char *path, struct text *text, size_t *capacity,
    struct tr_error *error)
{
	gzFile file = gzopen(path, "rbe");
	if (file == NULL)
		return tr_error_set(error, TR_EIO, "cannot open: %s", strerror(errno));
	tr_status status = TR_OK;
	for (;;) {
		status = make_room(text, capacity, error);
		if (status != TR_OK)
			break;
		int got = gzread(file, text->bytes + text->size, READ_PIECE);
		int cause;
		if (got < 0)
			status = tr_error_set(error, TR_EIO, "cannot decompress: %s",
			    gzerror(file, &cause));
		else if (gzdirect(file)) /* zlib would take it as it is */
			status = tr_error_set(error, TR_EINVAL,
			    "is not compressed, allowed: names that end in .gz for what gzip "
			    "wrote");
		if (status != TR_OK)
			break;
		if (got <= 0)
			break;
		text->size += (size_t)got;
	}
	/* Only closing tells that the file ended in the middle of its stream. */
	int closed = gzclose_r(file);
	if (status == TR_OK && closed != Z_OK)
		status = tr_error_set(error, TR_EIO, "cannot decompress: the file is cut off");
	return status;
}

static bool is_gz(const char *path)
{
	size_t length = strlen(path);
	return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

tr_status text_load(const char *const *paths, size_t count, double validation, struct text *out,
    struct tr_error *error)
{
	struct text text = { .width = 1 };
	size_t capacity = 0;
	for (size_t i = 0; i < count; i++) {
		tr_status status = is_gz(paths[i])
		    ? append_gz(paths[i], &text, &capacity, error)
		    : append_plain(paths[i], &text, &capacity, error);
		if (status != TR_OK) {
			text_finish(&text);
			return tr_error_wrap(error, "data.text: %s", paths[i]);
		}
	}
	text.train_size = text.size - (size_t)((double)text.size * validation);
	*out = text;
	return TR_OK;
}

/* What gzip wrote ends with the size of what it had read. */
static uint64_t file_bytes(const char *path)
{
	struct stat about;
	uint8_t end[4] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint64_t bytes = fd >= 0 && fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
	if (bytes >= sizeof(end) && is_gz(path) &&
	    pread(fd, end, sizeof(end), (off_t)(bytes - sizeof(end))) == sizeof(end))
		bytes = (uint64_t)end[0] | (uint64_t)end[1] << 8 | (uint64_t)end[2] << 16 |
		    (uint64_t)end[3] << 24;
	if (fd >= 0)
		(void)close(fd);
	return bytes;
}

uint64_t text_bytes(const Traind__V1__Data *data)
{
	uint64_t bytes = 0;
	for (size_t i = 0; data != NULL && i < data->n_text; i++)
		bytes += file_bytes(data->text[i]);
	for (size_t i = 0; data != NULL && i < data->n_tokens; i++)
		bytes += file_bytes(data->tokens[i]);
	return bytes;
}

void text_finish(struct text *text)
{
	free(text->bytes);
	memset(text, 0, sizeof(*text));
}
