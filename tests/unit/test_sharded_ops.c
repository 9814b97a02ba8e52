/* Ops that a model split over a mesh makes while it computes, with a group that says what the test wants: messages between stages, sums inside the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/worker/pipeline_buffers.h"
#include "daemon/worker/sharded_channel.h"
#include "daemon/worker/trainer_inside.h"

struct tr_group {
	tr_status release; /* what tr_release says */
	unsigned submitted;
	void *memory[64];
	size_t memories;
};

tr_status tr_submit(tr_group *group, const struct tr_op *op, struct tr_error *error)
{
	(void)op;
	(void)error;
	group->submitted++;
	return TR_OK;
}

tr_status tr_wait(tr_group *group, uint32_t tag, struct tr_error *error)
{
	(void)group;
	(void)tag;
	(void)error;
	return TR_OK;
}

tr_status tr_release(tr_group *group, uint32_t tag, struct tr_error *error)
{
	(void)tag;
	return group->release == TR_OK ? TR_OK : tr_error_set(error, group->release, "abandoned");
}

void *tr_alloc(tr_group *group, size_t bytes)
{
	assert_in_range(group->memories, 0, sizeof(group->memory) / sizeof(group->memory[0]) - 1);
	return group->memory[group->memories++] = calloc(1, bytes);
}

void *tr_alloc_sparse(tr_group *group, size_t bytes)
{
	return tr_alloc(group, bytes);
}

/* Else the whole trainer would be linked, and with it the group's real calls. */
double trainer_monotonic_s(void)
{
	return 0;
}

static void end_memory(tr_group *group)
{
	for (size_t i = 0; i < group->memories; i++)
		free(group->memory[i]);
}

/* Two stages of one replica; this one is the second. */
static void begin_sharded(tr_group *group, struct trainer *t, struct sharded *s)
{
	*s = (struct sharded){ .rank = 1, .self = 1 };
	s->shards.mesh = (struct mesh){ .size = { [MESH_DP] = 1, [MESH_PP] = 2, [MESH_TP] = 1 } };
	ranks_init(&s->shards.mesh, &s->next);
	for (uint32_t i = 0; i < 2; i++)
		s->next.peers[s->next.count++] = (struct ranks_peer){ .peer = 10 + i,
			.rank = i,
			.shard = i };
	mesh_memory_init(group, &s->memory);
	*t = (struct trainer){ .group = group, .sharded = s };
}

/* The round is over, which the first call after that finds out: no more memory is taken. Then all begins anew. */
static void a_restart_takes_no_memory(void **state)
{
	(void)state;
	tr_group group = { .release = TR_OK };
	struct trainer t;
	struct sharded s;
	struct sharded_channel c;
	struct buffers_of_messages buffers;
	begin_sharded(&group, &t, &s);
	assert_int_equal(sharded_channel_init(&t, &c, NULL), TR_OK);
	const struct pipeline_channel calls = sharded_channel_calls(&c);
	const struct schedule_shape shape = { SCHEDULE_1F1B, 2, 4, 1 };
	const struct schedule *lists;
	buffers_init(&buffers, &calls, 64);
	for (unsigned round = 0; round < 100; round++) {
		uint32_t one = BUFFERS_NONE, two = BUFFERS_NONE;
		struct pipeline_message message = { false, 0, 1, 0 };
		group.release = TR_ERESTART;
		buffers_forget(&buffers);
		sharded_channel_begin_round(&c);
		assert_int_equal(sharded_channel_begin_run(&c, &shape, true, &lists), TR_OK);
		assert_true(buffers_take(&buffers, &one));
		assert_true(buffers_receive(&buffers, one, &message, 64));
		assert_true(buffers_wait(&buffers, one));
		buffers_give(&buffers, &one);
		assert_false(buffers_take(&buffers, &two));
		assert_int_equal(c.status, TR_ERESTART);
		assert_int_equal(buffers.count, 1);
	}
	assert_int_equal(group.memories, 1);
	buffers_finish(&buffers);
	sharded_channel_finish(&c);
	mesh_memory_finish(&s.memory);
	end_memory(&group);
}

/* Tags of sums end where those of messages begin. */
static void sums_do_not_run_into_messages(void **state)
{
	(void)state;
	tr_group group = { .release = TR_OK };
	const struct sharded_scope scope = { { 0, 1 }, 2 };
	struct sharded_exchange x = { .group = &group };
	float number = 1;
	sharded_exchange_begin(&x, &scope);
	assert_true(sharded_sum(&x, &number, 1));
	x.used = TAG_MOMENTS - TAG_TENSOR - 1;
	assert_true(sharded_maximum(&x, &number, 1));
	assert_int_equal(group.submitted, 2);
	assert_false(sharded_sum(&x, &number, 1));
	assert_int_equal(x.status, TR_ELIMIT);
	assert_non_null(strstr(x.error.text, "larger train.micro_sequences"));
	assert_int_equal(group.submitted, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_restart_takes_no_memory),
		cmocka_unit_test(sums_do_not_run_into_messages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
