/* The mesh made anew (daemon/plan/remesh.h says when, and which): a round in which shards of the next mesh are made out of those that peers hold of the one in force
 * (daemon/checkpoint/reshard.h), and nothing else. They are made beside what is held: only its commit makes the next mesh the one in force, and a round that begins again finds
 * all as it was.
 *
 * Messages are packed, an array after the other, in the same memory: all know with a barrier that what was sent before has come. What comes is held against what was sent by the digests
 * of the commit (coll.h). */
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "daemon/worker/trainer_inside.h"

enum { ALIGN = 16 }; /* numbers */

static bool is_set(const struct mesh_shards *shards)
{
	return shards->stages != NULL;
}

/* ---- which ---- */

/* By what the job was planned with, which is the same at all. */
static bool has_room(void *planner, const struct mesh *mesh)
{
	uint64_t bytes, room;
	return !replanner_memory(planner, mesh, &bytes, &room) || bytes <= room;
}

static struct remesh rules_of(const struct trainer *t)
{
	return (struct remesh){ .config = &t->sharded->whole.config,
		.job = { t->sharded->state->asked.mesh, t->copies },
		.sequences = t->batch,
		.apart = sharded_apart_rounds(t),
		.strict = t->strict,
		.has_room = t->sharded->replanner != NULL ? has_room : NULL,
		.arg = t->sharded->replanner,
		.wait_rounds = t->mesh_waits ? 0 : SHARDED_WAIT_ROUNDS };
}

bool sharded_lacks_room(const struct trainer *t, uint32_t contributors, struct mesh *mesh,
    uint64_t *bytes, uint64_t *room)
{
	struct remesh rules = rules_of(t);
	if (t->sharded->replanner == NULL)
		return false;
	rules.has_room = NULL;
	*mesh = remesh_best(&rules, contributors).mesh;
	uint32_t replicas = contributors / ranks_shards(mesh);
	if (replicas < mesh->size[MESH_DP])
		mesh->size[MESH_DP] = replicas;
	return replanner_memory(t->sharded->replanner, mesh, bytes, room) && *bytes > *room;
}

void sharded_count_rounds(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct remesh rules = rules_of(t);
	struct remesh_shape now = remesh_shape_of(&s->state->ranks),
	                    next = remesh_shape_of(&s->next);
	if (s->kind == SHARDED_REMESH) /* what was planned is no smaller one */
		remesh_changed(s->replans ? &next : &now, &next, &s->state->remesh);
	else if (s->kind != SHARDED_BACK)
		remesh_count(&rules, &now, s->next.count, &s->state->remesh);
	if (s->kind == SHARDED_WAIT && (s->told->follows & 1) != 0)
		remesh_nobody_follows(&rules, &s->state->remesh);
	if (s->stays)
		remesh_decline(&s->state->remesh);
}

tr_status sharded_plan_moves(const struct sharded *s, const uint32_t *held,
    const struct ranks *next, struct reshard *moves, struct tr_error *error)
{
	uint32_t wanted[TR_GROUP_PEERS_MAX];
	for (uint32_t i = 0; i < next->count; i++) {
		uint32_t rank = next->peers[i].rank;
		wanted[i] = rank != RANKS_NONE ? ranks_shard(&next->mesh, rank) : RESHARD_NONE;
	}
	return reshard_plan(&s->shards, held, &s->coming, wanted, next->count, moves, error);
}

static tr_status plan_moves(struct sharded *s, const struct ranks *next, struct tr_error *error)
{
	uint32_t held[TR_GROUP_PEERS_MAX];
	for (uint32_t i = 0; i < next->count; i++)
		held[i] = s->next.peers[i].shard;
	return sharded_plan_moves(s, held, next, &s->moves, error);
}

void sharded_rank_anew(const struct trainer *t, const struct ranks *now,
    const struct remesh_shape *shape, struct ranks *next)
{
	struct ranks none;
	uint64_t peers[TR_GROUP_PEERS_MAX];
	for (uint32_t i = 0; i < now->count; i++)
		peers[i] = now->peers[i].peer;
	ranks_init(&shape->mesh, &none);
	none.copies = shape->copies;
	(t->strict ? ranks_next_doubled : ranks_next)(&none, peers, now->count, next);
}

tr_status sharded_plan_change(struct trainer *t, const struct dealing *dealing,
    const struct ranks *next, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	s->next_dealing = *dealing;
	tr_status status = sharded_lay(t, dealing, &s->coming, error);
	s->next_dealing.chunks = s->coming.chunks;
	return status == TR_OK && s->state->born != 0 ? plan_moves(s, next, error) : status;
}

tr_status sharded_change(struct trainer *t, const struct ranks *next, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	if (s->state->born != 0) {
		s->lost = s->moves.lost;
		tr_status status = sharded_plan_whole_moments(t, error);
		if (status != TR_OK)
			return status;
	}
	if (s->state->born != 0 && s->lost != RANKS_NONE) {
		s->kind = SHARDED_BACK;
		return TR_OK;
	}
	s->kind = SHARDED_REMESH;
	s->next = *next;
	s->transfer_count = 0;
	return TR_OK;
}

tr_status sharded_derive_remesh(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct remesh rules = rules_of(t);
	struct remesh_shape now = remesh_shape_of(&s->next), shape;
	struct ranks next;
	struct dealing dealing;
	s->stays = false;
	bool may = s->kind == SHARDED_WAIT ||
	    (s->kind == SHARDED_STEP && (s->apart == NULL || sharded_apart_may_change(t)));
	if (!may || !remesh_next(&rules, &now, s->next.count, &s->state->remesh, &shape))
		return TR_OK;
	sharded_rank_anew(t, &s->next, &shape, &next);
	dealing_on(&s->state->asked, &shape.mesh, &dealing);
	tr_status status = sharded_plan_change(t, &dealing, &next, error);
	if (status != TR_OK)
		return status;
	if (s->kind == SHARDED_STEP && s->state->born != 0 && !sharded_mesh_pays(t, &next)) {
		s->stays = true;
		s->declined = shape.mesh;
		sharded_drop_coming(t);
		return TR_OK;
	}
	return sharded_change(t, &next, error);
}

/* ---- the one in force ---- */

static bool same_shards(const struct dealing *a, const struct dealing *b)
{
	return mesh_equal(&a->mesh, &b->mesh) && a->chunks == b->chunks &&
	    memcmp(a->layers, b->layers, sizeof(a->layers)) == 0;
}

void sharded_drop_coming(struct trainer *t)
{
	struct sharded *s = t->sharded;
	reshard_finish(&s->moves);
	if (s->apart != NULL)
		reshard_finish(&s->apart->carried.moves);
	mesh_memory_give(&s->memory, s->packed);
	s->packed = NULL;
	sharded_give_arrays(t, &s->arrived);
	mesh_shards_finish(&s->coming);
}

tr_status sharded_use_mesh(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct dealing *dealing = &s->state->dealing;
	struct mesh_shards shards = { 0 };
	struct optim_arrays arrived = { 0 };
	bool took_part = false, changed = s->changed;
	tr_status status = TR_OK;
	s->changed = false;
	if (changed || !same_shards(dealing, &s->dealing)) {
		if (is_set(&s->coming) && same_shards(dealing, &s->next_dealing)) {
			shards = s->coming;
			arrived = s->arrived;
			took_part = true;
			memset(&s->coming, 0, sizeof(s->coming));
			memset(&s->arrived, 0, sizeof(s->arrived));
		} else {
			status = sharded_lay(t, dealing, &shards, error);
		}
	}
	sharded_drop_coming(t);
	if (status == TR_OK)
		s->dealing = *dealing;
	if (!is_set(&shards))
		return status;
	sharded_unmake_mesh(t);
	s->shards = shards;
	s->held = arrived;
	s->loaded = RANKS_NONE;
	status = sharded_make_mesh(t, error);
	if (took_part)
		sharded_end_change(t);
	return status;
}

/* ---- moves ---- */

static bool is_sent(const struct sharded *s, const struct reshard_message *m)
{
	return m->from == s->self && m->to != s->self;
}

static bool is_received(const struct sharded *s, const struct reshard_message *m)
{
	return m->to == s->self && m->from != s->self;
}

static size_t room_for(const struct reshard_message *m)
{
	return (m->numbers + ALIGN - 1) / ALIGN * ALIGN;
}

static bool carries(const struct sharded *s)
{
	return s->apart != NULL && s->apart->carried.lineage != 0;
}

/* Moments of replicas that train apart are not where their shards are. */
static const struct reshard *moves_of(const struct sharded *s, unsigned array)
{
	return carries(s) && (SHARDED_MOMENTS >> array & 1) != 0 ? &s->apart->carried.moves
	                                                         : &s->moves;
}

static unsigned arrays_of(const struct sharded *s)
{
	return sharded_arrays_held(s) | (carries(s) ? SHARDED_MOMENTS : 0);
}

static size_t room_of(const struct sharded *s, const struct reshard *moves)
{
	size_t numbers = 0;
	for (size_t i = 0; i < moves->message_count; i++)
		if (is_sent(s, &moves->messages[i]) || is_received(s, &moves->messages[i]))
			numbers += room_for(&moves->messages[i]);
	return numbers;
}

static tr_status make_room(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t numbers = room_of(s, &s->moves);
	if (carries(s) && room_of(s, &s->apart->carried.moves) > numbers)
		numbers = room_of(s, &s->apart->carried.moves);
	if (numbers > 0)
		s->packed = mesh_memory_take(&s->memory, numbers * sizeof(float));
	if (numbers > 0 && s->packed == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "mesh: no shared memory for what moves to another mesh (%zu MiB)",
		    numbers * sizeof(float) >> 20);
	return s->rank != RANKS_NONE
	    ? sharded_take_arrays(t, mesh_shards_most(&s->coming), arrays_of(s), &s->arrived, error)
	    : TR_OK;
}

static uint32_t tag_of(const struct sharded *s, unsigned array, size_t message)
{
	size_t messages = s->moves.message_count;
	if (carries(s) && s->apart->carried.moves.message_count > messages)
		messages = s->apart->carried.moves.message_count;
	return TAG_REMESH + array * ((uint32_t)messages + 1) + (uint32_t)message;
}

/* This worker's end of a message; `at`: its memory. */
static tr_status submit_message(struct trainer *t, uint32_t tag, const struct reshard_message *m,
    float *at, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.count = m->numbers;
	if (is_sent(t->sharded, m)) {
		op.collective = TR_SEND;
		op.input = at;
		op.root = m->to;
	} else {
		op.collective = TR_RECV;
		op.output = at;
		op.root = m->from;
	}
	return tr_submit(t->group, &op, error);
}

static void keep_array(struct trainer *t, unsigned array)
{
	struct sharded *s = t->sharded;
	const struct reshard *moves = moves_of(s, array);
	const float *held = sharded_array(&t->arrays, array);
	for (size_t i = 0; i < moves->message_count; i++) {
		const struct reshard_message *m = &moves->messages[i];
		if (m->from == m->to && m->to == s->self)
			reshard_keep(moves, m, held, sharded_array(&s->arrived, array));
		(void)tr_progress(t->group);
	}
}

static tr_status submit_array(struct trainer *t, unsigned array, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct reshard *moves = moves_of(s, array);
	const float *held = sharded_array(&t->arrays, array);
	float *at = s->packed;
	tr_status status = TR_OK;
	for (size_t i = 0; i < moves->message_count && status == TR_OK; i++) {
		const struct reshard_message *m = &moves->messages[i];
		if (!is_sent(s, m) && !is_received(s, m))
			continue;
		if (is_sent(s, m))
			reshard_pack(moves, m, held, at);
		status = submit_message(t, tag_of(s, array, i), m, at, error);
		at += room_for(m);
		(void)tr_progress(t->group);
	}
	if (status == TR_OK)
		keep_array(t, array); /* while those are on their way */
	return status;
}

static tr_status receive_array(struct trainer *t, unsigned array, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct reshard *moves = moves_of(s, array);
	const float *at = s->packed;
	tr_status status = TR_OK;
	for (size_t i = 0; i < moves->message_count && status == TR_OK; i++) {
		const struct reshard_message *m = &moves->messages[i];
		if (is_received(s, m)) {
			status = tr_wait(t->group, tag_of(s, array, i), error);
			if (status == TR_OK)
				reshard_unpack(moves, m, at, sharded_array(&s->arrived, array));
		}
		if (is_received(s, m) || is_sent(s, m))
			at += room_for(m);
	}
	return status;
}

/* All have received all of an array: its messages' memory is the next one's. */
static tr_status end_array(struct trainer *t, unsigned array, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct reshard *moves = moves_of(s, array);
	uint32_t members[TR_GROUP_PEERS_MAX];
	struct tr_op op = TR_OP_INIT;
	for (uint32_t i = 0; i < s->next.count; i++)
		members[i] = i;
	op.tag = tag_of(s, array, moves->message_count);
	op.collective = TR_BARRIER;
	op.scope = (struct tr_scope){ members, s->next.count };
	tr_status status = tr_submit(t->group, &op, error);
	if (status == TR_OK)
		status = tr_wait(t->group, op.tag, error);
	for (size_t i = 0; i < moves->message_count && status == TR_OK; i++)
		if (is_sent(s, &moves->messages[i]) || is_received(s, &moves->messages[i]))
			status = tr_release(t->group, tag_of(s, array, i), error);
	return status;
}

void trainer_pause_remesh(struct trainer *t, unsigned milliseconds)
{
	t->remesh_pause_ms = milliseconds;
}

void sharded_pause_for_tests(struct trainer *t, unsigned milliseconds)
{
	const struct timespec hundredth = { 0, 10000000 };
	for (unsigned ms = 0; ms < milliseconds && tr_progress(t->group); ms += 10)
		(void)nanosleep(&hundredth, NULL);
}

tr_status sharded_submit_remesh(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	if (s->apart != NULL) {
		sharded_carry_none(s->apart);
		if (s->state->born != 0)
			status = sharded_carry_moments(t, round, error);
	}
	if (s->self == RANKS_NONE || s->state->born == 0 || status != TR_OK)
		return status;
	s->moving_since_s = trainer_monotonic_s();
	bool moves = reshard_moved(&s->moves) > 0 ||
	    (carries(s) && reshard_moved(&s->apart->carried.moves) > 0);
	log_info("trainer", "moves to dp %u x pp %u x tp %u: rank %d", s->next.mesh.size[MESH_DP],
	    s->next.mesh.size[MESH_PP], s->next.mesh.size[MESH_TP], (int)s->rank);
	status = make_room(t, error);
	if (status == TR_OK)
		status = sharded_submit_moments(t, error);
	if (status == TR_OK)
		status = sharded_wait_moments(t, error);
	unsigned held = arrays_of(s);
	for (unsigned array = 0; array < SHARDED_ARRAYS_ALL && status == TR_OK; array++) {
		bool last = held >> (array + 1) == 0;
		if ((held >> array & 1) == 0)
			continue;
		status = submit_array(t, array, error);
		if (status == TR_OK && last)
			sharded_pause_for_tests(t, t->remesh_pause_ms);
		if (status == TR_OK)
			status = receive_array(t, array, error);
		if (status == TR_OK && moves && !last)
			status = end_array(t, array, error);
	}
	return status;
}

void sharded_end_remesh(struct trainer *t)
{
	struct sharded *s = t->sharded;
	s->changed = true;
	s->state->dealing = s->next_dealing;
	if (s->replans)
		s->state->asked = s->next_dealing;
	if (s->state->born != 0)
		ranks_settle(&s->next, true);
}
