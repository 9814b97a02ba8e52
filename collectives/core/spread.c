/* Small inputs of one-shot ops, where all members see what any of them shows: one action for all peers instead of one for each, and one event
 * when all inputs are there. Nothing else differs: who is shown a frame may also be sent it (GROUP_SEGMENT), and the other way round, and the
 * results have the same bits, since they are added in the same order.
 */
#include "collectives/core/member.h"
#include "collectives/core/release.h"

/* To one peer: a reader may leave TR_SPREAD_UNREAD_MAX frames uncounted (ahead.c). That is less than half of what may be sent to it, so it says its word all the same. */
#define SPREAD_SHARE_MIN \
	(2u * (TR_SPREAD_UNREAD_MAX + 1) * (SEGMENT_HEADER_BYTES + TR_SPREAD_BYTES_MAX))

bool spread_may(const struct group_core *core, const struct roster *roster, uint64_t bytes)
{
	bool near = roster->maps && roster->host_count == 1;
	bool whole = !roster->outer && roster->n == core->view.count &&
	    roster->live_count == roster->n;

	return core->spreads && near && whole && roster->n > 1 &&
	    roster->n <= TR_SPREAD_PEERS_MAX && bytes <= TR_SPREAD_BYTES_MAX &&
	    op_segment_bytes(bytes, core->view.segment_bytes, 0) >= bytes;
}

static bool spread_fits(const struct group_core *core, const struct op *op)
{
	return op->algorithm == TR_ONE_SHOT && op->kind == OP_REDUCED && op->segments == 1 &&
	    op->codec == TR_CODEC_NONE && spread_may(core, op->roster, op_bytes(op, 0));
}

bool spread_send(struct group_core *core, struct op *op, uint32_t segment,
    const struct path_frame *frame)
{
	const struct roster *roster = op->roster;

	if (!spread_fits(core, op) || core->ahead_share < SPREAD_SHARE_MIN ||
	    !ahead_counts_all(core, op, frame))
		return false;
	if (core->spread_view != core->view.number)
		for (unsigned i = 0; i < roster->n; i++)
			emit_connect(core, roster->peers[i]);
	core->spread_view = core->view.number;
	(void)path_emit(core, op, segment, GROUP_DO_SPREAD, roster->n - 1, frame);
	return true;
}

struct group_action group_action_to(const struct group_action *spread, uint64_t peer)
{
	struct group_action one = *spread;

	one.kind = GROUP_DO_SEND_SEGMENT;
	one.to = peer;
	if (one.buffer)
		one.buffer->references++;
	return one;
}

/* Does it wait for the inputs of these, all of them? */
static bool spread_awaits(const struct group_core *core, const struct op *op,
    const struct group_event *event)
{
	const struct roster *roster = op->roster;
	const struct op_segment *only = op->segment;

	if (!spread_fits(core, op) || !only->begun || only->sealed || only->fold ||
	    only->server != ROSTER_NONE || event->gathered.count + 1 != roster->n ||
	    event->gathered.header->bytes != op_bytes(op, 0))
		return false;
	const uint64_t *peer = event->gathered.peers;
	for (unsigned i = 0; i < roster->n; i++)
		if (i != roster->me && roster->peers[i] != *peer++)
			return false;
	return true;
}

tr_status spread_gathered(struct group_core *core, const struct group_event *event)
{
	const struct segment_header *header = event->gathered.header;
	tr_status st = path_when(core, header);

	if (st == TR_ESTALE)
		return st;
	struct op *op = st == TR_OK ? round_op(core, header->tag) : NULL;
	if (!op || !spread_awaits(core, op, event))
		return TR_EAGAIN;
	for (unsigned i = 0; i < op->roster->n; i++)
		if (i != op->roster->me)
			ahead_offered(core, i, header, true, NULL);
	/* Without memory nothing was taken: one by one the same is tried, and said, again. */
	return fold_all(core, op, event->gathered.payloads) == TR_OK ? TR_OK : TR_EAGAIN;
}

bool group_core_takes(const struct group_core *core, const struct segment_header *header)
{
	tr_status st = path_when(core, header);

	if (st != TR_OK)
		return st != TR_EAGAIN;
	return core->state == ROUND_CLOSED || round_op(core, header->tag) ||
	    release_has(&core->released, header->tag);
}

enum group_wait group_core_waits(const struct group_core *core, uint32_t *tag)
{
	*tag = core->waited;
	if (core->waiting)
		return GROUP_WAITS_OP;
	return core->state == ROUND_CLOSED ? GROUP_WAITS_ALL : GROUP_WAITS_NOT;
}

size_t group_core_open_ops(const struct group_core *core)
{
	size_t open = 0;

	for (size_t i = 0; i < core->op_count; i++)
		open += !op_done(core->ops[i]);
	return open;
}
