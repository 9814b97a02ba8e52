/* What a member sends of ops that a peer has not said it submitted, and what it takes from what peers say of that. */
#include "tests/unit/group_pump.h"

#include "common/limits.h"

#define SEGMENT  64
#define SEGMENTS 40
#define COUNT    (SEGMENT / 4 * SEGMENTS)
#define FRAME    (SEGMENT_HEADER_BYTES + SEGMENT)
#define AHEAD    (4 * FRAME)

static int32_t memory[PUMP_MEMBERS][2][COUNT];

static struct pump *begun(unsigned n)
{
	struct pump *pump = pump_create(n);
	for (unsigned i = 0; i < n; i++) {
		const struct group_core_options options = { .group = 1,
			.peer = i + 1,
			.ahead_bytes = AHEAD * (n - 1) };
		group_core_destroy(pump->members[i].core);
		assert_int_equal(group_core_create(&options, &pump->members[i].core), TR_OK);
	}
	struct pump_view view = pump_first_view(pump);
	view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT;
	view.segment_bytes = SEGMENT;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static void broadcast(struct pump *pump, unsigned who, uint32_t tag)
{
	for (unsigned e = 0; e < COUNT; e++)
		memory[who][tag][e] = who == 0 ? (int32_t)(e + tag) : 0;
	assert_int_equal(pump_step(pump, who,
	                     &(struct group_event){ .kind = GROUP_SUBMIT,
	                         .submit = { .tag = tag,
	                             .collective = TR_BROADCAST,
	                             .data = memory[who][tag],
	                             .count = COUNT,
	                             .dtype = TR_I32,
	                             .reduce = TR_SUM,
	                             .contribute = true } }),
	    TR_OK);
}

/* Segments on their way to `to`. */
static unsigned on_the_way(const struct pump *pump, unsigned to)
{
	unsigned count = 0;
	for (size_t i = pump->first; i < pump->last; i++)
		count += pump->messages[i] != NULL && pump->messages[i]->to == to &&
		    pump->messages[i]->kind == GROUP_DO_SEND_SEGMENT;
	return count;
}

static tr_status says(struct pump *pump, uint64_t from, uint64_t view, uint64_t round,
    uint32_t *tags, size_t count)
{
	Traind__Peer__Submitted word = TRAIND__PEER__SUBMITTED__INIT;
	word.view = view;
	word.round = round;
	word.attempt = view;
	word.tags = tags;
	word.n_tags = count;
	return pump_step(pump, 0,
	    &(struct group_event){ .kind = GROUP_SUBMITTED, .from = from, .submitted = &word });
}

static void ends_well(struct pump *pump, unsigned tags)
{
	for (unsigned i = 0; i < pump->n; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < pump->n; i++) {
		assert_int_equal(pump->members[i].decided_count, 1);
		assert_int_equal(pump->members[i].status, TR_OK);
		for (unsigned tag = 0; tag < tags; tag++)
			assert_memory_equal(memory[i][tag], memory[0][tag], sizeof(memory[0][0]));
	}
	pump_destroy(pump);
}

static void so_much_and_no_more(void **state)
{
	(void)state;
	struct pump *pump = begun(3);
	broadcast(pump, 0, 0);
	assert_int_equal(on_the_way(pump, 1), AHEAD / FRAME);
	assert_int_equal(on_the_way(pump, 2), AHEAD / FRAME);
	broadcast(pump, 0, 1); /* of all ops together */
	assert_int_equal(on_the_way(pump, 1), AHEAD / FRAME);
	for (unsigned i = 1; i < 3; i++)
		for (uint32_t tag = 0; tag < 2; tag++)
			broadcast(pump, i, tag);
	ends_well(pump, 2);
}

/* What goes beyond waits for the word, not for what was sent to be taken; the bytes of the op that was said are free again. */
static void a_word_lets_its_op_go(void **state)
{
	(void)state;
	struct pump *pump = begun(2);
	uint32_t first[] = { 0 }, other[] = { 7, 1, 1 };
	broadcast(pump, 0, 0);
	broadcast(pump, 0, 1);
	assert_int_equal(on_the_way(pump, 1), AHEAD / FRAME);
	assert_int_equal(says(pump, 2, 1, 1, first, 1), TR_OK);
	assert_int_equal(on_the_way(pump, 1), SEGMENTS + AHEAD / FRAME);
	assert_int_equal(says(pump, 2, 1, 1, other, 3), TR_OK);
	assert_int_equal(on_the_way(pump, 1), 2 * SEGMENTS);
	for (uint32_t tag = 0; tag < 2; tag++)
		broadcast(pump, 1, tag);
	ends_well(pump, 2);
}

/* Peers may be ahead of us: their words count when we come there. */
static void a_word_may_come_first(void **state)
{
	(void)state;
	struct pump *pump = begun(2);
	uint32_t tags[] = { 0 };
	assert_int_equal(says(pump, 2, 1, 1, tags, 1), TR_OK);
	broadcast(pump, 0, 0);
	assert_int_equal(on_the_way(pump, 1), SEGMENTS);
	broadcast(pump, 1, 0);
	ends_well(pump, 1);
}

/* One of a round to come takes the place of those before: the peer has all that we had to send. */
static void only_the_newest_round_counts(void **state)
{
	(void)state;
	struct pump *pump = begun(2);
	uint32_t tags[] = { 0 };
	assert_int_equal(says(pump, 2, 1, 2, tags, 1), TR_OK);
	assert_int_equal(says(pump, 2, 1, 1, tags, 1), TR_ESTALE);
	assert_int_equal(says(pump, 2, 0, 9, tags, 1), TR_ESTALE);
	broadcast(pump, 0, 0);
	assert_int_equal(on_the_way(pump, 1), AHEAD / FRAME);
	pump_destroy(pump);
}

static void words_that_cannot_be(void **state)
{
	(void)state;
	static uint32_t many[TR_ROUND_OPS_MAX + 1];
	struct pump *pump = begun(2);
	for (uint32_t i = 0; i <= TR_ROUND_OPS_MAX; i++)
		many[i] = i;
	assert_int_equal(says(pump, 2, 1 + TR_VIEWS_AHEAD_MAX + 1, 1, many, 1), TR_EPROTO);
	assert_int_equal(says(pump, 3, 1, 1, many, 1), TR_EPROTO);
	assert_int_equal(says(pump, 2, 1, 1, many, TR_ROUND_OPS_MAX), TR_OK);
	assert_int_equal(says(pump, 2, 1, 1, many, TR_ROUND_OPS_MAX), TR_OK);
	assert_int_equal(says(pump, 2, 1, 1, many, TR_ROUND_OPS_MAX + 1), TR_EPROTO);
	/* Nobody has a view before all its members were asked. */
	assert_int_equal(says(pump, 2, 2, 1, many, 1), TR_EPROTO);
	for (unsigned i = 0; i < 2; i++)
		broadcast(pump, i, 0);
	ends_well(pump, 1);
}

static void members_have_their_places(void **state)
{
	(void)state;
	uint32_t tags[] = { 0 };
	struct pump *pump = begun(2);
	pump_propose(pump, 2);
	for (uint64_t peer = 3; peer < 3 + TR_GROUP_PEERS_MAX; peer++)
		assert_int_equal(says(pump, peer, 2, 1, tags, 1), TR_OK);
	assert_int_equal(says(pump, 3 + TR_GROUP_PEERS_MAX, 2, 1, tags, 1), TR_ELIMIT);
	assert_int_equal(says(pump, 2, 2, 1, tags, 1), TR_OK);
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(so_much_and_no_more),
		cmocka_unit_test(a_word_lets_its_op_go),
		cmocka_unit_test(a_word_may_come_first),
		cmocka_unit_test(only_the_newest_round_counts),
		cmocka_unit_test(words_that_cannot_be),
		cmocka_unit_test(members_have_their_places),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
