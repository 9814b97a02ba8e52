/* Memory of an op that was released: what the core still reads of it, and what it no longer writes. */
#include "tests/unit/group_release.h"

#include "collectives/core/member.h"

#define ELEMENTS 48

static float input[3][ELEMENTS], output[3][ELEMENTS], residual[3][ELEMENTS],
    residual_next[3][ELEMENTS];

static const struct set all = { { 0, 1, 2 }, 3 };

/* Frames that wait in a link are written long after the op that they are of was released: they have to be of memory that is counted. With POLICY_UNIFORM
 * an input that the result replaces is kept to be reduced again; but not of an op in a scope, which is never done again behind its caller. */
static void frames_that_wait_do_not_point_into_the_op(void **state)
{
	(void)state;
	struct pump *pump = pump_create(3);
	struct pump_view view = first_view(pump, TR_ONE_SHOT);
	struct group_actions actions = { 0 };
	view.policy = TRAIND__PEER__POLICY__POLICY_UNIFORM;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	struct tr_error error;
	const struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = 1,
		    .collective = TR_ALL_REDUCE,
		    .data = memory[0][0],
		    .count = COUNT,
		    .dtype = TR_I64,
		    .reduce = TR_SUM,
		    .contribute = true,
		    .scope = { all.members, all.count } } };
	assert_int_equal(group_core_step(pump->members[0].core, &event, &actions, &error), TR_OK);
	unsigned frames = 0;
	for (size_t i = 0; i < actions.count; i++) {
		if (actions.items[i].kind != GROUP_DO_SEND_SEGMENT)
			continue;
		frames++;
		assert_non_null(actions.items[i].buffer);
		assert_ptr_equal(actions.items[i].payload, actions.items[i].buffer->data);
	}
	assert_true(frames >= 2);
	for (size_t i = 0; i < actions.count; i++)
		if (actions.items[i].buffer)
			group_buffer_release(pump->members[0].core, actions.items[i].buffer);
	group_actions_finish(&actions);
	pump_destroy(pump);
}

static tr_status scatter(struct pump *pump, unsigned who)
{
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_SUBMIT,
	        .submit = { .tag = 1,
	            .collective = TR_REDUCE_SCATTER,
	            .data = output[who],
	            .input = input[who],
	            .count = ELEMENTS,
	            .own_elements = ELEMENTS / 3,
	            .dtype = TR_F32,
	            .reduce = TR_SUM,
	            .codec = TR_CODEC_INT8,
	            .contribute = true,
	            .residual = residual[who],
	            .residual_next = residual_next[who],
	            .beta = 1,
	            .scope = { all.members, all.count } } });
}

/* A release wakes nobody: the caller uses the memory again while the engine still has the op. In a view that comes then the op's input, another one's by now, is encoded once more for
 * who has released it: what was left of the first time stays. */
static void residuals_stay_when_the_input_is_gone(void **state)
{
	(void)state;
	float kept[ELEMENTS];
	struct pump *pump = begun(3, TR_DIRECT);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < ELEMENTS; k++) {
			input[i][k] = (float)(k * (i + 1)) * 0.37F;
			residual[i][k] = residual_next[i][k] = 0;
		}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(scatter(pump, i), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(wait_for(pump, i, 1), TR_OK);
		assert_int_equal(pump->members[i].done_count, 1);
	}
	assert_int_equal(release(pump, 0, 1), TR_OK);
	memcpy(kept, residual_next[1], sizeof(kept));
	for (unsigned k = 0; k < ELEMENTS; k++)
		input[1][k] = 1000 + (float)k;
	struct pump_view view = first_view(pump, TR_DIRECT);
	pump_propose(pump, 2);
	view.number = 2;
	view.finish = true;
	view.base_attempt = 1;
	view.contributor_count = 3;
	for (unsigned i = 0; i < 3; i++)
		view.contributors[i] = i + 1;
	pump_install(pump, &view);
	pump_run(pump);
	assert_memory_equal(residual_next[1], kept, sizeof(kept));
	assert_int_equal(release(pump, 1, 1), TR_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pump->members[i].status, TR_OK);
	assert_memory_equal(residual_next[1], kept, sizeof(kept));
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_that_wait_do_not_point_into_the_op),
		cmocka_unit_test(residuals_stay_when_the_input_is_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
