/* Reading what others wrote: good files, and every kind of bad one with a clear word. */
#include <errno.h>
#include <fcntl.h>
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
	assert_non_null(strstr(error.text, "does not fit"));
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

/* A file of more than the kernel should hold back; the linker takes this instead of the C library's. */
#define LARGE_NUMBERS (36u << 20)
static off_t sent, waited_for;
static int sync_fails;

int sync_file_range(int fd, off_t from, off_t bytes, unsigned flags)
{
	(void)fd;
	if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0)
		waited_for = from + bytes;
	else
		sent = from + bytes;
	errno = sync_fails;
	return sync_fails != 0 ? -1 : 0;
}

static void read_zeros(void *arg, size_t item, size_t first, size_t end, float *to)
{
	(void)arg;
	(void)item;
	memset(to, 0, (end - first) * sizeof(float));
}

static void test_the_disk_gets_a_large_file_in_pieces(void **state)
{
	(void)state;
	static const int fails[] = { 0, ENOSYS, EIO };
	const struct safetensors_source source = { read_zeros, NULL };
	const struct safetensors_item item = { "a", 0, LARGE_NUMBERS, NULL, &source };
	for (size_t i = 0; i < 3; i++) {
		struct tr_digest digest;
		struct tr_error error;
		FILE *file = tmpfile();
		assert_non_null(file);
		sent = waited_for = 0;
		sync_fails = fails[i];
		assert_int_equal(safetensors_write(fileno(file), &item, 1, NULL, &digest, &error),
		    fails[i] == EIO ? TR_EIO : TR_OK);
		assert_true(fails[i] == EIO || sent >= 128 << 20);
		assert_true(fails[i] != 0 || waited_for >= 64 << 20);
		(void)fclose(file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_mutilated),
		cmocka_unit_test(test_write_then_read),
		cmocka_unit_test(test_the_disk_gets_a_large_file_in_pieces),
		cmocka_unit_test(test_json),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
