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

/* Nobody sent anything: the salt is of one's own data, and nothing is written. (A good worker of two read memory that was never there.) */
static void without_a_verdict_all_keep_their_own(void **state)
{
	(void)state;
	char data[2][16] = { "held by this one", "and this beside " }, before[2][16];
	struct parity_part parts[2] = { { .data = data[0], .bytes = 16 },
		{ .data = data[1], .bytes = 16, .at = 16 } };
	for (unsigned index = 0; index < 4; index++) { /* the last one is a joiner */
		struct parity p = { .parts = parts, .count = 2, .index = index, .contributors = 3 };
		parts[0].differs = parts[1].differs = false;
		uint64_t alike = parity_salt(&p);
		p.drifted = p.undecided = true;
		parts[0].differs = parts[1].differs = true;
		memcpy(before, data, sizeof(before));
		assert_true(parity_salt(&p) == alike);
		parity_mend(&p);
		assert_memory_equal(data, before, sizeof(before));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_majority_is_right),
		cmocka_unit_test(who_holds_what_it_wrote_is_right),
		cmocka_unit_test(else_who_has_been_there_longest),
		cmocka_unit_test(without_a_verdict_all_keep_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
