/* Who came, who was lost and what that changes, in words for people. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/worker/trainer_inside.h"

#define MIB (1 << 20)

struct words {
	char text[512];
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct words *w, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(w->text + w->used, sizeof(w->text) - w->used, format, arguments);
	va_end(arguments);
	size_t left = sizeof(w->text) - w->used - 1;
	if (length > 0)
		w->used += (size_t)length < left ? (size_t)length : left;
}

const char *sharded_place(const struct ranks *ranks, uint32_t rank, char *text, size_t bytes)
{
	const struct mesh *mesh = &ranks->mesh;
	struct mesh_at at = mesh_at(mesh, rank);
	uint32_t copies = (uint32_t)ranks->copies, replica = at.at[MESH_DP] / copies;
	char copy[32] = "";
	if (copies > 1)
		(void)snprintf(copy, sizeof(copy), ", copy %u", at.at[MESH_DP] % copies);
	if (mesh->size[MESH_PP] > 1 && mesh->size[MESH_TP] > 1)
		(void)snprintf(text, bytes, "tp %u, pp %u%s of replica %u", at.at[MESH_TP],
		    at.at[MESH_PP], copy, replica);
	else if (mesh->size[MESH_PP] > 1)
		(void)snprintf(text, bytes, "pp %u%s of replica %u", at.at[MESH_PP], copy, replica);
	else if (mesh->size[MESH_TP] == 1 && copies > 1)
		(void)snprintf(text, bytes, "%s of replica %u", copy + 2, replica);
	else
		(void)snprintf(text, bytes, "tp %u%s of replica %u", at.at[MESH_TP], copy, replica);
	return text;
}

static void tell_losses(struct trainer *t, const struct ranks *before, const struct ranks *now)
{
	struct words w = { .used = 0 };
	char place[64];
	uint32_t lost = 0, replicas = ranks_replicas(now);
	for (uint32_t i = 0; i < before->count; i++) {
		const struct ranks_peer *p = &before->peers[i];
		if (p->rank == RANKS_NONE || ranks_find(now, p->peer) != RANKS_NONE)
			continue;
		add(&w, "%speer %llu (%s)", lost++ > 0 ? ", " : "", (unsigned long long)p->peer,
		    sharded_place(before, p->rank, place, sizeof(place)));
	}
	if (lost == 0)
		return;
	add(&w, " %s lost", lost == 1 ? "is" : "are");
	if (mesh_equal(&before->mesh, &now->mesh) && before->copies == now->copies &&
	    replicas > 0 && replicas < ranks_replicas(before))
		add(&w, ": goes on with dp %u until %s", replicas * (uint32_t)now->copies,
		    lost == 1 ? "a worker joins" : "workers join");
	trainer_report_event(t, w.text);
}

/* Of one array. */
static size_t bytes_of(const struct owners_move *move)
{
	return (move->range.end - move->range.first) * sizeof(float);
}

/* Of a shard's arrays that go to newcomers. */
static double megabytes(uint64_t numbers)
{
	return 1e-6 * SHARDED_ARRAYS * sizeof(float) * (double)numbers;
}

static void add_newcomer(struct words *w, const struct trainer *t, uint32_t index)
{
	const struct sharded *s = t->sharded;
	const struct newcomer *newcomer = newcomers_find(&s->state->newcomers,
	    s->next.peers[index].peer);
	uint64_t ns = newcomer->ns + (uint64_t)s->told->round_ns;
	add(w, ": its %.1f MB came in %llu steps, %.2f s, in which the others trained on",
	    megabytes(newcomer->numbers), (unsigned long long)newcomer->steps, 1e-9 * (double)ns);
}

static void tell_arrival(struct trainer *t, const struct ranks *now, uint32_t index)
{
	const struct sharded *s = t->sharded;
	struct words w = { .used = 0 };
	struct shard shard;
	char place[64];
	const struct ranks_peer *p = &now->peers[index];
	const struct layout *layout = mesh_shards_layout(&s->shards,
	    ranks_shard(&s->shards.mesh, p->rank), &shard);
	unsigned arrays = (unsigned)__builtin_popcount(sharded_arrays_moved(s));
	add(&w, "peer %llu takes rank %u (%s)", (unsigned long long)p->peer, p->rank,
	    sharded_place(now, p->rank, place, sizeof(place)));
	if (sharded_begins_to_work(t, index))
		add_newcomer(&w, t, index);
	for (size_t i = 0; i < s->transfer_count; i++)
		if (s->transfers[i].to == index)
			add(&w, ": %.1f MB from peer %llu",
			    1e-6 * arrays * (double)(layout->count * sizeof(float)),
			    (unsigned long long)now->peers[s->transfers[i].from].peer);
	double moments = 0;
	for (size_t i = 0; i < s->moments.count; i++)
		if (s->moments.moves[i].to == index)
			moments += 2e-6 * (double)bytes_of(&s->moments.moves[i]);
	if (moments > 0)
		add(&w, ", %.1f MB of moments from their owners", moments);
	trainer_report_event(t, w.text);
}

/* Whose shard begins to come. */
static void tell_newcomer(struct trainer *t, size_t number)
{
	const struct sharded *s = t->sharded;
	const struct newcomer *newcomer = &s->newcomers.of[number];
	const struct mesh *mesh = &s->next.mesh;
	uint32_t donors[NEWCOMERS_DONORS], tp = mesh->size[MESH_TP];
	uint32_t count = newcomers_donors(&s->newcomers, number, &s->next, donors);
	struct words w = { .used = 0 };
	add(&w, "peer %llu is to work with", (unsigned long long)newcomer->peer);
	if (mesh->size[MESH_PP] > 1)
		add(&w, " pp %u", (uint32_t)newcomer->shard / tp);
	if (tp > 1)
		add(&w, " tp %u", (uint32_t)newcomer->shard % tp);
	if (ranks_shards(mesh) == 1)
		add(&w, " the whole model");
	add(&w, ": %.1f MB come from peer %llu", megabytes(newcomer->numbers - newcomer->got),
	    (unsigned long long)s->next.peers[donors[0]].peer);
	for (uint32_t k = 1; k < count; k++)
		add(&w, ", %llu", (unsigned long long)s->next.peers[donors[k]].peer);
	add(&w, " while the others train on");
	trainer_report_event(t, w.text);
}

/* What had come is of no use: it is gone, or the others' mesh has changed. */
static void tell_given_up(struct trainer *t, const struct newcomer *newcomer)
{
	struct words w = { .used = 0 };
	bool here = ranks_find(&t->sharded->next, newcomer->peer) != RANKS_NONE;
	add(&w, "peer %llu %s: %.1f of %.1f MB of its shard had come",
	    (unsigned long long)newcomer->peer,
	    here ? "does not begin to work now, since the workers have changed" : "is lost",
	    megabytes(newcomer->got), megabytes(newcomer->numbers));
	trainer_report_event(t, w.text);
}

static void tell_newcomers(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	const struct newcomers *before = &s->state->newcomers;
	for (size_t i = 0; i < before->count; i++) {
		const struct newcomer *now = newcomers_find(&s->newcomers, before->of[i].peer);
		uint32_t index = ranks_find(&s->next, before->of[i].peer);
		bool works = index != RANKS_NONE && s->next.peers[index].rank != RANKS_NONE;
		if (!works && (now == NULL || now->shard != before->of[i].shard))
			tell_given_up(t, &before->of[i]);
	}
	for (size_t i = 0; i < s->newcomers.count; i++)
		if (s->newcomers.of[i].steps == 0)
			tell_newcomer(t, i);
}

static void tell_arrivals(struct trainer *t, const struct ranks *before, const struct ranks *now)
{
	for (uint32_t i = 0; i < now->count; i++) {
		uint32_t then = ranks_find(before, now->peers[i].peer);
		uint32_t rank = then != RANKS_NONE ? before->peers[then].rank : RANKS_NONE;
		if (now->peers[i].rank != RANKS_NONE && now->peers[i].rank != rank)
			tell_arrival(t, now, i);
	}
}

static void add_mesh(struct words *w, const struct mesh *mesh, uint32_t replicas)
{
	add(w, "dp %u", replicas);
	if (mesh->size[MESH_PP] > 1)
		add(w, " x pp %u", mesh->size[MESH_PP]);
	if (mesh->size[MESH_TP] > 1)
		add(w, " x tp %u", mesh->size[MESH_TP]);
}

static void add_ranks(struct words *w, const struct ranks *now)
{
	uint32_t replicas = ranks_replicas(now),
	         spares = now->count - replicas * ranks_members(now);
	add_mesh(w, &now->mesh, replicas * (uint32_t)now->copies);
	if (now->copies > 1)
		add(w, ", %u %s of %u copies", replicas, replicas == 1 ? "replica" : "replicas",
		    (uint32_t)now->copies);
	if (spares > 0)
		add(w, ", %u %s", spares, spares == 1 ? "spare" : "spares");
}

/* ", shares 3 : 1", where they are asked for. */
static void add_list(struct words *w, const char *name, const uint32_t *list, uint32_t count)
{
	if (list[0] > 0)
		add(w, ", %s %u", name, list[0]);
	for (uint32_t i = 1; i < count && list[0] > 0; i++)
		add(w, " : %u", list[i]);
}

static void add_dealing(struct words *w, const struct dealing *dealing)
{
	add_list(w, "shares", dealing->shares, dealing->mesh.size[MESH_DP]);
	add_list(w, "layers", dealing->layers, dealing->mesh.size[MESH_PP]);
}

static void tell_mesh(struct trainer *t, const struct ranks *now)
{
	struct words w = { .used = 0 };
	add(&w, "mesh: ");
	add_ranks(&w, now);
	add_dealing(&w, &t->sharded->dealing);
	trainer_report_event(t, w.text);
}

static void tell_stays(struct trainer *t, const struct ranks *now)
{
	const struct sharded *s = t->sharded;
	char why[WORTH_TEXT];
	struct words w = { .used = 0 };
	add(&w, "mesh: %u workers", now->count);
	if (s->stays)
		add(&w, " for %llu rounds", (unsigned long long)s->state->remesh.better);
	add(&w, ": stays with ");
	add_ranks(&w, now);
	uint32_t replicas = now->count / ranks_shards(&s->declined),
	         most = s->declined.size[MESH_DP];
	add(&w, "; ");
	add_mesh(&w, &s->declined, replicas < most ? replicas : most);
	add(&w, " is not worth it: %s", worth_words(&s->worth, why));
	trainer_report_event(t, w.text);
}

static void tell_taken_back(struct trainer *t, const struct ranks *before, const struct ranks *now)
{
	const struct trial *trial = &t->sharded->state->trial;
	struct words w = { .used = 0 };
	add(&w, "mesh: steps take %.3g ms with ", 1e-6 * (double)trial->longer_ns);
	add_ranks(&w, before);
	add(&w, ", and took %.3g ms before: goes on with ", 1e-6 * (double)trial->before_ns);
	add_ranks(&w, now);
	add(&w, ", until workers come or go");
	trainer_report_event(t, w.text);
}

static void add_moved(struct words *w, const struct sharded *s)
{
	const double array = 1e-6 * sizeof(float);
	double moved = array * (double)reshard_moved(&s->moves),
	       kept = array * (double)reshard_kept(&s->moves);
	int arrays = __builtin_popcount(sharded_arrays_held(s));
	moved *= arrays;
	kept *= arrays;
	if (s->apart != NULL && s->apart->carried.lineage != 0) {
		moved += 2 * array * (double)reshard_moved(&s->apart->carried.moves);
		kept += 2 * array * (double)reshard_kept(&s->apart->carried.moves);
	}
	add(w, "; %.1f MB moved, %.1f MB stayed where they were, in %.2f s", moved, kept,
	    trainer_monotonic_s() - s->moving_since_s);
}

/* What was passed over for it, or could not be. */
static void add_room(struct words *w, const struct trainer *t, const struct ranks *now)
{
	struct mesh mesh;
	uint64_t bytes, room;
	if (!sharded_lacks_room(t, now->count, &mesh, &bytes, &room))
		return;
	add(w, ", as by its plan a worker of ");
	add_mesh(w, &mesh, mesh.size[MESH_DP]);
	add(w, " takes %.4g MiB and has %.4g", (double)bytes / MIB, (double)room / MIB);
	if (ranks_shards(&mesh) == ranks_shards(&now->mesh))
		add(w,
		    ", and there is none that takes less: set mesh.too_few: wait, or give its "
		    "workers more memory");
}

static void tell_remesh(struct trainer *t, const struct ranks *before, const struct ranks *now)
{
	const struct sharded *s = t->sharded;
	char why[WORTH_TEXT];
	struct words w = { .used = 0 };
	struct remesh_shape was = remesh_shape_of(before), is = remesh_shape_of(now);
	bool smaller = false;
	add(&w, "mesh: ");
	if (remesh_is_larger(&was, &is)) {
		add_mesh(&w, &before->mesh, was.copies);
		add(&w, " cannot be: %u %s; goes on with ", now->count,
		    now->count == 1 ? "worker" : "workers");
		smaller = true;
	} else {
		uint64_t rounds = s->state->remesh.better;
		add(&w, "%u workers for %llu %s: goes on with ", now->count,
		    (unsigned long long)rounds, rounds == 1 ? "round" : "rounds");
	}
	add_ranks(&w, now);
	if (smaller)
		add_room(&w, t, now);
	if (s->state->born != 0)
		add_moved(&w, s);
	if (s->state->born != 0 && s->apart != NULL)
		add(&w, "; each replica begins from what was merged, with %s",
		    s->apart->carried.lineage != 0 ? "the moments of one" : "fresh moments");
	else if (s->state->born != 0 && remesh_is_larger(&is, &was))
		add(&w, "; %s", worth_words(&s->worth, why));
	trainer_report_event(t, w.text);
}

/* Layers of stages that follow speeds: made, or not worth it. */
static void tell_restage(struct trainer *t, const struct ranks *now)
{
	const struct sharded *s = t->sharded;
	const struct restage_wish *wish = &s->state->wish;
	uint32_t slowest = 0, fastest = 0;
	char why[WORTH_TEXT];
	struct words w = { .used = 0 };
	for (uint32_t i = 1; i < now->mesh.size[MESH_PP]; i++) {
		slowest = wish->stage_ns[i] > wish->stage_ns[slowest] ? i : slowest;
		fastest = wish->stage_ns[i] < wish->stage_ns[fastest] ? i : fastest;
	}
	add(&w, "mesh: of a step stage %u computes %.3g ms, stage %u %.3g ms: ", slowest,
	    1e-6 * (double)wish->stage_ns[slowest], fastest,
	    1e-6 * (double)wish->stage_ns[fastest]);
	add(&w, s->kind == SHARDED_REMESH ? "goes on with " : "stays with ");
	add_ranks(&w, now);
	if (s->kind == SHARDED_REMESH) {
		add_list(&w, "layers", wish->layers, now->mesh.size[MESH_PP]);
		add_moved(&w, s);
	} else {
		add_list(&w, "layers would be", wish->layers, now->mesh.size[MESH_PP]);
		add(&w, ", which is not worth it");
	}
	add(&w, "%s%s", s->kind == SHARDED_REMESH ? "; " : ": ", worth_words(&s->worth, why));
	trainer_report_event(t, w.text);
}

static void add_drift(struct words *w, const struct sharded *s, const struct wish *wish)
{
	const struct drift *drift = &s->state->drift;
	add(w, "mesh: ");
	if (drift->shaken > 0)
		add(w, "with %u %s ", s->next.count, s->next.count == 1 ? "worker" : "workers");
	add(w, "a step takes %.3g ms, planned were %.3g ms", 1e-6 * (double)drift->measured_ns,
	    1e-6 * (double)drift->planned_ns);
	if (drift->measured_ns < drift->planned_ns)
		return;
	if (wish->why == WISH_WHY_WORKER)
		add(w, ", as peer %llu computes at %u %% of the speed that it was planned with",
		    (unsigned long long)s->next.peers[wish->who].peer, wish->percent);
	if (wish->why == WISH_WHY_LINK)
		add(w, ", as from peer %llu to peer %llu goes %u %% of what was planned with",
		    (unsigned long long)s->next.peers[wish->who].peer,
		    (unsigned long long)s->next.peers[wish->to].peer, wish->percent);
}

static void add_wished(struct words *w, const struct wish *wish)
{
	add_mesh(w, &wish->dealing.mesh, wish->dealing.mesh.size[MESH_DP]);
	add_dealing(w, &wish->dealing);
}

static void add_predictions(struct words *w, const struct wish *wish)
{
	add(w, "by prediction %.3g ms instead of %.3g ms", 1e-6 * (double)wish->next_ns,
	    1e-6 * (double)wish->now_ns);
}

/* What was planned anew: made, or not worth it. */
static void tell_planned_anew(struct trainer *t, const struct ranks *before)
{
	const struct sharded *s = t->sharded;
	const struct wish *wish = &s->state->planned;
	bool goes = s->kind == SHARDED_REMESH;
	char why[WORTH_TEXT];
	struct words w = { .used = 0 };
	add_drift(&w, s, wish);
	if (goes) {
		add(&w, ": goes on with ");
		add_wished(&w, wish);
		add(&w, " instead of ");
		add_ranks(&w, before);
		add(&w, ", ");
		add_predictions(&w, wish);
		add_moved(&w, s);
	} else {
		add(&w, ": stays with ");
		add_ranks(&w, before);
		add(&w, "; ");
		add_wished(&w, wish);
		add(&w, ", ");
		add_predictions(&w, wish);
		add(&w, ", is not worth it");
	}
	add(&w, "%s%s", goes ? "; " : ": ", worth_words(&s->worth, why));
	trainer_report_event(t, w.text);
}

void sharded_tell_replan(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	const struct wish *wish = &s->state->planned;
	struct words w = { .used = 0 };
	add_drift(&w, s, wish);
	add(&w, ": stays with ");
	add_ranks(&w, &s->next);
	if (wish->kind != WISH_STAY)
		add(&w, ", as no other plan could be looked for (its first worker's log says why)");
	else if (wish->now_ns > 0)
		add(&w, ", as no other plan would take less than its %.3g ms by prediction",
		    1e-6 * (double)wish->now_ns);
	else
		add(&w, ", as no other plan would take less");
	trainer_report_event(t, w.text);
}

static void tell_waiting(struct trainer *t, const struct ranks *now)
{
	struct words w = { .used = 0 };
	add(&w, "waits for workers: %u of the %u that one replica takes are there", now->count,
	    ranks_members(now));
	trainer_report_event(t, w.text);
}

void sharded_tell(struct trainer *t, const struct tr_round *round)
{
	const struct sharded *s = t->sharded;
	const struct ranks *before = &s->state->ranks, *now = &s->next;
	if (round->index != 0)
		return;
	if (before->count == 0) {
		if (s->kind != SHARDED_WAIT)
			tell_mesh(t, now);
	} else {
		tell_losses(t, before, now);
		if (s->restages)
			tell_restage(t, now);
		else if (s->replans)
			tell_planned_anew(t, before);
		else if (s->kind == SHARDED_REMESH)
			tell_remesh(t, before, now);
		else if (s->kind != SHARDED_BACK)
			tell_arrivals(t, before, now);
		tell_newcomers(t);
		if (s->takes_back)
			tell_taken_back(t, before, now);
		if (s->stays || s->tells_kept_out)
			tell_stays(t, now);
	}
	if (s->kind == SHARDED_WAIT && (s->state->remesh.waited == 0 || now->count != before->count))
		tell_waiting(t, now);
}

/* Milliseconds of the replica that computes longest. */
static double longest_ms(const uint64_t *each, const struct dealing *dealing, uint64_t batch)
{
	uint32_t replicas[TR_GROUP_PEERS_MAX], dp = dealing->mesh.size[MESH_DP];
	double longest = 0;
	for (uint32_t i = 0; i < dp; i++)
		replicas[i] = i;
	for (uint32_t i = 0; i < dp; i++) {
		uint64_t first, last;
		dealing_share(dealing, replicas, dp, i, batch, &first, &last);
		longest = fmax(longest, 1e-6 * (double)(each[i] * (last - first)));
	}
	return longest;
}

void sharded_tell_shares(struct trainer *t, const struct dealing *before, const uint64_t *each_ns)
{
	const struct dealing *now = &t->sharded->state->dealing;
	uint32_t slowest = 0, fastest = 0, dp = now->mesh.size[MESH_DP];
	struct words w = { .used = 0 };
	for (uint32_t i = 1; i < dp; i++) {
		slowest = each_ns[i] > each_ns[slowest] ? i : slowest;
		fastest = each_ns[i] < each_ns[fastest] ? i : fastest;
	}
	add(&w,
	    "balance: a sequence takes replica %u %.3g ms, replica %u %.3g ms; %.3g ms of a step's "
	    "computing become %.3g ms",
	    slowest, 1e-6 * (double)each_ns[slowest], fastest, 1e-6 * (double)each_ns[fastest],
	    longest_ms(each_ns, before, t->batch), longest_ms(each_ns, now, t->batch));
	add_list(&w, "shares", now->shares, dp);
	trainer_report_event(t, w.text);
}
