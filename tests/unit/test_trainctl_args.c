#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/trainctl/args.h"

static const struct args_row rows[] = {
	{ "--set", NULL, "K=V", "", false },
	{ "--workers", "-n", "N", "", true },
	{ "--detach", "-d", NULL, "", false },
	{ NULL, NULL, NULL, NULL, false },
};
static const struct args_row globals[] = {
	{ "--json", NULL, NULL, "", false },
	{ NULL, NULL, NULL, NULL, false },
};

#define PARSE(args, error, ...)          \
	parse((char *[]){ __VA_ARGS__ }, \
	    (int)(sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *)), args, error)

static tr_status parse(char **argv, int argc, struct args *args, struct tr_error *error)
{
	return args_parse(rows, globals, argc, argv, args, error);
}

static void test_options_and_words(void **state)
{
	(void)state;
	struct args args;
	struct tr_error error;
	assert_int_equal(PARSE(&args, &error, "job.yaml", "--set", "a=b=c", "--json", "--set=d=e",
	                     "-d"),
	    TR_OK);
	assert_int_equal(args.n_words, 1);
	assert_string_equal(args.words[0], "job.yaml");
	assert_int_equal(args.n_given, 4);
	assert_string_equal(args.given[0].value, "a=b=c");
	assert_string_equal(args_value(&args, "--set"), "d=e");
	assert_true(args_has(&args, "--json") && args_has(&args, "--detach") &&
	    !args_has(&args, "--workers"));
	assert_null(args.rest);
	args_finish(&args);
}

/* As of a variable that is not set: nothing, never the current folder. Words of a command may be. */
static void test_nothing(void **state)
{
	(void)state;
	struct args args;
	struct tr_error error;
	assert_int_equal(PARSE(&args, &error, "--set", ""), TR_EINVAL);
	assert_string_equal(error.text, "--set: found nothing, allowed: K=V");
	assert_int_equal(PARSE(&args, &error, "--set="), TR_EINVAL);
	assert_int_equal(PARSE(&args, &error, "a", ""), TR_EINVAL);
	assert_string_equal(error.text, "found an empty word (''), which names nothing");
	assert_int_equal(PARSE(&args, &error, "-n", "4", "printf", ""), TR_OK);
	assert_int_equal(args.n_rest, 2);
	assert_int_equal(args_rest_are_words(&args, &error), TR_EINVAL);
	args_finish(&args);
}

static void test_command_follows(void **state)
{
	(void)state;
	struct args args;
	struct tr_error error;
	assert_int_equal(PARSE(&args, &error, "-n", "4", "python", "train.py", "--set", "-d"),
	    TR_OK);
	assert_int_equal(args.n_rest, 4);
	assert_string_equal(args.rest[0], "python");
	assert_false(args_has(&args, "--detach"));
	args_finish(&args);
	assert_int_equal(PARSE(&args, &error, "-n4", "-d", "--", "-x"), TR_OK);
	assert_string_equal(args_value(&args, "--workers"), "4");
	assert_true(args_has(&args, "--detach"));
	assert_int_equal(args.n_rest, 1);
	assert_string_equal(args.rest[0], "-x");
	args_finish(&args);
}

static void test_refused(void **state)
{
	(void)state;
	struct args args;
	struct tr_error error;
	assert_int_equal(PARSE(&args, &error, "--bogus"), TR_EINVAL);
	assert_string_equal(error.text, "unknown option '--bogus'");
	assert_int_equal(PARSE(&args, &error, "--wokers=4"), TR_EINVAL);
	assert_string_equal(error.text, "unknown option '--wokers=4' (did you mean '--workers'?)");
	assert_int_equal(PARSE(&args, &error, "--jsno"), TR_EINVAL);
	assert_string_equal(error.text, "unknown option '--jsno' (did you mean '--json'?)");
	assert_int_equal(PARSE(&args, &error, "-x9"), TR_EINVAL);
	assert_string_equal(error.text, "unknown option '-x9'");
	assert_int_equal(PARSE(&args, &error, "-dx"), TR_EINVAL);
	assert_int_equal(PARSE(&args, &error, "--set"), TR_EINVAL);
	assert_string_equal(error.text, "--set needs a value: --set K=V");
	assert_int_equal(PARSE(&args, &error, "--detach=yes"), TR_EINVAL);
	assert_string_equal(error.text, "--detach takes no value");
}

static void test_numbers(void **state)
{
	(void)state;
	struct args args;
	struct tr_error error;
	uint64_t number = 0;
	assert_int_equal(PARSE(&args, &error, "-n", "4x"), TR_OK);
	assert_int_equal(args_number(&args, "--workers", 1, 256, 1, &number, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "--workers: found '4x', allowed: a whole number from 1 to 256");
	args_finish(&args);
	static const char *const bad[] = { "", "-1", "0", "257", "99999999999999999999999", " 4",
		"4 " };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(args_parse_number("x", bad[i], 1, 256, &number, &error), TR_EINVAL);
	assert_int_equal(args_parse_number("x", "256", 1, 256, &number, &error), TR_OK);
	assert_int_equal(number, 256);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_and_words),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_command_follows),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
