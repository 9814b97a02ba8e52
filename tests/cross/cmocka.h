/* As much of cmocka as the kernels' tests use, for machines without it: `make kernels-neon` compiles tests/unit/test_kernel_*.c
 * with this header for 64-bit ARM and runs them in an emulator. The first failure ends the program with 1.
 */
#ifndef TR_TESTS_CROSS_CMOCKA_H
#define TR_TESTS_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*run)(void **state);
};

#define cmocka_unit_test(function)                    \
	{                                             \
		.name = #function, .run = (function), \
	}
#define assert_true(condition) \
	((condition) ? (void)0 \
	             : (printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition), exit(1)))
#define assert_false(condition)          assert_true(!(condition))
#define assert_int_equal(a, b)           assert_true((unsigned long long)(a) == (unsigned long long)(b))
#define assert_string_equal(a, b)        assert_true(strcmp((a), (b)) == 0)
#define assert_memory_equal(a, b, bytes) assert_true(memcmp((a), (b), (bytes)) == 0)
#define assert_ptr_equal(a, b)           assert_true((const void *)(a) == (const void *)(b))
#define fail_msg(...)                    (printf(__VA_ARGS__), printf("\n"), exit(1))
#define print_message                    printf

static inline int cross_run(const struct CMUnitTest *tests, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		tests[i].run(NULL);
		printf("ok %s\n", tests[i].name);
	}
	return 0;
}
#define cmocka_run_group_tests(tests, setup, teardown) \
	cross_run((tests), sizeof(tests) / sizeof((tests)[0]))

#endif
