/* A joiner whose state comes while rounds are decided (tr_state_add_gradual): through a port that takes 4 ms for each piece of it. Each round adds what it
 * reduced to every byte, so a byte that missed a round, had one twice, or was changed by what was not there yet, is wrong.
 */
#define FP_CONNECTIONS_MAX 4096 /* each round has its own */
#include "collectives/engine/engine_internal.h"
#include "tests/unit/engine_fixture.h"
#include "tests/unit/frame_proxy.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define WEIGHTS ((size_t)6 << 20)
#define UNIT    ((size_t)512 << 10)
#define SLOW_US 4000

/* That engine's thread is late: what is read came more than a second before. */
static uv_thread_t late_thread;
static atomic_bool late;

static int look_late(int events)
{
	uv_thread_t me = uv_thread_self();
	if (events > 0 && atomic_load(&late) && uv_thread_equal(&me, &late_thread))
		(void)usleep(1100000);
	return events;
}

__attribute__((visibility("default"))) int epoll_wait(int fd, struct epoll_event *events, int most,
    int timeout)
{
	return look_late((int)syscall(SYS_epoll_wait, fd, events, most, timeout));
}

__attribute__((visibility("default"))) int epoll_pwait(int fd, struct epoll_event *events, int most,
    int timeout, const sigset_t *mask)
{
	return look_late((int)syscall(SYS_epoll_pwait, fd, events, most, timeout, mask, _NSIG / 8));
}

struct account {
	uint64_t rounds, total,
	    sum; /* what every speed had added; sum: of the totals, after each round */
};

struct learner {
	struct fx_host *host;
	pthread_t thread;
	bool eager; /* eager: lets each round be decided as soon as it may, whatever has come */
	struct account *account;
	uint8_t *weights,
	    *speeds; /* each weight changes by its speed, and that by what was reduced */
	double *value;
	/* under the lock */
	tr_status status;
	unsigned done, deferred, contributed;
	bool whole;
	struct tr_error error;
};

static void add_state(struct fx_host *host, const char *what, uint8_t *data, size_t at, bool gradual)
{
	struct tr_error error = { 0 };
	char name[64];
	(void)snprintf(name, sizeof(name), "%s from %zu", what, at);
	tr_status st = gradual ? tr_state_add_gradual(host->group, name, data + at, UNIT,
	                             (uint32_t)(at / UNIT), &error)
	                       : tr_state_add(host->group, name, data + at, UNIT, &error);
	assert_int_equal(st, TR_OK);
}

static void learner_attach(struct learner *l, struct fx_host *host, bool filled, bool gradual)
{
	struct tr_error error = { 0 };
	*l = (struct learner){ .host = host };
	fx_attach(host);
	l->account = tr_alloc(host->group, sizeof(*l->account));
	l->weights = tr_alloc(host->group, WEIGHTS);
	l->speeds = tr_alloc(host->group, WEIGHTS);
	l->value = tr_alloc(host->group, sizeof(double));
	assert_true(l->account && l->weights && l->speeds && l->value);
	for (size_t k = 0; filled && k < WEIGHTS; k++)
		l->weights[k] = (uint8_t)(k * 31), l->speeds[k] = (uint8_t)(k * 7);
	*l->account = (struct account){ 0 };
	assert_int_equal(tr_state_add(host->group, "account", l->account, sizeof(*l->account),
	                     &error),
	    TR_OK);
	for (size_t at = 0; at < WEIGHTS; at += UNIT) {
		add_state(host, "weights", l->weights, at, gradual);
		add_state(host, "speeds", l->speeds, at, gradual);
	}
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
}

static void apply(struct learner *l)
{
	l->account->rounds++;
	l->account->total += (uint64_t)*l->value;
	l->account->sum += l->account->total;
	for (size_t k = 0; k < WEIGHTS; k++) {
		l->speeds[k] = (uint8_t)(l->speeds[k] + (uint64_t)*l->value);
		l->weights[k] = (uint8_t)(l->weights[k] + l->speeds[k]);
	}
}

/* Not piece by piece, as coll.h wants it: what is not here yet changes what is. */
static bool mixes;

static void mix(struct learner *l)
{
	for (size_t k = 0; k < WEIGHTS; k++)
		l->weights[k] = (uint8_t)(l->weights[k] * 3 + l->weights[WEIGHTS - 1 - k]);
}

static void check_weights(const struct learner *l)
{
	const struct account *a = l->account;
	for (size_t k = 0; k < WEIGHTS; k++)
		if (l->speeds[k] != (uint8_t)(k * 7 + a->total) ||
		    l->weights[k] != (uint8_t)(k * 31 + a->rounds * k * 7 + a->sum))
			fail_msg("byte %zu is wrong after %lu rounds", k,
			    (unsigned long)l->account->rounds);
}

/* Whether the round is to be decided without the rest of its state. */
static tr_status wait_state(struct learner *l, bool *defers, struct tr_error *error)
{
	struct tr_state_progress progress = { 0 };
	tr_status st;
	do {
		st = tr_state_receive_for(l->host->group, 1, &progress, error);
		*defers = st == TR_ETIMEDOUT && progress.may_defer &&
		    (l->eager || progress.came >= (size_t)1 << 20);
	} while (st == TR_ETIMEDOUT && !*defers);
	if (st == TR_OK &&
	    (!progress.whole || progress.missing != 0 ||
	        progress.bytes != 2 * WEIGHTS + sizeof(struct account)))
		return tr_error_set(error, TR_EINTERNAL, "not all of the state is here");
	return st == TR_ETIMEDOUT ? TR_OK : st;
}

static tr_status learner_round(struct learner *l, struct tr_round *round, bool *defers,
    struct tr_error *error)
{
	struct tr_commit commit = { 0 };
	*defers = false;
	tr_status st = tr_round_begin(l->host->group, round, error);
	if (st != TR_OK)
		return st;
	*l->value = 1;
	st = tr_allreduce(l->host->group, 7, l->value, 1, TR_F64, TR_SUM,
	    round->index < round->contributors ? TR_CONTRIBUTE : 0, error);
	if (st == TR_OK)
		st = tr_wait(l->host->group, 7, error);
	if (st == TR_OK && round->receive_state)
		st = wait_state(l, defers, error);
	commit.flags = *defers ? TR_DEFER_STATE : 0;
	struct tr_round committed;
	return st == TR_OK ? tr_round_commit(l->host->group, &commit, &committed, error) : st;
}

static void *learner_run(void *arg)
{
	struct learner *l = arg;
	struct fx *fx = l->host->fx;
	for (;;) {
		struct tr_error error = { 0 };
		struct tr_round round = { 0 };
		bool defers = false;
		tr_status st = learner_round(l, &round, &defers, &error);
		if (st == TR_OK)
			apply(l);
		if (st == TR_OK && mixes)
			mix(l);
		pthread_mutex_lock(&fx->lock);
		l->status = st;
		l->error = error;
		l->done += st == TR_OK;
		l->deferred += st == TR_OK && defers;
		l->whole = l->whole || (st == TR_OK && round.receive_state && !defers);
		l->contributed += st == TR_OK && round.index < round.contributors;
		pthread_cond_broadcast(&fx->changed);
		pthread_mutex_unlock(&fx->lock);
		if (st != TR_OK && st != TR_ERESTART)
			return NULL;
	}
}

struct lesson {
	struct fx *fx;
	struct frame_proxy proxy;
	struct learner learners[3];
};

static void start(struct learner *l)
{
	assert_int_equal(pthread_create(&l->thread, NULL, learner_run, l), 0);
}

/* Two learn, and a third one has come into their view. */
static struct lesson *begin(struct fp_harm harm, bool gradual, bool eager,
    enum _Traind__Peer__Policy policy)
{
	struct lesson *s = calloc(1, sizeof(*s));
	const bool all[FX_HOSTS_MAX] = { true, true, true };
	assert_non_null(s);
	s->fx = fx_start(3, policy, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 2; i++)
		learner_attach(&s->learners[i], &s->fx->hosts[i], true, gradual);
	for (unsigned i = 0; i < 2; i++)
		start(&s->learners[i]);
	fx_found(s->fx, 2);
	FX_WAIT(s->fx, s->learners[0].done >= 1 && s->learners[1].done >= 1);
	fp_start(&s->proxy, &s->fx->hosts[2], harm);
	learner_attach(&s->learners[2], &s->fx->hosts[2], false, gradual);
	s->learners[2].eager = eager;
	start(&s->learners[2]);
	FX_WAIT(s->fx, s->fx->hosts[2].ready);
	fx_change_view(s->fx, all);
	return s;
}

/* Whatever happened, everybody's bytes are those of the rounds that it has had. */
static void end(struct lesson *s)
{
	fp_stop(&s->proxy);
	for (unsigned i = 0; i < 3; i++)
		fx_host_stop(&s->fx->hosts[i]);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(s->learners[i].thread, NULL), 0);
		if (!mixes)
			check_weights(&s->learners[i]);
	}
	fx_stop(s->fx);
	free(s);
}

static bool failed(const struct learner *l)
{
	return l->status != TR_OK && l->status != TR_ERESTART;
}

static bool says_whole(const struct lesson *s)
{
	return strstr(s->fx->hosts[2].link_lost_reason, "has the state now") != NULL;
}

/* All of it is there: it asks for a view, unless another one was made meanwhile, and that counts it. */
static void joins_in(struct lesson *s, const bool *members)
{
	struct learner *l = &s->learners[2];
	FX_WAIT(s->fx, says_whole(s) || l->contributed > 0 || failed(l));
	if (l->contributed == 0)
		fx_change_view(s->fx, members);
	FX_WAIT(s->fx, l->contributed >= 3 || failed(l));
	FX_IS(s->fx, !failed(l));
}

static void rounds_go_on_while_a_state_comes(void **state)
{
	(void)state;
	const bool all[FX_HOSTS_MAX] = { true, true, true };
	const enum _Traind__Peer__Policy policies[] = { TRAIND__PEER__POLICY__POLICY_REPLAY,
		TRAIND__PEER__POLICY__POLICY_UNIFORM };
	for (unsigned i = 0; i < 4; i++) {
		struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US }, true, i % 2 == 1,
		    policies[i / 2]);
		joins_in(s, all);
		FX_IS(s->fx, s->learners[2].deferred > 0);
		end(s);
	}
}

/* What is here stays and goes on with the rounds; the rest comes of another one. */
static void the_donor_dies_while_a_state_comes(void **state)
{
	(void)state;
	const bool left[FX_HOSTS_MAX] = { false, true, true };
	struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US }, true, false,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	FX_WAIT(s->fx, s->learners[2].deferred >= 1 || s->learners[2].whole);
	unsigned link_lost = s->fx->hosts[2].link_lost;
	fx_host_stop(&s->fx->hosts[0]);
	FX_WAIT(s->fx, s->fx->hosts[2].link_lost > link_lost);
	fx_change_view(s->fx, left);
	FX_WAIT(s->fx, says_whole(s) || s->learners[2].contributed > 0);
	FX_IS(s->fx, s->proxy.harm.states < 4 * (WEIGHTS >> 18));
	joins_in(s, left);
	end(s);
}

/* A view between the same members: nothing that came is lost, and no round is missed. */
static void a_view_changes_while_a_state_comes(void **state)
{
	(void)state;
	const bool all[FX_HOSTS_MAX] = { true, true, true };
	struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US }, true, false,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	for (unsigned i = 1; i <= 4; i++) {
		FX_WAIT(s->fx, s->learners[2].deferred >= i || s->learners[2].whole);
		if (!s->learners[2].whole)
			fx_change_view(s->fx, all);
	}
	joins_in(s, all);
	end(s);
}

/* A damaged piece had rounds added to it meanwhile: it is found in the end, and its tensor comes again. */
static void damage_that_came_early_is_found(void **state)
{
	(void)state;
	const bool all[FX_HOSTS_MAX] = { true, true, true };
	struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US, .corrupt = 2 }, true, false,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	joins_in(s, all);
	FX_IS(s->fx, s->proxy.harm.states > 2 * (WEIGHTS >> 18));
	end(s);
}

/* What its caller changes otherwise than piece by piece never agrees with its digests: it does not come for ever. */
static void a_state_that_is_not_gradual_fails_in_the_end(void **state)
{
	(void)state;
	mixes = true;
	struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US }, true, true,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	FX_WAIT(s->fx, failed(&s->learners[2]) || s->learners[2].contributed > 0);
	FX_IS(s->fx, s->learners[2].contributed == 0 && s->learners[2].status == TR_EDIGEST);
	end(s);
	mixes = false;
}

/* Where the group's state is not of that kind the commit waits for it, whatever it says. */
static void who_may_not_defer_waits(void **state)
{
	(void)state;
	struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US }, false, true,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	FX_WAIT(s->fx, s->learners[2].contributed >= 3);
	FX_IS(s->fx, s->learners[2].deferred == 0);
	end(s);
}

static unsigned states_of(struct lesson *s)
{
	pthread_mutex_lock(&s->fx->lock);
	unsigned states = s->proxy.harm.states;
	pthread_mutex_unlock(&s->fx->lock);
	return states;
}

/* A second after it was asked for it is asked for again, but not when it has just come: that would come into memory that its caller may have changed by then. */
static void what_has_come_is_not_asked_for_again(void **state)
{
	(void)state;
	struct lesson *s = begin((struct fp_harm){ .slow_us = SLOW_US }, false, false,
	    TRAIND__PEER__POLICY__POLICY_REPLAY);
	late_thread = s->fx->hosts[2].engine->thread;
	while (states_of(s) < 2 * (WEIGHTS >> 18) - 8)
		(void)usleep(100);
	atomic_store(&late, true);
	FX_WAIT(s->fx, s->learners[2].whole || failed(&s->learners[2]));
	atomic_store(&late, false);
	if (failed(&s->learners[2]))
		fail_msg("%s", s->learners[2].error.text);
	FX_WAIT(s->fx, s->learners[2].contributed >= 10 || failed(&s->learners[2]));
	FX_IS(s->fx, !failed(&s->learners[2]));
	end(s);
}

/* ---- by hand ---- */
static struct tr_round hand_begin(struct learner *l)
{
	struct tr_error error = { 0 };
	struct tr_round round = { 0 };
	tr_status st = tr_round_begin(l->host->group, &round, &error);
	if (st != TR_OK)
		fail_msg("begin: %d %s", st, error.text);
	return round;
}

static void hand_op(struct learner *l, const struct tr_round *round)
{
	struct tr_error error = { 0 };
	*l->value = 1;
	tr_status st = tr_allreduce(l->host->group, 7, l->value, 1, TR_F64, TR_SUM,
	    round->index < round->contributors ? TR_CONTRIBUTE : 0, &error);
	if (st != TR_OK)
		fail_msg("op: %d %s", st, error.text);
}

static tr_status hand_commit(struct learner *l, unsigned flags, uint32_t ms)
{
	struct tr_error error = { 0 };
	struct tr_round committed;
	struct tr_commit commit = { .flags = flags };
	tr_status st = tr_round_commit_for(l->host->group, &commit, &committed, ms, &error);
	return st;
}

/* Two have had a round, and a third one is in their view. */
static struct lesson *hand_start(unsigned slow_us)
{
	struct lesson *s = calloc(1, sizeof(*s));
	const bool all[FX_HOSTS_MAX] = { true, true, true };
	s->fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 2; i++)
		learner_attach(&s->learners[i], &s->fx->hosts[i], true, true);
	fx_found(s->fx, 2);
	struct tr_round r[2];
	for (unsigned i = 0; i < 2; i++)
		r[i] = hand_begin(&s->learners[i]);
	fp_start(&s->proxy, &s->fx->hosts[2], (struct fp_harm){ .slow_us = slow_us });
	learner_attach(&s->learners[2], &s->fx->hosts[2], false, true);
	FX_WAIT(s->fx, s->fx->hosts[2].ready);
	fx_change_view(s->fx, all);
	for (unsigned i = 0; i < 2; i++)
		hand_op(&s->learners[i], &r[i]);
	(void)hand_commit(&s->learners[0], 0, 0);
	assert_int_equal(hand_commit(&s->learners[1], 0, 5000), TR_OK);
	assert_int_equal(hand_commit(&s->learners[0], 0, 5000), TR_OK);
	for (unsigned i = 0; i < 2; i++)
		apply(&s->learners[i]);
	return s;
}

static struct tr_state_progress hand_look(struct learner *l, uint32_t ms, tr_status *st)
{
	struct tr_error error = { 0 };
	struct tr_state_progress p = { 0 };
	*st = tr_state_receive_for(l->host->group, ms, &p, &error);
	return p;
}

static void hand_begin_all(struct lesson *s, struct tr_round r[3])
{
	for (unsigned i = 0; i < 3; i++)
		r[i] = hand_begin(&s->learners[i]);
}

/* The round is decided without the rest of the joiner's state. */
static void hand_defer(struct lesson *s)
{
	(void)hand_commit(&s->learners[0], 0, 0);
	(void)hand_commit(&s->learners[1], 0, 0);
	assert_int_equal(hand_commit(&s->learners[2], TR_DEFER_STATE, 5000), TR_OK);
	assert_int_equal(hand_commit(&s->learners[0], 0, 5000), TR_OK);
	assert_int_equal(hand_commit(&s->learners[1], 0, 5000), TR_OK);
	for (unsigned i = 0; i < 3; i++)
		apply(&s->learners[i]);
}

static void hand_receive(struct lesson *s)
{
	tr_status st = TR_ETIMEDOUT;
	for (unsigned i = 0; i < 20; i++) {
		(void)hand_look(&s->learners[2], 500, &st);
		if (st == TR_OK)
			break;
	}
	assert_int_equal(st, TR_OK);
}

static void hand_end(struct lesson *s)
{
	fp_stop(&s->proxy);
	for (unsigned i = 0; i < 3; i++)
		fx_host_stop(&s->fx->hosts[i]);
	fx_stop(s->fx);
	free(s);
}

/* Its round is abandoned between its last look at the state and its commit, which says TR_DEFER_STATE. */
static void a_refused_commit_leaves_nothing(void **state)
{
	(void)state;
	const bool left[FX_HOSTS_MAX] = { true, false, true };
	struct lesson *s = hand_start(20000);
	struct tr_round r[3];
	tr_status st;
	hand_begin_all(s, r);
	hand_op(&s->learners[0], &r[0]);
	hand_op(&s->learners[2], &r[2]);
	while (!hand_look(&s->learners[2], 20, &st).may_defer)
		assert_int_equal(st, TR_ETIMEDOUT);
	fx_host_stop(&s->fx->hosts[1]);
	fx_change_view(s->fx, left);
	FX_WAIT(s->fx, !tr_progress(s->learners[2].host->group));
	assert_int_equal(hand_commit(&s->learners[2], TR_DEFER_STATE, 5000), TR_ERESTART);
	r[0] = hand_begin(&s->learners[0]);
	r[2] = hand_begin(&s->learners[2]);
	assert_true(r[2].receive_state);
	hand_op(&s->learners[0], &r[0]);
	hand_op(&s->learners[2], &r[2]);
	hand_receive(s);
	hand_end(s);
}

/* Pieces of a unit that is not whole are lost with the commit, and no reason to go on without the rest. */
static void pieces_of_a_unit_are_not_kept(void **state)
{
	(void)state;
	struct lesson *s = hand_start(20000);
	struct tr_state_progress p = { 0 };
	struct tr_round r[3];
	tr_status st;
	hand_begin_all(s, r);
	for (unsigned i = 0; i < 3; i++)
		hand_op(&s->learners[i], &r[i]);
	while (p.came < (256u << 10))
		p = hand_look(&s->learners[2], 1, &st);
	assert_true(p.came < 2 * UNIT);
	assert_int_equal(p.kept, 0);
	while (p.kept == 0 || !p.may_defer)
		p = hand_look(&s->learners[2], 1, &st);
	assert_int_equal(p.kept % (2 * UNIT), 0);
	assert_true(p.kept <= p.came);
	uint64_t kept = p.kept;
	hand_defer(s);
	hand_begin_all(s, r);
	p = hand_look(&s->learners[2], 0, &st);
	assert_true(p.missing + p.came <= p.bytes - kept);
	hand_end(s);
}

/* All of it has come when its caller has not begun the abandoned round again. */
static void what_comes_before_the_second_try_counts(void **state)
{
	(void)state;
	const bool left[FX_HOSTS_MAX] = { true, false, true };
	struct lesson *s = hand_start(20000);
	struct tr_round r[3];
	tr_status st;
	hand_begin_all(s, r);
	for (unsigned i = 0; i < 3; i++)
		hand_op(&s->learners[i], &r[i]);
	while (hand_look(&s->learners[2], 20, &st).came < (1u << 20))
		assert_int_equal(st, TR_ETIMEDOUT);
	hand_defer(s);
	hand_begin_all(s, r);
	hand_op(&s->learners[0], &r[0]);
	hand_op(&s->learners[2], &r[2]);
	(void)hand_look(&s->learners[2], 50, &st);
	fx_host_stop(&s->fx->hosts[1]);
	fx_change_view(s->fx, left);
	FX_WAIT(s->fx, !tr_progress(s->learners[2].host->group));
	r[0] = hand_begin(&s->learners[0]);
	hand_op(&s->learners[0], &r[0]);
	unsigned before = 0; /* it computes until nothing comes any more */
	for (unsigned now = states_of(s); now > before; now = states_of(s)) {
		before = now;
		(void)usleep(1000000);
	}
	r[2] = hand_begin(&s->learners[2]);
	hand_op(&s->learners[2], &r[2]);
	hand_receive(s);
	assert_true(states_of(s) - before < 10);
	hand_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_go_on_while_a_state_comes),
		cmocka_unit_test(the_donor_dies_while_a_state_comes),
		cmocka_unit_test(a_view_changes_while_a_state_comes),
		cmocka_unit_test(damage_that_came_early_is_found),
		cmocka_unit_test(a_state_that_is_not_gradual_fails_in_the_end),
		cmocka_unit_test(who_may_not_defer_waits),
		cmocka_unit_test(what_has_come_is_not_asked_for_again),
		cmocka_unit_test(a_refused_commit_leaves_nothing),
		cmocka_unit_test(pieces_of_a_unit_are_not_kept),
		cmocka_unit_test(what_comes_before_the_second_try_counts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
