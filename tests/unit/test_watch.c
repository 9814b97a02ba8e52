/* Who sleeps in a loop's epoll by himself learns that the loop needs a turn first. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "collectives/transport/watch.h"

struct pipes {
	uv_loop_t loop;
	int ends[2][2];
	uv_poll_t polls[2];
	unsigned heard;
};

static void on_second(uv_poll_t *poll, int status, int events)
{
	struct pipes *p = poll->data;
	assert_int_equal(status, 0);
	assert_int_equal(events, UV_READABLE);
	(void)uv_poll_stop(poll);
	p->heard++;
}

static void on_first(uv_poll_t *poll, int status, int events)
{
	struct pipes *p = poll->data;
	assert_int_equal(status, 0);
	assert_int_equal(events, UV_READABLE);
	(void)uv_poll_stop(poll);
	watch_start(&p->polls[1], UV_READABLE, on_second);
}

static bool epoll_has_news(struct pipes *p)
{
	struct pollfd wait = { .fd = uv_backend_fd(&p->loop), .events = POLLIN };
	return poll(&wait, 1, 0) > 0;
}

/* Both pipes can be read. */
static void a_watcher_that_a_callback_starts_wants_a_turn(void **state)
{
	(void)state;
	struct pipes p = { 0 };
	char byte;
	assert_int_equal(uv_loop_init(&p.loop), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pipe(p.ends[i]), 0);
		assert_int_equal(write(p.ends[i][1], "x", 1), 1);
		assert_int_equal(uv_poll_init(&p.loop, &p.polls[i], p.ends[i][0]), 0);
		p.polls[i].data = &p;
	}
	assert_false(watch_started());
	watch_start(&p.polls[0], UV_READABLE, on_first);
	assert_true(watch_started());
	assert_false(watch_started());
	(void)uv_run(&p.loop, UV_RUN_NOWAIT);
	assert_int_equal(read(p.ends[0][0], &byte, 1), 1);
	assert_int_equal(p.heard, 0);
	assert_false(epoll_has_news(&p)); /* who sleeps now misses the second */
	assert_true(watch_started());
	(void)uv_run(&p.loop, UV_RUN_NOWAIT);
	assert_int_equal(p.heard, 1);
	assert_false(watch_started());
	for (int i = 0; i < 2; i++) {
		uv_close((uv_handle_t *)&p.polls[i], NULL);
		(void)close(p.ends[i][1]);
	}
	(void)uv_run(&p.loop, UV_RUN_DEFAULT);
	for (int i = 0; i < 2; i++)
		(void)close(p.ends[i][0]);
	assert_int_equal(uv_loop_close(&p.loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_watcher_that_a_callback_starts_wants_a_turn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
