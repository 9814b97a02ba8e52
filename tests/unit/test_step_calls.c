/* What a step exchanges once, derived: the log that propagate() makes of the placements (daemon/plan/propagate.h), beside what real trainers of a whole mesh submit, over a stand-in group
 * (mesh_world.h): sums of gradients over dp, the tied table's, those of what all of tp hold, and ZeRO-1's new parameters. By kind, axis, size and order. Nothing here knows how
 * many there are. What microbatches exchange: derived_calls.h. */
#include "daemon/plan/memory.h"
#include "daemon/plan/propagate.h"
#include "tests/unit/mesh_world.h"

struct step_case {
	uint32_t dp, pp, tp, owners;
	bool splits;        /* sequence_parallel */
	const char *preset; /* Llama's is not tied */
};

/* Of a worker, where it is in the mesh. */
struct place {
	uint32_t rank, layers;
	size_t numbers; /* of its shard */
	uint32_t index_of[WORLD_PEERS_MAX];
	struct model_config whole;
	struct mesh mesh;
};

static struct place places[WORLD_PEERS_MAX];

static void remember_place(struct tr_group *g)
{
	const struct sharded *s = g->trainer->sharded;
	struct place *place = &places[g->peer];
	*place = (struct place){ .rank = s->rank,
		.layers = g->trainer->layout.config.layers,
		.numbers = g->trainer->layout.count,
		.whole = s->whole.config,
		.mesh = s->shards.mesh };
	for (uint32_t rank = 0; rank < mesh_workers(&place->mesh); rank++)
		place->index_of[rank] = ranks_at(&s->next, rank);
}

static void derive(const struct step_case *c, struct model_config *shape, struct strategy *strategy,
    struct collective_log *log)
{
	struct tr_error error;
	*shape = places[0].whole;
	shape->vocab = strategy_padded_vocab(shape->vocab, c->tp);
	strategy_megatron(shape, &places[0].mesh, strategy);
	strategy->sequence_parallel = c->splits;
	strategy->zero_owners = c->owners;
	if (propagate(shape, strategy, log, NULL, &error) != TR_OK)
		fail_msg("%s", error.text);
}

/* Numbers of the step's entries over an axis at one worker; -1: it has no part in them. The sum of losses is apart. */
static uint64_t derived(const struct collective_log *log, const struct place *place,
    enum mesh_axis axis, enum collective collective)
{
	uint32_t stage = mesh_at(&place->mesh, place->rank).at[MESH_PP];
	bool first = stage == 0, last = stage + 1 == place->mesh.size[MESH_PP];
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		bool copied = !place->whole.untied && strcmp(entry->tensor, "embedding.table") == 0;
		bool there = entry->section == SECTION_LAYER || (copied && last) ||
		    (entry->section == SECTION_EMBEDDING ? first : last);
		if (entry->phase != PHASE_STEP || entry->axis != axis ||
		    entry->collective != collective || !there ||
		    strcmp(entry->tensor, "head.loss_total") == 0)
			continue;
		assert_true(entry->with_dp == (axis == MESH_PP && place->mesh.size[MESH_DP] > 1));
		bytes += entry->bytes * (entry->section == SECTION_LAYER ? place->layers : 1);
	}
	return bytes / 4;
}

/* A bit for each peer that differs from this one along these axes alone. */
static uint32_t group_of(const struct place *place, bool dp, bool pp, bool tp)
{
	struct mesh_at own = mesh_at(&place->mesh, place->rank);
	uint32_t members = 0, last = place->mesh.size[MESH_PP] - 1;
	for (uint32_t rank = 0; rank < mesh_workers(&place->mesh); rank++) {
		struct mesh_at at = mesh_at(&place->mesh, rank);
		bool stage = pp ? at.at[MESH_PP] == 0 || at.at[MESH_PP] == last
		                : at.at[MESH_PP] == own.at[MESH_PP];
		if ((dp || at.at[MESH_DP] == own.at[MESH_DP]) && stage &&
		    (tp || at.at[MESH_TP] == own.at[MESH_TP]))
			members |= 1u << place->index_of[rank];
	}
	return members;
}

/* What a worker submitted in one step. */
struct made {
	uint64_t buckets, bucket_numbers, shared, table, sent, received;
	uint32_t losses, sends, receives;
};

/* Kinds, scopes and order: buckets, what is summed behind them, the sum of losses, new parameters. */
static struct made made_in(const struct tr_group *g, const struct place *place, uint64_t round)
{
	struct made made = { 0 };
	for (size_t i = 0; i < g->note_count; i++) {
		const struct world_note *n = &g->notes[i];
		if (n->round != round)
			continue;
		bool sum = n->collective == TR_ALL_REDUCE && n->reduce == TR_SUM;
		if (n->tag < TAG_LOSS) {
			assert_true(sum && made.shared == 0 && made.table == 0 && made.losses == 0);
			assert_int_equal(n->tag, made.buckets++);
			assert_int_equal(n->members, group_of(place, true, false, false));
			made.bucket_numbers += n->numbers;
		} else if (n->tag == TAG_SHARED) {
			assert_true(sum && made.shared == 0 && made.losses == 0);
			assert_int_equal(n->members, group_of(place, true, false, true));
			made.shared = n->numbers;
		} else if (n->tag == TAG_TABLE) {
			assert_true(sum && made.table == 0 && made.losses == 0);
			assert_int_equal(n->members, group_of(place, true, true, false));
			made.table = n->numbers;
		} else if (n->tag == TAG_LOSS) {
			assert_true(sum && made.losses++ == 0 && made.sends + made.receives == 0);
			assert_int_equal(n->members, (1u << g->world->peers) - 1);
		} else if (n->tag >= TAG_UPDATED && n->tag < TAG_MESSAGE) {
			bool sends = n->collective == TR_SEND;
			assert_true(sends || n->collective == TR_RECV);
			assert_int_equal(made.losses, 1);
			assert_int_equal(n->members & ~group_of(place, true, false, false), 0);
			*(sends ? &made.sent : &made.received) += n->numbers;
			made.sends += sends;
			made.receives += !sends;
		}
	}
	return made;
}

/* Of what all of tp hold. */
static uint64_t shared_numbers(const struct model_config *shape, const struct strategy *strategy,
    const struct place *place)
{
	uint32_t stage = mesh_at(&place->mesh, place->rank).at[MESH_PP];
	uint64_t numbers = place->layers * memory_section_shared(shape, strategy, SECTION_LAYER);
	if (stage == 0)
		numbers += memory_section_shared(shape, strategy, SECTION_EMBEDDING);
	if (stage + 1 == place->mesh.size[MESH_PP])
		numbers += memory_section_shared(shape, strategy, SECTION_HEAD);
	return numbers;
}

static void check_worker(const struct step_case *c, const struct tr_group *g, uint64_t round)
{
	const struct place *place = &places[g->peer];
	struct model_config shape;
	struct strategy strategy;
	struct collective_log log;
	derive(c, &shape, &strategy, &log);
	struct made made = made_in(g, place, round);
	uint64_t over_dp = derived(&log, place, MESH_DP, COLLECTIVE_ALL_REDUCE),
	         over_tp = derived(&log, place, MESH_TP, COLLECTIVE_ALL_REDUCE) +
	    derived(&log, place, MESH_TP, COLLECTIVE_ALL_GATHER),
	         over_pp = derived(&log, place, MESH_PP, COLLECTIVE_ALL_REDUCE),
	         new = derived(&log, place, MESH_DP, COLLECTIVE_SEND_RECEIVE);
	assert_int_equal(made.losses, 1);
	assert_true((made.buckets > 0) == (c->dp > 1));
	assert_int_equal(made.bucket_numbers, over_dp);
	assert_int_equal(made.table, over_pp);
	assert_true((over_pp > 0) ==
	    (group_of(place, false, true, false) >> g->peer & 1 && c->pp > 1 && !shape.untied));
	/* Besides what is derived: what all of tp hold is summed over the whole stage also where each has the whole gradient, from three replicas on, so that it stays the same at all to
	 * the bit (sharded_shared.c). */
	assert_int_equal(made.shared,
	    c->tp > 1 && (c->splits || c->dp > 2) ? shared_numbers(&shape, &strategy, place) : 0);
	assert_int_equal(over_tp, c->splits ? made.shared : 0);
	/* ZeRO-1: a piece to each that does not own it, from each of those that it does not own. */
	uint32_t others = c->owners > 0 ? c->dp - c->owners : 0;
	assert_true((new > 0) == (others > 0));
	assert_int_equal(made.sends, others);
	assert_int_equal(made.receives, others);
	assert_true(fabs((double)made.sent - (double)new *others / c->dp) <= 16.0 * others);
	assert_true(fabs((double)made.received - (double)new *others / c->dp) <= 16.0 * others);
}

/* Pieces are cut at lines of memory; of all a shard's workers together nothing is rounded: what they send is what the log says. */
static void check_all_sent(const struct step_case *c, const struct world *w, uint64_t round)
{
	struct model_config shape;
	struct strategy strategy;
	struct collective_log log;
	double sent = 0, wanted = 0;
	derive(c, &shape, &strategy, &log);
	for (unsigned p = 0; p < w->peers; p++) {
		sent += 4.0 * (double)made_in(w->groups[p], &places[p], round).sent;
		for (uint32_t i = 0; i < log.count; i++) {
			struct collective_entry entry = log.entries[i];
			struct collective_log one = { .count = 1, .entries = { entry } };
			uint64_t all = 4 *
			    derived(&one, &places[p], MESH_DP, COLLECTIVE_SEND_RECEIVE);
			if (entry.collective == COLLECTIVE_SEND_RECEIVE)
				wanted += (double)all / (double)entry.bytes *
				    collective_entry_bytes_sent(&entry, &strategy);
		}
	}
	assert_true(fabs(sent - wanted) < 1);
}

static bool is_step(const struct tr_group *g, uint64_t round)
{
	for (size_t i = 0; i < g->note_count; i++)
		if (g->notes[i].round == round && g->notes[i].tag == TAG_LOSS)
			return true;
	return false;
}

enum { STEPS = 2, SIDE = 256 };

static void check(const struct step_case *c)
{
	struct job job;
	static struct world w;
	Traind__V1__Mesh mesh = TRAIND__V1__MESH__INIT;
	job_init(&job, STEPS);
	job.data.validation = 0;
	job.model.preset = (char *)(uintptr_t)c->preset;
	job.model.layers = 2;
	job.model.width = SIDE; /* more than one bucket, and no gaps between tensors */
	mesh.nodes = c->dp;
	mesh.workers_per_node = c->pp * c->tp;
	mesh.workers = c->dp * c->pp * c->tp;
	mesh.pp = c->pp;
	mesh.tp = c->tp;
	mesh.zero_owners = c->owners;
	mesh.sequence_parallel = c->splits;
	job.spec.mesh = &mesh;
	memset(&w, 0, sizeof(w));
	w.trained = remember_place;
	world_run(&w, &job, c->dp * c->pp * c->tp);
	unsigned steps = 0;
	for (uint64_t round = 1; round <= w.groups[0]->committed; round++) {
		if (!is_step(w.groups[0], round))
			continue;
		steps++;
		for (unsigned p = 0; p < w.peers; p++)
			check_worker(c, w.groups[p], round);
		check_all_sent(c, &w, round);
	}
	assert_int_equal(steps, STEPS);
	world_finish(&w);
	job_finish(&job);
}

static void gradients_over_dp(void **state)
{
	(void)state;
	check(&(struct step_case){ 2, 1, 2, .preset = "gpt2" });
	check(&(struct step_case){ 3, 1, 2, .preset = "llama" });
	check(&(struct step_case){ 2, 1, 2, .splits = true, .preset = "gpt2" });
	check(&(struct step_case){ 1, 1, 2, .splits = true, .preset = "llama" });
}

static void tables_over_pp(void **state)
{
	(void)state;
	check(&(struct step_case){ 1, 2, 1, .preset = "gpt2" });
	check(&(struct step_case){ 3, 2, 1, .preset = "gpt2" });
	check(&(struct step_case){ 2, 2, 2, .splits = true, .preset = "gpt2" });
	check(&(struct step_case){ 2, 2, 1, .preset = "llama" });
}

static void new_parameters_of_owners(void **state)
{
	(void)state;
	for (uint32_t owners = 2; owners <= 4; owners++)
		check(&(struct step_case){ 4, 1, 1, owners, .preset = "gpt2" });
	check(&(struct step_case){ 3, 1, 2, 2, .splits = true, .preset = "llama" });
	check(&(struct step_case){ 4, 2, 1, 2, .preset = "gpt2" });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_over_dp),
		cmocka_unit_test(tables_over_pp),
		cmocka_unit_test(new_parameters_of_owners),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
