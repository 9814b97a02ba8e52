/* Which jobs follow what they measure (mesh.balance), and so have workers with ranks: asked for or not, planned or given, of whole models or of parts. */
#include "tests/unit/good_job.h"

#include <stdlib.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/replan.h"

/* What a job is planned as; shares are unequal ones of whole models. */
enum shape { WHOLE, TP, PP, SHARES, SHAPES };
enum origin { GIVEN, AUTO, WITHOUT_BASIS, WITH_BASIS, ORIGINS };

static void plan(Traind__V1__JobSpec *spec, uint32_t workers, bool basis)
{
	spec->plan = calloc(1, sizeof(*spec->plan));
	assert_non_null(spec->plan);
	traind__v1__job_plan__init(spec->plan);
	spec->mesh->workers = workers;
	if (!basis)
		return;
	spec->plan->basis = calloc(1, sizeof(*spec->plan->basis));
	assert_non_null(spec->plan->basis);
	traind__v1__plan_basis__init(spec->plan->basis);
}

/* Of so many workers. */
static Traind__V1__JobSpec *made(enum origin origin, enum shape shape, uint32_t workers)
{
	Traind__V1__JobSpec *spec = good_sharded("1");

	set_good(spec, "sync.deterministic", "false");
	spec->mesh->tp = shape == TP ? 2 : 1;
	spec->mesh->pp = shape == PP ? 2 : 1;
	if (shape == SHARES) {
		spec->mesh->shares = calloc(1, sizeof(*spec->mesh->shares));
		assert_non_null(spec->mesh->shares);
		spec->mesh->shares[spec->mesh->n_shares++] = 1;
	}
	spec->mesh->auto_ = origin != GIVEN;
	if (origin == WITHOUT_BASIS || origin == WITH_BASIS)
		plan(spec, workers, origin == WITH_BASIS);
	return spec;
}

static void test_choice(void **state)
{
	(void)state;
	for (enum origin origin = GIVEN; origin < ORIGINS; origin++)
		for (enum shape shape = WHOLE; shape < SHAPES; shape++) {
			Traind__V1__JobSpec *spec = made(origin, shape, 4);
			bool follows = shape == WHOLE ? origin == WITH_BASIS : origin != GIVEN;
			if (job_mesh_balances(spec) != follows)
				fail_msg("auto: origin %d, shape %d", origin, shape);
			assert_int_equal(job_mesh_is_sharded(spec), shape != WHOLE || follows);
			set_good(spec, "mesh.balance", "on");
			assert_true(job_mesh_balances(spec) && job_mesh_is_sharded(spec));
			set_good(spec, "mesh.balance", "off");
			assert_false(job_mesh_balances(spec));
			assert_int_equal(job_mesh_is_sharded(spec), shape != WHOLE);
			drop(spec);
		}
}

/* One worker has nobody to change places with; of too many no plan is looked for. */
static void test_how_many(void **state)
{
	(void)state;
	const uint32_t workers[] = { 1, 2, REPLAN_PEERS_MAX, REPLAN_PEERS_MAX + 1, 256 };
	for (unsigned i = 0; i < sizeof(workers) / sizeof(workers[0]); i++) {
		Traind__V1__JobSpec *spec = made(WITH_BASIS, WHOLE, workers[i]);
		bool follows = workers[i] > 1 && workers[i] <= REPLAN_PEERS_MAX;
		assert_int_equal(job_mesh_balances(spec), follows);
		assert_int_equal(job_mesh_is_sharded(spec), follows);
		drop(spec);
	}
}

/* By itself no job becomes one that its other settings refuse, or whose bits they promise. */
static void test_what_does_not_follow(void **state)
{
	(void)state;
	static const char *const settings[][2] = { { "sync.deterministic", "true" },
		{ "sync.on_loss", "drop" }, { "sync.mode", "diloco" }, { "train.strict", "true" } };
	for (unsigned i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		for (enum shape shape = WHOLE; shape < SHAPES; shape++) {
			Traind__V1__JobSpec *spec = made(WITH_BASIS, shape, 4);
			set_good(spec, settings[i][0], settings[i][1]);
			if (job_mesh_balances(spec))
				fail_msg("%s: shape %d", settings[i][0], shape);
			assert_int_equal(job_mesh_is_sharded(spec), shape != WHOLE);
			drop(spec);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_choice),
		cmocka_unit_test(test_how_many), cmocka_unit_test(test_what_does_not_follow) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
