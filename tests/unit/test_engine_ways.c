/* What a process says of long ways when it has none any more, and a link that is lost while one of its connections is on its way out. */
#include "collectives/core/member.h"
#include "collectives/engine/peer_link.h"
#include "tests/unit/engine_caller.h"
#include "tests/unit/frame_proxy.h"

#define RTT_US      100000
#define FAR_BYTES_S 1e6

static struct member *member_of(const struct fx_host *host)
{
	struct member *member = engine_find(host->engine, FX_GROUP, FX_PEER(host->index));
	assert_non_null(member);
	return member;
}

/* As after rounds with somebody far. */
static void have_measured(const struct fx_host *host)
{
	pthread_mutex_lock(&host->engine->turn);
	host->engine->gauge.rtt_us = RTT_US;
	host->engine->gauge.up.bytes_per_s = host->engine->gauge.down.bytes_per_s = FAR_BYTES_S;
	pthread_mutex_unlock(&host->engine->turn);
}

/* The one who was far has left: those who stay are next to one another, and choose algorithms by that. They went by its way for ever. */
static void who_is_near_does_not_go_by_a_way_that_is_no_more(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
	struct caller callers[2];
	for (unsigned i = 0; i < 2; i++) {
		have_measured(&fx->hosts[i]);
		caller_start(&callers[i], &fx->hosts[i], 3, 0);
	}
	fx_found(fx, 2);
	callers_succeed(callers, 2);
	struct tr_op op = TR_OP_INIT;
	enum tr_algorithm algorithm;
	char text[TR_ERROR_TEXT_MAX];
	op.count = 1 << 20;
	assert_int_equal(tr_explain(fx->hosts[0].group, &op, &algorithm, text, sizeof(text), NULL),
	    TR_OK);
	if (strstr(text, "0.05 ms one way, 1e+03 MB/s") == NULL)
		fail_msg("%s", text);
	fx_stop(fx);
}

static void tell(struct member *member, bool distant, uint32_t latency_us, uint64_t bytes_per_s)
{
	member->links->distant = distant;
	gauge_tell(member);
	assert_int_equal(member->core->measured.latency_us, latency_us);
	assert_int_equal(member->core->measured.bandwidth_bytes_per_s, bytes_per_s);
}

static void who_has_a_long_way_says_what_it_is(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[2];
	struct engine *engine = fx->hosts[0].engine;
	for (unsigned i = 0; i < 2; i++)
		caller_start(&callers[i], &fx->hosts[i], 1, 0);
	fx_found(fx, 2);
	callers_succeed(callers, 2);
	have_measured(&fx->hosts[0]);
	pthread_mutex_lock(&engine->turn);
	struct member *member = member_of(&fx->hosts[0]);
	assert_non_null(member->links);
	assert_null(member->links->next);
	tell(member, true, RTT_US / 2, (uint64_t)FAR_BYTES_S);
	assert_true(gauge_is_far(engine));
	double known = engine_bandwidth(engine);
	engine_learn_bandwidth(engine, 8e9);
	assert_true(engine_bandwidth(engine) == known);
	tell(member, false, 0, 0);
	engine_learn_bandwidth(engine, 8e9); /* a burst of one that is near */
	assert_true(engine_bandwidth(engine) > known);
	pthread_mutex_unlock(&engine->turn);
	fx_stop(fx);
}

/* ---- a peer by hand ---- */

static int await_dial(int port, int wait_ms)
{
	struct pollfd wait = { .fd = port, .events = POLLIN };
	return poll(&wait, 1, wait_ms) == 1 ? accept(port, NULL, NULL) : -1;
}

/* Gives back the second of two connections, until all that went over it has come and it waits for its other end to close, which does not. */
static void retire_second(struct fx_host *host)
{
	struct engine *engine = host->engine;
	for (unsigned tries = 0, up = 2; up > 1; tries++) {
		assert_true(tries < 1000 * FX_DEADLINE_S);
		pthread_mutex_lock(&engine->turn);
		struct peer_link *link = member_of(host)->links;
		engine->pulse.interval_ms = TR_HEARTBEAT_INTERVAL_MS; /* without a timer */
		link->stripe.lanes = 1;
		peer_link_look(member_of(host));
		up = 0;
		for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
			up += pl->up;
		pthread_mutex_unlock(&engine->turn);
		(void)uv_async_send(&engine->wake);
		(void)usleep(1000);
	}
}

/* It was dialled again when the other connection's time to end was over: two seconds, and after one its peer is given up. */
static void a_lost_link_does_not_wait_for_a_connection_that_ends(void **state)
{
	(void)state;
	const struct engine_links links = { .transport = TR_TRANSPORT_TCP, .sockets = 2 };
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int port = fx_hand_port(&fx->hosts[1], 3);
	assert_int_equal(engine_set_links(fx->hosts[0].engine, &links, NULL), TR_OK);
	fx_found_alone(fx, 2);
	int oldest = await_dial(port, 1000 * FX_DEADLINE_S);
	int newest = await_dial(port, 1000 * FX_DEADLINE_S);
	assert_true(oldest >= 0 && newest >= 0);
	retire_second(&fx->hosts[0]);
	(void)close(oldest);
	int again = await_dial(port, TR_CONN_FINISH_TIMEOUT_MS / 2);
	assert_true(again >= 0);
	(void)close(again);
	(void)close(newest);
	(void)close(port);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_near_does_not_go_by_a_way_that_is_no_more),
		cmocka_unit_test(who_has_a_long_way_says_what_it_is),
		cmocka_unit_test(a_lost_link_does_not_wait_for_a_connection_that_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
