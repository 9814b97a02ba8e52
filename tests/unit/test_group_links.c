/* Figures of links that members measure while they live in one view: what a decision says of them holds at all from the next round on. */
#include "tests/unit/group_pump.h"

#include "collectives/core/member.h"

#define COUNT 1024
#define N     4

struct run {
	struct pump *pump;
	struct pump_view view;
	int32_t data[N][COUNT];
};

static void run_start(struct run *run)
{
	run->pump = pump_create(N);
	run->view = pump_first_view(run->pump);
	run->view.algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO;
	run->view.segment_bytes = 64;
	pump_ready_all(run->pump);
	pump_install(run->pump, &run->view);
}

static void measured(struct run *run, unsigned who, uint32_t latency_us, uint64_t bandwidth)
{
	struct group_event event = { .kind = GROUP_LINKS };
	event.links.latency_us = latency_us;
	event.links.bandwidth_bytes_per_s = bandwidth;
	assert_int_equal(pump_step(run->pump, who, &event), TR_OK);
}

static void begin_all(struct run *run)
{
	for (unsigned i = 0; i < N; i++)
		if (!run->pump->members[i].dead)
			assert_int_equal(pump_event(run->pump, i, GROUP_BEGIN), TR_OK);
}

/* One all-reduce at all, right. `most` messages of it, then it may be looked at; 0: to its end. */
static void work_all(struct run *run, unsigned most)
{
	unsigned decided = run->pump->members[0].decided_count;
	for (unsigned i = 0; i < N; i++)
		for (unsigned k = 0; k < COUNT; k++)
			run->data[i][k] = (int32_t)(k + i);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump_submit(run->pump, i, 1, run->data[i], COUNT, TR_I32, TR_SUM),
		    TR_OK);
		assert_int_equal(pump_close(run->pump, i, 1, 0), TR_OK);
	}
	if (most > 0) {
		assert_int_equal(pump_some(run->pump, most), most);
		return;
	}
	pump_run(run->pump);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(run->pump->members[i].decided_count, decided + 1);
		assert_int_equal(run->pump->members[i].status, TR_OK);
		for (unsigned k = 0; k < COUNT; k++)
			assert_int_equal(run->data[i][k], (int32_t)(N * k + N * (N - 1) / 2));
	}
}

static void round_all(struct run *run)
{
	begin_all(run);
	work_all(run, 0);
}

static const struct group_core *core_of(const struct run *run, unsigned who)
{
	return run->pump->members[who].core;
}

/* All say the same of an op of a mebibyte, and `words` are in it. */
static void all_explain(const struct run *run, const char *words)
{
	const struct group_submit op = { .collective = TR_ALL_REDUCE,
		.count = 1 << 18,
		.dtype = TR_F32 };
	char first[400], other[400];
	enum tr_algorithm algorithm, theirs;
	assert_int_equal(group_core_explain(core_of(run, 0), &op, &algorithm, first, sizeof(first)),
	    TR_OK);
	if (strstr(first, words) == NULL)
		fail_msg("\"%s\" without \"%s\"", first, words);
	for (unsigned i = 1; i < N; i++) {
		assert_int_equal(group_core_explain(core_of(run, i), &op, &theirs, other,
		                     sizeof(other)),
		    TR_OK);
		assert_int_equal(theirs, algorithm);
		assert_string_equal(other, first);
		assert_memory_equal(core_of(run, i)->roster.owners, core_of(run, 0)->roster.owners,
		    SHARES_OWNERS);
	}
}

static unsigned owned_by(const struct run *run, unsigned who)
{
	unsigned owned = 0;
	for (unsigned k = 0; k < SHARES_OWNERS; k++)
		owned += core_of(run, 0)->roster.owners[k] == who;
	return owned;
}

static void what_one_measures_all_go_by_from_the_next_round_on(void **state)
{
	(void)state;
	struct run run;
	run_start(&run);
	begin_all(&run);
	for (unsigned i = 0; i < N; i++)
		measured(&run, i, 10000 - i, i == 3 ? 1000000 : 10000000);
	all_explain(&run, "not measured yet");
	work_all(&run, 0);
	all_explain(&run, "10 ms one way, 1 MB/s");
	assert_int_equal(owned_by(&run, 3), 0);
	assert_in_range(owned_by(&run, 0), SHARES_OWNERS / 3 - 1, SHARES_OWNERS / 3 + 1);
	round_all(&run);
	round_all(&run);
	pump_destroy(run.pump);
}

static void noise_changes_nothing_and_silence_neither(void **state)
{
	(void)state;
	struct run run;
	run_start(&run);
	for (unsigned i = 0; i < N; i++)
		measured(&run, i, 10000, 10000000);
	round_all(&run);
	for (unsigned i = 0; i < N; i++)
		measured(&run, i, 11000, i == 1 ? 12000000 : 8500000);
	round_all(&run);
	all_explain(&run, "10 ms one way, 10 MB/s");
	measured(&run, 0, 0, 0);
	measured(&run, 1, 0, 5000000);
	for (unsigned i = 2; i < N; i++)
		measured(&run, i, 0, 0);
	round_all(&run);
	all_explain(&run, "10 ms one way, 5 MB/s");
	assert_true(core_of(&run, 2)->view.peers[0].bandwidth_bytes_per_s == 10000000);
	pump_destroy(run.pump);
}

/* What a view says counts in it, whatever was measured in the one before: the hub's decision may have reached some and not others. */
static void a_new_view_has_its_own_figures(void **state)
{
	(void)state;
	struct run run;
	run_start(&run);
	round_all(&run);
	for (unsigned i = 0; i < N; i++)
		measured(&run, i, 10000, 10000000);
	begin_all(&run);
	work_all(&run, 0);
	begin_all(&run);
	work_all(&run, 5);
	pump_propose(run.pump, 2);
	for (unsigned i = 0; i < N; i++)
		pump_drop_sends(run.pump, i, true);
	run.view.number = 2;
	run.view.base_round = 3;
	run.view.base_attempt = run.view.finish ? 1 : 2;
	pump_install(run.pump, &run.view);
	all_explain(&run, "not measured yet");
	pump_destroy(run.pump);
}

/* Decisions do not reach one that does not take part yet: it would go another way than the others in its first round. */
static void figures_stay_while_somebody_does_not_take_part(void **state)
{
	(void)state;
	struct run run;
	run_start(&run);
	for (unsigned i = 0; i < N; i++) {
		struct group_core *core = run.pump->members[i].core;
		measured(&run, i, 10000, 10000000);
		core->view.peers[3].participate_from = core->view.peers[3].contribute_from = 2;
		struct tr_error error;
		assert_int_equal(round_enter(core, 1, 1, NULL, 0, &error), TR_OK);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pump_event(run.pump, i, GROUP_BEGIN), TR_OK);
		assert_int_equal(pump_close(run.pump, i, 1, 0), TR_OK);
	}
	pump_run(run.pump);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(run.pump->members[i].decided_count, 1);
		assert_true(core_of(&run, i)->view.latency_s == 0);
		assert_true(core_of(&run, i)->view.peers[0].bandwidth_bytes_per_s == 0);
	}
	pump_destroy(run.pump);
}

/* Whatever a vote says: no member believes it of a link. */
static void absurd_figures_are_no_figures(void **state)
{
	(void)state;
	struct run run;
	run_start(&run);
	for (unsigned i = 0; i < N; i++)
		measured(&run, i, i == 1 ? UINT32_MAX : 10000, i == 2 ? UINT64_MAX : 10000000);
	round_all(&run);
	for (unsigned i = 0; i < N; i++) {
		assert_true(core_of(&run, i)->view.peers[2].bandwidth_bytes_per_s == 0);
		assert_true(core_of(&run, i)->view.peers[1].bandwidth_bytes_per_s == 10000000);
		assert_true(core_of(&run, i)->view.latency_s == 0.01);
	}
	round_all(&run);
	pump_destroy(run.pump);
}

static void figures_of_others_than_the_view_has_are_refused(void **state)
{
	(void)state;
	struct run run;
	uint64_t bandwidth[N + 1] = { 1, 2, 3, 4, 5 };
	Traind__Peer__Commit commit = TRAIND__PEER__COMMIT__INIT;
	run_start(&run);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pump_event(run.pump, i, GROUP_BEGIN), TR_OK);
		assert_int_equal(pump_close(run.pump, i, 1, 0), TR_OK);
	}
	commit.view = commit.round = commit.attempt = 1;
	commit.bandwidth_bytes_per_s = bandwidth;
	struct group_event event = { .kind = GROUP_COMMIT, .from = 1, .commit = &commit };
	for (size_t count = 1; count <= N + 1; count++) {
		commit.n_bandwidth_bytes_per_s = count;
		if (count != N)
			assert_int_equal(pump_step(run.pump, 1, &event), TR_EPROTO);
	}
	assert_int_equal(run.pump->members[1].decided_count, 0);
	bandwidth[2] = UINT64_MAX; /* absurd: as if it were not measured */
	commit.n_bandwidth_bytes_per_s = N;
	assert_int_equal(pump_step(run.pump, 1, &event), TR_OK);
	assert_true(core_of(&run, 1)->view.peers[1].bandwidth_bytes_per_s == 2);
	assert_true(core_of(&run, 1)->view.peers[2].bandwidth_bytes_per_s == 0);
	pump_destroy(run.pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_measures_all_go_by_from_the_next_round_on),
		cmocka_unit_test(noise_changes_nothing_and_silence_neither),
		cmocka_unit_test(a_new_view_has_its_own_figures),
		cmocka_unit_test(figures_stay_while_somebody_does_not_take_part),
		cmocka_unit_test(absurd_figures_are_no_figures),
		cmocka_unit_test(figures_of_others_than_the_view_has_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
