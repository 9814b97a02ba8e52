#include "daemon/membership/core/resume.h"

#include <string.h>

static bool is_member(const struct resume_input *input, uint64_t peer)
{
	for (size_t i = 0; i < input->count; i++)
		if (input->members[i] == peer)
			return true;
	return false;
}

/* Who contributes under `attempt` of `round`. False: memberd never named such an attempt. */
static bool contributors_of(const struct resume_input *input, uint64_t round, uint64_t attempt,
    struct resume_decision *decision)
{
	const Traind__Peer__View *view = input->old != NULL ? input->old->view : NULL;
	const Traind__Peer__Resume *resume = input->old != NULL ? input->old->resume : NULL;
	decision->contributors_count = 0;
	if (view == NULL)
		return false;
	if (resume->finish && round == resume->base_round && attempt == resume->base_attempt) {
		for (size_t i = 0; i < resume->n_contributors && i < TR_GROUP_PEERS_MAX; i++)
			decision
			    ->contributors[decision->contributors_count++] = resume->contributors[i];
		return decision->contributors_count > 0;
	}
	if (attempt != view->number)
		return false;
	for (size_t i = 0; i < view->n_peers && i < TR_GROUP_PEERS_MAX; i++)
		if (view->peers[i]->contribute_from <= round)
			decision->contributors[decision->contributors_count++] = view->peers[i]->peer;
	return decision->contributors_count > 0;
}

static bool begun_under(const Traind__Peer__ViewReport *report,
    const struct resume_decision *decision)
{
	return report != NULL && report->begun_round == decision->base_round &&
	    report->attempt == decision->base_attempt;
}

/* The attempt of base_round that was under way: of several, the newest; an older one was given up
 * before. 0: none. */
static uint64_t attempt_of(const struct resume_input *input, struct resume_decision *decision)
{
	uint64_t attempt = 0;
	for (size_t i = 0; i < input->count; i++) {
		const Traind__Peer__ViewReport *report = input->reports[i];
		if (report != NULL && report->begun_round == decision->base_round &&
		    report->attempt > attempt &&
		    contributors_of(input, decision->base_round, report->attempt, decision))
			attempt = report->attempt;
	}
	return attempt;
}

static bool contributor_lost(const struct resume_input *input,
    const struct resume_decision *decision)
{
	for (size_t i = 0; i < decision->contributors_count; i++)
		if (!is_member(input, decision->contributors[i]))
			return true;
	return false;
}

static bool contributor_left(const struct resume_input *input,
    const struct resume_decision *decision)
{
	for (size_t i = 0; i < decision->contributors_count; i++)
		if (is_member(input, decision->contributors[i]))
			return true;
	return false;
}

bool resume_same_op(const Traind__Peer__OpReport *op, uint32_t tag, const ProtobufCBinaryData *scope)
{
	return op->tag == tag && op->scope.len == scope->len &&
	    (scope->len == 0 || memcmp(op->scope.data, scope->data, scope->len) == 0);
}

/* Reports list their ops by ascending tags. */
static const Traind__Peer__OpReport *op_of(const Traind__Peer__ViewReport *report,
    const Traind__Peer__OpReport *like)
{
	size_t low = 0, high = report->n_ops;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (report->ops[middle]->tag < like->tag)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == report->n_ops || !resume_same_op(report->ops[low], like->tag, &like->scope) ||
	    report->ops[low]->segments != like->segments)
		return NULL;
	return report->ops[low];
}

static unsigned byte_of(const ProtobufCBinaryData *bitmap, size_t at)
{
	return at < bitmap->len ? bitmap->data[at] : 0;
}

/* Of the eight segments from `first` on: those that only a peer needs which is gone. */
static unsigned unneeded(const struct resume_input *input, const Traind__Peer__OpReport *op,
    uint32_t first)
{
	unsigned mask = 0;
	uint32_t begin = 0;
	for (size_t i = 0; i < op->n_needed_by && i < op->n_needed_until; i++) {
		uint32_t end = op->needed_until[i];
		if (begin < first + 8 && end > first && !is_member(input, op->needed_by[i]))
			for (uint32_t bit = 0; bit < 8; bit++)
				if (first + bit >= begin && first + bit < end)
					mask |= 1u << bit;
		begin = end;
	}
	return mask;
}

static bool op_whole(const struct resume_input *input, const struct resume_decision *decision,
    const Traind__Peer__OpReport *like)
{
	bool keep = input->policy == TRAIND__PEER__POLICY__POLICY_KEEP;
	const Traind__Peer__OpReport *ops[TR_GROUP_PEERS_MAX];
	size_t count = 0;
	for (size_t i = 0; i < input->count && count < TR_GROUP_PEERS_MAX; i++) {
		const Traind__Peer__OpReport *op = begun_under(input->reports[i], decision)
		    ? op_of(input->reports[i], like)
		    : NULL;
		if (op != NULL)
			ops[count++] = op;
	}
	for (uint32_t first = 0; first < like->segments; first += 8) {
		uint32_t left = like->segments - first;
		unsigned wanted = left >= 8 ? 0xffu : (1u << left) - 1;
		unsigned have = unneeded(input, like, first);
		for (size_t i = 0; i < count; i++)
			have |= byte_of(keep ? &ops[i]->sealed : &ops[i]->whole, first / 8);
		if ((have & wanted) != wanted)
			return false;
	}
	return true;
}

/* What only two peers know of: a send and its receive. */
static bool pairs_whole(const struct resume_input *input, const struct resume_decision *decision)
{
	for (size_t i = 0; i < input->count; i++) {
		const Traind__Peer__ViewReport *report = input->reports[i];
		for (size_t k = 0; begun_under(report, decision) && k < report->n_ops; k++)
			if (report->ops[k]->n_needed_by == 1 &&
			    !op_whole(input, decision, report->ops[k]))
				return false;
	}
	return true;
}

/* Some survivor knows the whole set of ops, and every segment of them is somewhere with every
 * contributor in it (keep: is sealed somewhere). */
static bool whole_somewhere(const struct resume_input *input, const struct resume_decision *decision)
{
	for (size_t i = 0; i < input->count; i++) {
		const Traind__Peer__ViewReport *report = input->reports[i];
		if (!begun_under(report, decision) || !report->closed)
			continue;
		bool whole = true;
		for (size_t k = 0; whole && k < report->n_ops; k++)
			whole = op_whole(input, decision, report->ops[k]);
		if (whole)
			return pairs_whole(input, decision);
	}
	return false;
}

/* It has not voted in this attempt, so nobody has committed it. */
static bool any_stuck(const struct resume_input *input, const struct resume_decision *decision)
{
	for (size_t i = 0; i < input->count; i++)
		if (begun_under(input->reports[i], decision) && input->reports[i]->stuck)
			return true;
	return false;
}

static bool any_indexed(const struct resume_input *input)
{
	for (size_t i = 0; i < input->count; i++)
		if (input->reports[i] != NULL && input->reports[i]->indexed)
			return true;
	return false;
}

/* What the lost one had of ops among some is known to these only, and no caller knows what to do with a part. */
static bool any_scoped(const struct resume_input *input)
{
	for (size_t i = 0; i < input->count; i++)
		if (input->reports[i] != NULL && input->reports[i]->scoped)
			return true;
	return false;
}

static bool contributes(const struct resume_decision *decision, uint64_t peer)
{
	for (size_t i = 0; i < decision->contributors_count; i++)
		if (decision->contributors[i] == peer)
			return true;
	return false;
}

/* Of the attempt, by all of its contributors who are left. Then who was lost may have committed it, in any view that had it: those who came later had no vote there, so that theirs says nothing. Who has
 * voted has all that it needs, and the others get theirs from it. */
static bool all_voted(const struct resume_input *input, const struct resume_decision *decision)
{
	bool any = false;
	for (size_t i = 0; i < input->count; i++) {
		bool voted = begun_under(input->reports[i], decision) && input->reports[i]->voted;
		if (!voted && contributes(decision, input->members[i]))
			return false;
		any = any || voted;
	}
	return any;
}

/* `uniform` redoes ops without the callers, so these keep the indices with which they began: not where another contributor is still
 * to begin and will be told new ones. */
static bool any_to_begin(const struct resume_input *input, const struct resume_decision *decision)
{
	if (input->policy != TRAIND__PEER__POLICY__POLICY_UNIFORM)
		return false;
	for (size_t i = 0; i < input->count; i++)
		if (contributes(decision, input->members[i]) &&
		    !begun_under(input->reports[i], decision))
			return true;
	return false;
}

/* Samples that it will say, or an input of another op, may come from a result that is given up. */
static bool any_read(const struct resume_input *input, const struct resume_decision *decision)
{
	for (size_t i = 0; i < input->count; i++)
		if (begun_under(input->reports[i], decision) && input->reports[i]->read)
			return true;
	return false;
}

static void abandon(const struct resume_input *input, struct resume_decision *decision,
    const char *reason)
{
	decision->abandoned = true;
	decision->restart = any_stuck(input, decision) || any_indexed(input) || any_scoped(input) ||
	    any_to_begin(input, decision) || any_read(input, decision);
	decision->reason = reason;
}

void resume_decide(const struct resume_input *input, struct resume_decision *decision)
{
	memset(decision, 0, sizeof(*decision));
	uint64_t committed = input->recorded;
	for (size_t i = 0; i < input->count; i++)
		if (input->reports[i] != NULL && input->reports[i]->committed_round > committed)
			committed = input->reports[i]->committed_round;
	decision->base_round = committed + 1;
	uint64_t attempt = attempt_of(input, decision);
	decision->base_attempt = attempt;
	if (attempt == 0) {
		decision->reason = "nobody had begun it";
	} else {
		(void)contributors_of(input, decision->base_round, attempt, decision);
		if (any_stuck(input, decision)) {
			abandon(input, decision, "a caller waits for what is lost");
		} else if (!contributor_lost(input, decision)) {
			decision->finish = true;
			decision->reason = "no contributor was lost";
		} else if (any_scoped(input) && all_voted(input, decision)) {
			decision->finish = true;
			decision->reason = "everybody had voted";
		} else if (any_scoped(input)) {
			abandon(input, decision,
			    "a contributor was lost, and its callers use scopes");
		} else if (input->policy == TRAIND__PEER__POLICY__POLICY_KEEP &&
		    contributor_left(input, decision)) {
			decision->finish = true;
			decision->reason = "sealed segments are kept";
		} else if (whole_somewhere(input, decision)) {
			decision->finish = true;
			decision->reason = "every segment is whole at some survivor";
		} else {
			abandon(input, decision,
			    contributor_left(input, decision)
			        ? "data of a lost contributor is missing"
			        : "every contributor was lost");
		}
	}
	if (!decision->finish) {
		decision->base_attempt = input->number;
		decision->contributors_count = 0;
	}
}
