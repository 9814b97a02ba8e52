/* What becomes of a job when workers die or finish, the records of its rounds, twins, and library groups. */
#include <math.h>

#include "tests/unit/membership_harness.h"

static void test_dies_at_once_three_times(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "a", native_spec(1));
	skip_trace(&w);
	uint64_t peer = 5;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
		uint64_t conn = 0;
		for (uint64_t c = 1; c <= 3; c++)
			if (w.last[c] != NULL &&
			    w.last[c]->body_case == TRAIND__PEER__TO_NODE__BODY_START_WORKER &&
			    w.last[c]->start_worker->peer == peer)
				conn = c;
		assert_true(conn != 0);
		exited(&w, conn, 1, peer++, 0, 11, "cannot map the data\n");
		for (int t = 0; t < 40; t++) {
			world_tick(&w, 250);
			for (uint64_t c = 1; c <= 3; c++)
				heartbeat(&w, c);
		}
	}
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED);
	assert_non_null(strstr(job->reason, "3 times in a row"));
	assert_non_null(strstr(job->reason, "killed by signal 11: cannot map the data"));
	assert_non_null(strstr(job->reason, "trainctl logs 1"));
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void progress(struct world *w, uint64_t conn, uint64_t peer, uint64_t step,
    const char *checkpoint)
{
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	figures.step = step;
	figures.steps = 100;
	figures.loss = 2.5;
	figures.val_loss = NAN;
	figures.first_loss = NAN;
	figures.checkpoint = (char *)(uintptr_t)checkpoint;
	body.job_id = 1;
	body.peer = peer;
	body.progress = &figures;
	MESSAGE(w, conn, PEER_REPORT, peer_report, &body);
}

struct rows {
	Traind__Peer__RoundCommit row[64], *list[64];
	size_t count;
};

static void rows_fill(struct rows *rows, uint64_t first, uint64_t last, uint64_t digest)
{
	static uint64_t contributors[] = { 5, 6, 7 };
	assert_true(last - first < 64);
	rows->count = last - first + 1;
	for (uint64_t round = first; round <= last; round++) {
		Traind__Peer__RoundCommit *row = &rows->row[round - first];
		traind__peer__round_commit__init(row);
		row->round = round;
		row->view = row->attempt = 1;
		row->samples = 12;
		row->contributors = contributors;
		row->n_contributors = 3;
		row->digest_low = digest + round;
		rows->list[round - first] = row;
	}
}

static void commit(struct world *w, uint64_t conn, uint64_t peer, uint64_t first, uint64_t last,
    uint64_t digest)
{
	Traind__Peer__RoundCommits body = TRAIND__PEER__ROUND_COMMITS__INIT;
	struct rows rows;
	rows_fill(&rows, first, last, digest);
	body.group = 4;
	body.peer = peer;
	body.rounds = rows.list;
	body.n_rounds = rows.count;
	MESSAGE(w, conn, ROUND_COMMITS, round_commits, &body);
}

/* A worker that ends well and leaves rounds, a figure and an event behind. */
static void exited_with_words(struct world *w, uint64_t conn, uint64_t peer, uint64_t first,
    uint64_t last)
{
	Traind__Peer__WorkerExited body = TRAIND__PEER__WORKER_EXITED__INIT;
	Traind__Peer__LastWords words = TRAIND__PEER__LAST_WORDS__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	char event[] = "a disk was full", checkpoint[] = "/tmp/c/step-00000100",
	     *events[] = { event };
	struct rows rows;
	rows_fill(&rows, first, last, 0);
	figures.step = figures.steps = 100;
	figures.loss = 1.5;
	figures.val_loss = figures.first_loss = NAN;
	figures.checkpoint = checkpoint;
	words.rounds = rows.list;
	words.n_rounds = rows.count;
	words.progress = &figures;
	words.events = events;
	words.n_events = 1;
	body.job_id = 1;
	body.peer = peer;
	body.last_words = &words;
	MESSAGE(w, conn, WORKER_EXITED, worker_exited, &body);
}

static void account_is(struct world *w, uint64_t committed, uint64_t recorded, uint64_t samples)
{
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	assert_int_equal(job->rounds->committed, committed);
	assert_int_equal(job->rounds->recorded, recorded);
	assert_int_equal(job->rounds->samples, samples);
	traind__v1__job__free_unpacked(job, NULL);
}

static void test_records(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	commit(&w, 1, 5, 1, 3, 0);
	expect(&w,
	    "append rounds x3\n"
	    "send c1 rounds_recorded 3\n");
	commit(&w, 1, 5, 2, 4, 0); /* again, after a reconnect */
	expect(&w,
	    "append rounds x1\n"
	    "send c1 rounds_recorded 4\n");
	commit(&w, 2, 6, 1, 4, 0);
	expect(&w, "send c2 rounds_recorded 4\n");
	account_is(&w, 4, 4, 48);
	commit(&w, 2, 6, 4, 4, 77); /* another result for round 4 */
	account_is(&w, 4, 4, 48);
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_non_null(strstr(job->events[job->n_events - 1]->text, "CONTRADICTION: round 4"));
	traind__v1__job__free_unpacked(job, NULL);
	skip_trace(&w);
	commit(&w, 2, 5, 5, 5, 0); /* p5 is not on that node */
	expect(&w, "");
	world_finish(&w);
}

/* All are lost: from the newest checkpoint, rounds after it never were. */
static void test_all_lost_with_checkpoint(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	commit(&w, 1, 5, 1, 30, 0);
	progress(&w, 1, 5, 30, "/tmp/c/step-00000020");
	account_is(&w, 30, 30, 360);
	for (uint64_t c = 1; c <= 3; c++)
		world_closed(&w, c, "reset by peer");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	world_restart(&w);
	world_lead(&w);
	world_forget(&w);
	for (uint64_t c = 11; c <= 13; c++)
		hello(&w, c, 0, 100 + c, 1);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
	uint64_t group = 0, peers[3];
	for (uint64_t c = 11; c <= 13; c++) {
		const Traind__Peer__StartWorker *start = w.last[c]->start_worker;
		assert_string_equal(start->spec->train->checkpoint->resume, "/tmp/c/step-00000020");
		assert_int_equal(start->restarts, 1);
		assert_true(start->group != 4);
		group = start->group;
		peers[c - 11] = start->peer;
	}
	for (uint64_t c = 11; c <= 13; c++)
		ready(&w, c, group, peers[c - 11], 20);
	for (uint64_t c = 11; c <= 13; c++)
		report(&w, c, group, peers[c - 11], 1, 0, 0, 0, 0, false, 0, 0);
	assert_int_equal(w.install[11]->view_install->resume->base_round, 21);
	account_is(&w, 20, 20, 240);
	world_finish(&w);
}

/* A worker that comes later is told the checkpoint that its run began with, not the newest, also by a memberd that read that in a snapshot. */
static void test_replacement_after_a_restart(void **state)
{
	struct world w;
	uint64_t group = 0, peers[3];
	(void)state;
	training(&w);
	commit(&w, 1, 5, 1, 30, 0);
	progress(&w, 1, 5, 30, "/tmp/c/step-00000020");
	for (uint64_t c = 1; c <= 3; c++)
		world_closed(&w, c, "reset by peer");
	for (uint64_t c = 11; c <= 13; c++)
		hello(&w, c, 0, 100 + c, 1);
	for (uint64_t c = 11; c <= 13; c++) {
		group = w.last[c]->start_worker->group;
		peers[c - 11] = w.last[c]->start_worker->peer;
	}
	for (uint64_t c = 11; c <= 13; c++)
		ready(&w, c, group, peers[c - 11], 20);
	progress(&w, 11, peers[0], 40, "/tmp/c/step-00000040");
	world_closed(&w, 12, "reset by peer");
	hello(&w, 21, 0, 121, 1);
	const Traind__Peer__StartWorker *start = w.last[21]->start_worker;
	assert_string_equal(start->spec->train->checkpoint->resume, "/tmp/c/step-00000020");
	for (unsigned restored = 0; restored < 2; restored++) {
		Traind__Peer__Snapshot *snapshot = membership_snapshot(w.m);
		assert_string_equal(snapshot->jobs[0]->goes_on_from, "/tmp/c/step-00000020");
		assert_non_null(strstr(snapshot->jobs[0]->job->progress->checkpoint, "40"));
		struct membership_event event = { .kind = MEMBERSHIP_RESTORED,
			.snapshot = snapshot };
		world_step(&w, &event);
		traind__peer__snapshot__free_unpacked(snapshot, NULL);
	}
	world_finish(&w);
}

static void test_all_lost_without_checkpoint(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	commit(&w, 1, 5, 1, 3, 0);
	for (uint64_t c = 1; c <= 3; c++)
		world_closed(&w, c, "reset by peer");
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED);
	assert_non_null(strstr(job->reason, "no checkpoint yet"));
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* The reason is what the last holder said, though others are listed behind it and one that waits to enter ends after it. */
static void test_last_holder_says_what_is_lost(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	commit(&w, 1, 5, 1, 3, 0);
	world_closed(&w, 3, "reset by peer");
	world_closed(&w, 1, "reset by peer");
	hello(&w, 4, 0, 104, 1);
	exited(&w, 2, 1, 6, 1, 0, "trainworker: no worker is left that holds h.0");
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED);
	assert_int_equal(job->n_peers, 4);
	assert_string_equal(job->peers[3]->reason, "every peer that held the state was lost");
	assert_non_null(strstr(job->reason, "no worker is left that holds h.0"));
	assert_non_null(strstr(job->reason, "the last on node-2"));
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void test_end_of_a_native_job(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	exited(&w, 1, 1, 5, 0, 0, "");
	exited(&w, 2, 1, 6, 0, 0, "");
	expect(&w,
	    "append peer_moved p5 finished: \n"
	    "append peer_moved p6 finished: \n");
	exited(&w, 3, 1, 7, 0, 0, "");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_DONE);
	world_finish(&w);
}

/* Nothing that happened while memberd was away is lost: it comes with the ends, and again with each of them. */
static void test_last_words(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	w.hold = true;
	exited_with_words(&w, 1, 5, 1, 3);
	exited_with_words(&w, 2, 6, 1, 4);
	exited_with_words(&w, 3, 7, 1, 4);
	expect(&w,
	    "append rounds x3\n"
	    "append job_note\n"
	    "append peer_moved p5 finished: \n"
	    "append job_note\n"
	    "append peer_moved p6 finished: \n"
	    "append job_note\n"
	    "append peer_moved p7 finished: \n");
	w.hold = false;
	world_apply(
	    &w); /* round 4 waited behind the others, and the end of the job behind round 4 */
	account_is(&w, 4, 4, 48);
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_int_equal(job->state, TRAIND__V1__JOB_STATE__JOB_STATE_DONE);
	assert_int_equal(job->progress->step, 100);
	assert_string_equal(job->progress->checkpoint, "/tmp/c/step-00000100");
	size_t told = 0;
	for (size_t i = 0; i < job->n_events; i++)
		told += strcmp(job->events[i]->text, "a disk was full") == 0 ? 1 : 0;
	assert_int_equal(told, 3);
	traind__v1__job__free_unpacked(job, NULL);
	skip_trace(&w);
	exited_with_words(&w, 3, 7, 1, 5); /* after a reconnect: it has ended */
	expect(&w, "");
	account_is(&w, 4, 4, 48);
	world_finish(&w);
}

/* A round whose record is on its way into the log is committed: the view must not give it out again. */
static void test_view_waits_for_records(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	commit(&w, 1, 5, 1, 9, 0);
	skip_trace(&w);
	w.hold = true;
	commit(&w, 1, 5, 10, 10, 0); /* on its way */
	commit(&w, 1, 5, 11, 11, 0); /* waits for that */
	world_closed(&w, 1, "reset by peer");
	for (int i = 0; i < 3; i++)
		world_apply_one(&w); /* 10, the node, its peer */
	skip_trace(&w);
	report(&w, 2, 4, 6, 2, 1, 10, 11, 1, true, 0xff, 0xff);
	report(&w, 3, 4, 7, 2, 1, 10, 11, 1, true, 0xff, 0xff);
	expect(&w, "");
	w.hold = false;
	world_apply(&w);
	assert_int_equal(w.install[2]->view_install->resume->base_round, 12);
	account_is(&w, 11, 11, 132);
	world_finish(&w);
}

/* It was put out while it committed: the others decided without it. */
static void test_records_of_an_ended_peer(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	exited(&w, 1, 1, 5, 0, 9, "");
	skip_trace(&w);
	commit(&w, 1, 5, 1, 3, 0);
	expect(&w, "");
	account_is(&w, 0, 0, 0);
	world_finish(&w);
}

/* One finished, and one died in the last round: the rest finishes without a replacement. */
static void test_death_at_the_end(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 1); /* room for a replacement */
	skip_trace(&w);
	exited(&w, 1, 1, 5, 0, 0, "");
	world_closed(&w, 2, "reset by peer");
	expect(&w,
	    "append peer_moved p5 finished: \n"
	    "append node_gone n2: its connection closed: reset by peer\n"
	    "append peer_moved p6 lost: node node-2 was lost: its connection closed: reset by "
	    "peer\n"
	    "send c3 view_propose 2 to p7\n");
	report(&w, 3, 4, 7, 2, 1, 100, 101, 1, true, 0xff, 0xff);
	exited(&w, 3, 1, 7, 0, 0, "");
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_DONE);
	world_finish(&w);
}

/* A node that comes from another cluster can tell by its new number, even if that one is free here. */
static void test_node_of_another_log(void **state)
{
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 1, 1, 101, 1);
	expect(&w,
	    "append node_seen n2\n"
	    "send c1 welcome n2\n");
	world_finish(&w);
}

static void test_twin(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 12, 2, 999, 1); /* the folder of n2, while n2 runs */
	world_tick(&w, 250);
	expect(&w, "");
	heartbeat(&w, 2);
	world_tick(&w, 250);
	expect(&w,
	    "send c12 refused: node n2 (node-2) is running already as pid 1002 at 10.0.0.2:7000: "
	    "give this one its own folder, or stop that one\n"
	    "close c12: node n2 (node-2) is running already as pid 1002 at 10.0.0.2:7000: give "
	    "this one its own folder, or stop that one\n");
	/* The same again, but now n2 was killed and its connection did not notice: it never says another word. */
	hello(&w, 10, 2, 999, 1);
	world_tick(&w, 250);
	expect(&w, "");
	for (int i = 1; i <= 9; i++) {
		world_tick(&w, 250);
		heartbeat(&w, 1);
		heartbeat(&w, 3);
	}
	expect(&w,
	    "close c2: silent for 2.0 s\n"
	    "append node_gone n2: silent for 2.0 s\n"
	    "append peer_moved p6 lost: node node-2 was lost: silent for 2.0 s\n"
	    "append node_seen n2\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n"
	    "send c10 welcome n2\n"
	    "append job_planned job 1 group 4: p8@n2\n"
	    "send c10 start_worker p8 rank 1/3 local 0/1 node 1/3\n");
	world_finish(&w);
}

static void test_other_state(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "a", native_spec(2));
	ready(&w, 1, 4, 5, 0);
	skip_trace(&w);
	Traind__Peer__PeerReady body = TRAIND__PEER__PEER_READY__INIT;
	body.group = 4;
	body.peer = 6;
	body.state_signature = (char *)(uintptr_t) "w:8192";
	MESSAGE(&w, 2, PEER_READY, peer_ready, &body);
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_string_equal(job->peers[1]->state, "lost");
	assert_string_equal(job->peers[1]->reason,
	    "its state has other names or sizes than that of peer p5 on node-1");
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void test_min_nodes(void **state)
{
	struct world w;
	(void)state;
	Traind__V1__JobSpec *spec = native_spec(3);
	spec->mesh->min_nodes = 2;
	training_with(&w, spec);
	world_closed(&w, 2, "reset by peer");
	report(&w, 1, 4, 5, 2, 1, 3, 3, 1, false, 0, 0);
	report(&w, 3, 4, 7, 2, 1, 3, 3, 1, false, 0, 0);
	skip_trace(&w);
	world_closed(&w, 3, "reset by peer");
	expect(&w,
	    "append node_gone n3: its connection closed: reset by peer\n"
	    "append peer_moved p7 lost: node node-3 was lost: its connection closed: reset by "
	    "peer\n");
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	assert_string_equal(job->reason,
	    "goes on with fewer peers: there is no free slot for a replacement");
	traind__v1__job__free_unpacked(job, NULL);
	hello(&w, 4, 0, 104, 1);
	uint64_t peer = w.last[4]->start_worker->peer;
	skip_trace(&w);
	ready(&w, 4, 4, peer, 0);
	expect(&w,
	    "send c1 view_propose 3 to p5,p9\n"
	    "send c4 view_propose 3 to p5,p9\n");
	world_finish(&w);
}

static void join(struct world *w, uint64_t conn, const char *name, uint32_t size)
{
	Traind__Peer__JoinGroup body = TRAIND__PEER__JOIN_GROUP__INIT;
	body.name = (char *)(uintptr_t)name;
	body.size = size;
	body.address = (char *)(uintptr_t) "127.0.0.1:9000";
	MESSAGE(w, conn, JOIN_GROUP, join_group, &body);
}

/* A view that does not fit into the log is not tried for ever: the group ends, and the reason says what to do. */
static void test_view_too_large(void **state)
{
	struct world w;
	static uint8_t bits[TR_OP_SEGMENTS_MAX / 8];
	static Traind__Peer__OpReport ops[64], *list[64];
	(void)state;
	training(&w);
	world_closed(&w, 2, "reset by peer");
	memset(bits, 0xff, sizeof(bits));
	for (uint32_t i = 0; i < 64; i++) {
		traind__peer__op_report__init(&ops[i]);
		ops[i].tag = i + 1;
		ops[i].segments = TR_OP_SEGMENTS_MAX;
		ops[i].sealed = ops[i].whole = (ProtobufCBinaryData){ .len = sizeof(bits),
			.data = bits };
		list[i] = &ops[i];
	}
	skip_trace(&w);
	for (uint64_t peer = 5; peer <= 7; peer += 2) {
		Traind__Peer__ViewReport body = TRAIND__PEER__VIEW_REPORT__INIT;
		body.group = 4;
		body.peer = peer;
		body.proposal = 2;
		body.view = 1;
		body.committed_round = 2;
		body.begun_round = 3;
		body.attempt = 1;
		body.closed = true;
		body.ops = list;
		body.n_ops = 64;
		MESSAGE(&w, peer == 5 ? 1 : 3, VIEW_REPORT, view_report, &body);
	}
	assert_non_null(
	    strstr(w.trace, "append peer_moved p7 lost: who holds which segment takes "));
	assert_non_null(strstr(w.trace, " KiB to say, more than 4032: use fewer, larger segments"));
	assert_null(strstr(w.trace, "append view "));
	world_finish(&w);
}

static void test_library_group(void **state)
{
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	w.hold = true;
	hello(&w, 1, 0, 101, 0);
	join(&w, 1, "g", 2); /* before the welcome */
	w.hold = false;
	world_apply(&w);
	hello(&w, 2, 0, 102, 0);
	join(&w, 2, "g", 2);
	expect(&w,
	    "append node_seen n1\n"
	    "send c1 welcome n1\n"
	    "append group_founded\n"
	    "append job_planned job 0 group 2: p3@n1\n"
	    "send c1 group_joined g group 2 p3\n"
	    "append node_seen n4\n"
	    "send c2 welcome n4\n"
	    "append job_planned job 0 group 2: p5@n4\n"
	    "send c2 group_joined g group 2 p5\n");
	ready(&w, 1, 2, 3, 0);
	ready(&w, 2, 2, 5, 0);
	expect(&w,
	    "append view_proposed 17\n"
	    "send c1 view_propose 1 to p3,p5\n"
	    "send c2 view_propose 1 to p3,p5\n");
	report(&w, 1, 2, 3, 1, 0, 0, 0, 0, false, 0, 0);
	report(&w, 2, 2, 5, 1, 0, 0, 0, 0, false, 0, 0);
	assert_string_equal(w.install[1]->view_install->view->peers[0]->address, "127.0.0.1:9000");
	skip_trace(&w);
	Traind__Peer__LeaveGroup leave = TRAIND__PEER__LEAVE_GROUP__INIT;
	leave.group = 2;
	leave.peer = 3;
	MESSAGE(&w, 1, LEAVE_GROUP, leave_group, &leave);
	expect(&w,
	    "append peer_moved p3 finished: it left\n"
	    "send c2 view_propose 2 to p5\n");
	world_closed(&w, 2, "reset by peer");
	skip_trace(&w);
	/* Nobody is left: the name begins anew. */
	join(&w, 1, "g", 1);
	expect(&w,
	    "append group_founded\n"
	    "append job_planned job 0 group 6: p7@n1\n"
	    "send c1 group_joined g group 6 p7\n");
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dies_at_once_three_times),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_all_lost_with_checkpoint),
		cmocka_unit_test(test_replacement_after_a_restart),
		cmocka_unit_test(test_all_lost_without_checkpoint),
		cmocka_unit_test(test_last_holder_says_what_is_lost),
		cmocka_unit_test(test_end_of_a_native_job),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_view_waits_for_records),
		cmocka_unit_test(test_records_of_an_ended_peer),
		cmocka_unit_test(test_death_at_the_end),
		cmocka_unit_test(test_node_of_another_log),
		cmocka_unit_test(test_twin),
		cmocka_unit_test(test_other_state),
		cmocka_unit_test(test_min_nodes),
		cmocka_unit_test(test_view_too_large),
		cmocka_unit_test(test_library_group),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
