/* mesh.grow: workers of a planned job on nodes that come while it runs. */
#include "tests/unit/planned_harness.h"

/* What a job of one node is planned anew with; costs are not looked at here. */
static Traind__V1__PlanBasis *small_basis(uint64_t node, uint64_t memory)
{
	Traind__V1__PlanBasis *basis = malloc(sizeof(*basis));
	traind__v1__plan_basis__init(basis);
	basis->nodes = malloc(sizeof(Traind__V1__PlanNode *));
	basis->nodes[0] = malloc(sizeof(Traind__V1__PlanNode));
	traind__v1__plan_node__init(basis->nodes[0]);
	basis->nodes[0]->id = node;
	basis->nodes[0]->memory_bytes = memory;
	basis->nodes[0]->speed = 1;
	basis->latency_s = malloc(sizeof(double));
	basis->bandwidth_bytes_per_s = malloc(sizeof(double));
	basis->latency_s[0] = 1e-5;
	basis->bandwidth_bytes_per_s[0] = 1e9;
	basis->n_nodes = basis->n_latency_s = basis->n_bandwidth_bytes_per_s = 1;
	return basis;
}

static void commit(struct world *w, uint64_t conn, uint64_t group, uint64_t peer, uint64_t round)
{
	Traind__Peer__RoundCommits body = TRAIND__PEER__ROUND_COMMITS__INIT;
	Traind__Peer__RoundCommit row = TRAIND__PEER__ROUND_COMMIT__INIT, *rows[] = { &row };
	row.round = round;
	row.view = row.attempt = 1;
	row.samples = 12;
	row.contributors = &peer;
	row.n_contributors = 1;
	body.group = group;
	body.peer = peer;
	body.rounds = rows;
	body.n_rounds = 1;
	MESSAGE(w, conn, ROUND_COMMITS, round_commits, &body);
}

static Traind__V1__JobSpec *growing_spec(size_t workers, uint64_t memory)
{
	const uint64_t nodes[] = { 1, 1 };
	Traind__V1__JobSpec *spec = planned_spec(nodes, workers, 1);
	spec->plan->basis = small_basis(1, memory);
	spec->mesh->grow = true;
	return spec;
}

/* Job 1 on n1 has a view, with as many workers as the plan has; n2 and n3 were there, with slots, when it was placed. */
static void begins_on_n1(struct world *w, Traind__V1__JobSpec *spec)
{
	size_t workers = spec->plan->n_nodes;
	three_nodes_of(w, 2);
	submit(w, 1, "a", spec);
	if (w->reply.status != TR_OK)
		fail_msg("%s", w->reply.text);
	for (uint64_t peer = 5; peer < 5 + workers; peer++)
		ready(w, 1, 4, peer, 0);
	for (uint64_t peer = 5; peer < 5 + workers; peer++)
		report(w, 1, 4, peer, 1, 0, 0, 0, 0, false, 0, 0);
	world_tick(w, 10); /* who comes now comes later */
	skip_trace(w);
}

static void trains_on_n1(struct world *w, Traind__V1__JobSpec *spec)
{
	begins_on_n1(w, spec);
	commit(w, 1, 4, 5, 1);
	skip_trace(w);
}

static const uint64_t all_four[] = { 1, 2, 3, 14 };

static bool placed(const struct world *w)
{
	return strstr(w->trace, "job_planned") != NULL;
}

/* Nodes that the plan has nobody on stay free; of who comes as many are taken as the plan has on one node, each with a rank and a local rank of its own. */
static void it_grows_onto_who_comes(void **state)
{
	(void)state;
	struct world w;
	trains_on_n1(&w, growing_spec(2, 1 << 20));
	pass(&w, 2000, all_four, 3);
	assert_false(placed(&w));
	hello(&w, 14, 0, 114, 3); /* n7 */
	pass(&w, 500, all_four, 4);
	assert_non_null(strstr(w.trace, "send c14 start_worker p8 rank 2/3 local 0/1"));
	assert_non_null(strstr(w.trace, "send c14 start_worker p9 rank 3/4 local 1/2"));
	assert_null(strstr(w.trace, "p10"));
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_string_equal(job->events[job->n_events - 1]->text,
	    "peer 9 (rank 3) starts on node-4, as that node has come");
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* Where its workers die the next one comes later, and after three none; to the job that is nothing. */
static void a_node_where_they_die_is_left_alone(void **state)
{
	(void)state;
	struct world w;
	trains_on_n1(&w, growing_spec(2, 1 << 20));
	hello(&w, 14, 0, 114, 1); /* n7 */
	pass(&w, 500, all_four, 4);
	for (uint64_t peer = 8; peer < 11; peer++) {
		char start[64];
		(void)snprintf(start, sizeof(start), "send c14 start_worker p%llu rank 2/3",
		    (unsigned long long)peer);
		assert_non_null(strstr(w.trace, start));
		skip_trace(&w);
		exited(&w, 14, 1, peer, 1, peer == 9 ? 9 : 0, "no such file");
		pass(&w, 9000, all_four, 4);
		assert_false(placed(&w));
		pass(&w, 2000, all_four, 4);
	}
	assert_false(placed(&w));
	pass(&w, 60000, all_four, 4);
	assert_false(placed(&w));
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	traind__v1__job__free_unpacked(job, NULL);
	exited(&w, 1, 1, 6, 0, 9, ""); /* who was asked for is followed at once */
	pass(&w, 500, all_four, 4);
	assert_non_null(strstr(w.trace, "rank 1/2"));
	world_finish(&w);
}

/* Before its first round nobody knows whether it gets on. */
static void a_job_that_has_not_trained_does_not_grow(void **state)
{
	(void)state;
	struct world w;
	begins_on_n1(&w, growing_spec(1, 1 << 20));
	hello(&w, 14, 0, 114, 3);
	pass(&w, 2000, all_four, 4);
	assert_false(placed(&w));
	commit(&w, 1, 4, 5, 1);
	pass(&w, 500, all_four, 4);
	assert_true(placed(&w));
	world_finish(&w);
}

static void without_it_a_job_stays_as_it_is(void **state)
{
	(void)state;
	struct world w;
	Traind__V1__JobSpec *spec = growing_spec(2, 1 << 20);
	spec->mesh->grow = false;
	trains_on_n1(&w, spec);
	hello(&w, 14, 0, 114, 3);
	pass(&w, 2000, all_four, 4);
	assert_false(placed(&w));
	world_finish(&w);
}

/* A node that was there, away when the job was placed or not, and comes back later is one that comes. */
static void who_comes_back_has_come(void **state)
{
	(void)state;
	struct world w;
	trains_on_n1(&w, growing_spec(1, 1 << 20));
	const uint64_t others[] = { 1, 2 }, back[] = { 1, 2, 13 };
	world_closed(&w, 3, "reset by peer");
	pass(&w, 2000, others, 2);
	assert_false(placed(&w));
	hello(&w, 13, 3, 113, 1);
	pass(&w, 500, back, 3);
	assert_non_null(strstr(w.trace, "send c13 start_worker p6 rank 1/2"));
	world_finish(&w);
}

static void hello_of_memory(struct world *w, uint64_t conn, uint32_t slots, uint64_t memory)
{
	Traind__Peer__NodeHello hello = TRAIND__PEER__NODE_HELLO__INIT;
	char name[] = "small", address[] = "10.0.0.9:7000";
	hello.incarnation = 100 + conn;
	hello.name = name;
	hello.address = address;
	hello.pid = 1;
	hello.slots = slots;
	hello.memory_bytes = memory;
	MESSAGE(w, conn, HELLO, hello, &hello);
}

/* A plan on more workers counts on the least of the nodes that it knows. */
static void who_has_less_memory_is_not_taken(void **state)
{
	(void)state;
	for (unsigned enough = 0; enough < 2; enough++) {
		struct world w;
		trains_on_n1(&w, growing_spec(1, 1 << 20));
		hello_of_memory(&w, 14, 2, (2u << 20) - 1 + enough);
		pass(&w, 2000, all_four, 4);
		assert_true(placed(&w) == (enough != 0));
		world_finish(&w);
	}
}

static void who_waits_for_slots_goes_first(void **state)
{
	(void)state;
	struct world w;
	trains_on_n1(&w, growing_spec(1, 1 << 20));
	Traind__V1__JobSpec *spec = native_spec(1);
	spec->mesh->workers_per_node = 4;
	submit(&w, 2, "b", spec);
	hello(&w, 14, 0, 114, 3);
	pass(&w, 1000, all_four, 4);
	assert_null(strstr(w.trace, "job_planned job 1"));
	struct membership_event cancel = { .kind = MEMBERSHIP_CANCEL, .request = 9, .job = 2 };
	world_step(&w, &cancel);
	pass(&w, 1000, all_four, 4);
	assert_non_null(strstr(w.trace, "append job_planned job 1 group 4: p"));
	world_finish(&w);
}

/* Of one slot that comes only one of two jobs has a worker. */
static void two_jobs_do_not_take_the_same_slot(void **state)
{
	(void)state;
	struct world w;
	trains_on_n1(&w, growing_spec(1, 1 << 20));
	submit(&w, 2, "b", growing_spec(1, 1 << 20)); /* p7 of group 6, on n1 */
	ready(&w, 1, 6, 7, 0);
	report(&w, 1, 6, 7, 1, 0, 0, 0, 0, false, 0, 0);
	commit(&w, 1, 6, 7, 1);
	skip_trace(&w);
	hello(&w, 14, 0, 114, 1);
	pass(&w, 2000, all_four, 4);
	const char *first = strstr(w.trace, "send c14 start_worker");
	assert_non_null(first);
	assert_null(strstr(first + 1, "send c14 start_worker"));
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_grows_onto_who_comes),
		cmocka_unit_test(a_node_where_they_die_is_left_alone),
		cmocka_unit_test(a_job_that_has_not_trained_does_not_grow),
		cmocka_unit_test(without_it_a_job_stays_as_it_is),
		cmocka_unit_test(who_comes_back_has_come),
		cmocka_unit_test(who_has_less_memory_is_not_taken),
		cmocka_unit_test(who_waits_for_slots_goes_first),
		cmocka_unit_test(two_jobs_do_not_take_the_same_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
