/* Codecs: all members hold the same bytes, and these are the bytes of a reference: encoded inputs, decoded and added in ascending peer id in
 * f32, divided, encoded, decoded. Star, direct, one-shot and hierarchical give the same ones. Error feedback as the formula says.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "group_pump.h"

#include "collectives/core/op.h"
#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define COUNT         1500
#define SEGMENT_BYTES 2048

struct floats {
	float x[COUNT];
};

struct scene {
	unsigned n;
	enum tr_algorithm algorithm;
	enum tr_codec codec;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	enum tr_collective collective;
	bool in_place, feedback, deterministic;
	struct floats input[PUMP_MEMBERS], residual[PUMP_MEMBERS], next[PUMP_MEMBERS];
	_Alignas(64) uint8_t in[PUMP_MEMBERS][COUNT * 4], out[PUMP_MEMBERS][COUNT * 4];
};

static size_t bytes_of(const struct scene *s)
{
	return COUNT * reduce_element_bytes(s->dtype);
}

static void widen(enum tr_dtype dtype, float *out, const void *in, size_t n)
{
	if (dtype == TR_F32)
		memcpy(out, in, n * sizeof(*out));
	else
		reduce_widen(dtype, out, in, n);
}

static void narrow(enum tr_dtype dtype, void *out, const float *in, size_t n)
{
	if (dtype == TR_F32)
		memcpy(out, in, n * sizeof(*in));
	else
		reduce_narrow(dtype, out, in, n);
}

static void scene_fill(struct scene *s)
{
	struct rng_key key = rng_key(5, s->n, (uint64_t)s->codec);
	for (unsigned i = 0; i < s->n; i++) {
		for (size_t k = 0; k < COUNT; k++) {
			s->input[i].x[k] = (float)rng_normal(key, i, 2 * k);
			s->residual[i].x[k] = (float)rng_normal(key, i, 2 * k + 1) / 8;
			s->next[i].x[k] = 77;
		}
		memset(s->in[i], 0xab, sizeof(s->in[i]));
		memset(s->out[i], 0xab, sizeof(s->out[i]));
		narrow(s->dtype, s->in_place ? s->out[i] : s->in[i], s->input[i].x, COUNT);
	}
}

static void scene_run(struct scene *s)
{
	struct pump *pump = pump_create(s->n);
	struct pump_view view = pump_first_view(pump);
	scene_fill(s);
	view.segment_bytes = SEGMENT_BYTES;
	view.algorithm = (Traind__Peer__Algorithm)s->algorithm;
	view.deterministic = s->deterministic;
	for (unsigned i = 0; i < s->n; i++)
		view.host[i] = i % 2 == 0 ? "a" : "b";
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < s->n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	for (unsigned i = s->n; i-- > 0;) {
		size_t first, own;
		tr_block_range(COUNT, s->n, i, &first, &own);
		struct group_event event = { .kind = GROUP_SUBMIT,
			.submit = { .tag = 3,
			    .collective = s->collective,
			    .data = s->out[i],
			    .input = s->in_place ? NULL
			        : s->collective == TR_ALL_GATHER
			        ? s->in[i] + first * reduce_element_bytes(s->dtype)
			        : s->in[i],
			    .count = COUNT,
			    .own_elements = own,
			    .dtype = s->dtype,
			    .reduce = s->reduce,
			    .codec = s->codec,
			    .contribute = true,
			    .residual = s->feedback ? s->residual[i].x : NULL,
			    .residual_next = s->feedback ? s->next[i].x : NULL,
			    .beta = 0.5f } };
		assert_int_equal(pump_step(pump, i, &event), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	}
	pump_run(pump);
	for (unsigned i = 0; i < s->n; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	for (unsigned i = 0; i < s->n; i++)
		assert_int_equal(pump->members[i].decided_count, 1);
	pump_destroy(pump);
}

/* The segments of the op, as everybody cuts it. */
static struct cut scene_cut(const struct scene *s)
{
	struct cut cut;
	size_t element = reduce_element_bytes(s->dtype);
	uint32_t segment = op_segment_bytes(COUNT * element, SEGMENT_BYTES, 0);
	bool blocks = s->collective == TR_ALL_GATHER || s->collective == TR_REDUCE_SCATTER;
	assert_int_equal(cut_init(&cut, COUNT, segment / (uint32_t)element, blocks ? s->n : 0, NULL),
	    TR_OK);
	return cut;
}

static void encode_input(const struct scene *s, unsigned who, size_t first, size_t n, uint8_t *wire,
    float *next)
{
	float a[COUNT];
	uint8_t row[COUNT * 4];
	narrow(s->dtype, row, s->input[who].x + first, n);
	widen(s->dtype, a, row, n);
	if (s->feedback)
		codec_encode_feedback(s->codec, 0.5f, wire, a, s->residual[who].x + first,
		    next + first, n);
	else
		codec_encode(s->codec, wire, a, n);
}

/* What everybody has, in the op's order. */
static void reference(const struct scene *s, uint8_t *expected, struct floats *next)
{
	struct cut cut = scene_cut(s);
	for (uint32_t k = 0; k < cut.segments; k++) {
		size_t first = cut_first(&cut, k), n = cut_elements(&cut, k);
		float sum[COUNT];
		uint8_t wire[COUNT * 4];
		bool sourced = s->collective == TR_ALL_GATHER || s->collective == TR_BROADCAST;
		if (sourced) {
			unsigned source = s->collective == TR_BROADCAST ? 0 : cut_block(&cut, k);
			encode_input(s, source, first, n, wire, NULL);
		} else {
			for (unsigned i = 0; i < s->n; i++) {
				encode_input(s, i, first, n, wire, next[i].x);
				if (i == 0)
					codec_decode(s->codec, sum, wire, n);
				else
					codec_decode_combine(s->codec, s->reduce, sum, wire, n);
			}
			if (s->reduce == TR_AVG)
				reduce_divide(TR_F32, sum, n, s->n);
			if (s->n > 1)
				codec_encode(s->codec, wire, sum, n);
		}
		codec_decode(s->codec, sum, wire, n);
		narrow(s->dtype, expected + first * reduce_element_bytes(s->dtype), sum, n);
	}
}

static void scene_check(const struct scene *s)
{
	static uint8_t expected[COUNT * 4];
	static struct floats next[PUMP_MEMBERS];
	reference(s, expected, next);
	for (unsigned i = 0; i < s->n; i++) {
		size_t first = 0, n = COUNT, element = reduce_element_bytes(s->dtype);
		if (s->collective == TR_REDUCE_SCATTER)
			tr_block_range(COUNT, s->n, i, &first, &n);
		size_t at = s->collective == TR_REDUCE_SCATTER && !s->in_place ? 0 : first;
		assert_memory_equal(s->out[i] + at * element, expected + first * element,
		    n * element);
		for (size_t k = 0; s->feedback && k < COUNT; k++)
			assert_memory_equal(&s->next[i].x[k], &next[i].x[k], sizeof(float));
	}
}

static struct scene *scene_make(void)
{
	struct scene *s = aligned_alloc(_Alignof(struct scene), sizeof(*s));
	assert_non_null(s);
	memset(s, 0, sizeof(*s));
	return s;
}

static void guarantee_1_every_algorithm_gives_the_bytes_of_the_reference(void **state)
{
	(void)state;
	struct scene *s = scene_make();
	static const enum tr_algorithm algorithms[] = { TR_STAR, TR_DIRECT, TR_ONE_SHOT,
		TR_HIERARCHICAL, TR_AUTO };
	static const enum tr_dtype dtypes[] = { TR_F32, TR_F16, TR_BF16 };
	static const enum tr_collective collectives[] = { TR_ALL_REDUCE, TR_REDUCE_SCATTER,
		TR_ALL_GATHER, TR_BROADCAST };
	for (int codec = TR_CODEC_BF16; codec <= TR_CODEC_INT2; codec++)
		for (unsigned n = 1; n <= PUMP_MEMBERS; n += n < 3 ? 1 : 5)
			for (unsigned a = 0; a < 5; a++)
				for (unsigned d = 0; d < 3; d++)
					for (unsigned c = 0; c < 4; c++) {
						s->n = n;
						s->codec = (enum tr_codec)codec;
						s->algorithm = algorithms[a];
						s->dtype = dtypes[d];
						s->collective = collectives[c];
						s->reduce = a % 2 == 0 && c < 2 ? TR_AVG : TR_SUM;
						s->in_place = (n + a + d) % 2 == 0;
						s->feedback = c < 2 && (d + a) % 2 == 0;
						s->deterministic = d == 1;
						scene_run(s);
						scene_check(s);
					}
	free(s);
}

/* What a chain rounds at each of its hops: half a step of a sum of so many inputs. A contribution that is lost, or counts twice, is more. */
static void check_chain(const struct scene *s)
{
	float got[COUNT], largest = 0, steps = s->codec == TR_CODEC_BF16 ? 512 : 254;
	double wrong = 0, allowed;
	if (s->codec != TR_CODEC_BF16 && s->codec != TR_CODEC_INT8)
		return;
	widen(s->dtype, got, s->out[0], COUNT);
	for (unsigned k = 0; k < COUNT; k++) {
		float sum = 0;
		for (unsigned i = 0; i < s->n; i++) {
			sum += s->input[i].x[k];
			largest = fmaxf(largest, fabsf(s->input[i].x[k]));
		}
		wrong = fmax(wrong, fabs((double)(got[k] - sum / (float)s->n)));
	}
	allowed = (double)largest * (s->n + 2) / (double)steps;
	if (wrong > allowed)
		fail_msg("%u members, codec %d: %g beside the sum, where %g is allowed", s->n,
		    (int)s->codec, wrong, allowed);
}

/* A chain encodes again at each hop, so its bytes are its own; and the same on all members. */
static void guarantee_1_a_ring_gives_everybody_the_same_bytes(void **state)
{
	(void)state;
	struct scene *s = scene_make();
	for (int codec = TR_CODEC_BF16; codec <= TR_CODEC_INT2; codec++)
		for (unsigned n = 1; n <= PUMP_MEMBERS; n++)
			for (int dtype = 0; dtype < 2; dtype++) {
				s->n = n;
				s->codec = (enum tr_codec)codec;
				s->algorithm = TR_RING;
				s->dtype = dtype == 0 ? TR_F32 : TR_F16;
				s->collective = TR_ALL_REDUCE;
				s->reduce = TR_AVG;
				s->deterministic = false;
				scene_run(s);
				for (unsigned i = 1; i < n; i++)
					assert_memory_equal(s->out[i], s->out[0], bytes_of(s));
				check_chain(s);
				s->deterministic = true; /* and then it is direct's */
				scene_run(s);
				scene_check(s);
			}
	free(s);
}

/* What a peer held back goes out later: the mean over rounds comes to the true one. */
static void feedback_carries_what_was_lost(void **state)
{
	(void)state;
	float x[128], residual[128] = { 0 }, next[128], decoded[128], total[128] = { 0 };
	uint8_t wire[256];
	for (unsigned k = 0; k < 128; k++)
		x[k] = (float)k / 97 - 0.6f;
	for (unsigned round = 0; round < 400; round++) {
		codec_encode_feedback(TR_CODEC_INT2, 1, wire, x, residual, next, 128);
		codec_decode(TR_CODEC_INT2, decoded, wire, 128);
		for (unsigned k = 0; k < 128; k++)
			total[k] += decoded[k] / 400;
		memcpy(residual, next, sizeof(residual));
	}
	for (unsigned k = 0; k < 128; k++)
		assert_true(total[k] - x[k] < 0.05f && x[k] - total[k] < 0.05f);
}

/* ---- a send only reads ---- */

#define SENT 300

struct sent {
	const float *memory; /* nobody can write to it */
	float got[SENT];
	bool strided;
	enum tr_codec codec;
};

static void submit_pair(struct pump *pump, unsigned who, struct sent *s)
{
	const struct tr_block block = { .rank = 1, .extents = { SENT }, .strides = { 2 } };
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = 5,
		    .collective = who == 0 ? TR_SEND : TR_RECV,
		    .data = who == 0 ? NULL : s->got,
		    .input = who == 0 ? s->memory : NULL,
		    .input_block = who == 0 && s->strided ? &block : NULL,
		    .count = SENT,
		    .dtype = TR_F32,
		    .reduce = TR_SUM,
		    .codec = s->codec,
		    .root = who == 0 ? 1 : 0,
		    .contribute = true } };
	assert_int_equal(pump_step(pump, who, &event), TR_OK);
	assert_int_equal(pump_close(pump, who, 0, 0), TR_OK);
}

/* Sent, lost on its way with the link, and served again in the next view: from the input, which is as it was. */
static void send_from_read_only_memory(struct sent *s)
{
	struct pump *pump = pump_create(2);
	struct pump_view view = pump_first_view(pump);
	float row[SENT], expected[SENT];
	uint8_t wire[4 * SENT];

	view.segment_bytes = SEGMENT_BYTES;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		submit_pair(pump, i, s);
	}
	pump_drop_sends(pump, 0, true);
	pump_propose(pump, 2);
	view.number = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributors[0] = 1;
	view.contributors[1] = 2;
	view.contributor_count = 2;
	pump_install(pump, &view);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_true(pump->members[i].decided_count == 1 && pump->members[i].status == TR_OK);
	for (unsigned k = 0; k < SENT; k++)
		row[k] = s->memory[s->strided ? 2 * k : k];
	codec_encode(s->codec, wire, row, SENT);
	codec_decode(s->codec, expected, wire, SENT);
	assert_memory_equal(s->got, expected, sizeof(expected));
	pump_destroy(pump);
}

static void a_send_only_reads(void **state)
{
	(void)state;
	size_t bytes = 2 * SENT * sizeof(float);
	float *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	    0);
	assert_true(memory != MAP_FAILED);
	for (unsigned k = 0; k < 2 * SENT; k++)
		memory[k] = (float)(k * k % 97) / 13;
	assert_int_equal(mprotect(memory, bytes, PROT_READ), 0);
	for (unsigned i = 0; i < 4; i++) {
		struct sent s = { .memory = memory,
			.strided = i % 2 == 1,
			.codec = i < 2 ? TR_CODEC_NONE : TR_CODEC_INT8 };
		send_from_read_only_memory(&s);
	}
	assert_int_equal(munmap(memory, bytes), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guarantee_1_every_algorithm_gives_the_bytes_of_the_reference),
		cmocka_unit_test(guarantee_1_a_ring_gives_everybody_the_same_bytes),
		cmocka_unit_test(feedback_carries_what_was_lost),
		cmocka_unit_test(a_send_only_reads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
