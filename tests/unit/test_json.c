#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/json.h"
#include "common/json_read.h"

static void assert_written(struct json *json, const char *text)
{
	assert_non_null(json_text(json));
	assert_string_equal(json_text(json), text);
	json_finish(json);
}

static void commas_go_between_values(void **state)
{
	(void)state;
	struct json j = { 0 };
	json_object(&j);
	json_key(&j, "a");
	json_array(&j);
	json_uint(&j, 1);
	json_int(&j, -2);
	json_object(&j);
	json_end(&j);
	json_array(&j);
	json_end(&j);
	json_end(&j);
	json_key(&j, "b");
	json_bool(&j, true);
	json_key(&j, "c");
	json_null(&j);
	json_end(&j);
	assert_written(&j, "{\"a\":[1,-2,{},[]],\"b\":true,\"c\":null}");
}

static void assert_string_as(const char *bytes, size_t length, const char *text)
{
	struct json j = { 0 };
	json_stringn(&j, bytes, length);
	assert_written(&j, text);
}

static void strings_are_escaped(void **state)
{
	(void)state;
	assert_string_as("a\"b\\c\nd\te\x01\x7f", 11, "\"a\\\"b\\\\c\\nd\\u0009e\\u0001\\u007f\"");
	assert_string_as("a\0b", 3, "\"a\\u0000b\"");
	assert_string_as("", 0, "\"\"");
	struct json j = { 0 };
	json_string(&j, NULL);
	assert_written(&j, "null");
}

#define BAD "\xef\xbf\xbd"

static void bad_utf8_is_replaced(void **state)
{
	(void)state;
	assert_string_as("\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82", 9,
	    "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82\"");
	assert_string_as("\xff", 1, "\"" BAD "\"");
	assert_string_as("\xc3", 1, "\"" BAD "\"");                         /* cut */
	assert_string_as("\xc0\xaf", 2, "\"" BAD BAD "\"");                 /* overlong */
	assert_string_as("\xe0\x80\x80", 3, "\"" BAD BAD BAD "\"");         /* overlong */
	assert_string_as("\xed\xa0\x80", 3, "\"" BAD BAD BAD "\"");         /* surrogate */
	assert_string_as("\xf4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\""); /* beyond U+10FFFF */
	assert_string_as("\xe2\x82x", 3, "\"" BAD BAD "x\"");
}

static void numbers_read_back_as_they_were(void **state)
{
	(void)state;
	struct json j = { 0 };
	json_array(&j);
	json_uint(&j, UINT64_MAX);
	json_int(&j, INT64_MIN);
	json_double(&j, 0.1);
	json_double(&j, 2.0 / 3);
	json_double(&j, 0.1 + 0.2);
	json_double(&j, NAN);
	json_double(&j, -INFINITY);
	json_end(&j);
	assert_written(&j,
	    "[18446744073709551615,-9223372036854775808,0.1,"
	    "0.6666666666666666,0.30000000000000004,null,null]");
}

static void deep_and_long_documents(void **state)
{
	(void)state;
	struct json j = { 0 };
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		json_array(&j);
	for (unsigned i = 0; i < 10000; i++)
		json_uint(&j, i);
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		json_end(&j);
	const char *text = json_text(&j);
	assert_non_null(text);
	assert_int_equal(strlen(text), j.length);
	assert_memory_equal(text + JSON_DEPTH_MAX, "0,1,2,3", 7);
	assert_memory_equal(text + j.length - JSON_DEPTH_MAX - 5, ",9999]", 6);
	json_finish(&j);
	assert_null(j.text);
}

static bool reads_as(const char *text, const char *wanted)
{
	struct json_reader r;
	char got[32];
	json_read_init(&r, text, strlen(text));
	return json_read_string(&r, got, sizeof(got)) && json_read_end(&r) &&
	    strcmp(got, wanted) == 0;
}

static void escapes_are_read(void **state)
{
	(void)state;
	assert_true(reads_as("\"a\\n\\u0041\\/\"", "a\nA/"));
	assert_true(reads_as("\"\\u0120t \\u20AC\\ud83d\\ude00!\"",
	    "\xc4\xa0t \xe2\x82\xac\xf0\x9f\x98\x80!"));
	assert_true(
	    reads_as("\"1234567890123456789012345678901\"", "1234567890123456789012345678901"));
	const char *const bad[] = { "\"\\u0000\"", "\"\\ud83d\"", "\"\\ude00\"",
		"\"\\ud83d\\u0041\"", "\"\\u12g4\"", "\"\\u12", "\"\\ud83d\\u", "\"\\x\"", "\"\\",
		"\"a", "\"12345678901234567890123456789012\"",
		"\"1234567890123456789012345678901\\u0120\"" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct json_reader r;
		char got[32];
		json_read_init(&r, bad[i], strlen(bad[i]));
		assert_false(json_read_string(&r, got, sizeof(got)));
	}
}

int main(void)
{
	const struct CMUnitTest json_tests[] = {
		cmocka_unit_test(commas_go_between_values),
		cmocka_unit_test(strings_are_escaped),
		cmocka_unit_test(bad_utf8_is_replaced),
		cmocka_unit_test(numbers_read_back_as_they_were),
		cmocka_unit_test(deep_and_long_documents),
		cmocka_unit_test(escapes_are_read),
	};
	return cmocka_run_group_tests(json_tests, NULL, NULL);
}
