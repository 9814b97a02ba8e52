/* coll.h for workers that are coroutines: each call is made on the simulated
 * core of its node, and where it waits the simulation goes on. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"
#include "tests/sim/sharded/play.h"

#define STACK_BYTES ((size_t)512 << 10)

/* ---- coroutines ---- */

static struct play *playing; /* one run at a time */

struct tr_group *group_inside(void)
{
	return playing->inside;
}

static void leave(struct tr_group *g)
{
	(void)swapcontext(&g->context, &g->play->home);
}

/* Of the newest view. Who was put out, and does not know it yet, may end of what has changed meanwhile: the checkpoint that it was about to read is gone. */
bool group_is_member(const struct tr_group *g)
{
	const struct sim *sim = g->sim;
	const struct sim_view *newest = sim->seen;
	for (unsigned i = 0; i < sim->seen_count && i < SIM_VIEWS_KEPT; i++)
		if (sim->seen[i].number > newest->number)
			newest = &sim->seen[i];
	return newest->nodes[g->number];
}

static void work(void)
{
	struct tr_group *g = playing->inside;
	struct tr_error error = { .text = "" };
	g->trainer = play_trainer_create(g);
	tr_status status = sharded_run(g->trainer, &error);
	/* Where a shard is lost before there is a checkpoint, or with the disks that it was on, nothing can be done. */
	bool none_yet = g->trainer->sharded->state->saved == 0 &&
	    strstr(error.text, "none was written yet") != NULL;
	if (status == TR_OK && g->play->what.in_shards && !g->dead) {
		play_ended(g);
		g->sim->over = true;
	} else if (none_yet || (status == TR_EPEERLOST && play_disks_are_lost(g))) {
		g->sim->over = true;
	} else if (g->starved && status == TR_ENOMEM) { /* another one is started for it */
		node_crash(g->sim, g->number, false, "ended: no memory");
		sim_at(g->sim, g->sim->now_us + 300 * MS, SIM_FOLLOW, 0, 0, 0);
	} else if (g->play->what.differs == g->number + 1 && status == TR_EDIGEST) {
		g->play->differed++;
		node_crash(g->sim, g->number, false, "ended: what it holds always differs");
		sim_at(g->sim, g->sim->now_us + 300 * MS, SIM_FOLLOW, 0, 0, 0);
	} else if (!g->dead && !g->sim->nodes[g->number].failed && group_is_member(g)) {
		sim_violation(g->sim, "S4: n%u ends: %s: %s", g->number, tr_status_name(status),
		    error.text);
	}
	play_trainer_destroy(g->trainer);
	g->trainer = NULL;
	g->finished = true;
	leave(g);
}

static struct tr_group *group_of(struct sim *sim, unsigned number)
{
	struct play *play = sim->calls;
	struct tr_group *g = play->groups[number];
	if (g != NULL)
		return g;
	g = calloc(1, sizeof(*g));
	char *stack = malloc(STACK_BYTES);
	if (g == NULL || stack == NULL)
		abort();
	*g = (struct tr_group){ .play = play, .sim = sim, .number = number, .stack = stack };
	play->groups[number] = g;
	return g;
}

static void enter(struct tr_group *g)
{
	assert(g->play->inside == NULL);
	playing = g->play;
	g->play->inside = g;
	if (!g->started) {
		g->started = true;
		(void)getcontext(&g->context);
		g->context.uc_stack.ss_sp = g->stack;
		g->context.uc_stack.ss_size = STACK_BYTES;
		makecontext(&g->context, work, 0);
	}
	(void)swapcontext(&g->play->home, &g->context);
	g->play->inside = NULL;
}

void group_takes(struct tr_group *g, uint64_t us)
{
	uint64_t until = g->sim->now_us + us;
	while (!g->dead && g->sim->now_us < until) {
		worker_wake(g->sim, g->number, until - g->sim->now_us);
		leave(g);
	}
}

void group_finish(struct tr_group *g)
{
	if (g == NULL)
		return;
	while (g->memory != NULL) {
		struct play_memory *next = g->memory->next;
		free(g->memory->data);
		free(g->memory);
		g->memory = next;
	}
	ops_finish(g);
	free(g->manifest);
	free(g->stack);
	free(g);
}

/* ---- what the simulator says ---- */

static void on_step(struct sim *sim, unsigned number)
{
	struct tr_group *g = group_of(sim, number);
	if (!g->finished)
		enter(g);
}

static void on_began(struct sim *sim, unsigned number)
{
	struct tr_group *g = group_of(sim, number);
	g->round = sim->nodes[number].worker.round;
	g->began = true;
	if (g->play->inside != g)
		worker_wake(sim, number, 0);
}

static void on_op_done(struct sim *sim, unsigned number, uint32_t tag)
{
	struct tr_group *g = group_of(sim, number);
	if (tag != g->waits_for)
		return;
	g->done = true;
	if (g->play->inside != g)
		worker_wake(sim, number, 0);
}

static void on_decided(struct sim *sim, unsigned number, tr_status status,
    const struct tr_round *round)
{
	struct tr_group *g = group_of(sim, number);
	ops_return_all(g);
	if (status == TR_OK) {
		g->round = *round;
		split_decided(g, round->round);
	}
	g->decided = status == TR_OK ? PLAY_COMMITTED : PLAY_AGAIN;
	if (g->play->inside != g)
		worker_wake(sim, number, 0);
}

static void on_state(struct sim *sim, unsigned number, uint64_t round)
{
	struct tr_group *g = group_of(sim, number);
	const uint8_t *from = round < PLAY_ROUNDS_MAX ? g->play->truth[round] : NULL;
	if (!g->started) /* it declares its state first */
		enter(g);
	if (from == NULL && round > 0)
		sim_violation(sim, "S1: n%u gets the state after round %lu, which nobody has",
		    number, (unsigned long)round);
	for (unsigned i = 0; from != NULL && i < g->state_count; i++) {
		memcpy(g->states[i].data, from, g->states[i].bytes);
		from += g->states[i].bytes;
	}
	play_planted_table(g);
}

static void on_end(struct sim *sim, unsigned number)
{
	struct play *play = sim->calls;
	struct tr_group *g = play->groups[number];
	if (g == NULL)
		return;
	g->dead = true;
	if (play->inside != g && g->started && !g->finished)
		enter(g);
	assert(play->inside == g || !g->started || g->finished);
}

const struct sim_callers play_callers = { on_step, on_began, on_op_done, on_decided, on_state,
	on_end, play_is_finished };

/* ---- calls ---- */

static bool abandoned(const struct tr_group *g)
{
	return g->decided == PLAY_AGAIN;
}

static tr_status again(struct tr_error *error)
{
	return tr_error_set(error, TR_ERESTART, "the round was abandoned");
}

static tr_status gone(struct tr_error *error)
{
	return tr_error_set(error, TR_EEVICTED, "this worker is dead");
}

/* What the core answers, where it may only say that all is well or that the
 * round was abandoned. */
static tr_status step(struct tr_group *g, struct group_event *event, const char *what,
    struct tr_error *error)
{
	if (g->dead)
		return gone(error);
	if (abandoned(g) && event->kind != GROUP_BEGIN)
		return again(error);
	tr_status status = node_step(g->sim, g->number, event);
	if (g->dead || g->sim->nodes[g->number].failed)
		return gone(error);
	if (status == TR_ERESTART || (abandoned(g) && event->kind != GROUP_BEGIN))
		return again(error);
	if (status != TR_OK) {
		sim_violation(g->sim, "S4: n%u may not %s: %s", g->number, what,
		    tr_status_name(status));
		return tr_error_set(error, status, "may not %s", what);
	}
	return TR_OK;
}

void *tr_alloc(tr_group *g, size_t bytes)
{
	struct play_memory *memory = calloc(1, sizeof(*memory));
	size_t room = (bytes + 63) / 64 * 64 + 64;
	if (memory == NULL || (memory->data = aligned_alloc(64, room)) == NULL)
		abort();
	memset(memory->data, 0, room);
	memory->bytes = bytes;
	memory->next = g->memory;
	g->memory = memory;
	return memory->data;
}

void *tr_alloc_sparse(tr_group *g, size_t bytes)
{
	return tr_alloc(g, bytes);
}

tr_status tr_state_add(tr_group *g, const char *name, void *data, size_t bytes,
    struct tr_error *error)
{
	(void)name;
	(void)error;
	assert(g->state_count < PLAY_STATES_MAX);
	g->states[g->state_count].data = data;
	g->states[g->state_count++].bytes = bytes;
	return TR_OK;
}

/* A mistake on purpose. */
static void plant_abandoned(struct tr_group *g)
{
	if (g->play->what.plant != PLAY_PLANT_APPLY || g->decided != PLAY_AGAIN)
		return;
	g->trainer->sharded->held.params[0] += 1;
	g->play->planted = true;
}

/* These workers are no job of memberd's, which so says nothing of who follows: half of the views do. */
static bool says_nobody_follows(const struct tr_group *g, uint64_t view)
{
	return ((g->sim->seed + view) >> 1 & 1) != 0;
}

tr_status tr_round_begin(tr_group *g, struct tr_round *round, struct tr_error *error)
{
	if (g->decided == PLAY_COMMITTED)
		play_applied(g);
	plant_abandoned(g);
	play_instruction(g);
	if (play_step(g) >= g->play->what.steps) /* it only waits for the others */
		group_takes(g, 100 * MS);
	g->began = false;
	g->decided = PLAY_OPEN;
	g->sim->nodes[g->number].worker.state = WORKER_BEGIN;
	tr_status status = step(g, &(struct group_event){ .kind = GROUP_BEGIN }, "begin", error);
	while (status == TR_OK && !g->began && !g->dead && !g->sim->nodes[g->number].failed)
		leave(g);
	if (status == TR_OK && !g->began)
		return gone(error);
	if (status == TR_OK) {
		*round = g->round;
		round->nobody_follows = says_nobody_follows(g, round->view);
	}
	return status;
}

tr_status tr_round_contributors(tr_group *g, uint64_t *peers, size_t max, size_t *count,
    struct tr_error *error)
{
	unsigned found = 0;
	if (g->dead)
		return gone(error);
	const uint64_t *ids = group_core_round_contributors(g->sim->nodes[g->number].core, &found);
	for (size_t i = 0; i < found && i < max; i++)
		peers[i] = ids[i];
	*count = found;
	return TR_OK;
}

tr_status tr_state_receive(tr_group *g, struct tr_error *error)
{
	const struct sim_worker *worker = &g->sim->nodes[g->number].worker;
	play_instruction(g);
	while (!worker->received && !g->dead && !abandoned(g))
		leave(g);
	if (g->dead)
		return gone(error);
	return abandoned(g) ? again(error) : TR_OK;
}

/* Mistakes on purpose. */
static void plant_submitted(struct tr_group *g, const struct tr_op *op)
{
	bool message = op->tag >= TAG_MOMENTS; /* or what goes with ZeRO-1 */
	if (g->play->what.plant == PLAY_PLANT_EARLY && op->collective == TR_SEND && message) {
		memset((void *)(uintptr_t)op->input, 0, op->count * sizeof(float));
		g->play->planted = true;
	}
}

static void plant_adds(struct tr_group *g, const struct tr_op *op)
{
	if (g->play->what.plant != PLAY_PLANT_ADDS || op->tag >= TAG_LOSS ||
	    g->trainer->sharded->rank != RANKS_NONE)
		return;
	((float *)op->output)[0] += 1;
	g->play->planted = true;
}

/* Of memory that does not hold what is written to it. */
static void differ(struct tr_group *g, const struct tr_op *op)
{
	int64_t *digests = op->output;
	if (g->play->what.differs == g->number + 1 && op->tag == TAG_PARITY &&
	    digests[g->round.index] != 0)
		digests[g->round.index] ^= 2;
}

tr_status tr_submit(tr_group *g, const struct tr_op *op, struct tr_error *error)
{
	play_instruction(g);
	size_t first, own;
	if (g->play->what.plant == PLAY_PLANT_SILENT && g->play->struck > 0 && op->tag == 0 &&
	    g->round.index == 0) {
		g->play->planted = true;
		return TR_OK;
	}
	plant_adds(g, op);
	differ(g, op);
	tr_block_range(op->count, g->round.contributors, g->round.index, &first, &own);
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = op->tag,
		    .collective = op->collective,
		    .data = op->output,
		    .input = op->input,
		    .count = op->count,
		    .own_elements = own,
		    .dtype = op->dtype,
		    .reduce = op->reduce,
		    .codec = TR_CODEC_NONE,
		    .algorithm = op->algorithm,
		    .root = op->root,
		    .contribute = (op->flags & TR_CONTRIBUTE) != 0,
		    .scope = op->scope } };
	tr_status status = step(g, &event, "submit", error);
	if (status != TR_OK)
		return status;
	ops_note(g, op, own);
	apart_lose(op);
	plant_submitted(g, op);
	return TR_OK;
}

tr_status tr_allreduce(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    enum tr_reduce reduce, unsigned flags, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.output = data;
	op.count = count;
	op.dtype = dtype;
	op.reduce = reduce;
	op.flags = flags;
	return tr_submit(g, &op, error);
}

/* Of a merge: its own part, or a barrier. */
static bool has_part(const struct tr_group *g, uint32_t tag)
{
	const struct sharded *s = g->trainer->sharded;
	return tag >= TAG_COPIES + 2 * TR_GROUP_PEERS_MAX || s->rank == RANKS_NONE ||
	    (tag - TAG_COPIES) % TR_GROUP_PEERS_MAX == ranks_copy(&s->next, s->self);
}

/* Of a change of mesh, a moment: messages and barriers are numbered by array. */
static bool is_carried(const struct tr_group *g, uint32_t tag)
{
	const struct sharded *s = g->trainer->sharded;
	if (s->kind != SHARDED_REMESH || s->apart == NULL || s->apart->carried.lineage == 0)
		return false;
	size_t messages = s->moves.message_count, carried = s->apart->carried.moves.message_count;
	uint32_t of_array = 1 + (uint32_t)(carried > messages ? carried : messages);
	return tag >= TAG_REMESH + of_array && tag < TAG_REMESH + 3 * of_array;
}

static void plant_waited(struct tr_group *g, uint32_t tag)
{
	bool shard = tag >= TAG_SHARD && tag < TAG_GATHER;
	bool moment = tag >= TAG_MOMENTS && tag < TAG_UPDATED;
	bool piece = tag >= TAG_NEWCOMER && tag < TAG_TENSOR;
	/* The first wait for a gradient's sum, which is the fourth of a step's five ops; a part that comes, not one that it sends. */
	bool copy = tag == TAG_INNER + 3 && g->number == 1;
	bool part = tag >= TAG_COPIES && tag < TAG_PARITY && g->number == 1 && !has_part(g, tag);
	bool carried = is_carried(g, tag);
	/* To who has none. */
	const struct sharded *s = g->trainer->sharded;
	bool given = s->kind == SHARDED_STEP && s->apart != NULL &&
	    s->apart->moments.lineage == 0 && tag >= TAG_GIVEN &&
	    tag < TAG_GIVEN + 2 * s->next.copies;
	if ((g->play->what.plant != PLAY_PLANT_SHARD || !shard) &&
	    (g->play->what.plant != PLAY_PLANT_CARRIED || !carried) &&
	    (g->play->what.plant != PLAY_PLANT_GIVEN || !given) &&
	    (g->play->what.plant != PLAY_PLANT_PIECE || !piece) &&
	    (g->play->what.plant != PLAY_PLANT_COPY || !copy) &&
	    (g->play->what.plant != PLAY_PLANT_PART || !part) &&
	    (g->play->what.plant != PLAY_PLANT_MOMENT || !moment))
		return;
	for (size_t i = 0; i < g->op_count; i++)
		if (g->ops[i].tag == tag && !g->ops[i].sent && g->ops[i].data[1] != 0) {
			float *number = (float *)(uintptr_t)g->ops[i].data[1];
			*number += 1;
			g->play->planted = true;
		}
}

tr_status tr_wait(tr_group *g, uint32_t tag, struct tr_error *error)
{
	struct sim_worker *worker = &g->sim->nodes[g->number].worker;
	play_instruction(g);
	if (g->play->what.plant == PLAY_PLANT_SILENT && g->play->planted && tag == 0)
		return TR_OK;
	g->done = false;
	g->waits_for = tag;
	worker->state = WORKER_WAITS;
	tr_status status = step(g, &(struct group_event){ .kind = GROUP_WAIT, .tag = tag }, "wait",
	    error);
	while (status == TR_OK && !g->done && !g->dead && !abandoned(g))
		leave(g);
	g->waits_for = UINT32_MAX;
	if (g->dead || g->sim->nodes[g->number].failed)
		return gone(error);
	worker->state = WORKER_OPEN;
	if (status == TR_OK && abandoned(g))
		return again(error);
	if (status == TR_OK)
		plant_waited(g, tag);
	return status;
}

tr_status tr_release(tr_group *g, uint32_t tag, struct tr_error *error)
{
	play_instruction(g);
	if (g->play->what.plant == PLAY_PLANT_KEPT &&
	    ((tag >= TAG_SHARD && tag < TAG_GATHER) || (tag >= TAG_MOMENTS && tag < TAG_UPDATED))) {
		g->play->planted = true;
		return TR_OK;
	}
	tr_status status = step(g, &(struct group_event){ .kind = GROUP_RELEASE, .tag = tag },
	    "take back an op", error);
	if (status == TR_OK)
		ops_return(g, tag);
	return status;
}

tr_status tr_stats_get(tr_group *g, struct tr_stats *stats, struct tr_error *error)
{
	(void)g;
	(void)error;
	*stats = (struct tr_stats)TR_STATS_INIT; /* nobody waits */
	return TR_OK;
}

/* So much more each time to each, by the seed: links are slow, or quick, beside what is computed. */
enum { LINK_SIZES = 6 };

tr_status tr_links(tr_group *g, struct tr_link *links, size_t max, size_t *count,
    struct tr_error *error)
{
	uint64_t peers[TR_GROUP_PEERS_MAX], each = 1;
	for (uint64_t i = 0; i < g->sim->seed % LINK_SIZES; i++)
		each *= 16;
	tr_status status = tr_round_contributors(g, peers, TR_GROUP_PEERS_MAX, count, error);
	g->links_seen++;
	for (size_t i = 0; status == TR_OK && i < *count && i < max; i++) {
		links[i] = (struct tr_link)TR_LINK_INIT;
		links[i].peer = peers[i];
		links[i].sent_bytes = each * g->links_seen;
	}
	return status;
}

bool tr_progress(tr_group *g)
{
	play_instruction(g);
	return !g->dead && !abandoned(g);
}

tr_status tr_round_commit(tr_group *g, const struct tr_commit *commit, struct tr_round *round,
    struct tr_error *error)
{
	struct sim_worker *worker = &g->sim->nodes[g->number].worker;
	play_instruction(g);
	struct group_event event = { .kind = GROUP_CLOSE,
		.close = { .samples = commit->samples, .salt = commit->salt } };
	worker->state = WORKER_CLOSED;
	tr_status status = step(g, &event, "commit", error);
	while (status == TR_OK && g->decided == PLAY_OPEN && !g->dead &&
	    !g->sim->nodes[g->number].failed)
		leave(g);
	if (g->dead || g->sim->nodes[g->number].failed)
		return gone(error);
	if (status == TR_OK && abandoned(g))
		return again(error);
	if (status == TR_OK)
		*round = g->round;
	return status;
}

/* The trainer's pauses, in the simulation's time. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	group_takes(playing->inside,
	    (uint64_t)time->tv_sec * SECOND + (uint64_t)time->tv_nsec / 1000);
	return 0;
}
