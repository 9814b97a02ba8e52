#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/digest_blocks.h"

/* XXH3_128bits of nothing, from xxHash's own tests. */
static void digests_are_xxh3(void **state)
{
	(void)state;
	char text[TR_DIGEST_HEX_MAX];
	assert_string_equal(tr_digest_hex(tr_digest_of("", 0), text),
	    "99aa06d3014798d86001c324468d497f");
}

static uint8_t *made(size_t bytes)
{
	uint8_t *data = malloc(bytes);
	assert_non_null(data);
	for (size_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	return data;
}

/* The library's bits at every length and alignment. */
static void long_inputs_give_the_same(void **state)
{
	(void)state;
	uint8_t *data = made(9000);
	for (size_t bytes = 0; bytes < 9000 - 64; bytes += 1 + bytes / 50)
		for (size_t at = 0; at < 64; at += 13) {
			XXH128_hash_t hash = XXH3_128bits(data + at, bytes);
			struct tr_digest digest = tr_digest_of(data + at, bytes);
			assert_true(digest.low == hash.low64 && digest.high == hash.high64);
		}
	free(data);
}

/* Each form that this machine has, and the one that every machine has. */
static void forms_give_the_same_lanes(void **state)
{
	(void)state;
	static digest_form *const forms[] = { digest_avx2, digest_avx512 };
	static const char *const names[] = { "AVX2", "AVX-512" };
	size_t bytes = (size_t)9 * DIGEST_BLOCK_BYTES + 64;
	uint8_t *data = made(bytes);
	for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
		for (size_t blocks = 0; blocks <= 9; blocks++)
			for (size_t at = 0; at <= 64; at += 1 + at / 3) {
				_Alignas(64) uint64_t lanes[DIGEST_LANES], plain[DIGEST_LANES];
				for (unsigned i = 0; i < DIGEST_LANES; i++)
					lanes[i] = plain[i] = UINT64_MAX / 7 * (i + 1);
				if (!forms[f](lanes, data + at, blocks)) {
					if (blocks + at == 0)
						print_message("not tried: %s\n", names[f]);
					continue;
				}
				digest_blocks(plain, data + at, blocks);
				assert_memory_equal(lanes, plain, sizeof(plain));
			}
	free(data);
}

static void count(void *arg)
{
	++*(int *)arg;
}

/* Who is told on the way gets the same digest. */
static void long_ones_tell(void **state)
{
	(void)state;
	size_t bytes = ((size_t)9 << 20) + 5;
	uint8_t *data = made(bytes);
	int told = 0;
	assert_true(
	    tr_digest_equal(tr_digest_told(data, bytes, &(struct progress){ count, &told, NULL }),
	        tr_digest_of(data, bytes)));
	assert_int_equal(told, 3);
	assert_true(tr_digest_equal(tr_digest_told("", 0, NULL), tr_digest_of("", 0)));
	free(data);
}

/* Whatever the pieces, also those that are too short for a form. */
static void pieces_give_the_same(void **state)
{
	(void)state;
	const size_t most = 200000;
	uint8_t *data = made(most);
	static const size_t pieces[] = { 1, 63, 64, 65, 257, 1023, 1024, 1025, 2048, 2049, 65536 };
	for (size_t bytes = 0; bytes <= most; bytes += 1 + bytes / 9)
		for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
			struct tr_digest_stream stream;
			tr_digest_begin(&stream);
			for (size_t at = 0, n; at < bytes; at += n) {
				n = pieces[(p + at) % (p + 1)];
				n = n < bytes - at ? n : bytes - at;
				tr_digest_add(&stream, data + at, n);
			}
			assert_int_equal(stream.bytes, bytes);
			XXH128_hash_t hash = XXH3_128bits(data, bytes);
			struct tr_digest digest = tr_digest_end(&stream);
			assert_true(digest.low == hash.low64 && digest.high == hash.high64);
		}
	free(data);
}

static void one_bit_changes_the_digest(void **state)
{
	(void)state;
	uint8_t data[300] = { 0 };
	struct tr_digest zero = tr_digest_of(data, sizeof(data));
	for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(tr_digest_equal(tr_digest_of(data, sizeof(data)), zero));
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(tr_digest_equal(tr_digest_of(data, sizeof(data)), zero));
	assert_false(tr_digest_equal(tr_digest_of(data, sizeof(data) - 1), zero));
}

static void folding_keeps_the_order(void **state)
{
	(void)state;
	struct tr_digest start = { 0 }, a = tr_digest_of("a", 1), b = tr_digest_of("b", 1);
	struct tr_digest ab = tr_digest_fold(tr_digest_fold(start, a), b);
	struct tr_digest ba = tr_digest_fold(tr_digest_fold(start, b), a);
	assert_false(tr_digest_equal(ab, ba));
	assert_true(tr_digest_equal(ab, tr_digest_fold(tr_digest_fold(start, a), b)));
	assert_false(tr_digest_equal((struct tr_digest){ 1, 2 }, (struct tr_digest){ 1, 3 }));
	assert_false(tr_digest_equal((struct tr_digest){ 1, 2 }, (struct tr_digest){ 0, 2 }));
}

int main(void)
{
	const struct CMUnitTest digest_tests[] = {
		cmocka_unit_test(digests_are_xxh3),
		cmocka_unit_test(long_inputs_give_the_same),
		cmocka_unit_test(forms_give_the_same_lanes),
		cmocka_unit_test(long_ones_tell),
		cmocka_unit_test(pieces_give_the_same),
		cmocka_unit_test(one_bit_changes_the_digest),
		cmocka_unit_test(folding_keeps_the_order),
	};
	return cmocka_run_group_tests(digest_tests, NULL, NULL);
}
