/* The table of legal signatures, against numbers: every op, every placement of every input and of the result, on two workers. What gives
 * the right result has a row, and what has a row gives it. And the backward ops give the derivatives of the forward ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/rng.h"
#include "op_reference.h"

#define BATCH   2
#define LENGTH  4
#define WIDTH   4
#define OUT     6
#define Q       8
#define KV      4
#define WORKERS 2
#define CHOICES 5 /* B, P(sum), S(0), S(1), S(2) */

/* Shapes of each op's inputs. */
/* Tables are read by their columns. */
/* clang-format off */
#define X { 3, { BATCH, LENGTH, WIDTH }, { 0 } }
#define Y { 3, { BATCH, LENGTH, OUT }, { 0 } }
#define QS { 3, { BATCH, LENGTH, Q }, { 0 } }
#define KS { 3, { BATCH, LENGTH, KV }, { 0 } }
#define LG { 3, { BATCH, LENGTH, REF_VOCAB }, { 0 } }
#define ST { 3, { BATCH, LENGTH, 2 }, { 0 } }
#define TK { 2, { BATCH, LENGTH }, { 0 } }
#define M2(a, b) { 2, { a, b }, { 0 } }
#define V(a) { 1, { a }, { 0 } }
static const struct ref shapes[OP_KINDS][OP_INPUTS_MAX] = {
	[OP_MATMUL] = { X, M2(WIDTH, OUT) },
	[OP_MATMUL_T] = { X, M2(OUT, WIDTH) },
	[OP_OUTER] = { X, Y },
	[OP_BIAS] = { X, V(WIDTH) },
	[OP_BIAS_GRAD] = { X },
	[OP_ADD] = { X, X },
	[OP_COPY] = { X },
	[OP_NORM] = { X, V(WIDTH) },
	[OP_NORM_GRAD_X] = { X, X, V(WIDTH) },
	[OP_NORM_GRAD_W] = { X, X },
	[OP_EMBED] = { TK, M2(REF_VOCAB, OUT) },
	[OP_EMBED_GRAD] = { TK, Y },
	[OP_POSITION] = { X, M2(LENGTH, WIDTH) },
	[OP_POSITION_GRAD] = { X },
	[OP_GELU] = { X },
	[OP_GELU_GRAD] = { X, X },
	[OP_SWIGLU] = { X, X },
	[OP_SWIGLU_GRAD_GATE] = { X, X, X },
	[OP_SWIGLU_GRAD_UP] = { X, X },
	[OP_ROPE] = { QS },
	[OP_ROPE_GRAD] = { QS },
	[OP_ATTENTION] = { QS, KS, KS },
	[OP_ATTENTION_GRAD_Q] = { QS, QS, KS, KS },
	[OP_ATTENTION_GRAD_K] = { QS, QS, KS, KS },
	[OP_ATTENTION_GRAD_V] = { QS, QS, KS },
	[OP_ROW_MAX] = { LG },
	[OP_STATISTICS] = { LG, TK, TK },
	[OP_LOSS] = { ST, TK },
	[OP_LOSS_TOTAL] = { TK },
	[OP_LOSS_GRAD] = { LG, TK, ST, TK },
};
/* clang-format on */

/* Which input is token numbers, as a bit mask. */
static unsigned token_inputs(enum op_kind kind)
{
	switch (kind) {
	case OP_EMBED:
	case OP_EMBED_GRAD:
		return 1;
	case OP_STATISTICS:
		return 1u << 2;
	case OP_LOSS_GRAD:
		return 1u << 3;
	default:
		return 0;
	}
}

static void fill(enum op_kind kind, struct ref in[OP_INPUTS_MAX])
{
	for (unsigned i = 0; i < OP_INPUTS_MAX; i++) {
		struct rng_key key = rng_key(7, (uint64_t)kind, i);
		in[i] = shapes[kind][i];
		for (unsigned k = 0; k < ref_count(&in[i]) && in[i].nd > 0; k++)
			in[i].at[k] = (token_inputs(kind) >> i & 1) != 0
			    ? (double)rng_below(key, 0, k, REF_VOCAB)
			    : 2 * rng_unit(key, 0, k) - 1;
		/* A sum of exponentials is positive. */
		for (unsigned k = 0; k < ref_count(&in[i]) &&
		     (kind == OP_LOSS || kind == OP_LOSS_GRAD) && in[i].dim[2] == 2;
		     k += 2)
			in[i].at[k] = 2 + fabs(in[i].at[k]);
	}
}

static struct tensor_placement choice(unsigned c)
{
	return c == 0 ? tensor_placement_broadcast()
	    : c == 1  ? tensor_placement_partial(PARTIAL_SUM)
	              : tensor_placement_split(c - 2);
}

/* False: cannot lie so. */
static bool can_lie(const struct ref *whole, struct tensor_placement as)
{
	return as.kind != PLACEMENT_SPLIT ||
	    (as.dim < whole->nd && whole->dim[as.dim] % WORKERS == 0);
}

static unsigned inner_of(const struct ref *t, unsigned dim)
{
	unsigned inner = 1;

	for (unsigned d = dim + 1; d < t->nd; d++)
		inner *= t->dim[d];
	return inner;
}

/* Where number `i` of the piece of `who` is in the whole, split along `dim`. */
static unsigned whole_index(const struct ref *whole, unsigned dim, unsigned who, unsigned i)
{
	unsigned inner = inner_of(whole, dim), n = whole->dim[dim] / WORKERS;

	return (i / inner / n * whole->dim[dim] + i / inner % n + who * n) * inner + i % inner;
}

static struct ref piece_of(const struct ref *whole, struct tensor_placement as, unsigned who)
{
	struct ref piece = *whole;

	if (as.kind == PLACEMENT_SPLIT) {
		piece.dim[as.dim] /= WORKERS;
		for (unsigned i = 0; i < ref_count(&piece); i++)
			piece.at[i] = whole->at[whole_index(whole, as.dim, who, i)];
	}
	for (unsigned i = 0; i < ref_count(&piece) && as.kind == PLACEMENT_PARTIAL; i++) {
		double part = rng_unit(rng_key(9, i, 0), 0, 0), less = 1 + 3 * part;
		if (as.op == PARTIAL_SUM)
			piece.at[i] = who == 0 ? part : whole->at[i] - part;
		else
			piece.at[i] = i % WORKERS == who ? whole->at[i] : whole->at[i] - less;
	}
	return piece;
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9;
}

/* Whether what the workers have is `whole`, placed as `as`. */
static bool lies_as(const struct ref *whole, const struct ref got[WORKERS],
    struct tensor_placement as)
{
	for (unsigned who = 0; who < WORKERS; who++) {
		struct ref want = piece_of(whole, as, who);
		if (!ref_same(&got[who], &want))
			return false;
		for (unsigned i = 0; i < ref_count(&want) && as.kind != PLACEMENT_PARTIAL; i++)
			if (!near(got[who].at[i], want.at[i]))
				return false;
	}
	for (unsigned i = 0; i < ref_count(whole) && as.kind == PLACEMENT_PARTIAL; i++)
		if (!near(as.op == PARTIAL_SUM ? got[0].at[i] + got[1].at[i]
		                               : fmax(got[0].at[i], got[1].at[i]),
		        whole->at[i]))
			return false;
	return true;
}

static bool legal(enum op_kind kind, const struct tensor_placement *as, struct tensor_placement out)
{
	struct ref in[OP_INPUTS_MAX], whole, got[WORKERS];

	fill(kind, in);
	assert_true(ref_op(kind, in, 0, REF_VOCAB, &whole));
	if (!can_lie(&whole, out))
		return false;
	for (unsigned who = 0; who < WORKERS; who++) {
		struct ref held[OP_INPUTS_MAX] = { 0 };
		bool by_rows = out.kind == PLACEMENT_SPLIT && out.dim == 0;
		for (unsigned i = 0; i < op_signature(kind)->inputs; i++)
			held[i] = piece_of(&in[i], as[i], who);
		if (!ref_op(kind, held, who, by_rows ? REF_VOCAB / WORKERS : REF_VOCAB, &got[who]))
			return false;
	}
	return lies_as(&whole, got, out);
}

static bool has_row(enum op_kind kind, const struct tensor_placement *as,
    struct tensor_placement out)
{
	const struct op_signature *signature = op_signature(kind);

	for (unsigned r = 0; r < signature->row_count; r++) {
		bool same = tensor_placement_equal(signature->rows[r].out, out);
		for (unsigned i = 0; i < signature->inputs; i++)
			same = same && tensor_placement_equal(signature->rows[r].in[i], as[i]);
		if (same)
			return true;
	}
	return false;
}

static void text_of(enum op_kind kind, const struct tensor_placement *as,
    struct tensor_placement out, char *text, size_t bytes)
{
	char one[TENSOR_PLACEMENT_TEXT_MAX];

	(void)snprintf(text, bytes, "%s(", op_signature(kind)->name);
	for (unsigned i = 0; i < op_signature(kind)->inputs; i++)
		(void)snprintf(text + strlen(text), bytes - strlen(text), " %s",
		    tensor_placement_text(as[i], one));
	(void)snprintf(text + strlen(text), bytes - strlen(text), " ) -> %s",
	    tensor_placement_text(out, one));
}

static void each_row_is_right(void **state)
{
	unsigned rows = 0;

	(void)state;
	for (int k = 0; k < OP_KINDS; k++) {
		enum op_kind kind = (enum op_kind)k;
		const struct op_signature *signature = op_signature(kind);
		assert_in_range(signature->row_count, 1, OP_ROWS_MAX);
		for (unsigned r = 0; r < signature->row_count; r++, rows++) {
			char text[100];
			text_of(kind, signature->rows[r].in, signature->rows[r].out, text,
			    sizeof(text));
			if (!legal(kind, signature->rows[r].in, signature->rows[r].out))
				fail_msg("a row that is wrong: %s", text);
		}
	}
	print_message("%u rows of %d ops are right\n", rows, OP_KINDS);
}

/* Partial maxima are left out: they are of use behind row_max only, and there they become whole. */
static void what_is_right_has_a_row(void **state)
{
	unsigned tried = 0;

	(void)state;
	for (int k = 0; k < OP_KINDS; k++) {
		enum op_kind kind = (enum op_kind)k;
		unsigned inputs = op_signature(kind)->inputs, combinations = 1;
		for (unsigned i = 0; i < inputs; i++)
			combinations *= CHOICES;
		for (unsigned at = 0; at < combinations; at++) {
			struct tensor_placement as[OP_INPUTS_MAX];
			bool possible = true;
			for (unsigned i = 0, rest = at; i < inputs; i++, rest /= CHOICES) {
				as[i] = choice(rest % CHOICES);
				possible = possible && can_lie(&shapes[kind][i], as[i]) &&
				    (as[i].kind != PLACEMENT_PARTIAL ||
				        (token_inputs(kind) >> i & 1) == 0);
			}
			for (unsigned out = 0; out < CHOICES && possible; out++, tried++) {
				char text[100];
				text_of(kind, as, choice(out), text, sizeof(text));
				if (legal(kind, as, choice(out)) != has_row(kind, as, choice(out)))
					fail_msg("%s: %s", text,
					    has_row(kind, as, choice(out))
					        ? "is wrong"
					        : "is right and has no row");
			}
		}
	}
	print_message("%u combinations tried\n", tried);
}

/* The loss's gradient begins at the logits; its forward value is taken through statistics and loss. */
static double loss_of_logits(struct ref in[OP_INPUTS_MAX])
{
	struct ref m, s, loss, total;

	(void)ref_row_max(&in[0], &m);
	(void)ref_statistics(&in[0], &m, &in[2], 0, &s);
	(void)ref_loss(&s, &m, &loss);
	(void)ref_loss_total(&loss, &total);
	return total.at[0];
}

/* The sum over the result, weighted with `dy`: its derivative is what the backward op gives. */
static double weighted(enum op_kind kind, struct ref in[OP_INPUTS_MAX], const struct ref *dy)
{
	struct ref out;
	double sum = 0;

	if (kind == OP_STATISTICS)
		return loss_of_logits(in);
	assert_true(ref_op(kind, in, 0, REF_VOCAB, &out));
	for (unsigned i = 0; i < ref_count(&out); i++)
		sum += out.at[i] * dy->at[i];
	return sum;
}

static void one_derivative(enum op_kind kind, const struct op_grad *grad)
{
	struct ref in[OP_INPUTS_MAX], out, dy, from[OP_INPUTS_MAX] = { 0 }, got;
	const double h = 1e-6;

	fill(kind, in);
	if (kind == OP_STATISTICS)
		(void)ref_row_max(&in[0], &in[1]);
	assert_true(ref_op(kind, in, 0, REF_VOCAB, &out));
	dy = out;
	for (unsigned i = 0; i < ref_count(&dy); i++)
		dy.at[i] = rng_unit(rng_key(11, i, 0), 0, 0) - 0.5;
	for (unsigned i = 0; i < op_signature(grad->kind)->inputs; i++)
		from[i] = grad->from[i] == OP_FROM_GRADIENT ? dy
		    : grad->from[i] == OP_FROM_OUT          ? out
		                                            : in[grad->from[i]];
	assert_true(ref_op(grad->kind, from, 0, REF_VOCAB, &got));
	assert_true(ref_same(&got, &in[grad->of]));
	for (unsigned i = 0; i < ref_count(&got); i++) {
		double *at = &in[grad->of].at[i], was = *at, up, down;
		*at = was + h;
		up = weighted(kind, in, &dy);
		*at = was - h;
		down = weighted(kind, in, &dy);
		*at = was;
		if (fabs((up - down) / (2 * h) - got.at[i]) > 1e-6)
			fail_msg("%s of %s: %g, not %g", op_signature(grad->kind)->name,
			    op_signature(kind)->name, got.at[i], (up - down) / (2 * h));
	}
}

static void backward_ops_are_derivatives(void **state)
{
	unsigned derivatives = 0;

	(void)state;
	for (int k = 0; k < OP_KINDS; k++)
		for (unsigned g = 0; g < op_signature((enum op_kind)k)->grad_count;
		     g++, derivatives++)
			one_derivative((enum op_kind)k, &op_signature((enum op_kind)k)->grads[g]);
	assert_int_equal(derivatives, 21);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_row_is_right),
		cmocka_unit_test(what_is_right_has_a_row),
		cmocka_unit_test(backward_ops_are_derivatives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
