/* Sums have the same bits whatever members' programs make of subnormal numbers (common/float_mode.h), over real engines. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "common/float_mode.h"
#include "engine_fixture.h"

enum { N = 2, COUNT = 5000 };

struct caller {
	tr_group *group;
	uint32_t *bits;
	pthread_t thread;
	tr_status status;
};

/* It waits for the others' inputs in its commit. */
static void *call(void *arg)
{
	struct caller *c = arg;
	struct tr_error error;
	c->status = tr_allreduce(c->group, 1, c->bits, COUNT, TR_F32, TR_SUM, TR_CONTRIBUTE, &error);
	if (c->status == TR_OK)
		c->status = tr_round_commit(c->group, NULL, NULL, &error);
	return NULL;
}

static struct fx *begin(struct caller *callers)
{
	void *memory[N];
	struct fx *fx = fx_begin(N, COUNT * sizeof(float), memory);
	for (unsigned i = 0; i < N; i++) {
		callers[i] = (struct caller){ .group = fx->hosts[i].group, .bits = memory[i] };
		for (uint32_t k = 0; k < COUNT; k++)
			callers[i].bits[k] = k + i;
	}
	return fx;
}

/* One comes after the other: the first is at its engine's turns when the input comes that it adds to its own. */
static void call_in_turn(struct caller *callers)
{
	const struct timespec between = { .tv_nsec = 20000000 };
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
		(void)nanosleep(&between, NULL);
	}
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
	}
}

/* All threads, engines' too, begin with the mode of the one that creates them. */
static void sums_of_subnormal_numbers_are_kept(void **state)
{
	(void)state;
	for (unsigned flush = 0; flush < 2; flush++) {
		struct caller callers[N];
		(void)float_mode_set(flush ? FLOAT_FLUSH : FLOAT_EXACT);
		struct fx *fx = begin(callers);
		call_in_turn(callers);
		(void)float_mode_set(FLOAT_EXACT);
		for (unsigned i = 0; i < N; i++)
			for (uint32_t k = 0; k < COUNT; k++)
				assert_int_equal(callers[i].bits[k], 2 * k + 1);
		fx_stop(fx);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_of_subnormal_numbers_are_kept),
	};
	int failed = cmocka_run_group_tests_name("engine's thread", tests, NULL, NULL);
	fx_driving = true;
	return failed + cmocka_run_group_tests_name("callers' turns", tests, NULL, NULL);
}
