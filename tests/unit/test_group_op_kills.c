/* A member dies after every single delivery of a round of reduce-scatter, all-gather, broadcast, send/receive or an all-reduce: in place and
 * not, with each codec, with error feedback, in deterministic groups and others, wherever its caller and the others' callers stand. The survivors go
 * on by memberd's own rules (resume_decide) and commit: what they hold is what the contributor sets say, byte for byte, residuals
 * included, and what nobody holds was not touched.
 *
 * Cases and their points are thinned unless KILL_MATRIX says more (kill_matrix.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/group_pump.h"
#include "tests/unit/kill_matrix.h"
#include "tests/unit/op_kill_cases.h"

#include "daemon/membership/core/resume.h"

#define TAG        4
#define FILL       (-7)
#define CASE_THIN  41 /* one case of so many, when thinned, */
#define POINT_THIN 31 /* and one point of so many of theirs */
#define VIEWS_MOST 4
/* A trace is taken of what failed without one: it fails again, the same way. */
#define FAIL(w, format, ...)                                                                       \
	do {                                                                                       \
		if ((w)->pump->quiet)                                                              \
			(void)run((w)->c, true);                                                   \
		fail_msg(format ": " CASE "\n%s", __VA_ARGS__, CASE_OF((w)->c), (w)->pump->trace); \
	} while (0)
#define CASE                                                                                      \
	"collective %d, codec %d, algorithm %d, policy %d%s, n %u, victim %u after %u, form %d, " \
	"start %u"
#define CASE_OF(c)                                                                           \
	(int)(c)->collective, (int)(c)->codec, (int)(c)->algorithm, (int)(c)->policy,        \
	    (c)->deterministic ? " deterministic" : "", (c)->n, (c)->victim + 1, (c)->after, \
	    (c)->in_place + 2 * (c)->feedback, (c)->start

/* How far a caller has come. */
enum stage { IDLE, BEGUN, SUBMITTED, CLOSED };

/* Where the callers stand until somebody dies: the victim's, and every other one of the survivors'. The rest have committed. */
static const struct {
	enum stage victim, others;
} starts[] = {
	{ CLOSED, CLOSED },
	{ SUBMITTED, CLOSED },
	{ BEGUN, CLOSED },
	{ IDLE, CLOSED },
	{ CLOSED, BEGUN },
	{ CLOSED, IDLE },
	{ BEGUN, BEGUN },
	{ IDLE, IDLE },
};
#define STARTS (sizeof(starts) / sizeof(starts[0]))

/* What a segment with these contributors is; taken once, for all members. */
struct expected {
	uint64_t members; /* bits; 0: not known yet */
	float sum[SEGMENT_BYTES / sizeof(float)];
};

struct kill_world {
	const struct kill_case *c;
	struct pump *pump;
	float input[PUMP_MEMBERS][COUNT], output[PUMP_MEMBERS][COUNT];
	float residual[PUMP_MEMBERS][COUNT], next[PUMP_MEMBERS][COUNT];
	bool filled[PUMP_MEMBERS];
	enum stage stage[PUMP_MEMBERS];
	unsigned begun[PUMP_MEMBERS], decided[PUMP_MEMBERS]; /* before its begin */
	struct expected expected[COUNT];                     /* by a segment's first element */
};

static unsigned run(const struct kill_case *c, bool traced);

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

static void submit(struct kill_world *w, unsigned who)
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
		w->output[who][k] = holds ? value(c, who + 1, k) : FILL;
		w->next[who][k] = FILL;
		if (w->filled[who])
			continue; /* an attempt that was abandoned left them as they were */
		w->input[who][k] = value(c, who + 1, k);
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
}

/* The caller of `who` goes on as far as `until`, or as it can: a begin is answered by a view. */
static void caller(struct kill_world *w, unsigned who, enum stage until)
{
	const struct pump_member *member = &w->pump->members[who];
	enum stage *stage = &w->stage[who];

	if (member->dead)
		return;
	if (*stage > IDLE && member->decided_count > w->decided[who] &&
	    member->status == TR_ERESTART)
		*stage = IDLE;
	if (*stage == IDLE && until > IDLE) {
		w->begun[who] = member->begun_count;
		w->decided[who] = member->decided_count;
		assert_int_equal(pump_event(w->pump, who, GROUP_BEGIN), TR_OK);
		*stage = BEGUN;
	}
	if (member->begun_count == w->begun[who])
		return;
	if (*stage == BEGUN && until > BEGUN) {
		submit(w, who);
		*stage = SUBMITTED;
	}
	if (*stage == SUBMITTED && until > SUBMITTED) {
		assert_int_equal(pump_close(w->pump, who, 0, 0), TR_OK);
		*stage = CLOSED;
	}
}

static void callers(struct kill_world *w, enum stage victim, enum stage others)
{
	for (unsigned i = 0; i < w->c->n; i++)
		caller(w, i, i == w->c->victim ? victim : (i + w->c->victim) % 2 ? others : CLOSED);
}

static float expected_of(struct kill_world *w, unsigned contributors, size_t k, const uint64_t *set,
    size_t count)
{
	struct piece piece = piece_of(w->c, contributors, k);
	struct expected *expected = &w->expected[piece.first];
	uint64_t members = (uint64_t)contributors << 32;

	for (size_t i = 0; i < count; i++)
		members |= UINT64_C(1) << set[i];
	if (expected->members != members)
		sum_of(w->c, &piece, set, count, expected->sum);
	expected->members = members;
	return expected->sum[k - piece.first];
}

/* Who gives the element, where one alone does. */
static uint64_t source_of(const struct kill_case *c, unsigned contributors, size_t k)
{
	uint64_t peers[PUMP_MEMBERS];
	unsigned who = c->collective == TR_BROADCAST ? contributors - 1 : 0;
	size_t first, own;

	peers_of(c, contributors, peers);
	tr_block_range(COUNT, contributors, who, &first, &own);
	while (c->collective == TR_ALL_GATHER && k >= first + own)
		tr_block_range(COUNT, contributors, ++who, &first, &own);
	return peers[who];
}

/* Who lives is in every sum; what one gives is that one's, and lost only with it. */
static bool set_is_right(const struct kill_world *w, unsigned who, size_t k, const uint64_t *set,
    size_t count)
{
	const struct kill_case *c = w->c;
	const struct tr_round *decided = &w->pump->members[who].decided;
	unsigned at = 0;

	if (!is_sum(c)) {
		uint64_t source = source_of(c, decided->contributors, k);
		if (count == 0)
			return source == c->victim + 1 && decided->partial &&
			    c->policy == TRAIND__PEER__POLICY__POLICY_KEEP;
		return count == 1 && set[0] == source;
	}
	for (unsigned i = 0; i < c->n; i++) {
		bool in = at < count && set[at] == i + 1;
		if (!in && i != c->victim)
			return false;
		at += in;
	}
	return at == count;
}

static void check_value(struct kill_world *w, unsigned who, unsigned contributors, size_t k,
    float got)
{
	uint64_t set[PUMP_MEMBERS];
	size_t count;
	float expected = FILL;
	assert_int_equal(group_core_contributors(w->pump->members[who].core, TAG, k, set,
	                     PUMP_MEMBERS, &count),
	    TR_OK);
	if (!set_is_right(w, who, k, set, count))
		FAIL(w, "member %u, element %zu: %zu contributors, not whose data it must have",
		    who + 1, k, count);
	if (count > 0)
		expected = expected_of(w, contributors, k, set, count);
	if (memcmp(&got, &expected, sizeof(got)) != 0)
		FAIL(w, "member %u, element %zu: %g, not %g of %zu contributors", who + 1, k,
		    (double)got, (double)expected, count);
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
		struct piece piece = piece_of(c, contributors, k);
		float next[COUNT], got = w->next[who][k];
		uint8_t wire[REFERENCE_BYTES];
		encode(c, who + 1, &piece, wire, next);
		if (is_nobodys(w, who, k))
			next[k - piece.first] = value(c, who + 1, k) + BETA * residual(who + 1, k);
		if (memcmp(&got, &next[k - piece.first], sizeof(got)) != 0)
			FAIL(w, "member %u, element %zu: residual %g, not %g", who + 1, k,
			    (double)got, (double)next[k - piece.first]);
	}
}

static void check(struct kill_world *w)
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
			FAIL(w, "member %u: %s, %s", i + 1, tr_status_name(member->status),
			    member->reason);
		if (c->feedback)
			check_residual(w, i, n);
		for (size_t k = 0; k < COUNT; k++)
			assert_true(w->input[i][k] == value(c, i + 1, k) &&
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
				    w->output[i][k] == value(c, i + 1, k));
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

static void install(struct kill_world *w, struct pump_view *view)
{
	uint32_t ring[PUMP_MEMBERS];

	/* Three hosts, one of them with every other peer. */
	for (unsigned i = 0; i < view->count; i++)
		view->host[i] = view->peers[i] % 2 ? "odd" : view->peers[i] % 4 ? "even" : "four";
	ring_of(view->count, ring);
	view->ring = ring;
	pump_install(w->pump, view);
	view->ring = NULL;
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
	old_resume.base_round = view->base_round;
	old_resume.finish = view->finish;
	old_resume.base_attempt = view->base_attempt;
	old_resume.contributors = view->contributors;
	old_resume.n_contributors = view->contributor_count;
	old.view = &old_view;
	old.resume = &old_resume;
	pump_propose(pump, view->number + 1);
	/* Some of those who were late come while all are frozen, some later. */
	if ((w->c->after / 2 + w->c->victim) % 2)
		callers(w, IDLE, CLOSED);
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
	install(w, view);
}

/* A member can say that it cannot go on: then memberd makes another view. */
static bool any_stuck(struct kill_world *w)
{
	bool stuck = false;

	for (unsigned i = 0; i < w->c->n; i++) {
		struct pump_member *member = &w->pump->members[i];
		stuck = stuck || (!member->dead && member->lost_reason[0] != '\0');
		member->lost_reason[0] = '\0';
	}
	return stuck;
}

/* Returns how many messages there were before the kill. */
static unsigned run(const struct kill_case *c, bool traced)
{
	static struct kill_world world;
	world = (struct kill_world){ .c = c, .pump = pump_create_with(c->n, c->after % 2 ? 16 : 0) };
	struct pump *pump = world.pump;
	struct pump_view view = pump_first_view(pump);
	pump->quiet = !traced;
	pump->holds = c->after % 2; /* so what is staged has to wait for room (outlet.c) */
	view.policy = c->policy;
	view.algorithm = (Traind__Peer__Algorithm)c->algorithm;
	view.deterministic = c->deterministic;
	view.segment_bytes = SEGMENT_BYTES;
	pump_ready_all(pump);
	install(&world, &view);
	/* All begin before one sends. */
	callers(&world, starts[c->start].victim > IDLE ? BEGUN : IDLE,
	    starts[c->start].others > IDLE ? BEGUN : IDLE);
	callers(&world, starts[c->start].victim, starts[c->start].others);
	unsigned delivered = pump_some(pump, c->after);
	pump_kill(pump, c->victim);
	do {
		change_view(&world, &view);
		callers(&world, IDLE, CLOSED);
		pump_run(pump);
	} while (any_stuck(&world) && view.number < VIEWS_MOST);
	check(&world);
	pump_destroy(pump);
	return delivered;
}

struct tally {
	unsigned case_number, point_number, cases, kills;
};

/* After each delivery. */
static void kill_points(struct kill_case c, struct tally *tally)
{
	if (!kill_wanted_case(++tally->case_number, CASE_THIN))
		return;
	c.after = UINT32_MAX;
	unsigned all = run(&c, false);
	tally->cases++;
	tally->kills++;
	for (c.after = 0; c.after < all; c.after++) {
		if (!kill_wanted_of_case(++tally->point_number, POINT_THIN, c.after, all))
			continue;
		run(&c, false);
		tally->kills++;
	}
}

static void kill_forms(struct kill_case c, struct tally *tally)
{
	for (int codec = TR_CODEC_NONE; codec <= TR_CODEC_INT2; codec++)
		for (unsigned form = 0; form < 4; form++) {
			c.codec = (enum tr_codec)codec;
			c.in_place = (form & 1) != 0;
			c.feedback = (form & 2) != 0;
			if (!c.feedback || (is_sum(&c) && codec != TR_CODEC_NONE))
				kill_points(c, tally);
		}
}

static void kill_starts(struct kill_case c, struct tally *tally)
{
	for (int deterministic = 0; deterministic < 2; deterministic++)
		for (c.start = 0; c.start < STARTS; c.start++)
			for (c.victim = 0; c.victim < c.n; c.victim++) {
				c.deterministic = deterministic;
				kill_forms(c, tally);
			}
}

static void kill_everywhere(enum tr_collective collective)
{
	struct tally tally = { 0 };

	for (unsigned n = 2; n <= PUMP_MEMBERS; n++)
		for (int policy = 0; policy < 3; policy++)
			for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
				kill_starts((struct kill_case){ .collective = collective,
				                .algorithm = (enum tr_algorithm)algorithm,
				                .policy = (Traind__Peer__Policy)policy,
				                .n = n },
				    &tally);
	print_message("%u kills, %u cases of %u\n", tally.kills, tally.cases, tally.case_number);
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

/* An argument, as "all_*", names the tests to run. */
int main(int count, char **arguments)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reduce_scatter),
		cmocka_unit_test(all_gather),
		cmocka_unit_test(broadcast),
		cmocka_unit_test(send_and_receive),
		cmocka_unit_test(all_reduce),
	};
	if (count > 1)
		cmocka_set_test_filter(arguments[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
