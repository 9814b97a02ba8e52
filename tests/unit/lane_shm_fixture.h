/* Two sides of a lane of shared memory, each with its hub, on one loop. Static: a test program includes this once.
 */
#ifndef TR_TESTS_LANE_SHM_FIXTURE_H
#define TR_TESTS_LANE_SHM_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/host.h"
#include "collectives/transport/shm_hub.h"
#include "collectives/transport/shm_memory.h"
#include "collectives/transport/shm_ring.h"
#include "collectives/transport/shm_socket.h"
#include "proto/frame.h"

static const struct shm_claim nobody;

/* One process' side. */
struct side {
	uv_loop_t *loop; /* stopped whenever something happened: it would sleep after our turn */
	struct shm_hub *hub;
	struct lane *lane;
	struct shm_exports exports;
	bool opened, closed, drained, again, starved;
	unsigned refuse; /* so many frames are answered with TR_EAGAIN */
	unsigned got, stable, released;
	uint64_t sum; /* of the bodies' bytes */
	size_t heads, bodies;
	uint32_t last_type;
	char last_head[64], reason[256];
};

static void side_on_opened(void *arg, struct lane *lane)
{
	struct side *side = arg;
	(void)lane;
	side->opened = true;
	uv_stop(side->loop);
}

static void side_on_closed(void *arg, struct lane *lane, const char *reason)
{
	struct side *side = arg;
	(void)lane;
	side->closed = true;
	uv_stop(side->loop);
	side->lane = NULL;
	(void)snprintf(side->reason, sizeof(side->reason), "%s", reason);
}

static void side_on_drained(void *arg, struct lane *lane)
{
	struct side *side = arg;
	(void)lane;
	side->drained = true;
	uv_stop(side->loop);
}

static tr_status side_on_frame(void *arg, struct lane *lane, const struct lane_frame *frame,
    struct tr_error *error)
{
	struct side *side = arg;
	const uint8_t *body = frame->body;
	(void)lane;
	if (side->refuse > 0) {
		side->refuse--;
		side->again = true;
		uv_stop(side->loop);
		return TR_EAGAIN;
	}
	if (frame->type == FRAME_TO_NODE)
		return tr_error_set(error, TR_EPROTO, "not here");
	side->got++;
	uv_stop(side->loop);
	side->stable += frame->stable;
	side->last_type = frame->type;
	side->heads += frame->head_bytes;
	side->bodies += frame->body_bytes;
	for (size_t i = 0; i < frame->body_bytes; i++)
		side->sum += body[i];
	size_t shown = frame->head_bytes < sizeof(side->last_head) ? frame->head_bytes
	                                                           : sizeof(side->last_head) - 1;
	memcpy(side->last_head, frame->head, shown);
	side->last_head[shown] = '\0';
	return TR_OK;
}

static const struct lane_callbacks side_callbacks = { .opened = side_on_opened,
	.closed = side_on_closed,
	.drained = side_on_drained,
	.frame = side_on_frame };

static void side_on_accepted(void *arg, struct lane *lane)
{
	struct side *side = arg;
	side->lane = lane;
	uv_stop(side->loop);
	lane->callbacks = side_callbacks;
	lane->arg = side;
}

static bool side_starved(void *arg)
{
	return ((const struct side *)arg)->starved;
}

struct fixture {
	uv_loop_t loop;
	uv_timer_t limit, turn;
	struct side a, b; /* a dials b */
};

static void on_turn(uv_timer_t *timer)
{
	(void)timer;
}

static void on_limit(uv_timer_t *timer)
{
	(void)timer;
	fail_msg("waited in vain");
}

#define RUN_UNTIL(fixture, condition)                                \
	do {                                                         \
		while (!(condition))                                 \
			(void)uv_run(&(fixture)->loop, UV_RUN_ONCE); \
	} while (0)

static void open_hubs(struct fixture *f)
{
	static const struct shm_hub_callbacks callbacks = { .accepted = side_on_accepted,
		.starved = side_starved };
	*f = (struct fixture){ 0 };
	f->a.loop = f->b.loop = &f->loop;
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(shm_hub_create(&f->loop, &callbacks, &f->a, &f->a.hub, NULL), TR_OK);
	assert_int_equal(shm_hub_create(&f->loop, &callbacks, &f->b, &f->b.hub, NULL), TR_OK);
	(void)uv_timer_init(&f->loop, &f->limit);
	(void)uv_timer_init(&f->loop, &f->turn);
	(void)uv_timer_start(&f->limit, on_limit, 30000, 0);
}

static void dial(struct fixture *f)
{
	struct tr_error error;
	if (shm_hub_dial(f->a.hub, shm_hub_address(f->b.hub), &nobody, &f->a.exports,
	        &side_callbacks, &f->a, &f->a.lane, &error) != TR_OK)
		fail_msg("%s", error.text);
	RUN_UNTIL(f, f->a.opened && f->b.lane != NULL);
}

static void close_hubs(struct fixture *f)
{
	if (f->a.lane != NULL)
		lane_close(f->a.lane, "the test is over");
	if (f->b.lane != NULL)
		lane_close(f->b.lane, "the test is over");
	shm_hub_close(f->a.hub);
	shm_hub_close(f->b.hub);
	uv_close((uv_handle_t *)&f->limit, NULL);
	uv_close((uv_handle_t *)&f->turn, NULL);
	while (uv_run(&f->loop, UV_RUN_DEFAULT) != 0)
		;
	assert_int_equal(uv_loop_close(&f->loop), 0);
	shm_exports_finish(&f->a.exports);
}

static void on_released(void *arg, bool sent)
{
	(void)sent;
	((struct side *)arg)->released++;
}

static tr_status send_text(struct side *side, const char *text)
{
	struct lane_send frame = { .type = FRAME_PEER, .body = text, .body_bytes = strlen(text) };
	return lane_send(side->lane, &frame);
}

static tr_status send_borrowed(struct side *side, const void *body, size_t bytes)
{
	struct lane_send frame = { .type = FRAME_SEGMENT,
		.head = "segment",
		.head_bytes = 7,
		.body = body,
		.body_bytes = bytes,
		.released = on_released,
		.arg = side };
	return lane_send(side->lane, &frame);
}

/* What the other side has gone past is noticed when the loop turns, which nobody asks it to. */
static void run_until_released(struct fixture *f, unsigned count)
{
	while (f->a.released < count)
		(void)uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(f->a.released, count);
}

#endif
