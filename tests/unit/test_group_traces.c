/* Golden traces: who sends what to whom, message by message, in the walks of docs/architecture.md. `set` is the contributor bitmap. */
#include "tests/unit/group_pump.h"

#define COUNT 12 /* three segments of four i32 */

/* What 1 and 2 say in round 1 on their ring. */
#define RING_OF_TWO                  \
	"1>2 sum 1.0 set 01\n"       \
	"1>2 sum 1.2 set 01\n"       \
	"2>1 sum 1.1 set 02\n"       \
	"2>1 result 1.0 set 03\n"    \
	"2>1 result 1.2 set 03\n"    \
	"1>2 result 1.1 set 03\n"    \
	"2>1 vote\n"                 \
	"1 decided round 1: TR_OK\n" \
	"1>2 commit\n"               \
	"2 decided round 1: TR_OK\n"

struct walk {
	struct pump *pump;
	int32_t data[PUMP_MEMBERS][COUNT];
};

static void walk_start(struct walk *walk, unsigned n, struct pump_view *view)
{
	walk->pump = pump_create(n);
	*view = pump_first_view(walk->pump);
}

/* Peer p gives 10^(p-1). */
static void walk_begin(struct walk *walk, unsigned who)
{
	int32_t value = 1;
	for (unsigned i = 0; i < who; i++)
		value *= 10;
	for (unsigned k = 0; k < COUNT; k++)
		walk->data[who][k] = value;
	assert_int_equal(pump_event(walk->pump, who, GROUP_BEGIN), TR_OK);
}

static void walk_work(struct walk *walk, unsigned who)
{
	assert_int_equal(pump_submit(walk->pump, who, 1, walk->data[who], COUNT, TR_I32, TR_SUM),
	    TR_OK);
	assert_int_equal(pump_close(walk->pump, who, 1, 0), TR_OK);
}

/* What was said since the last look. */
static void walk_look(struct walk *walk, const char *golden)
{
	if (strcmp(walk->pump->trace, golden) != 0)
		print_error("trace:\n%s", walk->pump->trace);
	assert_string_equal(walk->pump->trace, golden);
	walk->pump->trace_length = 0;
	walk->pump->trace[0] = '\0';
}

static void walk_end(struct walk *walk, const char *golden)
{
	walk_look(walk, golden);
	pump_destroy(walk->pump);
}

/* All three begin, and work as far as they can without each other. */
static void walk_round(struct walk *walk)
{
	for (unsigned i = 0; i < 3; i++)
		walk_begin(walk, i);
	walk_look(walk,
	    "1 began round 1 as 0 of 3\n"
	    "2 began round 1 as 1 of 3\n"
	    "3 began round 1 as 2 of 3\n");
	for (unsigned i = 0; i < 3; i++)
		walk_work(walk, i);
}

static void walk_of_three(Traind__Peer__Algorithm algorithm, uint32_t hub, const char *golden)
{
	struct pump_view view;
	struct walk walk;
	walk_start(&walk, 3, &view);
	view.algorithm = algorithm;
	view.hub = hub;
	view.host[0] = view.host[1] = "a";
	pump_ready_all(walk.pump);
	pump_install(walk.pump, &view);
	walk_round(&walk);
	pump_run(walk.pump);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < COUNT; k++)
			assert_int_equal(walk.data[i][k], 111);
	walk_end(&walk, golden);
}

static void ring_of_three(void **state)
{
	(void)state;
	walk_of_three(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 0,
	    "1>2 sum 1.0 set 01\n"
	    "2>3 sum 1.1 set 02\n"
	    "3>1 sum 1.2 set 04\n"
	    "2>3 sum 1.0 set 03\n"
	    "3>1 sum 1.1 set 06\n"
	    "1>2 sum 1.2 set 05\n"
	    "3>1 result 1.0 set 07\n"
	    "1>2 result 1.1 set 07\n"
	    "2>3 result 1.2 set 07\n"
	    "1>2 result 1.0 set 07\n"
	    "2>3 result 1.1 set 07\n"
	    "3>1 result 1.2 set 07\n"
	    "2>1 vote\n"
	    "3>1 vote\n"
	    "1 decided round 1: TR_OK\n"
	    "1>2 commit\n"
	    "2 decided round 1: TR_OK\n"
	    "1>3 commit\n"
	    "3 decided round 1: TR_OK\n");
}

static void star_of_three(void **state)
{
	(void)state;
	walk_of_three(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 1,
	    "1>2 sum 1.0 set 01\n"
	    "1>2 sum 1.1 set 01\n"
	    "1>2 sum 1.2 set 01\n"
	    "3>2 sum 1.0 set 04\n"
	    "3>2 sum 1.1 set 04\n"
	    "3>2 sum 1.2 set 04\n"
	    "2>3 result 1.0 set 07\n"
	    "2>1 result 1.0 set 07\n"
	    "2>3 result 1.1 set 07\n"
	    "2>1 result 1.1 set 07\n"
	    "2>3 result 1.2 set 07\n"
	    "2>1 result 1.2 set 07\n"
	    "3>2 vote\n"
	    "1>2 vote\n"
	    "2 decided round 1: TR_OK\n"
	    "2>1 commit\n"
	    "1 decided round 1: TR_OK\n"
	    "2>3 commit\n"
	    "3 decided round 1: TR_OK\n");
}

/* The first segment's owner is the member at its place: tag 1 and segment 0 belong to 2. */
static void direct_of_three(void **state)
{
	(void)state;
	walk_of_three(TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT, 1,
	    "1>2 sum 1.0 set 01\n"
	    "1>3 sum 1.1 set 01\n"
	    "2>3 sum 1.1 set 02\n"
	    "2>1 sum 1.2 set 02\n"
	    "3>1 sum 1.2 set 04\n"
	    "3>2 sum 1.0 set 04\n"
	    "3>1 result 1.1 set 07\n"
	    "3>2 result 1.1 set 07\n"
	    "1>2 result 1.2 set 07\n"
	    "1>3 result 1.2 set 07\n"
	    "2>3 result 1.0 set 07\n"
	    "2>1 result 1.0 set 07\n"
	    "3>2 vote\n"
	    "1>2 vote\n"
	    "2 decided round 1: TR_OK\n"
	    "2>1 commit\n"
	    "1 decided round 1: TR_OK\n"
	    "2>3 commit\n"
	    "3 decided round 1: TR_OK\n");
}

/* 1 and 2 share a host: one sum of theirs goes to 3's, or the other way round. */
static void hierarchical_of_three(void **state)
{
	(void)state;
	walk_of_three(TRAIND__PEER__ALGORITHM__ALGORITHM_HIERARCHICAL, 1,
	    "1>2 sum 1.0 set 01\n"
	    "2>1 sum 1.1 set 02\n"
	    "2>1 sum 1.2 set 02\n"
	    "3>1 sum 1.2 set 04\n"
	    "3>2 sum 1.0 set 04\n"
	    "1>3 sum 1.1 set 03\n"
	    "1>3 result 1.2 set 07\n"
	    "1>2 result 1.2 set 07\n"
	    "2>3 result 1.0 set 07\n"
	    "2>1 result 1.0 set 07\n"
	    "3>1 result 1.1 set 07\n"
	    "3>2 vote\n"
	    "1>2 result 1.1 set 07\n"
	    "1>2 vote\n"
	    "2 decided round 1: TR_OK\n"
	    "2>1 commit\n"
	    "1 decided round 1: TR_OK\n"
	    "2>3 commit\n"
	    "3 decided round 1: TR_OK\n");
}

/* Nothing but inputs travels. */
static void one_shot_of_three(void **state)
{
	(void)state;
	walk_of_three(TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT, 1,
	    "1>2 sum 1.0 set 01\n"
	    "1>3 sum 1.0 set 01\n"
	    "1>2 sum 1.1 set 01\n"
	    "1>3 sum 1.1 set 01\n"
	    "1>2 sum 1.2 set 01\n"
	    "1>3 sum 1.2 set 01\n"
	    "2>3 sum 1.0 set 02\n"
	    "2>1 sum 1.0 set 02\n"
	    "2>3 sum 1.1 set 02\n"
	    "2>1 sum 1.1 set 02\n"
	    "2>3 sum 1.2 set 02\n"
	    "2>1 sum 1.2 set 02\n"
	    "3>1 sum 1.0 set 04\n"
	    "3>2 sum 1.0 set 04\n"
	    "3>1 sum 1.1 set 04\n"
	    "3>2 sum 1.1 set 04\n"
	    "3>1 sum 1.2 set 04\n"
	    "3>2 sum 1.2 set 04\n"
	    "3>2 vote\n"
	    "1>2 vote\n"
	    "2 decided round 1: TR_OK\n"
	    "2>1 commit\n"
	    "1 decided round 1: TR_OK\n"
	    "2>3 commit\n"
	    "3 decided round 1: TR_OK\n");
}

/* Three members on a ring; the third dies with the only copy of segment 0's result, the others are sealed at one survivor each. */
static void killed_in_mid_ring(struct walk *walk, struct pump_view *view,
    Traind__Peer__Policy policy)
{
	walk_start(walk, 3, view);
	view->algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	view->policy = policy;
	pump_ready_all(walk->pump);
	pump_install(walk->pump, view);
	walk_round(walk);
	pump_some(walk->pump, 6);
	walk_look(walk,
	    "1>2 sum 1.0 set 01\n"
	    "2>3 sum 1.1 set 02\n"
	    "3>1 sum 1.2 set 04\n"
	    "2>3 sum 1.0 set 03\n"
	    "3>1 sum 1.1 set 06\n"
	    "1>2 sum 1.2 set 05\n");
	pump_kill(walk->pump, 2);
	pump_propose(walk->pump, 2);
	view->number = 2;
	view->count = 2;
	view->base_round = 1;
}

static void kill_keep(void **state)
{
	(void)state;
	struct pump_view view;
	struct walk walk;
	killed_in_mid_ring(&walk, &view, TRAIND__PEER__POLICY__POLICY_KEEP);
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 3;
	for (unsigned i = 0; i < 3; i++)
		view.contributors[i] = i + 1;
	pump_install(walk.pump, &view);
	pump_run(walk.pump);
	for (unsigned i = 0; i < 2; i++) {
		struct pump_member *member = &walk.pump->members[i];
		assert_int_equal(member->decided_count, 1);
		assert_int_equal(member->status, TR_OK);
		assert_true(member->decided.partial);
		assert_int_equal(member->decided.view, 2);
		assert_memory_equal(walk.data[i], walk.data[0], sizeof(walk.data[0]));
		/* The reported sets say what the values are. */
		for (unsigned k = 0; k < COUNT; k++) {
			uint64_t peers[3];
			size_t count;
			assert_int_equal(group_core_contributors(member->core, 1, k, peers, 3,
			                     &count),
			    TR_OK);
			assert_int_equal(walk.data[i][k], count == 3 ? 111 : 11);
		}
	}
	assert_int_equal(walk.data[0][0], 11);
	assert_int_equal(walk.data[0][COUNT - 1], 111);
	walk_end(&walk,
	    "1>2 result 1.1 set 07\n"
	    "1>2 sum 1.0 set 01\n"
	    "2>1 result 1.2 set 07\n"
	    "2>1 result 1.0 set 03\n"
	    "2>1 vote\n"
	    "1 decided round 1: TR_OK\n"
	    "1>2 commit\n"
	    "2 decided round 1: TR_OK\n");
}

/* The two survivors' round, from its beginning, on their ring. */
static void round_of_two(struct walk *walk)
{
	pump_run(walk->pump);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(walk->pump->members[i].status, TR_OK);
		assert_false(walk->pump->members[i].decided.partial);
		for (unsigned k = 0; k < COUNT; k++)
			assert_int_equal(walk->data[i][k], 11);
	}
	walk_end(walk, RING_OF_TWO);
}

static void kill_replay(void **state)
{
	(void)state;
	struct pump_view view;
	struct walk walk;
	killed_in_mid_ring(&walk, &view, TRAIND__PEER__POLICY__POLICY_REPLAY);
	pump_install(walk.pump, &view);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(walk.pump->members[i].status, TR_ERESTART);
		walk_begin(&walk, i);
		assert_int_equal(walk.pump->members[i].begun.contributors, 2);
	}
	walk_look(&walk,
	    "1 decided round 1: TR_ERESTART\n"
	    "2 decided round 1: TR_ERESTART\n"
	    "1 began round 1 as 0 of 2\n"
	    "2 began round 1 as 1 of 2\n");
	for (unsigned i = 0; i < 2; i++)
		walk_work(&walk, i);
	round_of_two(&walk);
}

/* The same death under uniform: the core redoes the round by itself, from the inputs it saved. */
static void kill_uniform(void **state)
{
	(void)state;
	struct pump_view view;
	struct walk walk;
	killed_in_mid_ring(&walk, &view, TRAIND__PEER__POLICY__POLICY_UNIFORM);
	pump_install(walk.pump, &view);
	round_of_two(&walk);
}

static void join_step(struct walk *walk, enum group_event_kind kind, unsigned who, uint64_t from)
{
	assert_int_equal(pump_step(walk->pump, who,
	                     &(struct group_event){ .kind = kind, .from = from, .round = 1 }),
	    TR_OK);
}

/* Peers 1 and 2 are in round 1 when 3 joins: it enters round 2 without contributing, with 1 as its donor. */
static void join(void **state)
{
	(void)state;
	struct pump_view view;
	struct walk walk;
	walk_start(&walk, 3, &view);
	view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	view.count = 2;
	pump_ready_all(walk.pump);
	pump_install(walk.pump, &view);
	walk_begin(&walk, 0);
	walk_begin(&walk, 1);
	walk_begin(&walk, 2);
	walk_work(&walk, 0);
	pump_propose(walk.pump, 2);
	view.number = 2;
	view.count = 3;
	view.participate_from[2] = 2;
	view.contribute_from[2] = 3;
	view.donor[2] = 1;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 2;
	view.contributors[0] = 1;
	view.contributors[1] = 2;
	pump_install(walk.pump, &view);
	assert_true(walk.pump->members[2].begun.receive_state);
	join_step(&walk, GROUP_STATE_ASKED, 0, 3);
	assert_int_equal(walk.pump->members[0].state_send_to,
	    0); /* too early: round 1 is not decided */
	walk_work(&walk, 1);
	walk_work(&walk, 2);
	pump_run(walk.pump);
	assert_int_equal(walk.pump->members[0].state_send_to,
	    0); /* nor applied, as far as we know */
	walk_begin(&walk, 0);
	assert_int_equal(walk.pump->members[0].state_send_to, 3);
	walk_begin(&walk, 1);
	walk_work(&walk, 0);
	walk_work(&walk, 1);
	pump_run(walk.pump);
	assert_int_equal(walk.pump->members[0].decided_count, 1); /* 3 closed, and lacks the state */
	pump_trace(walk.pump, "3 has the state\n");
	join_step(&walk, GROUP_STATE_GOT, 2, 1);
	pump_run(walk.pump);
	assert_int_equal(walk.pump->members[1].decided_count, 2);
	assert_int_equal(walk.pump->members[2].decided_count, 1);
	assert_int_equal(walk.pump->members[0].decided_count,
	    2); /* nobody reads its state any more */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(walk.pump->members[i].decided.round, 2);
		for (unsigned k = 0; k < COUNT; k++)
			assert_int_equal(walk.data[i][k], 11);
	}
	walk_begin(&walk, 2);
	assert_int_equal(walk.pump->members[2].begun.index, 2);
	assert_int_equal(walk.pump->members[2].begun.contributors, 3);
	walk_end(&walk,
	    "1 began round 1 as 0 of 2\n"
	    "2 began round 1 as 1 of 2\n"
	    "3 asks 1 for the state after round 1\n"
	    "3 began round 2 as 2 of 2\n" RING_OF_TWO "1 began round 2 as 0 of 2\n"
	    "1 sends the state after round 1 to 3\n"
	    "2 began round 2 as 1 of 2\n"
	    "1>2 sum 1.0 set 01\n"
	    "1>2 sum 1.2 set 01\n"
	    "2>3 sum 1.1 set 02\n"
	    "2>3 sum 1.0 set 03\n"
	    "2>3 sum 1.2 set 03\n"
	    "3>1 sum 1.1 set 02\n"
	    "3>1 result 1.0 set 03\n"
	    "3>1 result 1.2 set 03\n"
	    "1>2 result 1.1 set 03\n"
	    "1>2 result 1.0 set 03\n"
	    "1>2 result 1.2 set 03\n"
	    "2>3 result 1.1 set 03\n"
	    "2>1 vote\n"
	    "3 has the state\n"
	    "3>1 vote\n"
	    "1 decided round 2: TR_OK\n"
	    "1>2 commit\n"
	    "2 decided round 2: TR_OK\n"
	    "1>3 commit\n"
	    "3 decided round 2: TR_OK\n"
	    "3 began round 3 as 2 of 3\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_of_three),
		cmocka_unit_test(star_of_three),
		cmocka_unit_test(direct_of_three),
		cmocka_unit_test(hierarchical_of_three),
		cmocka_unit_test(one_shot_of_three),
		cmocka_unit_test(kill_keep),
		cmocka_unit_test(kill_replay),
		cmocka_unit_test(kill_uniform),
		cmocka_unit_test(join),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
