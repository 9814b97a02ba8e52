/* Domains of backend "nccl" in trouble that is rare, or comes after long (nccl_fixture.h). */
#include "tests/unit/nccl_fixture.h"

/* An abort need not return before all ranks have called it, so who aborts has told the others before. */
static void test_who_aborts_has_told_the_others(void **state)
{
	(void)state;
	struct world w = { .dies = NEVER, .deadline_ms = 1000, .policy = TR_UNIFORM };
	fake->inject(FAKE_KERNEL_HANGS, 1, 1, 1);
	play(&w, true);
	check(&w, NEVER, NEVER, true);
	assert_int_equal(fake->calls("ncclCommAbort"), MEMBERS_MAX);

	fake->reset();
	struct world dying = { .dies = 1,
		.dies_in_round = 2,
		.dies_after_op = 0,
		.policy = TR_UNIFORM };
	play(&dying, true);
	check(&dying, 1, 2, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_who_aborts_has_told_the_others, setup),
	};
	return load_fake() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
