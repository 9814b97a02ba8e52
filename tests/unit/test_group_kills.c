/* The kill matrix: a member dies at every protocol state and after every single delivery of a round, for each algorithm, policy and
 * world size; the survivors go on by memberd's own rules (resume_decide) and must commit the very round with results that equal
 * the reference, which is computed from the contributor sets that they report, byte for byte.
 *
 * Points are thinned unless KILL_MATRIX says more (kill_matrix.h).
 */
#include "tests/unit/kill_matrix.h"
#include "tests/unit/kill_world.h"

/* ---- one case ---- */

/* Returns whether it has submitted all ops. */
static bool caller_submit(struct world *world, unsigned who, enum phase until)
{
	struct peer *peer = &world->peers[who];

	fill(peer, world->c, who);
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
	if (c->boards)
		kill_boards_start(&world->boards, c->n, c->seed);
	for (unsigned i = 0; i < c->n; i++) {
		struct group_core_options options = { .group = 1,
			.peer = i + 1,
			.spreads = c->boards };
		if (c->seed % (c->boards ? 8 : 2) ==
		    1) /* a few segments at a time, not the same number everywhere */
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
	kill_boards_finish(&world->boards);
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
				check_element(world, peer, op, e, set, got);
			}
	}
}

/* Returns how many messages were delivered before the kill (fewer than asked: the round was over). */
static unsigned run(const struct kill_case *c, uint64_t *gathered)
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
	*gathered += world.boards.gathered;
	world_finish(&world);
	free(first);
	return delivered;
}

/* Every victim, every state of its caller, every delivery. */
static void kill_everywhere(struct kill_case c, unsigned *number, unsigned *cases,
    uint64_t *gathered)
{
	for (c.victim = 0; c.victim < c.n; c.victim++)
		for (unsigned phase = BEFORE_BEGIN; phase < PHASES; phase++) {
			c.phase = (enum phase)phase;
			c.codec = (enum tr_codec)(
			    TR_CODEC_BF16 + (c.n + c.policy + c.victim + phase) % 5);
			c.reads = phase == READ || (phase + c.victim) % 2 == 0;
			c.after = UINT32_MAX;
			c.late = false;
			c.seed = 2 *
			    c.n; /* the same whatever ran before: points are numbered alike in all parts */
			unsigned all = run(&c, gathered);
			(*cases)++;
			for (c.after = 0; c.after < all; c.after++)
				for (unsigned late = 0; late < 2; late++) {
					c.late = late;
					if (!kill_wanted(++*number, c.after, all))
						continue;
					c.seed = *number;
					run(&c, gathered);
					(*cases)++;
				}
		}
}

static void matrix(Traind__Peer__Algorithm algorithm, bool boards)
{
	unsigned number = 0, cases = 0;
	uint64_t gathered = 0;

	for (unsigned n = 2; n <= N_MAX; n += n == 5 && kill_thinned() ? 3 : 1)
		for (unsigned policy = 0; policy < 3; policy++)
			for (unsigned deterministic = 0; deterministic < 2; deterministic++)
				kill_everywhere((struct kill_case){ .n = n,
				                    .seed = n,
				                    .algorithm = algorithm,
				                    .policy = (Traind__Peer__Policy)policy,
				                    .deterministic = deterministic,
				                    .boards = boards },
				    &number, &cases, &gathered);
	print_message("%u kills, %llu ops from boards\n", cases, (unsigned long long)gathered);
	assert_int_equal(boards, gathered > 0);
}

static void survives(void **state)
{
	matrix(*(const Traind__Peer__Algorithm *)*state, false);
}

static void survives_over_boards(void **state)
{
	(void)state;
	matrix(TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT, true);
}

/* An argument, as "*direct*", names the tests to run. */
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
		{ "guarantee 2: ring survives a kill anywhere", survives, NULL, NULL,
		    &algorithms[0] },
		{ "guarantee 2: star survives a kill anywhere", survives, NULL, NULL,
		    &algorithms[1] },
		{ "guarantee 2: direct survives a kill anywhere", survives, NULL, NULL,
		    &algorithms[2] },
		{ "guarantee 2: hierarchical survives a kill anywhere", survives, NULL, NULL,
		    &algorithms[3] },
		{ "guarantee 2: one-shot survives a kill anywhere", survives, NULL, NULL,
		    &algorithms[4] },
		{ "guarantee 2: boards survive a kill anywhere", survives_over_boards, NULL, NULL,
		    NULL },
	};
	if (count > 1)
		cmocka_set_test_filter(arguments[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
