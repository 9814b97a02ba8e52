/* Votes and segments of views that are not ours: what one member says, or somebody who is none, does not keep the others' words out.
 */
#include "tests/unit/group_pump.h"

#include "common/limits.h"

#define COUNT 8

static int32_t memory[PUMP_MEMBERS][COUNT];

static struct pump *begun(unsigned n)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static tr_status says(struct pump *pump, uint64_t from, uint64_t view, uint64_t round)
{
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	vote.view = view;
	vote.round = round;
	vote.attempt = view;
	return pump_step(pump, 0,
	    &(struct group_event){ .kind = GROUP_VOTE, .from = from, .vote = &vote });
}

static void round_goes_through(struct pump *pump)
{
	for (unsigned i = 0; i < pump->n; i++) {
		assert_int_equal(pump_submit(pump, i, 4, memory[i], COUNT, TR_I32, TR_SUM), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump);
	for (unsigned i = 0; i < pump->n; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
	}
}

/* Numbers grow by a few with each proposal, and a member is asked before anybody has its view. */
static void a_vote_of_no_possible_view_is_refused(void **state)
{
	(void)state;
	struct pump *pump = begun(3);
	assert_int_equal(says(pump, 2, UINT64_MAX, 1), TR_EPROTO);
	assert_int_equal(says(pump, 2, 1 + TR_VIEWS_AHEAD_MAX + 1, 1), TR_EPROTO);
	assert_int_equal(says(pump, 2, 1 + TR_VIEWS_AHEAD_MAX, 1), TR_OK);
	round_goes_through(pump);
	pump_destroy(pump);
}

static void a_segment_of_no_possible_view_is_refused(void **state)
{
	(void)state;
	struct pump *pump = begun(3);
	struct segment_header header = { .view = UINT64_MAX, .round = 1, .attempt = 1 };
	struct group_event event = { .kind = GROUP_SEGMENT, .from = 2, .segment.header = &header };
	assert_int_equal(pump_step(pump, 0, &event), TR_EPROTO);
	header.view = 1 + TR_VIEWS_AHEAD_MAX;
	assert_int_equal(pump_step(pump, 0, &event), TR_EAGAIN);
	round_goes_through(pump);
	pump_destroy(pump);
}

static void a_coming_vote_does_not_displace_the_present_one(void **state)
{
	(void)state;
	struct pump *pump = begun(3);
	assert_int_equal(says(pump, 2, 5, 1), TR_OK);
	round_goes_through(pump);
	pump_destroy(pump);
}

static void a_vote_of_a_later_round_does_not_displace_the_present_one(void **state)
{
	(void)state;
	struct pump *pump = begun(3);
	assert_int_equal(says(pump, 2, 1, 7), TR_OK);
	round_goes_through(pump);
	pump_destroy(pump);
}

/* As many as there is room for; the members' own votes have their places all the same. */
static void strangers_take_no_place_of_members(void **state)
{
	(void)state;
	struct pump *pump = begun(3);
	tr_status newest = TR_OK;
	for (uint64_t i = 0; i < 3 * TR_GROUP_PEERS_MAX; i++)
		newest = says(pump, 1000 + i, 5, 1);
	assert_int_equal(newest, TR_ELIMIT);
	assert_int_equal(says(pump, 1000, 1, 1), TR_EPROTO);
	round_goes_through(pump);
	pump_destroy(pump);
}

static struct pump_view second_view(const struct pump *pump)
{
	struct pump_view view = pump_first_view(pump);
	view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	view.number = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 2;
	view.contributors[0] = 1;
	view.contributors[1] = 2;
	return view;
}

/* What 2 says in view 2 of an empty round that began in view 1. */
static Traind__Peer__Vote vote_of_the_second_view(void)
{
	struct pump *pump = begun(2);
	struct pump_view view = second_view(pump);
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	assert_int_equal(pump_close(pump, 1, 0, 0), TR_OK);
	pump_propose(pump, 2);
	pump_install(pump, &view);
	for (size_t i = pump->first; i < pump->last; i++)
		if (pump->messages[i] != NULL && pump->messages[i]->kind == GROUP_DO_SEND_VOTE)
			vote = pump->messages[i]->vote;
	assert_int_equal(vote.view, 2);
	pump_destroy(pump);
	return vote;
}

static void the_proposed_view_counts_for_more_than_any_other(void **state)
{
	(void)state;
	Traind__Peer__Vote real = vote_of_the_second_view();
	for (int bad_first = 0; bad_first < 2; bad_first++) {
		struct pump *pump = begun(2);
		struct pump_view view = second_view(pump);
		struct group_event event = { .kind = GROUP_VOTE, .from = 2, .vote = &real };
		assert_int_equal(pump_close(pump, 0, 0, 0), TR_OK);
		pump_propose(pump, 2);
		if (bad_first)
			assert_int_equal(says(pump, 2, 9, 1), TR_OK);
		assert_int_equal(pump_step(pump, 0, &event), TR_OK);
		if (!bad_first)
			assert_int_equal(says(pump, 2, 9, 1), TR_OK);
		pump_install(pump, &view);
		assert_int_equal(pump->members[0].decided_count, 1);
		assert_int_equal(pump->members[0].status, TR_OK);
		pump_destroy(pump);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_vote_of_no_possible_view_is_refused),
		cmocka_unit_test(a_segment_of_no_possible_view_is_refused),
		cmocka_unit_test(a_coming_vote_does_not_displace_the_present_one),
		cmocka_unit_test(a_vote_of_a_later_round_does_not_displace_the_present_one),
		cmocka_unit_test(strangers_take_no_place_of_members),
		cmocka_unit_test(the_proposed_view_counts_for_more_than_any_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
