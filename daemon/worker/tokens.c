/* Files of tokens as the training text: text.h. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"
#include "daemon/plan/token_file.h"
#include "daemon/worker/text.h"

static tr_status read_whole(int fd, void *to, size_t bytes, struct tr_error *error)
{
	char *at = to;
	while (bytes > 0) {
		ssize_t got = read(fd, at, bytes);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return tr_error_set(error, TR_EIO, "cannot read: %s",
			    got < 0 ? strerror(errno) : "the file has become shorter");
		at += got;
		bytes -= (size_t)got;
	}
	return TR_OK;
}

static tr_status make_room(struct text *text, const struct token_file *file, struct tr_error *error)
{
	size_t used = text->size * file->width;
	if (file->count > (TR_DATA_TEXT_BYTES_MAX - used) / file->width)
		return tr_error_set(error, TR_ELIMIT, "the tokens take more than %zu GiB",
		    TR_DATA_TEXT_BYTES_MAX >> 30);
	size_t wanted = used + (size_t)file->count * file->width;
	uint8_t *grown = realloc(text->bytes, wanted);
	if (grown == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for %zu bytes of tokens", wanted);
	text->bytes = grown;
	return TR_OK;
}

static tr_status check_tokens(const struct text *text, size_t from, uint32_t vocab,
    struct tr_error *error)
{
	assert(text->width == 2 || text->width == 4);
	for (size_t i = from; i < text->size; i++)
		if ((uint32_t)text_token(text, i) >= vocab)
			return tr_error_set(error, TR_EINVAL,
			    "token %zu: found %u, allowed: less than model.vocab, which is %u",
			    i - from, (uint32_t)text_token(text, i), vocab);
	return TR_OK;
}

static tr_status append_open(int fd, uint32_t vocab, struct text *text, struct tr_error *error)
{
	uint8_t header[TOKEN_FILE_HEADER];
	struct token_file file;
	struct stat about;
	if (fstat(fd, &about) != 0)
		return tr_error_set(error, TR_EIO, "cannot read: %s", strerror(errno));
	ssize_t got = read(fd, header, sizeof(header));
	tr_status status = token_file_parse(header, got > 0 ? (uint64_t)got : 0,
	    (uint64_t)about.st_size, &file, error);
	if (status == TR_OK && text->width != 0 && text->width != file.width)
		status = tr_error_set(error, TR_EINVAL,
		    "its tokens have %u bytes, those of the files before it %u", file.width,
		    text->width);
	if (status == TR_OK)
		status = make_room(text, &file, error);
	if (status == TR_OK)
		status = read_whole(fd, text->bytes + text->size * file.width,
		    (size_t)file.count * file.width, error);
	if (status != TR_OK)
		return status;
	size_t from = text->size;
	text->width = file.width;
	text->size += (size_t)file.count;
	return check_tokens(text, from, vocab, error);
}

static tr_status append(const char *path, uint32_t vocab, struct text *text, struct tr_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return tr_error_set(error, TR_EIO, "cannot open: %s", strerror(errno));
	tr_status status = append_open(fd, vocab, text, error);
	(void)close(fd);
	return status;
}

tr_status text_tokenize(struct text *text, struct bpe *bpe, double validation,
    struct tr_error *error)
{
	struct bpe_tokens tokens = { NULL, 0, 0 };
	tr_status status = bpe_encode(bpe, (const char *)text->bytes, text->size, &tokens, error);
	if (status != TR_OK) {
		free(tokens.tokens);
		return tr_error_wrap(error, "data.text");
	}
	free(text->bytes);
	*text = (struct text){ .bytes = (uint8_t *)tokens.tokens,
		.size = tokens.count,
		.width = 4,
		.tokenized = true };
	for (size_t i = 0; i < tokens.count; i++) {
		uint32_t token = (uint32_t)tokens.tokens[i];
		for (size_t k = 0; k < 4; k++)
			text->bytes[4 * i + k] = (uint8_t)(token >> 8 * k);
	}
	text->train_size = text->size - (size_t)((double)text->size * validation);
	return TR_OK;
}

tr_status text_load_tokens(const char *const *paths, size_t count, uint32_t vocab,
    double validation, struct text *out, struct tr_error *error)
{
	struct text text = { 0 };
	for (size_t i = 0; i < count; i++) {
		if (append(paths[i], vocab, &text, error) != TR_OK) {
			text_finish(&text);
			return tr_error_wrap(error, "data.tokens: %s", paths[i]);
		}
	}
	text.train_size = text.size - (size_t)((double)text.size * validation);
	*out = text;
	return TR_OK;
}
