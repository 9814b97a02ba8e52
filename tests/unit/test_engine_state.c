/* Joiners: their donor's state over real TCP, without memberd. */
#include "tests/unit/joiner_fixture.h"

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
	assert_int_equal(h->proxy.harm.named, 0); /* who asks has the same ones, and says so */
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

/* The next view lets the joiner in a round later, while the state that it asked for first stands still on its way: the round goes on without
 * it, and the newer state comes. */
static void a_later_state_is_served_for_all_that(void **state)
{
	(void)state;
	struct harmed *h = harmed_start((struct fp_harm){ .stall = 1 });
	bool all[FX_HOSTS_MAX] = { true, true, true };
	FX_WAIT(h->fx, h->proxy.harm.begins == 1);
	h->fx->last->view->peers[2]->participate_from++;
	h->fx->last->view->peers[2]->contribute_from++;
	fx_change_view(h->fx, all);
	FX_WAIT(h->fx, h->small[2].done >= 3 && h->small[2].received);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(h->big[2].data[i], h->big[0].data[i], state_bytes[i]);
	harmed_stop(h);
}

/* ---- several donors ---- */

#define MUCH_CHUNKS (48u + 1 + 17)

struct several {
	struct fx *fx;
	struct frame_proxy proxy;
	struct big_state big[4];
	struct small small[4];
	unsigned begins; /* as the donor died */
};

/* Three hold the state, and the fourth is let in through a port that does harm. */
static struct several *several_start_of(struct fp_harm harm, Traind__Peer__Algorithm algorithm)
{
	struct several *s = calloc(1, sizeof(*s));
	bool all[FX_HOSTS_MAX] = { true, true, true, true };
	assert_non_null(s);
	state_bytes = much;
	s->fx = fx_start(4, TRAIND__PEER__POLICY__POLICY_REPLAY, algorithm);
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

static struct several *several_start(struct fp_harm harm)
{
	return several_start_of(harm, TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
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

/* Ops need no links but to the hub: those to donors are made for the state. */
static void pieces_come_of_all_whatever_the_algorithm(void **state)
{
	(void)state;
	struct several *s = several_start_of((struct fp_harm){ .slow_us = 4000 },
	    TRAIND__PEER__ALGORITHM__ALGORITHM_STAR);
	several_has_it(s);
	struct fp_harm seen = fp_harm_now(&s->proxy);
	assert_true(seen.begins >= 3);
	assert_in_range(seen.states, MUCH_CHUNKS, MUCH_CHUNKS + TWICE);
	several_stop(s, 0);
}

/* The donor dies when so many chunks have come. */
static struct several *several_lose_the_donor(struct fp_harm harm, unsigned chunks)
{
	harm.hold_at = chunks;
	struct several *s = several_start(harm);
	bool rest[FX_HOSTS_MAX] = { false, true, true, true };
	FX_WAIT(s->fx, s->proxy.harm.states == chunks);
	fx_host_stop(&s->fx->hosts[0]);
	s->begins = fp_harm_now(&s->proxy).begins;
	pthread_mutex_lock(&s->fx->lock);
	s->proxy.harm.hold_at = 0;
	pthread_cond_broadcast(&s->fx->changed);
	pthread_mutex_unlock(&s->fx->lock);
	fx_change_view(s->fx, rest);
	several_has_it(s);
	return s;
}

/* What it sent is not sent again. */
static void what_a_dead_donor_sent_stays(void **state)
{
	(void)state;
	struct several *s = several_lose_the_donor((struct fp_harm){ .slow_us = 4000 }, 50);
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

/* A transfer that stands still before the joiner knows of it: it gets the state of others, and nobody's round waits for that one's end. */
static void a_transfer_of_no_use_holds_nobody_up(void **state)
{
	(void)state;
	struct several *s = several_start((struct fp_harm){ .slow_us = 1000, .swallow = 1 });
	several_has_it(s);
	unsigned done = 0;
	FX_WAIT(s->fx, (done = s->small[3].done) > 0);
	for (unsigned i = 0; i < 4; i++)
		FX_WAIT(s->fx, s->small[i].done >= done + 2);
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

/* The donor dies when it is the only one that is believed: the next one sends all that it had not, at once. */
static void the_only_donor_dies(void **state)
{
	(void)state;
	struct fp_harm harm = { .slow_us = 4000, .corrupt = 1 };
	struct several *s = several_lose_the_donor(harm, MUCH_CHUNKS + TWICE + 1);
	assert_int_equal(fp_harm_now(&s->proxy).begins, s->begins + 1);
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
		cmocka_unit_test(a_later_state_is_served_for_all_that),
		cmocka_unit_test(pieces_come_of_all_who_have_them),
		cmocka_unit_test(pieces_come_of_all_whatever_the_algorithm),
		cmocka_unit_test(what_a_dead_donor_sent_stays),
		cmocka_unit_test(a_silent_donor_holds_nobody_up),
		cmocka_unit_test(a_transfer_of_no_use_holds_nobody_up),
		cmocka_unit_test(a_wrong_piece_is_found),
		cmocka_unit_test(the_only_donor_dies),
	};
	return cmocka_run_group_tests_name("engine state", tests, NULL, NULL);
}
