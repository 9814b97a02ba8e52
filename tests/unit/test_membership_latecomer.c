/* A place that is free late in a job of whole models without ranks, or of replicas that train apart: whether it gets a worker, and what events say of it. */
#include "tests/unit/membership_harness.h"

#define STARTS_MS 2000

static void beat_all(struct world *w)
{
	for (uint64_t c = 1; c <= 4; c++)
		heartbeat(w, c);
	world_tick(w, 250);
}

static void pass(struct world *w, uint64_t ms)
{
	for (uint64_t end = w->now + ms; w->now < end;)
		beat_all(w);
}

static void commit(struct world *w, uint64_t conn, uint64_t peer, size_t peers)
{
	uint64_t contributors[] = { 6, 7, 8, 9 };
	Traind__Peer__RoundCommits body = TRAIND__PEER__ROUND_COMMITS__INIT;
	Traind__Peer__RoundCommit row = TRAIND__PEER__ROUND_COMMIT__INIT, *rows[1] = { &row };
	row.round = row.view = row.attempt = 1;
	row.samples = 12;
	row.contributors = contributors;
	row.n_contributors = peers;
	body.group = 5;
	body.peer = peer;
	body.rounds = rows;
	body.n_rounds = 1;
	MESSAGE(w, conn, ROUND_COMMITS, round_commits, &body);
}

/* Its state is there in no time, unless a test says otherwise. */
static void small(Traind__V1__JobSpec *spec)
{
	static const char *const options[][2] = { { "model.layers", "2" }, { "model.width", "64" },
		{ "model.heads", "2" }, { "train.batch_tokens", "8192" } };
	struct tr_error error = { 0 };
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		assert_int_equal(job_option_set(spec, options[i][0], options[i][1], &error), TR_OK);
}

/* Job 1, group 5, a worker on each of so many of four nodes of one slot, p6 on n1 and so on; each needed two seconds to be ready, and they have trained. */
static void trains(struct world *w, Traind__V1__JobSpec *spec, uint64_t workers)
{
	small(spec);
	world_init(w);
	world_lead(w);
	for (uint64_t c = 1; c <= 4; c++)
		hello(w, c, 0, 100 + c, 1);
	submit(w, 1, "a", spec);
	if (w->reply.status != TR_OK)
		fail_msg("%s", w->reply.text);
	pass(w, STARTS_MS);
	for (uint64_t c = 1; c <= workers; c++)
		ready(w, c, 5, 5 + c, 0);
	for (uint64_t c = 1; c <= workers; c++)
		report(w, c, 5, 5 + c, 1, 0, 0, 0, 0, false, 0, 0);
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	commit(w, 1, 6, workers);
	skip_trace(w);
}

/* Of 100 steps. */
static void at_step(struct world *w, uint64_t step, double takes_s)
{
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress progress = TRAIND__V1__PROGRESS__INIT;
	progress.step = step;
	progress.steps = 100;
	progress.tokens_per_s = 8192 / takes_s;
	body.job_id = 1;
	body.peer = 6;
	body.progress = &progress;
	MESSAGE(w, 1, PEER_REPORT, peer_report, &body);
}

/* The others go on without it, in a view of their own. */
static void kill_worker(struct world *w, uint64_t conn)
{
	Traind__V1__Job *job = membership_job(w->m, 1, false);
	uint64_t view = job->view;
	traind__v1__job__free_unpacked(job, NULL);
	exited(w, conn, 1, 5 + conn, 0, 9, "");
	for (uint64_t c = 1; c <= 4; c++) {
		const Traind__Peer__ToNode *told = w->last[c];
		if (c != conn && told != NULL &&
		    told->body_case == TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE)
			report(w, c, 5, 5 + c, told->view_propose->number, view, 1, 2, view, false,
			    0, 0);
	}
	pass(w, 1000);
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
}

static bool placed(struct world *w)
{
	bool found = strstr(w->trace, "job_planned") != NULL;
	skip_trace(w);
	return found;
}

/* How many events begin with "the place on"; the newest is put into `text`. */
static unsigned said(const struct world *w, char text[TR_ERROR_TEXT_MAX])
{
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	unsigned count = 0;
	text[0] = '\0';
	for (size_t i = 0; i < job->n_events; i++) {
		if (strncmp(job->events[i]->text, "the place on", 12) != 0)
			continue;
		count++;
		(void)snprintf(text, TR_ERROR_TEXT_MAX, "%s", job->events[i]->text);
	}
	traind__v1__job__free_unpacked(job, NULL);
	return count;
}

static bool reason_has(const struct world *w, const char *text)
{
	Traind__V1__Job *job = membership_job(w->m, 1, false);
	bool has = strstr(job->reason, text) != NULL;
	traind__v1__job__free_unpacked(job, NULL);
	return has;
}

/* 0.1 s a step of three is 0.15 s of two: 14 of these are over in 2.1 s, and whoever has started by then has to get its state in a round first. */
static void a_place_stays_free_at_the_end(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	at_step(&w, 86, 0.1);
	kill_worker(&w, 3);
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 1);
	assert_string_equal(strtok(text, ","), "the place on node-3 stays free: 14 steps are left");
	assert_non_null(strstr(strtok(NULL, "\n"), "2.1 s, and a worker needs 2"));
	assert_true(reason_has(&w, "goes on with fewer peers: the place on node-3 stays free: 14"));
	at_step(&w, 90, 0.1);
	pass(&w, 20000);
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 1);
	assert_int_equal(job_state(&w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING);
	world_finish(&w);
}

static void a_place_is_taken_before(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	at_step(&w, 83, 0.1);
	kill_worker(&w, 3);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 0);
	world_finish(&w);
}

static void asked_again_when_another_is_lost(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	at_step(&w, 90, 0.1);
	kill_worker(&w, 3);
	assert_int_equal(said(&w, text), 1);
	at_step(&w, 90, 0.15);
	kill_worker(&w, 2); /* ten steps of 0.3 s */
	assert_int_equal(said(&w, text), 2);
	assert_non_null(strstr(text, "is taken after all: 10 steps are left, 3 s, and a worker"));
	assert_true(placed(&w));
	world_finish(&w);
}

static void another_place_stays_free_too(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	at_step(&w, 99, 0.1);
	kill_worker(&w, 3);
	at_step(&w, 99, 0.15);
	kill_worker(&w, 2);
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 2);
	assert_non_null(strstr(text, "stays free: 1 steps are left, 0.3 s"));
	world_finish(&w);
}

static void asked_again_when_training_goes_back(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	at_step(&w, 90, 0.1);
	kill_worker(&w, 3);
	at_step(&w, 88, 0.1);
	pass(&w, 1000);
	assert_false(placed(&w));
	at_step(&w, 20, 0.1);
	pass(&w, 1000);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 2);
	assert_non_null(strstr(text, "is taken after all: 80 steps are left"));
	pass(&w, 1000);
	assert_false(placed(&w)); /* it is on its way */
	assert_int_equal(said(&w, text), 2);
	world_finish(&w);
}

static void asked_again_when_steps_are_longer(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	at_step(&w, 90, 0.1);
	kill_worker(&w, 3);
	at_step(&w, 91, 1);
	pass(&w, 1000);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 2);
	world_finish(&w);
}

/* Before it has trained, while memberd knows no steps, and after memberd was restarted nothing says that it does not pay. */
static void what_is_not_known_is_no_reason(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	kill_worker(&w, 3);
	assert_true(placed(&w));
	world_finish(&w);

	trains(&w, native_spec(3), 3);
	at_step(&w, 99, 0.1);
	kill_worker(&w, 3);
	assert_false(placed(&w));
	world_restart(&w);
	world_lead(&w);
	for (uint64_t c = 1; c <= 4; c++) {
		Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *rows[1] = { &here };
		here.job_id = 1, here.group = 5, here.peer = 5 + c;
		here.view = 1, here.ready = true;
		hello_with(&w, c, c, 100 + c, 1, rows, c <= 2 ? 1 : 0);
	}
	pass(&w, 1000);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 1);
	world_finish(&w);
}

/* On two nodes of three that it needs it would stand still. */
static void who_is_needed_is_taken(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	Traind__V1__JobSpec *spec = native_spec(3);
	spec->mesh->min_nodes = 3;
	trains(&w, spec, 3);
	at_step(&w, 99, 0.1);
	kill_worker(&w, 3);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 0);
	world_finish(&w);
}

/* They decide themselves when it is to work. */
static void workers_with_ranks_take_who_comes(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	Traind__V1__JobSpec *spec = native_spec(3);
	spec->mesh->zero_owners = 2;
	spec->mesh->threads = 1;
	trains(&w, spec, 3);
	at_step(&w, 99, 0.1);
	kill_worker(&w, 3);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 0);
	world_finish(&w);
}

static Traind__V1__JobSpec *rare_spec(uint32_t workers, uint32_t tp)
{
	Traind__V1__JobSpec *spec = native_spec(workers);
	struct tr_error error = { 0 };
	assert_int_equal(job_option_set(spec, "sync.mode", "diloco", &error), TR_OK);
	assert_int_equal(job_option_set(spec, "sync.inner_steps", "20", &error), TR_OK);
	spec->mesh->threads = 1;
	spec->mesh->tp = tp;
	return spec;
}

/* 0.15 s a step of who is left: it enters 13 steps later, and trains from the second merge behind that on. */
static void whole_models_that_merge(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, rare_spec(3, 0), 3);
	at_step(&w, 40, 0.1);
	kill_worker(&w, 3);
	assert_true(placed(&w));
	world_finish(&w);
	trains(&w, rare_spec(3, 0), 3);
	at_step(&w, 60, 0.1);
	kill_worker(&w, 3);
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 1);
	assert_non_null(strstr(text, "stays free: 40 steps are left, 6 s, and a worker needs 2"));
	assert_non_null(strstr(text, "; it trains from the second merge after that on"));
	world_finish(&w);
}

/* One of a replica of two; with one more lost there is no whole replica, and somebody has to come. */
static void replicas_that_train_apart(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, rare_spec(4, 2), 4);
	at_step(&w, 40, 0.2); /* 0.4 s of one replica */
	kill_worker(&w, 4);
	assert_true(placed(&w));
	world_finish(&w);
	trains(&w, rare_spec(4, 2), 4);
	at_step(&w, 60, 0.2);
	kill_worker(&w, 4);
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 1);
	assert_non_null(strstr(text, "stays free: 40 steps are left, 16 s, and a worker needs 2"));
	kill_worker(&w, 3); /* the other replica is whole */
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 1);
	kill_worker(&w, 2);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 2);
	assert_non_null(strstr(text, "is taken after all: the job does not go on without it"));
	world_finish(&w);
}

static void answer_measuring(struct world *w, uint64_t conn, double bytes_per_s)
{
	Traind__Peer__LinkMeasured body = TRAIND__PEER__LINK_MEASURED__INIT;
	assert_int_equal(w->last[conn]->body_case, TRAIND__PEER__TO_NODE__BODY_MEASURE_LINK);
	body.measurement = w->last[conn]->measure_link->measurement;
	body.round_trip_s = 0.001;
	body.there_bytes_per_s = body.back_bytes_per_s = bytes_per_s;
	MESSAGE(w, conn, LINK_MEASURED, link_measured, &body);
}

/* A state takes a second over the way to node 4, and to another one so many. */
static void measure(struct world *w, double others_s)
{
	Traind__V1__MeasureLinksRequest wish = TRAIND__V1__MEASURE_LINKS_REQUEST__INIT;
	struct membership_event event = { .kind = MEMBERSHIP_MEASURE,
		.request = 9,
		.measure = &wish };
	Traind__V1__Job *job = membership_job(w->m, 1, false);
	double bytes = 12.0 * (double)job_parameters(job->spec);
	traind__v1__job__free_unpacked(job, NULL);
	world_step(w, &event);
	while (w->reply.request != 9)
		for (uint64_t c = 1; c <= 4; c++) {
			const Traind__Peer__ToNode *told = w->last[c];
			if (told == NULL ||
			    told->body_case != TRAIND__PEER__TO_NODE__BODY_MEASURE_LINK)
				continue;
			bool near = c == 4 ||
			    strstr(told->measure_link->address, "10.0.0.4") != NULL;
			answer_measuring(w, c, near ? bytes : bytes / others_s);
		}
	skip_trace(w);
}

/* There is time enough, but all would wait for a state that comes over such links for longer than it saves. */
static void a_state_may_cost_more_than_it_saves(void **state)
{
	for (unsigned slow = 0; slow < 2; slow++) {
		(void)state;
		struct world w;
		char text[TR_ERROR_TEXT_MAX];
		trains(&w, native_spec(3), 3);
		measure(&w, slow ? 60 : 1);
		at_step(&w, 20, 0.1);
		kill_worker(&w, 3);
		assert_int_equal(placed(&w), !slow);
		assert_int_equal(said(&w, text), slow);
		assert_true(!slow || strstr(text, "stays free: when it works 65 steps are left"));
		world_finish(&w);
	}
}

static void asked_again_when_another_node_has_it_sooner(void **state)
{
	(void)state;
	struct world w;
	char text[TR_ERROR_TEXT_MAX];
	trains(&w, native_spec(3), 3);
	measure(&w, 60);
	at_step(&w, 20, 0.1);
	kill_worker(&w, 3);
	assert_false(placed(&w));
	assert_int_equal(said(&w, text), 1);
	assert_non_null(strstr(text, "the place on node-3 stays free: when it works 65 steps"));
	world_closed(&w, 3, "closed by peer");
	pass(&w, 1000);
	assert_true(placed(&w));
	assert_int_equal(said(&w, text), 2);
	assert_non_null(strstr(text, "the place on node-4 is taken after all"));
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_stays_free_at_the_end),
		cmocka_unit_test(a_place_is_taken_before),
		cmocka_unit_test(asked_again_when_another_is_lost),
		cmocka_unit_test(another_place_stays_free_too),
		cmocka_unit_test(asked_again_when_training_goes_back),
		cmocka_unit_test(asked_again_when_steps_are_longer),
		cmocka_unit_test(what_is_not_known_is_no_reason),
		cmocka_unit_test(who_is_needed_is_taken),
		cmocka_unit_test(workers_with_ranks_take_who_comes),
		cmocka_unit_test(whole_models_that_merge),
		cmocka_unit_test(replicas_that_train_apart),
		cmocka_unit_test(a_state_may_cost_more_than_it_saves),
		cmocka_unit_test(asked_again_when_another_node_has_it_sooner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
