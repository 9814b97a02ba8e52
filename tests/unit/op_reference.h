/* Each op of daemon/plan/op_signature.h in its plainest form, on tiny tensors of doubles: what a worker computes on what it holds. False:
 * the shapes do not fit together. Sequences of a piece are counted from 0; of the vocabulary a worker knows its part. */
#ifndef TR_TESTS_UNIT_OP_REFERENCE_H
#define TR_TESTS_UNIT_OP_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/plan/op_signature.h"

#define REF_MAX        96 /* numbers of a tensor */
#define REF_VOCAB      4
#define REF_HEAD_WIDTH 2

struct ref {
	unsigned nd, dim[3];
	double at[REF_MAX];
};

static unsigned ref_count(const struct ref *t)
{
	unsigned count = 1;

	for (unsigned d = 0; d < t->nd; d++)
		count *= t->dim[d];
	return count;
}

static bool ref_same(const struct ref *a, const struct ref *b)
{
	return a->nd == b->nd && memcmp(a->dim, b->dim, a->nd * sizeof(a->dim[0])) == 0;
}

static struct ref ref_zeros(unsigned nd, unsigned a, unsigned b, unsigned c)
{
	struct ref t = { .nd = nd, .dim = { a, b, c } };

	return t;
}

/* As many numbers of features for each of the tokens, whatever those are. */
static unsigned ref_tokens(const struct ref *x)
{
	return x->dim[0] * x->dim[1];
}

static bool ref_same_tokens(const struct ref *a, const struct ref *b)
{
	return a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1];
}

static bool ref_matmul(const struct ref *x, const struct ref *w, bool transposed, struct ref *y)
{
	unsigned in = transposed ? w->dim[1] : w->dim[0], out = transposed ? w->dim[0] : w->dim[1];

	*y = ref_zeros(3, x->dim[0], x->dim[1], out);
	for (unsigned t = 0; t < ref_tokens(x) && x->dim[2] == in; t++)
		for (unsigned o = 0; o < out; o++)
			for (unsigned i = 0; i < in; i++)
				y->at[t * out + o] += x->at[t * in + i] *
				    w->at[transposed ? o * in + i : i * out + o];
	return x->dim[2] == in;
}

static bool ref_outer(const struct ref *a, const struct ref *b, struct ref *w)
{
	*w = ref_zeros(2, a->dim[2], b->dim[2], 0);
	for (unsigned t = 0; t < ref_tokens(a) && ref_same_tokens(a, b); t++)
		for (unsigned i = 0; i < a->dim[2]; i++)
			for (unsigned j = 0; j < b->dim[2]; j++)
				w->at[i * b->dim[2] + j] += a->at[t * a->dim[2] + i] *
				    b->at[t * b->dim[2] + j];
	return ref_same_tokens(a, b);
}

/* x + v, where v runs along the last dimension (one vector) or the last two (positions). */
static bool ref_add_along(const struct ref *x, const struct ref *v, struct ref *y)
{
	unsigned period = ref_count(v);

	*y = *x;
	for (unsigned i = 0; i < ref_count(x); i++)
		y->at[i] += v->at[i % period];
	return v->dim[v->nd - 1] == x->dim[2] && (v->nd == 1 || v->dim[0] == x->dim[1]);
}

static bool ref_sum_along(const struct ref *x, bool positions, struct ref *v)
{
	*v = positions ? ref_zeros(2, x->dim[1], x->dim[2], 0) : ref_zeros(1, x->dim[2], 0, 0);
	for (unsigned i = 0; i < ref_count(x); i++)
		v->at[i % ref_count(v)] += x->at[i];
	return true;
}

/* RMSNorm: y = w x / rms; its three gradients follow from that. */
static double ref_rms(const double *x, unsigned n)
{
	double sum = 0.01 * n;

	for (unsigned i = 0; i < n; i++)
		sum += x[i] * x[i];
	return sqrt(sum / n);
}

static bool ref_norm(const struct ref *x, const struct ref *w, struct ref *y)
{
	unsigned n = x->dim[2];

	*y = *x;
	for (unsigned t = 0; t < ref_tokens(x); t++)
		for (unsigned i = 0; i < n; i++)
			y->at[t * n + i] *= w->at[i] / ref_rms(&x->at[t * n], n);
	return w->dim[0] == n;
}

static bool ref_norm_grad_x(const struct ref *dy, const struct ref *x, const struct ref *w,
    struct ref *dx)
{
	unsigned n = x->dim[2];

	*dx = *x;
	for (unsigned t = 0; t < ref_tokens(x) && ref_same(dy, x); t++) {
		const double *xt = &x->at[t * n], *dt = &dy->at[t * n];
		double rms = ref_rms(xt, n), dot = 0;
		for (unsigned i = 0; i < n; i++)
			dot += dt[i] * w->at[i] * xt[i];
		for (unsigned i = 0; i < n; i++)
			dx->at[t * n + i] = dt[i] * w->at[i] / rms -
			    xt[i] * dot / (n * rms * rms * rms);
	}
	return ref_same(dy, x) && w->dim[0] == n;
}

static bool ref_norm_grad_w(const struct ref *dy, const struct ref *x, struct ref *dw)
{
	unsigned n = x->dim[2];

	*dw = ref_zeros(1, n, 0, 0);
	for (unsigned t = 0; t < ref_tokens(x) && ref_same(dy, x); t++)
		for (unsigned i = 0; i < n; i++)
			dw->at[i] += dy->at[t * n + i] * x->at[t * n + i] /
			    ref_rms(&x->at[t * n], n);
	return ref_same(dy, x);
}

/* The first row of the vocabulary that worker `who` has, if it has `rows` of it. */
static unsigned ref_first_row(unsigned rows, unsigned who)
{
	return rows < REF_VOCAB ? who * rows : 0;
}

static bool ref_embed(const struct ref *tokens, const struct ref *table, unsigned who, struct ref *x)
{
	unsigned rows = table->dim[0], width = table->dim[1], first = ref_first_row(rows, who);

	*x = ref_zeros(3, tokens->dim[0], tokens->dim[1], width);
	for (unsigned t = 0; t < ref_count(tokens); t++) {
		unsigned token = (unsigned)tokens->at[t];
		for (unsigned i = 0; i < width && token >= first && token < first + rows; i++)
			x->at[t * width + i] = table->at[(token - first) * width + i];
	}
	return true;
}

static bool ref_embed_grad(const struct ref *tokens, const struct ref *dx, unsigned rows,
    unsigned who, struct ref *table)
{
	unsigned width = dx->dim[2], first = ref_first_row(rows, who);

	*table = ref_zeros(2, rows, width, 0);
	for (unsigned t = 0; t < ref_count(tokens) && ref_same_tokens(tokens, dx); t++) {
		unsigned token = (unsigned)tokens->at[t];
		for (unsigned i = 0; i < width && token >= first && token < first + rows; i++)
			table->at[(token - first) * width + i] += dx->at[t * width + i];
	}
	return ref_same_tokens(tokens, dx);
}

static double ref_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double ref_silu_slope(double x)
{
	double s = ref_sigmoid(x);

	return s * (1 + x * (1 - s));
}

/* GELU by the error function. */
static double ref_gelu(double x)
{
	return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double ref_gelu_slope(double x)
{
	return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}

static bool ref_each(enum op_kind kind, const struct ref *in, unsigned inputs, struct ref *y)
{
	*y = in[0];
	for (unsigned i = 1; i < inputs; i++)
		if (!ref_same(&in[0], &in[i]))
			return false;
	for (unsigned i = 0; i < ref_count(y); i++) {
		double a = in[0].at[i], b = in[1].at[i], c = in[2].at[i];
		y->at[i] = kind == OP_ADD         ? a + b
		    : kind == OP_COPY             ? a
		    : kind == OP_GELU             ? ref_gelu(a)
		    : kind == OP_GELU_GRAD        ? a * ref_gelu_slope(b)
		    : kind == OP_SWIGLU           ? a * ref_sigmoid(a) * b
		    : kind == OP_SWIGLU_GRAD_GATE ? a * c * ref_silu_slope(b)
		                                  : a * b * ref_sigmoid(b);
	}
	return true;
}

/* Turns each pair of a head by its position. */
static bool ref_rope(const struct ref *x, double direction, struct ref *y)
{
	unsigned n = x->dim[2];

	*y = *x;
	for (unsigned t = 0; t < ref_tokens(x); t++) {
		double angle = direction * (t % x->dim[1] + 0.5);
		for (unsigned i = 0; i + 1 < n; i += 2) {
			double a = x->at[t * n + i], b = x->at[t * n + i + 1];
			y->at[t * n + i] = a * cos(angle) - b * sin(angle);
			y->at[t * n + i + 1] = a * sin(angle) + b * cos(angle);
		}
	}
	return n % 2 == 0;
}

static double ref_dot(const double *a, const double *b)
{
	double sum = 0;

	for (unsigned i = 0; i < REF_HEAD_WIDTH; i++)
		sum += a[i] * b[i];
	return sum;
}

struct ref_heads {
	unsigned batch, length, heads, kv_heads;
};

static bool ref_heads_of(const struct ref *q, const struct ref *k, struct ref_heads *h)
{
	*h = (struct ref_heads){ q->dim[0], q->dim[1], q->dim[2] / REF_HEAD_WIDTH,
		k->dim[2] / REF_HEAD_WIDTH };
	return ref_same_tokens(q, k) && h->heads > 0 && h->kv_heads > 0 &&
	    h->heads % h->kv_heads == 0 && q->dim[2] % REF_HEAD_WIDTH == 0 &&
	    k->dim[2] % REF_HEAD_WIDTH == 0;
}

static unsigned ref_at(unsigned batch, unsigned position, unsigned length, unsigned heads,
    unsigned head)
{
	return ((batch * length + position) * heads + head) * REF_HEAD_WIDTH;
}

/* Softmax over positions up to `row`, of one head. */
static void ref_probabilities(const struct ref_heads *h, const struct ref *q, const struct ref *k,
    unsigned batch, unsigned head, unsigned row, double *p)
{
	unsigned kv = head / (h->heads / h->kv_heads);
	double sum = 0;

	for (unsigned j = 0; j <= row; j++) {
		p[j] = exp(ref_dot(&q->at[ref_at(batch, row, h->length, h->heads, head)],
		    &k->at[ref_at(batch, j, h->length, h->kv_heads, kv)]));
		sum += p[j];
	}
	for (unsigned j = 0; j <= row; j++)
		p[j] /= sum;
}

/* One row of one head: adds what it gives to whichever of o, dq, dk and dv is wanted. */
static void ref_attention_row(enum op_kind kind, const struct ref_heads *h, const struct ref *d,
    const struct ref *q, const struct ref *k, const struct ref *v, unsigned batch, unsigned head,
    unsigned row, struct ref *out)
{
	unsigned kv = head / (h->heads / h->kv_heads),
	         at = ref_at(batch, row, h->length, h->heads, head);
	double p[8], slope[8], mean = 0;

	ref_probabilities(h, q, k, batch, head, row, p);
	for (unsigned j = 0; j <= row && d != NULL && v != NULL; j++) {
		slope[j] = ref_dot(&d->at[at], &v->at[ref_at(batch, j, h->length, h->kv_heads, kv)]);
		mean += p[j] * slope[j];
	}
	for (unsigned j = 0; j <= row; j++) {
		unsigned other = ref_at(batch, j, h->length, h->kv_heads, kv);
		for (unsigned i = 0; i < REF_HEAD_WIDTH; i++) {
			if (kind == OP_ATTENTION)
				out->at[at + i] += p[j] * v->at[other + i];
			else if (kind == OP_ATTENTION_GRAD_Q)
				out->at[at + i] += p[j] * (slope[j] - mean) * k->at[other + i];
			else if (kind == OP_ATTENTION_GRAD_K)
				out->at[other + i] += p[j] * (slope[j] - mean) * q->at[at + i];
			else
				out->at[other + i] += p[j] * d->at[at + i];
		}
	}
}

static bool ref_attention(enum op_kind kind, const struct ref *in, struct ref *out)
{
	const struct ref *d = kind == OP_ATTENTION ? NULL : &in[0];
	const struct ref *q = kind == OP_ATTENTION ? &in[0] : &in[1], *k = q + 1;
	const struct ref *v = kind == OP_ATTENTION_GRAD_V ? NULL : q + 2;
	struct ref_heads h;

	if (!ref_heads_of(q, k, &h) || (v != NULL && !ref_same(k, v)) ||
	    (d != NULL && !ref_same(d, q)))
		return false;
	*out = kind == OP_ATTENTION || kind == OP_ATTENTION_GRAD_Q ? *q : *k;
	memset(out->at, 0, sizeof(out->at));
	for (unsigned b = 0; b < h.batch; b++)
		for (unsigned head = 0; head < h.heads; head++)
			for (unsigned row = 0; row < h.length; row++)
				ref_attention_row(kind, &h, d, q, k, v, b, head, row, out);
	return true;
}

static bool ref_row_max(const struct ref *logits, struct ref *m)
{
	unsigned n = logits->dim[2];

	*m = ref_zeros(2, logits->dim[0], logits->dim[1], 0);
	for (unsigned t = 0; t < ref_tokens(logits); t++) {
		m->at[t] = -INFINITY;
		for (unsigned i = 0; i < n; i++)
			m->at[t] = fmax(m->at[t], logits->at[t * n + i]);
	}
	return true;
}

static bool ref_statistics(const struct ref *logits, const struct ref *m, const struct ref *targets,
    unsigned who, struct ref *s)
{
	unsigned n = logits->dim[2], first = ref_first_row(n, who);

	if (!ref_same_tokens(logits, m) || !ref_same_tokens(logits, targets))
		return false;
	*s = ref_zeros(3, logits->dim[0], logits->dim[1], 2);
	for (unsigned t = 0; t < ref_tokens(logits); t++)
		for (unsigned i = 0; i < n; i++) {
			s->at[2 * t] += exp(logits->at[t * n + i] - m->at[t]);
			if (first + i == (unsigned)targets->at[t])
				s->at[2 * t + 1] += logits->at[t * n + i];
		}
	return true;
}

static bool ref_loss(const struct ref *s, const struct ref *m, struct ref *loss)
{
	*loss = *m;
	for (unsigned t = 0; t < ref_count(m) && ref_same_tokens(s, m); t++)
		loss->at[t] = m->at[t] + log(s->at[2 * t]) - s->at[2 * t + 1];
	return ref_same_tokens(s, m) && s->dim[2] == 2;
}

static bool ref_loss_grad(const struct ref *in, unsigned who, struct ref *d)
{
	const struct ref *logits = &in[0], *m = &in[1], *s = &in[2], *targets = &in[3];
	unsigned n = logits->dim[2], first = ref_first_row(n, who);

	if (!ref_same_tokens(logits, m) || !ref_same_tokens(logits, s) ||
	    !ref_same_tokens(logits, targets) || s->dim[2] != 2)
		return false;
	*d = *logits;
	for (unsigned t = 0; t < ref_tokens(logits); t++)
		for (unsigned i = 0; i < n; i++)
			d->at[t * n + i] = exp(logits->at[t * n + i] - m->at[t]) / s->at[2 * t] -
			    (first + i == (unsigned)targets->at[t]);
	return true;
}

static bool ref_loss_total(const struct ref *loss, struct ref *total)
{
	*total = ref_zeros(1, 1, 0, 0);
	for (unsigned t = 0; t < ref_count(loss); t++)
		total->at[0] += loss->at[t];
	return true;
}

/* `rows`: of the vocabulary, that the result of OP_EMBED_GRAD is to have. */
static bool ref_op(enum op_kind kind, const struct ref *in, unsigned who, unsigned rows,
    struct ref *out)
{
	memset(out, 0, sizeof(*out));
	switch (kind) {
	case OP_MATMUL:
	case OP_MATMUL_T:
		return ref_matmul(&in[0], &in[1], kind == OP_MATMUL_T, out);
	case OP_OUTER:
		return ref_outer(&in[0], &in[1], out);
	case OP_BIAS:
	case OP_POSITION:
		return ref_add_along(&in[0], &in[1], out);
	case OP_BIAS_GRAD:
	case OP_POSITION_GRAD:
		return ref_sum_along(&in[0], kind == OP_POSITION_GRAD, out);
	case OP_NORM:
		return ref_norm(&in[0], &in[1], out);
	case OP_NORM_GRAD_X:
		return ref_norm_grad_x(&in[0], &in[1], &in[2], out);
	case OP_NORM_GRAD_W:
		return ref_norm_grad_w(&in[0], &in[1], out);
	case OP_EMBED:
		return ref_embed(&in[0], &in[1], who, out);
	case OP_EMBED_GRAD:
		return ref_embed_grad(&in[0], &in[1], rows, who, out);
	case OP_ROPE:
	case OP_ROPE_GRAD:
		return ref_rope(&in[0], kind == OP_ROPE ? 1 : -1, out);
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD_Q:
	case OP_ATTENTION_GRAD_K:
	case OP_ATTENTION_GRAD_V:
		return ref_attention(kind, in, out);
	case OP_ROW_MAX:
		return ref_row_max(&in[0], out);
	case OP_STATISTICS:
		return ref_statistics(&in[0], &in[1], &in[2], who, out);
	case OP_LOSS:
		return ref_loss(&in[0], &in[1], out);
	case OP_LOSS_TOTAL:
		return ref_loss_total(&in[0], out);
	case OP_LOSS_GRAD:
		return ref_loss_grad(in, who, out);
	default:
		return ref_each(kind, in, op_signature(kind)->inputs, out);
	}
}

#endif
