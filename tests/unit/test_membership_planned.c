/* Where workers of a mesh go: where the plan has them, or else replica by replica; and steps that take longer than planned are an event with its reason. */
#include "tests/unit/planned_harness.h"

static void workers_go_where_the_plan_has_them(void **state)
{
	(void)state;
	struct world w;
	const uint64_t nodes[] = { 3, 1, 1, 3 };
	three_nodes_of(&w, 2);
	submit(&w, 1, "a", planned_spec(nodes, 4, 2));
	expect(&w,
	    "append job_submitted job 1\n"
	    "reply r1 TR_OK job 1\n"
	    "append job_planned job 1 group 4: p5@n3 p6@n1 p7@n1 p8@n3\n"
	    "send c3 start_worker p5 rank 0/4 local 0/2 node 0/2\n"
	    "send c1 start_worker p6 rank 1/4 local 0/2 node 1/2\n"
	    "send c1 start_worker p7 rank 2/4 local 1/2 node 1/2\n"
	    "send c3 start_worker p8 rank 3/4 local 1/2 node 0/2\n");
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->spec->mesh->nodes, 2);
	assert_int_equal(job->spec->mesh->workers_per_node, 2);
	assert_int_equal(job->spec->mesh->workers, 4);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* dp 2 x pp 2 on two nodes: ranks 0 and 2 are the stages of the first replica. */
static void a_node_gets_a_whole_replica(void **state)
{
	(void)state;
	struct world w;
	Traind__V1__JobSpec *spec = native_spec(2);
	spec->mesh->workers_per_node = 2;
	spec->mesh->pp = 2;
	three_nodes_of(&w, 2);
	submit(&w, 1, "a", spec);
	expect(&w,
	    "append job_submitted job 1\n"
	    "reply r1 TR_OK job 1\n"
	    "append job_planned job 1 group 4: p5@n1 p6@n2 p7@n1 p8@n2\n"
	    "send c1 start_worker p5 rank 0/4 local 0/2 node 0/2\n"
	    "send c2 start_worker p6 rank 1/4 local 0/2 node 1/2\n"
	    "send c1 start_worker p7 rank 2/4 local 1/2 node 0/2\n"
	    "send c2 start_worker p8 rank 3/4 local 1/2 node 1/2\n");
	world_finish(&w);
}

static void it_waits_for_its_nodes(void **state)
{
	(void)state;
	struct world w;
	const uint64_t nodes[] = { 2, 2 }, strange[] = { 77 };
	three_nodes_of(&w, 1);
	submit(&w, 1, "a", planned_spec(nodes, 2, 1));
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	assert_non_null(
	    strstr(job->reason, "needs a free slot more on node-2, as planned; cancelled"));
	traind__v1__job__free_unpacked(job, NULL);
	hello(&w, 9, 2, 109, 2); /* n2 again, with two slots */
	world_closed(&w, 2, "reset by peer");
	world_tick(&w, 300);
	job = membership_job(w.m, 1, false);
	assert_int_equal(job->n_peers, 2);
	traind__v1__job__free_unpacked(job, NULL);
	submit(&w, 2, "b", planned_spec(strange, 1, 1));
	job = membership_job(w.m, 2, false);
	assert_non_null(strstr(job->reason,
	    "a node that is not known, as planned, which is not there; if it does not come"));
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void what_is_to_be_planned_needs_a_plan(void **state)
{
	(void)state;
	struct world w;
	three_nodes_of(&w, 1);
	Traind__V1__JobSpec *spec = native_spec(1);
	spec->mesh->auto_ = true;
	submit(&w, 1, "a", spec);
	assert_int_equal(w.reply.status, TR_EINVAL);
	assert_non_null(strstr(w.reply.text, "mesh.auto: found true and no plan"));
	const uint64_t node[] = { 1 };
	spec = planned_spec(node, 1, 1);
	spec->plan->step_s = 0;
	submit(&w, 2, "b", spec);
	assert_int_equal(w.reply.status, TR_EINVAL);
	assert_non_null(strstr(w.reply.text, "mesh.auto: found a plan of 1 workers"));
	spec = planned_spec(node, 1, 1);
	spec->plan->step_s = 1e300;
	submit(&w, 3, "c", spec);
	assert_int_equal(w.reply.status, TR_EINVAL);
	spec = planned_spec(node, 1, 1);
	spec->plan->basis = malloc(sizeof(*spec->plan->basis));
	traind__v1__plan_basis__init(spec->plan->basis);
	submit(&w, 4, "d", spec);
	assert_int_equal(w.reply.status, TR_EINVAL);
	assert_non_null(strstr(w.reply.text, "plan.basis: found 0 costs and 0 nodes"));
	world_finish(&w);
}

/* ---- steps ---- */

static void training_as_planned(struct world *w)
{
	const uint64_t nodes[] = { 1, 2 };
	three_nodes_of(w, 1);
	submit(w, 1, "a", planned_spec(nodes, 2, 1));
	for (uint64_t c = 1; c <= 2; c++)
		ready(w, c, 4, 4 + c, 0);
	for (uint64_t c = 1; c <= 2; c++)
		report(w, c, 4, 4 + c, 1, 0, 0, 0, 0, false, 0, 0);
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	skip_trace(w);
}

static void step(struct world *w, uint64_t number, double takes_s)
{
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress progress = TRAIND__V1__PROGRESS__INIT;
	progress.step = number;
	progress.tokens_per_s = 8192 / takes_s;
	body.job_id = 1;
	body.peer = 5;
	body.progress = &progress;
	MESSAGE(w, 1, PEER_REPORT, peer_report, &body);
}

/* Beats in which p5 waits for such a part of the time, and p6. */
static void wait_for_others(struct world *w, double first, double second)
{
	const double parts[] = { first, second };
	for (unsigned i = 0; i < 200; i++) {
		w->now += 100;
		for (uint64_t c = 1; c <= 3; c++) {
			Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
			Traind__Peer__PeerProgress row = TRAIND__PEER__PEER_PROGRESS__INIT,
			                           *rows[] = { &row };
			row.group = 4;
			row.peer = 4 + c;
			row.progress = i;
			row.waiting = c <= 2 && i % 10 < 10 * parts[c - 1];
			beat.peers = rows;
			beat.n_peers = c <= 2;
			MESSAGE(w, c, HEARTBEAT, heartbeat, &beat);
		}
	}
}

/* The newest event; NULL: none of steps. */
static const char *step_event(const struct world *w, char text[TR_ERROR_TEXT_MAX])
{
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	text[0] = '\0';
	for (size_t i = 0; i < job->n_events; i++)
		if (strncmp(job->events[i]->text, "a step takes", 12) == 0)
			(void)snprintf(text, TR_ERROR_TEXT_MAX, "%s", job->events[i]->text);
	traind__v1__job__free_unpacked(job, NULL);
	return text[0] != '\0' ? text : NULL;
}

static void run_steps(struct world *w, uint64_t from, uint64_t to, double takes_s)
{
	for (uint64_t number = from; number < to; number++)
		step(w, number, takes_s);
}

static void steps_as_planned_are_no_event(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	training_as_planned(&w);
	run_steps(&w, 1, 200, 0.11);
	assert_null(step_event(&w, text));
	run_steps(&w, 200, 300, 0.07);
	assert_string_equal(step_event(&w, text),
	    "a step takes 70 ms, 30 % less than the 100 ms that were planned");
	world_finish(&w);
}

static void who_is_slow_is_named(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	training_as_planned(&w);
	wait_for_others(&w, 0.6, 0);
	run_steps(&w, 1, 100, 0.2);
	assert_string_equal(step_event(&w, text),
	    "a step takes 200 ms, 100 % more than the 100 ms that were planned: the others wait "
	    "for "
	    "peer 6 (rank 1) on node-2");
	world_finish(&w);
}

static void answer_measuring(struct world *w, uint64_t conn)
{
	Traind__Peer__LinkMeasured said = TRAIND__PEER__LINK_MEASURED__INIT;
	assert_int_equal(w->last[conn]->body_case, TRAIND__PEER__TO_NODE__BODY_MEASURE_LINK);
	said.measurement = w->last[conn]->measure_link->measurement;
	said.round_trip_s = 0.001;
	said.there_bytes_per_s = 1.25e6;
	said.back_bytes_per_s = 2.5e6;
	MESSAGE(w, conn, LINK_MEASURED, link_measured, &said);
}

static void the_slowest_link_is_named(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	training_as_planned(&w);
	Traind__V1__MeasureLinksRequest wish = TRAIND__V1__MEASURE_LINKS_REQUEST__INIT;
	struct membership_event event = { .kind = MEMBERSHIP_MEASURE,
		.request = 9,
		.measure = &wish };
	world_step(&w, &event);
	for (uint64_t c = 1; c <= 3; c++)
		answer_measuring(&w, c);
	while (w.reply.request != 9) /* turns of three: who dials is the lower one */
		for (uint64_t c = 1; c <= 2; c++)
			answer_measuring(&w, c);
	wait_for_others(&w, 0.5, 0.5);
	run_steps(&w, 1, 100, 0.15);
	assert_non_null(step_event(&w, text));
	assert_non_null(strstr(text,
	    "50 % more than the 100 ms that were planned: workers wait for each other's"));
	assert_non_null(strstr(text,
	    "planned were 20 %; the slowest link is node-1 to node-2, 10 Mbit/s when measured"));
	world_finish(&w);
}

static void slow_layers_are_said(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	training_as_planned(&w);
	wait_for_others(&w, 0.1, 0.1);
	run_steps(&w, 1, 100, 0.15);
	assert_non_null(strstr(step_event(&w, text), "workers compute longer than was measured"));
	world_finish(&w);
}

/* ---- nodes that are gone ---- */

static bool has_reason(const struct world *w, uint64_t id, const char *text)
{
	Traind__V1__Job *job = membership_job(w->m, id, false);
	bool has = strstr(job->reason, text) != NULL;
	traind__v1__job__free_unpacked(job, NULL);
	return has;
}

static unsigned events_with(const struct world *w, uint64_t id, const char *text)
{
	Traind__V1__Job *job = membership_job(w->m, id, true);
	unsigned count = 0;
	for (size_t i = 0; i < job->n_events; i++)
		count += strstr(job->events[i]->text, text) != NULL;
	traind__v1__job__free_unpacked(job, NULL);
	return count;
}

/* A job on n1 and n2 trained; both are lost, and n3 if `third`; n1 comes again, as connection 11, with so many slots. */
static void one_comes_back(struct world *w, Traind__V1__JobSpec *spec, bool third, uint32_t slots)
{
	three_nodes_of(w, 1);
	submit(w, 1, "a", spec);
	for (uint64_t c = 1; c <= 2; c++)
		ready(w, c, 4, 4 + c, 0);
	for (uint64_t c = 1; c <= 2; c++)
		report(w, c, 4, 4 + c, 1, 0, 0, 0, 0, false, 0, 0);
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	for (uint64_t c = 1; c <= (third ? 3 : 2); c++)
		world_closed(w, c, "reset by peer");
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	if (!third)
		exited(w, 3, 1, 7, 0, 15, ""); /* a replacement that came too late */
	hello(w, 11, 1, 111, slots);
	skip_trace(w);
}

static void all_lost_but_one(struct world *w, uint32_t tp, const char *too_few, bool third,
    uint32_t slots)
{
	const uint64_t nodes[] = { 1, 2 };
	Traind__V1__JobSpec *spec = planned_spec(nodes, 2, tp);
	struct tr_error error = { 0 };
	assert_int_equal(job_option_set(spec, "mesh.too_few", too_few, &error), TR_OK);
	one_comes_back(w, spec, third, slots);
}

static const uint64_t n1[] = { 11 }, n1_n3[] = { 11, 3 }, n1_n2_n3[] = { 11, 12, 3 };

/* Not at once: a machine that starts again is there soon. */
static void a_job_whose_node_is_gone_goes_elsewhere(void **state)
{
	struct world w;
	(void)state;
	all_lost_but_one(&w, 2, "wait", false, 1);
	pass(&w, 9000, n1_n3, 2);
	assert_true(has_reason(&w, 1,
	    "node-2, as planned, which is not there; if it does not come within 10 s it is placed "
	    "on other nodes"));
	skip_trace(&w);
	pass(&w, 1500, n1_n3, 2);
	expect(&w,
	    "append job_note\n"
	    "append job_planned job 1 group 8: p9@n1 p10@n3\n"
	    "send c11 start_worker p9 rank 0/2 local 0/1 node 0/2\n"
	    "send c3 start_worker p10 rank 1/2 local 0/1 node 1/2\n");
	assert_int_equal(events_with(&w, 1,
	                     "node-2, where its plan has workers, is not there: 2 of 2 workers "
	                     "start, on 2 nodes"),
	    1);
	world_finish(&w);
}

/* Node 2 went while the job trained on; the last worker dies 7 s later, on a node that stays. */
static void a_node_is_waited_for_since_it_went(void **state)
{
	struct world w;
	const uint64_t nodes[] = { 1, 2 }, first[] = { 1 };
	(void)state;
	three_nodes_of(&w, 1);
	world_closed(&w, 3, "reset by peer");
	submit(&w, 1, "a", planned_spec(nodes, 2, 1));
	for (uint64_t c = 1; c <= 2; c++)
		ready(&w, c, 4, 4 + c, 0);
	for (uint64_t c = 1; c <= 2; c++)
		report(&w, c, 4, 4 + c, 1, 0, 0, 0, 0, false, 0, 0);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 2, 1, 0, 1, 1, false, 0, 0);
	pass(&w, 7000, first, 1);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	exited(&w, 1, 1, 5, 0, 9, "");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	pass(&w, 2500, first, 1);
	assert_true(has_reason(&w, 1, "node-2, as planned, which is not there"));
	pass(&w, 1000, first, 1);
	assert_int_equal(events_with(&w, 1, "is not there: 1 of 2 workers start, on 1 node"), 1);
	world_finish(&w);
}

/* Longer away than anybody waits for it. */
static void a_node_that_went_long_ago_is_not_waited_for(void **state)
{
	struct world w;
	const uint64_t nodes[] = { 1, 2 }, others[] = { 1, 3 };
	(void)state;
	three_nodes_of(&w, 1);
	world_closed(&w, 2, "reset by peer");
	pass(&w, 11000, others, 2);
	submit(&w, 1, "a", planned_spec(nodes, 2, 1));
	assert_int_equal(events_with(&w, 1, "is not there: 2 of 2 workers start, on 2 nodes"), 1);
	world_finish(&w);
}

/* Since when a node is gone that was when memberd began is not known then. */
static void a_memberd_that_starts_again_waits_for_its_nodes(void **state)
{
	struct world w;
	const uint64_t nodes[] = { 1, 2 }, others[] = { 11, 13 };
	(void)state;
	three_nodes_of(&w, 1);
	world_closed(&w, 2, "reset by peer");
	world_restart(&w);
	world_lead(&w);
	world_forget(&w);
	hello(&w, 11, 1, 101, 1);
	hello(&w, 13, 3, 103, 1);
	pass(&w, 6000, others, 2);
	submit(&w, 1, "a", planned_spec(nodes, 2, 1));
	pass(&w, 3500, others, 2);
	assert_true(has_reason(&w, 1, "node-2, as planned, which is not there"));
	pass(&w, 1000, others, 2);
	assert_int_equal(events_with(&w, 1, "is not there: 2 of 2 workers start, on 2 nodes"), 1);
	world_finish(&w);
}

static void a_node_that_comes_back_has_its_workers(void **state)
{
	struct world w;
	(void)state;
	all_lost_but_one(&w, 2, "smaller", false, 1);
	pass(&w, 9000, n1_n3, 2);
	skip_trace(&w);
	hello(&w, 12, 2, 112, 1);
	expect(&w,
	    "append node_seen n2\n"
	    "send c12 welcome n2\n"
	    "append job_planned job 1 group 8: p9@n1 p10@n2\n"
	    "send c11 start_worker p9 rank 0/2 local 0/1 node 0/2\n"
	    "send c12 start_worker p10 rank 1/2 local 0/1 node 1/2\n");
	assert_int_equal(events_with(&w, 1, "is not there"), 0);
	pass(&w, 20000, n1_n2_n3, 3);
	assert_int_equal(events_with(&w, 1, "is not there"), 0);
	world_finish(&w);
}

/* Its worker makes a smaller mesh of itself; a node that comes later has the other one. */
static void with_too_few_slots_fewer_workers_start(void **state)
{
	struct world w;
	(void)state;
	all_lost_but_one(&w, 2, "smaller", true, 1);
	pass(&w, 11000, n1, 1);
	assert_int_equal(events_with(&w, 1, "is not there: 1 of 2 workers start, on 1 node"), 1);
	assert_int_equal(w.last[11]->body_case, TRAIND__PEER__TO_NODE__BODY_START_WORKER);
	assert_int_equal(w.last[11]->start_worker->world_size, 2);
	ready(&w, 11, 8, 9, 0);
	report(&w, 11, 8, 9, 1, 0, 0, 0, 0, false, 0, 0);
	assert_true(has_reason(&w, 1, "there is no free slot for a replacement"));
	skip_trace(&w);
	hello(&w, 14, 0, 114, 1);
	expect(&w,
	    "append node_seen n10\n"
	    "send c14 welcome n10\n"
	    "append job_planned job 1 group 8: p11@n10\n"
	    "send c14 start_worker p11 rank 1/2 local 0/1 node 0/1\n");
	world_finish(&w);
}

/* Two workers on one node, where the plan had one on each: one that dies is replaced there. */
static void a_replacement_comes_where_there_are_more_than_planned(void **state)
{
	struct world w;
	(void)state;
	all_lost_but_one(&w, 2, "wait", true, 2);
	pass(&w, 11000, n1, 1);
	assert_int_equal(events_with(&w, 1, "is not there: 2 of 2 workers start, on 1 node"), 1);
	for (uint64_t peer = 9; peer <= 10; peer++)
		ready(&w, 11, 8, peer, 0);
	for (uint64_t peer = 9; peer <= 10; peer++)
		report(&w, 11, 8, peer, 1, 0, 0, 0, 0, false, 0, 0);
	skip_trace(&w);
	exited(&w, 11, 1, 10, 0, 9, "");
	pass(&w, 2000, n1, 1);
	assert_non_null(strstr(w.trace, "send c11 start_worker p11 rank 1/2 local 1/2"));
	world_finish(&w);
}

/* mesh.too_few: wait. Jobs behind it need not: nobody knows whether it ever goes on. */
static void a_job_that_cannot_go_elsewhere_lets_others_by(void **state)
{
	struct world w;
	const uint64_t node[] = { 2 };
	(void)state;
	all_lost_but_one(&w, 2, "wait", true, 1);
	submit(&w, 2, "b", native_spec(1));
	pass(&w, 9000, n1, 1);
	assert_true(has_reason(&w, 2, "waits behind job 1"));
	pass(&w, 2000, n1, 1);
	assert_int_equal(job_state(&w, 2), TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
	assert_true(has_reason(&w, 1,
	    "node-2, where its plan has workers, is not there, and it needs 2 free slots on 1 "
	    "other node or more, 0 on 0 there; cancelled and launched again it is planned anew"));
	/* A plan whose node is there and has no room keeps its turn. */
	hello(&w, 12, 2, 112, 1);
	submit(&w, 3, "c", planned_spec(node, 1, 1));
	assert_int_equal(job_state(&w, 3), TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	assert_true(has_reason(&w, 3, "waits behind job 1"));
	assert_true(has_reason(&w, 1, "needs a free slot more on node-1, as planned; cancelled"));
	world_finish(&w);
}

static void as_many_nodes_as_it_asks_for(void **state)
{
	struct world w;
	const uint64_t nodes[] = { 1, 77 };
	(void)state;
	three_nodes_of(&w, 4);
	Traind__V1__JobSpec *spec = planned_spec(nodes, 2, 1);
	spec->mesh->min_nodes = 2;
	world_closed(&w, 2, "reset by peer");
	submit(&w, 1, "a", spec);
	const uint64_t conns[] = { 1, 3 };
	pass(&w, 11000, conns, 2);
	assert_int_equal(events_with(&w, 1, "is not there: 2 of 2 workers start, on 2 nodes"), 1);
	assert_int_equal(events_with(&w, 1, "starts on node-3"), 1);
	world_finish(&w);
}

/* ---- without a plan ---- */

/* As it would have gone on if one of its workers had been lost alone. */
static void who_is_there_goes_on_after_a_while(void **state)
{
	struct world w;
	(void)state;
	one_comes_back(&w, native_spec(2), true, 1);
	assert_true(has_reason(&w, 1,
	    "needs 2 free slots on as many nodes, 1 there; if others do not come within 10 s it "
	    "goes on with these"));
	pass(&w, 9000, n1, 1);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	pass(&w, 1500, n1, 1);
	assert_int_equal(events_with(&w, 1, "1 of 2 nodes are there: 1 of 2 workers start"), 1);
	assert_int_equal(w.last[11]->body_case, TRAIND__PEER__TO_NODE__BODY_START_WORKER);
	assert_int_equal(w.last[11]->start_worker->world_size, 2);
	ready(&w, 11, 8, 9, 0);
	report(&w, 11, 8, 9, 1, 0, 0, 0, 0, false, 0, 0);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	skip_trace(&w);
	hello(&w, 12, 2, 112, 1);
	expect(&w,
	    "append node_seen n2\n"
	    "send c12 welcome n2\n"
	    "append job_planned job 1 group 8: p10@n2\n"
	    "send c12 start_worker p10 rank 1/2 local 0/1 node 0/1\n");
	world_finish(&w);
}

static void who_comes_in_time_is_waited_for(void **state)
{
	struct world w;
	(void)state;
	one_comes_back(&w, native_spec(2), true, 1);
	pass(&w, 9000, n1, 1);
	hello(&w, 12, 2, 112, 1);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
	pass(&w, 20000, (const uint64_t[]){ 11, 12 }, 2);
	assert_int_equal(events_with(&w, 1, "nodes are there"), 0);
	world_finish(&w);
}

static void fewer_than_it_asks_for_do_not_go_on(void **state)
{
	struct world w;
	(void)state;
	Traind__V1__JobSpec *spec = native_spec(2);
	spec->mesh->min_nodes = 2;
	one_comes_back(&w, spec, true, 1);
	pass(&w, 30000, n1, 1);
	assert_true(has_reason(&w, 1, "needs 2 free slots on as many nodes, 1 there"));
	assert_false(has_reason(&w, 1, "goes on with these"));
	world_finish(&w);
}

static void who_has_not_begun_waits_for_all(void **state)
{
	struct world w;
	const uint64_t all[] = { 1, 2, 3 };
	(void)state;
	three_nodes_of(&w, 1);
	submit(&w, 1, "a", native_spec(4));
	pass(&w, 30000, all, 3);
	assert_true(has_reason(&w, 1, "needs 4 free slots on as many nodes, 3 there"));
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_go_where_the_plan_has_them),
		cmocka_unit_test(a_node_gets_a_whole_replica),
		cmocka_unit_test(it_waits_for_its_nodes),
		cmocka_unit_test(what_is_to_be_planned_needs_a_plan),
		cmocka_unit_test(steps_as_planned_are_no_event),
		cmocka_unit_test(who_is_slow_is_named),
		cmocka_unit_test(the_slowest_link_is_named),
		cmocka_unit_test(slow_layers_are_said),
		cmocka_unit_test(a_job_whose_node_is_gone_goes_elsewhere),
		cmocka_unit_test(a_node_is_waited_for_since_it_went),
		cmocka_unit_test(a_node_that_went_long_ago_is_not_waited_for),
		cmocka_unit_test(a_memberd_that_starts_again_waits_for_its_nodes),
		cmocka_unit_test(a_node_that_comes_back_has_its_workers),
		cmocka_unit_test(with_too_few_slots_fewer_workers_start),
		cmocka_unit_test(a_replacement_comes_where_there_are_more_than_planned),
		cmocka_unit_test(a_job_that_cannot_go_elsewhere_lets_others_by),
		cmocka_unit_test(as_many_nodes_as_it_asks_for),
		cmocka_unit_test(who_is_there_goes_on_after_a_while),
		cmocka_unit_test(who_comes_in_time_is_waited_for),
		cmocka_unit_test(fewer_than_it_asks_for_do_not_go_on),
		cmocka_unit_test(who_has_not_begun_waits_for_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
