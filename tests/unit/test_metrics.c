/* metrics.jsonl: each committed step has its row, whoever dies between a commit and its row. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/metrics.h"

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/traind-metrics-XXXXXX");
	return mkdtemp(folder) == NULL;
}

static void path_of(char *path, size_t bytes)
{
	(void)snprintf(path, bytes, "%s/metrics.jsonl", folder);
}

static int remove_folder(void **state)
{
	char path[128];
	(void)state;
	path_of(path, sizeof(path));
	(void)unlink(path);
	return rmdir(folder);
}

static void commit_of(struct metrics *m, uint64_t step, bool writes, double loss)
{
	struct metrics_row row = { .step = step, .contributors = 3, .loss = loss, .val_loss = NAN };
	assert_true(metrics_add(m, folder, &row, writes));
}

static void commit(struct metrics *m, uint64_t step, bool writes)
{
	commit_of(m, step, writes, 0.5);
}

/* The steps of the rows, with blanks between. */
static void expect_steps(const char *expected)
{
	char path[128], line[2048], found[256] = "";
	unsigned long step;
	path_of(path, sizeof(path));
	FILE *file = fopen(path, "r");
	if (file == NULL)
		fail_msg("no %s", path);
	while (fgets(line, sizeof(line), file) != NULL) {
		size_t length = strlen(found);
		assert_int_equal(sscanf(line, "{\"step\":%lu,\"unix_ms\"", &step), 1);
		(void)snprintf(found + length, sizeof(found) - length, "%s%lu",
		    length > 0 ? " " : "", step);
	}
	(void)fclose(file);
	assert_string_equal(found, expected);
}

static void one_writer(void **state)
{
	struct metrics first = { 0 }, second = { 0 };
	(void)state;
	for (uint64_t step = 1; step <= 12; step++) {
		commit(&first, step, true);
		commit(&second, step, false);
	}
	expect_steps("1 2 3 4 5 6 7 8 9 10 11 12");
}

/* The first has committed step 2 and died before its row; the second has it. */
static void a_row_that_died_with_its_writer(void **state)
{
	struct metrics first = { 0 }, second = { 0 };
	(void)state;
	commit(&first, 1, true);
	commit(&second, 1, false);
	commit(&second, 2, false);
	expect_steps("1");
	commit(&second, 3, true);
	expect_steps("1 2 3");
	commit(&second, 4, true);
	expect_steps("1 2 3 4");
}

/* Of the last step too. */
static void the_last_row(void **state)
{
	struct metrics first = { 0 }, second = { 0 };
	(void)state;
	commit(&first, 1, true);
	commit(&second, 1, false);
	commit(&second, 2, false);
	assert_true(metrics_end(&second, folder, NAN, false));
	expect_steps("1");
	assert_true(metrics_end(&second, folder, NAN, true));
	assert_true(metrics_end(&second, folder, NAN, true));
	expect_steps("1 2");
	assert_true(metrics_end(&first, folder, NAN, true));
	expect_steps("1 2");
}

static void expect_rows_with(const char *words, unsigned rows)
{
	char path[128], line[2048];
	unsigned found = 0;
	path_of(path, sizeof(path));
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL)
		found += strstr(line, words) != NULL;
	(void)fclose(file);
	assert_int_equal(found, rows);
}

/* It takes the row's place, whoever wrote that, and stays one line; a shorter figure after a longer one too. */
static void the_last_validation_loss_is_in_the_last_row(void **state)
{
	struct metrics first = { 0 }, second = { 0 };
	(void)state;
	for (uint64_t step = 1; step <= 3; step++) {
		commit(&first, step, true);
		commit(&second, step, false);
	}
	expect_rows_with("\"val_loss\":null", 3);
	assert_true(metrics_end(&first, folder, 1.23456789, true));
	expect_steps("1 2 3");
	expect_rows_with("\"val_loss\":null", 2);
	expect_rows_with("\"val_loss\":1.23456789", 1);
	assert_true(metrics_end(&second, folder, 2, true));
	expect_steps("1 2 3");
	expect_rows_with("\"val_loss\":2,", 1);
	assert_true(metrics_end(&first, folder, 3, false)); /* another one writes */
	expect_rows_with("\"val_loss\":2,", 1);
}

/* A row that is brought by who ends, and one of a folder in which another run went further. */
static void a_last_validation_loss_goes_to_no_other_s_row(void **state)
{
	struct metrics first = { 0 }, second = { 0 };
	(void)state;
	commit(&first, 1, true);
	commit(&second, 1, false);
	commit(&second, 2, false);
	assert_true(metrics_end(&second, folder, 4, true));
	expect_steps("1 2");
	expect_rows_with("\"val_loss\":4,", 1);
	commit(&first, 2, true);
	commit(&first, 3, true);
	assert_true(metrics_end(&second, folder, 5, true));
	expect_steps("1 2 2 3");
	expect_rows_with("\"val_loss\":5,", 0);
}

/* It died behind its row; who writes next comes to that merge only then, as in modes where each is at a merge of its own time. */
static void a_row_that_its_writer_wrote(void **state)
{
	static const double losses[] = { 0.5, 1.0 / 3, NAN };
	(void)state;
	for (uint64_t i = 0; i < 3; i++) {
		struct metrics first = { 0 }, second = { 0 };
		commit(&first, 2 * i + 1, true);
		commit(&second, 2 * i + 1, false);
		commit_of(&first, 2 * i + 2, true, losses[i]);
		commit_of(&second, 2 * i + 2, true, losses[i]);
	}
	expect_steps("1 2 3 4 5 6");
}

/* Two, one after the other. */
static void two_writers_die(void **state)
{
	struct metrics first = { 0 }, third = { 0 };
	(void)state;
	commit(&first, 1, true);
	for (uint64_t step = 1; step <= 3; step++)
		commit(&third, step, false);
	commit(&third, 4, true);
	expect_steps("1 2 3 4");
}

/* Nothing is written twice where nothing is missing, nor by who has just come. */
static void nothing_is_missing(void **state)
{
	struct metrics first = { 0 }, second = { 0 }, joiner = { 0 };
	(void)state;
	commit(&first, 1, true);
	commit(&first, 2, true);
	commit(&second, 1, false);
	commit(&second, 2, false);
	commit(&second, 3, true);
	commit(&joiner, 4, true);
	commit(&second, 4, false);
	commit(&second, 5, true);
	expect_steps("1 2 3 4 5");
}

/* Steps that were undone are not brought back by who writes next. */
static void back_at_a_checkpoint(void **state)
{
	struct metrics first = { 0 }, second = { 0 };
	(void)state;
	for (uint64_t step = 1; step <= 5; step++)
		commit(&second, step, false);
	for (uint64_t step = 1; step <= 3; step++)
		commit(&first, step, true);
	commit_of(&second, 3, true, 0.4); /* from the checkpoint of step 2 */
	commit(&second, 4, true);
	expect_steps("1 2 3 3 4");
}

/* Who wrote the undone ones is lost with them, and the next one before it wrote any. */
static void rows_behind_undone_ones(void **state)
{
	struct metrics first = { 0 }, third = { 0 };
	(void)state;
	for (uint64_t step = 1; step <= 5; step++) {
		commit(&first, step, true);
		commit(&third, step, false);
	}
	commit_of(&third, 3, false, 0.4); /* from the checkpoint of step 2 */
	commit_of(&third, 4, false, 0.4);
	commit_of(&third, 5, true, 0.4);
	expect_steps("1 2 3 4 5 3 4 5");
}

/* A disk that was full for a time. */
static void what_could_not_be_written_comes_later(void **state)
{
	struct metrics m = { 0 };
	struct metrics_row row = { .step = 2 };
	(void)state;
	commit(&m, 1, true);
	assert_false(metrics_add(&m, "/dev/null", &row, true));
	commit(&m, 3, true);
	expect_steps("1 2 3");
}

static void allow_bytes(rlim_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* One that became full within a row: that half does not spoil the row behind it. */
static void half_a_row(void **state)
{
	struct metrics m = { 0 };
	struct metrics_row row = { .step = 2 };
	struct stat about;
	char path[128], line[2048];
	unsigned whole = 0, halves = 0;
	(void)state;
	commit(&m, 1, true);
	path_of(path, sizeof(path));
	assert_int_equal(stat(path, &about), 0);
	(void)signal(SIGXFSZ, SIG_IGN);
	allow_bytes((rlim_t)about.st_size + 20);
	bool written = metrics_add(&m, folder, &row, true);
	allow_bytes(RLIM_INFINITY);
	assert_false(written);
	commit(&m, 3, true);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		bool ends = strlen(line) > 2 && strcmp(line + strlen(line) - 2, "}\n") == 0;
		whole += ends;
		halves += !ends;
	}
	(void)fclose(file);
	assert_int_equal(whole, 3);
	assert_int_equal(halves, 1);
}

static void nowhere_to_write(void **state)
{
	struct metrics m = { 0 };
	struct metrics_row row = { .step = 1 };
	(void)state;
	assert_true(metrics_add(&m, "", &row, true));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_FOLDER(one_writer),
		IN_FOLDER(a_row_that_died_with_its_writer),
		IN_FOLDER(the_last_row),
		IN_FOLDER(a_row_that_its_writer_wrote),
		IN_FOLDER(two_writers_die),
		IN_FOLDER(nothing_is_missing),
		IN_FOLDER(back_at_a_checkpoint),
		IN_FOLDER(rows_behind_undone_ones),
		IN_FOLDER(what_could_not_be_written_comes_later),
		IN_FOLDER(half_a_row),
		IN_FOLDER(the_last_validation_loss_is_in_the_last_row),
		IN_FOLDER(a_last_validation_loss_goes_to_no_other_s_row),
		cmocka_unit_test(nowhere_to_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
