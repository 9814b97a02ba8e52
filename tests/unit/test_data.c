/* Text and the order of samples: pure, complete, the same however many share the work. */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/worker/samples.h"

static uint8_t bytes[5000];

static void fill(void)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rng_u64(rng_key(1, 2, 3), 4, i);
}

static void write_plain(const char *path, const void *data, size_t size)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static void test_files(void **state)
{
	(void)state;
	char folder[] = "/tmp/test_data_XXXXXX", plain[64], packed[64], cut[64];
	struct text text;
	struct tr_error error;
	fill();
	assert_non_null(mkdtemp(folder));
	(void)snprintf(plain, sizeof(plain), "%s/plain", folder);
	(void)snprintf(packed, sizeof(packed), "%s/packed.gz", folder);
	(void)snprintf(cut, sizeof(cut), "%s/cut.gz", folder);
	write_plain(plain, bytes, 3000);
	gzFile gz = gzopen(packed, "wb");
	assert_int_equal(gzwrite(gz, bytes + 3000, 2000), 2000);
	assert_int_equal(gzclose(gz), Z_OK);

	const char *paths[] = { plain, packed };
	assert_int_equal(text_load(paths, 2, 0.1, &text, &error), TR_OK);
	assert_int_equal(text.size, 5000);
	assert_int_equal(text.train_size, 4500);
	assert_memory_equal(text.bytes, bytes, 5000);
	text_finish(&text);

	/* A download that was cut off is not half a text. */
	char start[200];
	FILE *file = fopen(packed, "r");
	assert_non_null(file);
	assert_int_equal(fread(start, 1, sizeof(start), file), sizeof(start));
	assert_int_equal(fclose(file), 0);
	write_plain(cut, start, sizeof(start));
	const char *bad[] = { plain, cut };
	assert_int_not_equal(text_load(bad, 2, 0, &text, &error), TR_OK);
	assert_non_null(strstr(error.text, "cut.gz: cannot decompress"));
	/* Nor is what only its name says is compressed. */
	for (size_t size = 0; size < 30; size += 29) {
		write_plain(cut, bytes, size);
		assert_int_equal(text_load(bad, 2, 0, &text, &error), TR_EINVAL);
		assert_non_null(
		    strstr(error.text, "cut.gz: is not compressed, allowed: names that "));
	}
	bad[1] = "/nowhere";
	assert_int_not_equal(text_load(bad, 2, 0, &text, &error), TR_OK);
	assert_string_equal(error.text,
	    "data.text: /nowhere: cannot open: No such file or directory");
	assert_int_equal(unlink(plain) | unlink(packed) | unlink(cut) | rmdir(folder), 0);
}

/* Where a window lies in the text, by its bytes, which are random: no window occurs twice. */
static size_t place(const int32_t *inputs, size_t count)
{
	for (size_t at = 0; at + count <= sizeof(bytes); at++) {
		size_t i = 0;
		while (i < count && inputs[i] == bytes[at + i])
			i++;
		if (i == count)
			return at;
	}
	fail_msg("a window that is not in the text");
	return 0;
}

static void test_epoch_is_a_permutation(void **state)
{
	(void)state;
	enum { CONTEXT = 32 };
	fill();
	struct text text = { bytes, sizeof(bytes), 4500, 1, false };
	struct samples s;
	int32_t inputs[CONTEXT], targets[CONTEXT];
	assert_int_equal(samples_init(&text, CONTEXT, 5, 3, &s, NULL), TR_OK);
	assert_int_equal(s.per_epoch, (4500 - CONTEXT) / CONTEXT);
	size_t shifts[3] = { 0 };
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		bool seen[5000] = { false };
		unsigned in_order = 0;
		for (uint64_t i = 0; i < s.per_epoch; i++) {
			samples_get(&s, epoch * s.per_epoch + i, inputs, targets);
			size_t at = place(inputs, CONTEXT);
			assert_true(at + CONTEXT < 4500);
			assert_false(seen[at]);
			seen[at] = true;
			in_order += at / CONTEXT == i;
			for (size_t j = 0; j < CONTEXT; j++)
				assert_int_equal(targets[j], bytes[at + j + 1]);
			shifts[epoch] = at % CONTEXT;
		}
		assert_true(in_order < s.per_epoch / 4);
	}
	assert_true(shifts[0] != shifts[1] || shifts[1] != shifts[2]);
}

static void test_pure_in_seed_and_index(void **state)
{
	(void)state;
	enum { CONTEXT = 16 };
	fill();
	struct text text = { bytes, sizeof(bytes), sizeof(bytes), 1, false };
	struct samples a, b, other;
	int32_t x[CONTEXT], y[CONTEXT], targets[CONTEXT];
	unsigned differ = 0;
	assert_int_equal(samples_init(&text, CONTEXT, 1, 0, &a, NULL), TR_OK);
	assert_int_equal(samples_init(&text, CONTEXT, 1, 0, &b, NULL), TR_OK);
	assert_int_equal(samples_init(&text, CONTEXT, 2, 0, &other, NULL), TR_OK);
	for (uint64_t i = 1000; i-- > 0;) {
		samples_get(&a, i, x, targets);
		samples_get(&b, i, y, targets);
		assert_memory_equal(x, y, sizeof(x));
		samples_get(&other, i, y, targets);
		differ += memcmp(x, y, sizeof(x)) != 0;
	}
	assert_true(differ > 900);
}

static void test_shares_are_the_batch(void **state)
{
	(void)state;
	for (uint64_t size = 0; size < 40; size++) {
		for (unsigned count = 1; count < 12; count++) {
			uint64_t next = 0, first, last;
			for (unsigned i = 0; i < count; i++) {
				samples_share(size, i, count, &first, &last);
				assert_true(first == next && last >= first);
				assert_true(last - first <= size / count + 1);
				next = last;
			}
			assert_true(next == size);
		}
	}
}

static void test_validation(void **state)
{
	(void)state;
	enum { CONTEXT = 20 };
	fill();
	struct text text = { bytes, sizeof(bytes), 4000, 1, false };
	struct samples s;
	struct tr_error error;
	int32_t inputs[CONTEXT], targets[CONTEXT];
	for (uint64_t windows = 1; windows < 60; windows++) {
		assert_int_equal(samples_init(&text, CONTEXT, 1, windows, &s, NULL), TR_OK);
		assert_int_equal(s.validation, windows < 49 ? windows : 49);
		size_t before = 0;
		for (uint64_t i = 0; i < s.validation; i++) {
			samples_get_validation(&s, i, inputs, targets);
			size_t at = place(inputs, CONTEXT);
			assert_true(at >= 4000 && at + CONTEXT < 5000 && at > before);
			before = at;
		}
	}
	text.train_size = 4990;
	assert_int_equal(samples_init(&text, CONTEXT, 1, 1, &s, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "data.validation: found a held-out tail of 10 bytes"));
	text.train_size = 2 * CONTEXT - 1;
	assert_int_equal(samples_init(&text, CONTEXT, 1, 1, &s, &error), TR_EINVAL);
	/* The smallest text: one window, at any shift, with its last target. */
	text.size = text.train_size = 2 * CONTEXT;
	assert_int_equal(samples_init(&text, CONTEXT, 1, 1, &s, NULL), TR_OK);
	for (uint64_t i = 0; i < 200; i++)
		samples_get(&s, i, inputs, targets);
}

/* A file as llm.c writes them; returns its path. */
static const char *write_tokens(const char *name, uint32_t magic, uint32_t version, uint32_t count,
    unsigned width, const uint32_t *tokens, size_t written)
{
	static char path[4][64];
	static size_t next;
	uint8_t file[1024 + 4 * 16] = { 0 };
	uint32_t header[3] = { magic, version, count };
	char *at = path[next++ % 4];
	memcpy(file, header, sizeof(header));
	for (size_t i = 0; i < written; i++)
		memcpy(file + 1024 + i * width, &tokens[i], width);
	(void)snprintf(at, sizeof(path[0]), "/tmp/test_data_%d_%s", (int)getpid(), name);
	write_plain(at, file, 1024 + written * width);
	return at;
}

static void tokens_refused(const char *const *paths, size_t count, const char *says)
{
	struct text text;
	struct tr_error error;
	assert_int_not_equal(text_load_tokens(paths, count, 60000, 0, &text, &error), TR_OK);
	if (strstr(error.text, says) == NULL || strstr(error.text, "data.tokens: /tmp/") == NULL)
		fail_msg("says:   %s\nshould: %s", error.text, says);
}

static void test_files_of_tokens(void **state)
{
	(void)state;
	const uint32_t small[] = { 3, 50256, 0, 59999, 7 }, large[] = { 128000, 2, 1u << 20 };
	const char *a = write_tokens("a", 20240520, 1, 5, 2, small, 5);
	const char *b = write_tokens("b", 20240520, 1, 2, 2, small + 3, 2);
	const char *c = write_tokens("c", 20240801, 7, 3, 4, large, 3);
	const char *ab[] = { a, b }, *bad[] = { a, NULL };
	struct text text;
	struct tr_error error;
	if (text_load_tokens(ab, 2, 60000, 0.3, &text, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(text.size, 7);
	assert_int_equal(text.train_size, 5);
	for (size_t i = 0; i < 7; i++)
		assert_int_equal(text_token(&text, i), small[i < 5 ? i : i - 2]);
	text_finish(&text);
	if (text_load_tokens(&c, 1, (1u << 20) + 1, 0, &text, &error) != TR_OK)
		fail_msg("%s", error.text);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(text_token(&text, i), large[i]);
	text_finish(&text);

	bad[1] = c;
	tokens_refused(bad, 2, "its tokens have 4 bytes, those of the files before it 2");
	tokens_refused(&c, 1,
	    "token 0: found 128000, allowed: less than model.vocab, which is 60000");
	bad[1] = write_tokens("d", 20240520, 2, 1, 2, small, 1);
	tokens_refused(bad, 2, "it begins with 20240520, version 2; files of tokens");
	bad[1] = write_tokens("d", 20240520, 1, 4, 2, small, 3);
	tokens_refused(bad, 2, "its header says 4 tokens of 2 bytes, 6 bytes follow");
	bad[1] = write_tokens("d", 20240520, 1, 0, 2, small, 0);
	tokens_refused(bad, 2, "it has no tokens");
	write_plain(bad[1], "short", 5);
	tokens_refused(bad, 2, "5 bytes are too few");
	assert_int_equal(unlink(a), 0);
	tokens_refused(&a, 1, "cannot open: No such file");
	(void)unlink(b);
	(void)unlink(c);
	(void)unlink(bad[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_of_tokens),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_epoch_is_a_permutation),
		cmocka_unit_test(test_pure_in_seed_and_index),
		cmocka_unit_test(test_shares_are_the_batch),
		cmocka_unit_test(test_validation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
