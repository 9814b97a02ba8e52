/* Members that submit the same large ops in different orders, and wait for some of them before they have submitted the others. What comes for
 * ops that are not submitted yet is more than is kept aside for them (TR_HELD_BYTES_MAX), and may not hold up what the caller waits for.
 */
#include <inttypes.h>
#include <unistd.h>

#include "tests/unit/engine_fixture.h"

#define OPS   4
#define COUNT (8u << 20) /* 32 MiB: two of them do not fit what is kept aside */

/* A peer's caller. */
struct player {
	struct fx_host *host;
	pthread_t thread;
	float *data[OPS];
	bool backwards; /* the last one first, and waits for each before it submits the next */
	bool slow;      /* submits nothing before it may go */
	bool may_go;    /* under fx->lock */
	unsigned wrong;
	tr_status status;
	struct tr_error error;
};

static float contribution(unsigned index, unsigned op, size_t element)
{
	return (float)((index * 7 + op * 13 + element % 1009) % 64);
}

static void note(struct player *player, tr_status st)
{
	if (player->status == TR_OK)
		player->status = st;
}

static void submit(struct player *player, unsigned op)
{
	if (player->status == TR_OK)
		note(player,
		    tr_allreduce(player->host->group, op, player->data[op], COUNT, TR_F32, TR_SUM,
		        TR_CONTRIBUTE, &player->error));
}

static void wait_op(struct player *player, unsigned op)
{
	if (player->status == TR_OK)
		note(player, tr_wait(player->host->group, op, &player->error));
}

static void check(struct player *player)
{
	unsigned peers = player->host->fx->count;
	for (unsigned op = 0; op < OPS; op++)
		for (size_t e = 0; e < COUNT; e += 251) {
			float sum = 0;
			for (unsigned i = 0; i < peers; i++)
				sum += contribution(i, op, e);
			player->wrong += sum != player->data[op][e];
		}
}

static void wait_to_go(struct player *player)
{
	struct fx *fx = player->host->fx;
	pthread_mutex_lock(&fx->lock);
	while (player->slow && !player->may_go)
		pthread_cond_wait(&fx->changed, &fx->lock);
	pthread_mutex_unlock(&fx->lock);
}

static void *play(void *arg)
{
	struct player *player = arg;
	struct tr_round round;
	note(player, tr_round_begin(player->host->group, &round, &player->error));
	for (unsigned op = 0; op < OPS; op++)
		for (size_t e = 0; e < COUNT; e++)
			player->data[op][e] = contribution(player->host->index, op, e);
	wait_to_go(player);
	for (unsigned i = 0; i < OPS; i++) {
		submit(player, player->backwards ? OPS - 1 - i : i);
		if (player->backwards)
			wait_op(player, OPS - 1 - i);
	}
	for (unsigned op = 0; op < OPS; op++)
		wait_op(player, op);
	if (player->status == TR_OK)
		note(player, tr_round_commit(player->host->group, NULL, &round, &player->error));
	check(player);
	return NULL;
}

static void player_start(struct player *player, struct fx_host *host, bool backwards, bool slow)
{
	*player = (struct player){ .host = host, .backwards = backwards, .slow = slow };
	fx_attach(host);
	host->group->op_deadline_ms = 1000 * FX_DEADLINE_S; /* it says who is waited for */
	for (unsigned op = 0; op < OPS; op++) {
		player->data[op] = tr_alloc(host->group, COUNT * sizeof(float));
		assert_non_null(player->data[op]);
	}
	assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
	assert_int_equal(pthread_create(&player->thread, NULL, play, player), 0);
}

/* Until the others have sent more than one that is slow keeps aside. */
static void wait_until_much_was_sent(const struct fx *fx, unsigned others)
{
	uint64_t sent = 0;
	for (unsigned look = 0; sent <= TR_HELD_BYTES_MAX; look++) {
		sent = 0;
		for (unsigned i = 0; i < others; i++) {
			struct tr_stats stats = TR_STATS_INIT;
			assert_int_equal(tr_stats_get(fx->hosts[i].group, &stats, NULL), TR_OK);
			sent += stats.tcp_sent_bytes + stats.shm_sent_bytes;
		}
		if (look == 1000 * FX_DEADLINE_S)
			fail_msg("waited in vain: %" PRIu64 " bytes were sent", sent);
		(void)usleep(1000);
	}
}

static void let_go(struct player *player)
{
	struct fx *fx = player->host->fx;
	pthread_mutex_lock(&fx->lock);
	player->may_go = true;
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
}

/* The last of `peers` goes backwards; it is the hub or not. `slow`: it submits nothing before the others have sent a lot. */
static void one_goes_backwards(Traind__Peer__Algorithm algorithm, unsigned peers, unsigned hub,
    bool near, bool slow)
{
	struct fx *fx = fx_start(peers, TRAIND__PEER__POLICY__POLICY_REPLAY, algorithm);
	struct player players[FX_HOSTS_MAX];
	fx->near = near;
	fx->hub = hub;
	print_message("algorithm %d, %u peers, hub %u, %s%s\n", (int)algorithm, peers, hub,
	    near ? "shm" : "tcp", slow ? ", slow" : "");
	for (unsigned i = 0; i < peers; i++)
		player_start(&players[i], &fx->hosts[i], i == peers - 1, slow && i == peers - 1);
	fx_found(fx, peers);
	if (slow) {
		wait_until_much_was_sent(fx, peers - 1);
		let_go(&players[peers - 1]);
	}
	for (unsigned i = 0; i < peers; i++)
		assert_int_equal(pthread_join(players[i].thread, NULL), 0);
	for (unsigned i = 0; i < peers; i++) {
		if (players[i].status != TR_OK)
			fail_msg("peer %u: %s", i, players[i].error.text);
		assert_int_equal(players[i].wrong, 0);
	}
	fx_stop(fx);
}

static const Traind__Peer__Algorithm algorithms[] = { TRAIND__PEER__ALGORITHM__ALGORITHM_RING,
	TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT };

static void each_algorithm(unsigned peers, bool near, bool slow)
{
	for (unsigned a = 0; a < sizeof(algorithms) / sizeof(*algorithms); a++)
		one_goes_backwards(algorithms[a], peers, peers == 2, near, slow);
}

static void an_op_is_waited_for_before_others_are_submitted(void **state)
{
	(void)state;
	each_algorithm(2, false, false);
	each_algorithm(3, false, false);
}

static void an_op_is_waited_for_in_shared_memory(void **state)
{
	(void)state;
	each_algorithm(2, true, false);
}

/* Its lane has stopped long before it submits anything. */
static void a_slow_one_goes_backwards(void **state)
{
	(void)state;
	each_algorithm(3, false, true);
}

/* ---- two callers, a thread for each ---- */

#define MUCH_COUNT                                   \
	((TR_HELD_WAITING_BYTES_MAX + (16u << 20)) / \
	    sizeof(float)) /* more than is kept for one that waits */

enum { FIRST, SECOND };

struct pair {
	struct fx *fx;
	struct tr_round round[2];
	float *data[2][2]; /* of peer, of op */
	tr_status waited[2];
	struct tr_error error[2];
};

static struct pair *pair_start(const size_t counts[2], uint32_t op_deadline_ms)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	assert_non_null(pair);
	pair->fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 2; i++) {
		struct fx_host *host = &pair->fx->hosts[i];
		fx_attach(host);
		host->group->op_deadline_ms = op_deadline_ms;
		for (unsigned op = 0; op < 2; op++) {
			pair->data[i][op] = tr_alloc(host->group, counts[op] * sizeof(float));
			assert_non_null(pair->data[i][op]);
		}
		assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
	}
	fx_found(pair->fx, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tr_round_begin(pair->fx->hosts[i].group, &pair->round[i], NULL),
		    TR_OK);
	return pair;
}

static tr_group *pair_group(const struct pair *pair, unsigned i)
{
	return pair->fx->hosts[i].group;
}

static void pair_submit(struct pair *pair, unsigned i, unsigned op, size_t count)
{
	assert_int_equal(tr_allreduce(pair_group(pair, i), op, pair->data[i][op], count, TR_F32,
	                     TR_SUM, TR_CONTRIBUTE, NULL),
	    TR_OK);
}

/* The first waits for the first op, the second for the second one. */
static void *first_waits(void *arg)
{
	struct pair *pair = arg;
	pair->waited[0] = tr_wait(pair_group(pair, 0), FIRST, &pair->error[0]);
	return NULL;
}

static void *first_commits(void *arg)
{
	struct pair *pair = arg;
	pair->waited[0] = tr_round_commit(pair_group(pair, 0), NULL, &pair->round[0],
	    &pair->error[0]);
	return NULL;
}

static void pair_waits(struct pair *pair)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, first_waits, pair), 0);
	pair->waited[1] = tr_wait(pair_group(pair, 1), SECOND, &pair->error[1]);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void pair_commits(struct pair *pair)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, first_commits, pair), 0);
	assert_int_equal(tr_round_commit(pair_group(pair, 1), NULL, &pair->round[1], NULL), TR_OK);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(pair->waited[0], TR_OK);
	fx_stop(pair->fx);
	free(pair);
}

/* Each waits for what the other submits only then: coll.h forbids it, and the deadline says who is waited for. */
static void a_mutual_wait_ends_at_the_deadline(void **state)
{
	(void)state;
	const size_t counts[] = { 1000, 1000 };
	struct pair *pair = pair_start(counts, 200);
	pair_submit(pair, 0, FIRST, counts[FIRST]);
	pair_submit(pair, 1, SECOND, counts[SECOND]);
	pair_waits(pair);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pair->waited[i], TR_ETIMEDOUT);
		assert_string_equal(pair->error[i].text,
		    i == 0 ? "wait of round 1 waited 200 ms for peer 11 (host)"
		           : "wait of round 1 waited 200 ms for peer 10 (host)");
	}
	pair_submit(pair, 0, SECOND, counts[SECOND]);
	pair_submit(pair, 1, FIRST, counts[FIRST]);
	pair_commits(pair);
}

/* A broadcast needs nobody's credit. The one that waits behind it learns what it has to do, and nothing is lost. */
static void a_wait_behind_too_much_is_refused(void **state)
{
	(void)state;
	const size_t counts[] = { MUCH_COUNT, 1000 };
	struct pair *pair = pair_start(counts, 0);
	for (unsigned i = 0; i < 1000; i++)
		pair->data[0][SECOND][i] = pair->data[1][SECOND][i] = (float)i;
	for (size_t e = 0; e < MUCH_COUNT; e += 4096 / sizeof(float))
		pair->data[0][FIRST][e] = (float)(e % 1009);
	assert_int_equal(tr_broadcast(pair_group(pair, 0), FIRST, pair->data[0][FIRST], MUCH_COUNT,
	                     TR_F32, 0, NULL),
	    TR_OK);
	pair_submit(pair, 0, SECOND, counts[SECOND]);
	pair_submit(pair, 1, SECOND, counts[SECOND]);
	assert_int_equal(tr_wait(pair_group(pair, 1), SECOND, &pair->error[1]), TR_ELIMIT);
	assert_string_equal(pair->error[1].text,
	    "wait: over 256 MiB came for ops that are not submitted here, as op 0 from peer 10: "
	    "submit them first");
	assert_int_equal(tr_broadcast(pair_group(pair, 1), FIRST, pair->data[1][FIRST], MUCH_COUNT,
	                     TR_F32, 0, NULL),
	    TR_OK);
	assert_int_equal(tr_wait(pair_group(pair, 1), SECOND, NULL), TR_OK);
	pair_waits(pair);
	for (unsigned i = 0; i < 1000; i++)
		assert_true(pair->data[1][SECOND][i] == 2 * (float)i);
	for (size_t e = 0; e < MUCH_COUNT; e += 4096 / sizeof(float))
		assert_true(pair->data[1][FIRST][e] == (float)(e % 1009));
	pair_commits(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_op_is_waited_for_before_others_are_submitted),
		cmocka_unit_test(an_op_is_waited_for_in_shared_memory),
		cmocka_unit_test(a_slow_one_goes_backwards),
		cmocka_unit_test(a_mutual_wait_ends_at_the_deadline),
		cmocka_unit_test(a_wait_behind_too_much_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
