/* Workers that die in the middle or break the channel's rules: their engine and the other peers are unharmed. */
#include "tests/unit/engine_fixture.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rng.h"

#define COUNT 200000

static tr_status one_round(tr_group *group, float *data, uint64_t peer, struct tr_error *error)
{
	struct tr_round round;
	for (;;) {
		tr_status st = tr_round_begin(group, &round, error);
		for (size_t e = 0; e < COUNT; e++)
			data[e] = (float)(peer + e % 7);
		if (st == TR_OK)
			st = tr_allreduce(group, 0, data, COUNT, TR_F32, TR_SUM, TR_CONTRIBUTE,
			    error);
		if (st == TR_OK)
			st = tr_round_commit(group, NULL, &round, error);
		if (st != TR_ERESTART)
			return st;
	}
}

struct caller {
	struct fx_host *host;
	pthread_t thread;
	unsigned rounds;
	float *data;
	tr_status status;
};

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	struct tr_error error = { 0 };
	for (unsigned i = 0; i < caller->rounds && caller->status == TR_OK; i++)
		caller->status = one_round(caller->host->group, caller->data,
		    FX_PEER(caller->host->index), &error);
	return NULL;
}

static void caller_start(struct caller *caller, struct fx_host *host, unsigned rounds)
{
	struct tr_error error = { 0 };
	*caller = (struct caller){ .host = host, .rounds = rounds };
	fx_attach(host);
	caller->data = tr_alloc(host->group, COUNT * sizeof(float));
	assert_non_null(caller->data);
	assert_int_equal(tr_state_ready(host->group, 0, &error), TR_OK);
	assert_int_equal(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

/* The worker's process: a round, then half of the next one. */
static void child(int fd, int said)
{
	tr_group *group;
	struct tr_error error;
	struct tr_round round;
	if (coll_group_open(fd, &group, &error) != TR_OK)
		_exit(1);
	float *data = tr_alloc(group, COUNT * sizeof(float));
	if (data == NULL || tr_state_ready(group, 0, &error) != TR_OK ||
	    one_round(group, data, FX_PEER(1), &error) != TR_OK ||
	    tr_round_begin(group, &round, &error) != TR_OK ||
	    tr_allreduce(group, 0, data, COUNT, TR_F32, TR_SUM, TR_CONTRIBUTE, &error) != TR_OK ||
	    write(said, "x", 1) != 1)
		_exit(2);
	for (;;)
		(void)pause();
}

static void worker_killed_in_mid_round(void **state)
{
	(void)state;
	int ends[2], said[2];
	char byte;
	assert_int_equal(channel_pair(ends, NULL), TR_OK);
	assert_int_equal(pipe(said), 0);
	pid_t pid = fork(); /* before there are threads */
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(ends[0]);
		child(ends[1], said[1]);
	}
	(void)close(ends[1]);
	struct fx *fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[3];
	bool rest[FX_HOSTS_MAX] = { true, false, true };
	fx_add_worker(&fx->hosts[1], ends[0]);
	caller_start(&callers[0], &fx->hosts[0], 5);
	caller_start(&callers[2], &fx->hosts[2], 5);
	fx_found(fx, 3);
	assert_int_equal(read(said[0], &byte, 1), 1);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	FX_WAIT(fx, fx->hosts[1].gone);
	engine_remove(fx->hosts[1].engine, FX_GROUP, FX_PEER(1), "killed by SIGKILL");
	fx_change_view(fx, rest);
	for (unsigned i = 0; i < 3; i += 2) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
		for (size_t e = 0; e < COUNT; e++)
			assert_true(
			    callers[i].data[e] == (float)(FX_PEER(0) + FX_PEER(2) + 2 * (e % 7)));
	}
	/* Its engine serves the next worker. */
	fx_ready(&fx->hosts[1]);
	(void)close(said[0]);
	(void)close(said[1]);
	fx_stop(fx);
}

/* ---- a worker that breaks the rules ---- */

static struct channel_control *page(struct fx_host *host)
{
	return (struct channel_control *)(uintptr_t)channel_worker_control(host->group->channel);
}

/* Puts an entry as it stands, without what the library checks. */
static void put(struct fx_host *host, const struct channel_submission *s)
{
	struct tr_error error;
	(void)channel_worker_submit(host->group->channel, s, NULL, &error);
}

typedef void trick_fn(struct fx_host *host);

static void trick_counter(struct fx_host *host)
{
	/* The bell is rung before the counter is spoilt: now and then the engine looks in between. */
	while (atomic_load(&page(host)->ended) == TR_OK) {
		put(host,
		    &(struct channel_submission){ .call = CHANNEL_SUBMIT,
		        .dtype = TR_F32,
		        .reduce = TR_SUM,
		        .count = 1 });
		atomic_store(&page(host)->submitted, 1ull << 40);
		(void)usleep(1000);
	}
}

static void trick_op_outside(struct fx_host *host)
{
	put(host,
	    &(struct channel_submission){ .call = CHANNEL_SUBMIT,
	        .dtype = TR_F32,
	        .reduce = TR_SUM,
	        .contribute = 1,
	        .arena = 0,
	        .offset = TR_CHANNEL_ARENA_BYTES - 4,
	        .count = 2 });
}

static void trick_unknown_arena(struct fx_host *host)
{
	put(host,
	    &(struct channel_submission){ .call = CHANNEL_SUBMIT,
	        .dtype = TR_F64,
	        .reduce = TR_MAX,
	        .arena = 77,
	        .count = 2 });
}

static void trick_dtype(struct fx_host *host)
{
	put(host,
	    &(struct channel_submission){ .call = CHANNEL_SUBMIT,
	        .dtype = 200,
	        .reduce = TR_SUM,
	        .count = 2 });
}

static void trick_count(struct fx_host *host)
{
	put(host,
	    &(struct channel_submission){ .call = CHANNEL_SUBMIT,
	        .dtype = TR_I64,
	        .reduce = TR_SUM,
	        .count = UINT64_MAX / 4 });
}

static void trick_two_calls(struct fx_host *host)
{
	put(host, &(struct channel_submission){ .call = CHANNEL_BEGIN, .id = 100 });
	put(host, &(struct channel_submission){ .call = CHANNEL_BEGIN, .id = 101 });
}

static void trick_message(struct fx_host *host)
{
	uint8_t noise[64];
	memset(noise, 0xa5, sizeof(noise));

	(void)channel_worker_report(host->group->channel, noise, sizeof(noise),
	    NULL); /* nonsense, harmless */
	struct channel_submission s = { .call = 1000 };
	put(host, &s);
}

/* Transfers under way count on the number of pieces. */
static void trick_late_state(struct fx_host *host)
{
	struct tr_error error;
	(void)channel_worker_state(host->group->channel, "late", 0, 0, 64, 0, &error);
}

static void rule_breaker(trick_fn *trick)
{
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller good;
	struct tr_error error;
	caller_start(&good, &fx->hosts[0], 3);
	fx_attach(&fx->hosts[1]);
	assert_non_null(tr_alloc(fx->hosts[1].group, 64));
	assert_int_equal(tr_state_ready(fx->hosts[1].group, 0, &error), TR_OK);
	trick(&fx->hosts[1]);
	FX_WAIT(fx, fx->hosts[1].failed == TR_EPROTO);
	FX_IS(fx, strstr(fx->hosts[1].failed_text, "channel's rules") != NULL);
	assert_int_equal(tr_wait(fx->hosts[1].group, 0, &error), TR_EPROTO);
	fx_found(fx, 1);
	assert_int_equal(pthread_join(good.thread, NULL), 0);
	assert_int_equal(good.status, TR_OK);
	fx_stop(fx);
}

static void rule_breakers(void **state)
{
	static trick_fn *const tricks[] = { trick_counter, trick_op_outside, trick_unknown_arena,
		trick_dtype, trick_count, trick_two_calls, trick_message, trick_late_state };
	(void)state;
	for (size_t i = 0; i < sizeof(tricks) / sizeof(tricks[0]); i++)
		rule_breaker(tricks[i]);
}

/* Noise in the rings, with the bell rung: the engine ends this member sooner or later, and only this one. */
static void noise_in_the_rings(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct rng_key key = rng_key(seed, 0, 0);
		struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
		    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
		struct fx_host *host = &fx->hosts[0];
		struct tr_error error;
		fx_attach(host);
		assert_non_null(tr_alloc(host->group, 64));
		assert_int_equal(tr_state_ready(host->group, 0, &error), TR_OK);
		struct channel_submission s;
		tr_status st = TR_OK;
		for (uint64_t i = 0; i < 3000 && st == TR_OK; i++) {
			for (size_t k = 0; k < sizeof(s); k++)
				((uint8_t *)&s)[k] = (uint8_t)rng_u64(key, i, k);
			s.call = (uint32_t)rng_below(key, i, 100, 9);
			s.arena = (uint32_t)rng_below(key, i, 101, 2);
			s.offset = rng_below(key, i, 102, 4096) * 8;
			s.count = rng_below(key, i, 103, 1000);
			s.dtype = (uint8_t)rng_below(key, i, 104, 5);
			s.reduce = (uint8_t)rng_below(key, i, 105, 6);
			st = channel_worker_submit(host->group->channel, &s, NULL, &error);
		}
		FX_WAIT(fx, host->failed == TR_EPROTO);
		fx_stop(fx);
	}
}

/* ---- a worker that is faster than its engine ---- */

#define PIECES 4000

/* What was sent on the socket before READY counts, however much it is. */
static void all_state_counts_before_ready(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct fx_host *host = &fx->hosts[0];
	struct tr_error error;
	struct tr_round round;
	bool one[FX_HOSTS_MAX] = { true };
	int ends[2];
	uint64_t bytes = 4096;
	assert_int_equal(channel_pair(ends, NULL), TR_OK);
	int arena = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(arena >= 0);
	assert_int_equal(ftruncate(arena, (off_t)bytes), 0);
	assert_int_equal(fcntl(arena, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(channel_send(ends[1], CHANNEL_ARENA, &bytes, sizeof(bytes), NULL, 0,
	                     &arena, 1),
	    TR_OK);
	(void)close(arena);
	struct {
		struct channel_message message;
		struct channel_state state;
	} pieces[PIECES];
	memset(pieces, 0, sizeof(pieces));
	for (int i = 0; i < PIECES; i++) {
		pieces[i].message.kind = CHANNEL_STATE;
		pieces[i].message.bytes = sizeof(struct channel_state);
	}
	/* The channel keeps boundaries: no more at a time than it takes in. */
	for (int i = 0; i < PIECES; i += PIECES / 4)
		assert_int_equal(send(ends[1], pieces + i, sizeof(pieces) / 4, MSG_DONTWAIT),
		    sizeof(pieces) / 4);
	fx_add_worker(host, ends[0]);
	assert_int_equal(coll_group_open(ends[1], &host->group, &error), TR_OK);
	/* Written by hand, so counted by hand: the engine reads the socket when it has not heard all that was said. */
	(void)atomic_fetch_add(&page(host)->said, PIECES + 1);
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
	FX_WAIT(fx, host->ready);
	fx_change_view(fx, one);
	assert_int_equal(tr_round_begin(host->group, &round, &error), TR_OK);
	assert_int_equal(tr_round_commit(host->group, NULL, &round, &error), TR_OK);
	FX_IS(fx, host->failed == TR_OK);
	fx_stop(fx);
}

/* Reports beyond what the engine takes at a time hold up the memory that is announced behind them, and the ops in it. */
static void memory_behind_many_reports(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct fx_host *host = &fx->hosts[0];
	struct tr_report event = { .event = "one of many" };
	struct tr_error error;
	struct tr_round round;
	bool one[FX_HOSTS_MAX] = { true };
	fx_attach(host);
	assert_int_equal(tr_state_ready(host->group, 0, &error), TR_OK);
	FX_WAIT(fx, host->ready);
	fx_change_view(fx, one);
	assert_int_equal(tr_round_begin(host->group, &round, &error), TR_OK);
	for (unsigned i = 0; i < 2 * TR_REPORT_EVENTS_MAX; i++)
		assert_int_equal(tr_report(host->group, &event), TR_OK);
	float *data = tr_alloc(host->group, 2 * (size_t)TR_CHANNEL_ARENA_BYTES);
	assert_non_null(data);
	data[0] = 3;
	assert_int_equal(tr_allreduce(host->group, 0, data, 1, TR_F32, TR_SUM, TR_CONTRIBUTE,
	                     &error),
	    TR_OK);
	assert_int_equal(tr_round_commit(host->group, NULL, &round, &error), TR_OK);
	assert_true(data[0] == 3);
	FX_WAIT(fx, host->events == 2 * TR_REPORT_EVENTS_MAX);
	fx_stop(fx);
}

static void leave(struct fx_host *host)
{
	tr_group_leave(host->group);
	host->group = NULL;
	FX_WAIT(host->fx, host->gone);
	assert_non_null(host->words);
}

static void report_account(struct fx_host *host, uint64_t round)
{
	uint8_t packed[64];
	Traind__V1__SampleAccount account = TRAIND__V1__SAMPLE_ACCOUNT__INIT;
	account.round = round;
	struct tr_report samples = { .samples = packed,
		.samples_bytes = traind__v1__sample_account__pack(&account, packed) };
	assert_int_equal(tr_report(host->group, &samples), TR_OK);
	packed[0] = 0xff;
	assert_int_equal(tr_report(host->group, &samples), TR_EINVAL);
}

static void said_with_its_end(const Traind__Peer__LastWords *words)
{
	assert_int_equal(words->samples->round, 7);
	assert_int_equal(words->n_rounds, 5);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(words->rounds[i]->round, i + 1);
	assert_int_equal(words->progress->step, 5);
	assert_true(words->progress->loss == 1.5 && words->progress->val_loss == 2.5);
	assert_string_equal(words->progress->checkpoint, "/tmp/step-4");
	assert_non_null(words->progress->plan);
	assert_int_equal(words->progress->plan->dp, 4);
	assert_int_equal(words->n_events, 1);
	assert_string_equal(words->events[0], "a disk was full");
}

/* memberd was away when it ended: rounds, whoever was to tell them, figures and events go with its end. */
static void last_words(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct fx_host *hub = &fx->hosts[0], *other = &fx->hosts[1];
	struct caller callers[2];
	const struct tr_plan_now plan = { .step_s = 1, .dp = 2, .pp = 1, .tp = 1 };
	const struct tr_plan_now newer = { .step_s = 0.5, .dp = 4, .pp = 1, .tp = 1 };
	struct tr_report first = { .step = 4,
		.loss = 2,
		.val_loss = 2.5,
		.checkpoint = "/tmp/step-4",
		.plan = &plan };
	struct tr_report second = { .step = 5, .loss = 1.5, .val_loss = NAN, .plan = &newer };
	struct tr_report event = { .loss = NAN, .val_loss = NAN, .event = "a disk was full" };
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	bool both[FX_HOSTS_MAX] = { true, true };
	for (unsigned i = 0; i < 2; i++)
		caller_start(&callers[i], &fx->hosts[i], 5);
	FX_WAIT(fx, hub->ready && other->ready);
	fx_change_view(fx, both);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
	}
	assert_int_equal(tr_report(other->group, &first), TR_OK);
	FX_WAIT(fx, other->reports == 1);
	engine_memberd_lost(other->engine);
	assert_int_equal(tr_report(other->group, &second), TR_OK);
	assert_int_equal(tr_report(other->group, &event), TR_OK);
	report_account(other, 6);
	report_account(other, 7); /* the newest counts */
	leave(other);
	FX_IS(fx, other->records == 0 && other->events == 0);
	said_with_its_end(other->words);
	recorded.group = FX_GROUP;
	recorded.round = 3;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	message.rounds_recorded = &recorded;
	FX_WAIT(fx, hub->records == 5);
	engine_to_node(hub->engine, &message);
	leave(hub);
	assert_int_equal(hub->words->n_rounds, 2);
	assert_int_equal(hub->words->rounds[0]->round, 4);
	fx_stop(fx);
}

/* memberd was told the newest account and went before it was in its log: it goes with the end all the same. */
static void an_account_that_was_told_goes_with_the_end(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct fx_host *host = &fx->hosts[0];
	fx_attach(host);
	report_account(host, 7);
	FX_WAIT(fx, host->reports == 1);
	engine_memberd_lost(host->engine);
	leave(host);
	assert_non_null(host->words->samples);
	assert_int_equal(host->words->samples->round, 7);
	fx_stop(fx);
}

/* memberd's disk was full, so it says nothing of a record: it is told again, though newer ones come all the time. */
static void records_are_told_again_beside_new_ones(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct fx_host *host = &fx->hosts[0];
	unsigned rounds = 0, told = 0;
	fx_attach(host);
	assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
	fx_found(fx, 1);
	for (; told <= rounds && rounds < 20 * FX_DEADLINE_S; rounds++) {
		struct tr_commit commit = { .samples = 1 };
		struct tr_round round;
		assert_int_equal(tr_round_begin(host->group, &round, NULL), TR_OK);
		assert_int_equal(tr_round_commit(host->group, &commit, &round, NULL), TR_OK);
		(void)usleep(50000); /* more often than records wait to be told */
		fx_lock(fx);
		told = host->records;
		pthread_mutex_unlock(&fx->lock);
	}
	assert_true(told > rounds);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_account_that_was_told_goes_with_the_end),
		cmocka_unit_test(records_are_told_again_beside_new_ones),
		cmocka_unit_test(worker_killed_in_mid_round),
		cmocka_unit_test(rule_breakers),
		cmocka_unit_test(noise_in_the_rings),
		cmocka_unit_test(all_state_counts_before_ready),
		cmocka_unit_test(memory_behind_many_reports),
		cmocka_unit_test(last_words),
	};
	return cmocka_run_group_tests_name("engine worker", tests, NULL, NULL);
}
