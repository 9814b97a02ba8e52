#include "daemon/worker/onednn.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#endif
#endif

#if defined(DNNL_VERSION_MAJOR) && DNNL_VERSION_MAJOR == 2

#define ONEDNN_LIBRARY "libdnnl.so.2"
#define COMPILED_MAX   64 /* a model has some thirty shapes */

#define ONEDNN_CALLS(X)                     \
	X(dnnl_get_effective_cpu_isa)       \
	X(dnnl_engine_create)               \
	X(dnnl_engine_destroy)              \
	X(dnnl_stream_create)               \
	X(dnnl_stream_destroy)              \
	X(dnnl_stream_wait)                 \
	X(dnnl_memory_desc_init_by_strides) \
	X(dnnl_matmul_desc_init)            \
	X(dnnl_post_ops_create)             \
	X(dnnl_post_ops_append_sum)         \
	X(dnnl_post_ops_destroy)            \
	X(dnnl_primitive_attr_create)       \
	X(dnnl_primitive_attr_set_post_ops) \
	X(dnnl_primitive_attr_destroy)      \
	X(dnnl_primitive_desc_create)       \
	X(dnnl_primitive_desc_destroy)      \
	X(dnnl_primitive_create)            \
	X(dnnl_primitive_destroy)           \
	X(dnnl_primitive_execute)           \
	X(dnnl_memory_create)               \
	X(dnnl_memory_destroy)              \
	X(dnnl_memory_set_data_handle)      \
	X(dnnl_sgemm)

struct calls {
#define X(name) __typeof__(name) *name;
	ONEDNN_CALLS(X)
#undef X
	void (*omp_set_num_threads)(int);
};

static struct calls calls;
static struct tr_error load_error;
static tr_status load_status;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *to)
{
	void *found = dlsym(library, name);
	/* POSIX: a pointer from dlsym has the size of one to a function. */
	memcpy(to, &found, sizeof(found));
	if (found == NULL)
		load_status = tr_error_set(&load_error, TR_ENOTFOUND, "%s has no %s",
		    ONEDNN_LIBRARY, name);
	return found != NULL;
}

/* Stays open: its threads' data may outlive the last user. */
static void load(void)
{
	void *library = dlopen(ONEDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		load_status = tr_error_set(&load_error, TR_ENOTFOUND, "no oneDNN here: %s",
		    dlerror());
		return;
	}
#define X(name)                                 \
	if (!find(library, #name, &calls.name)) \
		return;
	ONEDNN_CALLS(X)
#undef X
	if (!find(library, "omp_set_num_threads", &calls.omp_set_num_threads))
		return;
}

static bool has(dnnl_cpu_isa_t wanted)
{
	return ((unsigned)calls.dnnl_get_effective_cpu_isa() & (unsigned)wanted) ==
	    (unsigned)wanted;
}

/* By measurement: on AMD's with AVX-512 5 to 12 % faster than OpenBLAS 0.3.21, whose kernels for it are those of another maker's. */
static bool wins_in_f32(void)
{
#ifdef __x86_64__
	return __builtin_cpu_is("amd") && has(dnnl_cpu_isa_avx512_core);
#else
	return false;
#endif
}

static const char *unfit(enum onednn_type type)
{
	if (type == ONEDNN_BF16)
		return has(dnnl_cpu_isa_avx512_core_bf16)
		    ? NULL
		    : "this processor has no instructions for bf16";
	return wins_in_f32() ? NULL : "f32 is not known to be faster with it on this processor";
}

struct compiled {
	struct onednn_product product;
	dnnl_primitive_t primitive;
	dnnl_memory_t a, b, c;
};

struct onednn {
	enum onednn_type type;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	bool alone; /* OpenMP knows that this thread works alone */
	size_t count, next;
	struct compiled compiled[COMPILED_MAX];
};

tr_status onednn_create(enum onednn_type type, struct onednn **out, struct tr_error *error)
{
	(void)pthread_once(&load_once, load);
	if (load_status != TR_OK)
		return tr_error_set(error, load_status, "%s", load_error.text);
	if (unfit(type) != NULL)
		return tr_error_set(error, TR_ENOTFOUND, "%s", unfit(type));
	struct onednn *o = calloc(1, sizeof(*o));
	if (o == NULL || calls.dnnl_engine_create(&o->engine, dnnl_cpu, 0) != dnnl_success ||
	    calls.dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags) !=
	        dnnl_success) {
		onednn_destroy(o);
		return tr_error_set(error, TR_ENOMEM, "no memory for oneDNN");
	}
	o->type = type;
	*out = o;
	return TR_OK;
}

static void forget(struct compiled *c)
{
	if (c->a != NULL)
		(void)calls.dnnl_memory_destroy(c->a);
	if (c->b != NULL)
		(void)calls.dnnl_memory_destroy(c->b);
	if (c->c != NULL)
		(void)calls.dnnl_memory_destroy(c->c);
	if (c->primitive != NULL)
		(void)calls.dnnl_primitive_destroy(c->primitive);
	*c = (struct compiled){ 0 };
}

void onednn_destroy(struct onednn *o)
{
	if (o == NULL)
		return;
	for (size_t i = 0; i < o->count; i++)
		forget(&o->compiled[i]);
	if (o->stream != NULL)
		(void)calls.dnnl_stream_destroy(o->stream);
	if (o->engine != NULL)
		(void)calls.dnnl_engine_destroy(o->engine);
	free(o);
}

/* ---- one product ---- */

static bool describe(dnnl_memory_desc_t *desc, size_t rows, size_t columns, size_t row_stride,
    size_t column_stride, dnnl_data_type_t type)
{
	const dnnl_dims_t dims = { (dnnl_dim_t)rows, (dnnl_dim_t)columns };
	const dnnl_dims_t strides = { (dnnl_dim_t)row_stride, (dnnl_dim_t)column_stride };
	return calls.dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides) == dnnl_success;
}

/* NULL with *failed false: C is overwritten, as without any attribute. */
static dnnl_primitive_attr_t attributes(bool add, bool *failed)
{
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t ops = NULL;
	*failed = false;
	if (!add)
		return NULL;
	*failed = calls.dnnl_primitive_attr_create(&attr) != dnnl_success ||
	    calls.dnnl_post_ops_create(&ops) != dnnl_success ||
	    calls.dnnl_post_ops_append_sum(ops, 1) != dnnl_success ||
	    calls.dnnl_primitive_attr_set_post_ops(attr, ops) != dnnl_success;
	if (ops != NULL)
		(void)calls.dnnl_post_ops_destroy(ops);
	return attr;
}

static bool make_primitive(struct onednn *o, struct compiled *c, const dnnl_memory_desc_t desc[3])
{
	dnnl_matmul_desc_t matmul;
	dnnl_primitive_desc_t described = NULL;
	bool failed;
	dnnl_primitive_attr_t attr = attributes(c->product.add, &failed);
	bool done = !failed &&
	    calls.dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]) ==
	        dnnl_success &&
	    calls.dnnl_primitive_desc_create(&described, &matmul, attr, o->engine, NULL) ==
	        dnnl_success &&
	    calls.dnnl_primitive_create(&c->primitive, described) == dnnl_success;
	if (described != NULL)
		(void)calls.dnnl_primitive_desc_destroy(described);
	if (attr != NULL)
		(void)calls.dnnl_primitive_attr_destroy(attr);
	return done;
}

static bool compile(struct onednn *o, struct compiled *c)
{
	const struct onednn_product *p = &c->product;
	dnnl_memory_desc_t desc[3];
	dnnl_data_type_t type = o->type == ONEDNN_BF16 ? dnnl_bf16 : dnnl_f32;
	return describe(&desc[0], p->m, p->k, p->a_strides[0], p->a_strides[1], type) &&
	    describe(&desc[1], p->k, p->n, p->b_strides[0], p->b_strides[1], type) &&
	    describe(&desc[2], p->m, p->n, p->c_stride, 1, dnnl_f32) &&
	    make_primitive(o, c, desc) &&
	    calls.dnnl_memory_create(&c->a, &desc[0], o->engine, DNNL_MEMORY_NONE) ==
	    dnnl_success &&
	    calls.dnnl_memory_create(&c->b, &desc[1], o->engine, DNNL_MEMORY_NONE) ==
	    dnnl_success &&
	    calls.dnnl_memory_create(&c->c, &desc[2], o->engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool same(const struct onednn_product *x, const struct onednn_product *y)
{
	return x->m == y->m && x->n == y->n && x->k == y->k && x->c_stride == y->c_stride &&
	    x->add == y->add && x->a_strides[0] == y->a_strides[0] &&
	    x->a_strides[1] == y->a_strides[1] && x->b_strides[0] == y->b_strides[0] &&
	    x->b_strides[1] == y->b_strides[1];
}

/* NULL: it cannot be compiled. The oldest one goes for it, where there are too many. */
static struct compiled *compiled_for(struct onednn *o, const struct onednn_product *product)
{
	for (size_t i = 0; i < o->count; i++)
		if (same(&o->compiled[i].product, product))
			return &o->compiled[i];
	struct compiled made = { .product = *product };
	if (!compile(o, &made)) {
		forget(&made);
		return NULL;
	}
	struct compiled *place = &o->compiled[o->count];
	if (o->count < COMPILED_MAX) {
		o->count++;
	} else {
		place = &o->compiled[o->next];
		o->next = (o->next + 1) % COMPILED_MAX;
		forget(place);
	}
	*place = made;
	return place;
}

/* Memory that is only read comes without const in this interface. */
static bool set(dnnl_memory_t memory, const void *data)
{
	return calls.dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data) == dnnl_success;
}

static void spoil(const struct onednn_product *p, float *c)
{
	for (size_t i = 0; i < p->m; i++)
		for (size_t j = 0; j < p->n; j++)
			c[i * p->c_stride + j] = NAN;
}

/* Of f32, where B lies as it is multiplied, the library's BLAS is faster than what it compiles. */
static void sgemm(const struct onednn_product *p, const float *a, const float *b, float *c)
{
	bool turned = p->a_strides[1] != 1;
	if (calls.dnnl_sgemm(turned ? 'T' : 'N', 'N', (dnnl_dim_t)p->m, (dnnl_dim_t)p->n,
	        (dnnl_dim_t)p->k, 1, a, (dnnl_dim_t)p->a_strides[turned ? 1 : 0], b,
	        (dnnl_dim_t)p->b_strides[0], p->add ? 1 : 0, c,
	        (dnnl_dim_t)p->c_stride) != dnnl_success)
		spoil(p, c);
}

bool onednn_multiply(struct onednn *o, const struct onednn_product *product, const void *a,
    const void *b, float *c)
{
	if (!o->alone) {
		calls.omp_set_num_threads(1); /* of this thread */
		o->alone = true;
	}
	if (o->type == ONEDNN_F32 && product->b_strides[1] == 1) {
		sgemm(product, a, b, c);
		return true;
	}
	struct compiled *p = compiled_for(o, product);
	if (p == NULL || !set(p->a, a) || !set(p->b, b) || !set(p->c, c))
		return false;
	const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, p->a }, { DNNL_ARG_WEIGHTS, p->b },
		{ DNNL_ARG_DST, p->c } };
	if (calls.dnnl_primitive_execute(p->primitive, o->stream, 3, args) != dnnl_success ||
	    calls.dnnl_stream_wait(o->stream) != dnnl_success)
		spoil(product, c);
	return true;
}

#else

tr_status onednn_create(enum onednn_type type, struct onednn **out, struct tr_error *error)
{
	(void)type, (void)out;
	return tr_error_set(error, TR_ENOTFOUND,
	    "built without oneDNN 2 (Debian's libdnnl-dev was not there)");
}

void onednn_destroy(struct onednn *o)
{
	(void)o;
}

bool onednn_multiply(struct onednn *o, const struct onednn_product *product, const void *a,
    const void *b, float *c)
{
	(void)o, (void)product, (void)a, (void)b, (void)c;
	return false;
}

#endif
