/* Which mesh a job goes on with: over all small numbers of contributors, and the cases that people ask about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/ranks.h"
#include "daemon/plan/remesh.h"

static const struct model_config model = { .preset = MODEL_GPT2,
	.layers = 6,
	.width = 48,
	.heads = 8,
	.kv_heads = 8,
	.head_width = 6,
	.hidden = 192,
	.context = 16,
	.vocab = 256 };

static struct mesh mesh_of(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct mesh){ .size = { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } };
}

static struct remesh_shape shape_of(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct remesh_shape){ mesh_of(dp, pp, tp), 1 };
}

static struct remesh rules_of(struct remesh_shape job)
{
	return (struct remesh){ .config = &model, .job = job, .wait_rounds = 20 };
}

static void assert_mesh(struct remesh_shape shape, uint32_t dp, uint32_t pp, uint32_t tp)
{
	struct mesh mesh = shape.mesh;
	if (mesh.size[MESH_DP] != dp || mesh.size[MESH_PP] != pp || mesh.size[MESH_TP] != tp)
		fail_msg("dp %u x pp %u x tp %u, not dp %u x pp %u x tp %u", mesh.size[MESH_DP],
		    mesh.size[MESH_PP], mesh.size[MESH_TP], dp, pp, tp);
}

static void the_best(void **state)
{
	(void)state;
	static const struct {
		uint32_t job[3], contributors, best[3]; /* dp, pp, tp */
	} cases[] = {
		{ { 1, 1, 4 }, 4, { 1, 1, 4 } },
		{ { 1, 1, 4 }, 3, { 2, 1, 2 } }, /* eight heads do not divide by 3 */
		{ { 1, 1, 4 }, 2, { 2, 1, 2 } },
		{ { 1, 1, 4 }, 1, { 4, 1, 1 } },
		{ { 1, 3, 1 }, 2, { 1, 2, 1 } },
		{ { 1, 2, 2 }, 3, { 2, 1, 2 } }, /* tp before pp */
		{ { 1, 3, 2 }, 5, { 1, 2, 2 } },
		{ { 1, 3, 2 }, 3, { 2, 3, 1 } }, /* three share it, not two */
		{ { 2, 1, 4 }, 5, { 2, 1, 4 } }, /* one replica: the job's mesh */
		{ { 2, 1, 4 }, 3, { 4, 1, 2 } },
		{ { 1, 1, 8 }, 7, { 2, 1, 4 } },
		{ { 2, 2, 4 }, 7, { 4, 1, 4 } },
		{ { 2, 2, 4 }, 1, { 16, 1, 1 } },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct remesh rules = rules_of(
		    shape_of(cases[i].job[0], cases[i].job[1], cases[i].job[2]));
		assert_mesh(remesh_best(&rules, cases[i].contributors), cases[i].best[0],
		    cases[i].best[1], cases[i].best[2]);
	}
	struct remesh rules = rules_of(shape_of(2, 2, 4));
	rules.sequences = 3; /* a replica without a sequence would do nothing */
	assert_mesh(remesh_best(&rules, 1), 3, 1, 1);
}

/* Axes of strict jobs are powers of two that the parts of width and batch are multiples of. */
static void strict_ones(void **state)
{
	(void)state;
	struct model_config six = model;
	six.heads = six.kv_heads = 6;
	six.head_width = 8;
	struct remesh rules = { .config = &six,
		.job = shape_of(1, 3, 2),
		.sequences = 12,
		.strict = true,
		.wait_rounds = 20 };
	assert_mesh(remesh_best(&rules, 6), 1, 3, 2);
	assert_mesh(remesh_best(&rules, 5), 1, 2, 2);
	assert_mesh(remesh_best(&rules, 3), 2, 3, 1);
	assert_mesh(remesh_best(&rules, 1), 4, 1,
	    1); /* not six: a part of 12 sequences is one in four */
	/* tp 3 would be possible otherwise. */
	rules = (struct remesh){ .config = &six, .job = shape_of(1, 1, 6), .sequences = 8 };
	assert_mesh(remesh_best(&rules, 3), 2, 1, 3);
	rules.strict = true;
	assert_mesh(remesh_best(&rules, 3), 2, 1, 2);
}

/* Any job's mesh that the model allows, any number of contributors. */
static void over_all_small_ones(void **state)
{
	(void)state;
	unsigned smaller = 0;
	for (uint32_t dp = 1; dp <= 4; dp++)
		for (uint32_t pp = 1; pp <= 6; pp++)
			for (uint32_t tp = 1; tp <= 8; tp++) {
				struct mesh job = mesh_of(dp, pp, tp);
				struct remesh rules = rules_of((struct remesh_shape){ job, 1 });
				if (job_mesh_allows(&model, &job, NULL) != TR_OK)
					continue;
				uint32_t before = 0;
				for (uint32_t n = 1; n <= mesh_workers(&job) + 2; n++) {
					struct mesh best = remesh_best(&rules, n).mesh;
					uint32_t shards = ranks_shards(&best);
					assert_int_equal(job_mesh_allows(&model, &best, NULL),
					    TR_OK);
					assert_true(shards <= n && best.size[MESH_DP] >= 1);
					assert_true(
					    best.size[MESH_PP] <= pp && best.size[MESH_TP] <= tp);
					assert_true(mesh_workers(&best) <= mesh_workers(&job));
					assert_true(shards >= before); /* with more, none smaller */
					assert_true(mesh_equal(&best, &job) == (n >= pp * tp));
					before = shards;
					smaller += shards < pp * tp;
				}
			}
	assert_true(smaller > 1000);
}

/* Rounds until it changes, up to `most`. */
static unsigned rounds_until(const struct remesh *rules, const struct remesh_shape *mesh,
    uint32_t n, struct remesh_counts *counts, struct remesh_shape *next, unsigned most)
{
	unsigned rounds = 0;
	while (rounds < most && !remesh_next(rules, mesh, n, counts, next)) {
		remesh_count(rules, mesh, n, counts);
		rounds++;
	}
	return rounds;
}

static void patience(void **state)
{
	(void)state;
	struct remesh rules = rules_of(shape_of(1, 1, 4));
	struct remesh_counts counts = { 0 };
	struct remesh_shape mesh = rules.job, next = mesh;
	/* Nothing to change, with all of them or with more. */
	assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 100), 100);
	assert_int_equal(rounds_until(&rules, &mesh, 6, &counts, &next, 100), 100);
	/* One is missing, for a while; then it is back. */
	assert_int_equal(rounds_until(&rules, &mesh, 3, &counts, &next, 19), 19);
	assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 1), 1);
	assert_int_equal(rounds_until(&rules, &mesh, 3, &counts, &next, 100), 20);
	assert_mesh(next, 2, 1, 2);
	const unsigned expected[] = { 10, 20, 40, 80, 80 };
	for (unsigned i = 0; i < 5; i++) {
		remesh_changed(&mesh, &next, &counts);
		mesh = next;
		assert_int_equal(rounds_until(&rules, &mesh, 3, &counts, &next, 200), 200);
		/* One comes and goes. */
		assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 9), 9);
		assert_int_equal(rounds_until(&rules, &mesh, 2, &counts, &next, 1), 1);
		assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 200), expected[i]);
		assert_true(mesh_equal(&next.mesh, &rules.job.mesh));
		remesh_changed(&mesh, &next, &counts);
		mesh = next;
		assert_int_equal(rounds_until(&rules, &mesh, 3, &counts, &next, 200), 20);
	}
	assert_int_equal(counts.smaller, 5);
	rules.wait_rounds = 0;
	counts = (struct remesh_counts){ 0 };
	assert_int_equal(rounds_until(&rules, &mesh, 1, &counts, &next, 500), 500);
	assert_false(remesh_next(&rules, &mesh, 0, &counts, &next));
}

/* A better mesh that is not worth the change is not considered again until there were too few for it; to a smaller one there is no choice. */
/* Workers have room for so many parts' worth: a mesh of fewer shards has larger ones; stages of a pipeline keep more than columns. */
static bool room_for_parts(void *arg, const struct mesh *mesh)
{
	uint32_t wanted = *(const uint32_t *)arg;
	return 12 / (mesh->size[MESH_PP] * mesh->size[MESH_TP]) + mesh->size[MESH_PP] - 1 +
	    (mesh->size[MESH_DP] > 2 ? 100 : 0) <=
	    wanted;
}

static void only_what_has_room(void **state)
{
	(void)state;
	uint32_t room = 12;
	struct remesh rules = rules_of(shape_of(1, 3, 2));
	rules.has_room = room_for_parts;
	rules.arg = &room;
	assert_mesh(remesh_best(&rules, 3), 2, 3, 1); /* 4 + 2 */
	room = 6;
	assert_mesh(remesh_best(&rules, 3), 2, 3, 1);
	room = 5; /* three stages keep too much, two columns are too much of all: as if nobody knew */
	assert_mesh(remesh_best(&rules, 3), 2, 3, 1);
	rules = rules_of(shape_of(1, 4, 2));
	rules.has_room = room_for_parts;
	rules.arg = &room;
	assert_mesh(remesh_best(&rules, 7), 1, 3, 2); /* 2 + 2 */
	room = 3;
	assert_mesh(remesh_best(&rules, 7), 1, 3, 2); /* no other one has */
	room = 6;
	assert_mesh(remesh_best(&rules, 3), 2, 3, 1); /* 4 + 2, as 6 + 0 of tp 2 */
	/* Four stages of a layer take more than two of two. */
	room = 5;
	assert_mesh(remesh_best(&rules, 5), 2, 2, 2); /* 3 + 1; pp 4 would be 3 + 3 */
	/* As many replicas as are there are asked about. */
	room = 12;
	assert_mesh(remesh_best(&rules, 1), 8, 1, 1);
	/* With enough for the job's mesh nobody asks. */
	room = 0;
	assert_mesh(remesh_best(&rules, 8), 1, 4, 2);
}

/* The one with the most shards lacks room: the next best. */
static bool no_pipelines(void *arg, const struct mesh *mesh)
{
	(void)arg;
	return mesh->size[MESH_PP] == 1;
}

static void what_lacks_room_is_passed_over(void **state)
{
	(void)state;
	struct remesh rules = rules_of(shape_of(1, 3, 2));
	rules.has_room = no_pipelines;
	assert_mesh(remesh_best(&rules, 5), 3, 1, 2);
	assert_mesh(remesh_best(&rules, 3), 3, 1, 2);
	assert_mesh(remesh_best(&rules, 1), 6, 1, 1);
}

static void nobody_follows(void **state)
{
	(void)state;
	struct remesh rules = rules_of(shape_of(1, 1, 4));
	struct remesh_counts counts = { 0 };
	struct remesh_shape next;
	/* Nobody is missing. */
	remesh_count(&rules, &rules.job, 4, &counts);
	remesh_nobody_follows(&rules, &counts);
	assert_int_equal(counts.waited, 0);
	assert_false(remesh_next(&rules, &rules.job, 4, &counts, &next));
	/* One is: after the round in which all agree that it stays so. */
	assert_false(remesh_next(&rules, &rules.job, 3, &counts, &next));
	remesh_count(&rules, &rules.job, 3, &counts);
	remesh_nobody_follows(&rules, &counts);
	assert_true(remesh_next(&rules, &rules.job, 3, &counts, &next));
	assert_mesh(next, 2, 1, 2);
	/* One came all the same. */
	assert_false(remesh_next(&rules, &rules.job, 4, &counts, &next));
	/* Who waits for ever does so. */
	rules.wait_rounds = 0;
	counts = (struct remesh_counts){ 0 };
	remesh_count(&rules, &rules.job, 3, &counts);
	remesh_nobody_follows(&rules, &counts);
	assert_false(remesh_next(&rules, &rules.job, 3, &counts, &next));
}

static void declined(void **state)
{
	(void)state;
	struct remesh rules = rules_of(shape_of(1, 1, 4));
	struct remesh_counts counts = { .smaller = 1 };
	struct remesh_shape mesh = shape_of(2, 1, 2), next = mesh;
	assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 100), 10);
	remesh_count(&rules, &mesh, 4, &counts);
	remesh_decline(&counts);
	assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 300), 300);
	assert_int_equal(rounds_until(&rules, &mesh, 3, &counts, &next, 1), 1);
	assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 100), 10);
	remesh_decline(&counts);
	assert_int_equal(rounds_until(&rules, &mesh, 1, &counts, &next, 100), 20);
	assert_mesh(next, 4, 1, 1);
	remesh_changed(&mesh, &next, &counts);
	assert_int_equal(counts.declined, 0);
}

/* Replicas that train apart: a round is a merge and all steps before it, so one is enough to settle; and what it numbers has to fit. */
static void apart(void **state)
{
	(void)state;
	Traind__V1__Optimizer optimizer = TRAIND__V1__OPTIMIZER__INIT;
	Traind__V1__Model layers = TRAIND__V1__MODEL__INIT;
	Traind__V1__TrainSpec spec = TRAIND__V1__TRAIN_SPEC__INIT;
	spec.optimizer = &optimizer;
	spec.model = &layers;
	layers.layers = model.layers;
	struct remesh rules = rules_of(shape_of(1, 3, 2));
	rules.sequences = 8;
	rules.apart = (struct job_mesh_rounds){ .spec = &spec, .chunks = 1, .steps = 20 };
	struct remesh_counts counts = { .smaller = 1 };
	struct remesh_shape mesh = shape_of(2, 1, 2), next = mesh;
	assert_mesh(remesh_best(&rules, 5), 1, 2, 2);
	assert_int_equal(rounds_until(&rules, &mesh, 6, &counts, &next, 100), 1);
	assert_true(mesh_equal(&next.mesh, &rules.job.mesh));
	assert_int_equal(rounds_until(&rules, &mesh, 1, &counts, &next, 100), 20);
	counts = (struct remesh_counts){ .smaller = 3 };
	assert_int_equal(rounds_until(&rules, &mesh, 6, &counts, &next, 100), 4);
	/* With two of six layers a stage has 96 sums in a step, where one of three stages had 64: stages alone have none. */
	rules.apart.steps = JOB_MESH_SUMS_MAX / 64;
	assert_mesh(remesh_best(&rules, 6), 1, 3, 2);
	assert_mesh(remesh_best(&rules, 5), 2, 3, 1);
	assert_mesh(remesh_best(&rules, 1), 6, 1, 1);
	/* Of two copies that are alone each computes a half: what it has of sums fits. */
	struct remesh_shape three = shape_of(3, 1, 2);
	three.copies = 3;
	struct remesh copied = rules_of(three);
	copied.sequences = 8;
	copied.apart = rules.apart;
	copied.apart.steps = JOB_MESH_SUMS_MAX / (4 * 4 * 6);
	assert_mesh(remesh_best(&copied, 5), 2, 1, 2);
	assert_mesh(remesh_best(&copied, 3), 6, 1, 1); /* one would have all of them */
	/* Nor does one that sends messages between stages fit, whatever it is. */
	rules.apart.steps = JOB_MESH_MESSAGES_MAX;
	assert_mesh(remesh_best(&rules, 5), 6, 1, 1);
}

/* A larger one than there is, which is not the job's yet. */
static void by_steps(void **state)
{
	(void)state;
	struct remesh rules = rules_of(shape_of(1, 6, 1));
	struct remesh_counts counts = { .smaller = 1 };
	struct remesh_shape mesh = shape_of(3, 2, 1), next = mesh;
	assert_int_equal(rounds_until(&rules, &mesh, 2, &counts, &next, 100), 100);
	assert_int_equal(rounds_until(&rules, &mesh, 4, &counts, &next, 100), 10);
	assert_mesh(next, 1, 4, 1);
}

/* Replicas of several copies: with fewer workers than one takes first fewer copies, then a smaller mesh, never more copies than the job's. */
static void copies(void **state)
{
	(void)state;
	static const struct {
		uint32_t job[3], copies, contributors, best[3], of; /* dp, pp, tp */
	} cases[] = {
		{ { 4, 1, 2 }, 2, 4, { 4, 1, 2 }, 2 },
		{ { 4, 1, 2 }, 2, 3, { 4, 1, 2 }, 1 }, /* the same mesh, of other replicas */
		{ { 4, 1, 2 }, 2, 1, { 8, 1, 1 }, 1 },
		{ { 3, 1, 2 }, 3, 5, { 2, 1, 2 }, 2 },
		{ { 3, 1, 2 }, 3, 2, { 3, 1, 2 }, 1 },
		{ { 2, 2, 2 }, 2, 7, { 2, 2, 2 }, 1 },
		{ { 2, 2, 2 }, 2, 3, { 4, 1, 2 }, 1 },
		{ { 6, 1, 1 }, 3, 2, { 6, 1, 1 }, 2 },
		{ { 6, 1, 1 }, 3, 1, { 6, 1, 1 }, 1 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct remesh_shape job = shape_of(cases[i].job[0], cases[i].job[1],
		    cases[i].job[2]);
		job.copies = cases[i].copies;
		struct remesh rules = rules_of(job);
		struct remesh_shape best = remesh_best(&rules, cases[i].contributors);
		assert_mesh(best, cases[i].best[0], cases[i].best[1], cases[i].best[2]);
		assert_int_equal(best.copies, cases[i].of);
		assert_int_equal(best.mesh.size[MESH_DP] % best.copies, 0);
	}
}

/* Each copy of a replica that there is has a sequence. */
static void copies_of_few_sequences(void **state)
{
	(void)state;
	struct model_config five = model; /* tp 5 or none */
	five.width = 40;
	five.heads = five.kv_heads = 5;
	five.head_width = 8;
	five.hidden = 160;
	struct remesh_shape job = shape_of(2, 1, 5);
	job.copies = 2;
	struct remesh rules = rules_of(job);
	rules.config = &five;
	rules.sequences = 2;
	struct remesh_shape best = remesh_best(&rules, 4);
	assert_mesh(best, 2, 1, 1);
	assert_int_equal(best.copies, 2);
}

/* There and back, by copies alone. */
static void fewer_copies_and_back(void **state)
{
	(void)state;
	struct remesh_shape job = shape_of(4, 1, 2);
	job.copies = 2;
	struct remesh rules = rules_of(job);
	struct remesh_counts counts = { 0 };
	struct remesh_shape now = job, next = now;
	assert_int_equal(rounds_until(&rules, &now, 4, &counts, &next, 100), 100);
	assert_int_equal(rounds_until(&rules, &now, 3, &counts, &next, 100), 20);
	assert_true(mesh_equal(&next.mesh, &job.mesh) && next.copies == 1);
	assert_true(remesh_is_larger(&now, &next) && !remesh_is_larger(&next, &now));
	remesh_changed(&now, &next, &counts);
	assert_int_equal(counts.smaller, 1);
	now = next;
	assert_int_equal(rounds_until(&rules, &now, 3, &counts, &next, 100), 100);
	assert_int_equal(rounds_until(&rules, &now, 4, &counts, &next, 100), 10);
	assert_true(mesh_equal(&next.mesh, &job.mesh) && next.copies == 2);
	remesh_changed(&now, &next, &counts);
	assert_int_equal(counts.smaller, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best),
		cmocka_unit_test(strict_ones),
		cmocka_unit_test(over_all_small_ones),
		cmocka_unit_test(patience),
		cmocka_unit_test(only_what_has_room),
		cmocka_unit_test(what_lacks_room_is_passed_over),
		cmocka_unit_test(nobody_follows),
		cmocka_unit_test(declined),
		cmocka_unit_test(apart),
		cmocka_unit_test(by_steps),
		cmocka_unit_test(copies),
		cmocka_unit_test(copies_of_few_sequences),
		cmocka_unit_test(fewer_copies_and_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
