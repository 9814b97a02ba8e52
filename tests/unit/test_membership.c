/* Golden traces of memberd's core: what it appends and sends, in order. SHOW=1 prints them instead of comparing. */
#include "tests/unit/membership_left.h"

static void test_submit_to_view_1(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	expect(&w,
	    "append node_seen n1\n"
	    "send c1 welcome n1\n"
	    "append node_seen n2\n"
	    "send c2 welcome n2\n"
	    "append node_seen n3\n"
	    "send c3 welcome n3\n");
	submit(&w, 1, "a", native_spec(3));
	expect(&w,
	    "append job_submitted job 1\n"
	    "reply r1 TR_OK job 1\n"
	    "append job_planned job 1 group 4: p5@n1 p6@n2 p7@n3\n"
	    "send c1 start_worker p5 rank 0/3 local 0/1 node 0/3\n"
	    "send c2 start_worker p6 rank 1/3 local 0/1 node 1/3\n"
	    "send c3 start_worker p7 rank 2/3 local 0/1 node 2/3\n");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
	ready(&w, 1, 4, 5, 0);
	ready(&w, 2, 4, 6, 0);
	expect(&w, "");
	ready(&w, 3, 4, 7, 0);
	expect(&w,
	    "append view_proposed 17\n"
	    "send c1 view_propose 1 to p5,p6,p7\n"
	    "send c2 view_propose 1 to p5,p6,p7\n"
	    "send c3 view_propose 1 to p5,p6,p7\n");
	report(&w, 1, 4, 5, 1, 0, 0, 0, 0, false, 0, 0);
	report(&w, 2, 4, 6, 1, 0, 0, 0, 0, false, 0, 0);
	expect(&w, "");
	report(&w, 3, 4, 7, 1, 0, 0, 0, 0, false, 0, 0);
	expect(&w,
	    "append view view 1 hub p5 [p5 p6 p7] round 1 start attempt 1 of p5,p6,p7\n"
	    "send c1 view_install 1\n"
	    "send c2 view_install 1\n"
	    "send c3 view_install 1\n");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	world_finish(&w);
}

static void test_kill_that_can_be_finished(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer");
	expect(&w,
	    "append node_gone n2: its connection closed: reset by peer\n"
	    "append peer_moved p6 lost: node node-2 was lost: its connection closed: reset by "
	    "peer\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	report(&w, 1, 4, 5, 2, 1, 3, 4, 1, true, 0xff, 0x0f);
	expect(&w, "");
	report(&w, 3, 4, 7, 2, 1, 3, 4, 1, false, 0xf0, 0xf0);
	expect(&w,
	    "append view view 2 hub p5 [p5 p7] round 4 finish attempt 1 of p5,p6,p7\n"
	    "send c1 view_install 2\n"
	    "send c3 view_install 2\n");
	world_finish(&w);
}

static unsigned writes, waiting;

/* As the store writes them: what may wait goes with the next that may not. */
static void count_writes(struct world *w, const struct membership_action *a)
{
	(void)w;
	if (a->kind != MEMBERSHIP_DO_APPEND)
		return;
	waiting = a->may_wait ? waiting + 1 : 0;
	writes += !a->may_wait;
}

/* The records of a death are written with the view that follows it. */
static void test_kill_is_one_write(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	writes = waiting = 0;
	w.on_action = count_writes;
	world_closed(&w, 2, "reset by peer");
	assert_int_equal(waiting, 2);
	assert_int_equal(writes, 0);
	report(&w, 1, 4, 5, 2, 1, 3, 4, 1, true, 0xff, 0x0f);
	report(&w, 3, 4, 7, 2, 1, 3, 4, 1, false, 0xf0, 0xf0);
	assert_int_equal(waiting, 0);
	assert_int_equal(writes, 1);
	world_finish(&w);
}

static void test_kill_that_abandons_the_round(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 2, 1, 3, 4, 1, true, 0x0f, 0x0f);
	skip_trace(&w);
	report(&w, 3, 4, 7, 2, 1, 3, 4, 1, true, 0xe0, 0xe0);
	expect(&w,
	    "append view view 2 hub p5 [p5 p7] round 4 start attempt 2 of p5,p7\n"
	    "send c1 view_install 2\n"
	    "send c3 view_install 2\n");
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->rounds->replayed_rounds, 1);
	assert_int_equal(job->view, 2);
	assert_int_equal(job->n_peers, 3);
	assert_string_equal(job->peers[1]->state, "lost");
	assert_string_equal(job->peers[1]->reason,
	    "node node-2 was lost: its connection closed: reset by peer");
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void test_two_deaths_in_one_proposal(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer");
	report(&w, 3, 4, 7, 2, 1, 3, 4, 1, true, 0x0f, 0x0f);
	skip_trace(&w);
	world_closed(&w, 3, "reset by peer");
	expect(&w,
	    "append node_gone n3: its connection closed: reset by peer\n"
	    "append peer_moved p7 lost: node node-3 was lost: its connection closed: reset by "
	    "peer\n"
	    "send c1 view_propose 3 to p5\n");
	/* The report for the proposal that is over does not count. */
	report(&w, 1, 4, 5, 2, 1, 3, 3, 1, false, 0, 0);
	expect(&w, "");
	report(&w, 1, 4, 5, 3, 1, 3, 3, 1, false, 0, 0);
	expect(&w,
	    "append view view 3 hub p5 [p5] round 4 start attempt 3 of p5\n"
	    "send c1 view_install 3\n");
	world_finish(&w);
}

static void test_join(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 2, 1, 3, 3, 1, false, 0, 0);
	report(&w, 3, 4, 7, 2, 1, 3, 3, 1, false, 0, 0);
	skip_trace(&w);
	hello(&w, 4, 0, 104, 1);
	expect(&w,
	    "append node_seen n8\n"
	    "send c4 welcome n8\n"
	    "append job_planned job 1 group 4: p9@n8\n"
	    "send c4 start_worker p9 rank 1/3 local 0/1 node 1/3\n");
	ready(&w, 4, 4, 9, 0);
	expect(&w,
	    "send c1 view_propose 3 to p5,p7,p9\n"
	    "send c3 view_propose 3 to p5,p7,p9\n"
	    "send c4 view_propose 3 to p5,p7,p9\n");
	report(&w, 4, 4, 9, 3, 0, 0, 0, 0, false, 0, 0);
	report(&w, 1, 4, 5, 3, 2, 4, 5, 2, false, 0x01, 0x01);
	report(&w, 3, 4, 7, 3, 2, 4, 5, 2, false, 0, 0);
	expect(&w,
	    "append view view 3 hub p5 [p5 p7 p9(from 6, counts 7, donor p5)] round 5 finish "
	    "attempt 2 of p5,p7\n"
	    "send c1 view_install 3\n"
	    "send c3 view_install 3\n"
	    "send c4 view_install 3\n");
	/* The donor dies while the joiner still waits for its state: another one gives it. */
	world_closed(&w, 1, "reset by peer");
	skip_trace(&w);
	report(&w, 3, 4, 7, 4, 3, 4, 5, 2, true, 0xff, 0xff);
	report(&w, 4, 4, 9, 4, 3, 0, 0, 0, false, 0, 0);
	expect(&w,
	    "append view view 4 hub p7 [p7 p9(from 6, counts 7, donor p7)] round 5 finish attempt "
	    "2 of p5,p7\n"
	    "send c3 view_install 4\n"
	    "send c4 view_install 4\n");
	world_finish(&w);
}

/* A worker is killed in round 5 and leaves its state, that after round 4: the next one goes to that node, though another has
 * more room, and takes part in round 5 at once. If the others are further, it comes as any joiner does. */
static void restart_where_it_was(uint64_t left_round, const char *view)
{
	struct world w;
	training(&w);
	hello(&w, 4, 0, 104, 8); /* room elsewhere */
	killed_and_left(&w, 2, 6);
	report(&w, 1, 4, 5, 2, 1, 3, 4, 1, false, 0, 0);
	report(&w, 3, 4, 7, 2, 1, 4, 5, 1, false, 0, 0);
	world_tick(&w, 300); /* it died soon after its start: the next one waits a little */
	assert_non_null(strstr(w.trace, "append job_planned job 1 group 4: p9@n2\n"));
	skip_trace(&w);
	ready_with_left(&w, 2, 4, 9, left_round);
	skip_trace(&w);
	report(&w, 2, 4, 9, 3, 0, 0, 0, 0, false, 0, 0);
	report(&w, 1, 4, 5, 3, 2, 4, 5, 2, false, 0x01, 0x01);
	report(&w, 3, 4, 7, 3, 2, 4, 5, 2, false, 0, 0);
	assert_non_null(strstr(w.trace, view));
	world_finish(&w);
}

static void test_restart_from_its_own_memory(void **state)
{
	(void)state;
	restart_where_it_was(4,
	    "append view view 3 hub p5 [p5 p7 p9(from 5, counts 6, donor p5)] round 5 finish "
	    "attempt 2 of p5,p7\n");
	restart_where_it_was(3,
	    "append view view 3 hub p5 [p5 p7 p9(from 6, counts 7, donor p5)] round 5 finish "
	    "attempt 2 of p5,p7\n");
}

/* Nobody follows once the job has ended: the node need not keep the dead worker's memory. */
static void test_what_was_left_goes_with_the_job(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	killed_and_left(&w, 2, 6);
	skip_trace(&w);
	world_step(&w,
	    &(struct membership_event){ .kind = MEMBERSHIP_CANCEL, .request = 9, .job = 1 });
	assert_non_null(strstr(w.trace, "send c2 group_over\n"));
	assert_null(strstr(w.trace, "send c1 group_over\n"));
	/* One that dies while it is stopped. */
	skip_trace(&w);
	killed_and_left(&w, 3, 7);
	assert_non_null(strstr(w.trace, "send c3 group_over\n"));
	assert_null(strstr(w.trace, "send c2 group_over\n"));
	/* What one learned alone, too. */
	skip_trace(&w);
	ended_and_left(&w, 1, 5, true);
	assert_non_null(strstr(w.trace, "send c1 group_over\n"));
	world_finish(&w);
}

/* A worker that was given up says later, if ever, that it wrote down what it learned alone. */
static void test_what_a_lost_one_learned_goes_with_the_job(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	exited(&w, 2, 1, 6, 0, 9, "");
	exited(&w, 3, 1, 7, 0, 9, "");
	skip_trace(&w);
	ended_and_left(&w, 2, 6, true);
	assert_null(strstr(w.trace, "group_over"));
	world_step(&w,
	    &(struct membership_event){ .kind = MEMBERSHIP_CANCEL, .request = 9, .job = 1 });
	assert_non_null(strstr(w.trace, "send c2 group_over\n"));
	assert_null(strstr(w.trace, "send c3 group_over\n"));
	skip_trace(&w);
	ended_and_left(&w, 3, 7, true);
	assert_non_null(strstr(w.trace, "send c3 group_over\n"));
	world_finish(&w);
}

/* memberd dies between the log and the delivery of a view. */
static void test_restart_between_append_and_deliver(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 2, 1, 3, 3, 1, false, 0, 0);
	w.hold = true;
	report(&w, 3, 4, 7, 2, 1, 3, 3, 1, false, 0, 0);
	assert_int_equal(w.queue_count, 1);
	/* The entry is durable, and memberd is gone before it can act on it. */
	w.hold = false;
	w.quiet = true;
	world_apply_one(&w);
	world_restart(&w);
	w.quiet = false;
	skip_trace(&w);
	world_lead(&w);
	expect(&w, "");
	Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *rows[1] = { &here };
	here.job_id = 1;
	here.group = 4;
	here.peer = 5;
	here.view = 1;
	here.ready = true;
	here.committed_round = 3;
	hello_with(&w, 11, 1, 101, 1, rows, 1);
	expect(&w,
	    "send c11 welcome n1\n"
	    "send c11 view_install 2\n"
	    "append node_seen n1\n");
	here.peer = 7;
	hello_with(&w, 13, 3, 103, 1, rows, 1);
	expect(&w,
	    "send c13 welcome n3\n"
	    "send c13 view_install 2\n"
	    "append node_seen n3\n"
	    "append view_proposed 35\n"
	    "send c11 view_propose 19 to p5,p7\n"
	    "send c13 view_propose 19 to p5,p7\n");
	report(&w, 11, 4, 5, 19, 2, 3, 3, 1, false, 0, 0);
	report(&w, 13, 4, 7, 19, 2, 3, 3, 1, false, 0, 0);
	expect(&w,
	    "append view view 19 hub p5 [p5 p7] round 4 start attempt 19 of p5,p7\n"
	    "send c11 view_install 19\n"
	    "send c13 view_install 19\n");
	world_finish(&w);
}

static void test_who_does_not_come_back(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	w.quiet = true;
	world_restart(&w);
	w.quiet = false;
	world_lead(&w);
	Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *rows[1] = { &here };
	here.job_id = 1;
	here.group = 4;
	here.ready = true;
	here.view = 1;
	for (uint64_t n = 1; n <= 2; n++) {
		here.peer = 4 + n;
		hello_with(&w, 10 + n, n, 100 + n, 1, rows, 1);
	}
	skip_trace(&w);
	for (int i = 0; i < 18; i++) {
		world_tick(&w, 250);
		heartbeat(&w, 11);
		heartbeat(&w, 12);
	}
	expect(&w, "");
	world_tick(&w, 250);
	heartbeat(&w, 11);
	heartbeat(&w, 12);
	world_tick(&w, 250);
	expect(&w,
	    "append node_gone n3: did not come back within 5.0 s after memberd started again\n"
	    "append peer_moved p7 lost: node node-3 was lost: did not come back within 5.0 s after "
	    "memberd started again\n"
	    "append view_proposed 34\n"
	    "send c11 view_propose 18 to p5,p6\n"
	    "send c12 view_propose 18 to p5,p6\n");
	world_finish(&w);
}

static void test_same_request_twice(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	skip_trace(&w);
	w.hold = true;
	submit(&w, 1, "same", native_spec(3));
	submit(&w, 2, "same", native_spec(3));
	expect(&w, "append job_submitted job 1\n");
	w.hold = false;
	world_apply(&w);
	assert_string_equal(strtok(w.trace, "\n"), "reply r1 TR_OK job 1");
	assert_string_equal(strtok(NULL, "\n"), "reply r2 TR_OK job 1 existed");
	skip_trace(&w);
	submit(&w, 3, "same", native_spec(3));
	submit(&w, 4, "", native_spec(2));
	expect(&w,
	    "reply r3 TR_OK job 1 existed\n"
	    "append job_submitted job 2\n"
	    "reply r4 TR_OK job 2\n");
	Traind__V1__Job *job = membership_job(w.m, 2, false);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	assert_string_equal(job->reason, "needs 2 free slots on as many nodes, 0 there");
	traind__v1__job__free_unpacked(job, NULL);
	Traind__V1__JobSpec *bad = native_spec(3);
	bad->train->optimizer->batch_tokens = 3;
	submit(&w, 5, "bad", bad);
	assert_int_equal(w.reply.status, TR_EINVAL);
	world_finish(&w);
}

static void test_append_fails(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	w.hold = true;
	submit(&w, 1, "a", native_spec(3));
	assert_int_equal(w.queue_count, 1);
	struct membership_event event = { .kind = MEMBERSHIP_APPEND_FAILED,
		.cookie = w.queue[0].cookie };
	event.reason = "no space left on the disk";
	free(w.queue[0].data);
	w.queue_count = 0;
	skip_trace(&w);
	world_step(&w, &event);
	expect(&w, "reply r1 TR_EIO job 0: no space left on the disk\n");
	w.hold = false;
	submit(&w, 2, "a", native_spec(3));
	assert_int_equal(w.reply.status, TR_OK);
	assert_false(w.reply.existed);
	world_finish(&w);
}

static void test_command_job_done(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	skip_trace(&w);
	submit(&w, 1, "c", command_spec(4));
	expect(&w,
	    "append job_submitted job 1\n"
	    "reply r1 TR_OK job 1\n"
	    "append job_planned job 1 group 0: p4@n1 p5@n1 p6@n2 p7@n3\n"
	    "send c1 start_worker p4 rank 0/4 local 0/2 node 0/3\n"
	    "send c1 start_worker p5 rank 1/4 local 1/2 node 0/3\n"
	    "send c2 start_worker p6 rank 2/4 local 0/1 node 1/3\n"
	    "send c3 start_worker p7 rank 3/4 local 0/1 node 2/3\n");
	uint64_t conns[] = { 1, 1, 2, 3 };
	for (uint64_t i = 0; i < 4; i++)
		started(&w, conns[i], 1, 4 + i);
	expect(&w, "append job_moved job 1 -> 3 exit 0: \n");
	for (uint64_t i = 0; i < 4; i++)
		exited(&w, conns[i], 1, 4 + i, 0, 0, "");
	expect(&w,
	    "append peer_moved p4 finished: \n"
	    "append peer_moved p5 finished: \n"
	    "append peer_moved p6 finished: \n"
	    "append peer_moved p7 finished: \n"
	    "append job_moved job 1 -> 4 exit 0: \n");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_DONE);
	world_finish(&w);
}

static void test_command_job_fails(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "c", command_spec(3));
	for (uint64_t c = 1; c <= 3; c++)
		started(&w, c, 1, 3 + c);
	skip_trace(&w);
	exited(&w, 2, 1, 5, 7, 0, "Traceback\nValueError: no\n");
	expect(&w,
	    "append peer_moved p5 lost fast: exit code 7: Traceback | ValueError: no\n"
	    "append job_moved job 1 -> 5 exit 7: rank 1 on node-2: exit code 7: Traceback | "
	    "ValueError: no\n"
	    "send c1 stop_worker p4: job 1 is failed\n"
	    "send c3 stop_worker p6: job 1 is failed\n");
	exited(&w, 1, 1, 4, 0, 15, "");
	exited(&w, 3, 1, 6, 0, 9, "");
	expect(&w,
	    "append peer_moved p4 lost: killed by signal 15\n"
	    "append peer_moved p6 lost: killed by signal 9\n");
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->exit_code, 7);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* memberd dies when the rank's end is in the log and the job's is not: the job fails with the code of the rank. */
static void test_exit_code_outlives_memberd(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "c", command_spec(3));
	for (uint64_t c = 1; c <= 3; c++)
		started(&w, c, 1, 3 + c);
	w.hold = true;
	exited(&w, 2, 1, 5, 7, 0, "no\n");
	assert_int_equal(w.queue_count, 2);
	world_apply_one(&w);
	w.hold = false;
	w.quiet = true;
	world_restart(&w);
	w.quiet = false;
	skip_trace(&w);
	world_lead(&w);
	expect(&w, "append job_moved job 1 -> 5 exit 7: rank 1 on node-2: exit code 7: no\n");
	world_finish(&w);
}

static void test_cancel(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	struct membership_event event = { .kind = MEMBERSHIP_CANCEL,
		.request = 9,
		.job = 1,
		.reason = "ctrl-c" };
	world_step(&w, &event);
	expect(&w,
	    "append job_moved job 1 -> 6 exit 0: ctrl-c\n"
	    "reply r9 TR_OK job 1\n"
	    "send c1 peer_evicted p5\n"
	    "send c1 stop_worker p5: job 1 is cancelled\n"
	    "send c2 peer_evicted p6\n"
	    "send c2 stop_worker p6: job 1 is cancelled\n"
	    "send c3 peer_evicted p7\n"
	    "send c3 stop_worker p7: job 1 is cancelled\n");
	for (uint64_t c = 1; c <= 3; c++)
		exited(&w, c, 1, 4 + c, 0, 15, "");
	skip_trace(&w);
	event.request = 10;
	world_step(&w, &event);
	event.job = 77;
	world_step(&w, &event);
	expect(&w,
	    "reply r10 TR_OK job 1 existed\n"
	    "reply r10 TR_ENOTFOUND job 77: there is no job 77\n");
	/* Its slots are free again. */
	submit(&w, 11, "next", native_spec(3));
	assert_int_equal(job_state(&w, 2), TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_submit_to_view_1),
		cmocka_unit_test(test_kill_that_can_be_finished),
		cmocka_unit_test(test_kill_is_one_write),
		cmocka_unit_test(test_kill_that_abandons_the_round),
		cmocka_unit_test(test_two_deaths_in_one_proposal),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_restart_from_its_own_memory),
		cmocka_unit_test(test_what_was_left_goes_with_the_job),
		cmocka_unit_test(test_what_a_lost_one_learned_goes_with_the_job),
		cmocka_unit_test(test_restart_between_append_and_deliver),
		cmocka_unit_test(test_who_does_not_come_back),
		cmocka_unit_test(test_same_request_twice),
		cmocka_unit_test(test_append_fails),
		cmocka_unit_test(test_command_job_done),
		cmocka_unit_test(test_command_job_fails),
		cmocka_unit_test(test_exit_code_outlives_memberd),
		cmocka_unit_test(test_cancel),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
