/* Files of tokens as llm.c writes them (https://github.com/karpathy/llm.c, dev/data): 256 numbers of 32 bits, the first a magic number, a version and how
 * many tokens follow; then those, each in 16 bits (magic 20240520, version 1: GPT-2) or 32 (20240801, version 7: Llama 3). Little endian. Pure.
 */
#ifndef TR_DAEMON_PLAN_TOKEN_FILE_H
#define TR_DAEMON_PLAN_TOKEN_FILE_H

#include <stdint.h>

#include "common/error.h"

#define TOKEN_FILE_HEADER 1024 /* bytes */

struct token_file {
	uint64_t count;
	unsigned width; /* bytes of a token: 2 or 4 */
};

/* `size` is the whole file's; of it `got` bytes, at most the header, were read. The error has no path. */
tr_status token_file_parse(const uint8_t *header, uint64_t got, uint64_t size,
    struct token_file *file, struct tr_error *error);

#endif
