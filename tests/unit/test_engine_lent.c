/* Memory that was lent to a member which stood still while the others gave it up: they go on in a later view and write there again. When the member wakes it finds frames of its own view that
 * speak of this memory, and the others' votes behind them; it must not commit what it reads (simulator seed 75259, with real shared memory).
 */
#include "tests/unit/engine_fixture.h"

#include "collectives/core/member.h"
#include "collectives/engine/engine_internal.h"

#define MEMBERS 3
#define BLOCK \
	(16u << 10) /* floats of each one's block: more than is copied into a ring, less than may come ahead of its op */
#define ALL (MEMBERS * BLOCK)

struct owner {
	struct fx_host *host;
	pthread_t thread;
	float *input, *output;
	bool may_go, submitted; /* under fx->lock */
	bool decided;
	tr_status status;
};

static void say(struct owner *owner, bool *what)
{
	pthread_mutex_lock(&owner->host->fx->lock);
	*what = true;
	pthread_cond_broadcast(&owner->host->fx->changed);
	pthread_mutex_unlock(&owner->host->fx->lock);
}

/* One reduce-scatter; then the input is the caller's again. */
static void *run(void *arg)
{
	struct owner *owner = arg;
	tr_group *group = owner->host->group;
	struct tr_error error;
	struct tr_round round;
	struct tr_commit commit = { 0 };
	tr_status st = tr_round_begin(group, &round, &error);
	for (unsigned i = 0; i < ALL; i++)
		owner->input[i] = (float)(1 + owner->host->index);
	FX_WAIT(owner->host->fx, owner->may_go);
	if (st == TR_OK)
		st = tr_reduce_scatter(group, 0, owner->input, owner->output, ALL, TR_F32, TR_SUM,
		    &error);
	say(owner, &owner->submitted);
	if (st == TR_OK)
		st = tr_round_commit(group, &commit, &round, &error);
	for (unsigned i = 0; i < ALL; i++)
		owner->input[i] = 1000;
	owner->status = st;
	say(owner, &owner->decided);
	return NULL;
}

/* Looks again and again. */
static void until(bool (*is_so)(const struct owner *owner), const struct owner *owner,
    const char *what)
{
	uint64_t until_ns = uv_hrtime() + (uint64_t)FX_DEADLINE_S * 1000000000u;
	struct timespec pause = { .tv_nsec = 1000 * 1000 };
	while (!is_so(owner)) {
		if (uv_hrtime() > until_ns)
			fail_msg("never: %s", what);
		(void)nanosleep(&pause, NULL);
	}
}

static bool has_sent_all(const struct owner *owner)
{
	struct tr_link links[FX_HOSTS_MAX];
	size_t count = 0;
	unsigned all = 0;
	links[0].size_of = sizeof(links[0]);
	assert_int_equal(tr_links(owner->host->group, links, FX_HOSTS_MAX, &count, NULL), TR_OK);
	for (size_t i = 0; i < count; i++)
		all += links[i].sent_bytes >= BLOCK * sizeof(float);
	return all == MEMBERS - 1;
}

static bool of_core(const struct owner *owner, bool (*is_so)(const struct group_core *core))
{
	struct engine *engine = owner->host->engine;
	pthread_mutex_lock(&engine->turn);
	bool so = is_so(engine->members->core);
	pthread_mutex_unlock(&engine->turn);
	return so;
}

static bool voted(const struct group_core *core)
{
	return core->voted;
}

static bool has_voted(const struct owner *owner)
{
	return of_core(owner, voted);
}

static bool has_read_all(const struct owner *owner)
{
	return of_core(owner, round_sealed);
}

static void start(struct fx *fx, struct owner owners[MEMBERS])
{
	fx->near = true;
	fx->driving = false; /* engines are their own threads': one of them is stopped */
	for (unsigned i = 0; i < MEMBERS; i++) {
		struct owner *owner = &owners[i];
		owner->host = &fx->hosts[i];
		fx_attach(owner->host);
		owner->input = tr_alloc(owner->host->group, ALL * sizeof(float));
		owner->output = tr_alloc(owner->host->group, BLOCK * sizeof(float));
		assert_int_equal(tr_state_ready(owner->host->group, 0, NULL), TR_OK);
		assert_int_equal(pthread_create(&owner->thread, NULL, run, owner), 0);
	}
	fx_found(fx, MEMBERS);
}

/* The others give all that they have, vote, and end the round in a view without the hub. */
static void go_on_without_it(struct fx *fx, struct owner owners[MEMBERS])
{
	const bool left[FX_HOSTS_MAX] = { false, true, true };
	for (unsigned i = 1; i < MEMBERS; i++)
		say(&owners[i], &owners[i].may_go);
	for (unsigned i = 1; i < MEMBERS; i++)
		FX_WAIT(fx, owners[i].submitted);
	for (unsigned i = 1; i < MEMBERS; i++)
		until(has_voted, &owners[i], "a vote");
	FX_IS(fx, !owners[1].decided && !owners[2].decided);
	fx_change_view(fx, left);
	for (unsigned i = 1; i < MEMBERS; i++) {
		FX_WAIT(fx, owners[i].decided);
		assert_int_equal(owners[i].status, TR_OK);
		for (unsigned k = 0; k < BLOCK; k++)
			assert_true(owners[i].output[k] == 1 + 2 + 3);
	}
}

static void frames_of_the_stood_still(void **state)
{
	(void)state;
	struct fx *fx = fx_start(MEMBERS, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
	struct owner owners[MEMBERS] = { 0 };
	start(fx, owners);
	/* The hub gives all that it has and asks to commit; what the others then send it does not look at. */
	say(&owners[0], &owners[0].may_go);
	FX_WAIT(fx, owners[0].submitted);
	until(has_sent_all, &owners[0], "all is sent");
	struct engine *hub = fx->hosts[0].engine;
	pthread_mutex_lock(&hub->turn);
	go_on_without_it(fx, owners);
	pthread_mutex_unlock(&hub->turn);
	until(has_read_all, &owners[0], "all is read");
	assert_false(has_voted(&owners[0]));
	FX_IS(fx, !owners[0].decided);
	engine_remove(hub, FX_GROUP, FX_PEER(0), "lost: silent");
	FX_WAIT(fx, owners[0].decided);
	assert_int_equal(owners[0].status, TR_ECANCELLED);
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_int_equal(pthread_join(owners[i].thread, NULL), 0);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_of_the_stood_still),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
