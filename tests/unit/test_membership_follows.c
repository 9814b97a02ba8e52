/* Whether who is missing is followed by another one: said with each view, as far as memberd knows when it makes it. */
#include "tests/unit/membership_harness.h"

/* Peers of the next view as they report to its proposal, by connection. */
static void install(struct world *w, uint64_t proposal, const uint64_t *conns, size_t count)
{
	for (size_t i = 0; i < count; i++)
		report(w, conns[i], 4, 4 + conns[i], proposal, 1, 0, 1, 1, false, 0, 0);
}

static bool nobody_follows(const struct world *w, uint64_t conn, uint64_t view)
{
	const Traind__Peer__View *installed = w->install[conn]->view_install->view;
	assert_int_equal(installed->number, view);
	return installed->nobody_follows;
}

static const uint64_t first_two[] = { 1, 2 };

static void all_are_there(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	assert_false(nobody_follows(&w, 1, 1));
	world_finish(&w);
}

static void its_node_is_lost_and_no_other_is_free(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	world_closed(&w, 3, "reset by peer");
	install(&w, 2, first_two, 2);
	assert_true(nobody_follows(&w, 1, 2));
	assert_true(nobody_follows(&w, 2, 2));
	world_finish(&w);
}

/* The view is made before it is in the log that the node is gone. */
static void its_node_is_about_to_be_lost(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	w.hold = true;
	world_closed(&w, 3, "reset by peer");
	while (w.queue_count > 0 && w.last[1]->body_case != TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE)
		world_apply_one(&w);
	install(&w, 2, first_two, 2);
	world_apply(&w);
	assert_true(nobody_follows(&w, 1, 2));
	world_finish(&w);
}

static void another_node_is_free(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 1);
	world_closed(&w, 3, "reset by peer");
	install(&w, 2, first_two, 2);
	assert_false(nobody_follows(&w, 1, 2));
	world_finish(&w);
}

/* One of two has a replacement on its way: with it there may be enough. */
static void one_of_two_is_followed(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 1);
	world_closed(&w, 3, "reset by peer");
	install(&w, 2, first_two, 2);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 3, 2, 0, 1, 1, false, 0, 0);
	assert_false(nobody_follows(&w, 1, 3));
	world_finish(&w);
}

static void its_process_crashed(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	exited(&w, 3, 1, 7, 0, 11, "");
	install(&w, 2, first_two, 2);
	assert_false(nobody_follows(&w, 1, 2));
	world_finish(&w);
}

/* Its engine gave up; its process runs still, and its slot is free soon. */
static void its_process_is_still_ending(void **state)
{
	struct world w;
	Traind__Peer__PeerFailed body = TRAIND__PEER__PEER_FAILED__INIT;
	(void)state;
	training(&w);
	body.group = 4;
	body.peer = 7;
	body.reason = (char *)(uintptr_t) "an op differs";
	MESSAGE(&w, 3, PEER_FAILED, peer_failed, &body);
	install(&w, 2, first_two, 2);
	assert_false(nobody_follows(&w, 1, 2));
	world_finish(&w);
}

/* Put out by its silence and a member's words. That its node is lost, too, is known a moment later, when there is no view to say so. */
static void its_node_is_silent(void **state)
{
	struct world w;
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	(void)state;
	training(&w);
	world_tick(&w, 250);
	for (int i = 0; i < 4; i++) {
		heartbeat(&w, 1);
		heartbeat(&w, 2);
		world_tick(&w, 250);
	}
	lost.group = 4;
	lost.view = 1;
	lost.peer = 5;
	lost.lost = 7;
	lost.reason = (char *)(uintptr_t) "silent for 1.0 s";
	MESSAGE(&w, 1, LINK_LOST, link_lost, &lost);
	install(&w, 2, first_two, 2);
	assert_true(nobody_follows(&w, 1, 2));
	world_finish(&w);
}

/* memberd has just begun to lead: a node may come back. */
static void a_node_may_come_back(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 1);
	world_restart(&w);
	world_lead(&w);
	for (uint64_t c = 1; c <= 3; c++) {
		Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *rows[] = { &here };
		here.job_id = 1;
		here.group = 4;
		here.peer = 4 + c;
		here.view = 1;
		here.pid = 7000;
		hello_with(&w, 10 + c, c, 100 + c, 1, rows, 1);
	}
	world_closed(&w, 13, "reset by peer");
	for (uint64_t c = 1; c <= 2; c++)
		report(&w, 10 + c, 4, 4 + c, w.last[11]->view_propose->number, 1, 0, 1, 1, false, 0,
		    0);
	const Traind__Peer__View *view = w.install[11]->view_install->view;
	assert_int_equal(view->n_peers, 2);
	assert_false(view->nobody_follows);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_there),
		cmocka_unit_test(its_node_is_lost_and_no_other_is_free),
		cmocka_unit_test(its_node_is_about_to_be_lost),
		cmocka_unit_test(another_node_is_free),
		cmocka_unit_test(one_of_two_is_followed),
		cmocka_unit_test(its_process_crashed),
		cmocka_unit_test(its_process_is_still_ending),
		cmocka_unit_test(its_node_is_silent),
		cmocka_unit_test(a_node_may_come_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
