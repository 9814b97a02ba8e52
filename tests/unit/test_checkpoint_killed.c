/* A writer of checkpoints that is killed: before and after each of its system calls, and at any byte of its files; one that writes arrays as they lie, one that reads them out of lent
 * shards, and one that writes shards and publishes or drops them (checkpoint_shards.h). Nothing is lost: `latest` is the checkpoint before or the new one, whole; the next writer does its work
 * and clears up. At which bytes is drawn anew in each run, from a seed that is printed; SEED=N is that run again. */
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
#include "daemon/checkpoint/checkpoint_shards.h"
#include "daemon/checkpoint/shard.h"

#define OLD_VALUE 3.0f
#define NEW_VALUE 5.0f
#define NEXT_STEP 900
#define KEY       0x5eed /* of the try that is killed */
#define OTHER_KEY 1      /* of those before and after it */

enum kind {
	WHOLE,
	LENT, /* the same files, of arrays that are lent: two shards of each */
	SHARDS_PUBLISHED,
	SHARDS_DROPPED,
};

/* A checkpoint of step `before` is there when one of `step` is written. */
struct kill {
	struct fixture *f;
	uint64_t before, step;
	enum kind kind;
	unsigned written; /* shards, by another writer who stays alive */
	unsigned lost;
	struct manifest manifest; /* of the try */
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

static void take_back(struct lent *lent)
{
	for (unsigned k = 0; k < SHARDS; k++) {
		layout_finish(&lent->layouts[k]);
		for (unsigned a = 0; a < ARRAYS; a++)
			free(lent->arrays[k][a]);
	}
}

static struct manifest in_shards(uint64_t step)
{
	return (struct manifest){ .step = step,
		.shards = { .count = SHARDS, .pp = 1, .tp = SHARDS, .chunks = 1 } };
}

/* Those from `first` to before `end`. */
static tr_status put_shards(const struct fixture *f, unsigned first, unsigned end, uint64_t key,
    struct manifest *manifest, struct tr_error *error)
{
	struct lent lent;
	tr_status status = lend(f, &lent) ? TR_OK : TR_ENOMEM;
	for (unsigned k = first; k < end && status == TR_OK; k++) {
		const struct optim_arrays arrays = { .params = lent.arrays[k][0],
			.first = lent.arrays[k][1],
			.second = lent.arrays[k][2] };
		struct tr_digest digest = { 0, 0 };
		status = checkpoint_write_shard(&f->folder, manifest->step, key, k,
		    &lent.layouts[k], &arrays, NULL, &digest, error);
		(void)tr_digest_hex(digest, manifest->shards.files[k]);
	}
	take_back(&lent);
	return status;
}

/* Those that another writer has not, and what comes then. */
static tr_status end_shards(const struct kill *kill, struct tr_error *error)
{
	struct fixture *f = kill->f;
	struct manifest manifest = kill->manifest;
	char path[CHECKPOINT_PATH_MAX];
	tr_status status = put_shards(f, kill->written, SHARDS, KEY, &manifest, error);
	if (status == TR_OK && kill->kind == SHARDS_PUBLISHED)
		status = checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path,
		    error);
	if (kill->kind == SHARDS_DROPPED)
		checkpoint_drop_shards(&f->folder, kill->step, KEY);
	return status;
}

static tr_status write_lent(struct fixture *f, struct manifest *manifest, struct tr_error *error)
{
	struct lent lent;
	struct checkpoint_source source = { .read = read_lent, .arg = &lent };
	char path[CHECKPOINT_PATH_MAX];
	tr_status status = lend(f, &lent) ? checkpoint_write_from(&f->folder, &f->layout, &source,
	                                        manifest, "text", NULL, path, error)
	                                  : TR_ENOMEM;
	take_back(&lent);
	return status;
}

static _Noreturn void write_in_child(const struct kill *kill)
{
	struct fixture *f = kill->f;
	struct manifest manifest = { .step = kill->step };
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX];
	tr_status status;
	f->arrays.params[0] = NEW_VALUE;
	if (kill->kind == WHOLE)
		status = checkpoint_write(&f->folder, &f->layout, &f->arrays, &manifest, "text",
		    NULL, path, &error);
	else if (kill->kind == LENT)
		status = write_lent(f, &manifest, &error);
	else
		status = end_shards(kill, &error);
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

static bool is_in_shards(const struct kill *what)
{
	return what->kind == SHARDS_PUBLISHED || what->kind == SHARDS_DROPPED;
}

static void write_old(const struct kill *what, uint64_t step)
{
	struct fixture *f = what->f;
	struct manifest manifest = in_shards(step);
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX];
	f->arrays.params[0] = OLD_VALUE;
	if (!is_in_shards(what))
		write_step(f, step, path);
	else if (put_shards(f, 0, SHARDS, OTHER_KEY, &manifest, &error) != TR_OK ||
	    checkpoint_publish_shards(&f->folder, &f->layout, &manifest, OTHER_KEY, path, &error) !=
	        TR_OK)
		fail_msg("%s", error.text);
}

/* What other writers of the new one have done before. */
static void begin_new(struct kill *what)
{
	struct tr_error error;
	what->manifest = in_shards(what->step);
	what->f->arrays.params[0] = NEW_VALUE;
	if (what->written > 0 &&
	    put_shards(what->f, 0, what->written, KEY, &what->manifest, &error) != TR_OK)
		fail_msg("%s", error.text);
}

/* The writer is killed at moment `at`. True: it was. */
static bool check_kill(struct kill *what, unsigned at,
    bool (*kill_at)(const struct kill *what, unsigned at))
{
	struct fixture *f = what->f;
	uint64_t found, next = is_in_shards(what) ? what->step : NEXT_STEP;
	write_old(what, what->before);
	begin_new(what);
	bool killed = kill_at(what, at);
	if (is_in_shards(what) && at % 2 == 1) /* a writer that lives gives it up */
		checkpoint_drop_shards(&f->folder, what->step, KEY);
	float value = first_number(f, &found);
	bool is_new = value == NEW_VALUE;
	assert_true(is_new || value == OLD_VALUE);
	/* Of the same step they differ by their numbers only. */
	assert_int_equal(found, is_new ? what->step : what->before);
	assert_true(what->kind == SHARDS_DROPPED ? !is_new : killed || is_new);
	what->lost += !is_new;
	/* Those who write shards try that step again. */
	write_old(what, next);
	assert_int_equal(hidden_left(f), 0);
	assert_true(first_number(f, &found) == OLD_VALUE);
	assert_int_equal(found, next);
	return killed;
}

static void kill_at_each_call(struct fixture *f, uint64_t before, uint64_t step, enum kind kind)
{
	struct kill what = { .f = f, .before = before, .step = step, .kind = kind };
	unsigned at = 0;
	while (check_kill(&what, at, kill_at_call))
		at++;
	/* Some kills were before the rename, some after it; what is dropped is never there. */
	assert_true(at > 60 && what.lost > 20);
	assert_true(kind == SHARDS_DROPPED ? what.lost == at + 1 : what.lost < at);
}

static void test_at_each_call(void **state)
{
	kill_at_each_call(*state, 100, 200, WHOLE);
}

static void test_at_each_call_of_lent_shards(void **state)
{
	kill_at_each_call(*state, 100, 200, LENT);
}

/* A run that was resumed writes a step that is there already. */
static void test_at_each_call_same_step(void **state)
{
	kill_at_each_call(*state, 200, 200, WHOLE);
}

/* One alone is kept: the old one is removed by the same writer. */
static void test_at_each_call_keeping_one(void **state)
{
	struct fixture *f = *state;
	f->folder.keep = 1;
	kill_at_each_call(f, 100, 200, WHOLE);
}

static void test_at_each_call_of_large_files(void **state)
{
	kill_at_each_call(*state, 100, 200, WHOLE);
}

static void test_at_each_call_of_shards(void **state)
{
	kill_at_each_call(*state, 100, 200, SHARDS_PUBLISHED);
}

static void test_at_each_call_of_shards_same_step(void **state)
{
	kill_at_each_call(*state, 200, 200, SHARDS_PUBLISHED);
}

static void test_at_each_call_of_dropped_shards(void **state)
{
	kill_at_each_call(*state, 100, 200, SHARDS_DROPPED);
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

static void kill_at_bytes_of(struct fixture *f, enum kind kind, unsigned written, uint64_t of)
{
	struct kill what = { .f = f, .before = 100, .step = 200, .kind = kind, .written = written };
	kill_at_bytes(&what, 20, 301, 100, of);
}

static void test_at_bytes(void **state)
{
	kill_at_bytes_of(*state, WHOLE, 0, 1);
}

static void test_at_bytes_of_lent_shards(void **state)
{
	kill_at_bytes_of(*state, LENT, 0, 2);
}

static void test_at_bytes_of_the_first_shard(void **state)
{
	kill_at_bytes_of(*state, SHARDS_PUBLISHED, 0, 5);
}

/* Who publishes, too: the other's is written. */
static void test_at_bytes_of_the_last_shard(void **state)
{
	kill_at_bytes_of(*state, SHARDS_PUBLISHED, 1, 6);
}

/* And about the ends of what is written at once. */
static void kill_in_large_files(struct fixture *f, enum kind kind, unsigned written, uint64_t of)
{
	static const unsigned ends[] = { BULK_ALIGNMENT, BULK_BLOCK_BYTES, 2 * BULK_BLOCK_BYTES };
	struct kill what = { .f = f, .before = 100, .step = 200, .kind = kind, .written = written };
	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		for (unsigned at = ends[i] - 1; at <= ends[i] + 1; at++)
			assert_true(check_kill(&what, at, kill_at_byte));
	assert_int_equal(what.lost, 3 * sizeof(ends) / sizeof(ends[0]));
	what.lost = 0;
	kill_at_bytes(&what, 0, 700000, 8, of);
}

static void test_at_bytes_of_large_files(void **state)
{
	kill_in_large_files(*state, WHOLE, 0, 3);
}

static void test_at_bytes_of_large_lent_shards(void **state)
{
	kill_in_large_files(*state, LENT, 0, 4);
}

static void test_at_bytes_of_a_large_last_shard(void **state)
{
	kill_in_large_files(*state, SHARDS_PUBLISHED, 1, 7);
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
		cmocka_unit_test_setup_teardown(test_at_each_call_of_shards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_of_shards_same_step, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_at_each_call_of_dropped_shards, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_lent_shards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_the_first_shard, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_the_last_shard, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_large_files, setup_large, teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_large_lent_shards, setup_large,
		    teardown),
		cmocka_unit_test_setup_teardown(test_at_bytes_of_a_large_last_shard, setup_large,
		    teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
