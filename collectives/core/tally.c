#include "collectives/core/tally.h"

#include "collectives/core/member.h"
#include "collectives/core/scope.h"

static void tally_with(struct tally *tally, uint32_t contributor)
{
	tally->with[contributor / 64] |= UINT64_C(1) << contributor % 64;
}

struct tr_digest tally_signature(struct tr_digest digest, const struct op *op)
{
	const struct op_signature *s = &op->signature;

	digest = tr_digest_fold(digest, (struct tr_digest){ op->tag, s->count });
	digest = tr_digest_fold(digest,
	    (struct tr_digest){ s->dtype, (uint64_t)s->reduce << 8 | s->codec });
	digest = tr_digest_fold(digest,
	    (struct tr_digest){ s->root, (uint64_t)s->collective << 8 | s->algorithm });
	if (!op_scoped(op))
		return digest;
	return tr_digest_fold(digest, tr_digest_of(op->scope.bits, sizeof(op->scope.bits)));
}

uint64_t tally_signed(const struct op *op)
{
	uint32_t source = op->kind == OP_PAIR ? op->source : 0;

	return tally_signature((struct tr_digest){ source, 0 }, op).low;
}

uint64_t tally_result(const struct op *op)
{
	if (!op_alike(op))
		return 0;
	return tr_digest_fold(tally_signature((struct tr_digest){ 0, 0 }, op), op_digest(op)).low;
}

uint32_t tally_other_end(const struct op *op)
{
	return scope_outer(&op->scope, op->sends ? op->signature.root : op->source);
}

/* ---- scopes ---- */

/* Of ops that are not here any more, with the places of this view. */
static void tally_released_scope(const struct group_core *core, const struct release_party *party,
    bool results, struct tally *tally)
{
	uint32_t mine = core->roster.bit[core->roster.me];
	unsigned living = 0, before = 0;

	for (uint32_t bit = 0; bit < core->roster.contributor_count; bit++) {
		if (!bits_get(party->bits, bit) ||
		    path_participant(&core->roster, bit) == ROSTER_NONE)
			continue;
		living++;
		before += bit < mine;
		if (bit != mine)
			tally_with(tally, bit);
	}
	tally->sum += scope_term(before, living, party->sum);
	if (results)
		tally->results += scope_term(before, living, party->results);
}

struct tally tally_scoped(const struct group_core *core, bool results)
{
	const struct released *released = &core->released;
	struct tally tally = { 0 };

	for (size_t i = 0; i < released->party_count; i++)
		if (!released->parties[i].pairs)
			tally_released_scope(core, &released->parties[i], results, &tally);
	for (size_t i = 0; core->scoped && i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		const struct roster *roster = op->roster;
		if (op->kind == OP_PAIR || !op_scoped(op))
			continue;
		tally.sum += scope_term(roster->me, roster->n, tally_signed(op));
		if (results)
			tally.results += scope_term(roster->me, roster->n, tally_result(op));
		for (unsigned k = 0; k < roster->n; k++)
			if (k != roster->me)
				tally_with(&tally, core->roster.bit[roster->outer[k]]);
	}
	return tally;
}

/* ---- pairs ---- */

static void tally_released_pairs(const struct group_core *core, const struct release_party *party,
    struct tally *tally)
{
	uint32_t mine = core->roster.bit[core->roster.me];

	for (uint32_t bit = 0; bit < core->roster.contributor_count; bit++) {
		if (bit == mine || !bits_get(party->bits, bit) ||
		    path_participant(&core->roster, bit) == ROSTER_NONE)
			continue;
		tally->sum ^= party->sum;
		tally_with(tally, bit);
	}
}

struct tally tally_pairs(const struct group_core *core)
{
	const struct released *released = &core->released;
	struct tally tally = { 0 };

	for (size_t i = 0; i < released->party_count; i++)
		if (released->parties[i].pairs)
			tally_released_pairs(core, &released->parties[i], &tally);
	for (size_t i = 0; i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		struct route_of of;
		if (op->kind != OP_PAIR || !path_route_of(op, 0, &of) || of.to == ROSTER_NONE)
			continue;
		tally.sum ^= tally_signed(op);
		tally_with(&tally, tally_other_end(op));
	}
	return tally;
}
