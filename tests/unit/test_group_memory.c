/* A member that finds no memory for staging in the middle of a submit: nothing of the op is lost without a word, whichever buffer it is. It asks
 * for a view that begins the round again, and when there is memory then, the round is whole.
 */
#include "tests/unit/group_pump.h"

#define COUNT    240
#define BUFFERS  200 /* more than any submit here asks for */
#define ANY_PEER UINT64_MAX

static unsigned left; /* buffers that there are */

static void *get(void *arg, size_t bytes)
{
	(void)arg;
	if (left == 0)
		return NULL;
	left--;
	return aligned_alloc(64, bytes);
}

static void put(void *arg, void *memory, size_t bytes)
{
	(void)arg;
	(void)bytes;
	free(memory);
}

static struct pump *start(struct pump_view *view, Traind__Peer__Algorithm algorithm)
{
	struct pump *pump = pump_create(2);
	const struct group_core_options options = { .group = 1,
		.peer = 1,
		.memory = { .get = get, .put = put } };
	group_core_destroy(pump->members[0].core);
	assert_int_equal(group_core_create(&options, &pump->members[0].core), TR_OK);
	*view = pump_first_view(pump);
	view->policy = TRAIND__PEER__POLICY__POLICY_REPLAY;
	view->segment_bytes = 64;
	view->algorithm = algorithm;
	view->hub = 1; /* the other one */
	pump_ready_all(pump);
	pump_install(pump, view);
	pump->members[0].link_lost = ANY_PEER;
	return pump;
}

/* With a codec each segment that the member begins needs a buffer of its own. */
static tr_status submit(struct pump *pump, unsigned who, enum tr_collective collective, float *data)
{
	for (unsigned e = 0; e < COUNT; e++)
		data[e] = collective == TR_BROADCAST && who == 1 ? 0 : (float)e;
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_SUBMIT,
	        .submit = { .tag = 1,
	            .collective = collective,
	            .data = data,
	            .count = COUNT,
	            .dtype = TR_F32,
	            .reduce = TR_SUM,
	            .codec = TR_CODEC_BF16,
	            .contribute = true } });
}

static void begin_all(struct pump *pump)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
}

static void finish(struct pump *pump, enum tr_collective collective, float data[2][COUNT])
{
	left = UINT32_MAX;
	begin_all(pump);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(submit(pump, i, collective, data[i]), TR_OK);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pump->members[i].status, TR_OK);
		for (unsigned e = 0; e < COUNT; e++)
			assert_true(data[i][e] == (float)(collective == TR_BROADCAST ? e : 2 * e));
	}
}

/* With so many buffers; false: they were enough. */
static bool runs_out(enum tr_collective collective, Traind__Peer__Algorithm algorithm,
    unsigned buffers)
{
	struct pump_view view;
	float data[2][COUNT];
	left = UINT32_MAX;
	struct pump *pump = start(&view, algorithm);
	begin_all(pump);
	left = buffers;
	assert_int_equal(submit(pump, 0, collective, data[0]), TR_OK);
	bool lost = pump->members[0].link_lost != ANY_PEER;
	if (lost) {
		assert_int_equal(pump->members[0].link_lost, 0);
		assert_int_equal(pump_event(pump, 0, GROUP_TICK), TR_OK);
	}
	pump_propose(pump, 2);
	assert_true(pump->members[0].report->stuck == lost);
	view.number = 2;
	view.restart = true;
	pump_install(pump, &view);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pump->members[i].status, TR_ERESTART);
	finish(pump, collective, data);
	pump_destroy(pump);
	return lost;
}

static void each_buffer(enum tr_collective collective)
{
	for (int algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	     algorithm <= TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT; algorithm++) {
		unsigned buffers = 0;
		while (runs_out(collective, (Traind__Peer__Algorithm)algorithm, buffers))
			buffers++;
		assert_in_range(buffers, 2, BUFFERS);
	}
}

static void a_sum_begins_again(void **state)
{
	(void)state;
	each_buffer(TR_ALL_REDUCE);
}

static void a_broadcast_begins_again(void **state)
{
	(void)state;
	each_buffer(TR_BROADCAST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sum_begins_again),
		cmocka_unit_test(a_broadcast_begins_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
