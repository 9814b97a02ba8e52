/* The loop of rounds of a sharded job (sharded.h): what all derive, what each does, and what the commit makes of it. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "daemon/worker/trainer_inside.h"

enum { WAIT_MS = 100 };

/* ---- what a round is ---- */

static bool gathers(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	uint64_t every = t->spec->checkpoint != NULL ? t->spec->checkpoint->every : 0;
	uint64_t step = t->counters->step;
	if (s->kind == SHARDED_FINAL)
		return !s->in_shards;
	if (s->kind == SHARDED_SAVE)
		return true;
	if (s->apart != NULL)
		return false;
	return s->kind == SHARDED_STEP && s->state->born != 0 && every > 0 &&
	    t->folder.dir[0] != '\0' && step % every == 0 && s->state->gathered != step;
}

bool sharded_is_last(const struct trainer *t)
{
	return t->sharded->apart != NULL ? sharded_apart_is_done(t) : t->counters->step >= t->steps;
}

static enum sharded_round kind_of(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	bool last = sharded_is_last(t);
	if (ranks_replicas(&s->next) == 0)
		return SHARDED_WAIT;
	if (s->state->back_to > 0)
		return SHARDED_BACK;
	if (s->state->born == 0)
		return last ? SHARDED_LOAD : SHARDED_STEP;
	if (s->lost != RANKS_NONE)
		return SHARDED_BACK;
	if (last)
		return sharded_saves_last(t) ? SHARDED_SAVE : SHARDED_FINAL;
	return sharded_apart_saves(t) ? SHARDED_SAVE : SHARDED_STEP;
}

static void set_scope(const struct sharded *s, enum mesh_axis axis, struct sharded_scope *scope)
{
	scope->count = ranks_along(&s->next, axis, s->self, scope->members);
}

/* The same at all; the round may be another attempt at one that was abandoned. */
static tr_status derive(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint64_t peers[TR_GROUP_PEERS_MAX];
	size_t count = 0;
	tr_status status = tr_round_contributors(t->group, peers, TR_GROUP_PEERS_MAX, &count, error);
	if (status == TR_OK)
		status = sharded_use_mesh(t, error);
	if (status != TR_OK)
		return status;
	s->owners = sharded_owners_now(t);
	sharded_next_ranks(t, peers, count);
	status = sharded_plan_moments(t, error);
	if (status != TR_OK)
		return status;
	sharded_give_staged(t);
	s->self = trainer_contributes(round) ? round->index : RANKS_NONE;
	s->kind = kind_of(t);
	status = sharded_derive_remesh(t, error);
	if (status == TR_OK)
		status = sharded_derive_restage(t, error);
	if (status == TR_OK)
		status = sharded_derive_replan(t, error);
	if (status != TR_OK)
		return status;
	sharded_derive_newcomers(t);
	sharded_derive_arrivals(t);
	s->rank = s->self != RANKS_NONE ? s->next.peers[s->self].rank : RANKS_NONE;
	s->gathers = gathers(t);
	sharded_derive_saving(t, round);
	t->arrays = s->held;
	if (s->apart != NULL)
		sharded_apart_bind(t);
	s->into_other = false;
	if (s->rank != RANKS_NONE && s->kind != SHARDED_REMESH) {
		set_scope(s, MESH_TP, &s->tp);
		set_scope(s, MESH_DP, &s->dp);
		if (s->apart != NULL) {
			s->dp.count = ranks_merges(&s->next, s->self, s->dp.members);
			s->copies.count = ranks_copies(&s->next, s->self, s->copies.members);
		}
		sharded_exchange_begin(&s->exchange, &s->tp);
		if (t->strict)
			sharded_pairs_begin(s->strict);
	}
	return TR_OK;
}

/* ---- what each does in it ---- */

static void pause_a_little(struct trainer *t)
{
	const struct timespec tenth = { 0, WAIT_MS * 1000000L / 10 };
	for (int i = 0; i < 10 && tr_progress(t->group); i++)
		(void)nanosleep(&tenth, NULL);
}

static tr_status move_and_load(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = s->state->born != 0 ? sharded_submit_moves(t, error) : TR_OK;
	if (status == TR_OK)
		status = sharded_submit_newcomers(t, error);
	if (status == TR_OK && s->rank != RANKS_NONE)
		status = sharded_take_rank(t, s->rank, error);
	return status == TR_OK && s->state->born == 0 ? sharded_load(t, round, error) : status;
}

/* What replicas that train apart hold changes with merges alone: before each. And newcomers are met before they work. */
static bool compares(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->gathers || s->meets ||
	    (s->apart != NULL && s->kind == SHARDED_STEP && s->state->born != 0);
}

static tr_status submit(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	if (s->kind == SHARDED_WAIT)
		pause_a_little(t);
	else if (s->kind == SHARDED_BACK)
		status = sharded_submit_back(t, round, error);
	else if (s->kind == SHARDED_REMESH)
		status = sharded_submit_remesh(t, round, error);
	else
		status = move_and_load(t, round, error);
	if (status == TR_OK && compares(t))
		status = sharded_compare(t, round, error);
	if (status == TR_OK && s->gathers && s->kind != SHARDED_MEND && s->self != RANKS_NONE)
		status = sharded_submit_gather(t, error);
	if (status == TR_OK && s->kind == SHARDED_STEP)
		status = (s->apart != NULL ? sharded_submit_apart : sharded_submit_step)(t, round,
		    error);
	if (status == TR_OK && s->kind == SHARDED_FINAL)
		status = sharded_submit_final(t, round, error);
	return status;
}

/* ---- and then ---- */

static tr_status finish_ops(struct trainer *t, uint64_t *samples, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	*samples = 0;
	if (s->kind != SHARDED_STEP && s->kind != SHARDED_SAVE)
		return TR_OK;
	if (s->gathers && sharded_writes(t))
		status = (s->in_shards ? sharded_start_shard : sharded_start_checkpoint)(t, error);
	if (s->kind == SHARDED_SAVE)
		return status;
	if (s->apart != NULL)
		return sharded_wait_merge(t, samples, error);
	if (status == TR_OK)
		status = sharded_wait_pieces(t, error);
	if (status == TR_OK)
		status = tr_wait(t->group, TAG_LOSS, error);
	if (status == TR_OK)
		status = sharded_gather_update(t, error);
	if (status == TR_OK)
		*samples = (uint64_t)(s->sums->tokens / (double)t->layout.config.context + 0.5);
	return status;
}

/* Of what all must agree on: what they were before this round, and made of it. */
static uint64_t salt_of(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	struct tr_digest all = tr_digest_of(s->state, sizeof(*s->state));
	all = tr_digest_fold(all, tr_digest_of(t->counters, sizeof(*t->counters)));
	all = tr_digest_fold(all, tr_digest_of(&s->next, sizeof(s->next)));
	return all.low;
}

/* Whoever knows of a checkpoint that is whole says so, whatever the round is; and how long the one before took. One that was written while training went back behind its step is of no use: nobody would hear of
 * those before it. */
static tr_status submit_told(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	if (s->saved_here > t->counters->step)
		s->saved_here = 0;
	uint64_t found = s->kind == SHARDED_BACK ? sharded_found_saved(t) : 0;
	s->told->saved = (int64_t)(found > s->saved_here ? found : s->saved_here);
	s->told->follows = (int64_t)(2 * round->view + (round->nobody_follows ? 1 : 0));
	sharded_say_pace(t);
	return tr_allreduce(t->group, TAG_TOLD, s->told, sizeof(*s->told) / sizeof(int64_t), TR_I64,
	    TR_MAX, trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}

static void learn_saved(struct sharded *s)
{
	uint64_t told = (uint64_t)s->told->saved;
	if (told > s->state->saved) {
		s->state->saved = told;
		s->state->mended = 0;
	}
	if (told >= s->saved_here)
		s->saved_here = 0;
}

static void take_effect(struct trainer *t, const struct tr_round *round, bool *finished)
{
	struct sharded *s = t->sharded;
	if (t->strict)
		sharded_strict_settle(t);
	sharded_tell(t, round);
	learn_saved(s);
	sharded_end_saving(t, round);
	sharded_end_moves(t);
	if (s->gathers && (s->kind == SHARDED_STEP || s->kind == SHARDED_SAVE))
		s->state->gathered = t->counters->step;
	if (s->kind == SHARDED_STEP)
		(s->apart != NULL ? sharded_apply_merge : sharded_apply_step)(t, round);
	if (s->kind == SHARDED_STEP || s->kind == SHARDED_LOAD)
		tr_error_clear(&s->refused);
	if (s->kind == SHARDED_STEP)
		s->differs = 0;
	if (s->kind == SHARDED_LOAD) {
		s->state->born = 1;
		s->loaded = RANKS_NONE;
	}
	sharded_count_rounds(t);
	if (s->kind == SHARDED_BACK)
		sharded_go_back(t, round);
	else if (s->kind == SHARDED_REMESH)
		sharded_end_remesh(t);
	else /* what spares hold was not compared */
		ranks_settle(&s->next, s->kind == SHARDED_STEP || s->kind == SHARDED_MEND);
	if (s->kind == SHARDED_MEND) {
		s->state->mended++;
		sharded_mend(t, round);
		if (s->apart != NULL && s->rank != RANKS_NONE &&
		    s->next.peers[s->self].shard == RANKS_NONE)
			sharded_stream_drop(t); /* wrong numbers may have come into it */
	}
	sharded_balance(t, round);
	sharded_restage(t);
	sharded_replan(t, round);
	sharded_end_newcomers(t);
	sharded_try_replicas(t);
	sharded_learn_pace(t);
	s->state->kept_out = s->kept_out;
	if (s->kind == SHARDED_REMESH)
		s->state->trained = sharded_carried_places(s);
	else if (s->kind != SHARDED_STEP)
		s->state->trained &= ranks_stood(&s->state->ranks, &s->next);
	s->state->ranks = s->next;
	s->state->newcomers = s->newcomers;
	sharded_tidy_moments(t);
	if (s->kind != SHARDED_FINAL)
		return;
	trainer_account_tell(t, round, true);
	*finished = t->sums->final_written + t->sums->final_failed > 0;
	trainer_report_end(t, round);
}

static tr_status one_round(struct trainer *t, struct tr_round *round, bool *finished,
    struct tr_error *error)
{
	struct tr_commit close = { 0 };
	tr_status status = tr_round_begin(t->group, round, error);
	/* What there is to do is in the state. */
	if (status == TR_OK && round->receive_state)
		status = tr_state_receive(t->group, error);
	if (status == TR_OK)
		status = derive(t, round, error);
	if (status == TR_OK)
		status = trainer_first_round(t, round, error);
	if (status == TR_OK)
		sharded_await_saving(t);
	if (status == TR_OK)
		status = submit_told(t, round, error);
	if (status == TR_OK)
		status = sharded_submit_saving(t, round, error);
	if (status == TR_OK)
		status = submit(t, round, error);
	if (status == TR_OK)
		status = finish_ops(t, &close.samples, error);
	/* Of a round that begins again, too: its arrays may be others by then. */
	trainer_settle_save(t);
	if (status != TR_OK)
		return status;
	close.salt = salt_of(t);
	struct tr_round committed = *round;
	status = tr_round_commit(t->group, &close, &committed, error);
	if (status == TR_OK)
		take_effect(t, round, finished);
	return status;
}

tr_status sharded_run(struct trainer *t, struct tr_error *error)
{
	struct tr_round round = { 0 };
	for (bool finished = false; !finished;) {
		tr_status status = one_round(t, &round, &finished, error);
		if (status == TR_OK)
			status = sharded_check_differs(t, error);
		if (status == TR_ERESTART)
			log_info("trainer", "round %llu starts again: %s",
			    (unsigned long long)round.round, error->text);
		else if (status != TR_OK)
			return status;
		uint64_t saved = trainer_finish_checkpoint(t);
		if (saved > 0)
			t->sharded->saved_here = saved;
	}
	return TR_OK;
}
