/* A writer of checkpoints that is killed: before and after each of its system calls, and at any byte of its files. Nothing is lost: `latest` is the checkpoint before
 * or the new one, whole; the next writer does its work and clears up. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint_fixture.h"

#define OLD_VALUE 3.0f
#define NEW_VALUE 5.0f
#define NEXT_STEP 900

static _Noreturn void write_in_child(struct fixture *f, uint64_t step)
{
	struct manifest manifest = { .step = step };
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX];
	f->arrays.params[0] = NEW_VALUE;
	_exit(checkpoint_write(&f->folder, &f->layout, &f->arrays, &manifest, "text", NULL, path,
	          &error) == TR_OK
	        ? 0
	        : 1);
}

/* Lets a child write until its system call number `stops` / 2 is about to begin (even) or has ended (odd), and kills it there. False: it had ended before. */
static bool kill_at_call(struct fixture *f, uint64_t step, unsigned stops)
{
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(2);
		(void)raise(SIGSTOP);
		write_in_child(f, step);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	for (unsigned i = 0; WIFSTOPPED(status) && i <= stops; i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	bool killed = WIFSTOPPED(status);
	if (killed) {
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	} else if (WEXITSTATUS(status) == 2) {
		skip(); /* nobody may trace here */
	} else {
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return killed;
}

/* The same, killed by the byte of a file that is one too many. */
static bool kill_at_byte(struct fixture *f, uint64_t step, unsigned bytes)
{
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit none = { 0, 0 }, limit = { bytes, bytes };
		if (setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
			_exit(2);
		(void)signal(SIGXFSZ, SIG_DFL);
		write_in_child(f, step);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGXFSZ);
		return true;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static float first_number(struct fixture *f, uint64_t *step)
{
	struct manifest manifest;
	struct tr_error error;
	char found[CHECKPOINT_PATH_MAX];
	if (checkpoint_read(f->folder.dir, &f->layout, &f->back, &manifest, found, &error) != TR_OK)
		fail_msg("%s", error.text);
	*step = manifest.step;
	return f->back.params[0];
}

/* A checkpoint of step `before`, then one of step `step` whose writer is killed at moment `at`. True: it was. */
static bool check_kill(struct fixture *f, uint64_t before, uint64_t step, unsigned at,
    bool (*kill_at)(struct fixture *f, uint64_t step, unsigned at), unsigned *lost)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t found;
	f->arrays.params[0] = OLD_VALUE;
	write_step(f, before, path);
	bool killed = kill_at(f, step, at);
	float value = first_number(f, &found);
	bool is_new = value == NEW_VALUE;
	assert_true(is_new || value == OLD_VALUE);
	/* Of the same step they differ by their numbers only. */
	assert_int_equal(found, is_new ? step : before);
	assert_true(killed || is_new);
	*lost += !is_new;
	f->arrays.params[0] = OLD_VALUE;
	write_step(f, NEXT_STEP, path);
	assert_int_equal(hidden_left(f), 0);
	(void)first_number(f, &found);
	assert_int_equal(found, NEXT_STEP);
	return killed;
}

static void kill_at_each_call(struct fixture *f, uint64_t before, uint64_t step)
{
	unsigned at = 0, lost = 0;
	while (check_kill(f, before, step, at, kill_at_call, &lost))
		at++;
	/* Some kills were before the rename, some after it. */
	assert_true(at > 60 && lost > 20 && lost < at);
}

static void test_at_each_call(void **state)
{
	kill_at_each_call(*state, 100, 200);
}

/* A run that was resumed writes a step that is there already. */
static void test_at_each_call_same_step(void **state)
{
	kill_at_each_call(*state, 200, 200);
}

/* One alone is kept: the old one is removed by the same writer. */
static void test_at_each_call_keeping_one(void **state)
{
	struct fixture *f = *state;
	f->folder.keep = 1;
	kill_at_each_call(f, 100, 200);
}

static void test_at_each_call_of_large_files(void **state)
{
	kill_at_each_call(*state, 100, 200);
}

static void test_at_bytes(void **state)
{
	struct fixture *f = *state;
	unsigned at = 0, lost = 0, killed = 0;
	/* Each of the first bytes, then strides that fall anywhere in headers and numbers. */
	for (; check_kill(f, 100, 200, at, kill_at_byte, &lost); at += at < 20 ? 1 : 1009)
		killed++;
	assert_true(killed > 30 && lost == killed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_at_each_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_same_step, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_keeping_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_of_large_files, setup_large,
		    teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
