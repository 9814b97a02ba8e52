/* Who is lost and why: silence, standing still, broken links. */
#include "tests/unit/membership_beats.h"

static void node_is(struct world *w, size_t index, const char *state, const char *reason)
{
	Traind__V1__ListNodesResponse *nodes = membership_nodes(w->m, w->now);
	assert_true(index < nodes->n_nodes);
	assert_string_equal(nodes->nodes[index]->state, state);
	assert_string_equal(nodes->nodes[index]->reason, reason);
	traind__v1__list_nodes_response__free_unpacked(nodes, NULL);
}

static void test_silence(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	for (int i = 1; i <= 7; i++) {
		world_tick(&w, 250);
		heartbeat(&w, 1);
		heartbeat(&w, 3);
	}
	node_is(&w, 1, "suspected", "silent for 1.8 s");
	expect(&w, "");
	heartbeat(&w, 2);
	world_tick(&w, 250);
	node_is(&w, 1, "alive", "");
	for (int i = 1; i <= 8; i++) {
		heartbeat(&w, 1);
		heartbeat(&w, 3);
		world_tick(&w, 250);
	}
	node_is(&w, 1, "lost", "silent for 2.0 s");
	expect(&w,
	    "close c2: silent for 2.0 s\n"
	    "append node_gone n2: silent for 2.0 s\n"
	    "append peer_moved p6 lost: node node-2 was lost: silent for 2.0 s\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	world_finish(&w);
}

/* When memberd itself was stopped, nobody else is to blame. */
static void test_own_pause(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_tick(&w, 250);
	world_tick(&w, 60000);
	node_is(&w, 0, "alive", "");
	for (uint64_t c = 1; c <= 3; c++)
		heartbeat(&w, c);
	world_tick(&w, 250);
	expect(&w, "");
	world_finish(&w);
}

/* A full disk holds up what memberd decides. Who speaks all the time is not silent for that. */
static void test_full_disk_silences_nobody(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer"); /* something to write */
	expect(&w,
	    "append node_gone n2: its connection closed: reset by peer\n"
	    "append peer_moved p6 lost: node node-2 was lost: its connection closed: reset by "
	    "peer\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	w.hold = true;
	w.quiet = true;
	for (int i = 0; i < 100; i++) {
		for (; w.queue_count > 0 && i < 80;) {
			struct membership_event event = { .kind = MEMBERSHIP_APPEND_FAILED,
				.cookie = w.queue[0].cookie,
				.reason = "no space left on the disk" };
			free(w.queue[0].data);
			memmove(&w.queue[0], &w.queue[1], --w.queue_count * sizeof(w.queue[0]));
			world_step(&w, &event);
		}
		if (i < 80)
			submit(&w, 10, "", command_spec(1));
		heartbeat(&w, 1);
		heartbeat(&w, 3);
		world_tick(&w, 100);
	}
	node_is(&w, 0, "alive", "");
	node_is(&w, 2, "alive", "");
	world_finish(&w);
}

/* p6 stands still while the others wait for it; its node's heartbeats go on. */
static void test_no_progress(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	for (int i = 0; i < 80; i++) {
		beat(&w, 1, 5, 3, 7, 6);
		beat(&w, 2, 6, 3, 9, 0);
		beat(&w, 3, 7, 3, 8, 6);
		world_tick(&w, 250);
	}
	expect(&w,
	    "append peer_moved p6 lost: worker made no progress for 20.0 s (stopped?)\n"
	    "send c2 peer_evicted p6\n"
	    "send c2 stop_worker p6: worker made no progress for 20.0 s (stopped?)\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_string_equal(job->peers[1]->state, "lost");
	assert_string_equal(job->peers[1]->reason, "worker made no progress for 20.0 s (stopped?)");
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void test_slow_but_moving(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	for (uint64_t i = 0; i < 400; i++) {
		beat(&w, 1, 5, 3, 7, 6);
		beat(&w, 2, 6, 3, 9 + i / 60, 0); /* once in 15 s */
		beat(&w, 3, 7, 3, 8, 6);
		world_tick(&w, 250);
	}
	expect(&w, "");
	world_finish(&w);
}

/* SIGSTOP before it was ready: the others, which are ready, do not wait for it for ever. */
static void test_stopped_before_it_is_ready(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "a", native_spec(3));
	for (uint64_t c = 1; c <= 3; c++)
		started(&w, c, 1, 4 + c);
	ready(&w, 1, 4, 5, 0);
	skip_trace(&w);
	for (uint64_t i = 0; i < 80; i++) {
		beat(&w, 1, 5, 0, 7, 0);
		beat(&w, 2, 6, 0, 9, 0);
		beat(&w, 3, 7, 0, i / 60, 0); /* reads its data, slowly */
		world_tick(&w, 250);
	}
	expect(&w,
	    "append peer_moved p6 lost fast: worker made no progress for 20.0 s before it was "
	    "ready "
	    "(stopped?)\n"
	    "send c2 peer_evicted p6\n"
	    "send c2 stop_worker p6: worker made no progress for 20.0 s before it was ready "
	    "(stopped?)\n");
	world_finish(&w);
}

/* Its node says nothing about a worker that it was told to start. */
static void test_never_started(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "c", command_spec(3));
	started(&w, 1, 1, 4);
	started(&w, 2, 1, 5);
	skip_trace(&w);
	for (int i = 0; i < 80; i++) {
		for (uint64_t c = 1; c <= 3; c++)
			heartbeat(&w, c);
		world_tick(&w, 250);
	}
	expect(&w,
	    "append peer_moved p6 lost: its node has not started it for 20.0 s\n"
	    "send c3 stop_worker p6: its node has not started it for 20.0 s\n"
	    "append job_moved job 1 -> 5 exit 1: rank 2 on node-3: its node has not started it for "
	    "20.0 s\n"
	    "send c1 stop_worker p4: job 1 is failed\n"
	    "send c2 stop_worker p5: job 1 is failed\n");
	world_finish(&w);
}

/* A node that starts one worker after the other gets to the last one, too. */
static void test_started_one_after_the_other(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "c", command_spec(9));
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	for (int i = 0; i < 80 * 3; i++) {
		/* Its node starts one of three every 15 s. */
		for (size_t k = 0; k < job->n_peers && i % 60 == 0; k++)
			if (k % 3 == (size_t)i / 60)
				started(&w, (uint64_t)(job->peers[k]->node_name[5] - '0'), 1,
				    job->peers[k]->id);
		for (uint64_t c = 1; c <= 3; c++)
			heartbeat(&w, c);
		world_tick(&w, 250);
	}
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void complain(struct world *w, uint64_t conn, uint64_t view, uint64_t from, uint64_t about,
    const char *reason)
{
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	lost.group = 4;
	lost.view = view;
	lost.peer = from;
	lost.lost = about;
	lost.reason = (char *)(uintptr_t)reason;
	MESSAGE(w, conn, LINK_LOST, link_lost, &lost);
}

/* The slot of a worker that is told to end is free when it has ended, not before. */
static void test_slot_of_an_evicted_worker(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 1, 1, 5, 7, "silent for 1.0 s");
	world_tick(&w, 500);
	skip_trace(&w);
	report(&w, 1, 4, 5, 2, 1, 3, 3, 1, false, 0, 0);
	report(&w, 2, 4, 6, 2, 1, 3, 3, 1, false, 0, 0);
	assert_int_equal(w.install[1]->view_install->view->number, 2);
	skip_trace(&w);
	exited(&w, 3, 1, 7, 0, 9, "");
	expect(&w,
	    "append job_planned job 1 group 4: p8@n3\n"
	    "send c3 start_worker p8 rank 2/3 local 0/1 node 2/3\n");
	world_finish(&w);
}

/* All wait, nobody computes, or nobody waits for the one that stands still: no reason to evict. */
static void test_still_but_not_waited_for(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	for (uint64_t i = 0; i < 200; i++) {
		beat(&w, 1, 5, 3, 7, 7);
		beat(&w, 2, 6, 3, 9, 0);
		beat(&w, 3, 7, 3, 8 + i, 0);
		world_tick(&w, 250);
	}
	expect(&w, "");
	world_finish(&w);
}

static void test_broken_link(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 1, 1, 5, 6, "reset by peer");
	complain(&w, 1, 1, 5, 6, "reset by peer");
	complain(&w, 1, 0, 5, 6, "of another view");
	complain(&w, 2, 1, 5, 6, "of another node's peer");
	assert_true(membership_deadline_ms(w.m) <= w.now + 100);
	world_tick(&w, 99);
	expect(&w, "");
	world_tick(&w, 1);
	expect(&w,
	    "send c1 view_propose 2 to p5,p6,p7\n"
	    "send c2 view_propose 2 to p5,p6,p7\n"
	    "send c3 view_propose 2 to p5,p6,p7\n");
	for (uint64_t c = 1; c <= 3; c++)
		report(&w, c, 4, 4 + c, 2, 1, 3, 4, 1, false, 0, 0);
	expect(&w,
	    "append view view 2 hub p5 [p5 p6 p7] round 4 finish attempt 1 of p5,p6,p7\n"
	    "send c1 view_install 2\n"
	    "send c2 view_install 2\n"
	    "send c3 view_install 2\n");
	world_finish(&w);
}

/* No link broke, but a member waits for what is lost: a view at once. */
static void test_stuck_member(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 2, 1, 5, 0, "of another node's peer");
	complain(&w, 1, 0, 5, 0, "of another view");
	expect(&w, "");
	complain(&w, 1, 1, 5, 0, "op 4 waits for data of peer 9, which was lost");
	complain(&w, 1, 1, 5, 0, "op 4 waits for data of peer 9, which was lost");
	expect(&w,
	    "send c1 view_propose 2 to p5,p6,p7\n"
	    "send c2 view_propose 2 to p5,p6,p7\n"
	    "send c3 view_propose 2 to p5,p6,p7\n");
	world_finish(&w);
}

/* The other side died: that is the ordinary kill, without a view for the link. */
static void test_broken_link_of_a_dead_peer(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 1, 1, 5, 6, "reset by peer");
	complain(&w, 3, 1, 7, 6, "reset by peer");
	world_tick(&w, 20);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 2, 1, 3, 3, 1, false, 0, 0);
	report(&w, 3, 4, 7, 2, 1, 3, 3, 1, false, 0, 0);
	skip_trace(&w);
	heartbeat(&w, 1);
	heartbeat(&w, 3);
	world_tick(&w, 250);
	expect(&w, "");
	world_finish(&w);
}

static void test_unreachable(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 1, 1, 5, 7, "no answer for 1.0 s");
	complain(&w, 3, 1, 7, 5, "no answer for 1.0 s");
	complain(&w, 2, 1, 6, 5, "no answer for 1.0 s");
	world_tick(&w, 499);
	expect(&w, "");
	world_tick(&w, 1);
	expect(&w,
	    "append peer_moved p5 lost: 2 members cannot reach it; peer p7: no answer for 1.0 s\n"
	    "send c1 peer_evicted p5\n"
	    "send c1 stop_worker p5: 2 members cannot reach it; peer p7: no answer for 1.0 s\n"
	    "send c2 view_propose 2 to p6,p7\n"
	    "send c3 view_propose 2 to p6,p7\n");
	world_finish(&w);
}

/* A member hears nothing of a peer any more, and we have not heard its node for half the time: no need to wait. */
static void test_silent_for_two(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_tick(&w, 250);
	for (int i = 0; i < 4; i++) {
		heartbeat(&w, 1);
		heartbeat(&w, 2);
		world_tick(&w, 250);
	}
	skip_trace(&w);
	complain(&w, 1, 1, 5, 7, "silent for 1.0 s");
	expect(&w,
	    "append peer_moved p7 lost: silent for 1.2 s; peer p5: silent for 1.0 s\n"
	    "send c3 peer_evicted p7\n"
	    "send c3 stop_worker p7: silent for 1.2 s; peer p5: silent for 1.0 s\n"
	    "send c1 view_propose 2 to p5,p6\n"
	    "send c2 view_propose 2 to p5,p6\n");
	world_finish(&w);
}

/* One way between two members is cut; both still reach us. The one that hears nothing says so, and patience brings no other word. */
static void test_silent_for_a_member_only(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 1, 1, 5, 7, "silent for 1.0 s");
	for (int i = 0; i < 5; i++) {
		expect(&w, "");
		world_tick(&w, 100);
		if (i < 4)
			for (uint64_t c = 1; c <= 3; c++)
				beat(&w, c, 4 + c, 3, 7, 0);
	}
	expect(&w,
	    "append peer_moved p7 lost: 1 member cannot reach it; peer p5: silent for 1.0 s\n"
	    "send c3 peer_evicted p7\n"
	    "send c3 stop_worker p7: 1 member cannot reach it; peer p5: silent for 1.0 s\n"
	    "send c1 view_propose 2 to p5,p6\n"
	    "send c2 view_propose 2 to p5,p6\n");
	world_finish(&w);
}

/* Its own cable is cut, and it is the first to say so: it accuses all, and is what all have in common. */
static void test_accuser_of_all(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	complain(&w, 2, 1, 6, 5, "silent for 1.0 s");
	complain(&w, 2, 1, 6, 7, "silent for 1.0 s");
	complain(&w, 3, 1, 7, 6,
	    "closed by peer"); /* by 6, which gave that connection up: no repair for this */
	world_tick(&w, 499);
	expect(&w, "");
	world_tick(&w, 1);
	expect(&w,
	    "append peer_moved p6 lost: it cannot reach others; of peer p5: silent for 1.0 s\n"
	    "send c2 peer_evicted p6\n"
	    "send c2 stop_worker p6: it cannot reach others; of peer p5: silent for 1.0 s\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	world_finish(&w);
}

/* Round trips of 400 ms: packets that are lost take long to be sent again, so silence is judged after 8 of them. */
/* p5's own cable is cut, and memberd stands still just then: what the others say of it waits in the sockets, behind a heartbeat. */
static void accuser_while_memberd_stands_still(uint64_t ms)
{
	struct world w;
	training(&w);
	world_tick(&w, 250);
	for (uint64_t c = 1; c <= 3; c++)
		heartbeat(&w, c);
	skip_trace(&w);
	complain(&w, 1, 1, 5, 7, "silent for 1.0 s");
	w.now += ms;
	heartbeat(&w, 2);
	heartbeat(&w, 3);
	complain(&w, 2, 1, 6, 5, "silent for 1.0 s");
	complain(&w, 3, 1, 7, 5, "silent for 1.0 s");
	for (int i = 0; i < 4; i++) {
		world_tick(&w, 250);
		for (uint64_t c = 1; c <= 3; c++)
			heartbeat(&w, c);
	}
	assert_null(strstr(w.trace, "peer_moved p7"));
	assert_null(strstr(w.trace, "peer_moved p6"));
	assert_non_null(strstr(w.trace, "append peer_moved p5 lost: 2 members cannot reach it"));
	world_finish(&w);
}

static void test_accuser_while_memberd_stood_still(void **state)
{
	(void)state;
	accuser_while_memberd_stands_still(3000);
	accuser_while_memberd_stands_still(700); /* too short to be a pause */
}

static void nothing_is_overdue(struct world *w)
{
	world_tick(w, 1000);
	for (uint64_t c = 1; c <= 3; c++)
		heartbeat(w, c);
	for (int i = 0; i < 8; i++)
		world_tick(w, 0);
	assert_true(membership_deadline_ms(w->m) > w->now);
}

/* Each member reads at another moment that it is over, and what breaks until then is still said. Nobody decides about it: memberd is not to look at it
 * again and again. */
static void test_broken_link_of_a_job_that_ended(void **state)
{
	struct world w;
	struct membership_event cancel = { .kind = MEMBERSHIP_CANCEL, .request = 2, .job = 1 };
	(void)state;
	training(&w);
	world_step(&w, &cancel);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED);
	complain(&w, 2, 1, 6, 5, "reset by peer");
	nothing_is_overdue(&w);
	world_finish(&w);
}

/* While a disk takes its time with a view there is nothing to decide about the group either. */
static void test_broken_link_while_the_disk_is_slow(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	w.hold = true;
	world_closed(&w, 1, "reset by peer");
	complain(&w, 2, 1, 6, 7, "reset by peer");
	for (uint64_t c = 2; c <= 3; c++)
		report(&w, c, 4, 4 + c, 2, 1, 0, 0, 0, false, 0, 0);
	assert_non_null(strstr(w.trace, "append view "));
	nothing_is_overdue(&w);
	world_finish(&w);
}

static void test_silence_far_away(void **state)
{
	struct world w;
	Traind__Peer__Heartbeat far = TRAIND__PEER__HEARTBEAT__INIT;
	(void)state;
	training(&w);
	far.rtt_s = 0.4;
	MESSAGE(&w, 2, HEARTBEAT, heartbeat, &far);
	skip_trace(&w);
	for (int i = 0; i < 12; i++) {
		world_tick(&w, 250);
		heartbeat(&w, 1);
		heartbeat(&w, 3);
	}
	expect(&w, "");
	world_tick(&w, 250);
	expect(&w,
	    "close c2: silent for 3.2 s (3.2 s are allowed: its round trip takes 400 ms)\n"
	    "append node_gone n2: silent for 3.2 s (3.2 s are allowed: its round trip takes 400 "
	    "ms)\n"
	    "append peer_moved p6 lost: node node-2 was lost: silent for 3.2 s (3.2 s are allowed: "
	    "its round trip takes 400 ms)\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	world_finish(&w);
}

static struct {
	unsigned count;
	uint32_t apart_ms;
} acks;

static void note_ack(struct world *w, const struct membership_action *a)
{
	(void)w;
	if (a->kind != MEMBERSHIP_DO_SEND ||
	    a->message->body_case != TRAIND__PEER__TO_NODE__BODY_HEARTBEAT_ACK)
		return;
	acks.count++;
	acks.apart_ms = a->message->heartbeat_ack->interval_ms;
}

/* Each has an answer; over a long way one in a timeout, and when they are to be further apart or nearer: a third of what such a way is allowed. */
static void test_heartbeats_that_are_answered(void **state)
{
	struct world w;
	Traind__Peer__Heartbeat far = TRAIND__PEER__HEARTBEAT__INIT;
	(void)state;
	training(&w);
	w.on_action = note_ack;
	acks.count = 0;
	for (int i = 0; i < 16; i++) {
		world_tick(&w, 250);
		heartbeat(&w, 2);
	}
	assert_int_equal(acks.count, 16);
	assert_int_equal(acks.apart_ms, 250);
	far.rtt_s = 0.4;
	for (int i = 0; i < 200; i++)
		MESSAGE(&w, 2, HEARTBEAT, heartbeat, &far);
	assert_true(acks.count > 16);
	assert_int_equal(acks.apart_ms, 1000); /* of 3.2 s */
	acks.count = 0;
	for (int i = 0; i < 16; i++) {
		world_tick(&w, 250);
		MESSAGE(&w, 2, HEARTBEAT, heartbeat, &far);
	}
	assert_int_equal(acks.count, 2);
	acks.count = 0;
	heartbeat(&w, 2);
	assert_int_equal(acks.count, 1);
	assert_int_equal(acks.apart_ms, 250);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_own_pause),
		cmocka_unit_test(test_no_progress),
		cmocka_unit_test(test_slow_but_moving),
		cmocka_unit_test(test_full_disk_silences_nobody),
		cmocka_unit_test(test_stopped_before_it_is_ready),
		cmocka_unit_test(test_never_started),
		cmocka_unit_test(test_started_one_after_the_other),
		cmocka_unit_test(test_still_but_not_waited_for),
		cmocka_unit_test(test_broken_link),
		cmocka_unit_test(test_stuck_member),
		cmocka_unit_test(test_broken_link_of_a_dead_peer),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_silent_for_two),
		cmocka_unit_test(test_silent_for_a_member_only),
		cmocka_unit_test(test_accuser_of_all),
		cmocka_unit_test(test_broken_link_of_a_job_that_ended),
		cmocka_unit_test(test_broken_link_while_the_disk_is_slow),
		cmocka_unit_test(test_accuser_while_memberd_stood_still),
		cmocka_unit_test(test_silence_far_away),
		cmocka_unit_test(test_heartbeats_that_are_answered),
		cmocka_unit_test(test_slot_of_an_evicted_worker),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
