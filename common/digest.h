/* 128-bit XXH3 digests (xxHash). For accidents, not for adversaries. Any thread. */
#ifndef TR_COMMON_DIGEST_H
#define TR_COMMON_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_digest {
	uint64_t low, high;
};

#define TR_DIGEST_HEX_MAX 33

struct tr_digest tr_digest_of(const void *data, size_t bytes);
/* Order matters: folding a then b differs from folding b then a. */
struct tr_digest tr_digest_fold(struct tr_digest so_far, struct tr_digest next);
bool tr_digest_equal(struct tr_digest a, struct tr_digest b);
const char *tr_digest_hex(struct tr_digest digest, char text[TR_DIGEST_HEX_MAX]);

#endif
