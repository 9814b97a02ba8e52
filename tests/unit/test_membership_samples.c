/* Accounts of samples at memberd: the newest counts, it survives a restart, one that is not in order does no harm, what the restart of a job takes back
 * is said; and the rows that people see are what a mark for each sample gives. */
#include "tests/unit/membership_harness.h"

#include "common/rng.h"

enum { ROWS = 8 };

struct account {
	Traind__V1__SampleAccount base;
	Traind__V1__SampleRange rows[3 * ROWS], *places[3 * ROWS];
};

static void account_init(struct account *a, uint32_t run, uint64_t round, uint64_t given)
{
	traind__v1__sample_account__init(&a->base);
	a->base.run = run;
	a->base.round = round;
	a->base.per_epoch = 100;
	a->base.given = given;
	a->base.held = a->places;
	a->base.returned = a->places + ROWS;
	a->base.dropped = a->places + (size_t)2 * ROWS;
	for (size_t i = 0; i < (size_t)3 * ROWS; i++) {
		traind__v1__sample_range__init(&a->rows[i]);
		a->places[i] = &a->rows[i];
	}
}

static void range(Traind__V1__SampleRange **rows, size_t *count, uint64_t from, uint64_t to)
{
	rows[*count]->from = from;
	rows[*count]->to = to;
	rows[*count]->count = to - from;
	(*count)++;
}

static void say(struct world *w, uint64_t conn, uint64_t peer, struct account *a)
{
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	body.job_id = 1;
	body.peer = peer;
	body.samples = &a->base;
	MESSAGE(w, conn, PEER_REPORT, peer_report, &body);
}

static void shows(struct world *w, size_t row, uint64_t counted, uint64_t in_flight,
    uint64_t dropped, uint64_t left)
{
	Traind__V1__Samples *samples = membership_samples(w->m, 1);
	assert_true(samples->known && samples->n_epochs > row);
	assert_int_equal(samples->epochs[row]->counted, counted);
	assert_int_equal(samples->epochs[row]->in_flight, in_flight);
	assert_int_equal(samples->epochs[row]->dropped, dropped);
	assert_int_equal(samples->epochs[row]->left, left);
	traind__v1__samples__free_unpacked(samples, NULL);
}

static void began_anew(struct world *w, uint64_t number)
{
	Traind__V1__Samples *samples = membership_samples(w->m, 1);
	assert_int_equal(samples->anew, number);
	traind__v1__samples__free_unpacked(samples, NULL);
}

static void the_newest_account_counts_and_survives(void **state)
{
	struct world w;
	struct account a;
	(void)state;
	training(&w);
	Traind__V1__Samples *none = membership_samples(w.m, 1);
	assert_false(none->known);
	traind__v1__samples__free_unpacked(none, NULL);
	assert_null(membership_samples(w.m, 9));
	account_init(&a, 0, 5, 150);
	a.base.anew = 60;
	range(a.base.held, &a.base.n_held, 120, 150);
	range(a.base.returned, &a.base.n_returned, 10, 20);
	range(a.base.dropped, &a.base.n_dropped, 90, 105);
	say(&w, 1, 5, &a);
	shows(&w, 0, 80, 0, 10, 10);
	shows(&w, 1, 15, 30, 5, 50);
	began_anew(&w, 60);
	/* Who is behind is not heard, nor one of another run of the job, nor nonsense. */
	struct account b;
	account_init(&b, 0, 4, 100);
	say(&w, 2, 6, &b);
	account_init(&b, 1, 9, 100);
	say(&w, 2, 6, &b);
	account_init(&b, 0, 9, 100);
	range(b.base.held, &b.base.n_held, 90, 101);
	say(&w, 2, 6, &b);
	account_init(&b, 0, 9, 100);
	b.base.per_epoch = 0;
	say(&w, 2, 6, &b);
	account_init(&b, 0, 9, 100);
	b.base.anew = 101;
	say(&w, 2, 6, &b);
	shows(&w, 1, 15, 30, 5, 50);
	began_anew(&w, 60);
	/* It is noted in the log, and a memberd that starts again has it. */
	heartbeat(&w, 1);
	world_tick(&w, 3000);
	world_restart(&w);
	world_lead(&w);
	shows(&w, 0, 80, 0, 10, 10);
	shows(&w, 1, 15, 30, 5, 50);
	/* So has a job that people look at, without the bulk of it. */
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_non_null(job->progress);
	assert_null(job->progress->samples);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* Other figures do not push it out, and cannot carry one that nobody has looked at. */
static void figures_leave_it_alone(void **state)
{
	struct world w;
	struct account a, wild;
	(void)state;
	training(&w);
	account_init(&a, 0, 5, 50);
	account_init(&wild, 0, 99, 7);
	wild.base.per_epoch = 0;
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	figures.step = 3;
	figures.samples = &wild.base;
	body.job_id = 1;
	body.peer = 5;
	body.progress = &figures;
	MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
	Traind__V1__Samples *none = membership_samples(w.m, 1);
	assert_false(none->known);
	traind__v1__samples__free_unpacked(none, NULL);
	say(&w, 1, 5, &a);
	figures.step = 4;
	MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
	shows(&w, 0, 50, 0, 0, 50);
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->progress->step, 4);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* A job of which 90 samples were counted is started again. Its workers' first account; returns what is said to be lost. */
static unsigned lost_by_a_restart(struct world *w, struct account *first)
{
	struct account a;
	training(w);
	Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
	char checkpoint[] = "/tmp/c/step-00000020";
	figures.step = 30;
	figures.checkpoint = checkpoint;
	body.job_id = 1;
	body.peer = 5;
	body.progress = &figures;
	MESSAGE(w, 1, PEER_REPORT, peer_report, &body);
	account_init(&a, 0, 30, 90);
	say(w, 1, 5, &a);
	for (uint64_t c = 1; c <= 3; c++)
		world_closed(w, c, "reset by peer");
	assert_int_equal(job_state(w, 1), TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED);
	shows(w, 0, 90, 0, 0, 10); /* until the workers say what is */
	world_restart(w);
	world_lead(w);
	world_forget(w);
	for (uint64_t c = 11; c <= 13; c++)
		hello(w, c, 0, 100 + c, 1);
	uint64_t peer = w->last[11]->start_worker->peer;
	say(w, 11, peer, first);
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	unsigned lost = 0;
	for (size_t i = 0; i < job->n_events; i++)
		(void)sscanf(job->events[i]->text, "samples: %u were counted before", &lost);
	traind__v1__job__free_unpacked(job, NULL);
	return lost;
}

static void a_restart_takes_back_what_came_after_the_checkpoint(void **state)
{
	struct world w;
	struct account a;
	(void)state;
	/* The first account that is heard has a round's samples of the new run: more, by now, than what was lost. */
	account_init(&a, 1, 1, 99);
	a.base.beginning_case = TRAIND__V1__SAMPLE_ACCOUNT__BEGINNING_BEGUN;
	a.base.begun = 63;
	range(a.base.held, &a.base.n_held, 92, 99);
	assert_int_equal(lost_by_a_restart(&w, &a), 27);
	shows(&w, 0, 92, 7, 0, 1);
	world_finish(&w);
	a.base.begun = 0; /* from no checkpoint */
	assert_int_equal(lost_by_a_restart(&w, &a), 90);
	world_finish(&w);
}

/* They are of an older version: what they have by now counts as what they began with. */
static void workers_may_not_say_where_they_began(void **state)
{
	struct world w;
	struct account a;
	(void)state;
	account_init(&a, 1, 1, 77);
	range(a.base.held, &a.base.n_held, 70, 77);
	assert_int_equal(lost_by_a_restart(&w, &a), 20);
	world_finish(&w);
}

enum { COUNTED, HELD, RETURNED, DROPPED, LEFT };

static void rows_are_those_of_a_mark_for_each_sample(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		static uint8_t marks[20000];
		struct rng_key key = rng_key(seed, 0, 0);
		struct world w;
		struct account a;
		uint64_t per = 10 + rng_below(key, 1, 0, 60), given = rng_below(key, 1, 1, 1500);
		uint64_t at = 0, n = 2, (*sums)[5] = calloc(sizeof(marks), sizeof(*sums));
		training(&w);
		account_init(&a, 0, 7, given);
		a.base.per_epoch = per;
		memset(marks, LEFT, sizeof(marks));
		memset(marks, COUNTED, given);
		for (unsigned i = 0; i < 3 * ROWS; i++) {
			uint64_t from = at + rng_below(key, 1, n, 100),
			         kind = rng_below(key, 1, n + 1, 3);
			uint64_t to = from + 1 + rng_below(key, 1, n + 2, 90);
			n += 3;
			size_t *counts[] = { &a.base.n_held, &a.base.n_returned, &a.base.n_dropped };
			Traind__V1__SampleRange **rows[] = { a.base.held, a.base.returned,
				a.base.dropped };
			if (to > given || *counts[kind] == ROWS)
				continue;
			range(rows[kind], counts[kind], from, to);
			memset(marks + from, HELD + (int)kind, to - from);
			at = to;
		}
		say(&w, 1, 5, &a);
		assert_non_null(sums);
		for (uint64_t s = 0; s < (given + per) / per * per; s++)
			sums[s / per][marks[s]]++;
		Traind__V1__Samples *samples = membership_samples(w.m, 1);
		uint64_t next = 0;
		assert_false(samples->cut);
		for (size_t i = 0; i < samples->n_epochs; i++) {
			const Traind__V1__SampleEpoch *row = samples->epochs[i];
			uint64_t sum[5] = { 0 }, dropped = 0;
			assert_int_equal(row->epoch, next);
			for (; next <= row->through; next++)
				for (unsigned k = 0; k < 5; k++)
					sum[k] += sums[next][k];
			assert_int_equal(row->counted, sum[COUNTED]);
			assert_int_equal(row->in_flight, sum[HELD]);
			assert_int_equal(row->dropped, sum[DROPPED]);
			assert_int_equal(row->left, sum[LEFT] + sum[RETURNED]);
			for (size_t k = 0; k < row->n_ranges; k++) {
				const Traind__V1__SampleRange *r = row->ranges[k];
				dropped += r->to - r->from;
				for (uint64_t s = r->from; s < r->to; s++)
					assert_int_equal(marks[row->epoch * per + s], DROPPED);
			}
			assert_int_equal(dropped, sum[DROPPED]);
		}
		assert_int_equal(next, given == 0 ? 1 : (given - 1) / per + 1);
		free(sums);
		traind__v1__samples__free_unpacked(samples, NULL);
		world_finish(&w);
	}
}

/* A member that trains on alone for long holds samples of many epochs: those in the middle are one row, and all are told. */
static void an_answer_has_a_limit(void **state)
{
	struct world w;
	struct account a;
	(void)state;
	training(&w);
	account_init(&a, 0, 7, UINT64_C(1) << 52);
	a.base.per_epoch = 1;
	range(a.base.held, &a.base.n_held, 10, UINT64_C(1) << 51);
	say(&w, 1, 5, &a);
	Traind__V1__Samples *samples = membership_samples(w.m, 1);
	assert_true(samples->cut && samples->n_epochs <= 256);
	uint64_t counted = 0, held = 0, left = 0, next = 0;
	for (size_t i = 0; i < samples->n_epochs; i++) {
		const Traind__V1__SampleEpoch *row = samples->epochs[i];
		assert_int_equal(row->epoch, next);
		next = row->through + 1;
		counted += row->counted;
		held += row->in_flight;
		left += row->left + row->dropped;
	}
	assert_int_equal(next, UINT64_C(1) << 52);
	assert_int_equal(held, (UINT64_C(1) << 51) - 10);
	assert_int_equal(counted, (UINT64_C(1) << 52) - held);
	assert_int_equal(left, 0);
	assert_int_equal(samples->epochs[0]->counted, 10);
	assert_int_equal(samples->epochs[samples->n_epochs - 1]->through, (UINT64_C(1) << 52) - 1);
	traind__v1__samples__free_unpacked(samples, NULL);
	world_finish(&w);
}

/* (It was taken for a broken account, and nobody saw it.) */
static void an_event_of_a_program_may_say_anything(void **state)
{
	static char words[][40] = { "samples: a file was skipped", "samples:0801", "samples:" };
	struct world w;
	(void)state;
	training(&w);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
		body.job_id = 1;
		body.peer = 5;
		body.event = words[i];
		MESSAGE(&w, 1, PEER_REPORT, peer_report, &body);
		Traind__V1__Job *job = membership_job(w.m, 1, true);
		assert_string_equal(job->events[job->n_events - 1]->text, words[i]);
		traind__v1__job__free_unpacked(job, NULL);
	}
	world_finish(&w);
}

/* What memberd was not told comes with the worker's end. */
static void the_last_account_comes_with_the_last_words(void **state)
{
	struct world w;
	struct account a;
	(void)state;
	training(&w);
	account_init(&a, 0, 5, 50);
	Traind__Peer__LastWords words = TRAIND__PEER__LAST_WORDS__INIT;
	Traind__Peer__WorkerExited body = TRAIND__PEER__WORKER_EXITED__INIT;
	words.samples = &a.base;
	body.job_id = 1;
	body.peer = 5;
	body.last_words = &words;
	MESSAGE(&w, 1, WORKER_EXITED, worker_exited, &body);
	shows(&w, 0, 50, 0, 0, 50);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_newest_account_counts_and_survives),
		cmocka_unit_test(figures_leave_it_alone),
		cmocka_unit_test(a_restart_takes_back_what_came_after_the_checkpoint),
		cmocka_unit_test(workers_may_not_say_where_they_began),
		cmocka_unit_test(rows_are_those_of_a_mark_for_each_sample),
		cmocka_unit_test(an_answer_has_a_limit),
		cmocka_unit_test(an_event_of_a_program_may_say_anything),
		cmocka_unit_test(the_last_account_comes_with_the_last_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
