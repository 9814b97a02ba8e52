/* A writer of checkpoints that is killed: before and after each of its system calls, and at any byte of its files; one that writes arrays as they lie, and one that reads them out of lent
 * shards. Nothing is lost: `latest` is the checkpoint before or the new one, whole; the next writer does its work and clears up. At which bytes is drawn anew in each run, from a seed that is
 * printed; SEED=N is that run again. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint_fixture.h"
#include "daemon/checkpoint/bulk_file.h"
#include "daemon/checkpoint/shard.h"

#define OLD_VALUE 3.0f
#define NEW_VALUE 5.0f
#define NEXT_STEP 900

/* A checkpoint of step `before` is there when one of `step` is written. */
struct kill {
	struct fixture *f;
	uint64_t before, step;
	bool lent; /* its arrays are: two shards of each */
	unsigned lost;
};

/* As a split job's worker lends them (daemon/worker/sharded_parts.c). */
enum { SHARDS = 2, ARRAYS = 3 };
struct lent {
	const struct layout *whole;
	struct shard shards[SHARDS];
	struct layout layouts[SHARDS];
	float *arrays[SHARDS][ARRAYS];
};

static void read_lent(void *arg, unsigned which, size_t tensor, size_t first, size_t end, float *to)
{
	const struct lent *lent = arg;
	for (unsigned k = 0; k < SHARDS; k++)
		shard_put_part(lent->whole, &lent->layouts[k], &lent->shards[k], tensor,
		    lent->arrays[k][which], first, end, to);
}

/* Of a child: it ends with all of it. */
static bool lend(const struct fixture *f, struct lent *lent)
{
	const float *const whole[ARRAYS] = { f->arrays.params, f->arrays.first, f->arrays.second };
	*lent = (struct lent){ .whole = &f->layout };
	for (unsigned k = 0; k < SHARDS; k++) {
		lent->shards[k] = (struct shard){ .rank = k, .size = SHARDS };
		if (shard_layout(&f->layout, &lent->shards[k], &lent->layouts[k], NULL) != TR_OK)
			return false;
		for (unsigned a = 0; a < ARRAYS; a++) {
			lent->arrays[k][a] = calloc(lent->layouts[k].count, sizeof(float));
			if (lent->arrays[k][a] == NULL)
				return false;
			shard_take(&f->layout, &lent->layouts[k], &lent->shards[k], whole[a],
			    lent->arrays[k][a]);
		}
	}
	return true;
}

static _Noreturn void write_in_child(const struct kill *kill)
{
	static struct lent lent;
	struct fixture *f = kill->f;
	struct manifest manifest = { .step = kill->step };
	struct checkpoint_source source = { .read = read_lent, .arg = &lent };
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX];
	f->arrays.params[0] = NEW_VALUE;
	if (kill->lent && !lend(f, &lent))
		_exit(2);
	tr_status status = kill->lent ? checkpoint_write_from(&f->folder, &f->layout, &source,
	                                    &manifest, "text", NULL, path, &error)
	                              : checkpoint_write(&f->folder, &f->layout, &f->arrays,
	                                    &manifest, "text", NULL, path, &error);
	_exit(status == TR_OK ? 0 : 1);
}

/* Lets a child write until its system call number `stops` / 2 is about to begin (even) or has ended (odd), and kills it there. False: it had ended before. */
static bool kill_at_call(const struct kill *what, unsigned stops)
{
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(2);
		(void)raise(SIGSTOP);
		write_in_child(what);
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
static bool kill_at_byte(const struct kill *what, unsigned bytes)
{
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit none = { 0, 0 }, limit = { bytes, bytes };
		if (setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
			_exit(2);
		(void)signal(SIGXFSZ, SIG_DFL);
		write_in_child(what);
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
	f->arrays.params[0] = f->back.params[0]; /* all the rest was the same before */
	for (size_t t = 0; t < f->layout.tensor_count; t++) {
		size_t at = f->layout.tensors[t].offset,
		       bytes = layout_numbers(&f->layout.tensors[t]) * sizeof(float);
		assert_memory_equal(f->back.params + at, f->arrays.params + at, bytes);
		assert_memory_equal(f->back.first + at, f->arrays.first + at, bytes);
		assert_memory_equal(f->back.second + at, f->arrays.second + at, bytes);
	}
	return f->back.params[0];
}

/* The writer is killed at moment `at`. True: it was. */
static bool check_kill(struct kill *what, unsigned at,
    bool (*kill_at)(const struct kill *what, unsigned at))
{
	struct fixture *f = what->f;
	char path[CHECKPOINT_PATH_MAX];
	uint64_t found;
	f->arrays.params[0] = OLD_VALUE;
	write_step(f, what->before, path);
	bool killed = kill_at(what, at);
	float value = first_number(f, &found);
	bool is_new = value == NEW_VALUE;
	assert_true(is_new || value == OLD_VALUE);
	/* Of the same step they differ by their numbers only. */
	assert_int_equal(found, is_new ? what->step : what->before);
	assert_true(killed || is_new);
	what->lost += !is_new;
	f->arrays.params[0] = OLD_VALUE;
	write_step(f, NEXT_STEP, path);
	assert_int_equal(hidden_left(f), 0);
	(void)first_number(f, &found);
	assert_int_equal(found, NEXT_STEP);
	return killed;
}

static void kill_at_each_call(struct fixture *f, uint64_t before, uint64_t step, bool lent)
{
	struct kill what = { f, before, step, lent, 0 };
	unsigned at = 0;
	while (check_kill(&what, at, kill_at_call))
		at++;
	/* Some kills were before the rename, some after it. */
	assert_true(at > 60 && what.lost > 20 && what.lost < at);
}

static void test_at_each_call(void **state)
{
	kill_at_each_call(*state, 100, 200, false);
}

static void test_at_each_call_of_lent_shards(void **state)
{
	kill_at_each_call(*state, 100, 200, true);
}

/* A run that was resumed writes a step that is there already. */
static void test_at_each_call_same_step(void **state)
{
	kill_at_each_call(*state, 200, 200, false);
}

/* One alone is kept: the old one is removed by the same writer. */
static void test_at_each_call_keeping_one(void **state)
{
	struct fixture *f = *state;
	f->folder.keep = 1;
	kill_at_each_call(f, 100, 200, false);
}

static void test_at_each_call_of_large_files(void **state)
{
	kill_at_each_call(*state, 100, 200, false);
}

/* ---- at bytes ---- */

static uint64_t seed; /* of this run */

/* Odd, and about as large as asked for. */
static unsigned draw_stride(unsigned about, uint64_t of)
{
	return (about / 2 + (unsigned)rng_below(rng_key(seed, 0, 0), of, 0, about)) | 1;
}

/* Each of the first bytes, then strides that fall anywhere in headers and numbers, until the files are whole. */
static void kill_at_bytes(struct kill *what, unsigned each, unsigned about, unsigned least,
    uint64_t of)
{
	unsigned at = 0, killed = 0, stride = draw_stride(about, of);
	print_message("SEED=%llu: strides of %u bytes\n", (unsigned long long)seed, stride);
	for (; check_kill(what, at, kill_at_byte); at += at < each ? 1 : stride)
		killed++;
	assert_true(killed > least && what->lost == killed);
}

static void test_at_bytes(void **state)
{
	struct kill what = { *state, 100, 200, false, 0 };
	kill_at_bytes(&what, 20, 301, 100, 1);
}

static void test_at_bytes_of_lent_shards(void **state)
{
	struct kill what = { *state, 100, 200, true, 0 };
	kill_at_bytes(&what, 20, 301, 100, 2);
}

/* And about the ends of what is written at once. */
static void kill_in_large_files(struct fixture *f, bool lent, uint64_t of)
{
	static const unsigned ends[] = { BULK_ALIGNMENT, BULK_BLOCK_BYTES, 2 * BULK_BLOCK_BYTES };
	struct kill what = { f, 100, 200, lent, 0 };
	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		for (unsigned at = ends[i] - 1; at <= ends[i] + 1; at++)
			assert_true(check_kill(&what, at, kill_at_byte));
	assert_int_equal(what.lost, 3 * sizeof(ends) / sizeof(ends[0]));
	what.lost = 0;
	kill_at_bytes(&what, 0, 700000, 8, of);
}

static void test_at_bytes_of_large_files(void **state)
{
	kill_in_large_files(*state, false, 3);
}

static void test_at_bytes_of_large_lent_shards(void **state)
{
	kill_in_large_files(*state, true, 4);
}

int main(void)
{
	const char *asked = getenv("SEED");
	seed = asked != NULL ? strtoull(asked, NULL, 10) : (uint64_t)time(NULL);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_at_each_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_of_lent_shards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_same_step, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_keeping_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_of_large_files, setup_large,
		    teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_lent_shards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_large_files, setup_large, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_large_lent_shards, setup_large,
		    teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
