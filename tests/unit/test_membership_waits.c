/* For how long peers wait for others, and whom they wait for. */
#include "tests/unit/membership_beats.h"

/* Waits that no heartbeat sees count too: it is their time that is told of, from the first heartbeat on, whatever there was before and however unevenly heartbeats come. */
static void test_waits_between_heartbeats(void **state)
{
	const uint64_t before = 3600000000; /* memberd has not heard of this hour */
	uint64_t now_ms = 0;
	struct world w;
	(void)state;
	training(&w);
	for (unsigned i = 0; i < 400; i++) {
		uint64_t step_ms = i % 2 != 0 ? 30 : 170;
		now_ms += step_ms;
		beat_waited(&w, 1, 5, 3 + i, 7 + i, 0, before + now_ms * 300);
		beat_waited(&w, 2, 6, 3 + i, 9 + i, 5, 1);
		beat(&w, 3, 7, 3 + i, 8 + i, 0);
		world_tick(&w, i % 4 < 2 ? 170 : 30);
	}
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_true(job->peers[0]->waits > 0.27 && job->peers[0]->waits < 0.33);
	assert_true(job->peers[0]->waited_s > 3600 + 0.3 * 39 && job->peers[0]->waited_s < 3613);
	assert_true(job->peers[1]->waits < 0.01); /* seen waiting each time, for no time */
	traind__v1__job__free_unpacked(job, NULL);
	/* A worker after it under its number begins at nothing. */
	beat_waited(&w, 1, 5, 403, 407, 0, 10);
	job = membership_job(w.m, 1, false);
	assert_true(job->peers[0]->waits < 0.33 && job->peers[0]->waited_s < 1);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

/* p6 computes while the others wait for it most of the time: it is shown as slow, and its link's figures with it. */
static void test_who_is_slow(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	Traind__Peer__Heartbeat figures = TRAIND__PEER__HEARTBEAT__INIT;
	figures.rtt_s = 0.02;
	figures.bandwidth_bytes_per_s = 2.5e6;
	MESSAGE(&w, 2, HEARTBEAT, heartbeat, &figures);
	for (unsigned i = 0; i < 160; i++) {
		uint64_t waits_for = i % 4 != 0 ? 6 : 0;
		beat(&w, 1, 5, 3 + i, 7 + i, waits_for);
		beat(&w, 2, 6, 3 + i, 9 + i, 0);
		beat(&w, 3, 7, 3 + i, 8 + i, waits_for);
		world_tick(&w, 250);
	}
	Traind__V1__Job *job = membership_job(w.m, 1, false);
	assert_int_equal(job->n_peers, 3);
	assert_true(job->peers[0]->waits > 0.6 && job->peers[0]->waits < 0.85);
	assert_true(job->peers[1]->waits == 0);
	assert_true(!job->peers[0]->slow && job->peers[1]->slow && !job->peers[2]->slow);
	assert_true(job->peers[1]->rtt_s == 0.02 && job->peers[1]->bandwidth_bytes_per_s == 2.5e6);
	assert_true(job->peers[0]->bandwidth_bytes_per_s == 0);
	traind__v1__job__free_unpacked(job, NULL);
	/* Later all are alike. */
	for (unsigned i = 160; i < 400; i++) {
		uint64_t waits_for = i % 4 != 0 ? 6 : 0;
		beat(&w, 1, 5, 3 + i, 7 + i, waits_for);
		beat(&w, 2, 6, 3 + i, 9 + i, waits_for == 0 ? 0 : 5);
		beat(&w, 3, 7, 3 + i, 8 + i, waits_for);
		world_tick(&w, 250);
	}
	job = membership_job(w.m, 1, false);
	for (unsigned i = 0; i < 3; i++)
		assert_false(job->peers[i]->slow);
	traind__v1__job__free_unpacked(job, NULL);
	world_finish(&w);
}

static void expect_reason(struct world *w, const char *reason)
{
	Traind__V1__Job *job = membership_job(w->m, 1, false);
	assert_string_equal(job->reason, reason);
	traind__v1__job__free_unpacked(job, NULL);
}

/* What a job waits for is said for as long as it waits for that. */
static void test_a_wait_that_is_over(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "a", native_spec(3));
	for (uint64_t c = 1; c <= 2; c++)
		ready(&w, c, 4, 4 + c, 0);
	expect_reason(&w, "2 ready, 1 still starting");
	for (uint64_t c = 1; c <= 2; c++)
		exited(&w, c, 1, 4 + c, 1, 0, "");
	expect_reason(&w, "");
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_between_heartbeats),
		cmocka_unit_test(test_who_is_slow),
		cmocka_unit_test(test_a_wait_that_is_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
