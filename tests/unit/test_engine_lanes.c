/* Links of several connections: results are exact, and a lost connection is not a lost peer. */
#include "collectives/engine/inbound.h"
#include "tests/unit/lane_hands.h"
#include "tests/unit/tls_files.h"

#define SOCKETS 4
#define ROUNDS  6
#define COUNT   (3u << 20) /* 12 MiB: 48 segments */

struct caller {
	struct fx_host *host;
	pthread_t thread;
	float *data;
	bool armed;    /* under fx->lock: goes on after the first round */
	unsigned done; /* rounds, likewise */
	unsigned wrong;
	tr_status status;
	struct tr_error error;
};

static float contribution(unsigned index, uint64_t round, size_t element)
{
	return (float)((index * 7 + round * 13 + element % 1009) % 64);
}

static void caller_check(struct caller *caller, uint64_t round)
{
	unsigned peers = caller->host->fx->count;
	for (size_t e = 0; e < COUNT; e += 127) {
		float sum = 0;
		for (unsigned i = 0; i < peers; i++)
			sum += contribution(i, round, e);
		caller->wrong += sum != caller->data[e];
	}
}

static void caller_wait(struct caller *caller, uint64_t round)
{
	struct fx *fx = caller->host->fx;
	pthread_mutex_lock(&fx->lock);
	caller->done++;
	pthread_cond_broadcast(&fx->changed);
	while (round == 1 && !caller->armed)
		pthread_cond_wait(&fx->changed, &fx->lock);
	pthread_mutex_unlock(&fx->lock);
}

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	tr_group *group = caller->host->group;
	struct tr_commit commit = { .samples = 1 };
	struct tr_round round;
	for (unsigned i = 0; i < ROUNDS && caller->status == TR_OK; i++) {
		caller->status = tr_round_begin(group, &round, &caller->error);
		if (caller->status != TR_OK)
			break;
		for (size_t e = 0; e < COUNT; e++)
			caller->data[e] = contribution(caller->host->index, round.round, e);
		caller->status = tr_allreduce(group, 0, caller->data, COUNT, TR_F32, TR_SUM,
		    TR_CONTRIBUTE, &caller->error);
		if (caller->status == TR_OK)
			caller->status = tr_round_commit(group, &commit, &round, &caller->error);
		caller_check(caller, round.round);
		caller_wait(caller, round.round);
	}
	return NULL;
}

static void caller_start(struct caller *caller, struct fx_host *host)
{
	const struct engine_links links = { .transport = TR_TRANSPORT_TCP,
		.sockets = SOCKETS,
		.tls = fx_tls };
	*caller = (struct caller){ .host = host };
	assert_int_equal(engine_set_links(host->engine, &links, NULL), TR_OK);
	fx_attach(host);
	caller->data = tr_alloc(host->group, COUNT * sizeof(float));
	assert_non_null(caller->data);
	assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
	assert_int_equal(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

/* Connections from the peer that have said hello. */
static unsigned lanes_from(const struct fx_host *to, uint64_t from)
{
	struct member *member = engine_find(to->engine, to->fx->group, FX_PEER(to->index));
	unsigned known = 0;
	pthread_mutex_lock(&to->engine->turn);
	for (const struct inbound *in = member->inbound; in != NULL; in = in->next)
		known += in->from == from && in->link != NULL;
	pthread_mutex_unlock(&to->engine->turn);
	return known;
}

static void await_lanes(const struct fx_host *to, uint64_t from, unsigned count)
{
	for (unsigned tries = 0; lanes_from(to, from) != count; tries++) {
		assert_true(tries < 1000 * FX_DEADLINE_S);
		(void)usleep(1000);
	}
}

/* Breaks `cut` of the SOCKETS connections from one host to the other once the other knows all of them: while it knows no other, the last
 * one is the peer. Nobody else dials that host; those that were dialled have its port at their other end. */
static void break_sockets(const struct fx_host *from, const struct fx_host *to, unsigned cut)
{
	int port = atoi(strrchr(to->address, ':') + 1);
	await_lanes(to, FX_PEER(from->index), SOCKETS);
	for (int fd = 3; fd < 1024 && cut > 0; fd++) {
		struct sockaddr_in in = { 0 };
		socklen_t length = sizeof(in);
		if (getpeername(fd, (struct sockaddr *)&in, &length) != 0 ||
		    in.sin_family != AF_INET || ntohs(in.sin_port) != port)
			continue;
		assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
		cut--;
	}
	assert_int_equal(cut, 0);
}

/* All their rounds were right; the bytes that were sent again. */
static uint64_t callers_end(struct fx *fx, struct caller *callers, unsigned peers)
{
	uint64_t resent = 0;
	for (unsigned i = 0; i < peers; i++) {
		struct tr_stats stats = TR_STATS_INIT;
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		if (callers[i].status != TR_OK)
			fail_msg("peer %u: %s", i, callers[i].error.text);
		assert_int_equal(callers[i].wrong, 0);
		assert_int_equal(callers[i].done, ROUNDS);
		pthread_mutex_lock(&fx->lock);
		if (fx->hosts[i].link_lost != 0)
			fail_msg("peer %u lost a link: %s", i, fx->hosts[i].link_lost_reason);
		pthread_mutex_unlock(&fx->lock);
		assert_int_equal(tr_stats_get(fx->hosts[i].group, &stats, NULL), TR_OK);
		resent += stats.resent_bytes;
	}
	return resent;
}

/* `cut` connections to host 1 break in the middle of what they carry, in the rounds after the first. */
static void rounds_over_lanes(Traind__Peer__Algorithm algorithm, unsigned peers, unsigned cut)
{
	struct fx *fx = fx_start(peers, TRAIND__PEER__POLICY__POLICY_REPLAY, algorithm);
	struct frame_proxy proxy;
	struct caller callers[FX_HOSTS_MAX];
	if (fx_tls == NULL) /* it reads frames */
		fp_start(&proxy, &fx->hosts[1], (struct fp_harm){ 0 });
	for (unsigned i = 0; i < peers; i++)
		caller_start(&callers[i], &fx->hosts[i]);
	fx_found(fx, peers);
	for (unsigned i = 0; i < peers; i++)
		FX_WAIT(fx, callers[i].done >= 1);
	if (fx_tls == NULL)
		FX_WAIT(fx, proxy.harm.greeted >= SOCKETS);
	else if (cut > 0)
		break_sockets(&fx->hosts[0], &fx->hosts[1], cut);
	pthread_mutex_lock(&fx->lock);
	if (fx_tls == NULL)
		proxy.harm.cut_lanes = cut;
	for (unsigned i = 0; i < peers; i++)
		callers[i].armed = true;
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
	uint64_t resent = callers_end(fx, callers, peers);
	if (fx_tls == NULL) {
		assert_int_equal(resent > 0, cut > 0);
		FX_IS(fx, proxy.harm.cut_lanes == 0); /* they were cut indeed */
		fp_stop(&proxy);                      /* it uses the fixture's lock */
	}
	fx_stop(fx);
}

static void results_are_exact(void **state)
{
	(void)state;
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 3, 0);
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 3, 0);
}

static void a_lost_lane_is_not_a_lost_peer(void **state)
{
	(void)state;
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 2, 1);
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 2, SOCKETS - 1);
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 2, 2);
}

static void the_same_with_tls(void **state)
{
	struct tls_files files;
	(void)state;
	tls_files_make(&files);
	fx_tls = tls_files_node(&files, "host");
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 3, 0);
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 3, 0);
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 2, 1);
	rounds_over_lanes(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 2, SOCKETS - 1);
	tls_context_release(fx_tls);
	tls_files_end(&files);
}

/* Also when it failed: the tests after it speak by hand. */
static int without_tls(void **state)
{
	(void)state;
	fx_tls = NULL;
	return 0;
}

/* ---- a peer by hand ---- */

static void await_question(int fd, uint32_t lane)
{
	Traind__Peer__PeerMessage *message = take_message(fd);
	assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST);
	assert_int_equal(message->lane_lost->lane, lane);
	traind__peer__peer_message__free_unpacked(message, NULL);
}

static void say_lost(int fd, uint32_t lane)
{
	Traind__Peer__LaneLost lost = TRAIND__PEER__LANE_LOST__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	lost.lane = lane;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST;
	message.lane_lost = &lost;
	say(fd, &message);
}

static void await_ended(int fd, uint32_t lane)
{
	Traind__Peer__PeerMessage *message = take_message(fd);
	assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_LANE_RECEIVED);
	assert_int_equal(message->lane_received->lane, lane);
	assert_int_equal(message->lane_received->frames, 0);
	assert_true(message->lane_received->ended);
	traind__peer__peer_message__free_unpacked(message, NULL);
}

/* What it has been told never came goes out again on another lane: it must not come after all. */
static void a_lane_that_was_given_up_does_not_come_after_all(void **state)
{
	(void)state;
	struct fx *fx = begin_beside_a_hand();
	uint8_t byte;
	int alive = dial_lane(fx, 0);
	say_lost(alive, 1);
	await_ended(alive, 1);
	say_lost(alive, 1); /* as often as it asks */
	await_ended(alive, 1);
	int late = dial_lane(fx, 1), other = dial_lane(fx, 2);
	say_lost(late, 5);
	say_lost(other, 6);
	await_ended(other, 6);
	struct pollfd wait = { .fd = late, .events = POLLIN };
	assert_int_equal(poll(&wait, 1, 1000 * FX_DEADLINE_S), 1);
	assert_true(recv(late, &byte, 1, 0) <= 0);
	(void)close(late);
	(void)close(other);
	(void)close(alive);
	fx_stop(fx);
}

/* Nothing of the view has come on any lane yet: the sender, which has sent something, waits for the word all the same. It waited for ever,
 * since the end of a lane on which there was nothing to lose was told to nobody. */
static void the_end_of_a_lane_is_told_when_nothing_came(void **state)
{
	(void)state;
	struct fx *fx = begin_beside_a_hand();
	int asked = dial_lane(fx, 0), broken = dial_lane(fx, 1);
	await_lanes(&fx->hosts[0], FX_PEER(1), 2);
	int alive = dial_lane(fx, 2); /* the newest one is told */
	await_lanes(&fx->hosts[0], FX_PEER(1), 3);
	say_lost(alive, 0);
	await_ended(alive, 0);
	(void)close(broken);
	await_ended(alive, 1);
	await_lanes(&fx->hosts[0], FX_PEER(1), 1);
	FX_IS(fx, fx->hosts[0].link_lost == 0);
	(void)close(asked);
	(void)close(alive);
	fx_stop(fx);
}

/* What came on a lost lane was asked on another one, which the peer gave up before it read the question. */
static void what_came_is_asked_again(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int lanes[3], port = take_lanes(fx, lanes);
	(void)close(lanes[2]);
	await_question(lanes[0], 2);
	say_received(lanes[1], 0, true);
	await_question(lanes[1], 2);
	(void)close(lanes[0]);
	(void)close(lanes[1]);
	(void)close(port);
	fx_stop(fx);
}

static void too_many_are_refused(void **state)
{
	struct tr_error error = { 0 };
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
	const struct engine_links many = { .sockets = TR_LANES_MAX + 1 };
	const struct engine_links unknown = { .congestion = "no-such-thing" };
	(void)state;
	assert_int_equal(engine_set_links(fx->hosts[0].engine, &many, &error), TR_EINVAL);
	assert_string_equal(error.text, "sockets 33, allowed: 0 (by the link) to 32");
	assert_int_equal(engine_set_links(fx->hosts[0].engine, &unknown, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "congestion no-such-thing"));
	fx_attach(&fx->hosts[0]);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(results_are_exact),
		cmocka_unit_test(a_lost_lane_is_not_a_lost_peer),
		cmocka_unit_test_teardown(the_same_with_tls, without_tls),
		cmocka_unit_test(what_came_is_asked_again),
		cmocka_unit_test(a_lane_that_was_given_up_does_not_come_after_all),
		cmocka_unit_test(the_end_of_a_lane_is_told_when_nothing_came),
		cmocka_unit_test(too_many_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
