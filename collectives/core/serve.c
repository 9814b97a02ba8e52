/* After a view change: sealed segments, which whoever holds them with the lowest index serves to those who lack them (Resume.ops). */
#include <inttypes.h>
#include <stdio.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/scope.h"

static bool serve_is(const Traind__Peer__OpHolders *holders, const struct op *op)
{
	const ProtobufCBinaryData *scope = &holders->scope;

	if (holders->tag != op->tag || !op_scoped(op))
		return holders->tag == op->tag && scope->len == 0;
	return scope->len == sizeof(op->scope.bits) &&
	    memcmp(scope->data, op->scope.bits, scope->len) == 0;
}

static const Traind__Peer__OpHolders *serve_holders(const struct group_core *core,
    const struct op *op)
{
	for (size_t i = 0; core->resume && i < core->resume->n_ops; i++)
		if (serve_is(core->resume->ops[i], op))
			return core->resume->ops[i];
	return NULL;
}

static bool serve_holds(const Traind__Peer__Holder *holder, uint32_t segment)
{
	return segment / 8 < holder->sealed.len && bits_get(holder->sealed.data, segment);
}

/* Who of the op's participants has it sealed, as the plan says; the lowest of them. */
static unsigned serve_server(const struct op *op, const Traind__Peer__OpHolders *holders,
    uint32_t segment, bool *holds)
{
	unsigned server = ROSTER_NONE;

	for (size_t i = 0; i < holders->n_holders; i++) {
		unsigned who = roster_find(op->roster, holders->holders[i]->peer);
		if (who == ROSTER_NONE || !serve_holds(holders->holders[i], segment))
			continue;
		holds[who] = true;
		if (who < server)
			server = who;
	}
	return server;
}

/* Who needs it and has it not. */
static bool serve_lack(const struct op *op, uint32_t segment, const bool *holds, bool *lack)
{
	bool any = false;

	for (unsigned i = 0; i < op->roster->n; i++) {
		lack[i] = !holds[i] && path_needs(op, segment, i);
		any = any || lack[i];
	}
	return any;
}

tr_status serve_give(struct group_core *core, struct op *op, uint32_t segment)
{
	bool holds[TR_GROUP_PEERS_MAX] = { false }, lack[TR_GROUP_PEERS_MAX];

	if (!op->holders)
		return TR_OK;
	(void)serve_server(op, op->holders, segment, holds);
	return serve_lack(op, segment, holds, lack) ? path_send_result(core, op, segment, lack)
	                                            : TR_OK;
}

static void serve_segment(struct group_core *core, struct op *op,
    const Traind__Peer__OpHolders *holders, uint32_t s)
{
	const struct roster *roster = op->roster;
	bool holds[TR_GROUP_PEERS_MAX] = { false }, lack[TR_GROUP_PEERS_MAX];
	unsigned server = serve_server(op, holders, s, holds);

	op->segment[s].server = server;
	if (op->segment[s].sealed != holds[roster->me]) {
		emit_fail(core, TR_EINTERNAL,
		    "op %u, segment %u: the resume plan says %s, this peer says otherwise", op->tag,
		    s, holds[roster->me] ? "sealed" : "not sealed");
		return;
	}
	if (server != roster->me || !serve_lack(op, s, holds, lack))
		return;
	if (op->sends || !outlet_now(core, op))
		outlet_owe(op, s);
	else if (path_send_result(core, op, s, lack) != TR_OK)
		core->status = TR_ENOMEM;
}

/* The plan's op is cut otherwise than ours. If nobody who contributes holds anything of it, who holds it is wrong. */
static void serve_differs(struct group_core *core, const Traind__Peer__OpHolders *holders,
    const struct op *op)
{
	char reason[200];
	uint64_t other = holders->n_holders > 0 ? holders->holders[0]->peer : 0;

	for (size_t i = 0; i < holders->n_holders; i++)
		if (commit_contributes(core, holders->holders[i]->peer))
			other = holders->holders[i]->peer;
	(void)snprintf(reason, sizeof(reason),
	    "peers %" PRIu64 " and %" PRIu64 " disagree in round %" PRIu64
	    ": op %u has %u segments at the first and %u at the second",
	    other, core->peer, core->round, op->tag, holders->segments, op->segments);
	if (other != 0 || !commit_contributes(core, core->peer))
		commit_differs(core, other, reason);
	else
		emit_refuse(core, TR_EMISMATCH, reason);
}

void serve_op(struct group_core *core, struct op *op)
{
	const Traind__Peer__OpHolders *holders = op->holders = serve_holders(core, op);

	if (!holders)
		return;
	if (holders->segments != op->segments) {
		serve_differs(core, holders, op);
		return;
	}
	for (uint32_t s = 0; core->state != ROUND_FAILED && s < op->segments; s++)
		serve_segment(core, op, holders, s);
}
