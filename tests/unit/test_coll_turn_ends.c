/* Ops in turn that somebody does not come to: who stands still is found, and programs that do not agree are ended, as with the engine. */
#include "tests/unit/engine_in_turn.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/engine/channel_worker_internal.h"
#include "common/float_mode.h"

#define OPS 4

struct caller {
	pthread_t thread;
	struct fx_host *host;
	float *memory;
	unsigned root, ops; /* then it commits */
	struct tr_error error;
	tr_status status;
};

static void *sum_and_commit(void *arg)
{
	struct caller *c = arg;
	struct tr_round round;
	tr_group *group = c->host->group;
	for (uint32_t tag = 0; c->status == TR_OK && tag < c->ops; tag++) {
		struct tr_op op = op_in_turn(tag, c->memory + (size_t)8 * tag, 4, 2);
		op.root = c->root;
		c->status = tr_submit(group, &op, &c->error);
		if (c->status == TR_OK)
			c->status = tr_wait(group, tag, &c->error);
	}
	if (c->status == TR_OK)
		c->status = tr_round_commit(group, NULL, &round, &c->error);
	return NULL;
}

static void start(struct caller *c, struct fx *fx, unsigned index, void **memory, unsigned ops)
{
	*c = (struct caller){ .host = &fx->hosts[index],
		.memory = memory[index],
		.root = index,
		.ops = ops };
	assert_int_equal(pthread_create(&c->thread, NULL, sum_and_commit, c), 0);
}

/* An all-reduce has no root, whatever stands there. The engine does not compare it: it made the op, and nobody read what was shown. */
static void roots_of_sums_are_not_compared(void **state)
{
	(void)state;
	void *memory[2];
	struct caller callers[2];
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 4096, memory);
	for (unsigned i = 0; i < 2; i++)
		start(&callers[i], fx, i, memory, OPS);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
	}
	fx_stop(fx);
}

/* As those of the engine. */
static void sums_are_exact_whatever_the_callers_have(void **state)
{
	(void)state;
	void *memory[2];
	struct tr_error error = { 0 };
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 4096, memory);
	volatile float least = 1e-40f;
	for (unsigned i = 0; i < 2; i++) {
		*(volatile float *)memory[i] = least;
		const struct tr_op op = op_in_turn(0, memory[i], 1, 2);
		fx->hosts[i].group->turn.told = true; /* one thread does for both */
		assert_int_equal(tr_submit(fx->hosts[i].group, &op, &error), TR_OK);
	}
	for (unsigned i = 0; i < 2; i++) {
		unsigned before = float_mode_set(FLOAT_FLUSH);
		tr_status st = tr_wait(fx->hosts[i].group, 0, &error);
		unsigned mode = float_mode_set(before);
		assert_int_equal(st, TR_OK);
		assert_int_equal(mode, FLOAT_FLUSH);
		assert_true(*(volatile float *)memory[i] == least + least);
	}
	fx_stop(fx);
}

/* It can never come to the op, and waits for us. */
static void who_has_closed_the_round_without_it_is_named(void **state)
{
	(void)state;
	for (unsigned at = 0; at < 3; at++) {
		void *memory[2];
		struct caller callers[2];
		struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 4096, memory);
		start(&callers[0], fx, 0, memory, at + 1);
		start(&callers[1], fx, 1, memory, at);
		for (unsigned i = 0; i < 2; i++)
			FX_WAIT(fx, fx->hosts[i].failed != TR_OK);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
			assert_int_equal(callers[i].status, TR_EMISMATCH);
		}
		fx_stop(fx);
	}
}

/* ---- who stands still ---- */

/* A worker's process, which waits for somebody. */
static void child(int fd)
{
	tr_group *group;
	struct tr_round round;
	if (coll_group_open(fd, &group, NULL) != TR_OK)
		_exit(1);
	float *data = tr_alloc(group, 64);
	if (data == NULL || tr_state_ready(group, 0, NULL) != TR_OK ||
	    tr_round_begin(group, &round, NULL) != TR_OK)
		_exit(2);
	const struct tr_op op = op_in_turn(1, data, 4, 2);
	(void)tr_submit(group, &op, NULL);
	(void)tr_wait(group, 1, NULL);
	_exit(3);
}

/* What heartbeats say of it, within 10 s. */
static bool comes_to_wait(struct engine *engine, bool waiting)
{
	struct engine_progress rows[2];
	for (unsigned n = 0; n < 10000; n++) {
		(void)usleep(1000);
		size_t count = engine_progress(engine, rows, 2);
		for (size_t i = 0; i < count; i++)
			if (rows[i].peer == FX_PEER(1) && rows[i].waiting == waiting &&
			    (rows[i].waits_for_count == 1 && rows[i].waits_for[0] == FX_PEER(0)) ==
			        waiting)
				return true;
	}
	return false;
}

/* Else nobody would ever be taken for stopped: it seems to wait for those who wait for it. */
static void who_was_stopped_waits_for_nobody(void **state)
{
	(void)state;
	int ends[2];
	struct tr_round round;
	assert_int_equal(channel_pair(ends, NULL), TR_OK);
	pid_t pid = fork(); /* before there are threads */
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(ends[0]);
		child(ends[1]);
	}
	(void)close(ends[1]);
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fx_share(fx, 1, &fx->hosts[0]);
	fx_add_worker(&fx->hosts[1], ends[0]);
	fx_ready(&fx->hosts[0]);
	fx_found(fx, 2);
	assert_int_equal(tr_round_begin(fx->hosts[0].group, &round, NULL), TR_OK);
	assert_true(comes_to_wait(fx->hosts[0].engine, true));
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_true(comes_to_wait(fx->hosts[0].engine, false));
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_true(comes_to_wait(fx->hosts[0].engine, true));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	fx_stop(fx);
}

/* Who broke the channel's rules is over, and its process lives on: nobody else may sit where that writes. Who has gone leaves its seat. */
static void a_seat_is_nobody_else_s_while_its_worker_lives(void **state)
{
	(void)state;
	void *memory[2];
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 4096, memory);
	(void)channel_worker_say(fx->hosts[1].group->channel, 99, NULL, 0, NULL, 0, NULL, 0);
	FX_WAIT(fx, fx->hosts[1].gone);
	for (unsigned i = 2; i < 4; i++) {
		fx_share(fx, i, &fx->hosts[0]);
		fx_attach(&fx->hosts[i]);
		assert_int_equal(channel_worker_control(fx->hosts[i].group->channel)->seat, 2);
		tr_group_leave(fx->hosts[i].group);
		fx->hosts[i].group = NULL;
		FX_WAIT(fx, fx->hosts[i].gone);
	}
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_closed_the_round_without_it_is_named),
		cmocka_unit_test(sums_are_exact_whatever_the_callers_have),
		cmocka_unit_test(roots_of_sums_are_not_compared),
		cmocka_unit_test(a_seat_is_nobody_else_s_while_its_worker_lives),
		cmocka_unit_test(who_was_stopped_waits_for_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
