/* Two sides of a lane of TCP, on one loop. Static: a test program includes this once. */
#ifndef TR_TESTS_LANE_TCP_FIXTURE_H
#define TR_TESTS_LANE_TCP_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/lane_tcp.h"
#include "collectives/transport/listener.h"
#include "collectives/transport/packing.h"
#include "common/limits.h"
#include "proto/frame.h"
#include "proto/segment.h"

#define BODY   (256u << 10)
#define FRAMES 64u
/* More than half of what is taken in a turn, less than all of it. */
#define LARGE_BODY (600u << 10)

struct side {
	struct lane *lane;
	unsigned opened, closed, drained, frames, small, places, unplaced, released, dropped;
	uint64_t sum;
	bool refuse_places, parked;
	void *at;
	bool hashes; /* each body is hashed as it comes */
	struct tr_digest_stream hash;
	char reason[256];
	unsigned park; /* so many offers are answered TR_EAGAIN */
	/* The last byte of what is parked is turned over: it is to be offered again, not made again. */
	bool marks, parked_before;
	uint8_t mark;
	unsigned marked; /* offers that had it */
};

struct fixture {
	uv_loop_t loop;
	struct listener *listener;
	const char *congestion;
	struct side a, b; /* a dials b */
	struct packing_pace pace;
};

static uint64_t sum_of(const uint8_t *bytes, size_t count)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum = sum * 31 + bytes[i];
	return sum;
}

static void on_opened(void *arg, struct lane *lane)
{
	struct side *side = arg;
	assert_ptr_equal(lane, side->lane);
	side->opened++;
}

static void on_closed(void *arg, struct lane *lane, const char *reason)
{
	struct side *side = arg;
	assert_ptr_equal(lane, side->lane);
	assert_true(reason[0] != '\0');
	(void)snprintf(side->reason, sizeof(side->reason), "%s", reason);
	side->closed++;
	side->lane = NULL;
}

static void on_drained(void *arg, struct lane *lane)
{
	(void)lane;
	((struct side *)arg)->drained++;
}

static tr_status on_frame(void *arg, struct lane *lane, const struct lane_frame *frame,
    struct tr_error *error)
{
	struct side *side = arg;
	(void)lane;
	(void)error;
	uint8_t *last = (uint8_t *)(uintptr_t)frame->head + frame->head_bytes - 1;
	if (side->marks && side->parked_before) {
		side->marked += (*last ^ side->mark) == 0xff;
		*last = side->mark;
	}
	side->parked_before = side->park > 0;
	if (side->marks && side->parked_before) {
		side->mark = *last;
		*last = (uint8_t) ~*last;
	}
	if (side->park > 0) {
		side->park--;
		side->parked = true;
		return TR_EAGAIN;
	}
	assert_int_equal((uintptr_t)frame->head % 8, 0);
	if (frame->body == NULL) {
		side->small++;
		side->sum += sum_of(frame->head, frame->head_bytes);
		return TR_OK;
	}
	assert_int_equal(frame->type, FRAME_SEGMENT);
	assert_int_equal(frame->head_bytes, SEGMENT_HEADER_BYTES);
	assert_int_equal((uintptr_t)frame->body % 64, 0);
	assert_ptr_equal(frame->place, frame->body);
	side->frames++;
	if (side->hashes) {
		assert_int_equal(side->hash.bytes, frame->body_bytes);
		assert_true(tr_digest_equal(tr_digest_end(&side->hash),
		    tr_digest_of(frame->body, frame->body_bytes)));
	}
	side->sum += sum_of(frame->body, frame->body_bytes);
	free(frame->place);
	return TR_OK;
}

static bool on_place(void *arg, struct lane *lane, const uint8_t *head, size_t body_bytes,
    struct lane_place *place)
{
	struct side *side = arg;
	(void)lane;
	(void)head;
	if (side->refuse_places)
		return false;
	side->places++;
	side->at = aligned_alloc(64, (body_bytes + 63) & ~(size_t)63);
	*place = (struct lane_place){ &side->at, side->at, side->hashes ? &side->hash : NULL };
	tr_digest_begin(&side->hash);
	return side->at != NULL;
}

static void on_unplace(void *arg, void *place)
{
	((struct side *)arg)->unplaced++;
	free(place);
}

static const struct lane_callbacks callbacks = { .opened = on_opened,
	.closed = on_closed,
	.drained = on_drained,
	.frame = on_frame,
	.place = on_place,
	.unplace = on_unplace };

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct fixture *f = arg;
	assert_int_equal(protocol, LISTENER_FRAMES);
	assert_int_equal(lane_tcp_adopt(&f->loop, stream, early, early_bytes, f->congestion,
	                     &callbacks, &f->b, &f->b.lane, NULL),
	    TR_OK);
}

static void run_until(struct fixture *f, const unsigned *what, unsigned least)
{
	uint64_t until_ns = uv_hrtime() + 60000000000u;
	while (*what < least) {
		(void)uv_run(&f->loop, UV_RUN_ONCE);
		if (f->b.parked)
			lane_resume(f->b.lane);
		f->b.parked = false;
		assert_true(uv_hrtime() < until_ns);
	}
}

static void start(struct fixture *f, const char *congestion)
{
	*f = (struct fixture){ .congestion = congestion };
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(listener_start(&f->loop, "127.0.0.1:0", false, NULL, on_accepted, f,
	                     &f->listener, NULL),
	    TR_OK);
	assert_int_equal(lane_tcp_dial(&f->loop, listener_address(f->listener), NULL, NULL,
	                     congestion, &callbacks, &f->a, &f->a.lane, NULL),
	    TR_OK);
	run_until(f, &f->a.opened, 1);
	while (f->b.lane == NULL)
		(void)uv_run(&f->loop, UV_RUN_ONCE);
	f->b.lane->known = true;
}

static void stop(struct fixture *f)
{
	if (f->a.lane != NULL)
		lane_close(f->a.lane, "over");
	if (f->b.lane != NULL)
		lane_close(f->b.lane, "over");
	listener_stop(f->listener);
	(void)uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(f->a.closed, 1);
	assert_int_equal(f->b.closed, 1);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void on_released(void *arg, bool sent)
{
	struct side *side = arg;
	side->released++;
	side->dropped += !sent;
}

#endif
