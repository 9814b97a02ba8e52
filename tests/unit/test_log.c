#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/limits.h"
#include "common/log.h"
#include "common/log_limit.h"

static char captured[4096];

/* What the calls between capture_begin and capture_end wrote to stderr. */
static int saved_stderr;
static FILE *capture;

static void capture_begin(void)
{
	capture = tmpfile();
	assert_non_null(capture);
	saved_stderr = dup(STDERR_FILENO);
	assert_true(saved_stderr >= 0);
	assert_true(dup2(fileno(capture), STDERR_FILENO) >= 0);
}

static void capture_end(void)
{
	assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
	(void)close(saved_stderr);
	rewind(capture);
	size_t got = fread(captured, 1, sizeof(captured) - 1, capture);
	captured[got] = '\0';
	(void)fclose(capture);
}

static void levels_have_names(void **state)
{
	(void)state;
	enum log_level level = LOG_ERROR;
	assert_true(log_level_parse("debug", &level));
	assert_int_equal(level, LOG_DEBUG);
	assert_true(log_level_parse("warn", &level));
	assert_int_equal(level, LOG_WARN);
	assert_false(log_level_parse("loud", &level));
	assert_int_equal(level, LOG_WARN);
}

static void a_line_says_when_who_and_what(void **state)
{
	(void)state;
	log_configure(LOG_INFO, false);
	capture_begin();
	log_debug("test", "not seen");
	log_warn("membership", "node n%d suspected: silent for %.1f s", 3, 2.0);
	capture_end();
	assert_null(strstr(captured, "not seen"));
	assert_int_equal(captured[4], '-');
	assert_int_equal(captured[10], 'T');
	assert_non_null(
	    strstr(captured, "Z warn  membership: node n3 suspected: silent for 2.0 s\n"));
}

static void json_lines_are_objects(void **state)
{
	(void)state;
	log_configure(LOG_DEBUG, true);
	capture_begin();
	log_debug("test", "say \"%s\"\n", "so");
	capture_end();
	log_configure(LOG_INFO, false);
	assert_memory_equal(captured, "{\"time\":\"", 9);
	assert_non_null(strstr(captured,
	    "\"level\":\"debug\",\"subsystem\":\"test\",\"message\":\"say \\\"so\\\"\\n\"}\n"));
}

static void no_message_forges_a_line(void **state)
{
	(void)state;
	capture_begin();
	log_info("test", "%s", "one\n2026-01-01T00:00:00.000Z error x: forged\x1b[0m");
	capture_end();
	assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
	assert_null(strchr(captured, '\x1b'));
}

static void long_messages_are_cut(void **state)
{
	(void)state;
	char longer[3000];
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	capture_begin();
	log_info("test", "%s", longer);
	capture_end();
	size_t length = strlen(captured);
	assert_true(length > 1000 && length < 1280);
	assert_int_equal(captured[length - 1], '\n');
	memset(longer, '"', sizeof(longer) - 1);
	log_configure(LOG_INFO, true);
	capture_begin();
	log_info("test", "%s", longer);
	capture_end();
	log_configure(LOG_INFO, false);
	assert_string_equal(captured + strlen(captured) - 5, "\\\"\"}\n");
}

static unsigned lines_captured(void)
{
	unsigned lines = 0;
	for (const char *at = captured; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	return lines;
}

static void what_strangers_cause_is_limited_and_counted(void **state)
{
	(void)state;
	struct log_limit limit;
	log_configure(LOG_INFO, false);
	log_limit_init(&limit, 5000);
	capture_begin();
	for (int i = 0; i < 10000; i++)
		log_limited(&limit, 5000, LOG_INFO, "test", "dropped %d", i);
	capture_end();
	assert_int_equal(lines_captured(), TR_LOG_LIMIT_BURST);
	assert_null(strstr(captured, "left out"));
	capture_begin();
	log_limited(&limit, 6000, LOG_WARN, "test", "dropped the last");
	log_limited(&limit, 6000, LOG_WARN, "test", "dropped the very last");
	capture_end();
	assert_int_equal(lines_captured(), 1 + TR_LOG_LIMIT_RATE);
	char left_out[64];
	(void)snprintf(left_out, sizeof(left_out),
	    "warn  test: %d lines like the next were left out\n", 10000 - TR_LOG_LIMIT_BURST);
	const char *count = strstr(captured, left_out);
	assert_non_null(count);
	assert_true(strstr(captured, "dropped the last") > count);
}

/* stderr is a pipe that holds 4096 bytes (of a kernel that has larger pages: of one page), which nobody reads at first. Runs in a child: what logs in the background stays so. */
static int log_to_a_full_pipe(int fd, int until)
{
	(void)alarm(120);
	(void)dup2(fd, STDERR_FILENO);
	(void)close(fd);
	if (!log_in_background())
		return 1;
	for (unsigned i = 0; i < 10000; i++)
		log_info("test", "line %u", i);
	(void)puts("all are logged");
	(void)fflush(stdout);
	char end;
	(void)!read(until, &end, 1);
	return 0;
}

static void who_logs_waits_for_no_reader(void **state)
{
	(void)state;
	int out[2], err[2], until[2], ended;
	char text[256];
	unsigned long next = 0, seen = 0, left = 0;
	assert_true(pipe(out) == 0 && pipe(err) == 0 && pipe(until) == 0);
	(void)fcntl(err[1], F_SETPIPE_SZ, 4096);
	pid_t child = fork();
	if (child == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)close(err[0]);
		(void)close(until[1]);
		exit(log_to_a_full_pipe(err[1], until[0]));
	}
	(void)close(out[1]);
	(void)close(err[1]);
	FILE *said = fdopen(out[0], "r"), *lines = fdopen(err[0], "r");
	assert_true(said != NULL && lines != NULL);
	assert_non_null(fgets(text, sizeof(text), said)); /* before anything was read */
	while (seen + left < 10000 && fgets(text, sizeof(text), lines) != NULL) {
		const char *at = strstr(text, "info  test: line ");
		const char *count = strstr(text, "warn  log: ");
		assert_true((at != NULL) != (count != NULL));
		if (at == NULL) {
			left += strtoul(count + strlen("warn  log: "), NULL, 10);
			continue;
		}
		unsigned long number = strtoul(at + strlen("info  test: line "), NULL, 10);
		assert_true(number >= next); /* in order */
		next = number + 1;
		seen++;
	}
	assert_true(seen > 1000 && left > 0);
	assert_int_equal(seen + left, 10000);
	(void)close(until[0]);
	(void)close(until[1]);
	assert_int_equal(waitpid(child, &ended, 0), child);
	assert_int_equal(ended, 0);
	(void)fclose(said);
	(void)fclose(lines);
}

/* What was logged before a crash is there, and the crash is what it was. */
static void a_crash_keeps_its_last_words(void **state)
{
	(void)state;
	int err[2], ended;
	char text[4096];
	size_t got = 0;
	ssize_t more;
	assert_int_equal(pipe(err), 0);
	pid_t child = fork();
	if (child == 0) {
		(void)dup2(err[1], STDERR_FILENO);
		(void)log_in_background();
		for (unsigned i = 0; i < 20; i++)
			log_error("test", "last words %u", i);
		abort();
	}
	(void)close(err[1]);
	while ((more = read(err[0], text + got, sizeof(text) - 1 - got)) > 0)
		got += (size_t)more;
	text[got] = '\0';
	(void)close(err[0]);
	assert_non_null(strstr(text, "test: last words 19\n"));
	assert_int_equal(waitpid(child, &ended, 0), child);
	assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
}

int main(void)
{
	const struct CMUnitTest log_tests[] = {
		cmocka_unit_test(levels_have_names),
		cmocka_unit_test(a_line_says_when_who_and_what),
		cmocka_unit_test(json_lines_are_objects),
		cmocka_unit_test(no_message_forges_a_line),
		cmocka_unit_test(long_messages_are_cut),
		cmocka_unit_test(what_strangers_cause_is_limited_and_counted),
		cmocka_unit_test(who_logs_waits_for_no_reader),
		cmocka_unit_test(a_crash_keeps_its_last_words),
	};
	return cmocka_run_group_tests(log_tests, NULL, NULL);
}
