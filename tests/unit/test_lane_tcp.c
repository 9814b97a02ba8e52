/* Lanes of TCP: received without copies, congestion control by the path, room and its end, places that nobody fills. */
#include "tests/unit/lane_tcp_fixture.h"

#include <linux/inet_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collectives/transport/congestion.h"

/* In place of libuv's, for what asks the time: it can be later than it is. */
static uint64_t later_ns;

uint64_t uv_hrtime(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + later_ns;
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
	struct lane_path path;
	lane_path(f.a.lane, &path);
	assert_string_equal(path.congestion, kernel_has("cubic") ? "cubic" : "reno");
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

/* What bbr has measured on the one socket with that pace; 0: nothing since it began. */
static uint64_t bbr_bytes_per_s(uint32_t pace)
{
	for (int fd = 3; fd < 256; fd++) {
		uint32_t most = 0;
		socklen_t length = sizeof(most);
		union tcp_cc_info cc = { 0 };
		if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &most, &length) != 0 ||
		    most != pace)
			continue;
		length = sizeof(cc);
		assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, &cc, &length), 0);
		return (uint64_t)cc.bbr.bbr_bw_hi << 32 | cc.bbr.bbr_bw_lo;
	}
	fail_msg("no socket is paced at %u", pace);
	return 0;
}

/* No acknowledgement is under way any more, on any socket of this process. */
static void wait_for_acknowledgements(struct fixture *f)
{
	for (int fd = 3; fd < 256; fd++) {
		struct tcp_info info = { 0 };
		socklen_t length = sizeof(info);
		for (unsigned tries = 0;
		     getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
		     info.tcpi_unacked > 0 && tries < 5000;
		     tries++) {
			(void)uv_run(&f->loop, UV_RUN_NOWAIT);
			(void)usleep(1000);
		}
	}
}

/* It would empty the way ten seconds after it found it empty; not more often than it takes to learn it. */
static void bbr_begins_anew_where_it_is_paced(void **state)
{
	struct fixture f;
	struct lane_path path;
	(void)state;
	if (!kernel_has("bbr"))
		skip();
	start(&f, "bbr");
	uint8_t *body = make_body();
	send_many(&f, body, FRAMES);
	run_until(&f, &f.b.frames, FRAMES);
	wait_for_acknowledgements(&f);
	lane_set_pace(f.a.lane, 60e6);
	assert_true(bbr_bytes_per_s(60000000) > 0); /* it has just begun */
	later_ns += 6000000000;
	lane_set_pace(f.a.lane, 50e6);
	assert_int_equal(bbr_bytes_per_s(50000000), 0);
	send_many(&f, body, FRAMES);
	run_until(&f, &f.b.frames, 2 * FRAMES);
	lane_set_pace(f.a.lane, 40e6);
	assert_true(bbr_bytes_per_s(40000000) > 0);
	lane_path(f.a.lane, &path);
	assert_string_equal(path.congestion, "bbr");
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
		cmocka_unit_test(a_pace_is_the_kernels),
		cmocka_unit_test(bbr_begins_anew_where_it_is_paced),
		cmocka_unit_test(congestion_follows_the_path),
		cmocka_unit_test(what_is_taken_ahead_follows_the_path),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
