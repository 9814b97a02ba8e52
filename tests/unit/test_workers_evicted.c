/* How long a worker that is no longer a member may go on (workers_evict). The engine, the log thread and processes are played; the clock is real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/engine/engine.h"
#include "common/limits.h"
#include "daemon/node/logs.h"
#include "daemon/node/process.h"
#include "daemon/node/worker.h"

#define GROUP 4
#define PEER  5
/* Half a second is what it has, three what a closed channel gives. */
#define SOON_MS 2000

static const struct process_callbacks *heard_by;
static void *worker;
static unsigned stops, reports;
static uint64_t stopped_ms;
static uv_loop_t loop;

tr_status process_start(uv_loop_t *on, const struct process_options *options,
    const struct process_callbacks *callbacks, void *arg, struct process **process,
    struct tr_error *error)
{
	(void)on;
	(void)options;
	(void)error;
	heard_by = callbacks;
	worker = arg;
	*process = (struct process *)&stops;
	return TR_OK;
}

void process_stop(struct process *process, unsigned grace_ms)
{
	assert_ptr_equal(process, &stops);
	assert_int_equal(grace_ms, TR_WORKER_TERM_GRACE_MS);
	uv_update_time(&loop);
	if (stops++ == 0)
		stopped_ms = uv_now(&loop);
}

tr_status engine_add_worker(struct engine *engine, const Traind__Peer__StartWorker *start,
    unsigned threads, int worker_fd, struct tr_error *error)
{
	(void)engine;
	(void)start;
	(void)threads;
	(void)error;
	assert_int_equal(close(worker_fd), 0);
	return TR_OK;
}

void engine_remove(struct engine *engine, uint64_t group, uint64_t peer, const char *reason)
{
	(void)engine;
	(void)reason;
	assert_int_equal(group, GROUP);
	assert_int_equal(peer, PEER);
}

void logs_capture(struct logs *logs, uint64_t job, uint32_t rank, uint64_t peer, int out_fd,
    int err_fd)
{
	(void)logs;
	(void)job;
	(void)rank;
	(void)peer;
	assert_int_equal(close(out_fd), 0);
	assert_int_equal(close(err_fd), 0);
}

void logs_finish(struct logs *logs, uint64_t peer)
{
	(void)logs;
	assert_int_equal(peer, PEER);
}

static void report(void *arg, const Traind__Peer__ToMember *message)
{
	(void)arg;
	assert_int_equal(message->body_case, TRAIND__PEER__TO_MEMBER__BODY_WORKER_EXITED);
	reports++;
}

static void changed(void *arg)
{
	(void)arg;
}

static void late(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

/* Until it is stopped or `ms` have gone by. */
static void run_for(uint64_t ms)
{
	bool over = false;
	uv_timer_t timer;
	assert_int_equal(uv_timer_init(&loop, &timer), 0);
	timer.data = &over;
	uv_update_time(&loop);
	assert_int_equal(uv_timer_start(&timer, late, ms, 0), 0);
	while (!over && stops == 0)
		(void)uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&timer, NULL);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void begin(struct workers *workers)
{
	Traind__V1__TrainSpec train = TRAIND__V1__TRAIN_SPEC__INIT;
	Traind__V1__JobSpec spec = TRAIND__V1__JOB_SPEC__INIT;
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	assert_int_equal(uv_loop_init(&loop), 0);
	stops = reports = 0;
	*workers = (struct workers){ .loop = &loop,
		.trainworker = "trainworker",
		.folder = "/nowhere",
		.cgroup = "",
		.report = report,
		.changed = changed };
	spec.train = &train;
	start.spec = &spec;
	start.job_id = 1;
	start.group = GROUP;
	start.peer = PEER;
	workers_start(workers, &start);
	assert_int_equal(workers->count, 1);
}

static void finish(struct workers *workers)
{
	struct process_end end = { .exit_code = 1, .reason = "exit code 1" };
	heard_by->ended(worker, &end);
	workers_drained(workers, PEER, "");
	workers_channel_closed(workers, GROUP, PEER, NULL);
	assert_int_equal(workers->count, 0);
	assert_int_equal(reports, 1);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	workers_forget_ends(workers);
}

/* As memberd says it: both at once. */
static void evict(struct workers *workers, bool refuses)
{
	Traind__Peer__PeerEvicted evicted = TRAIND__PEER__PEER_EVICTED__INIT;
	evicted.group = GROUP;
	evicted.peer = PEER;
	evicted.refuses = refuses;
	workers_evict(workers, &evicted);
	workers_stop(workers, 1, PEER, TR_WORKER_TERM_GRACE_MS, "its engine gave up");
}

static void test_who_is_evicted_is_stopped_at_once(void **state)
{
	struct workers workers;
	(void)state;
	begin(&workers);
	evict(&workers, false);
	assert_int_not_equal(stops, 0);
	finish(&workers);
}

static void test_who_gave_up_has_half_a_second(void **state)
{
	struct workers workers;
	(void)state;
	begin(&workers);
	evict(&workers, true);
	assert_int_equal(stops, 0);
	uint64_t since_ms = uv_now(&loop);
	run_for(SOON_MS);
	assert_int_equal(stops, 1);
	assert_in_range(stopped_ms - since_ms, 400, SOON_MS);
	finish(&workers);
}

static void test_no_longer_with_its_channel_closed(void **state)
{
	struct workers workers;
	(void)state;
	begin(&workers);
	evict(&workers, true);
	workers_channel_closed(&workers, GROUP, PEER, NULL);
	run_for(SOON_MS);
	assert_int_equal(stops, 1);
	finish(&workers);
}

/* Its engine tells it and memberd at once: it may be the first of the two. */
static void test_nor_less_with_its_channel_closed_before(void **state)
{
	struct workers workers;
	(void)state;
	begin(&workers);
	workers_channel_closed(&workers, GROUP, PEER, NULL);
	evict(&workers, true);
	assert_int_equal(stops, 0);
	run_for(SOON_MS);
	assert_int_equal(stops, 1);
	finish(&workers);
}

static void test_who_ends_by_itself_is_not_stopped(void **state)
{
	struct workers workers;
	(void)state;
	begin(&workers);
	evict(&workers, true);
	finish(&workers);
	assert_int_equal(stops, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_is_evicted_is_stopped_at_once),
		cmocka_unit_test(test_who_gave_up_has_half_a_second),
		cmocka_unit_test(test_no_longer_with_its_channel_closed),
		cmocka_unit_test(test_nor_less_with_its_channel_closed_before),
		cmocka_unit_test(test_who_ends_by_itself_is_not_stopped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
