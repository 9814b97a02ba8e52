/* Disagreements, broken links, lost donors, hostile peers: who is told what. */
#include "tests/unit/group_pump.h"

#define COUNT 8

static int32_t memory[PUMP_MEMBERS][COUNT];

static struct pump *begun(unsigned n, Traind__Peer__Algorithm algorithm)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = algorithm;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static void names_both(const struct pump_member *member, const char *a, const char *b)
{
	if (!strstr(member->reason, a) || !strstr(member->reason, b))
		fail_msg("'%s' does not name %s and %s", member->reason, a, b);
}

static void guarantee_4_signatures_differ(void **state)
{
	(void)state;
	for (int algorithm = 1; algorithm <= 5; algorithm++) {
		struct pump *pump = begun(3, (Traind__Peer__Algorithm)algorithm);
		for (unsigned i = 0; i < 3; i++) {
			assert_int_equal(pump_submit(pump, i, 4, memory[i],
			                     i == 1 ? COUNT - 1 : COUNT, TR_I32, TR_SUM),
			    TR_OK);
			pump_close(pump, i, 0, 0);
		}
		pump_run(pump);
		assert_int_equal(pump->members[1].failed, TR_EMISMATCH);
		assert_int_equal(pump->members[1].status, TR_EMISMATCH);
		names_both(&pump->members[1], "peers ", "2");
		unsigned failed = 0;
		for (unsigned i = 0; i < 3; i++)
			failed += pump->members[i].failed == TR_EMISMATCH;
		assert_true(failed >= 2);
		/* Every later call says why. */
		assert_int_equal(pump_event(pump, 1, GROUP_BEGIN), TR_EMISMATCH);
		pump_destroy(pump);
	}
}

/* 2 has an op that nobody else has: no segment of it ever meets anybody who knows better. */
static void an_op_too_many(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 3; i++) {
		if (i == 1)
			assert_int_equal(pump_submit(pump, i, 4, memory[i], 1, TR_I32, TR_SUM),
			    TR_OK);
		pump_close(pump, i, 0, 0);
	}
	pump_run(pump);
	assert_int_equal(pump->members[1].failed, 0);
	uint64_t deadline = group_core_deadline_us(pump->members[1].core);
	assert_true(deadline > 0 && deadline < 10000000);
	pump_step(pump, 1, &(struct group_event){ .kind = GROUP_TICK, .now_us = deadline });
	pump_run(pump);
	assert_int_equal(pump->members[1].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[0].failed, TR_EMISMATCH); /* the hub */
	names_both(&pump->members[1], "peers 2", "and 1");
	pump_destroy(pump);
}

static void salts_differ(void **state)
{
	(void)state;
	for (unsigned odd = 0; odd < 3; odd++) {
		struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
		for (unsigned i = 0; i < 3; i++) {
			pump_submit(pump, i, 4, memory[i], COUNT, TR_I32, TR_SUM);
			pump_close(pump, i, 0, i == odd ? 1 : 0);
		}
		pump_run(pump);
		char name[8];
		snprintf(name, sizeof(name), ": %u", odd + 1);
		for (unsigned i = 0; i < 3; i++) {
			assert_int_equal(pump->members[i].failed, i == odd ? TR_EDIGEST : 0);
			assert_int_equal(pump->members[i].decided_count, i == odd ? 1 : 0);
		}
		names_both(&pump->members[odd], "majority", name);
		pump_destroy(pump);
	}
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 2; i++)
		pump_close(pump, i, 0, i);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump->members[i].failed, TR_EDIGEST);
		names_both(&pump->members[i], "no majority", "1 2");
	}
	pump_destroy(pump);
}

static void a_contributor_must_contribute(void **state)
{
	(void)state;
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	assert_int_equal(pump_step(pump, 0,
	                     &(struct group_event){ .kind = GROUP_SUBMIT,
	                         .submit = { .tag = 1,
	                             .data = memory[0],
	                             .count = 1,
	                             .dtype = TR_I32,
	                             .reduce = TR_SUM } }),
	    TR_EINVAL);
	pump_destroy(pump);
}

static void broken_links_are_said_again(void **state)
{
	(void)state;
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct group_event lost = { .kind = GROUP_LINK_LOST,
		.from = 2,
		.reason = "reset",
		.now_us = 5 };
	assert_int_equal(group_core_deadline_us(pump->members[0].core), UINT64_MAX);
	pump_step(pump, 0, &lost);
	assert_int_equal(pump->members[0].link_lost, 2);
	pump->members[0].link_lost = 0;
	uint64_t deadline = group_core_deadline_us(pump->members[0].core);
	pump_step(pump, 0, &(struct group_event){ .kind = GROUP_TICK, .now_us = deadline - 1 });
	assert_int_equal(pump->members[0].link_lost, 0);
	pump_step(pump, 0, &(struct group_event){ .kind = GROUP_TICK, .now_us = deadline });
	assert_int_equal(pump->members[0].link_lost, 2);
	/* The next view has repaired it. */
	pump_propose(pump, 2);
	struct pump_view view = pump_first_view(pump);
	view.number = 2;
	pump_install(pump, &view);
	assert_int_equal(group_core_deadline_us(pump->members[0].core), UINT64_MAX);
	/* A stranger is nobody's link. */
	pump->members[0].link_lost = 0;
	lost.from = 77;
	pump_step(pump, 0, &lost);
	assert_int_equal(pump->members[0].link_lost, 0);
	pump_destroy(pump);
}

static void frozen_members_report_again(void **state)
{
	(void)state;
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	pump_propose(pump, 3);
	assert_int_equal(pump->members[0].report->proposal, 3);
	assert_int_equal(pump->members[0].report->begun_round, 1);
	uint64_t deadline = group_core_deadline_us(pump->members[0].core);
	traind__peer__view_report__free_unpacked(pump->members[0].report, NULL);
	pump->members[0].report = NULL;
	pump_step(pump, 0, &(struct group_event){ .kind = GROUP_TICK, .now_us = deadline });
	assert_non_null(pump->members[0].report);
	/* An older proposal is no news, the same or a later one is answered. */
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	struct group_event event = { .kind = GROUP_PROPOSE, .propose = &propose };
	propose.number = 2;
	assert_int_equal(pump_step(pump, 0, &event), TR_ESTALE);
	propose.number = 4;
	assert_int_equal(pump_step(pump, 0, &event), TR_OK);
	assert_int_equal(pump->members[0].report->proposal, 4);
	pump_destroy(pump);
}

static void a_view_without_us_or_our_word(void **state)
{
	(void)state;
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct pump_view view = pump_first_view(pump);
	view.number = 2;
	pump_install(pump, &view); /* nobody asked them */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].failed, TR_EINTERNAL);
	pump_destroy(pump);
}

/* A joiner whose donor is not in its view any more cannot get the state. */
static void a_lost_donor(void **state)
{
	(void)state;
	struct pump_view view;
	struct pump *pump = pump_with_joiner(3, 5, 9, &view);
	pump_install(pump, &view);
	assert_int_equal(pump->members[0].failed, 0);
	assert_int_equal(pump->members[2].failed, TR_EPEERLOST);
	names_both(&pump->members[2], "donor peer 9", "round 4");
	pump_destroy(pump);
}

/* A joiner begins its round before it is everybody's. What it was told of the contributors holds, or it is told again. */
static void a_joiner_knows_who_contributes(void **state)
{
	(void)state;
	struct pump_view view;
	struct pump *pump = pump_with_joiner(3, 7, 1, &view);
	struct pump_member *joiner = &pump->members[2];
	joiner->link_lost = 77;
	pump_install(pump, &view);
	assert_int_equal(pump_event(pump, 2, GROUP_BEGIN), TR_OK);
	assert_int_equal(joiner->begun.round, 7);
	assert_int_equal(joiner->begun.contributors, 2);
	/* Another view of the same contributors: nothing has changed for it. */
	pump_propose(pump, 2);
	view.number = 2;
	pump_install(pump, &view);
	assert_int_equal(joiner->decided_count, 0);
	/* One of them dies. */
	pump_kill(pump, 1);
	pump_propose(pump, 3);
	view.number = 3;
	view.count = 2;
	view.peers[1] = 3;
	view.participate_from[1] = 7;
	view.contribute_from[1] = 8;
	view.donor[1] = 1;
	pump_install(pump, &view);
	assert_int_equal(joiner->decided_count, 1);
	assert_int_equal(joiner->status, TR_ERESTART);
	assert_int_equal(pump_event(pump, 2, GROUP_BEGIN), TR_OK);
	assert_int_equal(joiner->begun.contributors, 1);
	/* So that its indices are those of the others, also after a view in which nobody was lost. */
	pump_propose(pump, 4);
	view.number = 4;
	pump_install(pump, &view);
	float data[4];
	assert_int_equal(pump_step(pump, 2,
	                     &(struct group_event){ .kind = GROUP_SUBMIT,
	                         .submit = { .tag = 1,
	                             .collective = TR_BROADCAST,
	                             .data = data,
	                             .count = 4,
	                             .dtype = TR_F32,
	                             .reduce = TR_SUM } }),
	    TR_OK);
	assert_int_equal(joiner->decided_count, 1);
	assert_int_equal(joiner->link_lost, 77); /* it is not stuck: nothing was said to memberd */
	pump_destroy(pump);
}

static tr_status give_records(struct pump *pump, unsigned to, uint64_t round, size_t contributors)
{
	static uint64_t peers[TR_GROUP_PEERS_MAX + 1];
	Traind__Peer__RoundCommit record = TRAIND__PEER__ROUND_COMMIT__INIT, *list[] = { &record };
	record.round = round;
	record.contributors = peers;
	record.n_contributors = contributors;
	return pump_step(pump, to,
	    &(struct group_event){ .kind = GROUP_STATE_RECORDS, .records = { list, 1 } });
}

/* A joiner gets the records of rounds before it along with its state, and says those that the log lacks: all others may be dead. */
static void records_outlive_those_who_committed(void **state)
{
	(void)state;
	struct pump_view view;
	struct pump *pump = pump_with_joiner(2, 5, 1, &view);
	Traind__Peer__RoundCommit *records[4];
	pump_install(pump, &view);
	assert_int_equal(give_records(pump, 1, 5, 1), TR_EPROTO); /* not decided */
	assert_int_equal(give_records(pump, 1, 4, TR_GROUP_PEERS_MAX + 1), TR_EPROTO);
	assert_int_equal(give_records(pump, 1, 3, 1), TR_OK);
	assert_int_equal(give_records(pump, 1, 4, 1), TR_OK);
	assert_int_equal(give_records(pump, 1, 4, 1), TR_OK); /* asked for again */
	assert_int_equal(group_core_records(pump->members[1].core, 4, records, 4), 2);
	assert_int_equal(records[0]->round, 3);
	assert_int_equal(group_core_records(pump->members[1].core, 3, records, 4), 1);
	assert_int_equal(group_core_records(pump->members[1].core, 4, records, 1), 1);
	assert_int_equal(records[0]->round, 4);
	assert_int_equal(pump_step(pump, 1,
	                     &(struct group_event){ .kind = GROUP_STATE_GOT, .from = 1, .round = 4 }),
	    TR_OK);
	assert_int_equal(give_records(pump, 1, 9, 1), TR_OK); /* no joiner any more: not heard */
	assert_null(pump->members[1].record);
	pump_kill(pump, 0);
	pump_propose(pump, 2);
	view = (struct pump_view){ .number = 2,
		.base_round = 5,
		.count = 1,
		.peers = { 2 },
		.participate_from = { 5 },
		.contribute_from = { 5 },
		.segment_bytes = 16 };
	pump_install(pump, &view);
	assert_non_null(pump->members[1].record);
	assert_int_equal(pump->members[1].record->round, 4); /* the newest it said */
	pump_destroy(pump);
}

static void guarantee_6_strangers_and_liars(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int32_t payload[4] = { 0 };
	for (unsigned i = 0; i < 3; i++)
		pump_submit(pump, i, 4, memory[i], COUNT, TR_I32, TR_SUM);
	struct segment_header good = { .view = 1,
		.round = 1,
		.attempt = 1,
		.tag = 4,
		.segment = 0,
		.signature = { .count = COUNT, .dtype = TR_I32, .reduce = TR_SUM },
		.kind = SEGMENT_PARTIAL,
		.elements = 4,
		.bytes = 16 };
	good.contributors[0] = 1;
	struct segment_header h = good;
	struct group_event event = { .kind = GROUP_SEGMENT, .from = 1, .segment = { &h, payload } };
	h.view = 0;
	assert_int_equal(pump_step(pump, 1, &event), TR_ESTALE);
	h = good, h.view = 9;
	assert_int_equal(pump_step(pump, 1, &event), TR_EAGAIN);
	h = good, h.round = 2;
	assert_int_equal(pump_step(pump, 1, &event), TR_EAGAIN);
	h = good, h.attempt = 7;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, h.segment = 2;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, h.elements = 3;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, h.bytes = 12;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, h.encoding = SEGMENT_WIDE;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, h.contributors[0] = 3; /* with our own data in it: it would count twice */
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, h.contributors[0] = 0;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	h = good, event.from = 3; /* against the ring's order */
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	event.from = 2; /* ourselves */
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	event.from = 42;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	event.from = 1;
	assert_int_equal(pump_step(pump, 1, &event), TR_OK);
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO); /* once */
	h.kind = SEGMENT_SEALED, h.contributors[0] = 0x0f;       /* a fourth contributor */
	event.from = 1;
	assert_int_equal(pump_step(pump, 1, &event), TR_EPROTO);
	Traind__Peer__Commit commit = TRAIND__PEER__COMMIT__INIT;
	commit.view = commit.round = commit.attempt = 1;
	assert_int_equal(pump_step(pump, 1,
	                     &(struct group_event){ .kind = GROUP_COMMIT,
	                         .from = 1,
	                         .commit = &commit }),
	    TR_EPROTO); /* we have not voted */
	assert_int_equal(pump->members[1].failed, 0);
	pump_destroy(pump);
}

static tr_status vote_for(struct pump *pump, unsigned who, uint64_t from, uint64_t view)
{
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	vote.view = view;
	vote.round = 1;
	vote.attempt = 1;
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_VOTE, .from = from, .vote = &vote });
}

/* Peers come and go for as long as a group lives: those that are gone must not fill up the hub's table of votes. */
static void votes_of_the_departed_are_forgotten(void **state)
{
	(void)state;
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct pump_view view = pump_first_view(pump);
	for (uint64_t number = 2; number < 3 * TR_GROUP_PEERS_MAX; number++) {
		pump_propose(pump, number);
		view.number = number;
		pump_install(pump, &view);
		if (vote_for(pump, 0, 1000 + number, number + 1) != TR_OK)
			fail_msg("view %d: %s", (int)number, pump->members[0].reason);
	}
	pump_destroy(pump);
}

/* The votes of 2 for an empty round in view 1, and after a change in view 2. */
static void two_votes(Traind__Peer__Vote votes[2])
{
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct pump_view view = pump_first_view(pump);
	unsigned count = 0;
	pump_close(pump, 1, 0, 0);
	pump_propose(pump, 2);
	view.number = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 2;
	view.contributors[0] = 1;
	view.contributors[1] = 2;
	pump_install(pump, &view);
	for (size_t i = pump->first; i < pump->last; i++) {
		const struct core_message *message = pump->messages[i];
		if (message == NULL || message->kind != GROUP_DO_SEND_VOTE)
			continue;
		assert_true(count < 2);
		votes[count++] = message->vote;
	}
	assert_int_equal(count, 2);
	assert_int_equal(votes[0].view, 1);
	assert_int_equal(votes[1].view, 2);
	pump_destroy(pump);
}

/* Over a connection that broke, old votes may be read after those on the connection that replaced it. */
static void an_old_vote_does_not_replace_a_newer_one(void **state)
{
	(void)state;
	Traind__Peer__Vote votes[2];
	two_votes(votes);
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct pump_view view = pump_first_view(pump);
	pump_close(pump, 0, 0, 0);
	pump_propose(pump, 2);
	for (int i = 1; i >= 0; i--)
		assert_int_equal(pump_step(pump, 0,
		                     &(struct group_event){ .kind = GROUP_VOTE,
		                         .from = 2,
		                         .vote = &votes[i] }),
		    TR_OK);
	view.number = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 2;
	view.contributors[0] = 1;
	view.contributors[1] = 2;
	pump_install(pump, &view);
	assert_int_equal(pump->members[0].decided_count, 1);
	assert_int_equal(pump->members[0].status, TR_OK);
	pump_destroy(pump);
}

/* 1 hears of another signature, and says so to 2, which has frozen for the view without 1 before it reads that. */
static struct pump *one_refuses(uint64_t freezes)
{
	struct pump *pump = begun(2, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump_submit(pump, i, 4, memory[i], COUNT, TR_I32,
		                     i == 0 ? TR_SUM : TR_MAX),
		    TR_OK);
		pump_close(pump, i, 0, 0);
	}
	for (unsigned most = 0; pump->members[0].failed == TR_OK && most < 50; most++)
		for (size_t i = pump->first; i < pump->last; i++)
			if (pump->messages[i] && pump->messages[i]->to == 0) {
				pump_deliver(pump, pump->messages[i]);
				pump_done(pump, i);
				break;
			}
	assert_int_equal(pump->members[0].failed, TR_EMISMATCH);
	assert_true(pump->members[0].refused);
	assert_int_equal(pump->members[1].failed, TR_OK);
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	propose.number = freezes;
	assert_int_equal(pump_step(pump, 1,
	                     &(struct group_event){ .kind = GROUP_PROPOSE, .propose = &propose }),
	    TR_OK);
	return pump;
}

static void a_refusal_is_heard_in_a_frozen_view(void **state)
{
	(void)state;
	struct pump *pump = one_refuses(2);
	pump_run(pump);
	assert_int_equal(pump->members[1].failed, TR_EMISMATCH);
	assert_int_equal(pump->members[1].status, TR_EMISMATCH);
	assert_true(pump->members[1].refused);
	names_both(&pump->members[1], "peers ", "1");
	pump_destroy(pump);
}

/* In the next view the round may be another one: what was said in the one before it kills nobody. What keeps 2 from going on there as if 1 had
 * died is memberd (test_membership_refused.c). */
static void a_refusal_of_an_older_view_is_not_obeyed(void **state)
{
	(void)state;
	struct pump *pump = one_refuses(2);
	struct pump_view view = { .number = 2,
		.base_round = 1,
		.base_attempt = 2,
		.count = 1,
		.peers = { 2 },
		.participate_from = { 1 },
		.contribute_from = { 1 },
		.segment_bytes = 16 };
	pump_install(pump, &view);
	pump_run(pump);
	assert_int_equal(pump->members[1].failed, TR_OK);
	pump_destroy(pump);
}

/* Two that hold different things, and no majority: neither result is right. Of three one is wrong, and only it ends. */
static void without_a_majority_the_round_is_refused(void **state)
{
	(void)state;
	for (unsigned n = 2; n < 4; n++) {
		struct pump *pump = begun(n, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
		for (unsigned i = 0; i < n; i++)
			pump_close(pump, i, 0, i == 0);
		pump_run(pump);
		assert_int_equal(pump->members[0].failed, TR_EDIGEST); /* the hub */
		assert_int_equal(pump->members[0].refused, n == 2);
		assert_int_equal(pump->members[1].failed, n == 2 ? TR_EDIGEST : TR_OK);
		pump_destroy(pump);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guarantee_4_signatures_differ),
		cmocka_unit_test(an_op_too_many),
		cmocka_unit_test(salts_differ),
		cmocka_unit_test(a_contributor_must_contribute),
		cmocka_unit_test(broken_links_are_said_again),
		cmocka_unit_test(frozen_members_report_again),
		cmocka_unit_test(a_view_without_us_or_our_word),
		cmocka_unit_test(a_lost_donor),
		cmocka_unit_test(a_joiner_knows_who_contributes),
		cmocka_unit_test(records_outlive_those_who_committed),
		cmocka_unit_test(guarantee_6_strangers_and_liars),
		cmocka_unit_test(votes_of_the_departed_are_forgotten),
		cmocka_unit_test(an_old_vote_does_not_replace_a_newer_one),
		cmocka_unit_test(a_refusal_is_heard_in_a_frozen_view),
		cmocka_unit_test(a_refusal_of_an_older_view_is_not_obeyed),
		cmocka_unit_test(without_a_majority_the_round_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
