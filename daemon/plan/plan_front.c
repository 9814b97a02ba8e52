#include "daemon/plan/plan_front.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 32

static tr_status make_room(struct plan_front *front)
{
	if (front->count < front->room)
		return TR_OK;
	uint32_t room = front->room > 0 ? 2 * front->room : FIRST_ROOM;
	struct plan *at = realloc(front->at, room * sizeof(*at));

	if (at == NULL)
		return TR_ENOMEM;
	front->at = at;
	front->room = room;
	return TR_OK;
}

tr_status plan_front_offer(struct plan_front *front, const struct plan *plan)
{
	uint32_t to = 0, end;

	if (plan->memory_part > 1)
		return TR_OK;
	while (to < front->count && front->at[to].times.step_s <= plan->times.step_s)
		to++;
	if (to > 0 && front->at[to - 1].memory_bytes <= plan->memory_bytes)
		return TR_OK;
	if (to > 0 && front->at[to - 1].times.step_s >= plan->times.step_s)
		to--; /* as fast, with more memory */
	for (end = to; end < front->count; end++)
		if (front->at[end].memory_bytes < plan->memory_bytes)
			break;
	tr_status st = make_room(front);
	if (st != TR_OK)
		return st;
	memmove(&front->at[to + 1], &front->at[end], (front->count - end) * sizeof(*front->at));
	front->at[to] = *plan;
	front->count += 1 - (end - to);
	return TR_OK;
}

double plan_front_distance(const struct plan_front *front, double step_s, uint64_t memory_bytes)
{
	double most = 0;

	for (uint32_t i = 0; i < front->count; i++)
		most = fmax(most,
		    fmin(step_s / front->at[i].times.step_s,
		        (double)memory_bytes / (double)front->at[i].memory_bytes));
	return most;
}

tr_status plan_front_copy(const struct plan_front *front, struct plan_front *copy)
{
	if (front->count == 0)
		return TR_OK;
	copy->at = malloc(front->room * sizeof(*copy->at));
	if (copy->at == NULL)
		return TR_ENOMEM;
	memcpy(copy->at, front->at, front->count * sizeof(*copy->at));
	copy->count = front->count;
	copy->room = front->room;
	return TR_OK;
}

void plan_front_finish(struct plan_front *front)
{
	free(front->at);
	*front = (struct plan_front){ 0 };
}
