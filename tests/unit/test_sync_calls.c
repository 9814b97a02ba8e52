/* Calls of sync.h that are wrong, or come in a wrong order, say what is wrong and change nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/alone_peer.h"

/* (Recorded as 2^64 - 5, and as what llround makes of a NaN.) */
static void without_a_batch_samples_are_whole_numbers_too(void **state)
{
	(void)state;
	const double wrong[] = { -5, 0.5, (double)NAN, (double)INFINITY, 2e12 };
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	struct tr_sync_work did = { .tokens = 1 };
	struct tr_error error;
	options.batch = 0;
	struct peer *p = peer_with(&options, 1, 1);
	peer_start(p);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		did.samples = wrong[i];
		assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_EINVAL);
		assert_non_null(strstr(error.text, "allowed: whole, at most 1e12"));
	}
	did.samples = 7;
	assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_OK);
	assert_int_equal(p->now.step, 1);
	peer_end(p);
}

/* (A sample beyond those of the step was accepted, so nobody ever trained on it.) */
static void with_a_batch_samples_are_those_of_the_step(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_DILOCO, 1, 1);
	struct tr_sync_work did = { .tokens = 1, .samples = BATCH + 1 };
	struct tr_error error;
	peer_start(p);
	assert_int_equal(p->now.samples, BATCH);
	assert_int_equal(tr_sync_sample(p->sync, BATCH - 1), BATCH - 1);
	assert_true(tr_sync_sample(p->sync, BATCH) == UINT64_MAX);
	assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "at most those that were named"));
	assert_int_equal(tr_sync_sample(p->sync, 0), 0);
	peer_end(p);
}

/* (Steps counted before training began, and a second start began the round under way again.) */
static void training_begins_once(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_DILOCO, 1, 1);
	const struct tr_sync_work did = { .tokens = 1 };
	struct tr_error error;
	assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_EINVAL);
	assert_string_equal(error.text, "sync: step 0: training begins with tr_sync_start");
	peer_start(p);
	assert_int_equal(p->now.step, 0);
	assert_int_equal(tr_sync_start(p->sync, &p->now, &error), TR_EINVAL);
	assert_string_equal(error.text, "sync: training was started before");
	peer_end(p);
}

static void refused(const struct tr_sync_tensor *tensors, size_t count, const char *why)
{
	struct fake_world world;
	struct tr_sync_options options = options_of(TR_SYNC_LOCAL_SGD);
	struct tr_error error;
	tr_sync *sync;
	fake_world_init(&world, 1);
	assert_int_equal(tr_sync_create(&world.groups[0], &options, tensors, count, &sync, &error),
	    TR_EINVAL);
	assert_string_equal(error.text, why);
	assert_null(sync);
	fake_world_finish(&world);
}

/* (Their elements together were none, or one, modulo 2^64.) */
static void tensors_that_cannot_be(void **state)
{
	(void)state;
	float data[2] = { 1, 2 };
	struct tr_sync_tensor tensors[2] = { { .name = "a", .data = data, .count = 1 },
		{ .name = "b", .data = data, .count = SIZE_MAX / 64 } };
	refused(NULL, 2, "sync: no tensors: nothing to train");
	refused(tensors, 2,
	    "sync: tensor 1 (b): larger than any memory: 288230376151711743 elements");
	tensors[1].reserved[1] = 1;
	refused(tensors, 2,
	    "sync tensors: the program sets a field that this library is too old for, or did not "
	    "initialise the struct");
}

/* A sum that is on its way while the caller works would be overwritten by its gradients. */
static void scratch_is_for_sums_that_are_not_on_their_way(void **state)
{
	(void)state;
	float scratch[TENSORS * NUMBERS];
	struct tr_error error;
	for (unsigned i = 0; i < 4; i++) {
		struct tr_sync_options options = options_of(i == 0 ? TR_SYNC_DILOCO
		        : i == 1                                   ? TR_SYNC_STREAMING
		                                                   : TR_SYNC_EAGER);
		options.alone_steps = i == 0 ? ALONE : 0;
		if (i == 3) { /* by time */
			options.inner_steps = 0;
			options.inner_seconds = 1;
		}
		options.scratch = scratch;
		assert_int_equal(tr_sync_complete(&options, TENSORS, &error), TR_EINVAL);
		assert_non_null(strstr(error.text,
		    "sync.scratch: found one, allowed: none with an "
		    "overlap or alone_steps"));
	}
}

/* (The first merge ended with "op 0: the memory is not from tr_alloc".) */
static void scratch_is_memory_of_the_group(void **state)
{
	(void)state;
	struct fake_world world;
	float data[NUMBERS] = { 0 }, other[NUMBERS];
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	struct tr_sync_tensor tensor = { .name = "w", .data = data, .count = NUMBERS };
	struct tr_error error;
	tr_sync *sync;
	fake_world_init(&world, 1);
	tr_group *group = &world.groups[0];
	options.alone_steps = 0;
	for (unsigned i = 0; i < 2; i++) {
		options.scratch = i == 0 ? other : tr_alloc(group, (NUMBERS - 1) * sizeof(float));
		assert_int_equal(tr_sync_create(group, &options, &tensor, 1, &sync, &error),
		    TR_EINVAL);
		assert_string_equal(error.text,
		    "sync.scratch: found other memory, allowed: 6 floats, as many as the tensors "
		    "have together, of this group's tr_alloc");
		assert_null(sync);
	}
	options.scratch = tr_alloc(group, NUMBERS * sizeof(float));
	assert_int_equal(tr_sync_create(group, &options, &tensor, 1, &sync, &error), TR_OK);
	tr_sync_destroy(sync);
	fake_world_finish(&world);
}

/* The same bits as in memory of tr_sync's own; between merges the caller writes there what it likes. */
static void scratch_takes_the_sums(void **state)
{
	(void)state;
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	options.alone_steps = 0;
	struct peer *own = peer_with(&options, 1, 1), *lent = calloc(1, sizeof(*lent));
	fake_world_init(&lent->world, 1);
	lent->world.groups[0].id = 1;
	lent->options = options;
	float *scratch = lent->options.scratch = tr_alloc(&lent->world.groups[0],
	    TENSORS * NUMBERS * sizeof(float));
	peer_create(lent, &lent->world.groups[0], 1);
	peer_start(own);
	peer_start(lent);
	for (unsigned step = 1; step <= 5 * H; step++) {
		for (unsigned i = 0; i < TENSORS * NUMBERS; i++)
			scratch[i] = NAN;
		train(own);
		train(lent);
		assert_int_equal(lent->now.merged, step % H == 0);
		assert_int_equal(isnan(scratch[0]), step % H != 0);
		assert_memory_equal(own->w, lent->w, sizeof(own->w));
	}
	peer_end(own);
	peer_end(lent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_batch_samples_are_whole_numbers_too),
		cmocka_unit_test(with_a_batch_samples_are_those_of_the_step),
		cmocka_unit_test(training_begins_once),
		cmocka_unit_test(tensors_that_cannot_be),
		cmocka_unit_test(scratch_is_for_sums_that_are_not_on_their_way),
		cmocka_unit_test(scratch_is_memory_of_the_group),
		cmocka_unit_test(scratch_takes_the_sums),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
