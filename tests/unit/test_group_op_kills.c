/* A member dies after every single delivery of a round of reduce-scatter, all-gather, broadcast, send/receive or an encoded all-reduce: in place and
 * not, with each codec, with error feedback. The survivors go on by memberd's own rules (resume_decide) and commit: what they hold is what the
 * contributor sets say, byte for byte, residuals included, and what nobody holds was not touched.
 *
 * Points are thinned unless KILL_MATRIX says more (kill_matrix.h).
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
#include "tests/unit/kill_matrix.h"

#include "collectives/core/op.h"
#include "collectives/kernels/codec.h"
#include "daemon/membership/core/resume.h"

#define COUNT         46
#define TAG           4
#define FILL          (-7)
#define BETA          0.5f
#define SEGMENT_BYTES 16
#define CASE          "collective %d, codec %d, algorithm %d, policy %d, n %u, victim %u after %u, form %d"
#define CASE_OF(c)                                                                            \
	(int)(c)->collective, (int)(c)->codec, (int)(c)->algorithm, (int)(c)->policy, (c)->n, \
	    (c)->victim + 1, (c)->after, (c)->in_place + 2 * (c)->feedback

struct kill_case {
	enum tr_collective collective;
	enum tr_codec codec;
	enum tr_algorithm algorithm;
	Traind__Peer__Policy policy;
	unsigned n, victim, after;
	bool in_place, feedback;
};

struct kill_world {
	const struct kill_case *c;
	struct pump *pump;
	float input[PUMP_MEMBERS][COUNT], output[PUMP_MEMBERS][COUNT];
	float residual[PUMP_MEMBERS][COUNT], next[PUMP_MEMBERS][COUNT];
	bool filled[PUMP_MEMBERS];
};

/* Of the peer, not of its index: whole numbers, whose sums are exact. */
static float value(unsigned peer, size_t k)
{
	return (float)((peer * 5 + k * 3) % 16);
}

static float residual(unsigned peer, size_t k)
{
	return (float)((peer * 3 + k) % 8) / 8 - 0.5f;
}

/* Does the caller's memory hold something of the op before it begins? */
static bool in_place_input(const struct kill_case *c, unsigned index, uint32_t root, size_t first,
    size_t own, size_t k)
{
	if (!c->in_place)
		return false;
	switch (c->collective) {
	case TR_ALL_REDUCE:
	case TR_REDUCE_SCATTER:
		return true;
	case TR_ALL_GATHER:
		return k >= first && k < first + own;
	case TR_BROADCAST:
		return index == root;
	default:
		return false;
	}
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
		bool holds = in_place_input(c, index, root, first, own, k);
		w->output[who][k] = holds ? value(who + 1, k) : FILL;
		w->next[who][k] = FILL;
		if (w->filled[who])
			continue; /* an attempt that was abandoned left them as they were */
		w->input[who][k] = value(who + 1, k);
		w->residual[who][k] = residual(who + 1, k);
	}
	w->filled[who] = true;
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = TAG,
		    .collective = collective,
		    .data = w->output[who],
		    .input = c->in_place && collective != TR_SEND ? NULL
		        : collective == TR_ALL_GATHER             ? w->input[who] + first
		                                                  : w->input[who],
		    .residual = c->feedback ? w->residual[who] : NULL,
		    .residual_next = c->feedback ? w->next[who] : NULL,
		    .beta = BETA,
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

/* ---- the reference ---- */

/* As everybody cuts the op: `first` and the length of the segment with element k. */
static size_t segment_of(const struct kill_case *c, unsigned contributors, size_t k, size_t *first)
{
	struct cut cut;
	bool blocks = c->collective == TR_ALL_GATHER || c->collective == TR_REDUCE_SCATTER;
	uint32_t bytes = op_segment_bytes(COUNT * sizeof(float), SEGMENT_BYTES, 0);

	assert_int_equal(cut_init(&cut, COUNT, bytes / sizeof(float), blocks ? contributors : 0,
	                     NULL),
	    TR_OK);
	uint32_t segment = cut_segment(&cut, k);
	*first = cut_first(&cut, segment);
	return cut_elements(&cut, segment);
}

/* What `peer` gives, encoded; `next` gets what that leaves out. */
static void encode(const struct kill_case *c, unsigned peer, size_t first, size_t n, uint8_t *wire,
    float *next)
{
	float x[COUNT], held[COUNT];

	for (size_t i = 0; i < n; i++) {
		x[i] = value(peer, first + i);
		held[i] = residual(peer, first + i);
	}
	if (c->feedback)
		codec_encode_feedback(c->codec, BETA, wire, x, held, next, n);
	else
		codec_encode(c->codec, wire, x, n);
}

/* decode(Q(sum of decode(Q(x)) by ascending peer)); of one contributor what it gave. */
static float expected_of(const struct kill_case *c, unsigned contributors, size_t k,
    const uint64_t *set, size_t count)
{
	size_t first, n = segment_of(c, contributors, k, &first);
	float sum[COUNT], next[COUNT];
	uint8_t wire[COUNT * sizeof(float)];

	for (size_t i = 0; i < count; i++) {
		encode(c, (unsigned)set[i], first, n, wire, next);
		if (i == 0)
			codec_decode(c->codec, sum, wire, n);
		else
			codec_decode_combine(c->codec, TR_SUM, sum, wire, n);
	}
	if (count > 1)
		codec_encode(c->codec, wire, sum, n);
	codec_decode(c->codec, sum, wire, n);
	return sum[k - first];
}

/* What a chain encodes at each hop has bits of its own: test_group_kills.c has its sums. */
static bool hops_encode(const struct kill_case *c)
{
	return c->algorithm == TR_RING && c->codec != TR_CODEC_NONE &&
	    c->collective == TR_ALL_REDUCE;
}

static void check_value(const struct kill_world *w, unsigned who, unsigned contributors, size_t k,
    float got)
{
	uint64_t set[PUMP_MEMBERS];
	size_t count;
	float expected = FILL;
	assert_int_equal(group_core_contributors(w->pump->members[who].core, TAG, k, set,
	                     PUMP_MEMBERS, &count),
	    TR_OK);
	if (count == 0) {
		assert_int_equal(w->c->policy, TRAIND__PEER__POLICY__POLICY_KEEP);
		assert_true(w->pump->members[who].decided.partial);
	} else if (hops_encode(w->c)) {
		expected = w->output[w->c->victim == 0 ? 1 : 0][k];
	} else {
		expected = expected_of(w->c, contributors, k, set, count);
	}
	if (memcmp(&got, &expected, sizeof(got)) != 0)
		fail_msg("member %u, element %zu: %g, not %g of %zu contributors: " CASE "\n%s",
		    who + 1, k, (double)got, (double)expected, count, CASE_OF(w->c),
		    w->pump->trace);
}

/* Was the element in the block of one who died before the round was committed? Then it is nobody's. */
static bool is_nobodys(const struct kill_world *w, unsigned who, size_t k)
{
	const struct kill_case *c = w->c;
	const struct tr_round *decided = &w->pump->members[who].decided;
	size_t first, own;

	if (c->collective != TR_REDUCE_SCATTER || decided->contributors != c->n ||
	    decided->view == 1)
		return false;
	tr_block_range(COUNT, c->n, c->victim, &first, &own);
	return k >= first && k < first + own;
}

/* What its bytes leave out of what it gave; all of that where nobody has it. */
static void check_residual(const struct kill_world *w, unsigned who, unsigned contributors)
{
	const struct kill_case *c = w->c;

	for (size_t k = 0; k < COUNT; k++) {
		size_t first, n = segment_of(c, contributors, k, &first);
		float next[COUNT], got = w->next[who][k];
		uint8_t wire[COUNT * sizeof(float)];
		encode(c, who + 1, first, n, wire, next);
		if (is_nobodys(w, who, k))
			next[k - first] = value(who + 1, k) + BETA * residual(who + 1, k);
		if (memcmp(&got, &next[k - first], sizeof(got)) != 0)
			fail_msg("member %u, element %zu: residual %g, not %g: " CASE "\n%s",
			    who + 1, k, (double)got, (double)next[k - first], CASE_OF(c),
			    w->pump->trace);
	}
}

static void check(const struct kill_world *w)
{
	const struct kill_case *c = w->c;

	for (unsigned i = 0; i < c->n; i++) {
		const struct pump_member *member = &w->pump->members[i];
		unsigned index = member->decided.index, n = member->decided.contributors;
		size_t first = 0, own = COUNT, shift;
		if (member->dead)
			continue;
		if (member->status != TR_OK || member->decided.round != 1 ||
		    member->decided_count == 0)
			fail_msg("member %u: %s, %s\n%s", i + 1, tr_status_name(member->status),
			    member->reason, w->pump->trace);
		if (c->feedback)
			check_residual(w, i, n);
		for (size_t k = 0; k < COUNT; k++)
			assert_true(w->input[i][k] == value(i + 1, k) &&
			    w->residual[i][k] == residual(i + 1, k));
		switch (c->collective) {
		case TR_REDUCE_SCATTER:
			tr_block_range(COUNT, n, index, &first, &own);
			shift = c->in_place ? 0 : first;
			for (size_t k = 0; k < own; k++)
				check_value(w, i, n, first + k, w->output[i][first - shift + k]);
			/* In place the rest is the caller's. */
			for (size_t k = 0; c->in_place && k < COUNT; k++)
				assert_true((k >= first && k < first + own) ||
				    w->output[i][k] == value(i + 1, k));
			break;
		case TR_SEND:
			if (index != 1)
				break;
			/* fall through */
		default:
			for (size_t k = 0; k < COUNT; k++)
				check_value(w, i, n, k, w->output[i][k]);
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
	view.segment_bytes = SEGMENT_BYTES;
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

/* In each form, after each delivery. */
static void kill_forms(struct kill_case c, unsigned *number, unsigned *cases)
{
	bool sums = c.collective == TR_ALL_REDUCE || c.collective == TR_REDUCE_SCATTER;

	for (int codec = TR_CODEC_NONE; codec <= TR_CODEC_INT2; codec++)
		for (unsigned form = 0; form < 4; form++) {
			c.codec = (enum tr_codec)codec;
			c.in_place = (form & 1) != 0;
			c.feedback = (form & 2) != 0;
			if (c.feedback && (!sums || codec == TR_CODEC_NONE))
				continue;
			c.after = UINT32_MAX;
			unsigned all = run(&c);
			for (c.after = 0; c.after < all; c.after++)
				if (kill_wanted(++*number)) {
					run(&c);
					++*cases;
				}
		}
}

static void kill_everywhere(enum tr_collective collective)
{
	unsigned number = 0, cases = 0;
	for (unsigned n = 2; n <= PUMP_MEMBERS; n += n == 5 && kill_thinned() ? 3 : 1)
		for (int policy = 0; policy < 3; policy++)
			for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
				for (unsigned victim = 0; victim < n; victim++)
					kill_forms((struct kill_case){ .collective = collective,
					               .algorithm = (enum tr_algorithm)algorithm,
					               .policy = (Traind__Peer__Policy)policy,
					               .n = n,
					               .victim = victim },
					    &number, &cases);
	print_message("%u kills\n", cases);
}

static void reduce_scatter(void **state)
{
	(void)state;
	kill_everywhere(TR_REDUCE_SCATTER);
}

static void all_gather(void **state)
{
	(void)state;
	kill_everywhere(TR_ALL_GATHER);
}

static void broadcast(void **state)
{
	(void)state;
	kill_everywhere(TR_BROADCAST);
}

static void send_and_receive(void **state)
{
	(void)state;
	kill_everywhere(TR_SEND);
}

static void all_reduce(void **state)
{
	(void)state;
	kill_everywhere(TR_ALL_REDUCE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reduce_scatter),
		cmocka_unit_test(all_gather),
		cmocka_unit_test(broadcast),
		cmocka_unit_test(send_and_receive),
		cmocka_unit_test(all_reduce),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
