/* What a source stages of its own has a window: however large the op, strided or coded, so much of it is in buffers, and the rest follows as they come back. */
#include "tests/unit/group_release.h"

#include "collectives/core/member.h"

#define N          3
#define ELEMENTS   96 /* int64: 768 bytes, 48 segments of 16 */
#define WINDOW     (4 * PUMP_SEGMENT_BYTES)
#define STAGED_MAX (WINDOW + 64) /* and the buffer that goes beyond; buffers are of 64 bytes */

struct cell {
	int64_t value, gap;
};

static struct cell cells[N][ELEMENTS];
static float floats[N][ELEMENTS * 8];

/* Of one member, that its frames hold: each buffer once. */
static size_t staged(const struct pump *pump, unsigned who)
{
	size_t bytes = 0;
	for (size_t i = pump->first; i < pump->last; i++) {
		if (pump->held[i] == NULL || pump->messages[i]->from != who)
			continue;
		bool before = false;
		for (size_t k = pump->first; k < i; k++)
			before = before || pump->held[k] == pump->held[i];
		if (!before)
			bytes += pump->held[i]->capacity;
	}
	return bytes;
}

static struct pump *world(int algorithm)
{
	struct pump *pump = pump_create_with(N, WINDOW);
	struct pump_view view = first_view(pump, algorithm);
	pump->holds = true;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static struct group_submit op_of(unsigned who, enum tr_collective collective, unsigned root,
    const struct tr_block *block)
{
	bool gather = collective == TR_ALL_GATHER, send = collective == TR_SEND;
	return (struct group_submit){ .tag = 1,
		.collective = collective,
		.data = send ? NULL : cells[who],
		.input = send ? cells[who] : NULL,
		.count = ELEMENTS,
		.own_elements = gather ? ELEMENTS / N : 0,
		.dtype = TR_I64,
		.reduce = TR_SUM,
		.root = root,
		.contribute = true,
		.data_block = send ? NULL : block,
		.input_block = send ? block : NULL };
}

static tr_status give(struct pump *pump, unsigned who, const struct group_submit *submit)
{
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_SUBMIT, .submit = *submit });
}

static void fill(void)
{
	for (unsigned i = 0; i < N; i++)
		for (int64_t k = 0; k < ELEMENTS; k++)
			cells[i][k] = (struct cell){ 1000 * (i + 1) + k, -1 };
}

/* Whose element it is in the result. */
static unsigned owner(enum tr_collective collective, int64_t k)
{
	return collective == TR_ALL_GATHER ? (unsigned)(k / (ELEMENTS / N)) : 0;
}

/* One frame at a time: the bound holds after each. Returns the most that was staged. */
static size_t run_bounded(struct pump *pump)
{
	size_t most = 0;
	do {
		for (unsigned i = 0; i < N; i++) {
			size_t bytes = staged(pump, i);
			most = bytes > most ? bytes : most;
		}
	} while (pump_some(pump, 1) > 0);
	assert_true(most <= STAGED_MAX);
	return most;
}

static void strided(enum tr_collective collective, int algorithm)
{
	const struct tr_block block = { 1, { ELEMENTS }, { 2 } };
	struct pump *pump = world(algorithm);
	fill();
	for (unsigned i = 0; i < N; i++) {
		const struct group_submit submit = op_of(i, collective, 0, &block);
		assert_int_equal(give(pump, i, &submit), TR_OK);
	}
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	assert_true(run_bounded(pump) > PUMP_SEGMENT_BYTES);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
		for (int64_t k = 0; k < ELEMENTS; k++) {
			assert_int_equal(cells[i][k].value, 1000 * (owner(collective, k) + 1) + k);
			assert_int_equal(cells[i][k].gap, -1);
		}
	}
	pump_destroy(pump);
}

static void strided_sources_have_a_window(void **state)
{
	(void)state;
	for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++) {
		strided(TR_BROADCAST, algorithm);
		strided(TR_ALL_GATHER, algorithm);
	}
}

static void coded_sources_have_one(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N; i++)
		for (unsigned k = 0; k < ELEMENTS * 8; k++)
			floats[i][k] = (float)(i * 7 + k % 31);
	struct pump *pump = world(TR_STAR);
	for (unsigned i = 0; i < N; i++) {
		struct group_submit submit = op_of(i, TR_BROADCAST, 0, NULL);
		submit.data = floats[i];
		submit.count = ELEMENTS * 8;
		submit.dtype = TR_F32;
		submit.codec = TR_CODEC_BF16;
		assert_int_equal(give(pump, i, &submit), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	assert_true(run_bounded(pump) > 0);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_memory_equal(floats[i], floats[0], sizeof(floats[0]));
		assert_true(floats[i][30] == 30);
	}
	pump_destroy(pump);
}

static void pair_submit(struct pump *pump, unsigned who, const struct tr_block *block)
{
	const struct group_submit send = op_of(0, TR_SEND, 1, block);
	struct group_submit receive = op_of(1, TR_RECV, 0, block);
	assert_int_equal(give(pump, who, who == 0 ? &send : &receive), TR_OK);
}

/* As its caller was promised, whatever has left: but its memory stays borrowed until all has. */
static void a_send_is_done_at_once(void **state)
{
	(void)state;
	const struct tr_block block = { 1, { ELEMENTS }, { 2 } };
	struct pump *pump = world(TR_DIRECT);
	fill();
	pair_submit(pump, 0, &block);
	assert_int_equal(wait_for(pump, 0, 1), TR_OK);
	assert_int_equal(pump->members[0].done_count, 1);
	assert_true(staged(pump, 0) >= WINDOW && staged(pump, 0) <= STAGED_MAX);
	assert_int_equal(release(pump, 0, 1), TR_EINVAL);
	pair_submit(pump, 1, &block);
	(void)run_bounded(pump);
	assert_int_equal(release(pump, 0, 1), TR_OK);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

/* What the freeze dropped makes room that is of the next view; there all goes on, with the same window. */
static void a_view_change_in_the_middle(enum tr_collective collective)
{
	const struct tr_block block = { 1, { ELEMENTS }, { 2 } };
	struct pump *pump = world(TR_STAR);
	struct pump_view view = first_view(pump, TR_STAR);
	fill();
	for (unsigned i = 0; i < N; i++) {
		if (collective == TR_SEND && i < 2) {
			pair_submit(pump, i, &block);
		} else if (collective != TR_SEND) {
			const struct group_submit submit = op_of(i, collective, 0, &block);
			assert_int_equal(give(pump, i, &submit), TR_OK);
		}
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_some(pump, 9);
	pump_propose(pump, 2);
	pump_kill(pump, 2);
	view.number = 2;
	view.count = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 3;
	for (unsigned i = 0; i < 3; i++)
		view.contributors[i] = i + 1;
	pump_install(pump, &view);
	(void)run_bounded(pump);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
	}
	for (int64_t k = 0; k < ELEMENTS; k++)
		assert_int_equal(cells[1][k].value, 1000 + k);
	pump_destroy(pump);
}

static void view_changes_in_the_middle(void **state)
{
	(void)state;
	a_view_change_in_the_middle(TR_BROADCAST);
	a_view_change_in_the_middle(TR_SEND);
}

/* ---- no memory ---- */

static bool none;

static void *get(void *arg, size_t bytes)
{
	(void)arg;
	return none ? NULL : aligned_alloc(64, bytes);
}

static void put(void *arg, void *given, size_t bytes)
{
	(void)arg;
	(void)bytes;
	free(given);
}

/* What has left comes back, and somebody else has it before it is wanted. */
static struct group_buffer *take_what_left(struct pump *pump, struct group_core *core)
{
	struct group_buffer *taken = NULL;
	for (size_t i = pump->first; i < pump->last; i++) {
		if (pump->held[i] == NULL || pump->messages[i]->from != 0)
			continue;
		group_buffer_release(core, pump->held[i]);
		pump->held[i] = NULL;
	}
	while (core->pool.free != NULL) {
		struct group_buffer *buffer = buffer_get(&core->pool, core->pool.free->capacity);
		buffer->next_free = taken;
		taken = buffer;
	}
	return taken;
}

static void give_back(struct group_core *core, struct group_buffer *taken)
{
	while (taken != NULL) {
		struct group_buffer *next = taken->next_free;
		group_buffer_release(core, taken);
		taken = next;
	}
}

/* For what there is room again there is no memory: another view is asked for, whoever has voted, and nothing just stands. */
static void no_memory_when_there_is_room(void **state)
{
	(void)state;
	const struct tr_block block = { 1, { ELEMENTS }, { 2 } };
	const struct group_core_options options = { .group = 1,
		.peer = 1,
		.window_bytes = 512,
		.memory = { .get = get, .put = put } };
	for (unsigned voted = 0; voted < 2; voted++) {
		struct pump *pump = pump_create_with(N, 512);
		struct pump_view view = first_view(pump, TR_STAR);
		group_core_destroy(pump->members[0].core);
		assert_int_equal(group_core_create(&options, &pump->members[0].core), TR_OK);
		view.segment_bytes = 128;
		pump->holds = true;
		pump_ready_all(pump);
		pump_install(pump, &view);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		fill();
		for (unsigned i = 0; i < 2; i++)
			pair_submit(pump, i, &block);
		for (unsigned i = 0; i < N; i++)
			if (voted || i > 0)
				assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		struct group_core *core = pump->members[0].core;
		struct group_buffer *taken = take_what_left(pump, core);
		none = true;
		assert_true(group_core_due(core));
		pump_due(pump, 0);
		assert_non_null(strstr(pump->members[0].lost_reason, "out of memory"));
		assert_int_equal(pump->members[1].decided_count, 0);
		none = false;
		give_back(core, taken);
		pump_destroy(pump);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strided_sources_have_a_window),
		cmocka_unit_test(coded_sources_have_one),
		cmocka_unit_test(a_send_is_done_at_once),
		cmocka_unit_test(view_changes_in_the_middle),
		cmocka_unit_test(no_memory_when_there_is_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
