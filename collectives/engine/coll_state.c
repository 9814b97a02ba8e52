/* State as a program declares it, and what may not write into it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/coll.h"
#include "collectives/engine/coll_group.h"
#include "common/digest.h"

static bool make_state(struct tr_group *group)
{
	if (group->state == NULL) /* large; what is not used of it has no memory */
		group->state = calloc(1, sizeof(*group->state));
	return group->state != NULL;
}

void coll_state_finish(struct tr_group *group)
{
	if (group->state != NULL)
		tag_set_finish(&group->state->units);
	free(group->state);
}

/* Its place in `names`, or the free one where it belongs. */
static unsigned *find_name(struct coll_state *state, const char *name)
{
	unsigned at = tr_digest_of(name, strlen(name)).low % COLL_STATE_NAMES;
	while (state->names[at] != 0 && strcmp(state->tensors[state->names[at] - 1].name, name) != 0)
		at = (at + 1) % COLL_STATE_NAMES;
	return &state->names[at];
}

/* How many of `by_base` begin before `end`. */
static unsigned count_before(const struct coll_state *state, uintptr_t end)
{
	unsigned below = 0, above = state->by_base_count;
	while (below < above) {
		unsigned middle = below + (above - below) / 2;
		if (state->tensors[state->by_base[middle]].base < end)
			below = middle + 1;
		else
			above = middle;
	}
	return below;
}

/* Two of a name, or a byte that is in two of them, could not be told apart where they arrive. */
static tr_status check_apart(struct coll_state *state, const char *name, const void *data,
    size_t bytes, struct tr_error *error)
{
	uintptr_t base = (uintptr_t)data;
	if (*find_name(state, name) != 0)
		return tr_error_set(error, TR_EINVAL, "state \"%s\": there is one of this name",
		    name);
	unsigned before = count_before(state, base + bytes);
	if (bytes == 0 || before == 0)
		return TR_OK;
	const struct coll_tensor *last = &state->tensors[state->by_base[before - 1]];
	if (last->base + last->bytes <= base)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL, "state \"%s\": shares memory with the state \"%s\"",
	    name, last->name);
}

/* Pieces of a unit count as here together, so they come one after the other. `gradual`: 1 + unit, 0: of none. */
static tr_status check_unit(const struct coll_state *state, const char *name, uint32_t gradual,
    struct tr_error *error)
{
	bool goes_on = state->count > 0 && state->tensors[state->count - 1].gradual == gradual;
	if (gradual == 0 || goes_on || !tag_set_has(&state->units, gradual))
		return TR_OK;
	unsigned last = state->count;
	while (last > 0 && state->tensors[--last].gradual != gradual)
		;
	return tr_error_set(error, TR_EINVAL,
	    "state \"%s\": unit %u: \"%s\" of it was followed by others; declare its pieces one "
	    "after the other",
	    name, gradual - 1, state->tensors[last].name);
}

static void insert(struct coll_state *state, const char *name, const void *data, size_t bytes,
    uint32_t gradual)
{
	struct coll_tensor *tensor = &state->tensors[state->count];
	*tensor = (struct coll_tensor){ .base = (uintptr_t)data,
		.bytes = bytes,
		.gradual = gradual };
	memcpy(tensor->name, name, strlen(name) + 1);
	if (bytes > 0) {
		unsigned at = count_before(state, tensor->base);
		memmove(&state->by_base[at + 1], &state->by_base[at],
		    (state->by_base_count++ - at) * sizeof(state->by_base[0]));
		state->by_base[at] = state->count;
	}
	*find_name(state, name) = 1 + state->count;
	state->count++;
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
	if (!make_state(group))
		return tr_error_set(error, TR_ENOMEM, "state \"%s\": out of memory", name);
	struct coll_state *state = group->state;
	if (state->count == TR_STATE_TENSORS_MAX)
		return tr_error_set(error, TR_ELIMIT, "state \"%s\": at most %d pieces", name,
		    TR_STATE_TENSORS_MAX);
	if (channel_worker_locate(group->channel, data, bytes, &arena, &offset) != TR_OK)
		return tr_error_set(error, TR_EINVAL, "%s: the memory is not from tr_alloc", name);
	st = check_apart(state, name, data, bytes, error);
	if (st == TR_OK)
		st = check_unit(state, name, gradual, error);
	if (st == TR_OK && gradual != 0 && tag_set_add(&state->units, gradual, 0) != TR_OK)
		st = tr_error_set(error, TR_ENOMEM, "state \"%s\": out of memory", name);
	if (st == TR_OK)
		st = channel_worker_state(group->channel, name, arena, offset, bytes, gradual,
		    error);
	if (st == TR_OK)
		insert(state, name, data, bytes, gradual);
	return st;
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
	if (strided_init(&layout, NULL, tensor->bytes, 1, "", NULL) != TR_OK)
		return false;
	return strided_overlap(&(struct strided_place){ &layout, tensor->base, 1 },
	    &(struct strided_place){ &use->layout, use->base, use->element_bytes });
}

const struct coll_tensor *coll_state_touched(const struct tr_group *group,
    const struct coll_use *use)
{
	const struct coll_state *state = group->state;
	uintptr_t end = use->base + use->layout.span * use->element_bytes;
	if (state == NULL)
		return NULL;
	for (unsigned place = count_before(state, end); place > 0; place--) {
		const struct coll_tensor *tensor = &state->tensors[state->by_base[place - 1]];
		if (tensor->base + tensor->bytes <= use->base)
			break;
		if (touches(tensor, use))
			return tensor;
	}
	return NULL;
}
