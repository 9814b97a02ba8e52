/* Rounds of many ops out of a few buffers, each taken back as soon as a later op of the same members is there: over TCP and through shared memory, while views change
 * and a peer comes in or is lost.
 */
#include "tests/unit/engine_fixture.h"

#define PEERS   4
#define STEPS   160
#define ROUNDS  3
#define LENGTH  2 /* of a row of the mesh */
#define BUFFERS 4
#define MOST    70000

static const size_t counts[] = { 1, 333, 1024, 16, MOST };

struct caller {
	struct fx_host *host;
	pthread_t thread;
	unsigned steps, rounds; /* ever done; under fx->lock */
	unsigned lag;           /* op k is released after op k + lag; 0: never */
	float *buffers[BUFFERS], *common;
	tr_status status;
	char text[512];
	unsigned wrong, restarts;
};

static float value(uint64_t peer, uint64_t round, unsigned step, size_t element)
{
	return (float)((peer * 7 + round * 13 + step * 29 + element % 101) % 64);
}

static void note(struct caller *caller, unsigned *what)
{
	pthread_mutex_lock(&caller->host->fx->lock);
	++*what;
	pthread_cond_broadcast(&caller->host->fx->changed);
	pthread_mutex_unlock(&caller->host->fx->lock);
}

/* Its row or its column. */
static uint32_t members_of(const struct tr_round *round, unsigned step, uint32_t *members)
{
	uint32_t count = 0;
	unsigned row = round->index - round->index % LENGTH;
	for (unsigned i = 0; i < round->contributors; i++)
		if (step % 2 == 0 ? i >= row && i < row + LENGTH
		                  : i % LENGTH == round->index % LENGTH)
			members[count++] = i;
	return count;
}

static tr_status caller_op(struct caller *caller, const struct tr_round *round,
    const uint64_t *peers, unsigned step, struct tr_error *error)
{
	tr_group *group = caller->host->group;
	struct tr_op op = TR_OP_INIT;
	uint32_t members[FX_HOSTS_MAX];
	float *data = caller->buffers[step % BUFFERS];
	op.tag = step;
	op.output = data;
	op.count = counts[step / 2 % (sizeof(counts) / sizeof(counts[0]))];
	op.scope = (struct tr_scope){ members, members_of(round, step, members) };
	for (size_t e = 0; e < op.count; e++)
		data[e] = value(FX_PEER(caller->host->index), round->round, step, e);
	tr_status st = tr_submit(group, &op, error);
	if (st == TR_OK)
		st = tr_wait(group, step, error);
	if (st != TR_OK)
		return st;
	for (size_t e = 0; e < op.count; e += 97) {
		float sum = 0;
		for (uint32_t i = 0; i < op.scope.count; i++)
			sum += value(peers[members[i]], round->round, step, e);
		caller->wrong += sum != data[e];
	}
	if (step >= caller->lag)
		st = tr_release(group, step - caller->lag, error);
	note(caller, &caller->steps);
	return st;
}

static tr_status caller_round(struct caller *caller, struct tr_round *round, struct tr_error *error)
{
	tr_group *group = caller->host->group;
	uint64_t peers[FX_HOSTS_MAX];
	size_t count;
	tr_status st = tr_round_begin(group, round, error);
	if (st == TR_OK)
		st = tr_round_contributors(group, peers, FX_HOSTS_MAX, &count, error);
	bool counts_here = st == TR_OK && round->index < round->contributors;
	for (unsigned step = 0; counts_here && step < STEPS && st == TR_OK; step++)
		st = caller_op(caller, round, peers, step, error);
	if (st == TR_OK) {
		caller->common[0] = 1;
		st = tr_allreduce(group, STEPS, caller->common, 1, TR_F32, TR_SUM,
		    counts_here ? TR_CONTRIBUTE : 0, error);
	}
	if (st == TR_OK && round->receive_state)
		st = tr_state_receive(group, error);
	if (st == TR_OK)
		st = tr_round_commit(group, &(struct tr_commit){ .samples = 1 }, round, error);
	if (st == TR_OK)
		caller->wrong += caller->common[0] != (float)round->contributors;
	return st;
}

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	struct tr_error error = { 0 };
	struct tr_round round = { 0 };
	while (round.round < ROUNDS || caller->status == TR_ERESTART) {
		caller->status = caller_round(caller, &round, &error);
		if (caller->status == TR_ERESTART) {
			caller->restarts++;
			continue;
		}
		if (caller->status != TR_OK)
			break;
		note(caller, &caller->rounds);
	}
	(void)snprintf(caller->text, sizeof(caller->text), "%s", error.text);
	return NULL;
}

static void caller_start(struct caller *caller, struct fx_host *host, unsigned lag)
{
	struct tr_error error = { 0 };
	*caller = (struct caller){ .host = host, .lag = lag };
	fx_attach(host);
	for (unsigned i = 0; i < BUFFERS; i++) {
		caller->buffers[i] = tr_alloc(host->group, MOST * sizeof(float));
		assert_non_null(caller->buffers[i]);
	}
	caller->common = tr_alloc(host->group, sizeof(float));
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

static void caller_ends_well(struct caller *caller)
{
	assert_int_equal(pthread_join(caller->thread, NULL), 0);
	if (caller->status != TR_OK)
		fail_msg("%s", caller->text);
	assert_int_equal(caller->wrong, 0);
}

static struct fx *start(struct caller *callers, unsigned peers, bool near, bool driving,
    int algorithm)
{
	struct fx *fx = fx_start(peers, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    (Traind__Peer__Algorithm)algorithm);
	fx->near = near;
	fx->driving = driving;
	for (unsigned i = 0; i < PEERS; i++)
		caller_start(&callers[i], &fx->hosts[i], 2 + i % 2);
	fx_found(fx, PEERS);
	return fx;
}

/* Views of the same members follow each other while they work, and a peer comes in with the second round. */
static void views_change_and_a_peer_comes(bool near, bool driving, int algorithm)
{
	struct caller callers[PEERS + 1];
	bool members[FX_HOSTS_MAX] = { true, true, true, true, false };
	struct fx *fx = start(callers, PEERS + 1, near, driving, algorithm);
	for (unsigned change = 1; change <= 6; change++) {
		FX_WAIT(fx, callers[change % PEERS].steps >= change * 20);
		if (change == 4) {
			caller_start(&callers[PEERS], &fx->hosts[PEERS], 2);
			FX_WAIT(fx, fx->hosts[PEERS].ready);
			members[PEERS] = true;
		}
		fx_change_view(fx, members);
	}
	for (unsigned i = 0; i <= PEERS; i++)
		caller_ends_well(&callers[i]);
	for (unsigned i = 0; i < PEERS; i++) {
		struct tr_stats stats = TR_STATS_INIT;
		assert_int_equal(callers[i].restarts, 0);
		assert_int_equal(tr_stats_get(fx->hosts[i].group, &stats, NULL), TR_OK);
		assert_int_equal(stats.ops[TR_ALL_REDUCE], ROUNDS * (STEPS + 1));
	}
	fx_stop(fx);
}

static void through_changes(void **state)
{
	(void)state;
	for (int near = 0; near < 2; near++)
		for (int driving = 0; driving < 2; driving++)
			views_change_and_a_peer_comes(near, driving,
			    near + 2 * driving == 3 ? TR_AUTO : TR_RING + near + 2 * driving);
	views_change_and_a_peer_comes(true, false, TR_ONE_SHOT);
	views_change_and_a_peer_comes(false, true, TR_HIERARCHICAL);
}

/* A peer ends in the middle: the others begin the round again, with all its tags. */
static void through_a_loss(void **state)
{
	(void)state;
	for (int near = 0; near < 2; near++) {
		struct caller callers[PEERS];
		const bool survivors[FX_HOSTS_MAX] = { true, true, false, true };
		struct fx *fx = start(callers, PEERS, near, near == 0, TR_DIRECT);
		FX_WAIT(fx, callers[2].rounds >= 1 && callers[2].steps >= STEPS + 40);
		fx_host_stop(&fx->hosts[2]);
		assert_int_equal(pthread_join(callers[2].thread, NULL), 0);
		assert_int_equal(callers[2].status, TR_ECANCELLED);
		fx_change_view(fx, survivors);
		for (unsigned i = 0; i < PEERS; i++)
			if (survivors[i])
				caller_ends_well(&callers[i]);
		assert_int_equal(callers[0].restarts, 1);
		fx_stop(fx);
	}
}

/* What is wrong with a release is said at once, or by the next wait. */
static void what_cannot_be_released(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error;
	struct tr_round round;
	const uint32_t self = 0;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *data = tr_alloc(group, 64);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	struct tr_op op = TR_OP_INIT;
	op.output = data;
	op.count = 4;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	assert_int_equal(tr_wait(group, 0, &error), TR_OK);
	assert_int_equal(tr_release(group, 0, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "op 0 is of all members"));
	assert_int_equal(tr_release(group, 1, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "op 1 was not submitted"));
	op.scope = (struct tr_scope){ &self, 1 };
	op.output = data + 4;
	op.tag = 1;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	op.tag = 2;
	assert_int_equal(tr_submit(group, &op, &error), TR_EINVAL); /* the same memory */
	assert_int_equal(tr_wait(group, 1, &error), TR_OK);
	assert_int_equal(tr_release(group, 1, &error), TR_OK);
	assert_int_equal(tr_release(group, 1, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "op 1 was released before"));
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	op.tag = 1;
	op.output = data + 8;
	assert_int_equal(tr_submit(group, &op, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "op 1 was released in this round"));
	assert_int_equal(tr_wait(group, 2, &error), TR_OK);
	uint64_t peer;
	size_t count;
	assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_OK);
	assert_int_equal(tr_contributors(group, 1, 0, &peer, 1, &count), TR_ENOTFOUND);
	assert_int_equal(tr_contributors(group, 2, 0, &peer, 1, &count), TR_OK);
	/* Tags are the round's. */
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_OK);
	fx_stop(fx);
}

/* Nobody has its result before the other end has submitted it. */
static void a_release_without_a_wait(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error;
	struct tr_round round;
	for (unsigned i = 0; i < 2; i++) {
		fx_ready(&fx->hosts[i]);
	}
	fx_found(fx, 2);
	tr_group *group = fx->hosts[0].group;
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	float *data = tr_alloc(group, 64);
	assert_int_equal(tr_recv(group, 5, data, 4, TR_F32, 1, &error), TR_OK);
	assert_int_equal(tr_release(group, 5, &error), TR_OK);
	assert_int_equal(tr_recv(group, 6, data, 4, TR_F32, 1, &error), TR_OK);
	assert_int_equal(tr_wait(group, 6, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "op 5 has no result yet"));
	/* Two ops write to one memory now: nothing of this round can be relied on, however often it is asked for. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(tr_round_commit_for(group, NULL, &round, 200, &error), TR_EINVAL);
		assert_non_null(strstr(error.text, "op 5 has no result yet"));
	}
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(through_changes),
		cmocka_unit_test(through_a_loss),
		cmocka_unit_test(what_cannot_be_released),
		cmocka_unit_test(a_release_without_a_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
