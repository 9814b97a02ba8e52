#include "common/digest.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/digest_blocks.h"

/* From here on wide registers gain more than beginning a stream costs. */
#define LONG_BYTES 4096
/* A fraction of a second, also of a slow disk. */
#define TOLD_BYTES ((size_t)4 << 20)

/* Of a stream longer than a block the digest is that of XXH3_hashLong_128b_internal: whole blocks while bytes follow them, the
 * stripes of what is left while bytes follow them, and the last 64 bytes once more. */
#define LAST_STRIPE_KEY (XXH3_kSecret + sizeof(XXH3_kSecret) - XXH_STRIPE_LEN - 7)
#define LOW_KEY         (XXH3_kSecret + 11)
#define HIGH_KEY        (XXH3_kSecret + sizeof(XXH3_kSecret) - XXH_STRIPE_LEN - 11)

_Static_assert(TR_DIGEST_KEPT_BYTES == DIGEST_BLOCK_BYTES, "a block is kept until more comes");
_Static_assert(TR_DIGEST_BEFORE_BYTES == XXH_STRIPE_LEN, "and the stripe before it");

static struct tr_digest of_hash(XXH128_hash_t hash)
{
	return (struct tr_digest){ hash.low64, hash.high64 };
}

struct tr_digest tr_digest_of(const void *data, size_t bytes)
{
	struct tr_digest_stream stream;
	if (bytes < LONG_BYTES)
		return of_hash(XXH3_128bits(data, bytes));
	tr_digest_begin(&stream);
	tr_digest_add(&stream, data, bytes);
	return tr_digest_end(&stream);
}

void tr_digest_begin(struct tr_digest_stream *stream)
{
	static const uint64_t lanes[DIGEST_LANES] = XXH3_INIT_ACC;
	memcpy(stream->lanes, lanes, sizeof(lanes));
	stream->bytes = stream->kept_bytes = 0;
}

static bool digest_plain(uint64_t lanes[DIGEST_LANES], const void *data, size_t blocks)
{
	digest_blocks(lanes, data, blocks);
	return true;
}

/* Does it run here, and with the plain one's bits? */
static bool form_is_right(digest_form *form)
{
	_Alignas(64) uint64_t lanes[DIGEST_LANES] = XXH3_INIT_ACC,
	                      plain[DIGEST_LANES] = XXH3_INIT_ACC;
	uint8_t data[3 * DIGEST_BLOCK_BYTES];
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	digest_blocks(plain, data + 1, 2);
	return form(lanes, data + 1, 2) && memcmp(lanes, plain, sizeof(lanes)) == 0;
}

/* The widest that is right; a thread that chooses at the same time as another one chooses the same. */
static digest_form *form_here(void)
{
	static digest_form *_Atomic chosen;
	digest_form *form = atomic_load_explicit(&chosen, memory_order_relaxed);
	if (form == NULL) {
		form = form_is_right(digest_avx512) ? digest_avx512
		    : form_is_right(digest_avx2)    ? digest_avx2
		                                    : digest_plain;
		atomic_store_explicit(&chosen, form, memory_order_relaxed);
	}
	return form;
}

static void add_blocks(struct tr_digest_stream *stream, const uint8_t *data, size_t blocks)
{
	(void)form_here()(stream->lanes, data, blocks);
	memcpy(stream->before, data + blocks * DIGEST_BLOCK_BYTES - sizeof(stream->before),
	    sizeof(stream->before));
}

static void keep(struct tr_digest_stream *stream, const uint8_t *data, size_t bytes)
{
	memcpy(stream->kept + stream->kept_bytes, data, bytes);
	stream->kept_bytes += bytes;
}

void tr_digest_add(struct tr_digest_stream *stream, const void *data, size_t bytes)
{
	const uint8_t *at = data;
	stream->bytes += bytes;
	if (bytes > 0 && stream->kept_bytes > 0) { /* up to a block */
		size_t room = sizeof(stream->kept) - stream->kept_bytes;
		size_t more = bytes < room ? bytes : room;
		keep(stream, at, more);
		at += more;
		bytes -= more;
	}
	if (bytes == 0)
		return;
	if (stream->kept_bytes > 0)
		add_blocks(stream, stream->kept, 1);
	stream->kept_bytes = 0;
	size_t blocks = (bytes - 1) / DIGEST_BLOCK_BYTES;
	if (blocks > 0)
		add_blocks(stream, at, blocks);
	keep(stream, at + blocks * DIGEST_BLOCK_BYTES, bytes - blocks * DIGEST_BLOCK_BYTES);
}

struct tr_digest tr_digest_end(const struct tr_digest_stream *stream)
{
	_Alignas(64) uint64_t lanes[DIGEST_LANES];
	uint8_t last[XXH_STRIPE_LEN];
	if (stream->bytes <= DIGEST_BLOCK_BYTES)
		return of_hash(XXH3_128bits(stream->kept, stream->bytes));
	memcpy(lanes, stream->lanes, sizeof(lanes));
	digest_stripes(lanes, stream->kept, (stream->kept_bytes - 1) / XXH_STRIPE_LEN);
	size_t of_kept = stream->kept_bytes < sizeof(last) ? stream->kept_bytes : sizeof(last);
	memcpy(last, stream->before + of_kept, sizeof(last) - of_kept);
	memcpy(last + sizeof(last) - of_kept, stream->kept + stream->kept_bytes - of_kept, of_kept);
	XXH3_accumulate_512((xxh_u64 *)lanes, last, LAST_STRIPE_KEY);
	return (struct tr_digest){
		XXH3_mergeAccs((xxh_u64 *)lanes, LOW_KEY, stream->bytes * XXH_PRIME64_1),
		XXH3_mergeAccs((xxh_u64 *)lanes, HIGH_KEY, ~(stream->bytes * XXH_PRIME64_2)),
	};
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
