/* What a frozen member says of the round that it is in: what it has committed, which segments of which ops it holds. memberd decides by all
 * reports how the round goes on (daemon/membership/core/resume.c). */
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/scope.h"

/* Runs of segments that one contributor alone needs. */
static bool report_needs(const struct op *op, Traind__Peer__OpReport *report)
{
	const struct roster *roster = op->roster;

	if (op_alike(op))
		return true;
	report->needed_by = calloc(roster->contributor_count, sizeof(uint64_t));
	report->needed_until = calloc(roster->contributor_count, sizeof(uint32_t));
	if (!report->needed_by || !report->needed_until)
		return false;
	uint32_t last = ROSTER_NONE;
	for (uint32_t s = 0; s < op->segments; s++) {
		uint32_t who = op->kind == OP_PAIR ? op->signature.root : op_contributor(op, s);
		if (who != last)
			report->needed_by[report->n_needed_by++] = roster->contributors[who];
		last = who;
		report->needed_until[report->n_needed_by - 1] = s + 1;
	}
	report->n_needed_until = report->n_needed_by;
	return true;
}

static bool report_scope(const struct op *op, Traind__Peer__OpReport *report)
{
	if (!op_scoped(op))
		return true;
	report->scope.data = malloc(sizeof(op->scope.bits));
	if (!report->scope.data)
		return false;
	memcpy(report->scope.data, op->scope.bits, sizeof(op->scope.bits));
	report->scope.len = sizeof(op->scope.bits);
	return true;
}

static bool report_op(const struct op *op, Traind__Peer__OpReport *report)
{
	size_t bytes = bits_bytes(op->segments);

	report->tag = op->tag;
	report->segments = op->segments;
	report->sealed.data = calloc(1, bytes);
	report->whole.data = calloc(1, bytes);
	if (!report->sealed.data || !report->whole.data || !report_scope(op, report))
		return false;
	report->sealed.len = report->whole.len = bytes;
	for (uint32_t s = 0; s < op->segments; s++) {
		if (op->segment[s].sealed)
			bits_set(report->sealed.data, s);
		if (op_whole(op, s, op->roster->contributor_count))
			bits_set(report->whole.data, s);
	}
	return report_needs(op, report);
}

static bool report_ops(const struct group_core *core, Traind__Peer__ViewReport *report)
{
	report->ops = calloc(core->op_count + 1, sizeof(report->ops[0]));
	if (!report->ops)
		return false;
	for (size_t i = 0; i < core->op_count; i++) {
		Traind__Peer__OpReport *op = malloc(sizeof(*op));
		if (!op)
			return false;
		traind__peer__op_report__init(op);
		report->ops[report->n_ops++] = op;
		if (!report_op(core->ops[i], op))
			return false;
	}
	return true;
}

void report_say(struct group_core *core)
{
	Traind__Peer__ViewReport *report = malloc(sizeof(*report));

	if (!report) {
		core->status = TR_ENOMEM;
		return;
	}
	traind__peer__view_report__init(report);
	report->group = core->group;
	report->peer = core->peer;
	report->proposal = core->proposal;
	report->view = core->view.number;
	report->committed_round = core->committed; /* of a joiner that has not got the state: 0, or gradually */
	report->indexed = core->indexed;
	report->scoped = core->scoped;
	report->without_state = core->needs_state;
	if (round_active(core)) {
		report->begun_round = core->round;
		report->attempt = core->roster.attempt;
		report->closed = core->state == ROUND_CLOSED;
		report->voted = round_sealed(core) && !handover_awaited(core) && !core->stuck;
		report->stuck = core->stuck;
		report->read = core->read;
		if (!report_ops(core, report))
			core->status = TR_ENOMEM;
	}
	core->report_again_us = core->now_us + MEMBER_REPEAT_US;
	emit(core, GROUP_DO_REPORT)->report = report;
}
