/* The ops of a round: what they are, what each member gives, and what each must get. Pure functions of the seed, the round and the
 * contributors, so that everybody submits the same and a result can be computed again.
 *
 * Named seeds keep to all-reduces in place, as they did when they found their bugs.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/core/cut.h"
#include "collectives/core/op.h"
#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"
#include "tests/sim/sim.h"

#define BETA      0.5f
#define UNTOUCHED 0xee

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static int64_t small(uint64_t x)
{
	return (int64_t)(x % 13) - 6;
}

/* ---- which ops ---- */

static enum tr_collective draw_collective(uint64_t x)
{
	static const enum tr_collective weights[16] = { TR_REDUCE_SCATTER, TR_REDUCE_SCATTER,
		TR_ALL_GATHER, TR_ALL_GATHER, TR_BROADCAST, TR_BROADCAST, TR_BARRIER, TR_SEND,
		TR_SEND, TR_SEND };
	return weights[x % 16]; /* the others: TR_ALL_REDUCE */
}

/* In which of the op's scopes is this contributor? In rows, or wherever chance puts it. */
static unsigned shape_part(uint64_t x, unsigned index, unsigned parts)
{
	return x % 2 == 0 ? index / parts : (unsigned)(mix(x + index) % parts);
}

/* Everybody is in one of them. False: this one does not contribute, and is in none. */
static bool shape_scope(struct sim_op *op, uint64_t x)
{
	unsigned parts = 1 + (unsigned)((x >> 4) % (op->contributors + 1)), at = 0;

	if (op->index >= op->contributors)
		return false;
	for (unsigned i = 0; i < op->contributors; i++) {
		if (shape_part(x, i, parts) != shape_part(x, op->index, parts))
			continue;
		if (i == op->index)
			at = op->scoped;
		op->members[op->scoped++] = i;
	}
	op->index = at;
	op->contributors = op->scoped;
	return true;
}

unsigned shape_outer(const struct sim_op *op, unsigned index)
{
	return op->scoped > 0 ? op->members[index] : index;
}

/* All collectives, dtypes, codecs; by other algorithms than the group's; apart from the input; in memory with gaps, or in columns. */
static void shape_widen(struct sim_op *op, uint64_t x)
{
	static const enum tr_dtype dtypes[] = { TR_F16, TR_BF16, TR_U8 };
	unsigned index = op->index, contributors = op->contributors;

	op->collective = contributors > 0 ? draw_collective(x) : TR_ALL_REDUCE;
	/* A joiner may not know that contributors were lost: what it takes part in is the same for it. */
	if (op->collective == TR_SEND && contributors < 2) {
		op->absent = true;
		return;
	}
	if ((x >> 4) % 3 == 0)
		op->dtype = dtypes[(x >> 6) % 3];
	if (op->dtype == TR_F32 || op->dtype == TR_F16 || op->dtype == TR_BF16)
		op->codec = (enum tr_codec)((x >> 8) % 12 < 6 ? (x >> 8) % 12 : 0);
	op->algorithm = (enum tr_algorithm)((x >> 12) % 12 < 6 ? (x >> 12) % 12 : 0);
	op->in_place = (x >> 16) % 2 == 0;
	op->strided = op->collective != TR_BARRIER && (x >> 18) % 4 == 0;
	bool sums = op->collective == TR_ALL_REDUCE || op->collective == TR_REDUCE_SCATTER;
	op->feedback = sums && op->codec != TR_CODEC_NONE && (x >> 20) % 2 == 0;
	if (op->collective == TR_BROADCAST)
		op->root = op->source = (unsigned)((x >> 24) % contributors);
	if (op->collective != TR_SEND)
		return;
	op->source = (unsigned)((x >> 24) % contributors);
	unsigned to = (op->source + 1 + (unsigned)((x >> 32) % (contributors - 1))) % contributors;
	op->absent = index != op->source && index != to;
	op->collective = index == to ? TR_RECV : TR_SEND;
	op->root = index == to ? op->source : to;
}

/* So many that what is taken back of them fills tables that hold few at first (tag_set.c). */
#define CROWD_LEAST 170
#define CROWD_TAGS  1000

static bool shape_crowd(const struct sim *sim, uint64_t h)
{
	return sim->crowds && mix(h + 7) % 12 == 0;
}

unsigned shape_ops(const struct sim *sim, uint64_t round, unsigned index, unsigned contributors,
    struct sim_op ops[SIM_CROWD_MAX])
{
	static const uint64_t counts[] = { 0, 1, 2, 7, 8, 9, 16, 17, 33, 64, 100, 110 };
	uint64_t h = mix(sim->seed * 0x9e3779b97f4a7c15u + round);
	unsigned wanted = (unsigned)(h % (SIM_OPS_MAX + 1)), count = 0;
	bool crowd = shape_crowd(sim, h);

	if (crowd)
		wanted = CROWD_LEAST + (unsigned)(mix(h + 8) % (SIM_CROWD_MAX - CROWD_LEAST + 1));

	for (unsigned i = 0; i < wanted; i++) {
		uint64_t x = mix(h + i + 1);
		struct sim_op *op = &ops[count];
		*op = (struct sim_op){ .tag = (uint32_t)(i * 3 + x % 3), .in_place = true };
		/* Half are the sums whose digits say whose data is in. */
		op->dtype = x & 256 ? TR_I64 : (enum tr_dtype)(1 + (x >> 9) % 4);
		op->reduce = x & 256 ? TR_SUM : (enum tr_reduce)(1 + (x >> 12) % 5);
		op->count = counts[(x >> 16) % (crowd ? 6 : sizeof(counts) / sizeof(counts[0]))];
		op->tag += crowd ? CROWD_TAGS : 0;
		op->index = index;
		op->contributors = contributors;
		if (sim->scopes && mix(x + 2) % (crowd ? 16 : 2) < (crowd ? 15 : 1) &&
		    contributors > 0)
			op->absent = !shape_scope(op, mix(x + 3));
		if (sim->all_ops && !op->absent)
			shape_widen(op, mix(x + 1));
		count += !op->absent;
	}
	return count;
}

/* ---- what contributor `key` puts in: elements of the op, in a row ---- */

static void fill_wide(enum tr_dtype dtype, uint64_t x, void *to)
{
	float wide = (float)small(x);
	reduce_narrow(dtype, to, &wide, 1);
}

static void shape_fill(const struct sim *sim, unsigned key, uint64_t round, const struct sim_op *op,
    void *data)
{
	for (uint64_t e = 0; e < op->count; e++) {
		uint64_t x = mix(
		    sim->seed ^ (round << 32) ^ ((uint64_t)key << 24) ^ (op->tag << 16) ^ e);
		switch (op->dtype) {
		case TR_F32:
			((float *)data)[e] = (float)small(x) * (float)(1u << (x >> 8) % 24) * 0.1f;
			break;
		case TR_F64:
			((double *)data)[e] = (double)small(x) * (double)(1u << (x >> 8) % 24) *
			    0.1;
			break;
		case TR_I32:
			((int32_t *)data)[e] = (int32_t)small(x);
			break;
		case TR_I64:
			((int64_t *)data)[e] = op->reduce == TR_SUM
			    ? (int64_t)((1 + (e + round) % 3) << (5 * key))
			    : small(x);
			break;
		case TR_F16:
		case TR_BF16:
			fill_wide(op->dtype, x, (uint16_t *)data + e);
			break;
		case TR_U8:
			((uint8_t *)data)[e] = (uint8_t)small(x);
			break;
		}
	}
}

static void fill_residual(const struct sim *sim, unsigned key, uint64_t round,
    const struct sim_op *op, float *residual)
{
	for (uint64_t e = 0; e < op->count; e++)
		residual[e] = 0.01f *
		    (float)small(mix(sim->seed + (round << 20) + (key << 12) + (op->tag << 8) + e));
}

/* ---- where it lies ---- */

struct extent {
	size_t first, elements; /* of the op */
	size_t shift;           /* where the first of them is in the memory */
};

static struct extent own_block(const struct sim_op *op)
{
	struct extent e = { 0 };
	tr_block_range(op->count, op->contributors, op->index, &e.first, &e.elements);
	e.shift = op->in_place && op->index < op->contributors ? e.first : 0;
	return e;
}

static struct extent input_of(const struct sim_op *op)
{
	const struct extent none = { 0 }, all = { 0, op->count, 0 };

	if (op->index >= op->contributors || op->collective == TR_BARRIER ||
	    op->collective == TR_RECV)
		return none;
	if (op->collective == TR_BROADCAST && op->root != op->index)
		return none;
	return op->collective == TR_ALL_GATHER ? own_block(op) : all;
}

static struct extent output_of(const struct sim_op *op)
{
	const struct extent none = { 0 }, all = { 0, op->count, 0 };

	if (op->collective == TR_BARRIER || op->collective == TR_SEND)
		return none;
	return op->collective == TR_REDUCE_SCATTER ? own_block(op) : all;
}

/* Of an op that is whole at every member, half of the members with gaps have two columns without one instead: not a row in the op's order. */
static bool in_columns(const struct sim_op *op)
{
	bool whole = op->collective != TR_ALL_GATHER && op->collective != TR_REDUCE_SCATTER;
	return op->strided && whole && op->count % 2 == 0 && op->index % 2 == 1;
}

/* In memory, of the element-th of what lies there. */
static size_t place_of(const struct sim_op *op, uint64_t element)
{
	uint64_t half = op->count / 2;
	uint64_t at = in_columns(op) ? element / half + element % half * 2
	                             : element * (op->strided ? 2 : 1);
	return at * reduce_element_bytes(op->dtype);
}

size_t shape_bytes(const struct sim_op *op)
{
	return op->count * reduce_element_bytes(op->dtype) * (op->strided ? 2 : 1);
}

static bool has_input_apart(const struct sim_op *op)
{
	return (!op->in_place || op->collective == TR_SEND) && input_of(op).elements > 0;
}

/* Memory as it is before the round. */
static void shape_lay(const struct sim *sim, unsigned key, uint64_t round, const struct sim_op *op,
    uint8_t *data, uint8_t *input)
{
	uint64_t row[SIM_ELEMENTS];
	struct extent e = input_of(op);
	size_t bytes = reduce_element_bytes(op->dtype);
	uint8_t *to = has_input_apart(op) ? input : data;

	memset(data, UNTOUCHED, shape_bytes(op));
	memset(input, UNTOUCHED, shape_bytes(op));
	if (e.elements > 0)
		shape_fill(sim, key, round, op, row);
	for (size_t k = 0; k < e.elements; k++)
		memcpy(to + place_of(op, e.shift + k), (uint8_t *)row + (e.first + k) * bytes,
		    bytes);
}

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

void shape_give(const struct sim *sim, unsigned key, uint64_t round, struct sim_op *op)
{
	op->data = must(malloc(shape_bytes(op) + 1));
	op->input = must(malloc(shape_bytes(op) + 1));
	shape_lay(sim, key, round, op, op->data, op->input);
	if (!op->feedback)
		return;
	op->residual = must(calloc(op->count + 1, sizeof(float)));
	op->residual_next = must(calloc(op->count + 1, sizeof(float)));
	fill_residual(sim, key, round, op, op->residual);
}

void shape_free(struct sim_op *op)
{
	free(op->data);
	free(op->input);
	free(op->residual);
	free(op->residual_next);
	for (unsigned i = 0; i < 4; i++) {
		free(op->taken_back[i]);
		op->taken_back[i] = NULL;
	}
	op->data = op->input = NULL;
	op->residual = op->residual_next = NULL;
}

/* `blocks` are borrowed during the step. */
struct group_submit shape_submit(const struct sim_op *op, struct tr_block blocks[2])
{
	struct extent own = own_block(op);
	bool contributes = op->index < op->contributors, apart = has_input_apart(op);
	bool block_out = op->collective == TR_REDUCE_SCATTER && (!contributes || !op->in_place);
	bool block_in = op->collective == TR_ALL_GATHER;
	bool send = op->collective == TR_SEND;

	blocks[0] = (struct tr_block){ 1, { block_out ? own.elements : op->count }, { 2 } };
	blocks[1] = (struct tr_block){ 1, { block_in ? own.elements : op->count }, { 2 } };
	if (in_columns(op))
		blocks[0] = blocks[1] = (struct tr_block){ 2, { 2, op->count / 2 }, { 1, 2 } };
	return (struct group_submit){ .tag = op->tag,
		.collective = op->collective,
		.data = send ? NULL : op->data,
		.input = send || apart || (!op->in_place && contributes) ? op->input : NULL,
		.count = op->count,
		.own_elements = own.elements,
		.dtype = op->dtype,
		.reduce = op->reduce,
		.codec = op->codec,
		.algorithm = op->algorithm,
		.root = op->root,
		.contribute = contributes,
		.data_block = op->strided ? &blocks[0] : NULL,
		.input_block = op->strided ? &blocks[1] : NULL,
		.residual = op->residual,
		.residual_next = op->residual_next,
		.beta = BETA,
		.scope = { op->members, op->scoped } };
}

/* ---- what comes out ---- */

bool shape_sourced(const struct sim_op *op)
{
	return op->collective == TR_ALL_GATHER || op->collective == TR_BROADCAST ||
	    op->collective == TR_SEND || op->collective == TR_RECV;
}

/* Do all members know it, those of its scope, and is it one and the same? */
bool shape_common(const struct sim_op *op)
{
	return op->collective == TR_BARRIER || op->collective == TR_ALL_REDUCE ||
	    op->collective == TR_ALL_GATHER || op->collective == TR_BROADCAST;
}

static bool is_wide(const struct sim_op *op)
{
	return op->dtype == TR_F16 || op->dtype == TR_BF16;
}

/* Do the bits follow from the contributors? A chain's roundings follow from its order too. */
bool shape_exact(const struct sim *sim, const struct sim_op *op)
{
	enum tr_algorithm asked = op->algorithm != TR_AUTO ? op->algorithm
	                                                   : (enum tr_algorithm)sim->algorithm;

	if (sim->deterministic || shape_sourced(op))
		return true;
	if (op->codec != TR_CODEC_NONE)
		return asked != TR_RING;
	if (op->reduce == TR_MIN || op->reduce == TR_MAX)
		return true;
	if (is_wide(op)) /* small whole numbers: f32 holds their sums, not their products */
		return op->reduce != TR_PROD;
	return op->dtype != TR_F32 && op->dtype != TR_F64;
}

/* Elements first to first + n of what `key` puts in. */
static void input_in_f32(const struct sim *sim, unsigned key, uint64_t round,
    const struct sim_op *op, size_t first, size_t n, float *x)
{
	uint64_t row[SIM_ELEMENTS];
	const uint8_t *from = (const uint8_t *)row + first * reduce_element_bytes(op->dtype);

	shape_fill(sim, key, round, op, row);
	if (is_wide(op))
		reduce_widen(op->dtype, x, from, n);
	else
		memcpy(x, from, n * sizeof(float));
}

/* The same as `key`'s bytes on the wire; *next gets what they left out. */
static void encode(const struct sim *sim, unsigned key, uint64_t round, const struct sim_op *op,
    size_t first, size_t n, uint8_t *wire, float *next)
{
	float x[SIM_ELEMENTS], residual[SIM_ELEMENTS], ignored[SIM_ELEMENTS];

	input_in_f32(sim, key, round, op, first, n, x);
	if (!op->feedback) {
		codec_encode(op->codec, wire, x, n);
		return;
	}
	fill_residual(sim, key, round, op, residual);
	codec_encode_feedback(op->codec, BETA, wire, x, residual + first, next ? next : ignored, n);
}

static struct cut cut_of(const struct sim *sim, const struct sim_op *op)
{
	struct cut cut;
	bool blocks = op->collective == TR_ALL_GATHER || op->collective == TR_REDUCE_SCATTER;
	uint32_t bytes = (uint32_t)reduce_element_bytes(op->dtype);

	if (cut_init(&cut, op->count,
	        op_segment_bytes(op->count * bytes, sim->segment_bytes, 0) / bytes,
	        blocks ? op->contributors : 0, NULL) != TR_OK)
		abort();
	return cut;
}

static void expect_coded(const struct sim *sim, const struct sim_op *op, uint64_t round,
    const unsigned *keys, size_t count, void *out)
{
	struct cut cut = cut_of(sim, op);
	size_t bytes = reduce_element_bytes(op->dtype);

	for (uint32_t s = 0; s < cut.segments; s++) {
		size_t first = cut_first(&cut, s), n = cut_elements(&cut, s);
		uint8_t wire[4 * SIM_ELEMENTS], *to = (uint8_t *)out + first * bytes;
		float sum[SIM_ELEMENTS];
		for (size_t i = 0; i < count; i++) {
			encode(sim, keys[i], round, op, first, n, wire, NULL);
			if (i == 0)
				codec_decode(op->codec, sum, wire, n);
			else
				codec_decode_combine(op->codec, op->reduce, sum, wire, n);
		}
		if (op->reduce == TR_AVG && count > 1 && !shape_sourced(op))
			reduce_plain_divide(TR_F32, sum, n, (unsigned)count);
		if (count > 1) {
			codec_encode(op->codec, wire, sum, n);
			codec_decode(op->codec, sum, wire, n);
		}
		if (is_wide(op))
			reduce_narrow(op->dtype, to, sum, n);
		else
			memcpy(to, sum, n * sizeof(float));
	}
}

void shape_expect(const struct sim *sim, const struct sim_op *op, uint64_t round,
    const unsigned *keys, size_t count, void *out)
{
	uint64_t input[SIM_ELEMENTS];

	if (op->codec != TR_CODEC_NONE) {
		expect_coded(sim, op, round, keys, count, out);
		return;
	}
	if (is_wide(op)) {
		/* Summed in f32, rounded once. */
		float sum[SIM_ELEMENTS];
		for (size_t i = 0; i < count; i++) {
			shape_fill(sim, keys[i], round, op, input);
			if (i == 0)
				reduce_widen(op->dtype, sum, input, op->count);
			else
				reduce_combine_wide(op->dtype, op->reduce, sum, input, op->count);
		}
		if (op->reduce == TR_AVG && !shape_sourced(op))
			reduce_plain_divide(TR_F32, sum, op->count, (unsigned)count);
		reduce_narrow(op->dtype, out, sum, op->count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		shape_fill(sim, keys[i], round, op, i == 0 ? out : (void *)input);
		if (i > 0)
			reduce_plain_combine(op->dtype, op->reduce, out, out, input, op->count);
	}
	if (op->reduce == TR_AVG && !shape_sourced(op))
		reduce_plain_divide(op->dtype, out, op->count, (unsigned)count);
}

/* Contributor whose data the element is. */
unsigned shape_source(const struct sim_op *op, uint64_t element)
{
	size_t first, elements;

	if (op->collective != TR_ALL_GATHER)
		return op->source;
	for (unsigned i = 0; i < op->contributors; i++) {
		tr_block_range(op->count, op->contributors, i, &first, &elements);
		if (element >= first && element < first + elements)
			return i;
	}
	return op->contributors;
}

bool shape_is_untouched_element(const struct sim_op *op, const void *element)
{
	const uint8_t *bytes = element;

	for (size_t i = 0; i < reduce_element_bytes(op->dtype); i++)
		if (bytes[i] != UNTOUCHED)
			return false;
	return true;
}

const void *shape_element(const struct sim_op *op, uint64_t element)
{
	struct extent e = output_of(op);

	if (element < e.first || element >= e.first + e.elements)
		return NULL;
	return (const uint8_t *)op->data + place_of(op, e.shift + element - e.first);
}

struct tr_digest shape_result(const struct sim_op *op)
{
	struct tr_digest digest = { op->tag, op->count };

	for (uint64_t e = 0; e < op->count; e++) {
		const void *element = shape_element(op, e);
		if (element)
			digest = tr_digest_fold(digest,
			    tr_digest_of(element, reduce_element_bytes(op->dtype)));
	}
	return digest;
}

/* Nothing but results has changed. */
bool shape_untouched(const struct sim *sim, unsigned key, uint64_t round, const struct sim_op *op)
{
	uint64_t data[2 * SIM_ELEMENTS], input[2 * SIM_ELEMENTS];
	struct extent e = output_of(op);
	size_t bytes = reduce_element_bytes(op->dtype);

	shape_lay(sim, key, round, op, (uint8_t *)data, (uint8_t *)input);
	for (size_t k = 0; k < e.elements; k++)
		memcpy((uint8_t *)data + place_of(op, e.shift + k),
		    (const uint8_t *)op->data + place_of(op, e.shift + k), bytes);
	return memcmp(data, op->data, shape_bytes(op)) == 0 &&
	    memcmp(input, op->input, shape_bytes(op)) == 0;
}

/* Of a block that is nobody's. */
static void whole_residual(const struct sim *sim, unsigned key, uint64_t round,
    const struct sim_op *op, size_t first, size_t n, float *next)
{
	float residual[SIM_ELEMENTS];

	input_in_f32(sim, key, round, op, first, n, next);
	fill_residual(sim, key, round, op, residual);
	for (size_t i = 0; i < n; i++)
		next[i] += BETA * residual[first + i];
}

/* What a contributor's encoding left out; `gone`: contributors that were not there any more when the round was decided. */
bool shape_residual_holds(const struct sim *sim, unsigned key, uint64_t round,
    const struct sim_op *op, const bool *gone)
{
	struct cut cut = cut_of(sim, op);
	float next[SIM_ELEMENTS];
	uint8_t wire[4 * SIM_ELEMENTS];

	for (uint32_t s = 0; op->count > 0 && s < cut.segments; s++) {
		size_t first = cut_first(&cut, s), n = cut_elements(&cut, s);
		if (op->collective == TR_REDUCE_SCATTER && gone[cut_block(&cut, s)])
			whole_residual(sim, key, round, op, first, n, next);
		else
			encode(sim, key, round, op, first, n, wire, next);
		if (memcmp(next, op->residual_next + first, n * sizeof(float)) != 0)
			return false;
	}
	return true;
}
