/* Copies past the caches: every size and alignment, and nothing beside. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "collectives/kernels/copy.h"

#define ROOM 2048

static void every_size_and_alignment(void **state)
{
	static _Alignas(64) uint8_t from[ROOM], to[ROOM], expected[ROOM];
	(void)state;
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	for (size_t at_to = 0; at_to <= 64; at_to += at_to % 32 == 0 ? 1 : 31)
		for (size_t at_from = 0; at_from < 40; at_from += 13)
			for (size_t bytes = 0; bytes < 700; bytes += bytes < 260 ? 1 : 37) {
				memset(to, 0xee, ROOM);
				memset(expected, 0xee, ROOM);
				memcpy(expected + at_to, from + at_from, bytes);
				copy_past_cache(to + at_to, from + at_from, bytes);
				assert_memory_equal(to, expected, ROOM);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_size_and_alignment) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
