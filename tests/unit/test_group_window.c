/* What is on the way of an op that gives its senders no results: a reduce-scatter. A fast sender must not fill the memory of a peer
 * that waits for a slow one.
 */
#include "tests/unit/group_pump.h"

#define N        3
#define SEGMENTS 100 /* of each block */
#define COUNT    (N * SEGMENTS * 4)
#define ROWS     4 /* a member's window: so many segments of each block */

static int32_t input[N][COUNT], output[N][COUNT / N];

static void submit(struct pump *pump, unsigned who)
{
	for (unsigned e = 0; e < COUNT; e++)
		input[who][e] = (int32_t)(e * (who + 1));
	assert_int_equal(pump_step(pump, who,
	                     &(struct group_event){ .kind = GROUP_SUBMIT,
	                         .submit = { .tag = 1,
	                             .collective = TR_REDUCE_SCATTER,
	                             .data = output[who],
	                             .input = input[who],
	                             .count = COUNT,
	                             .own_elements = COUNT / N,
	                             .dtype = TR_I32,
	                             .reduce = TR_SUM,
	                             .contribute = true } }),
	    TR_OK);
	assert_int_equal(pump_close(pump, who, 0, 0), TR_OK);
}

static unsigned sums_between(const struct pump *pump, unsigned from, unsigned to)
{
	char words[32];
	unsigned count = 0;
	(void)snprintf(words, sizeof(words), "%u>%u sum ", from + 1, to + 1);
	for (const char *at = pump->trace; (at = strstr(at, words)) != NULL; at++)
		count++;
	return count;
}

static void slow_one(Traind__Peer__Algorithm algorithm, bool deterministic)
{
	struct pump *pump = pump_create_with(N, ROWS * (N - 1) * 16);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = algorithm;
	view.deterministic = deterministic;
	view.host[0] = view.host[1] = "a";
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	submit(pump, 0);
	submit(pump, 1);
	pump_run(pump);
	/* Of a host of two one sends what goes to the third by the other. */
	unsigned blocks = algorithm == TRAIND__PEER__ALGORITHM__ALGORITHM_HIERARCHICAL ? N - 1 : 1;
	assert_in_range(sums_between(pump, 0, 1), 1, ROWS * blocks);
	assert_in_range(sums_between(pump, 1, 0), 1, ROWS * blocks);
	submit(pump, 2);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
		for (unsigned e = 0; e < COUNT / N; e++)
			assert_int_equal(output[i][e], 6 * (i * (COUNT / N) + e));
	}
	pump_destroy(pump);
}

static void nobody_runs_ahead_of_the_slowest(void **state)
{
	(void)state;
	for (int algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	     algorithm <= TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT; algorithm++)
		for (int deterministic = 0; deterministic < 2; deterministic++)
			slow_one((Traind__Peer__Algorithm)algorithm, deterministic != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_runs_ahead_of_the_slowest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
