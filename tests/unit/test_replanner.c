/* Searches in a thread: what comes of the newest one alone, also where another was under way; an end in the middle of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/plan/plan_basis.h"
#include "daemon/worker/replanner.h"
#include "tests/unit/plan_cases.h"

#define WORKERS 4

/* A job of tp 4 on equal nodes. */
struct fixture {
	struct plan_case c;
	Traind__V1__JobSpec job;
	Traind__V1__JobPlan plan;
	Traind__V1__TrainSpec train;
	Traind__V1__Mesh mesh;
	struct replan_task task;
	struct replanner *planner;
};

static void begin(struct fixture *f)
{
	const uint64_t ids[WORKERS] = { 1, 2, 3, 4 };
	struct plan plan = { .choice = { .mesh = { { 1, 1, WORKERS } }, .sequences = 2 },
		.worker_of = { 0, 1, 2, 3 } };
	struct tr_error error;

	case_make(&f->c, 0);
	traind__v1__job_spec__init(&f->job);
	traind__v1__job_plan__init(&f->plan);
	traind__v1__train_spec__init(&f->train);
	traind__v1__mesh__init(&f->mesh);
	f->plan.basis = plan_basis_make(&f->c.in, ids, &plan);
	assert_non_null(f->plan.basis);
	f->job.plan = &f->plan;
	f->job.train = &f->train;
	f->job.mesh = &f->mesh;
	f->task = (struct replan_task){ .dealing = { .mesh = plan.choice.mesh }, .count = WORKERS };
	for (uint32_t i = 0; i < WORKERS; i++) {
		f->task.ranks[i] = i;
		f->task.figures[i].node = (int64_t)ids[i];
	}
	assert_int_equal(replanner_create(&f->job, &f->c.model, f->c.in.batch, 2, &f->planner,
	                     &error),
	    TR_OK);
	assert_non_null(f->planner);
}

static void finish(struct fixture *f)
{
	replanner_destroy(f->planner);
	plan_basis_destroy(f->plan.basis);
	plan_cluster_finish(&f->c.cluster);
}

/* One worker computes at a tenth. */
static void search_for(struct fixture *f, uint32_t slow)
{
	struct replan_task task = f->task;

	task.figures[slow].speed_ppm = 100000;
	replanner_start(f->planner, &task);
}

static void wait_for(struct fixture *f, struct wish *wish)
{
	const struct timespec little = { 0, 2000000 };

	for (unsigned i = 0; !replanner_poll(f->planner, wish); i++) {
		assert_true(i < 60000);
		(void)nanosleep(&little, NULL);
	}
}

static void what_comes_of_a_search(void **state)
{
	struct fixture f;
	struct wish wish;

	(void)state;
	begin(&f);
	assert_false(replanner_poll(f.planner, &wish)); /* nobody searches */
	search_for(&f, 1);
	wait_for(&f, &wish);
	assert_true(wish.kind == WISH_CHANGE && wish.who == 1 && wish.percent == 10);
	assert_false(replanner_poll(f.planner, &wish)); /* it is said once */
	finish(&f);
}

static void the_newest_search_alone(void **state)
{
	struct fixture f;
	struct wish wish;

	(void)state;
	begin(&f);
	for (uint32_t slow = 0; slow < WORKERS; slow++)
		search_for(&f, slow);
	wait_for(&f, &wish);
	assert_true(wish.kind == WISH_CHANGE && wish.who == WORKERS - 1);
	search_for(&f, 2); /* and goes in the middle of it */
	finish(&f);
}

static void what_cannot_be_searched_for(void **state)
{
	struct fixture f;
	struct wish wish;
	struct replanner *none;
	struct tr_error error;

	(void)state;
	begin(&f);
	for (uint32_t i = 0; i < WORKERS; i++)
		f.task.ranks[i] = UINT32_MAX;
	search_for(&f, 0);
	wait_for(&f, &wish);
	assert_int_equal(wish.kind, WISH_FAILED);
	/* a job that was not planned, or carries nothing of its plan */
	f.job.plan = NULL;
	assert_int_equal(replanner_create(&f.job, &f.c.model, 8, 2, &none, &error), TR_OK);
	assert_null(none);
	replanner_destroy(none);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_comes_of_a_search),
		cmocka_unit_test(the_newest_search_alone),
		cmocka_unit_test(what_cannot_be_searched_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
