/* What traind does with an order to start a worker (worker.h), where the engine does not take it. The engine and the log thread are played. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/engine/engine.h"
#include "daemon/node/logs.h"
#include "daemon/node/worker.h"

static int taken_fd;

/* Takes the descriptor also on an error (engine.h); another thread gets its number at once. */
tr_status engine_add_worker(struct engine *engine, const Traind__Peer__StartWorker *start,
    unsigned threads, int worker_fd, struct tr_error *error)
{
	(void)engine;
	(void)start;
	(void)threads;
	taken_fd = worker_fd;
	assert_int_equal(close(worker_fd), 0);
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (other != worker_fd) {
		assert_int_equal(fcntl(other, F_DUPFD_CLOEXEC, worker_fd), worker_fd);
		assert_int_equal(close(other), 0);
	}
	return tr_error_set(error, TR_EIO, "no descriptors");
}

void engine_remove(struct engine *engine, uint64_t group, uint64_t peer, const char *reason)
{
	(void)engine;
	(void)group;
	(void)peer;
	fail_msg("%s", reason);
}

void logs_capture(struct logs *logs, uint64_t job, uint32_t rank, uint64_t peer, int out_fd,
    int err_fd)
{
	(void)logs;
	(void)job;
	(void)rank;
	(void)peer;
	(void)out_fd;
	(void)err_fd;
	fail_msg("nothing runs");
}

void logs_finish(struct logs *logs, uint64_t peer)
{
	(void)logs;
	(void)peer;
	fail_msg("nothing runs");
}

static void report(void *arg, const Traind__Peer__ToMember *message)
{
	unsigned *reports = arg;
	assert_int_equal(message->body_case, TRAIND__PEER__TO_MEMBER__BODY_WORKER_EXITED);
	assert_int_equal(message->worker_exited->peer, 5);
	assert_int_equal(message->worker_exited->exit_code, 127);
	assert_string_equal(message->worker_exited->last_lines, "no descriptors");
	++*reports;
}

static void test_the_engine_closes_what_it_was_given(void **state)
{
	(void)state;
	static struct workers workers;
	unsigned reports = 0;
	Traind__V1__TrainSpec train = TRAIND__V1__TRAIN_SPEC__INIT;
	Traind__V1__JobSpec spec = TRAIND__V1__JOB_SPEC__INIT;
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	spec.train = &train;
	start.spec = &spec;
	start.group = 4;
	start.peer = 5;
	workers.report = report;
	workers.arg = &reports;
	workers_start(&workers, &start);
	assert_int_equal(reports, 1);
	assert_int_equal(workers.count, 0);
	/* That number is somebody else's now. */
	assert_int_not_equal(fcntl(taken_fd, F_GETFD), -1);
	assert_int_equal(close(taken_fd), 0);
	workers_forget_ends(&workers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_engine_closes_what_it_was_given),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
