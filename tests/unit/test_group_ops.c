/* Every collective against a reference: all dtypes, reductions, algorithms, groups of 1 to 8, in place and not, contiguous and
 * strided; and what is no part of a result is not touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "group_pump.h"

#include "collectives/kernels/reduce.h"

#define MEMORY 4096
#define FILL   0xab

struct test_op {
	enum tr_collective collective;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	enum tr_algorithm algorithm;
	unsigned n, root;
	size_t count;
	bool in_place, strided;
};

struct test_memory {
	_Alignas(64) uint8_t input[MEMORY], output[MEMORY];
};

static const enum tr_dtype dtypes[] = { TR_F32, TR_F64, TR_I32, TR_I64, TR_F16, TR_BF16, TR_U8 };

/* ---- values: small whole numbers, so that all sums are exact ---- */

static int64_t value(const struct test_op *op, unsigned who, size_t k)
{
	if (op->reduce == TR_PROD)
		return 1 + (int64_t)((who + k) % 2);
	if (op->reduce == TR_AVG) /* divides without a rest */
		return (int64_t)(k % 5 * op->n + (who == 0 ? op->n : 0));
	return (int64_t)((who * 5 + k * 3) % 11 + 1);
}

static int64_t reduced(const struct test_op *op, size_t k)
{
	int64_t sum = value(op, 0, k);
	for (unsigned i = 1; i < op->n; i++) {
		int64_t x = value(op, i, k);
		switch (op->reduce) {
		case TR_MIN:
			sum = x < sum ? x : sum;
			break;
		case TR_MAX:
			sum = x > sum ? x : sum;
			break;
		case TR_PROD:
			sum *= x;
			break;
		default:
			sum += x;
		}
	}
	if (op->dtype == TR_U8)
		sum %= 256;
	return op->reduce == TR_AVG ? sum / op->n : sum;
}

static void put(const struct test_op *op, uint8_t *at, int64_t x)
{
	float wide = (float)x;
	double real = (double)x;
	switch (op->dtype) {
	case TR_F32:
		memcpy(at, &wide, 4);
		break;
	case TR_F64:
		memcpy(at, &real, 8);
		break;
	case TR_I32:
		memcpy(at, &(int32_t){ (int32_t)x }, 4);
		break;
	case TR_I64:
		memcpy(at, &x, 8);
		break;
	case TR_U8:
		*at = (uint8_t)x;
		break;
	default:
		reduce_narrow(op->dtype, at, &wide, 1);
	}
}

/* ---- what each collective takes and gives ---- */

static size_t step_of(const struct test_op *op)
{
	return reduce_element_bytes(op->dtype) * (op->strided ? 2 : 1);
}

struct extent {
	size_t first, elements; /* of the op */
	size_t shift;           /* where the first of them is in the memory */
	bool any;
};

static struct extent input_of(const struct test_op *op, unsigned who)
{
	struct extent e = { 0, op->count, 0, true };
	if (op->collective == TR_BARRIER || op->collective == TR_RECV)
		e.any = false;
	if (op->collective == TR_BROADCAST)
		e.any = who == op->root;
	if (op->collective == TR_ALL_GATHER) {
		tr_block_range(op->count, op->n, who, &e.first, &e.elements);
		e.shift = op->in_place ? e.first : 0;
	}
	return e;
}

static struct extent output_of(const struct test_op *op, unsigned who)
{
	struct extent e = { 0, op->count, 0, true };
	if (op->collective == TR_BARRIER || op->collective == TR_SEND)
		e.any = false;
	if (op->collective == TR_REDUCE_SCATTER) {
		tr_block_range(op->count, op->n, who, &e.first, &e.elements);
		e.shift = op->in_place ? e.first : 0;
	}
	return e;
}

static int64_t result(const struct test_op *op, unsigned who, size_t k)
{
	switch (op->collective) {
	case TR_ALL_GATHER:
		for (unsigned i = 0; i < op->n; i++) {
			size_t first, elements;
			tr_block_range(op->count, op->n, i, &first, &elements);
			if (k >= first && k < first + elements)
				return value(op, i, k);
		}
		return -1;
	case TR_BROADCAST:
	case TR_RECV:
		return value(op, op->root, k);
	default:
		(void)who;
		return reduced(op, k);
	}
}

static void fill(const struct test_op *op, unsigned who, struct test_memory *m)
{
	struct extent e = input_of(op, who);
	uint8_t *to = op->in_place ? m->output : m->input;
	memset(m, FILL, sizeof(*m));
	for (size_t k = 0; e.any && k < e.elements; k++)
		put(op, to + (e.shift + k) * step_of(op), value(op, who, e.first + k));
}

/* The whole memory, byte by byte. */
static void check(const struct test_op *op, unsigned who, const struct test_memory *m)
{
	struct test_memory expected;
	struct extent e = output_of(op, who);
	fill(op, who, &expected);
	for (size_t k = 0; e.any && k < e.elements; k++)
		put(op, expected.output + (e.shift + k) * step_of(op), result(op, who, e.first + k));
	if (memcmp(&expected, m, sizeof(expected)) == 0)
		return;
	size_t at = 0;
	while (((const uint8_t *)&expected)[at] == ((const uint8_t *)m)[at])
		at++;
	fail_msg("collective %d, dtype %d, reduce %d, algorithm %d, n %u, root %u, count %zu%s%s: "
	         "member %u differs at %s byte %zu",
	    (int)op->collective, (int)op->dtype, (int)op->reduce, (int)op->algorithm, op->n,
	    op->root, op->count, op->in_place ? ", in place" : "", op->strided ? ", strided" : "",
	    who, at < MEMORY ? "input" : "output", at % MEMORY);
}

/* ---- one round ---- */

static tr_status submit(struct pump *pump, const struct test_op *op, unsigned who,
    struct test_memory *m)
{
	struct extent in = input_of(op, who), out = output_of(op, who);
	bool own_in = op->collective == TR_ALL_GATHER,
	     own_out = op->collective == TR_REDUCE_SCATTER;
	const struct tr_block input = { 1, { own_in ? in.elements : op->count }, { 2 } };
	const struct tr_block output = { 1, { own_out && !op->in_place ? out.elements : op->count },
		{ 2 } };
	bool send = op->collective == TR_SEND;
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = 9,
		    .collective = op->collective,
		    .data = send ? NULL : m->output,
		    .input = send && op->in_place ? m->output
		        : op->in_place            ? NULL
		                                  : m->input,
		    .count = op->count,
		    .own_elements = own_in ? in.elements : out.elements,
		    .dtype = op->dtype,
		    .reduce = op->reduce,
		    .root = op->root,
		    .contribute = true,
		    .data_block = op->strided ? &output : NULL,
		    .input_block = op->strided ? &input : NULL } };
	return pump_step(pump, who, &event);
}

static void run(struct test_op op)
{
	static struct test_memory memory[PUMP_MEMBERS];
	struct pump *pump = pump_create_with(op.n, op.strided ? 2 * PUMP_SEGMENT_BYTES : 0);
	struct pump_view view = pump_first_view(pump);
	bool pair = op.collective == TR_SEND;
	unsigned destination = (op.root + 1) % op.n;
	pump->holds = op.strided; /* so that sources wait for room */
	view.algorithm = (Traind__Peer__Algorithm)op.algorithm;
	view.deterministic = op.count % 2 != 0;
	for (unsigned i = 0; i < op.n; i++)
		view.host[i] = i % 3 == 0 ? "a" : "b";
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < op.n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	struct test_op receive = op;
	receive.collective = TR_RECV;
	struct test_op send = op;
	for (unsigned i = 0; i < op.n; i++) {
		send.root = pair ? destination : op.root;
		fill(pair && i == destination ? &receive : &send, i, &memory[i]);
		if (!pair || i == op.root)
			assert_int_equal(submit(pump, &send, i, &memory[i]), TR_OK);
		else if (i == destination)
			assert_int_equal(submit(pump, &receive, i, &memory[i]), TR_OK);
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
		pump_some(pump, i);
	}
	pump_run(pump);
	for (unsigned i = 0; i < op.n; i++) {
		if (pump->members[i].decided_count != 1)
			fail_msg("collective %d, algorithm %d, n %u, count %zu: member %u is not "
			         "done\n%s",
			    (int)op.collective, (int)op.algorithm, op.n, op.count, i, pump->trace);
		assert_int_equal(pump->members[i].status, TR_OK);
		assert_false(pump->members[i].decided.partial);
		if (!pair || i == op.root)
			check(&send, i, &memory[i]);
		else if (i == destination)
			check(&receive, i, &memory[i]);
	}
	pump_destroy(pump);
}

static void run_forms(struct test_op op)
{
	static const size_t counts[] = { 0, 1, 5, 23 };
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (unsigned form = 0; form < 4; form++) {
			op.count = counts[c];
			op.in_place = (form & 1) != 0;
			op.strided = (form & 2) != 0;
			run(op);
		}
}

static void sums(enum tr_collective collective)
{
	for (unsigned n = 1; n <= PUMP_MEMBERS; n++)
		for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
			for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
				for (int reduce = TR_SUM; reduce <= TR_PROD; reduce++) {
					if ((n + (unsigned)algorithm + d + (unsigned)reduce) % 3 !=
					        0 &&
					    n > 3)
						continue; /* a third of the larger groups */
					run_forms((struct test_op){ .collective = collective,
					    .dtype = dtypes[d],
					    .reduce = (enum tr_reduce)reduce,
					    .algorithm = (enum tr_algorithm)algorithm,
					    .n = n });
				}
}

static void sourced(enum tr_collective collective, unsigned least)
{
	for (unsigned n = least; n <= PUMP_MEMBERS; n++)
		for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
			for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
				run_forms((struct test_op){ .collective = collective,
				    .dtype = dtypes[d],
				    .reduce = TR_SUM,
				    .algorithm = (enum tr_algorithm)algorithm,
				    .n = n,
				    .root = (unsigned)(d + (unsigned)algorithm) % n });
}

static void all_reduce(void **state)
{
	(void)state;
	sums(TR_ALL_REDUCE);
}

static void reduce_scatter(void **state)
{
	(void)state;
	sums(TR_REDUCE_SCATTER);
}

static void all_gather(void **state)
{
	(void)state;
	sourced(TR_ALL_GATHER, 1);
}

static void broadcast(void **state)
{
	(void)state;
	sourced(TR_BROADCAST, 1);
}

static void send_and_receive(void **state)
{
	(void)state;
	sourced(TR_SEND, 2);
}

static void barrier(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= PUMP_MEMBERS; n++)
		for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
			run((struct test_op){ .collective = TR_BARRIER,
			    .dtype = TR_F32,
			    .reduce = TR_SUM,
			    .algorithm = (enum tr_algorithm)algorithm,
			    .n = n,
			    .count = 7 });
}

/* ---- what peers must agree about ---- */

static const struct test_op broadcast_of_two = { .collective = TR_BROADCAST,
	.dtype = TR_F32,
	.reduce = TR_SUM,
	.n = 2,
	.count = 8 };

static struct pump *begun(unsigned n)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = pump_first_view(pump);
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static void disagree(struct test_op a, struct test_op b, const char *word)
{
	static struct test_memory memory[2];
	struct pump *pump = begun(2);
	assert_int_equal(submit(pump, &a, 0, &memory[0]), TR_OK);
	assert_int_equal(submit(pump, &b, 1, &memory[1]), TR_OK);
	pump_close(pump, 0, 0, 0);
	pump_close(pump, 1, 0, 0);
	pump_run(pump);
	bool said = false; /* the hub may see from the votes that something differs before a segment says what */
	for (unsigned i = 0; i < 2; i++) {
		const char *reason = pump->members[i].reason;
		assert_int_equal(pump->members[i].failed, TR_EMISMATCH);
		said = said || strstr(reason, word);
		if (!strstr(reason, "peers 1 and 2") && !strstr(reason, "peers 2 and 1"))
			fail_msg("\"%s\" does not name both peers", reason);
	}
	if (!said)
		fail_msg("\"%s\" does not say \"%s\"", pump->members[1].reason, word);
	pump_destroy(pump);
}

static void guarantee_4_disagreement_names_both_peers_and_the_matter(void **state)
{
	(void)state;
	const struct test_op a = broadcast_of_two;
	struct test_op b = a;
	b.root = 1;
	disagree(a, b, "root");
	b = a;
	b.collective = TR_ALL_REDUCE;
	disagree(a, b, "all-reduce");
	b.collective = TR_ALL_GATHER;
	disagree(a, b, "all-gather");
	b = a;
	b.count = 9;
	disagree(a, b, "9");
}

static void a_send_without_a_receive_fails_at_once(void **state)
{
	(void)state;
	static struct test_memory memory[3];
	const struct test_op send = { .collective = TR_SEND,
		.dtype = TR_F32,
		.reduce = TR_SUM,
		.n = 3,
		.root = 1,
		.count = 8 };
	struct test_op receive = send;
	receive.collective = TR_RECV;
	receive.root = 0;
	/* Nobody receives. */
	struct pump *pump = begun(3);
	assert_int_equal(submit(pump, &send, 0, &memory[0]), TR_OK);
	for (unsigned i = 0; i < 3; i++)
		pump_close(pump, i, 0, 0);
	pump_run(pump);
	assert_int_equal(pump->members[0].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[1].failed, TR_EMISMATCH);
	pump_destroy(pump);
	/* Nobody sends: the receiver tells the hub that it still waits. */
	pump = begun(3);
	assert_int_equal(submit(pump, &receive, 1, &memory[1]), TR_OK);
	for (unsigned i = 0; i < 3; i++)
		pump_close(pump, i, 0, 0);
	pump_run(pump);
	assert_int_equal(pump->members[1].decided_count, 0);
	assert_int_equal(pump_step(pump, 1,
	                     &(struct group_event){ .kind = GROUP_TICK, .now_us = 10000000 }),
	    TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump->members[i].failed, TR_EMISMATCH);
	for (unsigned i = 0; i < 3; i++)
		assert_string_equal(pump->members[i].reason,
		    "round 1: peer 2 has a send or a receive with peer 1, which has none with it");
	pump_destroy(pump);
	/* 1 sends to 2, who receives from 3. */
	pump = begun(3);
	receive.root = 2;
	assert_int_equal(submit(pump, &send, 0, &memory[0]), TR_OK);
	assert_int_equal(submit(pump, &receive, 1, &memory[1]), TR_OK);
	for (unsigned i = 0; i < 3; i++)
		pump_close(pump, i, 0, 0);
	pump_run(pump);
	assert_int_equal(pump->members[0].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[1].failed, TR_EMISMATCH);
	pump_destroy(pump);
}

static void what_is_no_op_is_refused(void **state)
{
	(void)state;
	static struct test_memory memory;
	struct pump *pump = begun(2);
	const struct test_op good = broadcast_of_two;
	struct test_op op = good;
	op.root = 2;
	assert_int_equal(submit(pump, &op, 0, &memory), TR_EINVAL);
	op = good;
	op.collective = (enum tr_collective)7;
	assert_int_equal(submit(pump, &op, 0, &memory), TR_EINVAL);
	op.collective = (enum tr_collective)UINT32_MAX;
	assert_int_equal(submit(pump, &op, 0, &memory), TR_EINVAL);
	op = good;
	op.collective = TR_SEND;
	op.root = 0; /* to itself */
	assert_int_equal(submit(pump, &op, 0, &memory), TR_EINVAL);
	/* A block of another size than ours. */
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = 1,
		    .collective = TR_REDUCE_SCATTER,
		    .data = memory.output,
		    .input = memory.input,
		    .count = 9,
		    .own_elements = 4,
		    .dtype = TR_F32,
		    .reduce = TR_SUM,
		    .contribute = true } };
	assert_int_equal(pump_step(pump, 0, &event), TR_EINVAL);
	event.submit.own_elements = 5;
	event.submit.algorithm = (enum tr_algorithm)6;
	assert_int_equal(pump_step(pump, 0, &event), TR_EINVAL);
	event.submit.algorithm = TR_AUTO;
	event.submit.codec = (enum tr_codec)99;
	assert_int_equal(pump_step(pump, 0, &event), TR_EINVAL);
	event.submit.codec = TR_CODEC_INT8;
	event.submit.dtype = TR_I32;
	assert_int_equal(pump_step(pump, 0, &event), TR_EINVAL);
	event.submit.dtype = TR_F32;
	event.submit.codec = TR_CODEC_NONE;
	event.submit.residual = (const float *)memory.input;
	assert_int_equal(pump_step(pump, 0, &event), TR_EINVAL);
	event.submit.residual = NULL;
	assert_int_equal(pump_step(pump, 0, &event), TR_OK);
	pump_destroy(pump);
}

/* A constant that somebody put in, what came of infinity - infinity, and one with a payload. With one-shot each member adds all inputs by
 * itself, in one pass or in several as they come. */
static void guarantee_1_all_have_the_bits_of_one_nan(void **state)
{
	(void)state;
	static const uint64_t nans[] = { 0x7ff8000000000000, 0xfff8000000000000,
		0x7ff8000000000abc };
	static union {
		double number[12];
		uint64_t bits[12];
	} data[8];
	for (unsigned n = 2; n <= 8; n++)
		for (unsigned count = 1; count <= 12; count++) {
			struct pump *pump = pump_create(n);
			struct pump_view view = pump_first_view(pump);
			view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT;
			view.policy = TRAIND__PEER__POLICY__POLICY_REPLAY;
			pump_ready_all(pump);
			pump_install(pump, &view);
			for (unsigned i = 0; i < n; i++)
				assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
			for (unsigned i = 0; i < n; i++)
				for (unsigned e = 0; e < count; e++)
					data[i].bits[e] = i < 3 ? nans[i] : 0x3ff0000000000000;
			for (unsigned i = 0; i < n; i++)
				assert_int_equal(pump_submit(pump, i, 0, data[i].number, count,
				                     TR_F64, TR_SUM),
				    TR_OK);
			pump_run(pump);
			for (unsigned i = 0; i < n; i++)
				pump_close(pump, i, 0, 0);
			pump_run(pump);
			for (unsigned i = 0; i < n; i++) {
				assert_int_equal(pump->members[i].failed, TR_OK);
				for (unsigned e = 0; e < count; e++)
					assert_true(data[i].bits[e] == nans[0]);
			}
			pump_destroy(pump);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guarantee_1_all_have_the_bits_of_one_nan),
		cmocka_unit_test(all_reduce),
		cmocka_unit_test(reduce_scatter),
		cmocka_unit_test(all_gather),
		cmocka_unit_test(broadcast),
		cmocka_unit_test(send_and_receive),
		cmocka_unit_test(barrier),
		cmocka_unit_test(guarantee_4_disagreement_names_both_peers_and_the_matter),
		cmocka_unit_test(a_send_without_a_receive_fails_at_once),
		cmocka_unit_test(what_is_no_op_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
