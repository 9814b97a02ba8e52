/* GPT-2's byte-level BPE (Sennrich et al., 1508.07909; Radford et al. 2019), from vocab.json and merges.txt as Hugging Face writes them. A text is cut into
 * words by the pattern of GPT-2's encoder.py, which wants Unicode's letters, numbers and blanks (PCRE2 with its Unicode properties); within a word the
 * pair whose merge stands first in merges.txt is joined, until none is left. Every byte is a token, so every text has tokens.
 *
 *	struct bpe *bpe;
 *	bpe_load("gpt2", &bpe, &error);          // gpt2/vocab.json, gpt2/merges.txt
 *	bpe_encode(bpe, text, length, &tokens, &error);
 *	bpe_destroy(bpe);
 *
 * One bpe may be used by one thread at a time.
 */
#ifndef TR_DAEMON_CHECKPOINT_BPE_H
#define TR_DAEMON_CHECKPOINT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct bpe;

struct bpe_tokens {
	int32_t *tokens;
	size_t count, capacity;
};

/* `folder` has vocab.json and merges.txt. The error names the file and what is wrong with it. */
tr_status bpe_load(const char *folder, struct bpe **bpe, struct tr_error *error);
void bpe_destroy(struct bpe *bpe); /* accepts NULL */
uint32_t bpe_vocab(const struct bpe *bpe);

/* Appends the tokens of a text (UTF-8; bytes that are none are replaced by U+FFFD, as Python's decoder does with errors="replace"), of any length.
 * TR_ELIMIT: a word of it has more than TR_BPE_WORD_MAX bytes. */
tr_status bpe_encode(struct bpe *bpe, const char *text, size_t length, struct bpe_tokens *tokens,
    struct tr_error *error);
/* The bytes of a token; *length of them. An id that vocab.json does not have: none. */
const char *bpe_bytes(const struct bpe *bpe, int32_t token, size_t *length);

#endif
