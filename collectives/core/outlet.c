/* What goes out of a broadcast, an all-gather or a send, and results that are served after a view change. Who gives its own there gets no result back that would be the credit for its next segment. What lies in a row and has
 * no codec goes out of the caller's memory, all at once. Else it is staged; so much of it may be out at a time (buffer_outlet), and what was sent, or dropped, makes room for
 * more. A frame that waits for its receiver to submit the op is out too.
 *
 * A send is done at once here, as its caller was promised, and owes its segments. Who passes on what does not lie in a row here owes it too while there is no room, and gathers it
 * again; so who passes on what has a codec, who drops the bytes that came and encodes the result once more. A source is done when it has staged its last segment. Who serves a result owes it likewise (serve.c).
 *
 * What encoding a result again would not give back goes as it is. That takes no memory where it lies in a row. Encoding takes time, of which a step has little, as heartbeats wait for it: what is left is owed until the next one,
 * which is due at once.
 *
 * Room is noticed when a buffer comes back, between steps: group_core_due, and its owner takes a step (GROUP_TICK).
 */
#include <stdlib.h>

#include "collectives/core/member.h"

#define OUTLET_STEP_BYTES ((size_t)16 << 20) /* of results: 4 to 7 ms with AVX-512 */

/* A member that submits late holds as much again of what came before (ahead.c): over short ways, where less keeps links busy too, both together stay below 32 MiB. */
static size_t outlet_most(const struct group_core *core)
{
	bool all = select_long(core->view.latency_s);

	return all ? core->outlet_bytes : core->outlet_bytes - core->outlet_bytes / 8 * 3;
}

bool outlet_open(struct op *op)
{
	struct buffer_outlet *outlet = op->outlet;
	bool open = !outlet || outlet->bytes < outlet->most;

	if (outlet)
		buffer_outlet_starve(outlet, !open);
	return open;
}

bool outlet_now(struct group_core *core, struct op *op)
{
	bool now = core->served_bytes < OUTLET_STEP_BYTES;

	core->pool.outlet_due = core->pool.outlet_due || !now;
	return now && outlet_open(op);
}

void outlet_staged(struct group_core *core, struct op *op, uint32_t segment,
    struct group_buffer *buffer)
{
	if (op->kind != OP_SOURCED && op->kind != OP_PAIR &&
	    op->segment[segment].server == ROSTER_NONE)
		return;
	if (!op->outlet) {
		op->outlet = malloc(sizeof(*op->outlet));
		if (!op->outlet)
			return; /* so nothing bounds it */
		*op->outlet = (struct buffer_outlet){ .pool = &core->pool,
			.most = outlet_most(core),
			.references = 1 };
	}
	buffer_outlet_add(op->outlet, buffer);
}

bool outlet_waits(struct op *op, bool staged, const struct route *route)
{
	return op->kind == OP_SOURCED && staged && route->down_count > 0 && !outlet_open(op);
}

/* ---- what is done here, and not on its way ---- */

void outlet_owe(struct op *op, uint32_t segment)
{
	op->owed += !op->segment[segment].owed;
	op->segment[segment].owed = true;
	if (segment < op->owed_at)
		op->owed_at = segment;
}

static tr_status outlet_send(struct group_core *core, struct op *op, uint32_t segment)
{
	struct route_of of;
	struct route route;

	if (!op->sends && op->segment[segment].server != ROSTER_NONE)
		return serve_give(core, op, segment);
	if (!path_route_of(op, segment, &of))
		return TR_OK; /* nobody is left who gets it */
	if (op->sends)
		return of.to == ROSTER_NONE ? TR_OK : path_send_input(core, op, segment, of.to);
	route_find(&of, op->roster->me, &route);
	return path_pass_on_again(core, op, segment, &route);
}

void outlet_give(struct group_core *core, struct op *op)
{
	while (op->owed > 0 && outlet_now(core, op)) {
		uint32_t segment = op->owed_at++;
		if (!op->segment[segment].owed)
			continue;
		if (outlet_send(core, op, segment) != TR_OK) {
			op->owed_at = segment;
			core->status = TR_ENOMEM;
			return;
		}
		op->segment[segment].owed = false;
		op->owed--;
	}
}

/* ---- room ---- */

bool group_core_due(const struct group_core *core)
{
	return core->pool.outlet_due;
}

bool group_core_starved(const struct group_core *core)
{
	return core->pool.starved > 0;
}

/* It is nothing of this step's event, whoever that is from. A sender that has voted must not say that it is stuck; another view has it send again. */
static void outlet_lost(struct group_core *core)
{
	if (core->voted)
		repair_ask(core, "out of memory for what is to be sent");
	else
		repair_stuck(core, "out of memory for what is to be sent");
}

void outlet_advance(struct group_core *core)
{
	bool stands = core->proposal != 0 || core->stuck || !round_active(core);
	tr_status before = core->status;

	if (!core->pool.outlet_due)
		return;
	core->pool.outlet_due = false;
	core->status = TR_OK;
	for (size_t i = 0; i < core->op_count && !stands && core->status == TR_OK; i++) {
		struct op *op = core->ops[i];
		bool waits = op->owed > 0 || (op->outlet && op->outlet->starved);
		if (waits && outlet_open(op))
			window_advance(core, op);
		if (core->status != TR_OK && op->outlet)
			buffer_outlet_starve(op->outlet, true);
	}
	if (core->status != TR_OK)
		outlet_lost(core);
	core->status = before;
}
