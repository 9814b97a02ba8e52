/* Runs of sharded jobs: faults at instructions, and what must be true of them
 * all. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "tests/sim/sharded/play.h"

const char *const play_fault_names[PLAY_FAULT_KINDS] = { "kill", "power-loss", "pause",
	"short-pause", "cut", "cut-from-peers", "memberd-restart", "split", "split-with-memberd",
	"split-of-peers" };
const char *const play_plant_names[PLAY_PLANT_COUNT] = { "none", "twice", "early", "shard", "apply",
	"table", "silent", "forget", "moment", "new", "damage", "piece", "adds", "met", "kept",
	"copy", "part", "carried", "given" };

#define LONG_US   (3 * SECOND)
#define SHORT_US  (300 * MS)
#define SETTLE_US (4 * SECOND)
#define EMPTY_US  (20 * SECOND)

/* ---- faults ---- */

static void cut(struct sim *sim, unsigned victim, bool from_memberd)
{
	uint64_t until = sim->now_us + LONG_US;
	if (from_memberd)
		sim->nodes[victim].hold_until_us = until;
	for (unsigned i = 0; i < SIM_NODES_MAX; i++)
		sim->links[victim][i].hold_until_us = sim->links[i][victim].hold_until_us = until;
}

static void strike(struct tr_group *g, const struct play_fault *fault)
{
	struct sim *sim = g->sim;
	struct sim_node *node = &sim->nodes[g->number];
	unsigned lost = 1;
	sim_trace(sim, "n%u: %s at instruction %lu of step %lu", g->number,
	    play_fault_names[fault->kind], (unsigned long)fault->instruction,
	    (unsigned long)play_step(g) + 1);
	switch (fault->kind) {
	case PLAY_KILL:
	case PLAY_POWER_LOSS:
		node_crash(sim, g->number, fault->kind == PLAY_POWER_LOSS, "killed");
		break;
	case PLAY_PAUSE:
		node->paused_until_us = sim->now_us + LONG_US;
		break;
	case PLAY_SHORT_PAUSE:
		node->paused_until_us = sim->now_us + SHORT_US;
		break;
	case PLAY_CUT:
	case PLAY_CUT_FROM_PEERS:
		cut(sim, g->number, fault->kind == PLAY_CUT);
		break;
	case PLAY_MEMBERD_RESTART:
		memberd_crash(sim);
		break;
	case PLAY_SPLIT:
	case PLAY_SPLIT_WITH_MEMBERD:
	case PLAY_SPLIT_OF_PEERS:
		lost = split_strike(g, fault);
		break;
	case PLAY_FAULT_KINDS:
		break;
	}
	g->play->struck++;
	g->play->struck_us = sim->now_us;
	sim->faults_done += lost;
	if (fault->returns_us == 0)
		return;
	g->play->following += lost;
	for (unsigned i = 0; i < lost; i++)
		sim_at(sim, sim->now_us + fault->returns_us, SIM_FOLLOW, 0, 0, 0);
	uint64_t settled = sim->now_us + fault->returns_us + SETTLE_US;
	if (g->play->what.settles && settled > g->play->settled_us)
		g->play->settled_us = settled;
}

static unsigned count_alive(const struct sim *sim)
{
	unsigned alive = 0;
	for (unsigned i = 0; i < sim->node_count; i++)
		alive += sim->nodes[i].alive && !sim->nodes[i].failed;
	return alive;
}

static bool is_due(const struct tr_group *g, struct play_fault *fault, bool remeshes, bool joins)
{
	bool counts = fault->in_remesh ? remeshes
	    : fault->in_joins          ? joins
	                               : fault->step == play_step(g);
	return counts && fault->victim == g->number && !fault->done &&
	    fault->seen++ == fault->instruction;
}

static void count_instruction(struct tr_group *g)
{
	struct play *play = g->play;
	const struct sharded *s = g->trainer != NULL ? g->trainer->sharded : NULL;
	bool remeshes = s != NULL && s->kind == SHARDED_REMESH;
	bool joins = s != NULL && (s->newcomers.count > 0 || s->meets);
	for (unsigned i = 0; i < play->what.fault_count; i++) {
		struct play_fault *fault = &play->what.faults[i];
		if (!is_due(g, fault, remeshes, joins))
			continue;
		fault->done = true;
		if (count_alive(g->sim) > 1 || fault->kind == PLAY_MEMBERD_RESTART)
			strike(g, fault);
	}
	play->instructions[g->number] += play_step(g) == play->what.faults[0].step;
	play->remesh_instructions[g->number] += remeshes;
	play->join_instructions[g->number] += joins;
}

void play_instruction(struct tr_group *g)
{
	const struct sim_node *node = &g->sim->nodes[g->number];
	if (g->dead)
		return;
	group_takes(g, 1 + sim_draw(g->sim, 300));
	if (g->dead)
		return;
	count_instruction(g);
	if (!g->dead && node->paused_until_us > g->sim->now_us)
		group_takes(g, node->paused_until_us - g->sim->now_us);
}

/* ---- S1, S3 ---- */

static uint8_t *pack(const struct tr_group *g, size_t *bytes)
{
	*bytes = 0;
	for (unsigned i = 0; i < g->state_count; i++)
		*bytes += g->states[i].bytes;
	uint8_t *packed = malloc(*bytes), *to = packed;
	for (unsigned i = 0; packed != NULL && i < g->state_count; i++) {
		memcpy(to, g->states[i].data, g->states[i].bytes);
		to += g->states[i].bytes;
	}
	return packed;
}

static bool holds(const struct ranks *ranks, uint64_t peer, uint32_t shard)
{
	for (uint32_t i = 0; i < ranks->count; i++)
		if (ranks->peers[i].peer == peer)
			return ranks->peers[i].shard == shard;
	return false;
}

/* Whether of each shard, as it was after the round before, a holder has part in this one. */
static bool all_held(const struct ranks *before, const struct ranks *now)
{
	for (uint32_t shard = 0; shard < ranks_shards(&before->mesh); shard++) {
		bool held = false;
		for (uint32_t i = 0; i < now->count && !held; i++)
			held = holds(before, now->peers[i].peer, shard);
		if (!held)
			return false;
	}
	return true;
}

/* Steps are lost with a shard alone. With ZeRO-1 moments may be, of shards whose parameters are there. */
static void check_back(struct tr_group *g, uint64_t step, uint64_t before)
{
	struct play *play = g->play;
	if (step > 0 && play->disk[step] == NULL)
		sim_violation(g->sim, "S3: back to step %lu, of which there is no checkpoint",
		    (unsigned long)step);
	if (play->what.owners == 0 && play->ranks.count > 0 &&
	    all_held(&play->ranks, &g->trainer->sharded->state->ranks))
		sim_violation(g->sim, "S3: back from step %lu to step %lu, and no shard was lost",
		    (unsigned long)before, (unsigned long)step);
}

/* The first to have applied it. */
static void note_round(struct tr_group *g, uint64_t round, uint8_t *state)
{
	struct play *play = g->play;
	uint64_t step = play_step(g);
	play->truth[round] = state;
	play->steps[round] = step;
	uint64_t before = round > 0 && play->truth[round - 1] != NULL ? play->steps[round - 1]
	                                                              : step;
	bool streams = play->what.stream != PLAY_STREAM_NONE;
	uint64_t most = streams ? 2 * PLAY_INNER_STEPS : play->apart != NULL ? PLAY_INNER_STEPS : 1;
	if (step == before + most ||
	    ((play->what.timed || streams) && step > before && step < before + most))
		play->steps_done++;
	else if (step < before) {
		play->backs++;
		check_back(g, step, before);
	} else if (step != before)
		sim_violation(g->sim, "S3: round %lu makes step %lu of %lu", (unsigned long)round,
		    (unsigned long)step, (unsigned long)before);
	uint64_t samples = step * g->trainer->batch;
	bool whole = g->trainer->account->cursor == samples &&
	    lease_counted(g->trainer->account) == samples;
	if (play->apart == NULL && !whole)
		sim_violation(g->sim, "S1: after step %lu samples are counted up to %lu",
		    (unsigned long)step, (unsigned long)g->trainer->account->cursor);
	if (step > play->newest_step)
		play->moved_us = g->sim->now_us;
	play->newest_step = step;
	const struct mesh *mesh = &g->trainer->sharded->state->ranks.mesh;
	const struct sharded_state *common = g->trainer->sharded->state;
	bool changes = !mesh_equal(mesh, &play->mesh) || common->ranks.copies != play->copies;
	play->remeshes += changes;
	if (changes && play->apart != NULL && common->born != 0)
		apart_check_carried(g);
	play->carried += changes && sharded_carried_places(g->trainer->sharded) > 0 &&
	    g->trainer->sharded->apart->carried.age > 0;
	const struct dealing *dealing = &g->trainer->sharded->state->dealing;
	play->redealt += mesh_equal(mesh, &play->mesh) && play->dealing.mesh.size[MESH_DP] > 0 &&
	    !dealing_equal(dealing, &play->dealing);
	play->restaged += mesh_equal(mesh, &play->mesh) && play->dealing.layers[0] > 0 &&
	    memcmp(dealing->layers, play->dealing.layers, sizeof(dealing->layers)) != 0;
	play->replanned += common->drift.changes > play->drift_changes;
	play->drift_changes = common->drift.changes;
	play->taken_back += g->trainer->sharded->takes_back;
	play->declined += common->kept_out + common->remesh.declined;
	play->joins += common->newcomers.count > 0;
	play->met += g->trainer->sharded->meets;
	play->dealing = *dealing;
	play->mesh = *mesh;
	play->ranks = common->ranks;
	play->copies = common->ranks.copies;
}

void play_applied(struct tr_group *g)
{
	struct play *play = g->play;
	uint64_t round = g->sim->nodes[g->number].worker.applied;
	size_t bytes;
	if (round == 0 || round >= PLAY_ROUNDS_MAX) {
		if (round > 0)
			sim_violation(g->sim, "S4: %lu rounds without an end", (unsigned long)round);
		return;
	}
	uint8_t *state = pack(g, &bytes);
	if (play->truth[round] == NULL) {
		note_round(g, round, state);
		return;
	}
	if (memcmp(play->truth[round], state, bytes) != 0)
		sim_violation(g->sim, "S1: n%u has another state after round %lu than others",
		    g->number, (unsigned long)round);
	free(state);
}

void play_planted_table(struct tr_group *g)
{
	struct play *play = g->play;
	struct ranks *ranks = g->trainer != NULL ? &g->trainer->sharded->state->ranks : NULL;
	if (play->what.plant != PLAY_PLANT_TABLE || ranks == NULL || ranks->count < 2)
		return;
	uint32_t rank = ranks->peers[0].rank;
	ranks->peers[0].rank = ranks->peers[1].rank;
	ranks->peers[1].rank = rank;
	play->planted = true;
}

/* ---- a run ---- */

static bool all_there(const struct play *play)
{
	const struct sim *sim = play->sim;
	bool anybody = false;
	for (unsigned i = 0; i < sim->node_count; i++) {
		const struct sim_node *node = &sim->nodes[i];
		if (!node->alive || node->failed)
			continue;
		if (play->groups[i] == NULL || node->worker.applied < sim->newest_round ||
		    play_step(play->groups[i]) < play->what.steps ||
		    (play->what.stream != PLAY_STREAM_NONE &&
		        !stream_is_done(play->groups[i]->trainer)))
			return false;
		anybody = true;
	}
	return anybody;
}

bool play_is_finished(struct sim *sim)
{
	const struct play *play = sim->calls;
	bool ends = play->what.in_shards && !play->what.settles;
	if (!ends && play->newest_step >= play->what.steps && sim->memberd.up && all_there(play) &&
	    sim->now_us >= play->settled_us)
		return true;
	/* All were put out, some of them by each other: a job would begin again,
   * which is memberd's matter. */
	if (count_alive(sim) == 0 && sim->now_us > play->struck_us + EMPTY_US)
		return true;
	uint64_t since = play->moved_us > play->struck_us ? play->moved_us : play->struck_us;
	if (sim->now_us > since + SIM_PATIENCE_US)
		sim_violation(sim, "S4: no end in sight: step %lu of %lu, round %lu",
		    (unsigned long)play->newest_step, (unsigned long)play->what.steps,
		    (unsigned long)sim->newest_round);
	return false;
}

unsigned play_run(struct sim *sim, struct play *play, uint64_t seed, bool trace,
    const struct play_case *what)
{
	*play = (struct play){ .sim = sim,
		.what = *what,
		.mesh = what->mesh,
		.copies = what->copies > 0 ? what->copies : 1 };
	log_configure(LOG_ERROR, false);
	sim_prepare(sim, seed, trace, PLANT_NONE, &play_callers, play);
	sim->policy = TRAIND__PEER__POLICY__POLICY_REPLAY;
	/* Workers wait for one op before they submit another. */
	sim->waits = sim->early_waits = sim->releases = true;
	sim->ahead_bytes = 1 + 256 * (seed % 16);
	sim->segment_bytes = seed % 3 == 0 ? 64 : 1024;
	sim->founders = mesh_workers(&what->mesh) + what->spares;
	reference_create(play);
	model_play(play);
	apart_create(play);
	sim_begin(sim);
	(void)sim_finish(sim);
	model_play(NULL);
	for (unsigned i = 0; i < SIM_NODES_MAX; i++)
		group_finish(play->groups[i]);
	for (unsigned i = 0; i < PLAY_ROUNDS_MAX; i++)
		free(play->truth[i]);
	play_disk_finish(play);
	apart_finish(play);
	reference_finish(&play->reference);
	return sim->violations;
}
