/* The `sync` section of a job whose replicas are several workers each, and train apart. */
#include "daemon/plan/job_mesh.h"
#include "tests/unit/good_job.h"

/* Two replicas of two workers that share each layer. */
static Traind__V1__JobSpec *good_apart(const char *key, const char *value)
{
	Traind__V1__JobSpec *spec = good_sharded("2");
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, key, value);
	return spec;
}

static void test_replicas_apart(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_apart("sync.mode", "local_sgd");
	set_good(spec, "sync.codec", "int4");
	set_good(spec, "mesh.sequence_parallel", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	drop(spec);
	spec = good_apart("sync.mode", "hdet");
	set_good(spec, "sync.lr_spread", "0.2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	drop(spec);
	refused(good_apart("train.strict", "true"),
	    "sync.mode: found diloco, allowed: ddp, since train.strict is true");
	refused(good_apart("mesh.zero_owners", "2"),
	    "sync.mode: found diloco, allowed: ddp, since mesh.zero_owners is 2");
	spec = good_apart("sync.inner_seconds", "2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	drop(spec);
	refused(good_apart("sync.share_by_speed", "true"),
	    "sync.share_by_speed: found 1, allowed: nothing, since mesh.tp is 2: replicas of "
	    "several "
	    "workers merge after inner_steps or inner_seconds");
	spec = good_apart("sync.codec", "int2"); /* with error feedback */
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.by_speed", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.inner_steps", "1000001");
	refused(spec,
	    "sync.inner_steps: found 1000001, allowed: at most 1000000, since mesh.tp is 2");
	/* What a round numbers fits into 32 bits, also where one replica computes the whole batch of each step: 8192 microbatches, 6 instructions each. */
	spec = good_apart("sync.inner_steps", "43689");
	set_good(spec, "mesh.tp", "1");
	set_good(spec, "mesh.pp", "2");
	set_good(spec, "train.micro_sequences", "1");
	set_good(spec, "train.batch_tokens", "1048576");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.inner_steps", "43690");
	refused(spec,
	    "sync.inner_steps: found 43690, allowed: at most 43689, since mesh.pp is 2: a step has "
	    "49153 instructions of its pipeline; a larger train.micro_sequences allows more");
	/* And there are tags for all sums: of 32 sequences four microbatches, four sums in each of four layers. */
	spec = good_apart("sync.inner_steps", "130944");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.inner_steps", "130945");
	refused(spec,
	    "sync.inner_steps: found 130945, allowed: at most 130944, since mesh.tp is 2: a step "
	    "has 64 sums inside the model, or more; a larger train.micro_sequences allows more");
	refused(good_apart("sync.on_loss", "drop"),
	    "sync.on_loss: found drop, allowed: replay, since mesh.tp is 2: without a member its "
	    "whole replica's gradient is missing");
	spec = good_apart("train.batch_tokens", "64");
	set_good(spec, "model.context", "64");
	refused(spec,
	    "train.batch_tokens: found 1 sequences, allowed: at least one for each of the mesh's 2 "
	    "replicas, since they train apart (sync.mode)");
}

/* They train on while a fragment is merged. */
static void test_replicas_that_stream(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_apart("sync.overlap", "3");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.by_speed", "true");
	refused(spec,
	    "sync.by_speed: found 1, allowed: nothing, since mesh.tp is 2: replicas of several "
	    "workers merge after inner_steps where they train on meanwhile (streaming, eager, "
	    "overlap)");
	spec = good_apart("sync.mode", "streaming");
	set_good(spec, "sync.fragments", "3");
	set_good(spec, "sync.overlap", "2");
	set_good(spec, "sync.carry", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	/* The longest round of four fragments has a quarter of the steps, and the overlap. */
	set_good(spec, "sync.fragments", "4");
	set_good(spec, "sync.inner_steps", "523768");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.inner_steps", "523769");
	refused(spec,
	    "sync.inner_steps: found 523769, allowed: at most 130944 in a round, of which the "
	    "longest has 130945, since mesh.tp is 2: a step has 64 sums inside the model, or more; "
	    "a "
	    "larger train.micro_sequences allows more");
	spec = good_apart("sync.mode", "eager");
	set_good(spec, "sync.inner_steps", "65472");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.inner_steps", "65473");
	refused(spec,
	    "sync.inner_steps: found 65473, allowed: at most 130944 in a round, of which the "
	    "longest has 130946, since mesh.tp is 2: a step has 64 sums inside the model, or more; "
	    "a "
	    "larger train.micro_sequences allows more");
}

/* Replicas of several copies. */
static void test_replicas_of_copies(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_apart("mesh.nodes", "8");
	set_good(spec, "mesh.copies", "2");
	assert_int_equal(job_mesh_copies(spec->mesh), 2);
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.by_speed", "true");
	set_good(spec, "sync.codec", "int2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	/* Of whole models, too. */
	set_good(spec, "mesh.tp", "1");
	assert_true(job_mesh_is_sharded(spec));
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "mesh.zero_owners", "2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "mesh.zero_owners", "1");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "mesh.zero_owners", "3");
	refused(spec, "mesh.zero_owners: found 3, allowed: 0, or 1 to 2, the copies of a replica");
	/* Eight tags a step: of five sums, two pieces and a barrier. */
	spec = good_apart("mesh.copies", "2");
	set_good(spec, "mesh.zero_owners", "2");
	set_good(spec, "mesh.tp", "1");
	set_good(spec, "sync.inner_steps", "1000000");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	drop(spec);
	spec = good_apart("mesh.copies", "3");
	refused(spec,
	    "mesh.copies: found 3, allowed: a divisor of 2, the copies of the model that the "
	    "mesh's workers are enough for");
	spec = good_apart("mesh.copies", "2");
	set_good(spec, "sync.overlap", "3");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.overlap", "0");
	set_good(spec, "sync.mode", "hdet");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	drop(spec);
	spec = good();
	set_good(spec, "mesh.nodes", "1");
	set_good(spec, "sync.on_loss", "replay");
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, "mesh.auto", "true");
	set_good(spec, "mesh.copies", "2");
	refused(spec, "mesh.copies: found 2, allowed: 1, since mesh.auto plans no copies");
	spec = good_apart("mesh.copies", "2");
	set_good(spec, "sync.mode", "ddp");
	refused(spec,
	    "mesh.copies: found 2, allowed: 1, since sync.mode is ddp: gradients are summed over "
	    "all copies of the model anyway");
	spec = good_apart("mesh.copies", "2");
	set_good(spec, "train.batch_tokens", "64");
	set_good(spec, "model.context", "64");
	refused(spec,
	    "train.batch_tokens: found 1 sequences, allowed: at least one for each of the mesh's 2 "
	    "copies of the model, since they train apart (sync.mode)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replicas_apart),
		cmocka_unit_test(test_replicas_that_stream),
		cmocka_unit_test(test_replicas_of_copies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
