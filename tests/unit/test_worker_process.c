/* Workers and their shepherds: exits, stops, and that nothing outlives traind. The program plays three parts: the tests;
 * a shepherd (--shepherd, as traind does); a traind to be killed (--traind).
 *
 * That a whole tree is gone shows without a list of processes: all of it holds the write end of one pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/node/cgroup.h"
#include "daemon/node/process.h"
#include "daemon/node/shepherd.h"

#define DEADLINE_MS 60000
#define HALTS_MAX   4

/* A child that leaves its parent and its session, and a worker, both deaf to TERM; each says so on the pipe. */
#define STUBBORN                                                                              \
	"trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo grandchild; while :; do sleep 1; " \
	"done' &) ; "                                                                         \
	"echo worker; while :; do sleep 1; done"

struct run {
	uv_loop_t loop;
	struct process *process;
	int read_fd;
	pid_t pid;
	bool ended;
	struct process_end end;
	int halted_by[HALTS_MAX];
	unsigned halts;
	bool stays_halted;
	void (*on_started)(struct run *run);
	unsigned grace_ms; /* 0: 200 */
};

static void started(void *arg, pid_t pid)
{
	struct run *run = arg;
	run->pid = pid;
	if (run->on_started != NULL)
		run->on_started(run);
}

static void ended(void *arg, const struct process_end *end)
{
	struct run *run = arg;
	assert_false(run->ended);
	run->ended = true;
	run->end = *end;
}

/* What stopped it is noted, and it goes on, unless it is to stay so; that is noted too. */
static void halted(void *arg, int signal)
{
	struct run *run = arg;
	assert_true(run->halts < HALTS_MAX);
	run->halted_by[run->halts++] = signal;
	if (signal != 0 && !run->stays_halted)
		(void)kill(run->pid, SIGCONT);
}

static const struct process_callbacks callbacks = { started, halted, ended };

static void start(struct run *run, const char *script, const char *cgroup, int channel_fd)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const char *const environment[] = { "GREETING=hello there", NULL };
	int fds[2];
	struct tr_error error;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(uv_loop_init(&run->loop), 0);
	run->read_fd = fds[0];
	struct process_options options = {
		.argv = argv,
		.environment = environment,
		.directory = "/",
		.cgroup = cgroup,
		.channel_fd = channel_fd,
		.out_fd = fds[1],
		.err_fd = fds[1],
		.open_files = 777,
		.grace_ms = run->grace_ms > 0 ? run->grace_ms : 200,
	};
	if (process_start(&run->loop, &options, &callbacks, run, &run->process, &error) != TR_OK)
		fail_msg("%s", error.text);
	(void)close(fds[1]);
}

/* Reads until `text` has been seen, or to the end if NULL. */
static void read_until(int fd, const char *text, char *all, size_t size)
{
	size_t used = 0;
	all[0] = '\0';
	while (text == NULL || strstr(all, text) == NULL) {
		struct pollfd poller = { .fd = fd, .events = POLLIN };
		if (poll(&poller, 1, DEADLINE_MS) != 1)
			fail_msg("nothing more after '%s'", all);
		ssize_t got = read(fd, all + used, size - 1 - used);
		assert_true(got >= 0);
		if (got == 0)
			break;
		used += (size_t)got;
		all[used] = '\0';
	}
	if (text != NULL && strstr(all, text) == NULL)
		fail_msg("ended without '%s': '%s'", text, all);
}

static void finish(struct run *run, char *all, size_t size)
{
	(void)uv_run(&run->loop, UV_RUN_DEFAULT);
	assert_true(run->ended);
	read_until(run->read_fd, NULL, all, size);
	(void)close(run->read_fd);
	assert_int_equal(uv_loop_close(&run->loop), 0);
}

static void test_exit_code_output_environment(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	start(&run, "echo \"$GREETING\" from $(pwd) with $(ulimit -n); echo bad >&2; exit 3", "",
	    -1);
	finish(&run, all, sizeof(all));
	assert_string_equal(all, "hello there from / with 777\nbad\n");
	assert_true(run.pid > 0);
	assert_int_equal(run.end.exit_code, 3);
	assert_int_equal(run.end.signal, 0);
	assert_string_equal(run.end.reason, "exit code 3");
}

static void test_killed_by_signal(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	start(&run, "kill -SEGV $$", "", -1);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.signal, SIGSEGV);
	assert_string_equal(run.end.reason, "killed by SIGSEGV");
}

/* Children of it that are stopped are its own affair. */
static void test_stopped_by_signals(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	start(&run, "sh -c 'kill -STOP $$' & kill -STOP $$; kill -KILL $!; wait; echo on; exit 4",
	    "", -1);
	finish(&run, all, sizeof(all));
	assert_string_equal(all, "on\n");
	assert_int_equal(run.end.exit_code, 4);
	assert_int_equal(run.halts, 2);
	assert_int_equal(run.halted_by[0], SIGSTOP);
	assert_int_equal(run.halted_by[1], 0);
}

/* Killed while it was stopped, it is not stopped any more, whatever its children take to end. */
static void test_who_ended_is_not_stopped(void **state)
{
	(void)state;
	struct run run = { .stays_halted = true };
	char all[4096];
	start(&run, "sh -c 'sleep 0.3; kill -KILL '$$ & kill -STOP $$", "", -1);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.signal, SIGKILL);
	assert_int_equal(run.halts, 2);
	assert_int_equal(run.halted_by[0], SIGSTOP);
	assert_int_equal(run.halted_by[1], 0);
}

static void test_no_such_program(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	start(&run, "exec /no/such/program", "", -1);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.exit_code, 127);
	assert_non_null(strstr(all, "/no/such/program"));
}

static void test_channel_is_inherited_and_closed_by_death(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096], byte;
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(&run, "echo through >&$TRAIND_WORKER_FD; ls /proc/self/fd | tr '\\n' ' '", "",
	    pair[1]);
	(void)close(pair[1]);
	finish(&run, all, sizeof(all));
	/* 0 1 2, the channel, and the folder that ls reads: nothing of ours leaks. */
	assert_string_equal(all, "0 1 2 3 5 ");
	read_until(pair[0], "through", all, sizeof(all));
	assert_int_equal(read(pair[0], &byte, 1), 0);
	(void)close(pair[0]);
}

/* A traind that runs as a worker of another one has that one's in its own environment. */
static void test_without_a_channel_there_is_no_number_of_one(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	assert_int_equal(setenv("TRAIND_WORKER_FD", "5", 1), 0);
	start(&run, "echo \"channel ${TRAIND_WORKER_FD-none}\"", "", -1);
	finish(&run, all, sizeof(all));
	assert_int_equal(unsetenv("TRAIND_WORKER_FD"), 0);
	assert_string_equal(all, "channel none\n");
}

static void stop_now(struct run *run)
{
	process_stop(run->process, 60000);
}

static void test_stop_with_term(void **state)
{
	(void)state;
	struct run run = { .on_started = stop_now };
	char all[4096];
	start(&run, "while :; do sleep 1; done", "", -1);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.signal, SIGTERM);
}

/* Waits until both deaf processes run, then stops them. */
static void stop_stubborn(struct run *run, char *all, size_t size)
{
	while (run->pid == 0)
		(void)uv_run(&run->loop, UV_RUN_ONCE);
	read_until(run->read_fd, "worker", all, size);
	if (strstr(all, "grandchild") == NULL)
		read_until(run->read_fd, "grandchild", all, size);
	process_stop(run->process, 50);
	finish(run, all, size);
	assert_int_equal(run->end.signal, SIGKILL);
}

static size_t count_of(const char *all, const char *word)
{
	size_t count = 0;
	for (const char *at = all; (at = strstr(at, word)) != NULL; at++)
		count++;
	return count;
}

/* Many programs end in order at the first TERM and at once at the second. */
static void test_each_process_gets_term_once(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	size_t ready = 0;
	start(&run,
	    "count='trap \"echo $0 TERM\" TERM; echo ready; while :; do sleep 60 & wait $!; done'; "
	    "(setsid sh -c \"$count\" apart &); sh -c \"$count\" beside & "
	    "exec sh -c \"$count\" worker",
	    "", -1);
	while (run.pid == 0)
		(void)uv_run(&run.loop, UV_RUN_ONCE);
	while (ready < 3) {
		read_until(run.read_fd, "ready", all, sizeof(all));
		ready += count_of(all, "ready");
	}
	process_stop(run.process, 500);
	finish(&run, all, sizeof(all));
	assert_int_equal(count_of(all, "worker TERM"), 1);
	assert_int_equal(count_of(all, "beside TERM"), 1);
	assert_int_equal(count_of(all, "apart TERM"), 1);
}

static void test_stop_of_a_deaf_tree(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	start(&run, STUBBORN, "", -1);
	stop_stubborn(&run, all, sizeof(all));
}

static void test_stop_of_a_deaf_tree_by_cgroup(void **state)
{
	(void)state;
	char folder[512], reason[256], path[600];
	if (!cgroup_find(folder, sizeof(folder), reason, sizeof(reason))) {
		print_message("skipped: %s\n", reason);
		skip();
	}
	(void)snprintf(path, sizeof(path), "%s/traind-test-%ld", folder, (long)getpid());
	struct run run = { 0 };
	char all[4096];
	start(&run, STUBBORN, path, -1);
	stop_stubborn(&run, all, sizeof(all));
	assert_int_equal(access(path, F_OK), -1);
}

static void test_sweep_of_cgroups(void **state)
{
	(void)state;
	char folder[512], reason[256], prefix[600], path[700];
	if (!cgroup_find(folder, sizeof(folder), reason, sizeof(reason))) {
		print_message("skipped: %s\n", reason);
		skip();
	}
	(void)snprintf(prefix, sizeof(prefix), "%s/traind-sweep-%ld-", folder, (long)getpid());
	(void)snprintf(path, sizeof(path), "%speer-1", prefix);
	assert_true(cgroup_make(path));
	pid_t child = fork();
	if (child == 0) {
		(void)cgroup_enter(path);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_int_equal(cgroup_sweep(prefix), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cgroup_remove(path); /* an unreaped child still counted until now */
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(cgroup_sweep(prefix), 0);
}

static void test_children_left_behind_are_ended(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	start(&run,
	    "(setsid sh -c 'trap \"\" TERM; echo grandchild; while :; do sleep 1; done' &); exit 4",
	    "", -1);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.exit_code, 4);
}

static pid_t parent_of(pid_t pid)
{
	char path[64], text[512];
	int parent = 0;
	(void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	(void)fclose(file);
	assert_int_equal(sscanf(strrchr(text, ')') + 1, " %*c %d", &parent), 1);
	return parent;
}

static void test_a_killed_shepherd_leaves_nothing(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	start(&run, STUBBORN, "", -1);
	while (run.pid == 0)
		(void)uv_run(&run.loop, UV_RUN_ONCE);
	read_until(run.read_fd, "worker", all, sizeof(all));
	if (strstr(all, "grandchild") == NULL)
		read_until(run.read_fd, "grandchild", all, sizeof(all));
	pid_t shepherd = parent_of(run.pid);
	assert_int_not_equal(shepherd, getpid());
	assert_int_equal(kill(shepherd, SIGKILL), 0);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.signal, SIGKILL);
	assert_non_null(strstr(run.end.reason, "shepherd"));
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static char state_of(pid_t pid)
{
	char path[64], text[512];
	(void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	(void)fclose(file);
	return strrchr(text, ')')[2];
}

/* The worker ended by itself, and was told to have; its shepherd is killed while it waits for what is left. */
static void test_a_shepherd_killed_after_its_worker_leaves_nothing(void **state)
{
	(void)state;
	struct run run = { .grace_ms = 2 * DEADLINE_MS };
	char all[4096];
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	start(&run,
	    "(setsid sh -c 'trap \"\" TERM; echo grandchild; while :; do sleep 1; done' &); "
	    "read go <&$TRAIND_WORKER_FD; exit 4",
	    "", pair[1]);
	(void)close(pair[1]);
	while (run.pid == 0)
		(void)uv_run(&run.loop, UV_RUN_ONCE);
	read_until(run.read_fd, "grandchild", all, sizeof(all));
	pid_t shepherd = parent_of(run.pid);
	assert_int_equal(write(pair[0], "\n", 1), 1);
	while (kill(run.pid, 0) == 0 || state_of(shepherd) != 'S')
		(void)usleep(1000);
	assert_int_equal(kill(shepherd, SIGKILL), 0);
	finish(&run, all, sizeof(all));
	assert_int_equal(run.end.exit_code, 4);
	assert_string_equal(run.end.reason, "exit code 4");
	(void)close(pair[0]);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* traind has other children beside: trainworker --measure (measure_run.h). Who began one waits for it and hears how it ended. */
static void test_a_killed_shepherd_is_no_end_of_our_own_children(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	int hold[2], status;
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid_t own = fork();
	if (own == 0) {
		(void)close(hold[1]);
		(void)read(hold[0], &status, 1);
		_exit(7);
	}
	start(&run, STUBBORN, "", -1);
	while (run.pid == 0)
		(void)uv_run(&run.loop, UV_RUN_ONCE);
	assert_int_equal(kill(parent_of(run.pid), SIGKILL), 0);
	finish(&run, all, sizeof(all));
	(void)close(hold[1]);
	assert_int_equal(waitpid(own, &status, 0), own);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
	(void)close(hold[0]);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

/* Another shepherd is dead as well, and libuv has not looked at it yet. */
static void test_orphans_are_reaped_beside_a_dead_shepherd(void **state)
{
	(void)state;
	struct run other = { 0 }, run = { 0 };
	char all[4096];
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	start(&other, STUBBORN, "", -1);
	while (other.pid == 0)
		(void)uv_run(&other.loop, UV_RUN_ONCE);
	start(&run, STUBBORN, "", -1);
	while (run.pid == 0)
		(void)uv_run(&run.loop, UV_RUN_ONCE);
	pid_t shepherds[] = { parent_of(other.pid), parent_of(run.pid) };
	for (int i = 0; i < 2; i++)
		assert_int_equal(kill(shepherds[i], SIGKILL), 0);
	finish(&run, all, sizeof(all));
	assert_int_equal(kill(run.pid, 0), -1); /* nor a zombie */
	finish(&other, all, sizeof(all));
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static bool held_beyond_its_death(pid_t pid)
{
	return ptrace(PTRACE_SEIZE, pid, NULL, (void *)PTRACE_O_TRACEEXIT) == 0;
}

/* Who has much memory is not gone at once: its end is told when it is, and it is reaped. */
static void test_orphans_that_take_long_to_die_are_waited_for(void **state)
{
	(void)state;
	struct run run = { 0 };
	char all[4096];
	int pid = 0;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	start(&run, "sh -c 'echo child $$ is here; while :; do sleep 60; done'", "", -1);
	while (run.pid == 0)
		(void)uv_run(&run.loop, UV_RUN_ONCE);
	read_until(run.read_fd, "is here", all, sizeof(all));
	assert_int_equal(sscanf(all, "child %d", &pid), 1);
	if (!held_beyond_its_death(pid)) {
		print_message("skipped: ptrace is not allowed\n");
		process_stop(run.process, 0);
		finish(&run, all, sizeof(all));
		assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
		skip();
	}
	assert_int_equal(kill(parent_of(run.pid), SIGKILL), 0);
	for (int i = 0; i < 300 && !run.ended; i++) {
		(void)uv_run(&run.loop, UV_RUN_NOWAIT);
		(void)usleep(1000);
	}
	bool early = run.ended;
	(void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
	finish(&run, all, sizeof(all));
	assert_false(early);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* The part of traind: runs a stubborn worker whose output is our stdout, and waits to be killed. */
static int play_traind(void)
{
	const char *const argv[] = { "sh", "-c", STUBBORN, NULL };
	const char *const environment[] = { NULL };
	struct run run = { 0 };
	struct tr_error error;
	struct process_options options = {
		.argv = argv,
		.environment = environment,
		.directory = "",
		.cgroup = "",
		.channel_fd = -1,
		.out_fd = STDOUT_FILENO,
		.err_fd = STDOUT_FILENO,
		.open_files = 1024,
		.grace_ms = 100,
	};
	if (uv_loop_init(&run.loop) != 0 ||
	    process_start(&run.loop, &options, &callbacks, &run, &run.process, &error) != TR_OK)
		return 1;
	return uv_run(&run.loop, UV_RUN_DEFAULT);
}

static void test_kill_9_of_traind_leaves_nothing(void **state)
{
	(void)state;
	int fds[2];
	char all[4096];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t traind = fork();
	if (traind == 0) {
		(void)dup2(fds[1], STDOUT_FILENO);
		(void)execl("/proc/self/exe", "test", "--traind", NULL);
		_exit(1);
	}
	(void)close(fds[1]);
	read_until(fds[0], "worker", all, sizeof(all));
	if (strstr(all, "grandchild") == NULL)
		read_until(fds[0], "grandchild", all, sizeof(all));
	assert_int_equal(kill(traind, SIGKILL), 0);
	assert_int_equal(waitpid(traind, NULL, 0), traind);
	read_until(fds[0], NULL, all, sizeof(all)); /* the end comes when the last of them is gone */
	(void)close(fds[0]);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], SHEPHERD_ARGUMENT) == 0)
		return shepherd_run();
	if (argc > 1 && strcmp(argv[1], "--traind") == 0)
		return play_traind();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_code_output_environment),
		cmocka_unit_test(test_killed_by_signal),
		cmocka_unit_test(test_stopped_by_signals),
		cmocka_unit_test(test_who_ended_is_not_stopped),
		cmocka_unit_test(test_no_such_program),
		cmocka_unit_test(test_channel_is_inherited_and_closed_by_death),
		cmocka_unit_test(test_without_a_channel_there_is_no_number_of_one),
		cmocka_unit_test(test_stop_with_term),
		cmocka_unit_test(test_each_process_gets_term_once),
		cmocka_unit_test(test_stop_of_a_deaf_tree),
		cmocka_unit_test(test_stop_of_a_deaf_tree_by_cgroup),
		cmocka_unit_test(test_sweep_of_cgroups),
		cmocka_unit_test(test_children_left_behind_are_ended),
		cmocka_unit_test(test_a_killed_shepherd_leaves_nothing),
		cmocka_unit_test(test_a_shepherd_killed_after_its_worker_leaves_nothing),
		cmocka_unit_test(test_a_killed_shepherd_is_no_end_of_our_own_children),
		cmocka_unit_test(test_orphans_are_reaped_beside_a_dead_shepherd),
		cmocka_unit_test(test_orphans_that_take_long_to_die_are_waited_for),
		cmocka_unit_test(test_kill_9_of_traind_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
