/* A group without faults: every algorithm, type and size gives the sum; rounds follow each other; misuse is refused. */
#include "collectives/kernels/half.h"
#include "tests/unit/group_pump.h"

#define COUNT_MAX 41

static void begin_all(struct pump *pump)
{
	for (unsigned i = 0; i < pump->n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
}

static void one_round(struct pump *pump, uint64_t round, uint64_t count)
{
	int64_t data[PUMP_MEMBERS][COUNT_MAX];
	int64_t power = 1, sum = 0;

	begin_all(pump);
	for (unsigned i = 0; i < pump->n; i++, power *= 10) {
		assert_int_equal(pump->members[i].begun.round, round);
		assert_int_equal(pump->members[i].begun.index, i);
		assert_int_equal(pump->members[i].begun.contributors, pump->n);
		for (uint64_t k = 0; k < count; k++)
			data[i][k] = power;
		sum += power;
		assert_int_equal(pump_submit(pump, i, 7, data[i], count, TR_I64, TR_SUM), TR_OK);
		assert_int_equal(pump_close(pump, i, 10, 99), TR_OK);
	}
	pump_run(pump);
	for (unsigned i = 0; i < pump->n; i++) {
		struct pump_member *member = &pump->members[i];
		assert_int_equal(member->decided_count, round);
		assert_int_equal(member->status, TR_OK);
		assert_int_equal(member->decided.round, round);
		assert_false(member->decided.partial);
		for (uint64_t k = 0; k < count; k++)
			assert_int_equal(data[i][k], sum);
		uint64_t peers[PUMP_MEMBERS];
		size_t found;
		tr_status st = group_core_contributors(member->core, 7, 0, peers, PUMP_MEMBERS,
		    &found);
		assert_int_equal(st, count > 0 ? TR_OK : TR_ENOTFOUND);
		if (count > 0)
			assert_int_equal(found, pump->n);
	}
	const Traind__Peer__RoundCommit *record = pump->members[0].record;
	assert_int_equal(record->round, round);
	assert_int_equal(record->n_contributors, pump->n);
	assert_int_equal(record->samples, 10);
}

static void sums_are_right(void **state)
{
	(void)state;
	static const uint64_t counts[] = { 0, 1, 2, 3, 5, 8, 9, 40, 41 };
	for (unsigned n = 1; n <= PUMP_MEMBERS; n++)
		for (int variant = 0; variant < 12; variant++) {
			struct pump *pump = pump_create(n);
			struct pump_view view = pump_first_view(pump);
			view.algorithm = (Traind__Peer__Algorithm)(variant % 6);
			view.deterministic = variant >= 6;
			for (unsigned i = 0; i < n; i++)
				view.host[i] = i % 3 ? "a" : "b";
			view.policy = (Traind__Peer__Policy)((n + (unsigned)variant) % 3);
			pump_ready_all(pump);
			pump_install(pump, &view);
			for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
				one_round(pump, c + 1, counts[c]);
			pump_destroy(pump);
		}
}

/* Small whole numbers are exact in each of them. */
static void small_types(void **state)
{
	(void)state;
	for (unsigned a = 1; a < 6; a++) {
		struct pump *pump = pump_create(3);
		struct pump_view view = pump_first_view(pump);
		view.host[0] = view.host[2] = "a";
		uint8_t u8[3][37];
		uint16_t f16[3][37], bf16[3][37];
		view.algorithm = (Traind__Peer__Algorithm)a;
		pump_ready_all(pump);
		pump_install(pump, &view);
		begin_all(pump);
		for (unsigned i = 0; i < 3; i++) {
			for (unsigned k = 0; k < 37; k++) {
				u8[i][k] = (uint8_t)(100 * i + k);
				f16[i][k] = half_to_f16((float)(k + 1) * (float)(i + 1));
				bf16[i][k] = half_to_bf16((float)(k % 8) + (float)i);
			}
			assert_int_equal(pump_submit(pump, i, 0, u8[i], 37, TR_U8, TR_SUM), TR_OK);
			assert_int_equal(pump_submit(pump, i, 1, f16[i], 37, TR_F16, TR_AVG), TR_OK);
			assert_int_equal(pump_submit(pump, i, 2, bf16[i], 37, TR_BF16, TR_SUM),
			    TR_OK);
		}
		pump_run(pump);
		for (unsigned i = 0; i < 3; i++)
			pump_close(pump, i, 0, 0);
		pump_run(pump);
		for (unsigned i = 0; i < 3; i++) {
			assert_int_equal(pump->members[i].decided_count, 1);
			for (unsigned k = 0; k < 37; k++) {
				assert_int_equal(u8[i][k], (uint8_t)(300 + 3 * k));
				assert_true(half_from_f16(f16[i][k]) == 2 * (float)(k + 1));
				assert_true(half_from_bf16(bf16[i][k]) == 3 * (float)(k % 8) + 3);
			}
		}
		pump_destroy(pump);
	}
}

static void commit_rounds(struct pump *pump, unsigned from, unsigned rounds)
{
	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned i = from; i < pump->n; i++)
			assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		for (unsigned i = from; i < pump->n; i++)
			assert_int_equal(pump_close(pump, i, 1, 0), TR_OK);
		pump_run(pump);
		pump->trace_length = 0;
	}
}

/* memberd is away for so many rounds, and then the hub, which alone says them, dies with them unsaid: all of the others still have those that the log
 * lacks, and no others. */
static void what_the_log_lacks_outlives_the_hub(void **state)
{
	(void)state;
	for (uint64_t logged = 0; logged < 2000; logged += 999) {
		struct pump *pump = pump_create(3);
		struct pump_view view = pump_first_view(pump);
		pump_ready_all(pump);
		pump_install(pump, &view);
		commit_rounds(pump, 0, 1999);
		const struct group_event recorded = { .kind = GROUP_RECORDED, .round = logged };
		assert_int_equal(pump_step(pump, 0, &recorded), TR_OK); /* the hub is told */
		commit_rounds(pump, 0, 1);
		assert_int_equal(pump->members[0].record_count, 2000);
		assert_int_equal(pump->members[2].record_count, 0);
		pump_kill(pump, 0);
		pump_propose(pump, 2);
		view.number = 2;
		view.base_round = 2001;
		view.count = 2;
		for (unsigned i = 0; i < 2; i++) {
			view.peers[i] = i + 2;
			view.participate_from[i] = view.contribute_from[i] = 1;
		}
		pump_install(pump, &view);
		for (unsigned i = 1; i < 3; i++)
			assert_int_equal(pump->members[i].record_count, 2000 - logged);
		pump_destroy(pump);
	}
}

static void nothing_goes_to_memberd_but_records(void **state)
{
	(void)state;
	struct pump *pump = pump_create(3);
	struct pump_view view = pump_first_view(pump);
	pump_ready_all(pump);
	pump_install(pump, &view);
	one_round(pump, 1, 9);
	for (unsigned i = 0; i < 3; i++) {
		assert_null(pump->members[i].report);
		assert_int_equal(pump->members[i].link_lost, 0);
		assert_int_equal(pump->members[i].record != NULL, i == 0);
	}
	pump_destroy(pump);
}

static void ops_in_any_order(void **state)
{
	(void)state;
	struct pump *pump = pump_create(3);
	struct pump_view view = pump_first_view(pump);
	int32_t data[3][4][10];
	pump_ready_all(pump);
	pump_install(pump, &view);
	begin_all(pump);
	for (unsigned step = 0; step < 4; step++)
		for (unsigned i = 0; i < 3; i++) {
			unsigned tag = (step + i) % 4;
			for (unsigned k = 0; k < 10; k++)
				data[i][tag][k] = (int32_t)((tag + 1) * (i + 1));
			assert_int_equal(pump_submit(pump, i, tag, data[i][tag], 10, TR_I32, TR_SUM),
			    TR_OK);
			pump_run(pump);
		}
	for (unsigned i = 0; i < 3; i++)
		pump_close(pump, i, 0, 0);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_int_equal(pump->members[i].decided_count, 1);
		for (unsigned tag = 0; tag < 4; tag++)
			assert_int_equal(data[i][tag][9], (int32_t)(6 * (tag + 1)));
	}
	pump_destroy(pump);
}

static void a_segment_waits_for_its_op(void **state)
{
	(void)state;
	struct pump *pump = pump_create(2);
	struct pump_view view = pump_first_view(pump);
	int32_t data[2][4] = { { 1, 2, 3, 4 }, { 10, 20, 30, 40 } };
	pump_ready_all(pump);
	pump_install(pump, &view);
	assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_OK);
	assert_int_equal(pump_submit(pump, 0, 1, data[0], 4, TR_I32, TR_SUM), TR_OK);
	pump_close(pump, 0, 0, 0);
	pump_run(pump);
	assert_int_equal(pump->members[1].retries, 0);
	assert_int_equal(pump_event(pump, 1, GROUP_BEGIN), TR_OK);
	assert_int_equal(pump->members[1].retries, 1);
	pump_run(pump);
	assert_int_equal(pump_submit(pump, 1, 1, data[1], 4, TR_I32, TR_SUM), TR_OK);
	assert_int_equal(pump->members[1].retries, 2);
	pump_close(pump, 1, 0, 0);
	pump_run(pump);
	assert_int_equal(pump->members[0].status, TR_OK);
	assert_int_equal(pump->members[0].decided_count, 1);
	assert_int_equal(data[0][3], 44);
	assert_int_equal(data[1][3], 44);
	pump_destroy(pump);
}

static void average_divides(void **state)
{
	(void)state;
	struct pump *pump = pump_create(3);
	struct pump_view view = pump_first_view(pump);
	float data[3][5];
	pump_ready_all(pump);
	pump_install(pump, &view);
	begin_all(pump);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < 5; k++)
			data[i][k] = (float)(i + k);
		pump_submit(pump, i, 0, data[i], 5, TR_F32, TR_AVG);
		pump_close(pump, i, 0, 0);
	}
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 5; k++)
			assert_true(data[i][k] == (float)(1 + k));
	pump_destroy(pump);
}

static enum tr_algorithm explained(struct pump *pump, unsigned who, const struct group_submit *op,
    const char *words)
{
	enum tr_algorithm algorithm = TR_AUTO;
	char reason[400];
	assert_int_equal(group_core_explain(pump->members[who].core, op, &algorithm, reason,
	                     sizeof(reason)),
	    TR_OK);
	if (strstr(reason, words) == NULL)
		fail_msg("no \"%s\" in \"%s\"", words, reason);
	return algorithm;
}

static void the_choice_is_explained(void **state)
{
	(void)state;
	struct pump *pump = pump_create(3);
	struct pump_view view = pump_first_view(pump);
	struct group_submit op = { .dtype = TR_I32, .count = 1 };
	enum tr_algorithm algorithm;
	char reason[256];
	pump_ready_all(pump);
	assert_int_equal(group_core_explain(pump->members[0].core, &op, &algorithm, reason,
	                     sizeof(reason)),
	    TR_EUNAVAILABLE);
	view.segment_bytes = 0;
	pump_install(pump, &view);
	assert_int_equal(explained(pump, 1, &op, "one-shot: "), TR_ONE_SHOT);
	op.count = (1 << 16) - 1;
	assert_int_equal(explained(pump, 2, &op, "among 3 peers"), TR_DIRECT);
	op.algorithm = TR_RING;
	assert_int_equal(explained(pump, 2, &op, "ring: as asked"), TR_RING);
	op.collective = TR_REDUCE_SCATTER;
	assert_int_equal(explained(pump, 0, &op,
	                     "direct: sums go straight to whose block it is; otherwise ring: as"),
	    TR_DIRECT);
	op.collective = TR_BROADCAST;
	op.algorithm = TR_ONE_SHOT;
	assert_int_equal(explained(pump, 0, &op, "star: around the given root"), TR_STAR);
	op.collective = TR_SEND;
	assert_int_equal(explained(pump, 0, &op, "direct: one peer sends to one other"), TR_DIRECT);
	op = (struct group_submit){ .dtype = TR_F32,
		.count = 1 << 20,
		.algorithm = TR_HIERARCHICAL,
		.codec = TR_CODEC_INT8 };
	assert_int_equal(explained(pump, 0, &op, "direct: "), TR_DIRECT);
	pump_destroy(pump);
}

static void misuse_is_refused(void **state)
{
	(void)state;
	struct pump *pump = pump_create(1);
	struct pump_view view = pump_first_view(pump);
	int32_t data[4] = { 0 };
	assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_EINVAL); /* not ready */
	pump_ready_all(pump);
	assert_int_equal(pump_event(pump, 0, GROUP_READY), TR_EINVAL); /* twice */
	assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_OK);     /* waits for a view */
	assert_int_equal(pump->members[0].begun_count, 0);
	assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_EINVAL);
	assert_int_equal(pump_submit(pump, 0, 0, data, 4, TR_I32, TR_SUM), TR_EINVAL);
	pump_install(pump, &view);
	assert_int_equal(pump->members[0].begun_count, 1);
	assert_int_equal(pump_submit(pump, 0, 0, data, 4, (enum tr_dtype)9, TR_SUM), TR_EINVAL);
	assert_int_equal(pump_submit(pump, 0, 0, data, 4, TR_I32, (enum tr_reduce)0), TR_EINVAL);
	assert_int_equal(pump_submit(pump, 0, 0, NULL, 4, TR_I32, TR_SUM), TR_EINVAL);
	assert_int_equal(pump_submit(pump, 0, 0, data, UINT64_MAX, TR_I32, TR_SUM), TR_EINVAL);
	assert_int_equal(pump_submit(pump, 0, 0, data, 1ull << 50, TR_I32, TR_SUM), TR_ELIMIT);
	assert_int_equal(pump_submit(pump, 0, 0, data, 4, TR_I32, TR_SUM), TR_OK);
	assert_int_equal(pump_submit(pump, 0, 0, data, 4, TR_I32, TR_SUM), TR_EEXIST);
	assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_EINVAL);
	assert_int_equal(pump_close(pump, 0, 1, 0), TR_OK);
	assert_int_equal(pump->members[0].decided_count, 1);
	assert_int_equal(pump_close(pump, 0, 1, 0), TR_EINVAL);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_right),
		cmocka_unit_test(small_types),
		cmocka_unit_test(nothing_goes_to_memberd_but_records),
		cmocka_unit_test(what_the_log_lacks_outlives_the_hub),
		cmocka_unit_test(ops_in_any_order),
		cmocka_unit_test(a_segment_waits_for_its_op),
		cmocka_unit_test(average_divides),
		cmocka_unit_test(the_choice_is_explained),
		cmocka_unit_test(misuse_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
