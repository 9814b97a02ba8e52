/* Who is right among contributors that hold different bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/parity.h"

/* A letter is what a contributor holds; a small one: and it is not what it wrote. A dash: nobody. */
static unsigned right(const char *members)
{
	struct parity_record records[3 * 16] = { 0 };
	unsigned count = (unsigned)strlen(members);

	for (unsigned i = 0; i < count; i++) {
		uint64_t letter = (uint64_t)members[i] & ~UINT64_C(0x20);
		uint64_t how = members[i] >= 'a' ? PARITY_SPOILT : PARITY_SOUND;
		if (members[i] == '-')
			how = PARITY_ABSENT;
		records[3 * i] = (struct parity_record){ { letter, letter }, how };
		/* Neighbours in memory are of other parts. */
		records[3 * i + 1] = (struct parity_record){ { 99, i }, i % 2 };
	}
	return parity_right(records, 3, count);
}

static void the_majority_is_right(void **state)
{
	(void)state;
	assert_int_equal(right("ABB"), 1);
	assert_int_equal(right("AAB"), 0);
	assert_int_equal(right("CABB"), 2);
	assert_int_equal(right("AAAA"), 0);
}

/* Two, or two against two: else a coin would decide. */
static void who_holds_what_it_wrote_is_right(void **state)
{
	(void)state;
	assert_int_equal(right("aB"), 1);
	assert_int_equal(right("Ab"), 0);
	assert_int_equal(right("aBab"), 1); /* the second b's note of what it wrote is off */
	assert_int_equal(right("aaB"), 2);  /* a joiner that got them from a spoilt donor */
	assert_int_equal(right("aabBB"), 3);
	assert_int_equal(right("-aB"), 2);
	assert_int_equal(right("--a"), 2);
}

static void else_who_has_been_there_longest(void **state)
{
	(void)state;
	assert_int_equal(right("AB"), 0);
	assert_int_equal(right("ABC"), 0);
	assert_int_equal(right("AABB"), 0);
	assert_int_equal(right("BBCCA"), 0);
	assert_int_equal(right("ab"), 0);
	assert_int_equal(right("A"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_majority_is_right),
		cmocka_unit_test(who_holds_what_it_wrote_is_right),
		cmocka_unit_test(else_who_has_been_there_longest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
