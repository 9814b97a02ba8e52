/* A peer's caller: rounds of a few all-reduces in a thread of its own, checked against who contributed. Static, as the
 * fixture.
 */
#ifndef TR_TESTS_ENGINE_CALLER_H
#define TR_TESTS_ENGINE_CALLER_H

#include "tests/unit/engine_fixture.h"

#define OPS   3
#define COUNT 300000

/* One peer's caller. */
struct caller {
	struct fx_host *host;
	pthread_t thread;
	unsigned rounds;      /* to run */
	unsigned pause_at;    /* after two of this round's ops: says so, and waits for `resumed` */
	unsigned begun, done; /* under fx->lock */
	bool paused, resumed;
	float *data[OPS];
	tr_status status; /* the last one that was no success */
	char text[512];
	unsigned restarts, wrong, contributors_last;
	bool partial;
};

static float contribution(uint64_t peer, uint64_t round, unsigned op, size_t element)
{
	return (float)((peer * 7 + round * 13 + op * 29 + element % 101) % 64);
}

static void note(struct caller *caller, unsigned *what)
{
	pthread_mutex_lock(&caller->host->fx->lock);
	++*what;
	pthread_cond_broadcast(&caller->host->fx->changed);
	pthread_mutex_unlock(&caller->host->fx->lock);
}

static void caller_pause(struct caller *caller)
{
	struct fx *fx = caller->host->fx;
	pthread_mutex_lock(&fx->lock);
	caller->paused = true;
	pthread_cond_broadcast(&fx->changed);
	while (!caller->resumed)
		pthread_cond_wait(&fx->changed, &fx->lock);
	pthread_mutex_unlock(&fx->lock);
}

static void caller_check(struct caller *caller, uint64_t round)
{
	for (unsigned op = 0; op < OPS; op++)
		for (size_t e = 0; e < COUNT; e += 9973) {
			uint64_t peers[FX_HOSTS_MAX];
			size_t n = 0;
			float sum = 0;
			if (tr_contributors(caller->host->group, op, e, peers, FX_HOSTS_MAX, &n) !=
			    TR_OK)
				n = 0;
			for (size_t i = 0; i < n; i++)
				sum += contribution(peers[i], round, op, e);
			caller->wrong += n == 0 || sum != caller->data[op][e];
			caller->contributors_last = (unsigned)n;
		}
}

/* The members that contribute, by their index: peers of hosts in ascending order, this one at its own. */
static bool caller_knows_all(const struct caller *caller, const struct tr_round *round)
{
	uint64_t peers[FX_HOSTS_MAX] = { 0 }, first = 0;
	size_t count = 0;
	if (tr_round_contributors(caller->host->group, peers, FX_HOSTS_MAX, &count, NULL) != TR_OK ||
	    tr_round_contributors(caller->host->group, &first, 1, &count, NULL) != TR_OK ||
	    count != round->contributors || first != peers[0])
		return false;
	for (size_t i = 0; i < count; i++)
		if (peers[i] < FX_PEER(0) || peers[i] >= FX_PEER(FX_HOSTS_MAX) ||
		    (i > 0 && peers[i] <= peers[i - 1]) ||
		    (peers[i] == FX_PEER(caller->host->index)) != (i == round->index))
			return false;
	return true;
}

static tr_status caller_submit(struct caller *caller, const struct tr_round *round,
    struct tr_error *error)
{
	unsigned flags = round->index < round->contributors ? TR_CONTRIBUTE : 0;
	tr_status st = TR_OK;
	for (unsigned op = 0; op < OPS && (st == TR_OK || st == TR_ERESTART); op++) {
		for (size_t e = 0; e < COUNT; e++)
			caller->data[op][e] = contribution(FX_PEER(caller->host->index),
			    round->round, op, e);
		st = tr_allreduce(caller->host->group, op, caller->data[op], COUNT, TR_F32, TR_SUM,
		    flags, error);
		if (op == 1 && round->round == caller->pause_at)
			caller_pause(caller);
	}
	return st == TR_ERESTART ? TR_OK : st;
}

static tr_status caller_round(struct caller *caller, struct tr_error *error)
{
	struct tr_commit commit = { .samples = 1 };
	struct tr_round round;
	for (;;) {
		tr_status st = tr_round_begin(caller->host->group, &round, error);
		note(caller, &caller->begun);
		caller->wrong += st == TR_OK && !caller_knows_all(caller, &round);
		if (st == TR_OK)
			st = caller_submit(caller, &round, error);
		if (st == TR_OK && round.receive_state)
			st = tr_state_receive(caller->host->group, error);
		if (st == TR_OK)
			st = tr_round_commit(caller->host->group, &commit, &round, error);
		if (st == TR_ERESTART) {
			caller->restarts++;
			continue;
		}
		if (st != TR_OK)
			return st;
		break;
	}
	caller->partial = round.partial;
	caller_check(caller, round.round);
	note(caller, &caller->done);
	return TR_OK;
}

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	struct tr_error error = { 0 };
	while (caller->done < caller->rounds) {
		caller->status = caller_round(caller, &error);
		if (caller->status != TR_OK)
			break;
	}
	(void)snprintf(caller->text, sizeof(caller->text), "%s", error.text);
	return NULL;
}

static void caller_start(struct caller *caller, struct fx_host *host, unsigned rounds,
    unsigned pause_at)
{
	struct tr_error error = { 0 };
	*caller = (struct caller){ .host = host, .rounds = rounds, .pause_at = pause_at };
	fx_attach(host);
	uint64_t none;
	size_t count;
	assert_int_equal(tr_round_contributors(host->group, &none, 1, &count, &error), TR_EINVAL);
	for (unsigned op = 0; op < OPS; op++) {
		caller->data[op] = tr_alloc(host->group, COUNT * sizeof(float));
		assert_non_null(caller->data[op]);
	}
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

static void caller_resume(struct caller *caller)
{
	struct fx *fx = caller->host->fx;
	pthread_mutex_lock(&fx->lock);
	caller->resumed = true;
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
}

static void caller_join(struct caller *caller)
{
	assert_int_equal(pthread_join(caller->thread, NULL), 0);
	assert_int_equal(caller->wrong, 0);
}

/* Joins `count` callers, of whom each succeeded and saw so many contribute to the last round. */
static void callers_succeed(struct caller *callers, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		caller_join(&callers[i]);
		assert_int_equal(callers[i].status, TR_OK);
		assert_int_equal(callers[i].contributors_last, count);
	}
}

/* Of four hosts the second one ends in the middle of round 3, with two of its ops submitted; the others go on in a view
 * without it. Returns `fx`, whose callers are done. */
static inline struct fx *callers_survive_one(struct fx *fx)
{
	struct caller callers[4];
	bool survivors[FX_HOSTS_MAX] = { true, false, true, true };
	for (unsigned i = 0; i < 4; i++)
		caller_start(&callers[i], &fx->hosts[i], 5, i == 1 ? 3 : 0);
	fx_found(fx, 4);
	FX_WAIT(fx,
	    callers[1].paused && callers[0].begun >= 3 && callers[2].begun >= 3 &&
	        callers[3].begun >= 3);
	fx_host_stop(&fx->hosts[1]);
	caller_resume(&callers[1]);
	caller_join(&callers[1]);
	assert_int_equal(callers[1].status, TR_ECANCELLED);
	/* Its caller has its memory back; what others read of it stays as it was. */
	for (unsigned op = 0; op < OPS; op++)
		memset(callers[1].data[op], 0x7f, COUNT * sizeof(float));
	fx_change_view(fx, survivors);
	for (unsigned i = 0; i < 4; i++) {
		if (!survivors[i])
			continue;
		caller_join(&callers[i]);
		assert_int_equal(callers[i].status, TR_OK);
		assert_int_equal(callers[i].contributors_last, 3);
		assert_int_equal(callers[i].restarts,
		    fx->policy == TRAIND__PEER__POLICY__POLICY_REPLAY);
	}
	return fx;
}

#endif
