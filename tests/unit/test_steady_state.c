/* What engines say to memberd while rounds go on and nobody comes or goes: records in batches, and nothing else. (Heartbeats are
 * the link's, link.c.)
 */
#include "tests/unit/engine_fixture.h"

#define PEERS  3
#define ROUNDS 2000
#define LOG_MS 10 /* that a write of memberd's log takes */
#define WARM   5

struct caller {
	struct fx_host *host;
	pthread_t thread;
	tr_status status;
	struct tr_error error;
	unsigned rounds;
	unsigned done; /* under fx->lock */
	bool held;     /* waits there after WARM rounds */
	bool over;     /* under fx->lock */
};

static tr_status one_round(tr_group *group, float *data, struct tr_error *error)
{
	struct tr_round round;
	tr_status st = tr_round_begin(group, &round, error);
	for (unsigned tag = 0; st == TR_OK && tag < 2; tag++)
		st = tr_allreduce(group, tag, data + (size_t)tag * 256, 256, TR_F32, TR_SUM,
		    TR_CONTRIBUTE, error);
	return st == TR_OK ? tr_round_commit(group, NULL, &round, error) : st;
}

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	struct fx *fx = caller->host->fx;
	float *data = tr_alloc(caller->host->group, 512 * sizeof(float));
	caller->status = tr_state_ready(caller->host->group, 0, &caller->error);
	for (unsigned i = 0; caller->status == TR_OK && i < caller->rounds; i++) {
		caller->status = one_round(caller->host->group, data, &caller->error);
		pthread_mutex_lock(&fx->lock);
		caller->done++;
		pthread_cond_broadcast(&fx->changed);
		while (caller->done == WARM && caller->held)
			pthread_cond_wait(&fx->changed, &fx->lock);
		pthread_mutex_unlock(&fx->lock);
	}
	pthread_mutex_lock(&fx->lock);
	caller->over = true;
	pthread_mutex_unlock(&fx->lock);
	return NULL;
}

static void welcome(struct fx *fx)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome body = TRAIND__PEER__WELCOME__INIT;
	body.heartbeat_interval_ms = TR_HEARTBEAT_INTERVAL_MS;
	body.heartbeat_timeout_ms = FX_DEADLINE_S * 1000;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &body;
	for (unsigned i = 0; i < fx->count; i++)
		engine_to_node(fx->hosts[i].engine, &message);
}

/* Lets all go on at the same count of messages; the time in ms. */
static uint64_t release(struct fx *fx, struct caller *callers, unsigned before[PEERS][FX_KINDS_MAX])
{
	for (unsigned i = 0; i < PEERS; i++)
		FX_WAIT(fx, callers[i].done == WARM);
	pthread_mutex_lock(&fx->lock);
	for (unsigned i = 0; i < PEERS; i++) {
		memcpy(before[i], fx->hosts[i].heard, sizeof(before[i]));
		callers[i].held = false;
	}
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
	return uv_hrtime() / 1000000;
}

static bool all_over(struct fx *fx, const struct caller *callers)
{
	bool over = true;
	pthread_mutex_lock(&fx->lock);
	for (unsigned i = 0; i < PEERS; i++)
		over = over && callers[i].over;
	pthread_mutex_unlock(&fx->lock);
	return over;
}

/* As memberd: what it was told is in its log a little later, and it says so. */
static void log_until_over(struct fx *fx, const struct caller *callers)
{
	unsigned logged[PEERS] = { 0 };
	while (!all_over(fx, callers))
		for (unsigned i = 0; i < PEERS; i++) {
			Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
			Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
			pthread_mutex_lock(&fx->lock);
			unsigned told = fx->hosts[i].records;
			pthread_mutex_unlock(&fx->lock);
			(void)usleep(LOG_MS * 1000 / PEERS);
			if (told == logged[i])
				continue;
			recorded.group = FX_GROUP;
			recorded.round = logged[i] = told; /* from 1 on, each told once */
			message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
			message.rounds_recorded = &recorded;
			engine_to_node(fx->hosts[i].engine, &message);
		}
}

static void nothing_but_batches(void **state)
{
	(void)state;
	struct fx *fx = fx_start(PEERS, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[PEERS];
	unsigned before[PEERS][FX_KINDS_MAX], batches = 0;
	welcome(fx);
	for (unsigned i = 0; i < PEERS; i++) {
		callers[i] = (struct caller){ .host = &fx->hosts[i],
			.rounds = WARM + ROUNDS,
			.held = true };
		fx_attach(&fx->hosts[i]);
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]),
		    0);
	}
	fx_found(fx, PEERS);
	uint64_t since_ms = release(fx, callers, before);
	log_until_over(fx, callers);
	for (unsigned i = 0; i < PEERS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		if (callers[i].status != TR_OK)
			fail_msg("%s", callers[i].error.text);
	}
	pthread_mutex_lock(&fx->lock);
	uint64_t took_ms = uv_hrtime() / 1000000 - since_ms;
	for (unsigned i = 0; i < PEERS; i++)
		for (unsigned kind = 0; kind < FX_KINDS_MAX; kind++) {
			unsigned said = fx->hosts[i].heard[kind] - before[i][kind];
			if (kind == TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS)
				batches += said;
			else if (said > 0)
				fail_msg("peer %u says %u messages of kind %u", i, said, kind);
		}
	pthread_mutex_unlock(&fx->lock);
	/* A timer does not come early: whatever the machine does, there are not more. */
	assert_true(batches <= took_ms / TR_RECORDS_INTERVAL_MS + 2);
	FX_WAIT(fx, fx->hosts[0].records >= WARM + ROUNDS);
	fx_stop(fx);
}

/* A view change says all again that the log may lack, one by one: thousands, where the log stands still and rounds are short. They go as a few batches; else each of them took
 * all those behind it along, which were more bytes than a link to memberd may hold. */
static void records_that_are_said_again_go_once(void **state)
{
	(void)state;
	struct fx *fx = fx_start(PEERS, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[PEERS];
	unsigned before[PEERS];
	const bool all[FX_HOSTS_MAX] = { true, true, true };
	welcome(fx);
	for (unsigned i = 0; i < PEERS; i++) {
		callers[i] = (struct caller){ .host = &fx->hosts[i],
			.rounds = TR_RECORDS_BATCH + 500 };
		fx_attach(&fx->hosts[i]);
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]),
		    0);
	}
	fx_found(fx, PEERS);
	for (unsigned i = 0; i < PEERS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		if (callers[i].status != TR_OK)
			fail_msg("%s", callers[i].error.text);
	}
	pthread_mutex_lock(&fx->lock);
	for (unsigned i = 0; i < PEERS; i++)
		before[i] = fx->hosts[i].heard[TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS];
	pthread_mutex_unlock(&fx->lock);
	uint64_t since_ms = uv_hrtime() / 1000000;
	fx_change_view(fx, all);
	for (unsigned i = 0; i < PEERS; i++)
		FX_WAIT(fx,
		    fx->hosts[i].heard[TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS] >=
		        before[i] + 2);
	(void)usleep(3 * TR_RECORDS_INTERVAL_MS * 1000);
	pthread_mutex_lock(&fx->lock);
	uint64_t took_ms = uv_hrtime() / 1000000 - since_ms;
	for (unsigned i = 0; i < PEERS; i++) {
		unsigned said = fx->hosts[i].heard[TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS] -
		    before[i];
		/* Two batches at once, and one of those that were not logged for so long. */
		if (said > 4 + took_ms / TR_RECORDS_AGAIN_MS)
			fail_msg("peer %u says %u batches", i, said);
	}
	pthread_mutex_unlock(&fx->lock);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(nothing_but_batches),
		cmocka_unit_test(records_that_are_said_again_go_once) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
