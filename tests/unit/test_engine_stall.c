/* A donor whose connection stands still without an end. Alone: it takes the 30 s of TR_STATE_STALL_MS. */
#include "tests/unit/joiner_fixture.h"

/* Neither the donor's kernel nor the joiner's sees anything wrong: the joiner closes it, and the donor serves anew. */
static void a_lone_donor_that_stands_still_is_asked_again(void **state)
{
	(void)state;
	struct harmed *h = harmed_start((struct fp_harm){ .stall = 1 });
	FX_WAIT(h->fx, h->small[2].done >= 3 && h->small[2].received);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(h->big[2].data[i], h->big[0].data[i], state_bytes[i]);
	FX_IS(h->fx, h->proxy.harm.begins == 2);
	harmed_stop(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lone_donor_that_stands_still_is_asked_again),
	};
	return cmocka_run_group_tests_name("engine stall", tests, NULL, NULL);
}
