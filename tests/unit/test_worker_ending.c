/* A worker that is told to end while it may have something to keep (daemon/worker/ending.h): it does not finish a step first, which may take longer than
 * the patience of those who wait, and nothing ends it while it writes.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/ending.h"
#include "daemon/worker/trainer_inside.h"
#include "tests/unit/fake_coll.h"
#include "tests/unit/trainer_job.h"

/* `evicted`: which of its calls says so; 0: none does. */
static void told_to_end(unsigned evicted)
{
	struct job j;
	struct fake_world world;
	struct trainer *t;
	struct tr_error error;
	char kept[128];
	job_init(&j, 100);
	j.sync.mode = (char *)(uintptr_t) "diloco";
	j.sync.inner_steps = 10;
	j.sync.alone_steps = 10;
	fake_world_init(&world, 1);
	world.waits_to_eviction = evicted;
	assert_int_equal(trainer_create(&world.groups[0], &j.spec, 1, 0, &t, &error), TR_OK);
	(void)snprintf(kept, sizeof(kept), "%s/kept", j.folder);
	trainer_keep(t, kept);
	assert_int_equal(trainer_log_samples(t, j.folder, &error), TR_OK);
	assert_int_equal(raise(SIGTERM), 0);
	assert_true(ending_wanted());
	assert_int_equal(trainer_run(t, &error), evicted > 0 ? TR_EEVICTED : TR_ECANCELLED);
	assert_int_equal(t->outer.age, 0);
	/* What it had begun with is not consumed. */
	assert_int_equal(lseek(t->samples_log, 0, SEEK_END), 0);
	trainer_destroy(t);
	fake_world_finish(&world);
	(void)snprintf(kept, sizeof(kept), "%s/kept/peer-10", j.folder);
	assert_int_equal(access(kept, F_OK) == 0, evicted > 0);
	job_finish(&j);
}

static void it_does_not_finish_its_step(void **state)
{
	(void)state;
	told_to_end(0);
}

/* The engine may hear of its eviction a moment after the signal came. */
static void it_waits_a_moment_for_the_news(void **state)
{
	(void)state;
	told_to_end(1);
	told_to_end(3);
}

static void nothing_ends_it_while_it_writes(void **state)
{
	(void)state;
	ending_wait();
	assert_int_equal(raise(SIGTERM), 0);
	assert_true(alarm(1000) > 0);
	ending_hold();
	assert_int_equal(raise(SIGTERM), 0); /* that of its eviction may come after the news of it */
	assert_int_equal(alarm(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_does_not_finish_its_step),
		cmocka_unit_test(it_waits_a_moment_for_the_news),
		cmocka_unit_test(nothing_ends_it_while_it_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
