/* The training text: files one after the other as bytes, the tail held out for validation.
 */
#ifndef TR_DAEMON_WORKER_TEXT_H
#define TR_DAEMON_WORKER_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct text {
	uint8_t *bytes;
	size_t size;
	size_t train_size; /* bytes[0, train_size) is trained on, the rest is validation */
};

/* Reads `count` files in their order; names that end in .gz are decompressed. The last `validation` (0 to 0.5) of the bytes is
 * held out. The error names the file and the cause. */
tr_status text_load(const char *const *paths, size_t count, double validation, struct text *text,
    struct tr_error *error);
void text_finish(struct text *text);

#endif
