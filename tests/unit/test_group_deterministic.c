/* In a `deterministic` group the bits depend on neither the ring's order, nor the hub, nor who shares a host, nor the algorithm, nor the order in which
 * inputs arrive: whatever these are, the result is that of a left fold by ascending peer id, rounded once, with one and the same NaN in place of all.
 */
#include <float.h>
#include <math.h>

#include "group_pump.h"

#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define COUNT   53
#define MEMBERS 5
#define WAYS    60

struct vector {
	_Alignas(64) uint8_t bytes[COUNT * 8];
};

struct test_op {
	enum tr_collective collective;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	enum tr_codec codec;
};

static void put(enum tr_dtype dtype, struct vector *v, size_t k, double x)
{
	float narrow = (float)x;

	if (dtype == TR_F64)
		memcpy(v->bytes + 8 * k, &x, 8);
	else if (dtype == TR_F32)
		memcpy(v->bytes + 4 * k, &narrow, 4);
	else
		reduce_narrow(dtype, v->bytes + 2 * k, &narrow, 1);
}

/* Sizes far apart, so that each order of a sum has bits of its own; NaNs with and without a sign; two infinities. */
static void fill(const struct test_op *op, unsigned who, struct vector *v)
{
	struct rng_key key = rng_key(3, who, (uint64_t)op->dtype);

	memset(v, 0, sizeof(*v));
	for (size_t k = 0; k < COUNT; k++) {
		double x = ldexp(rng_normal(key, 0, k), (int)rng_below(key, 1, k, 9) - 4);
		if (k % 9 == 4 && who % 2 == k % 2)
			x = who < 2 ? -NAN : NAN;
		if (k % 9 == 7 && who > 2)
			x = who == 3 ? INFINITY : -INFINITY;
		put(op->dtype, v, k, x);
	}
}

static void shuffle(unsigned n, unsigned *order, struct rng_key key, uint64_t stream)
{
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)rng_below(key, stream, i, i), held = order[i - 1];
		order[i - 1] = order[k];
		order[k] = held;
	}
}

/* The whole of the op: of a reduce-scatter the blocks of all. */
static void run(const struct test_op *op, unsigned way, struct vector *result)
{
	static struct vector data[MEMBERS];
	struct rng_key key = rng_key(7, way, 0);
	unsigned order[MEMBERS], ring[MEMBERS];
	size_t bytes = reduce_element_bytes(op->dtype);
	struct pump *pump = pump_create_with(MEMBERS, way % 2 ? 64 : 0);
	struct pump_view view = pump_first_view(pump);

	shuffle(MEMBERS, order, key, 0);
	shuffle(MEMBERS, ring, key, 1);
	view.deterministic = true;
	view.algorithm = (Traind__Peer__Algorithm)(way % 6);
	view.ring = ring;
	view.hub = order[0];
	for (unsigned i = 0; i < MEMBERS; i++)
		view.host[i] = rng_below(key, 2, i, 2) ? "a" : "b";
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	for (unsigned i = 0; i < MEMBERS; i++) {
		struct group_event event = { .kind = GROUP_SUBMIT,
			.submit = { .tag = way / 6,
			    .collective = op->collective,
			    .data = data[order[i]].bytes,
			    .count = COUNT,
			    .dtype = op->dtype,
			    .reduce = op->reduce,
			    .codec = op->codec,
			    .contribute = true } };
		fill(op, order[i], &data[order[i]]);
		assert_int_equal(pump_step(pump, order[i], &event), TR_OK);
		pump_some(pump, (unsigned)rng_below(key, 3, i, 40));
	}
	pump_run(pump);
	for (unsigned i = 0; i < MEMBERS; i++)
		pump_close(pump, i, 0, 0);
	pump_run(pump);
	memset(result, 0, sizeof(*result));
	for (unsigned i = 0; i < MEMBERS; i++) {
		size_t first = 0, own = COUNT;
		assert_int_equal(pump->members[i].decided_count, 1);
		if (op->collective == TR_REDUCE_SCATTER)
			tr_block_range(COUNT, MEMBERS, i, &first, &own);
		else if (i > 0)
			assert_memory_equal(data[i].bytes, data[0].bytes, bytes * COUNT);
		memcpy(result->bytes + first * bytes, data[i].bytes + first * bytes, own * bytes);
	}
	pump_destroy(pump);
}

static void left_fold(const struct test_op *op, struct vector *result)
{
	static struct vector input[MEMBERS];
	const void *inputs[MEMBERS];
	float acc[COUNT];
	bool wide = reduce_is_wide(op->dtype);

	for (unsigned i = 0; i < MEMBERS; i++) {
		fill(op, i, &input[i]);
		inputs[i] = input[i].bytes;
	}
	memset(result, 0, sizeof(*result));
	if (wide) {
		reduce_widen(op->dtype, acc, inputs[0], COUNT);
		for (unsigned i = 1; i < MEMBERS; i++)
			reduce_combine_wide(op->dtype, op->reduce, acc, inputs[i], COUNT);
		if (op->reduce == TR_AVG)
			reduce_plain_divide(TR_F32, acc, COUNT, MEMBERS);
		reduce_narrow(op->dtype, result->bytes, acc, COUNT);
	} else {
		memcpy(result->bytes, inputs[0], sizeof(input[0].bytes));
		for (unsigned i = 1; i < MEMBERS; i++)
			reduce_plain_combine(op->dtype, op->reduce, result->bytes, result->bytes,
			    inputs[i], COUNT);
		if (op->reduce == TR_AVG)
			reduce_plain_divide(op->dtype, result->bytes, COUNT, MEMBERS);
	}
	reduce_settle_nans(op->dtype, result->bytes, COUNT);
}

static void same_in_all_ways(const struct test_op *op)
{
	static struct vector expected, got;

	if (op->codec == TR_CODEC_NONE)
		left_fold(op, &expected);
	else
		run(op, 0, &expected);
	for (unsigned way = 0; way < WAYS; way++) {
		run(op, way, &got);
		for (size_t at = 0; at < sizeof(got.bytes); at++)
			if (got.bytes[at] != expected.bytes[at])
				fail_msg("collective %d, dtype %d, reduce %d, codec %d: algorithm "
				         "%u, way %u: byte %zu differs",
				    (int)op->collective, (int)op->dtype, (int)op->reduce,
				    (int)op->codec, way % 6, way, at);
	}
}

static void bits_of(enum tr_collective collective)
{
	static const enum tr_dtype dtypes[] = { TR_F32, TR_F64, TR_F16, TR_BF16 };

	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
		for (int reduce = TR_SUM; reduce <= TR_PROD; reduce++)
			for (int codec = TR_CODEC_NONE; codec <= TR_CODEC_INT2; codec++)
				if (codec == TR_CODEC_NONE ||
				    (dtypes[d] != TR_F64 && reduce == TR_SUM + codec % 2))
					same_in_all_ways(&(struct test_op){ collective, dtypes[d],
					    (enum tr_reduce)reduce, (enum tr_codec)codec });
}

static void guarantee_5_bits_do_not_depend_on_ring_algorithm_or_arrival(void **state)
{
	(void)state;
	bits_of(TR_ALL_REDUCE);
}

static void nor_do_those_of_blocks(void **state)
{
	(void)state;
	bits_of(TR_REDUCE_SCATTER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guarantee_5_bits_do_not_depend_on_ring_algorithm_or_arrival),
		cmocka_unit_test(nor_do_those_of_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
