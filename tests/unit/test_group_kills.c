/* The kill matrix: a member dies at every protocol state and after every single delivery of a round, for each algorithm, policy and
 * world size; the survivors go on by memberd's own rules (resume_decide) and must commit the very round with results that equal
 * the reference, which is computed from the contributor sets that they report, byte for byte.
 *
 * KILL_MATRIX=full in the environment of the test's caller runs every point; otherwise points are thinned, the same each time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/group.h"
#include "common/rng.h"
#include "daemon/membership/core/resume.h"
#include "tests/unit/core_holders.h"
#include "tests/unit/core_message.h"
#include "tests/unit/kill_reference.h"

#define N_MAX   8
#define OPS     4
#define RING    TRAIND__PEER__ALGORITHM__ALGORITHM_RING
#define ANYBODY UINT32_MAX
#define READS \
	1 /* the op whose result callers wait for before they commit; the samples are taken from it */
#define THIN 307 /* one point of so many, when thinned */

enum phase { BEFORE_BEGIN, BEGUN, ONE_SUBMITTED, SUBMITTED, READ, CLOSED, PHASES };

struct kill_case {
	unsigned n, victim, seed, after; /* deliveries before the kill */
	enum phase phase;                /* where the victim's caller stands then */
	Traind__Peer__Algorithm algorithm;
	Traind__Peer__Policy policy;
	enum tr_codec codec;
	bool deterministic, reads;
	bool late; /* what the victim had sent still arrives before the freeze */
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

struct world {
	const struct kill_case *c;
	struct peer peers[N_MAX];
	struct core_message *links[N_MAX][N_MAX]; /* oldest first, by sender and receiver */
	struct rng_key key;
	uint64_t draws;
	unsigned delivered;
	uint64_t view;
};

/* ---- inputs and their reference ---- */

static void fill(struct peer *peer, unsigned who)
{
	for (size_t e = 0; e < ELEMENTS; e++) {
		peer->ints[e] = input(who, 0, e);
		peer->inputs[e] = (float)input(who, 1, e);
		peer->averages[e] = (float)input(who, 2, e);
		peer->coded[e] = (float)input(who, 3, e) / 3;
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

static void check_element(struct peer *peer, enum tr_codec codec, unsigned op, size_t e,
    const uint64_t *set, size_t count)
{
	int32_t least = INT32_MAX;
	float sum = 0;
	for (size_t i = 0; i < count; i++) {
		int32_t x = input((unsigned)set[i] - 1, op, e);
		least = x < least ? x : least;
		sum += (float)x; /* whole numbers: any order gives the same bits */
	}
	if (op == 3)
		assert_memory_equal(&peer->coded[e],
		    &(float){ coded_reference(codec, e, set, count) }, sizeof(sum));
	else if (op == 0)
		assert_int_equal(peer->ints[e], least);
	else if (op == 1)
		assert_memory_equal(&peer->floats[e], &sum, sizeof(sum));
	else
		assert_memory_equal(&peer->averages[e], &(float){ sum / (float)count }, sizeof(sum));
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
	return st;
}

static tr_status hand_over(struct world *world, struct core_message *message)
{
	return step(world, message->to, core_message_event(message));
}

/* The oldest of a link. false: it has to wait for its receiver, or there is none. */
static bool deliver(struct world *world, struct core_message **link)
{
	struct core_message *message = *link;

	if (!message)
		return false;
	*link = message->next;
	if (!world->peers[message->to].dead && hand_over(world, message) == TR_EAGAIN) {
		message->next = *link;
		*link = message;
		return false;
	}
	core_message_free(message);
	return true;
}

/* Delivers one message of a random link, or of those that `from` sent; false: nothing can be delivered. */
static bool deliver_one(struct world *world, unsigned from)
{
	unsigned n = world->c->n,
	         start = (unsigned)(rng_u64(world->key, 0, ++world->draws) % (n * n));

	for (unsigned k = 0; k < n * n; k++) {
		unsigned at = (start + k) % (n * n);
		if ((from == ANYBODY || at / n == from) &&
		    deliver(world, &world->links[at / n][at % n])) {
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
		in->peers[i].host = (char *)(ids[i] % 2 ? "odd" : ids[i] % 4 ? "even" : "four");
	}
	for (unsigned i = 0; i < count; i++) /* not the order of ids */
		in->ring[i] = (count - i + c->seed) % count;
	in->view.number = ++world->view;
	in->view.n_peers = in->view.n_ring = count;
	in->view.peers = in->peer_list;
	in->view.ring = in->ring;
	in->view.hub = c->seed % count;
	in->view.policy = c->policy;
	in->view.algorithm = c->algorithm;
	in->view.deterministic = c->deterministic;
	in->view.segment_bytes = SEGMENT_BYTES;
	in->install.view = &in->view;
	in->install.resume = &in->resume;
}

static void send_install(struct world *world, struct install *in)
{
	for (unsigned i = 0; i < world->c->n; i++)
		if (!world->peers[i].dead)
			assert_int_equal(step(world, i,
			                     (struct group_event){ .kind = GROUP_INSTALL,
			                         .install = &in->install }),
			    TR_OK);
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

/* ---- one case ---- */

/* Returns whether it has submitted all ops. */
static bool caller_submit(struct world *world, unsigned who, enum phase until)
{
	struct peer *peer = &world->peers[who];

	fill(peer, who);
	for (unsigned op = 0; op < OPS && until >= ONE_SUBMITTED; op++) {
		if (op > 0 && until == ONE_SUBMITTED)
			return false;
		struct group_event event = { .kind = GROUP_SUBMIT };
		event.submit.tag = op;
		event.submit.data = op_data(peer, op);
		event.submit.count = ELEMENTS;
		event.submit.dtype = ops[op].dtype;
		event.submit.reduce = ops[op].reduce;
		event.submit.contribute = true;
		event.submit.input = op == 1 ? peer->inputs : NULL;
		event.submit.codec = op == 3 ? world->c->codec : TR_CODEC_NONE;
		assert_int_equal(step(world, who, event), TR_OK);
	}
	return until >= SUBMITTED;
}

/* The caller of `who` goes on as far as `until`. */
static void caller(struct world *world, unsigned who, enum phase until)
{
	struct peer *peer = &world->peers[who];

	if (until == BEFORE_BEGIN || peer->dead)
		return;
	if (!peer->begun)
		(void)step(world, who, (struct group_event){ .kind = GROUP_BEGIN });
	if (!peer->begun || peer->submitted)
		return; /* the answer comes with the next view */
	peer->submitted = caller_submit(world, who, until);
	peer->waits = until >= READ && world->c->reads;
	peer->samples = 5;
	if (peer->waits)
		(void)step(world, who, (struct group_event){ .kind = GROUP_WAIT, .tag = READS });
}

/* Commits when it has read what it waits for. */
static void caller_close(struct world *world, unsigned who, enum phase until)
{
	struct peer *peer = &world->peers[who];

	if (until < CLOSED || peer->dead || !peer->submitted || peer->closed ||
	    (peer->waits && !peer->has_read))
		return;
	peer->closed = true;
	(void)step(world, who,
	    (struct group_event){ .kind = GROUP_CLOSE, .close = { .samples = peer->samples } });
}

static void callers_close(struct world *world, enum phase victims)
{
	for (unsigned i = 0; i < world->c->n; i++)
		caller_close(world, i, i == world->c->victim ? victims : CLOSED);
}

static void world_start(struct world *world, struct install *first, const struct kill_case *c)
{
	*world = (struct world){ .c = c };
	world->key = rng_key(c->seed, 0, 0);
	for (unsigned i = 0; i < c->n; i++) {
		struct group_core_options options = { .group = 1, .peer = i + 1 };
		if (c->seed % 2) /* a few segments at a time, not the same number everywhere */
			options.window_bytes = SEGMENT_BYTES * (size_t)(c->seed % 8 + i);
		assert_int_equal(group_core_create(&options, &world->peers[i].core), TR_OK);
		(void)step(world, i, (struct group_event){ .kind = GROUP_READY });
	}
	install_view(world, first);
	first->resume.base_round = 1;
	send_install(world, first);
}

static void world_finish(struct world *world)
{
	for (unsigned i = 0; i < world->c->n; i++) {
		group_core_destroy(world->peers[i].core);
		if (world->peers[i].report)
			traind__peer__view_report__free_unpacked(world->peers[i].report, NULL);
	}
	for (unsigned i = 0; i < world->c->n; i++)
		queue_drop(world, i, false);
}

static void check_survivors(struct world *world)
{
	uint64_t set[N_MAX], ids[N_MAX];
	unsigned count = survivors(world, ids);

	for (unsigned i = 0; i < count; i++) {
		struct peer *peer = &world->peers[ids[i] - 1];
		if (peer->decided == 0 || peer->status != TR_OK || peer->info.round != 1)
			fail_msg("peer %d did not commit round 1: status %s", (int)ids[i],
			    tr_status_name(peer->status));
		if (world->c->reads)
			assert_true(peer->samples == (uint64_t)peer->floats[0]);
		for (unsigned op = 0; op < OPS; op++)
			for (size_t e = 0; e < ELEMENTS; e++) {
				size_t got;
				assert_int_equal(group_core_contributors(peer->core, op, e, set,
				                     N_MAX, &got),
				    TR_OK);
				/* Who lives is in every sum. */
				for (unsigned k = 0, at = 0; k < count; k++, at++) {
					while (at < got && set[at] != ids[k])
						at++;
					assert_true(at < got);
				}
				if (op == 3 && world->c->algorithm == RING &&
				    !world->c->deterministic)
					assert_memory_equal(&peer->coded[e], /* quantised at each hop */
					    &world->peers[ids[0] - 1].coded[e], sizeof(float));
				else
					check_element(peer, world->c->codec, op, e, set, got);
			}
	}
}

/* Returns how many messages were delivered before the kill (fewer than asked: the round was over). */
static unsigned run(const struct kill_case *c)
{
	struct install *first = calloc(1, sizeof(*first));
	struct world world;

	assert_non_null(first);
	world_start(&world, first, c);
	for (unsigned i = 0; i < c->n; i++)
		caller(&world, i, i == c->victim ? c->phase : CLOSED);
	callers_close(&world, c->phase);
	while (world.delivered < c->after && deliver_one(&world, ANYBODY))
		callers_close(&world, c->phase);
	unsigned delivered = world.delivered;
	world.peers[c->victim].dead = true;
	while (c->late && deliver_one(&world, c->victim))
		continue;
	queue_drop(&world, c->victim, false);
	change_view(&world, first);
	do {
		for (unsigned i = 0; i < c->n; i++)
			if (world.peers[i].status == TR_ERESTART || world.peers[i].decided == 0)
				caller(&world, i, CLOSED);
		callers_close(&world, CLOSED);
	} while (deliver_one(&world, ANYBODY));
	check_survivors(&world);
	world_finish(&world);
	free(first);
	return delivered;
}

static bool full(void)
{
	const char *matrix = getenv("KILL_MATRIX");

	return matrix && strcmp(matrix, "full") == 0;
}

static bool wanted(unsigned *number)
{
	(*number)++;
	return full() || *number % THIN == 0;
}

/* Every victim, every state of its caller, every delivery. */
static void kill_everywhere(struct kill_case c, unsigned *number, unsigned *cases)
{
	for (c.victim = 0; c.victim < c.n; c.victim++)
		for (unsigned phase = BEFORE_BEGIN; phase < PHASES; phase++) {
			c.phase = (enum phase)phase;
			c.reads = phase == READ || (phase + c.victim) % 2 == 0;
			c.after = UINT32_MAX;
			c.late = false;
			unsigned all = run(&c);
			(*cases)++;
			for (c.after = 0; c.after < all; c.after++)
				for (unsigned late = 0; late < 2; late++) {
					c.late = late;
					if (!wanted(number))
						continue;
					c.seed = *number;
					run(&c);
					(*cases)++;
				}
		}
}

static void matrix(Traind__Peer__Algorithm algorithm)
{
	unsigned number = 0, cases = 0;

	for (unsigned n = 2; n <= N_MAX; n += n == 5 && !full() ? 3 : 1)
		for (unsigned policy = 0; policy < 3; policy++)
			for (unsigned deterministic = 0; deterministic < 2; deterministic++)
				kill_everywhere((struct kill_case){ .n = n,
				                    .seed = n,
				                    .algorithm = algorithm,
				                    .codec = (enum tr_codec)(
				                        TR_CODEC_BF16 + (n + policy) % 5),
				                    .policy = (Traind__Peer__Policy)policy,
				                    .deterministic = deterministic },
				    &number, &cases);
	print_message("%u kills\n", cases);
}

static void survives(void **state)
{
	matrix(*(const Traind__Peer__Algorithm *)*state);
}

/* An argument, as "direct*", names the tests to run. */
int main(int count, char **arguments)
{
	static Traind__Peer__Algorithm algorithms[] = {
		TRAIND__PEER__ALGORITHM__ALGORITHM_RING,
		TRAIND__PEER__ALGORITHM__ALGORITHM_STAR,
		TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT,
		TRAIND__PEER__ALGORITHM__ALGORITHM_HIERARCHICAL,
		TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT,
	};
	const struct CMUnitTest tests[] = {
		{ "ring survives a kill anywhere", survives, NULL, NULL, &algorithms[0] },
		{ "star survives a kill anywhere", survives, NULL, NULL, &algorithms[1] },
		{ "direct survives a kill anywhere", survives, NULL, NULL, &algorithms[2] },
		{ "hierarchical survives a kill anywhere", survives, NULL, NULL, &algorithms[3] },
		{ "one-shot survives a kill anywhere", survives, NULL, NULL, &algorithms[4] },
	};
	if (count > 1)
		cmocka_set_test_filter(arguments[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
