/* Ops as a program submits them: what is wrong with one is said here, before it goes into the channel. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/coll.h"
#include "collectives/core/bits.h"
#include "collectives/core/op.h"
#include "collectives/core/scope.h"
#include "collectives/engine/coll_group.h"
#include "collectives/engine/sized.h"
#include "collectives/kernels/reduce.h"

/* What an op reads and writes, after the collective's own rules. */
struct op_plan {
	struct tr_op op;
	size_t element_bytes;
	size_t own_elements; /* of the caller's block; collectives of blocks */
	uint64_t input_elements, output_elements;
	bool has_input; /* apart from the output */
	bool has_output;
};

/* ---- what it says ---- */

/* Whether this process has a round that the op can be of. */
static tr_status check_open(const struct tr_group *group, const char *call, uint32_t tag,
    struct tr_error *error)
{
	tr_status st = coll_own(group, error);
	if (st != TR_OK || group->open)
		return st;
	return tr_error_set(error, TR_EINVAL, "%s: op %" PRIu32 ": no round is begun", call, tag);
}

/* Among how many members the op is, and which of them this one is; its scope is right. */
static unsigned members_of(const struct tr_group *group, const struct tr_op *op, unsigned *index)
{
	*index = group->index;
	if (op->scope.count == 0)
		return group->contributors;
	for (*index = 0; op->scope.members[*index] != group->index;)
		++*index;
	return op->scope.count;
}

/* What the engine would only find when the call has returned. */
static tr_status check_as_engine(const struct tr_group *group, const struct tr_op *op,
    struct tr_error *error)
{
	unsigned index, members = members_of(group, op, &index);
	const struct group_submit submit = { .tag = op->tag,
		.collective = op->collective,
		.dtype = op->dtype,
		.reduce = op->reduce,
		.codec = op->codec,
		.algorithm = op->algorithm,
		.root = op->root,
		.residual = op->residual,
		.residual_next = op->residual_next };
	return op_check(&submit, members, index, error);
}

static tr_status check_values(const struct tr_group *group, const struct tr_op *op,
    struct tr_error *error)
{
	if ((op->flags & ~(unsigned)(TR_CONTRIBUTE | TR_THEN_WAIT | TR_IN_TURN)) != 0 ||
	    op->count > SIZE_MAX / 8)
		return tr_error_set(error, TR_EINVAL, "op %" PRIu32 ": flags %u, %zu elements",
		    op->tag, op->flags, op->count);
	struct scope scope;
	tr_status st = scope_check(&op->scope, op->tag, group->contributors, group->index, &scope,
	    error);
	if (st != TR_OK)
		return st;
	bool contributes = (op->flags & TR_CONTRIBUTE) != 0;
	if (!contributes && op->scope.count > 0)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": who is in a scope contributes", op->tag);
	if (!contributes && group->index < group->contributors)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": this peer is contributor %u of %u (struct tr_round), so its "
		    "ops have TR_CONTRIBUTE",
		    op->tag, group->index, group->contributors);
	st = check_as_engine(group, op, error);
	if (st != TR_OK)
		return st;
	if (group->op_count >= TR_ROUND_OPS_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "op %" PRIu32 ": at most %d ops in a round that are not released", op->tag,
		    TR_ROUND_OPS_MAX);
	if (tag_set_has(&group->released, op->tag))
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 " was released in this round, in which its tag cannot be used "
		    "again",
		    op->tag);
	return TR_OK;
}

/* What is not read or written by this member is forgotten here. */
static void make_plan(const struct tr_group *group, const struct tr_op *op, struct op_plan *plan)
{
	size_t first;
	bool contributes = (op->flags & TR_CONTRIBUTE) != 0;
	unsigned index, contributors = members_of(group, op, &index);
	*plan = (struct op_plan){ .op = *op,
		.element_bytes = reduce_element_bytes(op->dtype),
		.input_elements = op->count,
		.output_elements = op->count,
		.has_input = op->input != NULL && contributes,
		.has_output = true };
	tr_block_range(op->count, contributors, index, &first, &plan->own_elements);
	switch (op->collective) {
	case TR_ALL_REDUCE:
		break;
	case TR_REDUCE_SCATTER:
		if (plan->has_input || !contributes)
			plan->output_elements = plan->own_elements;
		break;
	case TR_ALL_GATHER:
		plan->input_elements = plan->own_elements;
		break;
	case TR_BROADCAST:
		plan->has_input = plan->has_input && op->root == index;
		break;
	case TR_RECV:
		plan->has_input = false;
		break;
	case TR_BARRIER:
		plan->op.count = plan->output_elements = 0;
		plan->has_input = plan->has_output = false;
		break;
	case TR_SEND:
		plan->has_output = false;
		plan->has_input = true;
		if (op->input == NULL) { /* "in place": from where the others have their output */
			plan->op.input = op->output;
			plan->op.input_block = op->output_block;
		}
		break;
	}
	if (!plan->has_output) {
		plan->op.output = NULL;
		plan->op.output_block = NULL;
	}
}

/* ---- memory ---- */

static tr_status locate(const struct tr_group *group, const struct op_plan *plan, const void *data,
    const struct strided *layout, uint32_t *arena, uint64_t *offset, struct tr_error *error)
{
	size_t bytes = (size_t)layout->span * plan->element_bytes;
	if (bytes == 0 && data == NULL)
		return TR_OK;
	if (channel_worker_locate(group->channel, data, bytes, arena, offset) != TR_OK)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": the memory is not from tr_alloc", plan->op.tag);
	if (*offset % plan->element_bytes != 0)
		return tr_error_set(error, TR_EINVAL, "op %" PRIu32 ": the data is misaligned",
		    plan->op.tag);
	return TR_OK;
}

static uintptr_t use_end(const struct coll_use *use)
{
	return use->base + use->layout.span * use->element_bytes;
}

static bool shared(const struct coll_use *a, const struct coll_use *b)
{
	if (!(a->writes || b->writes) || a->base >= use_end(b) || b->base >= use_end(a))
		return false;
	return strided_overlap(&(struct strided_place){ &a->layout, a->base, a->element_bytes },
	    &(struct strided_place){ &b->layout, b->base, b->element_bytes });
}

static tr_status check_own(const struct tr_group *group, const struct coll_use *uses,
    unsigned count, struct tr_error *error)
{
	for (unsigned i = 0; i < count; i++) {
		const struct coll_tensor *state = uses[i].writes
		    ? coll_state_touched(group, &uses[i])
		    : NULL;
		if (state != NULL)
			return tr_error_set(error, TR_EINVAL,
			    "op %" PRIu32 ": its %s is in the state \"%s\", which must not change "
			    "before the commit",
			    uses[i].tag, uses[i].what, state->name);
		for (unsigned k = 0; k < i; k++)
			if (shared(&uses[i], &uses[k]))
				return tr_error_set(error, TR_EINVAL,
				    "op %" PRIu32 ": %s and %s share memory%s", uses[i].tag,
				    uses[i].what, uses[k].what,
				    strcmp(uses[i].what, "input") == 0
				        ? "; in place is without an input"
				        : "");
	}
	return TR_OK;
}

static void note_use(struct tr_group *group, const struct coll_use *use)
{
	struct coll_range *used = &group->used;
	if (group->use_count == 0)
		*used = (struct coll_range){ UINTPTR_MAX, 0, use->tag, use->tag };
	if (use->layout.span > 0 && use->base < used->low)
		used->low = use->base;
	if (use->layout.span > 0 && use_end(use) > used->high)
		used->high = use_end(use);
	if (use->tag < used->tag_low)
		used->tag_low = use->tag;
	if (use->tag > used->tag_high)
		used->tag_high = use->tag;
	group->uses[group->use_count++] = *use;
}

/* As it is where ops come in a row, up or down. */
static bool beside_all(const struct tr_group *group, const struct coll_use *uses, unsigned count)
{
	const struct coll_range *used = &group->used;
	if (group->use_count > 0 && uses[0].tag >= used->tag_low && uses[0].tag <= used->tag_high)
		return false;
	for (unsigned i = 0; group->use_count > 0 && i < count; i++)
		if (uses[i].base < used->high && use_end(&uses[i]) > used->low)
			return false;
	return true;
}

/* Against all ops of the round; they are few thousand at most, and most are told apart by their first byte. */
static tr_status check_uses(const struct tr_group *group, const struct coll_use *uses,
    unsigned count, struct tr_error *error)
{
	unsigned others = beside_all(group, uses, count) ? 0 : group->use_count;
	for (unsigned i = 0; i < others; i++) {
		const struct coll_use *other = &group->uses[i];
		if (other->tag == uses[0].tag)
			return tr_error_set(error, TR_EEXIST,
			    "op %" PRIu32 " was submitted before in this round", uses[0].tag);
		for (unsigned k = 0; k < count; k++)
			if (shared(&uses[k], other))
				return tr_error_set(error, TR_EINVAL,
				    "op %" PRIu32 " and op %" PRIu32 " of this round share memory",
				    uses[0].tag, other->tag);
	}
	return check_own(group, uses, count, error);
}

static bool reserve_uses(struct tr_group *group)
{
	if (group->use_count + COLL_USES_MAX <= group->use_capacity)
		return true;
	unsigned capacity = group->use_capacity > 0 ? 2 * group->use_capacity : 32;
	struct coll_use *uses = realloc(group->uses, capacity * sizeof(*uses));
	if (uses == NULL)
		return false;
	group->uses = uses;
	group->use_capacity = capacity;
	return true;
}

struct op_uses {
	struct coll_use all[COLL_USES_MAX];
	unsigned count;
	unsigned input; /* which of them */
};

static tr_status add_use(struct op_uses *uses, const struct coll_use *use, const void *base,
    const struct tr_block *block, uint64_t elements, struct tr_error *error)
{
	struct coll_use *made = &uses->all[uses->count++];
	char what[32];
	what[0] = '\0'; /* what lies in a row cannot be wrong */
	if (block != NULL)
		(void)snprintf(what, sizeof(what), "op %" PRIu32, use->tag);
	*made = *use;
	made->base = (uintptr_t)base;
	return strided_init(&made->layout, block, elements, use->element_bytes, what, error);
}

/* Notes them with the group once the op is in the channel. */
static tr_status plan_uses(struct tr_group *group, const struct op_plan *plan, struct op_uses *uses,
    struct tr_error *error)
{
	const struct tr_op *op = &plan->op;
	struct coll_use use = { .tag = op->tag,
		.some = op->scope.count > 0 || op->collective == TR_SEND ||
		    op->collective == TR_RECV,
		.element_bytes = plan->element_bytes };
	tr_status st = TR_OK;
	uses->count = 0;
	if (plan->has_output || !plan->has_input) { /* of a barrier: nothing, but its tag */
		use.what = "output";
		use.writes = true;
		st = add_use(uses, &use, op->output, op->output_block, plan->output_elements, error);
	}
	if (st == TR_OK && plan->has_input) {
		use.what = "input";
		use.writes = false;
		uses->input = uses->count;
		st = add_use(uses, &use, op->input, op->input_block, plan->input_elements, error);
	}
	use.element_bytes = sizeof(float);
	if (st == TR_OK && op->residual != NULL) {
		use.what = "residual";
		use.writes = false;
		st = add_use(uses, &use, op->residual, NULL, op->count, error);
	}
	if (st == TR_OK && op->residual_next != NULL) {
		use.what = "residual_next";
		use.writes = true;
		st = add_use(uses, &use, op->residual_next, NULL, op->count, error);
	}
	if (st == TR_OK && !reserve_uses(group))
		st = tr_error_set(error, TR_ENOMEM, "op %" PRIu32 ": out of memory", op->tag);
	return st == TR_OK ? check_uses(group, uses->all, uses->count, error) : st;
}

/* ---- into the channel ---- */

static tr_status put_residual(const struct tr_group *group, const struct op_plan *plan,
    const void *residual, struct channel_place *place, struct tr_error *error)
{
	if (residual == NULL)
		return TR_OK;
	place->present = 1;
	if (channel_worker_locate(group->channel, residual, plan->op.count * sizeof(float),
	        &place->arena, &place->offset) != TR_OK ||
	    place->offset % sizeof(float) != 0)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": a residual is not %zu floats from tr_alloc", plan->op.tag,
		    plan->op.count);
	return TR_OK;
}

static void put_block(struct channel_block *to, const struct tr_block *from)
{
	if (from == NULL)
		return;
	to->present = 1;
	to->rank = from->rank;
	for (unsigned i = 0; i < from->rank; i++) {
		to->extents[i] = from->extents[i];
		to->strides[i] = from->strides[i];
	}
}

static tr_status write_message(const struct tr_group *group, const struct op_plan *plan,
    const struct op_uses *uses, struct coll_message *message, struct tr_error *error)
{
	const struct tr_op *op = &plan->op;
	struct channel_submission *s = &message->head;
	struct channel_extra *extra = &message->extra;
	tr_status st = TR_OK;
	*s = (struct channel_submission){ .call = CHANNEL_SUBMIT,
		.tag = op->tag,
		.count = op->count,
		.dtype = (uint8_t)op->dtype,
		.reduce = (uint8_t)op->reduce,
		.contribute = (op->flags & TR_CONTRIBUTE) != 0,
		.collective = (uint8_t)op->collective,
		.codec = (uint8_t)op->codec,
		.algorithm = (uint8_t)op->algorithm,
		.root = op->root };
	s->extended = plan->has_input || op->output_block != NULL || op->residual != NULL ||
	    op->residual_next != NULL || op->scope.count > 0;
	if (plan->has_output)
		st = locate(group, plan, op->output, &uses->all[0].layout, &s->arena, &s->offset,
		    error);
	if (st != TR_OK || s->extended == 0)
		return st;
	memset(extra, 0, sizeof(*extra));
	extra->own_elements = plan->own_elements;
	put_block(&extra->output_block, op->output_block);
	if (plan->has_input) {
		extra->input.present = 1;
		put_block(&extra->input_block, op->input_block);
		st = locate(group, plan, op->input, &uses->all[uses->input].layout,
		    &extra->input.arena, &extra->input.offset, error);
		if (st != TR_OK)
			return st;
	}
	extra->beta = op->beta;
	extra->scope_count = op->scope.count;
	for (uint32_t i = 0; i < op->scope.count; i++)
		bits_set(extra->scope, op->scope.members[i]);
	st = put_residual(group, plan, op->residual, &extra->residual, error);
	return st == TR_OK
	    ? put_residual(group, plan, op->residual_next, &extra->residual_next, error)
	    : st;
}

static tr_status tell_engine(const struct tr_group *group, const struct coll_message *message,
    bool then_wait, struct tr_error *error)
{
	const struct channel_extra *extra = message->head.extended != 0 ? &message->extra : NULL;
	return then_wait ? channel_worker_note(group->channel, &message->head, extra, error)
	                 : channel_worker_submit(group->channel, &message->head, extra, error);
}

tr_status tr_submit(tr_group *group, const struct tr_op *op, struct tr_error *error)
{
	struct tr_op known;
	struct op_plan plan;
	struct op_uses uses;
	struct coll_message other, *message = &other;
	tr_status st = sized_read("op", op, COLL_OP_LEAST, &known, sizeof(known), error);
	if (st == TR_OK)
		st = check_open(group, "submit", known.tag, error);
	if (st == TR_OK)
		st = check_values(group, &known, error);
	if (st != TR_OK)
		return st;
	bool in_turn = (known.flags & TR_IN_TURN) != 0;
	if (in_turn)
		message = &group->turn.message;
	make_plan(group, &known, &plan);
	st = in_turn ? coll_turn_check(group, &known, error) : TR_OK;
	if (st == TR_OK)
		st = plan_uses(group, &plan, &uses, error);
	if (st == TR_OK)
		st = write_message(group, &plan, &uses, message, error);
	in_turn = in_turn && st == TR_OK;
	if (in_turn)
		st = coll_turn_submit(group, &known, error);
	bool here = in_turn && group->turn.here;
	if (st == TR_OK && !here)
		st = tell_engine(group, message, (known.flags & TR_THEN_WAIT) != 0, error);
	if (st != TR_OK && in_turn)
		coll_turn_waited(group, known.tag); /* it is not there */
	if (st != TR_OK)
		return st;
	for (unsigned i = 0; i < uses.count; i++) {
		uses.all[i].here = here;
		note_use(group, &uses.all[i]);
	}
	group->op_count++;
	if (channel_worker_abandons(group->channel) != atomic_load(&group->abandons))
		return tr_error_set(error, TR_ERESTART, "the round was abandoned");
	return TR_OK;
}

static struct coll_use *use_of(const struct tr_group *group, uint32_t tag)
{
	for (unsigned i = 0; i < group->use_count; i++)
		if (group->uses[i].tag == tag)
			return &group->uses[i];
	return NULL;
}

bool coll_op_here(const struct tr_group *group, uint32_t tag)
{
	const struct coll_use *use = group->open ? use_of(group, tag) : NULL;
	return use != NULL && use->here;
}

tr_status coll_op_pass(struct tr_group *group, struct tr_error *error)
{
	tr_status st = tell_engine(group, &group->turn.message, false, error);
	for (unsigned i = 0; i < group->use_count; i++)
		if (group->uses[i].tag == group->turn.op.tag)
			group->uses[i].here = false;
	return st;
}

tr_status tr_allreduce(tr_group *group, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    enum tr_reduce reduce, unsigned flags, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.output = data;
	op.count = count;
	op.dtype = dtype;
	op.reduce = reduce;
	op.flags = flags;
	return tr_submit(group, &op, error);
}

/* ---- releasing ---- */

static void forget_uses(struct tr_group *group, uint32_t tag)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < group->use_count; i++)
		if (group->uses[i].tag != tag)
			group->uses[kept++] = group->uses[i];
	group->use_count = kept;
}

tr_status tr_release(tr_group *group, uint32_t tag, struct tr_error *error)
{
	const struct channel_submission s = { .call = CHANNEL_RELEASE, .tag = tag };
	tr_status st = check_open(group, "release", tag, error);
	if (st != TR_OK)
		return st;
	const struct coll_use *use = use_of(group, tag);
	if (use == NULL)
		return tr_error_set(error, TR_EINVAL, "release: op %" PRIu32 " %s in this round",
		    tag,
		    tag_set_has(&group->released, tag) ? "was released before"
		                                       : "was not submitted");
	if (!use->some)
		return tr_error_set(error, TR_EINVAL,
		    "release: op %" PRIu32
		    " is of all members; only ops in a scope, sends and receives can be released",
		    tag);
	if (coll_turn_awaits(group, tag))
		return tr_error_set(error, TR_EINVAL, "release: op %" PRIu32 " was not waited for",
		    tag);
	if (tag_set_add(&group->released, tag, 0) != TR_OK)
		return tr_error_set(error, TR_ENOMEM, "release: out of memory");
	st = use->here ? TR_OK : channel_worker_note(group->channel, &s, NULL, error);
	if (st != TR_OK)
		return st;
	forget_uses(group, tag);
	group->op_count--;
	if (channel_worker_abandons(group->channel) != atomic_load(&group->abandons))
		return tr_error_set(error, TR_ERESTART, "the round was abandoned");
	return TR_OK;
}

/* ---- the short ways ---- */

/* All but the collective and its memory as in TR_OP_INIT. */
static tr_status submit_short(tr_group *group, uint32_t tag, enum tr_collective collective,
    const void *input, void *output, size_t count, enum tr_dtype dtype, enum tr_reduce reduce,
    unsigned root, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.collective = collective;
	op.input = input;
	op.output = output;
	op.count = count;
	op.dtype = dtype;
	op.reduce = reduce;
	op.root = root;
	op.flags = group->index < group->contributors ? TR_CONTRIBUTE : 0;
	return tr_submit(group, &op, error);
}

tr_status tr_reduce_scatter(tr_group *group, uint32_t tag, const void *input, void *output,
    size_t count, enum tr_dtype dtype, enum tr_reduce reduce, struct tr_error *error)
{
	return submit_short(group, tag, TR_REDUCE_SCATTER, input, output, count, dtype, reduce, 0,
	    error);
}

tr_status tr_allgather(tr_group *group, uint32_t tag, const void *input, void *output, size_t count,
    enum tr_dtype dtype, struct tr_error *error)
{
	return submit_short(group, tag, TR_ALL_GATHER, input, output, count, dtype, TR_SUM, 0,
	    error);
}

tr_status tr_broadcast(tr_group *group, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    unsigned root, struct tr_error *error)
{
	return submit_short(group, tag, TR_BROADCAST, NULL, data, count, dtype, TR_SUM, root, error);
}

tr_status tr_barrier(tr_group *group, uint32_t tag, struct tr_error *error)
{
	return submit_short(group, tag, TR_BARRIER, NULL, NULL, 0, TR_F32, TR_SUM, 0, error);
}

tr_status tr_send(tr_group *group, uint32_t tag, const void *data, size_t count,
    enum tr_dtype dtype, unsigned to, struct tr_error *error)
{
	return submit_short(group, tag, TR_SEND, data, NULL, count, dtype, TR_SUM, to, error);
}

tr_status tr_recv(tr_group *group, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    unsigned from, struct tr_error *error)
{
	return submit_short(group, tag, TR_RECV, NULL, data, count, dtype, TR_SUM, from, error);
}
