/* Who has committed learns who has not, and the hub counts a vote once. */
#include "tests/unit/lacks_pump.h"

/* All have submitted all, and one does not commit, be it that it has not even begun. */
static void a_commit_names_who_has_not_voted(void **state)
{
	(void)state;
	for (unsigned hub = 0; hub < 4; hub++)
		for (unsigned late = 0; late < 4; late++) {
			struct pump *pump = begun(4, RING, hub);
			for (unsigned round = 1; round < 3; round++) {
				for (unsigned i = 0; i < 4; i++)
					if (round == 1)
						submit(pump, i, 0);
				pump_run(pump);
				for (unsigned i = 0; i < 4; i++)
					if (i != late) {
						if (round == 2)
							pump_event(pump, i, GROUP_BEGIN);
						pump_close(pump, i, 0, 0);
					}
				pass(pump, 300);
				for (unsigned i = 0; i < 4; i++)
					assert_int_equal(pump->members[i].decided_count, round - 1);
				for (unsigned i = 0; i < 4; i++)
					if (i != hub && i != late)
						assert_int_equal(named(pump, i), 1u << late);
				if (round == 2)
					pump_event(pump, late, GROUP_BEGIN);
				pump_close(pump, late, 0, 0);
				pump_run(pump);
				for (unsigned i = 0; i < 4; i++) {
					assert_int_equal(pump->members[i].decided_count, round);
					assert_int_equal(named(pump, i), 0);
				}
			}
			none_failed(pump);
			pump_destroy(pump);
		}
}

/* Two scopes: one is through and has voted; of the other, one has committed and waits for one that is late. */
static void who_has_committed_and_waits_itself_is_not_named(void **state)
{
	static const uint32_t members[2][2] = { { 1, 2 }, { 3, 4 } };
	(void)state;
	struct pump *pump = begun(5, RING, 0);
	for (unsigned who = 0; who < 4; who++) {
		struct group_event event = { .kind = GROUP_SUBMIT,
			.submit = { .tag = (who + 1) / 2,
			    .data = memory[who][(who + 1) / 2],
			    .count = COUNT,
			    .dtype = TR_I32,
			    .reduce = TR_SUM,
			    .contribute = true,
			    .scope = { members[(who - 1) / 2 % 2], 2 } } };
		if (who > 0)
			assert_int_equal(pump_step(pump, who, &event), TR_OK);
		pump_close(pump, who, 0, 0);
	}
	pass(pump, 1600);
	for (unsigned who = 0; who < 3; who++)
		assert_int_equal(named(pump, who), 1u << 4);
	none_failed(pump);
	pump_destroy(pump);
}

static void hostile_words_of_votes_are_refused(void **state)
{
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	struct group_event event = { .kind = GROUP_VOTE, .from = 3, .vote = &vote };
	(void)state;
	struct pump *pump = begun(3, STAR, 0);
	struct segment_header good = frame(0, SEGMENT_LACKED, SEGMENT_ASKS_LACKS);
	assert_int_equal(offer(pump, 0, 1, good), TR_EPROTO); /* it has not voted */
	for (unsigned i = 0; i < 3; i++)
		submit(pump, i, 0);
	pump_run(pump);
	pump_close(pump, 1, 0, 0);
	pump_run(pump);
	good.contributors[0] = 1u << 2;
	assert_int_equal(offer(pump, 0, 1, good), TR_OK);
	assert_int_equal(named(pump, 1), 1u << 2);
	struct segment_header bad[4] = { good, good, good, good };
	bad[0].contributors[0] = 1u << 1;
	bad[1].contributors[0] = 1u << 3;
	bad[2].bytes = 4;
	bad[3].segment = 2;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(offer(pump, i == 3 ? 2 : 0, 1, bad[i]), TR_EPROTO);
	/* Whoever did not vote, or is not asked to count votes. */
	size_t before = pump->last;
	vote.view = vote.round = vote.attempt = 1;
	vote.asks = vote.early = true;
	assert_int_equal(pump_step(pump, 0, &event), TR_OK);
	vote.early = false;
	assert_int_equal(pump_step(pump, 1, &event), TR_OK);
	vote.round = 9;
	assert_int_equal(pump_step(pump, 0, &event), TR_OK);
	assert_int_equal(sent(pump, before, SEGMENT_LACKED), 0);
	vote.round = 1;
	assert_int_equal(pump_step(pump, 0, &event), TR_OK);
	assert_int_equal(sent(pump, before, SEGMENT_LACKED), 1);
	pump_destroy(pump);
}

/* The first one counts: what is said again is only a question. */
static void a_vote_that_is_said_again_counts_once(void **state)
{
	Traind__Peer__Vote again = TRAIND__PEER__VOTE__INIT;
	(void)state;
	struct pump *pump = begun(3, STAR, 0);
	for (unsigned i = 0; i < 3; i++)
		submit(pump, i, 0);
	pump_run(pump);
	pump_close(pump, 1, 0, 0);
	pump_run(pump);
	again.view = again.round = again.attempt = 1;
	again.digest_low = again.signatures = 5;
	again.asks = true;
	size_t before = pump->last;
	assert_int_equal(pump_step(pump, 0,
	                     &(struct group_event){ .kind = GROUP_VOTE, .from = 2, .vote = &again }),
	    TR_OK);
	assert_int_equal(sent(pump, before, SEGMENT_LACKED), 1);
	pump_close(pump, 0, 0, 0);
	pump_close(pump, 2, 0, 0);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump->members[i].decided_count, 1);
	none_failed(pump);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_commit_names_who_has_not_voted),
		cmocka_unit_test(who_has_committed_and_waits_itself_is_not_named),
		cmocka_unit_test(hostile_words_of_votes_are_refused),
		cmocka_unit_test(a_vote_that_is_said_again_counts_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
