/* How ops begin. What is on the way of one that gives its senders no results, a reduce-scatter: a fast sender must not fill the memory of
 * a peer that waits for a slow one. And by which algorithm each goes where the library chooses.
 */
#include "tests/unit/group_pump.h"

#define N        3
#define SEGMENTS 100 /* of each block */
#define COUNT    (N * SEGMENTS * 4)
#define ROWS     4 /* a member's window: so many segments of each block */

static int32_t input[N][COUNT], output[N][COUNT / N];

static void submit(struct pump *pump, unsigned who)
{
	for (unsigned e = 0; e < COUNT; e++)
		input[who][e] = (int32_t)(e * (who + 1));
	assert_int_equal(pump_step(pump, who,
	                     &(struct group_event){ .kind = GROUP_SUBMIT,
	                         .submit = { .tag = 1,
	                             .collective = TR_REDUCE_SCATTER,
	                             .data = output[who],
	                             .input = input[who],
	                             .count = COUNT,
	                             .own_elements = COUNT / N,
	                             .dtype = TR_I32,
	                             .reduce = TR_SUM,
	                             .contribute = true } }),
	    TR_OK);
	assert_int_equal(pump_close(pump, who, 0, 0), TR_OK);
}

static unsigned sums_between(const struct pump *pump, unsigned from, unsigned to)
{
	char words[32];
	unsigned count = 0;
	(void)snprintf(words, sizeof(words), "%u>%u sum ", from + 1, to + 1);
	for (const char *at = pump->trace; (at = strstr(at, words)) != NULL; at++)
		count++;
	return count;
}

static void slow_one(Traind__Peer__Algorithm algorithm, bool deterministic)
{
	struct pump *pump = pump_create_with(N, ROWS * (N - 1) * 16);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = algorithm;
	view.deterministic = deterministic;
	view.host[0] = view.host[1] = "a";
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	submit(pump, 0);
	submit(pump, 1);
	pump_run(pump);
	/* Of a host of two one sends what goes to the third by the other. */
	unsigned blocks = algorithm == TRAIND__PEER__ALGORITHM__ALGORITHM_HIERARCHICAL ? N - 1 : 1;
	assert_in_range(sums_between(pump, 0, 1), 1, ROWS * blocks);
	assert_in_range(sums_between(pump, 1, 0), 1, ROWS * blocks);
	submit(pump, 2);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
		for (unsigned e = 0; e < COUNT / N; e++)
			assert_int_equal(output[i][e], 6 * (i * (COUNT / N) + e));
	}
	pump_destroy(pump);
}

static void nobody_runs_ahead_of_the_slowest(void **state)
{
	(void)state;
	for (int algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	     algorithm <= TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT; algorithm++)
		for (int deterministic = 0; deterministic < 2; deterministic++)
			slow_one((Traind__Peer__Algorithm)algorithm, deterministic != 0);
}

/* Over a long way a ring's links are busy only if each member has begun more than what one of them carries in one hop: a result is there after 2(n-1) hops. */
static void a_long_ring_begins_a_round_trips_worth(void **state)
{
	(void)state;
	enum { ELEMENTS = 4 << 20, PIECE = 137 << 10 };
	static int32_t values[ELEMENTS];
	struct pump *pump = pump_create(4);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	view.segment_bytes = 256u << 10;
	view.op_segments = TR_OP_SEGMENTS_LONG;
	view.latency_s = 0.1;
	view.bandwidth_bytes_per_s = 12.5e6;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	assert_int_equal(pump_submit(pump, 0, 1, values, ELEMENTS, TR_I32, TR_SUM), TR_OK);
	pump_run(pump);
	unsigned begun = 0; /* nobody takes them before its own caller has come */
	for (size_t i = pump->first; i < pump->last; i++)
		begun += pump->messages[i] != NULL && pump->messages[i]->from == 0;
	assert_int_equal(begun, (unsigned)(0.2 * 12.5e6 / PIECE));
	pump_destroy(pump);
}

/* ---- the choice ---- */

#define LARGE (1u << 20)

static int32_t values[N][LARGE];

/* Everybody sends the op's first segment to everybody. */
static bool went_at_once(const struct pump *pump, unsigned tag)
{
	char words[32];
	for (unsigned from = 1; from <= N; from++)
		for (unsigned to = 1; to <= N; to++) {
			(void)snprintf(words, sizeof(words), "%u>%u sum %u.0 ", from, to, tag);
			if (from != to && strstr(pump->trace, words) == NULL)
				return false;
		}
	return true;
}

static void one_more(struct pump *pump, uint32_t tag, uint64_t count, bool at_once)
{
	const struct group_submit op = { .count = count, .dtype = TR_I32, .reduce = TR_SUM };
	enum tr_algorithm chosen;
	char why[400];
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(group_core_explain(pump->members[i].core, &op, &chosen, why,
		                     sizeof(why)),
		    TR_OK);
		assert_int_equal(chosen == TR_ONE_SHOT, at_once);
		for (uint64_t e = 0; e < count; e++)
			values[i][e] = (int32_t)(e * (i + 1));
	}
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_submit(pump, i, tag, values[i], count, TR_I32, TR_SUM), TR_OK);
	pump_run(pump);
	assert_int_equal(went_at_once(pump, tag), at_once);
	for (unsigned i = 0; i < N; i++)
		for (uint64_t e = 0; e < count; e++)
			assert_int_equal(values[i][e], 6 * e);
}

static void auto_chooses_for_each_size(void **state)
{
	(void)state;
	struct pump *pump = pump_create(N);
	struct pump_view view = pump_first_view(pump);
	view.segment_bytes = 256u << 10;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	one_more(pump, 1, 1, true);
	one_more(pump, 2, 1, true);
	one_more(pump, 3, LARGE, false);
	one_more(pump, 4, 1, true);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

/* All have begun a round in the first view. */
static struct pump *cut_in(uint32_t op_segments, struct pump_view *view)
{
	struct pump *pump = pump_create(N);
	*view = pump_first_view(pump);
	view->segment_bytes = 256u << 10;
	view->op_segments = op_segments;
	pump_ready_all(pump);
	pump_install(pump, view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

/* Pieces of an op whose codec is `codec`, in a group that is cut as over long ways. */
static size_t segment_of(uint32_t op_segments, enum tr_codec codec)
{
	static float x[N][LARGE];
	struct pump_view view;
	struct pump *pump = cut_in(op_segments, &view);
	for (unsigned i = 0; i < N; i++) {
		for (unsigned e = 0; e < LARGE; e++)
			x[i][e] = (float)(i + 1);
		assert_int_equal(pump_step(pump, i,
		                     &(struct group_event){ .kind = GROUP_SUBMIT,
		                         .submit = { .tag = 3,
		                             .data = x[i],
		                             .count = LARGE,
		                             .dtype = TR_F32,
		                             .reduce = TR_SUM,
		                             .codec = codec,
		                             .contribute = true } }),
		    TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump);
	size_t elements = group_core_segment_elements(pump->members[0].core, 3);
	assert_int_equal(group_core_segment_elements(pump->members[0].core, 4), 0);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_int_equal(group_core_segment_elements(pump->members[i].core, 3), elements);
		for (unsigned e = 0; e < LARGE; e++)
			if (x[i][e] < 5.9F || x[i][e] > (codec == TR_CODEC_NONE ? 6 : 6.1F))
				fail_msg("member %u, element %u: %g", i, e, (double)x[i][e]);
	}
	pump_destroy(pump);
	return elements;
}

static void long_ways_have_smaller_segments_but_for_codecs(void **state)
{
	(void)state;
	assert_int_equal(segment_of(0, TR_CODEC_NONE), (171 << 10) / 4);
	assert_int_equal(segment_of(TR_OP_SEGMENTS_LONG, TR_CODEC_NONE), (35 << 10) / 4);
	assert_int_equal(segment_of(TR_OP_SEGMENTS_LONG, TR_CODEC_INT8), (171 << 10) / 4);
}

/* Its pieces fit together across a view in mid-op, also those of a member that submits it only then. */
static void a_round_goes_on_with_the_same_cut(void **state)
{
	(void)state;
	struct pump_view view;
	struct pump *pump = cut_in(TR_OP_SEGMENTS_LONG, &view);
	for (unsigned i = 0; i < N; i++) {
		for (uint64_t e = 0; e < LARGE; e++)
			values[i][e] = (int32_t)(e * (i + 1));
	}
	for (unsigned i = 0; i < N - 1; i++)
		assert_int_equal(pump_submit(pump, i, 5, values[i], LARGE, TR_I32, TR_SUM), TR_OK);
	assert_int_not_equal(pump_some(pump, 60), 0);
	pump_propose(pump, 2);
	view.number = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = N;
	for (unsigned i = 0; i < N; i++)
		view.contributors[i] = view.peers[i];
	pump_install(pump, &view);
	assert_int_equal(pump_submit(pump, N - 1, 5, values[N - 1], LARGE, TR_I32, TR_SUM), TR_OK);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(group_core_segment_elements(pump->members[i].core, 5),
		    (35 << 10) / 4);
		for (uint64_t e = 0; e < LARGE; e++)
			assert_int_equal(values[i][e], (int32_t)(6 * e));
	}
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_runs_ahead_of_the_slowest),
		cmocka_unit_test(a_long_ring_begins_a_round_trips_worth),
		cmocka_unit_test(auto_chooses_for_each_size),
		cmocka_unit_test(long_ways_have_smaller_segments_but_for_codecs),
		cmocka_unit_test(a_round_goes_on_with_the_same_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
