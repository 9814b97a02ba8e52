/* Engines over real TCP, without memberd: rounds, deaths, broken links, deadlines. */
#include "tests/unit/engine_caller.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- tests ---- */

static void run_rounds(Traind__Peer__Algorithm algorithm, unsigned peers)
{
	struct fx *fx = fx_start(peers, TRAIND__PEER__POLICY__POLICY_KEEP, algorithm);
	struct caller callers[FX_HOSTS_MAX];
	for (unsigned i = 0; i < peers; i++)
		caller_start(&callers[i], &fx->hosts[i], 5, 0);
	fx_found(fx, peers);
	callers_succeed(callers, peers);
	FX_WAIT(fx,
	    fx->hosts[0].records >=
	        5); /* from the hub; again, as nobody says that they are logged */
	struct engine_progress row;
	assert_int_equal(engine_progress(fx->hosts[0].engine, &row, 1), 1);
	assert_int_equal(row.committed, 5);
	fx_stop(fx);
}

static void ring_rounds(void **state)
{
	(void)state;
	run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 3);
}

static void star_rounds(void **state)
{
	(void)state;
	run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 4);
}

static void alone(void **state)
{
	(void)state;
	run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO, 1);
}

static void a_member_dies(Traind__Peer__Algorithm algorithm)
{
	for (int policy = TRAIND__PEER__POLICY__POLICY_KEEP;
	     policy <= TRAIND__PEER__POLICY__POLICY_REPLAY; policy++)
		fx_stop(callers_survive_one(fx_start(4, (Traind__Peer__Policy)policy, algorithm)));
}

static void ring_member_dies(void **state)
{
	(void)state;
	a_member_dies(TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
}

static void star_member_dies(void **state)
{
	(void)state;
	a_member_dies(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR);
}

/* Breaks every connection of this process to `host`'s port, from underneath. */
static unsigned break_links_to(const struct fx_host *host)
{
	int port = atoi(strrchr(host->address, ':') + 1);
	unsigned broken = 0;
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_in sa;
		socklen_t length = sizeof(sa);
		if (getpeername(fd, (struct sockaddr *)&sa, &length) != 0 ||
		    sa.sin_family != AF_INET || ntohs(sa.sin_port) != port)
			continue;
		broken += shutdown(fd, SHUT_RDWR) == 0;
	}
	return broken;
}

/* The frames that were lost on the way are repaired by a view of the same members. */
static unsigned links_lost(const struct fx *fx)
{
	unsigned lost = 0;
	for (unsigned i = 0; i < fx->count; i++)
		lost += fx->hosts[i].link_lost;
	return lost;
}

static bool all_done(const struct fx *fx, const struct caller *callers)
{
	for (unsigned i = 0; i < fx->count; i++)
		if (callers[i].done < callers[i].rounds)
			return false;
	return true;
}

/* As memberd does: whoever tells of a lost link gets a view. A member may notice that its link broke when it has sent over it in the
 * view that the first of them got: then that view needs one more. */
static void repair_until_done(struct fx *fx, const struct caller *callers, unsigned repaired)
{
	bool all[FX_HOSTS_MAX] = { true, true, true };
	for (;;) {
		FX_WAIT(fx, links_lost(fx) > repaired || all_done(fx, callers));
		fx_lock(fx);
		bool more = links_lost(fx) > repaired && !all_done(fx, callers);
		repaired = links_lost(fx);
		pthread_mutex_unlock(&fx->lock);
		if (!more)
			return;
		fx_change_view(fx, all);
	}
}

static void link_breaks_between_live_members(void **state)
{
	(void)state;
	struct fx *fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[3];
	bool all[FX_HOSTS_MAX] = { true, true, true };
	for (unsigned i = 0; i < 3; i++)
		caller_start(&callers[i], &fx->hosts[i], 5, i == 2 ? 3 : 0);
	fx_found(fx, 3);
	FX_WAIT(fx, callers[2].paused);
	assert_true(break_links_to(&fx->hosts[1]) > 0);
	/* Who dialled it tells. The other end does too, unless the next connection of the link came before the end of this one. */
	FX_WAIT(fx, fx->hosts[0].link_lost > 0);
	fx_lock(fx);
	unsigned repaired = links_lost(fx);
	pthread_mutex_unlock(&fx->lock);
	fx_change_view(fx, all);
	caller_resume(&callers[2]);
	repair_until_done(fx, callers, repaired);
	callers_succeed(callers, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(callers[i].restarts, 0);
	fx_stop(fx);
}

/* A peer whose port nobody listens on any more is reported after TR_HEARTBEAT_TIMEOUT_MS of trying. */
static void unreachable_peer_is_reported(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[2];
	bool both[FX_HOSTS_MAX] = { true, true }, one[FX_HOSTS_MAX] = { true };
	for (unsigned i = 0; i < 2; i++)
		caller_start(&callers[i], &fx->hosts[i], 1, 0);
	FX_WAIT(fx, fx->hosts[0].ready && fx->hosts[1].ready);
	fx_host_stop(&fx->hosts[1]);
	caller_join(&callers[1]);
	assert_int_equal(callers[1].status, TR_ECANCELLED);
	fx->view++;
	fx_install(fx, both, one);
	FX_WAIT(fx, fx->hosts[0].link_lost > 0);
	FX_IS(fx, strstr(fx->hosts[0].link_lost_reason, "cannot reach") != NULL);
	fx_change_view(fx, one);
	caller_join(&callers[0]);
	assert_int_equal(callers[0].status, TR_OK);
	assert_int_equal(callers[0].contributors_last, 1);
	fx_stop(fx);
}

/* Timers that the engine's thread has started are not forgotten while a caller sleeps in the engine's loop: a frozen member says its
 * report again. */
static void a_sleeping_caller_keeps_the_time(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t member = FX_PEER(0);
	struct caller caller;
	bool one[FX_HOSTS_MAX] = { true };
	caller_start(&caller, &fx->hosts[0], 1, 0);
	FX_WAIT(fx, fx->hosts[0].ready);
	propose.group = FX_GROUP;
	propose.number = ++fx->view;
	propose.members = &member;
	propose.n_members = 1;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &propose;
	fx_tell(fx, one, &message);
	FX_WAIT(fx, fx->hosts[0].heard[TRAIND__PEER__TO_MEMBER__BODY_VIEW_REPORT] >= 3);
	fx_change_view(fx, one);
	caller_join(&caller);
	assert_int_equal(caller.status, TR_OK);
	fx_stop(fx);
}

/* A call that waits too long names whom it waited for, and can be made again. */
static void guarantee_3_the_deadline_names_the_peer(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round[2];
	double *value[2];
	for (unsigned i = 0; i < 2; i++) {
		fx_attach(&fx->hosts[i]);
		fx->hosts[i].group->op_deadline_ms = 200;
		value[i] = tr_alloc(fx->hosts[i].group, sizeof(double));
		*value[i] = i + 1;
		assert_int_equal(tr_state_ready(fx->hosts[i].group, 0, &error), TR_OK);
	}
	assert_int_equal(tr_round_begin(fx->hosts[0].group, &round[0], &error), TR_ETIMEDOUT);
	assert_non_null(strstr(error.text, "the group's first view"));
	fx_found(fx, 2);
	FX_WAIT(fx, fx->hosts[0].installed == 1 && fx->hosts[1].installed == 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tr_round_begin(fx->hosts[i].group, &round[i], &error), TR_OK);
	assert_int_equal(tr_allreduce(fx->hosts[0].group, 0, value[0], 1, TR_F64, TR_SUM,
	                     TR_CONTRIBUTE, &error),
	    TR_OK);
	assert_int_equal(tr_wait(fx->hosts[0].group, 0, &error), TR_ETIMEDOUT);
	assert_int_equal(tr_wait_for(fx->hosts[0].group, 0, 30, &error), TR_ETIMEDOUT);
	assert_non_null(strstr(error.text, "wait of round 1 waited 30 ms for peer 11"));
	assert_int_equal(tr_wait_for(fx->hosts[0].group, 0, 0, &error), TR_ETIMEDOUT);
	const struct tr_commit first = { .salt = 7 }, other = { .salt = 8 };
	assert_int_equal(tr_round_commit(fx->hosts[0].group, &first, &round[0], &error),
	    TR_ETIMEDOUT);
	assert_non_null(strstr(error.text, "waited 200 ms for peer 11"));
	assert_int_equal(tr_round_commit_for(fx->hosts[0].group, &other, &round[0], 20, &error),
	    TR_ETIMEDOUT);
	assert_non_null(strstr(error.text, "waited 20 ms for peer 11"));
	assert_int_equal(tr_allreduce(fx->hosts[1].group, 0, value[1], 1, TR_F64, TR_SUM,
	                     TR_CONTRIBUTE, &error),
	    TR_OK);
	assert_int_equal(tr_round_commit(fx->hosts[1].group, &first, &round[1], &error), TR_OK);
	/* What was said first counts: salts that differ would end the group. */
	assert_int_equal(tr_round_commit(fx->hosts[0].group, &other, &round[0], &error), TR_OK);
	assert_true(*value[0] == 3 && *value[1] == 3);
	fx_stop(fx);
}

/* One waits for the second op before it submits the first; the other submits the first one first. */
static void ops_in_any_order(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round;
	float *data[2][2];
	for (unsigned i = 0; i < 2; i++) {
		fx_attach(&fx->hosts[i]);
		fx->hosts[i].group->op_deadline_ms = FX_DEADLINE_S * 1000;
		for (unsigned op = 0; op < 2; op++)
			data[i][op] = tr_alloc(fx->hosts[i].group, COUNT * sizeof(float));
		assert_int_equal(tr_state_ready(fx->hosts[i].group, 0, &error), TR_OK);
	}
	fx_found(fx, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tr_round_begin(fx->hosts[i].group, &round, &error), TR_OK);
		data[i][0][COUNT - 1] = data[i][1][COUNT - 1] = 1;
	}
	for (unsigned op = 0; op < 2; op++)
		assert_int_equal(tr_allreduce(fx->hosts[0].group, op, data[0][op], COUNT, TR_F32,
		                     TR_SUM, TR_CONTRIBUTE, &error),
		    TR_OK);
	for (unsigned op = 2; op-- > 0;) {
		assert_int_equal(tr_allreduce(fx->hosts[1].group, op, data[1][op], COUNT, TR_F32,
		                     TR_SUM, TR_CONTRIBUTE, &error),
		    TR_OK);
		assert_int_equal(tr_wait(fx->hosts[1].group, op, &error), TR_OK);
		assert_true(data[1][op][COUNT - 1] == 2);
	}
	fx_stop(fx);
}

/* From bursts that are longer than the kernel's buffers. */
static void bandwidth_is_learned(void **state)
{
	(void)state;
	enum { ELEMENTS = 8 << 20 };
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round;
	float *data[2];
	assert_true(engine_bandwidth(fx->hosts[0].engine) == 0);
	for (unsigned i = 0; i < 2; i++) {
		fx_attach(&fx->hosts[i]);
		data[i] = tr_alloc(fx->hosts[i].group, ELEMENTS * sizeof(float));
		assert_non_null(data[i]);
		assert_int_equal(tr_state_ready(fx->hosts[i].group, 0, &error), TR_OK);
	}
	fx_found(fx, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tr_round_begin(fx->hosts[i].group, &round, &error), TR_OK);
		assert_int_equal(tr_allreduce(fx->hosts[i].group, 0, data[i], ELEMENTS, TR_F32,
		                     TR_SUM, TR_CONTRIBUTE, &error),
		    TR_OK);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tr_wait(fx->hosts[i].group, 0, &error), TR_OK);
	assert_true(
	    engine_bandwidth(fx->hosts[0].engine) > 0 || engine_bandwidth(fx->hosts[1].engine) > 0);
	fx_stop(fx);
}

/* Misuse is the caller's error, in words; nothing waits. */
static void misuse(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round;
	float outside[4] = { 0 };
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *data = tr_alloc(group, 64);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_EINVAL);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_EINVAL);
	fx_found(fx, 1);
	assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_EINVAL);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, outside, 4, TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
	    TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, data, 1u << 20, TR_F32, TR_SUM, TR_CONTRIBUTE,
	                     &error),
	    TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, data, SIZE_MAX / 2, TR_F32, TR_SUM, TR_CONTRIBUTE,
	                     &error),
	    TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, data, 4, (enum tr_dtype)9, TR_SUM, TR_CONTRIBUTE,
	                     &error),
	    TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, (char *)data + 1, 4, TR_F32, TR_SUM, TR_CONTRIBUTE,
	                     &error),
	    TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, data, 4, TR_F32, TR_SUM, 0, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "contributor 0 of 1"));
	assert_int_equal(tr_wait(group, 5, &error), TR_EINVAL);
	assert_int_equal(tr_allreduce(group, 0, data, 4, TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
	    TR_OK);
	assert_int_equal(tr_allreduce(group, 0, data, 4, TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
	    TR_EEXIST);
	assert_true(tr_progress(group));
	assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_OK);
	assert_int_equal(tr_state_receive(group, &error), TR_EINVAL);
	fx_stop(fx);
}

/* A field that a later version has there, or a struct that was not initialised; what the library fills is zero. */
static void room_for_later_fields_is_zero(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	const uint64_t zero[4] = { 0 };
	struct tr_error error = { 0 };
	struct tr_commit commit = { .reserved = { 0, 0, 1 } };
	struct tr_report report = { .step = 1, .reserved = { 1 } };
	struct tr_round round;
	struct tr_assignment assignment;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	memset(&round, 0x5a, sizeof(round));
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	assert_memory_equal(round.reserved, zero, sizeof(round.reserved));
	assert_int_equal(tr_round_commit(group, &commit, &round, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "too old"));
	assert_int_equal(tr_report(group, &report), TR_EINVAL);
	commit.reserved[2] = report.reserved[0] = 0;
	assert_int_equal(tr_report(group, &report), TR_OK);
	memset(&round, 0x5a, sizeof(round));
	assert_int_equal(tr_round_commit(group, &commit, &round, &error), TR_OK);
	assert_memory_equal(round.reserved, zero, sizeof(round.reserved));
	memset(&assignment, 0x5a, sizeof(assignment));
	assert_int_equal(tr_assignment_get(group, &assignment), TR_OK);
	assert_memory_equal(assignment.reserved, zero, sizeof(assignment.reserved));
	fx_stop(fx);
}

/* In place, each in the order in which its segments come: what stands where two overlap would differ from peer to peer, and
 * the digests, taken as each segment was sealed, would not. */
static void ops_may_not_share_memory(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *data = tr_alloc(group, 64);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
		assert_int_equal(tr_allreduce(group, 3, data + 4, 4, TR_F32, TR_SUM, TR_CONTRIBUTE,
		                     &error),
		    TR_OK);
		for (int at = 1; at < 8; at++)
			assert_int_equal(tr_allreduce(group, 9, data + at, 4, TR_F32, TR_SUM,
			                     TR_CONTRIBUTE, &error),
			    TR_EINVAL);
		assert_string_equal(error.text, "op 9 and op 3 of this round share memory");
		assert_int_equal(tr_allreduce(group, 9, data, 4, TR_F32, TR_SUM, TR_CONTRIBUTE,
		                     &error),
		    TR_OK);
		assert_int_equal(tr_allreduce(group, 10, data + 8, 4, TR_F32, TR_SUM, TR_CONTRIBUTE,
		                     &error),
		    TR_OK);
		assert_int_equal(tr_allreduce(group, 11, data + 5, 0, TR_F32, TR_SUM, TR_CONTRIBUTE,
		                     &error),
		    TR_OK); /* of nothing */
		assert_int_equal(tr_round_commit(group, NULL, &round, &error), TR_OK);
	}
	fx_stop(fx);
}

/* Figures may be skipped, events may not. */
static void no_event_is_lost(void **state)
{
	(void)state;
	enum { EVENTS = 500 };
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fx_attach(&fx->hosts[0]);
	for (unsigned i = 0; i < EVENTS; i++) {
		struct tr_report report = { .step = i, .loss = NAN, .event = "something happened" };
		assert_int_equal(tr_report(fx->hosts[0].group, &report), TR_OK);
	}
	FX_WAIT(fx, fx->hosts[0].events == EVENTS);
	fx_stop(fx);
}

/* PEER_EVICTED ends whatever the caller waits for, and all later calls. */
static void eviction(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller caller;
	char reason[] = "silent for 2.0 s";
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__PeerEvicted evicted = TRAIND__PEER__PEER_EVICTED__INIT;
	caller_start(&caller, &fx->hosts[0], 5, 0);
	FX_WAIT(fx, fx->hosts[0].ready);
	evicted.group = FX_GROUP;
	evicted.peer = FX_PEER(0);
	evicted.reason = reason;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED;
	message.peer_evicted = &evicted;
	engine_to_node(fx->hosts[0].engine, &message);
	caller_join(&caller);
	assert_int_equal(caller.status, TR_EEVICTED);
	assert_string_equal(caller.text, reason);
	assert_int_equal(tr_wait(fx->hosts[0].group, 0, NULL), TR_EEVICTED);
	assert_false(tr_progress(fx->hosts[0].group));
	fx_stop(fx);
}

/* memberd may have been away when a member failed, or restarted since. */
static void a_failure_is_said_to_a_memberd_that_comes_back(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	bool one[FX_HOSTS_MAX] = { true };
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome welcome = TRAIND__PEER__WELCOME__INIT;
	fx_ready(&fx->hosts[0]);
	fx_found(fx, 1);
	fx->view++;
	fx_install(fx, one, one); /* nobody asked it */
	FX_WAIT(fx, fx->hosts[0].failed == TR_EINTERNAL);
	pthread_mutex_lock(&fx->lock);
	fx->hosts[0].failed = TR_OK;
	pthread_mutex_unlock(&fx->lock);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &welcome;
	engine_to_node(fx->hosts[0].engine, &message);
	FX_WAIT(fx, fx->hosts[0].failed == TR_EINTERNAL);
	FX_IS(fx, strstr(fx->hosts[0].failed_text, "without asking") != NULL);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_rounds),
		cmocka_unit_test(star_rounds),
		cmocka_unit_test(alone),
		cmocka_unit_test(ring_member_dies),
		cmocka_unit_test(star_member_dies),
		cmocka_unit_test(link_breaks_between_live_members),
		cmocka_unit_test(unreachable_peer_is_reported),
		cmocka_unit_test(a_sleeping_caller_keeps_the_time),
		cmocka_unit_test(guarantee_3_the_deadline_names_the_peer),
		cmocka_unit_test(ops_in_any_order),
		cmocka_unit_test(bandwidth_is_learned),
		cmocka_unit_test(misuse),
		cmocka_unit_test(room_for_later_fields_is_zero),
		cmocka_unit_test(ops_may_not_share_memory),
		cmocka_unit_test(no_event_is_lost),
		cmocka_unit_test(eviction),
		cmocka_unit_test(a_failure_is_said_to_a_memberd_that_comes_back),
	};
	int failed = cmocka_run_group_tests_name("engine", tests, NULL, NULL);
	fx_driving = true;
	return failed + cmocka_run_group_tests_name("engine, by its callers", tests, NULL, NULL);
}
