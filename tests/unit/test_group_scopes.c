/* Ops of a part of the contributors: what each scope gets, who is told what of a scope that others see otherwise, and what deaths do to them. */
#include "tests/unit/group_scopes.h"

#include "collectives/core/scope.h"

#define COUNT 12

static int64_t memory[PUMP_MEMBERS][4][COUNT];

static int64_t value(unsigned who, unsigned slot, size_t k)
{
	return (int64_t)(1 + slot) << (6 * who) | (int64_t)(k % 2);
}

static void fill(unsigned who, unsigned slot)
{
	for (size_t k = 0; k < COUNT; k++)
		memory[who][slot][k] = value(who, slot, k);
}

/* Contributors of a scope. */
struct set {
	uint32_t members[PUMP_MEMBERS], count;
};

static const struct set everybody;

static struct set row_of(unsigned who, unsigned length, unsigned n)
{
	struct set set = { .count = 0 };
	for (unsigned i = who - who % length; i < n && i < who - who % length + length; i++)
		set.members[set.count++] = i;
	return set;
}

static struct set comb_of(unsigned who, unsigned stride, unsigned n)
{
	struct set set = { .count = 0 };
	for (unsigned i = who % stride; i < n; i += stride)
		set.members[set.count++] = i;
	return set;
}

static tr_status submit(struct pump *pump, unsigned who, uint32_t tag, unsigned slot,
    enum tr_collective collective, unsigned root, struct set set)
{
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_SUBMIT,
	        .submit = { .tag = tag,
	            .collective = collective,
	            .data = collective == TR_SEND ? NULL : memory[who][slot],
	            .input = collective == TR_SEND ? memory[who][slot] : NULL,
	            .count = COUNT,
	            .dtype = TR_I64,
	            .reduce = TR_SUM,
	            .root = root,
	            .contribute = true,
	            .scope = { set.members, set.count } } });
}

static int64_t sum_of(struct set set, unsigned slot, size_t k)
{
	int64_t sum = 0;
	for (unsigned i = 0; i < set.count; i++)
		sum += value(set.members[i], slot, k);
	return sum;
}

/* A mesh: rows of `length`, columns across them, and an op of all, at once. Rows use the same tag, so do columns. */
static void mesh(unsigned n, unsigned length, enum tr_algorithm algorithm, bool deterministic)
{
	struct pump *pump = begun(n, algorithm, deterministic);
	for (unsigned i = 0; i < n; i++)
		for (unsigned slot = 0; slot < 3; slot++)
			fill(i, slot);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(submit(pump, i, 7, 0, TR_ALL_REDUCE, 0, row_of(i, length, n)),
		    TR_OK);
		assert_int_equal(submit(pump, i, 8, 1, TR_ALL_REDUCE, 0, comb_of(i, length, n)),
		    TR_OK);
		assert_int_equal(submit(pump, i, 9, 2, TR_ALL_REDUCE, 0, everybody), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump);
	all_committed(pump);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		for (size_t k = 0; k < COUNT; k++) {
			struct set all = row_of(0, n, n);
			assert_int_equal(memory[i][0][k], sum_of(row_of(i, length, n), 0, k));
			assert_int_equal(memory[i][1][k], sum_of(comb_of(i, length, n), 1, k));
			assert_int_equal(memory[i][2][k], sum_of(all, 2, k));
		}
		uint64_t peers[PUMP_MEMBERS];
		size_t count;
		struct set comb = comb_of(i, length, n);
		assert_int_equal(group_core_contributors(pump->members[i].core, 8, COUNT - 1, peers,
		                     PUMP_MEMBERS, &count),
		    TR_OK);
		assert_int_equal(count, comb.count);
		for (size_t k = 0; k < count; k++)
			assert_int_equal(peers[k], 1 + comb.members[k]);
	}
	pump_destroy(pump);
}

static void rows_and_columns_of_a_mesh(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= PUMP_MEMBERS; n++)
		for (unsigned length = 1; length <= n; length++)
			for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
				mesh(n, length, (enum tr_algorithm)algorithm, (n + length) % 2 == 0);
}

/* Blocks and roots are counted within the scope {1, 3, 5} of six. */
static void every_collective_in_a_scope(void **state)
{
	(void)state;
	const struct set odd = { { 1, 3, 5 }, 3 };
	struct pump *pump = begun(6, TR_DIRECT, false);
	for (unsigned i = 0; i < 6; i++)
		for (unsigned slot = 0; slot < 4; slot++)
			fill(i, slot);
	for (unsigned i = 1; i < 6; i += 2) {
		assert_int_equal(submit(pump, i, 1, 0, TR_REDUCE_SCATTER, 0, odd), TR_OK);
		assert_int_equal(submit(pump, i, 2, 1, TR_ALL_GATHER, 0, odd), TR_OK);
		assert_int_equal(submit(pump, i, 3, 2, TR_BROADCAST, 2, odd), TR_OK);
		assert_int_equal(submit(pump, i, 5, 0, TR_BARRIER, 0, odd), TR_OK);
	}
	assert_int_equal(submit(pump, 3, 4, 3, TR_SEND, 2, odd), TR_OK);
	assert_int_equal(submit(pump, 5, 4, 3, TR_RECV, 1, odd), TR_OK);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	all_committed(pump);
	for (unsigned at = 0; at < 3; at++) {
		unsigned i = 1 + 2 * at;
		for (size_t k = 0; k < COUNT; k++) {
			if (k / 4 == at)
				assert_int_equal(memory[i][0][k], sum_of(odd, 0, k));
			assert_int_equal(memory[i][1][k], value(1 + 2 * (unsigned)(k / 4), 1, k));
			assert_int_equal(memory[i][2][k], value(5, 2, k));
		}
	}
	assert_int_equal(memory[5][3][1], value(3, 3, 1));
	for (unsigned slot = 0; slot < 4; slot++) /* who is not in it sees nothing of it */
		assert_int_equal(memory[2][slot][5], value(2, slot, 5));
	pump_destroy(pump);
}

static void a_scope_that_cannot_be(void **state)
{
	(void)state;
	static const struct set bad[] = { { { 0, 1, 3 }, 3 }, { { 1, 2 }, 2 }, { { 0, 0 }, 2 },
		{ { 1, 0 }, 2 }, { { 0, UINT32_MAX }, 2 }, { { 0, 1, 2, 3 }, 4 },
		{ { 0 }, UINT32_MAX } };
	struct pump *pump = begun(3, TR_RING, false);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(submit(pump, 0, 1, 0, TR_ALL_REDUCE, 0, bad[i]), TR_EINVAL);
		assert_non_null(strstr(pump->members[0].reason, "op 1: "));
	}
	assert_int_equal(submit(pump, 0, 1, 0, TR_BROADCAST, 2, (struct set){ { 0, 1 }, 2 }),
	    TR_EINVAL);
	assert_int_equal(submit(pump, 0, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 0, 2 }, 2 }),
	    TR_OK);
	pump_destroy(pump);
}

static void names_both(const struct pump_member *member, const char *a, const char *b)
{
	if (!strstr(member->reason, a) || !strstr(member->reason, b))
		fail_msg("'%s' does not name %s and %s", member->reason, a, b);
}

static void scopes_that_differ_name_both_peers(void **state)
{
	(void)state;
	struct pump *pump = begun(4, TR_DIRECT, false);
	assert_int_equal(submit(pump, 1, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 0, 1 }, 2 }),
	    TR_OK);
	assert_int_equal(submit(pump, 0, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 0, 1, 2 }, 3 }),
	    TR_OK);
	pump_run(pump);
	assert_true(
	    pump->members[0].failed == TR_EMISMATCH || pump->members[1].failed == TR_EMISMATCH);
	unsigned told = pump->members[0].failed == TR_EMISMATCH ? 0 : 1;
	names_both(&pump->members[told], "a scope of 2 at peer", "");
	names_both(&pump->members[told], "peer 1", "peer 2");
	pump_destroy(pump);
}

/* Contributor 2 leaves out the op of its scope: the other one has closed and waits. */
static void an_op_that_one_of_the_scope_lacks(void **state)
{
	(void)state;
	struct pump *pump = begun(4, TR_STAR, false);
	assert_int_equal(submit(pump, 3, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 2, 3 }, 2 }),
	    TR_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 4; i++)
		(void)pump_step(pump, i,
		    &(struct group_event){ .kind = GROUP_TICK, .now_us = 10000000 });
	pump_run(pump);
	assert_int_equal(pump->members[3].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[2].failed, TR_EMISMATCH);
	names_both(&pump->members[3], "3", "4");
	pump_destroy(pump);
}

/* The same where it does not close but waits for the result. */
static void a_wait_for_an_op_that_one_of_the_scope_lacks(void **state)
{
	(void)state;
	struct pump *pump = begun(4, TR_STAR, false);
	assert_int_equal(submit(pump, 3, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 2, 3 }, 2 }),
	    TR_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	assert_int_equal(pump_step(pump, 3, &(struct group_event){ .kind = GROUP_WAIT, .tag = 1 }),
	    TR_OK);
	pump_run(pump);
	/* They tell the hub that they have closed, and it asks who is concerned. */
	for (unsigned turn = 1; turn <= 3; turn++) {
		for (unsigned i = 0; i < 4; i++)
			(void)pump_step(pump, i,
			    &(struct group_event){ .kind = GROUP_TICK, .now_us = turn * 3000000 });
		pump_run(pump);
	}
	assert_int_equal(pump->members[3].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[2].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[0].failed, TR_OK);
	names_both(&pump->members[3], "3", "4");
	pump_destroy(pump);
}

/* Members of a scope that hold different results never commit. */
static void results_that_differ_in_a_scope(void **state)
{
	(void)state;
	struct pump *pump = begun(4, TR_STAR, false);
	const struct set pair = { { 2, 3 }, 2 };
	for (unsigned i = 2; i < 4; i++) {
		fill(i, 0);
		assert_int_equal(submit(pump, i, 1, 0, TR_BROADCAST, 0, pair), TR_OK);
	}
	assert_true(pump->last > pump->first);
	struct core_message *sent = NULL;
	for (size_t i = pump->first; i < pump->last && !sent; i++)
		if (pump->messages[i] && pump->messages[i]->kind == GROUP_DO_SEND_SEGMENT)
			sent = pump->messages[i];
	assert_non_null(sent);
	((uint8_t *)(uintptr_t)core_message_event(sent).segment.payload)[0] ^= 1; /* on its way */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	unsigned failed = 0;
	for (unsigned i = 0; i < 4; i++) {
		failed += pump->members[i].failed == TR_EDIGEST;
		assert_true(pump->members[i].decided_count == 0 || pump->members[i].status != TR_OK);
	}
	assert_int_equal(failed, 4);
	pump_destroy(pump);
}

/* A view change without a loss: what is sealed stays, the rest goes on. */
static void a_joiner_does_not_disturb(void **state)
{
	(void)state;
	for (unsigned delivered = 0; delivered < 60; delivered++) {
		struct pump *pump = pump_create(5);
		struct pump_view view = first_view(pump, TR_DIRECT, false);
		view.count = 4;
		pump_ready_all(pump);
		pump_install(pump, &view);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
			fill(i, 0);
			fill(i, 1);
			assert_int_equal(submit(pump, i, 1, 0, TR_ALL_REDUCE, 0, row_of(i, 2, 4)),
			    TR_OK);
			assert_int_equal(submit(pump, i, 2, 1, TR_ALL_REDUCE, 0, comb_of(i, 2, 4)),
			    TR_OK);
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		}
		bool over = pump_some(pump, delivered) < delivered;
		if (!over) {
			pump_propose(pump, 2);
			for (unsigned i = 0; i < 4; i++)
				assert_true(pump->members[i].report->scoped);
			view = first_view(pump, TR_RING, false);
			view.number = 2;
			uint64_t committed = 0;
			for (unsigned i = 0; i < 4; i++)
				if (pump->members[i].report->committed_round > committed)
					committed = pump->members[i].report->committed_round;
			view.base_round = committed + 1;
			view.base_attempt = committed == 0 ? 1 : 0;
			view.finish = committed == 0;
			view.contributor_count = view.finish ? 4 : 0;
			for (unsigned i = 0; i < 4; i++)
				view.contributors[i] = i + 1;
			view.participate_from[4] = view.base_round + 1;
			view.contribute_from[4] = view.base_round + 2;
			view.donor[4] = 1;
			pump_install(pump, &view);
			pump_run(pump);
		}
		all_committed(pump);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(pump->members[i].decided_count, 1);
			for (size_t k = 0; k < COUNT; k++) {
				assert_int_equal(memory[i][0][k], sum_of(row_of(i, 2, 4), 0, k));
				assert_int_equal(memory[i][1][k], sum_of(comb_of(i, 2, 4), 1, k));
			}
		}
		pump_destroy(pump);
		if (over)
			return;
	}
	fail_msg("the round had no end");
}

/* A contributor dies and the round begins again: everybody is told, and the ops of the attempt before are gone. */
static void a_death_begins_the_round_again(void **state)
{
	(void)state;
	for (int policy = 0; policy < 3; policy++) {
		struct pump *pump = pump_create(4);
		struct pump_view view = first_view(pump, TR_DIRECT, false);
		view.policy = (Traind__Peer__Policy)policy;
		pump_ready_all(pump);
		pump_install(pump, &view);
		begin_all(pump);
		for (unsigned i = 0; i < 4; i++) {
			fill(i, 0);
			assert_int_equal(submit(pump, i, 1, 0, TR_ALL_REDUCE, 0, row_of(i, 2, 4)),
			    TR_OK);
		}
		pump_some(pump, 3);
		pump_kill(pump, 3);
		pump_propose(pump, 2);
		view = first_view(pump, TR_DIRECT, false);
		view.number = 2;
		view.policy = (Traind__Peer__Policy)policy;
		view.count = 3;
		view.restart = true;
		pump_install(pump, &view);
		begin_all(pump);
		for (unsigned i = 0; i < 3; i++) {
			assert_int_equal(pump->members[i].status, TR_ERESTART);
			assert_int_equal(pump->members[i].begun.contributors, 3);
			fill(i, 0);
			assert_int_equal(submit(pump, i, 1, 0, TR_ALL_REDUCE, 0, comb_of(i, 2, 3)),
			    TR_OK);
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		}
		pump_run(pump);
		all_committed(pump);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(memory[i][0][0], sum_of(comb_of(i, 2, 3), 0, 0));
		pump_destroy(pump);
	}
}

/* All had voted when one died: it may have committed, so the others do. */
static void a_death_after_all_votes_commits(void **state)
{
	(void)state;
	struct pump *pump = begun(4, TR_DIRECT, false);
	for (unsigned i = 0; i < 4; i++) {
		fill(i, 0);
		assert_int_equal(submit(pump, i, 1, 0, TR_ALL_REDUCE, 0, row_of(i, 2, 4)), TR_OK);
		if (i > 0)
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump);
	/* The hub has everything, and dies as it closes. */
	assert_int_equal(pump_close(pump, 0, 0, 0), TR_OK);
	assert_int_equal(pump->members[0].status, TR_OK);
	assert_int_equal(pump->members[0].decided_count, 1);
	pump_kill(pump, 0);
	pump_propose(pump, 2);
	for (unsigned i = 1; i < 4; i++)
		assert_true(pump->members[i].report->voted);
	struct pump_view view = { .number = 2,
		.base_round = 1,
		.base_attempt = 1,
		.count = 3,
		.peers = { 2, 3, 4 },
		.participate_from = { 1, 1, 1 },
		.contribute_from = { 1, 1, 1 },
		.finish = true,
		.contributors = { 1, 2, 3, 4 },
		.contributor_count = 4,
		.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT,
		.segment_bytes = 16 };
	pump_install(pump, &view);
	pump_run(pump);
	all_committed(pump);
	for (unsigned i = 1; i < 4; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		for (size_t k = 0; k < COUNT; k++)
			assert_int_equal(memory[i][0][k], sum_of(row_of(i, 2, 4), 0, k));
	}
	pump_destroy(pump);
}

/* The same where it is submitted while the view is frozen: reports do not have it. */
static void an_op_with_a_dead_one_submitted_in_between(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TR_DIRECT, false);
	fill(1, 0);
	pump_kill(pump, 2);
	pump_propose(pump, 2);
	assert_false(pump->members[1].report->scoped);
	assert_int_equal(submit(pump, 1, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 1, 2 }, 2 }),
	    TR_OK);
	struct pump_view view = first_view(pump, TR_DIRECT, false);
	view.number = 2;
	view.count = 2;
	view.policy = TRAIND__PEER__POLICY__POLICY_KEEP;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 3;
	for (unsigned i = 0; i < 3; i++)
		view.contributors[i] = i + 1;
	pump->members[1].link_lost = 99;
	pump_install(pump, &view);
	assert_int_equal(pump->members[1].link_lost, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].decided_count, 0);
	assert_int_equal(memory[1][0][0], value(1, 0, 0));
	pump_destroy(pump);
}

/* memberd went on without knowing of the op, and one of its scope is dead: it cannot be, so it asks for the round to begin again. */
static void an_op_with_a_dead_one_is_stuck(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TR_DIRECT, false);
	pump_kill(pump, 2);
	pump_propose(pump, 2);
	struct pump_view view = first_view(pump, TR_DIRECT, false);
	view.number = 2;
	view.count = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 3;
	for (unsigned i = 0; i < 3; i++)
		view.contributors[i] = i + 1;
	pump_install(pump, &view);
	pump->members[1].link_lost = 99;
	assert_int_equal(submit(pump, 1, 1, 0, TR_ALL_REDUCE, 0, (struct set){ { 1, 2 }, 2 }),
	    TR_OK);
	assert_int_equal(pump->members[1].link_lost, 0); /* another view, please */
	pump_propose(pump, 3);
	assert_true(pump->members[1].report->stuck);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_and_columns_of_a_mesh),
		cmocka_unit_test(every_collective_in_a_scope),
		cmocka_unit_test(a_scope_that_cannot_be),
		cmocka_unit_test(scopes_that_differ_name_both_peers),
		cmocka_unit_test(an_op_that_one_of_the_scope_lacks),
		cmocka_unit_test(a_wait_for_an_op_that_one_of_the_scope_lacks),
		cmocka_unit_test(results_that_differ_in_a_scope),
		cmocka_unit_test(a_joiner_does_not_disturb),
		cmocka_unit_test(a_death_begins_the_round_again),
		cmocka_unit_test(a_death_after_all_votes_commits),
		cmocka_unit_test(an_op_with_a_dead_one_is_stuck),
		cmocka_unit_test(an_op_with_a_dead_one_submitted_in_between),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
