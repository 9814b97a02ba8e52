#include "client/trainctl/job_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "daemon/checkpoint/bpe.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/token_file.h"

#define READ_MOST (1u << 20)

struct reading {
	const Traind__V1__JobSpec *spec;
	const char *tokenizer; /* NULL: none */
	char *text;            /* the beginning of it, READ_MOST bytes at most */
	size_t used;
	uint64_t total; /* bytes or, of files of tokens, these */
};

static bool is_gz(const char *path)
{
	size_t length = strlen(path);
	return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

/* gzip ends with what its text takes unpacked (RFC 1952: ISIZE, of the last member only, so it is a lower bound as the packed size nearly is). */
static uint64_t guessed_size(int fd, uint64_t size)
{
	uint8_t tail[4];
	if (size < 18 || pread(fd, tail, sizeof(tail), (off_t)size - 4) != sizeof(tail))
		return size;
	uint64_t last = tail[0] | (uint64_t)tail[1] << 8 | (uint64_t)tail[2] << 16 |
	    (uint64_t)tail[3] << 24;
	return last > size ? last : size;
}

/* Adds what there is room for to the text; *whole: that was all. zlib reads what is not compressed as it is. */
static tr_status read_text(struct reading *r, int fd, size_t *got, bool *whole,
    struct tr_error *error)
{
	int copy = dup(fd), cause;
	gzFile file = copy >= 0 ? gzdopen(copy, "rb") : NULL;
	if (file == NULL) {
		if (copy >= 0)
			(void)close(copy);
		return tr_error_set(error, TR_EIO, "cannot be read (%s)", strerror(errno));
	}
	size_t room = READ_MOST - r->used;
	int count = gzread(file, r->text + r->used, (unsigned)room);
	tr_status status = TR_OK;
	if (count < 0)
		status = tr_error_set(error, TR_EIO, "cannot be read (%s)", gzerror(file, &cause));
	*got = count > 0 ? (size_t)count : 0;
	*whole = *got < room;
	/* Only closing tells that the file ended in the middle of its stream. */
	if (gzclose_r(file) == Z_BUF_ERROR && status == TR_OK && *whole)
		status = tr_error_set(error, TR_EIO, "cannot be read (it is cut off)");
	r->used += *got;
	return status;
}

static tr_status add_text(struct reading *r, int fd, const char *path, uint64_t size,
    struct tr_error *error)
{
	uint8_t magic[2];
	size_t got = 0;
	bool whole = false, packed = is_gz(path);
	if (packed && (pread(fd, magic, 2, 0) != 2 || magic[0] != 0x1f || magic[1] != 0x8b))
		return tr_error_set(error, TR_EINVAL,
		    "is not compressed, allowed: names that end in .gz for what gzip wrote");
	if (packed || r->tokenizer != NULL) {
		tr_status status = read_text(r, fd, &got, &whole, error);
		if (status != TR_OK)
			return status;
	}
	uint64_t guessed = packed ? guessed_size(fd, size) : size;
	r->total += whole ? got : guessed > got ? guessed : got;
	return TR_OK;
}

static tr_status add_tokens(struct reading *r, int fd, uint64_t size, struct tr_error *error)
{
	uint8_t header[TOKEN_FILE_HEADER];
	struct token_file file;
	ssize_t got = pread(fd, header, sizeof(header), 0);
	tr_status status = token_file_parse(header, got > 0 ? (uint64_t)got : 0, size, &file, error);
	if (status == TR_OK)
		r->total += file.count;
	return status;
}

static tr_status add_file(struct reading *r, const char *key, int fd, const char *path,
    struct tr_error *error)
{
	bool tokens = strcmp(key, "data.tokens") == 0;
	const char *kind = tokens ? "files of tokens" : "text files";
	struct stat info;
	if (fd < 0 || fstat(fd, &info) != 0)
		return tr_error_set(error, TR_ENOTFOUND,
		    "%s: found '%.300s', which cannot be read (%s), allowed: %s that are there",
		    key, path, strerror(errno), kind);
	if (!S_ISREG(info.st_mode))
		return tr_error_set(error, TR_EINVAL,
		    "%s: found '%.300s', which is no regular file, allowed: %s", key, path, kind);
	if (tokens)
		return add_tokens(r, fd, (uint64_t)info.st_size, error) == TR_OK
		    ? TR_OK
		    : tr_error_wrap(error, "%s: found '%.300s'", key, path);
	struct tr_error cause;
	if (add_text(r, fd, path, (uint64_t)info.st_size, &cause) == TR_OK)
		return TR_OK;
	return tr_error_set(error, cause.status, "%s: found '%.300s', which %s", key, path,
	    cause.text);
}

static tr_status add_all(struct reading *r, struct tr_error *error)
{
	static const char *const keys[] = { "data.text", "data.tokens" };
	const char *path;
	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; (path = job_option_text(r->spec, keys[k], i)) != NULL; i++) {
			int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
			tr_status status = add_file(r, keys[k], fd, path, error);
			if (fd >= 0)
				close(fd);
			if (status != TR_OK)
				return status;
		}
	}
	return TR_OK;
}

/* Whoever looks at the tokenizer says what is wrong with it. */
static void tokenize(struct reading *r)
{
	struct bpe *bpe;
	struct bpe_tokens tokens = { NULL, 0, 0 };
	if (r->tokenizer == NULL || r->used < r->total ||
	    bpe_load(r->tokenizer, &bpe, NULL) != TR_OK)
		return;
	if (bpe_encode(bpe, r->text, r->used, &tokens, NULL) == TR_OK)
		r->total = tokens.count;
	free(tokens.tokens);
	bpe_destroy(bpe);
}

tr_status job_text_check(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	struct reading r = { .spec = spec, .text = malloc(READ_MOST) };
	if (spec->train->data->n_text > 0)
		r.tokenizer = job_option_text(spec, "data.tokenizer", 0);
	tr_status status = r.text != NULL
	    ? add_all(&r, error)
	    : tr_error_set(error, TR_ENOMEM, "data.text: out of memory");
	if (status == TR_OK) {
		tokenize(&r);
		status = job_validate_text(spec, r.total, error);
	}
	free(r.text);
	return status;
}
