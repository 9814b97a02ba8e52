/* Programs and libraries of different ages: a struct that is shorter or longer than ours is read and written as far as both
 * know it, and nothing that somebody set is dropped in silence.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "collectives/coll.h"
#include "collectives/engine/sized.h"

struct first {
	size_t size_of;
	uint32_t a;
};
struct second {
	size_t size_of;
	uint32_t a, b;
	const char *c;
};
#define LEAST offsetof(struct second, b)

static void an_older_program_leaves_new_fields_at_zero(void **state)
{
	(void)state;
	struct first given = { offsetof(struct second, b), 5 };
	struct second known = { 9, 9, 9, "x" };
	assert_int_equal(sized_read("s", &given, LEAST, &known, sizeof(known), NULL), TR_OK);
	assert_int_equal(known.a, 5);
	assert_int_equal(known.b, 0);
	assert_null(known.c);
}

static void a_newer_program_works_until_it_sets_what_we_do_not_know(void **state)
{
	(void)state;
	struct second given = { sizeof(given), 5, 0, NULL };
	struct first known;
	struct tr_error error;
	assert_int_equal(sized_read("s", &given, LEAST, &known, LEAST, NULL), TR_OK);
	assert_int_equal(known.a, 5);
	given.c = "";
	assert_int_equal(sized_read("s", &given, LEAST, &known, LEAST, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "too old"));
}

static void sizes_that_are_none_are_refused(void **state)
{
	(void)state;
	struct second given = { 0 }, known;
	const size_t wrong[] = { 0, 4, LEAST - 1, SIZE_MAX, SIZE_MAX / 2 };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		given.size_of = wrong[i];
		assert_int_equal(sized_read("s", &given, LEAST, &known, sizeof(known), NULL),
		    TR_EINVAL);
		assert_int_equal(sized_write("s", &known, sizeof(known), LEAST, &given, NULL),
		    TR_EINVAL);
	}
	assert_int_equal(sized_read("s", NULL, LEAST, &known, sizeof(known), NULL), TR_EINVAL);
	assert_int_equal(sized_write("s", &known, sizeof(known), LEAST, NULL, NULL), TR_EINVAL);
}

static void answers_fill_what_the_program_knows(void **state)
{
	(void)state;
	const struct second known = { 0, 1, 2, "three" };
	struct second wanted = { LEAST, 7, 8, "old" };
	assert_int_equal(sized_write("s", &known, sizeof(known), LEAST, &wanted, NULL), TR_OK);
	assert_int_equal(wanted.size_of, LEAST);
	assert_int_equal(wanted.a, 1);
	assert_int_equal(wanted.b, 8); /* not touched: it lies behind what the program knows */
	struct {
		struct second second;
		uint64_t newer;
	} more = { { sizeof(more), 0, 0, NULL }, 9 };
	assert_int_equal(sized_write("s", &known, sizeof(known), LEAST, &more, NULL), TR_OK);
	assert_int_equal(more.second.b, 2);
	assert_int_equal(more.newer, 0);
}

static tr_status join(const struct tr_join_options *options, struct tr_error *error)
{
	tr_group *group = NULL;
	tr_status st = tr_group_join(options, &group, error);
	assert_null(group);
	return st;
}

static void joining_refuses_what_it_cannot_give(void **state)
{
	(void)state;
	struct tr_error error;
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	assert_int_equal(options.size_of, sizeof(options));
	options.size_of = 8;
	assert_int_equal(join(&options, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "size_of"));
	/* The first version's options get as far as the address. */
	options.size_of = offsetof(struct tr_join_options, transport);
	assert_int_equal(join(&options, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "memberd's address"));
	options = (struct tr_join_options)TR_JOIN_OPTIONS_INIT;
	options.membership = "127.0.0.1:1";
	options.name = "g";
	options.size = 1;
	options.transport = (enum tr_transport)7;
	assert_int_equal(join(&options, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "transport 7"));
	options.transport = TR_TRANSPORT_AUTO;
	options.membership = "192.0.2.1:7070"; /* RFC 5737: nobody's */
	assert_int_equal(join(&options, &error), TR_EREFUSED);
	assert_non_null(strstr(error.text, "192.0.2.1:7070 is not a loopback address"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_older_program_leaves_new_fields_at_zero),
		cmocka_unit_test(a_newer_program_works_until_it_sets_what_we_do_not_know),
		cmocka_unit_test(sizes_that_are_none_are_refused),
		cmocka_unit_test(answers_fill_what_the_program_knows),
		cmocka_unit_test(joining_refuses_what_it_cannot_give),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
