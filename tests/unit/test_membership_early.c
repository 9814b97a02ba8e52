/* A node that comes while memberd still reads its log. */
#include "tests/unit/membership_harness.h"

static void test_hello_before_leading_is_sent_away(void **state)
{
	static struct world w;
	(void)state;
	world_init(&w);
	hello(&w, 1, 0, 101, 1);
	if (strstr(w.trace, "close c1: memberd still reads its log: try again") == NULL)
		fail_msg("not closed, so the node would wait for ever: %s", w.trace);
	world_closed(&w, 1, "closed");
	world_lead(&w);
	w.trace_length = 0;
	hello(&w, 2, 0, 101, 1);
	assert_non_null(w.last[2]);
	assert_int_equal(w.last[2]->body_case, TRAIND__PEER__TO_NODE__BODY_WELCOME);
	assert_null(strstr(w.trace, "close"));
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello_before_leading_is_sent_away),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
