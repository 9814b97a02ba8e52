/* Who runs `trainworker --measure` gets what it printed or an error, in the end, and leaves no process behind. Programs are shell scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/shell/measure_run.h"

static char folder[] = "/tmp/test-measure-run-XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) != NULL && setenv("FOLDER", folder, 1) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static tr_status run(const char *script, struct measure_run how, char **text, struct tr_error *error)
{
	char program[64];
	FILE *file;

	(void)snprintf(program, sizeof(program), "%s/program", folder);
	file = fopen(program, "we");
	assert_non_null(file);
	(void)fprintf(file, "#!/bin/sh\n%s\n", script);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(program, 0755), 0);
	how.program = program;
	how.job = "the job";
	how.job_bytes = 7;
	how.threads = 1;
	how.tp_most = 2;
	how.sequences_most = 3;
	tr_status st = measure_run(&how, text, error);
	/* Nobody is left, dead or alive. */
	assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	return st;
}

static void what_it_prints(void **state)
{
	struct tr_error error;
	char *text = NULL;

	(void)state;
	assert_int_equal(run("cat; echo \" $*\"", (struct measure_run){ .beside = 0 }, &text,
	                     &error),
	    TR_OK);
	assert_string_equal(text, "the job --measure 1 2 3 0\n");
	free(text);
}

static char told[64];

static void tell(const char *line, size_t length)
{
	size_t used = strlen(told);
	(void)snprintf(told + used, sizeof(told) - used, "<%.*s>", (int)length, line);
}

/* Whole lines, each once, however they come. */
static void each_line_is_told(void **state)
{
	struct tr_error error;
	char *text = NULL;

	(void)state;
	told[0] = '\0';
	assert_int_equal(run("printf 'a\\nb'; sleep 0.3; printf 'c\\n\\nrest'",
	                     (struct measure_run){ .said = tell }, &text, &error),
	    TR_OK);
	assert_string_equal(text, "a\nbc\n\nrest");
	assert_string_equal(told, "<a><bc><>");
	free(text);
}

/* As a worker's, its name is looked up in PATH. */
static void it_is_found_in_path(void **state)
{
	struct tr_error error;
	const struct measure_run how = { .program = "program", .job = "", .threads = 1 };
	char *text = NULL, *before = strdup(getenv("PATH")), path[4096];

	(void)state;
	assert_int_equal(run("", (struct measure_run){ .beside = 0 }, &text, &error), TR_OK);
	free(text);
	(void)snprintf(path, sizeof(path), "%s:%s", folder, before);
	assert_int_equal(setenv("PATH", path, 1), 0);
	tr_status st = measure_run(&how, &text, &error);
	assert_int_equal(setenv("PATH", before, 1), 0);
	free(before);
	assert_int_equal(st, TR_OK);
	free(text);
}

static void how_it_ends(void **state)
{
	struct tr_error error;
	char *text = NULL;

	(void)state;
	assert_int_equal(run("echo a; exit 3", (struct measure_run){ .beside = 1 }, &text, &error),
	    TR_EIO);
	assert_non_null(strstr(error.text, "ended with exit code 3"));
	assert_int_equal(run("kill -9 $$", (struct measure_run){ .beside = 1 }, &text, &error),
	    TR_EIO);
	assert_non_null(strstr(error.text, "was killed; is there too little memory"));
	assert_null(text);
}

/* It says all, and lives on. */
static void it_does_not_end(void **state)
{
	struct tr_error error;
	char *text = NULL;

	(void)state;
	assert_int_equal(run("echo a; exec sleep 1000 >&-", (struct measure_run){ .most_ms = 500 },
	                     &text, &error),
	    TR_EIO);
	assert_non_null(strstr(error.text, "took too long"));
	assert_null(text);
	assert_int_equal(run("exec sleep 1000", (struct measure_run){ .most_ms = 500, .beside = 1 },
	                     &text, &error),
	    TR_EIO);
	assert_null(text);
}

/* Of more than anybody reads it waits for ever for who would. */
static void it_prints_too_much(void **state)
{
	struct tr_error error;
	char *text = NULL;

	(void)state;
	assert_int_equal(run("exec cat /dev/zero", (struct measure_run){ .beside = 0 }, &text,
	                     &error),
	    TR_EIO);
	assert_null(text);
}

/* Three others run until this one is done; what they say is nobody's, on stderr too. */
static void others_beside(void **state)
{
	struct tr_error error;
	char *text = NULL, words[64];
	int own = dup(STDERR_FILENO);

	(void)state;
	(void)snprintf(words, sizeof(words), "%s/words", folder);
	int to = open(words, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(own >= 0 && to >= 0 && dup2(to, STDERR_FILENO) >= 0);
	tr_status st = run("echo said >&2; cat > $FOLDER/job-$$; test \"$5\" = 3 || exit 1\n"
	                   "until [ $(cat $FOLDER/job-* | wc -c) = 28 ]; do sleep 0.01; done\n"
	                   "echo all",
	    (struct measure_run){ .beside = 3, .most_ms = 60000 }, &text, &error);
	assert_true(dup2(own, STDERR_FILENO) >= 0);
	assert_int_equal(st, TR_OK);
	assert_string_equal(text, "all\n");
	free(text);
	assert_int_equal(lseek(to, 0, SEEK_END), 5); /* "said\n", once */
	(void)close(to);
	(void)close(own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_prints),
		cmocka_unit_test(each_line_is_told),
		cmocka_unit_test(it_is_found_in_path),
		cmocka_unit_test(how_it_ends),
		cmocka_unit_test(it_does_not_end),
		cmocka_unit_test(it_prints_too_much),
		cmocka_unit_test(others_beside),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
