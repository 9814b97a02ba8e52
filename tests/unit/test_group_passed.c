/* Encoded bytes that are passed on, of a broadcast or an all-gather, have a window: what goes beyond it is dropped, and encoded again from the result when there is room. Where that would not be decoded to what all have the
 * result goes as it is. All members end with the same bytes, whoever comes late, and through view changes.
 */
#include <math.h>

#include "tests/unit/group_release.h"

#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define N             4
#define LAST          (N - 1)
#define ELEMENTS      6000
#define SEGMENT_BYTES 1024
#define WINDOW        2048
#define STAGED_MAX    (WINDOW + SEGMENT_BYTES + 64) /* and the buffer that goes beyond */

struct scene {
	enum tr_algorithm algorithm;
	enum tr_collective collective;
	enum tr_codec codec;
	enum tr_dtype dtype;
	bool strided;
	_Alignas(64) uint8_t data[N][ELEMENTS * 8];
};

/* Of every third hundred int2 makes what it does not find again; some are no numbers. */
static float value(const struct scene *s, unsigned who, size_t k)
{
	double x = rng_normal(rng_key(9, who, (uint64_t)s->codec), 1, k);
	if (k == 777)
		return NAN;
	return k / 100 % 3 == 0 ? (float)(x > -1) : (float)x;
}

static void fill(struct scene *s)
{
	size_t element = reduce_element_bytes(s->dtype), step = s->strided ? 2 : 1;
	for (unsigned i = 0; i < N; i++) {
		memset(s->data[i], 0x22, sizeof(s->data[i]));
		for (size_t k = 0; k < ELEMENTS; k++) {
			float x = value(s, i, k);
			uint8_t *at = s->data[i] + k * step * element;
			if (s->dtype == TR_F32)
				memcpy(at, &x, sizeof(x));
			else
				reduce_narrow(s->dtype, at, &x, 1);
		}
	}
}

static struct pump *world(struct scene *s, struct pump_view *view)
{
	struct pump *pump = pump_create_with(N, WINDOW);
	*view = first_view(pump, s->algorithm);
	view->segment_bytes = SEGMENT_BYTES;
	fill(s);
	pump->quiet = pump->holds = pump->aside = true;
	pump_ready_all(pump);
	pump_install(pump, view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static void give(struct pump *pump, unsigned who, struct scene *s, struct set scope)
{
	const struct tr_block block = { 1, { ELEMENTS }, { 2 } };
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = 1,
		    .collective = s->collective,
		    .data = s->data[who],
		    .data_block = s->strided ? &block : NULL,
		    .count = ELEMENTS,
		    .own_elements = s->collective == TR_ALL_GATHER ? ELEMENTS / N : 0,
		    .dtype = s->dtype,
		    .reduce = TR_SUM,
		    .codec = s->codec,
		    .contribute = true,
		    .scope = { scope.members, scope.count } } };
	assert_int_equal(pump_step(pump, who, &event), TR_OK);
}

static void give_all(struct pump *pump, struct scene *s)
{
	for (unsigned i = 0; i < N; i++) {
		if (i != LAST)
			give(pump, i, s, (struct set){ 0 });
		if (i != LAST)
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump); /* what comes to the last one waits for its op */
}

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
		bytes += before ? 0 : pump->held[i]->capacity;
	}
	return bytes;
}

static void run_bounded(struct pump *pump)
{
	do
		for (unsigned i = 0; i < N; i++)
			assert_in_range(staged(pump, i), 0, STAGED_MAX);
	while (pump_some(pump, 1) > 0);
}

static void last_comes(struct pump *pump, struct scene *s)
{
	give(pump, LAST, s, (struct set){ 0 });
	assert_int_equal(pump_close(pump, LAST, 0, 0), TR_OK);
	run_bounded(pump);
}

static void all_have_the_same(const struct pump *pump, const struct scene *s, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_memory_equal(s->data[i], s->data[0], sizeof(s->data[0]));
	}
}

static void passes_on(struct scene *s)
{
	struct pump_view view;
	struct pump *pump = world(s, &view);
	give_all(pump, s);
	last_comes(pump, s);
	all_have_the_same(pump, s, N);
	pump_destroy(pump);
}

static void every_codec(struct scene *s)
{
	static const enum tr_dtype dtypes[] = { TR_F32, TR_F16, TR_BF16 };
	for (int codec = TR_CODEC_BF16; codec <= TR_CODEC_INT2; codec++)
		for (unsigned d = 0; d < 3; d++)
			for (unsigned strided = 0; strided < 2; strided++) {
				s->codec = (enum tr_codec)codec;
				s->dtype = dtypes[d];
				s->strided = strided > 0;
				passes_on(s);
			}
}

static void what_is_passed_on_has_a_window(void **state)
{
	static struct scene s;
	(void)state;
	for (int algorithm = TR_RING; algorithm <= TR_HIERARCHICAL; algorithm++) {
		s.algorithm = (enum tr_algorithm)algorithm;
		s.collective = TR_BROADCAST;
		every_codec(&s);
		s.collective = TR_ALL_GATHER;
		every_codec(&s);
	}
}

/* Another view while much is owed, of all or of all but one: its window is another one, and what is owed is so no more. `lost`: N, nobody. */
static void another_view(struct scene *s, unsigned lost)
{
	struct pump_view view;
	struct pump *pump = world(s, &view);
	give_all(pump, s);
	assert_in_range(staged(pump, LAST - 1), 1, STAGED_MAX);
	pump_propose(pump, 2);
	if (lost < N)
		pump_kill(pump, lost);
	view.number = 2;
	view.count = lost < N ? LAST : N;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = N;
	for (unsigned i = 0; i < N; i++)
		view.contributors[i] = i + 1;
	pump_install(pump, &view);
	if (lost == N)
		last_comes(pump, s);
	else
		run_bounded(pump);
	all_have_the_same(pump, s, view.count);
	pump_destroy(pump);
}

static void view_changes_in_the_middle(void **state)
{
	static struct scene s = { .algorithm = TR_RING, .collective = TR_BROADCAST };
	(void)state;
	for (int codec = TR_CODEC_BF16; codec <= TR_CODEC_INT2; codec++)
		for (unsigned strided = 0; strided < 2; strided++) {
			s.codec = (enum tr_codec)codec;
			s.dtype = codec % 2 ? TR_F32 : TR_BF16;
			s.strided = strided > 0;
			another_view(&s, N);
			another_view(&s, LAST);
		}
}

/* What is owed is read from the caller's memory: that is not given back before it has left. */
static void nothing_is_released_that_is_owed(void **state)
{
	static struct scene s = { .algorithm = TR_RING,
		.collective = TR_BROADCAST,
		.codec = TR_CODEC_INT8,
		.dtype = TR_F32 };
	const struct set scope = { { 0, 1, 2 }, 3 };
	struct pump_view view;
	(void)state;
	struct pump *pump = world(&s, &view);
	for (unsigned i = 0; i < 2; i++)
		give(pump, i, &s, scope);
	pump_run(pump);
	assert_int_equal(wait_for(pump, 1, 1), TR_OK);
	assert_int_equal(pump->members[1].done_count, 1);
	assert_int_equal(release(pump, 1, 1), TR_EINVAL);
	give(pump, 2, &s, scope);
	run_bounded(pump);
	assert_int_equal(release(pump, 1, 1), TR_OK);
	assert_memory_equal(s.data[2], s.data[0], sizeof(s.data[0]));
	memset(s.data[1], 0x55, sizeof(s.data[1]));
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_passed_on_has_a_window),
		cmocka_unit_test(view_changes_in_the_middle),
		cmocka_unit_test(nothing_is_released_that_is_owed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
