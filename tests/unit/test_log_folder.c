/* The folders of logs: which go and which stay. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/node/log_folder.h"
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

static bool is_job_9(void *arg, uint64_t job)
{
	(void)arg;
	return job == 9;
}

static void test_old_jobs_go_first(void **state)
{
	(void)state;
	char path[512];
	struct logfile log;
	struct tr_error error;
	for (uint64_t job = 8; job < 13; job++) {
		assert_int_equal(log_folder_file(file("jobs"), job, 0, 1, path, sizeof(path),
		                     &error),
		    TR_OK);
		assert_int_equal(logfile_open(&log, path, 1, 1, &error), TR_OK);
		logfile_close(&log);
	}
	assert_int_equal(log_folder_prune(file("jobs"), 2, is_job_9, NULL), 3);
	assert_int_equal(access(file("jobs/job-8"), F_OK), -1);
	assert_int_equal(access(file("jobs/job-9/rank-0.peer-1.log"), F_OK), 0);
	assert_int_equal(access(file("jobs/job-10"), F_OK), -1);
	assert_int_equal(access(file("jobs/job-11"), F_OK), -1);
	assert_int_equal(log_folder_prune(file("jobs"), 1, NULL, NULL), 1);
	assert_int_equal(access(file("jobs/job-9"), F_OK), -1);
	assert_int_equal(access(file("jobs/job-12/rank-0.peer-1.log"), F_OK), 0);
}

/* A cluster that begins anew counts its jobs from 1 again, beside the folders of the one before it. */
static void test_a_new_job_with_a_low_number_is_not_old(void **state)
{
	(void)state;
	static const char *names[] = { "jobs-again/job-300", "jobs-again/job-301",
		"jobs-again/job-1" };
	assert_int_equal(mkdir(file("jobs-again"), 0700), 0);
	for (size_t i = 0; i < 3; i++) {
		const struct timespec times[2] = { { .tv_sec = 1000 + (time_t)i },
			{ .tv_sec = 1000 + (time_t)i } };
		assert_int_equal(mkdir(file(names[i]), 0700), 0);
		assert_int_equal(utimensat(AT_FDCWD, file(names[i]), times, 0), 0);
	}
	assert_int_equal(log_folder_prune(file("jobs-again"), 2, NULL, NULL), 1);
	assert_int_equal(access(file("jobs-again/job-1"), F_OK), 0);
	assert_int_equal(access(file("jobs-again/job-300"), F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_old_jobs_go_first),
		cmocka_unit_test(test_a_new_job_with_a_low_number_is_not_old),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
