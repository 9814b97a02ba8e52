/* Lanes of shared memory between two hubs of one loop, and against hostile dialers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/lane_shm_fixture.h"

static void test_frames_both_ways(void **state)
{
	static struct fixture f;
	(void)state;
	open_hubs(&f);
	dial(&f);
	assert_int_equal(send_text(&f.a, "hello"), TR_OK);
	RUN_UNTIL(&f, f.b.got == 1);
	assert_string_equal(f.b.last_head, "hello"); /* a message comes in one piece */
	assert_int_equal(send_text(&f.b, "back"), TR_OK);
	RUN_UNTIL(&f, f.a.got == 1);
	assert_string_equal(f.a.last_head, "back");
	assert_string_equal(f.a.lane->ops->name, "shm");
	close_hubs(&f);
}

static void test_shown_memory_is_read_in_place(void **state)
{
	static struct fixture f;
	const size_t bytes = 8u << 20;
	void *base;
	int fd;
	(void)state;
	open_hubs(&f);
	assert_int_equal(shm_memory_create("test", bytes, &fd, &base, NULL), TR_OK);
	int shown = shm_memory_read_only(fd);
	assert_int_equal(shm_exports_add(&f.a.exports, shown, base, bytes, true), TR_OK);
	dial(&f);
	memset(base, 1, bytes);
	for (size_t at = 0; at < bytes; at += 256u << 10)
		assert_int_equal(send_borrowed(&f.a, (uint8_t *)base + at, 256u << 10), TR_OK);
	assert_int_equal(f.a.released, 0); /* nothing was copied */
	RUN_UNTIL(&f, f.b.bodies == bytes);
	assert_int_equal(f.b.sum, bytes);
	assert_int_equal(f.b.stable, 32);
	run_until_released(&f, 32);
	struct lane_counters counted;
	lane_counters(f.a.lane, &counted);
	assert_int_equal(counted.copied_bytes, 0);
	close_hubs(&f);
	(void)munmap(base, bytes);
	(void)close(fd);
	(void)close(shown);
}

/* Turns of its loop until it would sleep; then only a bell wakes it. */
static bool woken(uv_loop_t *loop)
{
	struct pollfd wait = { .fd = uv_backend_fd(loop), .events = POLLIN };
	return poll(&wait, 1, 0) > 0;
}

static void turn_until_quiet(uv_loop_t *loop)
{
	do {
		(void)uv_run(loop, UV_RUN_NOWAIT);
	} while (woken(loop));
}

/* Each side has a loop of its own, as processes have: whether the sender is rung when its body was read. */
static void read_rings(bool starved)
{
	static struct fixture f;
	uv_loop_t other;
	const size_t bytes = 256u << 10;
	void *base;
	int fd;
	open_hubs(&f);
	shm_hub_close(f.b.hub);
	assert_int_equal(uv_loop_init(&other), 0);
	f.b.loop = &other;
	static const struct shm_hub_callbacks callbacks = { .accepted = side_on_accepted };
	assert_int_equal(shm_hub_create(&other, &callbacks, &f.b, &f.b.hub, NULL), TR_OK);
	assert_int_equal(shm_memory_create("test", bytes, &fd, &base, NULL), TR_OK);
	int shown = shm_memory_read_only(fd);
	assert_int_equal(shm_exports_add(&f.a.exports, shown, base, bytes, true), TR_OK);
	assert_int_equal(shm_hub_dial(f.a.hub, shm_hub_address(f.b.hub), &nobody, &f.a.exports,
	                     &side_callbacks, &f.a, &f.a.lane, NULL),
	    TR_OK);
	while (!f.a.opened || f.b.lane == NULL) {
		(void)uv_run(&f.loop, UV_RUN_NOWAIT);
		(void)uv_run(&other, UV_RUN_NOWAIT);
	}
	turn_until_quiet(&other);
	f.a.starved = starved;
	for (unsigned i = 1; i <= 8; i++) {
		assert_int_equal(send_borrowed(&f.a, base, bytes), TR_OK);
		turn_until_quiet(&f.loop);
		while (f.b.got < i)
			(void)uv_run(&other, UV_RUN_NOWAIT);
		assert_int_equal(f.a.released, i - 1);
		assert_int_equal(woken(&f.loop), starved);
		run_until_released(&f, i);
	}
	lane_close(f.b.lane, "the test is over");
	f.b.lane = NULL;
	shm_hub_close(f.b.hub);
	while (uv_run(&other, UV_RUN_DEFAULT) != 0)
		;
	assert_int_equal(uv_loop_close(&other), 0);
	f.b.hub = NULL;
	close_hubs(&f);
	(void)munmap(base, bytes);
	(void)close(fd);
	(void)close(shown);
}

static void test_who_is_starved_hears_of_what_was_read(void **state)
{
	(void)state;
	read_rings(false);
	read_rings(true);
}

static void test_private_memory_is_copied(void **state)
{
	static struct fixture f;
	const size_t bytes = 256u << 10;
	uint8_t *memory = malloc(bytes);
	(void)state;
	open_hubs(&f);
	dial(&f);
	memset(memory, 1, bytes);
	/* More than the ring holds: the rest waits, in order, borrowed. */
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(send_borrowed(&f.a, memory, bytes), TR_OK);
	assert_true(f.a.released > 0 && f.a.released < 40);
	assert_int_equal(lane_room(f.a.lane), 0);
	RUN_UNTIL(&f, f.b.got == 40);
	assert_int_equal(f.b.sum, 40 * bytes);
	assert_int_equal(f.b.stable, 0);
	RUN_UNTIL(&f, f.a.drained);
	run_until_released(&f, 40);
	assert_true(lane_room(f.a.lane) > 0);
	close_hubs(&f);
	free(memory);
}

static void test_refused_frames_wait(void **state)
{
	static struct fixture f;
	(void)state;
	open_hubs(&f);
	dial(&f);
	f.b.refuse = 2;
	assert_int_equal(send_text(&f.a, "one"), TR_OK);
	assert_int_equal(send_text(&f.a, "two"), TR_OK);
	RUN_UNTIL(&f, f.b.again);
	f.b.again = false;
	for (unsigned i = 0; i < 5; i++)
		(void)uv_run(&f.loop, UV_RUN_NOWAIT);
	assert_false(f.b.again); /* not before it was resumed */
	lane_resume(f.b.lane);
	RUN_UNTIL(&f, f.b.again);
	assert_int_equal(f.b.got, 0);
	lane_resume(f.b.lane);
	RUN_UNTIL(&f, f.b.got == 2);
	assert_string_equal(f.b.last_head, "two");
	close_hubs(&f);
}

static void test_dropped_bodies_are_released_at_once(void **state)
{
	static struct fixture f;
	void *base;
	int fd;
	(void)state;
	open_hubs(&f);
	assert_int_equal(shm_memory_create("test", 1 << 20, &fd, &base, NULL), TR_OK);
	assert_int_equal(shm_exports_add(&f.a.exports, fd, base, 1 << 20, false), TR_OK);
	dial(&f);
	for (unsigned i = 0; i < 3000; i++)
		assert_int_equal(send_borrowed(&f.a, base, 8192), TR_OK);
	lane_drop_borrowed(f.a.lane);
	assert_int_equal(f.a.released, 3000);
	assert_int_equal(send_text(&f.a, "after"), TR_OK);
	RUN_UNTIL(&f, f.b.last_type == FRAME_PEER);
	assert_true(f.b.got <= SHM_RING_SLOTS + 1); /* what was in the ring, and no more */
	assert_int_equal(f.a.released, 3000);
	close_hubs(&f);
	(void)munmap(base, 1 << 20);
	(void)close(fd);
}

static void release_and_say(void *arg, bool sent)
{
	struct side *side = arg;
	on_released(arg, sent);
	if (!sent)
		assert_int_equal(send_text(side, "from released"), TR_OK);
}

/* While waiting frames are dropped: what it sends then comes. */
static void test_released_may_send_again(void **state)
{
	static struct fixture f;
	static const uint8_t body[8192];
	struct lane_send frame = { .type = FRAME_SEGMENT,
		.head = "segment",
		.head_bytes = 7,
		.body = body,
		.body_bytes = sizeof(body),
		.released = on_released,
		.arg = &f.a };
	unsigned sent = 0;
	(void)state;
	open_hubs(&f);
	dial(&f);
	for (; lane_unsent(f.a.lane) == 0; sent++)
		assert_int_equal(lane_send(f.a.lane, &frame), TR_OK);
	frame.released = release_and_say;
	assert_int_equal(lane_send(f.a.lane, &frame), TR_OK); /* the last that waits */
	lane_drop_borrowed(f.a.lane);
	assert_int_equal(f.a.released, sent + 1);
	RUN_UNTIL(&f, f.b.last_type == FRAME_PEER);
	assert_string_equal(f.b.last_head, "from released");
	close_hubs(&f);
}

static void release_and_close(void *arg, bool sent)
{
	struct side *side = arg;
	on_released(arg, sent);
	if (side->lane != NULL)
		lane_close(side->lane, "from released");
}

/* In the middle of a put that makes room for its frame: that one is released too. */
static void test_released_may_close(void **state)
{
	static struct fixture f;
	void *base;
	int fd;
	(void)state;
	open_hubs(&f);
	assert_int_equal(shm_memory_create("test", 1 << 20, &fd, &base, NULL), TR_OK);
	assert_int_equal(shm_exports_add(&f.a.exports, fd, base, 1 << 20, false), TR_OK);
	dial(&f);
	struct lane_send frame = { .type = FRAME_SEGMENT,
		.head = "segment",
		.head_bytes = 7,
		.body = base,
		.body_bytes = 8192,
		.released = release_and_close,
		.arg = &f.a };
	assert_int_equal(lane_send(f.a.lane, &frame), TR_OK);
	frame.released = on_released;
	for (unsigned i = 1; i < SHM_RING_SLOTS; i++)
		assert_int_equal(lane_send(f.a.lane, &frame), TR_OK);
	while (f.b.got < SHM_RING_SLOTS)
		(void)shm_hub_look(f.b.hub);
	assert_int_equal(f.a.released, 0); /* that they were read is noticed here: */
	assert_int_equal(lane_send(f.a.lane, &frame), TR_OK);
	assert_int_equal(f.a.released, SHM_RING_SLOTS + 1);
	RUN_UNTIL(&f, f.a.closed);
	assert_string_equal(f.a.reason, "from released");
	assert_int_equal(f.a.released, SHM_RING_SLOTS + 1);
	close_hubs(&f);
	(void)munmap(base, 1 << 20);
	(void)close(fd);
}

/* A dialler whom we have no descriptor for has to wait, and the loop sleeps meanwhile. */
static void test_out_of_descriptors(void **state)
{
	static struct fixture f;
	struct rlimit limit;
	unsigned turns = 0;
	int dialler, one_free;
	(void)state;
	open_hubs(&f);
	assert_int_equal(shm_socket_dial(shm_hub_address(f.b.hub), &dialler, NULL), TR_OK);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	one_free = fcntl(dialler, F_DUPFD, 0);
	assert_true(one_free >= 0);
	(void)close(one_free);
	struct rlimit none = { .rlim_cur = (rlim_t)one_free, .rlim_max = limit.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	uint64_t until_ms = uv_now(&f.loop) + 300;
	(void)uv_timer_start(&f.turn, on_turn, 50, 50);
	for (; uv_now(&f.loop) < until_ms; turns++)
		(void)uv_run(&f.loop, UV_RUN_ONCE);
	assert_true(turns < 100);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	/* What it says is no hello: it was accepted, since it is dropped. */
	assert_int_equal(send(dialler, "what", 4, MSG_NOSIGNAL), 4);
	struct pollfd end = { .fd = dialler, .events = POLLIN };
	while (poll(&end, 1, 0) == 0)
		(void)uv_run(&f.loop, UV_RUN_ONCE);
	assert_true((end.revents & POLLHUP) != 0);
	(void)close(dialler);
	close_hubs(&f);
}

/* All members of a large group that are on this host dial at once, and some may not have said hello when they are taken out of the queue. */
static void test_more_dial_than_may_be_strangers(void **state)
{
	enum { DIALLERS = 200, SILENT = 100 };
	static struct fixture f;
	static struct side sides[DIALLERS];
	static int silent[SILENT];
	unsigned opened = 0;
	(void)state;
	open_hubs(&f);
	for (unsigned i = 0; i < SILENT; i++)
		assert_int_equal(shm_socket_dial(shm_hub_address(f.b.hub), &silent[i], NULL), TR_OK);
	for (unsigned i = 0; i < DIALLERS; i++) {
		sides[i] = (struct side){ .loop = &f.loop };
		assert_int_equal(shm_hub_dial(f.a.hub, shm_hub_address(f.b.hub), &nobody,
		                     &sides[i].exports, &side_callbacks, &sides[i], &sides[i].lane,
		                     NULL),
		    TR_OK);
	}
	(void)uv_timer_start(&f.turn, on_turn, 10, 10);
	for (unsigned turn = 0; opened < DIALLERS; turn++) {
		(void)uv_run(&f.loop, UV_RUN_ONCE);
		if (turn == 20)
			for (unsigned i = 0; i < SILENT; i++)
				(void)close(silent[i]);
		opened = 0;
		for (unsigned i = 0; i < DIALLERS; i++) {
			assert_false(sides[i].closed);
			opened += sides[i].opened;
		}
	}
	for (unsigned i = 0; i < DIALLERS; i++)
		lane_close(sides[i].lane, "the test is over");
	close_hubs(&f);
}

static void test_finish_is_read_to_the_end(void **state)
{
	static struct fixture f;
	(void)state;
	open_hubs(&f);
	dial(&f);
	for (unsigned i = 0; i < 2000; i++)
		assert_int_equal(send_text(&f.a, "last words"), TR_OK);
	lane_finish(f.a.lane, "it left");
	RUN_UNTIL(&f, f.a.closed && f.b.closed);
	assert_int_equal(f.b.got, 2000);
	assert_string_equal(f.a.reason, "it left");
	close_hubs(&f);
}

static void test_bad_frame_ends_its_lane(void **state)
{
	static struct fixture f;
	(void)state;
	open_hubs(&f);
	dial(&f);
	struct lane_send frame = { .type = FRAME_TO_NODE, .body = "x", .body_bytes = 1 };
	assert_int_equal(lane_send(f.a.lane, &frame), TR_OK);
	RUN_UNTIL(&f, f.a.closed && f.b.closed);
	assert_string_equal(f.b.reason, "not here");
	close_hubs(&f);
}

/* ---- a process that dies ---- */

static void child(const char *address)
{
	static struct fixture f;
	open_hubs(&f);
	if (shm_hub_dial(f.a.hub, address, &nobody, NULL, &side_callbacks, &f.a, &f.a.lane, NULL) !=
	    TR_OK)
		_exit(1);
	RUN_UNTIL(&f, f.a.opened);
	for (unsigned i = 0; i < 500; i++)
		if (send_text(&f.a, "before I die") != TR_OK)
			_exit(1);
	_exit(0);
}

static void test_death_is_noticed_and_its_words_are_read(void **state)
{
	static struct fixture f;
	char address[128];
	int status = 0;
	(void)state;
	open_hubs(&f);
	(void)snprintf(address, sizeof(address), "%s", shm_hub_address(f.b.hub));
	pid_t pid = fork();
	if (pid == 0)
		child(address);
	RUN_UNTIL(&f, f.b.closed);
	assert_int_equal(f.b.got, 500);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close_hubs(&f);
}

/* ---- hostile dialers ---- */

struct stranger {
	int socket, ring, back, bell;
	struct shm_ring memory, memory_back;
};

static struct stranger stranger_come(struct fixture *f)
{
	struct stranger s = { 0 };
	assert_int_equal(shm_socket_dial(shm_hub_address(f->b.hub), &s.socket, NULL), TR_OK);
	assert_int_equal(shm_ring_create(&s.memory, &s.ring, NULL), TR_OK);
	assert_int_equal(shm_ring_create(&s.memory_back, &s.back, NULL), TR_OK);
	s.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s;
}

static tr_status stranger_say(const struct stranger *s, uint32_t kind, uint64_t bytes,
    const int *descriptors, unsigned count)
{
	struct shm_message message = { .kind = kind, .version = SHM_SOCKET_VERSION, .bytes = bytes };
	return shm_socket_send(s->socket, &message, descriptors, count);
}

/* Runs until the other side has closed. */
static void stranger_is_dropped(struct fixture *f, struct stranger *s)
{
	struct shm_received received;
	tr_status st;
	while ((st = shm_socket_receive(s->socket, &received)) != TR_EUNAVAILABLE) {
		for (unsigned i = 0; st == TR_OK && i < received.descriptor_count; i++)
			(void)close(received.descriptors[i]);
		(void)uv_run(&f->loop, UV_RUN_NOWAIT);
	}
	shm_ring_unmap(&s->memory);
	shm_ring_unmap(&s->memory_back);
	int all[] = { s->socket, s->ring, s->back, s->bell };
	for (size_t i = 0; i < 4; i++)
		(void)close(all[i]);
}

static void test_bad_hellos_are_dropped(void **state)
{
	static struct fixture f;
	int pipes[2];
	(void)state;
	open_hubs(&f);
	assert_int_equal(pipe(pipes), 0);
	int blocking = eventfd(0, EFD_CLOEXEC);
	for (int i = 0; i < 7; i++) {
		struct stranger s = stranger_come(&f);
		int hello[3] = { s.ring, s.back, s.bell };
		unsigned count = 3;
		uint32_t kind = SHM_HELLO;
		if (i == 0)
			count = 2;
		else if (i == 1)
			hello[0] = pipes[0];
		else if (i == 2)
			hello[2] = pipes[1];
		else if (i == 3)
			hello[2] = blocking;
		else if (i == 4)
			hello[0] = shm_memory_read_only(s.ring); /* it could not be written */
		else if (i == 5)
			kind = SHM_WELCOME;
		else
			kind = 77;
		assert_int_equal(stranger_say(&s, kind, 0, hello, count), TR_OK);
		if (i == 4)
			(void)close(hello[0]);
		stranger_is_dropped(&f, &s);
		assert_null(f.b.lane);
	}
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	(void)close(blocking);
	close_hubs(&f);
}

static void test_bad_rings_are_dropped(void **state)
{
	static struct fixture f;
	(void)state;
	open_hubs(&f);
	int small = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(small, 4096), 0);
	for (int i = 0; i < 5; i++) {
		struct stranger s = stranger_come(&f);
		int hello[3] = { s.ring, s.back, s.bell };
		assert_int_equal(stranger_say(&s, SHM_HELLO, 0, hello, 3), TR_OK);
		f.b.closed = false;
		RUN_UNTIL(&f, f.b.lane != NULL);
		struct shm_ring_slot *slot = &s.memory.slots[0];
		*slot = (struct shm_ring_slot){ .type = FRAME_SEGMENT, .memory = SHM_RING_INSIDE };
		if (i == 0)
			slot->body_bytes = UINT32_MAX;
		else if (i == 1)
			slot->memory = 5; /* never announced */
		else if (i == 2)
			slot->type = 4711;
		else if (i == 3)
			assert_int_equal(stranger_say(&s, SHM_MEMORY, 4096, &small, 1), TR_OK);
		else
			atomic_store(&s.memory_back.control->consumed, 9);
		atomic_store(&s.memory.control->produced, i == 3 ? 0 : 1);
		RUN_UNTIL(&f, f.b.closed);
		stranger_is_dropped(&f, &s);
	}
	(void)close(small);
	close_hubs(&f);
}

static struct shm_claim claimed;

static bool never(void *arg, const struct shm_claim *claim)
{
	(void)arg;
	claimed = *claim;
	return false;
}

static void test_refusal_is_said(void **state)
{
	static const struct shm_hub_callbacks refusing = { .admits = never };
	static struct fixture f;
	const struct shm_claim claim = { 3, 4, { 5, 6 } };
	struct shm_hub *hub;
	(void)state;
	open_hubs(&f);
	assert_int_equal(shm_hub_create(&f.loop, &refusing, NULL, &hub, NULL), TR_OK);
	assert_int_equal(shm_hub_dial(f.a.hub, shm_hub_address(hub), &claim, NULL, &side_callbacks,
	                     &f.a, &f.a.lane, NULL),
	    TR_OK);
	RUN_UNTIL(&f, f.a.closed);
	assert_false(f.a.opened);
	assert_string_equal(f.a.reason, "it wants none");
	assert_memory_equal(&claimed, &claim, sizeof(claim));
	shm_hub_close(hub);
	close_hubs(&f);
}

static void test_nobody_there(void **state)
{
	static struct fixture f;
	struct tr_error error;
	(void)state;
	open_hubs(&f);
	assert_int_equal(shm_hub_dial(f.a.hub, "traind-nobody", &nobody, NULL, &side_callbacks,
	                     &f.a, &f.a.lane, &error),
	    TR_EUNAVAILABLE);
	assert_null(f.a.lane);
	close_hubs(&f);
}

static void test_host_identity(void **state)
{
	char one[HOST_IDENTITY_MAX], two[HOST_IDENTITY_MAX];
	(void)state;
	host_identity(one);
	host_identity(two);
	assert_string_equal(one, two);
	assert_true(strlen(one) > 36);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_both_ways),
		cmocka_unit_test(test_shown_memory_is_read_in_place),
		cmocka_unit_test(test_who_is_starved_hears_of_what_was_read),
		cmocka_unit_test(test_private_memory_is_copied),
		cmocka_unit_test(test_refused_frames_wait),
		cmocka_unit_test(test_dropped_bodies_are_released_at_once),
		cmocka_unit_test(test_released_may_send_again),
		cmocka_unit_test(test_released_may_close),
		cmocka_unit_test(test_out_of_descriptors),
		cmocka_unit_test(test_more_dial_than_may_be_strangers),
		cmocka_unit_test(test_finish_is_read_to_the_end),
		cmocka_unit_test(test_bad_frame_ends_its_lane),
		cmocka_unit_test(test_death_is_noticed_and_its_words_are_read),
		cmocka_unit_test(test_bad_hellos_are_dropped),
		cmocka_unit_test(test_bad_rings_are_dropped),
		cmocka_unit_test(test_refusal_is_said),
		cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_host_identity),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
