/* Peers whose state comes over several rounds (PeerReady.gradual), as memberd's core sees them. */
#include "tests/unit/membership_left.h"

/* Its state may come gradually. */
static void ready_gradually(struct world *w, uint64_t conn, uint64_t group, uint64_t peer)
{
	Traind__Peer__PeerReady body = TRAIND__PEER__PEER_READY__INIT;
	body.group = group, body.peer = peer, body.gradual = true;
	body.state_signature = (char *)(uintptr_t) "w:4096";
	MESSAGE(w, conn, PEER_READY, peer_ready, &body);
}

static void gradual_report(struct world *w, uint64_t proposal, uint64_t view, uint64_t committed,
    bool voted, bool without)
{
	Traind__Peer__ViewReport body = TRAIND__PEER__VIEW_REPORT__INIT;
	body.group = 4, body.peer = 9;
	body.proposal = proposal, body.view = view;
	body.committed_round = committed, body.begun_round = committed + 1;
	body.attempt = 2;
	body.closed = body.voted = voted;
	body.without_state = without;
	MESSAGE(w, 2, VIEW_REPORT, view_report, &body);
}

static void asks_for_a_view(struct world *w, uint64_t view, const char *reason)
{
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	lost.group = 4, lost.view = view, lost.peer = 9;
	lost.reason = (char *)(uintptr_t)reason;
	MESSAGE(w, 2, LINK_LOST, link_lost, &lost);
}

/* As `trainctl status` shows it. */
static void shows(struct world *w, const char *state, const char *reason)
{
	Traind__V1__Job *job = membership_job(w->m, 1, true);
	const Traind__V1__Peer *peer = NULL;
	for (size_t i = 0; i < job->n_peers; i++)
		peer = job->peers[i]->id == 9 ? job->peers[i] : peer;
	assert_non_null(peer);
	assert_string_equal(peer->state, state);
	assert_string_equal(peer->reason, reason);
	traind__v1__job__free_unpacked(job, NULL);
}

/* p9 comes, and gets its state gradually: it keeps its place as long as it misses no round, gives nothing to any, counts as nobody who holds the state; and
 * contributes from the first view on of which it says that it has it. */
static void test_a_state_that_comes_gradually(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 8);
	killed_and_left(&w, 2, 6);
	report(&w, 1, 4, 5, 2, 1, 3, 4, 1, false, 0, 0);
	report(&w, 3, 4, 7, 2, 1, 4, 5, 1, false, 0, 0);
	world_tick(&w, 300);
	ready_gradually(&w, 2, 4, 9);
	report(&w, 2, 4, 9, 3, 0, 0, 0, 0, false, 0, 0);
	skip_trace(&w);
	report(&w, 1, 4, 5, 3, 2, 4, 5, 2, false, 0x01, 0x01);
	report(&w, 3, 4, 7, 3, 2, 4, 5, 2, false, 0, 0);
	assert_non_null(strstr(w.trace,
	    "[p5 p7 p9(from 6, counts 18446744073709551615, donor p5)] round 5 finish "));
	shows(&w, "joining", "its state is on its way");
	/* Rounds 6 and 7 are over, and it had a part in them: some link breaks in round 8. */
	asks_for_a_view(&w, 3, "cannot go on: a test");
	skip_trace(&w);
	gradual_report(&w, 4, 3, 7, false, true);
	report(&w, 1, 4, 5, 4, 3, 7, 8, 3, false, 0, 0);
	report(&w, 3, 4, 7, 4, 3, 7, 8, 3, false, 0, 0);
	assert_non_null(
	    strstr(w.trace, "p9(from 6, counts 18446744073709551615, donor p5)] round 8 "));
	/* It has voted for round 8, which another one knows to be committed. */
	asks_for_a_view(&w, 4, "cannot go on: a test");
	skip_trace(&w);
	gradual_report(&w, 5, 4, 7, true, true);
	report(&w, 1, 4, 5, 5, 4, 8, 9, 4, false, 0, 0);
	report(&w, 3, 4, 7, 5, 4, 7, 8, 4, true, 0xff, 0xff);
	assert_non_null(
	    strstr(w.trace, "p9(from 6, counts 18446744073709551615, donor p5)] round 9 "));
	/* It has all of it. */
	skip_trace(&w);
	asks_for_a_view(&w, 5, "has the state now");
	gradual_report(&w, 6, 5, 8, false, false);
	report(&w, 1, 4, 5, 6, 5, 8, 9, 4, false, 0, 0);
	report(&w, 3, 4, 7, 6, 5, 8, 9, 4, false, 0, 0);
	assert_non_null(
	    strstr(w.trace, "[p5 p7 p9(counts 10)] round 9 finish attempt 4 of p5,p7\n"));
	shows(&w, "active", "");
	world_finish(&w);
}

/* With `uniform` a round is redone behind the callers that contribute to it, who keep the indices that they were told. So who has got all of its state while a contributor of it
 * was lost contributes to the next one: it would be told an index that another one has. */
static void test_a_round_that_is_redone_keeps_its_contributors(void **state)
{
	struct world w;
	(void)state;
	Traind__V1__JobSpec *spec = native_spec(3);
	struct tr_error error = { 0 };
	assert_int_equal(job_option_set(spec, "sync.mode", "diloco", &error), TR_OK);
	training_with(&w, spec);
	hello(&w, 4, 0, 104, 8);
	killed_and_left(&w, 2, 6);
	report(&w, 1, 4, 5, 2, 1, 3, 4, 1, false, 0, 0);
	report(&w, 3, 4, 7, 2, 1, 4, 5, 1, false, 0, 0);
	world_tick(&w, 300);
	ready_gradually(&w, 2, 4, 9);
	report(&w, 2, 4, 9, 3, 0, 0, 0, 0, false, 0, 0);
	report(&w, 1, 4, 5, 3, 2, 4, 5, 2, false, 0, 0);
	skip_trace(&w);
	report(&w, 3, 4, 7, 3, 2, 4, 5, 2, false, 0, 0);
	assert_non_null(strstr(w.trace,
	    "[p5 p7 p9(from 6, counts 18446744073709551615, donor p5)] round 5 finish "));
	/* Round 6 is under way, as 0 and 1 of 2; p9 has all of its state, and p5 dies before it answers the proposal. */
	asks_for_a_view(&w, 3, "has the state now");
	killed_and_left(&w, 1, 5);
	skip_trace(&w);
	gradual_report(&w, 5, 3, 5, false, false);
	report(&w, 3, 4, 7, 5, 3, 5, 6, 3, false, 0, 0);
	assert_null(strstr(w.trace, "of p7,p9"));
	assert_non_null(strstr(w.trace, "[p7 p9(counts 7)] round 6 start attempt 5 of p7\n"));
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_a_state_that_comes_gradually),
		cmocka_unit_test(test_a_round_that_is_redone_keeps_its_contributors) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
