/* The log on C-Raft: order, replay, snapshots, refusals, a disk that takes nothing. */
#include <signal.h>
#include <sys/resource.h>

#include "tests/unit/store_harness.h"

static void test_append_and_replay(void **state)
{
	struct owner o;
	char folder[64];
	(void)state;
	folder_make(folder);
	owner_open(&o, folder);
	assert_int_equal(o.newest, 0);
	for (uint64_t i = 1; i <= 300; i++)
		assert_int_equal(owner_append(&o, i, 8 + i % 50), TR_OK);
	owner_run_until(&o, 300);
	assert_int_equal(o.own, 300);
	assert_true(o.in_order);
	owner_close(&o);
	for (int life = 0; life < 3; life++) {
		owner_open(&o, folder);
		assert_int_equal(o.newest, 300 + (uint64_t)life);
		assert_int_equal(o.applied, 300 + (uint64_t)life);
		assert_int_equal(o.own, 0);
		assert_int_equal(owner_append(&o, o.newest + 1, 8), TR_OK);
		owner_run_until(&o, 301 + (uint64_t)life);
		assert_true(o.in_order);
		owner_close(&o);
	}
	folder_remove(folder);
}

static void append_next(struct owner *o, uint64_t number)
{
	if (number < 40)
		assert_int_equal(owner_append(o, number + 1, 8), TR_OK);
	else
		store_close(o->store); /* from within a callback */
}

static void test_append_and_close_from_callback(void **state)
{
	struct owner o;
	char folder[64];
	(void)state;
	folder_make(folder);
	owner_open(&o, folder);
	o.on_applied = append_next;
	assert_int_equal(owner_append(&o, 1, 8), TR_OK);
	owner_finish_loop(&o);
	assert_true(o.closed);
	assert_int_equal(o.newest, 40);
	folder_remove(folder);
}

struct turns {
	uint64_t now, applied_in[8]; /* by number */
};

static void on_turn(uv_prepare_t *prepare)
{
	((struct turns *)prepare->data)->now++;
}

static void note_turn(struct owner *o, uint64_t number)
{
	struct turns *turns = o->user;
	turns->applied_in[number] = turns->now;
}

/* A batch is applied in one turn of the loop, and only then is the next one written. */
static void test_what_may_wait_goes_with_the_next(void **state)
{
	struct owner o;
	struct turns turns = { 0 };
	char folder[64];
	uv_prepare_t prepare;
	(void)state;
	folder_make(folder);
	owner_open(&o, folder);
	(void)uv_prepare_init(&o.loop, &prepare);
	prepare.data = o.user = &turns;
	(void)uv_prepare_start(&prepare, on_turn);
	o.on_applied = note_turn;
	assert_int_equal(owner_append_in(&o, 1, 8, STORE_WITH_NEXT), TR_OK);
	(void)uv_run(&o.loop, UV_RUN_NOWAIT);
	assert_int_equal(owner_append_in(&o, 2, 8, STORE_WITH_NEXT), TR_OK);
	assert_int_equal(owner_append(&o, 3, 8), TR_OK);
	owner_run_until(&o, 3);
	assert_int_equal(turns.applied_in[1], turns.applied_in[3]);
	assert_int_equal(turns.applied_in[2], turns.applied_in[3]);
	/* Nothing follows: it is written all the same. */
	assert_int_equal(owner_append_in(&o, 4, 8, STORE_WITH_NEXT), TR_OK);
	owner_run_until(&o, 4);
	assert_int_equal(owner_append(&o, 5, 8), TR_OK);
	owner_run_until(&o, 5);
	/* One that waits when the store is closed has an end too. */
	assert_int_equal(owner_append_in(&o, 6, 8, STORE_WITH_NEXT), TR_OK);
	(void)uv_run(&o.loop, UV_RUN_NOWAIT);
	uv_close((uv_handle_t *)&prepare, NULL);
	owner_close(&o);
	assert_int_equal(o.own + o.failed, 6);
	assert_true(o.in_order);
	folder_remove(folder);
}

static void test_snapshots(void **state)
{
	struct owner o;
	char folder[64];
	(void)state;
	folder_make(folder);
	uint64_t number = 0;
	for (int life = 0; life < 3; life++) {
		owner_open(&o, folder);
		assert_int_equal(o.newest, number);
		if (life > 0)
			assert_true(o.restored > 0);
		for (int burst = 0; burst < 60; burst++) {
			for (int i = 0; i < 100; i++)
				assert_int_equal(owner_append(&o, ++number, 64), TR_OK);
			owner_run_until(&o, number);
		}
		assert_true(o.in_order);
		assert_true(o.snapshots > 0);
		owner_close(&o);
	}
	folder_remove(folder);
}

static void test_refusals(void **state)
{
	struct owner o, second;
	struct tr_error error = { 0 };
	char folder[64], path[128];
	(void)state;
	folder_make(folder);
	owner_open(&o, folder);
	assert_int_equal(owner_try(&second, folder, &error), TR_EEXIST);
	assert_non_null(strstr(error.text, "another memberd uses the folder"));
	owner_finish_loop(&second);
	owner_close(&o);
	assert_int_equal(owner_try(&o, "/dev/null/memberd", &error), TR_EIO);
	assert_non_null(strstr(error.text, "/dev/null/memberd"));
	owner_finish_loop(&o);
	/* Not torn: broken where nothing is ever written again. */
	(void)snprintf(path, sizeof(path), "%s/raft/0000000000000001-0000000000000001", folder);
	FILE *file = fopen(path, "w");
	(void)fputs("this is not a segment of C-Raft, is it?", file);
	(void)fclose(file);
	assert_int_equal(owner_try(&o, folder, &error), TR_EIO);
	assert_non_null(strstr(error.text, folder));
	owner_finish_loop(&o);
	folder_remove(folder);
}

static void set_file_limit(rlim_t bytes)
{
	struct rlimit limit;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void append_until_full(struct owner *o)
{
	uint64_t number = o->newest;
	set_file_limit(1 << 20);
	while (o->failed == 0) {
		if (number < o->newest + 20 && owner_append(o, number + 1, 8192) == TR_OK)
			number++;
		(void)uv_run(&o->loop, UV_RUN_NOWAIT);
	}
	assert_true(strlen(o->failure) > 0);
	print_message("the reason given: %s\n", o->failure);
	assert_true(o->newest >= 1);
}

/* Once there is room, the log goes on. Entries that failed may have reached the disk; they come first then. */
static void append_again(struct owner *o)
{
	set_file_limit(RLIM_INFINITY);
	uint64_t late = uv_hrtime() + 30000000000u;
	while (owner_append(o, o->newest + 1, 8192) != TR_OK) {
		(void)uv_run(&o->loop, UV_RUN_ONCE);
		assert_true(uv_hrtime() < late);
	}
	uint64_t failed = o->failed, wanted = o->newest + 1;
	while (o->newest < wanted && o->failed == failed)
		(void)uv_run(&o->loop, UV_RUN_ONCE);
	assert_int_equal(o->failed, failed);
	assert_int_equal(o->newest, wanted);
	assert_true(o->in_order);
}

static void check_replay(const char *folder, uint64_t newest)
{
	struct owner o;
	owner_open(&o, folder);
	assert_int_equal(o.newest, newest);
	assert_true(o.in_order);
	owner_close(&o);
}

/* The disk takes no more: appends fail with the reason, nothing crashes, and once there is room again the log goes on. */
static void test_full_disk(void **state)
{
	struct owner o;
	char folder[64];
	(void)state;
	folder_make(folder);
	owner_open(&o, folder);
	assert_int_equal(owner_append(&o, 1, 8192), TR_OK);
	owner_run_until(&o, 1);
	append_until_full(&o);
	append_again(&o);
	uint64_t newest = o.newest;
	owner_close(&o);
	check_replay(folder, newest);
	folder_remove(folder);
}

static void time_passed(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* It stays full while the log is opened again: that try comes to nothing, and others follow. */
static void test_disk_full_for_long(void **state)
{
	struct owner o;
	char folder[64];
	uv_timer_t timer;
	(void)state;
	folder_make(folder);
	owner_open(&o, folder);
	assert_int_equal(owner_append(&o, 1, 8192), TR_OK);
	owner_run_until(&o, 1);
	append_until_full(&o);
	(void)uv_timer_init(&o.loop, &timer);
	(void)uv_timer_start(&timer, time_passed, 2000, 0);
	(void)uv_run(&o.loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&timer, NULL);
	append_again(&o);
	uint64_t newest = o.newest;
	owner_close(&o);
	check_replay(folder, newest);
	folder_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_append_and_replay),
		cmocka_unit_test(test_append_and_close_from_callback),
		cmocka_unit_test(test_what_may_wait_goes_with_the_next),
		cmocka_unit_test(test_snapshots),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_disk_full_for_long),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
