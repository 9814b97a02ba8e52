#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/status.h"

static void names_and_texts_are_those_of_the_list(void **state)
{
	(void)state;
#define X(name, number, text)                             \
	assert_int_equal(name, number);                   \
	assert_string_equal(tr_status_name(name), #name); \
	assert_string_equal(tr_status_text(name), text);
	TR_STATUS_MAP(X)
#undef X
}

static void any_number_has_a_name(void **state)
{
	(void)state;
	const int numbers[] = { 1, -20, -1000, INT_MAX, INT_MIN };
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		assert_string_equal(tr_status_name((tr_status)numbers[i]), "TR_EUNKNOWN");
		assert_string_equal(tr_status_text((tr_status)numbers[i]), "unknown status");
	}
}

static void set_fills_status_and_text(void **state)
{
	(void)state;
	struct tr_error error = { 0 };
	assert_int_equal(tr_error_set(&error, TR_EIO, "cannot open %s: %d", "x", 7), TR_EIO);
	assert_int_equal(error.status, TR_EIO);
	assert_string_equal(error.text, "cannot open x: 7");
	assert_int_equal(tr_error_set(NULL, TR_ENOMEM, "nobody reads"), TR_ENOMEM);
}

static void wrap_puts_context_before_the_cause(void **state)
{
	(void)state;
	struct tr_error error;
	(void)tr_error_set(&error, TR_ENOTFOUND, "no such file");
	assert_int_equal(tr_error_wrap(&error, "loading %s", "job.yaml"), TR_ENOTFOUND);
	assert_int_equal(tr_error_wrap(&error, "launch"), TR_ENOTFOUND);
	assert_string_equal(error.text, "launch: loading job.yaml: no such file");
}

static void reasons_are_listed(void **state)
{
	(void)state;
	struct tr_error all, one;
	tr_error_clear(&all);
	(void)tr_error_set(&one, TR_EIO, "no disk");
	tr_error_add(&all, &one);
	assert_string_equal(all.text, "no disk");
	(void)tr_error_set(&one, TR_ENOTFOUND, "no file");
	tr_error_add(&all, &one);
	assert_string_equal(all.text, "no disk; no file");
	assert_int_equal(all.status, TR_ENOTFOUND);
}

static void long_texts_are_cut_not_overrun(void **state)
{
	(void)state;
	char longer[2 * TR_ERROR_TEXT_MAX];
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	struct tr_error error;
	(void)tr_error_set(&error, TR_EIO, "%s", longer);
	assert_int_equal(strlen(error.text), TR_ERROR_TEXT_MAX - 1);
	assert_int_equal(tr_error_wrap(&error, "context"), TR_EIO);
	assert_int_equal(strlen(error.text), TR_ERROR_TEXT_MAX - 1);
	assert_memory_equal(error.text, "context: xxx", 12);
	assert_int_equal(tr_error_wrap(&error, "%s", longer), TR_EIO);
	assert_int_equal(strlen(error.text), TR_ERROR_TEXT_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest status_tests[] = {
		cmocka_unit_test(names_and_texts_are_those_of_the_list),
		cmocka_unit_test(any_number_has_a_name),
		cmocka_unit_test(set_fills_status_and_text),
		cmocka_unit_test(wrap_puts_context_before_the_cause),
		cmocka_unit_test(reasons_are_listed),
		cmocka_unit_test(long_texts_are_cut_not_overrun),
	};
	return cmocka_run_group_tests(status_tests, NULL, NULL);
}
