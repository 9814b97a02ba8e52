/* Digests of much memory, and copies of it, a piece in each turn of the loop: heartbeats and segments do not wait for them. */
#include "collectives/engine/engine_internal.h"

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

void state_work_start(struct member *member)
{
	(void)uv_idle_init(&member->engine->loop, &member->state_turn);
	member->state_turn.data = member;
	member->holds++;
}

void state_work_wake(struct member *member)
{
	if (!uv_is_closing((uv_handle_t *)&member->state_turn))
		(void)uv_idle_start(&member->state_turn, on_turn);
}

void state_work_stop(struct member *member)
{
	uv_close((uv_handle_t *)&member->state_turn, on_handle_closed);
}
