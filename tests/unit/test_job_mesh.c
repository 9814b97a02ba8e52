/* The mesh of a job file: what it is, and what a job whose model is split cannot have. */
#include <stdio.h>

#include "tests/unit/good_job.h"

#include "daemon/plan/job_strict.h"

static void test_mesh(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("2");
	struct tr_error error = { 0 };
	if (job_validate(spec, &error) != TR_OK)
		fail_msg("%s", error.text);
	struct mesh mesh = job_mesh(spec->mesh);
	assert_true(job_mesh_is_sharded(spec));
	assert_true(mesh.size[MESH_DP] == 2 && mesh.size[MESH_PP] == 1 && mesh.size[MESH_TP] == 2);
	drop(spec);
	spec = good();
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	mesh = job_mesh(spec->mesh);
	assert_false(job_mesh_is_sharded(spec));
	assert_true(mesh.size[MESH_DP] == 3 && mesh.size[MESH_TP] == 1);
	drop(spec);
	refused(good_sharded("3"), "mesh.tp: found 3, allowed: a divisor of the mesh's 4 workers");
	spec = good_sharded("4");
	set_good(spec, "model.heads", "2");
	refused(spec,
	    "mesh.tp: layer.attention.q.weight: 2 heads cannot be split over tp 4; tp may be 1 or "
	    "2");
	spec = good_sharded("2");
	set_good(spec, "sync.on_loss", "drop");
	refused(spec,
	    "sync.on_loss: found drop, allowed: replay, since mesh.tp is 2: without a member its "
	    "whole replica's gradient is missing");
	spec = good_sharded("2");
	set_good(spec, "mesh.threads", "0");
	refused(spec,
	    "mesh.threads: found 0, allowed: at least 1, since mesh.tp is 2: workers that share a "
	    "layer compute with equally many threads");
	/* A sequence for each replica is enough; a vocabulary that does not divide is padded. */
	spec = good_sharded("2");
	set_good(spec, "train.batch_tokens", "256");
	set_good(spec, "model.vocab", "257");
	job_option_clear(spec, "data.text");
	set_good(spec, "data.tokens", "/a.bin");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "train.batch_tokens", "128");
	refused(spec,
	    "train.batch_tokens: found 128 (sequences: 1), allowed: at least 256, a sequence for "
	    "each of the mesh's 2 replicas");
}

static void test_too_few(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_string_equal(spec->mesh->too_few, "auto");
	assert_false(job_mesh_waits(spec));
	set_good(spec, "mesh.too_few", "wait");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_true(job_mesh_waits(spec));
	drop(spec);
}

/* Replicas that train apart, the same, of several copies too. */
static void test_too_few_apart(void **state)
{
	(void)state;
	static const char *const modes[] = { "local_sgd", "diloco", "hdet", "streaming", "eager" };
	static const char *const choices[] = { "auto", "smaller", "wait" };
	for (size_t i = 0; i < 3 * sizeof(modes) / sizeof(modes[0]); i++) {
		Traind__V1__JobSpec *spec = good_sharded("2");
		set_good(spec, "sync.mode", modes[i / 3]);
		set_good(spec, "mesh.too_few", choices[i % 3]);
		assert_int_equal(job_validate(spec, NULL), TR_OK);
		assert_int_equal(job_mesh_waits(spec), i % 3 == 2);
		drop(spec);
	}
	for (size_t i = 0; i < 3; i++) {
		Traind__V1__JobSpec *spec = good_sharded("2");
		set_good(spec, "sync.mode", "diloco");
		set_good(spec, "mesh.copies", "2");
		set_good(spec, "mesh.too_few", choices[i]);
		assert_int_equal(job_validate(spec, NULL), TR_OK);
		assert_int_equal(job_mesh_waits(spec), i == 2);
		drop(spec);
	}
}

static void test_stages(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("2");
	struct tr_error error = { 0 };
	set_good(spec, "mesh.pp", "2");
	set_good(spec, "model.layers", "4");
	if (job_validate(spec, &error) != TR_OK)
		fail_msg("%s", error.text);
	struct mesh mesh = job_mesh(spec->mesh);
	assert_true(mesh.size[MESH_DP] == 1 && mesh.size[MESH_PP] == 2 && mesh.size[MESH_TP] == 2);
	drop(spec);
	spec = good_sharded("1");
	set_good(spec, "mesh.pp", "3");
	refused(spec, "mesh.pp: found 3, allowed: a divisor of the mesh's 4 workers");
	spec = good_sharded("2");
	set_good(spec, "mesh.pp", "4");
	refused(spec,
	    "mesh.pp: found 4, allowed: a divisor of the mesh's 2 workers for each of mesh.tp");
	spec = good_sharded("1");
	set_good(spec, "mesh.pp", "4");
	set_good(spec, "model.layers", "3");
	refused(spec, "mesh.pp: found 4, allowed: at most model.layers, which is 3");
	spec = good_sharded("1");
	set_good(spec, "mesh.pp", "2");
	set_good(spec, "mesh.threads", "0");
	assert_int_equal(job_validate(spec, NULL), TR_OK); /* stages need not be alike */
	set_good(spec, "sync.mode", "eager");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.alone_steps", "5");
	refused(spec,
	    "sync.alone_steps: found 5, allowed: nothing, since mesh.pp is 2: replicas of several "
	    "workers merge after inner_steps where they train on meanwhile (streaming, eager, "
	    "overlap)");
}

/* `good_sharded`, with as many replicas as are left of `workers`. */
static Traind__V1__JobSpec *good_strict(const char *workers, const char *tp)
{
	Traind__V1__JobSpec *spec = good_sharded(tp);
	set_good(spec, "mesh.nodes", "1");
	set_good(spec, "mesh.workers_per_node", workers);
	set_good(spec, "train.strict", "true");
	return spec;
}

static void test_strict(void **state)
{
	(void)state;
	static const char *const accepted[][2] = { { "1", "1" }, { "2", "1" }, { "8", "1" },
		{ "4", "2" }, { "8", "4" } };
	Traind__V1__JobSpec *spec;
	for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++) {
		struct tr_error error = { 0 };
		spec = good_strict(accepted[i][0], accepted[i][1]);
		if (job_validate(spec, &error) != TR_OK)
			fail_msg("%s", error.text);
		assert_true(job_is_strict(spec->train));
		drop(spec);
	}
	refused(good_strict("3", "1"),
	    "train.strict: found true, allowed: false, since the mesh has 3 replicas: of a batch "
	    "of 64 "
	    "sequences there may be 1, 2, 4 or 8");
	refused(good_strict("16", "1"),
	    "train.strict: found true, allowed: false, since the mesh has 16 replicas: of a batch "
	    "of 64 "
	    "sequences there may be 1, 2, 4 or 8");
	spec = good_strict("4", "1");
	set_good(spec, "train.batch_tokens", "768");
	refused(spec,
	    "train.strict: found true, allowed: false, since the mesh has 4 replicas: of a batch "
	    "of 6 "
	    "sequences there may be 1 or 2");
	spec = good_strict("3", "3");
	set_good(spec, "model.heads", "6");
	set_good(spec, "model.width", "96");
	set_good(spec, "model.hidden", "96");
	refused(spec,
	    "mesh.tp: found 3, allowed: 1 or 2, since train.strict is true: the power of two that "
	    "divides "
	    "model.heads, kv_heads, hidden, vocab and context, at most 8");
	spec = good_strict("2", "1");
	set_good(spec, "sync.on_loss", "drop");
	refused(spec,
	    "sync.on_loss: found drop, allowed: replay, since train.strict is true: without a "
	    "member its "
	    "whole replica's gradient is missing");
	spec = good_strict("2", "1");
	set_good(spec, "sync.mode", "diloco");
	refused(spec, "sync.mode: found diloco, allowed: ddp, since train.strict is true");
	spec = good();
	set_good(spec, "mesh.nodes", "1");
	set_good(spec, "sync.on_loss", "replay");
	set_good(spec, "mesh.auto", "true");
	set_good(spec, "train.strict", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK); /* its plan says which mesh */
	traind__v1__job_spec__free_unpacked(spec, NULL);
	spec = good_strict("2", "1");
	set_good(spec, "mesh.shares", "3");
	set_good(spec, "mesh.shares", "1"); /* one more */
	refused(spec,
	    "mesh.shares: found 2, allowed: none, since train.strict is true: its replicas compute "
	    "equal "
	    "parts of the batch");
	/* A part of the batch has two microbatches. */
	spec = good_strict("2", "1");
	set_good(spec, "mesh.pp", "2");
	set_good(spec, "mesh.chunks", "2");
	set_good(spec, "train.micro_sequences", "4");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "train.micro_sequences", "8");
	refused(spec,
	    "mesh.chunks: found 2, allowed: 1, since a replica has 1 microbatches for each part of "
	    "the "
	    "batch (train.strict) and mesh.pp is 2: interleaved stages need as many; set a smaller "
	    "train.micro_sequences or a larger train.batch_tokens");
}

/* The most that a schedule has; of a pipeline, since one without stages has none. */
static void test_microbatches(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("1");
	set_good(spec, "train.micro_sequences", "1");
	set_good(spec, "train.batch_tokens", "2097280");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "mesh.pp", "2");
	refused(spec,
	    "train.batch_tokens: found 2097280, allowed: at most 2097152, 16384 microbatches of "
	    "128 "
	    "tokens, since mesh.pp is 2; a larger train.micro_sequences allows more");
	spec = good_sharded("1");
	set_good(spec, "mesh.pp", "2");
	set_good(spec, "train.micro_sequences", "1");
	set_good(spec, "train.batch_tokens", "2097152");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	/* What is wrong with the batch is said before what follows for the mesh. */
	set_good(spec, "mesh.shares", "3");
	set_good(spec, "train.batch_tokens", "1000");
	refused(spec,
	    "train.batch_tokens: found 1000, allowed: a multiple of model.context, which is 128 "
	    "(896 or 1024)");
}

static void test_who_may_grow(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("2");
	set_good(spec, "mesh.grow", "true");
	refused(spec,
	    "mesh.grow: found true, allowed: false, since it is for jobs of mesh.auto; others have "
	    "mesh.nodes at most");
	static const char *const keys[][3] = {
		{ "mesh.balance", "off", "with mesh.balance: off the job is not planned anew" },
		{ "sync.deterministic", "true",
		    "jobs of train.strict, sync.deterministic, sync.on_loss: drop and of modes "
		    "that "
		    "talk rarely are not planned anew" },
	};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char text[200];
		spec = good_sharded("1");
		set_good(spec, "sync.deterministic", "false");
		set_good(spec, "mesh.nodes", "1");
		set_good(spec, "mesh.workers_per_node", "1");
		set_good(spec, "mesh.auto", "true");
		set_good(spec, "mesh.grow", "true");
		struct tr_error error = { 0 };
		if (job_validate(spec, &error) != TR_OK)
			fail_msg("%s", error.text);
		set_good(spec, keys[i][0], keys[i][1]);
		(void)snprintf(text, sizeof(text),
		    "mesh.grow: found true, allowed: false, since %s", keys[i][2]);
		refused(spec, text);
	}
}

static void test_owners_of_moments(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("2"); /* of two replicas */
	set_good(spec, "mesh.zero_owners", "2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "mesh.zero_owners", "3");
	refused(spec,
	    "mesh.zero_owners: found 3, allowed: 0, or 2 to 2, the replicas that there are");
	spec = good_sharded("2");
	set_good(spec, "mesh.zero_owners", "1");
	refused(spec,
	    "mesh.zero_owners: found 1, allowed: 0, or 2 to 2, the replicas that there are");
	spec = good_sharded("4");
	set_good(spec, "mesh.zero_owners", "2");
	refused(spec,
	    "mesh.zero_owners: found 2, allowed: 0, since there is one replica: nobody to share "
	    "moments with");
	spec = good_strict("4", "1");
	set_good(spec, "mesh.zero_owners", "2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	drop(spec);
	/* Also of a model that is not split, whose jobs are then of this kind. */
	spec = good_sharded("1");
	set_good(spec, "train.batch_tokens", "1024");
	set_good(spec, "mesh.zero_owners", "4");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_true(job_mesh_is_sharded(spec));
	set_good(spec, "sync.mode", "diloco");
	refused(spec, "sync.mode: found diloco, allowed: ddp, since mesh.zero_owners is 4");
	spec = good();
	set_good(spec, "mesh.nodes", "1");
	set_good(spec, "mesh.auto", "true");
	set_good(spec, "sync.on_loss", "replay");
	set_good(spec, "mesh.zero_owners", "2");
	assert_int_equal(job_validate(spec, NULL), TR_OK); /* of whatever dp is chosen */
	drop(spec);
}

static void test_sequence_parallel(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_false(spec->mesh->sequence_parallel);
	set_good(spec, "mesh.sequence_parallel", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_true(spec->mesh->sequence_parallel);
	set_good(spec, "model.context", "63");
	set_good(spec, "train.batch_tokens", "6300");
	refused(spec,
	    "mesh.sequence_parallel: found true, allowed: false, since model.context, which is 63, "
	    "does not divide into mesh.tp = 2 equal parts");
	spec = good();
	set_good(spec, "mesh.nodes", "1");
	set_good(spec, "mesh.auto", "true");
	set_good(spec, "mesh.sequence_parallel", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK); /* of whatever tp is chosen */
	drop(spec);
	/* Whether or not it is split otherwise. */
	for (int pp = 1; pp <= 2; pp++) {
		spec = good_sharded("1");
		set_good(spec, "mesh.pp", pp == 1 ? "1" : "2");
		set_good(spec, "mesh.sequence_parallel", "true");
		refused(spec,
		    "mesh.sequence_parallel: found true, allowed: false, since mesh.tp is 1: there "
		    "is nobody to share the rows with");
	}
}

/* "mesh.chunks" of 4 workers in 2 stages; 12 layers, 4 microbatches of a replica. */
static Traind__V1__JobSpec *good_chunks(const char *chunks)
{
	Traind__V1__JobSpec *spec = good_sharded("1");
	set_good(spec, "mesh.pp", "2");
	set_good(spec, "mesh.chunks", chunks);
	set_good(spec, "model.layers", "12");
	set_good(spec, "train.batch_tokens", "1024");
	set_good(spec, "train.micro_sequences", "1");
	return spec;
}

static void test_schedules(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_chunks("3");
	struct tr_error error = { 0 };
	if (job_validate(spec, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(job_mesh_schedule(spec->mesh, 3), SCHEDULE_INTERLEAVED);
	assert_int_equal(job_mesh_schedule(spec->mesh, 1), SCHEDULE_1F1B);
	set_good(spec, "mesh.schedule", "gpipe");
	refused(spec, "mesh.chunks: found 3, allowed: 1, since mesh.schedule is gpipe");
	spec = good_chunks("1");
	set_good(spec, "mesh.schedule", "gpipe");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_int_equal(job_mesh_schedule(spec->mesh, 1), SCHEDULE_GPIPE);
	set_good(spec, "mesh.schedule", "interleaved");
	refused(spec, "mesh.chunks: found 1, allowed: 2 to 64, since mesh.schedule is interleaved");
	refused(good_chunks("7"),
	    "mesh.chunks: found 7, allowed: at most 6, since model.layers is 12 and mesh.pp 2");
	spec = good_chunks("2");
	set_good(spec, "train.micro_sequences", "8");
	refused(spec,
	    "mesh.chunks: found 2, allowed: 1, since a replica has 1 microbatches and mesh.pp is "
	    "2: "
	    "interleaved stages need as many; set a smaller train.micro_sequences or a larger "
	    "train.batch_tokens");
	spec = good_chunks("2");
	set_good(spec, "mesh.pp", "1");
	refused(spec, "mesh.chunks: found 2, allowed: 1, since mesh.pp is 1");
	spec = good();
	set_good(spec, "mesh.schedule", "gpipe");
	refused(spec, "mesh.schedule: found gpipe, allowed: auto, since mesh.pp is 1");
	spec = good();
	set_good(spec, "mesh.recompute", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_true(spec->mesh->recompute);
	drop(spec);
}

/* Another mesh than the job's may have too few layers or microbatches for its chunks. */
static void test_chunks_of_another_mesh(void **state)
{
	const struct model_config config = { .layers = 8 };
	const struct job_batch batch = { 16, 2 };
	struct dealing dealing = { .mesh = { .size = { 1, 4, 1 } } };
	uint32_t *size = dealing.mesh.size;

	(void)state;
	assert_int_equal(job_mesh_chunks(&config, &dealing, 2, &batch), 2);
	assert_int_equal(job_mesh_chunks(&config, &dealing, 3, &batch), 1);
	size[MESH_DP] = 4; /* two microbatches */
	assert_int_equal(job_mesh_chunks(&config, &dealing, 2, &batch), 1);
	size[MESH_PP] = 2;
	assert_int_equal(job_mesh_chunks(&config, &dealing, 2, &batch), 2);
	size[MESH_PP] = 1;
	assert_int_equal(job_mesh_chunks(&config, &dealing, 2, &batch), 1);
	size[MESH_PP] = size[MESH_DP] = 2; /* four microbatches each, or of the second one */
	assert_int_equal(job_mesh_chunks(&config, &dealing, 2, &batch), 2);
	dealing.shares[0] = 7;
	dealing.shares[1] = 1;
	assert_int_equal(job_mesh_chunks(&config, &dealing, 2, &batch), 1);
}

static void give(Traind__V1__JobSpec *spec, const char *key, const char *one, const char *other)
{
	set_good(spec, key, one);
	set_good(spec, key, other);
}

static void test_shares(void **state)
{
	(void)state;
	struct tr_error error = { 0 };
	Traind__V1__JobSpec *spec = good_chunks("1");
	give(spec, "mesh.shares", "3", "1");
	give(spec, "mesh.layers", "7", "5");
	if (job_validate(spec, &error) != TR_OK)
		fail_msg("%s", error.text);
	set_good(spec, "mesh.shares", "1");
	refused(spec, "mesh.shares: found 3 of them, allowed: one of each of the mesh's 2 replicas");
	spec = good_chunks("1");
	give(spec, "mesh.shares", "3", "100");
	refused(spec,
	    "mesh.shares: found one that is less than a sequence of the 8 of a batch, allowed: at "
	    "least one of them for each replica");
	spec = good_chunks("1");
	set_good(spec, "mesh.layers", "12");
	refused(spec, "mesh.layers: found 1 of them, allowed: one of each of mesh.pp = 2");
	spec = good_chunks("1");
	give(spec, "mesh.layers", "7", "6");
	refused(spec, "mesh.layers: found 13 together, allowed: model.layers, which is 12");
	spec = good_chunks("2");
	give(spec, "mesh.layers", "11", "1");
	refused(spec, "mesh.layers: found 1, allowed: at least 2, as mesh.chunks says");
	/* two microbatches of the second replica are enough for two stages, one is not */
	spec = good_chunks("2");
	give(spec, "mesh.shares", "6", "2");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "train.micro_sequences", "2");
	refused(spec,
	    "mesh.chunks: found 2, allowed: 1, since a replica has 1 microbatches and mesh.pp is "
	    "2: interleaved stages need as many; set a smaller train.micro_sequences or a larger "
	    "train.batch_tokens");
}

/* Workers that hold the whole model have ranks too, where their shares are unequal. */
static void test_shares_of_whole_models(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("1");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_false(job_mesh_is_sharded(spec));
	give(spec, "mesh.shares", "2", "1");
	give(spec, "mesh.shares", "2", "1");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_true(job_mesh_is_sharded(spec));
	set_good(spec, "sync.mode", "diloco");
	refused(spec, "sync.mode: found diloco, allowed: ddp, since mesh.shares is given");
	spec = good_sharded("1");
	set_good(spec, "mesh.layers", "12");
	refused(spec, "mesh.layers: found 1 of them, allowed: none, since mesh.pp is 1");
}

/* Shares follow speeds where that is asked for, and in what was planned, if its workers have ranks. */
static void test_balance(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_sharded("1");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_false(job_mesh_balances(spec));
	set_good(spec, "sync.deterministic", "false");
	spec->mesh->auto_ = true;
	assert_false(job_mesh_balances(spec));
	spec->mesh->tp = 2;
	assert_true(job_mesh_balances(spec));
	set_good(spec, "mesh.balance", "off");
	assert_false(job_mesh_balances(spec));
	drop(spec);
	spec = good_sharded("1");
	set_good(spec, "mesh.balance", "on");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_true(job_mesh_balances(spec) && job_mesh_is_sharded(spec));
	set_good(spec, "train.strict", "true");
	refused(spec,
	    "mesh.balance: found on, allowed: off, since train.strict is true: its replicas "
	    "compute "
	    "equal parts of the batch");
	spec = good_sharded("1");
	set_good(spec, "mesh.balance", "on");
	set_good(spec, "sync.mode", "diloco");
	refused(spec, "sync.mode: found diloco, allowed: ddp, since mesh.balance is on");
}

/* The last stage has the head, which counts as the layers that its matrix is as large as. */
static void test_layers_of_stages(void **state)
{
	struct model_config config = { .preset = MODEL_GPT2,
		.layers = 12,
		.width = 64,
		.heads = 4,
		.context = 32,
		.vocab = 2 * 12 * 64 };
	uint32_t layers[4];

	(void)state;
	model_config_fill(&config);
	assert_int_equal(job_mesh_stages(&config, 1, 1, NULL, layers, NULL), TR_OK);
	assert_int_equal(layers[0], 12);
	assert_int_equal(job_mesh_stages(&config, 2, 1, NULL, layers, NULL), TR_OK);
	assert_true(layers[0] == 7 && layers[1] == 5);
	config.vocab = 100 * 12 * 64;
	assert_int_equal(job_mesh_stages(&config, 4, 1, NULL, layers, NULL), TR_OK);
	assert_int_equal(layers[3], 1);
	assert_int_equal(layers[0] + layers[1] + layers[2], 11);
	/* Of 11 and 1 the second has no layer for another chunk: 10 and 2. What is over goes to the first rank's last chunk. */
	assert_int_equal(job_mesh_stages(&config, 2, 2, NULL, layers, NULL), TR_OK);
	assert_true(layers[0] == 5 && layers[1] == 1 && layers[2] == 5 && layers[3] == 1);
	assert_int_equal(job_mesh_stages(&config, 2, 2, (const uint32_t[]){ 4, 8 }, layers, NULL),
	    TR_OK);
	assert_true(layers[0] == 2 && layers[1] == 4 && layers[2] == 2 && layers[3] == 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mesh),
		cmocka_unit_test(test_stages),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_too_few_apart),
		cmocka_unit_test(test_strict),
		cmocka_unit_test(test_microbatches),
		cmocka_unit_test(test_who_may_grow),
		cmocka_unit_test(test_owners_of_moments),
		cmocka_unit_test(test_sequence_parallel),
		cmocka_unit_test(test_schedules),
		cmocka_unit_test(test_chunks_of_another_mesh),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_shares_of_whole_models),
		cmocka_unit_test(test_balance),
		cmocka_unit_test(test_layers_of_stages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
