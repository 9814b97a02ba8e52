/* For how long peers wait for others, and whom they wait for. */
#include "tests/unit/membership_beats.h"

struct link_said {
	uint64_t to, bytes_per_s;
	uint32_t rtt_us;
};

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

static void beat_links(struct world *w, const struct link_said *said, size_t count)
{
	Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
	Traind__Peer__PeerProgress row = TRAIND__PEER__PEER_PROGRESS__INIT, *rows[1] = { &row };
	Traind__Peer__LinkProgress links[TR_PEER_LINKS_MAX + 1], *list[TR_PEER_LINKS_MAX + 1];
	for (size_t i = 0; i < count; i++) {
		traind__peer__link_progress__init(&links[i]);
		links[i].to = said[i].to;
		links[i].bytes_per_s = said[i].bytes_per_s;
		links[i].rtt_us = said[i].rtt_us;
		links[i].sent_bytes = 1000 + i;
		list[i] = &links[i];
	}
	row.group = 4;
	row.peer = 5;
	row.links = list;
	row.n_links = count;
	beat.peers = rows;
	beat.n_peers = 1;
	MESSAGE(w, 1, HEARTBEAT, heartbeat, &beat);
}

static size_t links_of(struct world *w, bool details, Traind__V1__PeerLink *first)
{
	Traind__V1__Job *job = membership_job(w->m, 1, details);
	size_t count = job->peers[0]->n_links;
	assert_int_equal(job->peers[1]->n_links, 0);
	if (count > 0)
		*first = *job->peers[0]->links[0];
	traind__v1__job__free_unpacked(job, NULL);
	return count;
}

/* They stay as they were last said, but for links to peers that are lost or were never there. Lists of jobs have none. */
static void test_links(void **state)
{
	struct world w;
	Traind__V1__PeerLink first;
	struct link_said many[TR_PEER_LINKS_MAX + 1];
	(void)state;
	training(&w);
	assert_int_equal(links_of(&w, true, &first), 0);
	beat_links(&w, (struct link_said[]){ { 77, 1, 1 }, { 6, 1250000, 45000 }, { 7, 0, 500 } },
	    3);
	beat(&w, 1, 5, 3, 7, 0); /* no news */
	assert_int_equal(links_of(&w, true, &first), 2);
	assert_int_equal(first.peer, 6);
	assert_true(first.bandwidth_bytes_per_s == 1250000);
	assert_true(first.rtt_s > 0.0449 && first.rtt_s < 0.0451);
	assert_int_equal(first.sent_bytes, 1001);
	assert_int_equal(links_of(&w, false, &first), 0);
	/* More than there is room for. */
	for (size_t i = 0; i < TR_PEER_LINKS_MAX + 1; i++)
		many[i] = (struct link_said){ 7, 100 + i, 0 };
	beat_links(&w, many, TR_PEER_LINKS_MAX + 1);
	assert_int_equal(links_of(&w, true, &first), TR_PEER_LINKS_MAX);
	assert_int_equal(first.peer, 7);
	/* As its connection's, a rate that no link has is none. */
	beat_links(&w, (struct link_said[]){ { 6, UINT64_MAX, 45000 } }, 1);
	assert_int_equal(links_of(&w, true, &first), 1);
	assert_true(first.bandwidth_bytes_per_s == 0);
	/* It goes on without a word of them: it has none any more. */
	for (uint64_t i = 0; i < 120; i++) {
		beat(&w, 1, 5, 4 + i, 8 + i, 0);
		beat(&w, 2, 6, 4 + i, 8 + i, 0);
		beat(&w, 3, 7, 4 + i, 8 + i, 0);
		world_tick(&w, 200);
		assert_true(i > 20 || links_of(&w, true, &first) == 1);
	}
	assert_int_equal(links_of(&w, true, &first), 0);
	beat_links(&w, many, TR_PEER_LINKS_MAX);
	exited(&w, 3, 1, 7, 0, 9, "");
	assert_int_equal(links_of(&w, true, &first), 0);
	beat_links(&w, (struct link_said[]){ { 6, 1250000, 45000 } }, 1);
	assert_int_equal(links_of(&w, true, &first), 1);
	exited(&w, 1, 1, 5, 0, 9, "");
	assert_int_equal(links_of(&w, true, &first), 0);
	world_finish(&w);
}

static size_t links_of_all(struct world *w)
{
	size_t count = 0;
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	for (size_t i = 0; i < job->n_peers; i++)
		count += job->peers[i]->n_links;
	traind__v1__job__free_unpacked(job, NULL);
	return count;
}

/* A job of 100 on one node: no more than 512 links in all; of those that are left when most are gone, all. */
static void test_links_of_a_large_job(void **state)
{
	enum { PEERS = 100, LEFT = 9 };
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 1, 0, 101, PEERS);
	Traind__V1__JobSpec *spec = native_spec(1);
	assert_int_equal(job_option_set(spec, "mesh.workers_per_node", "100", NULL), TR_OK);
	assert_int_equal(job_option_set(spec, "train.batch_tokens", "102400", NULL), TR_OK);
	submit(&w, 1, "a", spec);
	skip_trace(&w);
	Traind__Peer__LinkProgress links[TR_PEER_LINKS_MAX], *list[TR_PEER_LINKS_MAX];
	for (uint64_t peer = 3; peer < 3 + PEERS; peer++) {
		Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
		Traind__Peer__PeerProgress row = TRAIND__PEER__PEER_PROGRESS__INIT,
		                           *rows[1] = { &row };
		for (unsigned i = 0; i < TR_PEER_LINKS_MAX; i++) {
			traind__peer__link_progress__init(&links[i]);
			links[i].to = peer > 3 + TR_PEER_LINKS_MAX ? 3 + i : 4 + i;
			list[i] = &links[i];
		}
		row.group = 2;
		row.peer = peer;
		row.links = list;
		row.n_links = TR_PEER_LINKS_MAX;
		beat.peers = rows;
		beat.n_peers = 1;
		MESSAGE(&w, 1, HEARTBEAT, heartbeat, &beat);
	}
	assert_in_range(links_of_all(&w), 400, 512);
	for (uint64_t peer = 3 + LEFT; peer < 3 + PEERS; peer++) {
		exited(&w, 1, 1, peer, 0, 9, "");
		skip_trace(&w);
	}
	assert_in_range(links_of_all(&w), LEFT * (TR_PEER_LINKS_MAX - 1), LEFT * TR_PEER_LINKS_MAX);
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

/* The round trip of a node is none of the workers that it had before. */
static void test_round_trip_of_who_is_there(void **state)
{
	struct world w;
	Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
	(void)state;
	training(&w);
	beat.rtt_s = 0.01;
	MESSAGE(&w, 2, HEARTBEAT, heartbeat, &beat);
	for (int lost = 0; lost < 2; lost++) {
		Traind__V1__Job *job = membership_job(w.m, 1, true);
		assert_true((job->peers[1]->rtt_s > 0) == (lost == 0));
		traind__v1__job__free_unpacked(job, NULL);
		exited(&w, 2, 1, 6, 0, 9, "");
	}
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_between_heartbeats),
		cmocka_unit_test(test_who_is_slow),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_links_of_a_large_job),
		cmocka_unit_test(test_a_wait_that_is_over),
		cmocka_unit_test(test_round_trip_of_who_is_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
