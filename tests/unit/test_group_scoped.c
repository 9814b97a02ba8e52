/* Callers who make ops in scopes without the engine (GROUP_SCOPED): what the group is told of it, and when it cannot go on. */
#include "tests/unit/group_scopes.h"

static void use_scopes(struct pump *pump, unsigned who)
{
	assert_int_equal(pump_event(pump, who, GROUP_SCOPED), TR_OK);
}

/* The second view: of the first `count`, going on with the first one's attempt or not. */
static struct pump_view second_view(struct pump *pump, unsigned count, bool finish,
    Traind__Peer__Policy policy)
{
	struct pump_view view = first_view(pump, TR_DIRECT, false);
	view.number = 2;
	view.count = count;
	view.policy = policy;
	view.finish = finish;
	view.base_attempt = finish ? 1 : 0;
	view.contributor_count = finish ? pump->n : 0;
	for (unsigned i = 0; finish && i < pump->n; i++)
		view.contributors[i] = i + 1;
	return view;
}

static bool is_stuck(struct pump *pump, unsigned who, uint64_t number)
{
	pump_propose(pump, number);
	return pump->members[who].report->stuck;
}

static void reports_say_that_callers_use_scopes(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TR_DIRECT, false);
	use_scopes(pump, 1);
	pump_propose(pump, 2);
	for (unsigned i = 0; i < 3; i++)
		assert_true(pump->members[i].report->scoped == (i == 1));
	struct pump_view view = second_view(pump, 3, true, TRAIND__PEER__POLICY__POLICY_KEEP);
	pump_install(pump, &view);
	use_scopes(pump, 0); /* of nobody who was lost */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	all_committed(pump);
	begin_all(pump);
	pump_propose(pump, 3); /* from then on, in this group */
	assert_true(pump->members[1].report->scoped && !pump->members[1].report->stuck);
	pump_destroy(pump);
}

/* memberd went on without knowing of them. */
static void scopes_after_a_death_are_stuck(void **state)
{
	(void)state;
	struct pump *pump = begun(3, TR_DIRECT, false);
	pump_kill(pump, 2);
	pump_propose(pump, 2);
	struct pump_view view = second_view(pump, 2, true, TRAIND__PEER__POLICY__POLICY_KEEP);
	pump_install(pump, &view);
	pump->members[1].link_lost = 99;
	use_scopes(pump, 1);
	assert_int_equal(pump->members[1].link_lost, 0);
	assert_true(is_stuck(pump, 1, 3));
	pump_destroy(pump);
}

/* While it is frozen, with a report that does not say so: whatever is decided without that is not what it can go on with, but for a view in which nobody is lost. */
static void scopes_while_a_view_is_made(void **state)
{
	(void)state;
	static const struct {
		Traind__Peer__Policy policy;
		unsigned left;
		bool finish, stuck;
	} cases[] = {
		{ TRAIND__PEER__POLICY__POLICY_KEEP, 2, true, true },
		{ TRAIND__PEER__POLICY__POLICY_UNIFORM, 2, false, true },
		{ TRAIND__PEER__POLICY__POLICY_KEEP, 3, true, false },
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pump *pump = pump_create(3);
		struct pump_view view = first_view(pump, TR_DIRECT, false);
		view.policy = cases[i].policy;
		pump_ready_all(pump);
		pump_install(pump, &view);
		begin_all(pump);
		if (cases[i].left < 3)
			pump_kill(pump, 2);
		pump_propose(pump, 2);
		assert_false(pump->members[1].report->scoped);
		use_scopes(pump, 1);
		view = second_view(pump, cases[i].left, cases[i].finish, cases[i].policy);
		pump->members[1].link_lost = 99;
		pump_install(pump, &view);
		assert_int_equal(pump->members[1].link_lost, cases[i].stuck ? 0 : 99);
		assert_int_equal(pump->members[1].decided_count, 0); /* nobody told the caller */
		assert_true(is_stuck(pump, 1, 3) == cases[i].stuck);
		assert_true(pump->members[1].report->scoped);
		pump_destroy(pump);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reports_say_that_callers_use_scopes),
		cmocka_unit_test(scopes_after_a_death_are_stuck),
		cmocka_unit_test(scopes_while_a_view_is_made),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
