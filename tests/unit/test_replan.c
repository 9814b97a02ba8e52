/* A job that is planned anew: what it carries of its plan, what workers compute by that, which other plan is found when some of them or of the links are slow, and how it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_basis.h"
#include "daemon/plan/ranks.h"
#include "daemon/plan/replan.h"
#include "tests/unit/plan_cases.h"

#define FIRST_ID 100 /* of nodes */

/* A cluster of plan_cases.h, and a job that has its best plan of such a mesh. */
struct planned {
	struct plan_case c;
	struct plan plan;
	Traind__V1__PlanBasis *basis;
	Traind__V1__Mesh mesh;
	struct replan_job job;
	struct replan_task task;
};

static char gpipe[] = "gpipe";

/* Of p->c. */
static void make_planned(struct planned *p, struct mesh mesh)
{
	struct plan_search_settings settings = { .seed = 1, .only = { .mesh = mesh } };
	struct plan_result *result;
	uint64_t ids[TR_GROUP_PEERS_MAX];
	struct tr_error error;

	p->c.in.runnable = true;
	p->c.all.sum_s = 2e-6;
	p->c.all.sum_byte_s = 2e-10;
	if (plan_search(&p->c.in, &settings, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	p->plan = result->best;
	plan_search_destroy(result);
	for (uint32_t i = 0; i < p->c.cluster.node_count; i++)
		ids[i] = FIRST_ID + i;
	p->basis = plan_basis_make(&p->c.in, ids, &p->plan);
	assert_non_null(p->basis);
	traind__v1__mesh__init(&p->mesh);
	p->mesh.zero_owners = p->plan.choice.owners;
	p->mesh.recompute = p->plan.choice.recompute;
	p->mesh.chunks = p->plan.choice.chunks;
	if (p->plan.choice.kind == SCHEDULE_GPIPE)
		p->mesh.schedule = gpipe;
	p->mesh.sequence_parallel = p->plan.choice.own_rows;
	p->job = (struct replan_job){ p->basis, &p->mesh, &p->c.model, p->c.in.batch,
		p->plan.choice.sequences, false };
	p->task = (struct replan_task){ .dealing = { .mesh = mesh },
		.count = p->c.cluster.worker_count };
	for (uint32_t i = 0; i < p->task.count; i++) {
		p->task.ranks[i] = RANKS_NONE;
		p->task.figures[i].node = FIRST_ID + p->c.cluster.workers[i].node;
	}
	for (uint32_t rank = 0; rank < mesh_workers(&mesh); rank++)
		p->task.ranks[p->plan.worker_of[rank]] = rank;
}

static void make(struct planned *p, unsigned number, struct mesh mesh)
{
	case_make(&p->c, number);
	make_planned(p, mesh);
}

static void finish(struct planned *p)
{
	plan_basis_destroy(p->basis);
	plan_cluster_finish(&p->c.cluster);
}

static void search(const struct planned *p, struct wish *wish)
{
	struct tr_error error = { .text = "" };

	if (replan_search(&p->job, &p->task, wish, &error) != TR_OK)
		fail_msg("%s", error.text);
}

/* What it becomes on its way to the others. */
static void assert_told(const struct planned *p, const struct wish *wish)
{
	int64_t words[WISH_WORDS(REPLAN_PEERS_MAX)] = { 0 };
	struct wish read;

	wish_read(words, &p->c.model, p->task.count, &read);
	assert_int_equal(read.kind, WISH_NONE);
	wish_write(wish, p->task.count, words);
	wish_read(words, &p->c.model, p->task.count, &read);
	assert_int_equal(read.kind, wish->kind);
	if (wish->kind == WISH_CHANGE)
		assert_memory_equal(&read, wish, sizeof(read));
	/* what cannot be: a rank twice, a layer too many, nothing saved */
	for (unsigned which = 0; which < 3 && wish->kind == WISH_CHANGE; which++) {
		struct wish wrong = *wish;
		if (which == 0)
			for (uint32_t i = 0; i < p->task.count; i++)
				wrong.ranks[i] = 0;
		else if (which == 1)
			for (uint32_t i = 0; i < wrong.dealing.mesh.size[MESH_PP]; i++)
				wrong.dealing.layers[i] = p->c.model.layers;
		else
			wrong.next_ns = wrong.now_ns;
		if (which == 0 && p->task.count == 1)
			continue;
		if (which == 1 && wrong.dealing.mesh.size[MESH_PP] == 1)
			continue; /* all layers is what one stage has */
		wish_write(&wrong, p->task.count, words);
		wish_read(words, &p->c.model, p->task.count, &read);
		assert_int_equal(read.kind, WISH_FAILED);
	}
}

static struct mesh mesh_of(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct mesh){ .size = { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } };
}

static void what_a_job_carries(void **state)
{
	struct planned p;
	struct plan_cost rows[PLAN_COSTS_MAX];
	struct plan_costs costs;
	struct tr_error error;

	(void)state;
	make(&p, 5, mesh_of(4, 1, 1)); /* speeds 1, 1, 0.5, 0.25 */
	assert_int_equal(p.basis->n_nodes, 4);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t at = plan_basis_node(p.basis, FIRST_ID + i);
		assert_true(at < 4);
		assert_true(p.basis->nodes[at]->speed == p.c.cluster.workers[i].speed);
		assert_true(p.basis->nodes[at]->memory_bytes == p.c.cluster.workers[i].memory_bytes);
		for (uint32_t j = 0; j < 4; j++) {
			struct flow_link link = plan_basis_link(p.basis, at,
			    plan_basis_node(p.basis, FIRST_ID + j));
			assert_memory_equal(&link, plan_cluster_link(&p.c.cluster, i, j),
			    sizeof(link));
		}
	}
	assert_int_equal(plan_basis_node(p.basis, 7), PLAN_BASIS_NONE);
	assert_int_equal(plan_basis_costs(p.basis, rows, &costs, &error), TR_OK);
	for (uint32_t i = 0; i < costs.count; i++) {
		assert_true(rows[i].sequences <= p.plan.choice.sequences);
		uint32_t of = 0;
		while (
		    p.c.costs[of].tp != rows[i].tp || p.c.costs[of].sequences != rows[i].sequences)
			of++;
		assert_memory_equal(&rows[i], &p.c.costs[of], sizeof(rows[i]));
	}
	assert_true(costs.update_s == p.c.all.update_s && costs.round_s == p.c.all.round_s);
	assert_true(costs.sum_s == p.c.all.sum_s && costs.sum_byte_s == p.c.all.sum_byte_s);
	/* a list that is short */
	p.basis->costs[0]->n_kept_bytes--;
	assert_int_equal(plan_basis_costs(p.basis, rows, &costs, &error), TR_EINVAL);
	p.basis->costs[0]->n_kept_bytes++;
	finish(&p);
}

/* It comes over the API with a job: what no plan has is refused before anything is looked up in it. */
static void what_no_job_carries(void **state)
{
	struct planned p;
	struct plan_cost rows[PLAN_COSTS_MAX];
	struct plan_costs costs;

	(void)state;
	make(&p, 5, mesh_of(4, 1, 1));
	Traind__V1__PlanBasis *b = p.basis;
	double *const numbers[] = { &b->latency_s[1], &b->bandwidth_bytes_per_s[1],
		&b->nodes[0]->speed };
	const double wrong[] = { NAN, -1, INFINITY };
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 3; k++) {
			double before = *numbers[i];
			if (i == 1 && k == 2)
				continue; /* a way that takes no time may be */
			*numbers[i] = wrong[k];
			assert_int_equal(plan_basis_costs(b, rows, &costs, NULL), TR_EINVAL);
			*numbers[i] = before;
		}
	size_t *const lengths[] = { &b->n_nodes, &b->n_costs, &b->n_latency_s,
		&b->n_bandwidth_bytes_per_s };
	const size_t most[] = { 1u << 16, 1u << 16, 1u << 16, 0 };
	for (unsigned i = 0; i < 4; i++) {
		size_t before = *lengths[i];
		*lengths[i] = most[i];
		assert_int_equal(plan_basis_costs(b, rows, &costs, NULL), TR_EINVAL);
		*lengths[i] = before;
	}
	assert_int_equal(plan_basis_costs(b, rows, &costs, NULL), TR_OK);
	finish(&p);
}

/* Of equal workers: the whole model's work, in parts. */
static void what_workers_compute(void **state)
{
	const struct mesh meshes[] = { mesh_of(4, 1, 1), mesh_of(2, 2, 1), mesh_of(1, 4, 1) };
	struct planned p;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		make(&p, 0, meshes[i]);
		const struct plan_cost *cost = p.c.costs;
		while (cost->tp != 1 || cost->sequences != p.plan.choice.sequences)
			cost++;
		double whole = 0, all = 0;
		for (unsigned section = 0; section < SECTIONS; section++)
			whole += (cost->time[section].forward_s + cost->time[section].backward_s) *
			    (section == SECTION_LAYER ? p.c.model.layers : 1);
		for (uint32_t worker = 0; worker < p.task.count; worker++) {
			double own = replan_computing_s(&p.job, &p.task, worker);
			assert_true(own > 0);
			all += own;
		}
		whole *= (double)p.c.in.batch / p.plan.choice.sequences;
		assert_true(fabs(all - whole) < 1e-9 * whole);
		p.task.ranks[1] = RANKS_NONE;
		assert_true(replan_computing_s(&p.job, &p.task, 1) == 0);
		finish(&p);
	}
}

/* More chunks than a search tries by itself (a client of the API may ask for them): all of a rank's stages count. */
static void a_job_of_many_chunks(void **state)
{
	struct planned p;
	struct wish wish;
	const double factors[] = { 1, 0.1 };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		make(&p, 0, mesh_of(1, 4, 1));
		p.c.model.layers = 4 * 16;
		p.mesh.chunks = 16;
		for (uint32_t worker = 0; worker < p.task.count; worker++) {
			double one = replan_computing_s(&p.job, &p.task, worker);
			p.mesh.chunks = 1;
			double same = replan_computing_s(&p.job, &p.task, worker);
			p.mesh.chunks = 16;
			/* that the head counts may move a layer or two */
			assert_true(one > 0 && fabs(one - same) < 0.1 * same);
		}
		p.task.figures[3].speed_ppm = (int64_t)(1e6 * factors[i]);
		search(&p, &wish);
		assert_true(wish.kind == WISH_STAY || wish.kind == WISH_CHANGE);
		assert_told(&p, &wish);
		finish(&p);
	}
}

static void as_planned_it_stays(void **state)
{
	const unsigned cases[] = { 1, 14, 20 }; /* the last has slow cards */
	struct planned p;
	struct wish wish;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		make(&p, cases[i], mesh_of(0, 0, 0));
		finish(&p);
		make(&p, cases[i], p.plan.choice.mesh);
		/* layers and shares as they were planned */
		p.task.dealing.mesh = p.plan.choice.mesh;
		for (uint32_t d = 0; d < p.plan.choice.mesh.size[MESH_DP]; d++)
			p.task.dealing.shares[d] = p.plan.microbatches_of[d];
		for (uint32_t s = 0; s < p.plan.choice.mesh.size[MESH_PP] * p.plan.choice.chunks;
		     s++)
			p.task.dealing
			    .layers[s % p.plan.choice.mesh.size[MESH_PP]] += p.plan.layers_of[s];
		search(&p, &wish);
		assert_int_equal(wish.kind, WISH_STAY);
		assert_int_equal(wish.why, WISH_WHY_UNKNOWN);
		assert_true(fabs(1e-9 * (double)wish.now_ns - p.plan.times.step_s) <
		    0.01 * p.plan.times.step_s);
		assert_told(&p, &wish);
		finish(&p);
	}
}

static double predicted_s(struct planned *p)
{
	struct plan_layout *layout = plan_layout_create(&p->c.in, NULL);

	assert_non_null(layout);
	case_predict(layout, &p->plan);
	plan_layout_destroy(layout);
	return p->plan.times.step_s;
}

/* Two nodes that share a card: so it is where a job is planned anew, and two links that look half as fast while both send are not one card of half the rate. */
static void cards_stay_as_planned(void **state)
{
	struct planned p;
	struct wish wish;
	uint64_t ids[4];

	(void)state;
	make(&p, 18, mesh_of(1, 4, 1)); /* links of 100 Mbit/s */
	double own_s = p.plan.times.step_s;
	for (uint32_t i = 0; i < 4; i++)
		ids[i] = FIRST_ID + i;
	uint32_t a = p.plan.worker_of[0], b = p.plan.worker_of[2];
	p.c.cluster.nodes[a > b ? a : b].host = a > b ? b : a;
	double shared_s = predicted_s(&p);
	assert_true(shared_s > 1.02 * own_s);
	plan_basis_destroy(p.basis);
	p.basis = plan_basis_make(&p.c.in, ids, &p.plan);
	assert_non_null(p.basis);
	p.job.basis = p.basis;
	p.task.dealing.mesh = p.plan.choice.mesh;
	for (uint32_t s = 0; s < 4 * p.plan.choice.chunks; s++)
		p.task.dealing.layers[s % 4] += p.plan.layers_of[s];
	search(&p, &wish);
	assert_true(fabs(1e-9 * (double)wish.now_ns - shared_s) < 0.01 * shared_s);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t j = 0; j < 4; j++)
			p.task.figures[i].bandwidth[j] = (int64_t)(50 * MBIT);
	search(&p, &wish);
	/* Of halved links with halved cards all would take twice as long. */
	assert_true(1e-9 * (double)wish.now_ns < 1.6 * shared_s);
	finish(&p);
}

/* Two sites of two, each with one of both stages: gradients of both go over the cable. */
static void cables_stay_as_planned(void **state)
{
	struct planned p;
	struct wish wish;
	const uint64_t ids[] = { FIRST_ID, FIRST_ID + 1, FIRST_ID + 2, FIRST_ID + 3 };

	(void)state;
	make(&p, 18, mesh_of(2, 2, 1)); /* links of 100 Mbit/s */
	double own_s = p.plan.times.step_s;
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t replica = i % 2, other = p.plan.worker_of[replica + (i < 2 ? 2 : 0)],
		         self = p.plan.worker_of[i];
		case_site(&p.c, self, self < other ? self : other, self < other ? 100 * MBIT : 0,
		    self < other ? 100 * MBIT : 0);
	}
	double shared_s = predicted_s(&p);
	assert_true(shared_s > 1.1 * own_s);
	plan_basis_destroy(p.basis);
	p.basis = plan_basis_make(&p.c.in, ids, &p.plan);
	assert_non_null(p.basis);
	p.job.basis = p.basis;
	p.task.dealing.mesh = p.plan.choice.mesh;
	for (uint32_t s = 0; s < 2 * p.plan.choice.chunks; s++)
		p.task.dealing.layers[s % 2] += p.plan.layers_of[s];
	search(&p, &wish);
	assert_true(fabs(1e-9 * (double)wish.now_ns - shared_s) < 0.01 * shared_s);
	finish(&p);
}

/* Who shares all layers with a slow worker waits for it: without it, or with less for it, steps are shorter. */
/* As it was planned, of the least that a worker has. */
static void what_meshes_take(void **state)
{
	struct planned p;
	uint64_t bytes = 0, room = 0, fewer = 0, least = UINT64_MAX;
	const struct mesh mesh = mesh_of(1, 2, 1), half = mesh_of(1, 1, 1),
	                  many = mesh_of(33, 1, 1);

	(void)state;
	make(&p, 0, mesh);
	for (size_t i = 0; i < p.basis->n_nodes; i++)
		least = p.basis->nodes[i]->memory_bytes < least ? p.basis->nodes[i]->memory_bytes
		                                                : least;
	assert_true(replan_memory(&p.job, &p.plan.choice.mesh, &bytes, &room));
	assert_int_equal(bytes, p.plan.memory_bytes);
	assert_int_equal(room, least);
	assert_true(replan_memory(&p.job, &half, &fewer, &room));
	assert_true(fewer > bytes);
	assert_false(replan_memory(&p.job, &many, &fewer, &room));
	finish(&p);
}

static void a_slow_worker(void **state)
{
	struct planned p;
	struct wish wish;

	(void)state;
	for (uint32_t slow = 0; slow < 4; slow += 3) {
		make(&p, 0, mesh_of(1, 1, 4));
		p.task.figures[slow].speed_ppm = 100000;
		p.task.figures[(slow + 1) % 4].speed_ppm = 900000;
		search(&p, &wish);
		assert_int_equal(wish.kind, WISH_CHANGE);
		assert_true(wish.why == WISH_WHY_WORKER && wish.who == slow && wish.percent == 10);
		assert_true(3 * wish.next_ns < wish.now_ns);
		assert_true(wish.dealing.mesh.size[MESH_TP] < 4);
		assert_told(&p, &wish);
		finish(&p);
	}
}

/* It was measured, so its plan is the one that was best before. */
static void a_worker_that_is_quick_again(void **state)
{
	struct planned p;
	struct wish wish;

	(void)state;
	make(&p, 0, mesh_of(0, 0, 0));
	struct mesh best = p.plan.choice.mesh;
	finish(&p);
	make(&p, 0, mesh_of(1, 4, 1));
	for (uint32_t i = 0; i < 4; i++)
		p.task.figures[i].speed_ppm = 1000000;
	search(&p, &wish);
	assert_int_equal(wish.kind, WISH_CHANGE);
	assert_true(mesh_equal(&wish.dealing.mesh, &best));
	finish(&p);
}

static void a_slow_link(void **state)
{
	struct planned p;
	struct wish wish;

	(void)state;
	make(&p, 0, mesh_of(4, 1, 1)); /* 10 Gbit/s */
	for (uint32_t i = 0; i < 4; i++)
		p.task.figures[2].bandwidth[i] = (int64_t)((i == 1 ? 100 : 120) * MBIT);
	search(&p, &wish);
	assert_int_equal(wish.kind, WISH_CHANGE);
	assert_true(wish.why == WISH_WHY_LINK && wish.who == 2 && wish.to == 1);
	assert_int_equal(wish.percent, 1);
	assert_int_equal(wish.ns_a_byte, 80);
	assert_told(&p, &wish);
	/* more than planned, as a burst may look, is none */
	for (uint32_t i = 0; i < 4; i++)
		p.task.figures[2].bandwidth[i] = (int64_t)(1000 * GBIT);
	search(&p, &wish);
	assert_int_equal(wish.kind, WISH_STAY);
	finish(&p);
}

/* Of a ring the way into a slow cable alone is seen: who is behind it hands on no more than comes. (The ring was predicted to be fast in another order, and nothing changed.) */
static void a_slow_cable_in_a_ring(void **state)
{
	struct planned p;
	struct wish wish;

	(void)state;
	make(&p, 0, mesh_of(4, 1, 1));
	p.task.figures[0].bandwidth[1] = (int64_t)(100 * MBIT);
	search(&p, &wish);
	assert_int_equal(wish.kind, WISH_CHANGE);
	assert_true(wish.why == WISH_WHY_LINK && wish.who == 0 && wish.to == 1);
	/* seen to send, it does not */
	for (uint32_t i = 0; i < 4; i++)
		p.task.figures[1].bandwidth[i] = (int64_t)(1000 * GBIT);
	search(&p, &wish);
	assert_int_equal(wish.kind, WISH_STAY);
	finish(&p);
}

/* Of replicas that are not whole their workers are spares; a node that the plan does not know is no reason to fail. */
static void who_is_missing_and_who_is_new(void **state)
{
	struct planned p;
	struct wish wish;

	(void)state;
	make(&p, 0, mesh_of(2, 1, 2));
	p.task.count = 3;
	uint32_t lost = p.task.ranks[3];
	assert_true(lost < 4);
	p.task.figures[2].node = 77;
	search(&p, &wish);
	assert_true(wish.kind == WISH_CHANGE || wish.kind == WISH_STAY);
	assert_told(&p, &wish);
	/* no replica is whole */
	struct tr_error error;
	for (uint32_t i = 0; i < 3; i++)
		p.task.ranks[i] = RANKS_NONE;
	assert_int_equal(replan_search(&p.job, &p.task, &wish, &error), TR_EINVAL);
	assert_int_equal(wish.kind, WISH_FAILED);
	finish(&p);
}

/* As many as there may be, of which two have become slow: the others go on without them. */
static void as_many_as_there_may_be(void **state)
{
	struct planned p;
	struct wish wish;

	(void)state;
	case_init(&p.c, "64 nodes", REPLAN_PEERS_MAX, 1);
	p.c.in.batch = 4 * REPLAN_PEERS_MAX;
	make_planned(&p, mesh_of(REPLAN_PEERS_MAX, 1, 1));
	for (uint32_t i = 0; i < p.task.count; i++)
		p.task.figures[i].speed_ppm = i == 7 || i == 50 ? 20000 : 1000000;
	search(&p, &wish);
	assert_int_equal(wish.kind, WISH_CHANGE);
	assert_true(wish.ranks[7] == RANKS_NONE && wish.ranks[50] == RANKS_NONE);
	/* 52 compute five sequences each at most, as 62 do */
	assert_in_range(mesh_workers(&wish.dealing.mesh), 52, REPLAN_PEERS_MAX - 2);
	assert_true(wish.next_ns < wish.now_ns / 5);
	assert_told(&p, &wish);
	finish(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_job_carries),
		cmocka_unit_test(what_no_job_carries),
		cmocka_unit_test(what_workers_compute),
		cmocka_unit_test(a_job_of_many_chunks),
		cmocka_unit_test(as_planned_it_stays),
		cmocka_unit_test(cards_stay_as_planned),
		cmocka_unit_test(cables_stay_as_planned),
		cmocka_unit_test(what_meshes_take),
		cmocka_unit_test(a_slow_worker),
		cmocka_unit_test(a_worker_that_is_quick_again),
		cmocka_unit_test(a_slow_link),
		cmocka_unit_test(a_slow_cable_in_a_ring),
		cmocka_unit_test(who_is_missing_and_who_is_new),
		cmocka_unit_test(as_many_as_there_may_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
