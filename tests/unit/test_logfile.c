/* Logs of workers: rotation, positions across rotations, capture of two pipes, readers. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/limits.h"
#include "daemon/node/capture.h"
#include "daemon/node/log_folder.h"
#include "daemon/node/log_stream.h"
#include "daemon/node/logfile.h"
#include "daemon/node/logs.h"

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/test_logfile.XXXXXX");
	return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[128];
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static const char *file(const char *name)
{
	static char path[512];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void read_all(const struct logfile *log, uint64_t *position, char *text)
{
	struct tr_error error;
	size_t bytes, used = 0;
	do {
		assert_int_equal(logfile_read(log, position, text + used, 3, &bytes, &error), TR_OK);
		used += bytes;
	} while (bytes > 0);
	text[used] = '\0';
}

static void test_rotation_keeps_the_newest(void **state)
{
	(void)state;
	struct logfile log;
	struct tr_error error;
	char text[256];
	assert_int_equal(logfile_open(&log, file("log"), 10, 3, &error), TR_OK);
	for (int i = 0; i < 10; i++) {
		(void)snprintf(text, sizeof(text), "line%d\n", i);
		assert_int_equal(logfile_write(&log, text, 6, &error), TR_OK);
	}
	/* One line fits a file: three are kept of ten. */
	assert_int_equal(log.end, 60);
	assert_int_equal(logfile_begin(&log), 42);
	uint64_t position = 0;
	read_all(&log, &position, text);
	assert_string_equal(text, "line7\nline8\nline9\n");
	assert_int_equal(position, 60);
	struct stat status;
	assert_int_equal(stat(file("log.2"), &status), 0);
	assert_int_equal(stat(file("log.3"), &status), -1);
	/* A position inside goes on where it was, across a rotation. */
	assert_int_equal(logfile_write(&log, "next10\n", 7, &error), TR_OK);
	read_all(&log, &position, text);
	assert_string_equal(text, "next10\n");
	logfile_close(&log);
}

static void test_goes_on_behind_what_is_there(void **state)
{
	(void)state;
	struct logfile log;
	struct tr_error error;
	char text[256];
	uint64_t position = 0;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(logfile_open(&log, file("again"), 8, 3, &error), TR_OK);
		assert_int_equal(logfile_write(&log, "abcde", 5, &error), TR_OK);
		logfile_close(&log);
	}
	assert_int_equal(logfile_open_old(&log, file("again"), 3, &error), TR_OK);
	read_all(&log, &position, text);
	assert_string_equal(text, "abcdeabcdeabcde");
	assert_int_equal(logfile_open_old(&log, file("nothing"), 3, &error), TR_ENOTFOUND);
}

/* Who goes on with a log finds the positions of who wrote it, also of bytes that are kept no more. */
static void test_positions_outlive_the_writer(void **state)
{
	(void)state;
	struct logfile log;
	struct tr_error error;
	char text[256];
	assert_int_equal(logfile_open(&log, file("places"), 10, 3, &error), TR_OK);
	for (int i = 0; i < 10; i++)
		assert_int_equal(logfile_write(&log, "a line\n", 7, &error), TR_OK);
	logfile_close(&log);
	assert_int_equal(logfile_open_old(&log, file("places"), 3, &error), TR_OK);
	assert_int_equal(log.end, 70);
	assert_int_equal(logfile_begin(&log), 49);
	uint64_t position = 63;
	read_all(&log, &position, text);
	assert_string_equal(text, "a line\n");
	assert_int_equal(logfile_open(&log, file("places"), 10, 3, &error), TR_OK);
	assert_int_equal(logfile_write(&log, "a line\n", 7, &error), TR_OK);
	assert_int_equal(log.end, 77);
	logfile_close(&log);
	assert_int_equal(logfile_open_old(&log, file("places"), 3, &error), TR_OK);
	assert_int_equal(log.end, 77);
	assert_int_equal(logfile_begin(&log), 56);
}

static void test_a_full_disk_loses_the_piece_only(void **state)
{
	(void)state;
	struct logfile log;
	struct tr_error error;
	assert_int_equal(logfile_open(&log, "/dev/full", 100, 3, &error), TR_OK);
	assert_int_equal(logfile_write(&log, "lost", 4, &error), TR_EIO);
	assert_non_null(strstr(error.text, "No space left"));
	assert_int_equal(log.end, 0);
	logfile_close(&log);
}

/* Somebody removes the folder: what comes after the next rotation is kept again. */
static void test_a_folder_that_goes_away_is_made_again(void **state)
{
	(void)state;
	struct logfile log;
	struct tr_error error;
	uint64_t position = 0;
	char text[64];
	assert_int_equal(logfile_open(&log, file("gone/deep/log"), 4, 3, &error), TR_OK);
	assert_int_equal(logfile_write(&log, "one\n", 4, &error), TR_OK);
	assert_int_equal(unlink(file("gone/deep/log")), 0);
	assert_int_equal(rmdir(file("gone/deep")), 0);
	assert_int_equal(logfile_write(&log, "two\n", 4, &error), TR_OK);
	assert_int_equal(logfile_write(&log, "six\n", 4, &error), TR_OK);
	read_all(&log, &position, text);
	assert_string_equal(text, "two\nsix\n");
	logfile_close(&log);
}

/* It need not be full: the next piece is in a file that can be read, behind a gap. */
static void test_a_file_that_is_removed_is_made_again(void **state)
{
	(void)state;
	struct logfile log, old;
	struct tr_error error;
	uint64_t position = 0;
	char text[64];
	assert_int_equal(logfile_open(&log, file("removed/log"), 100, 3, &error), TR_OK);
	assert_int_equal(logfile_write(&log, "one\n", 4, &error), TR_OK);
	assert_int_equal(unlink(file("removed/log")), 0);
	assert_int_equal(rmdir(file("removed")), 0);
	assert_int_equal(logfile_write(&log, "two\n", 4, &error), TR_OK);
	assert_int_equal(logfile_begin(&log), 4);
	read_all(&log, &position, text);
	assert_string_equal(text, "two\n");
	assert_int_equal(logfile_open_old(&old, file("removed/log"), 3, &error), TR_OK);
	assert_int_equal(logfile_begin(&old), 4);
	logfile_close(&old);
	logfile_close(&log);
}

/* No room for the folder at first (here: a file has its place). */
static void test_a_folder_that_cannot_be_made_at_first(void **state)
{
	(void)state;
	struct logfile log;
	struct tr_error error;
	uint64_t position = 0;
	char text[64];
	(void)fclose(fopen(file("taken"), "w"));
	assert_int_equal(logfile_open(&log, file("taken/log"), 100, 3, &error), TR_EIO);
	assert_int_equal(logfile_write(&log, "lost\n", 5, &error), TR_EIO);
	assert_int_equal(unlink(file("taken")), 0);
	assert_int_equal(logfile_write(&log, "kept\n", 5, &error), TR_OK);
	read_all(&log, &position, text);
	assert_string_equal(text, "kept\n");
	logfile_close(&log);
}

/* ---- the log thread */

struct reader {
	uv_loop_t loop;
	struct logs *logs;
	char text[1 << 16], lines[4096], error[256];
	size_t bytes, pieces;
	uint64_t position; /* behind the last piece */
	bool ended, drained, other_drained;
};

static void got_data(void *arg, uint64_t stream, uint64_t position, const void *data, size_t bytes,
    bool end, const char *error)
{
	struct reader *reader = arg;
	assert_int_equal(stream, 9);
	assert_false(reader->ended);
	if (bytes > 0) {
		assert_true(reader->bytes == 0 || position == reader->position);
		reader->position = position + bytes;
	}
	assert_true(reader->bytes + bytes < sizeof(reader->text));
	memcpy(reader->text + reader->bytes, data, bytes);
	reader->bytes += bytes;
	reader->pieces += bytes > 0;
	reader->ended = end;
	(void)snprintf(reader->error, sizeof(reader->error), "%s", error);
}

static void got_drained(void *arg, uint64_t peer, const char *last_lines)
{
	struct reader *reader = arg;
	if (peer != 5) {
		reader->other_drained = true;
		return;
	}
	reader->drained = true;
	(void)snprintf(reader->lines, sizeof(reader->lines), "%s", last_lines);
}

static void begin(struct reader *reader, int *out_fd, int *err_fd)
{
	static const struct logs_callbacks callbacks = { got_data, got_drained };
	struct tr_error error;
	int out[2], err[2];
	assert_int_equal(uv_loop_init(&reader->loop), 0);
	assert_int_equal(logs_create(&reader->loop, file("thread"), &callbacks, reader,
	                     &reader->logs, &error),
	    TR_OK);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	logs_capture(reader->logs, 3, 1, 5, out[0], err[0]);
	*out_fd = out[1];
	*err_fd = err[1];
}

static void run_until(struct reader *reader, const bool *flag)
{
	while (!*flag)
		(void)uv_run(&reader->loop, UV_RUN_ONCE);
}

static void finish(struct reader *reader)
{
	logs_destroy(reader->logs);
	(void)uv_run(&reader->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&reader->loop), 0);
}

static void put(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void test_lines_are_whole_and_the_last_are_told(void **state)
{
	(void)state;
	struct reader reader = { 0 };
	int out_fd, err_fd;
	begin(&reader, &out_fd, &err_fd);
	logs_open(reader.logs,
	    &(struct logs_request){ .stream = 9,
	        .job = 3,
	        .peer = 5,
	        .follow = true,
	        .credit_bytes = 1 << 20 });
	put(out_fd, "one ");
	put(err_fd, "warning\n");
	put(out_fd, "line\n");
	put(err_fd, "Traceback: it broke");
	(void)close(out_fd);
	(void)close(err_fd);
	logs_finish(reader.logs, 5);
	run_until(&reader, &reader.drained);
	run_until(&reader, &reader.ended);
	assert_string_equal(reader.error, "");
	assert_string_equal(reader.lines, "warning\nTraceback: it broke");
	reader.text[reader.bytes] = '\0';
	assert_non_null(strstr(reader.text, "one line\n"));
	assert_non_null(strstr(reader.text, "warning\n"));
	assert_int_equal(access(file("thread/job-3/rank-1.peer-5.log"), F_OK), 0);
	finish(&reader);
}

static void make_jobs(unsigned first, unsigned count)
{
	char name[64];
	for (unsigned i = 0; i < count; i++) {
		(void)snprintf(name, sizeof(name), "thread/job-%u", first + i);
		assert_int_equal(mkdir(file(name), 0700), 0);
	}
}

/* However many jobs came after it. */
static void test_the_output_of_a_running_job_stays(void **state)
{
	(void)state;
	struct reader reader = { 0 };
	int out_fd, err_fd, out[2], err[2];
	char text[64];
	begin(&reader, &out_fd, &err_fd);
	put(out_fd, "first\n");
	while (access(file("thread/job-3/rank-1.peer-5.log"), F_OK) != 0)
		(void)usleep(1000);
	make_jobs(1000, TR_LOG_JOBS_MAX);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	logs_capture(reader.logs, 3000, 0, 6, out[0], err[0]);
	(void)close(out[1]);
	(void)close(err[1]);
	logs_finish(reader.logs, 6);
	run_until(&reader, &reader.other_drained);
	assert_int_equal(access(file("thread/job-1000"), F_OK), -1);
	assert_int_equal(access(file("thread/job-1002"), F_OK), 0);
	put(out_fd, "second\n");
	(void)close(out_fd);
	(void)close(err_fd);
	logs_finish(reader.logs, 5);
	run_until(&reader, &reader.drained);
	FILE *log = fopen(file("thread/job-3/rank-1.peer-5.log"), "r");
	assert_non_null(log);
	assert_non_null(fgets(text, sizeof(text), log));
	assert_string_equal(text, "first\n");
	assert_non_null(fgets(text, sizeof(text), log));
	assert_string_equal(text, "second\n");
	(void)fclose(log);
	finish(&reader);
}

/* A line longer than all that is kept is told from its start, and what came before it does not begin in a middle. */
static void test_last_lines_begin_at_their_start(void **state)
{
	(void)state;
	struct reader reader = { 0 };
	int out_fd, err_fd;
	begin(&reader, &out_fd, &err_fd);
	for (int i = 0; i < 100; i++)
		put(err_fd, "a line of thirty-four characters.\n");
	put(err_fd, "RuntimeError: ");
	for (int i = 0; i < 100; i++)
		put(err_fd, "no end of this line is to be seen, ");
	(void)close(out_fd);
	(void)close(err_fd);
	logs_finish(reader.logs, 5);
	run_until(&reader, &reader.drained);
	assert_memory_equal(reader.lines, "a line of ", 10);
	const char *last = strrchr(reader.lines, '\n') + 1;
	assert_memory_equal(last, "RuntimeError: no end", 20);
	assert_int_equal(strlen(last), 512);
	finish(&reader);
}

static void test_no_piece_without_credit(void **state)
{
	(void)state;
	struct reader reader = { 0 };
	int out_fd, err_fd;
	begin(&reader, &out_fd, &err_fd);
	put(out_fd, "0123456789\n");
	(void)close(out_fd);
	(void)close(err_fd);
	logs_finish(reader.logs, 5);
	run_until(&reader, &reader.drained);
	/* From the file that it left, the last 11 bytes, 4 at first. */
	struct logs_request request = { .stream = 9,
		.job = 3,
		.peer = 5,
		.tail_bytes = 11,
		.credit_bytes = 4 };
	logs_open(reader.logs, &request);
	while (reader.bytes == 0)
		(void)uv_run(&reader.loop, UV_RUN_ONCE);
	(void)uv_run(&reader.loop, UV_RUN_NOWAIT);
	assert_int_equal(reader.bytes, 4);
	assert_false(reader.ended);
	logs_credit(reader.logs, 9, 100);
	run_until(&reader, &reader.ended);
	reader.text[reader.bytes] = '\0';
	assert_string_equal(reader.text, "0123456789\n");
	struct stat status;
	assert_int_equal(stat(file("thread/job-3/rank-1.peer-5.log"), &status), 0);
	assert_int_equal(reader.pieces, 2);
	assert_int_equal(reader.position, status.st_size);
	finish(&reader);
}

static void test_nothing_kept_of_an_unknown_peer(void **state)
{
	(void)state;
	struct reader reader = { 0 };
	int out_fd, err_fd;
	begin(&reader, &out_fd, &err_fd);
	logs_open(reader.logs,
	    &(struct logs_request){ .stream = 9, .job = 3, .peer = 99, .credit_bytes = 4 });
	run_until(&reader, &reader.ended);
	assert_string_equal(reader.error, "no output of peer 99 of job 3 is kept here");
	(void)close(out_fd);
	(void)close(err_fd);
	finish(&reader);
}

/* What a shell would take for a pattern is a name as any other, of --dir too. */
static void test_kept_output_below_any_folder(void **state)
{
	(void)state;
	char path[600], piece[LOG_STREAM_PIECE_BYTES];
	struct tr_error error;
	struct logfile log;
	struct log_stream stream;
	size_t bytes;
	bool ended;
	const struct logs_request request = { .stream = 9,
		.job = 3,
		.peer = 5,
		.credit_bytes = 100 };
	const char *below = file("run[1] a*b?c\\d");
	assert_int_equal(log_folder_file(below, 3, 1, 5, path, sizeof(path), &error), TR_OK);
	assert_int_equal(logfile_open(&log, path, 1000, 3, &error), TR_OK);
	assert_int_equal(logfile_write(&log, "kept\n", 5, &error), TR_OK);
	logfile_close(&log);
	if (log_stream_start(&stream, &request, NULL, below, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(log_stream_next(&stream, piece, &bytes, &ended, &error), TR_OK);
	assert_true(bytes == 5 && memcmp(piece, "kept\n", 5) == 0);
	log_stream_finish(&stream);
}

/* A memberd that begins anew, with a folder of its own that is empty, gives the same numbers again: what a worker of the one before wrote
 * is not this one's. */
static void test_a_peer_begins_with_nothing(void **state)
{
	(void)state;
	struct reader reader = { 0 };
	struct logfile log;
	struct tr_error error;
	int out_fd, err_fd;
	const char *before[] = { "thread/job-3/rank-0.peer-5.log", "thread/job-3/rank-1.peer-5.log",
		"thread/job-3/rank-0.peer-55.log" };
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(logfile_open(&log, file(before[i]), 8, 3, &error), TR_OK);
		assert_int_equal(logfile_write(&log, "another\n", 8, &error), TR_OK);
		assert_int_equal(logfile_write(&log, "cluster\n", 8, &error), TR_OK);
		logfile_close(&log);
	}
	begin(&reader, &out_fd, &err_fd);
	put(out_fd, "ours\n");
	(void)close(out_fd);
	(void)close(err_fd);
	logs_finish(reader.logs, 5);
	run_until(&reader, &reader.drained);
	logs_open(reader.logs,
	    &(struct logs_request){ .stream = 9, .job = 3, .peer = 5, .credit_bytes = 1000 });
	run_until(&reader, &reader.ended);
	reader.text[reader.bytes] = '\0';
	assert_string_equal(reader.text, "ours\n");
	assert_int_equal(access(file(before[2]), F_OK), 0);
	finish(&reader);
}

/* ---- one loop, two workers: descriptors' numbers come again ---- */

static void grown(struct capture *capture)
{
	(void)capture;
}

static void drained(struct capture *capture)
{
	bool *over = capture->owner;
	*over = true;
}

static void capture_begin(uv_loop_t *loop, struct capture *capture, const char *name, int ends[4],
    bool *over)
{
	struct tr_error error;
	struct logfile log;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(ends + 2), 0);
	assert_int_equal(logfile_open(&log, file(name), 1 << 20, 2, &error), TR_OK);
	*capture = (struct capture){ .grown = grown, .drained = drained, .owner = over };
	assert_int_equal(capture_start(loop, capture, &log, ends[0], ends[2], &error), TR_OK);
}

/* The first worker closes stdout and lives on; the second gets that number; the first ends. The second is still read. */
static void test_a_number_that_comes_again(void **state)
{
	(void)state;
	static struct capture first, second;
	bool first_over = false, second_over = false;
	int one[4], two[4];
	uv_loop_t loop;
	assert_int_equal(uv_loop_init(&loop), 0);
	capture_begin(&loop, &first, "first", one, &first_over);
	assert_int_equal(close(one[1]), 0);
	while (first.pipes[0].fd >= 0)
		(void)uv_run(&loop, UV_RUN_ONCE);
	capture_begin(&loop, &second, "second", two, &second_over);
	assert_int_equal(two[0], one[0]);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(close(one[3]), 0);
	capture_finish(&first);
	while (!first_over)
		(void)uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(write(two[1], "here\n", 5), 5);
	assert_int_equal(close(two[1]), 0);
	/* Its end is seen in some turns of the loop, or never. */
	for (int i = 0; i < 1000 && second.pipes[0].fd >= 0; i++)
		(void)uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(second.pipes[0].fd, -1);
	assert_int_equal(close(two[3]), 0);
	capture_finish(&second);
	while (!second_over)
		(void)uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* Twice the disk is full for a while: what each cost is said. */
static void test_what_a_full_disk_cost_is_told_each_time(void **state)
{
	(void)state;
	static struct capture capture;
	static const char *const texts[] = { "here\n", "five\n", "again\n", "two\n", "over\n" };
	static char told[4096];
	bool over = false;
	uv_loop_t loop;
	int ends[4], to_stderr = dup(STDERR_FILENO);
	assert_int_equal(uv_loop_init(&loop), 0);
	capture_begin(&loop, &capture, "costs", ends, &over);
	int disks[2] = { dup(capture.log.fd), open("/dev/full", O_WRONLY | O_CLOEXEC) };
	int words = open(file("stderr"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(dup2(words, STDERR_FILENO), STDERR_FILENO);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t next = capture.pipes[0].tail_bytes + strlen(texts[i]);
		assert_int_equal(dup2(disks[i % 2], capture.log.fd), capture.log.fd);
		put(ends[1], texts[i]);
		while (capture.pipes[0].tail_bytes < next)
			(void)uv_run(&loop, UV_RUN_ONCE);
	}
	assert_int_equal(dup2(to_stderr, STDERR_FILENO), STDERR_FILENO);
	assert_true(pread(words, told, sizeof(told) - 1, 0) > 0);
	assert_true(strstr(told, " 5 bytes are missing") != NULL &&
	    strstr(told, " 4 bytes are missing") != NULL);
	for (unsigned i = 0; i < 2; i++)
		assert_true(close(ends[2 * i + 1]) == 0 && close(disks[i]) == 0);
	assert_true(close(words) == 0 && close(to_stderr) == 0);
	capture_finish(&capture);
	while (!over)
		(void)uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rotation_keeps_the_newest),
		cmocka_unit_test(test_goes_on_behind_what_is_there),
		cmocka_unit_test(test_positions_outlive_the_writer),
		cmocka_unit_test(test_a_full_disk_loses_the_piece_only),
		cmocka_unit_test(test_a_folder_that_goes_away_is_made_again),
		cmocka_unit_test(test_a_file_that_is_removed_is_made_again),
		cmocka_unit_test(test_a_folder_that_cannot_be_made_at_first),
		cmocka_unit_test(test_the_output_of_a_running_job_stays),
		cmocka_unit_test(test_lines_are_whole_and_the_last_are_told),
		cmocka_unit_test(test_last_lines_begin_at_their_start),
		cmocka_unit_test(test_no_piece_without_credit),
		cmocka_unit_test(test_nothing_kept_of_an_unknown_peer),
		cmocka_unit_test(test_kept_output_below_any_folder),
		cmocka_unit_test(test_a_peer_begins_with_nothing),
		cmocka_unit_test(test_a_number_that_comes_again),
		cmocka_unit_test(test_what_a_full_disk_cost_is_told_each_time),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
