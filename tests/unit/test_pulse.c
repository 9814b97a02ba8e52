/* Signs of life between members: the arithmetic with a clock of our own, and engines with a way that is stopped or slow. */
#include "tests/unit/frame_proxy.h"

#include "collectives/engine/pulse.h"

static void any_byte_is_a_sign_of_life(void **state)
{
	struct pulse_ear ear = { 0 };
	(void)state;
	/* Nothing was promised: an idle connection says nothing. */
	assert_int_equal(pulse_ear_silent_ms(&ear, 10, true, 5000), 0);
	assert_int_equal(pulse_ear_silent_ms(&ear, 10, true, 9000), 0);
	pulse_ear_promise(&ear, 10000);
	assert_int_equal(pulse_ear_silent_ms(&ear, 10, true, 10000), 0);
	assert_int_equal(pulse_ear_silent_ms(&ear, 10, true, 10900), 900);
	pulse_ear_promise(&ear, 10900); /* no second promise */
	assert_int_equal(pulse_ear_silent_ms(&ear, 10, true, 10950), 950);
	assert_int_equal(pulse_ear_silent_ms(&ear, 11, true, 11000), 0);
	assert_int_equal(pulse_ear_silent_ms(&ear, 11, true, 12000), 1000);
}

/* Over a long way the answer to one heartbeat comes after the next ones have left. */
static void a_round_trip_may_be_longer_than_an_interval(void **state)
{
	struct pulse_echo echo = { 0 };
	(void)state;
	assert_int_equal(pulse_echo_heard(&echo, 0, 5), 0);
	assert_int_equal(pulse_echo_sent(&echo, 1000), 1);
	assert_int_equal(pulse_echo_sent(&echo, 201000), 2);
	assert_int_equal(pulse_echo_heard(&echo, 1, 301000), 300000);
	assert_int_equal(pulse_echo_sent(&echo, 401000), 3);
	assert_int_equal(pulse_echo_heard(&echo, 2, 501000), 300000);
	assert_int_equal(pulse_echo_heard(&echo, 4, 501000), 0); /* never sent */
	assert_int_equal(pulse_echo_heard(&echo, UINT64_MAX, 501000), 0);
	for (uint64_t i = 4; i <= 3 + PULSE_ECHOES; i++)
		assert_int_equal(pulse_echo_sent(&echo, i * 1000000), i);
	assert_int_equal(pulse_echo_heard(&echo, 3, 99000000), 0); /* too long ago */
	assert_int_equal(pulse_echo_heard(&echo, 4, 4000700), 700);
}

/* We do not read, since the core has no room: what we do not hear is not its fault. */
static void a_deaf_reader_accuses_nobody(void **state)
{
	struct pulse_ear ear = { 0 };
	(void)state;
	pulse_ear_promise(&ear, 1000);
	assert_int_equal(pulse_ear_silent_ms(&ear, 0, false, 4000), 0);
	assert_int_equal(pulse_ear_silent_ms(&ear, 0, true, 4600), 600);
	pulse_ear_excuse(&ear, 500);
	assert_int_equal(pulse_ear_silent_ms(&ear, 0, true, 4700), 200);
}

static void our_own_pause_is_noticed(void **state)
{
	struct pulse_clock clock = { 0 };
	(void)state;
	assert_int_equal(pulse_clock_look(&clock, 200, 1000, 50000), 0);
	assert_int_equal(pulse_clock_look(&clock, 200, 1000, 50200), 0);
	assert_int_equal(pulse_clock_look(&clock, 200, 1000, 50650), 0); /* a busy machine */
	assert_int_equal(pulse_clock_look(&clock, 200, 1000, 53850), 3000);
	assert_int_equal(pulse_clock_look(&clock, 200, 1000, 54050), 0);
}

static void long_ways_get_more_time(void **state)
{
	(void)state;
	assert_int_equal(pulse_timeout_ms(1000, 0), 1000);
	assert_int_equal(pulse_timeout_ms(1000, 50e-6), 1000);
	assert_int_equal(pulse_timeout_ms(1000, 0.15), 2400);
	assert_int_equal(pulse_timeout_ms(1000, -1), 1000);
	assert_int_equal(pulse_timeout_ms(1000, 1e300), 1000);
}

/* No more than it takes, and never more than 0.6 of a timeout between two of one connection, one missed turn included. */
static void turns_are_within_the_timeout(void **state)
{
	(void)state;
	assert_int_equal(pulse_turns(1, 200, 1000), 1);
	assert_int_equal(pulse_turns(4, 200, 1000), 2);
	assert_int_equal(pulse_turns(8, 200, 2400), 2);
	assert_int_equal(pulse_turns(4, 200, 200), 4);
	assert_int_equal(pulse_turns(4, 0, 1000), 1);
	for (unsigned lanes = 1; lanes <= TR_LANES_MAX; lanes++)
		for (uint64_t timeout_ms = 1000; timeout_ms <= 6000; timeout_ms += 100) {
			unsigned many = pulse_turns(lanes, 200, timeout_ms);
			unsigned looks = (lanes + many - 1) / many;
			assert_true(10 * 200 * (looks + 1) <= 6 * timeout_ms);
			looks = many > 1 ? (lanes + many - 2) / (many - 1) : UINT32_MAX / 8192;
			assert_true(10 * 200 * (looks + 1) > 6 * timeout_ms);
		}
}

/* Looks of a link whose pulses have an answer after a round trip, the last one at look `answered`. The longest time between two looks at which something was said, until all have to say it. */
static uint64_t longest_pause_ms(uint32_t rtt_us, uint64_t timeout_ms, unsigned answered,
    uint64_t *pulses)
{
	struct pulse_mouth mouth = { 0 };
	uint64_t acked = 1, due_us = UINT64_MAX, said_ms = 0, longest_ms = 0;
	for (unsigned look = 1;; look++) {
		uint64_t now_ms = 200 * (uint64_t)look;
		if (now_ms * 1000 >= due_us && look <= answered) {
			acked += 10;
			due_us = UINT64_MAX;
		}
		unsigned many = pulse_due(&mouth, acked, rtt_us, 200, timeout_ms);
		if (many == 0)
			continue;
		longest_ms = now_ms - said_ms > longest_ms ? now_ms - said_ms : longest_ms;
		if (many > 1)
			return look > answered ? now_ms - said_ms
			                       : UINT64_MAX; /* not while all is well */
		assert_true(2 * longest_ms <= timeout_ms || longest_ms <= 400);
		(*pulses)++;
		due_us = now_ms * 1000 + rtt_us;
		said_ms = look <= answered ? now_ms : said_ms;
	}
}

/* One in a third of a timeout; all that can still be said in time on connections that are not dead. */
static void a_link_is_heard_in_a_third_of_a_timeout(void **state)
{
	(void)state;
	for (uint32_t rtt_us = 100; rtt_us < 3000000; rtt_us += rtt_us / 3 + 1) {
		uint64_t timeout_ms = pulse_timeout_ms(1000, rtt_us / 2e6), pulses = 0;
		uint64_t pause_ms = longest_pause_ms(rtt_us, timeout_ms, 600, &pulses);
		assert_true(10 * pause_ms <= 8 * timeout_ms);
		assert_true(pulses >= 2 * 600 * 200 / timeout_ms);
		assert_true(pulses <= 6 * 600 * 200 / timeout_ms);
	}
}

/* ---- engines */

static void welcome(struct fx *fx, uint32_t interval_ms, uint32_t timeout_ms)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome body = TRAIND__PEER__WELCOME__INIT;
	body.node_id = 1;
	body.heartbeat_interval_ms = interval_ms;
	body.heartbeat_timeout_ms = timeout_ms;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &body;
	for (unsigned i = 0; i < fx->count; i++)
		engine_to_node(fx->hosts[i].engine, &message);
}

#define COUNT 32768u /* floats: one segment */

struct caller {
	struct fx_host *host;
	pthread_t thread;
	tr_status status;
	struct tr_error error;
};

static tr_status one_round(struct caller *caller)
{
	struct tr_round round;
	tr_group *group = caller->host->group;
	float *data = tr_alloc(group, COUNT * sizeof(float));
	tr_status st = tr_state_ready(group, 0, &caller->error);
	if (st == TR_OK)
		st = tr_round_begin(group, &round, &caller->error);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = 1;
	if (st == TR_OK)
		st = tr_allreduce(group, 0, data, COUNT, TR_F32, TR_SUM, TR_CONTRIBUTE,
		    &caller->error);
	if (st == TR_OK)
		st = tr_round_commit(group, NULL, &round, &caller->error);
	return st == TR_OK && data[COUNT - 1] != 2 ? TR_EDIGEST : st;
}

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	caller->status = one_round(caller);
	return NULL;
}

/* Two engines with pulses; the way to the second leads through the proxy. Both have committed a round when it returns. */
static struct fx *two_engines(struct frame_proxy *proxy, struct fp_harm harm)
{
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[2];
	fp_start(proxy, &fx->hosts[1], harm);
	welcome(fx, 50, 400);
	for (unsigned i = 0; i < 2; i++) {
		callers[i] = (struct caller){ .host = &fx->hosts[i] };
		fx_attach(&fx->hosts[i]);
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]),
		    0);
	}
	fx_found(fx, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		if (callers[i].status != TR_OK)
			fail_msg("%s", callers[i].error.text);
	}
	return fx;
}

/* The way to the second peer stops passing anything, with every connection open: the second hears nothing of the first. */
static void a_silent_peer_is_reported(void **state)
{
	(void)state;
	struct frame_proxy proxy;
	struct fx *fx = two_engines(&proxy, (struct fp_harm){ 0 });
	pthread_mutex_lock(&fx->lock);
	proxy.harm.deaf = true;
	pthread_mutex_unlock(&fx->lock);
	FX_WAIT(fx, strstr(fx->hosts[1].link_lost_reason, "silent for") != NULL);
	fp_stop(&proxy); /* it uses the fixture's lock */
	fx_stop(fx);
}

/* One segment takes several timeouts to pass, and nobody is accused. */
static void a_slow_peer_is_not(void **state)
{
	(void)state;
	struct frame_proxy proxy;
	struct fx *fx = two_engines(&proxy, (struct fp_harm){ .trickle = 2000 });
	pthread_mutex_lock(&fx->lock);
	assert_int_equal(fx->hosts[0].link_lost, 0);
	assert_int_equal(fx->hosts[1].link_lost, 0);
	pthread_mutex_unlock(&fx->lock);
	fp_stop(&proxy); /* it uses the fixture's lock */
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_round_trip_may_be_longer_than_an_interval),
		cmocka_unit_test(any_byte_is_a_sign_of_life),
		cmocka_unit_test(a_deaf_reader_accuses_nobody),
		cmocka_unit_test(our_own_pause_is_noticed),
		cmocka_unit_test(long_ways_get_more_time),
		cmocka_unit_test(turns_are_within_the_timeout),
		cmocka_unit_test(a_link_is_heard_in_a_third_of_a_timeout),
		cmocka_unit_test(a_silent_peer_is_reported),
		cmocka_unit_test(a_slow_peer_is_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
