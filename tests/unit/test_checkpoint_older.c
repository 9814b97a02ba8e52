/* Where the newest checkpoint is damaged: which one is before it, and what becomes of the damaged one. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint_fixture.h"
#include "daemon/checkpoint/hf_folder.h"

/* As NFS, where a test says so. */
static bool no_flags;

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	if (!no_flags || flags == 0)
		return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
	errno = EINVAL;
	return -1;
}

static const char *in(const struct fixture *f, const char *name)
{
	static char path[2][CHECKPOINT_PATH_MAX];
	static unsigned turn;
	char *to = path[turn++ % 2];
	(void)snprintf(to, CHECKPOINT_PATH_MAX, "%s/%s", f->folder.dir, name);
	return to;
}

static bool is_there(const struct fixture *f, const char *name)
{
	return access(in(f, name), F_OK) == 0;
}

static void write_steps(struct fixture *f, const uint64_t *steps, size_t count)
{
	char path[CHECKPOINT_PATH_MAX];
	for (size_t i = 0; i < count; i++)
		write_step(f, steps[i], path);
}

static void flip_a_byte(const struct fixture *f, const char *name)
{
	int fd = open(in(f, name), O_RDWR);
	struct stat about = { 0 };
	char byte;
	assert_true(fd >= 0 && fstat(fd, &about) == 0);
	assert_int_equal(pread(fd, &byte, 1, about.st_size / 2), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, about.st_size / 2), 1);
	assert_int_equal(close(fd), 0);
}

static void assert_latest(const struct fixture *f, const char *name)
{
	char target[64] = "";
	assert_true(readlink(in(f, "latest"), target, sizeof(target) - 1) > 0);
	assert_string_equal(target, name);
}

static tr_status read_at(struct fixture *f, const char *path, struct tr_error *error)
{
	char found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	return checkpoint_read(path, &f->layout, &f->back, &manifest, found, error);
}

static void the_one_before(void **state)
{
	struct fixture *f = *state;
	char older[CHECKPOINT_PATH_MAX];
	uint64_t step = 0, steps = 0;
	f->folder.keep = 9;
	/* 300 is of an earlier run, which counted further. */
	write_steps(f, (const uint64_t[]){ 300, 100, 120 }, 3);
	assert_true(checkpoint_before(f->folder.dir, 120, &step) && step == 100);
	assert_true(checkpoint_before(f->folder.dir, 1000, &step) && step == 120);
	assert_false(checkpoint_before(f->folder.dir, 100, &step));
	assert_false(checkpoint_before(in(f, "nowhere"), 100, &step));
	const char *newest[] = { in(f, "step-00000120"), f->folder.dir };
	for (size_t i = 0; i < 2; i++) {
		assert_true(checkpoint_older(newest[i], older, &steps));
		assert_string_equal(older, in(f, "step-00000100"));
		assert_int_equal(steps, 20);
	}
	assert_false(checkpoint_older(in(f, "step-00000100"), older, &steps));
	/* One that is gone has one before it too; what is no checkpoint's name has not. */
	assert_true(checkpoint_older(in(f, "step-00000110/"), older, &steps) && steps == 10);
	assert_false(checkpoint_older(in(f, "nowhere"), older, &steps));
	/* Nor is a folder without a manifest one. */
	assert_int_equal(unlink(in(f, "step-00000120/manifest.json")), 0);
	assert_false(checkpoint_before(f->folder.dir, 300, &step) && step == 120);
	assert_true(checkpoint_older(f->folder.dir, older, &steps) && steps == 20);
}

static void a_damaged_one_is_set_aside(void **state)
{
	struct fixture *f = *state;
	struct tr_error error;
	write_steps(f, (const uint64_t[]){ 100, 120 }, 2);
	flip_a_byte(f, "step-00000120/model.safetensors");
	tr_status status = read_at(f, f->folder.dir, &error);
	assert_int_equal(status, TR_EDIGEST);
	checkpoint_set_aside(f->folder.dir, status);
	assert_false(is_there(f, "step-00000120"));
	assert_true(is_there(f, "step-00000120.damaged/model.safetensors"));
	assert_latest(f, "step-00000100");
	assert_int_equal(read_at(f, f->folder.dir, &error), TR_OK);
	/* It is none of those that are kept, nor does the same step take its place. */
	write_steps(f, (const uint64_t[]){ 120 }, 1);
	assert_true(is_there(f, "step-00000100") && is_there(f, "step-00000120.damaged"));
	assert_latest(f, "step-00000120");
	checkpoint_set_aside(in(f, "step-00000120"), TR_EPROTO);
	assert_true(is_there(f, "step-00000120.damaged") && is_there(f, "step-00000120.damaged-2"));
	write_steps(f, (const uint64_t[]){ 140, 160, 180 }, 3);
	assert_true(is_there(f, "step-00000120.damaged") && is_there(f, "step-00000120.damaged-2"));
	assert_false(is_there(f, "step-00000140"));
	assert_int_equal(hidden_left(f), 0);
	/* There may be none before it, and another worker may have been first. */
	checkpoint_set_aside(in(f, "step-00000160"), TR_EDIGEST);
	assert_latest(f, "step-00000180");
	checkpoint_set_aside(in(f, "step-00000180"), TR_EDIGEST);
	checkpoint_set_aside(in(f, "step-00000180"), TR_EDIGEST);
	assert_true(is_there(f, "step-00000180.damaged"));
	assert_false(is_there(f, "step-00000180.damaged-2"));
}

/* The same step is written again, and a damaged one set aside, with plain renames too. */
static void renames_without_flags(void **state)
{
	struct fixture *f = *state;
	struct tr_error error;
	no_flags = true;
	write_steps(f, (const uint64_t[]){ 100, 120 }, 2);
	f->arrays.params[0] = 42;
	write_steps(f, (const uint64_t[]){ 120 }, 1);
	assert_int_equal(read_at(f, f->folder.dir, &error), TR_OK);
	assert_true(f->back.params[0] == 42);
	assert_true(is_there(f, "step-00000100"));
	assert_int_equal(hidden_left(f), 0);
	checkpoint_set_aside(in(f, "step-00000120"), TR_EDIGEST);
	assert_true(is_there(f, "step-00000120.damaged/model.safetensors"));
	assert_latest(f, "step-00000100");
	write_steps(f, (const uint64_t[]){ 120 }, 1);
	checkpoint_set_aside(in(f, "step-00000120"), TR_EDIGEST);
	assert_true(is_there(f, "step-00000120.damaged-2/model.safetensors"));
	no_flags = false;
}

/* Another model's, or without memory to read it: it is whole. */
static void what_is_not_damaged_stays(void **state)
{
	struct fixture *f = *state;
	static const tr_status others[] = { TR_EINVAL, TR_ENOMEM, TR_EIO, TR_ENOTFOUND, TR_ESTALE };
	write_steps(f, (const uint64_t[]){ 100 }, 1);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		checkpoint_set_aside(f->folder.dir, others[i]);
	assert_true(is_there(f, "step-00000100"));
}

/* The told one was kept alone, and the next was written before anybody heard of it. */
static void one_that_is_gone_has_a_newer_one(void **state)
{
	struct fixture *f = *state;
	char newer[CHECKPOINT_PATH_MAX];
	uint64_t steps = 0;
	f->folder.keep = 9;
	write_steps(f, (const uint64_t[]){ 300, 100 }, 2); /* 300 is of an earlier run */
	assert_false(checkpoint_newer(in(f, "step-00000100"), newer, &steps));
	f->folder.keep = 1;
	write_steps(f, (const uint64_t[]){ 120 }, 1);
	assert_true(checkpoint_newer(in(f, "step-00000100"), newer, &steps) && steps == 20);
	assert_string_equal(strrchr(newer, '/'), "/step-00000120");
	assert_false(checkpoint_newer(in(f, "step-00000120"), newer, &steps));
	assert_false(checkpoint_newer(in(f, "step-00000130"), newer, &steps));
	assert_false(checkpoint_newer(in(f, "nowhere"), newer, &steps));
	assert_int_equal(unlink(in(f, "latest")), 0);
	assert_false(checkpoint_newer(in(f, "step-00000100"), newer, &steps));
}

static void torn_files_are_measured(void **state)
{
	struct fixture *f = *state;
	struct tr_error error;
	struct stat about = { 0 };
	char words[128];
	write_steps(f, (const uint64_t[]){ 100 }, 1);
	assert_int_equal(stat(in(f, "step-00000100/model.safetensors"), &about), 0);
	assert_int_equal(truncate(in(f, "step-00000100/model.safetensors"), about.st_size - 7), 0);
	assert_int_equal(read_at(f, f->folder.dir, &error), TR_EPROTO);
	(void)snprintf(words, sizeof(words),
	    "model.safetensors: it is %lld bytes long, 7 too few for what its header names",
	    (long long)about.st_size - 7);
	assert_non_null(strstr(error.text, words));
}

static void an_export_names_the_one_before(void **state)
{
	struct fixture *f = *state;
	static const char *const damaged[] = { "step-00000120/config.json",
		"step-00000120/model.safetensors" };
	struct hf_result result;
	struct tr_error error;
	write_steps(f, (const uint64_t[]){ 100, 120 }, 2);
	for (size_t i = 2; i-- > 0;) {
		flip_a_byte(f, damaged[i]);
		assert_int_not_equal(hf_export(f->folder.dir, in(f, "out"), NULL, NULL, &result,
		                         &error),
		    TR_OK);
		assert_non_null(strstr(error.text, strchr(damaged[i], '/') + 1));
		assert_non_null(strstr(error.text, "the one before it, 20 steps older, is "));
		assert_non_null(strstr(error.text, in(f, "step-00000100")));
		assert_true(is_there(f, "step-00000120"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_one_before, setup, teardown),
		cmocka_unit_test_setup_teardown(a_damaged_one_is_set_aside, setup, teardown),
		cmocka_unit_test_setup_teardown(renames_without_flags, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_not_damaged_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_is_gone_has_a_newer_one, setup, teardown),
		cmocka_unit_test_setup_teardown(torn_files_are_measured, setup, teardown),
		cmocka_unit_test_setup_teardown(an_export_names_the_one_before, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
