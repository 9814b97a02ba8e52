/* Calls that wait too long, over real connections: they name who has not submitted the op. */
#include "tests/unit/engine_fixture.h"

#define HOSTS    4
#define LIMIT_MS 900
#define COUNT    1000

struct waiter {
	struct fx_host *host;
	pthread_t thread;
	bool commits;
	struct tr_round round;
	tr_status status;
	struct tr_error error;
};

static void *wait_run(void *arg)
{
	struct waiter *w = arg;
	const struct tr_commit commit = { 0 };
	if (w->commits)
		w->status = tr_round_commit_for(w->host->group, &commit, &w->round, LIMIT_MS,
		    &w->error);
	else
		w->status = tr_wait_for(w->host->group, 0, LIMIT_MS, &w->error);
	return NULL;
}

static tr_status submit(struct waiter *w, float *data)
{
	return tr_allreduce(w->host->group, 0, data, COUNT, TR_F32, TR_SUM, TR_CONTRIBUTE,
	    &w->error);
}

static void names_only(const struct waiter *w, unsigned late)
{
	char name[32];
	assert_int_equal(w->status, TR_ETIMEDOUT);
	(void)snprintf(name, sizeof(name), "waited %d ms for peer %u (", LIMIT_MS,
	    (unsigned)FX_PEER(late));
	const char *at = strstr(w->error.text, name);
	if (at == NULL || strstr(at + strlen(name), "peer") != NULL)
		fail_msg("host %u, %u is late: %s", w->host->index, late, w->error.text);
}

static void commit_all(struct waiter *waiters)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		waiters[i].commits = true;
		assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_run, &waiters[i]), 0);
	}
	for (unsigned i = 0; i < HOSTS; i++) {
		assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
		while (waiters[i].status == TR_ETIMEDOUT)
			(void)wait_run(&waiters[i]);
		assert_int_equal(waiters[i].status, TR_OK);
	}
}

/* All have submitted, and `late` does not commit. */
static void one_does_not_commit(struct waiter *waiters, float *const *data, unsigned late)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		struct waiter *w = &waiters[i];
		w->commits = true;
		assert_int_equal(tr_round_begin(w->host->group, &w->round, &w->error), TR_OK);
		assert_int_equal(submit(w, data[i]), TR_OK);
	}
	for (unsigned i = 0; i < HOSTS; i++)
		if (i != late)
			assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_run,
			                     &waiters[i]),
			    0);
	for (unsigned i = 0; i < HOSTS; i++)
		if (i != late) {
			assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
			names_only(&waiters[i], late);
		}
	commit_all(waiters);
}

/* All but `late` submit; of those `computes` does not wait. */
static void one_is_late(struct waiter *waiters, float *const *data, unsigned late,
    unsigned computes, bool commits)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		struct waiter *w = &waiters[i];
		w->commits = commits;
		assert_int_equal(tr_round_begin(w->host->group, &w->round, &w->error), TR_OK);
		if (i != late)
			assert_int_equal(submit(w, data[i]), TR_OK);
	}
	for (unsigned i = 0; i < HOSTS; i++)
		if (i != late && i != computes)
			assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_run,
			                     &waiters[i]),
			    0);
	for (unsigned i = 0; i < HOSTS; i++)
		if (i != late && i != computes) {
			assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
			names_only(&waiters[i], late);
		}
	assert_int_equal(submit(&waiters[late], data[late]), TR_OK);
	commit_all(waiters);
}

static void in_a_group(Traind__Peer__Algorithm algorithm, bool commits)
{
	struct fx *fx = fx_start(HOSTS, TRAIND__PEER__POLICY__POLICY_REPLAY, algorithm);
	struct waiter waiters[HOSTS] = { 0 };
	float *data[HOSTS];
	for (unsigned i = 0; i < HOSTS; i++) {
		waiters[i].host = &fx->hosts[i];
		fx_attach(&fx->hosts[i]);
		fx->hosts[i].group->op_deadline_ms = FX_DEADLINE_S * 1000;
		data[i] = tr_alloc(fx->hosts[i].group, COUNT * sizeof(float));
		assert_int_equal(tr_state_ready(fx->hosts[i].group, 0, NULL), TR_OK);
	}
	fx_found(fx, HOSTS);
	one_is_late(waiters, data, 0, HOSTS, commits);
	one_is_late(waiters, data, 1, HOSTS, commits);
	one_is_late(waiters, data, 2, commits ? HOSTS : 0, commits);
	one_is_late(waiters, data, 3, commits ? HOSTS : 2, commits);
	for (unsigned late = 0; commits && late < HOSTS; late += 3)
		one_does_not_commit(waiters, data, late);
	fx_stop(fx);
}

static void the_deadline_names_who_has_not_submitted(void **state)
{
	(void)state;
	in_a_group(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, false);
	in_a_group(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, false);
	in_a_group(TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT, false);
}

static void a_commit_names_who_has_not_submitted_or_not_voted(void **state)
{
	(void)state;
	in_a_group(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_deadline_names_who_has_not_submitted),
		cmocka_unit_test(a_commit_names_who_has_not_submitted_or_not_voted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
