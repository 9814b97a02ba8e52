/* A member gave up because others say different things of a round: nobody can have that round, and memberd ends it for all. */
#include "tests/unit/membership_harness.h"

#define WORDS "peers 5 and 3 disagree in round 3: op 1 has other elements"

static void join(struct world *w, uint64_t conn, uint32_t size)
{
	Traind__Peer__JoinGroup body = TRAIND__PEER__JOIN_GROUP__INIT;
	body.name = (char *)(uintptr_t) "g";
	body.size = size;
	body.address = (char *)(uintptr_t) "127.0.0.1:9000";
	body.policy = TRAIND__PEER__POLICY__POLICY_KEEP;
	MESSAGE(w, conn, JOIN_GROUP, join_group, &body);
}

/* Group 2 of peers 3, 5 and 7 on connections 1, 2 and 3, in view 1. */
static void three_peers(struct world *w)
{
	world_init(w);
	world_lead(w);
	for (uint64_t c = 1; c <= 3; c++) {
		hello(w, c, 0, 100 + c, 0);
		join(w, c, 3);
	}
	for (uint64_t c = 1; c <= 3; c++)
		ready(w, c, 2, 2 * c + 1, 0);
	for (uint64_t c = 1; c <= 3; c++)
		report(w, c, 2, 2 * c + 1, 1, 0, 0, 0, 0, false, 0, 0);
	assert_non_null(w->install[3]);
	skip_trace(w);
}

static void failed(struct world *w, uint64_t conn, uint64_t peer, tr_status status, uint64_t round)
{
	Traind__Peer__PeerFailed body = TRAIND__PEER__PEER_FAILED__INIT;
	body.group = 2;
	body.peer = peer;
	body.status = status;
	body.reason = (char *)(uintptr_t)WORDS;
	body.refused_round = round;
	MESSAGE(w, conn, PEER_FAILED, peer_failed, &body);
}

/* Peer `2 * conn + 1`, frozen in round `round` of attempt 1. */
static void reports(struct world *w, uint64_t conn, uint64_t proposal, uint64_t round)
{
	report(w, conn, 2, 2 * conn + 1, proposal, 1, round - 1, round, 1, true, 0xff, 0xff);
}

static void is_told(struct world *w, uint64_t conn, tr_status status)
{
	assert_non_null(w->last[conn]);
	assert_int_equal(w->last[conn]->body_case, TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED);
	assert_int_equal(w->last[conn]->peer_evicted->status, status);
	assert_true(w->last[conn]->peer_evicted->refuses);
	assert_string_equal(w->last[conn]->peer_evicted->reason, WORDS);
}

static void test_all_are_told(void **state)
{
	static const tr_status statuses[] = { TR_EMISMATCH, TR_EDIGEST };
	struct world w;
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		three_peers(&w);
		failed(&w, 1, 3, statuses[i], 3);
		reports(&w, 2, 2, 3);
		reports(&w, 3, 2, 3);
		is_told(&w, 2, statuses[i]);
		is_told(&w, 3, statuses[i]);
		assert_null(strstr(w.trace, "append view "));
		assert_non_null(strstr(w.trace, "append peer_moved p7 lost fast: " WORDS));
		world_finish(&w);
	}
}

/* It is in the log before anybody is told, and a restart that comes then changes nothing. */
static void test_over_a_restart(void **state)
{
	struct world w;
	(void)state;
	for (unsigned again = 0; again < 2; again++) {
		three_peers(&w);
		w.hold = true;
		failed(&w, 1, 3, TR_EMISMATCH, 3);
		reports(&w, 2, 2, 3);
		reports(&w, 3, 2, 3);
		assert_null(strstr(w.trace, "peer_evicted p5"));
		assert_null(strstr(w.trace, "append view "));
		w.hold = false;
		if (again == 0) {
			world_apply(&w);
			is_told(&w, 2, TR_EMISMATCH);
			is_told(&w, 3, TR_EMISMATCH);
			world_finish(&w);
			continue;
		}
		w.hold = true;
		world_apply_one(&w); /* p3's end */
		world_forget(&w);
		world_restart(&w);
		w.hold = false;
		world_lead(&w);
		hello(&w, 12, 4, 102, 0);
		hello(&w, 13, 6, 103, 0);
		world_tick(&w, 10);
		assert_null(strstr(w.trace, "append view "));
		world_finish(&w);
	}
}

/* The others got over that round: it says nothing of the one under way. Nor does the end of a member that refuses none. */
static void test_another_round(void **state)
{
	struct world w;
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		three_peers(&w);
		failed(&w, 1, 3, TR_EMISMATCH, i == 0 ? 2 : 0);
		reports(&w, 2, 2, 3);
		reports(&w, 3, 2, 3);
		assert_non_null(strstr(w.trace, "append view "));
		assert_null(strstr(w.trace, "peer_evicted p5"));
		assert_int_equal(w.install[2]->view_install->view->number, 2);
		assert_true(w.install[2]->view_install->resume->finish);
		world_finish(&w);
	}
}

/* What told it was lost with its node's connection: it is told the same again. */
static void test_is_told_again_that_it_gave_up(void **state)
{
	struct world w;
	Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *list[1] = { &here };
	(void)state;
	three_peers(&w);
	failed(&w, 1, 3, TR_EIO, 0);
	assert_true(w.last[1]->peer_evicted->refuses);
	world_closed(&w, 1, "reset by peer");
	here.group = 2;
	here.peer = 3;
	here.view = 1;
	here.ready = true;
	hello_with(&w, 11, 1, 101, 0, list, 1);
	assert_int_equal(w.last[11]->body_case, TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED);
	assert_true(w.last[11]->peer_evicted->refuses);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_are_told),
		cmocka_unit_test(test_over_a_restart),
		cmocka_unit_test(test_another_round),
		cmocka_unit_test(test_is_told_again_that_it_gave_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
