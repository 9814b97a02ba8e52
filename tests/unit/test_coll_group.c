/* Whom a group is for, and what may be asked for when it is joined. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/wait.h>

#include "engine_fixture.h"

/* Of the process that the handle is of; which call of them got through is the exit status. */
static int child_of(tr_group *group, float *data)
{
	char why[128];
	struct tr_error error = { 0 };
	struct tr_round round;
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_assignment assignment;
	uint64_t peer;
	size_t count;
	(void)snprintf(why, sizeof(why),
	    "this group is of process %d: a child of fork has to join its own", (int)getppid());
	if (tr_allreduce(group, 2, data, 16, TR_F32, TR_SUM, TR_CONTRIBUTE, &error) != TR_EINVAL)
		return 1;
	if (strcmp(error.text, why) != 0)
		return 2;
	if (tr_wait(group, 1, &error) != TR_EINVAL || tr_wait_for(group, 1, 0, &error) != TR_EINVAL)
		return 3;
	if (tr_release(group, 1, &error) != TR_EINVAL || strcmp(error.text, why) != 0)
		return 4;
	if (tr_round_commit(group, NULL, NULL, &error) != TR_EINVAL ||
	    tr_round_begin(group, &round, &error) != TR_EINVAL || strcmp(error.text, why) != 0)
		return 5;
	if (tr_state_add(group, "a", data, 4, &error) != TR_EINVAL ||
	    strcmp(error.text, why) != 0 || tr_state_ready(group, 0, &error) != TR_EINVAL ||
	    strcmp(error.text, why) != 0 || tr_state_receive(group, &error) != TR_EINVAL)
		return 6;
	if (tr_stats_get(group, &stats, &error) != TR_EINVAL || strcmp(error.text, why) != 0)
		return 7;
	if (tr_contributors(group, 1, 0, &peer, 1, &count) != TR_EINVAL ||
	    tr_round_contributors(group, &peer, 1, &count, &error) != TR_EINVAL)
		return 8;
	if (tr_alloc(group, 64) != NULL || tr_progress(group) ||
	    tr_report(group, &(struct tr_report){ .step = 1 }) != TR_EINVAL)
		return 9;
	if (tr_assignment_get(group, &assignment) != TR_EINVAL)
		return 10;
	tr_group_leave(group);
	return 0;
}

static void a_child_of_fork_has_no_part_in_the_group(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round;
	int status = 0;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *data = tr_alloc(group, 4096);
	assert_non_null(data);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	data[0] = 5;
	assert_int_equal(tr_allreduce(group, 1, data, 1, TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
	    TR_OK);
	pid_t child = fork();
	if (child == 0)
		_exit(child_of(group, data));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_OK);
	assert_true(data[0] == 5);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK); /* all of it is as it was */
	assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_OK);
	fx_stop(fx);
}

struct summer {
	pthread_t thread;
	tr_group *group;
	float *data;
	struct tr_error error;
	tr_status status;
};

enum { SUMS = 300, NUMBERS = 1000 };

/* Each is told with what waits for it: a wait, or the commit. */
static void *sum_on(void *arg)
{
	static const uint32_t both[] = { 0, 1 };
	struct summer *s = arg;
	struct tr_round round;
	struct tr_op op = TR_OP_INIT;
	op.count = NUMBERS;
	op.flags |= TR_THEN_WAIT;
	op.scope = (struct tr_scope){ both, 2 };
	s->status = TR_OK;
	for (uint32_t tag = 0; s->status == TR_OK && tag < SUMS; tag++) {
		float *at = s->data + (size_t)tag % 2 * NUMBERS;
		bool last = tag == SUMS - 1;
		for (unsigned i = 0; i < NUMBERS; i++)
			at[i] = (float)(tag + i);
		op.tag = tag;
		op.output = at;
		s->status = tr_submit(s->group, &op, &s->error);
		if (s->status == TR_OK)
			s->status = last ? tr_round_commit(s->group, NULL, &round, &s->error)
			                 : tr_wait(s->group, tag, &s->error);
		for (unsigned i = 0; s->status == TR_OK && i < NUMBERS; i++)
			if (at[i] != 2 * (float)(tag + i))
				s->status = tr_error_set(&s->error, TR_EDIGEST,
				    "sum %u, number %u: %g", tag, i, (double)at[i]);
		if (s->status == TR_OK && tag > 0 && !last)
			s->status = tr_release(s->group, tag - 1, &s->error);
	}
	return NULL;
}

static void an_op_may_be_told_with_the_call_that_waits_for_it(void **state)
{
	(void)state;
	void *memory[2];
	struct fx *fx = fx_begin(2, 2 * NUMBERS * sizeof(float), memory);
	struct summer summers[2];
	for (unsigned i = 0; i < 2; i++) {
		summers[i] = (struct summer){ .group = fx->hosts[i].group, .data = memory[i] };
		assert_int_equal(pthread_create(&summers[i].thread, NULL, sum_on, &summers[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		(void)pthread_join(summers[i].thread, NULL);
	for (unsigned i = 0; i < 2; i++)
		if (summers[i].status != TR_OK)
			fail_msg("%u: %s", i, summers[i].error.text);
	fx_stop(fx);
}

static void not_joined(const struct tr_join_options *options, const char *why)
{
	struct tr_error error = { 0 };
	tr_group *group = NULL;
	assert_int_equal(tr_group_join(options, &group, &error), TR_EINVAL);
	assert_string_equal(error.text, why);
}

/* There is no memberd at that address, and none is asked. */
static void options_that_no_group_has_are_refused_at_once(void **state)
{
	(void)state;
	struct tr_join_options good = TR_JOIN_OPTIONS_INIT, options;
	good.membership = "127.0.0.1:1";
	good.name = "g";
	good.size = 1;
	for (int i = 0; i < 2; i++) {
		static const char *const policies[] = {
			"join: policy -1, allowed: 0 (keep), 1 (uniform), 2 (replay)",
			"join: policy 3, allowed: 0 (keep), 1 (uniform), 2 (replay)"
		};
		static const char *const algorithms[] = {
			"join: algorithm -1, allowed: 0 (auto) to 5 (one-shot)",
			"join: algorithm 6, allowed: 0 (auto) to 5 (one-shot)"
		};
		options = good;
		options.policy = (enum tr_policy)(i == 0 ? -1 : 3);
		not_joined(&options, policies[i]);
		options = good;
		options.algorithm = (enum tr_algorithm)(i == 0 ? -1 : 6);
		not_joined(&options, algorithms[i]);
	}
	options = good;
	options.segment_bytes = 100;
	not_joined(&options,
	    "join: segment_bytes 100, allowed: 0 or a multiple of 64, at most 1047552");
	options.segment_bytes = 1047552 + 64;
	not_joined(&options,
	    "join: segment_bytes 1047616, allowed: 0 or a multiple of 64, at most 1047552");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_that_no_group_has_are_refused_at_once),
		cmocka_unit_test(a_child_of_fork_has_no_part_in_the_group),
		cmocka_unit_test(an_op_may_be_told_with_the_call_that_waits_for_it),
	};
	return cmocka_run_group_tests_name("coll group", tests, NULL, NULL);
}
