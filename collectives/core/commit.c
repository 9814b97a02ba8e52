/* The end of a round: one star exchange. Every participant votes with a digest of what it holds; the hub compares and
 * decides.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "collectives/core/tally.h"

static uint64_t hub_of(const struct group_core *core)
{
	return core->roster.peers[core->roster.hub];
}

static bool is_hub(const struct group_core *core)
{
	return core->roster.me == core->roster.hub;
}

struct tr_digest commit_digest(const struct group_core *core)
{
	struct tr_digest digest = tr_digest_fold((struct tr_digest){ core->round,
	                                             core->closing.salt },
	    (struct tr_digest){ core->closing.samples, 0 });

	for (size_t i = 0; i < core->op_count; i++)
		if (op_common(core->ops[i]))
			digest = tr_digest_fold(digest, op_digest(core->ops[i]));
	for (unsigned i = 0; i < core->roster.contributor_count; i++)
		digest = tr_digest_fold(digest,
		    (struct tr_digest){ core->roster.contributors[i], i });
	return digest;
}

/* Of the ops that all members submit. */
uint64_t commit_signatures(const struct group_core *core)
{
	struct tr_digest digest = { 0, 0 };

	for (size_t i = 0; i < core->op_count; i++)
		if (core->ops[i]->kind != OP_PAIR && !op_scoped(core->ops[i]))
			digest = tally_signature(digest, core->ops[i]);
	return digest.low;
}

static void commit_fill_vote(const struct group_core *core, Traind__Peer__Vote *vote, bool early)
{
	traind__peer__vote__init(vote);
	vote->view = core->view.number;
	vote->round = core->round;
	vote->attempt = core->roster.attempt;
	vote->salt = core->closing.salt;
	vote->signatures = core->signatures;
	const struct tally pairs = tally_pairs(core), scoped = tally_scoped(core, !early);
	vote->pairs = pairs.sum;
	vote->pairs_with_0 = pairs.with[0];
	vote->pairs_with_1 = pairs.with[1];
	vote->pairs_with_2 = pairs.with[2];
	vote->pairs_with_3 = pairs.with[3];
	vote->scoped = scoped.sum;
	vote->scoped_with_0 = scoped.with[0];
	vote->scoped_with_1 = scoped.with[1];
	vote->scoped_with_2 = scoped.with[2];
	vote->scoped_with_3 = scoped.with[3];
	vote->scoped_results = scoped.results;
	vote->early = early;
	if (early)
		return;
	vote->latency_us = core->measured.latency_us;
	vote->bandwidth_bytes_per_s = core->measured.bandwidth_bytes_per_s;
	vote->digest_low = core->digest.low;
	vote->digest_high = core->digest.high;
}

static bool commit_older(const Traind__Peer__Vote *a, const Traind__Peer__Vote *b)
{
	if (a->view != b->view)
		return a->view < b->view;
	if (a->round != b->round)
		return a->round < b->round;
	return a->early && !b->early;
}

/* Of the round under way, or of the view that we have frozen for: the one that is needed next. */
static bool commit_awaited(const struct group_core *core, const Traind__Peer__Vote *vote)
{
	if (vote->view == core->view.number)
		return vote->round == core->round;
	return vote->view == core->proposal;
}

static bool commit_replaces(const struct group_core *core, const Traind__Peer__Vote *vote,
    const Traind__Peer__Vote *before)
{
	bool awaited = commit_awaited(core, vote);

	if (awaited != commit_awaited(core, before))
		return awaited;
	return !commit_older(vote, before);
}

/* Members of the view have their places whoever else says something. */
static bool commit_has_place(const struct group_core *core, uint64_t peer)
{
	size_t others = 0;

	if (peer == core->peer || view_find(&core->view, peer))
		return true;
	for (size_t i = 0; i < core->vote_count; i++)
		others += !view_find(&core->view, core->votes[i].peer);
	return others < TR_GROUP_PEERS_MAX;
}

/* Two votes per peer are kept: one of this view and one of a coming one, which may arrive before we installed it. Of each the one that is
 * awaited, else the newest: those over a broken connection may be read after those over the one that replaced it. */
static tr_status commit_store(struct group_core *core, uint64_t from,
    const Traind__Peer__Vote *vote, struct tr_error *error)
{
	bool coming = vote->view > core->view.number;
	size_t i = 0;

	while (i < core->vote_count &&
	    (core->votes[i].peer != from ||
	        (core->votes[i].vote.view > core->view.number) != coming))
		i++;
	if (i == core->vote_count) {
		if (!commit_has_place(core, from))
			return tr_error_set(error, TR_ELIMIT, "too many voters");
		if (core->vote_count == core->vote_capacity) {
			size_t capacity = core->vote_capacity ? 2 * core->vote_capacity : 8;
			void *votes = realloc(core->votes, capacity * sizeof(core->votes[0]));
			if (!votes)
				return TR_ENOMEM;
			core->votes = votes;
			core->vote_capacity = capacity;
		}
		core->votes[core->vote_count++] = (struct member_vote){ from, *vote };
	}
	if (commit_replaces(core, vote, &core->votes[i].vote))
		core->votes[i].vote = *vote;
	return TR_OK;
}

/* Those of earlier views, and of this one from who is not in it. */
void commit_forget_votes(struct group_core *core)
{
	size_t kept = 0;

	for (size_t i = 0; i < core->vote_count; i++) {
		const struct member_vote *vote = &core->votes[i];
		bool counts = vote->vote.view == core->view.number &&
		    view_find(&core->view, vote->peer);
		if (counts || vote->vote.view > core->view.number)
			core->votes[kept++] = *vote;
	}
	core->vote_count = kept;
}

const Traind__Peer__Vote *commit_vote_of(const struct group_core *core, uint64_t peer)
{
	for (size_t i = 0; i < core->vote_count; i++) {
		const Traind__Peer__Vote *vote = &core->votes[i].vote;
		if (core->votes[i].peer == peer && vote->view == core->view.number &&
		    vote->round == core->round && vote->attempt == core->roster.attempt)
			return vote;
	}
	return NULL;
}

bool commit_has_vote(const struct group_core *core, uint64_t peer)
{
	const Traind__Peer__Vote *vote = commit_vote_of(core, peer);

	return vote && !vote->early;
}

bool commit_is_closed(const struct group_core *core, uint64_t peer)
{
	return commit_vote_of(core, peer) != NULL;
}

static struct group_action *commit_send(struct group_core *core, uint64_t peer, tr_status status)
{
	emit_connect(core, peer);
	struct group_action *action = emit(core, GROUP_DO_SEND_COMMIT);
	action->to = peer;
	action->round = core->round;
	action->commit.view = core->view.number;
	action->commit.round = core->round;
	action->commit.attempt = core->roster.attempt;
	action->commit.status = status;
	action->commit.recorded_round = core->recorded_round;
	return action;
}

void commit_refuse(struct group_core *core, uint64_t peer, tr_status status, const char *reason)
{
	struct group_action *action = commit_send(core, peer, status);
	(void)snprintf(action->text, sizeof(action->text), "%s", reason);
}

bool commit_contributes(const struct group_core *core, uint64_t peer)
{
	unsigned who = roster_find(&core->roster, peer);

	return who != ROSTER_NONE && core->roster.bit[who] != ROSTER_NONE;
}

/* A round is its contributors'. Who came for it and says other things is wrong, and ends alone: when the view without it comes, the round goes on.
 * Two newcomers cannot know which of them is wrong: who notices ends. */
void commit_differs(struct group_core *core, uint64_t peer, const char *reason)
{
	if (!commit_contributes(core, core->peer)) {
		emit_fail(core, TR_EMISMATCH, "%s", reason);
		return;
	}
	commit_refuse(core, peer, TR_EMISMATCH, reason);
	if (commit_contributes(core, peer))
		emit_refuse(core, TR_EMISMATCH, reason);
}

/* Peers whose caller closed the round with other ops than ours can never finish it with us. False: there is one. */
static bool commit_same_signatures(struct group_core *core)
{
	if (!is_hub(core))
		return true;
	for (unsigned i = 0; i < core->roster.n; i++) {
		uint64_t peer = core->roster.peers[i];
		const Traind__Peer__Vote *vote = commit_vote_of(core, peer);
		if (!vote || vote->signatures == core->signatures)
			continue;
		char reason[160];
		(void)snprintf(reason, sizeof(reason),
		    "peers %" PRIu64 " and %" PRIu64 " closed round %" PRIu64
		    " with different collectives",
		    peer, core->peer, core->round);
		commit_differs(core, peer, reason);
		return false;
	}
	return true;
}

static void commit_mismatch(struct group_core *core, tr_status status, const char *reason)
{
	for (unsigned i = 0; i < core->roster.n; i++)
		if (i != core->roster.me)
			commit_refuse(core, core->roster.peers[i], status, reason);
	emit_refuse(core, status, reason);
}

/* What participant `who` said of its pairs, or of its ops in scopes. False: it has not closed the round yet, and said nothing. */
static bool commit_some_of(const struct group_core *core, unsigned who, bool of_pairs,
    struct tally *some)
{
	const Traind__Peer__Vote *vote = commit_vote_of(core, core->roster.peers[who]);

	*some = (struct tally){ 0 };
	if (who == core->roster.me)
		*some = of_pairs ? tally_pairs(core) : tally_scoped(core, false);
	else if (!vote)
		return false;
	else if (of_pairs)
		*some = (struct tally){ vote->pairs, 0,
			{ vote->pairs_with_0, vote->pairs_with_1, vote->pairs_with_2,
			    vote->pairs_with_3 } };
	else
		*some = (struct tally){ vote->scoped, vote->scoped_results,
			{ vote->scoped_with_0, vote->scoped_with_1, vote->scoped_with_2,
			    vote->scoped_with_3 } };
	return true;
}

static bool commit_has_some(const struct group_core *core, const struct tally *some, unsigned with)
{
	uint32_t bit = core->roster.bit[with];

	return bit != ROSTER_NONE && (some->with[bit / 64] >> bit % 64 & 1) != 0;
}

/* Two of which one says that it has such an op with the other, who has none with it. False: each has its other end. */
static bool commit_one_sided(const struct group_core *core, bool of_pairs, unsigned *one,
    unsigned *other)
{
	struct tally ours, theirs;

	for (*one = 0; *one < core->roster.n; (*one)++) {
		(void)commit_some_of(core, *one, of_pairs, &ours);
		for (*other = 0; *other < core->roster.n; (*other)++) {
			(void)commit_some_of(core, *other, of_pairs, &theirs);
			if (*one != *other && commit_has_some(core, &ours, *other) &&
			    !commit_has_some(core, &theirs, *one))
				return true;
		}
	}
	return false;
}

static void commit_name_all(const struct group_core *core, bool of_pairs, char *reason, size_t bytes)
{
	struct tally some;
	size_t used = strlen(reason);

	for (unsigned i = 0; i < core->roster.n && used + 24 < bytes; i++) {
		(void)commit_some_of(core, i, of_pairs, &some);
		if (some.sum != 0)
			used += (size_t)snprintf(reason + used, bytes - used, " %" PRIu64,
			    core->roster.peers[i]);
	}
}

/* Nothing is left of the numbers of all when each such op has all its members, and they say the same of it. */
static void commit_compare_some(struct group_core *core, bool of_pairs)
{
	const struct roster *roster = &core->roster;
	const char *what = of_pairs ? "a send or a receive" : "a collective in a scope";
	struct tally some;
	uint64_t left = 0;
	unsigned one, other;
	char reason[200];

	if (!is_hub(core) || core->state != ROUND_CLOSED)
		return;
	for (unsigned i = 0; i < roster->n; i++)
		if (i != roster->me && !commit_vote_of(core, roster->peers[i]))
			return;
	for (unsigned i = 0; i < roster->n; i++) {
		if (!commit_some_of(core, i, of_pairs, &some))
			return;
		left = of_pairs ? left ^ some.sum : left + some.sum;
	}
	if (left == 0)
		return;
	if (commit_one_sided(core, of_pairs, &one, &other)) {
		(void)snprintf(reason, sizeof(reason),
		    "round %" PRIu64 ": peer %" PRIu64 " has %s with peer %" PRIu64
		    ", which has none with it",
		    core->round, roster->peers[one], what, roster->peers[other]);
	} else {
		(void)snprintf(reason, sizeof(reason), "round %" PRIu64 ": %s among peers",
		    core->round,
		    of_pairs ? "sends and receives do not agree"
		             : "collectives in scopes do not agree");
		commit_name_all(core, of_pairs, reason, sizeof(reason));
	}
	commit_mismatch(core, TR_EMISMATCH, reason);
}

tr_status commit_vote_got(struct group_core *core, uint64_t from, const Traind__Peer__Vote *vote,
    struct tr_error *error)
{
	if (core->state == ROUND_FAILED || vote->view < core->view.number ||
	    (vote->view == core->view.number && vote->round < core->round))
		return TR_ESTALE;
	if (!group_core_expects(core, vote->view))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " votes in view %" PRIu64 ", which cannot be", from,
		    vote->view);
	if (vote->view == core->view.number && !view_find(&core->view, from))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " votes in view %" PRIu64 ", which it is not in", from,
		    vote->view);
	bool again = vote->asks && vote->view == core->view.number && vote->round == core->round &&
	    vote->attempt == core->roster.attempt && commit_has_vote(core, from);
	tr_status st = again ? TR_OK : commit_store(core, from, vote, error);
	core->votes_moved = core->votes_moved || !again;
	if (st == TR_OK && vote->asks)
		lack_vote_asked(core, from);
	return st;
}

/* Classes of equal votes; a member of a class with a strict majority is right, all others are named. */
static bool commit_same(const Traind__Peer__Vote *a, const Traind__Peer__Vote *b)
{
	return a->digest_low == b->digest_low && a->digest_high == b->digest_high;
}

static void commit_disagree(struct group_core *core)
{
	const struct roster *roster = &core->roster;
	const Traind__Peer__Vote *majority = NULL;
	char reason[200];
	size_t used = 0;

	for (unsigned i = 0; i < roster->n; i++) {
		const Traind__Peer__Vote *vote = commit_vote_of(core, roster->peers[i]);
		unsigned same = 0;
		for (unsigned k = 0; k < roster->n; k++)
			same += commit_same(vote, commit_vote_of(core, roster->peers[k]));
		if (2 * same > roster->n)
			majority = vote;
	}
	used += (size_t)snprintf(reason, sizeof(reason),
	    "round %" PRIu64 ": peers hold different %s:", core->round,
	    majority ? "results than the majority" : "results, and there is no majority");
	for (unsigned i = 0; i < roster->n && used < sizeof(reason) - 24; i++)
		if (!majority || !commit_same(majority, commit_vote_of(core, roster->peers[i])))
			used += (size_t)snprintf(reason + used, sizeof(reason) - used, " %" PRIu64,
			    roster->peers[i]);
	core->disagreed = true;
	if (!majority) {
		commit_mismatch(core, TR_EDIGEST, reason);
		return;
	}
	bool wrong = false;
	for (unsigned i = 0; i < roster->n; i++) {
		if (commit_same(majority, commit_vote_of(core, roster->peers[i])))
			continue;
		if (i == roster->me)
			wrong = true;
		else
			commit_refuse(core, roster->peers[i], TR_EDIGEST, reason);
	}
	if (wrong)
		emit_fail(core, TR_EDIGEST, "%s", reason);
}

static void commit_decide(struct group_core *core)
{
	const struct roster *roster = &core->roster;
	const Traind__Peer__Vote *first = NULL;
	uint64_t scoped_left = 0;

	for (unsigned i = 0; i < roster->n; i++) {
		const Traind__Peer__Vote *vote = commit_vote_of(core, roster->peers[i]);
		if (!vote || vote->early)
			return;
		scoped_left += vote->scoped_results;
	}
	for (unsigned i = 0; i < roster->n; i++) {
		const Traind__Peer__Vote *vote = commit_vote_of(core, roster->peers[i]);
		if (!first)
			first = vote;
		if (!commit_same(vote, first)) {
			commit_disagree(core);
			return;
		}
	}
	if (scoped_left != 0) {
		char reason[160];
		(void)snprintf(reason, sizeof(reason),
		    "round %" PRIu64
		    ": the members of a scope hold different results of one of its collectives",
		    core->round);
		core->disagreed = true;
		commit_mismatch(core, TR_EDIGEST, reason);
		return;
	}
	Traind__Peer__Commit links = TRAIND__PEER__COMMIT__INIT;
	links_decide(core, &links);
	for (unsigned i = 0; i < roster->n; i++) {
		if (i == roster->me)
			continue;
		struct group_action *action = commit_send(core, roster->peers[i], TR_OK);
		action->commit.latency_us = links.latency_us;
		action->commit.n_bandwidth_bytes_per_s = links.n_bandwidth_bytes_per_s;
		action->commit.bandwidth_bytes_per_s = links.bandwidth_bytes_per_s;
	}
	links_take(core, &links);
	round_commit(core);
}

/* False: the others are in a later view, which we hear of, or of our end; in this one no round is decided any more. */
static bool commit_may_vote(const struct group_core *core)
{
	const struct group_lent *lent = &core->lent;

	/* A joiner that has not got the state cannot hold the next round, unless it is to get it later. */
	return round_sealed(core) && !handover_awaited(core) &&
	    (!lent->intact || lent->intact(lent->arg, core->view.number));
}

static void commit_send_vote(struct group_core *core, const Traind__Peer__Vote *vote)
{
	emit_connect(core, hub_of(core));
	struct group_action *action = emit(core, GROUP_DO_SEND_VOTE);
	action->to = hub_of(core);
	action->round = core->round;
	action->vote = *vote;
}

static void commit_vote(struct group_core *core)
{
	Traind__Peer__Vote vote;

	core->digest = commit_digest(core);
	commit_fill_vote(core, &vote, false);
	core->voted = true;
	core->votes_moved = true;
	lack_voted(core);
	if (!is_hub(core))
		commit_send_vote(core, &vote);
	else if (commit_store(core, core->peer, &vote, NULL) != TR_OK)
		core->status = TR_ENOMEM;
}

void commit_ask(struct group_core *core)
{
	Traind__Peer__Vote vote;

	if (is_hub(core))
		return; /* it knows */
	commit_fill_vote(core, &vote, false);
	vote.asks = true;
	commit_send_vote(core, &vote);
}

void commit_advance(struct group_core *core)
{
	if (core->proposal != 0 || core->stuck || core->view.number == 0 ||
	    core->state != ROUND_CLOSED)
		return;
	if (!core->voted && commit_may_vote(core))
		commit_vote(core);
	if (core->votes_moved && !commit_same_signatures(core)) {
		core->votes_moved = false; /* it is told, once a vote */
		return;
	}
	if (core->votes_moved && core->state != ROUND_FAILED)
		commit_compare_some(core, true);
	if (core->votes_moved && core->state != ROUND_FAILED)
		commit_compare_some(core, false);
	if (core->state == ROUND_FAILED)
		return;
	if (core->votes_moved && core->voted && is_hub(core) && !core->disagreed) {
		core->votes_moved = false;
		commit_decide(core);
	}
}

/* Closed a while ago and something is not sealed: if the others closed with other ops, only the hub can see it. */
void commit_early_notice(struct group_core *core)
{
	if (core->state != ROUND_CLOSED || core->proposal != 0 || core->stuck || core->voted ||
	    is_hub(core) || core->now_us < core->early_us)
		return;
	core->early_us = UINT64_MAX;
	struct group_action *action = emit(core, GROUP_DO_SEND_VOTE);
	action->to = hub_of(core);
	action->round = core->round;
	commit_fill_vote(core, &action->vote, true);
}

/* `from` found out that the round cannot be. That holds in a frozen view too: the round is the one that we are in, it is not decided here, and a
 * member may end at any time, also behind its report. A refusal of an older view is not obeyed (in that time its round may have begun again, with
 * the right ops): if the round cannot be, memberd has it from `from`, and says so instead of a view. */
static tr_status commit_refused(struct group_core *core, const Traind__Peer__Commit *commit)
{
	const char *reason = commit->reason ? commit->reason : "";

	if (commit->status == TR_EMISMATCH && commit_contributes(core, core->peer))
		emit_refuse(core, TR_EMISMATCH, reason);
	else
		emit_fail(core, (tr_status)commit->status, "%s", reason);
	return TR_OK;
}

tr_status commit_got(struct group_core *core, uint64_t from, const Traind__Peer__Commit *commit,
    struct tr_error *error)
{
	bool refused = commit->status == TR_EDIGEST || commit->status == TR_EMISMATCH;

	if (core->state == ROUND_FAILED || (core->proposal != 0 && !refused) ||
	    commit->view != core->view.number || commit->round != core->round)
		return TR_ESTALE;
	if (commit->attempt != core->roster.attempt ||
	    roster_find(&core->roster, from) == ROSTER_NONE)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " decides a round it is not in", from);
	if (refused)
		return commit_refused(core, commit);
	if (commit->status != TR_OK || from != hub_of(core) || is_hub(core) || !core->voted)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " commits round %" PRIu64 " out of turn", from, commit->round);
	tr_status st = links_check(core, commit, error);
	if (st != TR_OK)
		return st;
	links_take(core, commit);
	if (commit->recorded_round < commit->round)
		record_logged(core, commit->recorded_round);
	round_commit(core);
	return TR_OK;
}
