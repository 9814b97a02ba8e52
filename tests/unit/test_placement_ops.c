/* Each conversion between two placements of a tensor, carried out by the library's own ops over real engines: the collective that tensor_placement_convert names, with blocks (struct tr_block) where
 * pieces do not lie in a row. Two members and four; splits along each of three dimensions. What there is no conversion for is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/plan/tensor_placement.h"
#include "engine_fixture.h"

enum { KINDS = 6, NUMBERS = 8 * 4 * 12, MEMBERS_MAX = 4 };

static const size_t whole_dims[TENSOR_DIMS_MAX] = { 8, 4, 12 };

/* In the order B, S(0), S(1), S(2), P(sum), P(max). */
static struct tensor_placement placement(int i)
{
	return i == 0 ? tensor_placement_broadcast()
	    : i < 4   ? tensor_placement_split((unsigned)i - 1)
	              : tensor_placement_partial(i == 4 ? PARTIAL_SUM : PARTIAL_MAX);
}

static void dims_of(struct tensor_placement as, unsigned n, size_t dims[TENSOR_DIMS_MAX])
{
	memcpy(dims, whole_dims, sizeof(whole_dims));
	if (as.kind == PLACEMENT_SPLIT)
		dims[as.dim] /= n;
}

static size_t numbers_of(struct tensor_placement as, unsigned n)
{
	return as.kind == PLACEMENT_SPLIT ? NUMBERS / n : NUMBERS;
}

/* Number i of the whole, in which it is where index i of a member's piece is. */
static size_t place_in_whole(struct tensor_placement as, unsigned n, unsigned who, size_t i)
{
	size_t dims[TENSOR_DIMS_MAX];
	dims_of(as, n, dims);
	size_t at[TENSOR_DIMS_MAX] = { i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2] };
	if (as.kind == PLACEMENT_SPLIT)
		at[as.dim] += who * dims[as.dim];
	return (at[0] * whole_dims[1] + at[1]) * whole_dims[2] + at[2];
}

static float element(size_t place)
{
	return (float)(place * 37 % 1009) - 500;
}

/* What a member holds: of a partial tensor summands, whose sum is exact, or candidates, of which one is the maximum. */
static void fill(struct tensor_placement as, unsigned n, unsigned who, float *to)
{
	for (size_t i = 0; i < numbers_of(as, n); i++) {
		size_t place = place_in_whole(as, n, who, i);
		float whole = element(place);
		to[i] = whole;
		if (as.kind == PLACEMENT_PARTIAL && as.op == PARTIAL_SUM)
			to[i] = who == 0 ? 3 * whole + (float)(place * (n - 1)) : -(float)place;
		if (as.kind == PLACEMENT_PARTIAL && as.op == PARTIAL_SUM && who == 1)
			to[i] -= 2 * whole;
		if (as.kind == PLACEMENT_PARTIAL && as.op == PARTIAL_MAX)
			to[i] = place % n == who ? whole : whole - 1 - (float)(place % 5);
	}
}

/* A tensor of these dimensions in a row, its numbers in such an order that the pieces along `dim` come one after the other. */
static struct tr_block block_along(const size_t dims[TENSOR_DIMS_MAX], unsigned dim)
{
	const size_t strides[] = { dims[1] * dims[2], dims[2], 1 };
	struct tr_block block = { .rank = TENSOR_DIMS_MAX,
		.extents = { dims[dim] },
		.strides = { strides[dim] } };
	for (unsigned d = 0, at = 1; d < TENSOR_DIMS_MAX; d++)
		if (d != dim) {
			block.extents[at] = dims[d];
			block.strides[at++] = strides[d];
		}
	return block;
}

static void submit(tr_group *group, enum collective how, struct tensor_placement from,
    struct tensor_placement to, unsigned n, uint32_t tag, const float *input, float *output)
{
	size_t from_dims[TENSOR_DIMS_MAX], to_dims[TENSOR_DIMS_MAX];
	unsigned dim = how == COLLECTIVE_ALL_GATHER ? from.dim : to.dim;
	struct tr_op op = TR_OP_INIT;
	struct tr_error error = { 0 };
	dims_of(from, n, from_dims);
	dims_of(to, n, to_dims);
	struct tr_block in = block_along(from_dims, dim), out = block_along(to_dims, dim);
	op.tag = tag;
	op.collective = how == COLLECTIVE_ALL_REDUCE ? TR_ALL_REDUCE
	    : how == COLLECTIVE_ALL_GATHER           ? TR_ALL_GATHER
	                                             : TR_REDUCE_SCATTER;
	op.reduce = from.kind == PLACEMENT_PARTIAL && from.op == PARTIAL_MAX ? TR_MAX : TR_SUM;
	op.count = NUMBERS;
	op.input = input;
	op.output = output;
	if (how != COLLECTIVE_ALL_REDUCE) {
		op.input_block = &in;
		op.output_block = &out;
	}
	if (tr_submit(group, &op, &error) != TR_OK)
		fail_msg("%s", error.text);
}

/* No bytes move. */
static void slice(const float *whole, struct tensor_placement to, unsigned n, unsigned who,
    float *piece)
{
	for (size_t i = 0; i < numbers_of(to, n); i++)
		piece[i] = whole[place_in_whole(to, n, who, i)];
}

/* A tensor lies as `from` at all members; from[k] and to[k] are member k's memory, and between[k] of a way that goes through the whole. */
static void convert(struct fx *fx, unsigned n, uint32_t tag, struct tensor_placement from,
    struct tensor_placement to, float *const held[], float *const between[], float *const made[])
{
	enum collective how = COLLECTIVES;
	struct tr_error error = { 0 };
	assert_int_equal(tensor_placement_convert(from, to, &how, &error), TR_OK);
	/* Of which libtraincoll has none: all is gathered, and cut (propagate.c). */
	bool through = how == COLLECTIVE_ALL_TO_ALL,
	     moves = how != COLLECTIVE_NONE && how != COLLECTIVE_LOCAL_SLICE;
	struct tensor_placement next = through ? tensor_placement_broadcast() : to;
	if (through)
		how = COLLECTIVE_ALL_GATHER;
	for (unsigned k = 0; k < n && moves; k++)
		submit(fx->hosts[k].group, how, from, next, n, tag, held[k],
		    through ? between[k] : made[k]);
	for (unsigned k = 0; k < n && moves; k++)
		assert_int_equal(tr_wait(fx->hosts[k].group, tag, &error), TR_OK);
	for (unsigned k = 0; k < n; k++) {
		if (how == COLLECTIVE_NONE)
			memcpy(made[k], held[k], numbers_of(to, n) * sizeof(float));
		if (how == COLLECTIVE_LOCAL_SLICE || through)
			slice(through ? between[k] : held[k], to, n, k, made[k]);
	}
}

/* Of what lies as `to`: a partial one as it was, which is no other partial one. */
static void check_made(struct tensor_placement to, unsigned n, unsigned who, const float *made)
{
	float want[NUMBERS];
	fill(to, n, who, want);
	for (size_t i = 0; i < numbers_of(to, n); i++)
		if (made[i] != want[i])
			fail_msg("member %u of %u, number %zu of %d: %g, not %g", who, n, i,
			    to.kind, (double)made[i], (double)want[i]);
}

/* Exactly those to a partial tensor, but from the same, are refused. */
static bool check_refused(struct tensor_placement from, struct tensor_placement to)
{
	enum collective how = COLLECTIVES;
	struct tr_error error = { 0 };
	char a[TENSOR_PLACEMENT_TEXT_MAX], b[TENSOR_PLACEMENT_TEXT_MAX], words[128];
	if (to.kind != PLACEMENT_PARTIAL || tensor_placement_equal(from, to))
		return false;
	(void)snprintf(words, sizeof(words),
	    "no conversion from %s to %s: a partial tensor comes from an op only",
	    tensor_placement_text(from, a), tensor_placement_text(to, b));
	assert_int_equal(tensor_placement_convert(from, to, &how, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
	assert_int_equal(how, COLLECTIVES);
	return true;
}

static void conversions_of(unsigned n)
{
	enum { ARRAYS = 3 * KINDS * KINDS };
	void *memory[MEMBERS_MAX];
	struct fx *fx = fx_begin(n, ARRAYS * NUMBERS * sizeof(float), memory);
	unsigned converted = 0;
	for (int pair = 0; pair < KINDS * KINDS; pair++) {
		struct tensor_placement from = placement(pair / KINDS),
		                        to = placement(pair % KINDS);
		float *held[MEMBERS_MAX], *between[MEMBERS_MAX], *made[MEMBERS_MAX];
		if (check_refused(from, to))
			continue;
		converted++;
		for (unsigned k = 0; k < n; k++) {
			held[k] = (float *)memory[k] + (size_t)pair * 3 * NUMBERS;
			between[k] = held[k] + NUMBERS;
			made[k] = between[k] + NUMBERS;
			fill(from, n, k, held[k]);
		}
		convert(fx, n, (uint32_t)pair, from, to, held, between, made);
		for (unsigned k = 0; k < n; k++)
			check_made(to, n, k, made[k]);
	}
	assert_int_equal(converted, KINDS * 4 + 2);
	fx_stop(fx);
}

static void of_two_members(void **state)
{
	(void)state;
	conversions_of(2);
}

static void of_four_members(void **state)
{
	(void)state;
	conversions_of(4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_two_members),
		cmocka_unit_test(of_four_members),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
