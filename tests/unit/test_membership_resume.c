/* How a round goes on after a view change: every case of docs/architecture.md, "View changes, exactly". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/membership/core/resume.h"

#define PEERS 3

struct member {
	uint64_t peer, committed, begun, attempt;
	bool closed, stuck, indexed, read, scoped, voted;
	uint8_t sealed, whole;
};

/* View 4 of peers 1 to 3 (3 contributes from round 11 on), round 10 under way. */
struct fixture {
	Traind__Peer__ViewInstall install;
	Traind__Peer__View view;
	Traind__Peer__Resume resume;
	Traind__Peer__ViewPeer rows[PEERS], *peers[PEERS];
	uint64_t contributors[PEERS];
	Traind__Peer__ViewReport reports[PEERS];
	uint8_t sealed[PEERS], whole[PEERS];
	Traind__Peer__OpReport ops[PEERS][2], *op_lists[PEERS][2];
	const Traind__Peer__ViewReport *list[PEERS];
	uint64_t members[PEERS];
	struct resume_input input;
	struct resume_decision decision;
};

static void fixture_init(struct fixture *f, Traind__Peer__Policy policy)
{
	memset(f, 0, sizeof(*f));
	traind__peer__view_install__init(&f->install);
	traind__peer__view__init(&f->view);
	traind__peer__resume__init(&f->resume);
	f->install.view = &f->view;
	f->install.resume = &f->resume;
	f->view.number = 4;
	f->view.peers = f->peers;
	f->view.n_peers = PEERS;
	for (uint64_t i = 0; i < PEERS; i++) {
		traind__peer__view_peer__init(&f->rows[i]);
		f->rows[i].peer = i + 1;
		f->rows[i].participate_from = i == 2 ? 10 : 1;
		f->rows[i].contribute_from = i == 2 ? 11 : 1;
		f->peers[i] = &f->rows[i];
	}
	f->resume.base_round = 8;
	f->resume.base_attempt = 4;
	f->input.old = &f->install;
	f->input.policy = policy;
	f->input.number = 5;
	f->input.recorded = 7;
	f->input.members = f->members;
	f->input.reports = f->list;
}

static void has(struct fixture *f, struct member m)
{
	size_t i = f->input.count++;
	Traind__Peer__ViewReport *report = &f->reports[i];
	traind__peer__view_report__init(report);
	report->peer = m.peer;
	report->committed_round = m.committed;
	report->begun_round = m.begun;
	report->attempt = m.attempt;
	report->closed = m.closed;
	report->stuck = m.stuck;
	report->indexed = m.indexed;
	report->read = m.read;
	report->scoped = m.scoped;
	report->voted = m.voted;
	for (uint32_t k = 0; k < 2; k++) {
		Traind__Peer__OpReport *op = &f->ops[i][k];
		traind__peer__op_report__init(op);
		op->tag = k;
		op->segments = 5; /* three bits of the byte are nobody's */
		op->sealed = (ProtobufCBinaryData){ .len = 1, .data = &f->sealed[i] };
		op->whole = (ProtobufCBinaryData){ .len = 1, .data = &f->whole[i] };
		f->op_lists[i][k] = op;
	}
	f->sealed[i] = m.sealed;
	f->whole[i] = m.whole;
	report->ops = f->op_lists[i];
	report->n_ops = m.begun > m.committed ? 2 : 0;
	f->members[i] = m.peer;
	f->list[i] = report;
}

static void decide(struct fixture *f)
{
	resume_decide(&f->input, &f->decision);
}

#define REPLAY  TRAIND__PEER__POLICY__POLICY_REPLAY
#define UNIFORM TRAIND__PEER__POLICY__POLICY_UNIFORM
#define KEEP    TRAIND__PEER__POLICY__POLICY_KEEP

static void plan_is(const struct fixture *f, uint64_t round, bool finish, uint64_t attempt,
    bool abandoned)
{
	assert_int_equal(f->decision.base_round, round);
	assert_int_equal(f->decision.finish, finish);
	assert_int_equal(f->decision.base_attempt, attempt);
	assert_int_equal(f->decision.abandoned, abandoned);
}

static void test_nobody_had_begun(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f, (struct member){ .peer = 1, .committed = 9, .begun = 9, .attempt = 4 });
	has(&f, (struct member){ .peer = 3, .committed = 9, .begun = 9, .attempt = 4 });
	decide(&f);
	plan_is(&f, 10, false, 5, false);
	assert_int_equal(f.decision.contributors_count, 0);
}

/* One of them has committed what the others voted for. */
static void test_base_follows_the_newest_commit(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1, .committed = 8, .begun = 9, .attempt = 4, .closed = true });
	has(&f, (struct member){ .peer = 2, .committed = 9, .begun = 9, .attempt = 4 });
	decide(&f);
	plan_is(&f, 10, false, 5, false);
}

static void test_base_follows_the_log(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	f.input.recorded = 9;
	has(&f,
	    (struct member){ .peer = 1, .committed = 8, .begun = 9, .attempt = 4, .closed = true });
	decide(&f);
	plan_is(&f, 10, false, 5, false);
}

/* Peer 3 does not contribute to round 10 yet, so its death costs nothing. */
static void test_no_contributor_lost(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f, (struct member){ .peer = 1, .committed = 9, .begun = 10, .attempt = 4 });
	has(&f, (struct member){ .peer = 2, .committed = 9, .begun = 9, .attempt = 4 });
	decide(&f);
	plan_is(&f, 10, true, 4, false);
	assert_int_equal(f.decision.contributors_count, 2);
	assert_int_equal(f.decision.contributors[0], 1);
	assert_int_equal(f.decision.contributors[1], 2);
}

static void test_contributor_lost_and_not_whole(void **state)
{
	Traind__Peer__Policy policies[] = { REPLAY, UNIFORM };
	(void)state;
	for (int p = 0; p < 2; p++) {
		struct fixture f;
		fixture_init(&f, policies[p]);
		has(&f,
		    (struct member){ .peer = 1,
		        .committed = 9,
		        .begun = 10,
		        .attempt = 4,
		        .closed = true,
		        .sealed = 0x1f,
		        .whole = 0x0f });
		has(&f,
		    (struct member){ .peer = 3,
		        .committed = 9,
		        .begun = 10,
		        .attempt = 4,
		        .closed = true,
		        .sealed = 0x0f,
		        .whole = 0x0f });
		decide(&f);
		plan_is(&f, 10, false, 5, true);
	}
}

static void test_contributor_lost_but_whole_among_survivors(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .closed = true,
	        .sealed = 0x0f,
	        .whole = 0x0f });
	has(&f,
	    (struct member){ .peer = 3,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .sealed = 0x10,
	        .whole = 0x10 });
	decide(&f);
	plan_is(&f, 10, true, 4, false);
	assert_int_equal(f.decision.contributors_count, 2);
	assert_int_equal(f.decision.contributors[1], 2); /* the dead one's data is in it */
}

/* Whole so far, but nobody knows whether these are all ops. */
static void test_whole_but_open(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .sealed = 0x1f,
	        .whole = 0x1f });
	decide(&f);
	plan_is(&f, 10, false, 5, true);
}

static void test_closed_without_ops(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1, .committed = 9, .begun = 10, .attempt = 4, .closed = true });
	f.reports[0].n_ops = 0;
	decide(&f);
	plan_is(&f, 10, true, 4, false);
}

/* It was whole as far as memberd knew; then a caller wanted what only the dead one had. */
static void test_stuck(void **state)
{
	struct fixture f;
	struct member m = { .peer = 1, .committed = 9, .begun = 10, .attempt = 4, .closed = true };
	(void)state;
	for (int stuck = 0; stuck < 2; stuck++) {
		fixture_init(&f, REPLAY);
		m.stuck = false;
		has(&f, m);
		f.reports[0].n_ops = 0;
		m.stuck = stuck == 1;
		m.peer = 3;
		has(&f, m);
		f.reports[1].n_ops = 0;
		decide(&f);
		plan_is(&f, 10, stuck == 0, stuck == 0 ? 4 : 5, stuck == 1);
		assert_int_equal(f.decision.restart, stuck == 1);
		m.peer = 1;
	}
	/* In an attempt before, or another round: that is over. */
	fixture_init(&f, REPLAY);
	m.stuck = false;
	has(&f, m);
	f.reports[0].n_ops = 0;
	m.stuck = true;
	m.peer = 3;
	m.attempt = 3;
	has(&f, m);
	decide(&f);
	plan_is(&f, 10, true, 4, false);
}

/* Redone without the callers only if all of them have the same indices, none has used any, and none has read a result. */
static void test_uniform_restarts(void **state)
{
	static const struct {
		uint64_t begun; /* by contributor 2 */
		bool indexed, read, restart;
		Traind__Peer__Policy policy;
	} cases[] = {
		{ 10, false, false, false, UNIFORM }, { 10, true, false, true, UNIFORM },
		{ 10, false, true, true, UNIFORM }, { 9, false, false, true, UNIFORM },
		{ 9, false, false, false, REPLAY }, /* all contributors begin again anyway */
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture f;
		fixture_init(&f, cases[i].policy);
		/* 3 contributes too, and is lost. */
		f.rows[2].contribute_from = 1;
		has(&f, (struct member){ .peer = 1, .committed = 9, .begun = 10, .attempt = 4 });
		has(&f,
		    (struct member){ .peer = 2,
		        .committed = 9,
		        .begun = cases[i].begun,
		        .attempt = 4,
		        .indexed = cases[i].indexed,
		        .read = cases[i].read });
		decide(&f);
		plan_is(&f, 10, false, 5, true);
		assert_int_equal(f.decision.restart, cases[i].restart);
	}
}

static void test_keep(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, KEEP);
	has(&f, (struct member){ .peer = 1, .committed = 9, .begun = 10, .attempt = 4 });
	decide(&f);
	plan_is(&f, 10, true, 4, false);
}

static void test_keep_without_contributors(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, KEEP);
	has(&f,
	    (struct member){ .peer = 3,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .closed = true,
	        .sealed = 0x0f });
	decide(&f);
	plan_is(&f, 10, false, 5, true);
	fixture_init(&f, KEEP);
	has(&f,
	    (struct member){ .peer = 3,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .closed = true,
	        .sealed = 0x1f });
	decide(&f);
	plan_is(&f, 10, true, 4, false); /* it may have been committed */
}

/* View 4 itself went on with an attempt of view 2, one of whose contributors (9) is long dead. */
static void test_attempt_that_outlived_a_view(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	f.resume.base_round = 10;
	f.resume.base_attempt = 2;
	f.resume.finish = true;
	f.contributors[0] = 1;
	f.contributors[1] = 2;
	f.contributors[2] = 9;
	f.resume.contributors = f.contributors;
	f.resume.n_contributors = 3;
	has(&f,
	    (struct member){ .peer = 1,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 2,
	        .closed = true,
	        .sealed = 0x1f,
	        .whole = 0x1f });
	has(&f, (struct member){ .peer = 2, .committed = 9, .begun = 10, .attempt = 2 });
	decide(&f);
	plan_is(&f, 10, true, 2, false);
	assert_int_equal(f.decision.contributors_count, 3);
	f.whole[0] = 0x1e;
	decide(&f);
	plan_is(&f, 10, false, 5, true);
}

/* An attempt that memberd never named says nothing. */
static void test_unknown_attempt(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 77,
	        .closed = true,
	        .sealed = 0x1f,
	        .whole = 0x1f });
	decide(&f);
	plan_is(&f, 10, false, 5, false);
}

/* Two say the same op has different sizes: that of the one who closed the round counts. */
static void test_ops_that_disagree(void **state)
{
	struct fixture f;
	(void)state;
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .closed = true,
	        .sealed = 0x0f,
	        .whole = 0x0f });
	has(&f,
	    (struct member){ .peer = 3,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .sealed = 0xff,
	        .whole = 0xff });
	f.ops[1][1].segments = 8;
	decide(&f);
	plan_is(&f, 10, false, 5, true);
}

/* Ops in scopes: a loss begins the round again whatever is whole, unless all had voted; no loss, and it goes on. */
static void test_scopes(void **state)
{
	const Traind__Peer__Policy policies[] = { REPLAY, UNIFORM, KEEP };
	(void)state;
	for (int p = 0; p < 3; p++)
		for (int votes = 0; votes < 3; votes++) {
			struct fixture f;
			struct member m = { .peer = 1,
				.committed = 9,
				.begun = 10,
				.attempt = 4,
				.closed = true,
				.scoped = true,
				.voted = votes > 0,
				.sealed = 0x1f,
				.whole = 0x1f };
			fixture_init(&f, policies[p]);
			has(&f, m);
			m.peer = 3; /* it does not contribute: what it has not said in a view in which it was not yet is nothing */
			m.voted = votes > 1;
			has(&f, m);
			decide(&f);
			plan_is(&f, 10, votes > 0, votes > 0 ? 4 : 5, votes == 0);
			assert_int_equal(f.decision.restart, votes == 0);
		}
	struct fixture f;
	/* Who voted is lost with all contributors but one, who had not: nobody can have committed it. */
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1, .committed = 9, .begun = 10, .attempt = 4, .scoped = true });
	has(&f,
	    (struct member){ .peer = 3,
	        .committed = 9,
	        .begun = 10,
	        .attempt = 4,
	        .scoped = true,
	        .voted = true });
	decide(&f);
	plan_is(&f, 10, false, 5, true);
	fixture_init(&f, REPLAY);
	has(&f,
	    (struct member){ .peer = 1, .committed = 9, .begun = 10, .attempt = 4, .scoped = true });
	has(&f,
	    (struct member){ .peer = 2, .committed = 9, .begun = 9, .attempt = 4, .scoped = true });
	decide(&f);
	plan_is(&f, 10, true, 4, false);
}

/* An op is its tag and its scope. */
static void test_same_op(void **state)
{
	uint8_t odd[] = { 0xaa, 1 }, even[] = { 0x55, 1 };
	const ProtobufCBinaryData all = { 0, NULL }, some = { 2, odd }, other = { 2, even },
	                          shorter = { 1, odd };
	Traind__Peer__OpReport op = TRAIND__PEER__OP_REPORT__INIT;
	(void)state;
	op.tag = 3;
	assert_true(resume_same_op(&op, 3, &all));
	assert_false(resume_same_op(&op, 4, &all));
	assert_false(resume_same_op(&op, 3, &some));
	op.scope = some;
	assert_true(resume_same_op(&op, 3, &some));
	assert_false(resume_same_op(&op, 3, &all));
	assert_false(resume_same_op(&op, 3, &other));
	assert_false(resume_same_op(&op, 3, &shorter));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_had_begun),
		cmocka_unit_test(test_base_follows_the_newest_commit),
		cmocka_unit_test(test_base_follows_the_log),
		cmocka_unit_test(test_no_contributor_lost),
		cmocka_unit_test(test_contributor_lost_and_not_whole),
		cmocka_unit_test(test_contributor_lost_but_whole_among_survivors),
		cmocka_unit_test(test_whole_but_open),
		cmocka_unit_test(test_closed_without_ops),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_uniform_restarts),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_keep_without_contributors),
		cmocka_unit_test(test_attempt_that_outlived_a_view),
		cmocka_unit_test(test_unknown_attempt),
		cmocka_unit_test(test_ops_that_disagree),
		cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_same_op),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
