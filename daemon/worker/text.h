/* The training text: files one after the other as tokens, the tail held out for validation. A token is a byte of a text, or a number of a
 * file of tokens (daemon/plan/token_file.h).
 */
#ifndef TR_DAEMON_WORKER_TEXT_H
#define TR_DAEMON_WORKER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/checkpoint/bpe.h"
#include "traind/v1/trainer.pb-c.h"

struct text {
	uint8_t *bytes;    /* `width` for each token, little endian */
	size_t size;       /* tokens */
	size_t train_size; /* tokens [0, train_size) are trained on, the rest is validation */
	unsigned width;    /* bytes of a token: 1, 2 or 4 */
	bool tokenized;    /* they were made of a text */
};

static inline int32_t text_token(const struct text *text, size_t i)
{
	const uint8_t *at = text->bytes + i * text->width;
	if (text->width == 2)
		return at[0] | at[1] << 8;
	if (text->width == 4)
		return (int32_t)(at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
		    (uint32_t)at[3] << 24);
	return at[0];
}

/* Reads `count` files in their order; names that end in .gz are decompressed. The last `validation` (0 to 0.5) of the bytes is
 * held out. The error names the file and the cause. */
tr_status text_load(const char *const *paths, size_t count, double validation, struct text *text,
    struct tr_error *error);
/* tokens.c: reads `count` files of tokens, all of one width; every token must be below `vocab`. */
tr_status text_load_tokens(const char *const *paths, size_t count, uint32_t vocab,
    double validation, struct text *text, struct tr_error *error);
/* tokens.c: the bytes of a text become its tokens, of 32 bits; validation as above. */
tr_status text_tokenize(struct text *text, struct bpe *bpe, double validation,
    struct tr_error *error);
/* What the text of a job takes, by the sizes of its files: of those that cannot be read nothing. A tokenizer's tokens take about as much as the text that they are made of. NULL: none. */
uint64_t text_bytes(const Traind__V1__Data *data);
void text_finish(struct text *text);

#endif
