/* Small ops of engines that share a host go over boards (collectives/engine/gather.h): in one order and in many, more of them than a board holds, with ops between that do not fit, with a
 * member that stays away and one that ends.
 */
#include "tests/unit/engine_fixture.h"

#include "collectives/engine/engine_internal.h"

#define OPS_MOST 256
#define SMALL    3    /* doubles of a small op */
#define LARGE    4096 /* of one that no board takes */

enum order { IN_ORDER, ANY_ORDER, WITH_LARGE };

struct member_run {
	struct fx_host *host;
	pthread_t thread;
	enum order order;
	unsigned rounds, ops;
	bool waits; /* for each op before the next one */
	double *data[OPS_MOST];
	unsigned done, wrong, restarts; /* `done` under fx->lock */
	tr_status status;
	char text[512];
};

static size_t count_of(const struct member_run *run, unsigned op)
{
	return run->order == WITH_LARGE && op % 5 == 2 ? LARGE : SMALL;
}

static double given(uint64_t peer, uint64_t round, unsigned op, size_t element)
{
	return (double)((peer * 7 + round * 13 + op * 29 + element) % 64);
}

/* The op that this member does in its turn `at`: from another one on, and every other member backwards. */
static unsigned op_at(const struct member_run *run, unsigned at)
{
	unsigned shift = run->host->index * 17;
	if (run->order == IN_ORDER || run->waits)
		return at;
	return run->host->index % 2 == 0 ? (at + shift) % run->ops
	                                 : (2 * run->ops - 1 - at - shift) % run->ops;
}

static void check(struct member_run *run, unsigned op, uint64_t round)
{
	for (size_t e = 0; e < count_of(run, op); e += 997) {
		uint64_t peers[FX_HOSTS_MAX];
		size_t n = 0;
		double sum = 0;
		if (tr_contributors(run->host->group, op, e, peers, FX_HOSTS_MAX, &n) != TR_OK)
			n = 0;
		for (size_t i = 0; i < n; i++)
			sum += given(peers[i], round, op, e);
		run->wrong += n == 0 || sum != run->data[op][e];
	}
}

static tr_status submit_all(struct member_run *run, const struct tr_round *round,
    struct tr_error *error)
{
	tr_group *group = run->host->group;
	tr_status st = TR_OK;
	for (unsigned at = 0; st == TR_OK && at < run->ops; at++) {
		unsigned op = op_at(run, at);
		for (size_t e = 0; e < count_of(run, op); e++)
			run->data[op][e] = given(FX_PEER(run->host->index), round->round, op, e);
		st = tr_allreduce(group, op, run->data[op], count_of(run, op), TR_F64, TR_SUM,
		    TR_CONTRIBUTE, error);
		if (st == TR_OK && run->waits)
			st = tr_wait(group, op, error);
	}
	return st;
}

static void *run_rounds(void *arg)
{
	struct member_run *run = arg;
	struct tr_commit commit = { .samples = 1 };
	struct tr_error error = { 0 };
	struct tr_round round;
	while (run->done < run->rounds) {
		tr_status st = tr_round_begin(run->host->group, &round, &error);
		if (st == TR_OK)
			st = submit_all(run, &round, &error);
		if (st == TR_OK)
			st = tr_round_commit(run->host->group, &commit, &round, &error);
		run->restarts += st == TR_ERESTART;
		if (st == TR_ERESTART)
			continue;
		run->status = st;
		if (st != TR_OK)
			break;
		for (unsigned op = 0; op < run->ops; op++)
			check(run, op, round.round);
		pthread_mutex_lock(&run->host->fx->lock);
		run->done++;
		pthread_cond_broadcast(&run->host->fx->changed);
		pthread_mutex_unlock(&run->host->fx->lock);
	}
	(void)snprintf(run->text, sizeof(run->text), "%s", error.text);
	return NULL;
}

static void run_start(struct member_run *run, struct fx_host *host, const struct member_run *as)
{
	struct tr_error error = { 0 };
	*run = *as;
	run->host = host;
	fx_attach(host);
	for (unsigned op = 0; op < run->ops; op++) {
		run->data[op] = tr_alloc(host->group, count_of(run, op) * sizeof(double));
		assert_non_null(run->data[op]);
	}
	assert_int_equal(tr_state_ready(host->group, 0, &error), TR_OK);
	assert_int_equal(pthread_create(&run->thread, NULL, run_rounds, run), 0);
}

static void run_end(struct member_run *run, tr_status expected)
{
	assert_int_equal(pthread_join(run->thread, NULL), 0);
	if (run->status != expected)
		fail_msg("%s: %s", tr_status_name(run->status), run->text);
	if (expected == TR_OK) /* else it may not have been able to look */
		assert_int_equal(run->wrong, 0);
}

static struct gather gather_of(const struct fx_host *host)
{
	pthread_mutex_lock(&host->engine->turn);
	struct gather gather = host->engine->members->gather;
	pthread_mutex_unlock(&host->engine->turn);
	return gather;
}

static struct fx *start_near(unsigned count, bool driving, Traind__Peer__Policy policy)
{
	struct fx *fx = fx_start(count, policy, TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
	fx->near = true;
	fx->driving = driving;
	return fx;
}

/* Returns how many ops the first member's core got in one event. */
static uint64_t all_run(unsigned members, bool driving, const struct member_run *as)
{
	struct fx *fx = start_near(members, driving, TRAIND__PEER__POLICY__POLICY_KEEP);
	struct member_run runs[FX_HOSTS_MAX];
	for (unsigned i = 0; i < members; i++)
		run_start(&runs[i], &fx->hosts[i], as);
	fx_found(fx, members);
	for (unsigned i = 0; i < members; i++)
		run_end(&runs[i], TR_OK);
	struct gather gather = gather_of(&fx->hosts[0]);
	assert_int_equal(gather.count, members);
	assert_int_equal(gather.unread, 0);
	assert_true(gather.shown > 0);
	assert_in_range(gather.done, 0, gather.shown);
	fx_stop(fx);
	return gather.shown;
}

static void ops_that_are_waited_for_are_shown(void **state)
{
	(void)state;
	const struct member_run as = { .rounds = 4, .ops = 100, .waits = true };
	for (unsigned members = 2; members <= 4; members++)
		for (int driving = 0; driving < 2;
		     driving++) /* but for the first few, before all boards are read */
			assert_in_range(all_run(members, driving != 0, &as), 200, 400);
}

static void ops_in_any_order(void **state)
{
	(void)state;
	struct member_run as = { .rounds = 6, .ops = 200, .order = ANY_ORDER };
	for (int driving = 0; driving < 2; driving++) {
		as.ops = 200; /* more than a board holds */
		(void)all_run(3, driving != 0, &as);
		as.ops = 20;
		(void)all_run(4, driving != 0, &as);
	}
}

static void large_ones_between(void **state)
{
	(void)state;
	struct member_run as = { .rounds = 6, .ops = 60, .order = WITH_LARGE };
	for (int driving = 0; driving < 2; driving++) {
		as.waits = false;
		(void)all_run(3, driving != 0, &as);
		as.waits = true;
		(void)all_run(3, driving != 0, &as);
	}
}

/* Three of four have shown their input: only the fourth is waited for. */
static void the_deadline_names_who_stays_away(void **state)
{
	(void)state;
	struct fx *fx = start_near(4, true, TRAIND__PEER__POLICY__POLICY_KEEP);
	struct member_run runs[4];
	const struct member_run as = { .rounds = 1, .ops = 20, .waits = true };
	struct tr_error error = { 0 };
	struct tr_round round;
	for (unsigned i = 0; i < 4; i++)
		run_start(&runs[i], &fx->hosts[i], &as);
	fx_found(fx, 4);
	for (unsigned i = 0; i < 4; i++)
		run_end(&runs[i], TR_OK);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(tr_round_begin(fx->hosts[i].group, &round, &error), TR_OK);
		assert_int_equal(tr_allreduce(fx->hosts[i].group, 5, runs[i].data[0], 1, TR_F64,
		                     TR_SUM, TR_CONTRIBUTE, &error),
		    TR_OK);
	}
	for (unsigned i = 0; i < 6; i++) { /* then so long that it asks */
		const struct fx_host *host = &fx->hosts[i % 3];
		assert_int_equal(tr_wait_for(host->group, 5, i < 3 ? 30 : 600, &error),
		    TR_ETIMEDOUT);
		assert_non_null(strstr(error.text,
		    i < 3 ? "waited 30 ms for peer 13" : "waited 600 ms for peer 13"));
		assert_null(strstr(strstr(error.text, "peer 13") + 1, "peer"));
	}
	assert_int_equal(tr_round_begin(fx->hosts[3].group, &round, &error), TR_OK);
	assert_int_equal(tr_allreduce(fx->hosts[3].group, 5, runs[3].data[0], 1, TR_F64, TR_SUM,
	                     TR_CONTRIBUTE, &error),
	    TR_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(tr_wait(fx->hosts[i].group, 5, &error), TR_OK);
	fx_stop(fx);
}

struct steps {
	struct fx_host *host;
	double *data[4];
	const int *steps; /* a tag: its op is submitted; its negative: it is waited for; 0: commit */
	pthread_t thread;
	tr_status status;
};

static void *run_steps(void *arg)
{
	struct steps *run = arg;
	struct tr_commit commit = { .samples = 1 };
	struct tr_error error = { 0 };
	struct tr_round round;
	const int *step = run->steps;
	run->host->group->op_deadline_ms = 20000;
	run->status = tr_round_begin(run->host->group, &round, &error);
	for (; run->status == TR_OK && *step != 0; step++)
		run->status = *step < 0
		    ? tr_wait(run->host->group, (uint32_t) - *step, &error)
		    : tr_allreduce(run->host->group, (uint32_t)*step, run->data[*step], 1, TR_F64,
		          TR_SUM, TR_CONTRIBUTE, &error);
	if (run->status == TR_OK)
		run->status = tr_round_commit(run->host->group, &commit, &round, &error);
	return NULL;
}

/* What is waited for stands on one board behind an op that another member submits last, and comes from the two others over links, since one's board is full and the other
 * does not read all boards.
 */
static void it_stands_behind_what_is_not_complete(void **state)
{
	(void)state;
	static const int programs[3][6] = { { 1, 2, -2, 3, -3 }, { 1, 2, -2, 3, -3 },
		{ 2, -2, 3, -3, 1 } };
	struct fx *fx = start_near(3, true, TRAIND__PEER__POLICY__POLICY_KEEP);
	const struct member_run as = { .rounds = 1, .ops = 20, .waits = true };
	struct member_run runs[3];
	struct steps steps[3];
	for (unsigned i = 0; i < 3; i++)
		run_start(&runs[i], &fx->hosts[i], &as);
	fx_found(fx, 3);
	for (unsigned i = 0; i < 3; i++)
		run_end(&runs[i], TR_OK);
	for (unsigned i = 0; i < 3; i++) {
		pthread_mutex_lock(&fx->hosts[i].engine->turn);
		struct gather *gather = &fx->hosts[i].engine->members->gather;
		gather->room = 0;
		gather->entries = i == 1 ? 1 : BOARD_ENTRIES;
		if (i == 2)
			gather->unread = 1;
		pthread_mutex_unlock(&fx->hosts[i].engine->turn);
	}
	for (unsigned i = 0; i < 3; i++) {
		steps[i] = (struct steps){ .host = &fx->hosts[i], .steps = programs[i] };
		for (unsigned tag = 1; tag < 4; tag++)
			*(steps[i].data[tag] = runs[i].data[tag]) = (i + 1) * tag;
		assert_int_equal(pthread_create(&steps[i].thread, NULL, run_steps, &steps[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(steps[i].thread, NULL), 0);
		assert_int_equal(steps[i].status, TR_OK);
		for (unsigned tag = 1; tag < 4; tag++)
			assert_true(*steps[i].data[tag] == 6 * tag);
	}
	fx_stop(fx);
}

/* One ends in the middle of its ops; what it has shown stays readable, and the others go on without it. */
static void the_others_go_on(void **state)
{
	(void)state;
	for (int driving = 0; driving < 2; driving++)
		for (int policy = 0; policy < 3; policy++) {
			struct fx *fx = start_near(4, driving != 0, (Traind__Peer__Policy)policy);
			const bool survivors[FX_HOSTS_MAX] = { true, false, true, true };
			struct member_run runs[4];
			struct member_run as = { .rounds = 40, .ops = 30, .waits = true };
			for (unsigned i = 0; i < 4; i++) {
				as.waits = policy !=
				    1; /* its results may be redone until the commit */
				run_start(&runs[i], &fx->hosts[i], &as);
			}
			fx_found(fx, 4);
			FX_WAIT(fx, runs[0].done >= 3);
			fx_host_stop(&fx->hosts[1]);
			run_end(&runs[1], TR_ECANCELLED);
			fx_change_view(fx, survivors);
			for (unsigned i = 0; i < 4; i++)
				if (survivors[i])
					run_end(&runs[i], TR_OK);
			assert_int_equal(gather_of(&fx->hosts[0]).count, 3);
			fx_stop(fx);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_that_are_waited_for_are_shown),
		cmocka_unit_test(ops_in_any_order),
		cmocka_unit_test(large_ones_between),
		cmocka_unit_test(the_deadline_names_who_stays_away),
		cmocka_unit_test(it_stands_behind_what_is_not_complete),
		cmocka_unit_test(the_others_go_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
