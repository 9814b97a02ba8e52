/* Reading what others wrote: good files, and every kind of bad one with a clear word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/json_read.h"
#include "daemon/checkpoint/safetensors.h"

static size_t make_file(uint8_t *to, const char *header, size_t data_bytes)
{
	size_t length = strlen(header);
	for (size_t i = 0; i < 8; i++)
		to[i] = (uint8_t)((uint64_t)length >> 8 * i);
	memcpy(to + 8, header, length);
	for (size_t i = 0; i < data_bytes; i++)
		to[8 + length + i] = (uint8_t)i;
	return 8 + length + data_bytes;
}

static void assert_bad(const char *header, size_t data_bytes, const char *expected)
{
	uint8_t bytes[1024];
	struct safetensors file;
	struct tr_error error;
	size_t size = make_file(bytes, header, data_bytes);
	assert_int_not_equal(safetensors_parse(bytes, size, &file, &error), TR_OK);
	if (strstr(error.text, expected) == NULL)
		fail_msg("'%s' does not say '%s'", error.text, expected);
}

static void test_good(void **state)
{
	(void)state;
	uint8_t bytes[1024];
	struct safetensors file;
	struct tr_error error;
	uint64_t at;
	size_t size = make_file(bytes,
	    "{\"__metadata__\":{\"format\":\"pt\"},\"m\":{\"dtype\":\"F32\",\"shape\":[2,3],"
	    "\"data_offsets\":[4,28]},\"a\":{\"shape\":[1],\"data_offsets\":[0,4],\"dtype\":"
	    "\"F32\"}} ",
	    28);
	assert_int_equal(safetensors_parse(bytes, size, &file, &error), TR_OK);
	assert_int_equal(file.count, 2);
	assert_string_equal(file.tensors[0].name, "a");
	assert_int_equal(safetensors_find_f32(&file, "m", 2, 3, &at, &error), TR_OK);
	assert_int_equal(at, size - 24);
	assert_int_equal(safetensors_find_f32(&file, "a", 0, 1, &at, &error), TR_OK);
	assert_int_equal(safetensors_find_f32(&file, "m", 3, 2, &at, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "[2, 3], this model needs F32 [3, 2]"));
	assert_int_equal(safetensors_find_f32(&file, "b", 0, 1, &at, &error), TR_ENOTFOUND);
	safetensors_close(&file);
}

#define ENTRY(dtype, shape, offsets) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_bad(void **state)
{
	(void)state;
	struct safetensors file;
	struct tr_error error;
	uint8_t huge[16] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f };
	assert_int_not_equal(safetensors_parse(huge, 7, &file, &error), TR_OK);
	assert_int_not_equal(safetensors_parse(huge, sizeof(huge), &file, &error), TR_OK);
	assert_non_null(strstr(error.text, "cut off"));
	assert_bad("", 0, "not well-formed");
	assert_bad("{}x", 0, "not well-formed");
	assert_bad("{\"a\":3}", 4, "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F32", "[1]", "[0,4]") "", 4, "not well-formed");
	assert_bad("{\"a\":" ENTRY("F32", "[1]", "[0,8]") "}", 8, "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F32", "[2]", "[0,8]") "}", 4,
	    "4 too few for what its header names");
	assert_bad("{\"a\":" ENTRY("F32", "[1]", "[4,0]") "}", 4, "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F99", "[1]", "[0,4]") "}", 4, "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F32", "[-1]", "[0,4]") "}", 4, "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F32", "[4611686018427387905,4]", "[0,16]") "}", 16,
	    "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1,
	    "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F32", "[1]", "[0,4,4]") "}", 4, "entry of 'a' is malformed");
	assert_bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "entry of 'a' is malformed");
	assert_bad("{\"a\":" ENTRY("F32", "[1]", "[4,8]") "}", 8, "leaves a hole");
	assert_bad("{\"a\":" ENTRY("F32", "[1]", "[0,4]") "}", 8, "belong to no tensor");
	assert_bad("{\"a\":" ENTRY("F32", "[2]", "[0,8]") ",\"b\":" ENTRY("F32", "[1]", "[4,8]") "}",
	    8, "overlaps");
	assert_bad("{\"a\":" ENTRY("U8", "[1]", "[0,1]") ",\"a\":" ENTRY("U8", "[1]", "[1,2]") "}",
	    2, "occurs twice");
	assert_int_equal(safetensors_open("/nowhere/x", &file, &error), TR_ENOTFOUND);
}

/* Every prefix and every changed byte of a good file ends in a status. */
static void test_mutilated(void **state)
{
	(void)state;
	uint8_t bytes[256];
	struct safetensors file;
	size_t size = make_file(bytes, "{\"a\":" ENTRY("F32", "[1,2]", "[0,8]") "}", 8);
	for (size_t cut = 0; cut < size; cut++)
		assert_int_not_equal(safetensors_parse(bytes, cut, &file, NULL), TR_OK);
	for (size_t i = 0; i < size; i++) {
		for (unsigned flip = 1; flip < 256; flip++) {
			bytes[i] ^= (uint8_t)flip;
			if (safetensors_parse(bytes, size, &file, NULL) == TR_OK)
				safetensors_close(&file);
			bytes[i] ^= (uint8_t)flip;
		}
	}
}

static void test_write_then_read(void **state)
{
	(void)state;
	char path[] = "/tmp/test_safetensors_XXXXXX";
	int fd = mkstemp(path);
	float a[6] = { 1, 2, 3, 4, 5, 6 }, b[1] = { 7 };
	struct safetensors_item items[] = { { "a", 2, 3, a, NULL },
		{ "b \"quoted\"", 0, 1, b, NULL } };
	struct tr_digest digest;
	struct tr_error error;
	struct safetensors file;
	uint64_t at;
	float got[6];
	assert_true(fd >= 0);
	assert_int_equal(safetensors_write(fd, items, 2, NULL, &digest, &error), TR_OK);
	assert_int_equal(close(fd), 0);
	assert_int_equal(safetensors_open(path, &file, &error), TR_OK);
	struct tr_digest read;
	uint8_t length;
	assert_int_equal(safetensors_digest(&file, NULL, &read, &error), TR_OK);
	assert_true(tr_digest_equal(digest, read));
	assert_int_equal(safetensors_read(&file, 0, 1, &length, &error), TR_OK);
	assert_int_equal(length % 8, 0);
	assert_int_equal(safetensors_find_f32(&file, "a", 2, 3, &at, &error), TR_OK);
	assert_int_equal(safetensors_read(&file, at, sizeof(a), got, &error), TR_OK);
	assert_memory_equal(got, a, sizeof(a));
	assert_int_equal(safetensors_find_f32(&file, "b \"quoted\"", 0, 1, &at, &error), TR_OK);
	assert_int_equal(safetensors_read(&file, at, sizeof(b), got, &error), TR_OK);
	assert_memory_equal(got, b, sizeof(b));
	safetensors_close(&file);
	assert_int_equal(unlink(path), 0);
}

static void test_json(void **state)
{
	(void)state;
	static const char text[] = " {\"skip\":{\"x\":[1,-2.5e3,{\"y\":[]},\"\\\"]\"],\"z\":{}},"
	                           "\"n\":18446744073709551615,\"s\":\"a\\u0041\\n\"} ";
	struct json_reader r;
	char key[8], string[8] = "";
	uint64_t number = 0;
	json_read_init(&r, text, strlen(text));
	for (json_read_object(&r); json_read_key(&r, key, sizeof(key));) {
		if (key[0] == 'n')
			assert_true(json_read_uint(&r, &number));
		else if (strcmp(key, "s") == 0)
			assert_true(json_read_string(&r, string, sizeof(string)));
		else
			assert_true(json_read_skip(&r));
	}
	assert_true(json_read_end(&r));
	assert_true(number == UINT64_MAX);
	assert_string_equal(string, "aA\n");
	static const char *const bad[] = { "{\"n\":18446744073709551616}", "{\"n\":1.5}",
		"{\"n\":1,}", "{\"n\" 1}", "{,\"n\":1}", "{\"n\":1 \"n\":1}",
		"{\"nnnnnnnnnnnn\":1}", "{\"n\":1" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_read_init(&r, bad[i], strlen(bad[i]));
		for (json_read_object(&r); json_read_key(&r, key, sizeof(key));)
			json_read_uint(&r, &number);
		assert_false(json_read_end(&r));
	}
}

/* Of a large file: what lies in memory one behind the other, what lies elsewhere, what is put together, and what lies behind a gap. */
#define LARGE_ROWS    1500u
#define LARGE_COLUMNS 1000u
#define LARGE_NUMBERS ((size_t)LARGE_ROWS * LARGE_COLUMNS)

static void read_number(void *arg, size_t item, size_t first, size_t end, float *to)
{
	const float *all = arg;
	memcpy(to, all + item * LARGE_NUMBERS + first, (end - first) * sizeof(float));
}

static void test_large_file(void **state)
{
	(void)state;
	enum { ITEMS = 5 };
	static const char *const names[ITEMS] = { "a", "b", "c", "d", "e" };
	char path[] = "/tmp/test_safetensors_XXXXXX";
	int fd = mkstemp(path);
	size_t bytes = LARGE_NUMBERS * sizeof(float);
	float *all = aligned_alloc(4096, ITEMS * bytes / 4096 * 4096 + 4096);
	float *apart = malloc(bytes), *got = malloc(bytes);
	struct safetensors_source source = { read_number, all };
	struct safetensors_item items[ITEMS];
	struct tr_digest digest, read;
	struct tr_error error;
	struct safetensors file;
	assert_true(fd >= 0 && all != NULL && apart != NULL && got != NULL);
	for (size_t i = 0; i < ITEMS * LARGE_NUMBERS; i++)
		all[i] = (float)(i % 16777213);
	for (size_t i = 0; i < ITEMS; i++)
		items[i] = (struct safetensors_item){ names[i], LARGE_ROWS, LARGE_COLUMNS,
			all + i * LARGE_NUMBERS, NULL };
	memcpy(apart, all + 2 * LARGE_NUMBERS, bytes);
	items[2].data = apart;
	items[3] = (struct safetensors_item){ names[3], LARGE_ROWS, LARGE_COLUMNS, NULL, &source };
	assert_int_equal(safetensors_write(fd, items, ITEMS, NULL, &digest, &error), TR_OK);
	assert_int_equal(close(fd), 0);
	assert_int_equal(safetensors_open(path, &file, &error), TR_OK);
	assert_int_equal(safetensors_digest(&file, NULL, &read, &error), TR_OK);
	assert_true(tr_digest_equal(digest, read));
	for (size_t i = 0; i < ITEMS; i++) {
		uint64_t at;
		assert_int_equal(safetensors_find_f32(&file, names[i], LARGE_ROWS, LARGE_COLUMNS,
		                     &at, &error),
		    TR_OK);
		assert_int_equal(at % 4096, i * bytes % 4096); /* they begin with a page */
		assert_int_equal(safetensors_read(&file, at, bytes, got, &error), TR_OK);
		assert_memory_equal(got, all + i * LARGE_NUMBERS, bytes);
	}
	safetensors_close(&file);
	assert_int_equal(unlink(path), 0);
	free(all);
	free(apart);
	free(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_mutilated),
		cmocka_unit_test(test_write_then_read),
		cmocka_unit_test(test_large_file),
		cmocka_unit_test(test_json),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
