/* A member dies after every single delivery of a round of reduce-scatter, all-gather, broadcast, send/receive or an encoded all-reduce. The
 * survivors go on by memberd's own rules (resume_decide) and commit: what they hold is what the contributor sets say, and what
 * nobody holds was not touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "group_pump.h"

#include "daemon/membership/core/resume.h"

#define COUNT 46
#define TAG   4
#define FILL  (-7)

struct kill_case {
	enum tr_collective collective;
	enum tr_codec codec;
	enum tr_algorithm algorithm;
	Traind__Peer__Policy policy;
	unsigned n, victim, after;
};

struct kill_world {
	const struct kill_case *c;
	struct pump *pump;
	float input[PUMP_MEMBERS][COUNT], output[PUMP_MEMBERS][COUNT];
};

/* Of the peer, not of its index: whole numbers that bf16 holds. */
static float value(unsigned peer, size_t k)
{
	return (float)((peer * 5 + k * 3) % 16);
}

static void caller(struct kill_world *w, unsigned who)
{
	struct pump_member *member = &w->pump->members[who];
	const struct kill_case *c = w->c;
	enum tr_collective collective = c->collective;
	unsigned index = member->begun.index, n = member->begun.contributors;
	uint32_t root = 0;
	size_t first = 0, own = COUNT;
	if (collective == TR_SEND && n < 2)
		collective = TR_BARRIER;
	if (collective == TR_SEND) { /* 0 to 1; the others have nothing */
		collective = index == 0 ? TR_SEND : TR_RECV;
		root = index == 0 ? 1 : 0;
	}
	if (collective == TR_BROADCAST)
		root = n - 1;
	tr_block_range(COUNT, n, index, &first, &own);
	for (size_t k = 0; k < COUNT; k++) {
		w->input[who][k] = value(who + 1, k);
		w->output[who][k] = FILL;
	}
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = TAG,
		    .collective = collective,
		    .data = w->output[who],
		    .input = collective == TR_ALL_GATHER ? w->input[who] + first : w->input[who],
		    .count = COUNT,
		    .own_elements = own,
		    .dtype = TR_F32,
		    .reduce = TR_SUM,
		    .codec = c->codec,
		    .root = root,
		    .contribute = true } };
	if (collective != TR_RECV || index == 1)
		assert_int_equal(pump_step(w->pump, who, &event), TR_OK);
	assert_int_equal(pump_close(w->pump, who, 0, 0), TR_OK);
}

static void check_value(const struct kill_world *w, unsigned who, size_t k, float got)
{
	uint64_t set[PUMP_MEMBERS];
	size_t count;
	float expected = 0;
	assert_int_equal(group_core_contributors(w->pump->members[who].core, TAG, k, set,
	                     PUMP_MEMBERS, &count),
	    TR_OK);
	for (size_t i = 0; i < count; i++)
		expected += value((unsigned)set[i], k);
	if (count == 0) {
		assert_int_equal(w->c->policy, TRAIND__PEER__POLICY__POLICY_KEEP);
		assert_true(w->pump->members[who].decided.partial);
		expected = FILL;
	}
	if (got != expected)
		fail_msg("member %u, element %zu: %g, not %g of %zu contributors", who + 1, k,
		    (double)got, (double)expected, count);
}

static void check(const struct kill_world *w)
{
	for (unsigned i = 0; i < w->c->n; i++) {
		const struct pump_member *member = &w->pump->members[i];
		unsigned index = member->decided.index, n = member->decided.contributors;
		size_t first = 0, own = COUNT;
		if (member->dead)
			continue;
		if (member->status != TR_OK || member->decided.round != 1 ||
		    member->decided_count == 0)
			fail_msg("member %u: %s, %s\n%s", i + 1, tr_status_name(member->status),
			    member->reason, w->pump->trace);
		switch (w->c->collective) {
		case TR_REDUCE_SCATTER:
			tr_block_range(COUNT, n, index, &first, &own);
			for (size_t k = 0; k < own; k++)
				check_value(w, i, first + k, w->output[i][k]);
			break;
		case TR_SEND:
			if (index != 1)
				break;
			/* fall through */
		default:
			for (size_t k = 0; k < COUNT; k++)
				check_value(w, i, k, w->output[i][k]);
		}
	}
}

/* As memberd does it. */
static void change_view(struct kill_world *w, struct pump_view *view)
{
	struct pump *pump = w->pump;
	Traind__Peer__View old_view = TRAIND__PEER__VIEW__INIT;
	Traind__Peer__Resume old_resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__ViewInstall old = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__ViewPeer peers[PUMP_MEMBERS], *list[PUMP_MEMBERS];
	const Traind__Peer__ViewReport *reports[PUMP_MEMBERS];
	struct resume_decision decision;
	for (unsigned i = 0; i < view->count; i++) {
		traind__peer__view_peer__init(&peers[i]);
		peers[i].peer = view->peers[i];
		peers[i].contribute_from = 1;
		list[i] = &peers[i];
	}
	old_view.number = view->number;
	old_view.n_peers = view->count;
	old_view.peers = list;
	old_resume.base_round = 1;
	old.view = &old_view;
	old.resume = &old_resume;
	pump_propose(pump, view->number + 1);
	unsigned count = 0;
	for (unsigned i = 0; i < pump->n; i++)
		if (!pump->members[i].dead) {
			view->peers[count] = i + 1;
			reports[count++] = pump->members[i].report;
		}
	resume_decide(&(struct resume_input){ .old = &old,
	                  .policy = w->c->policy,
	                  .number = view->number + 1,
	                  .reports = reports,
	                  .members = view->peers,
	                  .count = count },
	    &decision);
	view->number++;
	view->count = count;
	view->hub = 0;
	view->base_round = decision.base_round;
	view->finish = decision.finish;
	view->restart = decision.restart;
	view->base_attempt = decision.base_attempt;
	view->contributor_count = decision.contributors_count;
	memcpy(view->contributors, decision.contributors,
	    decision.contributors_count * sizeof(uint64_t));
	pump_install(pump, view);
}

/* Returns how many messages there were before the kill. */
static unsigned run(const struct kill_case *c)
{
	static struct kill_world world;
	world = (struct kill_world){ .c = c, .pump = pump_create_with(c->n, c->after % 2 ? 16 : 0) };
	struct pump *pump = world.pump;
	struct pump_view view = pump_first_view(pump);
	view.policy = c->policy;
	view.algorithm = (Traind__Peer__Algorithm)c->algorithm;
	view.segment_bytes = 16;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < c->n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	for (unsigned i = 0; i < c->n; i++)
		caller(&world, i);
	unsigned delivered = pump_some(pump, c->after);
	pump_kill(pump, c->victim);
	change_view(&world, &view);
	for (unsigned i = 0; i < c->n; i++) {
		struct pump_member *member = &pump->members[i];
		if (member->dead || member->status != TR_ERESTART)
			continue;
		unsigned before = member->begun_count;
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
		assert_int_equal(member->begun_count, before + 1);
		caller(&world, i);
	}
	pump_run(pump);
	check(&world);
	pump_destroy(pump);
	return delivered;
}

static void kill_everywhere(enum tr_collective collective, enum tr_codec codec)
{
	unsigned cases = 0;
	for (unsigned n = 2; n <= 4; n++)
		for (int policy = 0; policy < 3; policy++)
			for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
				for (unsigned victim = 0; victim < n; victim++) {
					struct kill_case c = { collective, codec,
						(enum tr_algorithm)algorithm,
						(Traind__Peer__Policy)policy, n, victim,
						UINT32_MAX };
					unsigned all = run(&c);
					for (c.after = 0; c.after < all; c.after++, cases++)
						run(&c);
				}
	print_message("%u kills\n", cases);
}

static void reduce_scatter(void **state)
{
	(void)state;
	kill_everywhere(TR_REDUCE_SCATTER, TR_CODEC_NONE);
}

static void all_gather(void **state)
{
	(void)state;
	kill_everywhere(TR_ALL_GATHER, TR_CODEC_NONE);
}

static void broadcast(void **state)
{
	(void)state;
	kill_everywhere(TR_BROADCAST, TR_CODEC_NONE);
}

static void send_and_receive(void **state)
{
	(void)state;
	kill_everywhere(TR_SEND, TR_CODEC_NONE);
}

static void encoded_all_reduce(void **state)
{
	(void)state;
	kill_everywhere(TR_ALL_REDUCE, TR_CODEC_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reduce_scatter),
		cmocka_unit_test(all_gather),
		cmocka_unit_test(broadcast),
		cmocka_unit_test(send_and_receive),
		cmocka_unit_test(encoded_all_reduce),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
