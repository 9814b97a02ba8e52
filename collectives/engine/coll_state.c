/* State as a program declares it, and what may not write into it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/coll.h"
#include "collectives/engine/coll_group.h"

static struct coll_tensor *one_more(struct tr_group *group)
{
	if (group->tensor_count < group->tensor_capacity)
		return &group->tensors[group->tensor_count];
	unsigned capacity = group->tensor_capacity > 0 ? 2 * group->tensor_capacity : 16;
	struct coll_tensor *tensors = realloc(group->tensors, capacity * sizeof(*tensors));
	if (tensors == NULL)
		return NULL;
	group->tensors = tensors;
	group->tensor_capacity = capacity;
	return &tensors[group->tensor_count];
}

/* Two of a name, or a byte that is in two of them, could not be told apart where they arrive. */
static tr_status check_apart(const struct tr_group *group, const char *name, const void *data,
    size_t bytes, struct tr_error *error)
{
	uintptr_t base = (uintptr_t)data;
	for (unsigned i = 0; i < group->tensor_count; i++) {
		const struct coll_tensor *other = &group->tensors[i];
		if (strcmp(other->name, name) == 0)
			return tr_error_set(error, TR_EINVAL,
			    "state \"%s\": there is one of this name", name);
		if (bytes > 0 && other->bytes > 0 && base < other->base + other->bytes &&
		    other->base < base + bytes)
			return tr_error_set(error, TR_EINVAL,
			    "state \"%s\": shares memory with the state \"%s\"", name, other->name);
	}
	return TR_OK;
}

/* Pieces of a unit count as here together, so they come one after the other. `gradual`: 1 + unit, 0: of none. */
static tr_status check_unit(const struct tr_group *group, const char *name, uint32_t gradual,
    struct tr_error *error)
{
	if (gradual == 0)
		return TR_OK;
	for (unsigned i = 0; i + 1 < group->tensor_count; i++)
		if (group->tensors[i].gradual == gradual && group->tensors[i + 1].gradual != gradual)
			return tr_error_set(error, TR_EINVAL,
			    "state \"%s\": unit %u: \"%s\" of it was followed by others; declare "
			    "its pieces one after the other",
			    name, gradual - 1, group->tensors[i].name);
	return TR_OK;
}

static tr_status add(tr_group *group, const char *name, void *data, size_t bytes, uint32_t gradual,
    struct tr_error *error)
{
	uint32_t arena;
	uint64_t offset;
	tr_status st = coll_own(group, error);
	if (st != TR_OK)
		return st;
	if (name == NULL || name[0] == '\0' || strlen(name) >= TR_STATE_NAME_MAX)
		return tr_error_set(error, TR_EINVAL, "state: a name has 1 to %d bytes",
		    TR_STATE_NAME_MAX - 1);
	if (group->ready)
		return tr_error_set(error, TR_EINVAL, "state \"%s\": added after tr_state_ready",
		    name);
	if (group->tensor_count == TR_STATE_TENSORS_MAX)
		return tr_error_set(error, TR_ELIMIT, "state \"%s\": at most %d pieces", name,
		    TR_STATE_TENSORS_MAX);
	if (channel_worker_locate(group->channel, data, bytes, &arena, &offset) != TR_OK)
		return tr_error_set(error, TR_EINVAL, "%s: the memory is not from tr_alloc", name);
	st = check_apart(group, name, data, bytes, error);
	if (st == TR_OK)
		st = check_unit(group, name, gradual, error);
	if (st != TR_OK)
		return st;
	struct coll_tensor *tensor = one_more(group);
	if (tensor == NULL)
		return tr_error_set(error, TR_ENOMEM, "state \"%s\": out of memory", name);
	st = channel_worker_state(group->channel, name, arena, offset, bytes, gradual, error);
	if (st != TR_OK)
		return st;
	*tensor = (struct coll_tensor){ .base = (uintptr_t)data,
		.bytes = bytes,
		.gradual = gradual };
	memcpy(tensor->name, name, strlen(name) + 1);
	group->tensor_count++;
	return TR_OK;
}

tr_status tr_state_add(tr_group *group, const char *name, void *data, size_t bytes,
    struct tr_error *error)
{
	return add(group, name, data, bytes, 0, error);
}

tr_status tr_state_add_gradual(tr_group *group, const char *name, void *data, size_t bytes,
    uint32_t unit, struct tr_error *error)
{
	if (unit == UINT32_MAX)
		return tr_error_set(error, TR_EINVAL, "state \"%s\": unit: allowed: below 2^32 - 1",
		    name != NULL ? name : "");
	return add(group, name, data, bytes, unit + 1, error);
}

static int by_base(const void *a, const void *b)
{
	const struct coll_tensor *x = a, *y = b;
	return (x->base > y->base) - (x->base < y->base);
}

static void sort_tensors(struct tr_group *group)
{
	uintptr_t reach = 0;
	if (group->tensor_count > 0)
		qsort(group->tensors, group->tensor_count, sizeof(*group->tensors), by_base);
	for (unsigned i = 0; i < group->tensor_count; i++) {
		struct coll_tensor *tensor = &group->tensors[i];
		if (tensor->base + tensor->bytes > reach)
			reach = tensor->base + tensor->bytes;
		tensor->reach = reach;
	}
}

tr_status tr_state_ready(tr_group *group, uint64_t round, struct tr_error *error)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_READY,
		.round = round,
		.count = group->op_deadline_ms };
	tr_status st = coll_own(group, error);
	if (st != TR_OK)
		return st;
	if (group->ready)
		return tr_error_set(error, TR_EINVAL, "the state was declared before");
	st = channel_worker_call(group->channel, &s, &answer, error);
	if (st != TR_OK)
		return st;
	sort_tensors(group);
	group->ready = true;
	return TR_OK;
}

tr_status tr_state_receive(tr_group *group, struct tr_error *error)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_RECEIVE_STATE };
	tr_status st = coll_own(group, error);
	return st == TR_OK ? channel_worker_call(group->channel, &s, &answer, error) : st;
}

tr_status tr_state_receive_for(tr_group *group, uint32_t milliseconds,
    struct tr_state_progress *progress, struct tr_error *error)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_RECEIVE_STATE,
		.count = (uint64_t)milliseconds + 1 };
	tr_status st = coll_own(group, error);
	if (st == TR_OK)
		st = channel_worker_call(group->channel, &s, &answer, error);
	if (st != TR_OK)
		return st;
	*progress = answer.state;
	return progress->whole ? TR_OK
	                       : tr_error_set(error, TR_ETIMEDOUT,
	                             "%" PRIu64 " of %" PRIu64 " bytes of the state are missing",
	                             progress->missing, progress->bytes);
}

static bool touches(const struct coll_tensor *tensor, const struct coll_use *use)
{
	struct strided layout;
	if (use->base >= tensor->base + tensor->bytes ||
	    strided_init(&layout, NULL, tensor->bytes, 1, "", NULL) != TR_OK)
		return false;
	return strided_overlap(&(struct strided_place){ &layout, tensor->base, 1 },
	    &(struct strided_place){ &use->layout, use->base, use->element_bytes });
}

const struct coll_tensor *coll_state_touched(const struct tr_group *group,
    const struct coll_use *use)
{
	uintptr_t end = use->base + use->layout.span * use->element_bytes;
	unsigned below = 0,
	         above = group->tensor_count; /* those before `below` begin before `end` */
	while (below < above) {
		unsigned middle = below + (above - below) / 2;
		if (group->tensors[middle].base < end)
			below = middle + 1;
		else
			above = middle;
	}
	while (below > 0 && group->tensors[below - 1].reach > use->base)
		if (touches(&group->tensors[--below], use))
			return &group->tensors[below];
	return NULL;
}
