/* What lies between memberd's core and its log or its connections: an append that fails with records behind it, an exit that is
 * reported late after a restart, words that come when their run is over, a lifeline that is tied anew. */
#include <math.h>

#include "tests/unit/membership_commits.h"

/* The disk is full: all that waits has failed. */
static void fail_queue(struct world *w)
{
	size_t count = w->queue_count;
	while (count-- > 0) {
		struct membership_event event = { .kind = MEMBERSHIP_APPEND_FAILED,
			.cookie = w->queue[0].cookie,
			.reason = "no space left on the disk" };
		free(w->queue[0].data);
		memmove(&w->queue[0], &w->queue[1], (--w->queue_count) * sizeof(w->queue[0]));
		world_step(w, &event);
	}
}

static uint64_t view_of(struct world *w, uint64_t id)
{
	Traind__V1__Job *job = membership_job(w->m, id, false);
	uint64_t view = job->view;
	traind__v1__job__free_unpacked(job, NULL);
	return view;
}

/* Two batches of records meet a full disk: the first is refused while the second waits for it. Then their hub dies, and there is room
 * again. */
static void test_records_behind_a_failed_append(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	w.hold = true;
	commit_one(&w, 1, 5, 1); /* into the log's queue */
	commit_one(&w, 1, 5, 2); /* in the same turn: waits behind it */
	fail_queue(&w);
	w.hold = false;                        /* room again */
	world_closed(&w, 1, "closed by peer"); /* who had the records is gone */
	for (int i = 0; i < 8; i++) {
		world_tick(&w, 250);
		heartbeat(&w, 2);
		heartbeat(&w, 3);
	}
	assert_non_null(w.last[2]);
	assert_int_equal(w.last[2]->body_case, TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE);
	uint64_t number = w.last[2]->view_propose->number;
	for (uint64_t c = 2; c <= 3; c++)
		report(&w, c, 4, 4 + c, number, 1, 2, 3, 1, false, 0, 0);
	for (int i = 0; i < 240; i++) { /* a minute */
		world_tick(&w, 250);
		heartbeat(&w, 2);
		heartbeat(&w, 3);
	}
	assert_int_equal(view_of(&w, 1), number);
	world_finish(&w);
}

static void restart(struct world *w)
{
	world_restart(w);
	world_lead(w);
}

/* All three end well while memberd is away. A node tells its ends right behind Welcome; half a second later they are here: a long way, or a
 * node that is busy. */
static void ends_after(uint64_t ms)
{
	struct world w;
	training(&w);
	commit_one(&w, 1, 5, 1);
	restart(&w);
	for (uint64_t c = 1; c <= 3; c++)
		hello(&w, 10 + c, c, 100 + c, 1);
	world_tick(&w, ms);
	for (uint64_t c = 1; c <= 3; c++)
		exited(&w, 10 + c, 1, 4 + c, 0, 0, "");
	for (int i = 0; i < 8; i++) {
		world_tick(&w, 250);
		for (uint64_t c = 1; c <= 3; c++)
			heartbeat(&w, 10 + c);
	}
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_DONE);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void test_ends_that_come_soon(void **state)
{
	(void)state;
	ends_after(100);
}

static void test_ends_that_come_late(void **state)
{
	(void)state;
	ends_after(600);
}

static void tie(struct world *w, uint64_t conn, uint64_t node, uint64_t incarnation)
{
	Traind__Peer__Lifeline body = TRAIND__PEER__LIFELINE__INIT;
	body.node_id = node;
	body.incarnation = incarnation;
	MESSAGE(w, conn, LIFELINE, lifeline, &body);
}

/* The same process dials again before we have heard that its connection ended: it closes its old lifeline, then ties a new one (lifeline.c). */
static void test_dials_again(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	tie(&w, 20, 2, 102);
	hello(&w, 12, 2, 102, 1);
	skip_trace(&w);
	world_closed(&w, 20, "closed by peer");
	tie(&w, 21, 2, 102);
	expect(&w, "");
	world_finish(&w);
}

/* A connection breaks, its node is here again at once, and the worker that was given up still runs there: its slot is not free yet. */
static void test_back_with_its_old_worker(void **state)
{
	struct world w;
	Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *list[1] = { &here };
	(void)state;
	training(&w);
	here.job_id = 1;
	here.group = 4;
	here.peer = 6;
	here.view = 1;
	here.ready = true;
	here.pid = 5006;
	world_closed(&w, 2, "reset by peer");
	hello_with(&w, 12, 2, 102, 1, list, 1);
	assert_null(strstr(w.trace, "send c12 start_worker"));
	exited(&w, 12, 1, 6, 0, 15, "");
	assert_non_null(strstr(w.trace, "send c12 start_worker"));
	world_finish(&w);
}

static void join(struct world *w, uint64_t conn)
{
	Traind__Peer__JoinGroup body = TRAIND__PEER__JOIN_GROUP__INIT;
	body.name = (char *)(uintptr_t) "g";
	body.size = 2;
	body.address = (char *)(uintptr_t) "127.0.0.1:9000";
	MESSAGE(w, conn, JOIN_GROUP, join_group, &body);
}

/* memberd stood still while a process asked to join: that process dials again, and asks again. It is one peer. */
static void test_joins_again_while_its_join_is_logged(void **state)
{
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 1, 0, 101, 0);
	heartbeat(&w, 1);
	world_tick(&w, 13000);
	w.hold = true;
	join(&w, 1);
	world_closed(&w, 1, "closed by peer");
	hello(&w, 2, 1, 101, 0);
	join(&w, 2);
	w.hold = false;
	world_apply(&w);
	assert_non_null(strstr(w.trace, "append peer_moved p3 lost: its process joins again"));
	assert_non_null(strstr(w.trace, "send c2 group_joined g group 2 p4"));
	world_finish(&w);
}

static void expect_last_event(struct world *w, const char *text, unsigned restarts)
{
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	assert_non_null(strstr(job->events[job->n_events - 1]->text, text));
	assert_int_equal(job->restarts, restarts);
	traind__v1__job__free_unpacked(job, NULL);
}

/* It says why it ended all, before its process ends: the job waits for that. By then it is queued again; figures are of a run that is over then, words
 * are not. */
enum how { EXITS, IS_CUT_OFF, HANGS };

static void says_why(enum how how)
{
	struct world w;
	training(&w);
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	figures.step = 30;
	figures.loss = 2.5;
	figures.val_loss = figures.first_loss = NAN;
	figures.checkpoint = (char *)(uintptr_t) "/tmp/c/step-00000020";
	body.job_id = 1;
	body.peer = 5;
	body.progress = &figures;
	MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
	for (uint64_t c = 2; c <= 3; c++)
		world_closed(&w, c, "reset by peer");
	Traind__Peer__PeerFailed failed = TRAIND__PEER__PEER_FAILED__INIT;
	failed.group = 4;
	failed.peer = 5;
	failed.reason = (char *)(uintptr_t) "round 31: peers hold different results";
	MESSAGE(&w, 1, PEER_FAILED, peer_failed, &failed);
	body.progress = NULL;
	body.event = (char *)(uintptr_t) "round 31: peer 5 held other parameters";
	MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
	expect_last_event(&w, body.event, 0);
	if (how == EXITS)
		exited(&w, 1, 1, 5, 1, 0, "");
	else if (how == IS_CUT_OFF)
		world_closed(&w, 1, "reset by peer");
	for (unsigned s = 0; how == HANGS && s < 14; s++) {
		expect_last_event(&w, s < 13 ? body.event : "goes on from checkpoint",
		    s < 13 ? 0 : 1);
		heartbeat(&w, 1);
		world_tick(&w, 1000);
	}
	expect_last_event(&w, "goes on from checkpoint", 1);
	if (how == IS_CUT_OFF) {
		world_finish(&w);
		return;
	}
	figures.step = 31;
	body.progress = &figures;
	MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
	expect_last_event(&w, body.event, 1);
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->progress->step, 20);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void test_who_gave_up_says_why(void **state)
{
	(void)state;
	says_why(EXITS);
	says_why(IS_CUT_OFF);
	says_why(HANGS);
}

/* More than one message may hold, from all members at once, as after an hour without memberd: each record is in the log once, in entries that it takes. */
#define OLD_ROUNDS   16384u
#define LATE_MEMBERS 250u

static size_t largest_entry;

static void look_at_entries(struct world *w, const struct membership_action *a)
{
	(void)w;
	if (a->kind != MEMBERSHIP_DO_APPEND)
		return;
	size_t bytes = traind__peer__log_entry__get_packed_size(a->entry);
	largest_entry = bytes > largest_entry ? bytes : largest_entry;
}

static void commit_many(struct world *w, uint64_t conn, uint64_t peer, uint64_t from, size_t count)
{
	static uint64_t contributors[LATE_MEMBERS];
	Traind__Peer__RoundCommits body = TRAIND__PEER__ROUND_COMMITS__INIT;
	Traind__Peer__RoundCommit *rows = calloc(count, sizeof(*rows));
	Traind__Peer__RoundCommit **list = calloc(count, sizeof(Traind__Peer__RoundCommit *));
	assert_non_null(rows);
	assert_non_null(list);
	for (size_t i = 0; i < LATE_MEMBERS; i++)
		contributors[i] = 5 + i;
	for (size_t i = 0; i < count; i++) {
		traind__peer__round_commit__init(&rows[i]);
		rows[i].round = from + i;
		rows[i].view = rows[i].attempt = 1;
		rows[i].contributors = contributors;
		rows[i].n_contributors = LATE_MEMBERS;
		rows[i].digest_low = rows[i].digest_high = UINT64_MAX - i;
		list[i] = &rows[i];
	}
	body.group = 4;
	body.peer = peer;
	body.rounds = list;
	body.n_rounds = count;
	MESSAGE(w, conn, ROUND_COMMITS, round_commits, &body);
	free(rows);
	free(list);
}

static void test_many_records_of_all_members_at_once(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	largest_entry = 0;
	w.on_action = look_at_entries;
	w.hold = true;
	for (uint64_t from = 1; from < OLD_ROUNDS; from += TR_RECORDS_BATCH)
		for (uint64_t c = 1; c <= 3; c++)
			commit_many(&w, c, 4 + c, from, TR_RECORDS_BATCH);
	world_apply(&w);
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->rounds->recorded, OLD_ROUNDS);
	traind__v1__job__free_unpacked(job, NULL);
	assert_true(largest_entry <= TR_FRAME_CONTROL_MAX);
	size_t entries = 0, records = 0;
	for (size_t i = 0; i < w.log_count; i++) {
		Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL, w.log[i].size,
		    w.log[i].data);
		if (entry->body_case == TRAIND__PEER__LOG_ENTRY__BODY_ROUNDS) {
			entries++;
			records += entry->rounds->n_rounds;
		}
		traind__peer__log_entry__free_unpacked(entry, NULL);
	}
	assert_int_equal(records, OLD_ROUNDS); /* none twice */
	assert_true(entries > 1);
	world_finish(&w);
}

/* So many that they take several entries, and then every node is lost: what was told before counts, though the job goes on from a checkpoint. */
static void test_many_records_before_all_are_lost(void **state)
{
	const uint64_t rounds = 4 * TR_RECORDS_BATCH;
	struct world w;
	(void)state;
	training(&w);
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	figures.step = rounds;
	figures.checkpoint = (char *)(uintptr_t) "/tmp/c/step-00008000";
	body.job_id = 1;
	body.peer = 5;
	body.progress = &figures;
	MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
	w.hold = true;
	for (uint64_t from = 1; from < rounds; from += TR_RECORDS_BATCH)
		commit_many(&w, 1, 5, from, TR_RECORDS_BATCH);
	for (uint64_t c = 1; c <= 3; c++)
		world_closed(&w, c, "reset by peer");
	w.hold = false;
	world_apply(&w);
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	assert_int_equal(job->rounds->recorded, rounds);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* A job is cancelled and its workers end, while memberd stands still. Their ends wait in its sockets: it reads them before it says that they did not come. */
static void test_ends_while_it_stood_still(void **state)
{
	struct world w;
	struct membership_event cancel = { .kind = MEMBERSHIP_CANCEL, .request = 9, .job = 1 };
	(void)state;
	training(&w);
	for (uint64_t c = 1; c <= 3; c++)
		heartbeat(&w, c);
	world_tick(&w, 250);
	world_step(&w, &cancel);
	w.now += 60000;
	for (uint64_t c = 1; c <= 3; c++) {
		heartbeat(&w, c);
		exited(&w, c, 1, 4 + c, 0, 15, "");
	}
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED);
	for (size_t i = 0; i < job->n_peers; i++)
		assert_non_null(strstr(job->peers[i]->reason, "signal 15"));
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* Processes that link the library are nodes without slots, and come and go by the dozen. A traind that went before them is known all the same: by
 * its number, which a planned job may wait for. */
static void test_a_lost_traind_among_many_short_processes(void **state)
{
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 1, 0, 101, 1);
	world_closed(&w, 1, "reset by peer");
	for (uint64_t i = 0; i < 200; i++) {
		world_tick(&w, 250);
		hello(&w, 2 + i % 100, 0, 1000 + i, 0);
		world_closed(&w, 2 + i % 100, "it left");
		skip_trace(&w);
	}
	Traind__V1__ListNodesResponse *nodes = membership_nodes(w.m, w.now);
	assert_int_equal(nodes->nodes[0]->id, 1);
	assert_string_equal(nodes->nodes[0]->reason, "its connection closed: reset by peer");
	assert_in_range(nodes->n_nodes, 2, 66); /* and of the others the newest */
	assert_int_equal(nodes->nodes[nodes->n_nodes - 1]->id, 201);
	traind__v1__list_nodes_response__free_unpacked(nodes, NULL);
	hello(&w, 1, 1, 102, 1); /* its machine is up again */
	assert_int_equal(w.last[1]->body_case, TRAIND__PEER__TO_NODE__BODY_WELCOME);
	assert_int_equal(w.last[1]->welcome->node_id, 1);
	world_finish(&w);
}

/* memberd lost its log, and nodes that had numbers of that one come in as they find it. */
static void test_a_number_of_an_earlier_log_is_anothers_now(void **state)
{
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 3, 2, 103, 1); /* it was n2 */
	expect(&w,
	    "append node_seen n1\n"
	    "send c3 welcome n1\n");
	hello(&w, 1, 1, 101, 1); /* it was n1 */
	expect(&w, "");
	world_tick(&w, 250);
	heartbeat(&w, 3);
	world_tick(&w, 250);
	expect(&w,
	    "append node_seen n2\n"
	    "send c1 welcome n2\n");
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_number_of_an_earlier_log_is_anothers_now),
		cmocka_unit_test(test_records_behind_a_failed_append),
		cmocka_unit_test(test_many_records_of_all_members_at_once),
		cmocka_unit_test(test_many_records_before_all_are_lost),
		cmocka_unit_test(test_ends_while_it_stood_still),
		cmocka_unit_test(test_a_lost_traind_among_many_short_processes),
		cmocka_unit_test(test_ends_that_come_soon),
		cmocka_unit_test(test_ends_that_come_late),
		cmocka_unit_test(test_who_gave_up_says_why),
		cmocka_unit_test(test_dials_again),
		cmocka_unit_test(test_back_with_its_old_worker),
		cmocka_unit_test(test_joins_again_while_its_join_is_logged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
