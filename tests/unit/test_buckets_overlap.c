/* Gradients are summed over dp while the backward pass goes on: a worker hands over its first bucket, and each but the last, when gradients of buckets behind it are still to change. Real trainers over a
 * group that notes what they submit (mesh_world.h), of replicas alone and of meshes. */
#include "tests/unit/mesh_world.h"

enum { STEPS = 2, SIDE = 256 };

/* With bucket 0 a worker keeps the gradients that are not in it, as they are then; with each other bucket it is found out whether they changed since. */
static void note_bucket(struct tr_group *g, const struct tr_op *op)
{
	const struct buckets *b = &g->trainer->buckets;
	const float *grads = g->trainer->arrays.grads;
	if (op->tag >= b->count)
		return;
	size_t first = b->first[op->tag], end = buckets_end(b, op->tag);
	assert_ptr_equal(op->output, grads + first);
	if (op->tag == 0) {
		g->before = realloc(g->before, first * sizeof(float) + 1);
		assert_non_null(g->before);
		memcpy(g->before, grads, first * sizeof(float));
		g->steps++;
	} else {
		g->later_buckets++;
		g->changed_buckets += memcmp(g->before + first, grads + first,
		                          (end - first) * sizeof(float)) != 0;
	}
}

static void check(uint32_t dp, uint32_t pp, uint32_t tp)
{
	struct job job;
	static struct world w;
	Traind__V1__Mesh mesh = TRAIND__V1__MESH__INIT;
	job_init(&job, STEPS);
	job.data.validation = 0;
	job.model.layers = 2 * pp;
	job.model.width = SIDE;
	mesh.nodes = dp;
	mesh.workers_per_node = pp * tp;
	mesh.workers = dp * pp * tp;
	mesh.pp = pp;
	mesh.tp = tp;
	job.spec.mesh = &mesh;
	memset(&w, 0, sizeof(w));
	w.submitted = note_bucket;
	world_run(&w, &job, dp * pp * tp);
	for (unsigned p = 0; p < w.peers; p++) {
		const struct tr_group *g = w.groups[p];
		assert_int_equal(g->steps, STEPS);
		assert_true(g->later_buckets >= STEPS);
		assert_int_equal(g->changed_buckets, g->later_buckets);
	}
	world_finish(&w);
	job_finish(&job);
}

static void replicas_alone(void **state)
{
	(void)state;
	check(2, 1, 1);
	check(3, 1, 1);
}

static void with_tensor_parallel(void **state)
{
	(void)state;
	check(2, 1, 2);
}

static void with_stages(void **state)
{
	(void)state;
	check(2, 2, 1);
	check(2, 2, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replicas_alone),
		cmocka_unit_test(with_tensor_parallel),
		cmocka_unit_test(with_stages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
