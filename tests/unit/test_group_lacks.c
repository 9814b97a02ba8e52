/* Who waits learns who has not submitted the op, whoever it is that it waits for itself. */
#include "tests/unit/lacks_pump.h"

static void every_late_one(unsigned n, Traind__Peer__Algorithm algorithm, unsigned hub)
{
	for (unsigned late = 0; late < n; late++) {
		struct pump *pump = begun(n, algorithm, hub);
		for (unsigned i = 0; i < n; i++)
			if (i != late)
				submit_and_wait(pump, i);
		pass(pump, 600);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(named(pump, i), i == late ? 0 : 1u << late);
		submit_and_wait(pump, late);
		pump_run(pump);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(pump->members[i].done_count, 1);
			assert_int_equal(named(pump, i), 0);
		}
		none_failed(pump);
		pump_destroy(pump);
	}
}

static void guarantee_3_the_deadline_names_who_has_not_submitted(void **state)
{
	(void)state;
	for (unsigned n = 2; n < 6; n++)
		for (int algorithm = 1; algorithm <= 5; algorithm++)
			for (unsigned hub = 0; hub < n; hub++)
				every_late_one(n, (Traind__Peer__Algorithm)algorithm, hub);
}

/* One waits, one is late, the others compute: at no time is one of those named. */
static void who_has_submitted_and_computes_is_not_named(void **state)
{
	(void)state;
	for (unsigned waiter = 0; waiter < 5; waiter++)
		for (unsigned late = 0; late < 5; late++) {
			if (late == waiter)
				continue;
			struct pump *pump = begun(5, RING, 1);
			for (unsigned i = 0; i < 5; i++)
				if (i != late)
					submit(pump, i, 0);
			wait_for(pump, waiter, 0);
			pump_run(pump);
			for (unsigned ms = 0; ms < 2000; ms += STEP_MS) {
				step(pump);
				if (ms < 600)
					assert_int_equal(named(pump, waiter) & ~(1u << late), 0);
				else
					assert_int_equal(named(pump, waiter), 1u << late);
			}
			none_failed(pump);
			pump_destroy(pump);
		}
}

/* It may still compute what comes before the round, or begin an abandoned one again. */
static void a_hub_that_has_not_begun_is_named(void **state)
{
	(void)state;
	for (unsigned hub = 0; hub < 4; hub++) {
		struct pump *pump = founded(4, RING, hub);
		for (unsigned i = 0; i < 4; i++)
			if (i != hub) {
				assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
				submit_and_wait(pump, i);
			}
		pass(pump, 600);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(named(pump, i), i == hub ? 0 : 1u << hub);
		assert_int_equal(pump_event(pump, hub, GROUP_BEGIN), TR_OK);
		submit_and_wait(pump, hub);
		pump_run(pump);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(pump->members[i].done_count, 1);
		none_failed(pump);
		pump_destroy(pump);
	}
}

/* Of several, all; but what the hub has not submitted itself it does not ask others for. */
static void all_that_are_late_are_named_once_the_hub_has_it(void **state)
{
	(void)state;
	struct pump *pump = begun(5, STAR, 0);
	submit_and_wait(pump, 2);
	submit_and_wait(pump, 4);
	pass(pump, 600);
	assert_int_equal(named(pump, 2), 1);
	assert_int_equal(named(pump, 4), 1);
	submit(pump, 0, 0);
	pass(pump, 600);
	assert_int_equal(named(pump, 2), 1u << 1 | 1u << 3);
	submit(pump, 1, 0);
	pass(pump, 600);
	assert_int_equal(named(pump, 2), 1u << 3);
	assert_int_equal(named(pump, 4), 1u << 3);
	none_failed(pump);
	pump_destroy(pump);
}

/* All have it: whom this member waits for, as before anybody has answered. */
static void who_waits_for_one_that_has_it_names_that_one(void **state)
{
	struct group_core_progress progress;
	(void)state;
	struct pump *pump = begun(3, STAR, 0);
	for (unsigned i = 0; i < 3; i++)
		submit(pump, i, 0);
	wait_for(pump, 1, 0);
	for (unsigned i = 0; i < 2; i++) { /* questions go through, sums do not */
		group_core_progress(pump->members[1].core, true, &progress);
		assert_int_equal(progress.lack_count, 0);
		assert_int_equal(progress.waits_for_count, 1);
		assert_int_equal(progress.waits_for[0], 1);
		for (size_t k = pump->first; k < pump->last; k++)
			if (pump->messages[k] && pump->messages[k]->header.kind < SEGMENT_AWAITED)
				pump_done(pump, k);
		pass(pump, 1000);
	}
	pump_destroy(pump);
}

/* Nothing was waited for before the commit. */
static void a_commit_names_who_has_not_submitted(void **state)
{
	(void)state;
	for (int algorithm = 1; algorithm <= 5; algorithm++)
		for (unsigned late = 0; late < 4; late++) {
			struct pump *pump = begun(4, (Traind__Peer__Algorithm)algorithm, 1);
			for (unsigned i = 0; i < 4; i++)
				if (i != late) {
					submit(pump, i, 0);
					pump_close(pump, i, 0, 0);
				}
			pass(pump, 600);
			for (unsigned i = 0; i < 4; i++)
				assert_int_equal(named(pump, i), i == late ? 0 : 1u << late);
			submit(pump, late, 0);
			pump_close(pump, late, 0, 0);
			pass(pump, 300);
			for (unsigned i = 0; i < 4; i++)
				assert_int_equal(pump->members[i].decided_count, 1);
			none_failed(pump);
			pump_destroy(pump);
		}
}

static void submit_in_scope(struct pump *pump, unsigned who, const uint32_t members[3])
{
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = 0,
		    .data = memory[who][0],
		    .count = COUNT,
		    .dtype = TR_I32,
		    .reduce = TR_SUM,
		    .contribute = true,
		    .scope = { members, 3 } } };
	assert_int_equal(pump_step(pump, who, &event), TR_OK);
	wait_for(pump, who, 0);
}

/* Nobody outside is named. Where the hub is not in it, nobody is asked, and each names whom it waits for itself. */
static void a_scope_names_its_own(void **state)
{
	static const uint32_t members[] = { 1, 3, 4 };
	(void)state;
	for (unsigned hub = 0; hub < 2; hub++)
		for (unsigned late = 0; late < 3; late++) {
			struct pump *pump = begun(5, RING, hub);
			for (unsigned k = 0; k < 3; k++)
				if (k != late)
					submit_in_scope(pump, members[k], members);
			pass(pump, 600);
			for (unsigned i = 0; i < 5; i++)
				assert_int_equal(named(pump, i),
				    hub == 0 || i == 0 || i == 2 || i == members[late]
				        ? 0
				        : 1u << members[late]);
			none_failed(pump);
			pump_destroy(pump);
		}
}

/* Two in turn, each for less than the time to ask. */
static void who_waits_a_little_at_a_time_names_it_too(void **state)
{
	(void)state;
	struct pump *pump = begun(4, RING, 0);
	for (unsigned i = 0; i < 3; i++) {
		submit(pump, i, 0);
		submit(pump, i, 1);
	}
	submit(pump, 3, 1);
	submit(pump, 0, 2);
	pump_run(pump);
	for (unsigned k = 0; k < 14; k++) {
		wait_for(pump, 0, k % 2 * 2);
		step(pump);
	}
	wait_for(pump, 0, 0);
	pump_run(pump);
	assert_int_equal(named(pump, 0), 1u << 3);
	wait_for(pump, 0, 2);
	pump_run(pump);
	assert_int_equal(named(pump, 0), 7u << 1);
	none_failed(pump);
	pump_destroy(pump);
}

/* Looks at each of many ops again and again, as they may be done in any order. */
static void who_looks_at_many_ops_asks_little(void **state)
{
	(void)state;
	struct pump *pump = begun(3, STAR, 0);
	for (uint32_t tag = 0; tag < 200; tag++)
		assert_int_equal(pump_submit(pump, 1, tag, memory[1][0], COUNT, TR_I32, TR_SUM),
		    TR_OK);
	pump_run(pump);
	size_t before = pump->last;
	for (unsigned ms = 0; ms < 1000; ms += 10) {
		pump->now_us += 10000;
		for (uint32_t tag = 0; tag < 200; tag++)
			wait_for(pump, 1, tag);
	}
	assert_in_range(sent(pump, before, SEGMENT_AWAITED), 10, 250);
	pump_destroy(pump);
}

/* It was told long ago. */
static void what_was_said_long_ago_is_not_named(void **state)
{
	(void)state;
	struct pump *pump = begun(3, STAR, 0);
	submit_and_wait(pump, 1);
	submit(pump, 1, 1);
	submit(pump, 0, 0);
	pass(pump, 600);
	assert_int_equal(named(pump, 1), 1u << 2);
	wait_for(pump, 1, 1);
	pass(pump, 1000);
	submit(pump, 0, 1);
	wait_for(pump, 1, 0);
	assert_int_equal(named(pump, 1), 0);
	pass(pump, 300);
	assert_int_equal(named(pump, 1), 1u << 2);
	none_failed(pump);
	pump_destroy(pump);
}

static void another_view_asks_anew(void **state)
{
	(void)state;
	struct pump *pump = begun(4, RING, 0);
	for (unsigned i = 0; i < 3; i++)
		submit_and_wait(pump, i);
	pass(pump, 600);
	pump_kill(pump, 1);
	pump_propose(pump, 2);
	assert_int_equal(named(pump, 0), 0);
	struct pump_view view = pump_first_view(pump);
	view.number = 2;
	view.count = 3;
	view.peers[1] = 3;
	view.peers[2] = 4;
	view.policy = TRAIND__PEER__POLICY__POLICY_KEEP;
	view.algorithm = RING;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 4;
	for (unsigned i = 0; i < 4; i++)
		view.contributors[i] = i + 1;
	pump_install(pump, &view);
	assert_int_equal(named(pump, 0), 0);
	pass(pump, 600);
	assert_int_equal(named(pump, 0), 1u << 3);
	assert_int_equal(named(pump, 2), 1u << 3);
	none_failed(pump);
	pump_destroy(pump);
}

/* ---- what is on the wire ---- */

/* It would take the answer, or the word that the op is here, for nonsense. */
static void a_peer_of_an_older_version_is_told_nothing_new(void **state)
{
	(void)state;
	struct pump *pump = begun(4, STAR, 0);
	submit(pump, 0, 0);
	submit(pump, 2, 0);
	pump_run(pump);
	size_t before = pump->last;
	assert_int_equal(offer(pump, 1, 0, frame(1, SEGMENT_AWAITED, SEGMENT_ASKS_CLOSED)), TR_OK);
	assert_int_equal(offer(pump, 0, 2, frame(0, SEGMENT_AWAITED, SEGMENT_ASKS_CLOSED)), TR_OK);
	assert_int_equal(pump->last, before);
	assert_int_equal(offer(pump, 1, 0, frame(1, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS)), TR_OK);
	assert_int_equal(sent(pump, before, SEGMENT_LACKED), 1);
	assert_int_equal(sent(pump, before, SEGMENT_AWAITED), 2); /* to 3 and 4 */
	before = pump->last;
	assert_int_equal(offer(pump, 1, 0, frame(1, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS)), TR_OK);
	assert_int_equal(sent(pump, before, SEGMENT_LACKED), 1);
	assert_int_equal(sent(pump, before, SEGMENT_AWAITED), 0); /* once in an interval */
	before = pump->last;
	assert_int_equal(offer(pump, 0, 2, frame(0, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS)), TR_OK);
	assert_int_equal(offer(pump, 0, 3, frame(0, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS)), TR_OK);
	assert_int_equal(sent(pump, before, SEGMENT_AWAITED), 1);
	assert_int_equal(pump->messages[before]->header.encoding, SEGMENT_HAS);
	pump_destroy(pump);
}

static void hostile_words_are_refused(void **state)
{
	(void)state;
	struct pump *pump = begun(3, STAR, 0);
	struct segment_header bad[10];
	const unsigned from[10] = { 2, 2, 2, 2, 0, 0, 0, 0, 0, 2 };
	submit_and_wait(pump, 1);
	pump_run(pump);
	bad[0] = frame(2, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS); /* of who is not the hub */
	bad[1] = frame(2, SEGMENT_AWAITED, SEGMENT_HAS);
	bad[2] = frame(0, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS); /* for another */
	bad[3] = frame(2, SEGMENT_LACKED, 0);
	bad[4] = frame(0, SEGMENT_AWAITED, SEGMENT_HAS); /* the hub has nothing to say of itself */
	bad[5] = frame(0, SEGMENT_LACKED, 0);
	bad[5].contributors[0] = 1u << 3; /* nobody */
	bad[6] = frame(0, SEGMENT_LACKED, 0);
	bad[6].contributors[0] = 1u << 1; /* who asked for it */
	bad[7] = frame(0, SEGMENT_LACKED, 0);
	bad[7].contributors[31] = 0x80;
	bad[8] = frame(2, SEGMENT_LACKED, 0);
	bad[9] = frame(2, SEGMENT_LACKED, 0);
	bad[9].bytes = 4;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(offer(pump, from[i], 1, bad[i]), TR_EPROTO);
	struct segment_header pair = frame(2, SEGMENT_AWAITED, SEGMENT_ASKS_LACKS);
	pair.signature.collective = TR_SEND;
	pair.tag = 9;
	assert_int_equal(offer(pump, 2, 0, pair), TR_EPROTO);
	struct segment_header early = frame(0, SEGMENT_LACKED, 0);
	submit(pump, 2, 0);
	pump_run(pump);
	assert_int_equal(offer(pump, 0, 2, early), TR_EPROTO); /* it has not asked */
	early.round = 2;
	assert_int_equal(offer(pump, 0, 1, early), TR_ESTALE);
	early.round = 1;
	early.tag = 7; /* released meanwhile */
	assert_int_equal(offer(pump, 0, 1, early), TR_OK);
	none_failed(pump);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guarantee_3_the_deadline_names_who_has_not_submitted),
		cmocka_unit_test(who_has_submitted_and_computes_is_not_named),
		cmocka_unit_test(a_hub_that_has_not_begun_is_named),
		cmocka_unit_test(all_that_are_late_are_named_once_the_hub_has_it),
		cmocka_unit_test(who_waits_for_one_that_has_it_names_that_one),
		cmocka_unit_test(a_commit_names_who_has_not_submitted),
		cmocka_unit_test(a_scope_names_its_own),
		cmocka_unit_test(who_waits_a_little_at_a_time_names_it_too),
		cmocka_unit_test(who_looks_at_many_ops_asks_little),
		cmocka_unit_test(what_was_said_long_ago_is_not_named),
		cmocka_unit_test(another_view_asks_anew),
		cmocka_unit_test(a_peer_of_an_older_version_is_told_nothing_new),
		cmocka_unit_test(hostile_words_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
