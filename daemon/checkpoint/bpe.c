#define PCRE2_CODE_UNIT_WIDTH 8
#include "daemon/checkpoint/bpe.h"

#include <errno.h>
#include <fcntl.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/utf8.h"
#include "daemon/checkpoint/bpe_inside.h"

/* The pattern of GPT-2's encoder.py. Blanks are spelled out, as Unicode's White_Space: PCRE2's \s has one more (U+180E). */
#define BLANK      \
	"\\t-\\r " \
	"\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define PATTERN                                                                        \
	"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" BLANK "\\p{L}\\p{N}]+|[" BLANK \
	"]+(?![^" BLANK "])|[" BLANK "]+"
#define REPLACEMENT "\xef\xbf\xbd"

static tr_status compile(struct bpe *bpe, struct tr_error *error)
{
	int code;
	size_t place;
	pcre2_code *pattern = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
	    PCRE2_UTF | PCRE2_UCP, &code, &place, NULL);
	if (pattern == NULL)
		return tr_error_set(error, TR_EINTERNAL,
		    "PCRE2 %d.%d does not take the pattern of words at %zu (%d)", PCRE2_MAJOR,
		    PCRE2_MINOR, place, code);
	bpe->pattern = pattern;
	bpe->match = pcre2_match_data_create_from_pattern(pattern, NULL);
	/* Only faster: where it is not available the pattern is interpreted. */
	(void)pcre2_jit_compile(pattern, PCRE2_JIT_COMPLETE);
	return bpe->match != NULL ? TR_OK
	                          : tr_error_set(error, TR_ENOMEM, "no memory for a tokenizer");
}

tr_status bpe_load(const char *folder, struct bpe **out, struct tr_error *error)
{
	struct bpe *bpe = calloc(1, sizeof(*bpe));
	tr_status status = bpe == NULL ? tr_error_set(error, TR_ENOMEM, "no memory for a tokenizer")
	                               : compile(bpe, error);
	if (status == TR_OK) {
		bpe->word_max = TR_BPE_WORD_MAX;
		status = bpe_read(bpe, folder, error);
	}
	if (status != TR_OK) {
		bpe_destroy(bpe);
		return tr_error_wrap(error, "%s", folder);
	}
	*out = bpe;
	return TR_OK;
}

void bpe_destroy(struct bpe *bpe)
{
	if (bpe == NULL)
		return;
	pcre2_match_data_free(bpe->match);
	pcre2_code_free(bpe->pattern);
	bpe_forget(bpe);
	free(bpe->symbols);
	free(bpe->heap);
	free(bpe);
}

uint32_t bpe_vocab(const struct bpe *bpe)
{
	return bpe->vocab;
}

const char *bpe_bytes(const struct bpe *bpe, int32_t token, size_t *length)
{
	bool known = token >= 0 && (uint32_t)token < bpe->vocab && bpe->token[token].at != NULL;
	*length = known ? bpe->token[token].length : 0;
	return known ? bpe->token[token].at : "";
}

/* ---- one word: symbols in a list, possible merges in a heap ---- */

static bool before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void heap_push(struct bpe *bpe, struct bpe_candidate added)
{
	size_t at = bpe->heap_count++;
	for (; at > 0 && before(&added, &bpe->heap[(at - 1) / 2]); at = (at - 1) / 2)
		bpe->heap[at] = bpe->heap[(at - 1) / 2];
	bpe->heap[at] = added;
}

static struct bpe_candidate heap_pop(struct bpe *bpe)
{
	struct bpe_candidate top = bpe->heap[0], last = bpe->heap[--bpe->heap_count];
	size_t at = 0;
	for (size_t child; (child = 2 * at + 1) < bpe->heap_count; at = child) {
		if (child + 1 < bpe->heap_count && before(&bpe->heap[child + 1], &bpe->heap[child]))
			child++;
		if (!before(&bpe->heap[child], &last))
			break;
		bpe->heap[at] = bpe->heap[child];
	}
	bpe->heap[at] = last;
	return top;
}

/* The merge of a symbol with the one that follows, if there is any. */
static void consider(struct bpe *bpe, int32_t left)
{
	int32_t right = left < 0 ? -1 : bpe->symbols[left].next;
	if (right < 0)
		return;
	const struct bpe_merge *merge = bpe_merge_of(bpe, bpe->symbols[left].token,
	    bpe->symbols[right].token);
	if (merge != NULL)
		heap_push(bpe, (struct bpe_candidate){ merge->rank, left, right, merge->result });
}

/* Whether both symbols are still as they were: a symbol that was joined has another token or is gone. */
static bool stands(const struct bpe *bpe, const struct bpe_candidate *c)
{
	const struct bpe_symbol *left = &bpe->symbols[c->left];
	if (left->token < 0 || left->next != c->right)
		return false;
	const struct bpe_merge *merge = bpe_merge_of(bpe, left->token, bpe->symbols[c->right].token);
	return merge != NULL && merge->rank == c->rank;
}

static void join(struct bpe *bpe, const struct bpe_candidate *c)
{
	struct bpe_symbol *left = &bpe->symbols[c->left], *right = &bpe->symbols[c->right];
	left->token = c->result;
	left->next = right->next;
	right->token = -1;
	if (left->next >= 0)
		bpe->symbols[left->next].previous = c->left;
	consider(bpe, left->previous);
	consider(bpe, c->left);
}

/* Room for a word of so many bytes: each merge takes a symbol away and adds two candidates. */
static tr_status make_room(struct bpe *bpe, size_t length, struct tr_error *error)
{
	if (length > bpe->word_max)
		return tr_error_set(error, TR_ELIMIT,
		    "a word of %zu bytes is too long: at most %zu", length, bpe->word_max);
	if (length <= bpe->room)
		return TR_OK;
	size_t wanted = 2 * length;
	void *symbols = realloc(bpe->symbols, wanted * sizeof(*bpe->symbols));
	if (symbols != NULL)
		bpe->symbols = symbols;
	void *heap = realloc(bpe->heap, 3 * wanted * sizeof(*bpe->heap));
	if (heap != NULL)
		bpe->heap = heap;
	if (symbols == NULL || heap == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a word of %zu bytes", length);
	bpe->room = wanted;
	return TR_OK;
}

static tr_status append(struct bpe_tokens *tokens, int32_t token, struct tr_error *error)
{
	if (tokens->count == tokens->capacity) {
		size_t wanted = tokens->capacity * 2 + 256;
		int32_t *grown = realloc(tokens->tokens, wanted * sizeof(*grown));
		if (grown == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory for %zu tokens", wanted);
		tokens->tokens = grown;
		tokens->capacity = wanted;
	}
	tokens->tokens[tokens->count++] = token;
	return TR_OK;
}

static tr_status encode_word(struct bpe *bpe, const unsigned char *word, size_t length,
    struct bpe_tokens *tokens, struct tr_error *error)
{
	tr_status status = make_room(bpe, length, error);
	if (status != TR_OK)
		return status;
	for (size_t i = 0; i < length; i++)
		bpe->symbols[i] = (struct bpe_symbol){ bpe->of_byte[word[i]], (int32_t)i - 1,
			i + 1 < length ? (int32_t)i + 1 : -1 };
	bpe->heap_count = 0;
	for (size_t i = 0; i < length; i++)
		consider(bpe, (int32_t)i);
	while (bpe->heap_count > 0) {
		struct bpe_candidate best = heap_pop(bpe);
		if (stands(bpe, &best))
			join(bpe, &best);
	}
	for (int32_t i = 0; i >= 0 && status == TR_OK; i = bpe->symbols[i].next)
		status = append(tokens, bpe->symbols[i].token, error);
	return status;
}

/* ---- a text ---- */

static tr_status encode_text(struct bpe *bpe, const char *text, size_t length,
    struct bpe_tokens *tokens, struct tr_error *error)
{
	/* The pattern matches at every place: a character is a blank, a letter, a number or none of them. */
	for (size_t at = 0; at < length;) {
		int matched = pcre2_match(bpe->pattern, (PCRE2_SPTR)text, length, at,
		    PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, bpe->match, NULL);
		if (matched < 1)
			return tr_error_set(error, TR_EINTERNAL,
			    "the pattern of words does not match byte %zu of a text (PCRE2: %d)",
			    at, matched);
		const size_t *ends = pcre2_get_ovector_pointer(bpe->match);
		tr_status status = encode_word(bpe, (const unsigned char *)text + at, ends[1] - at,
		    tokens, error);
		if (status != TR_OK)
			return status;
		at = ends[1];
	}
	return TR_OK;
}

tr_status bpe_encode(struct bpe *bpe, const char *text, size_t length, struct bpe_tokens *tokens,
    struct tr_error *error)
{
	const unsigned char *bytes = (const unsigned char *)text;
	size_t bad = 0, used = 0;
	for (size_t i = 0, run; i < length; i += run) {
		run = utf8_length(bytes + i, length - i);
		bad += run == 0;
		if (run == 0)
			run = utf8_bad_length(bytes + i, length - i);
	}
	if (bad == 0)
		return encode_text(bpe, text, length, tokens, error);
	char *good = malloc(length + 2 * bad);
	if (good == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a text of %zu bytes", length);
	for (size_t i = 0; i < length;) {
		size_t run = utf8_length(bytes + i, length - i), put = run > 0 ? run : 3;
		memcpy(good + used, run > 0 ? text + i : REPLACEMENT, put);
		used += put;
		i += run > 0 ? run : utf8_bad_length(bytes + i, length - i);
	}
	tr_status status = encode_text(bpe, good, used, tokens, error);
	free(good);
	return status;
}
