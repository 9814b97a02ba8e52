/* Results that a member lacks after a view change: with a codec they are encoded once more wherever that gives back the bytes that everybody decoded, which they do by the codecs' making,
 * and go as they are where it would not; and what has to be staged for it has a window.
 */
#include <math.h>

#include "tests/unit/group_pump.h"

#include "collectives/core/coded.h"
#include "collectives/core/member.h"
#include "collectives/core/op.h"
#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define N             3
#define LAST          (N - 1)
#define COUNT         6000
#define SEGMENT_BYTES 2048
#define WINDOW        4096
#define STAGED_MAX \
	(WINDOW + SEGMENT_BYTES + 64) /* and the buffer that goes beyond; buffers are of 64 bytes */

struct scene {
	enum tr_algorithm algorithm;
	enum tr_collective collective;
	enum tr_codec codec;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	bool strided;
	_Alignas(64) uint8_t in[N][COUNT * 8], out[N][COUNT * 8];
};

static void fill(struct scene *s)
{
	size_t element = reduce_element_bytes(s->dtype), step = s->strided ? 2 : 1;
	for (unsigned i = 0; i < N; i++) {
		memset(s->in[i], 0x22, sizeof(s->in[i]));
		memset(s->out[i], 0x22, sizeof(s->out[i]));
		for (size_t k = 0; k < COUNT; k++) {
			float x = (float)rng_normal(rng_key(9, i, (uint64_t)s->codec), i, k);
			uint8_t *at = s->in[i] + k * step * element;
			if (s->dtype == TR_F32)
				memcpy(at, &x, sizeof(x));
			else
				reduce_narrow(s->dtype, at, &x, 1);
		}
	}
}

static void submit_all(struct pump *pump, struct scene *s)
{
	const struct tr_block block = { 1, { COUNT }, { 2 } };
	for (unsigned i = 0; i < N; i++) {
		struct group_event event = { .kind = GROUP_SUBMIT,
			.submit = { .tag = 3,
			    .collective = s->collective,
			    .data = s->out[i],
			    .input = s->in[i],
			    .data_block = s->strided ? &block : NULL,
			    .input_block = s->strided ? &block : NULL,
			    .count = COUNT,
			    .own_elements = COUNT,
			    .dtype = s->dtype,
			    .reduce = s->reduce,
			    .codec = s->codec,
			    .contribute = true } };
		if (s->collective == TR_BROADCAST && i == 0)
			memcpy(s->out[i], s->in[i], sizeof(s->out[i]));
		assert_int_equal(pump_step(pump, i, &event), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
}

/* Nothing that is on its way comes to the last member, and all else that can be done is. */
static void all_but_the_last(struct pump *pump)
{
	pump->members[LAST].dead = true;
	pump_run(pump);
	pump->members[LAST].dead = false;
}

/* The round goes on in another view of the same members, of which the first ones contribute. */
static void change_view(struct pump *pump, struct pump_view *view, unsigned contributors)
{
	view->number = 2;
	view->finish = true;
	view->base_attempt = 1;
	view->contributor_count = contributors;
	for (unsigned i = 0; i < contributors; i++)
		view->contributors[i] = i + 1;
	pump_propose(pump, 2);
	pump_install(pump, view);
}

static struct pump *world(struct scene *s, struct pump_view *view)
{
	struct pump *pump = pump_create_with(N, WINDOW);
	*view = pump_first_view(pump);
	fill(s);
	pump->quiet = pump->holds = true;
	view->segment_bytes = SEGMENT_BYTES;
	view->algorithm = (Traind__Peer__Algorithm)s->algorithm;
	pump_ready_all(pump);
	pump_install(pump, view);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	submit_all(pump, s);
	all_but_the_last(pump);
	return pump;
}

struct served {
	unsigned encoded, plain;
	size_t elements; /* of both */
};

/* Results for the last member that wait now; everything else that does is delivered later. */
static struct served count_served(const struct pump *pump)
{
	struct served served = { 0 };
	for (size_t i = pump->first; i < pump->last; i++) {
		const struct core_message *m = pump->messages[i];
		if (m == NULL || m->kind != GROUP_DO_SEND_SEGMENT || m->to != LAST ||
		    m->header.kind != SEGMENT_SEALED)
			continue;
		served.elements += m->header.elements;
		served.encoded += m->header.encoding == SEGMENT_ENCODED;
		served.plain += m->header.encoding == SEGMENT_PLAIN;
	}
	return served;
}

/* What its frames for the last member hold. */
static size_t staged(const struct pump *pump, unsigned who)
{
	size_t bytes = 0;
	for (size_t i = pump->first; i < pump->last; i++)
		if (pump->held[i] != NULL && pump->messages[i]->from == who &&
		    pump->messages[i]->to == LAST)
			bytes += pump->held[i]->capacity;
	return bytes;
}

static void run_bounded(struct pump *pump)
{
	do
		assert_true(staged(pump, 0) <= STAGED_MAX);
	while (pump_some(pump, 1) > 0);
}

static void all_have_the_same(struct pump *pump, const struct scene *s)
{
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_memory_equal(s->out[i], s->out[0], sizeof(s->out[0]));
	}
}

/* A star: its hub has all results, and its window is their only bound. */
static void served(struct scene *s, bool encoded)
{
	struct pump_view view;
	struct pump *pump = world(s, &view);
	change_view(pump, &view, N);
	struct served now = count_served(pump);
	assert_true(now.encoded + now.plain > 0);
	assert_int_equal(encoded ? now.plain : now.encoded, 0);
	run_bounded(pump);
	all_have_the_same(pump, s);
	pump_destroy(pump);
}

static void coded_results_are_served_encoded(void **state)
{
	static struct scene s;
	static const enum tr_collective collectives[] = { TR_ALL_REDUCE, TR_BROADCAST };
	static const enum tr_dtype dtypes[] = { TR_F32, TR_F16, TR_BF16 };
	static const enum tr_reduce reduces[] = { TR_SUM, TR_AVG, TR_MAX };
	(void)state;
	for (int codec = TR_CODEC_BF16; codec <= TR_CODEC_INT2; codec++)
		for (unsigned c = 0; c < 2; c++)
			for (unsigned d = 0; d < 3; d++)
				for (unsigned r = 0; r < 3; r++)
					for (unsigned strided = 0; strided < 2; strided++) {
						s.algorithm = TR_STAR;
						s.collective = collectives[c];
						s.codec = (enum tr_codec)codec;
						s.dtype = dtypes[d];
						s.reduce = reduces[r];
						s.strided = strided > 0;
						served(&s, true);
					}
}

static void strided_results_have_a_window(void **state)
{
	static struct scene s;
	(void)state;
	s.algorithm = TR_STAR;
	s.collective = TR_ALL_REDUCE;
	s.dtype = TR_F32;
	s.reduce = TR_SUM;
	s.strided = true;
	served(&s, false);
}

/* Such as nobody decoded: their bytes are what counts. */
static void others_go_as_they_are(void **state)
{
	static struct scene s;
	const float other = 0.1f;
	(void)state;
	s.algorithm = TR_STAR;
	s.collective = TR_ALL_REDUCE;
	s.dtype = TR_F32;
	s.reduce = TR_SUM;
	s.codec = TR_CODEC_INT8;
	struct pump_view view;
	struct pump *pump = world(&s, &view);
	for (unsigned i = 0; i < N; i++)
		memcpy(s.out[i], &other, sizeof(other));
	change_view(pump, &view, N);
	struct served now = count_served(pump);
	assert_int_equal(now.plain, 1);
	assert_true(now.encoded > 0);
	while (pump->members[LAST].decided_count == 0 && pump_some(pump, 1) > 0)
		continue;
	assert_memory_equal(s.out[LAST], &other, sizeof(other));
	pump_destroy(pump);
}

#define LARGE ((size_t)5 << 20) /* elements: 20 MiB */

/* Heartbeats wait for a step: what is left is served in the next ones. The last member does not contribute yet, so that no window bounds what it lacks. */
static void a_step_encodes_so_much(void **state)
{
	struct pump *pump = pump_create_with(N, 64u << 20);
	struct pump_view view = pump_first_view(pump);
	const size_t all = LARGE * sizeof(float);
	float *data[N];
	(void)state;
	pump->quiet = pump->holds = true;
	view.segment_bytes = 1u << 20;
	view.algorithm = (Traind__Peer__Algorithm)TR_STAR;
	view.contribute_from[LAST] = 2;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < N; i++) {
		struct group_event event = { .kind = GROUP_SUBMIT };
		data[i] = malloc(all);
		assert_non_null(data[i]);
		for (size_t k = 0; k < LARGE; k++)
			data[i][k] = (float)((k * 7 + i) % 1009);
		event.submit = (struct group_submit){ .tag = 3,
			.collective = TR_ALL_REDUCE,
			.data = data[i],
			.count = LARGE,
			.dtype = TR_F32,
			.reduce = TR_SUM,
			.codec = TR_CODEC_INT8,
			.contribute = i < LAST };
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		assert_int_equal(pump_step(pump, i, &event), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	all_but_the_last(pump);
	change_view(pump, &view, LAST);
	assert_int_equal(count_served(pump).elements, LARGE);
	assert_in_range(pump->members[0].core->served_bytes, 1, all / 4);
	pump_run(pump);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_memory_equal(data[i], data[0], all);
	}
	for (unsigned i = 0; i < N; i++)
		free(data[i]);
	pump_destroy(pump);
}

/* It served one who died: nobody waits for room any more, and collectors need not hurry. */
static void nobody_is_starved_for_the_dead(void **state)
{
	static struct scene s = { .algorithm = TR_STAR,
		.collective = TR_ALL_REDUCE,
		.dtype = TR_F32,
		.reduce = TR_SUM,
		.strided = true };
	const struct tr_block block = { 1, { COUNT }, { 2 } };
	struct pump *pump = pump_create_with(N, WINDOW);
	struct pump_view view = pump_first_view(pump);
	(void)state;
	fill(&s);
	pump->quiet = pump->holds = true;
	view.segment_bytes = SEGMENT_BYTES;
	view.algorithm = (Traind__Peer__Algorithm)TR_STAR;
	view.contribute_from[LAST] = 2;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < N; i++) {
		struct group_event event = { .kind = GROUP_SUBMIT,
			.submit = { .tag = 3,
			    .data = s.out[i],
			    .input = s.in[i],
			    .data_block = &block,
			    .input_block = &block,
			    .count = COUNT,
			    .own_elements = COUNT,
			    .dtype = TR_F32,
			    .reduce = TR_SUM,
			    .contribute = i < LAST } };
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		assert_int_equal(pump_step(pump, i, &event), TR_OK);
		if (i < LAST)
			assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	all_but_the_last(pump);
	change_view(pump, &view, LAST);
	assert_true(group_core_starved(pump->members[0].core));
	pump_kill(pump, LAST);
	view.number = 3;
	view.count = LAST;
	pump_propose(pump, 3);
	pump_install(pump, &view);
	assert_false(group_core_starved(pump->members[0].core));
	pump_run(pump);
	for (unsigned i = 0; i < LAST; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	pump_destroy(pump);
}

/* What codecs make of any values they make of their own results again, also where bf16 rounded these; of next to nothing int2 may make something else. */
static void codecs_keep_their_own(void **state)
{
	static const enum tr_dtype dtypes[] = { TR_F32, TR_BF16 };
	static float x[COUNT], y[COUNT];
	static uint8_t wire[COUNT * 4];
	(void)state;
	for (int codec = TR_CODEC_BF16; codec <= TR_CODEC_INT2; codec++)
		for (unsigned turn = 0; turn < 400; turn++) {
			enum tr_dtype dtype = dtypes[turn % 2];
			struct op op = { .codec = (enum tr_codec)codec,
				.dtype = dtype,
				.element_bytes = reduce_element_bytes(dtype) };
			float size = (float)ldexp(1, (int)(turn % 250) - 120);
			size_t count = COUNT - turn % 3 * 77;
			for (size_t k = 0; k < count; k++) {
				double v = rng_normal(rng_key(turn, 1, (uint64_t)codec), 0, k);
				x[k] = turn % 5 == 0 ? size * (float)(v * v * v)
				    : turn % 5 == 1  ? size * (float)(v > 0)
				                     : size * (float)v;
			}
			if (turn % 7 == 0)
				x[turn] = turn % 2 ? NAN : -INFINITY;
			codec_encode(op.codec, wire, x, count);
			coded_decode(&op, y, wire, count);
			if (!coded_encode_result(&op, y, count, wire)) {
				assert_true(codec == TR_CODEC_INT2 && size < 0x1p-90f);
				continue;
			}
			coded_decode(&op, x, wire, count);
			assert_memory_equal(x, y, count * op.element_bytes);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(coded_results_are_served_encoded),
		cmocka_unit_test(strided_results_have_a_window),
		cmocka_unit_test(others_go_as_they_are),
		cmocka_unit_test(a_step_encodes_so_much),
		cmocka_unit_test(nobody_is_starved_for_the_dead),
		cmocka_unit_test(codecs_keep_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
