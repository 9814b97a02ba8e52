/* Members that submit the same large ops in different orders, and wait for some of them before they have submitted the others. What comes for
 * ops that are not submitted yet is more than may be sent of them (TR_AHEAD_BYTES), and may not hold up what the caller waits for.
 */
#include <inttypes.h>
#include <unistd.h>

#include "collectives/engine/engine_internal.h"
#include "tests/unit/engine_fixture.h"

#define OPS    4
#define PERIOD 1009u
#define COUNT  (8u << 20) /* 32 MiB: one of them is more than may be sent before it is submitted */

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
	return (float)((index * 7 + op * 13 + element % PERIOD) % 64);
}

/* One period by hand; TSan looks at every single store. */
static void fill(float *data, unsigned index, unsigned op)
{
	for (size_t e = 0; e < PERIOD; e++)
		data[e] = contribution(index, op, e);
	for (size_t e = PERIOD; e < COUNT; e *= 2)
		memcpy(data + e, data, (e < COUNT - e ? e : COUNT - e) * sizeof(float));
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
		fill(player->data[op], player->host->index, op);
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

/* Until the first so many have sent more than this together. */
static void wait_until_sent(const struct fx *fx, unsigned count, uint64_t bytes)
{
	uint64_t sent = 0;
	for (unsigned look = 0; sent <= bytes; look++) {
		sent = 0;
		for (unsigned i = 0; i < count; i++) {
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
		wait_until_sent(fx, peers - 1, TR_AHEAD_BYTES / 4);
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

/* ---- callers by hand ---- */

#define PEERS      3
#define MUCH_COUNT ((size_t)TR_AHEAD_BYTES) /* elements: four times what may be sent of it */
#define FEW        1000

enum { MUCH, SUM, PAIR }; /* tags */

struct scene {
	struct fx *fx;
	tr_group *groups[PEERS];
	struct tr_round rounds[PEERS];
	float *much[PEERS], *few[PEERS]; /* MUCH_COUNT and FEW floats */
};

/* A call that is waited for in a thread of its own. */
struct call {
	pthread_t thread;
	tr_group *group;
	uint32_t tag;
	struct tr_round *round; /* NULL: it waits for the op */
	tr_status status;
	struct tr_error error;
};

static void *call_run(void *arg)
{
	struct call *call = arg;
	call->status = call->round != NULL
	    ? tr_round_commit(call->group, NULL, call->round, &call->error)
	    : tr_wait(call->group, call->tag, &call->error);
	return NULL;
}

static void call_wait(struct call *call, const struct scene *scene, unsigned who, uint32_t tag)
{
	*call = (struct call){ .group = scene->groups[who], .tag = tag };
	assert_int_equal(pthread_create(&call->thread, NULL, call_run, call), 0);
}

static void call_ended(struct call *call, tr_status status)
{
	assert_int_equal(pthread_join(call->thread, NULL), 0);
	if (call->status != status)
		fail_msg("%d: %s", (int)call->status, call->error.text);
}

static void scene_begin(struct scene *scene, unsigned peers, size_t much_count,
    uint32_t op_deadline_ms)
{
	*scene = (struct scene){ .fx = fx_start(peers, TRAIND__PEER__POLICY__POLICY_REPLAY,
		                     TRAIND__PEER__ALGORITHM__ALGORITHM_STAR) };
	for (unsigned i = 0; i < peers; i++) {
		struct fx_host *host = &scene->fx->hosts[i];
		fx_attach(host);
		host->group->op_deadline_ms = op_deadline_ms;
		scene->groups[i] = host->group;
		scene->much[i] = tr_alloc(host->group, much_count * sizeof(float));
		scene->few[i] = tr_alloc(host->group, FEW * sizeof(float));
		assert_true(scene->much[i] != NULL && scene->few[i] != NULL);
		assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
	}
	fx_found(scene->fx, peers);
	for (unsigned i = 0; i < peers; i++)
		assert_int_equal(tr_round_begin(scene->groups[i], &scene->rounds[i], NULL), TR_OK);
}

static void scene_commit(struct scene *scene)
{
	struct call calls[PEERS];
	for (unsigned i = 0; i < scene->fx->count; i++) {
		calls[i] = (struct call){ .group = scene->groups[i], .round = &scene->rounds[i] };
		assert_int_equal(pthread_create(&calls[i].thread, NULL, call_run, &calls[i]), 0);
	}
	for (unsigned i = 0; i < scene->fx->count; i++)
		call_ended(&calls[i], TR_OK);
	fx_stop(scene->fx);
}

static void sum(const struct scene *scene, unsigned who, uint32_t tag, float *data)
{
	for (unsigned i = 0; i < FEW; i++)
		data[i] = (float)(i + who);
	assert_int_equal(tr_allreduce(scene->groups[who], tag, data, FEW, TR_F32, TR_SUM,
	                     TR_CONTRIBUTE, NULL),
	    TR_OK);
}

/* ---- many ---- */

#define MANY       600
#define STEPS_MOST 40 /* of the core, for an op: it takes a dozen */

static uint64_t steps_of(const struct fx_host *host)
{
	pthread_mutex_lock(&host->engine->turn);
	uint64_t steps = host->engine->steps;
	pthread_mutex_unlock(&host->engine->turn);
	return steps;
}

static void sum_one(const struct scene *scene, unsigned who, uint32_t tag)
{
	assert_int_equal(tr_allreduce(scene->groups[who], tag, scene->few[who] + tag, 1, TR_F32,
	                     TR_SUM, TR_CONTRIBUTE, NULL),
	    TR_OK);
}

/* What came of the others is not looked at for each op. */
static void ops_that_come_late_cost_what_they_are(void **state)
{
	(void)state;
	struct scene scene;
	scene_begin(&scene, 2, FEW, 1000 * FX_DEADLINE_S);
	const struct fx_host *late = &scene.fx->hosts[0]; /* the hub */
	uint64_t before = steps_of(late);
	for (uint32_t tag = 0; tag < MANY; tag++) {
		scene.few[0][tag] = 1;
		scene.few[1][tag] = (float)tag;
		sum_one(&scene, 1, tag);
	}
	for (unsigned look = 0; steps_of(late) < before + MANY; look++) { /* all have come */
		if (look == 1000 * FX_DEADLINE_S)
			fail_msg("waited in vain: %" PRIu64 " steps", steps_of(late) - before);
		(void)usleep(1000);
	}
	for (uint32_t tag = MANY; tag-- > 0;) {
		sum_one(&scene, 0, tag);
		assert_int_equal(tr_wait(scene.groups[0], tag, NULL), TR_OK);
		assert_true(scene.few[0][tag] == (float)(tag + 1));
	}
	assert_in_range(steps_of(late) - before, MANY, STEPS_MOST * MANY);
	scene_commit(&scene);
}

/* Each waits for what the other submits only then: coll.h forbids it, and the deadline says who is waited for. */
static void a_mutual_wait_ends_at_the_deadline(void **state)
{
	(void)state;
	struct scene scene;
	struct call calls[2];
	scene_begin(&scene, 2, FEW, 200);
	sum(&scene, 0, SUM, scene.few[0]);
	sum(&scene, 1, PAIR, scene.few[1]);
	call_wait(&calls[0], &scene, 0, SUM);
	call_wait(&calls[1], &scene, 1, PAIR);
	for (unsigned i = 0; i < 2; i++)
		call_ended(&calls[i], TR_ETIMEDOUT);
	assert_string_equal(calls[0].error.text, "wait of round 1 waited 200 ms for peer 11 (host)");
	assert_string_equal(calls[1].error.text, "wait of round 1 waited 200 ms for peer 10 (host)");
	sum(&scene, 0, PAIR, scene.much[0]);
	sum(&scene, 1, SUM, scene.much[1]);
	scene_commit(&scene);
}

static void broadcast_much(const struct scene *scene, unsigned who)
{
	assert_int_equal(tr_broadcast(scene->groups[who], MUCH, scene->much[who], MUCH_COUNT,
	                     TR_F32, 0, NULL),
	    TR_OK);
}

/* A broadcast needs nobody's input, and its source sends only so much of it to who has not submitted it: what is behind it can be waited
 * for. */
static void a_wait_behind_a_large_broadcast_ends(void **state)
{
	(void)state;
	struct scene scene;
	struct call calls[PEERS];
	struct tr_stats stats = TR_STATS_INIT;
	scene_begin(&scene, PEERS, MUCH_COUNT, 1000 * FX_DEADLINE_S);
	for (size_t e = 0; e < MUCH_COUNT; e += 4096 / sizeof(float))
		scene.much[0][e] = (float)(e % 1009);
	broadcast_much(&scene, 0);
	wait_until_sent(scene.fx, 1, TR_AHEAD_BYTES);
	for (unsigned i = 0; i < PEERS; i++) {
		sum(&scene, i, SUM, scene.few[i]);
		call_wait(&calls[i], &scene, i, SUM);
	}
	for (unsigned i = 0; i < PEERS; i++)
		call_ended(&calls[i], TR_OK);
	for (unsigned i = 0; i < FEW; i++)
		assert_true(scene.few[1][i] == (float)(3 * i + 3));
	assert_int_equal(tr_stats_get(scene.groups[0], &stats, NULL), TR_OK);
	assert_true(stats.tcp_sent_bytes < TR_AHEAD_BYTES + (PEERS - 1) * TR_FRAME_DATA_MAX);
	broadcast_much(&scene, 1);
	broadcast_much(&scene, 2);
	assert_int_equal(tr_wait(scene.groups[1], MUCH, NULL), TR_OK);
	for (size_t e = 0; e < MUCH_COUNT; e += 4096 / sizeof(float))
		assert_true(scene.much[1][e] == (float)(e % 1009));
	scene_commit(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_op_is_waited_for_before_others_are_submitted),
		cmocka_unit_test(an_op_is_waited_for_in_shared_memory),
		cmocka_unit_test(a_slow_one_goes_backwards),
		cmocka_unit_test(ops_that_come_late_cost_what_they_are),
		cmocka_unit_test(a_mutual_wait_ends_at_the_deadline),
		cmocka_unit_test(a_wait_behind_a_large_broadcast_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
