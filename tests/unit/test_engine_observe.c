/* tr_explain, tr_stats_get, tr_links on real engines: what they say is what happened. */
#include "collectives/engine/engine_internal.h"
#include "proto/frame.h"
#include "tests/unit/engine_caller.h"

#define BYTES ((uint64_t)COUNT * sizeof(float))

static struct tr_stats stats_of(const struct fx_host *host)
{
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_error error = { 0 };
	if (tr_stats_get(host->group, &stats, &error) != TR_OK)
		fail_msg("%s", error.text);
	return stats;
}

static size_t links_of(const struct fx_host *host, struct tr_link *links, size_t max)
{
	struct tr_error error = { 0 };
	size_t count = 0;
	links[0] = (struct tr_link)TR_LINK_INIT;
	if (tr_links(host->group, links, max, &count, &error) != TR_OK)
		fail_msg("%s", error.text);
	return count;
}

static enum tr_algorithm explained(const struct fx_host *host, size_t count, char *text,
    size_t text_bytes)
{
	struct tr_op op = TR_OP_INIT;
	struct tr_error error = { 0 };
	enum tr_algorithm algorithm = TR_AUTO;
	op.count = count;
	if (tr_explain(host->group, &op, &algorithm, text, text_bytes, &error) != TR_OK)
		fail_msg("%s", error.text);
	return algorithm;
}

static struct fx *start(unsigned peers, bool near, bool driving, Traind__Peer__Policy policy,
    Traind__Peer__Algorithm algorithm)
{
	struct fx *fx = fx_start(peers, policy, algorithm);
	fx->near = near;
	fx->driving = driving;
	return fx;
}

static void run(struct fx *fx, struct caller *callers, unsigned rounds)
{
	for (unsigned i = 0; i < fx->count; i++)
		caller_start(&callers[i], &fx->hosts[i], rounds, 0);
	fx_found(fx, fx->count);
	callers_succeed(callers, fx->count);
}

/* ---- before there is a view ---- */

struct begin {
	tr_group *group;
	tr_status status;
};

static void *begin_run(void *arg)
{
	struct begin *begin = arg;
	struct tr_round round;
	begin->status = tr_round_begin(begin->group, &round, NULL);
	return NULL;
}

/* Another thread of the caller's process may ask while it waits. What it has waited counts while it waits, for heartbeats too. */
static void waits_for_a_view(bool driving)
{
	struct fx *fx = start(1, false, driving, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
	struct fx_host *host = &fx->hosts[0];
	struct tr_error error = { 0 };
	struct tr_op op = TR_OP_INIT;
	struct tr_link link = TR_LINK_INIT;
	char text[256];
	size_t count = 77;
	pthread_t thread;
	fx_attach(host);
	assert_int_equal(tr_state_ready(host->group, 0, &error), TR_OK);
	struct begin begin = { host->group, TR_EINTERNAL };
	assert_int_equal(pthread_create(&thread, NULL, begin_run, &begin), 0);
	assert_int_equal(tr_explain(host->group, &op, NULL, text, sizeof(text), &error),
	    TR_EUNAVAILABLE);
	assert_string_equal(error.text, "the group is in no view yet");
	assert_int_equal(tr_links(host->group, &link, 1, &count, &error), TR_EUNAVAILABLE);
	assert_string_equal(error.text, "the group is in no view yet");
	assert_int_equal(count, 77);
	struct tr_stats stats = stats_of(host);
	assert_int_equal(stats.view, 0);
	assert_int_equal(stats.peers, 0);
	assert_int_equal(stats.rounds, 0);
	for (unsigned tries = 0; stats_of(host).waited_us == 0; tries++) {
		assert_true(tries < 60000);
		(void)usleep(1000);
	}
	struct engine_progress row;
	uint64_t waited_us = stats_of(host).waited_us;
	assert_int_equal(engine_progress(host->engine, &row, 1), 1);
	assert_true(row.waited_us >= waited_us);
	fx_found(fx, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(begin.status, TR_OK);
	stats = stats_of(host);
	assert_true(stats.waited_us >= row.waited_us);
	waited_us = stats.waited_us;
	(void)usleep(1000);
	assert_int_equal(stats_of(host).waited_us, waited_us); /* nothing waits any more */
	assert_int_equal(stats.view, 1);
	assert_int_equal(stats.peers, 1);
	assert_int_equal(links_of(host, &link, 1), 0);
	assert_int_equal(explained(host, 1000, text, sizeof(text)), TR_RING);
	assert_string_equal(text, "ring: nobody to talk to");
	fx_stop(fx);
}

static void without_a_view(void **state)
{
	(void)state;
	for (int driving = 0; driving < 2; driving++)
		waits_for_a_view(driving != 0);
}

/* ---- rounds ---- */

#define ROUNDS 4

/* Of an all-reduce among two every peer sends half of its input and half of the result. */
static void bytes_over_tcp(void **state)
{
	(void)state;
	for (int driving = 0; driving < 2; driving++) {
		struct fx *fx = start(2, false, driving != 0, TRAIND__PEER__POLICY__POLICY_KEEP,
		    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
		struct caller callers[2];
		struct tr_stats stats[2];
		run(fx, callers, ROUNDS);
		for (unsigned i = 0; i < 2; i++) {
			struct tr_link links[2];
			stats[i] = stats_of(&fx->hosts[i]);
			assert_int_equal(stats[i].size_of, sizeof(struct tr_stats));
			assert_int_equal(stats[i].view, 1);
			assert_int_equal(stats[i].views, 1);
			assert_int_equal(stats[i].peers, 2);
			assert_int_equal(stats[i].peers_lost, 0);
			assert_int_equal(stats[i].rounds, ROUNDS);
			assert_int_equal(stats[i].rounds_abandoned + stats[i].rounds_repaired, 0);
			assert_int_equal(stats[i].ops[TR_ALL_REDUCE], ROUNDS * OPS);
			assert_int_equal(stats[i].op_bytes[TR_ALL_REDUCE], ROUNDS * OPS * BYTES);
			assert_int_equal(stats[i].ops[TR_BROADCAST], 0);
			assert_int_equal(stats[i].resent_bytes, 0);
			assert_int_equal(stats[i].shm_sent_bytes + stats[i].shm_received_bytes, 0);
			uint64_t payload = ROUNDS * OPS * BYTES;
			assert_in_range(stats[i].tcp_sent_bytes, payload, payload + payload / 50);
			assert_int_equal(links_of(&fx->hosts[i], links, 2), 1);
			assert_int_equal(links[0].peer, FX_PEER(1 - i));
			assert_string_equal(links[0].node, "host");
			assert_string_equal(links[0].address, fx->hosts[1 - i].address);
			assert_int_equal(links[0].transport, TR_TRANSPORT_TCP);
			assert_true(links[0].up);
			assert_int_equal(links[0].lanes_out, 1);
			assert_int_equal(links[0].lanes_in, 1);
			assert_string_not_equal(links[0].congestion, "");
			assert_true(links[0].rtt_s > 0);
			assert_int_equal(links[0].sent_bytes, stats[i].tcp_sent_bytes);
			assert_int_equal(links[0].received_bytes, stats[i].tcp_received_bytes);
		}
		for (unsigned i = 0; i < 2; i++)
			/* the port reads the greeting, before it is a connection */
			assert_int_equal(stats[i].tcp_sent_bytes,
			    stats[1 - i].tcp_received_bytes + FRAME_GREETING_BYTES);
		fx_stop(fx);
	}
}

static void bytes_over_shared_memory(void **state)
{
	(void)state;
	for (int driving = 0; driving < 2; driving++) {
		struct fx *fx = start(3, true, driving != 0, TRAIND__PEER__POLICY__POLICY_KEEP,
		    TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
		struct caller callers[3];
		run(fx, callers, ROUNDS);
		for (unsigned i = 0; i < 3; i++) {
			struct tr_stats stats = stats_of(&fx->hosts[i]);
			struct tr_link links[3];
			uint64_t sent = 0;
			assert_int_equal(links_of(&fx->hosts[i], links, 3), 2);
			for (unsigned k = 0; k < 2; k++) {
				assert_int_equal(links[k].size_of, sizeof(struct tr_link));
				assert_int_equal(links[k].peer, FX_PEER((k < i ? k : k + 1)));
				assert_int_equal(links[k].transport, TR_TRANSPORT_SHM);
				assert_int_equal(links[k].lanes_out, 1);
				assert_true(links[k].up);
				assert_true(links[k].sent_bytes > 0);
				assert_string_equal(links[k].congestion, "");
				assert_true(links[k].rtt_s == 0);
				sent += links[k].sent_bytes;
			}
			assert_int_equal(stats.tcp_sent_bytes + stats.tcp_received_bytes, 0);
			assert_int_equal(stats.shm_sent_bytes, sent);
			/* 2 (n - 1) / n of all that was reduced, as even as segments are */
			uint64_t payload = ROUNDS * OPS * BYTES * 4 / 3;
			assert_in_range(stats.shm_sent_bytes, payload - payload / 4,
			    payload + payload / 4);
		}
		fx_stop(fx);
	}
}

/* A ring needs no link between all: those that are not there are no more than named. */
static void links_that_nobody_needs(void **state)
{
	(void)state;
	struct fx *fx = start(4, false, false, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[4];
	struct tr_link links[4];
	run(fx, callers, 1);
	assert_int_equal(links_of(&fx->hosts[1], links, 4), 3);
	assert_int_equal(links[2].peer, FX_PEER(3)); /* across */
	assert_false(links[2].up);
	assert_int_equal(links[2].transport, TR_TRANSPORT_AUTO);
	assert_int_equal(links[2].lanes_out + links[2].lanes_in, 0);
	assert_int_equal(links[2].sent_bytes + links[2].received_bytes, 0);
	assert_int_equal(links[1].peer, FX_PEER(2)); /* the next one */
	assert_int_equal(links[1].lanes_out, 1);
	assert_in_range(links[1].lanes_in, 0, 1); /* on which it says what it has submitted */
	fx_stop(fx);
}

/* ---- what heartbeats say of links ---- */

static void welcome(struct fx *fx)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome body = TRAIND__PEER__WELCOME__INIT;
	body.heartbeat_interval_ms = 10;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &body;
	for (unsigned i = 0; i < fx->count; i++)
		engine_to_node(fx->hosts[i].engine, &message);
}

/* Until there are some; each asking takes what is new. */
static size_t slow_links(const struct fx_host *host, struct engine_link *links)
{
	size_t count = 0;
	for (unsigned tries = 0; count == 0; tries++) {
		assert_true(tries < 60000);
		count = engine_links(host->engine, links, TR_PEER_LINKS_MAX);
		(void)usleep(1000);
	}
	assert_int_equal(engine_links(host->engine, links + count, TR_PEER_LINKS_MAX), 0);
	return count;
}

/* A link that carries bytes to each of the others; without room for all of a member's links none is given. */
static void links_for_heartbeats(void **state)
{
	(void)state;
	struct fx *fx = start(3, false, false, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
	struct caller callers[3];
	struct engine_link links[2 * TR_PEER_LINKS_MAX];
	run(fx, callers, ROUNDS);
	assert_int_equal(engine_links(fx->hosts[0].engine, links, TR_PEER_LINKS_MAX), 0);
	welcome(fx);
	assert_int_equal(slow_links(&fx->hosts[1], links), 2);
	assert_int_equal(links[0].to + links[1].to, FX_PEER(0) + FX_PEER(2));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(links[i].peer, FX_PEER(1));
		assert_true(links[i].rtt_us > 0);
		assert_true(links[i].sent_bytes > ROUNDS * OPS * BYTES / 2);
	}
	for (unsigned i = 0; i < 1500; i++) {
		assert_int_equal(engine_links(fx->hosts[2].engine, links, 1), 0);
		(void)usleep(1000);
	}
	assert_int_equal(engine_links(fx->hosts[2].engine, links, 2), 2);
	fx_stop(fx);
}

static void shared_memory_is_no_link(void **state)
{
	(void)state;
	struct fx *fx = start(2, true, false, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
	struct caller callers[2];
	struct engine_link links[TR_PEER_LINKS_MAX];
	run(fx, callers, ROUNDS);
	welcome(fx);
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(engine_links(fx->hosts[0].engine, links, TR_PEER_LINKS_MAX), 0);
		(void)usleep(1000);
	}
	fx_stop(fx);
}

/* More members than there is room for, of which each has news again by the next time: their turn comes to all. */
static void links_of_many_members(void **state)
{
	(void)state;
	struct engine *engine = calloc(1, sizeof(*engine));
	struct member_row rows[7] = { 0 };
	struct engine_link links[TR_PEER_LINKS_MAX];
	unsigned told[7] = { 0 };
	assert_non_null(engine);
	assert_int_equal(pthread_mutex_init(&engine->lock, NULL), 0);
	for (unsigned i = 0; i < 7; i++) {
		rows[i].next = engine->rows;
		engine->rows = &rows[i];
	}
	for (unsigned asked = 0; asked < 70; asked++) {
		for (unsigned i = 0; i < 7; i++) {
			rows[i].link_count = i == 6 ? 0 : 1 + i % 3;
			for (unsigned k = 0; k < rows[i].link_count; k++)
				rows[i].links[k] = (struct engine_link){ .peer = i, .to = k };
		}
		size_t count = engine_links(engine, links, 5);
		assert_in_range(count, 3, 5);
		for (size_t k = 0; k < count; k += 1 + links[k].peer % 3)
			told[links[k].peer] += links[k].to == 0;
	}
	assert_int_equal(told[6], 0);
	for (unsigned i = 0; i < 6; i++)
		assert_in_range(told[i], 70 / 6, 70);
	assert_int_equal(pthread_mutex_destroy(&engine->lock), 0);
	free(engine);
}

/* Of many the slowest, and of those that were not measured the longest. */
static void slowest_first(void **state)
{
	(void)state;
	struct engine_link links[TR_PEER_LINKS_MAX];
	size_t count = 0;
	for (uint64_t i = 0; i < 50; i++) {
		const struct engine_link one = { .to = i,
			.bytes_per_s = i % 2 != 0 ? 1000 + i * 7 % 50 : 0,
			.rtt_us = (uint32_t)(i * 13 % 50) };
		count = slow_links_put(links, count, &one);
		assert_int_equal(count, i < TR_PEER_LINKS_MAX ? i + 1 : TR_PEER_LINKS_MAX);
	}
	for (unsigned i = 0; i < TR_PEER_LINKS_MAX; i++)
		assert_int_equal(links[i].bytes_per_s, 1001 + 2 * i);
	count = 0;
	for (uint32_t i = 0; i < 20; i++)
		count = slow_links_put(links, count, &(struct engine_link){ .rtt_us = i });
	for (unsigned i = 0; i < TR_PEER_LINKS_MAX; i++)
		assert_int_equal(links[i].rtt_us, 19 - i);
}

/* ---- why ---- */

static void the_reason_is_told(void **state)
{
	(void)state;
	struct fx *fx = start(4, false, true, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
	struct caller callers[4];
	struct tr_error error = { 0 };
	struct tr_op op = TR_OP_INIT;
	enum tr_algorithm algorithm;
	char text[256], few[8];
	run(fx, callers, 1);
	assert_int_equal(explained(&fx->hosts[2], 1, text, sizeof(text)), TR_ONE_SHOT);
	assert_int_equal(strncmp(text, "one-shot: ", 10), 0);
	assert_int_equal(explained(&fx->hosts[2], 16 << 20, text, sizeof(text)), TR_DIRECT);
	assert_int_equal(strncmp(text, "direct: ", 8), 0);
	assert_non_null(strstr(text, "among 4 peers"));
	(void)explained(&fx->hosts[2], 16 << 20, few, sizeof(few));
	assert_string_equal(few, "direct:");
	op.algorithm = TR_STAR;
	assert_int_equal(tr_explain(fx->hosts[0].group, &op, &algorithm, NULL, 0, &error), TR_OK);
	assert_int_equal(algorithm, TR_STAR);
	op.algorithm = (enum tr_algorithm)77;
	assert_int_equal(tr_explain(fx->hosts[0].group, &op, &algorithm, NULL, 0, &error),
	    TR_EINVAL);
	assert_non_null(strstr(error.text, "algorithm 77"));
	fx_stop(fx);
}

/* ---- a death ---- */

static void a_death_in_mid_op(Traind__Peer__Policy policy, bool near)
{
	bool keep = policy == TRAIND__PEER__POLICY__POLICY_KEEP;
	struct fx *fx = callers_survive_one(
	    start(4, near, false, policy, TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT));
	struct tr_stats none = TR_STATS_INIT;
	struct tr_error error = { 0 };
	uint64_t resent = 0;
	assert_int_equal(tr_stats_get(fx->hosts[1].group, &none, &error), TR_ECANCELLED);
	assert_string_equal(error.text, "the engine stops");
	for (unsigned i = 0; i < 4; i++) {
		struct tr_link links[4];
		if (i == 1)
			continue;
		struct tr_stats stats = stats_of(&fx->hosts[i]);
		assert_int_equal(stats.view, 2);
		assert_int_equal(stats.views, 2);
		assert_int_equal(stats.peers, 3);
		assert_int_equal(stats.peers_lost, 1);
		assert_int_equal(stats.rounds, 5);
		assert_int_equal(stats.ops[TR_ALL_REDUCE], 5 * OPS);
		assert_int_equal(stats.rounds_repaired, keep);
		assert_int_equal(stats.rounds_abandoned, !keep);
		if (!keep) /* all of it was computed again: that is no repair */
			assert_int_equal(stats.resent_bytes, 0);
		resent += stats.resent_bytes;
		assert_int_equal(links_of(&fx->hosts[i], links, 4), 2);
		for (unsigned k = 0; k < 2; k++) {
			assert_int_not_equal(links[k].peer, FX_PEER(1));
			assert_true(links[k].sent_bytes > 0); /* also of the first view */
		}
	}
	if (keep)
		assert_true(resent > 0 && resent < 4 * OPS * BYTES);
	fx_stop(fx);
}

static void deaths(void **state)
{
	(void)state;
	a_death_in_mid_op(TRAIND__PEER__POLICY__POLICY_KEEP, false);
	a_death_in_mid_op(TRAIND__PEER__POLICY__POLICY_KEEP, true);
	a_death_in_mid_op(TRAIND__PEER__POLICY__POLICY_REPLAY, false);
}

/* ---- other lengths, other words ---- */

static void programs_of_other_versions(void **state)
{
	(void)state;
	struct fx *fx = start(3, false, false, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT);
	struct caller callers[3];
	struct tr_error error = { 0 };
	struct newer {
		struct tr_link link;
		uint64_t unknown;
	} newer[2];
	struct tr_link link = { 0 };
	struct tr_stats stats = { 0 };
	size_t count = 0;
	run(fx, callers, 1);
	memset(newer, 0x55, sizeof(newer));
	newer[0].link.size_of = sizeof(newer[0]);
	assert_int_equal(tr_links(fx->hosts[0].group, &newer[0].link, 2, &count, &error), TR_OK);
	assert_int_equal(count, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(newer[i].link.size_of, sizeof(newer[0]));
		assert_int_equal(newer[i].link.peer, FX_PEER(i + 1));
		assert_int_equal(newer[i].unknown, 0);
	}
	assert_int_equal(tr_links(fx->hosts[0].group, &link, 1, &count, &error), TR_EINVAL);
	assert_int_equal(tr_stats_get(fx->hosts[0].group, &stats, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "initialised"));
	/* Fewer than there are, and none at all. */
	link = (struct tr_link)TR_LINK_INIT;
	assert_int_equal(tr_links(fx->hosts[0].group, &link, 1, &count, &error), TR_OK);
	assert_int_equal(count, 2);
	assert_int_equal(link.peer, FX_PEER(1));
	assert_int_equal(tr_links(fx->hosts[0].group, NULL, 0, &count, &error), TR_OK);
	assert_int_equal(count, 2);
	fx_stop(fx);
}

/* Whatever stands in the page as a question gets an error, and the member goes on. */
static void questions_of_a_rule_breaker(void **state)
{
	(void)state;
	struct fx *fx = start(2, false, false, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[2];
	struct channel_told told;
	struct tr_error error = { 0 };
	run(fx, callers, 1);
	for (uint32_t i = 0; i < 64; i++) {
		struct channel_question wrong = { .kind = i < 8 ? i * 0x20000000u : CHANNEL_EXPLAIN,
			.collective = i >= 8 && i < 16 ? i : 0,
			.dtype = i >= 16 && i < 24 ? i
			    : i < 32               ? TR_F32
			                           : 0,
			.codec = i >= 24 && i < 32 ? UINT32_MAX - i : 0,
			.algorithm = i >= 32 && i < 40 ? i : 0,
			.count = i >= 40 ? UINT64_MAX - i : 1 };
		assert_int_equal(channel_worker_ask(fx->hosts[0].group->channel, &wrong, &told,
		                     NULL, &error),
		    TR_EINVAL);
	}
	assert_int_equal(stats_of(&fx->hosts[0]).rounds, 1);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_view),
		cmocka_unit_test(bytes_over_tcp),
		cmocka_unit_test(bytes_over_shared_memory),
		cmocka_unit_test(links_that_nobody_needs),
		cmocka_unit_test(links_for_heartbeats),
		cmocka_unit_test(shared_memory_is_no_link),
		cmocka_unit_test(links_of_many_members),
		cmocka_unit_test(slowest_first),
		cmocka_unit_test(the_reason_is_told),
		cmocka_unit_test(deaths),
		cmocka_unit_test(programs_of_other_versions),
		cmocka_unit_test(questions_of_a_rule_breaker),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
