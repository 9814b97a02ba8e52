/* Digests of much memory, and copies of it, a piece in each turn of the loop: heartbeats and segments do not wait for them. And what sender
 * and receiver have in common.
 */
#include "collectives/engine/engine_internal.h"

#include <stdlib.h>

#include "collectives/engine/state_plan.h"

#define LOOK_MS 10

static void on_turn(uv_idle_t *turn)
{
	struct member *member = turn->data;
	bool more = state_send_turn(member);
	more = state_receive_turn(member) || more;
	if (!more)
		(void)uv_idle_stop(turn);
}

static void on_handle_closed(uv_handle_t *handle)
{
	member_unhold(handle->data);
}

static void on_look(uv_timer_t *timer)
{
	struct member *member = timer->data;
	if (!state_send_look(member))
		(void)uv_timer_stop(timer);
}

void state_work_start(struct member *member)
{
	(void)uv_timer_init(&member->engine->loop, &member->state_look);
	member->state_look.data = member;
	member->holds++;
	(void)uv_idle_init(&member->engine->loop, &member->state_turn);
	member->state_turn.data = member;
	member->holds++;
}

void state_work_wake(struct member *member)
{
	if (!uv_is_closing((uv_handle_t *)&member->state_turn))
		(void)uv_idle_start(&member->state_turn, on_turn);
}

void state_work_look(struct member *member)
{
	uv_timer_t *timer = &member->state_look;
	if (!uv_is_closing((uv_handle_t *)timer) && !uv_is_active((uv_handle_t *)timer))
		(void)uv_timer_start(timer, on_look, LOOK_MS, LOOK_MS);
}

void state_work_stop(struct member *member)
{
	uv_close((uv_handle_t *)&member->state_look, on_handle_closed);
	uv_close((uv_handle_t *)&member->state_turn, on_handle_closed);
}

bool state_work_cut(const struct channel_host *host, struct state_map *map)
{
	uint64_t *bytes = calloc(host->tensor_count + 1u, sizeof(*bytes));
	for (unsigned i = 0; bytes != NULL && i < host->tensor_count; i++)
		bytes[i] = host->tensors[i].bytes;
	bool made = bytes != NULL && state_map_make(map, bytes, host->tensor_count);
	free(bytes);
	return made;
}
