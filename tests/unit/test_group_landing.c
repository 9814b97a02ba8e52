/* Results that are received in the op's own memory (collectives/core/landing.h): where that is safe, and that nothing is written
 * there any more once the memory is the caller's again.
 */
#include "group_pump.h"

#define COUNT 32

struct landing {
	struct pump *pump;
	float input[2][COUNT], data[2][COUNT];
	struct core_message *message; /* a result that its receiver has not got */
	struct group_core *core;      /* the receiver's */
	float *row;
};

static size_t waiting(const struct pump *pump)
{
	size_t at = pump->first;
	while (at < pump->last &&
	    (pump->messages[at] == NULL || pump->messages[at]->kind != GROUP_DO_SEND_SEGMENT ||
	        pump->messages[at]->header.kind != SEGMENT_SEALED))
		at++;
	return at;
}

/* Two members, one segment; its owner has sealed it. */
static void landing_start(struct landing *l, Traind__Peer__Policy policy, bool apart)
{
	l->pump = pump_create(2);
	struct pump_view view = pump_first_view(l->pump);
	view.policy = policy;
	view.segment_bytes = sizeof(l->data[0]);
	view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT;
	pump_ready_all(l->pump);
	pump_install(l->pump, &view);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump_event(l->pump, i, GROUP_BEGIN), TR_OK);
		for (unsigned k = 0; k < COUNT; k++)
			l->input[i][k] = l->data[i][k] = (float)(k + i);
		struct group_event event = { .kind = GROUP_SUBMIT };
		event.submit = (struct group_submit){ .collective = TR_ALL_REDUCE,
			.data = l->data[i],
			.input = apart ? l->input[i] : NULL,
			.count = COUNT,
			.dtype = TR_F32,
			.reduce = TR_SUM,
			.contribute = true };
		assert_int_equal(pump_step(l->pump, i, &event), TR_OK);
	}
	while (waiting(l->pump) == l->pump->last)
		assert_int_equal(pump_some(l->pump, 1), 1);
	l->message = l->pump->messages[waiting(l->pump)];
	l->core = l->pump->members[l->message->to].core;
	l->row = l->data[l->message->to];
}

static struct group_buffer *landing_of(const struct landing *l, uint64_t from, void **at)
{
	struct group_buffer *buffer = group_buffer_take(l->core, from, &l->message->header);
	assert_non_null(buffer);
	*at = *group_buffer_at(buffer);
	return buffer;
}

static tr_status landing_finish(const struct landing *l, struct group_buffer *buffer, size_t from)
{
	struct group_event event = core_message_event(l->message);
	uint8_t *at = *group_buffer_at(buffer);
	memcpy(at + from, (const uint8_t *)l->message->payload + from,
	    l->message->payload_bytes - from);
	event.segment.payload = at;
	event.segment.buffer = buffer;
	return pump_step(l->pump, l->message->to, &event);
}

static void only_where_the_input_is_not_needed_again(void **state)
{
	(void)state;
	static const struct {
		Traind__Peer__Policy policy;
		bool apart, lands;
	} cases[] = {
		{ TRAIND__PEER__POLICY__POLICY_REPLAY, false, true },
		{ TRAIND__PEER__POLICY__POLICY_REPLAY, true, true },
		{ TRAIND__PEER__POLICY__POLICY_UNIFORM, false, true }, /* the input was saved */
		{ TRAIND__PEER__POLICY__POLICY_KEEP, true, true },
		{ TRAIND__PEER__POLICY__POLICY_KEEP, false, false },
	};
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct landing l;
		void *at;
		landing_start(&l, cases[c].policy, cases[c].apart);
		struct group_buffer *buffer = landing_of(&l, l.message->from + 1, &at);
		assert_int_equal(at == (void *)l.row, cases[c].lands);
		assert_int_equal(landing_finish(&l, buffer, 0), TR_OK);
		for (unsigned k = 0; k < COUNT; k++)
			assert_true(l.row[k] == (float)(2 * k + 1));
		pump_destroy(l.pump);
	}
}

static void one_at_a_time_and_from_whom_it_is_awaited(void **state)
{
	(void)state;
	struct landing l;
	void *at, *other;
	landing_start(&l, TRAIND__PEER__POLICY__POLICY_REPLAY, false);
	struct group_buffer *stranger = landing_of(&l, 77, &other);
	assert_ptr_not_equal(other, l.row);
	group_buffer_release(l.core, stranger);
	struct group_buffer *first = landing_of(&l, l.message->from + 1, &at);
	assert_ptr_equal(at, l.row);
	/* The same frame again, over another lane: it is whole first. */
	struct group_buffer *second = landing_of(&l, l.message->from + 1, &other);
	assert_ptr_not_equal(other, l.row);
	assert_int_equal(landing_finish(&l, second, 0), TR_OK);
	assert_ptr_not_equal(*group_buffer_at(first), l.row);
	memset(*group_buffer_at(first), 0xff, l.message->payload_bytes);
	for (unsigned k = 0; k < COUNT; k++)
		assert_true(l.row[k] == (float)(2 * k + 1));
	assert_int_equal(landing_finish(&l, first, 0), TR_ESTALE);
	/* One that never became whole leaves its place to the next. */
	pump_destroy(l.pump);
	landing_start(&l, TRAIND__PEER__POLICY__POLICY_REPLAY, false);
	group_buffer_release(l.core, landing_of(&l, l.message->from + 1, &at));
	first = landing_of(&l, l.message->from + 1, &at);
	assert_ptr_equal(at, l.row);
	assert_int_equal(landing_finish(&l, first, 0), TR_OK);
	pump_destroy(l.pump);
}

static void revoked(void (*by)(struct landing *l))
{
	struct landing l;
	void *at;
	landing_start(&l, TRAIND__PEER__POLICY__POLICY_REPLAY, false);
	struct group_buffer *buffer = landing_of(&l, l.message->from + 1, &at);
	size_t half = l.message->payload_bytes / 2;
	memcpy(at, l.message->payload, half);
	by(&l);
	assert_ptr_not_equal(*group_buffer_at(buffer), l.row);
	memset(l.row, 0x5a, sizeof(l.data[0])); /* the caller's again */
	assert_int_equal(landing_finish(&l, buffer, half), TR_ESTALE);
	for (size_t k = 0; k < sizeof(l.data[0]); k++)
		assert_int_equal(((uint8_t *)l.row)[k], 0x5a);
	pump_destroy(l.pump);
}

static void by_proposal(struct landing *l)
{
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	propose.number = 2;
	assert_int_equal(pump_step(l->pump, l->message->to,
	                     &(struct group_event){ .kind = GROUP_PROPOSE, .propose = &propose }),
	    TR_OK);
}

static void by_failure(struct landing *l)
{
	struct group_event event = core_message_event(l->message);
	struct segment_header other = l->message->header;
	other.signature.count++; /* they disagree on what the op is */
	event.segment.header = &other;
	assert_int_equal(pump_step(l->pump, l->message->to, &event), TR_OK);
	assert_int_equal(l->pump->members[l->message->to].failed, TR_EMISMATCH);
}

static void by_letting_go(struct landing *l)
{
	group_core_let_go(l->core);
}

static void nothing_is_written_after_a_proposal(void **state)
{
	(void)state;
	revoked(by_proposal);
}

static void nothing_is_written_after_a_failure(void **state)
{
	(void)state;
	revoked(by_failure);
}

static void nothing_is_written_after_the_end(void **state)
{
	(void)state;
	revoked(by_letting_go);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_where_the_input_is_not_needed_again),
		cmocka_unit_test(one_at_a_time_and_from_whom_it_is_awaited),
		cmocka_unit_test(nothing_is_written_after_a_proposal),
		cmocka_unit_test(nothing_is_written_after_a_failure),
		cmocka_unit_test(nothing_is_written_after_the_end),
	};
	return cmocka_run_group_tests_name("group landing", tests, NULL, NULL);
}
