/* A caller waits for a result before it commits: what it reads stays, or the round begins again at it; and it learns that
 * somebody closed the round without the op.
 */
#include "tests/unit/group_pump.h"

#define COUNT 8

#define UNIFORM TRAIND__PEER__POLICY__POLICY_UNIFORM

static int32_t memory[PUMP_MEMBERS][2][COUNT];

static struct pump *begun(unsigned n, Traind__Peer__Algorithm algorithm, Traind__Peer__Policy policy)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = algorithm;
	view.policy = policy;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		for (unsigned e = 0; e < COUNT; e++)
			memory[i][0][e] = memory[i][1][e] = 1;
	}
	return pump;
}

static tr_status wait_for(struct pump *pump, unsigned who, uint32_t tag)
{
	return pump_step(pump, who, &(struct group_event){ .kind = GROUP_WAIT, .tag = tag });
}

static void submit(struct pump *pump, unsigned who, uint32_t tag)
{
	assert_int_equal(pump_submit(pump, who, tag, memory[who][tag], COUNT, TR_I32, TR_SUM),
	    TR_OK);
}

static void a_wait_is_answered_when_the_result_is_here(void **state)
{
	(void)state;
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING, UNIFORM);
	assert_int_equal(wait_for(pump, 0, 0), TR_EINVAL);
	submit(pump, 0, 0);
	assert_int_equal(wait_for(pump, 0, 0), TR_OK);
	assert_int_equal(pump->members[0].done_count, 0);
	submit(pump, 1, 0);
	pump_run(pump);
	assert_int_equal(pump->members[0].done_count, 1);
	assert_int_equal(pump->members[1].done_count, 0); /* nobody asked */
	assert_int_equal(wait_for(pump, 1, 0), TR_OK);
	assert_int_equal(pump->members[1].done_count, 1);
	assert_int_equal(wait_for(pump, 1, 0), TR_OK); /* as often as it likes */
	assert_int_equal(pump->members[1].done_count, 2);
	pump_destroy(pump);
}

/* Three submit op 0, and all but 3 op 1; 1 reads op 0's result. Then 3 dies. */
static struct pump *one_dies_after_a_read(bool reads)
{
	struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_RING, UNIFORM);
	for (unsigned i = 0; i < 3; i++)
		submit(pump, i, 0);
	pump_run(pump);
	submit(pump, 0, 1);
	submit(pump, 1, 1);
	pump_run(pump);
	if (reads)
		assert_int_equal(wait_for(pump, 0, 0), TR_OK);
	assert_int_equal(pump->members[0].done_count, reads);
	pump_kill(pump, 2);
	pump_propose(pump, 2);
	return pump;
}

static void a_report_says_that_a_result_was_read(void **state)
{
	(void)state;
	for (unsigned reads = 0; reads < 2; reads++) {
		struct pump *pump = one_dies_after_a_read(reads);
		assert_int_equal(pump->members[0].report->read, reads);
		assert_false(pump->members[1].report->read);
		pump_destroy(pump);
	}
}

/* What is asked for after the report is answered with the result of the next view: 2 of 2, not the 3 that is there. */
static void a_frozen_member_gives_nothing_to_read(void **state)
{
	(void)state;
	struct pump *pump = one_dies_after_a_read(false);
	assert_int_equal(memory[1][0][0], 3);
	assert_int_equal(wait_for(pump, 1, 0), TR_OK);
	assert_int_equal(pump->members[1].done_count, 0);
	struct pump_view view = pump_first_view(pump);
	view.number = 2;
	view.count = 2;
	view.policy = UNIFORM;
	view.base_attempt = 2;
	pump_install(pump, &view);
	assert_int_equal(pump->members[1].done_count, 0); /* it is redone */
	pump_run(pump);
	assert_int_equal(pump->members[1].done_count, 1);
	assert_int_equal(memory[1][0][0], 2);
	for (unsigned i = 0; i < 2; i++)
		pump_close(pump, i, (uint64_t)memory[i][0][0], 0);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

/* memberd says `restart`: the attempt of which something was read ends at the callers, and nothing of it is known to be read later. */
static void what_was_read_ends_with_its_attempt(void **state)
{
	(void)state;
	struct pump *pump = one_dies_after_a_read(true);
	pump_close(pump, 0, 3, 0);
	struct pump_view view = pump_first_view(pump);
	view.number = 2;
	view.count = 2;
	view.policy = UNIFORM;
	view.base_attempt = 2;
	view.restart = true;
	pump_install(pump, &view);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump->members[i].status, TR_ERESTART);
		assert_int_equal(wait_for(pump, i, 0), i == 0 ? TR_EINVAL : TR_ERESTART);
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		memory[i][0][0] = memory[i][1][0] = 1;
		submit(pump, i, 0);
		submit(pump, i, 1);
	}
	pump_propose(pump, 3);
	assert_false(pump->members[0].report->read);
	pump_destroy(pump);
}

/* ---- one waits, another has closed without the op ---- */

static void seconds_pass(struct pump *pump)
{
	for (uint64_t second = 2; second < 12; second += 2) {
		for (unsigned i = 0; i < pump->n; i++)
			pump_step(pump, i,
			    &(struct group_event){ .kind = GROUP_TICK, .now_us = second * 1000000 });
		pump_run(pump);
	}
}

/* It failed, and the text names it and another member of `n`. */
static void named(const struct pump *pump, unsigned who)
{
	const struct pump_member *member = &pump->members[who];
	unsigned others = 0;

	assert_int_equal(member->failed, TR_EMISMATCH);
	assert_int_equal(member->status, TR_EMISMATCH); /* its caller was told */
	for (unsigned i = 0; i < pump->n; i++) {
		char name[16];
		snprintf(name, sizeof(name), " %u", i + 1);
		if (strstr(member->reason, name) == NULL)
			assert_true(i != who);
		else
			others += i != who;
	}
	assert_true(others > 0);
}

/* All wait for an all-reduce that one has not. */
static void a_waiter_learns_who_closed_without_its_op(void **state)
{
	(void)state;
	for (unsigned n = 2; n < 5; n++)
		for (int algorithm = 1; algorithm <= 5; algorithm++)
			for (unsigned odd = 0; odd < n; odd++) {
				struct pump *pump = begun(n, (Traind__Peer__Algorithm)algorithm,
				    TRAIND__PEER__POLICY__POLICY_REPLAY);
				unsigned failed = 0;
				for (unsigned i = 0; i < n; i++) {
					if (i == odd) {
						pump_close(pump, i, 0, 0);
						continue;
					}
					submit(pump, i, 0);
					assert_int_equal(wait_for(pump, i, 0), TR_OK);
				}
				pump_run(pump);
				seconds_pass(pump);
				named(pump, odd);
				for (unsigned i = 0; i < n; i++)
					failed += pump->members[i].failed == TR_EMISMATCH;
				assert_true(failed >= 2);
				pump_destroy(pump);
			}
}

/* A second in all, each time less than one, also of two ops in turn. */
static void a_waiter_may_wait_a_little_at_a_time(void **state)
{
	(void)state;
	for (unsigned tags = 1; tags <= 2; tags++) {
		struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_STAR,
		    TRAIND__PEER__POLICY__POLICY_REPLAY);
		for (unsigned i = 0; i < 2; i++)
			for (uint32_t tag = 0; tag < tags; tag++)
				submit(pump, i, tag);
		pump_close(pump, 2, 0, 0);
		pump_run(pump);
		for (uint64_t now_us = 0; now_us < 4000000; now_us += 400000) {
			for (unsigned i = 0; i < 3; i++)
				pump_step(pump, i,
				    &(struct group_event){ .kind = GROUP_TICK, .now_us = now_us });
			for (unsigned i = 0; i < 2 * tags; i++) {
				const struct group_event wait = { .kind = GROUP_WAIT,
					.tag = i / 2,
					.now_us = now_us };
				if (pump->members[i % 2].failed == 0)
					assert_int_equal(pump_step(pump, i % 2, &wait), TR_OK);
			}
			pump_run(pump);
		}
		named(pump, 2);
		assert_true(pump->members[0].failed == TR_EMISMATCH ||
		    pump->members[1].failed == TR_EMISMATCH);
		pump_destroy(pump);
	}
}

/* The hub computes: it does not wait, and it may not even have the op yet. It passes the question on. */
static void the_hub_asks_for_those_who_wait(void **state)
{
	(void)state;
	for (unsigned hub_has_it = 0; hub_has_it < 2; hub_has_it++) {
		struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_STAR,
		    TRAIND__PEER__POLICY__POLICY_REPLAY);
		if (hub_has_it)
			submit(pump, 0, 0);
		submit(pump, 1, 0);
		assert_int_equal(wait_for(pump, 1, 0), TR_OK);
		pump_close(pump, 2, 0, 0);
		pump_run(pump);
		seconds_pass(pump);
		if (!hub_has_it) { /* the sum that it cannot take yet is before the question */
			submit(pump, 0, 0);
			pump_run(pump);
			seconds_pass(pump);
		}
		named(pump, 1);
		named(pump, 2);
		assert_int_equal(pump->members[0].failed, 0);
		pump_destroy(pump);
	}
}

static void submit_from(struct pump *pump, unsigned who, enum tr_collective collective,
    unsigned root)
{
	assert_int_equal(pump_step(pump, who,
	                     &(struct group_event){ .kind = GROUP_SUBMIT,
	                         .submit = { .tag = 0,
	                             .collective = collective,
	                             .data = memory[who][0],
	                             .count = COUNT,
	                             .dtype = TR_I32,
	                             .reduce = TR_SUM,
	                             .root = root,
	                             .contribute = true } }),
	    TR_OK);
}

/* Those who get a broadcast send nothing, and its root has closed. */
static void a_waiter_learns_that_the_root_closed(void **state)
{
	(void)state;
	for (unsigned n = 2; n < 5; n++)
		for (unsigned root = 0; root < n; root++) {
			struct pump *pump = begun(n, TRAIND__PEER__ALGORITHM__ALGORITHM_RING,
			    TRAIND__PEER__POLICY__POLICY_REPLAY);
			for (unsigned i = 0; i < n; i++) {
				if (i == root) {
					pump_close(pump, i, 0, 0);
					continue;
				}
				submit_from(pump, i, TR_BROADCAST, root);
				assert_int_equal(wait_for(pump, i, 0), TR_OK);
			}
			pump_run(pump);
			seconds_pass(pump);
			named(pump, root);
			pump_destroy(pump);
		}
}

static void a_receiver_learns_that_the_sender_closed(void **state)
{
	(void)state;
	for (unsigned to = 0; to < 3; to++) {
		struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_RING,
		    TRAIND__PEER__POLICY__POLICY_REPLAY);
		unsigned from = (to + 1) % 3, third = (to + 2) % 3;
		submit_from(pump, to, TR_RECV, from);
		assert_int_equal(wait_for(pump, to, 0), TR_OK);
		pump_close(pump, from, 0, 0);
		pump_close(pump, third, 0, 0);
		pump_run(pump);
		seconds_pass(pump);
		named(pump, to);
		named(pump, from);
		assert_int_equal(pump->members[third].failed, 0);
		pump_destroy(pump);
	}
}

/* Nobody has closed, and nobody sends: each takes the other for the root, or for the sender. */
static void two_that_wait_for_each_other_learn_it(void **state)
{
	(void)state;
	for (unsigned pair = 0; pair < 2; pair++) {
		struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING,
		    TRAIND__PEER__POLICY__POLICY_REPLAY);
		for (unsigned i = 0; i < 2; i++) {
			submit_from(pump, i, pair ? TR_RECV : TR_BROADCAST, 1 - i);
			assert_int_equal(wait_for(pump, i, 0), TR_OK);
		}
		pump_run(pump);
		seconds_pass(pump);
		named(pump, 0);
		named(pump, 1);
		pump_destroy(pump);
	}
}

/* One that is slow is not accused: it may still submit the op. */
static void a_slow_member_is_waited_for(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_STAR,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	for (unsigned i = 0; i < 2; i++) {
		submit(pump, i, 0);
		assert_int_equal(wait_for(pump, i, 0), TR_OK);
	}
	pump_run(pump);
	seconds_pass(pump);
	submit(pump, 2, 0);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pump->members[i].failed, 0);
		assert_int_equal(pump->members[i].done_count, i < 2);
		pump_close(pump, i, 0, 0);
	}
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

/* A peer may say anything in it. */
static void a_hostile_question_is_refused(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_STAR,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	struct segment_header good = { .view = 1,
		.round = 1,
		.attempt = 1,
		.tag = 7,
		.segment = 1,
		.signature = { .count = 1, .dtype = TR_I32, .reduce = TR_SUM },
		.kind = SEGMENT_AWAITED };
	struct segment_header bad[4] = { good, good, good, good };
	bad[0].segment = 3; /* nobody */
	bad[1].segment = 0; /* the one that is asked */
	bad[2].segment = 2; /* somebody else; 2 is not the hub */
	bad[3].bytes = 4;
	submit(pump, 0, 0);
	for (unsigned i = 0; i < 5; i++) {
		struct group_event event = { .kind = GROUP_SEGMENT, .from = 2 };
		event.segment.header = i < 4 ? &bad[i] : &good;
		event.segment.payload = "asks";
		assert_int_equal(pump_step(pump, 0, &event), i < 4 ? TR_EPROTO : TR_OK);
	}
	good.round = 2; /* not now: it is not kept either */
	struct group_event event = { .kind = GROUP_SEGMENT, .from = 2 };
	event.segment.header = &good;
	assert_int_equal(pump_step(pump, 0, &event), TR_ESTALE);
	assert_int_equal(pump->members[0].failed, 0);
	pump_destroy(pump);
}

/* ---- keep: the source was lost ---- */

static void what_a_lost_source_did_not_send_is_no_result(void **state)
{
	static const enum tr_collective collectives[] = { TR_BROADCAST, TR_RECV, TR_ALL_GATHER };
	(void)state;
	for (unsigned k = 0; k < 3; k++) {
		struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING,
		    TRAIND__PEER__POLICY__POLICY_KEEP);
		struct pump_view view = pump_first_view(pump);
		memory[1][0][0] = 99;
		submit_from(pump, 1, collectives[k], 0);
		pump_kill(pump, 0);
		pump_propose(pump, 2);
		view.number = 2;
		view.count = 1;
		view.peers[0] = 2;
		view.policy = TRAIND__PEER__POLICY__POLICY_KEEP;
		view.finish = true;
		view.base_attempt = 1;
		view.contributor_count = 2;
		view.contributors[0] = 1;
		view.contributors[1] = 2;
		pump_install(pump, &view);
		for (unsigned again = 1; again < 3; again++) { /* as often as it asks */
			assert_int_equal(wait_for(pump, 1, 0), TR_OK);
			assert_int_equal(pump->members[1].done_count, again);
			assert_int_equal(pump->members[1].done, k < 2 ? TR_EPEERLOST : TR_OK);
		}
		if (k < 2)
			assert_non_null(strstr(pump->members[1].reason, "peer 1"));
		assert_int_equal(memory[1][0][0], 99);
		pump_close(pump, 1, 0, 0);
		pump_run(pump);
		assert_int_equal(pump->members[1].decided_count, 1);
		assert_int_equal(pump->members[1].status, TR_OK);
		assert_true(pump->members[1].decided.partial);
		pump_destroy(pump);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_is_answered_when_the_result_is_here),
		cmocka_unit_test(a_report_says_that_a_result_was_read),
		cmocka_unit_test(a_frozen_member_gives_nothing_to_read),
		cmocka_unit_test(what_was_read_ends_with_its_attempt),
		cmocka_unit_test(a_waiter_learns_who_closed_without_its_op),
		cmocka_unit_test(a_waiter_may_wait_a_little_at_a_time),
		cmocka_unit_test(the_hub_asks_for_those_who_wait),
		cmocka_unit_test(a_waiter_learns_that_the_root_closed),
		cmocka_unit_test(a_receiver_learns_that_the_sender_closed),
		cmocka_unit_test(two_that_wait_for_each_other_learn_it),
		cmocka_unit_test(a_slow_member_is_waited_for),
		cmocka_unit_test(a_hostile_question_is_refused),
		cmocka_unit_test(what_a_lost_source_did_not_send_is_no_result),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
