#include "common/digest.h"

#include <inttypes.h>
#include <stdio.h>
#define XXH_INLINE_ALL /* a stream's bytes go through digest_form.h's code too: all of it is of one version */
#include <xxhash.h>

#include "common/digest_wide.h"

/* XXH3 has loops for vectors from 241 bytes on. */
#define LONG_BYTES 256
/* A fraction of a second, also of a slow disk. */
#define TOLD_BYTES ((size_t)4 << 20)

_Static_assert(sizeof(XXH3_state_t) <= sizeof(((struct tr_digest_stream *)0)->state),
    "the state has room");

struct tr_digest tr_digest_of(const void *data, size_t bytes)
{
	struct tr_digest digest;
	if (bytes >= LONG_BYTES &&
	    (digest_avx512(data, bytes, &digest) || digest_avx2(data, bytes, &digest)))
		return digest;
	XXH128_hash_t hash = XXH3_128bits(data, bytes);
	return (struct tr_digest){ hash.low64, hash.high64 };
}

void tr_digest_begin(struct tr_digest_stream *stream)
{
	(void)XXH3_128bits_reset((XXH3_state_t *)(void *)stream->state);
	stream->bytes = 0;
}

void tr_digest_add(struct tr_digest_stream *stream, const void *data, size_t bytes)
{
	stream->bytes += bytes;
	if (bytes >= LONG_BYTES &&
	    (digest_avx512_add(stream, data, bytes) || digest_avx2_add(stream, data, bytes)))
		return;
	(void)XXH3_128bits_update((XXH3_state_t *)(void *)stream->state, data, bytes);
}

struct tr_digest tr_digest_end(const struct tr_digest_stream *stream)
{
	XXH128_hash_t hash = XXH3_128bits_digest((const XXH3_state_t *)(const void *)stream->state);
	return (struct tr_digest){ hash.low64, hash.high64 };
}

struct tr_digest tr_digest_told(const void *data, size_t bytes, const struct progress *progress)
{
	struct tr_digest_stream stream;
	tr_digest_begin(&stream);
	for (size_t at = 0; at < bytes; at += TOLD_BYTES) {
		size_t left = bytes - at;
		tr_digest_add(&stream, (const char *)data + at,
		    left < TOLD_BYTES ? left : TOLD_BYTES);
		progress_tell(progress);
	}
	return tr_digest_end(&stream);
}

struct tr_digest tr_digest_fold(struct tr_digest so_far, struct tr_digest next)
{
	uint64_t words[4] = { so_far.low, so_far.high, next.low, next.high };
	return tr_digest_of(words, sizeof(words));
}

bool tr_digest_equal(struct tr_digest a, struct tr_digest b)
{
	return a.low == b.low && a.high == b.high;
}

const char *tr_digest_hex(struct tr_digest digest, char text[TR_DIGEST_HEX_MAX])
{
	(void)snprintf(text, TR_DIGEST_HEX_MAX, "%016" PRIx64 "%016" PRIx64, digest.high,
	    digest.low);
	return text;
}
