/* What a donor's core makes of a joiner's questions: early, late, taken back, of another round. Peers 1 and 2 hold the state after round 4 and are to
 * begin round 5; peer 3 comes in with it, 1 is its donor.
 */
#include "tests/unit/group_pump.h"

#define COUNT 4

struct handover {
	struct pump *pump;
	struct pump_view view;
	float data[3][COUNT];
};

static struct handover *start(void)
{
	struct handover *h = calloc(1, sizeof(*h));
	assert_non_null(h);
	h->pump = pump_with_joiner(3, 5, 1, &h->view);
	return h;
}

static void stop(struct handover *h)
{
	pump_destroy(h->pump);
	free(h);
}

static void tell(struct handover *h, unsigned who, enum group_event_kind kind, uint64_t round,
    struct group_wish wish)
{
	const struct group_event event = { .kind = kind, .from = 3, .round = round, .wish = wish };
	tr_status st = pump_step(h->pump, who, &event);
	assert_true(st == TR_OK || st == TR_ESTALE);
}

static void ask(struct handover *h, unsigned who, uint64_t round, struct group_wish wish)
{
	tell(h, who, GROUP_STATE_ASKED, round, wish);
}

static void sent(struct handover *h, unsigned who, uint64_t round)
{
	tell(h, who, GROUP_STATE_SENT, round, (struct group_wish){ 0 });
}

static void begin(struct handover *h, unsigned who)
{
	assert_int_equal(pump_event(h->pump, who, GROUP_BEGIN), TR_OK);
}

/* The donor's callers are in the round: it serves at once. */
static struct handover *serving(void)
{
	struct handover *h = start();
	pump_install(h->pump, &h->view);
	begin(h, 0);
	begin(h, 1);
	return h;
}

static const struct pump_member *member(const struct handover *h, unsigned who)
{
	return &h->pump->members[who];
}

/* All of those close the round that they have begun. */
static void commit(struct handover *h, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pump_submit(h->pump, i, 1, h->data[i], COUNT, TR_F32, TR_SUM),
		    TR_OK);
		assert_int_equal(pump_close(h->pump, i, 1, 0), TR_OK);
	}
	pump_run(h->pump);
}

/* ---- taken back ---- */

/* All of it is in the donor's kernel: what is taken back comes, and nothing comes twice. */
static void what_is_over_cannot_be_taken_back(void **state)
{
	(void)state;
	struct handover *h = serving();
	ask(h, 0, 4, (struct group_wish){ .end = 40 });
	assert_int_equal(member(h, 0)->state_sends, 1);
	sent(h, 0, 4);
	ask(h, 0, 4, (struct group_wish){ .take_back = true, .end = 20 });
	assert_int_equal(member(h, 0)->state_sends, 1);
	ask(h, 0, 4, (struct group_wish){ .first = 50, .end = 60 });
	assert_int_equal(member(h, 0)->state_sends, 2);
	assert_int_equal(member(h, 0)->state_wish.first, 50);
	stop(h);
}

/* The donor's caller has not begun the round yet. `then` takes back of what `wish` asked for. */
static const struct pump_member *asked_and_taken_back(struct handover *h, struct group_wish wish,
    struct group_wish then)
{
	pump_install(h->pump, &h->view);
	ask(h, 0, 4, wish);
	then.take_back = true;
	ask(h, 0, 4, then);
	begin(h, 0);
	return member(h, 0);
}

static void what_waits_ends_earlier(void **state)
{
	(void)state;
	struct handover *h = start();
	const struct pump_member *donor = asked_and_taken_back(h,
	    (struct group_wish){ .first = 10, .end = 40 },
	    (struct group_wish){ .first = 10, .end = 20, .pieces = true });
	assert_int_equal(donor->state_sends, 1);
	assert_int_equal(donor->state_wish.first, 10);
	assert_int_equal(donor->state_wish.end, 20);
	assert_false(donor->state_wish.pieces);
	assert_false(donor->state_wish.digests_only);
	stop(h);
}

static void what_is_of_another_range_is_not_heard(void **state)
{
	(void)state;
	const struct group_wish others[] = { { .first = 11, .end = 20 },
		{ .first = 10, .end = 50 } };
	for (unsigned i = 0; i < 2; i++) {
		struct handover *h = start();
		const struct pump_member *donor = asked_and_taken_back(h,
		    (struct group_wish){ .first = 10, .end = 40 }, others[i]);
		assert_int_equal(donor->state_wish.first, 10);
		assert_int_equal(donor->state_wish.end, 40);
		stop(h);
	}
}

/* Nothing is left of the range: whoever was to say no digests has nothing to say. */
static void all_of_what_waits_is_taken_back(void **state)
{
	(void)state;
	for (uint64_t first = 0; first <= 10; first += 10) {
		const struct group_wish nothing = { .first = first, .end = first };
		struct handover *h = start();
		const struct pump_member *donor = asked_and_taken_back(h,
		    (struct group_wish){ .first = first, .end = 40, .pieces = true }, nothing);
		assert_int_equal(donor->state_sends, 0);
		stop(h);
		h = start();
		donor = asked_and_taken_back(h, (struct group_wish){ .first = first, .end = 40 },
		    nothing);
		assert_int_equal(donor->state_sends, 1);
		assert_true(donor->state_wish.digests_only);
		stop(h);
	}
}

/* ---- early and late ---- */

/* The joiner has the view before who is asked has it. */
static void who_is_asked_before_it_has_the_view_serves(void **state)
{
	(void)state;
	struct handover *h = start();
	ask(h, 1, 4, (struct group_wish){ .any = true, .pieces = true, .view = 1, .end = 9 });
	pump_install(h->pump, &h->view);
	begin(h, 1);
	assert_int_equal(member(h, 1)->state_sends, 1);
	assert_int_equal(member(h, 1)->state_wish.end, 9);
	stop(h);
}

/* In each view the joiner asks anew, of whom it likes: except its donor, who has to answer. */
static void what_was_asked_in_an_older_view_is_dropped(void **state)
{
	(void)state;
	const struct group_wish any = { .any = true, .pieces = true, .view = 1, .end = 9 };
	struct handover *h = start();
	pump_install(h->pump, &h->view);
	ask(h, 0, 4, (struct group_wish){ .view = 1 });
	ask(h, 1, 4, any); /* before the next view */
	pump_propose(h->pump, 2);
	h->view.number = 2;
	pump_install(h->pump, &h->view);
	ask(h, 1, 4, any); /* and after it */
	begin(h, 0);
	begin(h, 1);
	assert_int_equal(member(h, 0)->state_sends, 1);
	assert_int_equal(member(h, 1)->state_sends, 0);
	stop(h);
}

/* The state of a later round is asked for while that of an earlier one is sent. */
static void what_is_asked_during_a_transfer_of_an_older_state_is_served(void **state)
{
	(void)state;
	struct handover *h = serving();
	ask(h, 0, 4, (struct group_wish){ .end = 40 });
	ask(h, 0, 4, (struct group_wish){ .end = 30 }); /* said again */
	ask(h, 0, 5, (struct group_wish){ .first = 1, .end = 50 });
	/* It is to come in a round later. */
	pump_propose(h->pump, 2);
	h->view.number = 2;
	h->view.finish = true;
	h->view.base_attempt = 1;
	h->view.contributor_count = 2;
	h->view.contributors[0] = 1;
	h->view.contributors[1] = 2;
	h->view.participate_from[2] = 6;
	h->view.contribute_from[2] = 7;
	pump_install(h->pump, &h->view);
	commit(h, 2);
	assert_int_equal(member(h, 0)->decided_count, 1);
	begin(h, 0);
	assert_int_equal(member(h, 0)->state_sends, 2);
	assert_int_equal(member(h, 0)->state_round, 5);
	assert_int_equal(member(h, 0)->state_wish.first, 1);
	assert_int_equal(member(h, 0)->state_wish.end, 50);
	sent(h, 0, 4); /* that of the older one: the newer one runs */
	ask(h, 0, 5, (struct group_wish){ .end = 50 });
	assert_int_equal(member(h, 0)->state_sends, 2);
	stop(h);
}

/* ---- the round's end ---- */

/* Everybody voted, the joiner too: it has the state, and nobody's transfer holds a caller. */
static void no_transfer_outlives_its_round(void **state)
{
	(void)state;
	struct handover *h = serving();
	const struct group_wish any = { .any = true, .pieces = true, .view = 1, .end = 9 };
	begin(h, 2);
	ask(h, 0, 4, (struct group_wish){ 0 });
	ask(h, 1, 4, any);
	assert_int_equal(member(h, 0)->state_sends, 1);
	assert_int_equal(member(h, 1)->state_sends, 1);
	assert_int_equal(pump_step(h->pump, 2,
	                     &(struct group_event){ .kind = GROUP_STATE_GOT, .from = 1, .round = 4 }),
	    TR_OK);
	commit(h, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->decided_count, 1);
	sent(h, 1, 4); /* it ended meanwhile */
	for (unsigned i = 0; i < 3; i++)
		begin(h, i);
	commit(h, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->decided_count, 2);
	stop(h);
}

/* As long as the joiner lacks it, nobody is told that the round is decided. */
static void a_round_waits_for_its_joiner(void **state)
{
	(void)state;
	struct handover *h = serving();
	begin(h, 2);
	ask(h, 0, 4, (struct group_wish){ 0 });
	sent(h, 0, 4);
	commit(h, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->decided_count, 0);
	stop(h);
}

static void close_without(struct handover *h, unsigned who)
{
	const struct group_event close = { .kind = GROUP_CLOSE,
		.close = { .samples = 1, .flags = TR_DEFER_STATE } };
	assert_int_equal(pump_submit(h->pump, who, 1, h->data[who], COUNT, TR_F32, TR_SUM), TR_OK);
	assert_int_equal(pump_step(h->pump, who, &close), TR_OK);
}

static void got(struct handover *h, uint64_t round, tr_status expected)
{
	const struct group_event event = { .kind = GROUP_STATE_GOT, .from = 1, .round = round };
	assert_int_equal(pump_step(h->pump, 2, &event), expected);
}

/* Its state comes gradually: rounds are decided without it if it says so, it asks for the rest once it has begun the next one, and of each round the donor serves
 * the state before. What comes after it let the round be decided is of no use. Then it asks for a view that counts it. */
static void a_round_goes_on_without_a_gradual_state(void **state)
{
	(void)state;
	struct handover *h = start();
	h->view.contribute_from[2] = TR_ROUND_LATER;
	pump_install(h->pump, &h->view);
	for (uint64_t round = 5; round < 8; round++) {
		for (unsigned i = 0; i < 3; i++)
			begin(h, i);
		assert_true(member(h, 2)->begun.receive_state);
		assert_int_equal(member(h, 2)->begun.contributors, 2);
		assert_int_equal(member(h, 2)->state_round, round - 1);
		ask(h, 0, round - 1, (struct group_wish){ 0 });
		assert_int_equal(member(h, 0)->state_round, round - 1);
		commit(h, 2);
		assert_int_equal(member(h, 0)->decided_count, round - 5);
		close_without(h, 2);
		got(h, round - 1, TR_ESTALE);
		pump_run(h->pump);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(member(h, i)->decided_count, round - 4);
		got(h, round - 1, TR_ESTALE);
		/* Its caller is about to change what it has. */
		h->pump->now_us += 5000000;
		assert_int_equal(pump_event(h->pump, 2, GROUP_TICK), TR_OK);
		assert_int_equal(member(h, 2)->state_round, round - 1);
	}
	for (unsigned i = 0; i < 3; i++)
		begin(h, i);
	got(h, 7, TR_OK);
	assert_string_equal(member(h, 2)->lost_reason, "has the state now");
	pump_propose(h->pump, 2);
	assert_false(member(h, 2)->report->without_state);
	assert_int_equal(member(h, 2)->report->committed_round, 7);
	h->view.number = 2;
	h->view.base_round = 8;
	h->view.contribute_from[2] = 8;
	h->view.donor[2] = 0;
	pump_install(h->pump, &h->view);
	for (unsigned i = 0; i < 3; i++)
		begin(h, i);
	assert_int_equal(member(h, 2)->begun.contributors, 3);
	assert_false(member(h, 2)->begun.receive_state);
	commit(h, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->decided_count, 5); /* one of them began again */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->status, TR_OK);
	stop(h);
}

/* A joiner whose state comes gradually has got all of it in round 5, for which all have asked. */
static struct handover *votes_with_all_of_it(void)
{
	struct handover *h = start();
	h->view.contribute_from[2] = TR_ROUND_LATER;
	pump_install(h->pump, &h->view);
	for (unsigned i = 0; i < 3; i++)
		begin(h, i);
	got(h, 4, TR_OK);
	commit(h, 3);
	pump_run(h->pump);
	return h;
}

/* It has all of its state: if the round were decided before the view that counts it, it would have nothing to do in another one. */
static void the_vote_waits_for_the_view_that_counts_it(void **state)
{
	(void)state;
	struct handover *h = votes_with_all_of_it();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->decided_count, 0);
	pump_propose(h->pump, 2);
	assert_false(member(h, 2)->report->voted);
	h->view.number = 2;
	h->view.finish = true;
	h->view.base_attempt = 1;
	h->view.contributor_count = 2;
	h->view.contributors[0] = 1;
	h->view.contributors[1] = 2;
	h->view.contribute_from[2] = 6;
	h->view.donor[2] = 0;
	pump_install(h->pump, &h->view);
	pump_run(h->pump);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(member(h, i)->decided_count, 1);
		begin(h, i);
	}
	assert_int_equal(member(h, 2)->begun.round, 6);
	assert_int_equal(member(h, 2)->begun.contributors, 3);
	assert_false(member(h, 2)->begun.receive_state);
	stop(h);
}

/* memberd is away: a second later the round is decided all the same. */
static void the_vote_waits_no_longer_than_a_second(void **state)
{
	(void)state;
	struct handover *h = votes_with_all_of_it();
	assert_int_equal(member(h, 2)->decided_count, 0);
	h->pump->now_us += 1000001;
	assert_int_equal(pump_event(h->pump, 2, GROUP_TICK), TR_OK);
	pump_run(h->pump);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(member(h, i)->decided_count, 1);
	stop(h);
}

/* It had voted: somebody may have committed the round, so it commits it with the view that says so, and goes on with what it has. */
static void who_gets_its_state_gradually_commits_what_it_voted_for(void **state)
{
	(void)state;
	struct handover *h = start();
	h->view.contribute_from[2] = TR_ROUND_LATER;
	pump_install(h->pump, &h->view);
	for (unsigned i = 0; i < 3; i++)
		begin(h, i);
	commit(h, 2);
	close_without(h, 2);
	while (member(h, 0)->decided_count == 0)
		assert_int_not_equal(pump_some(h->pump, 1), 0);
	pump_drop_sends(h->pump, 0, true); /* the hub's word of it */
	assert_int_equal(member(h, 0)->decided_count, 1);
	assert_int_equal(member(h, 2)->decided_count, 0);
	pump_propose(h->pump, 2);
	assert_true(member(h, 2)->report->voted);
	assert_true(member(h, 2)->report->without_state);
	h->view.number = 2;
	h->view.base_round = 6;
	pump_install(h->pump, &h->view);
	assert_int_equal(member(h, 2)->decided_count, 1);
	begin(h, 2);
	assert_int_equal(member(h, 2)->begun.round, 6);
	assert_true(member(h, 2)->begun.receive_state);
	assert_int_equal(member(h, 2)->state_round, 5);
	stop(h);
}

/* It ended its last round alone, or has read a checkpoint of its own: what it says that it has is not the group's state, which is compared
 * with nothing. It takes the donor's, also if the next view comes first, and nobody ends for what it said. */
static void a_joiner_takes_the_state_whatever_it_declared(void **state)
{
	(void)state;
	for (uint64_t declared = 0; declared < 8; declared++)
		for (unsigned views = 1; views <= 2; views++) {
			struct handover h = { .pump = pump_create(3) };
			h.view = pump_first_view(h.pump);
			h.view.base_round = 5;
			h.view.participate_from[2] = 5;
			h.view.contribute_from[2] = 6;
			h.view.donor[2] = 1;
			for (unsigned i = 0; i < 3; i++) {
				const struct group_event ready = { .kind = GROUP_READY,
					.round = i < 2 ? 4 : declared };
				assert_int_equal(pump_step(h.pump, i, &ready), TR_OK);
			}
			pump_install(h.pump, &h.view);
			if (views == 2) {
				pump_propose(h.pump, 2);
				assert_true(member(&h, 2)->report->without_state);
				assert_int_equal(member(&h, 2)->report->committed_round, 0);
				assert_false(member(&h, 0)->report->without_state);
				h.view.number = 2;
				pump_install(h.pump, &h.view);
			}
			for (unsigned i = 0; i < 3; i++)
				begin(&h, i);
			assert_int_equal(member(&h, 2)->failed, TR_OK);
			assert_int_equal(member(&h, 2)->begun.round, 5);
			assert_true(member(&h, 2)->begun.receive_state);
			assert_int_equal(member(&h, 2)->state_ask_from, 1);
			uint64_t none;
			assert_false(group_core_state(h.pump->members[2].core, &none));
			ask(&h, 0, 4, (struct group_wish){ 0 });
			sent(&h, 0, 4);
			const struct group_event got = { .kind = GROUP_STATE_GOT,
				.from = 1,
				.round = 4 };
			assert_int_equal(pump_step(h.pump, 2, &got), TR_OK);
			commit(&h, 3);
			for (unsigned i = 0; i < 3; i++)
				assert_int_equal(member(&h, i)->decided_count, 1);
			pump_destroy(h.pump);
		}
}

/* Who dies before a view has taken what it declared for the group's leaves that to nobody. */
static void what_was_only_declared_is_left_to_nobody(void **state)
{
	(void)state;
	struct pump *pump = pump_create(1);
	const struct group_event ready = { .kind = GROUP_READY, .round = 7 };
	uint64_t round;
	assert_int_equal(pump_step(pump, 0, &ready), TR_OK);
	assert_int_equal(pump_event(pump, 0, GROUP_BEGIN), TR_OK);
	assert_false(group_core_state(pump->members[0].core, &round));
	struct pump_view view = pump_first_view(pump);
	view.base_round = 8;
	view.participate_from[0] = view.contribute_from[0] = 8;
	pump_install(pump, &view);
	assert_true(group_core_state(pump->members[0].core, &round));
	assert_int_equal(round, 7);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_joiner_takes_the_state_whatever_it_declared),
		cmocka_unit_test(a_round_goes_on_without_a_gradual_state),
		cmocka_unit_test(the_vote_waits_for_the_view_that_counts_it),
		cmocka_unit_test(the_vote_waits_no_longer_than_a_second),
		cmocka_unit_test(who_gets_its_state_gradually_commits_what_it_voted_for),
		cmocka_unit_test(what_was_only_declared_is_left_to_nobody),
		cmocka_unit_test(what_is_over_cannot_be_taken_back),
		cmocka_unit_test(what_waits_ends_earlier),
		cmocka_unit_test(what_is_of_another_range_is_not_heard),
		cmocka_unit_test(all_of_what_waits_is_taken_back),
		cmocka_unit_test(who_is_asked_before_it_has_the_view_serves),
		cmocka_unit_test(what_was_asked_in_an_older_view_is_dropped),
		cmocka_unit_test(what_is_asked_during_a_transfer_of_an_older_state_is_served),
		cmocka_unit_test(no_transfer_outlives_its_round),
		cmocka_unit_test(a_round_waits_for_its_joiner),
	};
	return cmocka_run_group_tests_name("group handover", tests, NULL, NULL);
}
