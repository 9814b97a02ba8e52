/* Logs of workers whose files cannot be renamed, as where somebody has made their folder read-only: nothing is lost, and it is said. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/node/capture.h"
#include "daemon/node/logfile.h"

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

static const char *not_renamed; /* whatever ends so; NULL: all can be */

/* The linker takes this instead of the C library's. */
int rename(const char *from, const char *to)
{
	size_t length = strlen(from), end = not_renamed != NULL ? strlen(not_renamed) : 0;
	if (end == 0 || length < end || strcmp(from + length - end, not_renamed) != 0)
		return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
	errno = EACCES;
	return -1;
}

/* Nothing is lost, and positions hold, whichever of the renames fails, also for who reads later; once they work files are as small as ever. */
static void test_goes_on_where_files_cannot_be_renamed(void **state)
{
	(void)state;
	static const char *const names[] = { "stuck", "stuck.1" };
	for (size_t i = 0; i < 2; i++) {
		struct logfile log, old;
		struct tr_error error;
		struct stat status;
		char text[256];
		uint64_t position = 0, later = 0;
		assert_int_equal(logfile_open(&log, file("stuck"), 10, 3, &error), TR_OK);
		for (int line = 0; line < 8; line++) {
			not_renamed = line < 2 ? NULL : names[i];
			(void)snprintf(text, sizeof(text), "line%d\n", line);
			assert_int_equal(logfile_write(&log, text, 6, &error), TR_OK);
			assert_int_equal(log.stuck, line < 2 ? 0 : EACCES);
		}
		read_all(&log, &position, text);
		assert_string_equal(text,
		    "line0\nline1\nline2\nline3\nline4\nline5\nline6\nline7\n");
		assert_int_equal(position, 48);
		assert_int_equal(logfile_open_old(&old, file("stuck"), 3, &error), TR_OK);
		read_all(&old, &later, text);
		assert_int_equal(later, 48);
		assert_memory_equal(text, "line0\nline1\n", 12);
		not_renamed = NULL;
		for (int line = 8; line < 11; line++)
			assert_int_equal(logfile_write(&log, "again\n", 6, &error), TR_OK);
		assert_int_equal(log.stuck, 0);
		assert_true(stat(file("stuck"), &status) == 0 && status.st_size == 6);
		assert_true(log.end == 66 && logfile_begin(&log) == 48);
		logfile_close(&log);
		for (unsigned age = 0; age < 3; age++)
			(void)unlink(file((const char *[]){ "stuck", "stuck.1", "stuck.2" }[age]));
		(void)unlink(file("stuck.at"));
	}
}

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

/* The daemon's log has one line of it, however often it is tried. */
static void test_a_log_that_cannot_be_rotated_is_told_once(void **state)
{
	(void)state;
	static struct capture capture;
	static char told[4096];
	bool over = false;
	uv_loop_t loop;
	int ends[4], to_stderr = dup(STDERR_FILENO);
	assert_int_equal(uv_loop_init(&loop), 0);
	capture_begin(&loop, &capture, "told", ends, &over);
	capture.log.bytes_max = 10;
	int words = open(file("words"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(dup2(words, STDERR_FILENO), STDERR_FILENO);
	not_renamed = "told";
	for (unsigned i = 0; i < 6; i++) {
		uint64_t next = capture.pipes[0].tail_bytes + 8;
		if (i == 4)
			not_renamed = NULL;
		assert_int_equal(write(ends[1], "a line.\n", 8), 8);
		while (capture.pipes[0].tail_bytes < next)
			(void)uv_run(&loop, UV_RUN_ONCE);
	}
	assert_int_equal(dup2(to_stderr, STDERR_FILENO), STDERR_FILENO);
	assert_true(pread(words, told, sizeof(told) - 1, 0) > 0);
	char *first = strstr(told, "cannot be rotated: cannot rename ");
	assert_true(
	    first != NULL && strstr(first, "told: Permission denied; it goes on in that") != NULL);
	assert_null(strstr(first + 1, "cannot be rotated"));
	assert_null(strstr(told, "is lost"));
	assert_int_equal(capture.log.end, 48);
	assert_true(close(words) == 0 && close(to_stderr) == 0 && close(ends[1]) == 0 &&
	    close(ends[3]) == 0);
	capture_finish(&capture);
	while (!over)
		(void)uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goes_on_where_files_cannot_be_renamed),
		cmocka_unit_test(test_a_log_that_cannot_be_rotated_is_told_once),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
