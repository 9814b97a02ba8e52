/* The kill matrix's world (test_group_kills.c): cores of a group, what is on its way between them, what they show to each other where they share a host, and
 * memberd's part when one dies. All of it is static: a test program includes this once.
 */
#ifndef TR_TESTS_KILL_WORLD_H
#define TR_TESTS_KILL_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/group.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"
#include "daemon/membership/core/resume.h"
#include "tests/unit/core_holders.h"
#include "tests/unit/core_message.h"
#include "tests/unit/kill_boards.h"
#include "tests/unit/kill_reference.h"

#define N_MAX       8
#define OPS         4
#define VIEWS       2
#define RING        TRAIND__PEER__ALGORITHM__ALGORITHM_RING
#define ANYBODY     UINT32_MAX
#define WHOLE_BYTES 256 /* an op is one segment */
#define READS \
	1 /* the op whose result callers wait for before they commit; the samples are taken from it */

enum phase { BEFORE_BEGIN, BEGUN, ONE_SUBMITTED, SUBMITTED, READ, CLOSED, PHASES };

struct kill_case {
	unsigned n, victim, seed, after; /* deliveries before the kill */
	enum phase phase;                /* where the victim's caller stands then */
	Traind__Peer__Algorithm algorithm;
	Traind__Peer__Policy policy;
	enum tr_codec codec;
	bool deterministic, reads;
	bool late;   /* what the victim had sent still arrives before the freeze */
	bool boards; /* all are on one host, and ops have one segment */
};

struct peer {
	struct group_core *core;
	bool dead, begun, submitted, waits, has_read, closed;
	uint64_t samples;
	struct tr_round info;
	unsigned decided;
	tr_status status;
	Traind__Peer__ViewReport *report;
	int32_t ints[ELEMENTS];
	float inputs[ELEMENTS], floats[ELEMENTS], averages[ELEMENTS], coded[ELEMENTS];
};

/* What the ops with an order make of a segment with these contributors; taken once, for all members. */
struct expected {
	uint64_t members; /* bits; 0: not known yet */
	float sum[ELEMENTS];
};

struct world {
	const struct kill_case *c;
	struct peer peers[N_MAX];
	struct core_message *links[N_MAX][N_MAX]; /* oldest first, by sender and receiver */
	struct rng_key key;
	uint64_t draws;
	unsigned delivered;
	uint64_t view;
	struct {
		uint64_t peers[N_MAX]; /* by place */
		unsigned count;
	} rings[VIEWS]; /* of views 1 and 2 */
	struct kill_boards boards;
	struct expected expected[2][ELEMENTS]; /* of ops 2 and 3, by a segment's first element */
};

/* ---- inputs and their reference ---- */

/* A chain, whose members encode what they pass on. */
static bool is_chain(const struct kill_case *c)
{
	return c->algorithm == RING && !c->deterministic;
}

/* Is there an order in which sums are taken? Without one only whole numbers have exact ones. */
static float averaged(const struct kill_case *c, unsigned who, size_t e)
{
	bool ordered = c->deterministic || is_chain(c) ||
	    c->algorithm == TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT;

	return (float)input(who, 2, e) / (ordered ? 3 : 1);
}

static void fill(struct peer *peer, const struct kill_case *c, unsigned who)
{
	for (size_t e = 0; e < ELEMENTS; e++) {
		peer->ints[e] = input(who, 0, e);
		peer->inputs[e] = (float)input(who, 1, e);
		peer->averages[e] = averaged(c, who, e);
		peer->coded[e] = coded_input(who, e);
	}
}

/* One in place of each kind of sum, one out of place, one through a codec. */
static const struct {
	enum tr_dtype dtype;
	enum tr_reduce reduce;
} ops[OPS] = { { TR_I32, TR_MIN }, { TR_F32, TR_SUM }, { TR_F32, TR_AVG }, { TR_F32, TR_SUM } };

static void *op_data(struct peer *peer, unsigned op)
{
	void *const data[OPS] = { peer->ints, peer->floats, peer->averages, peer->coded };
	return data[op];
}

static uint32_t segment_bytes(const struct kill_case *c)
{
	return c->boards ? WHOLE_BYTES : SEGMENT_BYTES;
}

/* In which a sum was taken: who is in it says in which view. */
static void order_of(const struct world *world, size_t segment, const uint64_t *set, size_t count,
    uint64_t *order)
{
	bool chain = is_chain(world->c), found = false;

	memcpy(order, set, count * sizeof(*set));
	for (unsigned v = 0; v < VIEWS && chain; v++)
		if (world->rings[v].count == count) {
			reference_chain(world->rings[v].peers, count, segment, order);
			found = true;
		}
	assert_true(found || !chain);
}

static float average_of(const struct kill_case *c, size_t e, const uint64_t *order, size_t count)
{
	float sum = averaged(c, (unsigned)order[0] - 1, e);

	for (size_t i = 1; i < count; i++) {
		float x = averaged(c, (unsigned)order[i] - 1, e);
		reduce_plain_combine(TR_F32, TR_SUM, &sum, &sum, &x, 1);
	}
	reduce_plain_divide(TR_F32, &sum, 1, (unsigned)count);
	return sum;
}

/* Of op 2 or 3. */
static float expected_of(struct world *world, unsigned op, size_t e, const uint64_t *set,
    size_t count)
{
	const struct kill_case *c = world->c;
	size_t per_segment = segment_bytes(c) / sizeof(float),
	       first = e / per_segment * per_segment,
	       n = ELEMENTS - first < per_segment ? ELEMENTS - first : per_segment;
	struct expected *expected = &world->expected[op % 2][first];
	uint64_t members = 0, order[N_MAX];

	for (size_t i = 0; i < count; i++)
		members |= UINT64_C(1) << set[i];
	if (expected->members != members) {
		order_of(world, first / per_segment, set, count, order);
		if (op == 3)
			coded_reference(c->codec, is_chain(c), first, n, order, count,
			    expected->sum);
		for (size_t k = 0; op == 2 && k < n; k++)
			expected->sum[k] = average_of(c, first + k, order, count);
	}
	expected->members = members;
	return expected->sum[e - first];
}

static void check_element(struct world *world, struct peer *peer, unsigned op, size_t e,
    const uint64_t *set, size_t count)
{
	const float *got[OPS] = { NULL, peer->floats, peer->averages, peer->coded };
	int32_t least = INT32_MAX;
	float sum = 0;
	for (size_t i = 0; i < count && op < 2; i++) {
		int32_t x = input((unsigned)set[i] - 1, op, e);
		least = x < least ? x : least;
		sum += (float)x; /* whole numbers: any order gives the same bits */
	}
	if (op == 0) {
		assert_int_equal(peer->ints[e], least);
		return;
	}
	if (op > 1)
		sum = expected_of(world, op, e, set, count);
	if (memcmp(&got[op][e], &sum, sizeof(sum)) != 0)
		fail_msg("op %u, element %zu: %g, not %g", op, e, (double)got[op][e], (double)sum);
}

/* ---- messages ---- */

static void queue_put(struct world *world, unsigned from, struct group_action *action)
{
	struct core_message **at = &world->links[from][action->to - 1];
	while (*at)
		at = &(*at)->next;
	*at = core_message_take(world->peers[from].core, from, action);
}

static void queue_drop(struct world *world, unsigned from, bool segments_only)
{
	for (unsigned to = 0; to < N_MAX; to++)
		for (struct core_message **at = &world->links[from][to]; *at;) {
			struct core_message *message = *at;
			if (segments_only && message->kind != GROUP_DO_SEND_SEGMENT) {
				at = &message->next;
				continue;
			}
			*at = message->next;
			core_message_free(message);
		}
}

/* Shown to all, or sent to each. */
static void spread(struct world *world, unsigned who, const struct group_action *action)
{
	bool held = false; /* for all that is known here */
	for (unsigned from = 0; from < world->c->n; from++)
		held |= world->links[from][who] != NULL;
	if (!gather_show(&world->boards.gathers[who], world->peers[who].core, action, held)) {
		for (unsigned to = 0; to < world->c->n; to++) {
			struct group_action one;
			if (to == who || world->peers[to].dead)
				continue;
			one = group_action_to(action, to + 1);
			queue_put(world, who, &one);
		}
	}
	if (action->buffer)
		group_buffer_release(world->peers[who].core, action->buffer);
}

static void act(struct world *world, unsigned who, struct group_actions *actions)
{
	struct peer *peer = &world->peers[who];

	for (size_t i = 0; i < actions->count; i++) {
		struct group_action *action = &actions->items[i];
		switch (action->kind) {
		case GROUP_DO_SEND_SEGMENT:
		case GROUP_DO_SEND_VOTE:
		case GROUP_DO_SEND_COMMIT:
		case GROUP_DO_SEND_SUBMITTED:
			queue_put(world, who, action);
			break;
		case GROUP_DO_SPREAD:
			spread(world, who, action);
			break;
		case GROUP_DO_DROP_SENDS:
			queue_drop(world, who, true);
			break;
		case GROUP_DO_BEGAN:
			peer->info = action->round_info;
			peer->begun = true;
			break;
		case GROUP_DO_DECIDED:
			peer->decided++;
			peer->status = action->status;
			peer->info = action->round_info;
			peer->begun = peer->submitted = peer->closed = false;
			peer->waits = peer->has_read = false;
			break;
		case GROUP_DO_OP_DONE:
			assert_true(peer->waits && action->tag == READS);
			peer->has_read = true;
			peer->samples = (uint64_t)peer->floats[0];
			break;
		case GROUP_DO_REPORT:
			if (peer->report)
				traind__peer__view_report__free_unpacked(peer->report, NULL);
			peer->report = action->report;
			action->report = NULL;
			break;
		case GROUP_DO_FAIL:
			fail_msg("peer %u failed: %s", who + 1, action->text);
			break;
		default:
			break;
		}
	}
	group_actions_clear(actions);
}

static tr_status step(struct world *world, unsigned who, struct group_event event)
{
	struct group_actions actions = { 0 };
	struct tr_error error = { 0 };
	tr_status st = group_core_step(world->peers[who].core, &event, &actions, &error);
	if (st != TR_OK && st != TR_EAGAIN && st != TR_ESTALE)
		fail_msg("peer %u, event %d: %s", who + 1, (int)event.kind, error.text);
	act(world, who, &actions);
	group_actions_finish(&actions);
	if (group_core_due(world->peers[who].core) &&
	    group_core_deadline_us(world->peers[who].core) == 0) /* what was staged has come back */
		(void)step(world, who, (struct group_event){ .kind = GROUP_TICK });
	return st;
}

static tr_status hand_over(struct world *world, struct core_message *message)
{
	return step(world, message->to, core_message_event(message));
}

/* ---- boards ---- */

struct looks {
	struct world *world;
	unsigned who;
};

static tr_status look_gathered(void *arg, struct group_event *event)
{
	const struct looks *looks = arg;
	tr_status st = step(looks->world, looks->who, *event);

	looks->world->boards.gathered += st == TR_OK;
	return st;
}

/* What its core does not take yet waits among what was sent. */
static tr_status look_single(void *arg, uint64_t from, const uint8_t *frame, size_t bytes)
{
	const struct looks *looks = arg;
	struct group_action action = { .kind = GROUP_DO_SEND_SEGMENT,
		.to = looks->who + 1,
		.payload = frame + SEGMENT_HEADER_BYTES,
		.payload_bytes = bytes };

	assert_int_equal(segment_header_get(frame, SEGMENT_HEADER_BYTES + bytes, &action.header,
	                     NULL),
	    TR_OK);
	struct core_message *message = core_message_take(NULL, (unsigned)from - 1, &action);
	if (hand_over(looks->world, message) == TR_EAGAIN) {
		message->next = looks->world->links[message->from][message->to];
		looks->world->links[message->from][message->to] = message;
	} else {
		core_message_free(message);
	}
	return TR_OK;
}

/* false: nothing of it went into its core. */
static bool look(struct world *world, unsigned who)
{
	struct looks looks = { world, who };
	const struct gather_calls calls = { look_gathered, look_single, &looks };

	return world->boards.n > 0 && !world->peers[who].dead &&
	    gather_look(&world->boards.gathers[who], world->peers[who].core, &calls);
}

/* The oldest of a link. false: it has to wait for its receiver, or there is none. */
static bool deliver(struct world *world, struct core_message **link)
{
	struct core_message *message = *link;

	if (!message)
		return false;
	*link = message->next;
	if (world->boards.n > 0 && message->kind == GROUP_DO_SEND_SEGMENT &&
	    message->header.kind == SEGMENT_PARTIAL)
		gather_came(&world->boards.gathers[message->to], &message->header);
	if (!world->peers[message->to].dead && hand_over(world, message) == TR_EAGAIN) {
		message->next = *link;
		*link = message;
		return false;
	}
	core_message_free(message);
	return true;
}

/* Delivers one message of a random link, or of those that `from` sent, or lets somebody look at the boards; false: nothing can be delivered. */
static bool deliver_one(struct world *world, unsigned from)
{
	unsigned n = world->c->n, all = n * n + (world->boards.n > 0 ? n : 0),
	         start = (unsigned)(rng_u64(world->key, 0, ++world->draws) % all);

	for (unsigned k = 0; k < all; k++) {
		unsigned at = (start + k) % all;
		if (at >= n * n ? look(world, at - n * n)
		                : ((from == ANYBODY || at / n == from) &&
		                      deliver(world, &world->links[at / n][at % n]))) {
			world->delivered++;
			return true;
		}
	}
	return false;
}

/* ---- views ---- */

static unsigned survivors(const struct world *world, uint64_t ids[N_MAX])
{
	unsigned count = 0;

	for (unsigned i = 0; i < world->c->n; i++)
		if (!world->peers[i].dead)
			ids[count++] = i + 1;
	return count;
}

struct install {
	Traind__Peer__View view;
	Traind__Peer__ViewPeer peers[N_MAX], *peer_list[N_MAX];
	uint32_t ring[N_MAX];
	Traind__Peer__Resume resume;
	struct core_holders holders;
	Traind__Peer__ViewInstall install;
};

static void install_view(struct world *world, struct install *in)
{
	const struct kill_case *c = world->c;
	uint64_t ids[N_MAX];
	unsigned count = survivors(world, ids);

	traind__peer__view__init(&in->view);
	traind__peer__resume__init(&in->resume);
	traind__peer__view_install__init(&in->install);
	for (unsigned i = 0; i < count; i++) {
		traind__peer__view_peer__init(&in->peers[i]);
		in->peers[i].peer = ids[i];
		in->peers[i].participate_from = in->peers[i].contribute_from = 1;
		in->peer_list[i] = &in->peers[i];
		/* Three hosts, one of them with every other peer. */
		in->peers[i].host = (char *)(c->boards ? "one"
		        : ids[i] % 2                   ? "odd"
		        : ids[i] % 4                   ? "even"
		                                       : "four");
		in->peers[i].local_address = (char *)(c->boards ? "here" : "");
	}
	for (unsigned i = 0; i < count; i++) /* not the order of ids */
		in->ring[i] = (count - i + c->seed) % count;
	assert_true(world->view < VIEWS);
	for (unsigned i = 0; i < count; i++)
		world->rings[world->view].peers[i] = ids[in->ring[i]];
	world->rings[world->view].count = count;
	in->view.number = ++world->view;
	in->view.n_peers = in->view.n_ring = count;
	in->view.peers = in->peer_list;
	in->view.ring = in->ring;
	in->view.hub = c->seed % count;
	in->view.policy = c->policy;
	in->view.algorithm = c->algorithm;
	in->view.deterministic = c->deterministic;
	in->view.segment_bytes = segment_bytes(c);
	in->install.view = &in->view;
	in->install.resume = &in->resume;
}

static void send_install(struct world *world, struct install *in)
{
	uint64_t ids[N_MAX];
	unsigned count = survivors(world, ids);
	for (unsigned k = 0; k < count; k++) {
		unsigned i = (unsigned)ids[k] - 1;
		kill_boards_enter(&world->boards, i, world->view, ids, count);
		assert_int_equal(step(world, i,
		                     (struct group_event){ .kind = GROUP_INSTALL,
		                         .install = &in->install }),
		    TR_OK);
	}
}

/* As memberd does it, from the survivors' reports. */
static void change_view(struct world *world, const struct install *old)
{
	struct install *in = calloc(1, sizeof(*in));
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	const Traind__Peer__ViewReport *reports[N_MAX];
	struct resume_decision decision;
	uint64_t ids[N_MAX];

	assert_non_null(in);
	propose.number = world->view + 1;
	for (unsigned i = 0; i < world->c->n; i++)
		if (!world->peers[i].dead)
			(void)step(world, i,
			    (struct group_event){ .kind = GROUP_PROPOSE, .propose = &propose });
	for (unsigned i = 0; i < world->c->n; i++)
		(void)look(world, i); /* in vain */
	unsigned count = survivors(world, ids);
	for (unsigned i = 0; i < count; i++)
		reports[i] = world->peers[ids[i] - 1].report;
	resume_decide(&(struct resume_input){ .old = &old->install,
	                  .policy = world->c->policy,
	                  .number = propose.number,
	                  .reports = reports,
	                  .members = ids,
	                  .count = count },
	    &decision);
	install_view(world, in);
	in->resume.base_round = decision.base_round;
	in->resume.finish = decision.finish;
	in->resume.abandoned = decision.abandoned;
	in->resume.restart = decision.restart;
	in->resume.base_attempt = decision.base_attempt;
	in->resume.contributors = decision.contributors;
	in->resume.n_contributors = decision.contributors_count;
	for (unsigned i = 0; decision.finish && i < count; i++)
		core_holders_add(&in->holders, &in->resume, ids[i], reports[i]);
	send_install(world, in);
	free(in);
}

#endif
