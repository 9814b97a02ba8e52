/* Joiners: their donor's state over real TCP, without memberd. */
#include "tests/unit/engine_fixture.h"
#include "tests/unit/frame_proxy.h"

struct big_state {
	uint8_t *data[3];
	size_t bytes[3];
};

/* Too little to ask several donors; and enough. */
static const size_t little[3] = { 3u << 20, 0, 1234567 },
                    much[3] = { 12u << 20, 1, (4u << 20) + 5 };
static const size_t *state_bytes = little;

static void declare_state(struct fx_host *host, struct big_state *big, bool filled)
{
	struct tr_error error = { 0 };
	for (unsigned i = 0; i < 3; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "tensor %u", i);
		big->bytes[i] = state_bytes[i];
		big->data[i] = tr_alloc(host->group, state_bytes[i]);
		assert_non_null(big->data[i]);
		for (size_t k = 0; filled && k < state_bytes[i]; k++)
			big->data[i][k] = (uint8_t)(k * 31 + i);
		assert_int_equal(tr_state_add(host->group, name, big->data[i], state_bytes[i],
		                     &error),
		    TR_OK);
	}
	assert_int_equal(tr_state_add(host->group, "outside", big, 4, &error), TR_EINVAL);
}

/* One round of a peer with one small op. */
static tr_status small_round(struct fx_host *host, double *value, bool *received,
    struct tr_error *error)
{
	struct tr_round round;
	tr_status st = tr_round_begin(host->group, &round, error);
	if (st != TR_OK)
		return st;
	*value = 1;
	*received = round.receive_state;
	st = tr_allreduce(host->group, 7, value, 1, TR_F64, TR_SUM,
	    round.index < round.contributors ? TR_CONTRIBUTE : 0, error);
	if (st == TR_OK && round.receive_state)
		st = tr_state_receive(host->group, error);
	if (st == TR_OK)
		st = tr_wait(host->group, 7, error);
	if (st == TR_OK)
		st = tr_round_commit(host->group, NULL, &round, error);
	return st;
}

struct small {
	struct fx_host *host;
	pthread_t thread;
	double *value;
	bool stop, received;
	tr_status status;
	unsigned done;
	struct tr_error error;
};

static void *small_run(void *arg)
{
	struct small *small = arg;
	struct fx *fx = small->host->fx;
	for (;;) {
		bool received = false;
		small->status = small_round(small->host, small->value, &received, &small->error);
		pthread_mutex_lock(&fx->lock);
		small->received = small->received || received;
		small->done += small->status == TR_OK;
		pthread_cond_broadcast(&fx->changed);
		pthread_mutex_unlock(&fx->lock);
		if (small->status != TR_OK && small->status != TR_ERESTART)
			return NULL;
	}
}

static void small_start(struct small *small, struct fx_host *host)
{
	struct tr_error error = { 0 };
	*small = (struct small){ .host = host };
	small->value = tr_alloc(host->group, sizeof(double));
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(pthread_create(&small->thread, NULL, small_run, small), 0);
}

static void joiner_gets_the_state(void **state)
{
	(void)state;
	struct fx *fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct big_state big[3];
	struct small small[3];
	bool all[FX_HOSTS_MAX] = { true, true, true };
	for (unsigned i = 0; i < 3; i++)
		fx_attach(&fx->hosts[i]);
	for (unsigned i = 0; i < 2; i++) {
		declare_state(&fx->hosts[i], &big[i], true);
		small_start(&small[i], &fx->hosts[i]);
	}
	fx_found(fx, 2);
	FX_WAIT(fx, small[0].done >= 3 && small[1].done >= 3);
	declare_state(&fx->hosts[2], &big[2], false);
	small_start(&small[2], &fx->hosts[2]);
	FX_WAIT(fx, fx->hosts[2].ready);
	fx_change_view(fx, all);
	FX_WAIT(fx, small[2].done >= 3 && small[2].received);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(big[2].data[i], big[0].data[i], state_bytes[i]);
	for (unsigned i = 0; i < 3; i++)
		fx_host_stop(&fx->hosts[i]);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(small[i].thread, NULL), 0);
		assert_int_equal(small[i].status, TR_ECANCELLED);
	}
	fx_stop(fx);
}

/* Another size of state than its donor's: the joiner fails, with names, and nobody else. */
static void unfit_joiner_fails(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct big_state big;
	struct small small[2];
	bool all[FX_HOSTS_MAX] = { true, true }, one[FX_HOSTS_MAX] = { true };
	struct tr_error error = { 0 };
	for (unsigned i = 0; i < 2; i++)
		fx_attach(&fx->hosts[i]);
	declare_state(&fx->hosts[0], &big, true);
	small_start(&small[0], &fx->hosts[0]);
	fx_found(fx, 1);
	FX_WAIT(fx, small[0].done >= 1);
	void *other = tr_alloc(fx->hosts[1].group, 100);
	assert_int_equal(tr_state_add(fx->hosts[1].group, "tensor 0", other, 100, &error), TR_OK);
	small_start(&small[1], &fx->hosts[1]);
	FX_WAIT(fx, fx->hosts[1].ready);
	fx_change_view(fx, all);
	FX_WAIT(fx, fx->hosts[1].failed == TR_EMISMATCH);
	assert_int_equal(pthread_join(small[1].thread, NULL), 0);
	assert_int_equal(small[1].status, TR_EMISMATCH);
	assert_non_null(strstr(small[1].error.text, "peer 10"));
	fx_change_view(fx, one);
	unsigned done = 0;
	FX_WAIT(fx, (done = small[0].done) > 0);
	FX_WAIT(fx, small[0].done >= done + 2);
	fx_host_stop(&fx->hosts[0]);
	assert_int_equal(pthread_join(small[0].thread, NULL), 0);
	fx_stop(fx);
}

/* Two peers at work, and a third that joins them through a port that does harm. */
struct harmed {
	struct fx *fx;
	struct frame_proxy proxy;
	struct big_state big[3];
	struct small small[3];
	unsigned running; /* callers not joined yet: the first so many */
};

static struct harmed *harmed_start(struct fp_harm harm)
{
	struct harmed *h = calloc(1, sizeof(*h));
	bool all[FX_HOSTS_MAX] = { true, true, true };
	assert_non_null(h);
	h->fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 3; i++)
		fx_attach(&h->fx->hosts[i]);
	for (unsigned i = 0; i < 2; i++) {
		declare_state(&h->fx->hosts[i], &h->big[i], true);
		small_start(&h->small[i], &h->fx->hosts[i]);
	}
	fx_found(h->fx, 2);
	FX_WAIT(h->fx, h->small[0].done >= 1 && h->small[1].done >= 1);
	fp_start(&h->proxy, &h->fx->hosts[2], harm);
	declare_state(&h->fx->hosts[2], &h->big[2], false);
	small_start(&h->small[2], &h->fx->hosts[2]);
	h->running = 3;
	FX_WAIT(h->fx, h->fx->hosts[2].ready);
	fx_change_view(h->fx, all);
	return h;
}

static void harmed_stop(struct harmed *h)
{
	fp_stop(&h->proxy);
	for (unsigned i = 0; i < 3; i++)
		fx_host_stop(&h->fx->hosts[i]);
	for (unsigned i = 0; i < h->running; i++)
		assert_int_equal(pthread_join(h->small[i].thread, NULL), 0);
	fx_stop(h->fx);
	free(h);
}

/* The joiner gets the right state in spite of all, in the very view that it came in. */
static void joiner_gets_it_all_the_same(struct fp_harm harm, unsigned begins)
{
	struct harmed *h = harmed_start(harm);
	FX_WAIT(h->fx, h->small[2].done >= 3 && h->small[2].received);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(h->big[2].data[i], h->big[0].data[i], state_bytes[i]);
	pthread_mutex_lock(&h->fx->lock);
	assert_int_equal(h->proxy.harm.drop_begin + h->proxy.harm.cut_state + h->proxy.harm.corrupt,
	    0);
	assert_int_equal(h->proxy.harm.begins, begins);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(h->fx->hosts[i].failed, TR_OK);
		assert_int_equal(h->fx->hosts[i].link_lost, 0);
	}
	pthread_mutex_unlock(&h->fx->lock);
	harmed_stop(h);
}

static void damaged_state_is_asked_for_again(void **state)
{
	(void)state;
	joiner_gets_it_all_the_same((struct fp_harm){ .corrupt = 1 }, 2);
}

/* Neither core notices: the donor's last byte may have been taken by a socket that nobody reads. */
static void state_that_never_begins_is_asked_for_again(void **state)
{
	(void)state;
	joiner_gets_it_all_the_same((struct fp_harm){ .drop_begin = 1 }, 2);
}

/* A connection of state carries no frames of the view: its end needs no new view. */
static void state_that_breaks_off_is_asked_for_again(void **state)
{
	(void)state;
	joiner_gets_it_all_the_same((struct fp_harm){ .cut_state = 2 }, 3);
}

/* Always damaged: the joiner fails and says so, and has not acted on what it got. */
static void state_that_stays_damaged_fails_the_joiner(void **state)
{
	(void)state;
	struct harmed *h = harmed_start((struct fp_harm){ .corrupt = UINT32_MAX });
	bool two[FX_HOSTS_MAX] = { true, true };
	FX_WAIT(h->fx, h->fx->hosts[2].failed == TR_EDIGEST);
	FX_IS(h->fx, strstr(h->fx->hosts[2].failed_text, "\"tensor 0\" from peer 10") != NULL);
	assert_int_equal(pthread_join(h->small[2].thread, NULL), 0);
	h->running = 2;
	assert_int_equal(h->small[2].status, TR_EDIGEST);
	assert_int_equal(h->small[2].done, 0);
	pthread_mutex_lock(&h->fx->lock);
	assert_int_equal(h->proxy.harm.begins, 3);
	pthread_mutex_unlock(&h->fx->lock);
	fx_change_view(h->fx, two);
	unsigned done = 0;
	FX_WAIT(h->fx, (done = h->small[0].done) > 0);
	FX_WAIT(h->fx, h->small[0].done >= done + 2);
	harmed_stop(h);
}

/* A joiner that was stopped in the middle of its state is evicted: its donor goes on, and keeps nothing of the transfer. */
static void stalled_joiner_is_let_go(void **state)
{
	(void)state;
	struct harmed *h = harmed_start((struct fp_harm){ .stall = 1 });
	bool two[FX_HOSTS_MAX] = { true, true };
	FX_WAIT(h->fx, h->proxy.harm.begins == 1);
	fx_change_view(h->fx, two);
	unsigned done = 0;
	FX_WAIT(h->fx, (done = h->small[0].done) > 0);
	FX_WAIT(h->fx, h->small[0].done >= done + 2 && h->small[1].done >= done + 2);
	assert_int_equal(h->small[2].done, 0);
	harmed_stop(h);
}

/* ---- several donors ---- */

#define MUCH_CHUNKS (48u + 1 + 17)

struct several {
	struct fx *fx;
	struct frame_proxy proxy;
	struct big_state big[4];
	struct small small[4];
};

/* Three hold the state, and the fourth is let in through a port that does harm. */
static struct several *several_start(struct fp_harm harm)
{
	struct several *s = calloc(1, sizeof(*s));
	bool all[FX_HOSTS_MAX] = { true, true, true, true };
	assert_non_null(s);
	state_bytes = much;
	s->fx = fx_start(4, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
	for (unsigned i = 0; i < 4; i++)
		fx_attach(&s->fx->hosts[i]);
	for (unsigned i = 0; i < 3; i++) {
		declare_state(&s->fx->hosts[i], &s->big[i], true);
		small_start(&s->small[i], &s->fx->hosts[i]);
	}
	fx_found(s->fx, 3);
	FX_WAIT(s->fx, s->small[0].done >= 1 && s->small[1].done >= 1 && s->small[2].done >= 1);
	fp_start(&s->proxy, &s->fx->hosts[3], harm);
	declare_state(&s->fx->hosts[3], &s->big[3], false);
	small_start(&s->small[3], &s->fx->hosts[3]);
	FX_WAIT(s->fx, s->fx->hosts[3].ready);
	fx_change_view(s->fx, all);
	return s;
}

static void several_has_it(struct several *s)
{
	FX_WAIT(s->fx, s->small[3].done >= 2 && s->small[3].received);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(s->big[3].data[i], s->big[1].data[i], state_bytes[i]);
}

static void several_stop(struct several *s, unsigned first)
{
	fp_stop(&s->proxy);
	for (unsigned i = first; i < 4; i++)
		fx_host_stop(&s->fx->hosts[i]);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_join(s->small[i].thread, NULL), 0);
	fx_stop(s->fx);
	free(s);
	state_bytes = little;
}

/* What was on its way when its donor was told to end earlier comes twice: what the sockets hold. */
#define TWICE 40

static void pieces_come_of_all_who_have_them(void **state)
{
	(void)state;
	struct several *s = several_start((struct fp_harm){ .slow_us = 4000 });
	several_has_it(s);
	struct fp_harm seen = fp_harm_now(&s->proxy);
	assert_true(seen.begins >= 3);
	assert_in_range(seen.states, MUCH_CHUNKS, MUCH_CHUNKS + TWICE);
	several_stop(s, 0);
}

/* The donor dies in the middle: what it sent is not sent again. */
static void what_a_dead_donor_sent_stays(void **state)
{
	(void)state;
	struct several *s = several_start((struct fp_harm){ .slow_us = 4000 });
	bool rest[FX_HOSTS_MAX] = { false, true, true, true };
	FX_WAIT(s->fx, s->proxy.harm.states >= 50);
	fx_host_stop(&s->fx->hosts[0]);
	fx_change_view(s->fx, rest);
	several_has_it(s);
	assert_in_range(fp_harm_now(&s->proxy).states, MUCH_CHUNKS, MUCH_CHUNKS + TWICE);
	several_stop(s, 1);
}

/* The donor's connection stands still, and nobody says so: the others send all of it, and the digests. */
static void a_silent_donor_holds_nobody_up(void **state)
{
	(void)state;
	struct several *s = several_start((struct fp_harm){ .slow_us = 1000, .stall = 1 });
	several_has_it(s);
	assert_in_range(fp_harm_now(&s->proxy).states, MUCH_CHUNKS, MUCH_CHUNKS + TWICE);
	several_stop(s, 0);
}

/* Then only the donor is believed. */
static void a_wrong_piece_is_found(void **state)
{
	(void)state;
	struct several *s = several_start((struct fp_harm){ .slow_us = 2000, .corrupt = 1 });
	several_has_it(s);
	assert_int_equal(fp_harm_now(&s->proxy).corrupt, 0);
	assert_true(fp_harm_now(&s->proxy).states <= 2 * MUCH_CHUNKS);
	several_stop(s, 0);
}

/* The donor dies when it is the only one that is believed: the next one sends all that it had not. */
static void the_only_donor_dies(void **state)
{
	(void)state;
	struct several *s = several_start((struct fp_harm){ .slow_us = 4000, .corrupt = 1 });
	bool rest[FX_HOSTS_MAX] = { false, true, true, true };
	FX_WAIT(s->fx, s->proxy.harm.states >= MUCH_CHUNKS + 5);
	fx_host_stop(&s->fx->hosts[0]);
	fx_change_view(s->fx, rest);
	several_has_it(s);
	several_stop(s, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joiner_gets_the_state),
		cmocka_unit_test(unfit_joiner_fails),
		cmocka_unit_test(damaged_state_is_asked_for_again),
		cmocka_unit_test(state_that_never_begins_is_asked_for_again),
		cmocka_unit_test(state_that_breaks_off_is_asked_for_again),
		cmocka_unit_test(state_that_stays_damaged_fails_the_joiner),
		cmocka_unit_test(stalled_joiner_is_let_go),
		cmocka_unit_test(pieces_come_of_all_who_have_them),
		cmocka_unit_test(what_a_dead_donor_sent_stays),
		cmocka_unit_test(a_silent_donor_holds_nobody_up),
		cmocka_unit_test(a_wrong_piece_is_found),
		cmocka_unit_test(the_only_donor_dies),
	};
	return cmocka_run_group_tests_name("engine state", tests, NULL, NULL);
}
