#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/trainctl/cluster.h"
#include "client/trainctl/output.h"

static char folder[64], mark[96];

/* A child that waits for a signal; it ignores SIGTERM if `stubborn`. Its environment is ours and `variable`. */
static struct proc spawn(bool stubborn, char *variable)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char script[128], fd[8];
		(void)snprintf(fd, sizeof(fd), "%d", ready[1]);
		(void)snprintf(script, sizeof(script),
		    "%s echo >&%s; while :; do sleep 1000 & wait; done",
		    stubborn ? "trap '' TERM;" : "", fd);
		char *environment[] = { variable, NULL };
		(void)execle("/bin/sh", "sh", "-c", script, (char *)NULL, environment);
		_exit(127);
	}
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	return (struct proc){ pid, proc_start_time(pid) };
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/test_cluster.XXXXXX");
	assert_non_null(mkdtemp(folder));
	(void)snprintf(mark, sizeof(mark), CLUSTER_MARK "=%s", folder);
	return 0;
}

/* The children of the children: `sleep`, by their mark. */
static int tear_down(void **state)
{
	(void)state;
	struct proc left[64];
	char path[96];
	size_t count = proc_marked(mark, left, 64);
	bool ended = proc_end(left, count, 1000);
	static const char *const names[] = { "cluster.json", "lock" };
	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		(void)unlink(path);
	}
	return rmdir(folder) == 0 && ended ? 0 : -1;
}

static bool is_alive(struct proc process)
{
	return proc_alive(process.pid, process.start_time);
}

static void test_own_start_time(void **state)
{
	(void)state;
	uint64_t start = proc_start_time(getpid());
	assert_true(start != 0 && start == proc_start_time(getpid()));
	assert_false(proc_alive(getpid(), start + 1));
	assert_int_equal(proc_start_time(0), 0);
	assert_int_equal(proc_start_time(-1), 0);
}

static void test_end_terminates_and_kills(void **state)
{
	(void)state;
	struct proc both[] = { spawn(false, mark), spawn(true, mark) };
	int status;
	assert_true(is_alive(both[0]) && is_alive(both[1]));
	assert_true(proc_end(both, 2, 100));
	assert_int_equal(waitpid(both[0].pid, &status, 0), both[0].pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	assert_int_equal(waitpid(both[1].pid, &status, 0), both[1].pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(proc_end(both, 2, 100)); /* gone: nothing to do */
}

static void test_reused_pid_is_left_alone(void **state)
{
	(void)state;
	struct proc other = spawn(false, mark), recorded = other;
	recorded.start_time--;
	assert_true(proc_end(&recorded, 1, 100));
	assert_true(is_alive(other));
	assert_true(proc_end(&other, 1, 5000));
	(void)waitpid(other.pid, NULL, 0);
}

static void test_stopped_one_is_ended(void **state)
{
	(void)state;
	struct proc one = spawn(false, mark);
	(void)kill(one.pid, SIGSTOP);
	assert_true(proc_end(&one, 1, 5000));
	int status;
	assert_int_equal(waitpid(one.pid, &status, 0), one.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void *live_on(void *ready)
{
	(void)!write(*(int *)ready, "", 1);
	for (;;)
		(void)pause();
	return NULL;
}

/* Its first thread is a zombie, and so is what /proc says of it, while another one holds its files. */
static void test_last_thread_is_waited_for(void **state)
{
	(void)state;
	int ready[2];
	char byte = 0;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		pthread_t other;
		(void)!read(ready[0], &byte, 1);
		(void)alarm(60);
		if (pthread_create(&other, NULL, live_on, &ready[1]) != 0)
			_exit(1);
		pthread_exit(NULL);
	}
	struct proc one = { pid, proc_start_time(pid) };
	assert_true(is_alive(one));
	assert_int_equal(write(ready[1], &byte, 1), 1);
	for (unsigned i = 0; proc_start_time(pid) != 0 && i < 5000; i++)
		(void)usleep(1000);
	assert_int_equal(proc_start_time(pid), 0);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	assert_true(proc_end(&one, 1, 0));
	assert_int_equal(waitpid(pid, NULL, WNOHANG), pid);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* 256 MiB take the kernel tens of milliseconds to take back: meanwhile the process is neither alive nor gone. */
static void test_killed_one_is_not_alive(void **state)
{
	(void)state;
	int ready[2];
	char byte = 0;
	size_t bytes = (size_t)256 << 20;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (memory == MAP_FAILED)
			_exit(1);
		(void)alarm(60);
		(void)!write(ready[1], memory, 1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	struct proc one = { pid, proc_start_time(pid) };
	assert_true(is_alive(one));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_false(is_alive(one));
	assert_true(proc_await(&one, 1));
	assert_int_equal(waitpid(pid, NULL, WNOHANG), pid);
}

static void test_marked(void **state)
{
	(void)state;
	char other[128];
	(void)snprintf(other, sizeof(other), "%s-2", mark);
	struct proc ours = spawn(false, mark), not_ours = spawn(false, other), found[64];
	size_t count = proc_marked(mark, found, 64);
	bool has_ours = false;
	for (size_t i = 0; i < count; i++) {
		has_ours |= found[i].pid == ours.pid && found[i].start_time == ours.start_time;
		assert_true(found[i].pid != not_ours.pid);
	}
	assert_true(has_ours);
	count = proc_marked(other, found, 64); /* its `sleep` as well */
	assert_true(count >= 1 && proc_end(found, count, 5000));
	assert_true(proc_end(&ours, 1, 5000));
	(void)waitpid(ours.pid, NULL, 0);
	(void)waitpid(not_ours.pid, NULL, 0);
}

static void test_record_round_trip(void **state)
{
	(void)state;
	struct cluster *cluster = malloc(sizeof(*cluster)), *again = malloc(sizeof(*again));
	struct tr_error error = { 0 };
	char address[TR_ADDRESS_MAX];
	assert_int_equal(cluster_open(folder, true, cluster, &error), TR_OK);
	assert_int_equal(cluster->n_nodes, 0);
	assert_false(cluster_address(folder, address));
	cluster->memberd = (struct cluster_daemon){ .name = "memberd",
		.process = { 11, 12 },
		.address = "127.0.0.1:5" };
	cluster->nodes[0] = (struct cluster_daemon){ .name = "node-1",
		.process = { 21, 1ULL << 60 },
		.address = "[::1]:6",
		.slots = 4 };
	cluster->n_nodes = 1;
	assert_int_equal(cluster_save(cluster, &error), TR_OK);
	cluster_close(cluster);

	assert_true(cluster_address(folder, address));
	assert_string_equal(address, "127.0.0.1:5");
	assert_int_equal(cluster_open(folder, true, again, &error), TR_OK);
	assert_int_equal(again->n_nodes, 1);
	assert_string_equal(again->nodes[0].name, "node-1");
	assert_string_equal(again->nodes[0].address, "[::1]:6");
	assert_int_equal(again->nodes[0].process.pid, 21);
	assert_true(again->nodes[0].process.start_time == 1ULL << 60);
	assert_int_equal(again->nodes[0].slots, 4);
	assert_int_equal(again->memberd.process.start_time, 12);
	assert_int_equal(cluster_forget(again, &error), TR_OK);
	assert_int_equal(cluster_forget(again, &error), TR_OK);
	assert_false(cluster_address(folder, address));
	cluster_close(again);
	free(cluster);
	free(again);
}

static void test_damaged_record_is_refused(void **state)
{
	(void)state;
#define MEMBERD(pid) "{\"memberd\":{\"name\":\"memberd\",\"pid\":" #pid "},\"nodes\":"
	static const char *const texts[] = { "", "{", "[]", "{\"memberd\":{},\"nodes\":[]}",
		MEMBERD(1) "7}", MEMBERD(-1) "[]}", MEMBERD(1) "[{\"name\":\"../x\",\"pid\":1}]}" };
#undef MEMBERD
	struct cluster *cluster = malloc(sizeof(*cluster));
	char path[96], address[TR_ADDRESS_MAX];
	(void)snprintf(path, sizeof(path), "%s/cluster.json", folder);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct tr_error error = { 0 };
		FILE *file = fopen(path, "w");
		assert_non_null(file);
		(void)fputs(texts[i], file);
		(void)fclose(file);
		assert_int_equal(cluster_open(folder, true, cluster, &error), TR_EPROTO);
		assert_non_null(strstr(error.text, "cluster.json is damaged"));
		assert_false(cluster_address(folder, address));
	}
	(void)unlink(path);
	free(cluster);
}

/* stdout of `write_all` as text. */
static void test_output(void **state)
{
	(void)state;
	static const uint8_t pieces[] = "first\nsec";
	int ends[2], before = dup(STDOUT_FILENO);
	char text[16384];
	struct output output = { 0 };
	uint8_t long_line[OUTPUT_LINE_MAX + 1];
	memset(long_line, 'x', sizeof(long_line));
	(void)fflush(stdout);
	assert_int_equal(pipe(ends), 0);
	(void)dup2(ends[1], STDOUT_FILENO);
	output_write(&output, 1, pieces, 9);
	output_write(&output, 0, (const uint8_t *)"\n\n", 2);
	output_write(&output, 1, (const uint8_t *)"ond", 3);
	output_write(&output, 2, long_line, sizeof(long_line));
	output_write(&output, 4000000000U, (const uint8_t *)"odd\n", 4); /* no such rank: as it is */
	output_finish(&output);
	(void)dup2(before, STDOUT_FILENO);
	(void)close(ends[1]);
	ssize_t got = read(ends[0], text, sizeof(text) - 1);
	(void)close(ends[0]);
	(void)close(before);
	assert_true(got > OUTPUT_LINE_MAX);
	text[got] = '\0';
	static const char begins[] = "[1] first\n[0] \n[0] \n[2] xxx",
	                  ends_with[] = "x\nodd\n[1] second\n[2] x\n";
	assert_memory_equal(text, begins, sizeof(begins) - 1);
	assert_string_equal(text + got - (sizeof(ends_with) - 1), ends_with);
	assert_int_equal((size_t)got, 20 + 4 + OUTPUT_LINE_MAX + sizeof(ends_with) - 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_start_time),
		cmocka_unit_test(test_end_terminates_and_kills),
		cmocka_unit_test(test_reused_pid_is_left_alone),
		cmocka_unit_test(test_stopped_one_is_ended),
		cmocka_unit_test(test_last_thread_is_waited_for),
		cmocka_unit_test(test_killed_one_is_not_alive),
		cmocka_unit_test(test_marked),
		cmocka_unit_test(test_record_round_trip),
		cmocka_unit_test(test_damaged_record_is_refused),
		cmocka_unit_test(test_output),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
