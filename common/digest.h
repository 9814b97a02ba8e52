/* 128-bit XXH3 digests (xxHash). For accidents, not for adversaries. Any thread. */
#ifndef TR_COMMON_DIGEST_H
#define TR_COMMON_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/progress.h"

struct tr_digest {
	uint64_t low, high;
};

#define TR_DIGEST_HEX_MAX 33

#define TR_DIGEST_KEPT_BYTES   1024
#define TR_DIGEST_BEFORE_BYTES 64

/* A digest of bytes that come in pieces. A plain value. */
struct tr_digest_stream {
	_Alignas(64) uint64_t lanes[8]; /* XXH3's */
	size_t bytes;                   /* that came */
	size_t kept_bytes;              /* the last of them are not in `lanes` yet */
	uint8_t before[TR_DIGEST_BEFORE_BYTES], kept[TR_DIGEST_KEPT_BYTES];
};

struct tr_digest tr_digest_of(const void *data, size_t bytes);
/* The digest of all that was added, whatever the pieces. */
void tr_digest_begin(struct tr_digest_stream *stream);
void tr_digest_add(struct tr_digest_stream *stream, const void *data, size_t bytes);
struct tr_digest tr_digest_end(const struct tr_digest_stream *stream);
/* As tr_digest_of, and every few MiB `progress` is told (NULL: nobody). */
struct tr_digest tr_digest_told(const void *data, size_t bytes, const struct progress *progress);
/* Order matters: folding a then b differs from folding b then a. */
struct tr_digest tr_digest_fold(struct tr_digest so_far, struct tr_digest next);
bool tr_digest_equal(struct tr_digest a, struct tr_digest b);
const char *tr_digest_hex(struct tr_digest digest, char text[TR_DIGEST_HEX_MAX]);

#endif
