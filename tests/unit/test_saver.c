/* The thread that writes checkpoints: from a copy, which is there soon; who waits for it gets on; and it yields to what trains. */
#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/worker/patience.h"
#include "daemon/worker/saver.h"
#include "checkpoint_fixture.h"
#include "slow_disk.h"

static void test_saver(void **state)
{
	struct fixture *f = *state;
	struct saver *saver;
	struct saver_result result;
	struct manifest manifest = { .step = 3 };
	struct tr_error error;
	assert_int_equal(saver_create(&f->folder, &f->layout, &saver, &error), TR_OK);
	assert_false(saver_result(saver, true, &result));
	saver_settle(saver, NULL, 0); /* of none */
	for (manifest.step = 3; manifest.step < 6; manifest.step++) {
		assert_int_equal(saver_check(saver, &manifest, &error), TR_OK);
		assert_int_equal(saver_start(saver, &f->arrays, &manifest, &error), TR_OK);
		saver_settle(saver, NULL, 0); /* the copy was taken: the state may change */
		f->arrays.params[0] = (float)manifest.step;
		assert_int_equal(saver_check(saver, &manifest, &error), TR_EAGAIN);
		assert_int_equal(saver_start(saver, &f->arrays, &manifest, &error), TR_EAGAIN);
		assert_true(saver_result(saver, true, &result));
		assert_int_equal(result.status, TR_OK);
		assert_int_equal(result.step, manifest.step);
		assert_false(saver_result(saver, true, &result));
		saver_settle(saver, NULL, 0);
	}
	char found[CHECKPOINT_PATH_MAX];
	assert_int_equal(checkpoint_read(result.path, &f->layout, &f->back, &manifest, found,
	                     &error),
	    TR_OK);
	assert_true(f->back.params[0] == 4.0f);
	/* Destroyed in the middle of a write: waits for it. */
	assert_int_equal(saver_start(saver, &f->arrays, &manifest, &error), TR_OK);
	saver_destroy(saver);
}

/* Memory that is taken before: as a rule all of it, or a part, for as many arrays as are saved then or for others; and a saver that never saves. */
static void test_prepared_saver(void **state)
{
	struct fixture *f = *state;
	size_t bytes = f->layout.count * sizeof(float);
	for (unsigned i = 0; i < 8; i++) {
		struct saver *saver;
		struct saver_result result;
		struct manifest manifest = { .step = 3 };
		struct tr_error error;
		char found[CHECKPOINT_PATH_MAX];
		assert_int_equal(saver_create(&f->folder, &f->layout, &saver, &error), TR_OK);
		saver_prepare(saver, i % 2 == 1);
		saver_prepare(saver, i % 2 == 1);
		if (i / 4 == 1)
			(void)usleep(30000);
		if (i % 4 < 3) {
			assert_int_equal(saver_start(saver, &f->arrays, &manifest, &error), TR_OK);
			saver_prepare(saver, false);
			assert_true(saver_result(saver, true, &result));
			assert_int_equal(result.status, TR_OK);
			assert_int_equal(checkpoint_read(result.path, &f->layout, &f->back,
			                     &manifest, found, &error),
			    TR_OK);
			assert_memory_equal(f->back.params, f->arrays.params, bytes);
			assert_memory_equal(f->back.first, f->arrays.first, bytes);
			assert_memory_equal(f->back.second, f->arrays.second, bytes);
		}
		saver_destroy(saver);
	}
}

/* Who waits for a write gets on while the disk is only slow, and not when it hangs for longer than is allowed. */
static void test_who_waits_for_a_slow_disk_gets_on(void **state)
{
	struct fixture *f = *state;
	const struct progress told = { slow_disk_tell, NULL, NULL };
	for (unsigned bound_ms = 0; bound_ms <= PATIENCE_MS; bound_ms += PATIENCE_MS) {
		struct saver *saver;
		struct saver_result result;
		struct manifest manifest = { .step = 3 };
		struct tr_error error;
		assert_int_equal(saver_create(&f->folder, &f->layout, &saver, &error), TR_OK);
		saver_wait(saver, &told, bound_ms); /* for none */
		slow_disk_begin(bound_ms == 0 ? 50 : SLOW_DISK_TRIES);
		assert_int_equal(saver_start(saver, &f->arrays, &manifest, &error), TR_OK);
		saver_wait(saver, &told, bound_ms);
		assert_true(slow_disk.in_vain == (bound_ms == 0));
		assert_true(saver_result(saver, false, &result));
		assert_int_equal(result.status, TR_OK);
		saver_destroy(saver);
	}
}

/* Ends when it was told often enough that somebody gets on. */
static void copy_slowly(void *arg)
{
	unsigned tries = 0;
	while (slow_disk.told < SLOW_DISK_TELLS && tries++ < *(unsigned *)arg)
		(void)usleep(10000);
}

static void read_zeros(void *arg, unsigned which, size_t tensor, size_t first, size_t end, float *to)
{
	(void)arg, (void)which, (void)tensor;
	memset(to, 0, (end - first) * sizeof(float));
}

/* Gigabytes take their time, too. */
static void test_who_waits_for_a_copy_gets_on(void **state)
{
	struct fixture *f = *state;
	const struct progress told = { slow_disk_tell, NULL, NULL };
	for (unsigned bound_ms = 0; bound_ms <= PATIENCE_MS; bound_ms += PATIENCE_MS) {
		struct saver *saver;
		struct saver_result result;
		struct manifest manifest = { .step = 3 };
		struct tr_error error;
		unsigned tries = bound_ms == 0 ? 50 : SLOW_DISK_TRIES;
		const struct saver_parts parts = { { read_zeros, &tries, false }, copy_slowly };
		slow_disk.told = 0;
		assert_int_equal(saver_create(&f->folder, &f->layout, &saver, &error), TR_OK);
		assert_int_equal(saver_start_parts(saver, &parts, &manifest, &error), TR_OK);
		saver_settle(saver, &told, bound_ms);
		assert_true((slow_disk.told < SLOW_DISK_TELLS) == (bound_ms == 0));
		assert_true(saver_result(saver, true, &result));
		assert_int_equal(result.status, TR_OK);
		saver_destroy(saver);
	}
}

#define COPY_MS 30

static void copy_for_a_while(void *arg)
{
	(void)arg;
	(void)usleep(1000 * COPY_MS);
}

/* What training stood still for is the copy that it waited for, and not what is written behind it. */
static void test_it_says_how_long_training_waited(void **state)
{
	struct fixture *f = *state;
	const struct saver_parts parts = { { read_zeros, NULL, false }, copy_for_a_while };
	const struct manifest manifest = { .step = 3 };
	for (unsigned waits = 0; waits < 2; waits++) {
		struct saver *saver;
		struct saver_result result;
		struct tr_error error;
		assert_int_equal(saver_create(&f->folder, &f->layout, &saver, &error), TR_OK);
		assert_int_equal(saver_start_parts(saver, &parts, &manifest, &error), TR_OK);
		if (waits)
			saver_settle(saver, NULL, 0);
		assert_true(saver_result(saver, true, &result));
		saver_settle(saver, NULL, 0);
		bool stood_still = result.waited_s >= 1e-3 * COPY_MS,
		     is_busy = result.took_s > 2e-3 * COPY_MS; /* other things may take as long */
		assert_true(is_busy || stood_still == (waits != 0));
		assert_true(result.waited_s > 0 && result.cpu_s > 0);
		assert_true(result.took_s >= 1e-3 * COPY_MS && result.took_s > result.cpu_s);
		saver_destroy(saver);
	}
}

static int copy_nice;

static void look_at_nice(void *arg)
{
	(void)arg;
	copy_nice = getpriority(PRIO_PROCESS, 0); /* a thread's own */
}

/* With a training that has been given a low one: root might go above it. */
static void *save_nicely(void *arg)
{
	struct fixture *f = arg;
	struct saver *saver;
	struct saver_result result;
	const struct manifest manifest = { .step = 3 };
	struct tr_error error;
	const struct saver_parts parts = { { read_zeros, NULL, false }, look_at_nice };
	assert_int_equal(setpriority(PRIO_PROCESS, 0, 12), 0);
	assert_int_equal(saver_create(&f->folder, &f->layout, &saver, &error), TR_OK);
	assert_int_equal(saver_start_parts(saver, &parts, &manifest, &error), TR_OK);
	assert_true(saver_result(saver, true, &result));
	assert_int_equal(result.status, TR_OK);
	saver_destroy(saver);
	return NULL;
}

static void test_a_saver_never_has_a_higher_priority(void **state)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, save_nicely, *state), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(copy_nice >= 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_saver, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepared_saver, setup_large, teardown),
		cmocka_unit_test_setup_teardown(test_a_saver_never_has_a_higher_priority, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_who_waits_for_a_slow_disk_gets_on, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_who_waits_for_a_copy_gets_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_it_says_how_long_training_waited, setup,
		    teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
