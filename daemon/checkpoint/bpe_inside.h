/* Inside bpe.c, bpe_read.c and hf_export.c, which copies the files. */
#ifndef TR_DAEMON_CHECKPOINT_BPE_INSIDE_H
#define TR_DAEMON_CHECKPOINT_BPE_INSIDE_H

#include <stdbool.h>

#include "daemon/checkpoint/bpe.h"

struct bpe_text {
	char *at; /* NULL: no such id */
	size_t length;
};

struct bpe_merge {
	int32_t left, right; /* left -1: a free place of the table */
	int32_t result;
	uint32_t rank;
};

/* Of a word under way. */
struct bpe_symbol {
	int32_t token; /* -1: joined to the one before */
	int32_t previous, next;
};
struct bpe_candidate {
	uint32_t rank;
	int32_t left, right, result;
};

struct bpe {
	void *pattern, *match;  /* PCRE2's */
	uint32_t vocab;         /* largest id + 1 */
	struct bpe_text *token; /* [vocab] */
	int32_t of_byte[256];
	struct bpe_merge *merges; /* open addressing; a power of two of places */
	size_t merge_places;
	int32_t *names; /* the same of ids by their bytes; -1: free. For merges.txt only */
	size_t name_places;
	struct bpe_symbol *symbols; /* [room] */
	struct bpe_candidate *heap; /* [3 room] */
	size_t heap_count, room;
	size_t word_max; /* places in a word are numbers of 32 bits */
};

#define BPE_VOCAB  "vocab.json"
#define BPE_MERGES "merges.txt"

/* *text, with a zero byte at its end, is to be freed. */
tr_status bpe_read_file(const char *folder, const char *name, char **text, size_t *length,
    struct tr_error *error);
tr_status bpe_read(struct bpe *bpe, const char *folder, struct tr_error *error);
/* Frees what bpe_read has made, whole or not. */
void bpe_forget(struct bpe *bpe);
/* NULL: these two are never joined. */
const struct bpe_merge *bpe_merge_of(const struct bpe *bpe, int32_t left, int32_t right);

#endif
