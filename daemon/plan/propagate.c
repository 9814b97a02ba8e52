#include "daemon/plan/propagate.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VERSIONS_MAX 6

/* A tensor as it was first made, and what it was converted to since. */
struct versions {
	unsigned count;
	unsigned from_forward;   /* of them; the rest was made in the backward pass */
	bool kept[VERSIONS_MAX]; /* for the backward pass */
	struct tensor_lay of[VERSIONS_MAX];
};

struct value {
	struct versions versions;
	struct tensor_lay made;   /* by its op, before what it is pinned to */
	struct versions gradient; /* what users gave back, one of each lay */
};

struct section_state {
	const struct graph_section *graph;
	struct value values[GRAPH_TENSORS_MAX];
};

struct context {
	const struct model_config *shape;
	const struct strategy *strategy;
	struct collective_log *log;
	enum graph_section_kind section;
	enum propagate_phase phase;
	uint8_t op; /* at work on */
	bool on_result;
	bool by_gathering; /* from one split to another, where there is no other way */
	struct section_state sections[SECTIONS];
	struct versions parameter_gradients[MODEL_PARAMETERS];
	struct sharded_program *program;
	struct collective_log step; /* what is left for the step */
};

/* What an op may take a thing from. */
struct operand {
	const struct graph_tensor *tensor;
	struct versions *versions;
	bool gradient;
};

/* From the one along which conversions of one tensor happen first. */
static const enum mesh_axis axes[] = { MESH_TP, MESH_PP, MESH_DP };

static bool lay_equal(const struct tensor_lay *a, const struct tensor_lay *b)
{
	for (int axis = 0; axis < MESH_AXES; axis++)
		if (!tensor_placement_equal(a->on[axis], b->on[axis]))
			return false;
	return true;
}

static void versions_add(struct versions *versions, const struct tensor_lay *lay)
{
	for (unsigned i = 0; i < versions->count; i++)
		if (lay_equal(&versions->of[i], lay))
			return;
	assert(versions->count < VERSIONS_MAX);
	versions->of[versions->count++] = *lay;
}

static uint64_t tensor_bytes(const struct context *c, const struct graph_tensor *tensor,
    bool gradient_of_parameter)
{
	uint64_t bytes = gradient_of_parameter ? c->strategy->gradient_bytes
	                                       : c->strategy->value_bytes;

	if (tensor->pin == PIN_TOKENS || tensor->pin == PIN_TOTAL)
		bytes = 4; /* tokens, maxima, sums and losses */
	for (unsigned d = 0; d < TENSOR_DIMS_MAX && tensor->dims[d] != DIM_NONE; d++)
		bytes *= strategy_dim(c->shape, c->strategy, tensor->dims[d]);
	return bytes;
}

/* Of what one worker holds of it apart from `axis` (MESH_AXES: of what it holds). */
static uint64_t bytes_on_axis(const struct context *c, uint64_t bytes, const struct tensor_lay *lay,
    enum mesh_axis axis)
{
	for (int other = 0; other < MESH_AXES; other++)
		if (other != (int)axis && lay->on[other].kind == PLACEMENT_SPLIT)
			bytes /= c->strategy->mesh.size[other];
	return bytes;
}

static void record_one(struct context *c, const struct graph_tensor *tensor, bool gradient,
    uint64_t bytes, struct tensor_lay *now, enum mesh_axis axis, struct tensor_placement to)
{
	struct collective_log *log = c->phase == PHASE_STEP ? &c->step : c->log;
	enum collective collective;
	tr_status st = tensor_placement_convert(now->on[axis], to, &collective, NULL);

	assert(st == TR_OK); /* rows were chosen so */
	if (collective == COLLECTIVE_NONE)
		return;
	if (collective == COLLECTIVE_ALL_TO_ALL) {
		record_one(c, tensor, gradient, bytes, now, axis, tensor_placement_broadcast());
		collective = COLLECTIVE_LOCAL_SLICE;
	}
	assert(log->count < COLLECTIVE_LOG_MAX);
	log->entries[log->count++] = (struct collective_entry){ .section = c->section,
		.phase = c->phase,
		.op = c->phase == PHASE_STEP ? GRAPH_NO_OP : c->op,
		.on_result = c->on_result && c->phase != PHASE_STEP,
		.tensor = tensor->name,
		.gradient = gradient,
		.axis = axis,
		.from = now->on[axis],
		.to = to,
		.collective = collective,
		.bytes = bytes_on_axis(c, bytes, now, axis) };
	now->on[axis] = to;
}

static void record(struct context *c, const struct graph_tensor *tensor, bool gradient,
    uint64_t bytes, const struct tensor_lay *from, const struct tensor_lay *to)
{
	struct tensor_lay now = *from;

	for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++) {
		bool sums_pp = axes[i] == MESH_PP && now.on[MESH_PP].kind == PLACEMENT_PARTIAL;
		record_one(c, tensor, gradient, bytes, &now, axes[i], to->on[axes[i]]);
		if (sums_pp && now.on[MESH_DP].kind == PLACEMENT_PARTIAL) {
			c->step.entries[c->step.count - 1].with_dp = true;
			now.on[MESH_DP] = to->on[MESH_DP];
		}
	}
}

/* Whole units (heads, sequences) for each worker, of all axes that split the same dimension. */
static bool can_split(const struct context *c, const struct graph_tensor *tensor,
    const struct tensor_lay *lay, struct tensor_placement to, enum mesh_axis axis)
{
	enum model_dim dim = tensor->dims[to.dim];
	uint64_t units = layer_graph_units(c->shape, dim), pieces = c->strategy->mesh.size[axis];

	if (to.kind != PLACEMENT_SPLIT)
		return true;
	if (units == 0)
		units = strategy_dim(c->shape, c->strategy, dim); /* not the model's */
	for (int other = 0; other < MESH_AXES; other++)
		if (other != (int)axis && tensor_placement_equal(lay->on[other], to))
			pieces *= c->strategy->mesh.size[other];
	return units % pieces == 0;
}

/* Bytes sent for it; INFINITY: there is no way, or none that is allowed. */
static double conversion_cost(const struct context *c, const struct graph_tensor *tensor,
    const struct tensor_lay *lay, struct tensor_placement to, enum mesh_axis axis)
{
	uint64_t bytes = tensor_bytes(c, tensor, false);
	enum collective collective;

	if (!can_split(c, tensor, lay, to, axis))
		return INFINITY;
	if (tensor_placement_convert(lay->on[axis], to, &collective, NULL) != TR_OK)
		return INFINITY;
	if (collective == COLLECTIVE_ALL_TO_ALL) {
		if (!c->by_gathering)
			return INFINITY;
		collective = COLLECTIVE_ALL_GATHER;
	}
	return collective_bytes_sent(collective, (double)bytes_on_axis(c, bytes, lay, axis),
	    c->strategy->mesh.size[axis]);
}

static double operand_cost(const struct context *c, const struct operand *operand,
    struct tensor_placement wanted, enum mesh_axis axis)
{
	const struct tensor_lay *lay = &operand->versions->of[0];

	for (unsigned i = 0; i < operand->versions->count; i++)
		if (tensor_placement_equal(operand->versions->of[i].on[axis], wanted))
			return 0;
	if (operand->tensor->role == TENSOR_PARAMETER && !operand->gradient &&
	    (lay->on[axis].kind != PLACEMENT_BROADCAST || wanted.kind != PLACEMENT_SPLIT))
		return INFINITY;
	return conversion_cost(c, operand->tensor, lay, wanted, axis);
}

static bool operand_has(const struct operand *operand, struct tensor_placement wanted,
    enum mesh_axis axis)
{
	assert(operand->versions != NULL);
	return tensor_placement_equal(operand->versions->of[0].on[axis], wanted);
}

/* What is wanted of an op's result. */
struct result {
	const struct graph_tensor *tensor;
	bool wanted[MESH_AXES];
	bool deferred; /* its conversion is made once a step: it does not count */
	struct tensor_placement as[MESH_AXES];
};

/* `out`: how the result lies on the axes before this one. The cheapest row, of several the one with fewest conversions, of several the first. */
static const struct op_row *choose_row(const struct context *c, enum op_kind kind,
    const struct operand *operands, const struct result *result, struct tensor_lay out,
    enum mesh_axis axis)
{
	const struct op_signature *signature = op_signature(kind);
	const struct op_row *best = NULL;
	double best_cost = INFINITY;
	unsigned best_conversions = 0;

	for (unsigned r = 0; r < signature->row_count; r++) {
		const struct op_row *row = &signature->rows[r];
		double cost = 0;
		unsigned conversions = 0;
		out.on[axis] = row->out;
		for (unsigned i = 0; i < signature->inputs; i++) {
			cost += operand_cost(c, &operands[i], row->in[i], axis);
			conversions += !operand_has(&operands[i], row->in[i], axis);
		}
		if (result->wanted[axis] && !tensor_placement_equal(row->out, result->as[axis])) {
			double after = conversion_cost(c, result->tensor, &out, result->as[axis],
			    axis);
			cost += result->deferred && isfinite(after) ? 0 : after;
			conversions++;
		}
		if (cost < best_cost ||
		    (best != NULL && cost <= best_cost && conversions < best_conversions)) {
			best = row;
			best_cost = cost;
			best_conversions = conversions;
		}
	}
	return best;
}

/* Why there is no row: the parameter that none takes as it lies, and how it could lie. */
static tr_status no_row(const struct context *c, enum op_kind kind, const struct operand *operands,
    enum mesh_axis axis, struct tr_error *error)
{
	const struct op_signature *signature = op_signature(kind);
	char text[TENSOR_PLACEMENT_TEXT_MAX], allowed[64] = "";
	unsigned at = 0;

	assert(operands[0].tensor != NULL);
	while (at + 1 < signature->inputs &&
	    (operands[at].tensor->role != TENSOR_PARAMETER || operands[at].gradient))
		at++;
	for (unsigned r = 0; r < signature->row_count; r++) {
		struct tensor_placement in = signature->rows[r].in[at];
		size_t used = strlen(allowed);
		tensor_placement_text(in, text);
		if (in.kind != PLACEMENT_PARTIAL && strstr(allowed, text) == NULL)
			(void)snprintf(allowed + used, sizeof(allowed) - used, "%s%s",
			    used > 0 ? " or " : "", text);
	}
	return tr_error_set(error, TR_EINVAL,
	    "%s: lies as %s over %s, but %s in %s takes it as %s only", operands[at].tensor->name,
	    tensor_placement_text(operands[at].versions->of[0].on[axis], text),
	    mesh_axis_name(axis), signature->name, c->sections[c->section].graph->name, allowed);
}

static struct sharded_op *record_op(struct context *c, enum op_kind kind,
    const struct tensor_lay needed[OP_INPUTS_MAX], const struct tensor_lay *out)
{
	struct sharded_op *op = &c->program->ops[c->program->count++];

	assert(c->program->count <= SHARDED_OPS_MAX);
	*op = (struct sharded_op){ .section = c->section,
		.phase = c->phase,
		.op = c->op,
		.kind = kind,
		.out = *out,
		.kept = *out };
	memcpy(op->in, needed, sizeof(op->in));
	return op;
}

/* Puts the conversions before an op into the log, and the op into the program, which says how its result lies. */
static tr_status run_op(struct context *c, enum op_kind kind, struct operand *operands,
    const struct result *result, struct sharded_op **made, struct tr_error *error)
{
	const struct op_signature *signature = op_signature(kind);
	struct tensor_lay needed[OP_INPUTS_MAX] = { 0 }, out = { 0 };

	for (int axis = 0; axis < MESH_AXES; axis++) {
		const struct op_row *row = choose_row(c, kind, operands, result, out,
		    (enum mesh_axis)axis);
		if (row == NULL) {
			c->by_gathering = true;
			row = choose_row(c, kind, operands, result, out, (enum mesh_axis)axis);
			c->by_gathering = false;
		}
		if (row == NULL)
			return no_row(c, kind, operands, (enum mesh_axis)axis, error);
		for (unsigned i = 0; i < signature->inputs; i++)
			needed[i].on[axis] = row->in[i];
		out.on[axis] = row->out;
	}
	for (unsigned i = 0; i < signature->inputs; i++) {
		struct versions *versions = operands[i].versions;
		bool there = false;
		unsigned at = 0;
		for (unsigned v = 0; v < versions->count; v++)
			if (lay_equal(&versions->of[v], &needed[i])) {
				there = true;
				at = v;
			}
		versions->kept[there && at < versions->from_forward ? at : 0] = true;
		if (there)
			continue;
		record(c, operands[i].tensor, operands[i].gradient,
		    tensor_bytes(c, operands[i].tensor, false), &versions->of[0], &needed[i]);
		versions_add(versions, &needed[i]);
	}
	*made = record_op(c, kind, needed, &out);
	return TR_OK;
}

static struct result result_of(const struct context *c, const struct graph_tensor *tensor)
{
	struct result result = { .tensor = tensor, .deferred = tensor->pin == PIN_TOTAL };

	for (int axis = 0; axis < MESH_AXES; axis++)
		if (c->strategy->mesh.size[axis] > 1)
			result.wanted[axis] = strategy_pinned(c->strategy, tensor->pin,
			    (enum mesh_axis)axis, &result.as[axis]);
	return result;
}

/* Of what no op makes: data, parameters, what another section sends. */
static struct tensor_lay given_lay(const struct context *c, const struct graph_tensor *tensor)
{
	struct tensor_lay lay = { 0 };

	if (tensor->role != TENSOR_PARAMETER) {
		struct result pinned = result_of(c, tensor);
		for (int axis = 0; axis < MESH_AXES; axis++)
			if (pinned.wanted[axis])
				lay.on[axis] = pinned.as[axis];
	} else if (c->strategy->mesh.size[MESH_TP] > 1) {
		lay.on[MESH_TP] = c->strategy->over_tp[tensor->parameter];
	}
	return lay;
}

static tr_status forward(struct context *c, struct section_state *section, struct tr_error *error)
{
	c->phase = PHASE_FORWARD;
	for (uint8_t i = 0; i < section->graph->tensor_count; i++) {
		struct tensor_lay lay = given_lay(c, &section->graph->tensors[i]);
		section->values[i].made = lay;
		versions_add(&section->values[i].versions, &lay);
	}
	for (uint8_t i = 0; i < section->graph->op_count; i++) {
		const struct graph_op *op = &section->graph->ops[i];
		const struct graph_tensor *made = &section->graph->tensors[op->out];
		struct result result = result_of(c, made);
		struct value *value = &section->values[op->out];
		struct operand operands[OP_INPUTS_MAX] = { 0 };
		struct sharded_op *sharded = NULL;
		c->op = i;
		for (unsigned k = 0; k < op_signature(op->kind)->inputs; k++)
			operands[k] = (struct operand){ &section->graph->tensors[op->in[k]],
				&section->values[op->in[k]].versions, false };
		tr_status st = run_op(c, op->kind, operands, &result, &sharded, error);
		if (st != TR_OK)
			return st;
		assert(sharded != NULL);
		struct tensor_lay pinned = sharded->out;
		value->made = sharded->out;
		for (int axis = 0; axis < MESH_AXES; axis++)
			if (result.wanted[axis])
				pinned.on[axis] = result.as[axis];
		sharded->kept = result.deferred ? sharded->out : pinned;
		c->phase = result.deferred ? PHASE_STEP : PHASE_FORWARD;
		c->on_result = true;
		record(c, made, false, tensor_bytes(c, made, false), &value->made, &pinned);
		c->phase = PHASE_FORWARD;
		c->on_result = false;
		value->versions.count = 0;
		versions_add(&value->versions, &pinned);
	}
	return TR_OK;
}

/* Adds up what the users of a tensor gave back, and brings it to how its op made it. */
static void collect_gradient(struct context *c, const struct graph_tensor *tensor,
    struct value *value)
{
	struct tensor_lay own = tensor_lay_of_gradient(&value->versions.of[0]),
	                  made = tensor_lay_of_gradient(&value->made);
	uint64_t bytes = tensor_bytes(c, tensor, false);

	for (unsigned i = 0; i < value->gradient.count; i++)
		record(c, tensor, true, bytes, &value->gradient.of[i], &own);
	record(c, tensor, true, bytes, &own, &made);
	value->gradient.count = 0;
	versions_add(&value->gradient, &made);
}

static struct operand source(struct section_state *section, const struct graph_op *op,
    enum op_source from)
{
	uint8_t at = from == OP_FROM_OUT || from == OP_FROM_GRADIENT ? op->out
	                                                             : op->in[from - OP_FROM_IN0];
	struct value *value = &section->values[at];
	bool gradient = from == OP_FROM_GRADIENT;

	return (struct operand){ &section->graph->tensors[at],
		gradient ? &value->gradient : &value->versions, gradient };
}

static struct tensor_lay parameter_gradient_lay(const struct context *c,
    enum model_parameter parameter)
{
	struct tensor_lay lay = { 0 };

	if (c->strategy->mesh.size[MESH_TP] > 1)
		lay.on[MESH_TP] = c->strategy->over_tp[parameter];
	return lay;
}

static tr_status backward_op(struct context *c, struct section_state *section,
    const struct graph_op *op, unsigned g, struct tr_error *error)
{
	const struct op_grad *grad = &op_signature(op->kind)->grads[g];
	const struct graph_tensor *of = &section->graph->tensors[op->in[grad->of]];
	struct value *value = &section->values[op->in[grad->of]];
	bool parameter = of->role == TENSOR_PARAMETER;
	struct result result = { .tensor = of,
		.deferred = parameter,
		.wanted = { true, true, true } };
	struct tensor_lay want = parameter ? parameter_gradient_lay(c, of->parameter)
	                                   : tensor_lay_of_gradient(&value->versions.of[0]);
	struct operand operands[OP_INPUTS_MAX] = { 0 };
	struct sharded_op *sharded = NULL;

	memcpy(result.as, want.on, sizeof(result.as));
	for (unsigned i = 0; i < op_signature(grad->kind)->inputs; i++)
		operands[i] = source(section, op, grad->from[i]);
	tr_status st = run_op(c, grad->kind, operands, &result, &sharded, error);
	if (st != TR_OK)
		return st;
	assert(sharded != NULL);
	sharded->grad = (uint8_t)g;
	versions_add(parameter ? &c->parameter_gradients[of->parameter] : &value->gradient,
	    &sharded->out);
	return TR_OK;
}

static tr_status backward(struct context *c, struct section_state *section, struct tr_error *error)
{
	const struct graph_section *graph = section->graph;

	c->phase = PHASE_BACKWARD;
	for (uint8_t i = 0; i < graph->tensor_count; i++) {
		struct versions *versions = &section->values[i].versions;
		if (c->strategy->gather_again)
			versions->count = 1;
		versions->from_forward = versions->count;
		memset(versions->kept, 0, sizeof(versions->kept));
	}
	for (int i = graph->op_count - 1; i >= 0; i--) {
		const struct graph_op *op = &graph->ops[i];
		const struct op_signature *signature = op_signature(op->kind);
		c->op = (uint8_t)i;
		if (signature->grad_count == 0)
			continue;
		/* The first gradient is that of the last op whose result leaves the section. */
		if (section->values[op->out].gradient.count == 0 && op->kind != OP_STATISTICS) {
			struct tensor_lay lay = tensor_lay_of_gradient(
			    &section->values[op->out].versions.of[0]);
			versions_add(&section->values[op->out].gradient, &lay);
		}
		if (op->kind != OP_STATISTICS)
			collect_gradient(c, &graph->tensors[op->out], &section->values[op->out]);
		for (unsigned g = 0; g < signature->grad_count; g++) {
			tr_status st = backward_op(c, section, op, g, error);
			if (st != TR_OK)
				return st;
		}
	}
	c->op = GRAPH_NO_OP;
	if (graph->stream_in != GRAPH_NO_TENSOR)
		collect_gradient(c, &graph->tensors[graph->stream_in],
		    &section->values[graph->stream_in]);
	return TR_OK;
}

/* Does an activation function make it? Then the backward pass makes it again, from what that has read. */
static bool made_again(const struct graph_section *graph, uint8_t tensor)
{
	for (uint8_t i = 0; i < graph->op_count; i++)
		if (graph->ops[i].out == tensor)
			return graph->ops[i].kind == OP_GELU || graph->ops[i].kind == OP_SWIGLU;
	return false;
}

/* What the backward pass has read of the forward one. */
static uint64_t kept_bytes(const struct context *c, const struct section_state *section)
{
	uint64_t bytes = 0;

	for (uint8_t i = 0; i < section->graph->tensor_count; i++) {
		const struct graph_tensor *tensor = &section->graph->tensors[i];
		const struct versions *versions = &section->values[i].versions;
		if (tensor->role == TENSOR_PARAMETER || made_again(section->graph, i))
			continue;
		for (unsigned v = 0; v < versions->from_forward; v++)
			if (versions->kept[v])
				bytes += bytes_on_axis(c, tensor_bytes(c, tensor, false),
				    &versions->of[v], MESH_AXES);
	}
	return bytes;
}

/* What owners have made new of each parameter whose gradient was summed, from each piece's first one to who does not own it. Pieces are of a flat array: nothing has to divide. */
static void give_new_parameters(struct context *c)
{
	uint32_t owners = c->strategy->zero_owners, sums = c->step.count;
	bool given = owners > 0 && owners < c->strategy->mesh.size[MESH_DP];
	const char *last = NULL;

	for (uint32_t i = 0; i < sums && given; i++) {
		struct collective_entry entry = c->step.entries[i];
		if (!entry.gradient || (entry.axis != MESH_DP && !entry.with_dp) ||
		    entry.tensor == last)
			continue;
		last = entry.tensor;
		entry.gradient = entry.with_dp = false;
		entry.axis = MESH_DP;
		entry.from = tensor_placement_split(0);
		entry.collective = COLLECTIVE_SEND_RECEIVE;
		entry.owners = owners;
		entry.bytes = entry.bytes / c->strategy->gradient_bytes * c->strategy->value_bytes;
		assert(c->step.count < COLLECTIVE_LOG_MAX);
		c->step.entries[c->step.count++] = entry;
	}
}

/* Gradients of parameters, once for all microbatches; then the new parameters. */
static void step(struct context *c)
{
	c->phase = PHASE_STEP;
	for (int i = 0; i < MODEL_PARAMETERS; i++) {
		enum model_parameter parameter = (enum model_parameter)i;
		struct versions *gradients = &c->parameter_gradients[parameter];
		const enum model_dim *dims = layer_graph_parameter_dims(parameter);
		struct graph_tensor tensor = { layer_graph_parameter_name(parameter),
			TENSOR_PARAMETER, PIN_NONE, { dims[0], dims[1], dims[2] }, parameter };
		struct tensor_lay want = parameter_gradient_lay(c, parameter);
		bool shared = parameter == PARAMETER_TABLE && !c->shape->untied &&
		    c->strategy->mesh.size[MESH_PP] > 1;
		c->section = layer_graph_parameter_section(parameter);
		for (unsigned k = 0; k < gradients->count; k++) {
			if (shared) /* each of its two stages has a summand */
				gradients->of[k].on[MESH_PP] = tensor_placement_partial(PARTIAL_SUM);
			record(c, &tensor, true, tensor_bytes(c, &tensor, true), &gradients->of[k],
			    &want);
		}
	}
	give_new_parameters(c);
	for (uint32_t i = 0; i < c->step.count; i++) {
		assert(c->log->count < COLLECTIVE_LOG_MAX);
		c->log->entries[c->log->count++] = c->step.entries[i];
	}
}

tr_status propagate(const struct model_config *shape, const struct strategy *strategy,
    struct collective_log *log, struct sharded_program *program, struct tr_error *error)
{
	struct collective_log made = { 0 };
	struct sharded_program ops = { 0 };
	struct context c = { .shape = shape, .strategy = strategy, .log = &made, .program = &ops };
	tr_status st = strategy_check(shape, strategy, error);

	for (int i = 0; i < SECTIONS && st == TR_OK; i++) {
		c.section = (enum graph_section_kind)i;
		c.sections[i].graph = layer_graph_section(shape, c.section);
		st = forward(&c, &c.sections[i], error);
	}
	for (int i = SECTIONS - 1; i >= 0 && st == TR_OK; i--) {
		c.section = (enum graph_section_kind)i;
		st = backward(&c, &c.sections[i], error);
		made.kept_bytes[i] = kept_bytes(&c, &c.sections[i]);
	}
	if (st != TR_OK)
		return st;
	step(&c);
	*log = made;
	if (program != NULL)
		*program = ops;
	return TR_OK;
}
