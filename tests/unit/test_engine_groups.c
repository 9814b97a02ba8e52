/* Two groups in one process: some processes are members of both, with ops of one round of each under way at once. Groups differ in size, their
 * members overlap, peers of both have the same ids. Processes are engines here: one for both memberships, as in traind, or one for each, as
 * tr_group_join makes them.
 */
#include "tests/unit/engine_fixture.h"

#define OPS   18
#define PEERS 4 /* most of a group */
#define BOTH  2 /* processes that are in both */

/* Places of processes in the two groups. */
static const unsigned sizes[2] = { 4, 3 };
static const unsigned in_both[BOTH][2] = { { 0, 1 }, { 2, 0 } };

/* How it is played. */
struct play {
	bool one_engine, driving, near, two_threads;
	unsigned rounds;
	unsigned dies_in_round; /* 0: never */
	unsigned dies;          /* peer of group 0 */
	bool goes_alone;        /* its membership ends, not its process */
};

/* A process's place in one of the groups. */
struct membership {
	struct fx_host *host;
	const struct play *play;
	unsigned which; /* group */
	void *data[OPS];
	struct tr_round round;
	tr_status status;
	char text[512];
	unsigned restarts, wrong;
	unsigned begun, done;     /* rounds; under fx->lock */
	bool pauses, resumed;     /* likewise: in the middle of the round of death */
	bool gated, gate_is_open; /* likewise: before its last rounds */
};

/* A caller's thread: one membership, or two that it serves by turns. */
struct player {
	pthread_t thread;
	struct membership *of[2];
	unsigned count;
};

static const enum tr_dtype dtypes[] = { TR_F32, TR_I32, TR_F64, TR_U8, TR_I64, TR_BF16 };
static const enum tr_algorithm algorithms[] = { TR_RING, TR_DIRECT, TR_AUTO, TR_STAR };

static enum tr_dtype dtype_of(unsigned op)
{
	return dtypes[op % (sizeof(dtypes) / sizeof(*dtypes))];
}

/* Some small, some of many segments; other ones in the other group. */
static size_t count_of(unsigned which, unsigned op)
{
	static const size_t counts[] = { 1, 70001, 3, 100003, 1024, 333, 20021 };
	return counts[(op + 3 * which) % (sizeof(counts) / sizeof(*counts))];
}

static size_t bytes_of(enum tr_dtype dtype)
{
	return dtype == TR_F64 || dtype == TR_I64 ? 8
	    : dtype == TR_BF16                    ? 2
	    : dtype == TR_U8                      ? 1
	                                          : 4;
}

#define PERIOD 61u

/* Four of them fit a byte, and a bf16 without rounding. */
static unsigned value(unsigned which, uint64_t peer, uint64_t round, unsigned op, size_t element)
{
	return (unsigned)((which * 5 + peer * 7 + round * 3 + op * 11 + element % PERIOD) % 32);
}

static void put(enum tr_dtype dtype, void *data, size_t at, unsigned is)
{
	float f = (float)is;
	uint32_t bits;
	memcpy(&bits, &f, sizeof(bits));
	switch (dtype) {
	case TR_F32:
		((float *)data)[at] = f;
		break;
	case TR_F64:
		((double *)data)[at] = is;
		break;
	case TR_I32:
		((int32_t *)data)[at] = (int32_t)is;
		break;
	case TR_I64:
		((int64_t *)data)[at] = is;
		break;
	case TR_BF16:
		((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
		break;
	default:
		((uint8_t *)data)[at] = (uint8_t)is;
		break;
	}
}

/* Is the element what `put` writes? */
static bool is(enum tr_dtype dtype, const void *data, size_t at, unsigned wanted)
{
	uint8_t cell[8] = { 0 };
	size_t bytes = bytes_of(dtype);
	put(dtype, cell, 0, wanted);
	return memcmp((const uint8_t *)data + at * bytes, cell, bytes) == 0;
}

/* ---- one membership's part of a round ---- */

static void note(struct membership *m, unsigned *what)
{
	pthread_mutex_lock(&m->host->fx->lock);
	++*what;
	pthread_cond_broadcast(&m->host->fx->changed);
	pthread_mutex_unlock(&m->host->fx->lock);
}

static void wait_until(struct membership *m, const bool *what)
{
	pthread_mutex_lock(&m->host->fx->lock);
	while (!*what)
		pthread_cond_wait(&m->host->fx->changed, &m->host->fx->lock);
	pthread_mutex_unlock(&m->host->fx->lock);
}

static void set(struct membership *m, bool *what)
{
	pthread_mutex_lock(&m->host->fx->lock);
	*what = true;
	pthread_cond_broadcast(&m->host->fx->changed);
	pthread_mutex_unlock(&m->host->fx->lock);
}

static void fail_with(struct membership *m, tr_status st, const struct tr_error *error)
{
	if (st == TR_OK || st == TR_ERESTART || m->status != TR_OK)
		return;
	m->status = st;
	(void)snprintf(m->text, sizeof(m->text), "%s", error->text);
}

static void begin(struct membership *m)
{
	struct tr_error error = { 0 };
	if (m->gated && m->done + 2 == m->play->rounds)
		wait_until(m, &m->gate_is_open);
	fail_with(m, tr_round_begin(m->host->group, &m->round, &error), &error);
	note(m, &m->begun);
}

/* One period by hand; TSan looks at every single store. */
static void fill(struct membership *m, unsigned k, enum tr_dtype dtype, size_t count)
{
	size_t bytes = bytes_of(dtype);
	uint8_t *data = m->data[k];
	for (size_t e = 0; e < count && e < PERIOD; e++)
		put(dtype, data, e, value(m->which, FX_PEER(m->host->index), m->round.round, k, e));
	for (size_t e = PERIOD; e < count; e *= 2)
		memcpy(data + e * bytes, data, (e < count - e ? e : count - e) * bytes);
}

static void submit(struct membership *m, unsigned k)
{
	struct tr_op op = TR_OP_INIT;
	struct tr_error error = { 0 };
	if (m->status != TR_OK)
		return;
	op.tag = k;
	op.output = m->data[k];
	op.count = count_of(m->which, k);
	op.dtype = dtype_of(k);
	op.algorithm = algorithms[(k + m->which) % (sizeof(algorithms) / sizeof(*algorithms))];
	fill(m, k, op.dtype, op.count);
	fail_with(m, tr_submit(m->host->group, &op, &error), &error);
	if (m->pauses && k == OPS / 2 && m->round.round == m->play->dies_in_round) {
		note(m, &m->done); /* so far it came */
		wait_until(m, &m->resumed);
	}
}

static void check(struct membership *m)
{
	for (unsigned k = 0; k < OPS; k++) {
		size_t count = count_of(m->which, k), n = 0;
		for (size_t e = 0; e < count; e += count / 7 + 1) {
			uint64_t peers[PEERS];
			unsigned sum = 0;
			if (tr_contributors(m->host->group, k, e, peers, PEERS, &n) != TR_OK)
				n = 0;
			for (size_t i = 0; i < n; i++)
				sum += value(m->which, peers[i], m->round.round, k, e);
			m->wrong += n == 0 || !is(dtype_of(k), m->data[k], e, sum);
		}
	}
}

static void commit(struct membership *m)
{
	struct tr_error error = { 0 };
	tr_status st = m->status;
	while (m->status == TR_OK) {
		st = tr_round_commit(m->host->group, NULL, &m->round, &error);
		fail_with(m, st, &error);
		if (st != TR_ERESTART)
			break;
		m->restarts++;
		begin(m);
		for (unsigned k = 0; k < OPS; k++)
			submit(m, k);
	}
	if (m->status != TR_OK)
		return;
	check(m);
	note(m, &m->done);
}

/* ---- callers ---- */

/* Ops of both groups by turns, in another order every round; results are waited for across. */
static void *play_rounds(void *arg)
{
	const struct player *player = arg;
	unsigned rounds = player->of[0]->play->rounds;
	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned i = 0; i < player->count; i++)
			begin(player->of[i]);
		for (unsigned k = 0; k < OPS; k++)
			for (unsigned i = 0; i < player->count; i++)
				submit(player->of[(i + r) % player->count], (k * 5 + r) % OPS);
		for (unsigned i = player->count; i > 0; i--)
			if (player->of[i - 1]->status == TR_OK)
				(void)tr_wait(player->of[i - 1]->host->group, r % OPS, NULL);
		for (unsigned i = 0; i < player->count; i++)
			commit(player->of[i]);
	}
	return NULL;
}

static void membership_start(struct membership *m, const struct play *play, struct fx_host *host,
    unsigned which)
{
	*m = (struct membership){ .host = host, .play = play, .which = which };
	fx_attach(host);
	for (unsigned k = 0; k < OPS; k++) {
		m->data[k] = tr_alloc(host->group, 8 * count_of(which, k));
		assert_non_null(m->data[k]);
	}
	assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
}

/* ---- the whole ---- */

struct stage {
	struct fx *fx[2];
	struct membership members[2][PEERS];
	struct player players[2 * PEERS];
	unsigned player_count;
};

static unsigned partner(unsigned which, unsigned index)
{
	for (unsigned i = 0; i < BOTH; i++)
		if (in_both[i][which] == index)
			return in_both[i][1 - which];
	return PEERS;
}

static void stage_start(struct stage *stage, const struct play *play)
{
	memset(stage, 0, sizeof(*stage));
	for (unsigned g = 0; g < 2; g++) {
		stage->fx[g] = fx_start(sizes[g], TRAIND__PEER__POLICY__POLICY_REPLAY,
		    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
		stage->fx[g]->group = FX_GROUP + g;
		stage->fx[g]->near = play->near;
		stage->fx[g]->driving = play->driving;
	}
	for (unsigned i = 0; play->one_engine && i < BOTH; i++)
		fx_beside(stage->fx[1], in_both[i][1], &stage->fx[0]->hosts[in_both[i][0]]);
	for (unsigned g = 0; g < 2; g++)
		for (unsigned i = 0; i < sizes[g]; i++) {
			struct membership *m = &stage->members[g][i];
			membership_start(m, play, &stage->fx[g]->hosts[i], g);
			m->pauses = g == 0 && i == play->dies && play->dies_in_round > 0;
			m->gated = g == 1 && i == 2 && play->dies_in_round > 0;
		}
	for (unsigned g = 0; g < 2; g++)
		for (unsigned i = 0; i < sizes[g]; i++) {
			unsigned other = play->two_threads ? PEERS : partner(g, i);
			if (g == 1 && other < PEERS)
				continue; /* the thread of its other membership serves it */
			struct player *player = &stage->players[stage->player_count++];
			player->of[player->count++] = &stage->members[g][i];
			if (other < PEERS)
				player->of[player->count++] = &stage->members[1 - g][other];
		}
	for (unsigned i = 0; i < stage->player_count; i++)
		assert_int_equal(pthread_create(&stage->players[i].thread, NULL, play_rounds,
		                     &stage->players[i]),
		    0);
	for (unsigned g = 0; g < 2; g++)
		fx_found(stage->fx[g], sizes[g]);
}

/* Nothing but its rounds happened in this group. */
static void was_undisturbed(const struct stage *stage, unsigned which, unsigned rounds)
{
	for (unsigned i = 0; i < sizes[which]; i++) {
		const struct membership *m = &stage->members[which][i];
		struct tr_stats stats = TR_STATS_INIT;
		assert_int_equal(tr_stats_get(m->host->group, &stats, NULL), TR_OK);
		assert_int_equal(stats.rounds, rounds);
		assert_int_equal(stats.ops[TR_ALL_REDUCE], rounds * OPS);
		assert_int_equal(stats.views, 1);
		assert_int_equal(stats.peers, sizes[which]);
		assert_int_equal(stats.peers_lost + stats.rounds_abandoned + stats.rounds_repaired +
		        stats.resent_bytes,
		    0);
		FX_IS(m->host->fx, m->host->link_lost == 0);
		assert_int_equal(m->restarts, 0);
	}
}

static void stage_end(struct stage *stage)
{
	for (unsigned i = 0; i < stage->player_count; i++)
		assert_int_equal(pthread_join(stage->players[i].thread, NULL), 0);
	for (unsigned g = 0; g < 2; g++)
		for (unsigned i = 0; i < sizes[g]; i++) {
			const struct membership *m = &stage->members[g][i];
			if (m->pauses)
				continue;
			if (m->status != TR_OK)
				fail_msg("group %u, peer %u: %s", g, i, m->text);
			assert_int_equal(m->wrong, 0);
			assert_int_equal(m->done, m->play->rounds);
		}
}

/* All ways of having two groups in a process. */
static void each_way(void (*test)(struct play *play), bool two_threads)
{
	for (unsigned way = 0; way < 8; way++) {
		struct play play = { .one_engine = (way & 1) != 0,
			.driving = (way & 2) != 0,
			.near = (way & 4) != 0,
			.two_threads = two_threads };
		print_message("%s, %s, %s\n", play.one_engine ? "one engine" : "two engines",
		    play.driving ? "callers drive" : "engines' threads", play.near ? "shm" : "tcp");
		test(&play);
	}
}

static void rounds(struct play *play)
{
	struct stage stage;
	play->rounds = 4;
	stage_start(&stage, play);
	stage_end(&stage);
	for (unsigned g = 0; g < 2; g++)
		was_undisturbed(&stage, g, play->rounds);
	fx_stop(stage.fx[0]);
	fx_stop(stage.fx[1]);
}

static void one_thread_for_both(void **state)
{
	(void)state;
	each_way(rounds, false);
}

static void a_thread_for_each(void **state)
{
	(void)state;
	each_way(rounds, true);
}

/* A peer of the first group dies in the middle of a round. While that group waits for its new view the other one, whose members have threads of
 * their own, finishes all its rounds; with one thread for both they wait for each other, and nothing else happens. */
static void a_death(struct play *play)
{
	bool survivors[FX_HOSTS_MAX] = { true, true, true, true };
	struct stage stage;
	play->rounds = 6;
	play->dies_in_round = 3;
	stage_start(&stage, play);
	struct fx *fx = stage.fx[0];
	struct membership *dying = &stage.members[0][play->dies], *gated = &stage.members[1][2];
	for (unsigned i = 0; i < sizes[0]; i++)
		FX_WAIT(fx, stage.members[0][i].begun == play->dies_in_round);
	FX_WAIT(fx, dying->done == play->dies_in_round);
	survivors[play->dies] = false;
	if (play->goes_alone)
		engine_remove(dying->host->engine, fx->group, FX_PEER(play->dies), "gone");
	else
		fx_host_stop(dying->host);
	set(gated, &gated->gate_is_open);
	for (unsigned i = 0; play->two_threads && i < sizes[1]; i++)
		FX_WAIT(stage.fx[1], stage.members[1][i].done == play->rounds);
	assert_int_equal(stage.members[0][1].done, play->dies_in_round - 1);
	fx_change_view(fx, survivors);
	/* Not before: its end is not at once, and a round of which it gave everything would go on without it. */
	set(dying, &dying->resumed);
	stage_end(&stage);
	assert_int_equal(dying->status, TR_ECANCELLED);
	was_undisturbed(&stage, 1, play->rounds);
	for (unsigned i = 0; i < sizes[0]; i++) {
		struct tr_stats stats = TR_STATS_INIT;
		if (i == play->dies)
			continue;
		assert_int_equal(tr_stats_get(fx->hosts[i].group, &stats, NULL), TR_OK);
		assert_int_equal(stats.rounds, play->rounds);
		assert_int_equal(stats.peers_lost, 1);
		assert_int_equal(stage.members[0][i].restarts, 1);
	}
	fx_stop(stage.fx[0]);
	fx_stop(stage.fx[1]);
}

static void a_process_dies(struct play *play)
{
	play->dies = 3;
	a_death(play);
}

/* Of a process that is in both groups. */
static void a_membership_ends(struct play *play)
{
	play->dies = in_both[0][0];
	play->goes_alone = true;
	a_death(play);
}

static void a_death_in_one_group(void **state)
{
	(void)state;
	each_way(a_process_dies, true);
}

static void a_death_in_one_group_of_a_thread(void **state)
{
	(void)state;
	each_way(a_process_dies, false);
}

static void a_membership_ends_in_one_group(void **state)
{
	(void)state;
	each_way(a_membership_ends, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_for_both),
		cmocka_unit_test(a_thread_for_each),
		cmocka_unit_test(a_death_in_one_group),
		cmocka_unit_test(a_death_in_one_group_of_a_thread),
		cmocka_unit_test(a_membership_ends_in_one_group),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
