/* Lanes of TCP: received without copies, congestion control by the path, room and its end, places that nobody fills. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/congestion.h"
#include "collectives/transport/lane_tcp.h"
#include "collectives/transport/listener.h"
#include "collectives/transport/packing.h"
#include "common/limits.h"
#include "common/rng.h"
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

static tr_status send_segment(struct fixture *f, const uint8_t *body, size_t bytes)
{
	uint8_t head[SEGMENT_HEADER_BYTES] = { 7 };
	const struct lane_send frame = { FRAME_SEGMENT, head, sizeof(head), body, bytes,
		on_released, &f->a, .pack = NULL };
	return lane_send(f->a.lane, &frame);
}

static uint8_t *make_body(void)
{
	uint8_t *body = malloc(BODY);
	assert_non_null(body);
	for (size_t i = 0; i < BODY; i++)
		body[i] = (uint8_t)(i * 7 + i / 251);
	return body;
}

/* Sends while there is room, as a link does. */
static void send_many(struct fixture *f, const uint8_t *body, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned before = f->a.drained;
		if (lane_room(f->a.lane) == 0)
			run_until(f, &f->a.drained, before + 1);
		assert_true(lane_unsent(f->a.lane) < lane_tcp_backlog(0, 0) + BODY);
		assert_int_equal(send_segment(f, body, BODY), TR_OK);
	}
}

static void receive_in_place(bool hashes)
{
	struct fixture f;
	struct lane_counters in, out;
	uint8_t *body = make_body();
	start(&f, NULL);
	f.b.hashes = hashes;
	f.b.park = 3;
	send_many(&f, body, FRAMES);
	run_until(&f, &f.b.frames, FRAMES);
	assert_int_equal(f.a.released, FRAMES);
	assert_int_equal(f.a.dropped, 0);
	assert_int_equal(f.b.places, FRAMES);
	assert_true(f.b.sum == FRAMES * sum_of(body, BODY));
	lane_counters(f.b.lane, &in);
	lane_counters(f.a.lane, &out);
	/* what was read ahead before the first one was known to be bulk; of 16 MiB */
	assert_in_range(in.copied_bytes, 0, 16u << 10);
	assert_int_equal(out.copied_bytes, 0);
	assert_true(in.bytes_in >= (uint64_t)FRAMES * BODY);
	stop(&f);
	free(body);
}

static void bodies_are_received_in_place(void **state)
{
	(void)state;
	receive_in_place(false);
}

/* In pieces that are shorter than a body; no byte of the frame behind it is among them. */
static void bodies_are_hashed_as_they_come(void **state)
{
	(void)state;
	receive_in_place(true);
}

/* Once the body has gone out whole and nothing is unsent: no room, until `drained`. */
static bool ends_the_turn(struct fixture *f, const uint8_t *body, size_t bytes)
{
	unsigned frames = f->b.frames, drained = f->a.drained;
	assert_true(lane_room(f->a.lane) > 0);
	assert_int_equal(send_segment(f, body, bytes), TR_OK);
	run_until(f, &f->b.frames, frames + 1);
	assert_int_equal(lane_unsent(f->a.lane), 0);
	assert_int_equal(f->a.drained, drained); /* nobody has asked */
	bool over = lane_room(f->a.lane) == 0;
	if (over) {
		assert_int_equal(lane_room(f->a.lane), 0);
		run_until(f, &f->a.drained, drained + 1);
	}
	assert_int_equal(lane_room(f->a.lane), lane_tcp_backlog(0, 0));
	return over;
}

/* So that what came in meanwhile is read before the next one. Small bodies share a turn. */
static void a_large_body_ends_the_turn_of_sending(void **state)
{
	struct fixture f;
	uint8_t *body = calloc(1, LARGE_BODY);
	(void)state;
	assert_non_null(body);
	start(&f, NULL);
	for (unsigned i = 0; i < 2; i++)
		assert_true(ends_the_turn(&f, body, LARGE_BODY));
	for (unsigned i = 0; i < 3; i++)
		assert_false(ends_the_turn(&f, body, BODY));
	assert_true(ends_the_turn(&f, body, BODY));
	stop(&f);
	free(body);
}

static void small_and_refused_bodies_come_as_any_frame(void **state)
{
	struct fixture f;
	uint8_t *body = make_body();
	(void)state;
	start(&f, NULL);
	assert_int_equal(send_segment(&f, body, 100), TR_OK);
	assert_int_equal(send_segment(&f, body, BODY), TR_OK);
	run_until(&f, &f.b.frames, 1);
	assert_int_equal(f.b.small, 1);
	f.b.refuse_places = true;
	assert_int_equal(send_segment(&f, body, BODY), TR_OK);
	assert_int_equal(send_segment(&f, body, 100), TR_OK);
	run_until(&f, &f.b.small, 3);
	assert_int_equal(f.b.places, 1);
	stop(&f);
	free(body);
}

static void a_body_that_does_not_come_gives_its_place_back(void **state)
{
	struct fixture f;
	struct frame_header header = { SEGMENT_HEADER_BYTES + BODY, FRAME_SEGMENT };
	uint8_t bytes[FRAME_GREETING_BYTES + FRAME_HEADER_BYTES + SEGMENT_HEADER_BYTES] = { 0 };
	uv_os_fd_t fd;
	(void)state;
	start(&f, NULL);
	/* a second dial by hand: it announces a body, sends none of it, and closes */
	lane_close(f.a.lane, "over");
	run_until(&f, &f.b.closed, 1);
	f.b.closed = 0;
	int port = atoi(strrchr(listener_address(f.listener), ':') + 1);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	memcpy(bytes, FRAME_GREETING, FRAME_GREETING_BYTES);
	frame_header_put(&header, bytes + FRAME_GREETING_BYTES);
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	run_until(&f, &f.b.places, 1);
	(void)close(fd);
	run_until(&f, &f.b.closed, 1);
	assert_int_equal(f.b.unplaced, 1);
	assert_int_equal(f.b.frames, 0);
	stop(&f);
}

static void dropped_bodies_are_told_from_sent_ones(void **state)
{
	struct fixture f;
	uint8_t *body = make_body();
	(void)state;
	start(&f, NULL);
	for (unsigned i = 0; i < FRAMES; i++) /* more than the kernel takes while nobody reads */
		assert_int_equal(send_segment(&f, body, BODY), TR_OK);
	lane_drop_borrowed(f.a.lane);
	assert_int_equal(f.a.released, FRAMES);
	assert_true(f.a.dropped > 0 && f.a.dropped < FRAMES);
	memset(body, 0, BODY); /* it is ours again; what had begun is completed from a copy */
	run_until(&f, &f.b.frames, FRAMES - f.a.dropped);
	assert_int_equal(f.b.frames, FRAMES - f.a.dropped);
	stop(&f);
	free(body);
}

/* Bytes as a codec makes them: of a few values most. */
static uint8_t *make_codes(void)
{
	uint8_t *codes = malloc(BODY);
	assert_non_null(codes);
	for (size_t i = 0; i < BODY; i++) {
		uint64_t random = rng_u64(rng_key(1, 0, 0), 0, i);
		codes[i] = (uint8_t)(random % 11 * (random / 11 % 23));
	}
	return codes;
}

/* Head and body, one behind the other. */
static uint8_t *make_frame(const uint8_t *body, size_t bytes)
{
	const struct segment_header header = { .view = 3,
		.kind = SEGMENT_SEALED,
		.bytes = (uint32_t)bytes };
	uint8_t *frame = malloc(SEGMENT_HEADER_BYTES + bytes);
	assert_non_null(frame);
	segment_header_put(&header, frame);
	memcpy(frame + SEGMENT_HEADER_BYTES, body, bytes);
	return frame;
}

static tr_status send_to_pack(struct fixture *f, const uint8_t *frame, size_t bytes)
{
	const struct lane_send send = { FRAME_SEGMENT, frame, SEGMENT_HEADER_BYTES,
		frame + SEGMENT_HEADER_BYTES, bytes, on_released, &f->a, .pack = &f->pace };
	return lane_send(f->a.lane, &send);
}

static void a_packed_frame_comes_as_it_was(void **state)
{
	struct fixture f;
	struct lane_counters out, before;
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	(void)state;
	start(&f, NULL);
	f.b.park = 3; /* offered again, and unpacked once */
	f.b.marks = true;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	run_until(&f, &f.b.small, 4);
	assert_true(f.b.sum == 4 * sum_of(frame, SEGMENT_HEADER_BYTES + BODY));
	assert_int_equal(f.a.released, 4);
	assert_int_equal(f.a.dropped, 0);
	assert_int_equal(f.b.places, 0);
	assert_int_equal(f.b.marked, 3);
	assert_true(f.pace.bytes > 0 && f.pace.ns > 0);
	f.b.marks = false;
	lane_counters(f.a.lane, &out);
	assert_in_range(out.bytes_out, BODY, 4 * BODY * 9 / 10);
	/* What packing would not make smaller goes as it is. */
	for (size_t i = 0; i < BODY; i++)
		frame[SEGMENT_HEADER_BYTES + i] = (uint8_t)rng_u64(rng_key(2, 0, 0), 0, i);
	before = out;
	assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	run_until(&f, &f.b.frames, 1);
	assert_int_equal(f.b.places, 1);
	lane_counters(f.a.lane, &out);
	assert_int_equal(out.bytes_out - before.bytes_out,
	    FRAME_HEADER_BYTES + SEGMENT_HEADER_BYTES + BODY);
	stop(&f);
	free(codes);
	free(frame);
}

static void packed_bodies_are_dropped_like_others(void **state)
{
	struct fixture f;
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	(void)state;
	start(&f, NULL);
	for (unsigned i = 0; i < FRAMES; i++) /* more than the kernel takes while nobody reads */
		assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	lane_drop_borrowed(f.a.lane);
	assert_int_equal(f.a.released, FRAMES);
	assert_true(f.a.dropped > 0 && f.a.dropped < FRAMES);
	run_until(&f, &f.b.small, FRAMES - f.a.dropped);
	assert_true(f.b.sum == (FRAMES - f.a.dropped) * sum_of(frame, SEGMENT_HEADER_BYTES + BODY));
	f.b.park = UINT32_MAX;
	for (unsigned i = 0; i < FRAMES; i++)
		assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	while (!f.b.parked)
		(void)uv_run(&f.loop, UV_RUN_ONCE);
	lane_close(f.a.lane, "over"); /* with some under way, and one that was not taken yet */
	f.b.parked = false;
	run_until(&f, &f.a.closed, 1);
	assert_int_equal(f.a.released, 2 * FRAMES);
	stop(&f);
	free(codes);
	free(frame);
}

static void a_frame_that_was_not_packed_so_closes_the_lane(void **state)
{
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	struct packing_packed *packed = packing_pack(codes, BODY);
	const struct {
		const char *what;
		size_t bytes;     /* of head and packed body together */
		uint32_t claimed; /* by the head */
	} cases[] = {
		{ "half a head", SEGMENT_HEADER_BYTES / 2, BODY },
		{ "a body that is cut off", SEGMENT_HEADER_BYTES + packed->count - 1, BODY },
		{ "less than it says", SEGMENT_HEADER_BYTES + packed->count, BODY + 1 },
		{ "more than it says", SEGMENT_HEADER_BYTES + packed->count, BODY - 1 },
		{ "more than a frame holds", SEGMENT_HEADER_BYTES + packed->count, UINT32_MAX },
	};
	(void)state;
	memcpy(frame + SEGMENT_HEADER_BYTES, packed->bytes, packed->count);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture f;
		const struct segment_header header = { .kind = SEGMENT_SEALED,
			.bytes = cases[i].claimed };
		segment_header_put(&header, frame);
		start(&f, NULL);
		const struct lane_send send = { FRAME_PACKED, NULL, 0, frame, cases[i].bytes, NULL,
			NULL, .pack = NULL };
		assert_int_equal(lane_send(f.a.lane, &send), TR_OK);
		run_until(&f, &f.b.closed, 1);
		if (strstr(f.b.reason, "bad packed segment: ") == NULL)
			fail_msg("%s: closed with '%s'", cases[i].what, f.b.reason);
		assert_int_equal(f.b.small + f.b.frames, 0);
		stop(&f);
	}
	free(packed);
	free(codes);
	free(frame);
}

static void a_packed_frame_of_a_stranger_is_not_unpacked(void **state)
{
	struct fixture f;
	uint8_t *codes = make_codes(), *frame = make_frame(codes, BODY);
	(void)state;
	start(&f, NULL);
	f.b.lane->known = false;
	assert_int_equal(send_to_pack(&f, frame, BODY), TR_OK);
	run_until(&f, &f.b.closed, 1);
	assert_non_null(strstr(f.b.reason, "before it is known who sends"));
	stop(&f);
	free(codes);
	free(frame);
}

static bool kernel_has(const char *name)
{
	return congestion_check(name, NULL) == TR_OK;
}

/* Sockets of this process that let out no more than that. */
static unsigned sockets_paced_at(uint32_t bytes_per_s)
{
	unsigned count = 0;
	for (int fd = 3; fd < 256; fd++) {
		uint32_t most = 0;
		socklen_t length = sizeof(most);
		count += getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &most, &length) == 0 &&
		    most == bytes_per_s;
	}
	return count;
}

static void a_pace_is_the_kernels(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, NULL);
	lane_set_pace(f.a.lane, 12345678.9);
	assert_int_equal(sockets_paced_at(12345678), 1);
	lane_set_pace(f.a.lane, 1e12); /* more than can be said */
	assert_int_equal(sockets_paced_at(12345678), 0);
	lane_set_pace(f.a.lane, 2e6);
	assert_int_equal(sockets_paced_at(2000000), 1);
	lane_set_pace(f.a.lane, 0);
	assert_int_equal(sockets_paced_at(2000000), 0);
	uint8_t *body = make_body();
	send_many(&f, body, FRAMES); /* none is held back */
	run_until(&f, &f.b.frames, FRAMES);
	stop(&f);
	free(body);
}

static void congestion_follows_the_path(void **state)
{
	struct fixture f;
	struct lane_path path;
	struct tr_error error = { 0 };
	(void)state;
	assert_string_equal(congestion_choices(true, 90000)[0], "cubic");
	assert_string_equal(congestion_choices(false, 500)[0], "cubic");
	assert_string_equal(congestion_choices(false, 40000)[0], "bbr");
	assert_string_equal(congestion_choices(false, 40000)[1], "cubic");
	const char *near_by = kernel_has("cubic") ? "cubic" : "reno";
	start(&f, NULL);
	lane_path(f.a.lane, &path);
	assert_string_equal(path.congestion, near_by);
	lane_path(f.b.lane, &path);
	assert_string_equal(path.congestion, near_by);
	stop(&f);
	start(&f, "reno"); /* every kernel has it */
	lane_path(f.a.lane, &path);
	assert_string_equal(path.congestion, "reno");
	lane_path(f.b.lane, &path);
	assert_string_equal(path.congestion, "reno");
	stop(&f);
	assert_int_equal(congestion_check("no-such-thing", &error), TR_EINVAL);
	assert_non_null(
	    strstr(error.text, "congestion no-such-thing: this kernel does not offer it"));
	assert_non_null(strstr(error.text, "reno"));
}

static void what_is_taken_ahead_follows_the_path(void **state)
{
	size_t near_by = lane_tcp_backlog(100, 0);
	(void)state;
	assert_true(near_by >= TR_SEGMENT_BYTES); /* the next one is taken while this one drains */
	assert_int_equal(lane_tcp_backlog(100, 1000000), near_by);
	assert_int_equal(lane_tcp_backlog(100000, 1u << 30), near_by);
	assert_int_equal(lane_tcp_backlog(100000, UINT64_MAX), near_by);
	size_t slow = lane_tcp_backlog(100000, 500000), unknown = lane_tcp_backlog(100000, 0);
	assert_in_range(slow, 1,
	    TR_SEGMENT_BYTES / 4); /* at 4 Mbit/s a segment takes half a second */
	assert_in_range(unknown, 1, slow);
	assert_in_range(lane_tcp_backlog(100000, 5000000), slow + 1, near_by - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bodies_are_received_in_place),
		cmocka_unit_test(bodies_are_hashed_as_they_come),
		cmocka_unit_test(a_large_body_ends_the_turn_of_sending),
		cmocka_unit_test(small_and_refused_bodies_come_as_any_frame),
		cmocka_unit_test(a_body_that_does_not_come_gives_its_place_back),
		cmocka_unit_test(dropped_bodies_are_told_from_sent_ones),
		cmocka_unit_test(a_packed_frame_comes_as_it_was),
		cmocka_unit_test(packed_bodies_are_dropped_like_others),
		cmocka_unit_test(a_frame_that_was_not_packed_so_closes_the_lane),
		cmocka_unit_test(a_packed_frame_of_a_stranger_is_not_unpacked),
		cmocka_unit_test(a_pace_is_the_kernels),
		cmocka_unit_test(congestion_follows_the_path),
		cmocka_unit_test(what_is_taken_ahead_follows_the_path),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
