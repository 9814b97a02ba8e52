/* Signs of life of links of several connections: how many are said, and what silence is held against. */
#include <linux/filter.h>

#include "collectives/engine/inbound.h"
#include "collectives/engine/peer_link.h"
#include "tests/unit/lane_hands.h"

static struct member *member_of(const struct fx *fx)
{
	struct member *member = engine_find(fx->hosts[0].engine, FX_GROUP, FX_PEER(0));
	assert_non_null(member);
	return member;
}

static void look(const struct fx *fx, uint32_t interval_ms)
{
	struct engine *engine = fx->hosts[0].engine;
	pthread_mutex_lock(&engine->turn);
	engine->pulse.interval_ms = interval_ms; /* without a timer */
	peer_link_look(member_of(fx));
	pthread_mutex_unlock(&engine->turn);
	(void)uv_async_send(&engine->wake);
}

/* All lanes' ends of ours close; nothing more was said on them. */
static void nothing_more(const int lanes[3])
{
	for (unsigned i = 0; i < 3; i++) {
		struct pollfd wait = { .fd = lanes[i], .events = POLLIN };
		if (poll(&wait, 1, 0) != 0) {
			Traind__Peer__PeerMessage *more = take_message(lanes[i]);
			fail_msg("lane %u says more: %d", i, (int)more->body_case);
		}
	}
	for (unsigned i = 0; i < 3; i++) /* of which the others are told */
		(void)close(lanes[i]);
}

/* Until all that was said has an answer from the other end's kernel. */
static void await_answers(const struct fx *fx)
{
	struct engine *engine = fx->hosts[0].engine;
	for (unsigned tries = 0, waits = 1; waits > 0; tries++) {
		assert_true(tries < 1000 * FX_DEADLINE_S);
		waits = 0;
		pthread_mutex_lock(&engine->turn);
		for (const struct peer_lane *pl = member_of(fx)->links->lanes; pl != NULL;
		     pl = pl->next) {
			struct lane_counters counters;
			struct lane_path path;
			lane_counters(pl->lane, &counters);
			lane_path(pl->lane, &path);
			waits += lane_unsent(pl->lane) > 0 || path.acked_bytes < counters.bytes_out;
		}
		pthread_mutex_unlock(&engine->turn);
		(void)usleep(1000);
	}
}

/* Not FX_WAIT: that looks under the fixture's lock, which the engine takes within its turn. */
static void await_as_one(const struct fx *fx)
{
	struct engine *engine = fx->hosts[0].engine;
	bool as_one = false;
	for (unsigned tries = 0; !as_one; tries++) {
		assert_true(tries < 1000 * FX_DEADLINE_S);
		pthread_mutex_lock(&engine->turn);
		as_one = member_of(fx)->links->as_one;
		pthread_mutex_unlock(&engine->turn);
		(void)usleep(1000);
	}
}

/* One in a third of a timeout of the whole link, on each of its connections in turn, once the other end has said that it judges it so. */
static void a_link_that_is_judged_as_one_says_one_pulse(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int lanes[3], port = take_lanes(fx, lanes);
	say_received(lanes[0], 0, false);
	await_as_one(fx);
	look(fx, 0); /* the hellos have an answer from now on */
	for (unsigned i = 0; i < 12; i++) {
		await_answers(fx);
		look(fx, TR_HEARTBEAT_INTERVAL_MS);
	}
	for (unsigned i = 0; i < 6; i++) {
		Traind__Peer__PeerMessage *message = take_message(lanes[(i + 1) % 3]);
		assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_PULSE);
		traind__peer__peer_message__free_unpacked(message, NULL);
	}
	nothing_more(lanes);
	(void)close(port);
	fx_stop(fx);
}

/* Of three connections two at a look, so that each has one in 0.6 of a timeout, for an end that judges each by itself. */
static void pulses_take_turns(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int lanes[3], port = take_lanes(fx, lanes);
	look(fx, 0); /* each has said hello by then, and says nothing after it */
	for (unsigned i = 1; i < 9; i++) {
		if (i % 2 == 1)
			look(fx, TR_HEARTBEAT_INTERVAL_MS);
		Traind__Peer__PeerMessage *message = take_message(lanes[i % 3]);
		assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_PULSE);
		traind__peer__peer_message__free_unpacked(message, NULL);
	}
	nothing_more(lanes);
	(void)close(port);
	fx_stop(fx);
}

/* One whose way alone is cut: what is sent there has no answer, so it is closed, and the other end is asked what came of it. The peer is not lost, and nothing more is said on the others for it. */
static void what_is_sent_on_a_dead_connection_closes_it(void **state)
{
	(void)state;
	struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	const struct sock_fprog program = { .len = 1, .filter = nothing };
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int lanes[3], port = take_lanes(fx, lanes);
	Traind__Peer__PeerMessage *message;
	look(fx, 0);
	assert_int_equal(setsockopt(lanes[1], SOL_SOCKET, SO_ATTACH_FILTER, &program,
	                     sizeof(program)),
	    0);
	look(fx, TR_HEARTBEAT_INTERVAL_MS); /* a pulse there, and on the next */
	message = take_message(lanes[2]);
	assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_PULSE);
	traind__peer__peer_message__free_unpacked(message, NULL);
	message = take_message(lanes[0]);
	assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST);
	assert_int_equal(message->lane_lost->lane, 1);
	traind__peer__peer_message__free_unpacked(message, NULL);
	FX_IS(fx, fx->hosts[0].link_lost == 0);
	nothing_more(lanes);
	(void)close(port);
	fx_stop(fx);
}

/* Of its connections that were not closed for their silence. */
static unsigned judged(const struct fx *fx, uint64_t now_ms)
{
	struct engine *engine = fx->hosts[0].engine;
	unsigned heard = 0;
	pthread_mutex_lock(&engine->turn);
	struct member *member = member_of(fx);
	inbound_judge(member, now_ms, 0);
	for (const struct inbound *in = member->inbound; in != NULL; in = in->next)
		heard += !in->silent;
	pthread_mutex_unlock(&engine->turn);
	(void)uv_async_send(&engine->wake);
	return heard;
}

/* Until it has been read. */
static void say_pulse(const struct fx *fx, int fd, uint32_t lane)
{
	struct engine *engine = fx->hosts[0].engine;
	Traind__Peer__Pulse pulse = TRAIND__PEER__PULSE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	uint64_t came = 0, now;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_PULSE;
	message.pulse = &pulse;
	for (unsigned said = 0, tries = 0; said < 2; tries++) {
		pthread_mutex_lock(&engine->turn);
		now = 0;
		for (const struct inbound *in = member_of(fx)->inbound; in != NULL; in = in->next) {
			struct lane_counters counters;
			lane_counters(in->lane, &counters);
			if (in->number == lane && !in->silent)
				now = counters.bytes_in;
		}
		pthread_mutex_unlock(&engine->turn);
		if (said == 0 && now > 0) {
			say(fd, &message);
			came = now;
			said = 1;
		} else if (said == 1 && now > came) {
			said = 2;
		}
		assert_true(tries < 1000 * FX_DEADLINE_S);
		(void)usleep(1000);
	}
}

/* As long as something comes on one of its connections the link is heard, and so it is told; when nothing does, all of it goes, also if one of them has closed meanwhile. */
static void silence_is_of_the_link(void **state)
{
	(void)state;
	struct fx *fx = begin_beside_a_hand();
	struct engine *engine = fx->hosts[0].engine;
	int lanes[3];
	for (uint32_t i = 0; i < 3; i++)
		lanes[i] = dial_lane(fx, i);
	for (uint32_t i = 0; i < 3; i++)
		say_pulse(fx, lanes[i], i);
	uint64_t began_ms = uv_hrtime() / 1000000;
	pthread_mutex_lock(&engine->turn);
	uint64_t timeout_ms = pulse_member_timeout_ms(member_of(fx));
	pthread_mutex_unlock(&engine->turn);
	assert_int_equal(judged(fx, began_ms), 3);
	struct pollfd wait[3] = { { lanes[0], POLLIN, 0 }, { lanes[1], POLLIN, 0 },
		{ lanes[2], POLLIN, 0 } };
	assert_int_equal(poll(wait, 3, 1000 * FX_DEADLINE_S), 1);
	Traind__Peer__PeerMessage *told = take_message(lanes[wait[0].revents ? 0
	        : wait[1].revents                                            ? 1
	                                                                     : 2]);
	assert_int_equal(told->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_LANE_RECEIVED);
	assert_true(told->lane_received->as_one);
	traind__peer__peer_message__free_unpacked(told, NULL);
	assert_int_equal(judged(fx, began_ms + timeout_ms - 1), 3);
	say_pulse(fx, lanes[0], 0);
	assert_int_equal(judged(fx, began_ms + timeout_ms), 3);
	assert_int_equal(judged(fx, began_ms + 2 * timeout_ms - 1), 3);
	(void)close(lanes[2]);
	for (unsigned tries = 0; judged(fx, began_ms + 2 * timeout_ms - 1) != 2; tries++) {
		assert_true(tries < 1000 * FX_DEADLINE_S);
		(void)usleep(1000);
	}
	FX_IS(fx, fx->hosts[0].link_lost == 0);
	assert_int_equal(judged(fx, began_ms + 2 * timeout_ms), 0);
	FX_WAIT(fx, fx->hosts[0].link_lost == 1);
	for (unsigned i = 0; i < 2; i++)
		(void)close(lanes[i]);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_that_is_judged_as_one_says_one_pulse),
		cmocka_unit_test(pulses_take_turns),
		cmocka_unit_test(what_is_sent_on_a_dead_connection_closes_it),
		cmocka_unit_test(silence_is_of_the_link),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
