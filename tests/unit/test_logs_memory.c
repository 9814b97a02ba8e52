/* Workers whose output nobody can read for lack of memory (logs.h). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/node/logs.h"

/* Sanitizers have a malloc of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_LACK_MEMORY 1
extern void *__libc_malloc(size_t bytes);
static _Thread_local bool no_memory;

void *malloc(size_t bytes)
{
	return no_memory ? NULL : __libc_malloc(bytes);
}
#else
#define CAN_LACK_MEMORY 0
static bool no_memory;
#endif

/* Else they would wait for ever for somebody to read it. */
static void test_a_worker_hears_that_nobody_reads_it(void **state)
{
	(void)state;
	if (!CAN_LACK_MEMORY)
		skip();
	static const struct logs_callbacks callbacks = { NULL, NULL };
	uv_loop_t loop;
	struct logs *logs;
	struct tr_error error;
	int out[2], err[2];
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(logs_create(&loop, "/nowhere", &callbacks, NULL, &logs, &error), TR_OK);
	assert_int_equal(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC | O_NONBLOCK), 0);
	(void)signal(SIGPIPE, SIG_IGN);
	no_memory = true;
	logs_capture(logs, 3, 1, 6, out[0], err[0]);
	no_memory = false;
	assert_int_equal(write(out[1], "words\n", 6), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(write(err[1], "words\n", 6), -1);
	assert_int_equal(errno, EPIPE);
	(void)close(out[1]);
	(void)close(err[1]);
	/* And all of it ends. */
	(void)alarm(60);
	no_memory = true;
	logs_destroy(logs);
	no_memory = false;
	(void)alarm(0);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_worker_hears_that_nobody_reads_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
