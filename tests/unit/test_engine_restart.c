/* A worker dies and another one follows it on its node: what it left in shared memory, and what crosses the network. */
#include "tests/unit/engine_fixture.h"
#include "tests/unit/frame_proxy.h"

#define STATES 3

static const size_t state_bytes[STATES] = { 3u << 20, 0, 1234567 };

/* A peer whose state depends on the rounds that it applied: the first tensor counts them. */
struct trainer {
	struct fx_host *host;
	pthread_t thread;
	bool runs;   /* the thread */
	bool filled; /* it had its state from the beginning */
	uint8_t *data[STATES];
	double *value;
	/* under the lock */
	tr_status status;
	unsigned done;
	uint64_t received_in;  /* the round that it came in with; 0: none */
	struct tr_round first; /* that it began */
	struct tr_error error;
};

static void trainer_attach(struct trainer *trainer, struct fx_host *host, bool filled)
{
	struct tr_error error = { 0 };
	*trainer = (struct trainer){ .host = host, .filled = filled };
	fx_attach(host);
	for (unsigned i = 0; i < STATES; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "tensor %u", i);
		trainer->data[i] = tr_alloc(host->group, state_bytes[i]);
		assert_non_null(trainer->data[i]);
		for (size_t k = 0; filled && k < state_bytes[i]; k++)
			trainer->data[i][k] = (uint8_t)(k * 31 + i);
		assert_int_equal(tr_state_add(host->group, name, trainer->data[i], state_bytes[i],
		                     &error),
		    TR_OK);
	}
	if (filled)
		memset(trainer->data[0], 0, sizeof(uint64_t));
	trainer->value = tr_alloc(host->group, sizeof(double));
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
}

static uint64_t applied(const struct trainer *trainer)
{
	uint64_t rounds;
	memcpy(&rounds, trainer->data[0], sizeof(rounds));
	return rounds;
}

/* Every byte is changed, so that a state of another round differs everywhere. */
static void apply(struct trainer *trainer)
{
	uint64_t rounds = applied(trainer) + 1;
	for (unsigned i = 0; i < STATES; i++)
		for (size_t k = 0; k < state_bytes[i]; k++)
			trainer->data[i][k]++;
	memcpy(trainer->data[0], &rounds, sizeof(rounds));
}

static void check_state(const struct trainer *trainer)
{
	uint64_t rounds = applied(trainer);
	for (unsigned i = 0; i < STATES; i++)
		for (size_t k = i == 0 ? sizeof(rounds) : 0; k < state_bytes[i]; k++)
			if (trainer->data[i][k] != (uint8_t)(k * 31 + i + rounds))
				fail_msg("byte %zu of tensor %u is wrong after %lu rounds", k, i,
				    (unsigned long)rounds);
}

static tr_status trainer_open(struct trainer *trainer, struct tr_round *round,
    struct tr_error *error)
{
	tr_status st = tr_round_begin(trainer->host->group, round, error);
	if (st != TR_OK)
		return st;
	*trainer->value = 1;
	return tr_allreduce(trainer->host->group, 7, trainer->value, 1, TR_F64, TR_SUM,
	    round->index < round->contributors ? TR_CONTRIBUTE : 0, error);
}

static tr_status trainer_round(struct trainer *trainer, struct tr_error *error)
{
	struct tr_round round;
	tr_status st = trainer_open(trainer, &round, error);
	struct fx *fx = trainer->host->fx;
	if (st == TR_OK) {
		pthread_mutex_lock(&fx->lock);
		if (trainer->first.round == 0)
			trainer->first = round;
		pthread_mutex_unlock(&fx->lock);
	}
	if (st == TR_OK && round.receive_state)
		st = tr_state_receive(trainer->host->group, error);
	/* A thread that starts late finds its state here when it begins, and need not ask for it. */
	if (st == TR_OK && !trainer->filled && trainer->received_in == 0) {
		pthread_mutex_lock(&fx->lock);
		trainer->received_in = applied(trainer) + 1 == round.round ? round.round
		                                                           : UINT64_MAX;
		pthread_mutex_unlock(&fx->lock);
	}
	if (st == TR_OK)
		st = tr_round_commit(trainer->host->group, NULL, &round, error);
	if (st == TR_OK)
		apply(trainer);
	return st;
}

static void *trainer_run(void *arg)
{
	struct trainer *trainer = arg;
	struct fx *fx = trainer->host->fx;
	for (;;) {
		struct tr_error error = { 0 };
		tr_status st = trainer_round(trainer, &error);
		pthread_mutex_lock(&fx->lock);
		trainer->status = st;
		trainer->error = error;
		trainer->done += st == TR_OK;
		pthread_cond_broadcast(&fx->changed);
		pthread_mutex_unlock(&fx->lock);
		if (st != TR_OK && st != TR_ERESTART)
			return NULL;
	}
}

static void trainer_start(struct trainer *trainer)
{
	assert_int_equal(pthread_create(&trainer->thread, NULL, trainer_run, trainer), 0);
	trainer->runs = true;
}

/* Peers 10 and 11 train by themselves; 12 is the test's own thread, and dies; 13 follows it behind the same engine, and 14
 * that one. */
struct scene {
	struct fx *fx;
	struct frame_proxy proxy; /* in front of the engine of 12 and 13 */
	struct trainer trainers[5];
	uint64_t died_with; /* its state: that after this round */
};

static struct scene *scene_start(unsigned rounds)
{
	struct scene *s = calloc(1, sizeof(*s));
	struct tr_error error = { 0 };
	assert_non_null(s);
	s->fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fp_start(&s->proxy, &s->fx->hosts[2], (struct fp_harm){ 0 });
	for (unsigned i = 0; i < 3; i++)
		trainer_attach(&s->trainers[i], &s->fx->hosts[i], true);
	for (unsigned i = 0; i < 2; i++)
		trainer_start(&s->trainers[i]);
	fx_found(s->fx, 3);
	for (unsigned i = 0; i < rounds; i++)
		if (trainer_round(&s->trainers[2], &error) != TR_OK)
			fail_msg("%s", error.text);
	s->died_with = rounds;
	return s;
}

/* What a kill does to the channel: its end. The round that the others are in cannot be committed without it. */
static void die(struct scene *s, unsigned who)
{
	struct fx_host *host = &s->fx->hosts[who];
	tr_group_leave(host->group);
	host->group = NULL;
	FX_WAIT(s->fx, host->gone);
	engine_remove(host->engine, FX_GROUP, FX_PEER(who), "its worker died");
}

static void follow_as(struct scene *s, unsigned who)
{
	fx_share(s->fx, who, &s->fx->hosts[2]);
	trainer_attach(&s->trainers[who], &s->fx->hosts[who], false);
	FX_WAIT(s->fx, s->fx->hosts[who].ready);
}

static void follow(struct scene *s)
{
	follow_as(s, 3);
}

/* The follower trains with the others, on the right state, and nobody else was lost. */
static void go_on(struct scene *s)
{
	const bool members[FX_HOSTS_MAX] = { true, true, false, true };
	struct trainer *follower = &s->trainers[3];
	trainer_start(follower);
	fx_change_view(s->fx, members);
	FX_WAIT(s->fx, follower->done >= 3);
	assert_true(follower->received_in != 0 && follower->received_in != UINT64_MAX);
	for (unsigned i = 0; i < 2; i++) {
		FX_IS(s->fx, s->fx->hosts[i].failed == TR_OK);
		assert_int_equal(s->trainers[i].status, TR_OK);
	}
}

static void scene_stop(struct scene *s)
{
	fp_stop(&s->proxy);
	for (unsigned i = 0; i < 3; i++)
		fx_host_stop(&s->fx->hosts[i]);
	for (unsigned i = 0; i < 5; i++)
		if (s->trainers[i].runs)
			assert_int_equal(pthread_join(s->trainers[i].thread, NULL), 0);
	for (unsigned i = 0; i < 5; i++)
		if (s->trainers[i].runs)
			check_state(&s->trainers[i]);
	fx_stop(s->fx);
	free(s);
}

static void dead_in_mid_round(struct scene *s)
{
	struct tr_error error = { 0 };
	struct tr_round round;
	assert_int_equal(trainer_open(&s->trainers[2], &round, &error), TR_OK);
	assert_int_equal(round.round, s->died_with + 1);
}

static void state_is_taken_from_what_was_left(void **state)
{
	(void)state;
	struct scene *s = scene_start(4);
	dead_in_mid_round(s);
	die(s, 2);
	FX_IS(s->fx, s->fx->hosts[2].words->state_left);
	follow(s);
	FX_IS(s->fx, s->fx->hosts[3].left_next == 5);
	go_on(s);
	/* It took part in the very round in which the other had died. */
	assert_int_equal(s->trainers[3].received_in, 5);
	assert_int_equal(s->trainers[3].first.round, 5);
	FX_WAIT(s->fx, s->fx->hosts[3].events > 0);
	FX_IS(s->fx,
	    strstr(s->fx->hosts[3].event,
	        "worker of rank 3 restarted on host from its own memory (round 4, 4.4 MB, no "
	        "network)") != NULL);
	struct fp_harm seen = fp_harm_now(&s->proxy);
	assert_int_equal(seen.states, 0);
	assert_true(seen.begins >= 1);
	scene_stop(s);
}

/* One bit of what it left is not what the others have. */
static void damage_is_found_and_named(void **state)
{
	(void)state;
	struct scene *s = scene_start(2);
	dead_in_mid_round(s);
	s->trainers[2].data[2][state_bytes[2] - 1] ^= 4;
	die(s, 2);
	follow(s);
	FX_IS(s->fx, s->fx->hosts[3].left_next == 3);
	go_on(s);
	assert_int_equal(s->trainers[3].received_in, 3);
	FX_WAIT(s->fx, s->fx->hosts[3].events > 0);
	FX_IS(s->fx,
	    strstr(s->fx->hosts[3].event,
	        "the crashed worker's memory was damaged in state \"tensor 2\": fetching it from "
	        "peer p10") != NULL);
	/* That tensor's chunks, and no others. */
	assert_int_equal(fp_harm_now(&s->proxy).states,
	    (state_bytes[2] + TR_STATE_CHUNK_BYTES - 1) / TR_STATE_CHUNK_BYTES);
	scene_stop(s);
}

/* It was told that the round is committed: it may have been in the middle of applying it. */
static void a_state_that_may_be_half_changed_is_not_kept(void **state)
{
	(void)state;
	struct scene *s = scene_start(3);
	die(s, 2);
	FX_IS(s->fx, !s->fx->hosts[2].words->state_left);
	follow(s);
	FX_IS(s->fx, s->fx->hosts[3].left_next == 0);
	go_on(s);
	assert_true(fp_harm_now(&s->proxy).states > 0);
	FX_IS(s->fx, s->fx->hosts[3].events == 0);
	scene_stop(s);
}

/* The others went on without it: its state is old, and nobody looks at it. */
static void an_old_state_is_not_used(void **state)
{
	(void)state;
	struct scene *s = scene_start(3);
	const bool two[FX_HOSTS_MAX] = { true, true };
	dead_in_mid_round(s);
	die(s, 2);
	fx_change_view(s->fx, two);
	FX_WAIT(s->fx, s->trainers[0].done >= 6 && s->trainers[1].done >= 6);
	follow(s);
	FX_IS(s->fx, s->fx->hosts[3].left_next == 4);
	go_on(s);
	assert_true(s->trainers[3].received_in > 5);
	assert_true(fp_harm_now(&s->proxy).states > 0);
	FX_IS(s->fx, s->fx->hosts[3].events == 0);
	scene_stop(s);
}

static void group_is_over(struct scene *s, uint64_t group)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__GroupOver over = TRAIND__PEER__GROUP_OVER__INIT;
	over.group = group;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_GROUP_OVER;
	message.group_over = &over;
	engine_to_node(s->fx->hosts[2].engine, &message);
}

/* Nobody will follow, and the memory goes at once. */
static void what_was_left_goes_with_its_group(void **state)
{
	(void)state;
	struct scene *s = scene_start(2);
	dead_in_mid_round(s);
	die(s, 2);
	FX_IS(s->fx, s->fx->hosts[2].words->state_left);
	group_is_over(s, FX_GROUP);
	follow(s);
	FX_IS(s->fx, s->fx->hosts[3].left_next == 0);
	scene_stop(s);
}

/* One that was placed to follow took it, and dies without having used it. */
static void what_was_claimed_goes_with_its_group(void **state)
{
	(void)state;
	struct scene *s = scene_start(2);
	dead_in_mid_round(s);
	die(s, 2);
	group_is_over(s, FX_GROUP + 1);
	follow(s);
	FX_IS(s->fx, s->fx->hosts[3].left_next == 3);
	group_is_over(s, FX_GROUP);
	die(s, 3);
	follow_as(s, 4);
	FX_IS(s->fx, s->fx->hosts[4].left_next == 0);
	scene_stop(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(state_is_taken_from_what_was_left),
		cmocka_unit_test(damage_is_found_and_named),
		cmocka_unit_test(a_state_that_may_be_half_changed_is_not_kept),
		cmocka_unit_test(an_old_state_is_not_used),
		cmocka_unit_test(what_was_left_goes_with_its_group),
		cmocka_unit_test(what_was_claimed_goes_with_its_group),
	};
	return cmocka_run_group_tests_name("engine restart", tests, NULL, NULL);
}
