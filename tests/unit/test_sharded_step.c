/* A training step of a tiny model, run by plain ops on every worker of a mesh as propagate()'s program and log say, beside the same on one
 * worker: loss and all gradients are the same, whole tensors are whole at each worker, and each conversion that the run needs is in the
 * log, once, and no other. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/propagate.h"
#include "op_reference.h"

#define BATCH        2
#define LENGTH       4
#define WORKERS_MAX  8
#define VERSIONS_MAX 6

#define WIDTHS .width = 8, .heads = 4, .head_width = 2, .hidden = 12
#define TINY   WIDTHS, .layers = 1, .context = LENGTH, .vocab = REF_VOCAB

static const struct model_config shapes[] = {
	{ .preset = MODEL_GPT2, .kv_heads = 4, TINY },
	{ .preset = MODEL_LLAMA, .kv_heads = 2, .untied = true, TINY },
	{ .preset = MODEL_LLAMA, .kv_heads = 2, TINY },
};

/* A tensor at all workers. */
struct held {
	struct tensor_lay lay;
	struct ref at[WORKERS_MAX];
};

struct thing {
	unsigned count;
	struct held versions[VERSIONS_MAX]; /* the first as it was kept */
};

struct run {
	const struct model_config *shape;
	struct strategy strategy;
	struct collective_log log;
	struct sharded_program program;
	bool used[COLLECTIVE_LOG_MAX];
	uint32_t workers;
	struct thing tensors[SECTIONS][GRAPH_TENSORS_MAX], gradients[SECTIONS][GRAPH_TENSORS_MAX];
	struct tensor_lay made[SECTIONS][GRAPH_TENSORS_MAX];
	struct thing parameter_gradients[MODEL_PARAMETERS];
};

static struct run one, many; /* too large for a stack */

static uint32_t dim_of(const struct model_config *shape, enum model_dim dim)
{
	return dim == DIM_BATCH   ? BATCH
	    : dim == DIM_SEQUENCE ? LENGTH
	                          : layer_graph_dim(shape, dim);
}

static struct ref shape_of(const struct model_config *shape, const enum model_dim *dims)
{
	struct ref t = { 0 };

	while (t.nd < TENSOR_DIMS_MAX && dims[t.nd] != DIM_NONE) {
		t.dim[t.nd] = dim_of(shape, dims[t.nd]);
		t.nd++;
	}
	assert_true(ref_count(&t) <= REF_MAX);
	return t;
}

/* The part of `whole` along `dim` that is piece `who` of `n`. */
static struct ref part(const struct ref *whole, unsigned dim, unsigned who, unsigned n)
{
	struct ref piece = *whole;
	unsigned inner = 1;

	for (unsigned d = dim + 1; d < whole->nd; d++)
		inner *= whole->dim[d];
	assert_int_equal(whole->dim[dim] % n, 0);
	piece.dim[dim] /= n;
	for (unsigned i = 0; i < ref_count(&piece); i++) {
		unsigned outer = i / inner / piece.dim[dim],
		         at = i / inner % piece.dim[dim] + who * piece.dim[dim];
		piece.at[i] = whole->at[(outer * whole->dim[dim] + at) * inner + i % inner];
	}
	return piece;
}

/* The other way: puts a piece into a whole. */
static void put(struct ref *whole, const struct ref *piece, unsigned dim, unsigned who)
{
	unsigned inner = 1;

	for (unsigned d = dim + 1; d < whole->nd; d++)
		inner *= whole->dim[d];
	for (unsigned i = 0; i < ref_count(piece); i++) {
		unsigned outer = i / inner / piece->dim[dim],
		         at = i / inner % piece->dim[dim] + who * piece->dim[dim];
		whole->at[(outer * whole->dim[dim] + at) * inner + i % inner] = piece->at[i];
	}
}

static bool is_near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

/* What n workers of one axis hold together. That a whole tensor is the same at each is checked here. */
static struct ref together(const struct ref *pieces, unsigned n, struct tensor_placement as)
{
	struct ref whole = pieces[0];

	if (as.kind == PLACEMENT_SPLIT)
		whole.dim[as.dim] *= n;
	for (unsigned who = 0; who < n; who++) {
		assert_true(ref_same(&pieces[who], &pieces[0]));
		if (as.kind == PLACEMENT_SPLIT)
			put(&whole, &pieces[who], as.dim, who);
		for (unsigned i = 0; i < ref_count(&whole) && as.kind != PLACEMENT_SPLIT && who > 0;
		     i++) {
			if (as.kind == PLACEMENT_BROADCAST)
				assert_true(is_near(pieces[who].at[i], whole.at[i]));
			else if (as.op == PARTIAL_SUM)
				whole.at[i] += pieces[who].at[i];
			else
				whole.at[i] = fmax(whole.at[i], pieces[who].at[i]);
		}
	}
	return whole;
}

/* Workers are dp x tp, tp first. */
static struct ref whole_of(const struct run *run, const struct held *held)
{
	uint32_t dp = run->strategy.mesh.size[MESH_DP], tp = run->strategy.mesh.size[MESH_TP];
	struct ref rows[WORKERS_MAX];

	for (uint32_t d = 0; d < dp; d++)
		rows[d] = together(&held->at[d * tp], tp, held->lay.on[MESH_TP]);
	return together(rows, dp, held->lay.on[MESH_DP]);
}

static struct ref along(const struct ref *whole, struct tensor_placement as, unsigned who,
    unsigned n)
{
	assert_true(as.kind != PLACEMENT_PARTIAL);
	return as.kind == PLACEMENT_SPLIT ? part(whole, as.dim, who, n) : *whole;
}

static void hand_out(const struct run *run, const struct ref *whole, const struct tensor_lay *lay,
    struct held *held)
{
	uint32_t dp = run->strategy.mesh.size[MESH_DP], tp = run->strategy.mesh.size[MESH_TP];

	held->lay = *lay;
	for (uint32_t who = 0; who < run->workers; who++) {
		struct ref row = along(whole, lay->on[MESH_DP], who / tp, dp);
		held->at[who] = along(&row, lay->on[MESH_TP], who % tp, tp);
	}
}

static bool same_lay(const struct tensor_lay *a, const struct tensor_lay *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* A conversion that the run makes has an unused entry for each axis on which it changes something. */
static void use_entries(struct run *run, enum graph_section_kind section,
    enum propagate_phase phase, uint8_t op, const char *tensor, bool gradient,
    const struct tensor_lay *from, const struct tensor_lay *to)
{
	for (int axis = 0; axis < MESH_AXES; axis++) {
		bool found = tensor_placement_equal(from->on[axis], to->on[axis]);
		for (uint32_t i = 0; i < run->log.count && !found; i++) {
			const struct collective_entry *entry = &run->log.entries[i];
			found = !run->used[i] && entry->section == section &&
			    entry->phase == phase && entry->op == op &&
			    strcmp(entry->tensor, tensor) == 0 && entry->gradient == gradient &&
			    (int)entry->axis == axis &&
			    tensor_placement_equal(entry->from, from->on[axis]) &&
			    tensor_placement_equal(entry->to, to->on[axis]);
			run->used[i] = run->used[i] || found;
		}
		if (!found)
			fail_msg("%s%s, op %u of section %d: a conversion that is not in the log",
			    gradient ? "gradient of " : "", tensor, op, (int)section);
	}
}

/* From one split to another by way of the whole. */
static void use_log(struct run *run, enum graph_section_kind section, enum propagate_phase phase,
    uint8_t op, const char *tensor, bool gradient, const struct tensor_lay *from,
    const struct tensor_lay *to)
{
	struct tensor_lay between = *from;

	for (int axis = 0; axis < MESH_AXES; axis++)
		if (from->on[axis].kind == PLACEMENT_SPLIT &&
		    to->on[axis].kind == PLACEMENT_SPLIT && from->on[axis].dim != to->on[axis].dim)
			between.on[axis] = tensor_placement_broadcast();
	use_entries(run, section, phase, op, tensor, gradient, from, &between);
	use_entries(run, section, phase, op, tensor, gradient, &between, to);
}

static struct held convert(struct run *run, const struct held *from, const struct tensor_lay *to)
{
	struct held held;
	struct ref whole = whole_of(run, from);

	hand_out(run, &whole, to, &held);
	return held;
}

/* The version that an op wants, made from the first if it is not there. */
static const struct held *version(struct run *run, struct thing *thing, const struct sharded_op *op,
    const char *name, bool gradient, const struct tensor_lay *lay)
{
	for (unsigned v = 0; v < thing->count; v++)
		if (same_lay(&thing->versions[v].lay, lay))
			return &thing->versions[v];
	assert_in_range(thing->count, 1, VERSIONS_MAX - 1);
	use_log(run, op->section, op->phase, op->op, name, gradient, &thing->versions[0].lay, lay);
	thing->versions[thing->count] = convert(run, &thing->versions[0], lay);
	return &thing->versions[thing->count++];
}

/* Adds to the sum of the same lay. */
static void contribute(struct thing *thing, const struct held *held)
{
	for (unsigned v = 0; v < thing->count; v++)
		if (same_lay(&thing->versions[v].lay, &held->lay)) {
			for (unsigned who = 0; who < WORKERS_MAX; who++)
				for (unsigned i = 0; i < REF_MAX; i++)
					thing->versions[v].at[who].at[i] += held->at[who].at[i];
			return;
		}
	assert_true(thing->count < VERSIONS_MAX);
	thing->versions[thing->count++] = *held;
}

static void local_ops(struct run *run, const struct sharded_op *op, const struct held *const in[],
    struct held *out)
{
	uint32_t tp = run->strategy.mesh.size[MESH_TP];
	bool by_rows = op->out.on[MESH_TP].kind == PLACEMENT_SPLIT && op->out.on[MESH_TP].dim == 0;

	memset(out, 0, sizeof(*out));
	out->lay = op->out;
	for (uint32_t who = 0; who < run->workers; who++) {
		struct ref inputs[OP_INPUTS_MAX] = { 0 };
		for (unsigned i = 0; i < op_signature(op->kind)->inputs; i++)
			inputs[i] = in[i]->at[who];
		assert_true(ref_op(op->kind, inputs, who % tp, by_rows ? REF_VOCAB / tp : REF_VOCAB,
		    &out->at[who]));
	}
}

/* Data and parameters: the same numbers whatever the mesh. */
static void fill_givens(struct run *run)
{
	for (int s = 0; s < SECTIONS; s++) {
		const struct graph_section *graph = layer_graph_section(run->shape,
		    (enum graph_section_kind)s);
		for (uint8_t t = 0; t < graph->tensor_count; t++) {
			const struct graph_tensor *tensor = &graph->tensors[t];
			struct ref whole = shape_of(run->shape, tensor->dims);
			struct tensor_lay lay = { 0 };
			bool data = tensor->role == TENSOR_DATA;
			if (tensor->role == TENSOR_ACTIVATION || tensor->name[0] == '\0')
				continue;
			struct rng_key key = rng_key(3,
			    data ? 100 + (uint64_t)s : (uint64_t)tensor->parameter, 0);
			for (unsigned i = 0; i < ref_count(&whole); i++)
				whole.at[i] = data ? (double)rng_below(key, 0, i, REF_VOCAB)
				                   : rng_unit(key, 0, i) - 0.5;
			if (data && run->strategy.mesh.size[MESH_DP] > 1)
				lay.on[MESH_DP] = tensor_placement_split(0);
			if (!data && run->strategy.mesh.size[MESH_TP] > 1)
				lay.on[MESH_TP] = run->strategy.over_tp[tensor->parameter];
			run->tensors[s][t].count = 1;
			hand_out(run, &whole, &lay, &run->tensors[s][t].versions[0]);
		}
	}
}

static uint8_t stream_out(const struct graph_section *graph)
{
	return graph->ops[graph->op_count - 1].out;
}

static void run_forward(struct run *run, const struct sharded_op *op)
{
	const struct graph_section *graph = layer_graph_section(run->shape, op->section);
	const struct graph_op *what = &graph->ops[op->op];
	const struct held *in[OP_INPUTS_MAX] = { 0 };
	struct thing *result = &run->tensors[op->section][what->out];
	struct held out;

	if (op->op == 0 && op->section != SECTION_EMBEDDING) {
		enum graph_section_kind before = (enum graph_section_kind)(op->section - 1);
		uint8_t last = stream_out(layer_graph_section(run->shape, before));
		run->tensors[op->section][graph->stream_in].count = 1;
		run->tensors[op->section][graph->stream_in].versions[0] = run->tensors[before][last]
		                                                              .versions[0];
		run->made[op->section][graph->stream_in] = run->tensors[before][last].versions[0].lay;
	}
	for (unsigned i = 0; i < op_signature(op->kind)->inputs; i++)
		in[i] = version(run, &run->tensors[op->section][what->in[i]], op,
		    graph->tensors[what->in[i]].name, false, &op->in[i]);
	local_ops(run, op, in, &out);
	run->made[op->section][what->out] = op->out;
	use_log(run, op->section, PHASE_FORWARD, op->op, graph->tensors[what->out].name, false,
	    &op->out, &op->kept);
	result->count = 1;
	result->versions[0] = same_lay(&op->out, &op->kept) ? out : convert(run, &out, &op->kept);
}

/* Sums of each lay to how the tensor was kept, these together to how it was made. */
static void collect(struct run *run, enum graph_section_kind section, uint8_t op, uint8_t tensor)
{
	const struct graph_tensor *of = &layer_graph_section(run->shape, section)->tensors[tensor];
	struct thing *gradient = &run->gradients[section][tensor], sum = { 0 };
	struct tensor_lay kept = tensor_lay_of_gradient(
	    &run->tensors[section][tensor].versions[0].lay);
	struct tensor_lay made = tensor_lay_of_gradient(&run->made[section][tensor]);

	assert_true(gradient->count > 0);
	for (unsigned v = 0; v < gradient->count; v++) {
		struct held held = convert(run, &gradient->versions[v], &kept);
		use_log(run, section, PHASE_BACKWARD, op, of->name, true,
		    &gradient->versions[v].lay, &kept);
		contribute(&sum, &held);
	}
	use_log(run, section, PHASE_BACKWARD, op, of->name, true, &kept, &made);
	gradient->count = 1;
	gradient->versions[0] = convert(run, &sum.versions[0], &made);
}

static void run_backward(struct run *run, const struct sharded_op *op)
{
	const struct graph_section *graph = layer_graph_section(run->shape, op->section);
	const struct graph_op *what = &graph->ops[op->op];
	const struct op_grad *grad = &op_signature(what->kind)->grads[op->grad];
	const struct held *in[OP_INPUTS_MAX] = { 0 };
	uint8_t of = what->in[grad->of];
	struct held out;

	assert_int_equal(grad->kind, op->kind);
	if (op->grad == 0 && what->kind != OP_STATISTICS) {
		if (op->op + 1 == graph->op_count) { /* what the section behind hands over */
			enum graph_section_kind behind = (enum graph_section_kind)(op->section + 1);
			uint8_t first = layer_graph_section(run->shape, behind)->stream_in;
			collect(run, behind, GRAPH_NO_OP, first);
			contribute(&run->gradients[op->section][what->out],
			    &run->gradients[behind][first].versions[0]);
		}
		collect(run, op->section, op->op, what->out);
	}
	for (unsigned i = 0; i < op_signature(op->kind)->inputs; i++) {
		bool gradient = grad->from[i] == OP_FROM_GRADIENT;
		uint8_t at = gradient || grad->from[i] == OP_FROM_OUT ? what->out
		                                                      : what->in[grad->from[i]];
		struct thing *thing = gradient ? &run->gradients[op->section][at]
		                               : &run->tensors[op->section][at];
		in[i] = version(run, thing, op, graph->tensors[at].name, gradient, &op->in[i]);
	}
	local_ops(run, op, in, &out);
	contribute(graph->tensors[of].role == TENSOR_PARAMETER
	        ? &run->parameter_gradients[graph->tensors[of].parameter]
	        : &run->gradients[op->section][of],
	    &out);
}

static void run_step(struct run *run, const struct model_config *shape,
    const struct strategy *strategy)
{
	struct tr_error error = { 0 };
	bool dropped = false;

	memset(run, 0, sizeof(*run));
	run->shape = shape;
	run->strategy = *strategy;
	run->workers = mesh_workers(&strategy->mesh);
	assert_true(run->workers <= WORKERS_MAX);
	if (propagate(shape, strategy, &run->log, &run->program, &error) != TR_OK)
		fail_msg("%s", error.text);
	fill_givens(run);
	for (uint32_t i = 0; i < run->program.count; i++) {
		if (run->program.ops[i].phase == PHASE_FORWARD) {
			run_forward(run, &run->program.ops[i]);
			continue;
		}
		for (int s = 0; s < SECTIONS && strategy->gather_again && !dropped; s++)
			for (int t = 0; t < GRAPH_TENSORS_MAX; t++)
				if (run->tensors[s][t].count > 1)
					run->tensors[s][t].count = 1;
		dropped = true;
		run_backward(run, &run->program.ops[i]);
	}
	for (uint32_t i = 0; i < run->log.count; i++)
		if (!run->used[i] && run->log.entries[i].phase != PHASE_STEP) {
			char text[200];
			fail_msg("in the log, but not needed: %s",
			    collective_entry_text(&run->log.entries[i], text, sizeof(text)));
		}
}

static struct ref loss_of(const struct run *run)
{
	const struct graph_section *head = layer_graph_section(run->shape, SECTION_HEAD);

	return whole_of(run, &run->tensors[SECTION_HEAD][stream_out(head)].versions[0]);
}

static struct ref gradient_of(const struct run *run, enum model_parameter parameter)
{
	const struct thing *gradient = &run->parameter_gradients[parameter];
	struct ref sum = { 0 };

	assert_true(gradient->count > 0);
	for (unsigned v = 0; v < gradient->count; v++) {
		struct ref whole = whole_of(run, &gradient->versions[v]);
		for (unsigned i = 0; i < ref_count(&whole) && v > 0; i++)
			sum.at[i] += whole.at[i];
		if (v == 0)
			sum = whole;
	}
	return sum;
}

static struct strategy strategy_of(const struct model_config *shape, uint32_t dp, uint32_t tp)
{
	struct mesh mesh = { { [MESH_DP] = dp, [MESH_PP] = 1, [MESH_TP] = tp } };
	struct strategy strategy;

	strategy_megatron(shape, &mesh, &strategy);
	strategy.sequences = BATCH;
	return strategy;
}

static void compare(const struct model_config *shape, const struct strategy *strategy)
{
	run_step(&many, shape, strategy);
	assert_true(is_near(loss_of(&many).at[0], loss_of(&one).at[0]));
	for (int i = 0; i < MODEL_PARAMETERS; i++) {
		enum model_parameter parameter = (enum model_parameter)i;
		if (!layer_graph_has(shape, parameter))
			continue;
		struct ref a = gradient_of(&many, parameter), b = gradient_of(&one, parameter);
		assert_true(ref_same(&a, &b));
		for (unsigned k = 0; k < ref_count(&a); k++)
			if (!is_near(a.at[k], b.at[k]))
				fail_msg("%s of dp %u tp %u: %g, on one worker %g",
				    layer_graph_parameter_name(parameter),
				    strategy->mesh.size[MESH_DP], strategy->mesh.size[MESH_TP],
				    a.at[k], b.at[k]);
	}
}

static void every_mesh_computes_the_same(void **state)
{
	unsigned meshes = 0;

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		struct strategy alone = strategy_of(&shapes[s], 1, 1);
		run_step(&one, &shapes[s], &alone);
		for (uint32_t dp = 1; dp <= 2; dp++)
			for (uint32_t tp = 1; tp <= shapes[s].kv_heads; tp *= 2)
				for (unsigned flags = 0; flags < 4; flags++, meshes++) {
					struct strategy strategy = strategy_of(&shapes[s], dp, tp);
					strategy.sequence_parallel = (flags & 1) != 0;
					strategy.gather_again = (flags & 2) != 0;
					compare(&shapes[s], &strategy);
				}
	}
	print_message("%u meshes\n", meshes);
}

/* Placements that nobody has thought out: each parameter in each way, one or two at a time. What is refused names the parameter. Of those
 * that are possible one in eight is run; SHARDED_STEP=full runs all (some 40 s). */
static void every_placement_computes_the_same(void **state)
{
	const char *full = getenv("SHARDED_STEP");
	unsigned run = 0, refused = 0, every = full != NULL && strcmp(full, "full") == 0 ? 1 : 8;

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		struct strategy alone = strategy_of(&shapes[s], 1, 1);
		run_step(&one, &shapes[s], &alone);
		for (unsigned at = 0; at < MODEL_PARAMETERS * MODEL_PARAMETERS * 9 * 2; at++) {
			struct strategy strategy = strategy_of(&shapes[s], 2, 2);
			unsigned rest = at / 2;
			bool possible = true;
			const char *names[2];
			strategy.sequence_parallel = at % 2 == 1;
			for (unsigned k = 0; k < 2; k++) {
				names[k] = layer_graph_parameter_name(
				    (enum model_parameter)(rest % MODEL_PARAMETERS));
				rest /= MODEL_PARAMETERS;
				struct tensor_placement to = rest % 3 == 0
				    ? tensor_placement_broadcast()
				    : tensor_placement_split(rest % 3 - 1);
				rest /= 3;
				possible = possible &&
				    strategy_place(&shapes[s], &strategy, names[k], to, NULL) ==
				        TR_OK;
			}
			struct tr_error error;
			struct collective_log log;
			if (!possible)
				continue;
			if (propagate(&shapes[s], &strategy, &log, NULL, &error) == TR_OK) {
				if (run++ % every == 0)
					compare(&shapes[s], &strategy);
			} else {
				if (strstr(error.text, names[0]) == NULL &&
				    strstr(error.text, names[1]) == NULL)
					fail_msg("%s, %s: %s", names[0], names[1], error.text);
				refused++;
			}
		}
	}
	assert_true(run > 0 && refused > 0);
	print_message("%u placements possible, one in %u run, %u refused\n", run, every, refused);
}

/* The one worker's gradients are derivatives: of the loss, for some elements of each parameter. */
static void one_worker_is_right(void **state)
{
	const double h = 1e-6;

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		struct strategy alone = strategy_of(&shapes[s], 1, 1);
		run_step(&one, &shapes[s], &alone);
		for (int i = 0; i < MODEL_PARAMETERS; i++) {
			enum model_parameter parameter = (enum model_parameter)i;
			if (!layer_graph_has(&shapes[s], parameter))
				continue;
			struct ref gradient = gradient_of(&one, parameter);
			for (unsigned k = 0; k < 3; k++) {
				unsigned at = (unsigned)rng_below(rng_key(5, s, (uint64_t)i), 0, k,
				    ref_count(&gradient));
				double loss[2];
				for (int side = 0; side < 2; side++) {
					memset(&many, 0, sizeof(many));
					many = one;
					memset(many.used, 0, sizeof(many.used));
					for (int c = 0; c < SECTIONS; c++) {
						const struct graph_section
						    *graph = layer_graph_section(&shapes[s],
						        (enum graph_section_kind)c);
						for (uint8_t t = 0; t < graph->tensor_count; t++)
							if (graph->tensors[t].role ==
							        TENSOR_PARAMETER &&
							    graph->tensors[t].parameter == parameter)
								many.tensors[c][t]
								    .versions[0]
								    .at[0]
								    .at[at] += side == 0 ? h : -h;
					}
					for (uint32_t o = 0; o < many.program.count &&
					     many.program.ops[o].phase == PHASE_FORWARD;
					     o++)
						run_forward(&many, &many.program.ops[o]);
					loss[side] = loss_of(&many).at[0];
				}
				if (fabs((loss[0] - loss[1]) / (2 * h) - gradient.at[at]) > 1e-6)
					fail_msg("%s: %g, not %g",
					    layer_graph_parameter_name(parameter), gradient.at[at],
					    (loss[0] - loss[1]) / (2 * h));
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_worker_is_right),
		cmocka_unit_test(every_mesh_computes_the_same),
		cmocka_unit_test(every_placement_computes_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
