/* What can be released and what not, what a vote says of it, what comes late, and what is sent ahead. */
#include "tests/unit/group_release.h"

#include "common/limits.h"

static void what_cannot_be_released(void **state)
{
	(void)state;
	const struct set both = { { 0, 1 }, 2 };
	struct pump *pump = begun(2, TR_DIRECT);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(submit(pump, i, 1, memory[i][1], TR_ALL_REDUCE, 0, both), TR_OK);
		assert_int_equal(submit(pump, i, 2, memory[i][2], TR_ALL_REDUCE, 0,
		                     (struct set){ .count = 0 }),
		    TR_OK);
		assert_int_equal(release(pump, i, 1), TR_EINVAL);
		assert_non_null(strstr(pump->members[i].reason, "op 1 has no result"));
	}
	pump_run(pump);
	assert_int_equal(release(pump, 0, 2), TR_EINVAL);
	assert_non_null(strstr(pump->members[0].reason, "op 2 is of all members"));
	assert_int_equal(release(pump, 0, 3), TR_EINVAL);
	assert_non_null(strstr(pump->members[0].reason, "op 3 was not submitted"));
	assert_int_equal(release(pump, 0, 1), TR_OK);
	assert_int_equal(release(pump, 0, 1), TR_EINVAL);
	assert_non_null(strstr(pump->members[0].reason, "op 1 was released before"));
	assert_int_equal(wait_for(pump, 0, 1), TR_EINVAL);
	assert_int_equal(submit(pump, 0, 1, memory[0][1], TR_ALL_REDUCE, 0, both), TR_EINVAL);
	assert_non_null(strstr(pump->members[0].reason, "op 1 was released in this round"));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	assert_int_equal(release(pump, 1, 1), TR_EINVAL);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].decided_count, 1);
	/* The next round's tags are its own. */
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(release(pump, i, 1), TR_EINVAL);
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		assert_int_equal(submit(pump, i, 1, memory[i][1], TR_ALL_REDUCE, 0, both), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].decided_count, 2);
	pump_destroy(pump);
}

/* Tags up, down and in jumps; so many that all of them would be far beyond the limit. */
static void a_round_holds_as_many_as_are_released(void **state)
{
	(void)state;
	const struct set one = { { 0 }, 1 };
	const uint32_t rounds[] = { 1, UINT32_MAX, 2654435761u };
	struct pump *pump = begun(1, TR_DIRECT);
	for (unsigned r = 0; r < 3; r++) {
		if (r > 0)
			assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_OK);
		for (uint32_t k = 0; k < 5 * TR_ROUND_OPS_MAX; k++) {
			uint32_t tag = k * rounds[r] - 1; /* the first is UINT32_MAX */
			assert_int_equal(submit(pump, 0, tag, memory[0][0], TR_ALL_REDUCE, 0, one),
			    TR_OK);
			assert_int_equal(release(pump, 0, tag), TR_OK);
		}
		for (uint32_t k = 0; k < 5 * TR_ROUND_OPS_MAX; k += 977)
			assert_int_equal(submit(pump, 0, k * rounds[r] - 1, memory[0][0],
			                     TR_ALL_REDUCE, 0, one),
			    TR_EINVAL);
		for (uint32_t k = 0; k < TR_ROUND_OPS_MAX; k++)
			assert_int_equal(submit(pump, 0, (5 * TR_ROUND_OPS_MAX + k) * rounds[r] - 1,
			                     memory[0][0], TR_ALL_REDUCE, 0, one),
			    TR_OK);
		assert_int_equal(submit(pump, 0, 6 * TR_ROUND_OPS_MAX * rounds[r] - 1, memory[0][0],
		                     TR_ALL_REDUCE, 0, one),
		    TR_ELIMIT);
		assert_int_equal(pump_close(pump, 0, 0, 0), TR_OK);
		assert_int_equal(pump->members[0].decided_count, r + 1);
		assert_int_equal(group_core_counters(pump->members[0].core)->ops[TR_ALL_REDUCE],
		    (r + 1) * 6 * TR_ROUND_OPS_MAX);
	}
	pump_destroy(pump);
}

/* ---- pairs ---- */

/* With `keep` a round goes on when a contributor dies that had a pair with somebody: what was released of it is no more in the votes than what was not. */
static void a_released_pair_goes_with_its_other_end(void **state)
{
	(void)state;
	for (unsigned releases = 0; releases < 8; releases++) {
		struct pump *pump = pump_create(3);
		struct pump_view view = first_view(pump, TR_DIRECT);
		view.policy = TRAIND__PEER__POLICY__POLICY_KEEP;
		pump_ready_all(pump);
		pump_install(pump, &view);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		const struct set none = { .count = 0 };
		/* 1 -> 2 twice, 2 -> 3, 3 -> 1 */
		assert_int_equal(submit(pump, 0, 1, memory[0][1], TR_SEND, 1, none), TR_OK);
		assert_int_equal(submit(pump, 1, 1, memory[1][1], TR_RECV, 0, none), TR_OK);
		assert_int_equal(submit(pump, 0, 4, memory[0][4], TR_SEND, 1, none), TR_OK);
		assert_int_equal(submit(pump, 1, 4, memory[1][4], TR_RECV, 0, none), TR_OK);
		assert_int_equal(submit(pump, 1, 2, memory[1][2], TR_SEND, 2, none), TR_OK);
		assert_int_equal(submit(pump, 2, 2, memory[2][2], TR_RECV, 1, none), TR_OK);
		assert_int_equal(submit(pump, 2, 3, memory[2][3], TR_SEND, 0, none), TR_OK);
		assert_int_equal(submit(pump, 0, 3, memory[0][3], TR_RECV, 2, none), TR_OK);
		pump_run(pump);
		if (releases & 1)
			assert_int_equal(release(pump, 0, 1), TR_OK);
		if (releases & 2)
			assert_int_equal(release(pump, 1, 1), TR_OK);
		if (releases & 2)
			assert_int_equal(release(pump, 1, 2), TR_OK);
		if (releases & 4)
			assert_int_equal(release(pump, 0, 3), TR_OK);
		pump_kill(pump, 2);
		pump_propose(pump, 2);
		view = first_view(pump, TR_DIRECT);
		view.number = 2;
		view.policy = TRAIND__PEER__POLICY__POLICY_KEEP;
		view.count = 2;
		view.finish = true;
		view.base_attempt = 1;
		view.contributor_count = 3;
		for (unsigned i = 0; i < 3; i++)
			view.contributors[i] = i + 1;
		pump_install(pump, &view);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		pump_run(pump);
		for (unsigned i = 0; i < 2; i++)
			if (pump->members[i].decided_count != 1 || pump->members[i].status != TR_OK)
				fail_msg("releases %u, %u: %s", releases, i + 1,
				    pump->members[i].reason);
		pump_destroy(pump);
	}
}

/* Who has an op that the other end has not is named, also if it was released (its other end cannot have had it). */
static void a_scope_that_did_something_else_is_named(void **state)
{
	(void)state;
	const struct set one = { { 1 }, 1 }, both = { { 0, 1 }, 2 };
	struct pump *pump = begun(2, TR_DIRECT);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(submit(pump, i, 1, memory[i][0], TR_ALL_REDUCE, 0, both), TR_OK);
	assert_int_equal(submit(pump, 1, 2, memory[1][1], TR_ALL_REDUCE, 0, one), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(release(pump, i, 1), TR_OK);
	assert_int_equal(release(pump, 1, 2), TR_OK);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].status, TR_OK); /* a scope of one is its own */
	pump_destroy(pump);
}

/* Results that differ are found, although nobody has them any more. */
static void a_released_result_that_differs_is_found(void **state)
{
	(void)state;
	const struct set pair = { { 1, 2 }, 2 };
	struct pump *pump = begun(3, TR_STAR);
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(submit(pump, i, 1, memory[i][0], TR_BROADCAST, 0, pair), TR_OK);
	for (size_t i = pump->first; i < pump->last; i++)
		if (pump->messages[i] && pump->messages[i]->kind == GROUP_DO_SEND_SEGMENT)
			((uint8_t *)(uintptr_t)core_message_event(pump->messages[i])
			        .segment.payload)[0] ^= 1;
	pump_run(pump);
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(release(pump, i, 1), TR_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump->members[i].failed, TR_EDIGEST);
	pump_destroy(pump);
}

/* ---- late ---- */

static struct segment_header header_of(uint32_t tag, struct set set, enum segment_kind kind)
{
	struct scope scope;
	assert_int_equal(scope_check(&(struct tr_scope){ set.members, set.count }, tag, 3,
	                     set.members[0], &scope, NULL),
	    TR_OK);
	return (struct segment_header){ .view = 1,
		.round = 1,
		.attempt = 1,
		.tag = tag,
		.signature = { .count = COUNT,
		    .dtype = TR_I64,
		    .reduce = TR_SUM,
		    .collective = TR_ALL_REDUCE,
		    .scope = scope.sign },
		.kind = (uint8_t)kind,
		.elements = kind == SEGMENT_AWAITED ? 0 : 2,
		.bytes = kind == SEGMENT_AWAITED ? 0 : 16 };
}

/* Frames and questions of an op that is over here, before the caller closes and afterwards: nothing is written, nobody fails, and who sends is told. */
static void what_comes_late_is_dropped(void **state)
{
	(void)state;
	const struct set all = { { 0, 1, 2 }, 3 };
	const int64_t payload[2] = { 7, 7 };
	for (int closed = 0; closed < 2; closed++) {
		struct pump *pump = begun(3, TR_DIRECT);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(submit(pump, i, 1, memory[i][0], TR_ALL_REDUCE, 0, all),
			    TR_OK);
		pump_run(pump);
		assert_int_equal(release(pump, 0, 1), TR_OK);
		assert_int_equal(submit(pump, 0, 2, memory[0][0], TR_ALL_REDUCE, 0, all), TR_OK);
		scribble(0, 0);
		if (closed)
			assert_int_equal(pump_close(pump, 0, 0, 0), TR_OK);
		static const enum segment_kind kinds[] = { SEGMENT_SEALED, SEGMENT_PARTIAL,
			SEGMENT_AWAITED };
		for (unsigned k = 0; k < 3; k++) {
			struct segment_header header = header_of(1, all, kinds[k]);
			bool counted = false;
			header.segment = kinds[k] == SEGMENT_AWAITED ? 1 : 0; /* its waiter */
			memset(header.contributors, 0, sizeof(header.contributors));
			header.contributors[0] = 7;
			struct group_event event = { .kind = GROUP_SEGMENT,
				.from = 2,
				.segment = { .header = &header,
				    .payload = kinds[k] == SEGMENT_AWAITED ? "" : (void *)payload,
				    .counted = &counted } };
			size_t before = pump->last;
			assert_int_equal(pump_step(pump, 0, &event), TR_OK);
			assert_int_equal(pump->last - before, kinds[k] != SEGMENT_AWAITED);
			if (pump->last > before) {
				const struct core_message *word = pump->messages[pump->last - 1];
				assert_int_equal(word->kind, GROUP_DO_SEND_SUBMITTED);
				assert_int_equal(word->to, 1);
			}
			assert_int_equal(pump->members[0].failed, TR_OK);
		}
		for (size_t k = 0; k < COUNT; k++)
			assert_int_equal(memory[0][0][k], SCRIBBLE);
		for (unsigned i = 1; i < 3; i++)
			assert_int_equal(submit(pump, i, 2, memory[i][2], TR_ALL_REDUCE, 0, all),
			    TR_OK);
		for (unsigned i = closed ? 1 : 0; i < 3; i++)
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		pump_run(pump);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(pump->members[i].status, TR_OK);
		pump_destroy(pump);
	}
}

/* Another op under the same tag: both are told. A question of a scope that we are not in is passed on, whatever we released under its tag. */
static void another_op_under_its_tag_is_named(void **state)
{
	(void)state;
	static const enum segment_kind kinds[] = { SEGMENT_SEALED, SEGMENT_AWAITED };
	const struct set one = { { 0 }, 1 }, both = { { 0, 1 }, 2 }, others = { { 1, 2 }, 2 };
	for (unsigned k = 0; k < 3; k++) {
		struct pump *pump = begun(3, TR_DIRECT);
		assert_int_equal(submit(pump, 0, 1, memory[0][0], TR_ALL_REDUCE, 0, one), TR_OK);
		assert_int_equal(release(pump, 0, 1), TR_OK);
		struct segment_header header = header_of(1, k < 2 ? both : others, kinds[k > 0]);
		struct scope scope;
		(void)scope_check(&(struct tr_scope){ others.members, others.count }, 1, 3, 1,
		    &scope, NULL);
		header.segment = k > 0; /* its waiter */
		memset(header.contributors, 0, sizeof(header.contributors));
		if (k == 2)
			memcpy(header.contributors, scope.bits, sizeof(scope.bits));
		else
			header.contributors[0] = 3;
		static const uint8_t payload[16];
		struct group_event event = { .kind = GROUP_SEGMENT,
			.from = 2,
			.segment = { .header = &header, .payload = payload } };
		assert_int_equal(pump_step(pump, 0, &event), TR_OK);
		assert_int_equal(pump->members[0].failed, k < 2 ? TR_EMISMATCH : TR_OK);
		if (k < 2)
			assert_non_null(strstr(pump->members[0].reason, "op 1 is another one"));
		pump_destroy(pump);
	}
}

/* ---- what is sent ahead ---- */

#define FRAMES 6 /* of an op: COUNT elements in segments of two */
#define AHEAD  (4 * FRAMES * (SEGMENT_HEADER_BYTES + 16))

/* Room for more messages and their trace. */
static void start_over(struct pump *pump)
{
	pump_run(pump); /* what the newest releases said */
	pump->trace_length = pump->first = pump->last = 0;
}

static struct pump *begun_with_little_ahead(unsigned n)
{
	struct pump *pump = pump_create(n);
	for (unsigned i = 0; i < n; i++) {
		const struct group_core_options options = { .group = 1,
			.peer = i + 1,
			.ahead_bytes = AHEAD * (n - 1) };
		group_core_destroy(pump->members[i].core);
		assert_int_equal(group_core_create(&options, &pump->members[i].core), TR_OK);
	}
	struct pump_view view = first_view(pump, TR_DIRECT);
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

/* Activations go one way. The receiver takes each, and releases it at once; the sender releases none, or all at the end of each row of them. It may send only so
 * much that it does not know to be submitted; what was released was.
 */
static void a_sender_hears_of_what_was_released(void **state)
{
	(void)state;
	const struct set none = { .count = 0 };
	static int64_t sent[2000][COUNT];
	for (int releases = 0; releases < 2; releases++) {
		struct pump *pump = begun_with_little_ahead(3);
		unsigned done = 0;
		for (uint32_t tag = 0; tag < 2000; tag++) {
			memset(sent[tag], (int)tag, sizeof(sent[tag]));
			assert_int_equal(submit(pump, 0, tag, sent[tag], TR_SEND, 1, none), TR_OK);
			assert_int_equal(submit(pump, 1, tag, memory[1][tag % 2], TR_RECV, 0, none),
			    TR_OK);
			assert_int_equal(wait_for(pump, 1, tag), TR_OK);
			pump_run(pump);
			if (pump->members[1].done_count != ++done)
				fail_msg("op %u does not come", tag);
			assert_memory_equal(memory[1][tag % 2], sent[tag], sizeof(sent[tag]));
			assert_int_equal(release(pump, 1, tag), TR_OK);
			if (releases && tag % 100 == 99)
				for (uint32_t k = tag - 99; k <= tag; k++)
					assert_int_equal(release(pump, 0, k), TR_OK);
			start_over(pump);
		}
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		pump_run(pump);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(pump->members[i].status, TR_OK);
		pump_destroy(pump);
	}
}

/* What was sent of an op to who never said that it had it counts no more once the op is released; words come seldom here. */
static void what_is_released_leaves_room(void **state)
{
	(void)state;
	const struct set both = { { 0, 1 }, 2 };
	struct pump *pump = begun_with_little_ahead(2);
	for (uint32_t tag = 0; tag < 500; tag++) {
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(submit(pump, i, tag, memory[i][tag % 2], TR_ALL_REDUCE, 0,
			                     both),
			    TR_OK);
			assert_int_equal(wait_for(pump, i, tag), TR_OK);
		}
		pump_run(pump);
		for (unsigned i = 0; i < 2; i++) {
			if (pump->members[i].done_count != tag + 1)
				fail_msg("op %u does not come", tag);
			assert_int_equal(release(pump, i, tag), TR_OK);
		}
		start_over(pump);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

/* Of what a peer says it has submitted only that is kept which is not submitted here, and never was. */
static void words_of_more_than_a_round_holds(void **state)
{
	(void)state;
	const struct set one = { { 0 }, 1 };
	struct pump *pump = begun(2, TR_DIRECT);
	for (uint32_t tag = 0; tag < 3 * TR_ROUND_OPS_MAX; tag++) {
		Traind__Peer__Submitted word = TRAIND__PEER__SUBMITTED__INIT;
		struct group_event event = { .kind = GROUP_SUBMITTED,
			.from = 2,
			.submitted = &word };
		word.view = word.round = word.attempt = 1;
		word.tags = &tag;
		word.n_tags = 1;
		if (tag % 3 == 0) /* before it is here, while it is, or afterwards */
			assert_int_equal(pump_step(pump, 0, &event), TR_OK);
		assert_int_equal(submit(pump, 0, tag, memory[0][0], TR_ALL_REDUCE, 0, one), TR_OK);
		if (tag % 3 == 1)
			assert_int_equal(pump_step(pump, 0, &event), TR_OK);
		assert_int_equal(release(pump, 0, tag), TR_OK);
		if (tag % 3 == 2)
			assert_int_equal(pump_step(pump, 0, &event), TR_OK);
	}
	uint32_t to_come[TR_ROUND_OPS_MAX];
	for (uint32_t k = 0; k < TR_ROUND_OPS_MAX; k++)
		to_come[k] = 3 * TR_ROUND_OPS_MAX + k;
	Traind__Peer__Submitted word = TRAIND__PEER__SUBMITTED__INIT;
	word.view = word.round = word.attempt = 1;
	word.tags = to_come;
	word.n_tags = TR_ROUND_OPS_MAX;
	assert_int_equal(pump_step(pump, 0,
	                     &(struct group_event){ .kind = GROUP_SUBMITTED,
	                         .from = 2,
	                         .submitted = &word }),
	    TR_OK);
	pump_destroy(pump);
}

/* A word of a view that is not here yet: of what it says nothing is known here, be it released there or not. */
static void words_of_a_view_to_come(void **state)
{
	(void)state;
	static uint32_t tags[TR_ROUND_OPS_MAX + RELEASE_NOTES_MAX + 1];
	for (size_t over = 0; over < 2; over++) {
		struct pump *pump = begun(2, TR_DIRECT);
		pump_propose(pump, 2);
		Traind__Peer__Submitted word = TRAIND__PEER__SUBMITTED__INIT;
		for (size_t k = 0; k < sizeof(tags) / sizeof(tags[0]); k++)
			tags[k] = (uint32_t)k;
		word.view = 2;
		word.round = word.attempt = 1;
		word.tags = tags;
		word.n_tags = TR_ROUND_OPS_MAX + RELEASE_NOTES_MAX + over;
		assert_int_equal(pump_step(pump, 0,
		                     &(struct group_event){ .kind = GROUP_SUBMITTED,
		                         .from = 2,
		                         .submitted = &word }),
		    over ? TR_EPROTO : TR_OK);
		pump_destroy(pump);
	}
}

/* A wait for a send says nothing of its other end. What was not even sent would never come. */
static void what_was_not_sent_cannot_be_released(void **state)
{
	(void)state;
	const struct set none = { .count = 0 };
	struct pump *pump = begun_with_little_ahead(2);
	uint32_t sent = 0;
	for (; sent < 8; sent++)
		assert_int_equal(submit(pump, 0, sent, memory[0][sent % STEPS], TR_SEND, 1, none),
		    TR_OK);
	assert_int_equal(wait_for(pump, 0, 7), TR_OK);
	assert_int_equal(release(pump, 0, 7), TR_EINVAL);
	assert_non_null(strstr(pump->members[0].reason, "op 7 was not sent to all"));
	for (uint32_t tag = 0; tag < sent; tag++) {
		assert_int_equal(submit(pump, 1, tag, memory[1][tag % STEPS], TR_RECV, 0, none),
		    TR_OK);
		assert_int_equal(wait_for(pump, 1, tag), TR_OK);
		pump_run(pump);
		assert_int_equal(pump->members[1].done_count, tag + 1);
	}
	assert_int_equal(release(pump, 0, 7), TR_OK);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_released),
		cmocka_unit_test(a_round_holds_as_many_as_are_released),
		cmocka_unit_test(a_released_pair_goes_with_its_other_end),
		cmocka_unit_test(a_scope_that_did_something_else_is_named),
		cmocka_unit_test(a_released_result_that_differs_is_found),
		cmocka_unit_test(what_comes_late_is_dropped),
		cmocka_unit_test(another_op_under_its_tag_is_named),
		cmocka_unit_test(a_sender_hears_of_what_was_released),
		cmocka_unit_test(what_is_released_leaves_room),
		cmocka_unit_test(words_of_more_than_a_round_holds),
		cmocka_unit_test(words_of_a_view_to_come),
		cmocka_unit_test(what_was_not_sent_cannot_be_released),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
