/* What memberd keeps and copies where there are many: peers that worked for a job, members of a view. */
#include "tests/unit/membership_commits.h"

/* The peer that was started last on this connection; 0: none was. */
static uint64_t started_on(const struct world *w, uint64_t conn)
{
	const Traind__Peer__ToNode *last = w->last[conn];
	return last != NULL && last->body_case == TRAIND__PEER__TO_NODE__BODY_START_WORKER
	    ? last->start_worker->peer
	    : 0;
}

/* A node whose workers die again and again, more often than peers are remembered: that the job began with three workers is not
 * forgotten with the first ones. */
static void test_many_replacements(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	commit_one(&w, 1, 5, 1);
	exited(&w, 3, 1, 7, 0, 9, "");
	for (uint64_t c = 1; c <= 2; c++)
		report(&w, c, 4, 4 + c, 2, 1, 1, 2, 1, false, 0, 0);
	for (int i = 0; i < 300; i++) {
		uint64_t peer = started_on(&w, 3);
		skip_trace(&w);
		assert_int_not_equal(peer, 0);
		exited(&w, 3, 1, peer, 0, 9, "");
		world_tick(&w, 50);
		for (uint64_t c = 1; c <= 3; c++)
			heartbeat(&w, c);
		assert_int_not_equal(started_on(&w, 3), peer);
	}
	uint64_t newest = started_on(&w, 3);
	ready(&w, 3, 4, newest, 0);
	assert_non_null(strstr(w.trace, "view_propose 3 to p5,p6,p"));
	world_finish(&w);
}

static void beats(struct world *w, uint64_t last)
{
	world_tick(w, 250);
	for (uint64_t c = 1; c <= last; c++)
		heartbeat(w, c);
}

static void checkpoint_told(struct world *w, uint64_t conn, uint64_t peer)
{
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	figures.step = figures.steps = 1;
	figures.checkpoint = (char *)(uintptr_t) "/tmp/c/step-00000001";
	body.job_id = 1;
	body.peer = peer;
	body.progress = &figures;
	MESSAGE(w, conn, PEER_REPORT, peer_report, &body);
}

/* A node on which no worker of this job can start: those that train go on, it is tried ever more rarely, and another one as soon as there is one. */
static void test_no_start_on_one_node(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	w.quiet = true;
	commit_one(&w, 1, 5, 1);
	world_closed(&w, 3, "reset by peer");
	for (uint64_t c = 1; c <= 2; c++)
		report(&w, c, 4, 4 + c, 2, 1, 1, 2, 1, false, 0, 0);
	hello(&w, 3, 0, 103, 1); /* one that lacks the data */
	unsigned tries = 0;
	for (int t = 0; t < 4 * 120; t++) {
		uint64_t peer = started_on(&w, 3);
		beats(&w, 3);
		if (started_on(&w, 3) == peer && t > 0)
			continue;
		exited(&w, 3, 1, started_on(&w, 3), 1, 0, "cannot open the data\n");
		tries++;
	}
	assert_in_range(tries, 8, 14); /* 0.1, 0.2 ... 25.6, 30, 30 s apart */
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	traind__v1__job__free_unpacked(job, NULL);
	hello(&w, 4, 0, 104, 1);
	for (int t = 0; t < 4 * 31; t++)
		beats(&w, 4);
	assert_int_not_equal(started_on(&w, 4), 0);
	/* Those who trained are lost: it begins again, as if nobody had died at its start. */
	checkpoint_told(&w, 1, 5);
	for (uint64_t c = 1; c <= 2; c++)
		world_closed(&w, c, "reset by peer");
	exited(&w, 4, 1, started_on(&w, 4), 1, 0, "");
	job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static size_t views_sent;
static const Traind__Peer__ToNode *view_message;

static void look_at_views(struct world *w, const struct membership_action *a)
{
	(void)w;
	if (a->kind != MEMBERSHIP_DO_SEND ||
	    a->message->body_case != TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL)
		return;
	assert_true(views_sent == 0 || a->message == view_message);
	views_sent++;
	view_message = a->message;
}

/* Who holds which segment is said for each member: told to each member in a copy of its own it grows with the square of them. 256 members with 100 ops: 4 s in
 * which nothing else is done, and 1 GB. */
static void test_a_view_is_copied_once(void **state)
{
	struct world w;
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	(void)state;
	training(&w);
	lost.group = 4;
	lost.peer = 5;
	lost.lost = 6;
	lost.view = 1;
	lost.reason = (char *)(uintptr_t) "reset by peer";
	MESSAGE(&w, 1, LINK_LOST, link_lost, &lost);
	world_tick(&w, 100);
	views_sent = 0;
	w.on_action = look_at_views;
	for (uint64_t c = 1; c <= 3; c++)
		report(&w, c, 4, 4 + c, 2, 1, 0, 1, 1, true, 0xff, 0xff);
	assert_int_equal(views_sent, 3);
	for (uint64_t c = 1; c <= 3; c++)
		assert_int_equal(w.install[c]->view_install->view->number, 2);
	world_finish(&w);
}

#define LIBRARY_GROUP (TR_GROUP_PEERS_MAX + 1) /* nodes have the numbers before it */

static void join(struct world *w, uint64_t conn)
{
	Traind__Peer__JoinGroup body = TRAIND__PEER__JOIN_GROUP__INIT;
	body.name = (char *)(uintptr_t) "g";
	body.size = 2;
	MESSAGE(w, conn, JOIN_GROUP, join_group, &body);
}

static size_t proposed_count, newest_in_proposal;

static void look_at_proposals(struct world *w, const struct membership_action *a)
{
	(void)w;
	if (a->kind != MEMBERSHIP_DO_SEND ||
	    a->message->body_case != TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE)
		return;
	const Traind__Peer__ViewPropose *propose = a->message->view_propose;
	proposed_count = propose->n_members;
	newest_in_proposal = propose->members[propose->n_members - 1];
}

/* The group is full: one that has waited for longer than the newest member does not take its place. */
static void test_a_full_group(void **state)
{
	const uint64_t first = LIBRARY_GROUP + 1, waits = first + TR_GROUP_PEERS_MAX - 1,
	               last = waits + 1;
	struct world w;
	(void)state;
	world_init(&w);
	w.quiet = true;
	world_lead(&w);
	for (uint64_t c = 1; c <= TR_GROUP_PEERS_MAX; c++)
		hello(&w, c, 0, 1000 + c, 0);
	for (uint64_t c = 1; c < TR_GROUP_PEERS_MAX; c++)
		join(&w, c);
	for (uint64_t c = 1; c < TR_GROUP_PEERS_MAX; c++)
		ready(&w, c, LIBRARY_GROUP, LIBRARY_GROUP + c, 0);
	for (uint64_t c = 1; c < TR_GROUP_PEERS_MAX; c++)
		report(&w, c, LIBRARY_GROUP, LIBRARY_GROUP + c, 1, 0, 0, 0, 0, false, 0, 0);
	join(&w, 1);
	join(&w, TR_GROUP_PEERS_MAX);
	ready(&w, TR_GROUP_PEERS_MAX, LIBRARY_GROUP, last, 0);
	for (uint64_t c = 1; c < TR_GROUP_PEERS_MAX; c++)
		report(&w, c, LIBRARY_GROUP, LIBRARY_GROUP + c, 2, 1, 0, 0, 0, false, 0, 0);
	w.on_action = look_at_proposals;
	proposed_count = 0;
	report(&w, TR_GROUP_PEERS_MAX, LIBRARY_GROUP, last, 2, 0, 0, 0, 0, false, 0, 0);
	ready(&w, 1, LIBRARY_GROUP, waits, 0);
	assert_int_equal(proposed_count, 0); /* there is no room */
	Traind__Peer__LeaveGroup leave = TRAIND__PEER__LEAVE_GROUP__INIT;
	leave.group = LIBRARY_GROUP;
	leave.peer = first;
	MESSAGE(&w, 1, LEAVE_GROUP, leave_group, &leave);
	assert_int_equal(proposed_count, TR_GROUP_PEERS_MAX);
	assert_int_equal(newest_in_proposal, last);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_replacements),
		cmocka_unit_test(test_no_start_on_one_node),
		cmocka_unit_test(test_a_view_is_copied_once),
		cmocka_unit_test(test_a_full_group),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
